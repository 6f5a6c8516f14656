//! Counters and histograms of a core, merged on read.
