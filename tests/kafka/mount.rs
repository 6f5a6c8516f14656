//! Small file systems of a test's own: unmounted when dropped, also after a failure.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{Finished, run};

/// A mounted file system. Nodes on it must be dropped first.
pub(crate) struct Mount {
    folder: tempfile::TempDir,
}

impl Mount {
    /// A file system in memory. `None`, with a word on standard error, where mounting is not allowed.
    pub(crate) fn in_memory(options: &str) -> Option<Self> {
        Self::attach(&["-t", "tmpfs", "-o", options, "tmpfs"])
    }

    /// An ext4 on a loop device that turns read-only at its first error.
    pub(crate) fn ext4(size_bytes: u64) -> Option<Self> {
        let image = tempfile::NamedTempFile::new().expect("a temporary file");
        image.as_file().set_len(size_bytes).expect("a file of that size");
        let path = image.path().display().to_string();
        let made = command("mkfs.ext4", &["-q", "-F", &path]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        // The device keeps the image when its name is gone.
        Self::attach(&["-t", "ext4", "-o", "loop,errors=remount-ro", &path])
    }

    fn attach(arguments: &[&str]) -> Option<Self> {
        let folder =
            tempfile::Builder::new().prefix("longhaul-mount-").tempdir().expect("a folder");
        let path = folder.path().display().to_string();
        let mounted = command("mount", &[arguments, &[&path]].concat());
        if mounted.code != 0 {
            // Past the test harness, which shows what a test prints only when it fails.
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "SKIPPED: mounting is not allowed here: {}", mounted.stderr);
            return None;
        }
        Some(Self { folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Fills it up to `left_bytes`; the file to remove.
    pub(crate) fn fill(&self, left_bytes: u64) -> PathBuf {
        let ballast = self.join("ballast");
        let status = rustix::fs::statvfs(self.path()).expect("the mount's size");
        let free = status.f_bavail * status.f_frsize;
        let bytes = vec![0x5a; usize::try_from(free.saturating_sub(left_bytes)).expect("small")];
        fs::write(&ballast, bytes).expect("a large file");
        ballast
    }

    /// Takes every inode; the folder to remove.
    pub(crate) fn take_inodes(&self) -> PathBuf {
        let folder = self.join("inodes");
        fs::create_dir(&folder).expect("one more folder");
        let mut number = 0;
        while fs::File::create(folder.join(format!("{number}"))).is_ok() {
            number += 1;
        }
        folder
    }

    /// What the kernel does when the disk below fails: the file system is read-only from now on.
    pub(crate) fn fail(&self) {
        let found = command("findmnt", &["-no", "SOURCE", &self.path().display().to_string()]);
        let device = found.stdout.trim().rsplit('/').next().unwrap_or_default().to_owned();
        let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
        // The write itself is told of what it caused.
        let _ = fs::write(&trigger, "1");
        fs::write(self.join("probe"), "x").expect_err("a write to a read-only file system");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = command("umount", &["-l", &self.path().display().to_string()]);
    }
}

fn command(program: &str, arguments: &[&str]) -> Finished {
    run(program, arguments, Duration::from_secs(20))
}
