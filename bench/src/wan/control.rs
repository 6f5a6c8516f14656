//! A socket over which a path is changed while something runs on it.
//!
//! Owns a Unix socket in the path's own folder, which only this user can enter, and the thread that answers on it. One
//! request for each connection: words, each ended by a zero byte; the answer is a line `ok` or `no`, then text. Must never
//! wait for a client that does not send, longer than `PATIENCE`.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// For a client to send its request, or the path to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of a request and of an answer.
const MESSAGE_BYTES_MAX: u64 = 64 << 10;

/// Answers until it is dropped.
#[derive(Debug)]
pub struct Control {
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens; `answer` gets the words of each request.
    pub(super) fn listen<F>(folder: &Path, answer: F) -> io::Result<Self>
    where
        F: Fn(Vec<String>) -> Result<String, String> + Send + 'static,
    {
        let socket = folder.join("control");
        let listener = UnixListener::bind(&socket)?;
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let stop = stop.clone();
            thread::Builder::new().name("wan-control".to_owned()).spawn(move || {
                while let Ok((client, _)) = listener.accept() {
                    if stop.load(Ordering::Acquire) {
                        return;
                    }
                    // A client that went away gets no answer, and that is all.
                    let _ = serve(client, &answer);
                }
            })?
        };
        Ok(Self { socket, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let woken = UnixStream::connect(&self.socket).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// Sends words to a path's control socket; its answer, or why it refused.
pub fn ask(socket: &Path, words: &[String]) -> io::Result<Result<String, String>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    for word in words {
        stream.write_all(word.as_bytes())?;
        stream.write_all(b"\0")?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.take(MESSAGE_BYTES_MAX).read_to_string(&mut answer)?;
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(Ok(text.to_owned())),
        Some(("no", text)) => Ok(Err(text.to_owned())),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it gave no answer")),
    }
}

fn serve(
    mut client: UnixStream,
    answer: &impl Fn(Vec<String>) -> Result<String, String>,
) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut request = String::new();
    (&client).take(MESSAGE_BYTES_MAX).read_to_string(&mut request)?;
    let words = request.split_terminator('\0').map(str::to_owned).collect();
    let (verdict, text) = match answer(words) {
        Ok(text) => ("ok", text),
        Err(text) => ("no", text),
    };
    write!(client, "{verdict}\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_and_answers_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::listen(folder.path(), |words| {
            if words.is_empty() { Err("nothing said".to_owned()) } else { Ok(words.join("|")) }
        })
        .unwrap();
        let words = ["--loss".to_owned(), "1 %".to_owned(), String::new()];
        assert_eq!(ask(control.socket(), &words).unwrap(), Ok("--loss|1 %|".to_owned()));
        assert_eq!(ask(control.socket(), &[]).unwrap(), Err("nothing said".to_owned()));
        let socket = control.socket().to_owned();
        drop(control);
        assert!(ask(&socket, &words).is_err());
    }
}
