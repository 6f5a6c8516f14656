//! Host settings for a mirror node: limits the node lives within, and what to raise.
//!
//! Stands alone: knows nothing of the other crates. Runs once, at start. It says what the host
//! allows; it never changes a setting of the host.

pub mod limits;
