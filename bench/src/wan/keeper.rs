//! The process that tidies up: it ends whatever still runs in the path's namespaces once the path is closed, and removes
//! the path's folder.
//!
//! Owns that folder and a pipe to a small shell script. The script waits until the other end of the pipe closes, which the kernel does
//! for us however we end, also by kill -9. Must never end a process outside of the two namespaces.

use std::fs::DirBuilder;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Its descriptors 1 and 2 are the namespaces, which is how it knows a process in them, without reading a name or
/// starting a program for each process there is. The loop goes on until a whole round finds nobody.
const SCRIPT: &str = r#"
trap '' INT QUIT TERM HUP
read -r _
while :; do
    found=
    for process in /proc/[0-9]*; do
        if [ "$process/ns/net" -ef /proc/self/fd/1 ] || [ "$process/ns/net" -ef /proc/self/fd/2 ]; then
            kill -9 "${process#/proc/}" && found=yes
        fi
    done
    [ "$found" ] || break
done
rm -rf -- "$1"
"#;

/// Ends everything in both namespaces when dropped, or when this process ends.
#[derive(Debug)]
pub(super) struct Keeper {
    script: Child,
    folder: PathBuf,
}

impl Keeper {
    /// Starts it. It holds both namespaces open for as long as it runs.
    pub(super) fn start(first: OwnedFd, second: OwnedFd) -> io::Result<Self> {
        let random = std::hash::RandomState::new().build_hasher().finish();
        let folder = std::env::temp_dir().join(format!("longhaul-wan-{random:016x}"));
        let script = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "longhaul-wan-keeper"])
            .arg(&folder)
            // Whatever ours is: it needs rm.
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::piped())
            .stdout(first)
            .stderr(second)
            // A group of its own: Ctrl-C at the terminal is not for it.
            .process_group(0)
            .spawn()?;
        Ok(Self { script, folder })
    }

    /// Makes the folder, which only this user can enter. Not before the script runs that removes it: this process may be
    /// killed at any time.
    pub(super) fn make_folder(&self) -> io::Result<&Path> {
        DirBuilder::new().mode(0o700).create(&self.folder)?;
        Ok(&self.folder)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        // It was started by us and ends by itself; there is nothing to do about an error.
        let _ = self.script.wait();
    }
}
