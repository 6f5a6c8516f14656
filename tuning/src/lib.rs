//! Host settings for a mirror node: what the host allows, what a path asks for, and the way there and back.
//!
//! Stands alone: knows nothing of the other crates. [`limits`] runs once when a node starts and only
//! reads. The rest is `longhaul tune`, three things kept apart:
//!
//! * a **knob** ([`knobs`]) says where a value lives, how the wanted one is computed, why, and when it harms;
//! * the **checker** ([`check`]) reads and compares, and changes nothing;
//! * the **executor** applies and rolls back ([`apply`], through a [`state`] file), or renders ([`render`]).
//!
//! The file system's root is a parameter ([`host::Host`]), so that each knob is tested on invented machines.
//! No thread of its own, no async, nothing that runs while a node does. A value that is already larger
//! than wanted, where larger is fine, is never lowered; a value that is not understood is never written.

pub mod apply;
pub mod check;
pub mod cpus;
pub mod host;
pub mod knobs;
pub mod limits;
#[cfg(test)]
mod machine;
pub mod path;
pub mod profile;
pub mod render;
pub mod source;

pub mod state;
pub mod value;
