//! Mirrors: what the operator asked for, what happened, and the loop that drives one to the other.
//!
//! One tokio task a mirror (`task`) owns its topics and partitions. The rules are apart from it and
//! do no input or output: `machine` (the states of one partition), `verdict` (is our log still a
//! prefix of the source's history), `topic` (is it still the same topic), `lanes` (which connections
//! are wanted). Never touches a record; never writes to a source; never lets a cursor go before it was
//! aligned and its leader's epoch was stored.

mod align;
mod api;
mod backoff;
mod cores;
mod entry;
mod fault;
mod lanes;
mod last_batch;
mod machine;
mod registry;
mod restore;
mod shared;
mod task;
mod topic;
mod verdict;

pub use api::{
    AdminError, MirrorDescription, MirrorListing, PartitionDescription, TopicResult, codes,
};
pub use cores::{Cores, Taken};
pub use registry::{Mirrors, MirrorsContext};
pub use restore::{RestoreError, Restored, restore};
