//! Which of a source's topics a mirror takes: names, patterns, excludes.

mod filter;
mod patterns;

pub use filter::{TopicFilter, is_internal_topic};
pub use patterns::{PatternError, TopicPatterns, is_plain_name, is_valid_topic_name};
