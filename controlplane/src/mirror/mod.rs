//! Mirrors: what the operator asked for, what happened, and the loop that drives one to the other.

mod api;

pub use api::{
    AdminError, MirrorDescription, MirrorListing, Mirrors, PartitionDescription, TopicResult,
};
