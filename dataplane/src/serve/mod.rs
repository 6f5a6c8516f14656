//! The serve role: consumers of published logs.
//!
//! Owns the consumers' connections of one core: frames in, answers out in request order. Fetch,
//! ListOffsets, OffsetForLeaderEpoch and the refusal of Produce are answered here from published
//! logs; every other request goes to the control plane and its answer comes back. Runs on the
//! core's thread. Must never block, never copy record bytes, and never trust a count from a client.

#[cfg(test)]
mod aborted_tests;
mod budget;
mod connection;
mod driver;
#[cfg(test)]
mod driver_tests;
mod epochs;
mod errors;
mod fetch;
#[cfg(test)]
mod fetch_tests;
mod frames;
mod list_offsets;
mod listener;
#[cfg(test)]
mod lookup_tests;
mod outgoing;
mod produce;
mod requests;
mod session;
mod slots;
mod target;
#[cfg(test)]
mod testing;
mod timers;
mod waiters;

pub(crate) use driver::{ServeDriver, ServeShared};

/// The requests answered on a core: key, lowest and highest version, as ApiVersions tells clients.
///
/// Produce is told from 0, as Kafka 4 does: librdkafka takes a higher minimum for a broker without
/// lz4 and zstd. Versions below 3 are closed like any other version outside a range.
pub const HOT_APIS: &[(i16, i16, i16)] = &[(0, 0, 13), (1, 4, 18), (2, 1, 11), (23, 2, 4)];
