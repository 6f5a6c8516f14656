//! The emulator's own way to move packets: a TUN device in each namespace, and a lane for each direction.
//!
//! Owns the lanes' threads; the devices are theirs. Set-up runs on the caller's thread. Must never leave a thread behind.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::lane::{Change, Lane, Shared};
use super::link::LinkSettings;
use super::namespace::Namespace;
use super::report::{Carried, DirectionReport};
use super::ring::Memory;
use super::settings::{HELD_BYTES_MAX, PathSettings};
use super::{WanError, sys};

/// Both directions at work.
#[derive(Debug)]
pub(super) struct Relay {
    outward: RunningLane,
    homeward: RunningLane,
}

#[derive(Debug)]
struct RunningLane {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Makes the devices, which are still down, and starts the lanes.
    pub(super) fn open(
        source: &Namespace,
        destination: &Namespace,
        settings: &PathSettings,
    ) -> Result<Self, WanError> {
        let (source, destination) = (device(source)?, device(destination)?);
        let start = |name: &str, from: &Arc<File>, to: &Arc<File>, link: LinkSettings| {
            RunningLane::start(name, Lane::new(from.clone(), to.clone(), link, memory(settings)?))
        };
        Ok(Self {
            outward: start("wan-out", &source, &destination, LinkSettings::outward(settings))?,
            homeward: start("wan-back", &destination, &source, LinkSettings::homeward(settings))?,
        })
    }

    /// For packets that come from now on.
    pub(super) fn change(&self, settings: &PathSettings) -> Result<(), WanError> {
        let lanes = [
            (&self.outward, LinkSettings::outward(settings)),
            (&self.homeward, LinkSettings::homeward(settings)),
        ];
        for (lane, link) in lanes {
            let more = settings.held_bytes().min(HELD_BYTES_MAX) > lane.shared.numbers().capacity;
            let memory = if more { Some(memory(settings)?) } else { None };
            lane.shared.change(Change { link, memory });
        }
        Ok(())
    }

    pub(super) fn restart_counts(&self) {
        self.outward.shared.numbers().restart();
        self.homeward.shared.numbers().restart();
    }

    /// What the lanes did since the counts began.
    pub(super) fn carried(&self) -> Carried {
        let (outward, homeward) =
            (self.outward.shared.numbers().clone(), self.homeward.shared.numbers().clone());
        let mut lateness = outward.lateness.clone();
        // Both have the same bounds, so adding cannot fail.
        let _ = lateness.add(&homeward.lateness);
        Carried {
            outward: DirectionReport::new(&outward),
            homeward: DirectionReport::new(&homeward),
            lateness: Some(lateness),
            failure: outward.failure.or(homeward.failure),
        }
    }
}

impl RunningLane {
    fn start(name: &str, lane: Lane) -> Result<Self, WanError> {
        let system = WanError::system("start a thread");
        let shared = Arc::new(Shared::new().map_err(&system)?);
        let thread = {
            let shared = shared.clone();
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || lane.run(&shared))
                .map_err(system)?
        };
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for RunningLane {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A lane that panicked has said so; there is nothing more to end.
            let _ = thread.join();
        }
    }
}

/// For one lane.
fn memory(settings: &PathSettings) -> Result<Memory, WanError> {
    let bytes = settings.held_bytes().min(HELD_BYTES_MAX);
    Memory::new(bytes).map_err(|_| WanError::Memory { mebibytes: bytes >> 20 })
}

/// A TUN file belongs to the namespace that it is opened in.
fn device(namespace: &Namespace) -> Result<Arc<File>, WanError> {
    let device = namespace
        .run(|| {
            let mut options = OpenOptions::new();
            let tun = options
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open("/dev/net/tun")?;
            sys::make_tun_device(&tun)?;
            Ok(tun)
        })
        .and_then(|made| made)
        .map_err(WanError::from_tun)?;
    Ok(Arc::new(device))
}
