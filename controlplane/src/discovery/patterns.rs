//! Topic patterns with Java's meaning, matched in linear time.

use regex::{RegexSet, RegexSetBuilder};

/// Longest pattern; a topic name has at most 249 characters.
const PATTERN_BYTES_MAX: usize = 4_096;
/// Patterns of one list.
const PATTERNS_MAX: usize = 1_000;
/// Compiled size of one list, in bytes: a nested repetition count cannot eat the node's memory.
const COMPILED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Needs backtracking, which can take time without bound.
    #[error(
        "pattern {pattern:?} uses {construct}, which cannot be matched in linear time; write it without"
    )]
    NotLinear {
        /// The pattern.
        pattern: String,
        /// The construct, in words.
        construct: &'static str,
    },
    /// Not a regular expression.
    #[error("pattern {pattern:?}: {reason}")]
    Syntax {
        /// The pattern.
        pattern: String,
        /// The parser's reason.
        reason: String,
    },
    /// Too long, too many or too large.
    #[error("{0}")]
    TooLarge(String),
}

/// A list of patterns; a name matches when one of them matches all of it.
#[derive(Clone, Debug, Default)]
pub struct TopicPatterns {
    set: RegexSet,
    count: usize,
}

impl TopicPatterns {
    /// Compiles patterns with Java's full-match meaning.
    pub fn compile(patterns: &[String]) -> Result<Self, PatternError> {
        if patterns.len() > PATTERNS_MAX {
            return Err(PatternError::TooLarge(format!(
                "{} patterns in one list, at most {PATTERNS_MAX} are allowed",
                patterns.len()
            )));
        }
        let mut anchored = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            check(pattern)?;
            anchored.push(format!(r"\A(?:{pattern})\z"));
        }
        let set = RegexSetBuilder::new(&anchored).size_limit(COMPILED_BYTES_MAX).build();
        let set = set.map_err(|error| {
            PatternError::TooLarge(format!("the patterns together are too large: {error}"))
        })?;
        Ok(Self { set, count: patterns.len() })
    }

    /// Whether a pattern matches the whole name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.set.is_match(name)
    }

    /// Whether there is no pattern at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Whether `text` names one topic rather than a pattern: it has only characters of topic names.
/// A dot is one of them, so `orders.eu` is a name; write `orders[.]eu` for a pattern.
#[must_use]
pub fn is_plain_name(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Kafka's rule for topic names, and KIP-1279's for mirror names.
#[must_use]
pub fn is_valid_topic_name(name: &str) -> bool {
    is_plain_name(name) && name.len() <= 249 && name != "." && name != ".."
}

fn check(pattern: &str) -> Result<(), PatternError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(PatternError::TooLarge(format!(
            "a pattern of {} bytes, at most {PATTERN_BYTES_MAX} are allowed",
            pattern.len()
        )));
    }
    if let Some(construct) = backtracking_construct(pattern) {
        return Err(PatternError::NotLinear { pattern: pattern.to_owned(), construct });
    }
    match regex::RegexBuilder::new(pattern).size_limit(COMPILED_BYTES_MAX).build() {
        Ok(_) => Ok(()),
        Err(error) => {
            // The last line of the parser's drawing is the reason.
            let text = error.to_string();
            let reason = text.lines().last().unwrap_or_default();
            let reason = reason.trim_start_matches("error: ").to_owned();
            Err(PatternError::Syntax { pattern: pattern.to_owned(), reason })
        }
    }
}

/// Java constructs that our engine would refuse with an obscure message, or read differently.
fn backtracking_construct(pattern: &str) -> Option<&'static str> {
    let bytes = pattern.as_bytes();
    let mut class_depth = 0usize;
    let mut after_quantifier = false;
    let mut position = 0;
    while position < bytes.len() {
        let rest = &bytes[position..];
        let mut quantifier = false;
        match rest[0] {
            b'\\' => {
                match rest.get(1) {
                    Some(b'1'..=b'9' | b'k') => return Some("a back-reference"),
                    Some(b'Q') => return Some(r"\Q quoting"),
                    Some(b'G') => return Some(r"\G"),
                    _ => {}
                }
                position += 1;
            }
            b'[' => class_depth += 1,
            b']' => class_depth = class_depth.saturating_sub(1),
            _ if class_depth > 0 => {}
            b'(' => {
                for (opening, construct) in GROUPS {
                    if rest.starts_with(opening) {
                        return Some(construct);
                    }
                }
            }
            b'+' if after_quantifier => return Some("a possessive quantifier"),
            b'*' if after_quantifier => return Some("a quantifier of a quantifier"),
            b'*' | b'+' | b'?' | b'}' => quantifier = true,
            _ => {}
        }
        after_quantifier = quantifier;
        position += 1;
    }
    None
}

const GROUPS: [(&[u8], &str); 5] = [
    (b"(?=", "look-ahead"),
    (b"(?!", "look-ahead"),
    (b"(?<=", "look-behind"),
    (b"(?<!", "look-behind"),
    (b"(?>", "an atomic group"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(patterns: &[&str]) -> Result<TopicPatterns, PatternError> {
        TopicPatterns::compile(&patterns.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_pattern_must_match_the_whole_name() {
        let patterns = compile(&["orders.*", "a|b"]).unwrap();
        assert!(patterns.matches("orders") && patterns.matches("orders.eu"));
        assert!(!patterns.matches("my-orders"));
        assert!(patterns.matches("a") && patterns.matches("b"));
        assert!(!patterns.matches("ab"), "the alternatives are anchored together");
    }

    #[test]
    fn no_pattern_matches_nothing() {
        let patterns = TopicPatterns::default();
        assert!(patterns.is_empty() && !patterns.matches("") && !patterns.matches("a"));
    }

    #[test]
    fn constructs_that_need_backtracking_are_refused_by_name() {
        for (pattern, construct) in [
            ("a*+b", "possessive"),
            ("a{2}+", "possessive"),
            ("(?=a)b", "look-ahead"),
            ("(?<!a)b", "look-behind"),
            ("(?>a)b", "atomic"),
            (r"(a)\1", "back-reference"),
            (r"\Qa.b\E", "quoting"),
            ("a**", "quantifier of a quantifier"),
        ] {
            let message = compile(&[pattern]).unwrap_err().to_string();
            assert!(message.contains(construct), "{pattern}: {message}");
        }
        for pattern in ["[*+]+", r"\++", "a*?b", "(?<name>a)", "(?i)A"] {
            compile(&[pattern]).unwrap();
        }
    }

    #[test]
    fn a_pattern_that_would_explode_is_refused() {
        assert!(compile(&["(((a{100}){100}){100}){100}"]).is_err());
        assert!(compile(&["("]).unwrap_err().to_string().contains("unclosed group"));
    }

    #[test]
    fn names_and_patterns_are_told_apart() {
        assert!(is_plain_name("orders.eu-1_x"));
        assert!(!is_plain_name("orders.*") && !is_plain_name(""));
        assert!(is_valid_topic_name(&"a".repeat(249)) && !is_valid_topic_name(&"a".repeat(250)));
        assert!(!is_valid_topic_name(".") && !is_valid_topic_name(".."));
    }
}
