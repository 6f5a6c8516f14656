//! Host settings for a mirror node: limits the node lives within, and what to raise.
