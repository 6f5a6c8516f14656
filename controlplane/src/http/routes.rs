//! What there is to ask for, and a sentence that says what to do for what is not.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dataplane::counters::Snapshot;

use super::ReadCounters;
use super::histograms::{self, Interval};

const TEXT: &str = "text/plain; charset=utf-8";

/// What answers are made from.
#[derive(Clone)]
struct Source {
    started: SystemTime,
    counters: ReadCounters,
}

/// `own_name` is the host name that the configuration gives this endpoint.
pub(super) fn router(
    started: SystemTime,
    counters: ReadCounters,
    own_name: Option<String>,
) -> Router {
    let own_name: Option<Arc<str>> = own_name.map(Arc::from);
    Router::new()
        .route("/histograms", get(get_histograms))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Source { started, counters })
        .layer(from_fn_with_state(own_name, check_host))
}

async fn get_histograms(State(source): State<Source>, RawQuery(query): RawQuery) -> Response {
    type Write = fn(&Snapshot, &Interval) -> Vec<u8>;
    let (write, content_type): (Write, _) = match query.as_deref() {
        None | Some("" | "format=json") => (histograms::json, "application/json"),
        Some("format=hlog") => (histograms::hlog, TEXT),
        Some(_) => {
            let text = "the query is unknown: ask with ?format=json or ?format=hlog";
            return sentence(StatusCode::BAD_REQUEST, text);
        }
    };
    // Compressing a few hundred histograms takes milliseconds that other tasks need not wait for.
    let written = tokio::task::spawn_blocking(move || {
        let snapshot = (source.counters)()?;
        Some(write(&snapshot, &Interval { from: source.started, to: SystemTime::now() }))
    });
    match written.await {
        Ok(Some(body)) => answer(StatusCode::OK, content_type, body),
        _ => {
            let text = "the node is stopping: ask again when it runs";
            sentence(StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

async fn not_found() -> Response {
    sentence(StatusCode::NOT_FOUND, "there is GET /histograms and GET /histograms?format=hlog here")
}

async fn method_not_allowed() -> Response {
    sentence(StatusCode::METHOD_NOT_ALLOWED, "nothing can be changed here: read it with GET")
}

/// Refuses names that are not this endpoint's. A web page can have its own name lead to this address, and
/// so make a browser on this host read what is here; it cannot make the browser send an address or another
/// name than its own.
async fn check_host(
    State(own_name): State<Option<Arc<str>>>,
    request: Request,
    next: Next,
) -> Response {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_own(host, own_name.as_deref()) => {}
        // A browser sends one.
        (None, None) if request.version() == Version::HTTP_10 => {}
        (Some(_), None) => {
            return sentence(
                StatusCode::MISDIRECTED_REQUEST,
                "this host name is not known here: ask by IP address, as localhost, or by the host name \
                 that http.listen is set to",
            );
        }
        _ => {
            let text = "an HTTP/1.1 request has one Host: send the address that was connected to";
            return sentence(StatusCode::BAD_REQUEST, text);
        }
    }
    next.run(request).await
}

fn is_own(host: &HeaderValue, own_name: Option<&str>) -> bool {
    let Ok(authority) = Authority::try_from(host.as_bytes()) else { return false };
    let name = authority.host();
    name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || own_name.is_some_and(|own| name.eq_ignore_ascii_case(own))
}

fn sentence(status: StatusCode, text: &str) -> Response {
    answer(status, TEXT, format!("{text}\n").into_bytes())
}

fn answer(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response {
    let headers = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_own_names_are_taken_for_this_node() {
        let taken = |host: &str| {
            is_own(&HeaderValue::from_bytes(host.as_bytes()).unwrap(), Some("node7.example"))
        };
        for host in [
            "127.0.0.1",
            "10.1.2.3:9190",
            "[::1]:9190",
            "[fd00::7]",
            "localhost:9190",
            "LocalHost",
            "node7.example:9190",
            "Node7.Example",
        ] {
            assert!(taken(host), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9190",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.example#127.0.0.1",
            "1",
            "",
            ":9190",
            "::1",
            "[::1",
            "[evil.example]",
            "\u{e9}",
        ] {
            assert!(!taken(host), "{host}");
        }
    }
}
