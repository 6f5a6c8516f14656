//! The sockets of the synthetic broker.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use super::SourceCluster;

/// Largest request accepted, in bytes.
const REQUEST_BYTES_MAX: usize = 8 << 20;

/// Why the source could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the synthetic source on a loopback port: {0}")]
pub struct ServerError(#[from] io::Error);

/// A running source; its threads end with the process.
#[derive(Debug)]
pub struct SourceServer {
    address: SocketAddr,
}

impl SourceServer {
    /// Listens on a free loopback port and serves `cluster` from threads of its own.
    ///
    /// # Errors
    /// When no port or thread is to be had, or tokio-uring has no io_uring to run on.
    pub fn start(cluster: SourceCluster) -> Result<Self, ServerError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let cluster = cluster.on_port(address.port());
        std::thread::Builder::new()
            .name("synthetic-source".to_owned())
            .spawn(move || backend::serve(listener, &cluster))?;
        Ok(Self { address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The length in a frame's first four bytes, if a request can have it.
fn frame_length(prefix: [u8; 4]) -> Option<usize> {
    let length = usize::try_from(i32::from_be_bytes(prefix)).ok()?;
    (length <= REQUEST_BYTES_MAX).then_some(length)
}

#[cfg(feature = "load-tokio-uring")]
mod backend {
    //! One thread, one task a connection, tokio-uring.

    use std::net::TcpListener;

    use tokio_uring::net::{TcpListener as RingListener, TcpStream};

    use super::{SourceCluster, frame_length};

    pub(super) fn serve(listener: TcpListener, cluster: &SourceCluster) {
        tokio_uring::start(async {
            let listener = RingListener::from_std(listener);
            while let Ok((stream, _)) = listener.accept().await {
                let cluster = cluster.clone();
                tokio_uring::spawn(async move {
                    if let Err(problem) = converse(&stream, &cluster).await {
                        tracing::debug!("synthetic source: {problem}");
                    }
                });
            }
        });
    }

    async fn converse(stream: &TcpStream, cluster: &SourceCluster) -> std::io::Result<()> {
        let _ = stream.set_nodelay(true);
        let mut kept = Vec::new();
        loop {
            while kept.len() < 4 {
                if !receive(stream, &mut kept).await? {
                    return Ok(());
                }
            }
            let prefix = [kept[0], kept[1], kept[2], kept[3]];
            let length = frame_length(prefix)
                .ok_or_else(|| std::io::Error::other("impossible request length"))?;
            while kept.len() < 4 + length {
                if !receive(stream, &mut kept).await? {
                    return Ok(());
                }
            }
            let answer = cluster.answer(&kept[4..4 + length]).map_err(std::io::Error::other)?;
            kept.drain(..4 + length);
            if !answer.wait.is_zero() {
                tokio::time::sleep(answer.wait).await;
            }
            let (result, _) = stream.write_all(answer.frame).await;
            result?;
        }
    }

    async fn receive(stream: &TcpStream, kept: &mut Vec<u8>) -> std::io::Result<bool> {
        let (result, buffer) = stream.read(vec![0; 16 << 10]).await;
        let count = result?;
        kept.extend_from_slice(&buffer[..count]);
        Ok(count > 0)
    }
}

#[cfg(not(feature = "load-tokio-uring"))]
mod backend {
    //! One blocking thread a connection.

    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::{SourceCluster, frame_length};

    pub(super) fn serve(listener: TcpListener, cluster: &SourceCluster) {
        for stream in listener.incoming().flatten() {
            let cluster = cluster.clone();
            std::thread::spawn(move || {
                if let Err(problem) = converse(stream, &cluster) {
                    tracing::debug!("synthetic source: {problem}");
                }
            });
        }
    }

    fn converse(mut stream: TcpStream, cluster: &SourceCluster) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        loop {
            let mut prefix = [0; 4];
            if stream.read_exact(&mut prefix).is_err() {
                return Ok(());
            }
            let length = frame_length(prefix)
                .ok_or_else(|| std::io::Error::other("impossible request length"))?;
            let mut frame = vec![0; length];
            stream.read_exact(&mut frame)?;
            let answer = cluster.answer(&frame).map_err(std::io::Error::other)?;
            std::thread::sleep(answer.wait);
            stream.write_all(&answer.frame)?;
        }
    }
}
