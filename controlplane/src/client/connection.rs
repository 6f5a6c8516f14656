//! One connection to one broker: connect, negotiate, then one request at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiVersionsRequest;
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request, StrBytes, VersionRange};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Address, ClientError, KafkaCode, NegotiatedVersions, Security, VersionSpan};
use crate::guard;

/// Largest answer accepted. Metadata of 100,000 partitions with long names is about 20 MB; a peer
/// that announces more than this is not a broker, or not speaking plaintext.
pub const FRAME_BYTES_MAX: usize = 100 * 1024 * 1024;

/// A read ahead of what a frame announces never takes more memory than this at once.
const READ_BYTES_MAX: usize = 1024 * 1024;

const API_VERSIONS_KEY: i16 = 18;
const FETCH_FLEXIBLE_MIN: i16 = 12;

/// How connections are made.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// What brokers' request logs and quotas call us.
    pub client_id: Arc<str>,
    /// For one TCP connection and its handshakes (`socket.connection.setup.timeout.ms`).
    pub connect_timeout: Duration,
    /// For one answer (`request.timeout.ms`).
    pub request_timeout: Duration,
    /// Unacknowledged bytes or keepalive probes for this long end the connection: a middlebox that
    /// drops packets sends no reset.
    pub dead_path_timeout: Duration,
    /// Security protocol.
    pub security: Security,
}

/// A connected, secured broker with known versions.
#[derive(Debug)]
pub struct Connection {
    address: Address,
    stream: TcpStream,
    versions: NegotiatedVersions,
    settings: ClientSettings,
    correlation_id: i32,
    broken: bool,
}

impl Connection {
    /// Resolves, connects, secures and negotiates.
    pub async fn open(address: &Address, settings: &ClientSettings) -> Result<Self, ClientError> {
        let setup = async {
            let stream = connect_tcp(address, settings).await?;
            settings.security.secure(stream, address).await
        };
        let stream = timeout(settings.connect_timeout, setup).await.map_err(|_| {
            ClientError::Connect {
                address: address.clone(),
                cause: format!("no connection within {} ms", settings.connect_timeout.as_millis()),
            }
        })??;
        let mut connection = Self {
            address: address.clone(),
            stream,
            versions: NegotiatedVersions::default(),
            settings: settings.clone(),
            correlation_id: 0,
            broken: false,
        };
        connection.negotiate().await?;
        Ok(connection)
    }

    /// Sends a request in the highest version both sides speak and waits for its answer.
    ///
    /// Not cancel safe: a dropped call leaves an answer in the stream, so the connection marks
    /// itself broken and refuses further calls.
    pub async fn call<R: Request>(
        &mut self,
        what: &'static str,
        request: &R,
    ) -> Result<(R::Response, i16), ClientError> {
        let version = self.version_for(what, R::KEY, R::VERSIONS)?;
        let answer = self.call_at(what, request, version).await?;
        Ok((answer, version))
    }

    /// Sends a Fetch request's body and returns the answer behind its correlation id: its header's
    /// tagged fields are left to the parser that the cores use.
    pub(super) async fn call_fetch(
        &mut self,
        version: i16,
        body: &[u8],
    ) -> Result<Bytes, ClientError> {
        let header = if version >= FETCH_FLEXIBLE_MIN { 2 } else { 1 };
        self.exchange("Fetch", super::lane::FETCH_KEY, version, (header, 0), body).await
    }

    /// Sends a body in an encoding of the caller's and returns the answer's body, for messages
    /// that the message library does not have. Both headers are the flexible ones.
    pub async fn call_raw(
        &mut self,
        what: &'static str,
        api_key: i16,
        version: i16,
        body: &[u8],
    ) -> Result<Bytes, ClientError> {
        self.exchange(what, api_key, version, (2, 1), body).await
    }

    /// The broker's address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What the broker speaks.
    #[must_use]
    pub fn versions(&self) -> &NegotiatedVersions {
        &self.versions
    }

    /// Whether the connection can still be used.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        !self.broken
    }

    /// The socket, with nothing in flight on it.
    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    pub(super) fn malformed(&self, what: &'static str, reason: impl ToString) -> ClientError {
        ClientError::Malformed { address: self.address.clone(), what, reason: reason.to_string() }
    }

    /// The highest version of a request that both sides speak.
    pub(super) fn version_for(
        &self,
        what: &'static str,
        api_key: i16,
        ours: VersionRange,
    ) -> Result<i16, ClientError> {
        let ours = VersionSpan { min: ours.min, max: ours.max };
        let theirs = self.versions.span(api_key);
        theirs.and_then(|theirs| ours.highest_common(theirs)).ok_or_else(|| {
            ClientError::Unsupported {
                address: self.address.clone(),
                what,
                theirs: theirs.map_or_else(|| "not at all".to_owned(), |span| span.to_string()),
                ours: ours.to_string(),
            }
        })
    }

    /// ApiVersions at our highest version; brokers before 2.4 answer that with error 35 in the
    /// layout of version 0, and are asked again in version 0 (KIP-511).
    async fn negotiate(&mut self) -> Result<(), ClientError> {
        const WHAT: &str = "ApiVersions";
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("longhaul"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let version = 3;
        let mut body = encode(WHAT, &request, version, &self.address)?;
        // The response header of ApiVersions is never flexible.
        let mut answer = self.exchange(WHAT, API_VERSIONS_KEY, version, (2, 0), &body).await?;
        let code = answer.first_chunk().map(|bytes| i16::from_be_bytes(*bytes));
        let mut spoken = version;
        if code == Some(KafkaCode::UNSUPPORTED_VERSION.0) {
            body.clear();
            answer = self.exchange(WHAT, API_VERSIONS_KEY, 0, (1, 0), &body).await?;
            spoken = 0;
        }
        let answer = self.decode::<ApiVersionsRequest>(WHAT, answer, spoken)?;
        let code = KafkaCode(answer.error_code);
        if code.is_error() {
            return Err(ClientError::Refused { address: self.address.clone(), what: WHAT, code });
        }
        self.versions = NegotiatedVersions::new(
            answer.api_keys.iter().map(|key| (key.api_key, key.min_version, key.max_version)),
        );
        Ok(())
    }

    async fn call_at<R: Request>(
        &mut self,
        what: &'static str,
        request: &R,
        version: i16,
    ) -> Result<R::Response, ClientError> {
        let headers = (R::header_version(version), R::Response::header_version(version));
        let body = encode(what, request, version, &self.address)?;
        let answer = self.exchange(what, R::KEY, version, headers, &body).await?;
        self.decode::<R>(what, answer, version)
    }

    fn decode<R: Request>(
        &mut self,
        what: &'static str,
        body: Bytes,
        version: i16,
    ) -> Result<R::Response, ClientError> {
        guard::decode_response::<R>(version, body).map_err(|error| {
            self.broken = true;
            self.malformed(what, error)
        })
    }

    /// One request and its answer's body.
    async fn exchange(
        &mut self,
        what: &'static str,
        api_key: i16,
        version: i16,
        (request_header, response_header): (i16, i16),
        body: &[u8],
    ) -> Result<Bytes, ClientError> {
        if self.broken {
            return Err(self.lost("an earlier call did not finish"));
        }
        // Set before the first byte moves, cleared after the last: whatever interrupts this call
        // leaves the connection marked.
        self.broken = true;
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = self.request_frame(api_key, version, request_header, body);
        let within = self.settings.request_timeout;
        let answer = timeout(within, self.send_and_receive(what, &frame)).await;
        let mut answer = answer.map_err(|_| ClientError::Timeout {
            address: self.address.clone(),
            what,
            within,
        })??;
        self.strip_response_header(what, response_header, &mut answer)?;
        self.broken = false;
        Ok(answer)
    }

    fn request_frame(&self, api_key: i16, version: i16, header: i16, body: &[u8]) -> BytesMut {
        let client_id = self.settings.client_id.as_bytes();
        // A client id beyond a protocol string would be a configuration fault; it is cut.
        let client_id = &client_id[..client_id.len().min(i16::MAX as usize)];
        let mut frame = BytesMut::with_capacity(4 + 8 + 2 + client_id.len() + 1 + body.len());
        frame.put_u32(0);
        frame.put_i16(api_key);
        frame.put_i16(version);
        frame.put_i32(self.correlation_id);
        frame.put_i16(client_id.len() as i16);
        frame.put_slice(client_id);
        if header >= 2 {
            frame.put_u8(0);
        }
        frame.put_slice(body);
        let len = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&len.to_be_bytes());
        frame
    }

    async fn send_and_receive(
        &mut self,
        what: &'static str,
        frame: &[u8],
    ) -> Result<Bytes, ClientError> {
        let sent = self.stream.write_all(frame).await;
        sent.map_err(|error| self.lost(&error))?;
        let mut prefix = [0u8; 4];
        let read = self.stream.read_exact(&mut prefix).await;
        read.map_err(|error| self.lost(&error))?;
        let len = u32::from_be_bytes(prefix) as usize;
        if len > FRAME_BYTES_MAX {
            return Err(self.malformed(what, describe_oversize(prefix)));
        }
        let mut answer = BytesMut::new();
        while answer.len() < len {
            let step = (len - answer.len()).min(READ_BYTES_MAX);
            answer.reserve(step);
            let read = (&mut self.stream).take(step as u64).read_buf(&mut answer).await;
            match read {
                Ok(0) => return Err(self.lost("the broker closed it in the middle of an answer")),
                Ok(_) => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(answer.freeze())
    }

    fn strip_response_header(
        &self,
        what: &'static str,
        header: i16,
        answer: &mut Bytes,
    ) -> Result<(), ClientError> {
        let correlation_id = answer.first_chunk().map(|bytes| i32::from_be_bytes(*bytes));
        if correlation_id != Some(self.correlation_id) {
            return Err(self.malformed(what, "it answers another request"));
        }
        let _ = answer.split_to(4);
        if header >= 1 {
            skip_tagged_fields(answer).ok_or_else(|| self.malformed(what, "its header is cut"))?;
        }
        Ok(())
    }

    fn lost(&self, cause: &(impl ToString + ?Sized)) -> ClientError {
        ClientError::Lost { address: self.address.clone(), cause: cause.to_string() }
    }
}

async fn connect_tcp(
    address: &Address,
    settings: &ClientSettings,
) -> Result<TcpStream, ClientError> {
    let lookup = tokio::net::lookup_host((&*address.host, address.port)).await;
    let resolved: Vec<SocketAddr> = lookup
        .map_err(|error| ClientError::Resolve {
            address: address.clone(),
            cause: error.to_string(),
        })?
        .collect();
    connect_any(&resolved, address, settings).await
}

/// The first that answers. Each has its share of the time: behind one that swallows packets, an IPv6 path
/// that leads nowhere most likely, the next is reached all the same.
async fn connect_any(
    candidates: &[SocketAddr],
    address: &Address,
    settings: &ClientSettings,
) -> Result<TcpStream, ClientError> {
    let share = settings.connect_timeout / u32::try_from(candidates.len().max(1)).unwrap_or(1);
    let silent = || std::io::Error::other(format!("no connection within {} ms", share.as_millis()));
    let mut cause = "the name has no address".to_owned();
    for candidate in candidates {
        let connected = timeout(share, TcpStream::connect(candidate)).await;
        let connected = connected.unwrap_or_else(|_| Err(silent()));
        match connected.and_then(|stream| tune(stream, settings)) {
            Ok(stream) => return Ok(stream),
            // The address is in the message already, unless a name was resolved to it.
            Err(error) if candidate.to_string() == address.to_string() => {
                cause = error.to_string();
            }
            Err(error) => cause = format!("{error} ({candidate})"),
        }
    }
    Err(ClientError::Connect { address: address.clone(), cause })
}

/// Options of every socket towards a broker. SO_RCVBUF is left alone: setting it would freeze the
/// receive window, and with it the rate on a long path.
fn tune(stream: TcpStream, settings: &ClientSettings) -> std::io::Result<TcpStream> {
    let socket = SockRef::from(&stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_user_timeout(Some(settings.dead_path_timeout))?;
    let probe = settings.dead_path_timeout / 3;
    let probe = probe.max(Duration::from_secs(1));
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(probe).with_interval(probe).with_retries(3),
    )?;
    Ok(stream)
}

fn encode<T: Encodable>(
    what: &'static str,
    request: &T,
    version: i16,
    address: &Address,
) -> Result<BytesMut, ClientError> {
    let mut body = BytesMut::new();
    request.encode(&mut body, version).map_err(|error| ClientError::Unsupported {
        address: address.clone(),
        what,
        theirs: format!("version {version}"),
        ours: format!("a newer one for this request ({error})"),
    })?;
    Ok(body)
}

/// Recognises what usually answers on a port that is not Kafka's plaintext listener.
fn describe_oversize(prefix: [u8; 4]) -> String {
    match &prefix {
        b"HTTP" => "it looks like an HTTP server".to_owned(),
        [0x15 | 0x16, 0x03, ..] => {
            "it looks like TLS; the listener wants security.protocol SSL or SASL_SSL".to_owned()
        }
        _ => format!("it announces {} bytes", u32::from_be_bytes(prefix)),
    }
}

fn skip_tagged_fields(bytes: &mut Bytes) -> Option<()> {
    let count = take_varint(bytes)?;
    for _ in 0..count {
        take_varint(bytes)?;
        let len = take_varint(bytes)? as usize;
        if len > bytes.len() {
            return None;
        }
        let _ = bytes.split_to(len);
    }
    Some(())
}

fn take_varint(bytes: &mut Bytes) -> Option<u32> {
    let mut value = 0u32;
    for shift in [0, 7, 14, 21, 28] {
        let byte = *bytes.first()?;
        let _ = bytes.split_to(1);
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
