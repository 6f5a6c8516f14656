//! What the kernel knows of a TCP connection: Linux' `TCP_INFO`.
//!
//! Owns nothing; runs on the thread that asks. The fields that say what a sender waited for (Linux 4.10)
//! are in no library's form of the structure, so the kernel's bytes are read at their fixed places
//! (`struct tcp_info` of `linux/tcp.h`, to which fields are only ever added at the end).
#![expect(unsafe_code, reason = "no safe library reads TCP_INFO")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use serde::{Deserialize, Serialize};

/// Longer than the structure of any kernel so far; what a kernel does not know stays 0.
const LEN_BYTES: usize = 256;

/// The part of it that explains a sender's speed. Times are microseconds, sums since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpInfo {
    /// Bytes of a segment's payload.
    pub segment_bytes: u32,
    /// Smoothed round trip.
    pub round_trip_us: u32,
    /// The smallest round trip lately.
    pub round_trip_min_us: u32,
    /// Congestion window, in segments.
    pub window_segments: u32,
    /// Bytes the receiver's window allows.
    pub receiver_window_bytes: u32,
    /// Bytes in the send buffer that were not sent yet.
    pub unsent_bytes: u32,
    /// Bytes that were acknowledged.
    pub acknowledged_bytes: u64,
    /// Segments with data, sent for the first time and again.
    pub segments_sent: u32,
    /// Segments sent again.
    pub segments_resent: u32,
    /// Time with anything to send or to be acknowledged.
    pub busy_us: u64,
    /// Of it, time the receiver's window held it back.
    pub receiver_limited_us: u64,
    /// Of it, time the send buffer held it back.
    pub send_buffer_limited_us: u64,
}

impl TcpInfo {
    /// Of the connection behind the socket.
    ///
    /// # Errors
    /// When it is no TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        Ok(Self::parse(&read(socket.as_fd().as_raw_fd())?))
    }

    fn parse(bytes: &[u8; LEN_BYTES]) -> Self {
        let word = |at: usize| {
            let mut field = [0; 4];
            field.copy_from_slice(&bytes[at..at + 4]);
            u32::from_ne_bytes(field)
        };
        let long = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(field)
        };
        Self {
            segment_bytes: word(16),
            round_trip_us: word(68),
            round_trip_min_us: word(148),
            window_segments: word(80),
            receiver_window_bytes: word(228),
            unsent_bytes: word(144),
            acknowledged_bytes: long(120),
            segments_sent: word(156),
            segments_resent: word(100),
            busy_us: long(168),
            receiver_limited_us: long(176),
            send_buffer_limited_us: long(184),
        }
    }
}

fn read(socket: i32) -> io::Result<[u8; LEN_BYTES]> {
    let mut bytes = [0; LEN_BYTES];
    let mut length = LEN_BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which is what the array has, and any bytes are
    // valid in it; both outlive the call. The caller's borrow keeps the descriptor open.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_sender_whose_receiver_does_not_read_is_seen_to_wait_for_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sending = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiving, _) = listener.accept().unwrap();
        sending.write_all(&[1; 10_000]).unwrap();
        receiving.read_exact(&mut [0; 10_000]).unwrap();
        while TcpInfo::of(&sending).unwrap().acknowledged_bytes < 10_000 {
            std::thread::yield_now();
        }
        let before = TcpInfo::of(&sending).unwrap();
        assert!(before.segment_bytes > 500 && before.segments_sent > 0, "{before:?}");
        assert!(before.window_segments > 0 && before.round_trip_us > 0, "{before:?}");
        sending.set_nonblocking(true).unwrap();
        let mut waited = Duration::ZERO;
        while TcpInfo::of(&sending).unwrap().receiver_limited_us == 0 {
            while sending.write(&[2; 65_536]).is_ok() {}
            std::thread::sleep(Duration::from_millis(5));
            waited += Duration::from_millis(5);
            assert!(waited < Duration::from_secs(60), "{:?}", TcpInfo::of(&sending));
        }
        let info = TcpInfo::of(&sending).unwrap();
        assert!(info.busy_us >= info.receiver_limited_us, "{info:?}");
    }

    #[test]
    fn what_is_no_connection_is_refused() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(TcpInfo::of(&socket).is_err());
    }
}
