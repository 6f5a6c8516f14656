//! Mirrors on a whole node, against a source cluster that does what a test tells it.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]
#![expect(clippy::expect_used, reason = "a test that meets an error has failed")]

mod create;
mod faults;
mod fetching;
mod history;
mod lifecycle;
mod scale;
mod support;
