//! Ids and counts that cross functions, one type each.

use std::fmt;
use std::sync::Arc;

/// A record's position in its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(pub i64);

impl Offset {
    /// The offset `records` later.
    #[must_use]
    pub fn plus(self, records: i64) -> Self {
        Self(self.0.saturating_add(records))
    }
}

/// The leader epoch written in a batch or claimed by a leader (KIP-101).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderEpoch(pub i32);

impl LeaderEpoch {
    /// No epoch is known: message formats before v2, or a peer that does not track it.
    pub const UNKNOWN: Self = Self(-1);
}

/// A producer id assigned by the source's transaction coordinator (KIP-98); -1 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub i64);

/// The epoch that fences older incarnations of one producer id (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerEpoch(pub i16);

/// A topic id (KIP-516). Zero means the cluster has none for the topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// The id of a topic whose cluster does not assign ids (before Kafka 2.8).
    pub const ZERO: Self = Self([0; 16]);

    /// Whether the cluster assigned no id.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }

    /// Reads the 22 characters of [`TopicId`]'s display form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 22 {
            return None;
        }
        let mut value: u128 = 0;
        for (position, byte) in text.bytes().enumerate() {
            let digit = BASE64_URL.iter().position(|symbol| *symbol == byte)? as u128;
            if position < 21 {
                value = (value << 6) | digit;
            } else {
                // The last symbol carries the final two bits and four bits of padding.
                if digit & 0xf != 0 {
                    return None;
                }
                value = (value << 2) | (digit >> 4);
            }
        }
        Some(Self(value.to_be_bytes()))
    }
}

const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for TopicId {
    /// Kafka's own form: URL-safe base64 without padding.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = u128::from_be_bytes(self.0);
        let mut text = [0u8; 22];
        for (position, symbol) in text.iter_mut().enumerate() {
            let digit = if position < 21 {
                (value >> (122 - 6 * position)) & 0x3f
            } else {
                (value << 4) & 0x3f
            };
            *symbol = BASE64_URL[digit as usize];
        }
        formatter.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// A partition by name, as file names and old protocol versions spell it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// Topic name: 1 to 249 characters of `[A-Za-z0-9._-]`.
    pub topic: Arc<str>,
    /// Partition index, from 0.
    pub partition: i32,
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.topic, self.partition)
    }
}

macro_rules! plain_display {
    ($($name:ident),*) => {
        $(impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        })*
    };
}

plain_display!(Offset, LeaderEpoch, ProducerId, ProducerEpoch);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_id_prints_and_parses_in_kafkas_form() {
        // Kafka's own metadata topic id is Uuid(0, 1).
        let mut bytes = [0u8; 16];
        bytes[15] = 1;
        assert_eq!(TopicId(bytes).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        let id = TopicId(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
        assert_eq!(id.to_string(), "ABEiM0RVZneImaq7zN3u_w");
        assert_eq!(TopicId::parse(&id.to_string()), Some(id));
        assert_eq!(TopicId::parse("ABEiM0RVZneImaq7zN3u_x"), None);
        assert_eq!(TopicId::parse("short"), None);
    }
}
