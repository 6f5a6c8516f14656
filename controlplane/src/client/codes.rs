//! Kafka's error codes as a source sends them: name, what they mean for mirroring, and why.

use std::fmt;

/// What a code asks of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeClass {
    /// No error.
    None,
    /// The leader moved or is being elected: refresh the metadata, then go on.
    Leader,
    /// The topic may be gone or replaced: look again, by name and by id.
    Topic,
    /// Our position is outside the source's log: align again.
    Position,
    /// It may pass by itself: try again after a pause.
    Retry,
    /// An operator has to act at the source; we keep trying, slowly, because they may.
    Permission,
}

/// A code on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KafkaCode(pub i16);

impl KafkaCode {
    /// No error.
    pub const NONE: Self = Self(0);
    /// Offset outside the log.
    pub const OFFSET_OUT_OF_RANGE: Self = Self(1);
    /// The name or index is not known to this broker.
    pub const UNKNOWN_TOPIC_OR_PARTITION: Self = Self(3);
    /// An election is under way.
    pub const LEADER_NOT_AVAILABLE: Self = Self(5);
    /// The principal may not read the topic.
    pub const TOPIC_AUTHORIZATION_FAILED: Self = Self(29);
    /// The request's version is not spoken.
    pub const UNSUPPORTED_VERSION: Self = Self(35);
    /// The topic id is not known to this broker.
    pub const UNKNOWN_TOPIC_ID: Self = Self(100);

    /// Its name and class; `None` for a code that has no business in an answer to a reader.
    fn known(self) -> Option<(&'static str, CodeClass)> {
        Some(match self.0 {
            0 => ("no error", CodeClass::None),
            1 => ("OFFSET_OUT_OF_RANGE", CodeClass::Position),
            2 => ("CORRUPT_MESSAGE", CodeClass::Retry),
            // A broker that has just become replica of a new topic answers this for a moment.
            3 => ("UNKNOWN_TOPIC_OR_PARTITION", CodeClass::Topic),
            5 => ("LEADER_NOT_AVAILABLE", CodeClass::Leader),
            6 => ("NOT_LEADER_OR_FOLLOWER", CodeClass::Leader),
            7 => ("REQUEST_TIMED_OUT", CodeClass::Retry),
            8 => ("BROKER_NOT_AVAILABLE", CodeClass::Leader),
            9 => ("REPLICA_NOT_AVAILABLE", CodeClass::Leader),
            13 => ("NETWORK_EXCEPTION", CodeClass::Retry),
            29 => ("TOPIC_AUTHORIZATION_FAILED", CodeClass::Permission),
            31 => ("CLUSTER_AUTHORIZATION_FAILED", CodeClass::Permission),
            35 => ("UNSUPPORTED_VERSION", CodeClass::Permission),
            43 => ("UNSUPPORTED_FOR_MESSAGE_FORMAT", CodeClass::Retry),
            // The leader's disk failed; the controller will elect another.
            56 => ("KAFKA_STORAGE_ERROR", CodeClass::Leader),
            70 => ("FETCH_SESSION_ID_NOT_FOUND", CodeClass::Retry),
            71 => ("INVALID_FETCH_SESSION_EPOCH", CodeClass::Retry),
            74 => ("FENCED_LEADER_EPOCH", CodeClass::Leader),
            75 => ("UNKNOWN_LEADER_EPOCH", CodeClass::Leader),
            76 => ("UNSUPPORTED_COMPRESSION_TYPE", CodeClass::Permission),
            78 => ("OFFSET_NOT_AVAILABLE", CodeClass::Leader),
            89 => ("THROTTLING_QUOTA_EXCEEDED", CodeClass::Retry),
            100 => ("UNKNOWN_TOPIC_ID", CodeClass::Topic),
            103 => ("INCONSISTENT_TOPIC_ID", CodeClass::Topic),
            106 => ("FETCH_SESSION_TOPIC_ID_ERROR", CodeClass::Topic),
            109 => ("OFFSET_MOVED_TO_TIERED_STORAGE", CodeClass::Retry),
            _ => return None,
        })
    }

    /// What it asks of us. Codes we do not know may pass: they are tried again.
    #[must_use]
    pub fn class(self) -> CodeClass {
        self.known().map_or(CodeClass::Retry, |(_, class)| class)
    }

    /// Whether this is an error at all.
    #[must_use]
    pub fn is_error(self) -> bool {
        self != Self::NONE
    }
}

impl fmt::Display for KafkaCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some((name, _)) => write!(formatter, "{name} ({})", self.0),
            None => write!(formatter, "error {}", self.0),
        }
    }
}

impl fmt::Debug for KafkaCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
