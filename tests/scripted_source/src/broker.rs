//! Sockets and threads: one listener for each broker, one thread for each connection.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Encodable, decode_request_header_from_buffer};

use crate::api;
use crate::call::{Call, Reply, Request, Response};
use crate::cluster::Shared;

/// Largest request taken: far above what a mirror sends.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// A listening broker; stops listening when dropped.
pub(crate) struct Broker {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Broker {
    pub(crate) fn start(id: i32, shared: Arc<Shared>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
        let address = listener.local_addr().expect("the port's address");
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(stream) = stream {
                    accept(id, stream, &shared);
                }
            }
        });
        Self { address, stopping, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes the thread out of its wait for a connection.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The connections of all brokers.
#[derive(Default)]
pub(crate) struct Connections {
    open: BTreeMap<u64, Open>,
    accepted: u64,
}

struct Open {
    broker: i32,
    stream: TcpStream,
    silent: Arc<AtomicBool>,
}

impl Connections {
    fn of(&self, broker: i32) -> impl Iterator<Item = &Open> {
        self.open.values().filter(move |open| open.broker == broker)
    }

    pub(crate) fn close(&self, broker: i32) {
        self.of(broker).for_each(|open| drop(open.stream.shutdown(Shutdown::Both)));
    }

    pub(crate) fn silence(&self, broker: i32) {
        self.of(broker).for_each(|open| open.silent.store(true, Ordering::Release));
    }

    pub(crate) fn count(&self, broker: i32) -> usize {
        self.of(broker).filter(|open| !open.silent.load(Ordering::Acquire)).count()
    }
}

fn accept(broker: i32, stream: TcpStream, shared: &Arc<Shared>) {
    let (Ok(peer), Ok(kept)) = (stream.peer_addr(), stream.try_clone()) else { return };
    let silent = Arc::new(AtomicBool::new(false));
    let number = {
        let mut all = shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let number = all.accepted;
        all.accepted += 1;
        all.open.insert(number, Open { broker, stream: kept, silent: Arc::clone(&silent) });
        number
    };
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let mut connection = Connection { broker, number, peer, stream, silent, shared };
        // An error is the peer's way to end a connection, or the test's.
        let _ = connection.run();
        let mut all = connection.shared.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = all.open.remove(&number) {
            let _ = open.stream.shutdown(Shutdown::Both);
        }
    });
}

struct Connection {
    broker: i32,
    number: u64,
    peer: SocketAddr,
    stream: TcpStream,
    silent: Arc<AtomicBool>,
    shared: Arc<Shared>,
}

impl Connection {
    fn run(&mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        loop {
            let mut frame = self.read_frame()?;
            let header = decode_request_header_from_buffer(&mut frame).map_err(io::Error::other)?;
            let call = self.note(&header, frame);
            let reply = {
                let mut hooks = self.shared.hooks.lock().unwrap_or_else(PoisonError::into_inner);
                hooks.get_mut(&call.api_key).map_or(Reply::Ordinary, |hook| hook(&call))
            };
            self.answer(&call, header.correlation_id, reply)?;
        }
    }

    fn read_frame(&mut self) -> io::Result<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if !(8..=REQUEST_BYTES_MAX).contains(&length) {
            return Err(io::Error::other(format!("a frame of {length} bytes")));
        }
        let mut frame = vec![0; length];
        self.stream.read_exact(&mut frame)?;
        Ok(frame.into())
    }

    fn note(&self, header: &RequestHeader, body: Bytes) -> Call {
        let (api_key, version) = (header.request_api_key, header.request_api_version);
        self.shared.calls.change(|calls| {
            let count = calls.counts.entry(api_key).or_insert(0);
            let call = Call {
                broker: self.broker,
                connection: self.number,
                peer: self.peer,
                number: *count,
                at: Instant::now(),
                api_key,
                version,
                client_id: header.client_id.as_deref().unwrap_or_default().to_owned(),
                request: Request::decode(api_key, version, body),
            };
            *count += 1;
            calls.all.push(call.clone());
            call
        })
    }

    fn answer(&mut self, call: &Call, correlation_id: i32, reply: Reply) -> io::Result<()> {
        match reply {
            Reply::Ordinary => {
                let response = self.ordinary(call)?;
                self.respond(call, correlation_id, &response)
            }
            Reply::Edited(edit) => {
                let mut response = self.ordinary(call)?;
                edit(&mut response);
                self.respond(call, correlation_id, &response)
            }
            Reply::Answer(response) => self.respond(call, correlation_id, &response),
            Reply::Body(body) => self.send(call, correlation_id, &body),
            Reply::Raw(bytes) => self.write(&bytes),
            Reply::Later(delay, reply) => {
                thread::sleep(delay);
                self.answer(call, correlation_id, *reply)
            }
            Reply::Silence => self.be_silent(),
            Reply::Close => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    fn ordinary(&self, call: &Call) -> io::Result<Response> {
        api::ordinary(&self.shared, call).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn respond(&mut self, call: &Call, correlation_id: i32, response: &Response) -> io::Result<()> {
        // KIP-511: a client that asks in a version we lack reads the answer in version 0.
        let fallback = matches!(response, Response::ApiVersions(_))
            && !self.shared.state.lock().speaks(call.api_key, call.version);
        let version = if fallback { 0 } else { call.version };
        self.send(call, correlation_id, &response.encode(version))
    }

    fn send(&mut self, call: &Call, correlation_id: i32, body: &[u8]) -> io::Result<()> {
        let key = ApiKey::try_from(call.api_key)
            .map_err(|()| io::Error::other(format!("API {}", call.api_key)))?;
        let mut frame = BytesMut::new();
        frame.put_u32(0);
        ResponseHeader::default()
            .with_correlation_id(correlation_id)
            .encode(&mut frame, key.response_header_version(call.version))
            .map_err(io::Error::other)?;
        frame.put_slice(body);
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.write(&frame)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.silent.load(Ordering::Acquire) {
            return self.be_silent();
        }
        self.stream.write_all(bytes)
    }

    /// Says nothing more until the peer or the test ends the connection.
    fn be_silent(&mut self) -> io::Result<()> {
        self.silent.store(true, Ordering::Release);
        self.stream.set_read_timeout(Some(Duration::from_secs(600)))?;
        let mut dropped = [0; 4096];
        while self.stream.read(&mut dropped)? > 0 {}
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
