//! What can go wrong between us and a broker, by remedy.

use std::time::Duration;

use super::{Address, KafkaCode};

/// Why a broker could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The name has no address. Check the name and the resolver.
    #[error("cannot resolve {address}: {cause}")]
    Resolve {
        /// The broker.
        address: Address,
        /// The resolver's words.
        cause: String,
    },
    /// No connection. Check that the broker runs and that the path to it is open.
    #[error("cannot connect to {address}: {cause}")]
    Connect {
        /// The broker.
        address: Address,
        /// The system's words.
        cause: String,
    },
    /// The connection broke, or the broker closed it.
    #[error("connection to {address} lost: {cause}")]
    Lost {
        /// The broker.
        address: Address,
        /// The system's words.
        cause: String,
    },
    /// No answer in time.
    #[error("{address} did not answer {what} within {} ms", .within.as_millis())]
    Timeout {
        /// The broker.
        address: Address,
        /// The request.
        what: &'static str,
        /// How long we waited.
        within: Duration,
    },
    /// The broker speaks no version of a request that we speak.
    #[error("{address} speaks {what} {theirs}, we need {ours}; is it Kafka 1.0 or later?")]
    Unsupported {
        /// The broker.
        address: Address,
        /// The request.
        what: &'static str,
        /// Its versions.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// The peer does not speak Kafka's protocol, or not the security protocol we use.
    #[error("{address} sent an answer to {what} that is not Kafka's: {reason}")]
    Malformed {
        /// The broker.
        address: Address,
        /// The request.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The broker refused the request as a whole.
    #[error("{address} refused {what}: {code}")]
    Refused {
        /// The broker.
        address: Address,
        /// The request.
        what: &'static str,
        /// Its code.
        code: KafkaCode,
    },
    /// Another cluster answers at this address than the one the mirror was created for.
    #[error("{address} belongs to cluster {found}, this mirror's source is cluster {expected}")]
    OtherCluster {
        /// The broker.
        address: Address,
        /// Pinned when the mirror was created.
        expected: String,
        /// What the broker says.
        found: String,
    },
    /// None of the addresses could be used.
    #[error("no source broker can be reached: {0}")]
    NoBroker(String),
}
