//! How fast consumers read from a node, and the same consumers from a real broker that holds the same topic.
//!
//! The node is started anew for each measurement; the broker runs on, its program warm. Both are read by
//! nobody else meanwhile, and what the page cache holds of their files is arranged before. Several
//! consumers share the topic's partitions, as a group does.

mod consumer;
mod page_cache;
mod servers;

use std::path::PathBuf;

use servers::Holders;

use crate::peers::source::{Source, SourceKind};
use crate::peers::{Cache, PeerError, kcat_is_there};
use crate::run::{Session, Subject};

/// The question it answers.
pub const QUESTION: &str = "How fast do consumers read?";

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `longhaul` program.
    pub program: PathBuf,
    /// Record bytes of the topic.
    pub size_bytes: u64,
    /// Partitions of the topic.
    pub partitions: u32,
    /// Numbers of consumers at a time, each a case.
    pub consumers: Vec<u32>,
    /// Runs of each subject.
    pub repeats: u32,
    /// Where brokers and nodes have their folders, removed again.
    pub directory: PathBuf,
    /// Where the jars are.
    pub cache: Cache,
    /// Fetch and run a real Kafka beside.
    pub with_kafka: bool,
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readers {
    /// kcat, alone.
    Kcat,
    /// So many consumers of our own, which check what they read.
    Ours(u32),
}

/// What the page cache holds of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageCache {
    /// Everything.
    Warm,
    /// Nothing.
    Cold,
}

/// Measures; the session gets a case for each kind of consumers and of page cache.
///
/// # Errors
/// When it cannot begin: no Java, no Maven, no room.
pub fn run(options: &Options, session: &Session) -> Result<(), PeerError> {
    let kind = if options.with_kafka {
        SourceKind::Kafka(options.cache.kafka(session, "--with-kafka")?)
    } else {
        session.leave_out("a real Kafka that holds the same topic: give --with-kafka");
        SourceKind::Synthetic(options.program.clone())
    };
    let mut readers: Vec<Readers> = Vec::new();
    match kcat_is_there() {
        Ok(()) => readers.push(Readers::Kcat),
        Err(error) => session.leave_out(format!("kcat: {error}")),
    }
    for &count in &options.consumers {
        if count > options.partitions {
            session.leave_out(format!(
                "{count} consumers: they share {} partitions, give more --partitions",
                options.partitions
            ));
        } else {
            readers.push(Readers::Ours(count));
        }
    }
    match measure(options, &kind, &readers, session) {
        Err(PeerError::Interrupted) => Ok(()),
        other => other,
    }
}

fn measure(
    options: &Options,
    kind: &SourceKind,
    readers: &[Readers],
    session: &Session,
) -> Result<(), PeerError> {
    let (partitions, size) = (options.partitions, options.size_bytes);
    let source = Source::start(kind, partitions, "none", size, &options.directory, session)?;
    let holders = Holders::prepare(options, source, session)?;
    for &readers in readers {
        for page_cache in [PageCache::Warm, PageCache::Cold] {
            if session.stopped() {
                return Ok(());
            }
            let case = servers::Case { readers, page_cache, holders: &holders };
            let mut subjects: Vec<Box<dyn Subject + '_>> =
                vec![Box::new(servers::ReadNode { case, options })];
            if holders.has_broker() {
                subjects.push(Box::new(servers::ReadBroker { case }));
            }
            let who = match readers {
                Readers::Kcat => "kcat".to_owned(),
                Readers::Ours(1) => "1 consumer".to_owned(),
                Readers::Ours(count) => format!("{count} consumers"),
            };
            let what = match page_cache {
                PageCache::Warm => "page cache warm",
                PageCache::Cold => "page cache cold",
            };
            let gigabytes = holders.bytes() as f64 / 1e9;
            let name = format!("{who}, {what}, {gigabytes:.2} GB in {partitions} partitions");
            session.case(&name, &mut subjects, options.repeats);
        }
    }
    Ok(())
}
