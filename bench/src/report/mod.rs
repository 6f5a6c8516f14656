//! Reports: a [`Run`](crate::run::Run) or a node's histograms, for the eye and for other tools.
//!
//! Works on data that was measured before and measures nothing itself; runs on whatever thread calls it.
//! What it reads may come from anywhere: names are escaped, sizes bounded, and a run with holes is shown
//! with its holes.

mod chart;
pub mod encoding;
mod files;
pub mod hlog;
mod html;
#[cfg(test)]
mod html_tests;
pub mod node;
mod number;
mod tables;
mod terminal;
#[cfg(test)]
mod testing;
mod view;

pub use files::{LoadError, load, log_of, write};
pub use html::{PageError, html};
pub use terminal::terminal;
pub use view::is_measured;
