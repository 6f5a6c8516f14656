//! A connection that is made here and then belongs to a core.

use std::os::fd::OwnedFd;

use kafka_protocol::protocol::VersionRange;

use super::{Address, ClientError, ClientSettings, Connection};

/// Fetch versions that the cores speak.
pub(super) const FETCH_VERSIONS: VersionRange = VersionRange { min: 4, max: 18 };
pub(super) const FETCH_KEY: i16 = 1;
/// From the next version on, partitions are named by topic id only.
const FETCH_BY_NAME_MAX: i16 = 12;

/// A socket ready for a core: connected, secured, negotiated, known to lead to the right cluster.
#[derive(Debug)]
pub struct LaneConnection {
    /// The socket, in blocking mode: a ring would be answered "try again" by a non-blocking one
    /// instead of being told when bytes arrive.
    pub socket: OwnedFd,
    /// The Fetch version to speak.
    pub fetch_version: i16,
}

impl LaneConnection {
    /// Connects to `address` and checks that it belongs to `cluster_id`. `topic_ids` says whether
    /// every topic of the mirror has an id; without, fetches go by name.
    pub async fn open(
        address: &Address,
        settings: &ClientSettings,
        cluster_id: &str,
        topic_ids: bool,
    ) -> Result<Self, ClientError> {
        let mut connection = Connection::open(address, settings).await?;
        connection.belongs_to(cluster_id).await?;
        let mut ours = FETCH_VERSIONS;
        if !topic_ids {
            ours.max = FETCH_BY_NAME_MAX;
        }
        let fetch_version = connection.version_for("Fetch", FETCH_KEY, ours)?;
        let lost = |error: std::io::Error| ClientError::Lost {
            address: address.clone(),
            cause: error.to_string(),
        };
        let socket = connection.into_stream().into_std().map_err(lost)?;
        socket.set_nonblocking(false).map_err(lost)?;
        Ok(Self { socket: socket.into(), fetch_version })
    }
}
