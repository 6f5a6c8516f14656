//! The node's configuration file: TOML, every key optional.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dataplane::{Advertised, CoreConfig, DataplaneConfig};
use serde::Deserialize;
use storage::{LogConfig, StorageConfig};

use super::nearest;

/// Cores are bits of one word in the data plane.
const CORES_MAX: usize = 64;

/// Why a node cannot be configured so. Exit code 1 of `longhaul node`.
#[derive(Debug, thiserror::Error)]
pub enum NodeConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file has a fault at a place.
    #[error("{path}:{line}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what was probably meant.
        message: String,
    },
    /// A value is out of its range.
    #[error("{key} = {value}: {reason}")]
    Value {
        /// The key.
        key: &'static str,
        /// What it was set to.
        value: String,
        /// Why that cannot be.
        reason: String,
    },
}

/// A node's whole configuration. `NodeConfig::default()` is what a node without a file runs on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodeConfig {
    /// Log directories; the first also holds the metadata store.
    pub data_dirs: Vec<PathBuf>,
    /// Where consumers and the command line connect, `HOST:PORT`.
    pub listen: String,
    /// The host that clients are told; the address they reached when not set.
    pub advertised_host: Option<String>,
    /// The port that clients are told; the listening port when not set.
    pub advertised_port: Option<u16>,
    /// This node's id towards clients.
    pub node_id: i32,
    /// Processors.
    pub cores: CoresConfig,
    /// Segments and budgets.
    pub storage: StorageSettings,
    /// Consumers.
    pub serve: ServeConfig,
    /// What holds for every mirror.
    pub mirror: MirrorDefaults,
    /// Histograms over HTTP.
    pub http: HttpConfig,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            data_dirs: vec![PathBuf::from("longhaul-data")],
            listen: "127.0.0.1:9092".to_owned(),
            advertised_host: None,
            advertised_port: None,
            node_id: 1,
            cores: CoresConfig::default(),
            storage: StorageSettings::default(),
            serve: ServeConfig::default(),
            mirror: MirrorDefaults::default(),
            http: HttpConfig::default(),
        }
    }
}

/// Histograms over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// `HOST:PORT`, or `off`. Not set: [`HttpConfig::DEFAULT_LISTEN`] if that is free.
    pub listen: Option<String>,
}

impl HttpConfig {
    /// Where a node listens that was told nothing.
    pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9190);
    /// The word for "not at all".
    const OFF: &str = "off";

    /// Where to listen; `None` for not at all.
    pub fn address(&self) -> Result<Option<SocketAddr>, NodeConfigError> {
        match self.listen.as_deref() {
            None => Ok(Some(Self::DEFAULT_LISTEN)),
            Some(Self::OFF) => Ok(None),
            Some(listen) => resolve("http.listen", listen).map(Some),
        }
    }

    /// The host of `listen` as it is written: clients may ask by that name.
    pub(crate) fn host(&self) -> Option<&str> {
        self.listen.as_deref()?.rsplit_once(':').map(|(host, _)| host)
    }
}

/// Which cores run what: a count, or one entry each.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoresConfig {
    /// Cores that fetch and serve, not pinned; one a processor up to 8 when neither is set.
    pub count: Option<usize>,
    /// One entry a core.
    pub list: Option<Vec<CoreSettings>>,
}

/// One core.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoreSettings {
    /// The processor to pin it to.
    pub cpu: Option<usize>,
    /// Whether it fetches from sources.
    pub fetch: bool,
    /// Whether it serves consumers.
    pub serve: bool,
}

impl Default for CoreSettings {
    fn default() -> Self {
        Self { cpu: None, fetch: true, serve: true }
    }
}

/// Segments and budgets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageSettings {
    /// Kafka's `segment.bytes`.
    pub segment_bytes_max: u32,
    /// Kafka's `segment.ms`.
    pub segment_age_max_ms: u64,
    /// Kafka's `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// Kafka's `segment.index.bytes`.
    pub index_bytes_max: u32,
    /// Largest batch taken from a source; not Kafka's `max.message.bytes`, which limits producers.
    pub batch_bytes_max: u32,
    /// Descriptors that logs may hold together.
    pub descriptors_max: usize,
    /// Mappings that logs may hold together.
    pub mappings_max: usize,
    /// Bytes of mapped segments kept ready for reuse.
    pub recycle_bytes_max: u64,
    /// How often recovery points are made durable: what a restart after a crash scans.
    pub checkpoint_interval_ms: u64,
}

impl Default for StorageSettings {
    fn default() -> Self {
        Self {
            segment_bytes_max: 256 * 1024 * 1024,
            segment_age_max_ms: 7 * 24 * 3600 * 1000,
            index_interval_bytes: 4096,
            index_bytes_max: 10 * 1024 * 1024,
            batch_bytes_max: 128 * 1024 * 1024,
            descriptors_max: 4096,
            mappings_max: 8192,
            recycle_bytes_max: 1024 * 1024 * 1024,
            checkpoint_interval_ms: 5_000,
        }
    }
}

/// Consumers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServeConfig {
    /// Connections over all cores.
    pub connections_max: usize,
    /// Kafka's `socket.request.max.bytes`.
    pub request_bytes_max: usize,
    /// Kafka's `fetch.max.bytes`.
    pub fetch_bytes_max: usize,
    /// Bytes of requests and unsent answers held for all consumers together.
    pub memory_max: usize,
    /// A consumer that takes nothing for this long is disconnected.
    pub send_timeout_ms: u64,
    /// Kafka's `connections.max.idle.ms`.
    pub idle_timeout_ms: u64,
    /// Kafka's `max.incremental.fetch.session.cache.slots`.
    pub sessions_max: usize,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            request_bytes_max: 100 * 1024 * 1024,
            fetch_bytes_max: 55 * 1024 * 1024,
            memory_max: 512 * 1024 * 1024,
            send_timeout_ms: 60_000,
            idle_timeout_ms: 600_000,
            sessions_max: 1_000,
        }
    }
}

/// What holds for every mirror; the names follow KIP-1279's broker settings.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MirrorDefaults {
    /// `mirror.metadata.refresh.interval.ms`: new topics and partitions, deleted ones.
    pub metadata_refresh_interval_ms: u64,
    /// `mirror.failed.retry.initial.backoff.ms`.
    pub retry_initial_backoff_ms: u64,
    /// `mirror.failed.retry.max.backoff.ms`.
    pub retry_max_backoff_ms: u64,
    /// Catch-up lanes for each source broker and core.
    pub catch_up_lanes: usize,
    /// Requests out on one catch-up lane.
    pub requests_out_max: usize,
    /// Lag in offsets beyond which a partition moves to a catch-up lane.
    pub catch_up_lag_min: i64,
}

impl Default for MirrorDefaults {
    fn default() -> Self {
        Self {
            metadata_refresh_interval_ms: 60_000,
            retry_initial_backoff_ms: 100,
            retry_max_backoff_ms: 300_000,
            catch_up_lanes: 1,
            requests_out_max: 8,
            catch_up_lag_min: 10_000,
        }
    }
}

impl NodeConfig {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, NodeConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| NodeConfigError::Read { path: path.to_owned(), source })?;
        let config: Self =
            toml::from_str(&text).map_err(|error| syntax_error(path, &text, &error))?;
        config.check()?;
        Ok(config)
    }

    /// Checks ranges and relations; call it again after flags changed something.
    pub fn check(&self) -> Result<(), NodeConfigError> {
        if self.data_dirs.is_empty() {
            return Err(value_error("data_dirs", "[]", "name at least one directory"));
        }
        if self.node_id < 0 {
            return Err(value_error("node_id", self.node_id, "must not be negative"));
        }
        self.listen_address()?;
        self.http.address()?;
        self.core_configs()?;
        self.check_storage()?;
        let at_least_one = [
            ("serve.connections_max", self.serve.connections_max),
            ("serve.fetch_bytes_max", self.serve.fetch_bytes_max),
            ("serve.memory_max", self.serve.memory_max),
            ("mirror.catch_up_lanes", self.mirror.catch_up_lanes),
            ("mirror.requests_out_max", self.mirror.requests_out_max),
        ];
        for (key, value) in at_least_one {
            if value == 0 {
                return Err(value_error(key, value, "must be at least 1"));
            }
        }
        let times = [
            ("mirror.metadata_refresh_interval_ms", self.mirror.metadata_refresh_interval_ms),
            ("mirror.retry_initial_backoff_ms", self.mirror.retry_initial_backoff_ms),
            ("mirror.retry_max_backoff_ms", self.mirror.retry_max_backoff_ms),
            ("storage.checkpoint_interval_ms", self.storage.checkpoint_interval_ms),
        ];
        for (key, value) in times {
            if value < 10 {
                return Err(value_error(key, value, "must be at least 10"));
            }
        }
        Ok(())
    }

    /// The listening address, resolved if it is a name.
    pub fn listen_address(&self) -> Result<SocketAddr, NodeConfigError> {
        resolve("listen", &self.listen)
    }

    /// Who this node is to clients.
    #[must_use]
    pub fn advertised(&self) -> Advertised {
        Advertised {
            node_id: self.node_id,
            host: self.advertised_host.clone(),
            port: self.advertised_port,
        }
    }

    /// The data plane's settings.
    pub fn dataplane(&self) -> Result<DataplaneConfig, NodeConfigError> {
        Ok(DataplaneConfig {
            cores: self.core_configs()?,
            listen: self.listen_address()?,
            advertised: self.advertised(),
            connections_max: self.serve.connections_max,
            request_bytes_max: self.serve.request_bytes_max,
            fetch_bytes_max: self.serve.fetch_bytes_max,
            serve_memory_max: self.serve.memory_max,
            send_timeout: Duration::from_millis(self.serve.send_timeout_ms),
            idle_timeout: Duration::from_millis(self.serve.idle_timeout_ms),
            sessions_max: self.serve.sessions_max,
        })
    }

    /// The storage's settings.
    #[must_use]
    pub fn storage(&self) -> StorageConfig {
        StorageConfig {
            directories: self.data_dirs.clone(),
            descriptors_max: self.storage.descriptors_max,
            mappings_max: self.storage.mappings_max,
            recycle_bytes_max: self.storage.recycle_bytes_max,
        }
    }

    /// The settings of each mirrored log.
    #[must_use]
    pub fn log(&self) -> LogConfig {
        LogConfig {
            segment_bytes_max: self.storage.segment_bytes_max,
            segment_age_max: Duration::from_millis(self.storage.segment_age_max_ms),
            index_interval_bytes: self.storage.index_interval_bytes,
            index_bytes_max: self.storage.index_bytes_max,
            batch_bytes_max: self.storage.batch_bytes_max,
        }
    }

    fn check_storage(&self) -> Result<(), NodeConfigError> {
        const KEY: &str = "storage.segment_bytes_max";
        let segment = self.storage.segment_bytes_max;
        // Positions in a Kafka index are signed 32-bit numbers.
        if !(1024..=i32::MAX as u32).contains(&segment) {
            return Err(value_error(KEY, segment, "must be from 1024 to 2147483647"));
        }
        if !(1024..=i32::MAX as u32).contains(&self.storage.batch_bytes_max) {
            let value = self.storage.batch_bytes_max;
            let reason = "must be from 1024 to 2147483647";
            return Err(value_error("storage.batch_bytes_max", value, reason));
        }
        if self.storage.index_interval_bytes == 0 || self.storage.index_bytes_max < 24 {
            let value = self.storage.index_bytes_max;
            let reason = "an index needs room for two entries (24) and an interval above 0";
            return Err(value_error("storage.index_bytes_max", value, reason));
        }
        Ok(())
    }

    fn core_configs(&self) -> Result<Vec<CoreConfig>, NodeConfigError> {
        let cores: Vec<CoreConfig> = match (&self.cores.list, self.cores.count) {
            (Some(_), Some(count)) => {
                return Err(value_error("cores.count", count, "cores.list is set as well"));
            }
            (Some(list), None) => list
                .iter()
                .map(|core| CoreConfig { cpu: core.cpu, fetches: core.fetch, serves: core.serve })
                .collect(),
            (None, count) => {
                let processors =
                    std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                let count = count.unwrap_or(processors.min(8));
                vec![
                    CoreConfig { cpu: None, fetches: true, serves: true };
                    count.min(CORES_MAX + 1)
                ]
            }
        };
        if cores.is_empty() || cores.len() > CORES_MAX {
            let reason = format!("a node has 1 to {CORES_MAX} cores");
            return Err(value_error("cores", cores.len(), reason));
        }
        if !cores.iter().any(|core| core.fetches) || !cores.iter().any(|core| core.serves) {
            return Err(value_error("cores.list", "…", "one core must fetch and one must serve"));
        }
        Ok(cores)
    }
}

fn resolve(key: &'static str, listen: &str) -> Result<SocketAddr, NodeConfigError> {
    let resolved = std::net::ToSocketAddrs::to_socket_addrs(listen);
    let mut addresses = resolved.map_err(|error| value_error(key, listen, error.to_string()))?;
    addresses.next().ok_or_else(|| value_error(key, listen, "has no address"))
}

fn value_error(
    key: &'static str,
    value: impl ToString,
    reason: impl Into<String>,
) -> NodeConfigError {
    NodeConfigError::Value { key, value: value.to_string(), reason: reason.into() }
}

fn syntax_error(path: &Path, text: &str, error: &toml::de::Error) -> NodeConfigError {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    let message = explain(error.message());
    NodeConfigError::Syntax { path: path.to_owned(), line, message }
}

/// Turns "unknown field `x`, expected one of `a`, `b`" into a sentence with the nearest key.
fn explain(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field `") else {
        return plain_types(message);
    };
    let mut quoted = rest.split('`').step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    let expected: Vec<&str> = quoted.collect();
    match nearest(unknown, expected.iter().copied()) {
        Some(meant) => format!("unknown key {unknown:?}; did you mean {meant:?}?"),
        None => format!("unknown key {unknown:?}; the keys here are {}", expected.join(", ")),
    }
}

/// Rust's names of types in the reader's words.
fn plain_types(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "u16" | "u32" | "u64" | "usize" => "a whole number, not negative",
        "i32" | "i64" => "a whole number",
        other => other,
    };
    format!("{found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<NodeConfig, NodeConfigError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.toml");
        std::fs::write(&path, text).unwrap();
        NodeConfig::read(&path)
    }

    #[test]
    fn no_file_and_an_empty_file_mean_the_same_usable_defaults() {
        let config = read("").unwrap();
        assert_eq!(config, NodeConfig::default());
        config.check().unwrap();
        assert!(!config.dataplane().unwrap().cores.is_empty());
    }

    #[test]
    fn an_unknown_key_names_file_line_and_nearest_key() {
        let message = read("node_id = 3\n\n[serve]\nconections_max = 5\n").unwrap_err().to_string();
        assert!(message.contains("node.toml:4: "), "{message}");
        assert!(message.contains("did you mean \"connections_max\""), "{message}");
        let message = read("colour = 3\n").unwrap_err().to_string();
        assert!(message.contains("data_dirs, listen"), "{message}");
    }

    #[test]
    fn cores_are_a_count_or_a_list() {
        let list = "[[cores.list]]\ncpu = 3\nserve = false\n[[cores.list]]\n";
        let cores = read(list).unwrap().dataplane().unwrap().cores;
        assert_eq!((cores[0].cpu, cores[0].serves, cores[1].serves), (Some(3), false, true));
        assert_eq!(read("cores.count = 3").unwrap().dataplane().unwrap().cores.len(), 3);
        assert!(read("cores.count = 0").is_err());
        assert!(read("cores.count = 65").is_err());
        assert!(read("[[cores.list]]\nfetch = false\n").is_err());
    }

    #[test]
    fn every_key_is_documented() {
        let page = include_str!("../../../docs/configuration.md");
        let sections = ["cores", "storage", "serve", "mirror", "http"];
        for section in [""].iter().chain(&sections) {
            let prefix = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
            // The refusal of a key that cannot exist lists all that can.
            let refusal =
                read(&format!("{prefix}zzzzzzzzzzzzzzzzzzzz = 1\n")).unwrap_err().to_string();
            let keys = refusal.split_once("the keys here are ").unwrap().1;
            let missing: Vec<_> =
                keys.split(", ").filter(|key| !page.contains(&format!("`{key}`"))).collect();
            assert!(missing.iter().all(|key| sections.contains(key)), "{section}: {missing:?}");
        }
    }

    #[test]
    fn values_out_of_range_are_named() {
        for (text, key) in [
            ("data_dirs = []", "data_dirs"),
            ("listen = \"nowhere\"", "listen"),
            ("http.listen = \"9190\"", "http.listen"),
            ("storage.segment_bytes_max = 10", "storage.segment_bytes_max"),
            ("mirror.catch_up_lanes = 0", "mirror.catch_up_lanes"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(key), "{text}: {message}");
        }
    }
}
