//! The Kafka error codes that serve answers with, each with what a client does about it.

/// No error.
pub(super) const NONE: i16 = 0;
/// The offset is outside the log: a consumer resets by its policy.
pub(super) const OFFSET_OUT_OF_RANGE: i16 = 1;
/// No such topic or partition here: clients refresh metadata and try again.
pub(super) const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
/// What fetch versions without `STORAGE` are told instead: clients refresh metadata and try again.
pub(super) const NOT_LEADER_OR_FOLLOWER: i16 = 6;
/// The topic is not one that clients may write to; final.
pub(super) const INVALID_TOPIC: i16 = 17;
/// Two entries of the request contradict each other; final.
pub(super) const INVALID_REQUEST: i16 = 42;
/// A rule of this node forbids it; final for every client known, the message says which rule.
pub(super) const POLICY_VIOLATION: i16 = 44;
/// The version asked does not know this special timestamp; final.
pub(super) const UNSUPPORTED_VERSION: i16 = 35;
/// The disk failed: clients refresh metadata and try again.
pub(super) const STORAGE: i16 = 56;
/// The session is gone: clients send a full fetch.
pub(super) const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
/// The session is at another epoch: clients send a full fetch.
pub(super) const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
/// The client's leader epoch is old: clients refresh metadata.
pub(super) const FENCED_LEADER_EPOCH: i16 = 74;
/// The client's leader epoch is newer than ours: clients try again.
pub(super) const UNKNOWN_LEADER_EPOCH: i16 = 75;
/// No topic has this id: clients refresh metadata.
pub(super) const UNKNOWN_TOPIC_ID: i16 = 100;
/// The topic of this name has another id now: clients refresh metadata.
pub(super) const INCONSISTENT_TOPIC_ID: i16 = 103;
/// A session made by name was used by id, or the reverse: clients send a full fetch.
pub(super) const FETCH_SESSION_TOPIC_ID_ERROR: i16 = 106;
