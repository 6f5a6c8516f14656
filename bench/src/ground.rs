//! Where a measurement takes place: source and mirror on loopback, or on the two sides of an emulated path.
//!
//! A path is opened anew for each sample, so that no run learns from another. Runs on the caller's thread.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;

use crate::node::MakeCommand;
use crate::run::SubjectError;
use crate::wan::{Loss, PathReport, PathSettings, Side, Validity, WanPath};

/// What a ground is to be.
#[derive(Clone, Debug, PartialEq)]
pub enum GroundSetup {
    /// Everything on the loopback interface.
    Loopback,
    /// An emulated path.
    Path(Box<PathSettings>),
}

impl fmt::Display for GroundSetup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match self {
            Self::Loopback => return formatter.write_str("loopback"),
            Self::Path(path) => path,
        };
        write!(formatter, "{:?}", path.round_trip())?;
        if let Some(rate) = path.rate_bits {
            write!(formatter, ", {} Gbit/s", rate as f64 / 1e9)?;
        }
        match path.loss {
            Loss::None => formatter.write_str(", no loss")?,
            Loss::Random { share } => write!(formatter, ", {} % loss", share * 100.0)?,
            Loss::Burst { share, mean_length } => {
                write!(formatter, ", {} % loss in bursts of {mean_length}", share * 100.0)?;
            }
        }
        match &path.congestion {
            Some(name) => write!(formatter, ", {name}"),
            None => Ok(()),
        }
    }
}

/// A ground in use.
#[derive(Debug)]
pub struct Ground(Option<Arc<WanPath>>);

impl Ground {
    /// Opens it.
    ///
    /// # Errors
    /// When the path cannot be opened.
    pub fn open(setup: &GroundSetup) -> Result<Self, SubjectError> {
        match setup {
            GroundSetup::Loopback => Ok(Self(None)),
            GroundSetup::Path(settings) => {
                let path = WanPath::open(settings)
                    .map_err(|error| SubjectError::Failed(error.to_string()))?;
                Ok(Self(Some(Arc::new(path))))
            }
        }
    }

    /// The source's address.
    #[must_use]
    pub fn source_host(&self) -> IpAddr {
        self.address(Side::Source)
    }

    /// The mirror's address.
    #[must_use]
    pub fn mirror_host(&self) -> IpAddr {
        self.address(Side::Destination)
    }

    fn address(&self, side: Side) -> IpAddr {
        self.0.as_ref().map_or(Ipv4Addr::LOCALHOST.into(), |path| path.address(side))
    }

    /// Makes commands that run at the source. They end with the ground.
    #[must_use]
    pub fn source_command(&self) -> MakeCommand {
        self.command(Side::Source)
    }

    /// Makes commands that run at the mirror. They end with the ground.
    #[must_use]
    pub fn mirror_command(&self) -> MakeCommand {
        self.command(Side::Destination)
    }

    fn command(&self, side: Side) -> MakeCommand {
        match self.0.clone() {
            None => Arc::new(|program| Command::new(program)),
            Some(path) => Arc::new(move |program| path.command(side, program)),
        }
    }

    /// Connects from where the mirror is.
    ///
    /// # Errors
    /// When nobody accepts.
    pub fn connect(&self, address: SocketAddr) -> Result<TcpStream, SubjectError> {
        self.at_mirror(|| TcpStream::connect(address))?
            .map_err(|error| SubjectError::failed(&format!("connect to {address}"), error))
    }

    /// A socket for datagrams to where the mirror is.
    ///
    /// # Errors
    /// When there is none.
    pub fn bind_datagrams(&self) -> Result<UdpSocket, SubjectError> {
        let host = self.mirror_host();
        self.at_mirror(|| UdpSocket::bind((host, 0)))?
            .map_err(|error| SubjectError::failed("listen for datagrams", error))
    }

    fn at_mirror<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, SubjectError> {
        match &self.0 {
            None => Ok(work()),
            Some(path) => path
                .enter(Side::Destination, work)
                .map_err(|error| SubjectError::Failed(error.to_string())),
        }
    }

    /// Counts from here on, for several measurements over one path.
    ///
    /// # Errors
    /// When the kernel's counters cannot be read.
    pub fn restart_counts(&self) -> Result<(), SubjectError> {
        let restarted = self.0.as_ref().map(|path| path.restart_counts()).transpose();
        restarted.map(drop).map_err(|error| SubjectError::Failed(error.to_string()))
    }

    /// Established TCP connections from where the mirror is to an address of the source.
    ///
    /// # Errors
    /// When the kernel's table cannot be read.
    pub fn connections_to(&self, address: SocketAddr) -> Result<u32, SubjectError> {
        // A socket of a Java program is an IPv6 one, to an IPv4 address too.
        let tables = self.at_mirror(|| {
            ["tcp", "tcp6"]
                .map(|table| std::fs::read_to_string(format!("/proc/thread-self/net/{table}")))
        })?;
        let count = tables.into_iter().flatten().map(|table| established(&table, address.port()));
        Ok(count.sum())
    }

    /// What the path did since it was opened; nothing on loopback.
    ///
    /// # Errors
    /// When the path has no report.
    pub fn report(&self) -> Result<Option<PathReport>, SubjectError> {
        let report = self.0.as_ref().map(|path| path.report()).transpose();
        report.map_err(|error| SubjectError::Failed(error.to_string()))
    }

    /// Why what was measured since it was opened is no result; nothing when it is one.
    ///
    /// # Errors
    /// When the path has no report.
    pub fn spoilt(&self) -> Result<Option<String>, SubjectError> {
        Ok(self.report()?.and_then(|report| match report.validity {
            Validity::Valid => None,
            Validity::Invalid(why) => Some(why),
        }))
    }
}

/// Lines of a kernel's table of TCP sockets, `number: local remote state ...`, that are established and have that
/// port at the other end. Addresses are hexadecimal, the port behind a colon.
fn established(table: &str, port: u16) -> u32 {
    let wanted = format!(":{port:04X}");
    let lines = table.lines().filter(|line| {
        let mut fields = line.split_whitespace().skip(2);
        let remote = fields.next().unwrap_or_default();
        remote.ends_with(&wanted) && fields.next() == Some("01")
    });
    u32::try_from(lines.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_the_port_at_the_other_end() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
                     0: 0100007F:2384 00000000:0000 0A 00000000:00000000\n   \
                     1: 0200C612:C350 0100C612:2384 01 00000000:00000000\n   \
                     2: 0200C612:C351 0100C612:2384 06 00000000:00000000\n   \
                     3: 0200C612:2384 0100C612:C350 01 00000000:00000000\n";
        assert_eq!(established(table, 0x2384), 1);
        assert_eq!(established(table, 1), 0);
    }

    #[test]
    fn a_connection_over_loopback_is_seen() {
        let ground = Ground::open(&GroundSetup::Loopback).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(ground.connections_to(address).unwrap(), 0);
        let _one = ground.connect(address).unwrap();
        assert_eq!(ground.connections_to(address).unwrap(), 1);
    }
}
