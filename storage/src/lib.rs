//! Kafka-format segment logs.
//!
//! Owns the files of every partition on a node: append, roll, read by offset and by time, truncate,
//! recover, recycle. One thread writes a log ([`Log`]); any thread reads what it published
//! ([`LogReader`]). Nothing here is asynchronous and nothing here knows of sockets or clusters.
//!
//! What must hold:
//! - a published batch is the source's batch, bit for bit, and its checksum was verified first;
//! - what is published is a valid prefix of one history, before and after any crash;
//! - an idle log holds no file descriptor and no mapping.

pub mod batch;
mod budget;
mod checkpoint;
pub mod epochs;
mod files;
mod index;
pub mod inspect;
mod landing;
mod log;
mod mapping;
mod reader;
mod recovery;
mod recycle;
mod scan;
mod segment;
mod storage;
mod sync;
mod time_search;
mod truncation;
pub mod txns;
mod types;

pub use log::{AppendContext, AppendError, Landed, LandingTarget, Log, LogConfig};
pub use mapping::{MappedTail, ReadSlice};
pub use reader::{AbortedTransaction, EpochEnd, LogReader, ReadError, TimestampOffset};
pub use storage::{OpenError, PartitionOnDisk, RecoveryReport, Storage, StorageConfig};
pub use types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId, TopicPartition};
