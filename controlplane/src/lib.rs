//! The control plane of a Longhaul node: tokio, one or two threads.
//!
//! Decides what is mirrored and from where, keeps that in a store, makes and hands over the
//! connections to the source, answers everything a client asks that is not hot, and keeps consumer
//! groups. The cores never wait for it, and it never touches a record on its way to a segment.
//!
//! What must hold:
//! - the source is never written to;
//! - nothing is silent: each fault is kept with its cause where `describe` shows it;
//! - one bad partition, topic or group never stops the others.

pub mod admin;
pub mod client;
pub mod config;
pub mod discovery;
mod events;
pub mod groups;
pub mod guard;
pub mod http;
mod identity;
pub mod mirror;
pub mod node;
pub mod signals;
pub mod store;

pub use admin::{ColdApi, NodeIdentity};
pub use mirror::{Mirrors, PartitionDescription};
