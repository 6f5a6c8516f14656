//! The listening socket, and bounds on what a client can ask of it.
//!
//! One request a connection, a few connections at a time, each for a few seconds: enough for a person
//! and some collectors, and nothing that a client does can cost more.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dataplane::counters::Snapshot;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::histograms::{self, Interval};
use crate::config::{HttpConfig, NodeConfigError};

/// Connections served at a time; further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;
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
        Ok(Http { address: listener.local_addr()?, listener })
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
        let router = router(Source { started, counters });
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        while let Ok(permit) = permits.clone().acquire_owned().await {
            while connections.try_join_next().is_some() {}
            let socket = match listener.accept().await {
                Ok((socket, _)) => socket,
                Err(error) => {
                    tracing::debug!(%error, "a connection for HTTP was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let served = tokio::time::timeout(CONNECTION_MAX, connection(socket, router.clone()));
            connections.spawn(async move {
                if served.await.is_err() {
                    tracing::debug!("a connection for HTTP took too long");
                }
                drop(permit);
            });
        }
    }
}

async fn connection(socket: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection for HTTP ended early");
    }
}

/// What answers are made from.
#[derive(Clone)]
struct Source {
    started: SystemTime,
    counters: ReadCounters,
}

fn router(source: Source) -> Router {
    Router::new().route("/histograms", get(get_histograms)).fallback(not_found).with_state(source)
}

async fn not_found() -> Response {
    sentence(StatusCode::NOT_FOUND, "there is GET /histograms and GET /histograms?format=hlog here")
}

async fn get_histograms(State(source): State<Source>, RawQuery(query): RawQuery) -> Response {
    type Write = fn(&Snapshot, &Interval) -> Vec<u8>;
    let (write, content_type): (Write, _) = match query.as_deref() {
        None | Some("" | "format=json") => (histograms::json, "application/json"),
        Some("format=hlog") => (histograms::hlog, "text/plain; charset=utf-8"),
        Some(_) => {
            return sentence(StatusCode::BAD_REQUEST, "the query is format=json or format=hlog");
        }
    };
    // Compressing a few hundred histograms takes milliseconds that other tasks need not wait for.
    let written = tokio::task::spawn_blocking(move || {
        let snapshot = (source.counters)()?;
        Some(write(&snapshot, &Interval { from: source.started, to: SystemTime::now() }))
    });
    match written.await {
        Ok(Some(body)) => {
            let headers =
                [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-store")];
            (headers, Body::from(body)).into_response()
        }
        _ => sentence(StatusCode::SERVICE_UNAVAILABLE, "the node is stopping"),
    }
}

fn sentence(status: StatusCode, text: &'static str) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (status, headers, format!("{text}\n")).into_response()
}
