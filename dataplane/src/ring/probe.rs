//! Makes a ring, or says in one sentence what the host lacks and how to get it.

use std::io;

use io_uring::{IoUring, Probe, opcode};
use rustix::process::{Resource, getrlimit};

use super::types::RingError;

/// First kernel with everything used here: deferred task work, single issuer, multishot accept.
const KERNEL_MIN: (u32, u32) = (6, 1);

/// What the host says of itself, for the sentences.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// Kernel release as `uname -r` prints it.
    pub(super) release: String,
    /// `kernel.io_uring_disabled`, where the kernel has it (6.6 and later).
    pub(super) io_uring_disabled: Option<u8>,
    /// Soft limit of locked memory in bytes; `None` for no limit.
    pub(super) locked_bytes_max: Option<u64>,
}

impl Host {
    fn read() -> Self {
        let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
        Self {
            release: kernel_release(),
            io_uring_disabled: disabled.and_then(|text| text.trim().parse().ok()),
            locked_bytes_max: getrlimit(Resource::Memlock).current,
        }
    }
}

/// The running kernel's release.
#[must_use]
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Sets up a ring and checks that the kernel has every operation used.
pub(super) fn set_up(entries: u32) -> Result<IoUring, RingError> {
    let host = Host::read();
    check_kernel(&host)?;
    let uring = build(entries).map_err(|error| advice(&error, entries, &host))?;
    check_features(&uring, &host)?;
    check_operations(&uring, &host)?;
    Ok(uring)
}

fn build(entries: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_single_issuer().setup_defer_taskrun().setup_submit_all().setup_clamp().dontfork();
    // Without the array of indices, which nobody uses, a submission touches one cache line less.
    // Only kernels from 6.6 on know the flag.
    let result = builder.clone().setup_no_sqarray().build(entries);
    match result {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => builder.build(entries),
        result => result,
    }
}

pub(super) fn check_kernel(host: &Host) -> Result<(), RingError> {
    match parse_release(&host.release) {
        Some(version) if version < KERNEL_MIN => Err(RingError(format!(
            "Linux {} is too old for Longhaul's io_uring data plane: install a kernel of version \
             6.1 or later",
            host.release
        ))),
        _ => Ok(()),
    }
}

fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn check_features(uring: &IoUring, host: &Host) -> Result<(), RingError> {
    let params = uring.params();
    let features = [
        ("EXT_ARG", params.is_feature_ext_arg()),
        ("NODROP", params.is_feature_nodrop()),
        ("FAST_POLL", params.is_feature_fast_poll()),
        ("SUBMIT_STABLE", params.is_feature_submit_stable()),
    ];
    let missing: Vec<_> =
        features.iter().filter(|(_, there)| !there).map(|(name, _)| *name).collect();
    lacking("features", &missing, host)
}

fn check_operations(uring: &IoUring, host: &Host) -> Result<(), RingError> {
    let mut probe = Probe::new();
    uring.submitter().register_probe(&mut probe).map_err(|error| {
        RingError(format!(
            "io_uring refuses to say what it supports ({error}): allow io_uring_register in the \
             container's seccomp profile"
        ))
    })?;
    let operations = [
        ("ACCEPT", opcode::AcceptMulti::CODE),
        ("RECV", opcode::Recv::CODE),
        ("RECVMSG", opcode::RecvMsg::CODE),
        ("SENDMSG", opcode::SendMsg::CODE),
        ("READ", opcode::Read::CODE),
        ("ASYNC_CANCEL", opcode::AsyncCancel::CODE),
    ];
    let missing: Vec<_> = operations
        .iter()
        .filter(|(_, code)| !probe.is_supported(*code))
        .map(|(name, _)| *name)
        .collect();
    lacking("operations", &missing, host)
}

pub(super) fn lacking(what: &str, missing: &[&str], host: &Host) -> Result<(), RingError> {
    if missing.is_empty() {
        return Ok(());
    }
    Err(RingError(format!(
        "io_uring of Linux {} lacks {what} that Longhaul needs ({}): install an unrestricted kernel \
         of version 6.1 or later",
        host.release,
        missing.join(", ")
    )))
}

/// The sentence for a failed `io_uring_setup`.
pub(super) fn advice(error: &io::Error, entries: u32, host: &Host) -> RingError {
    let sentence = match error.raw_os_error() {
        Some(libc::EPERM) => forbidden(host),
        Some(libc::EACCES) => "a security module (SELinux or AppArmor) forbids io_uring to this \
             process: allow it in the module's policy"
            .to_owned(),
        Some(libc::ENOSYS) => format!(
            "Linux {} offers no io_uring: it was built without CONFIG_IO_URING, or the container's \
             seccomp profile hides it; allow io_uring_setup, io_uring_enter and io_uring_register \
             there, or use another kernel",
            host.release
        ),
        Some(libc::EINVAL) => format!(
            "Linux {} refuses the io_uring set-up Longhaul needs (SINGLE_ISSUER, DEFER_TASKRUN, \
             {entries} entries): install a kernel of version 6.1 or later",
            host.release
        ),
        Some(libc::ENOMEM) => format!(
            "not enough memory for a ring of {entries} entries (locked memory is limited to {}): \
             raise `ulimit -l` (LimitMEMLOCK= in a systemd unit) or the container's memory limit",
            host.locked_bytes_max
                .map_or_else(|| "nothing".to_owned(), |bytes| format!("{} KiB", bytes / 1024))
        ),
        Some(libc::EMFILE) => "this process has too many open files to make a ring: raise \
             `ulimit -n` (LimitNOFILE= in a systemd unit)"
            .to_owned(),
        Some(libc::ENFILE) => "this host has too many open files to make a ring: raise \
             the sysctl fs.file-max"
            .to_owned(),
        _ => format!("cannot make an io_uring on Linux {}: {error}", host.release),
    };
    RingError(sentence)
}

fn forbidden(host: &Host) -> String {
    match host.io_uring_disabled {
        Some(2) => "io_uring is switched off on this host: set the sysctl \
             kernel.io_uring_disabled to 0"
            .to_owned(),
        Some(1) => "io_uring is reserved for one group on this host: add this user to the group \
             that the sysctl kernel.io_uring_group names, or set kernel.io_uring_disabled to 0"
            .to_owned(),
        _ => "io_uring is forbidden to this process, as the default seccomp profile of containers \
             does: allow io_uring_setup, io_uring_enter and io_uring_register in the profile"
            .to_owned(),
    }
}

/// The sentence for a failed `io_uring_enter`.
pub(super) fn enter_failed(error: &io::Error) -> RingError {
    RingError(match error.raw_os_error() {
        Some(libc::EEXIST) => "a ring was used by another thread than the one that made it".into(),
        Some(libc::EBADR) => "io_uring lost completions for lack of memory: give the host or the \
             container more"
            .into(),
        _ => format!("io_uring stopped working: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(disabled: Option<u8>) -> Host {
        Host {
            release: "6.1.0-9-amd64".into(),
            io_uring_disabled: disabled,
            locked_bytes_max: Some(64 * 1024),
        }
    }

    #[test]
    fn every_setup_errno_names_its_cause_and_its_remedy() {
        let table = [
            (libc::EPERM, Some(2), ["switched off", "kernel.io_uring_disabled to 0"]),
            (libc::EPERM, Some(1), ["one group", "kernel.io_uring_group"]),
            (libc::EPERM, Some(0), ["seccomp", "io_uring_setup"]),
            (libc::EPERM, None, ["seccomp", "io_uring_setup"]),
            (libc::EACCES, None, ["security module", "policy"]),
            (libc::ENOSYS, None, ["CONFIG_IO_URING", "another kernel"]),
            (libc::EINVAL, None, ["6.1.0-9-amd64 refuses", "6.1 or later"]),
            (libc::ENOMEM, None, ["64 KiB", "ulimit -l"]),
            (libc::EMFILE, None, ["open files", "ulimit -n"]),
            (libc::ENFILE, None, ["open files", "fs.file-max"]),
            (libc::EIO, None, ["cannot make an io_uring", "os error 5"]),
        ];
        for (errno, disabled, needles) in table {
            let error = io::Error::from_raw_os_error(errno);
            let sentence = advice(&error, 256, &host(disabled)).to_string();
            for needle in needles {
                assert!(sentence.contains(needle), "errno {errno}: {needle:?} not in {sentence:?}");
            }
            assert!(!sentence.contains("  "), "{sentence:?}");
        }
    }

    #[test]
    fn a_kernel_below_the_floor_is_refused_by_name() {
        for (release, accepted) in [
            ("5.15.0-91-generic", false),
            ("6.0.12", false),
            ("6.1.0-9-amd64", true),
            ("6.18.44", true),
            ("7.0-rc1", true),
            ("unparsable", true),
        ] {
            let outcome = check_kernel(&Host { release: release.into(), ..Host::default() });
            assert_eq!(outcome.is_ok(), accepted, "{release}");
            if let Err(error) = outcome {
                assert!(error.to_string().contains(release), "{error}");
            }
        }
    }

    #[test]
    fn missing_operations_are_named() {
        assert!(lacking("operations", &[], &host(None)).is_ok());
        let error = lacking("operations", &["RECVMSG", "READ"], &host(None)).unwrap_err();
        assert!(error.to_string().contains("RECVMSG, READ"), "{error}");
    }
}
