//! Every Kafka error code this node answers with: its name, what a client does about it, and when
//! this node says it.
//!
//! A client acts on the number alone, and one it does not know it may retry for ever; so refusals
//! to ordinary clients use numbers that all of them know and hold for final.

/// What a client does when it meets the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing went wrong.
    None,
    /// Gives up and tells the user.
    Final,
    /// Asks again later.
    Retry,
    /// Refreshes its metadata and asks again.
    Refresh,
    /// Joins its group again, or looks its coordinator up again.
    Rejoin,
}

/// One error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KafkaError {
    /// The number on the wire.
    pub code: i16,
    /// Kafka's name for it.
    pub name: &'static str,
    /// What a client does.
    pub remedy: Remedy,
}

macro_rules! kafka_errors {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $remedy:ident;)*) => {
        impl KafkaError {
            $(
                $(#[$doc])*
                pub const $name: Self =
                    Self { code: $code, name: stringify!($name), remedy: Remedy::$remedy };
            )*

            /// All of them, by number.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

kafka_errors! {
    /// No error.
    NONE = 0, None;
    /// The topic or partition is not here.
    UNKNOWN_TOPIC_OR_PARTITION = 3, Refresh;
    /// The partition is not here, though later ones of its topic are.
    LEADER_NOT_AVAILABLE = 5, Refresh;
    /// An offset's metadata string is too long.
    OFFSET_METADATA_TOO_LARGE = 12, Final;
    /// Offsets cannot be stored now (disk full or failed), or the group is being removed.
    COORDINATOR_NOT_AVAILABLE = 15, Rejoin;
    /// The topic name can never exist.
    INVALID_TOPIC_EXCEPTION = 17, Final;
    /// The member speaks of a generation that is over.
    ILLEGAL_GENERATION = 22, Rejoin;
    /// The member's protocols do not fit those of the group.
    INCONSISTENT_GROUP_PROTOCOL = 23, Final;
    /// The group id is empty.
    INVALID_GROUP_ID = 24, Final;
    /// The member is not, or no longer, in the group.
    UNKNOWN_MEMBER_ID = 25, Rejoin;
    /// The session timeout is outside the allowed range.
    INVALID_SESSION_TIMEOUT = 26, Final;
    /// The group is forming a new generation.
    REBALANCE_IN_PROGRESS = 27, Rejoin;
    /// No more offsets fit into this node's bound.
    INVALID_COMMIT_OFFSET_SIZE = 28, Final;
    /// The version asked is not spoken (ApiVersions only; other requests end the connection).
    UNSUPPORTED_VERSION = 35, Final;
    /// The topic to be created exists.
    TOPIC_ALREADY_EXISTS = 36, Final;
    /// The request contradicts itself.
    INVALID_REQUEST = 42, Final;
    /// A write or a change that a read-only node refuses. The message names the mirror.
    POLICY_VIOLATION = 44, Final;
    /// Transactions, which this node does not coordinate. Chosen because every client holds it for
    /// final: others make librdkafka look for a coordinator until its transaction times out.
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, Final;
    /// There are no ACLs to show.
    SECURITY_DISABLED = 54, Final;
    /// The group has members and can be neither deleted nor changed.
    NON_EMPTY_GROUP = 68, Final;
    /// There is no such group.
    GROUP_ID_NOT_FOUND = 69, Final;
    /// The member has its id now and has to join again with it (KIP-394).
    MEMBER_ID_REQUIRED = 79, Rejoin;
    /// The group, or the node's room for groups, is full.
    GROUP_MAX_SIZE_REACHED = 81, Final;
    /// Another member took over this group instance id (KIP-345).
    FENCED_INSTANCE_ID = 82, Final;
    /// A member of the group still subscribes to the topic.
    GROUP_SUBSCRIBED_TO_TOPIC = 86, Final;
    /// The topic id is not known here.
    UNKNOWN_TOPIC_ID = 100, Refresh;
    /// DescribeCluster was asked for something other than brokers.
    UNSUPPORTED_ENDPOINT_TYPE = 115, Final;
    /// KIP-1279: a write to a mirrored topic. Only for clients of KIP-1279's own RPCs: ordinary
    /// clients do not know the number and get POLICY_VIOLATION.
    READ_ONLY_TOPIC = 134, Final;
    /// KIP-1279: the mirror to be created exists.
    CLUSTER_MIRROR_ALREADY_EXISTS = 136, Final;
    /// KIP-1279: there is no such mirror.
    UNKNOWN_CLUSTER_MIRROR = 137, Final;
    /// KIP-1279: the topic belongs to another mirror.
    TOPIC_ALREADY_IN_CLUSTER_MIRROR = 138, Final;
    /// KIP-1279: the topic belongs to no mirror, or another one.
    TOPIC_NOT_IN_CLUSTER_MIRROR = 139, Final;
    /// KIP-1279: paused already.
    MIRROR_TOPIC_ALREADY_PAUSED = 140, Final;
    /// KIP-1279: not paused.
    MIRROR_TOPIC_NOT_PAUSED = 141, Final;
    /// KIP-1279: a stop is under way.
    MIRROR_TOPIC_BEING_STOPPED = 142, Final;
    /// KIP-1279: topics still belong to the mirror.
    CLUSTER_MIRROR_NOT_EMPTY = 143, Final;
    /// KIP-1279: the caller may not.
    CLUSTER_MIRROR_AUTHORIZATION_FAILED = 144, Final;
    /// KIP-1279: a partition's state does not allow it.
    INVALID_CLUSTER_MIRROR_STATES = 145, Final;
    /// KIP-1279: the topic has to be stopped first.
    MIRROR_TOPIC_NOT_STOPPED = 146, Final;
}

impl KafkaError {
    /// Whether nothing went wrong.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.code == 0
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::error::ResponseError;

    use super::*;

    #[test]
    fn names_and_numbers_are_kafkas() {
        for error in KafkaError::ALL.iter().filter(|error| (1..134).contains(&error.code)) {
            let kafkas = ResponseError::try_from_code(error.code).unwrap();
            let name: String = error
                .name
                .split('_')
                .map(|word| word[..1].to_owned() + &word[1..].to_lowercase())
                .collect();
            assert_eq!(format!("{kafkas:?}"), name, "code {}", error.code);
        }
    }

    #[test]
    fn each_number_is_used_once_and_in_order() {
        assert!(KafkaError::ALL.is_sorted_by(|earlier, later| earlier.code < later.code));
    }
}
