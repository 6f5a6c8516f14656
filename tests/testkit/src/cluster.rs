//! Real Apache Kafka clusters on loopback (KRaft), with data in a temporary folder.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::process::{free_port, run, spawn, wait_until};

/// A Kafka release that `tests/setup` fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 4.4.0
    V4_4,
    /// 4.0.0
    V4_0,
    /// 3.9.2
    V3_9,
}

impl Version {
    fn number(self) -> &'static str {
        match self {
            Self::V4_4 => "4.4.0",
            Self::V4_0 => "4.0.0",
            Self::V3_9 => "3.9.2",
        }
    }

    /// The class path of this release.
    #[must_use]
    pub fn class_path(self) -> String {
        format!("{}/*", crate::cache().join(format!("kafka-{}", self.number())).display())
    }
}

/// How a cluster is made.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Which release.
    pub version: Version,
    /// Brokers; the first is also the controller.
    pub brokers: usize,
    /// More lines for every broker's properties.
    pub properties: Vec<(String, String)>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { version: Version::V4_4, brokers: 1, properties: Vec::new() }
    }
}

struct Broker {
    directory: PathBuf,
    port: u16,
    process: Option<Child>,
}

/// A running cluster; ends when dropped.
pub struct Cluster {
    options: ClusterOptions,
    folder: tempfile::TempDir,
    brokers: Vec<Broker>,
    cluster_id: &'static str,
    controller_port: u16,
}

/// 22 characters of URL-safe base64, as Kafka wants its ids.
const CLUSTER_IDS: [&str; 2] = ["bG9uZ2hhdWxzb3VyY2UwMA", "bG9uZ2hhdWxzb3VyY2UwMQ"];

impl Cluster {
    /// One broker of the newest release.
    #[must_use]
    pub fn single() -> Self {
        Self::start(ClusterOptions::default())
    }

    /// Formats and starts, and waits until every broker answers.
    #[must_use]
    pub fn start(options: ClusterOptions) -> Self {
        Self::start_as(options, 0)
    }

    /// A cluster with another cluster id than [`Cluster::start`]'s.
    #[must_use]
    pub fn start_other(options: ClusterOptions) -> Self {
        Self::start_as(options, 1)
    }

    fn start_as(options: ClusterOptions, identity: usize) -> Self {
        let folder =
            tempfile::Builder::new().prefix("kafka-").tempdir().expect("a temporary folder");
        let brokers = (0..options.brokers)
            .map(|index| Broker {
                directory: folder.path().join(format!("broker-{}", index + 1)),
                port: free_port(),
                process: None,
            })
            .collect();
        let mut cluster = Self {
            options,
            folder,
            brokers,
            cluster_id: CLUSTER_IDS[identity],
            controller_port: free_port(),
        };
        for index in 0..cluster.brokers.len() {
            cluster.format(index);
        }
        for index in 0..cluster.brokers.len() {
            cluster.launch(index);
        }
        for index in 0..cluster.brokers.len() {
            cluster.wait_ready(index);
        }
        cluster
    }

    /// Every broker's address, for `bootstrap.servers`.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let addresses: Vec<_> =
            self.brokers.iter().map(|broker| format!("127.0.0.1:{}", broker.port)).collect();
        addresses.join(",")
    }

    /// One broker's address.
    #[must_use]
    pub fn address(&self, index: usize) -> String {
        format!("127.0.0.1:{}", self.brokers[index].port)
    }

    /// The folder that holds a broker's partition folders. Broker ids are `index + 1`.
    #[must_use]
    pub fn data(&self, index: usize) -> PathBuf {
        self.brokers[index].directory.join("data")
    }

    /// The process id of a broker.
    #[must_use]
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.brokers[index].process.as_ref().map(Child::id)
    }

    /// Ends a broker at once.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.brokers[index].process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops a broker in order, so that its files are complete.
    pub fn stop(&mut self, index: usize) {
        if let Some(mut process) = self.brokers[index].process.take() {
            let id = i32::try_from(process.id()).ok().and_then(rustix::process::Pid::from_raw);
            if let Some(id) = id {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
            }
            wait_until("the broker's clean stop", Duration::from_secs(60), || {
                process.try_wait().ok().flatten()
            });
        }
    }

    /// Starts a broker that was killed or stopped, and waits until it answers.
    pub fn restart(&mut self, index: usize) {
        self.launch(index);
        self.wait_ready(index);
    }

    /// Starts a stopped broker on another port, as if the host had got a new address.
    pub fn restart_elsewhere(&mut self, index: usize) {
        self.brokers[index].port = free_port();
        self.write_properties(index);
        self.restart(index);
    }

    fn properties_file(&self, index: usize) -> PathBuf {
        self.brokers[index].directory.join("server.properties")
    }

    fn write_properties(&self, index: usize) {
        let broker = &self.brokers[index];
        fs::create_dir_all(&broker.directory).expect("the broker's folder");
        let id = index + 1;
        let controller = format!("127.0.0.1:{}", self.controller_port);
        let replicas = self.brokers.len().min(3);
        let (roles, listeners) = if index == 0 {
            (
                "broker,controller",
                format!("PLAINTEXT://127.0.0.1:{},CONTROLLER://{controller}", broker.port),
            )
        } else {
            ("broker", format!("PLAINTEXT://127.0.0.1:{}", broker.port))
        };
        let mut text = format!(
            "process.roles={roles}\nnode.id={id}\ncontroller.quorum.voters=1@{controller}\n\
             listeners={listeners}\nadvertised.listeners=PLAINTEXT://127.0.0.1:{}\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             controller.listener.names=CONTROLLER\nlog.dirs={}\n\
             offsets.topic.replication.factor={replicas}\noffsets.topic.num.partitions=4\n\
             transaction.state.log.replication.factor={replicas}\ntransaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=4\nshare.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n\
             auto.create.topics.enable=false\nlog.retention.check.interval.ms=1000\n\
             message.max.bytes=67108864\nreplica.fetch.max.bytes=67108864\nbroker.heartbeat.interval.ms=500\nbroker.session.timeout.ms=3000\n\
             log.cleaner.backoff.ms=500\nlog.initial.task.delay.ms=500\n",
            broker.port,
            self.data(index).display(),
        );
        for (name, value) in &self.options.properties {
            let _ = writeln!(text, "{name}={value}");
        }
        fs::write(self.properties_file(index), text).expect("the broker's properties");
    }

    fn format(&self, index: usize) {
        self.write_properties(index);
        let file = self.properties_file(index);
        let class_path = self.options.version.class_path();
        let finished = run(
            "java",
            &[
                "-Xmx128m",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                &class_path,
                "kafka.tools.StorageTool",
                "format",
                "-t",
                self.cluster_id,
                "-c",
                &file.display().to_string(),
            ],
            Duration::from_secs(60),
        );
        assert_eq!(finished.code, 0, "formatting failed: {}{}", finished.stdout, finished.stderr);
    }

    fn launch(&mut self, index: usize) {
        let output = fs::File::create(self.output(index)).expect("the broker's output");
        let errors = output.try_clone().expect("a second handle");
        let class_path = self.options.version.class_path();
        let file = self.properties_file(index);
        let process = spawn("java", |command| {
            command
                .args([
                    "-Xms64m",
                    "-Xmx512m",
                    "-XX:TieredStopAtLevel=1",
                    "-XX:+UseSerialGC",
                    "-cp",
                    &class_path,
                ])
                .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "kafka.Kafka"])
                .arg(&file)
                .stdin(Stdio::null())
                .stdout(output)
                .stderr(errors);
        });
        self.brokers[index].process = Some(process);
    }

    fn output(&self, index: usize) -> PathBuf {
        self.brokers[index].directory.join("output.txt")
    }

    fn wait_ready(&self, index: usize) {
        let address = self.address(index);
        let output = self.output(index);
        wait_until(
            &format!("broker {} ({})", index + 1, output.display()),
            Duration::from_secs(90),
            || std::net::TcpStream::connect(&address).ok(),
        );
    }

    /// The temporary folder, for files of the test's own.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.brokers.len() {
            self.kill(index);
        }
    }
}
