//! The right to make namespaces, for users who are not root.
//!
//! Owns nothing; runs on the main thread before there is another. Must never change what a process of root may do.

use std::fs;
use std::io;

use super::{WanError, sys};

/// Makes an ordinary user's process root of a user namespace of its own, in which it may make network namespaces. Root
/// stays as it is. To be called before the process has a second thread; the kernel refuses it later.
pub fn become_root_of_own_namespace() -> Result<(), WanError> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if user.is_root() {
        return Ok(());
    }
    sys::leave_for_new_users().map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            WanError::System { what: "enter a user namespace with several threads", error }
        }
        _ => WanError::Namespaces(error),
    })?;
    let map = |file: &str, content: String| fs::write(file, content).map_err(WanError::Namespaces);
    map("/proc/self/setgroups", "deny".to_owned())?;
    map("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
    map("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
}
