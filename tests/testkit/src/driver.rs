//! The tests' own Java client: one JVM for many calls.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::process::spawn;

/// An exception of the Java client.
#[derive(Debug, Clone)]
pub struct DriverError {
    /// Class name, e.g. `PolicyViolationException`.
    pub class: String,
    /// Its message.
    pub message: String,
}

struct Pipes {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// A running client; shared by a test binary's threads, one call at a time.
pub struct Driver {
    pipes: Mutex<Pipes>,
}

/// What a read delivered.
#[derive(Debug, Clone, Deserialize)]
pub struct Consumed {
    /// Records.
    pub count: u64,
    /// Offsets of the first 10,000, in order of delivery.
    pub offsets: Vec<i64>,
    /// First offset of each partition.
    pub first: BTreeMap<String, i64>,
    /// Next offset of each partition.
    pub next: BTreeMap<String, i64>,
    /// SHA-256 of each partition over offset, timestamp, key, value and headers.
    pub digest: BTreeMap<String, String>,
}

impl Driver {
    /// Starts the JVM.
    #[must_use]
    pub fn start() -> Self {
        let cache = crate::cache();
        let class_path =
            format!("{}:{}/*", cache.join("java").display(), cache.join("kafka-4.4.0").display());
        let mut process = spawn("java", |command| {
            command
                .args([
                    "-Xmx768m",
                    "-XX:TieredStopAtLevel=1",
                    "-XX:+UseSerialGC",
                    "-cp",
                    &class_path,
                ])
                .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "Driver"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit());
        });
        let input = process.stdin.take().expect("a piped input");
        let output = BufReader::new(process.stdout.take().expect("a piped output"));
        Self { pipes: Mutex::new(Pipes { process, input, output }) }
    }

    /// Runs one command of `tests/java/Driver.java`.
    ///
    /// # Errors
    /// The exception, when the command threw one.
    pub fn call(&self, command: &Value) -> Result<Value, DriverError> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(pipes.input, "{command}").expect("the Java client takes a command");
        pipes.input.flush().expect("the Java client takes a command");
        let mut line = String::new();
        pipes.output.read_line(&mut line).expect("the Java client answers");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            panic!("the Java client answered {line:?} to {command}: {error}")
        });
        if let Some(class) = answer.get("error") {
            return Err(DriverError {
                class: class.as_str().unwrap_or_default().to_owned(),
                message: answer["message"].as_str().unwrap_or_default().to_owned(),
            });
        }
        Ok(answer["ok"].clone())
    }

    /// The same for a command that must succeed.
    ///
    /// # Panics
    /// When the command threw an exception.
    pub fn must(&self, command: &Value) -> Value {
        self.call(command).unwrap_or_else(|error| panic!("{command} failed: {error:?}"))
    }

    /// Creates a topic with one replica.
    pub fn create_topic(&self, bootstrap: &str, topic: &str, partitions: u32, config: &Value) {
        self.must(&json!({"do": "create_topic", "bootstrap": bootstrap, "topic": topic,
            "partitions": partitions, "config": config}));
    }

    /// Writes `count` records from number `first` on to partition 0; answers the last offset.
    pub fn produce(
        &self,
        bootstrap: &str,
        topic: &str,
        first: u64,
        count: u64,
        compression: &str,
    ) -> i64 {
        let answer = self.must(&json!({"do": "produce", "bootstrap": bootstrap, "topic": topic,
            "first": first, "count": count, "compression": compression}));
        answer["last_offset"].as_i64().expect("a last offset")
    }

    /// Reads with the fields of the `consume` command.
    pub fn consume(&self, command: &Value) -> Consumed {
        serde_json::from_value(self.must(command)).expect("the shape of a read's result")
    }

    /// Reads a topic from its beginning until `count` records came or 20 s passed.
    pub fn consume_all(
        &self,
        bootstrap: &str,
        topic: &str,
        count: u64,
        isolation: &str,
    ) -> Consumed {
        self.consume(&json!({"do": "consume", "bootstrap": bootstrap, "topic": topic, "max": count,
            "isolation": isolation}))
    }

    /// Log start and end of a partition as the cluster tells them.
    pub fn offsets(&self, bootstrap: &str, topic: &str, partition: i32) -> (i64, i64) {
        let answer = self.must(&json!({"do": "offsets", "bootstrap": bootstrap, "topic": topic,
            "partition": partition}));
        (answer["earliest"].as_i64().expect("earliest"), answer["latest"].as_i64().expect("latest"))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = pipes.process.kill();
        let _ = pipes.process.wait();
    }
}
