//! Stock tools and clients, with a time limit on every call.

use std::path::Path;
use std::time::Duration;

use crate::Version;
use crate::process::{Finished, run};

const LIMIT: Duration = Duration::from_secs(60);

/// One of Kafka 4.4's command line tools, by class name below `org.apache.kafka.tools`.
#[must_use]
pub fn kafka_tool(class: &str, arguments: &[&str]) -> Finished {
    kafka_tool_within(class, arguments, LIMIT)
}

/// The same with a time limit of the caller's.
#[must_use]
pub fn kafka_tool_within(class: &str, arguments: &[&str], limit: Duration) -> Finished {
    let class_path = Version::V4_4.class_path();
    let class = format!("org.apache.kafka.tools.{class}");
    let mut all = vec![
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        &class_path,
        &class,
    ];
    all.extend_from_slice(arguments);
    run("java", &all, limit)
}

/// HdrHistogram's own log processor, from the jar that Kafka ships.
#[must_use]
pub fn histogram_log_processor(arguments: &[&str]) -> Finished {
    let class_path = Version::V4_4.class_path();
    let class = "org.HdrHistogram.HistogramLogProcessor";
    let mut all = vec!["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", &class_path, class];
    all.extend_from_slice(arguments);
    run("java", &all, LIMIT)
}

/// `DumpLogSegments` over every file of a partition folder, with deep iteration and the index check.
///
/// # Panics
/// When the tool complains.
pub fn dump_log_segments(folder: &Path) -> String {
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .expect("a partition folder")
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| {
            path.extension().is_some_and(|kind| {
                ["log", "index", "timeindex", "txnindex"].iter().any(|one| kind == *one)
            })
        })
        .map(|path| path.display().to_string())
        .collect();
    files.sort();
    let finished =
        kafka_tool("DumpLogSegments", &["--deep-iteration", "--files", &files.join(",")]);
    let text = format!("{}{}", finished.stdout, finished.stderr);
    assert_eq!(finished.code, 0, "DumpLogSegments: {text}");
    for complaint in [
        "Mismatches in",
        "not valid",
        "Exception",
        "non-consecutive",
        "trailing garbage",
        "corrupt",
    ] {
        assert!(
            !text.contains(complaint),
            "DumpLogSegments found {complaint:?} in {}: {text}",
            folder.display()
        );
    }
    finished.stdout
}

/// kcat (librdkafka).
#[must_use]
pub fn kcat(arguments: &[&str]) -> Finished {
    run("kcat", arguments, LIMIT)
}

/// A Python program with confluent-kafka and kafka-python at hand.
#[must_use]
pub fn python(program: &str, arguments: &[&str]) -> Finished {
    let interpreter = crate::cache().join("python/bin/python").display().to_string();
    let mut all = vec!["-c", program];
    all.extend_from_slice(arguments);
    run(&interpreter, &all, LIMIT)
}
