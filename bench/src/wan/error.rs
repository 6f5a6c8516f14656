//! Why there is no path, and what to do about it.

use std::io;

/// Why a path could not be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum WanError {
    /// Ask for something else.
    #[error("{0}")]
    Settings(String),
    /// Get the right to make namespaces.
    #[error(
        "a path needs network namespaces of its own, and this user may not make them ({0}); run it as root (a container \
         needs the capability SYS_ADMIN for it), or let the machine's administrator allow unprivileged user namespaces"
    )]
    Namespaces(#[source] io::Error),
    /// Get the TUN device.
    #[error(
        "/dev/net/tun cannot be used ({0}); load the kernel's tun module (modprobe tun), give a container the device \
         itself (--device /dev/net/tun), and without root have it readable and writable by all (mode 0666)"
    )]
    Tun(#[source] io::Error),
    /// Ask for another congestion control.
    #[error("this kernel has no congestion control {name:?}; it has: {available}")]
    Congestion {
        /// What was asked for.
        name: String,
        /// What there is.
        available: String,
    },
    /// Free memory, or ask for a smaller path.
    #[error(
        "there are no {mebibytes} MiB of memory for packets under way; lower the rate, the delay or the queue"
    )]
    Memory {
        /// For one direction.
        mebibytes: u64,
    },
    /// Use the relay, or another kernel.
    #[error(
        "this kernel has no netem, or there is no tc of iproute2 to set it up; use the relay, which needs neither \
         (--backend relay)"
    )]
    NoNetem,
    /// netem did not take what was asked for.
    #[error("tc refused {command:?}: {said}; use the relay instead (--backend relay)")]
    Tc {
        /// Its arguments.
        command: String,
        /// What it said.
        said: String,
    },
    /// Something that works on a healthy machine did not.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
}

impl WanError {
    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { what, error }
    }

    pub(super) fn from_namespace(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Namespaces(error),
            _ => Self::System { what: "make a network namespace", error },
        }
    }

    pub(super) fn from_tun(error: io::Error) -> Self {
        match error.raw_os_error() {
            // The last three: something else lies in its place.
            Some(
                libc::ENOENT
                | libc::EACCES
                | libc::EPERM
                | libc::ENODEV
                | libc::ENXIO
                | libc::ENOTTY
                | libc::EISDIR
                | libc::ENOTDIR,
            ) => Self::Tun(error),
            _ => Self::System { what: "make a TUN device", error },
        }
    }

    pub(super) fn no_such_congestion(name: &str) -> Self {
        let available =
            std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let available =
            available.map_or_else(|_| "unknown".to_owned(), |names| names.trim().to_owned());
        Self::Congestion { name: name.to_owned(), available }
    }
}
