//! Record batches: headers, checksums, streaming validation, and looking inside.

mod build;
mod compression;
mod header;
mod layout;
mod legacy;
mod records;
mod walk;

pub use build::{BatchBuilder, HeaderToWrite};
pub use compression::{DecompressError, compress, decompress};
pub use header::{Attributes, BatchInfo, Compression, ControlMarker, HEADER_BYTES_MAX};
pub use records::{
    Record, RecordError, RecordHeaders, Records, first_at_or_after, record_of_max_timestamp,
    records,
};
pub use walk::{BatchError, BatchLimits, BatchValidator, Walk, WalkedBatch, walk, walk_headers};
