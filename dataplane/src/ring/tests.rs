//! The ring against real sockets on loopback and socket pairs.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::operation::PIECES_MAX;
use super::*;

/// Long enough for a loaded machine: only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

fn ring() -> Ring {
    Ring::new(RingConfig { entries: 64 }).unwrap()
}

fn token(slot: u32) -> Token {
    Token { role: TokenRole::Fetch, slot, kind: 7 }
}

fn pair() -> (UnixStream, Socket) {
    let (ours, ring_side) = UnixStream::pair().unwrap();
    (ours, Socket::from(OwnedFd::from(ring_side)))
}

fn tcp_pair() -> (TcpStream, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ring_side, _) = listener.accept().unwrap();
    (ours, Socket::from(OwnedFd::from(ring_side)))
}

fn room(len: usize) -> ReceiveInto {
    ReceiveInto::Buffer { buffer: vec![0; len].into_boxed_slice(), from: 0 }
}

fn next(ring: &mut Ring) -> Completion {
    let mut completions = Vec::new();
    ring.wait(Some(Instant::now() + PATIENCE), &mut completions).unwrap();
    assert_eq!(completions.len(), 1, "{completions:?}");
    completions.remove(0)
}

fn nothing_comes(ring: &mut Ring) {
    let mut completions = Vec::new();
    ring.wait(Some(Instant::now() + Duration::from_millis(20)), &mut completions).unwrap();
    assert!(completions.is_empty(), "{completions:?}");
}

fn received(outcome: Outcome) -> (std::io::Result<usize>, Box<[u8]>) {
    match outcome {
        Outcome::Received { result, into: ReceiveInto::Buffer { buffer, .. } } => (result, buffer),
        other => panic!("not a receive into a buffer: {other:?}"),
    }
}

fn sent(outcome: Outcome) -> std::io::Result<usize> {
    match outcome {
        Outcome::Sent { result } => result,
        other => panic!("not a send: {other:?}"),
    }
}

fn errno(result: std::io::Result<usize>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn receive_returns_what_is_there_and_its_token() {
    let mut ring = ring();
    let (mut peer, socket) = pair();
    ring.receive(&socket, room(64), false, token(3));
    nothing_comes(&mut ring);
    peer.write_all(b"hello").unwrap();
    let completion = next(&mut ring);
    assert_eq!(completion.token, token(3));
    let (result, buffer) = received(completion.outcome);
    assert_eq!(result.unwrap(), 5);
    assert_eq!(&buffer[..5], b"hello");
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn receive_into_the_middle_of_a_buffer_leaves_its_front_alone() {
    let mut ring = ring();
    let (mut peer, socket) = pair();
    let buffer = vec![b'.'; 8].into_boxed_slice();
    ring.receive(&socket, ReceiveInto::Buffer { buffer, from: 3 }, false, token(0));
    peer.write_all(b"0123456789").unwrap();
    let (result, buffer) = received(next(&mut ring).outcome);
    assert_eq!(result.unwrap(), 5);
    assert_eq!(&*buffer, b"...01234");
}

#[test]
fn filling_receive_waits_for_all_bytes() {
    let mut ring = ring();
    let (mut peer, socket) = pair();
    ring.receive(&socket, room(9), true, token(0));
    for piece in [&b"abc"[..], b"def"] {
        peer.write_all(piece).unwrap();
        nothing_comes(&mut ring);
    }
    peer.write_all(b"ghi").unwrap();
    let (result, buffer) = received(next(&mut ring).outcome);
    assert_eq!(result.unwrap(), 9);
    assert_eq!(&*buffer, b"abcdefghi");
}

#[test]
fn filling_receive_ends_short_at_the_end_of_the_stream() {
    let mut ring = ring();
    let (mut peer, socket) = pair();
    ring.receive(&socket, room(9), true, token(0));
    peer.write_all(b"abc").unwrap();
    nothing_comes(&mut ring);
    peer.shutdown(Shutdown::Write).unwrap();
    let (result, buffer) = received(next(&mut ring).outcome);
    assert_eq!(result.unwrap(), 3);
    assert_eq!(&buffer[..3], b"abc");
    ring.receive(&socket, room(9), true, token(0));
    assert_eq!(received(next(&mut ring).outcome).0.unwrap(), 0);
}

#[test]
fn sockets_in_non_blocking_mode_are_waited_for_as_well() {
    let mut ring = ring();
    let (mut peer, socket) = tcp_pair();
    socket2::SockRef::from(&*socket.0).set_nonblocking(true).unwrap();
    ring.receive(&socket, room(6), true, token(0));
    let before = cpu_time();
    peer.write_all(b"abc").unwrap();
    let mut completions = Vec::new();
    ring.wait(Some(Instant::now() + Duration::from_millis(500)), &mut completions).unwrap();
    assert!(completions.is_empty());
    let spent = cpu_time() - before;
    assert!(spent < Duration::from_millis(250), "the ring spins: {spent:?}");
    peer.write_all(b"def").unwrap();
    assert_eq!(received(next(&mut ring).outcome).0.unwrap(), 6);
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn receive_without_room_is_refused_and_not_taken_for_the_end() {
    let mut ring = ring();
    let (_peer, socket) = pair();
    ring.receive(&socket, room(0), false, token(0));
    let (result, _) = received(next(&mut ring).outcome);
    assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    let buffer = vec![0; 4].into_boxed_slice();
    ring.receive(&socket, ReceiveInto::Buffer { buffer, from: 5 }, false, token(0));
    let (result, _) = received(next(&mut ring).outcome);
    assert_eq!(result.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn big_send_of_many_parts_arrives_whole_and_in_order() {
    let mut ring = ring();
    let (mut peer, socket) = tcp_pair();
    // More parts than one call takes, of all sizes from nothing up, more bytes than a socket holds.
    let content: Vec<u8> = (0..24_000_000u32).map(|index| (index % 251) as u8).collect();
    let whole = Bytes::from(content.clone());
    let (mut parts, mut at, mut size) = (Vec::new(), 0, 0);
    while at < whole.len() {
        let end = (at + size).min(whole.len());
        parts.push(SendPart::Bytes(whole.slice(at..end)));
        at = end;
        size = (size + 97) % 40_000;
    }
    parts.push(SendPart::Bytes(Bytes::new()));
    assert!(parts.len() > 8 * PIECES_MAX);
    let reader = std::thread::spawn(move || {
        let mut arrived = vec![0; content.len()];
        peer.read_exact(&mut arrived).unwrap();
        assert!(arrived == content, "bytes differ");
    });
    ring.send(&socket, parts, token(9));
    let completion = next(&mut ring);
    assert_eq!(completion.token, token(9));
    assert_eq!(sent(completion.outcome).unwrap(), 24_000_000);
    reader.join().unwrap();
}

#[test]
fn send_of_nothing_completes() {
    let mut ring = ring();
    let (_peer, socket) = pair();
    ring.send(&socket, vec![SendPart::Bytes(Bytes::new())], token(0));
    assert_eq!(sent(next(&mut ring).outcome).unwrap(), 0);
    ring.send(&socket, Vec::new(), token(0));
    assert_eq!(sent(next(&mut ring).outcome).unwrap(), 0);
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn send_to_a_closed_peer_is_an_error_and_no_signal() {
    let mut ring = ring();
    let (peer, socket) = pair();
    drop(peer);
    ring.send(&socket, vec![SendPart::Bytes(Bytes::from_static(b"x"))], token(0));
    assert_eq!(errno(sent(next(&mut ring).outcome)), libc::EPIPE);
}

#[test]
fn peer_reset_ends_receive_and_send_with_its_error() {
    let mut ring = ring();
    let (peer, socket) = tcp_pair();
    ring.receive(&socket, room(64), true, token(1));
    nothing_comes(&mut ring);
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    assert_eq!(errno(received(next(&mut ring).outcome).0), libc::ECONNRESET);
    ring.send(&socket, vec![SendPart::Bytes(Bytes::from_static(b"x"))], token(2));
    assert_eq!(errno(sent(next(&mut ring).outcome)), libc::EPIPE);
}

#[test]
fn cancelled_receive_ends_and_gives_its_memory_back() {
    let mut ring = ring();
    let (_peer, socket) = pair();
    let operation = ring.receive(&socket, room(128), true, token(0));
    nothing_comes(&mut ring);
    ring.cancel(operation);
    let (result, buffer) = received(next(&mut ring).outcome);
    assert_eq!(errno(result), libc::ECANCELED);
    assert_eq!(buffer.len(), 128);
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn filling_receive_keeps_what_it_took_when_it_is_cancelled_or_fails() {
    let mut ring = ring();
    let (mut peer, socket) = tcp_pair();
    let operation = ring.receive(&socket, room(128), true, token(0));
    peer.write_all(b"before").unwrap();
    nothing_comes(&mut ring);
    ring.cancel(operation);
    let (result, buffer) = received(next(&mut ring).outcome);
    assert_eq!(result.unwrap(), 6);
    assert_eq!(&buffer[..6], b"before");
    ring.receive(&socket, room(128), true, token(0));
    peer.write_all(b"after").unwrap();
    nothing_comes(&mut ring);
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    let (result, buffer) = received(next(&mut ring).outcome);
    assert_eq!(result.unwrap(), 5, "the stream goes on where it was cancelled");
    assert_eq!(&buffer[..5], b"after");
}

#[test]
fn cancelled_send_to_a_full_socket_ends() {
    let mut ring = ring();
    let (_peer, socket) = pair();
    let parts = (0..1000).map(|_| SendPart::Bytes(Bytes::from(vec![0; 100_000]))).collect();
    let operation = ring.send(&socket, parts, token(0));
    nothing_comes(&mut ring);
    ring.cancel(operation);
    ring.cancel(operation);
    assert_eq!(errno(sent(next(&mut ring).outcome)), libc::ECANCELED);
}

#[test]
fn stale_name_cancels_nothing() {
    let mut ring = ring();
    let (mut peer, socket) = pair();
    let first = ring.receive(&socket, room(16), false, token(1));
    peer.write_all(b"a").unwrap();
    assert_eq!(received(next(&mut ring).outcome).0.unwrap(), 1);
    // Takes the slot that `first` had.
    let second = ring.receive(&socket, room(16), false, token(2));
    assert_ne!(first, second);
    ring.cancel(first);
    nothing_comes(&mut ring);
    peer.write_all(b"b").unwrap();
    let completion = next(&mut ring);
    assert_eq!(completion.token, token(2));
    assert_eq!(received(completion.outcome).0.unwrap(), 1);
}

#[test]
fn dropping_a_ring_ends_what_is_in_flight_and_frees_its_sockets() {
    let mut ring = ring();
    let mut peers = Vec::new();
    // Far more than the submission queue holds, some never submitted.
    for slot in 0..500 {
        let (peer, socket) = pair();
        ring.receive(&socket, room(4096), true, token(slot));
        if slot % 3 == 0 {
            let parts = (0..100).map(|_| SendPart::Bytes(Bytes::from(vec![1; 50_000]))).collect();
            ring.send(&socket, parts, token(slot));
        }
        peers.push(peer);
    }
    let mut completions = Vec::new();
    ring.wait(Some(Instant::now()), &mut completions).unwrap();
    assert!(completions.is_empty());
    drop(ring);
    for mut peer in peers {
        // The other end is closed: reading comes to the end instead of waiting.
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        peer.read_to_end(&mut rest).unwrap();
    }
}

#[test]
fn more_operations_than_the_queue_holds_all_complete() {
    let mut ring = ring();
    let pairs: Vec<_> = (0..1000).map(|_| pair()).collect();
    for (slot, (_, socket)) in pairs.iter().enumerate() {
        ring.receive(socket, room(8), false, token(slot as u32));
    }
    for (slot, (peer, _)) in pairs.iter().enumerate() {
        (&*peer).write_all(&(slot as u64).to_le_bytes()).unwrap();
    }
    let mut seen = vec![false; pairs.len()];
    let mut completions = Vec::new();
    while seen.contains(&false) {
        ring.wait(Some(Instant::now() + PATIENCE), &mut completions).unwrap();
        assert!(!completions.is_empty(), "completions were lost");
        for completion in completions.drain(..) {
            let slot = completion.token.slot;
            let (result, buffer) = received(completion.outcome);
            assert_eq!(result.unwrap(), 8);
            assert_eq!(*buffer, u64::from(slot).to_le_bytes());
            assert!(!std::mem::replace(&mut seen[slot as usize], true), "told twice");
        }
    }
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn accept_goes_on_until_cancelled() {
    let mut ring = ring();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listener = Socket::from(OwnedFd::from(listener));
    let operation = ring.accept(&listener, token(5));
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = TcpStream::connect(address).unwrap();
        let completion = next(&mut ring);
        assert_eq!(completion.token, token(5));
        let Outcome::Accepted { result, more } = completion.outcome else { panic!() };
        assert!(more);
        let (connection, peer) = result.unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        clients.push((client, connection));
    }
    ring.cancel(operation);
    let Outcome::Accepted { result, more } = next(&mut ring).outcome else { panic!() };
    assert!(!more);
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn wait_comes_back_at_its_deadline() {
    let mut ring = ring();
    // The first wait has something to submit, the second has not: the kernel answers differently.
    for _ in 0..2 {
        let deadline = Instant::now() + Duration::from_millis(30);
        ring.wait(Some(deadline), &mut Vec::new()).unwrap();
        assert!(Instant::now() >= deadline);
    }
}

#[test]
fn no_wake_from_another_thread_is_lost() {
    const WAKES: u64 = 20_000;
    let mut ring = ring();
    let written = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (waker, written) = (ring.waker(), written.clone());
            std::thread::spawn(move || {
                for _ in 0..WAKES {
                    written.fetch_add(1, Ordering::Relaxed);
                    waker.wake();
                }
            })
        })
        .collect();
    let (mut completions, mut wakes) = (Vec::new(), 0);
    // Ends only if the wake that follows the last write is not lost.
    while written.load(Ordering::Relaxed) < 3 * WAKES {
        ring.wait(Some(Instant::now() + PATIENCE), &mut completions).unwrap();
        assert!(!completions.is_empty(), "a wake was lost");
        for completion in completions.drain(..) {
            assert!(matches!(completion.outcome, Outcome::Woken));
            wakes += 1;
        }
    }
    assert!(wakes <= 3 * WAKES);
    for thread in threads {
        thread.join().unwrap();
    }
}

/// A log whose next bytes are received into a mapped segment, and that segment's file.
pub(super) struct MappedLog {
    log: storage::Log,
    file: std::path::PathBuf,
    _storage: Arc<storage::Storage>,
    _directory: tempfile::TempDir,
}

impl MappedLog {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let storage = storage::Storage::open(storage::StorageConfig {
            directories: vec![directory.path().to_owned()],
            descriptors_max: 16,
            mappings_max: 16,
            recycle_bytes_max: 4 << 20,
        })
        .unwrap();
        storage.warm(1 << 20, 1).unwrap();
        let partition = storage::TopicPartition { topic: "t".into(), partition: 0 };
        let config = storage::LogConfig {
            segment_bytes_max: 1 << 20,
            segment_age_max: Duration::from_secs(3600),
            index_interval_bytes: 4096,
            index_bytes_max: 1 << 20,
            batch_bytes_max: 1 << 20,
        };
        let id = storage::TopicId::ZERO;
        let log = storage.create_log(&partition, id, storage::Offset(0), config).unwrap();
        let file = directory.path().join("t-0/00000000000000000000.log");
        Self { log, file, _storage: storage, _directory: directory }
    }

    pub(super) fn tail(&mut self, tail_bytes: usize, buffer_bytes: usize) -> ReceiveInto {
        // Announced as large: a small landing is not worth a mapped segment.
        match self.log.prepare_landing(512 * 1024).unwrap() {
            storage::LandingTarget::Mapped(tail) => {
                let buffer = vec![0; buffer_bytes].into_boxed_slice();
                ReceiveInto::Tail { tail, tail_bytes, buffer }
            }
            storage::LandingTarget::Copy => panic!("no mapped segment is at hand"),
        }
    }

    pub(super) fn stored(&self, len: usize) -> Vec<u8> {
        std::fs::read(&self.file).unwrap()[..len].to_vec()
    }
}

fn received_into_tail(outcome: Outcome) -> (std::io::Result<usize>, Box<[u8]>) {
    match outcome {
        Outcome::Received { result, into: ReceiveInto::Tail { buffer, .. } } => (result, buffer),
        other => panic!("not a receive into a tail: {other:?}"),
    }
}

#[test]
fn tail_is_filled_before_the_buffer_behind_it() {
    let mut ring = ring();
    let mut mapped = MappedLog::new();
    let (mut peer, socket) = tcp_pair();
    peer.write_all(b"records|fields").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    ring.receive(&socket, mapped.tail(8, 64), false, token(4));
    let completion = next(&mut ring);
    assert_eq!(completion.token, token(4));
    let (result, buffer) = received_into_tail(completion.outcome);
    assert_eq!(result.unwrap(), 14);
    assert_eq!(&buffer[..6], b"fields");
    assert_eq!(mapped.stored(9), b"records|\0", "and nothing of the segment beyond");
}

#[test]
fn filling_receive_crosses_from_the_tail_into_the_buffer_in_pieces() {
    let mut ring = ring();
    let mut mapped = MappedLog::new();
    let (mut peer, socket) = tcp_pair();
    ring.receive(&socket, mapped.tail(8, 6), true, token(0));
    for piece in [&b"rec"[..], b"ords|fi"] {
        peer.write_all(piece).unwrap();
        nothing_comes(&mut ring);
    }
    peer.write_all(b"eldsNEXT").unwrap();
    let (result, buffer) = received_into_tail(next(&mut ring).outcome);
    assert_eq!(result.unwrap(), 14);
    assert_eq!(&*buffer, b"fields");
    assert_eq!(mapped.stored(9), b"records|\0");
    ring.receive(&socket, room(64), false, token(0));
    assert_eq!(received(next(&mut ring).outcome).0.unwrap(), 4, "the rest is left");
}

#[test]
fn more_than_the_segment_holds_is_never_written_into_it() {
    let mut ring = ring();
    let mut mapped = MappedLog::new();
    let (mut peer, socket) = tcp_pair();
    let ReceiveInto::Tail { tail, buffer, .. } = mapped.tail(1, 10) else { panic!() };
    let room = tail.len_bytes();
    let into = ReceiveInto::Tail { tail, tail_bytes: room + 4096, buffer };
    ring.receive(&socket, into, true, token(0));
    let writer = std::thread::spawn(move || {
        peer.write_all(&vec![b'x'; room]).unwrap();
        peer.write_all(b"0123456789").unwrap();
    });
    let (result, buffer) = received_into_tail(next(&mut ring).outcome);
    writer.join().unwrap();
    assert_eq!(result.unwrap(), room + 10);
    assert_eq!(&*buffer, b"0123456789");
    assert_eq!(std::fs::metadata(&mapped.file).unwrap().len(), room as u64);
}

#[test]
fn segment_memory_outlives_its_log_while_a_receive_is_in_flight() {
    let mut ring = ring();
    let mut mapped = MappedLog::new();
    let (mut peer, socket) = tcp_pair();
    ring.receive(&socket, mapped.tail(64, 0), false, token(0));
    nothing_comes(&mut ring);
    drop(mapped);
    peer.write_all(b"late").unwrap();
    // Received into a file that is gone, or refused because it was cut: never a crash.
    match received_into_tail(next(&mut ring).outcome).0 {
        Ok(count) => assert_eq!(count, 4),
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EFAULT)),
    }
}
