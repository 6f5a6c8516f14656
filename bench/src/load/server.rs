//! The demo's broker: the synthetic source on threads of this process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use super::SourceCluster;

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
        let cluster = cluster.at(address);
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

#[cfg(feature = "load-tokio-uring")]
mod backend {
    //! One thread, one task a connection, tokio-uring.

    use std::net::TcpListener;
    use std::time::Duration;

    use tokio_uring::net::{TcpListener as RingListener, TcpStream};

    use crate::clock::monotonic_ns;
    use crate::load::connection::frame_length;
    use crate::load::{Answer, FetchSession, Reply, SourceCluster};

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
        let mut session = FetchSession::default();
        loop {
            while kept.len() < 4 {
                if !receive(stream, &mut kept).await? {
                    return Ok(());
                }
            }
            let length = frame_length([kept[0], kept[1], kept[2], kept[3]])?;
            while kept.len() < 4 + length {
                if !receive(stream, &mut kept).await? {
                    return Ok(());
                }
            }
            let answer = answer(cluster, &mut session, &kept[4..4 + length]).await?;
            kept.drain(..4 + length);
            // The ring owns what it sends until it is sent: the records are copied once.
            let slices = answer.slices(cluster.generator());
            let mut frame = Vec::with_capacity(slices.iter().map(|slice| slice.len()).sum());
            for slice in &slices {
                frame.extend_from_slice(slice);
            }
            let (result, _) = stream.write_all(frame).await;
            result?;
        }
    }

    async fn answer(
        cluster: &SourceCluster,
        session: &mut FetchSession,
        frame: &[u8],
    ) -> std::io::Result<Answer> {
        let mut waited = Duration::ZERO;
        loop {
            let reply = cluster.answer(session, frame, monotonic_ns(), waited);
            match reply.map_err(std::io::Error::other)? {
                Reply::Now(answer) => return Ok(answer),
                Reply::Later(pause) => {
                    tokio::time::sleep(pause).await;
                    waited += pause;
                }
            }
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

    use std::net::TcpListener;

    use crate::load::SourceCluster;
    use crate::load::connection::{Connection, Purpose};

    pub(super) fn serve(listener: TcpListener, cluster: &SourceCluster) {
        for stream in listener.incoming().flatten() {
            let cluster = cluster.clone();
            std::thread::spawn(move || {
                if let Err(problem) = Connection::new(stream, Purpose::Kafka).serve(&cluster) {
                    tracing::debug!("synthetic source: {problem}");
                }
            });
        }
    }
}
