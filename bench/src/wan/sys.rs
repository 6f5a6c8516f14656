//! The system calls that have no safe form: new namespaces, the TUN device, a child that starts in a namespace.
//!
//! Owns nothing; runs on the thread that calls. Must never do more than the one call of each function: what is unsafe in
//! the emulator is in this file, so that it can be read at once.
#![expect(unsafe_code, reason = "ioctl, unshare, pre_exec and sigaction have no safe form")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// The device's name, in both namespaces.
pub(super) const DEVICE: &str = "wan0";

/// Moves the calling thread into a new network namespace, which is empty but for a loopback device that is down.
pub(super) fn leave_for_new_network() -> io::Result<()> {
    // SAFETY: unshares the network only. No descriptor table, memory or credentials change for any thread.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(io::Error::from)
}

/// Moves the process, which must have one thread only, into a new user namespace.
pub(super) fn leave_for_new_users() -> io::Result<()> {
    // SAFETY: the kernel refuses it for a process of several threads, so none can be left with other credentials.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }.map_err(io::Error::from)
}

/// Makes the file a TUN device of the calling thread's namespace: layer 3, a virtio header before each packet, and
/// the sender's segmentation and checksums left to us. It exists for as long as the file is open.
pub(super) fn make_tun_device(tun: &File) -> io::Result<()> {
    // SAFETY: an all-zero ifreq is a valid one: it is plain bytes and integers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(DEVICE.bytes()) {
        *slot = byte as libc::c_char;
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives across the call.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    // SAFETY: TUNSETOFFLOAD takes its flags by value and touches no memory of ours.
    check(unsafe {
        libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads))
    })
}

/// Lets the command start in that network namespace.
pub(super) fn start_in(command: &mut Command, namespace: Arc<OwnedFd>) {
    let enter = move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(io::Error::from)
    };
    // SAFETY: between fork and exec the closure makes one system call on a descriptor that it owns a share of; it
    // neither allocates nor takes a lock.
    unsafe { command.pre_exec(enter) };
}

/// Lets the calling thread run before all ordinary ones, whenever it has something to do. Needs root.
pub(super) fn run_in_real_time() -> io::Result<()> {
    const CALLING_THREAD: libc::pid_t = 0;
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter lives across the call, and the kernel only reads it.
    check(unsafe { libc::sched_setscheduler(CALLING_THREAD, libc::SCHED_FIFO, &raw const lowest) })
}

/// The command that signals are passed on to; 0 for none.
static COMMAND: AtomicI32 = AtomicI32::new(0);
/// A signal that came before there was one; 0 for none.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// From here on Ctrl-C and Ctrl-backslash do nothing to this process; what it starts gets them from the terminal as usual.
pub fn leave_interrupts_to_children() -> io::Result<()> {
    handle(libc::SIGINT)?;
    handle(libc::SIGQUIT)
}

/// From here on signals that somebody sends to this process, not the terminal, go to that child. With `None`, before it
/// is started, they are kept for it; with `None` once it has been waited for, they do nothing.
pub fn pass_signals_to(child: Option<u32>) -> io::Result<()> {
    handle(libc::SIGTERM)?;
    let child = child.and_then(|child| i32::try_from(child).ok()).unwrap_or(0);
    COMMAND.store(child, Ordering::SeqCst);
    let early = if child > 0 { EARLY.swap(0, Ordering::SeqCst) } else { 0 };
    if early > 0 {
        // SAFETY: a call without memory; the child has not been waited for, so the number is still its own.
        unsafe { libc::kill(child, early) };
    }
    Ok(())
}

extern "C" fn pass_on(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    let command = COMMAND.load(Ordering::SeqCst);
    // SAFETY: the kernel hands over a valid siginfo, and errno's address is that of this thread.
    let (code, errno) = unsafe { ((*info).si_code, libc::__errno_location()) };
    // Above 0 it is the kernel's, for the terminal, which has told the child too.
    if code > 0 {
        return;
    }
    if command == 0 {
        EARLY.store(signal, Ordering::SeqCst);
    } else {
        // SAFETY: kill may be called in a handler; errno, which it may set, is as it was when the handler ends.
        unsafe {
            let before = *errno;
            libc::kill(command, signal);
            *errno = before;
        }
    }
}

/// A handler, not SIG_IGN: exec puts handlers back to the default, while an ignored signal stays ignored.
fn handle(signal: libc::c_int) -> io::Result<()> {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = pass_on;
    // SAFETY: an all-zero sigaction is a valid one: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
    // SAFETY: the handler does what is allowed in one; the action lives across the call.
    check(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
