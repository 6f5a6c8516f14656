//! The `longhaul` command line.
fn main() {}
