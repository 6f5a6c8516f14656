//! HTTP for people and tools that watch a node: `GET /histograms`.
//!
//! Owns one listening socket and what may be asked there. Runs on the control plane's threads, never
//! on a core; it reads what the cores counted and must never make one of them wait for a client. All
//! of it is read-only and without authentication, so it is bound to loopback unless told otherwise.

mod histograms;
mod process;
mod routes;
mod server;

pub use server::{Http, HttpError, ReadCounters, bind};

#[cfg(test)]
mod tests;
