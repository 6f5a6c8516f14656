//! One Apache Kafka broker (KRaft, its own controller), with the memory and collector that Kafka's own
//! scripts give it.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::PeerError;
use super::cache::ClassPath;
use super::foreign::{Foreign, pause};
use crate::folder::Folder;
use crate::node::{MakeCommand, check_room, free_port};
use crate::run::Session;

/// A broker has this long to start: it may have to recover many partitions.
const START_MAX: Duration = Duration::from_secs(300);
/// One of Kafka's tools has this long, filling a topic apart.
const TOOL_MAX: Duration = Duration::from_secs(120);
/// Filling has this long for each GB, and `TOOL_MAX` besides.
const FILL_MAX_PER_GIGABYTE: Duration = Duration::from_secs(300);
/// The broker's word for being ready.
const READY: &str = "Kafka Server started";

/// The send buffer of a broker's connections: what bounds a consumer far away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendBuffer {
    /// 102,400 bytes, as every broker has it that nobody changed.
    Untouched,
    /// -1: the kernel sizes it.
    Tuned,
}

/// How a broker is started.
#[derive(Clone)]
pub struct BrokerSetup {
    /// Kafka's jars.
    pub class_path: ClassPath,
    /// Where it listens, on a free port.
    pub host: IpAddr,
    /// Its send buffer.
    pub send_buffer: SendBuffer,
    /// Further server properties.
    pub properties: Vec<(String, String)>,
    /// Where its folder is made, and removed at the end.
    pub directory: PathBuf,
    /// Record bytes there must be room for.
    pub bytes: u64,
    /// How the broker and its tools are started: in a network namespace, say.
    pub make_command: MakeCommand,
}

impl std::fmt::Debug for BrokerSetup {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BrokerSetup").field("host", &self.host).finish_non_exhaustive()
    }
}

impl BrokerSetup {
    /// On loopback, with an untouched send buffer, in the directory for temporary files.
    #[must_use]
    pub fn new(class_path: ClassPath, bytes: u64) -> Self {
        Self {
            class_path,
            host: Ipv4Addr::LOCALHOST.into(),
            send_buffer: SendBuffer::Untouched,
            properties: Vec::new(),
            directory: std::env::temp_dir(),
            bytes,
            make_command: Arc::new(|program| Command::new(program)),
        }
    }
}

/// A topic, and what it is filled with.
#[derive(Clone, Debug)]
pub struct TopicSetup {
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: u32,
    /// Records over all partitions; 0 leaves it empty.
    pub records: u64,
    /// Bytes of a record's value.
    pub value_bytes: u32,
    /// `none`, or a codec.
    pub compression: String,
}

/// A running broker; ends, and its folder with it, when dropped.
#[derive(Debug)]
pub struct Broker {
    setup: BrokerSetup,
    // Before the folder: what is dropped first must not write to it any more.
    process: Foreign,
    folder: Folder,
    address: SocketAddr,
}

impl Broker {
    /// Formats a new folder, starts the broker and waits until it serves.
    ///
    /// # Errors
    /// When there is no room, or the broker does not come up.
    pub fn start(setup: BrokerSetup, session: &Session) -> Result<Self, PeerError> {
        check_room(&setup.directory, setup.bytes)?;
        let folder = Folder::make(&setup.directory, "broker").map_err(PeerError::io(format!(
            "make a folder for the broker in {}",
            setup.directory.display()
        )))?;
        let address = SocketAddr::new(setup.host, free_port()?);
        let properties = properties(&setup, address, free_port()?, &folder.path().join("data"));
        let file = folder.path().join("server.properties");
        fs::write(&file, properties).map_err(PeerError::io("write the broker's properties"))?;
        let mut format = java(&setup.make_command, &setup.class_path, &TOOL_FLAGS);
        format.args(["kafka.tools.StorageTool", "format", "-t", &cluster_id(), "-c"]).arg(&file);
        Foreign::start("Kafka's StorageTool", format, Some(folder.path().join("format.txt")))?
            .finish(session, TOOL_MAX)?;
        let process = launch(&setup, folder.path())?;
        let mut broker = Self { setup, process, folder, address };
        broker.wait_ready(session)?;
        Ok(broker)
    }

    /// Starts it again on the same folder after [`Self::kill`] or [`Self::stop`], without waiting.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_again(&mut self) -> Result<(), PeerError> {
        self.process = launch(&self.setup, self.folder.path())?;
        Ok(())
    }

    /// Waits until it serves.
    ///
    /// # Errors
    /// When it ends or takes too long, or the operator ends the benchmark.
    pub fn wait_ready(&mut self, session: &Session) -> Result<(), PeerError> {
        let began = Instant::now();
        while !self.process.output().contains(READY) {
            self.process.check_running()?;
            if began.elapsed() > START_MAX {
                let words = self.process.last_words();
                return Err(PeerError::Failed(format!("the broker does not come up: {words}")));
            }
            pause(session)?;
        }
        Ok(())
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it in order, keeping its folder.
    ///
    /// # Errors
    /// When it does not stop in time.
    pub fn stop(&mut self) -> Result<(), PeerError> {
        self.process.stop()
    }

    /// Makes the topic and fills it, if it is to be.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn create(&self, session: &Session, topic: &TopicSetup) -> Result<(), PeerError> {
        let bootstrap = self.address.to_string();
        let partitions = topic.partitions.to_string();
        self.tool(
            session,
            "TopicCommand",
            TOOL_MAX,
            &[
                "--bootstrap-server",
                &bootstrap,
                "--create",
                "--topic",
                &topic.name,
                "--partitions",
                &partitions,
                "--replication-factor",
                "1",
            ],
        )?;
        if topic.records == 0 {
            return Ok(());
        }
        let bytes = topic.records.saturating_mul(u64::from(topic.value_bytes));
        let gigabytes = u32::try_from(bytes / 1_000_000_000).unwrap_or(u32::MAX);
        let limit = FILL_MAX_PER_GIGABYTE.saturating_mul(gigabytes.saturating_add(1));
        let arguments = self.producing(topic, topic.records, -1);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.tool(session, "ProducerPerformance", TOOL_MAX + limit, &arguments)?;
        Ok(())
    }

    /// Starts to write so many records a second to the topic, until it is killed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn produce(
        &self,
        topic: &TopicSetup,
        records_per_second: u64,
    ) -> Result<Foreign, PeerError> {
        let rate = i64::try_from(records_per_second).unwrap_or(i64::MAX);
        let mut command = java(&self.setup.make_command, &self.setup.class_path, &TOOL_FLAGS);
        command.arg("org.apache.kafka.tools.ProducerPerformance").args(self.producing(
            topic,
            i32::MAX.unsigned_abs().into(),
            rate,
        ));
        let output = self.folder.path().join("producer.txt");
        Foreign::start("ProducerPerformance", command, Some(output))
    }

    fn producing(&self, topic: &TopicSetup, records: u64, rate: i64) -> Vec<String> {
        let (records, size) = (records.to_string(), topic.value_bytes.to_string());
        let bootstrap = format!("bootstrap.servers={}", self.address);
        let compression = format!("compression.type={}", topic.compression);
        let rate = rate.to_string();
        let words = [
            "--topic",
            &topic.name,
            "--num-records",
            &records,
            "--record-size",
            &size,
            "--throughput",
            &rate,
            "--producer-props",
            &bootstrap,
            &compression,
            "batch.size=65536",
            "linger.ms=5",
        ];
        words.map(str::to_owned).to_vec()
    }

    /// An error with its last words when it has ended.
    ///
    /// # Errors
    /// That one.
    pub fn check_running(&mut self) -> Result<(), PeerError> {
        self.process.check_running()
    }

    /// Runs one of Kafka's tools, by its class below `org.apache.kafka.tools`, to its end.
    ///
    /// # Errors
    /// When it fails: its last words.
    pub fn tool(
        &self,
        session: &Session,
        class: &str,
        limit: Duration,
        arguments: &[&str],
    ) -> Result<String, PeerError> {
        let mut command = java(&self.setup.make_command, &self.setup.class_path, &TOOL_FLAGS);
        command.arg(format!("org.apache.kafka.tools.{class}")).args(arguments);
        let output = tempfile::Builder::new()
            .prefix("tool-")
            .tempfile_in(self.folder.path())
            .map_err(PeerError::io("make a tool's output file"))?;
        Foreign::start(class, command, Some(output.path().to_owned()))?.finish(session, limit)
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The process, for its costs.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The folder that holds the partition folders.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

/// As little as a tool needs.
const TOOL_FLAGS: [&str; 3] = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
/// What Kafka's scripts start every Java program with.
pub(super) const SERVER_FLAGS: [&str; 5] = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

pub(super) fn java(make: &MakeCommand, class_path: &ClassPath, flags: &[&str]) -> Command {
    let mut command = Foreign::command(make, "java");
    command.args(flags).args([
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp",
        &class_path.0,
    ]);
    command
}

fn launch(setup: &BrokerSetup, folder: &std::path::Path) -> Result<Foreign, PeerError> {
    let mut command = java(&setup.make_command, &setup.class_path, &SERVER_FLAGS);
    command.args([
        "-Xms1g",
        "-Xmx1g",
        "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
    ]);
    command.arg("kafka.Kafka").arg(folder.join("server.properties"));
    Foreign::start("the Kafka broker", command, Some(folder.join("output.txt")))
}

fn properties(
    setup: &BrokerSetup,
    address: SocketAddr,
    controller_port: u16,
    data: &std::path::Path,
) -> String {
    let controller = SocketAddr::new(address.ip(), controller_port);
    let send_buffer = match setup.send_buffer {
        SendBuffer::Untouched => "102400",
        SendBuffer::Tuned => "-1",
    };
    // The replication factors fit one broker, the internal topics are small; all else is as it comes.
    let mut text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@{controller}\n\
         listeners=PLAINTEXT://{address},CONTROLLER://{controller}\nadvertised.listeners=PLAINTEXT://{address}\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         controller.listener.names=CONTROLLER\nlog.dirs={}\nsocket.send.buffer.bytes={send_buffer}\n\
         offsets.topic.replication.factor=1\noffsets.topic.num.partitions=4\n\
         transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
         transaction.state.log.num.partitions=4\nshare.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\ngroup.initial.rebalance.delay.ms=0\n\
         auto.create.topics.enable=false\n",
        data.display()
    );
    for (name, value) in &setup.properties {
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

/// Sixteen bytes in URL-safe base64, as Kafka writes its ids: hexadecimal digits are base64 digits, and
/// the last one holds only two bits.
fn cluster_id() -> String {
    let digits = uuid::Uuid::new_v4().simple().to_string();
    format!("{}A", &digits[..21])
}
