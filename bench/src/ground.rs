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
