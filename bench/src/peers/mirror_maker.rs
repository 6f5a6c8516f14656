//! MirrorMaker 2 in its own process ("dedicated mode"), as it is shipped or tuned for throughput.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::PeerError;
use super::broker::{SERVER_FLAGS, java};
use super::cache::ClassPath;
use super::foreign::Foreign;
use crate::folder::Folder;
use crate::node::MakeCommand;

/// Kafka's default for a consumer's `receive.buffer.bytes`.
const RECEIVE_BUFFER_BYTES: usize = 64 * 1024;

/// How MirrorMaker 2 is started.
#[derive(Clone)]
pub struct MirrorMakerSetup {
    /// Its jars.
    pub class_path: ClassPath,
    /// The source's bootstrap servers.
    pub source: String,
    /// The destination's.
    pub destination: String,
    /// The topic to copy, as a Java pattern.
    pub topics: String,
    /// Tuned: polls of 10,000 records, fetches of 16 MiB, batches of 1 MiB that wait 20 ms, a receive buffer that the
    /// kernel sizes, a task a processor. Else as it comes.
    pub tuned: bool,
    /// Where its folder is made, and removed at the end.
    pub directory: PathBuf,
    /// How it is started: in a network namespace, say.
    pub make_command: MakeCommand,
}

impl std::fmt::Debug for MirrorMakerSetup {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("MirrorMakerSetup")
            .field("tuned", &self.tuned)
            .finish_non_exhaustive()
    }
}

impl MirrorMakerSetup {
    /// As shipped, from here to there.
    #[must_use]
    pub fn new(class_path: ClassPath, source: &str, destination: &str, topics: &str) -> Self {
        Self {
            class_path,
            source: source.to_owned(),
            destination: destination.to_owned(),
            topics: topics.to_owned(),
            tuned: false,
            directory: std::env::temp_dir(),
            make_command: Arc::new(|program| Command::new(program)),
        }
    }
}

/// A running MirrorMaker 2; ends when dropped.
#[derive(Debug)]
pub struct MirrorMaker {
    process: Foreign,
    source_name: String,
    tuned: bool,
    _folder: Folder,
}

impl MirrorMaker {
    /// Starts it. It copies some seconds later.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(setup: &MirrorMakerSetup) -> Result<Self, PeerError> {
        // Two of the same cluster names join into one Connect cluster, and copy nothing.
        static RUNS: AtomicU32 = AtomicU32::new(1);
        let run = format!("{}x{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        let folder = Folder::make(&setup.directory, "mm2")
            .map_err(PeerError::io("make a folder for MirrorMaker 2"))?;
        let source_name = format!("src{run}");
        let file = folder.path().join("mm2.properties");
        fs::write(&file, properties(setup, &source_name, &format!("dst{run}")))
            .map_err(PeerError::io("write MirrorMaker 2's properties"))?;
        let process = launch(setup, folder.path(), &file)?;
        Ok(Self { process, source_name, tuned: setup.tuned, _folder: folder })
    }

    /// What the copy of `topic` is called at the destination.
    #[must_use]
    pub fn copied(&self, topic: &str) -> String {
        format!("{}.{topic}", self.source_name)
    }

    /// Tasks at most; each reads over a connection of its own.
    #[must_use]
    pub fn tasks(&self) -> u32 {
        tasks(self.tuned)
    }

    /// What its consumers' connections hold at most; `None` when the kernel sizes that.
    #[must_use]
    pub fn receive_buffer_bytes(&self) -> Option<usize> {
        (!self.tuned).then_some(RECEIVE_BUFFER_BYTES)
    }

    /// The process, for its costs.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// An error with its last words when it has ended.
    ///
    /// # Errors
    /// That one.
    pub fn check_running(&mut self) -> Result<(), PeerError> {
        self.process.check_running()
    }

    /// The last lines of its output.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.process.last_words()
    }
}

fn launch(setup: &MirrorMakerSetup, folder: &Path, file: &Path) -> Result<Foreign, PeerError> {
    let mut command = java(&setup.make_command, &setup.class_path, &SERVER_FLAGS);
    command.args(["-Xms256m", "-Xmx2g", "org.apache.kafka.connect.mirror.MirrorMaker"]).arg(file);
    Foreign::start("MirrorMaker 2", command, Some(folder.join("output.txt")))
}

/// As shipped it has one.
fn tasks(tuned: bool) -> u32 {
    if !tuned {
        return 1;
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(processors).unwrap_or(u32::MAX)
}

fn properties(setup: &MirrorMakerSetup, source: &str, destination: &str) -> String {
    let mut text = format!(
        "clusters={source},{destination}\n\
         {source}.bootstrap.servers={}\n{destination}.bootstrap.servers={}\n\
         {source}->{destination}.enabled=true\n{source}->{destination}.topics={}\n\
         {destination}->{source}.enabled=false\n\
         {destination}->{source}.emit.heartbeats.enabled=false\n\
         replication.factor=1\ncheckpoints.topic.replication.factor=1\n\
         heartbeats.topic.replication.factor=1\noffset-syncs.topic.replication.factor=1\n\
         offset.storage.replication.factor=1\nstatus.storage.replication.factor=1\n\
         config.storage.replication.factor=1\n",
        setup.source, setup.destination, setup.topics
    );
    if setup.tuned {
        let tasks = tasks(true);
        text.push_str(&format!(
            "tasks.max={tasks}\n{source}.consumer.max.poll.records=10000\n\
             {source}.consumer.fetch.max.bytes=16777216\n\
             {source}.consumer.max.partition.fetch.bytes=16777216\n\
             {source}.consumer.receive.buffer.bytes=-1\n\
             {destination}.producer.batch.size=1048576\n{destination}.producer.linger.ms=20\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tuned_one_lets_the_kernel_size_its_receive_buffer() {
        let jars = ClassPath(String::new());
        let mut setup = MirrorMakerSetup::new(jars, "a:9092", "b:9092", "orders");
        let shipped = properties(&setup, "src", "dst");
        assert!(shipped.contains("src->dst.topics=orders\n"), "{shipped}");
        assert!(!shipped.contains("buffer") && !shipped.contains("tasks.max"), "{shipped}");
        setup.tuned = true;
        let tuned = properties(&setup, "src", "dst");
        assert!(tuned.contains("\nsrc.consumer.receive.buffer.bytes=-1\n"), "{tuned}");
        assert!(tuned.contains(&format!("\ntasks.max={}\n", tasks(true))), "{tuned}");
    }
}
