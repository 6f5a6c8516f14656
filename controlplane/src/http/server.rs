//! The listening socket, and bounds on what a client can ask of it.
//!
//! One request a connection, a few connections at a time, each for a few seconds: enough for a person
//! and some collectors, and nothing that a client does can cost more. A client that is waited for, for its
//! request or for taking its answer, gives way to the next when all places are taken.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use dataplane::counters::Snapshot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::histograms::{self, Interval};
use super::request::{self, HEAD_BYTES_MAX, Page, Refusal, Request};
use crate::config::{HttpConfig, NodeConfigError};

/// Connections served at a time.
const CONNECTIONS_MAX: usize = 16;
/// What a client that is waited for has, however many others come: a burst of collectors is served whole.
const UNDISTURBED: Duration = Duration::from_millis(100);
/// A connection ends after this long, whatever it is doing.
const CONNECTION_MAX: Duration = Duration::from_secs(10);
/// Within which a request's head has to be there.
const HEAD_MAX: Duration = Duration::from_secs(5);
/// What is still taken from a client after its answer, for this long at most: a socket that is closed with
/// bytes unread is reset, and the answer may be lost with it.
const LINGER_BYTES_MAX: u64 = 1 << 20;
const LINGER_MAX: Duration = Duration::from_secs(1);
/// A pause after a failed accept: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Reads the cores' counters; `None` once they are shut down.
pub type ReadCounters = Arc<dyn Fn() -> Option<Snapshot> + Send + Sync>;

/// Why there is no HTTP.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The configured address cannot be resolved.
    #[error(transparent)]
    Config(#[from] NodeConfigError),
    /// The port that was asked for cannot be had.
    #[error(
        "cannot listen for HTTP on {address}: {source}; set http.listen to another port, 0 for a free one or \"off\""
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Binds what the configuration says. A default port that is taken, by another node of this host most
/// likely, costs a warning; one that was asked for is an error.
pub fn bind(config: &HttpConfig) -> Result<Option<Http>, HttpError> {
    let Some(address) = config.address()? else { return Ok(None) };
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let own_name = config.host().map(str::to_owned);
        Ok(Http { address: listener.local_addr()?, listener, own_name })
    });
    match bound {
        Ok(http) => {
            if !http.address.ip().is_loopback() {
                tracing::warn!(
                    address = %http.address,
                    "histograms can be read from other hosts, by anyone who reaches this address"
                );
            }
            Ok(Some(http))
        }
        Err(error) if config.listen.is_none() => {
            tracing::warn!(
                %address, %error,
                "no histograms over HTTP: the default port cannot be had; set http.listen"
            );
            Ok(None)
        }
        Err(source) => Err(HttpError::Listen { address, source }),
    }
}

/// A bound socket, not served yet.
#[derive(Debug)]
pub struct Http {
    listener: TcpListener,
    address: SocketAddr,
    pub(super) own_name: Option<String>,
}

impl Http {
    /// Where it listens, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the future is dropped, and every connection with it. `started` is when the
    /// counters began.
    pub async fn serve(self, started: SystemTime, counters: ReadCounters) {
        let listener = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "no histograms over HTTP"),
        };
        let source = Source { started, counters, own_name: self.own_name.map(Arc::from) };
        let mut connections = Connections::default();
        loop {
            match listener.accept().await {
                Ok((socket, _)) => {
                    connections.make_room().await;
                    connections.spawn(socket, source.clone());
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection for HTTP was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// The open connections, the oldest first.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    open: VecDeque<Open>,
}

struct Open {
    task: AbortHandle,
    since: Instant,
    /// While its answer is made; otherwise the client is waited for.
    busy: Arc<AtomicBool>,
}

impl Connections {
    /// Returns when there is a place. Answers are made within milliseconds, so one of the connections ends
    /// or can be ended soon.
    async fn make_room(&mut self) {
        self.forget_ended();
        while self.open.len() >= CONNECTIONS_MAX {
            let waited_for = |open: &Open| {
                !open.busy.load(Ordering::Relaxed) && open.since.elapsed() >= UNDISTURBED
            };
            if let Some(open) =
                self.open.iter().position(waited_for).and_then(|index| self.open.remove(index))
            {
                tracing::debug!("a connection for HTTP gave way to another");
                open.task.abort();
            } else {
                // Cancel safe: an ended task that is not taken here is taken the next time.
                let _ = timeout(UNDISTURBED, self.tasks.join_next()).await;
                self.forget_ended();
            }
        }
    }

    fn forget_ended(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|open| !open.task.is_finished());
    }

    fn spawn(&mut self, socket: TcpStream, source: Source) {
        let busy = Arc::new(AtomicBool::new(false));
        let served = timeout(CONNECTION_MAX, connection(socket, source, busy.clone()));
        let task = self.tasks.spawn(async move {
            match served.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a connection for HTTP ended early"),
                Err(_) => tracing::debug!("a connection for HTTP took too long"),
            }
        });
        self.open.push_back(Open { task, since: Instant::now(), busy });
    }
}

/// What answers are made from.
#[derive(Clone)]
struct Source {
    started: SystemTime,
    counters: ReadCounters,
    own_name: Option<Arc<str>>,
}

async fn connection(
    mut socket: TcpStream,
    source: Source,
    busy: Arc<AtomicBool>,
) -> io::Result<()> {
    let asked = match timeout(HEAD_MAX, read_head(&mut socket, source.own_name.as_deref())).await {
        Ok(asked) => asked?,
        Err(_) => Err(Refusal::new(
            "408 Request Timeout",
            format!("the request did not come within {} s: send it at once", HEAD_MAX.as_secs()),
        )),
    };
    let answer = match asked {
        Ok(request) => {
            busy.store(true, Ordering::Relaxed);
            let answer = page(request, source).await;
            busy.store(false, Ordering::Relaxed);
            answer
        }
        Err(refusal) => Err(refusal),
    };
    socket.write_all(&bytes_of(answer)).await?;
    socket.shutdown().await?;
    // What comes late or does not end is the client's affair.
    let mut rest = socket.take(LINGER_BYTES_MAX);
    let _ = timeout(LINGER_MAX, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    Ok(())
}

async fn read_head(
    socket: &mut TcpStream,
    own_name: Option<&str>,
) -> io::Result<Result<Request, Refusal>> {
    let mut head = Vec::with_capacity(1024);
    loop {
        let room = (HEAD_BYTES_MAX - head.len()) as u64;
        if socket.take(room).read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match request::parse(&head, own_name) {
            Ok(None) => {}
            Ok(Some(request)) => return Ok(Ok(request)),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
}

/// An answer's type and body; no body for a request that wants the head alone, but its length.
struct Content {
    content_type: &'static str,
    length: usize,
    body: Vec<u8>,
}

async fn page(request: Request, source: Source) -> Result<Content, Refusal> {
    type Write = fn(&Snapshot, &Interval) -> Vec<u8>;
    let (write, content_type): (Write, _) = match request.page {
        Page::HistogramsJson => (histograms::json, "application/json"),
        Page::HistogramsLog => (histograms::hlog, "text/plain; charset=utf-8"),
    };
    // Compressing a few hundred histograms takes milliseconds that other tasks need not wait for.
    let written = tokio::task::spawn_blocking(move || {
        let snapshot = (source.counters)()?;
        Some(write(&snapshot, &Interval { from: source.started, to: SystemTime::now() }))
    });
    match written.await {
        Ok(Some(mut body)) => {
            let length = body.len();
            if !request.body {
                body.clear();
            }
            Ok(Content { content_type, length, body })
        }
        _ => {
            let sentence = "the node is stopping: ask again when it runs";
            Err(Refusal::new("503 Service Unavailable", sentence))
        }
    }
}

fn bytes_of(answer: Result<Content, Refusal>) -> Vec<u8> {
    let (status, allow, content) = match answer {
        Ok(content) => ("200 OK", None, content),
        Err(Refusal { status, sentence, allow }) => {
            let body = format!("{sentence}\n").into_bytes();
            let content_type = "text/plain; charset=utf-8";
            (status, allow, Content { content_type, length: body.len(), body })
        }
    };
    let Content { content_type, length, body } = content;
    let allow = allow.map_or_else(String::new, |methods| format!("allow: {methods}\r\n"));
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\
         {allow}cache-control: no-store\r\nconnection: close\r\n\r\n"
    )
    .into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}
