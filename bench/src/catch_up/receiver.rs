//! The raw TCP peer: a process that receives bare streams from the synthetic source and drops them.
//!
//! One thread a flow, blocking, into one buffer: as little as a receiver can do. The parent's every line on
//! standard input is answered with a line of how much came; the process ends when standard input does.

use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock::monotonic_ns;
use crate::load::{Conversation, ProcessError};

/// Bytes of one receive.
const RECEIVE_BYTES: usize = 256 << 10;

/// What to receive.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverOptions {
    /// Where the source gives bare streams.
    pub from: SocketAddr,
    /// Connections, all at once.
    pub flows: u32,
    /// Bytes over all of them.
    pub bytes: u64,
}

/// How much came until then.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Received {
    /// On the clock that processes share.
    pub(super) at_ns: u64,
    /// Over all flows.
    pub(super) bytes: u64,
}

/// Receives until `input` ends.
///
/// # Errors
/// When it cannot connect.
pub fn receive_process(
    options: &ReceiverOptions,
    input: impl BufRead,
    mut output: impl Write,
) -> io::Result<()> {
    let received = Arc::new(AtomicU64::new(0));
    let flows = u64::from(options.flows.max(1));
    for flow in 0..flows {
        let wanted = options.bytes / flows + u64::from(flow < options.bytes % flows);
        let mut stream = TcpStream::connect(options.from)?;
        stream.write_all(&wanted.to_be_bytes())?;
        let received = received.clone();
        std::thread::Builder::new().name(format!("flow-{flow}")).spawn(move || {
            let mut buffer = vec![0; RECEIVE_BYTES];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                received.fetch_add(count as u64, Ordering::Relaxed);
            }
        })?;
    }
    for line in input.lines() {
        line?;
        let now = Received { at_ns: monotonic_ns(), bytes: received.load(Ordering::Relaxed) };
        serde_json::to_writer(&mut output, &now)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}

/// The parent's end; the process ends when it is dropped.
#[derive(Debug)]
pub(super) struct Receiver(Conversation);

impl Receiver {
    /// Starts `longhaul bench receive`.
    pub(super) fn start(
        make_command: &dyn Fn(&Path) -> Command,
        program: &Path,
        options: &ReceiverOptions,
    ) -> Result<Self, ProcessError> {
        let mut command = make_command(program);
        command.args(["bench", "receive", &Conversation::argument(options)]);
        Ok(Self(Conversation::start("the raw TCP receiver", command)?))
    }

    /// The process, for its costs.
    pub(super) fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// How much came.
    pub(super) fn received(&mut self) -> Result<Received, ProcessError> {
        self.0.ask(&"report")
    }
}
