//! A request's head: what it asks for, or why it is refused.
//!
//! Takes bytes and gives answers; no I/O, no clock. Bodies are never read, so nothing here follows a length
//! that a client tells.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Largest head of a request.
pub(super) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most header fields of one; browsers send about twenty.
const FIELDS_MAX: usize = 100;

/// What there is to ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Page {
    /// `/histograms`
    HistogramsJson,
    /// `/histograms?format=hlog`
    HistogramsLog,
}

/// A request that is answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) page: Page,
    /// Whether the page itself is wanted, not its head alone.
    pub(super) body: bool,
}

/// Why none is answered: a status and a sentence that says what to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) status: &'static str,
    pub(super) sentence: String,
    /// The methods there are, when the one asked is none of them.
    pub(super) allow: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(status: &'static str, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into(), allow: None }
    }
}

/// Reads what has come so far; `None` when the head goes on. `own_name` is the host name that the
/// configuration gives this endpoint.
pub(super) fn parse(head: &[u8], own_name: Option<&str>) -> Result<Option<Request>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => {}
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(too_large()),
        Err(error) => {
            return Err(Refusal::new(
                "400 Bad Request",
                format!("this is no HTTP/1.1 request ({error}): send GET /histograms HTTP/1.1"),
            ));
        }
    }
    check_host(&request, own_name)?;
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if path != "/histograms" {
        let there_is = "there is GET /histograms and GET /histograms?format=hlog here";
        return Err(Refusal::new("404 Not Found", there_is));
    }
    let body = match request.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => {
            let sentence = "nothing can be changed here: read it with GET";
            let refusal = Refusal::new("405 Method Not Allowed", sentence);
            return Err(Refusal { allow: Some("GET, HEAD"), ..refusal });
        }
    };
    let page = match query {
        "" | "format=json" => Page::HistogramsJson,
        "format=hlog" => Page::HistogramsLog,
        _ => {
            let sentence = "the query is unknown: ask with ?format=json or ?format=hlog";
            return Err(Refusal::new("400 Bad Request", sentence));
        }
    };
    Ok(Some(Request { page, body }))
}

fn too_large() -> Refusal {
    Refusal::new(
        "431 Request Header Fields Too Large",
        format!(
            "the request's head has more than {HEAD_BYTES_MAX} bytes or {FIELDS_MAX} fields: send fewer headers"
        ),
    )
}

/// Refuses names that are not this endpoint's. A web page can have its own name lead to this address, and
/// so make a browser on this host read what is here; it cannot make the browser send an address or another
/// name than its own.
fn check_host(request: &httparse::Request<'_, '_>, own_name: Option<&str>) -> Result<(), Refusal> {
    let mut hosts = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.value,
        // A browser sends one.
        (None, None) if request.version == Some(0) => return Ok(()),
        _ => {
            let sentence =
                "an HTTP/1.1 request has one Host: send the address that was connected to";
            return Err(Refusal::new("400 Bad Request", sentence));
        }
    };
    let known = std::str::from_utf8(host).is_ok_and(|host| is_own(host.trim(), own_name));
    if known {
        return Ok(());
    }
    Err(Refusal::new(
        "421 Misdirected Request",
        "this host name is not known here: ask by IP address, as localhost, or by the host name that \
         http.listen is set to",
    ))
}

fn is_own(host: &str, own_name: Option<&str>) -> bool {
    let name = match host.rsplit_once(':') {
        // What is left of an IPv6 address is none, so a colon within one does no harm.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    bracketed.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
        || name.parse::<Ipv4Addr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || own_name.is_some_and(|own| name.eq_ignore_ascii_case(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(host: &str) -> Result<Option<Request>, Refusal> {
        let head = format!("GET /histograms HTTP/1.1\r\nHost: {host}\r\n\r\n");
        parse(head.as_bytes(), Some("node7.example"))
    }

    #[test]
    fn only_addresses_and_own_names_are_taken_for_this_node() {
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
            let taken = ask(host).unwrap().unwrap();
            assert_eq!(taken, Request { page: Page::HistogramsJson, body: true }, "{host}");
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
            assert_eq!(ask(host).unwrap_err().status, "421 Misdirected Request", "{host}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let ask = |text: &str| parse(text.as_bytes(), None);
        assert!(ask("GET /histograms HTTP/1.0\r\n\r\n").unwrap().is_some());
        assert_eq!(ask("GET /histograms HTTP/1.1\r\n\r\n").unwrap_err().status, "400 Bad Request");
        let two = "GET /histograms HTTP/1.1\r\nHost: 127.0.0.1\r\nhost: evil.example\r\n\r\n";
        assert_eq!(ask(two).unwrap_err().status, "400 Bad Request");
    }

    #[test]
    fn a_head_is_read_when_all_of_it_is_there() {
        let whole = b"HEAD /histograms?format=hlog HTTP/1.1\r\nHost: localhost\r\n\r\nbody";
        for end in 0..whole.len() - b"body".len() {
            assert_eq!(parse(&whole[..end], None), Ok(None), "{end}");
        }
        let request = Request { page: Page::HistogramsLog, body: false };
        assert_eq!(parse(whole, None), Ok(Some(request)));
    }
}
