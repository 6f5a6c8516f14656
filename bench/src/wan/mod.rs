//! A WAN in a box: two network namespaces joined by a relay that delays, limits, loses and reorders packets.
//!
//! Each side is a network namespace of its own with a layer-3 TUN device; real TCP of this kernel runs over it, with its
//! congestion control, window and loss recovery. Packets keep their segmentation offload, up to 64 KiB at a time, and
//! only a packet of which a part is lost, late or not admitted is cut. `docs/wan.md` has the design and the measured
//! figures.
//!
//! Planes: [`WanPath`] runs on the caller's thread and sets up; two lanes (`lane.rs`), one for each direction, move
//! packets; `link.rs`, `chance.rs` and `segment.rs` decide what happens to them, without I/O, and are tested without a
//! device. Invariants: nothing outlives the process, also not one that is killed; a report says by itself whether the
//! machine kept up; memory is bounded when the path is opened.

mod chance;
mod control;
mod error;
mod keeper;
mod lane;
mod link;
mod namespace;
mod netem;
mod netlink;
mod path;
mod relay;
mod report;
mod ring;
mod segment;
mod settings;
mod sys;
mod user;

pub use control::{AskError, Control, ask};
pub use error::WanError;
pub use link::LinkCounts;
pub use netem::{Backend, BackendChoice};
pub use path::{Side, WanPath};
pub use report::{DirectionReport, Lateness, PathReport, Validity};
pub use settings::{
    BURST_MEAN_MAX, DELAY_MAX, HELD_BYTES_MAX, Loss, MTU_MAX, MTU_MIN, PathSettings, Queue,
    RATE_BITS_MAX, RATE_BITS_MIN, Reorder,
};
pub use sys::{leave_interrupts_to_children, pass_signals_to};
pub use user::become_root_of_own_namespace;

#[cfg(test)]
mod tests;
