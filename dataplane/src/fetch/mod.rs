//! The fetch role: links, lanes, cursors.

mod driver;

pub(crate) use driver::{FetchDriver, Taken};
