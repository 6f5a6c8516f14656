//! `longhaul mirror`: what an operator asks a node over its Kafka port.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use controlplane::client::{AdminClient, MirrorRow};
use controlplane::config::{MirrorConfig, read_properties};

use crate::commands::complain;
use crate::table::write_table;

/// Create mirrors, start topics, see how they are.
#[derive(Debug, Subcommand)]
pub(crate) enum Mirror {
    /// Create a mirror of a source cluster; the node checks the source first
    #[command(after_help = "\
Example:
  echo bootstrap.servers=kafka-1.example:9092,kafka-2.example:9092 > orders.properties
  longhaul mirror create --mirror orders --mirror-config orders.properties")]
    Create(Create),
    /// Start mirroring topics, by name or by pattern
    #[command(after_help = "\
Examples:
  longhaul mirror start --mirror orders --topics payments,refunds
  longhaul mirror start --mirror orders --topics 'orders[.].*' --exclude 'orders[.]tmp.*'

An item made only of A-Z, a-z, 0-9, '.', '_' and '-' is a name; anything else is a pattern in Java's syntax that
must match the whole name. Patterns are kept, and new topics that match are taken up by themselves. Topics that
are mirrored already are not an error: their stopped partitions try again.")]
    Start(Start),
    /// List the mirrors
    List(List),
    /// Show every partition: offsets, lag, state, cause of faults
    #[command(after_help = "\
Examples:
  longhaul mirror describe
  longhaul mirror describe --mirror orders --failed
  longhaul mirror describe --json

SOURCE-OFFSET and LAG are '-' (null in JSON) while the source's end is not known. CAUSE is there when a partition
has something to tell: a fault, or a gap that was passed.")]
    Describe(Describe),
}

#[derive(Debug, Args)]
struct Connection {
    /// The node
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    bootstrap_server: String,
    /// Kafka client properties for the connection to the node
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
}

/// Create a mirror.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Its name
    #[arg(long, value_name = "NAME")]
    mirror: String,
    /// Kafka client .properties with KIP-1279's names; bootstrap.servers is required
    #[arg(long, value_name = "FILE")]
    mirror_config: PathBuf,
    #[command(flatten)]
    connection: Connection,
}

/// Start topics.
#[derive(Debug, Args)]
pub(crate) struct Start {
    /// The mirror
    #[arg(long, value_name = "NAME")]
    mirror: String,
    /// Names and patterns
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    topics: Vec<String>,
    /// Names and patterns that are never mirrored; exclusion wins
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    exclude: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// List the mirrors.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Show every partition.
#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// Only this mirror
    #[arg(long, value_name = "NAME")]
    mirror: Option<String>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    /// Only partitions that failed, with their causes
    #[arg(long)]
    failed: bool,
    #[command(flatten)]
    connection: Connection,
}

/// The proposal's columns, and why.
const STATE_HEADER: &[&str] = &[
    "MIRROR",
    "TOPIC",
    "PARTITION",
    "SOURCE-OFFSET",
    "DESTINATION-OFFSET",
    "LAG",
    "STATE",
    "CAUSE",
];

impl Mirror {
    /// Asks the node.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut out = io::stdout().lock();
        match self {
            Self::Create(create) => create.run(&mut out),
            Self::Start(start) => start.run(&mut out),
            Self::List(list) => list.run(&mut out),
            Self::Describe(describe) => describe.run(&mut out),
        }
    }
}

impl Connection {
    fn open(&self) -> anyhow::Result<AdminClient> {
        Ok(AdminClient::connect(&self.bootstrap_server, self.command_config.as_deref())?)
    }
}

impl Create {
    fn run(self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let properties = read_properties(&self.mirror_config)?;
        // The node checks what is in the file; what it accepts without effect is told here.
        let warnings = MirrorConfig::parse(&properties.iter().cloned().collect())
            .map_or(Vec::new(), |config| config.warnings);
        self.connection.open()?.create_mirror(&self.mirror, properties)?;
        for warning in warnings {
            complain(&format!("note: {warning}"));
        }
        writeln!(out, "Created mirror {}", self.mirror)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Start {
    fn run(self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let started =
            self.connection.open()?.start_topics(&self.mirror, self.topics, self.exclude)?;
        let mut code = ExitCode::SUCCESS;
        for refused in &started.refused {
            match refused.message.contains(&refused.topic) {
                true => complain(&refused.message),
                false => complain(&format!("{}: {}", refused.topic, refused.message)),
            }
            code = ExitCode::from(1);
        }
        if !started.topics.is_empty() {
            let list = started.topics.join(", ");
            let count = started.topics.len();
            writeln!(out, "Started {count} topic{}: {list}", if count == 1 { "" } else { "s" })?;
        } else if started.refused.is_empty() {
            writeln!(out, "No topic matches yet; the patterns are kept for discovery")?;
        }
        Ok(code)
    }
}

impl List {
    fn run(self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let mirrors = self.connection.open()?.list_mirrors()?;
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &mirrors)?;
            writeln!(out)?;
            return Ok(ExitCode::SUCCESS);
        }
        if mirrors.is_empty() {
            complain("no mirrors yet; longhaul mirror create makes one");
        }
        let header = ["MIRROR", "TOPICS", "SOURCE-CLUSTER-ID", "SOURCE-BOOTSTRAP-SERVER"];
        let rows: Vec<_> = mirrors
            .into_iter()
            .map(|mirror| {
                let topics = mirror.topics.len().to_string();
                vec![mirror.mirror, topics, mirror.source_cluster_id, mirror.source_bootstrap]
            })
            .collect();
        write_table(out, &header, &rows)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Describe {
    fn run(self, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
        let described = self.connection.open()?.describe_mirrors(self.mirror.as_slice())?;
        for fault in &described.faults {
            complain(fault);
        }
        if described.rows.is_empty() && !described.refused {
            complain("no topic is mirrored yet; longhaul mirror start begins");
        }
        let rows: Vec<_> = described
            .rows
            .into_iter()
            .filter(|row| !self.failed || row.state == "FAILED")
            .collect();
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &rows)?;
            writeln!(out)?;
        } else if self.failed {
            let header = ["MIRROR", "TOPIC", "PARTITION", "RETRY", "ERROR"];
            write_table(out, &header, &rows.iter().map(failed_row).collect::<Vec<_>>())?;
        } else {
            // The last column is there when there is something to tell.
            let notes = rows.iter().any(|row| row.error_message.is_some());
            let header = if notes { STATE_HEADER } else { &STATE_HEADER[..7] };
            write_table(out, header, &rows.iter().map(state_row).collect::<Vec<_>>())?;
        }
        Ok(if described.refused { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }
}

fn state_row(row: &MirrorRow) -> Vec<String> {
    let known = |offset: Option<i64>| offset.map_or_else(|| "-".to_owned(), |o| o.to_string());
    vec![
        row.mirror.clone(),
        row.topic.clone(),
        row.partition.to_string(),
        known(row.source_offset),
        row.destination_offset.to_string(),
        known(row.lag),
        row.state.clone(),
        row.error_message.clone().unwrap_or_default(),
    ]
}

fn failed_row(row: &MirrorRow) -> Vec<String> {
    let retry = match row.retry_attempt {
        ..0 => "NonRetryable".to_owned(),
        attempt => attempt.to_string(),
    };
    vec![
        row.mirror.clone(),
        row.topic.clone(),
        row.partition.to_string(),
        retry,
        row.error_message.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}
