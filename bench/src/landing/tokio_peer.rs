//! The same raw receive through tokio-uring: the peer that the ring is compared with.

use std::net::TcpStream;

use super::BenchError;
use super::receiver::{MAIN_BYTES, Meter, Received};
use super::stream::Stream;

pub(super) fn receive_raw(socket: TcpStream, stream: &Stream) -> Result<Received, BenchError> {
    let failed = |source| BenchError::io("receive through tokio-uring", source);
    tokio_uring::start(async {
        let socket = tokio_uring::net::TcpStream::from_std(socket);
        let mut buffer = vec![0; MAIN_BYTES];
        let meter = Meter::start();
        let mut left = stream.total_bytes();
        while left > 0 {
            let (result, back) = socket.read(buffer).await;
            let count = result.map_err(failed)?;
            if count == 0 {
                return Err(BenchError::Wrong("the sender stopped early".to_owned()));
            }
            left = left.saturating_sub(count as u64);
            buffer = back;
        }
        Ok(meter.stop(stream.record_bytes()))
    })
}
