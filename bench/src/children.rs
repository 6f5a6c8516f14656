//! Programs that are not ours as child processes that end with this one, however it ends.
//!
//! They cannot be asked to end with their parent, so `setpriv` of util-linux asks the kernel on their behalf. One thread
//! that lives as long as this process starts them all: the kernel's signal follows the thread that forked, and the
//! threads of a benchmark or a test end early. Must never be given a program to start that is to outlive us.

use std::io;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};

type Request = (Command, Sender<io::Result<Child>>);

/// The command for `program`, to which arguments and streams are added before [`spawn`]. `make` makes the command for
/// what is started in its place.
#[must_use]
pub fn command(make: &dyn Fn(&Path) -> Command, program: &str) -> Command {
    let mut command = make(Path::new("setpriv"));
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// Starts it.
///
/// # Errors
/// When it cannot be started: not found where there is no `setpriv`.
pub fn spawn(command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<Sender<Request>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, answer) in requests {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (answer, child) = channel();
    let gone = |_| io::Error::other("the thread that starts programs has ended");
    let sender = starter.lock().unwrap_or_else(PoisonError::into_inner);
    sender.send((command, answer)).map_err(|_| gone(()))?;
    drop(sender);
    child.recv().map_err(|_| gone(()))?
}
