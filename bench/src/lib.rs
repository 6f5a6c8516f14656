//! Synthetic source, load generators and benchmarks.
