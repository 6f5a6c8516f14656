//! A socket over which a path is changed while something runs on it.
//!
//! Owns a Unix socket in the path's own folder, which only this user can enter, and the thread that answers on it. One
//! request for each connection: words, each ended by a zero byte; the answer is a line `ok` or `no`, then text. Must never
//! wait for a client: those that have not sent all of their request are held, `CLIENTS_MAX` of them, until it is there.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

/// For the path to answer: it may have to wait for a busy machine.
const PATIENCE: Duration = Duration::from_secs(15);
/// For a client to take an answer that does not fit into the socket.
const TAKES_WITHIN: Duration = Duration::from_millis(100);
/// Of a request and of an answer.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Clients whose request is not complete. One more, and the one that has been there longest has to go: a program that
/// asks sends all that it has at once.
const CLIENTS_MAX: usize = 16;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Open the path, or name the right socket.
    #[error("nothing listens at {0} ({1}); is the path still open?")]
    Nobody(PathBuf, #[source] io::Error),
    /// Look whether the change was made.
    #[error(
        "no answer came from {0} ({1}); the change may have been made: wan-set without options tells how the path is"
    )]
    Unanswered(PathBuf, #[source] io::Error),
}

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
            let serve = move || serve(&listener, &stop, &answer);
            thread::Builder::new().name("wan-control".to_owned()).spawn(serve)?
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
///
/// # Errors
/// When there is no answer.
pub fn ask(socket: &Path, words: &[String]) -> Result<Result<String, String>, AskError> {
    let stream =
        UnixStream::connect(socket).map_err(|error| AskError::Nobody(socket.to_owned(), error))?;
    exchange(stream, words).map_err(|error| {
        let late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        let late = late.then(|| io::Error::other(format!("none within {PATIENCE:?}")));
        AskError::Unanswered(socket.to_owned(), late.unwrap_or(error))
    })
}

fn exchange(mut stream: UnixStream, words: &[String]) -> io::Result<Result<String, String>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request: String = words.iter().flat_map(|word| [word.as_str(), "\0"]).collect();
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.take(MESSAGE_BYTES_MAX as u64).read_to_string(&mut answer)?;
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(Ok(text.to_owned())),
        Some(("no", text)) => Ok(Err(text.to_owned())),
        _ => Err(io::Error::new(ErrorKind::UnexpectedEof, "the path closed the connection")),
    }
}

/// Somebody whose request is not complete.
struct Client {
    stream: UnixStream,
    request: Vec<u8>,
}

fn serve(
    listener: &UnixListener,
    stop: &AtomicBool,
    answer: &impl Fn(Vec<String>) -> Result<String, String>,
) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let mut waiting = vec![PollFd::new(listener, PollFlags::IN)];
        waiting.extend(clients.iter().map(|client| PollFd::new(&client.stream, PollFlags::IN)));
        match poll(&mut waiting, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let comes = !waiting[0].revents().is_empty();
        drop(waiting);
        if stop.load(Ordering::Acquire) {
            return;
        }
        clients.retain_mut(|client| match client.read() {
            Ok(true) => {
                client.answer(answer);
                false
            }
            Ok(false) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        if comes && let Ok((stream, _)) = listener.accept() {
            if clients.len() == CLIENTS_MAX {
                clients.remove(0);
            }
            if stream.set_nonblocking(true).is_ok() {
                clients.push(Client { stream, request: Vec::new() });
            }
        }
    }
}

impl Client {
    /// Reads what is there; whether the request is complete.
    fn read(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes)? {
                0 => return Ok(true),
                read => self.request.extend_from_slice(&bytes[..read]),
            }
            if self.request.len() > MESSAGE_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }

    /// A client that went away gets no answer, and that is all.
    fn answer(&mut self, answer: &impl Fn(Vec<String>) -> Result<String, String>) {
        let words = String::from_utf8_lossy(&self.request);
        let words = words.split_terminator('\0').map(str::to_owned).collect();
        let (verdict, text) = match answer(words) {
            Ok(text) => ("ok", text),
            Err(text) => ("no", text),
        };
        let ready = self.stream.set_nonblocking(false);
        let ready = ready.and_then(|()| self.stream.set_write_timeout(Some(TAKES_WITHIN)));
        let _ = ready.and_then(|()| write!(self.stream, "{verdict}\n{text}"));
    }
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
        let error = ask(&socket, &words).unwrap_err();
        assert!(matches!(error, AskError::Nobody(..)), "{error}");
    }

    #[test]
    fn clients_that_send_nothing_hold_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let control = Control::listen(folder.path(), |words| Ok(words.concat())).unwrap();
        let mut silent: Vec<UnixStream> = Vec::new();
        for round in 0..3 * CLIENTS_MAX {
            let mut client = UnixStream::connect(control.socket()).unwrap();
            client.write_all(b"half a wo").unwrap();
            silent.push(client);
            let answer = ask(control.socket(), &[round.to_string()]).unwrap();
            assert_eq!(answer, Ok(round.to_string()));
        }
        // The first had to go, the last is still waited for.
        let mut text = String::new();
        let (mut first, mut last) = (silent.remove(0), silent.pop().unwrap());
        assert!(matches!(first.read_to_string(&mut text), Ok(0) | Err(_)));
        last.write_all(b"rd\0").unwrap();
        last.shutdown(Shutdown::Write).unwrap();
        last.read_to_string(&mut text).unwrap();
        assert_eq!(text, "ok\nhalf a word");
    }

    #[test]
    fn an_answer_that_does_not_come_is_not_told_as_a_path_that_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control");
        let listener = UnixListener::bind(&socket).unwrap();
        let gone = thread::spawn(move || drop(listener.accept()));
        let error = ask(&socket, &["--down".to_owned()]).unwrap_err();
        assert!(matches!(error, AskError::Unanswered(..)), "{error}");
        assert!(error.to_string().contains("may have been made"), "{error}");
        gone.join().unwrap();
    }
}
