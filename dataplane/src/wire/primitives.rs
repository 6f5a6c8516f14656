//! Protocol primitives: integers, strings, arrays, varints and tagged fields, read and written.

/// A peer's bytes do not form the message they claim to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message ends inside a field.
    #[error("{message}: ends inside field {field}")]
    Truncated {
        /// Which message.
        message: &'static str,
        /// Which field.
        field: &'static str,
    },
    /// A field's value is impossible.
    #[error("{message}: field {field} is {value}")]
    Invalid {
        /// Which message.
        message: &'static str,
        /// Which field.
        field: &'static str,
        /// What it holds.
        value: i64,
    },
}
