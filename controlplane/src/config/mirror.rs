//! A mirror's configuration: Kafka client properties with KIP-1279's names and defaults.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::nearest;
use crate::client::{Address, Security};
use crate::discovery::TopicPatterns;

/// What to do when the source deleted records that were not copied yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapPolicy {
    /// Go on after the gap; it is shown and counted.
    Continue,
    /// Stop the partition; the rest goes on.
    Halt,
}

/// Everything that is wrong with a mirror's configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct MirrorConfigError(pub Vec<String>);

/// A mirror's configuration, checked.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    /// `bootstrap.servers`.
    pub bootstrap: Vec<Address>,
    /// `source.cluster.id`, when the operator pins it themselves.
    pub source_cluster_id: Option<String>,
    /// `request.timeout.ms`.
    pub request_timeout: Duration,
    /// `socket.connection.setup.timeout.ms`.
    pub connect_timeout: Duration,
    /// `fetch.wait.max.ms`.
    pub fetch_wait_max: Duration,
    /// `fetch.min.bytes`.
    pub fetch_min_bytes: i32,
    /// `fetch.response.max.bytes`.
    pub response_bytes_max: i32,
    /// `fetch.max.bytes`.
    pub partition_bytes_max: i32,
    /// `socket.timeout.ms`.
    pub socket_timeout: Duration,
    /// `topics.include`.
    pub topics_include: TopicPatterns,
    /// `topics.exclude`.
    pub topics_exclude: TopicPatterns,
    /// `client.rack`.
    pub rack: String,
    /// `mirror.gap.policy`.
    pub gap_policy: GapPolicy,
    /// `mirror.support.unclean.leader.election`.
    pub accept_divergence: bool,
    /// `security.protocol`.
    pub security: Security,
    /// What was accepted but has no effect, for the node's log.
    pub warnings: Vec<String>,
}

/// How a name's value is used.
enum Use {
    /// Read by this module.
    Read,
    /// Belongs to a function that this version does not have; kept for the one that will.
    Kept,
    /// Cannot have effect here, harmless.
    Ignored(&'static str),
    /// Must be at its default, as this version does without it.
    Default(&'static [&'static str]),
}

/// Every name that a mirror's configuration may have.
const NAMES: &[(&str, Use)] = &[
    ("bootstrap.servers", Use::Read),
    ("source.cluster.id", Use::Read),
    ("request.timeout.ms", Use::Read),
    ("socket.connection.setup.timeout.ms", Use::Read),
    ("socket.connection.setup.timeout.max.ms", Use::Read),
    ("connections.max.idle.ms", Use::Read),
    ("fetch.wait.max.ms", Use::Read),
    ("fetch.backoff.ms", Use::Read),
    ("fetch.min.bytes", Use::Read),
    ("fetch.response.max.bytes", Use::Read),
    ("fetch.max.bytes", Use::Read),
    ("socket.timeout.ms", Use::Read),
    (
        "socket.receive.buffer.bytes",
        Use::Ignored("a fixed receive buffer would freeze the TCP window; the kernel sizes it"),
    ),
    ("topic.properties.exclude", Use::Kept),
    ("topics.include", Use::Read),
    ("topics.exclude", Use::Read),
    ("groups.include", Use::Kept),
    ("groups.exclude", Use::Kept),
    ("acls.include", Use::Kept),
    ("client.rack", Use::Read),
    ("mirror.gap.policy", Use::Read),
    ("mirror.support.unclean.leader.election", Use::Read),
    ("security.protocol", Use::Read),
    ("security.providers", Use::Default(&[])),
    ("sasl.mechanism", Use::Default(&["PLAIN", "GSSAPI"])),
    ("sasl.jaas.config", Use::Default(&[])),
    ("sasl.client.callback.handler.class", Use::Default(&[])),
    ("sasl.login.callback.handler.class", Use::Default(&[])),
    ("sasl.login.class", Use::Default(&[])),
    ("sasl.kerberos.service.name", Use::Default(&[])),
    ("ssl.protocol", Use::Default(&["TLSv1.3"])),
    ("ssl.provider", Use::Default(&[])),
    ("ssl.cipher.suites", Use::Default(&[])),
    ("ssl.enabled.protocols", Use::Default(&["TLSv1.2,TLSv1.3"])),
    ("ssl.keystore.type", Use::Default(&["JKS"])),
    ("ssl.keystore.location", Use::Default(&[])),
    ("ssl.keystore.password", Use::Default(&[])),
    ("ssl.keystore.key", Use::Default(&[])),
    ("ssl.keystore.certificate.chain", Use::Default(&[])),
    ("ssl.key.password", Use::Default(&[])),
    ("ssl.truststore.type", Use::Default(&["JKS"])),
    ("ssl.truststore.location", Use::Default(&[])),
    ("ssl.truststore.password", Use::Default(&[])),
    ("ssl.truststore.certificates", Use::Default(&[])),
    ("ssl.keymanager.algorithm", Use::Default(&["SunX509"])),
    ("ssl.trustmanager.algorithm", Use::Default(&["PKIX"])),
    ("ssl.endpoint.identification.algorithm", Use::Default(&["https"])),
    ("ssl.secure.random.implementation", Use::Default(&[])),
    ("ssl.engine.factory.class", Use::Default(&[])),
];

impl MirrorConfig {
    /// Checks names and values. The error lists everything that is wrong.
    pub fn parse(entries: &BTreeMap<String, String>) -> Result<Self, MirrorConfigError> {
        let mut values = Values { entries, problems: Vec::new(), warnings: Vec::new() };
        values.check_names();
        let config = values.read();
        if values.problems.is_empty() {
            Ok(Self { warnings: values.warnings, ..config })
        } else {
            Err(MirrorConfigError(values.problems))
        }
    }
}

/// Reads a `.properties` file, in order. Values are not checked here: the node does that.
pub fn read_properties(path: &Path) -> Result<Vec<(String, String)>, MirrorConfigError> {
    let refuse = |error: &dyn std::fmt::Display| {
        MirrorConfigError(vec![format!("cannot read {}: {error}", path.display())])
    };
    let file = std::fs::File::open(path).map_err(|error| refuse(&error))?;
    let mut entries = Vec::new();
    java_properties::PropertiesIter::new(std::io::BufReader::new(file))
        .read_into(|name, value| entries.push((name, value)))
        .map_err(|error| refuse(&error))?;
    Ok(entries)
}

struct Values<'a> {
    entries: &'a BTreeMap<String, String>,
    problems: Vec<String>,
    warnings: Vec<String>,
}

impl Values<'_> {
    fn check_names(&mut self) {
        for (name, value) in self.entries {
            let Some((_, used)) = NAMES.iter().find(|(known, _)| known == name) else {
                let meant = nearest(name, NAMES.iter().map(|(known, _)| *known));
                let meant = meant.map(|m| format!("; did you mean {m}?")).unwrap_or_default();
                self.problems.push(format!("{name}: not a mirror setting{meant}"));
                continue;
            };
            match used {
                Use::Read => {}
                Use::Kept => self.warnings.push(format!(
                    "{name} is kept, but this version of Longhaul does not synchronise what it filters"
                )),
                Use::Ignored(reason) => self.warnings.push(format!("{name} is ignored: {reason}")),
                Use::Default(defaults) => {
                    let value = value.trim();
                    if !value.is_empty() && !defaults.contains(&value) {
                        self.problems.push(format!(
                            "{name}: not supported by this version of Longhaul, which connects with \
                             PLAINTEXT only; remove it"
                        ));
                    }
                }
            }
        }
    }

    fn read(&mut self) -> MirrorConfig {
        let bootstrap = match self.text("bootstrap.servers") {
            None => {
                self.problems.push("bootstrap.servers: required".to_owned());
                Vec::new()
            }
            Some(list) => Address::parse_list(list).unwrap_or_else(|error| {
                self.problems.push(format!("bootstrap.servers: {error}"));
                Vec::new()
            }),
        };
        let security =
            self.text("security.protocol").map_or(Ok(Security::Plaintext), Security::parse);
        let security = security.unwrap_or_else(|error| {
            self.problems.push(error.to_string());
            Security::Plaintext
        });
        // Read for their ranges: the pool of connections here has no use for the values.
        self.millis("socket.connection.setup.timeout.max.ms", 30_000);
        self.millis("connections.max.idle.ms", 600_000);
        self.millis("fetch.backoff.ms", 1_000);
        MirrorConfig {
            bootstrap,
            source_cluster_id: self.text("source.cluster.id").map(str::to_owned),
            request_timeout: self.millis("request.timeout.ms", 30_000),
            connect_timeout: self.millis("socket.connection.setup.timeout.ms", 10_000),
            fetch_wait_max: self.millis("fetch.wait.max.ms", 1_000),
            fetch_min_bytes: self.int("fetch.min.bytes", 1, 0),
            response_bytes_max: self.int("fetch.response.max.bytes", 10_485_760, 1),
            partition_bytes_max: self.int("fetch.max.bytes", 1_048_576, 1),
            socket_timeout: self.millis("socket.timeout.ms", 30_000),
            topics_include: self.patterns("topics.include", ""),
            topics_exclude: self.patterns("topics.exclude", "__.*"),
            rack: self.text("client.rack").unwrap_or_default().to_owned(),
            gap_policy: self.choice(
                "mirror.gap.policy",
                &[("continue", GapPolicy::Continue), ("halt", GapPolicy::Halt)],
            ),
            accept_divergence: self.choice(
                "mirror.support.unclean.leader.election",
                &[("false", false), ("true", true)],
            ),
            security,
            warnings: Vec::new(),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.entries.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn int(&mut self, name: &str, default: i32, min: i32) -> i32 {
        let Some(text) = self.text(name) else { return default };
        match text.parse::<i32>() {
            Ok(value) if value >= min => value,
            _ => {
                self.problems.push(format!(
                    "{name}: {text:?} is not a whole number from {min} to {}",
                    i32::MAX
                ));
                default
            }
        }
    }

    fn millis(&mut self, name: &str, default: i32) -> Duration {
        Duration::from_millis(u64::from(self.int(name, default, 0).unsigned_abs()))
    }

    fn patterns(&mut self, name: &str, default: &str) -> TopicPatterns {
        // An empty value is a value: it switches the default off.
        let text = self.entries.get(name).map_or(default, String::as_str);
        let items: Vec<String> = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect();
        TopicPatterns::compile(&items).unwrap_or_else(|error| {
            self.problems.push(format!("{name}: {error}"));
            TopicPatterns::default()
        })
    }

    /// One of a few words; the first is the default.
    fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> T {
        let text = self.text(name).unwrap_or(choices[0].0);
        match choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
            Some((_, value)) => *value,
            None => {
                let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                self.problems.push(format!("{name}: {text:?} is not one of {}", words.join(", ")));
                choices[0].1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<MirrorConfig, MirrorConfigError> {
        let owned = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        MirrorConfig::parse(&owned.collect())
    }

    #[test]
    fn bootstrap_alone_is_enough_and_brings_the_proposals_defaults() {
        let config = parse(&[("bootstrap.servers", "a:9092")]).unwrap();
        assert_eq!(config.fetch_wait_max, Duration::from_secs(1));
        assert_eq!(
            (config.response_bytes_max, config.partition_bytes_max),
            (10_485_760, 1_048_576)
        );
        assert_eq!((config.gap_policy, config.accept_divergence), (GapPolicy::Continue, false));
        assert!(config.topics_exclude.matches("__consumer_offsets"));
        assert!(!config.topics_include.matches("orders"));
        assert!(config.warnings.is_empty());
    }

    #[test]
    fn all_problems_are_listed_at_once() {
        let error = parse(&[
            ("boostrap.servers", "a:1"),
            ("fetch.min.bytes", "many"),
            ("security.protocol", "SASL_SSL"),
            ("ssl.truststore.location", "/x"),
            ("mirror.gap.policy", "stop"),
            ("topics.include", "a(?=b)"),
        ])
        .unwrap_err();
        let text = error.to_string();
        for part in [
            "did you mean bootstrap.servers?",
            "bootstrap.servers: required",
            "fetch.min.bytes: \"many\"",
            "security.protocol SASL_SSL is not supported",
            "ssl.truststore.location: not supported",
            "not one of continue, halt",
            "topics.include: ",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert_eq!(error.0.len(), 7, "{text}");
    }

    #[test]
    fn defaults_of_unsupported_names_pass_and_the_receive_buffer_warns() {
        let config = parse(&[
            ("bootstrap.servers", "a:1"),
            ("sasl.mechanism", "PLAIN"),
            ("ssl.protocol", "TLSv1.3"),
            ("sasl.jaas.config", ""),
            ("socket.receive.buffer.bytes", "65536"),
        ])
        .unwrap();
        assert_eq!(config.warnings.len(), 1);
        assert!(config.warnings[0].contains("socket.receive.buffer.bytes is ignored"));
    }

    #[test]
    fn every_name_is_documented() {
        let page = include_str!("../../../docs/configuration.md");
        let documented = |name: &str| {
            name.starts_with("ssl.")
                || name.starts_with("sasl.")
                || page.contains(&format!("`{name}`"))
        };
        let missing: Vec<_> =
            NAMES.iter().map(|(name, _)| *name).filter(|name| !documented(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn an_empty_exclude_switches_the_default_off() {
        let config = parse(&[("bootstrap.servers", "a:1"), ("topics.exclude", "")]).unwrap();
        assert!(!config.topics_exclude.matches("__x"));
    }
}
