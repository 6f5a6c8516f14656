//! The key that was probably meant.

/// The candidate closest to `word`, if it is close enough to be a slip of the finger or of memory.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = simplified(word);
    let scored = candidates.into_iter().map(|candidate| {
        let simple = simplified(candidate);
        // Part of the key is often right: `max.wait` for `fetch.wait.max.ms`.
        let distance = edit_distance(&word, &simple);
        (distance, simple.len().max(word.len()), candidate)
    });
    let (distance, len, candidate) = scored.min_by_key(|(distance, ..)| *distance)?;
    (distance <= (len / 3).max(2)).then_some(candidate)
}

/// Spelling habits that differ between files: case, separators, the prefix of an older draft.
fn simplified(word: &str) -> Vec<char> {
    let lower = word.trim().to_lowercase();
    let lower = lower.strip_prefix("mirror.").unwrap_or(&lower);
    lower.chars().map(|c| if matches!(c, '_' | '-' | ' ') { '.' } else { c }).collect()
}

/// Insertions, deletions, substitutions and swaps of neighbours.
fn edit_distance(left: &[char], right: &[char]) -> usize {
    let width = right.len() + 1;
    let mut before_last = vec![0; width];
    let mut last: Vec<usize> = (0..width).collect();
    for (row, a) in left.iter().enumerate() {
        let mut current = vec![row + 1; width];
        for (column, b) in right.iter().enumerate() {
            let mut cost = (last[column] + usize::from(a != b))
                .min(last[column + 1] + 1)
                .min(current[column] + 1);
            if row > 0 && column > 0 && *a == right[column - 1] && left[row - 1] == *b {
                cost = cost.min(before_last[column - 1] + 1);
            }
            current[column + 1] = cost;
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[width - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 4] = ["bootstrap.servers", "fetch.max.bytes", "topics.include", "listen"];

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        assert_eq!(nearest("bootstrap.server", KEYS), Some("bootstrap.servers"));
        assert_eq!(nearest("bootstrap_servers", KEYS), Some("bootstrap.servers"));
        assert_eq!(nearest("mirror.fetch.max.bytes", KEYS), Some("fetch.max.bytes"));
        assert_eq!(nearest("topics.inlcude", KEYS), Some("topics.include"));
        assert_eq!(nearest("lisen", KEYS), Some("listen"));
        assert_eq!(nearest("enable.auto.commit", KEYS), None);
    }

    #[test]
    fn swapped_neighbours_count_once() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        assert_eq!(edit_distance(&chars("ab"), &chars("ba")), 1);
        assert_eq!(edit_distance(&chars("kitten"), &chars("sitting")), 3);
        assert_eq!(edit_distance(&chars(""), &chars("abc")), 3);
    }
}
