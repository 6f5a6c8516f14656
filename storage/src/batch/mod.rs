//! Record batches: headers, checksums, streaming validation, and looking inside.

mod header;
mod walk;

pub use header::{Attributes, BatchInfo, Compression, ControlMarker};
pub use walk::{BatchError, BatchLimits, BatchValidator};
