//! The serve role: consumers of published logs.
