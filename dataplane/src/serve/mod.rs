//! The serve role: consumers of published logs.

mod driver;

pub(crate) use driver::{ServeDriver, ServeShared};
