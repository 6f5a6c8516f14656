//! The reactor of one core: submissions in, completions out. All `unsafe` of the crate is here.
//!
//! Owns the io_uring of a core and every operation in flight on it, with the memory the kernel reads
//! or writes meanwhile. Runs on the core's thread only; a [`Waker`] is the one part that other
//! threads may hold. Knows nothing of Kafka, and must never free or hand out memory that the kernel
//! may still touch: memory belongs to its operation until the final completion.
//!
//! Readiness is never polled: a turn is one `io_uring_enter` that submits what the turn before queued
//! and sleeps until something completed.
#![allow(unsafe_code)]

mod operation;
mod probe;
#[expect(clippy::module_inception, reason = "the ring's own file, beside its parts")]
mod ring;
#[cfg(test)]
mod tests;
mod types;
mod waker;

pub use probe::kernel_release;
pub use ring::Ring;
pub use types::{
    Completion, OperationId, Outcome, ReceiveInto, RingConfig, RingError, SendPart, Socket, Token,
    TokenRole,
};
pub use waker::Waker;
