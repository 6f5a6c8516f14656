//! Committed offsets: in memory for questions, in `__consumer_offsets` for good.
//!
//! Owns the partitions of that topic, in Kafka's own schema, and what they say: the latest record
//! of each key. One thread (`writer`) appends, flushes and then applies, so what can be read is
//! durable; any thread reads. Must never acknowledge before the flush, and never let the log grow
//! beyond a multiple of what lives in it.

mod partition;
mod records;
mod store;
mod table;
mod writer;

pub(crate) use records::{GroupRecord, MemberRecord};
pub(crate) use store::{OFFSETS_PARTITIONS, OFFSETS_TOPIC, OffsetStore};
pub(crate) use table::{Committed, TopicOffsets, Update};
pub(crate) use writer::{WriteOutcome, WriteRequest};

#[cfg(test)]
mod tests;
