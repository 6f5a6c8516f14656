//! The listening socket, and bounds on what a client can ask of it.
//!
//! One request a connection, a few connections at a time, each for a few seconds: enough for a person
//! and some collectors, and nothing that a client does can cost more. A client that is waited for, for its
//! request or for taking its answer, gives way to the next when all places are taken.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use axum::Router;
use dataplane::counters::Snapshot;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

use super::routes;
use crate::config::{HttpConfig, NodeConfigError};

/// Connections served at a time.
const CONNECTIONS_MAX: usize = 16;
/// What a client that is waited for has, however many others come: a burst of collectors is served whole.
const UNDISTURBED: Duration = Duration::from_millis(100);
/// A connection ends after this long, whatever it is doing.
const CONNECTION_MAX: Duration = Duration::from_secs(10);
/// Within which a request's head has to be there.
const HEAD_MAX: Duration = Duration::from_secs(5);
/// Largest head of a request. Bodies are not read.
const HEAD_BYTES_MAX: usize = 16 * 1024;
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
        let router = routes::router(started, counters, self.own_name);
        let mut connections = Connections::default();
        loop {
            match listener.accept().await {
                Ok((socket, _)) => {
                    connections.make_room().await;
                    connections.spawn(socket, router.clone());
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

    fn spawn(&mut self, socket: TcpStream, router: Router) {
        let busy = Arc::new(AtomicBool::new(false));
        let served = timeout(CONNECTION_MAX, connection(socket, router, busy.clone()));
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

/// Answers one request. Refuses by itself, without a word, what is no request (400), one whose head is too
/// large (431), and closes when none comes in time.
async fn connection(socket: TcpStream, router: Router, busy: Arc<AtomicBool>) -> hyper::Result<()> {
    let router = TowerToHyperService::new(router);
    let answer = service_fn(|request| {
        let answer = router.call(request);
        let busy = &busy;
        async move {
            busy.store(true, Ordering::Relaxed);
            let answer = answer.await;
            busy.store(false, Ordering::Relaxed);
            answer
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), answer)
        .await
}
