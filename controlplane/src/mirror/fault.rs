//! What a core reports, as a class and a sentence.

use dataplane::CursorFault;

use super::machine::FaultClass;
use crate::client::{ClientError, CodeClass, KafkaCode};

/// A fault as the machine takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// How it may end.
    pub(super) class: FaultClass,
    /// For the operator.
    pub(super) message: String,
    /// The topic may be gone or replaced: look at it again at once.
    pub(super) look_at_topic: bool,
}

impl Failure {
    fn new(class: FaultClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), look_at_topic: false }
    }

    /// One that time may end.
    pub(super) fn retry(message: impl Into<String>) -> Self {
        Self::new(FaultClass::Retry, message)
    }

    /// A broker's error code for one partition.
    pub(super) fn from_code(what: &str, code: KafkaCode) -> Self {
        let class = match code.class() {
            CodeClass::Leader | CodeClass::Topic => FaultClass::Leader,
            CodeClass::Position => FaultClass::Position,
            CodeClass::None | CodeClass::Retry | CodeClass::Permission => FaultClass::Retry,
        };
        let message = match code.class() {
            CodeClass::Permission => format!(
                "the source refused {what}: {code}; the mirror's principal needs READ and DESCRIBE on the topic"
            ),
            _ => format!("the source refused {what}: {code}"),
        };
        let look_at_topic = code.class() == CodeClass::Topic;
        Self { look_at_topic, ..Self::new(class, message) }
    }

    /// A broker that could not be asked at all.
    pub(super) fn from_client(error: &ClientError) -> Self {
        let class = match error {
            ClientError::Refused { .. }
            | ClientError::Unsupported { .. }
            | ClientError::Malformed { .. } => FaultClass::Retry,
            ClientError::Resolve { .. }
            | ClientError::Connect { .. }
            | ClientError::Lost { .. }
            | ClientError::Timeout { .. }
            | ClientError::OtherCluster { .. }
            | ClientError::NoBroker(_) => FaultClass::Unreachable,
        };
        Self::new(class, error.to_string())
    }

    /// A fault of a cursor.
    pub(super) fn from_cursor(fault: &CursorFault) -> Self {
        match fault {
            CursorFault::Broker { code, .. } => Self::from_code("Fetch", KafkaCode(*code)),
            CursorFault::Diverging { epoch, end_offset } => Self::new(
                FaultClass::Position,
                format!("the source's history leaves ours: its epoch {epoch} ends at {end_offset}"),
            ),
            CursorFault::EpochAhead { found } => Self::new(
                FaultClass::Leader,
                format!("a batch of leader epoch {found} arrived before the source confirmed it"),
            ),
            CursorFault::ReadFrom { broker } => Self::retry(format!(
                "the leader sends us to replica {}, which cannot be reached",
                broker.0
            )),
            CursorFault::BadBatch(cause) => {
                Self::new(FaultClass::Retry, format!("not stored: {cause}"))
            }
            CursorFault::DiskFull(cause) => {
                Self::new(FaultClass::Retry, format!("disk full: {cause}"))
            }
            CursorFault::Disk(cause) => {
                Self::new(FaultClass::Retry, format!("disk error: {cause}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lead_to_what_may_end_them() {
        for (code, class, topic) in [
            (1, FaultClass::Position, false),
            (3, FaultClass::Leader, true),
            (6, FaultClass::Leader, false),
            (29, FaultClass::Retry, false),
            (74, FaultClass::Leader, false),
            (100, FaultClass::Leader, true),
            (103, FaultClass::Leader, true),
            (999, FaultClass::Retry, false),
        ] {
            let failure = Failure::from_code("Fetch", KafkaCode(code));
            assert_eq!((failure.class, failure.look_at_topic), (class, topic), "{code}");
            assert!(failure.message.contains(&code.to_string()), "{}", failure.message);
        }
    }
}
