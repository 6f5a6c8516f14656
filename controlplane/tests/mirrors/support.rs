//! A node in this process, and ways to look at it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longhaul_controlplane::config::NodeConfig;
use longhaul_controlplane::mirror::{
    AdminError, MirrorDescription, PartitionDescription, TopicResult,
};
use longhaul_controlplane::node::Node;
use scripted_source::ScriptedCluster;

/// Everything a test waits for comes within this, or never.
const WITHIN: Duration = Duration::from_secs(30);

/// A node with its data directory, stopped cleanly at the end.
pub(crate) struct TestNode {
    node: Option<Node>,
    config: NodeConfig,
    _directory: tempfile::TempDir,
}

impl TestNode {
    /// A node with quick retries and discovery.
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    /// The same, with other settings changed.
    pub(crate) fn with(change: impl FnOnce(&mut NodeConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = NodeConfig {
            data_dirs: vec![directory.path().join("data")],
            listen: "127.0.0.1:0".to_owned(),
            ..NodeConfig::default()
        };
        config.cores.count = Some(1);
        config.storage.recycle_bytes_max = 0;
        config.storage.segment_bytes_max = 1 << 20;
        config.mirror.metadata_refresh_interval_ms = 200;
        config.mirror.retry_initial_backoff_ms = 20;
        config.mirror.retry_max_backoff_ms = 200;
        change(&mut config);
        let node = Some(Node::start(&config).unwrap());
        Self { node, config, _directory: directory }
    }

    /// The running node.
    pub(crate) fn node(&self) -> &Node {
        self.node.as_ref().expect("a running node")
    }

    /// Stops it cleanly.
    pub(crate) fn stop(&mut self) {
        self.node.take().expect("a running node").stop().unwrap();
    }

    /// Starts it again on its directory.
    pub(crate) fn restart(&mut self) {
        assert!(self.node.is_none(), "it runs");
        self.node = Some(Node::start(&self.config).unwrap());
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> &Path {
        &self.config.data_dirs[0]
    }

    /// Creates a mirror of `cluster`, with more properties than the bootstrap.
    pub(crate) fn try_create(
        &self,
        name: &str,
        bootstrap: &str,
        properties: &[(&str, &str)],
    ) -> Result<(), AdminError> {
        let mut config = vec![("bootstrap.servers".to_owned(), Some(bootstrap.to_owned()))];
        let more = properties.iter().map(|(n, v)| ((*n).to_owned(), Some((*v).to_owned())));
        config.extend(more);
        let node = self.node();
        node.runtime().block_on(node.mirrors().create(name, config))
    }

    /// Creates a mirror that must be accepted.
    pub(crate) fn create(
        &self,
        name: &str,
        cluster: &ScriptedCluster,
        properties: &[(&str, &str)],
    ) {
        self.try_create(name, &cluster.bootstrap(), properties).unwrap();
    }

    /// Starts topics.
    pub(crate) fn try_start(
        &self,
        mirror: &str,
        include: &[&str],
        exclude: &[&str],
    ) -> Result<Vec<TopicResult>, AdminError> {
        let owned = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
        let node = self.node();
        let started = node.mirrors().start(mirror, owned(include), owned(exclude));
        node.runtime().block_on(started)
    }

    /// Starts topics that must be accepted.
    pub(crate) fn start_topics(&self, mirror: &str, include: &[&str]) {
        for result in self.try_start(mirror, include, &[]).unwrap() {
            assert_eq!(result.error, None, "{}", result.topic);
        }
    }

    /// A mirror's description.
    pub(crate) fn describe(&self, mirror: &str) -> MirrorDescription {
        let node = self.node();
        let names = [mirror.to_owned()];
        node.runtime().block_on(node.mirrors().describe(&names)).remove(0).unwrap()
    }

    /// One partition's description, if it is there.
    pub(crate) fn row(
        &self,
        mirror: &str,
        topic: &str,
        partition: i32,
    ) -> Option<PartitionDescription> {
        let rows = self.describe(mirror).partitions.into_iter();
        rows.filter(|row| row.topic == topic).find(|row| row.partition == partition)
    }

    /// Waits until a partition looks as wanted.
    pub(crate) fn wait_row(
        &self,
        mirror: &str,
        topic: &str,
        partition: i32,
        what: &str,
        mut wanted: impl FnMut(&PartitionDescription) -> bool,
    ) -> PartitionDescription {
        let mut last = None;
        let found = wait(|| {
            last = self.row(mirror, topic, partition);
            last.clone().filter(&mut wanted)
        });
        found.unwrap_or_else(|| panic!("waited for {topic}-{partition} {what}; it is {last:?}"))
    }

    /// Waits until a partition mirrors and ends at `end`, with nothing missing.
    pub(crate) fn wait_end(&self, mirror: &str, topic: &str, partition: i32, end: i64) {
        self.wait_row(mirror, topic, partition, &format!("to end at {end}"), |row| {
            row.state == "MIRRORING"
                && row.destination_offset == end
                && row.source_offset == Some(end)
        });
    }

    /// Waits until a partition fails for a cause that contains `part`.
    pub(crate) fn wait_failed(
        &self,
        mirror: &str,
        topic: &str,
        partition: i32,
        part: &str,
    ) -> PartitionDescription {
        self.wait_row(mirror, topic, partition, &format!("to fail with {part:?}"), |row| {
            row.state == "FAILED" && row.error_message.as_ref().is_some_and(|m| m.contains(part))
        })
    }

    /// All bytes of a partition's segments, of a stopped node.
    pub(crate) fn segment_bytes(&self, topic: &str, partition: i32) -> Vec<u8> {
        assert!(self.node.is_none(), "it runs");
        let folder = self.data().join(format!("{topic}-{partition}"));
        let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .collect();
        files.sort();
        files.iter().flat_map(|file| std::fs::read(file).unwrap()).collect()
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if let Some(node) = self.node.take()
            && !std::thread::panicking()
        {
            node.stop().unwrap();
        }
    }
}

/// Asks again until there is an answer; `None` when there is none in time.
pub(crate) fn wait<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + WITHIN;
    while Instant::now() < until {
        if let Some(found) = look() {
            return Some(found);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// Long enough for a few refreshes: what was going to happen has happened.
pub(crate) fn a_few_refreshes() {
    std::thread::sleep(Duration::from_millis(900));
}
