//! `longhaul log dump|verify`: what is in partition folders, and whether it is right.
//!
//! Reads files that no node is writing. Standard output gets one line per batch, record or
//! partition, or with `--json` one JSON object per line, as it goes: a log may be larger than memory.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use storage::batch::{Attributes, BatchInfo, Compression, ControlMarker, Record};
use storage::inspect::{self, DumpedBatch, InspectOptions, PartitionReport};

use super::complain;

/// Bytes shown of a key, a value or a header.
const SHOWN_BYTES_MAX: usize = 120;

/// Look into partition folders of a stopped node, or of a Kafka broker.
#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(Debug, Subcommand)]
enum LogCommand {
    /// List every batch: offsets, position, size, epoch, codec, producer, timestamps, checksum.
    Dump(InspectArgs),
    /// Check checksums, offsets, epochs, indexes and aborted transactions; exit code 1 on damage.
    Verify(InspectArgs),
}

#[derive(Debug, Args)]
struct InspectArgs {
    /// A data directory, a partition folder (TOPIC-NUMBER), or for dump one .log file.
    dir: PathBuf,
    /// Look inside batches too: decompress them and read every record.
    #[arg(long)]
    records: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

/// Runs the command; the exit code says whether everything was right.
pub(crate) fn run(arguments: &LogArgs) -> anyhow::Result<ExitCode> {
    let mut out = Output { writer: BufWriter::new(io::stdout().lock()), result: Ok(()) };
    let whole = match &arguments.command {
        LogCommand::Dump(arguments) => dump(arguments, &mut out)?,
        LogCommand::Verify(arguments) => verify(arguments, &mut out)?,
    };
    let written = out.result.and_then(|()| out.writer.flush());
    match written {
        // Whoever reads (`head`, say) has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
    }
}

/// Lines on their way out. After a failed write nothing more is written.
struct Output<W: Write> {
    writer: W,
    result: io::Result<()>,
}

impl<W: Write> Output<W> {
    fn line(&mut self, line: impl std::fmt::Display) -> ControlFlow<()> {
        if self.result.is_ok() {
            self.result = writeln!(self.writer, "{line}");
        }
        if self.result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

fn options(arguments: &InspectArgs) -> InspectOptions {
    InspectOptions { records: arguments.records, ..InspectOptions::default() }
}

fn dump(arguments: &InspectArgs, out: &mut Output<impl Write>) -> anyhow::Result<bool> {
    let options = options(arguments);
    let mut whole = true;
    let mut file_shown = PathBuf::new();
    let mut scratch = Vec::new();
    inspect::dump(&arguments.dir, &options, &mut |line| {
        let (DumpedBatch::Batch { file, fault, .. } | DumpedBatch::Tail { file, fault, .. }) = line;
        whole &= fault.is_none() && matches!(line, DumpedBatch::Batch { .. });
        if !arguments.json && *file != file_shown {
            file_shown = file.to_path_buf();
            out.line(file.display())?;
        }
        out.line(if arguments.json { batch_json(line).to_string() } else { batch_text(line) })?;
        match line.records(&options, &mut scratch) {
            None => ControlFlow::Continue(()),
            Some(Err(error)) => {
                whole = false;
                record_error(out, arguments.json, &error)
            }
            Some(Ok(records)) => {
                for record in records {
                    match record {
                        Ok(record) if arguments.json => out.line(record_json(&record))?,
                        Ok(record) => out.line(record_text(&record))?,
                        Err(error) => {
                            whole = false;
                            record_error(out, arguments.json, &error)?;
                        }
                    }
                }
                ControlFlow::Continue(())
            }
        }
    })?;
    Ok(whole)
}

fn record_error(
    out: &mut Output<impl Write>,
    json: bool,
    error: &dyn std::fmt::Display,
) -> ControlFlow<()> {
    if json {
        out.line(json!({ "recordError": error.to_string() }))
    } else {
        out.line(format_args!("    records: {error}"))
    }
}

fn batch_text(line: &DumpedBatch<'_>) -> String {
    match line {
        DumpedBatch::Tail { position, len_bytes, fault, .. } => {
            let reason = fault.map_or_else(|| "a batch cut short".to_owned(), ToString::to_string);
            format!("  {len_bytes} bytes from position {position} are no batch: {reason}")
        }
        DumpedBatch::Batch { position, info, fault, .. } => {
            let mut text = format!(
                "  offsets {}-{} position {position} size {} format {} epoch {} records {} codec {} {} {}..{} crc {:#010x} {}",
                info.base_offset,
                info.last_offset,
                info.size_bytes,
                info.magic,
                info.leader_epoch,
                info.record_count,
                codec(info.attributes),
                if info.attributes.is_log_append_time() { "append-time" } else { "create-time" },
                info.base_timestamp,
                info.max_timestamp,
                info.crc,
                fault.map_or_else(|| "ok".to_owned(), |fault| format!("DAMAGED ({fault})")),
            );
            if info.producer_id.0 >= 0 {
                text += &format!(
                    " producer {} producer-epoch {} sequence {}",
                    info.producer_id, info.producer_epoch, info.base_sequence
                );
            }
            if info.attributes.is_transactional() {
                text += " transactional";
            }
            if info.attributes.is_control() {
                text += &format!(" control {}", marker(info));
            }
            text
        }
    }
}

fn batch_json(line: &DumpedBatch<'_>) -> Value {
    match line {
        DumpedBatch::Tail { file, position, len_bytes, fault } => json!({
            "file": file.display().to_string(),
            "position": position,
            "tailBytes": len_bytes,
            "error": fault.map(ToString::to_string),
        }),
        DumpedBatch::Batch { file, position, info, fault, .. } => json!({
            "file": file.display().to_string(),
            "position": position,
            "baseOffset": info.base_offset.0,
            "lastOffset": info.last_offset.0,
            "sizeBytes": info.size_bytes,
            "magic": info.magic,
            "leaderEpoch": info.leader_epoch.0,
            "records": info.record_count,
            "codec": codec(info.attributes),
            "logAppendTime": info.attributes.is_log_append_time(),
            "baseTimestamp": info.base_timestamp,
            "maxTimestamp": info.max_timestamp,
            "crc": info.crc,
            "valid": fault.is_none(),
            "error": fault.map(ToString::to_string),
            "producerId": info.producer_id.0,
            "producerEpoch": info.producer_epoch.0,
            "baseSequence": info.base_sequence,
            "transactional": info.attributes.is_transactional(),
            "control": info.attributes.is_control().then(|| marker(info)),
        }),
    }
}

fn codec(attributes: Attributes) -> &'static str {
    match attributes.compression() {
        Some(Compression::None) => "none",
        Some(Compression::Gzip) => "gzip",
        Some(Compression::Snappy) => "snappy",
        Some(Compression::Lz4) => "lz4",
        Some(Compression::Zstd) => "zstd",
        None => "unknown",
    }
}

fn marker(info: &BatchInfo) -> String {
    match info.control {
        Some(ControlMarker::Abort) => "abort".to_owned(),
        Some(ControlMarker::Commit) => "commit".to_owned(),
        Some(ControlMarker::Other(number)) => format!("type-{number}"),
        None => "empty".to_owned(),
    }
}

fn record_text(record: &Record<'_>) -> String {
    let shown = |value: Option<&[u8]>| {
        value.map_or_else(|| "null".to_owned(), |value| format!("{:?}", shown(value)))
    };
    let mut text = format!(
        "    offset {} time {} key {} value {}",
        record.offset,
        record.timestamp_ms,
        shown(record.key),
        shown(record.value)
    );
    for (key, value) in record.headers {
        text += &format!(" {}={}", String::from_utf8_lossy(key), shown(value));
    }
    text
}

fn record_json(record: &Record<'_>) -> Value {
    let headers: Vec<_> = record
        .headers
        .map(|(key, value)| json!({ "key": shown(key), "value": value.map(shown) }))
        .collect();
    json!({
        "offset": record.offset.0,
        "timestamp": record.timestamp_ms,
        "keyBytes": record.key.map(<[u8]>::len),
        "key": record.key.map(shown),
        "valueBytes": record.value.map(<[u8]>::len),
        "value": record.value.map(shown),
        "headers": headers,
    })
}

/// The start of a key or value as text; what is no text becomes the replacement character.
fn shown(value: &[u8]) -> String {
    let start = &value[..value.len().min(SHOWN_BYTES_MAX)];
    let mut text = String::from_utf8_lossy(start).into_owned();
    if start.len() < value.len() {
        text.push('…');
    }
    text
}

fn verify(arguments: &InspectArgs, out: &mut Output<impl Write>) -> anyhow::Result<bool> {
    if inspect::is_in_use(&arguments.dir) {
        complain(&format!(
            "a node or broker is running on {}: what it has not finished writing is reported as damage; \
             stop it for a final answer",
            arguments.dir.display()
        ));
    }
    let (mut partitions, mut damaged) = (0u64, 0u64);
    let whole = inspect::verify(&arguments.dir, &options(arguments), &mut |report| {
        partitions += 1;
        damaged += u64::from(!report.is_whole());
        // A reader that went away is noticed at the end; the result still counts.
        let _ =
            if arguments.json { out.line(report_json(report)) } else { report_text(report, out) };
    })?;
    if !arguments.json {
        let _ = out.line(format_args!("{partitions} partitions verified, {damaged} damaged"));
    }
    Ok(whole)
}

fn report_text(report: &PartitionReport, out: &mut Output<impl Write>) -> ControlFlow<()> {
    let range = match report.first_offset {
        Some(first) => format!("offsets {first} to {}", report.next_offset.0 - 1),
        None => "empty".to_owned(),
    };
    let verdict = if report.is_whole() { "ok" } else { "DAMAGED" };
    out.line(format_args!(
        "{}: {verdict}: {range}, {} records in {} batches, {} bytes in {} segments, {} offsets in gaps, {} transactions open",
        folder_name(&report.folder),
        report.records,
        report.batches,
        report.bytes,
        report.segments,
        report.gap_offsets,
        report.open_transactions,
    ))?;
    for finding in &report.findings {
        let place = finding.position.map_or_else(String::new, |at| format!(" at byte {at}"));
        out.line(format_args!("  {}{place}: {}", finding.file.display(), finding.damage))?;
    }
    if report.findings_more > 0 {
        out.line(format_args!("  and {} more", report.findings_more))?;
    }
    ControlFlow::Continue(())
}

fn report_json(report: &PartitionReport) -> Value {
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|finding| {
            json!({
                "file": finding.file.display().to_string(),
                "position": finding.position,
                "damage": finding.damage.to_string(),
            })
        })
        .collect();
    json!({
        "partition": folder_name(&report.folder),
        "whole": report.is_whole(),
        "segments": report.segments,
        "batches": report.batches,
        "records": report.records,
        "bytes": report.bytes,
        "firstOffset": report.first_offset.map(|offset| offset.0),
        "nextOffset": report.next_offset.0,
        "gapOffsets": report.gap_offsets,
        "openTransactions": report.open_transactions,
        "findings": findings,
        "findingsMore": report.findings_more,
    })
}

fn folder_name(folder: &Path) -> String {
    folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use storage::batch::BatchBuilder;
    use storage::{LeaderEpoch, Offset};

    /// A data directory with one partition of one batch with two records.
    fn data_directory() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("orders-0");
        fs::create_dir(&folder).unwrap();
        let mut batch = BatchBuilder::new(Offset(7), LeaderEpoch(2)).compression(Compression::Gzip);
        batch.push(1000, Some(b"key"), Some(&[b'v'; 500]), &[("trace", Some(b"a1")), ("no", None)]);
        batch.push(1001, None, None, &[]);
        let log = folder.join("00000000000000000007.log");
        fs::write(&log, batch.finish()).unwrap();
        fs::write(folder.join("leader-epoch-checkpoint"), "0\n1\n2 7\n").unwrap();
        (root, log)
    }

    type Command = fn(&InspectArgs, &mut Output<Vec<u8>>) -> anyhow::Result<bool>;

    fn output(command: Command, dir: &Path, records: bool, json: bool) -> (bool, String) {
        let mut out = Output { writer: Vec::new(), result: Ok(()) };
        let arguments = InspectArgs { dir: dir.to_path_buf(), records, json };
        let whole = command(&arguments, &mut out).unwrap();
        (whole, String::from_utf8(out.writer).unwrap())
    }

    #[test]
    fn dump_prints_batches_and_records_as_text() {
        let (root, _) = data_directory();
        let (whole, text) = output(dump, root.path(), true, false);
        let lines: Vec<_> = text.lines().collect();
        assert!(whole);
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].ends_with("orders-0/00000000000000000007.log"));
        assert!(lines[1].contains("offsets 7-8 position 0"), "{text}");
        assert!(lines[1].contains("codec gzip create-time 1000..1001"), "{text}");
        assert!(lines[2].contains(r#"key "key" value "vvv"#), "{text}");
        assert!(lines[2].ends_with(r#"…" trace="a1" no=null"#), "{text}");
        assert!(lines[3].contains("offset 8 time 1001 key null value null"), "{text}");
    }

    #[test]
    fn dump_prints_one_json_object_per_line() {
        let (root, log) = data_directory();
        let mut bytes = fs::read(&log).unwrap();
        bytes.extend([0; 30]);
        fs::write(&log, bytes).unwrap();
        let (whole, text) = output(dump, root.path(), true, true);
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!whole, "a tail is damage");
        assert_eq!(lines[0]["lastOffset"], 8);
        assert_eq!(lines[1]["headers"][0]["value"], "a1");
        assert_eq!((&lines[1]["valueBytes"], &lines[2]["valueBytes"]), (&json!(500), &Value::Null));
        assert_eq!(lines[3]["tailBytes"], 30);
    }

    #[test]
    fn verify_says_where_the_damage_is() {
        let (root, log) = data_directory();
        let (whole, text) = output(verify, root.path(), true, false);
        assert!(whole, "{text}");
        assert!(text.starts_with("orders-0: ok: offsets 7 to 8, 2 records in 1 batches"), "{text}");
        assert!(text.ends_with("1 partitions verified, 0 damaged\n"), "{text}");

        let mut bytes = fs::read(&log).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&log, bytes).unwrap();
        let (whole, text) = output(verify, root.path(), false, true);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert!(!whole);
        assert_eq!(report["whole"], false);
        assert_eq!(report["findings"][0]["position"], 0);
        let damage = report["findings"][0]["damage"].as_str().unwrap();
        assert!(damage.contains("batch at offset 7: checksum"), "{damage}");
    }

    #[test]
    fn a_path_without_logs_is_an_error_that_says_so() {
        let root = tempfile::tempdir().unwrap();
        let arguments = InspectArgs { dir: root.path().to_path_buf(), records: false, json: false };
        let mut out = Output { writer: Vec::new(), result: Ok(()) };
        let error = verify(&arguments, &mut out).unwrap_err();
        assert!(error.to_string().contains("neither a .log file, nor a partition folder"));
    }
}
