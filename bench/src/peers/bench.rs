//! One topic, read by kcat, mirrored by Longhaul, copied by MirrorMaker 2 as shipped and tuned.

use std::path::PathBuf;

use super::source::{Source, SourceKind};
use super::subjects::{KcatReads, LonghaulMirrors, MirrorMakerCopies};
use super::{Cache, ClassPath, Jars, PeerError};
use crate::node::check_room;
use crate::run::{Session, Subject};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `longhaul` program.
    pub program: PathBuf,
    /// Record bytes of the topic.
    pub size_bytes: u64,
    /// Partitions of the topic, each number a case.
    pub partitions: Vec<u32>,
    /// Runs of each subject.
    pub repeats: u32,
    /// Where brokers and nodes have their folders, removed again.
    pub directory: PathBuf,
    /// Where the jars are.
    pub cache: Cache,
    /// Fetch and run a real Kafka.
    pub with_kafka: bool,
    /// Fetch and run MirrorMaker 2, and the Kafka it copies to.
    pub with_mirror_maker: bool,
}

/// The question it answers.
pub const QUESTION: &str = "What does it cost to copy one topic: MirrorMaker 2 as shipped and tuned, Longhaul, and \
                            kcat merely reading it?";

/// Measures everybody in turn; the session gets a case for each topic.
///
/// # Errors
/// When it cannot begin: no Java, no Maven, no room.
pub fn run(options: &Options, session: &Session) -> Result<(), PeerError> {
    // In one mirror at a time, and at a real source.
    let copies = 1 + u64::from(options.with_kafka || options.with_mirror_maker);
    check_room(&options.directory, options.size_bytes.saturating_mul(copies))?;
    let jars = Jars::fetch(&options.cache, options.with_kafka, options.with_mirror_maker, session)?;
    let kcat = super::kcat_is_there();
    if let Err(error) = &kcat {
        session.leave_out(format!("kcat: {error}"));
    }
    let (kind, compressions) = match &jars.kafka {
        Some(class_path) => (SourceKind::Kafka(class_path.clone()), &["none", "zstd"][..]),
        None => (SourceKind::Synthetic(options.program.clone()), &["none"][..]),
    };
    for compression in compressions {
        for partitions in &options.partitions {
            if session.stopped() {
                return Ok(());
            }
            let case =
                OneTopic { options, kind: &kind, mirror_maker: jars.both(), kcat: kcat.is_ok() };
            match case.measure(*partitions, compression, session) {
                Err(PeerError::Interrupted) => return Ok(()),
                other => other?,
            }
        }
    }
    Ok(())
}

struct OneTopic<'a> {
    options: &'a Options,
    kind: &'a SourceKind,
    /// The destination's jars and its own.
    mirror_maker: Option<(&'a ClassPath, &'a ClassPath)>,
    kcat: bool,
}

impl OneTopic<'_> {
    fn measure(
        &self,
        partitions: u32,
        compression: &str,
        session: &Session,
    ) -> Result<(), PeerError> {
        let options = self.options;
        let source = Source::start(
            self.kind,
            partitions,
            compression,
            options.size_bytes,
            &options.directory,
            session,
        )?;
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![Box::new(LonghaulMirrors {
            source: &source,
            program: &options.program,
            directory: &options.directory,
        })];
        if self.kcat {
            subjects.push(Box::new(KcatReads(&source)));
        }
        if let Some((broker, mirror_maker)) = self.mirror_maker {
            subjects.extend([false, true].map(|tuned| {
                Box::new(MirrorMakerCopies {
                    source: &source,
                    broker,
                    mirror_maker,
                    directory: &options.directory,
                    tuned,
                }) as Box<dyn Subject>
            }));
        }
        let plural = if partitions == 1 { "" } else { "s" };
        let packed = if compression == "none" { "uncompressed" } else { compression };
        let name = format!(
            "{partitions} partition{plural}, {packed}, {:.2} GB of {}",
            source.bytes() as f64 / 1e9,
            source.title()
        );
        session.case(&name, &mut subjects, options.repeats);
        Ok(())
    }
}
