//! Consumer groups: the classic protocol, and offsets in our own `__consumer_offsets`.
