//! The fetch role: pulls partitions from source brokers into their logs.
//!
//! Owns a core's links (one mirror's tie to one source cluster), lanes (one connection to one source
//! broker) and cursors (one partition's position and its log). Runs on the core's thread, driven by
//! the core loop. It must never decide what only the control plane knows: whom to connect to, which
//! epoch is real, what a lost or diverged range means. It stops the cursor, says why, and waits.
//!
//! One rule gives pipelining without guessing: **a cursor has at most one request out; a lane has
//! many**, over disjoint cursors. A broker answers a connection's requests first in, first out.
//!
//! - A *tail* lane serves cursors at the end, in one incremental fetch session with a long poll.
//! - A *catch-up* lane serves cursors that are behind, without a session, with many requests out.
//!   Without one, the tail lane serves everybody.
//!
//! Everything but `driver` is free of input, output and clocks.

mod cursor;
mod desk;
mod driver;
mod engine;
mod landing;
mod lane;
mod link;
mod session;
mod sizing;
mod throttle;

#[cfg(test)]
mod tests;

pub(crate) use driver::{FetchDriver, Taken};
