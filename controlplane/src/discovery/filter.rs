//! A mirror's include and exclude lists together; exclusion wins.

use std::collections::HashSet;

use super::{PatternError, TopicPatterns, is_plain_name, is_valid_topic_name};
use crate::config::MirrorConfig;

/// Topics that a cluster keeps for itself. Ours have the same names, and no mirror may take those.
const INTERNAL: [&str; 5] = [
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
    "__mirror_state",
];

/// Whether a name is one that a cluster uses for itself.
#[must_use]
pub fn is_internal_topic(name: &str) -> bool {
    INTERNAL.contains(&name)
}

/// Decides which topics are discovered.
#[derive(Clone, Debug)]
pub struct TopicFilter {
    include: Vec<TopicPatterns>,
    exclude: Vec<TopicPatterns>,
    excluded_names: HashSet<String>,
}

impl TopicFilter {
    /// The configuration's lists, with the patterns and exclusions that were given to `start`.
    pub fn new(
        config: &MirrorConfig,
        include: &[String],
        exclude: &[String],
    ) -> Result<Self, PatternError> {
        let (names, patterns): (Vec<String>, Vec<String>) =
            exclude.iter().cloned().partition(|item| is_plain_name(item));
        Ok(Self {
            include: vec![config.topics_include.clone(), TopicPatterns::compile(include)?],
            exclude: vec![config.topics_exclude.clone(), TopicPatterns::compile(&patterns)?],
            excluded_names: names.into_iter().collect(),
        })
    }

    /// Whether new topics of the source have to be looked for.
    #[must_use]
    pub fn discovers(&self) -> bool {
        self.include.iter().any(|patterns| !patterns.is_empty())
    }

    /// Whether a topic of this name is taken when it is found.
    #[must_use]
    pub fn takes(&self, name: &str) -> bool {
        is_valid_topic_name(name)
            && !is_internal_topic(name)
            && !self.excludes(name)
            && self.include.iter().any(|patterns| patterns.matches(name))
    }

    /// Whether a topic of this name must not be mirrored.
    #[must_use]
    pub fn excludes(&self, name: &str) -> bool {
        self.excluded_names.contains(name)
            || self.exclude.iter().any(|patterns| patterns.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(config: &[(&str, &str)], include: &[&str], exclude: &[&str]) -> TopicFilter {
        let mut entries: std::collections::BTreeMap<String, String> =
            config.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        entries.insert("bootstrap.servers".into(), "a:1".into());
        let owned = |items: &[&str]| items.iter().map(|i| (*i).to_owned()).collect::<Vec<_>>();
        let config = MirrorConfig::parse(&entries).unwrap();
        TopicFilter::new(&config, &owned(include), &owned(exclude)).unwrap()
    }

    #[test]
    fn nothing_is_discovered_without_a_pattern() {
        let filter = filter(&[], &[], &[]);
        assert!(!filter.discovers() && !filter.takes("a"));
    }

    #[test]
    fn exclusion_wins_and_internal_topics_are_out_by_default() {
        let filter = filter(&[], &[".*"], &["a.b", "tmp-.*"]);
        assert!(filter.discovers() && filter.takes("axb") && filter.takes("orders"));
        assert!(!filter.takes("a.b") && !filter.takes("tmp-1") && !filter.takes("__x"));
        assert!(filter.excludes("a.b") && filter.excludes("__consumer_offsets"));
    }

    #[test]
    fn the_clusters_own_topics_stay_out_even_when_the_default_exclusion_is_gone() {
        let filter = filter(&[("topics.include", ".*"), ("topics.exclude", "")], &[], &[]);
        assert!(filter.takes("__mine") && !filter.takes("__consumer_offsets"));
    }
}
