//! The fetch role: links, lanes, cursors.
