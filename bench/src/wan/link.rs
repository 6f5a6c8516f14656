//! One direction of the path as arithmetic: when a packet that comes now comes out, and which of its segments do.
//!
//! Owns the link's clock and its random draws; no I/O and no clock of its own, so tests hand it times. The
//! queue in front of the link is not kept as packets: the link is free again at a time, which is later for each packet
//! by the time that its bytes take, and what lies between now and then is what waits. Must never let a packet come out
//! before one that went in earlier, except one that was picked to be late.

use serde::Serialize;

use super::chance::{Picks, Random};
use super::segment::Shape;
use super::settings::{Loss, PathSettings, Reorder};

/// The shortest time in which jitter wanders from one value to the next.
const WANDER_NS_MIN: u64 = 1_000_000;
/// Over so many times its own size jitter wanders, so that its slope, a quarter, cannot turn the order of packets.
const WANDER_SLOPE: u64 = 4;

/// What of the path's settings is for one direction.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LinkSettings {
    delay_ns: u64,
    jitter_ns: u64,
    rate_bits: Option<u64>,
    queue_ns: u64,
    loss: Loss,
    reorder: Option<Reorder>,
    down: bool,
    seed: u64,
}

/// Segments of one packet that come out together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) count: u32,
    /// In nanoseconds of the clock that `send` is given.
    pub(super) due: u64,
    /// Picked to be late: it may come out after runs that went in after it.
    pub(super) late: bool,
}

/// What one direction did, in packets as they would be on a wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// Packets that came.
    pub packets: u64,
    /// Bytes of them, from the IP header on.
    pub bytes: u64,
    /// Packets that were lost as asked.
    pub lost: u64,
    /// Packets that found the queue full.
    pub queue_dropped: u64,
    /// Packets that came while the link was down.
    pub down_dropped: u64,
    /// Packets that were made late as asked.
    pub reordered: u64,
}

impl LinkCounts {
    /// What came after an earlier count.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            lost: self.lost.saturating_sub(earlier.lost),
            queue_dropped: self.queue_dropped.saturating_sub(earlier.queue_dropped),
            down_dropped: self.down_dropped.saturating_sub(earlier.down_dropped),
            reordered: self.reordered.saturating_sub(earlier.reordered),
        }
    }
}

/// One direction.
#[derive(Debug)]
pub(super) struct Link {
    settings: LinkSettings,
    losses: Picks,
    latecomers: Picks,
    wander: Wander,
    /// When the link has sent all that was given to it.
    free_at: u64,
    /// Of a nanosecond, in rate's parts, that `free_at` leaves out.
    remainder: u64,
    last_due: u64,
}

impl LinkSettings {
    /// From the source to the destination: where the data goes.
    pub(super) fn outward(path: &PathSettings) -> Self {
        Self::new(path, path.loss, path.reorder, path.seed)
    }

    /// From the destination to the source.
    pub(super) fn homeward(path: &PathSettings) -> Self {
        Self::new(path, path.return_loss, None, path.seed ^ 0x5555_5555_5555_5555)
    }

    fn new(path: &PathSettings, loss: Loss, reorder: Option<Reorder>, seed: u64) -> Self {
        let rate = path.rate_bits.unwrap_or(u64::MAX);
        let queue_ns = path.queue_bytes().map_or(u64::MAX, |bytes| transmit_ns(bytes, rate, 0).0);
        Self {
            delay_ns: path.delay.as_nanos() as u64,
            jitter_ns: path.jitter.as_nanos() as u64,
            rate_bits: path.rate_bits,
            queue_ns,
            loss,
            reorder,
            down: path.down,
            seed,
        }
    }
}

impl Link {
    pub(super) fn new(settings: LinkSettings) -> Self {
        let seed = settings.seed;
        Self {
            losses: Picks::of_loss(settings.loss, seed),
            latecomers: Picks::of_share(settings.reorder.map(|reorder| reorder.share), !seed),
            wander: Wander::new(settings.jitter_ns, seed.rotate_left(32)),
            free_at: 0,
            remainder: 0,
            last_due: 0,
            settings,
        }
    }

    /// From the next packet on. What is drawn at random goes on as it was unless it is itself another now.
    pub(super) fn change(&mut self, settings: LinkSettings) {
        let fresh = Self::new(settings);
        let reseeded = fresh.settings.seed != self.settings.seed;
        if reseeded || fresh.settings.loss != self.settings.loss {
            self.losses = fresh.losses;
        }
        if reseeded
            || fresh.settings.reorder.map(|new| new.share)
                != self.settings.reorder.map(|old| old.share)
        {
            self.latecomers = fresh.latecomers;
        }
        if reseeded || fresh.settings.jitter_ns != self.settings.jitter_ns {
            self.wander = fresh.wander;
        }
        if fresh.settings.rate_bits != self.settings.rate_bits {
            self.remainder = 0;
        }
        self.settings = fresh.settings;
    }

    /// A packet comes: adds what is left of it to `runs`, and what became of it to `counts`.
    pub(super) fn send(
        &mut self,
        now: u64,
        shape: &Shape,
        counts: &mut LinkCounts,
        runs: &mut Vec<Run>,
    ) {
        let before = runs.len();
        let segments = u64::from(shape.segments);
        counts.packets += segments;
        counts.bytes += shape.wire_bytes(shape.segments);
        if self.settings.down {
            counts.down_dropped += segments;
            return;
        }
        let start = self.free_at.max(now);
        let admitted = self.admit(start - now, shape);
        counts.queue_dropped += u64::from(shape.segments - admitted);
        let mut at = 0;
        while at < admitted {
            let (lost, count) = self.losses.take(u64::from(admitted - at));
            if lost {
                counts.lost += count;
            } else {
                self.send_survivors(start, shape, at, count as u32, runs);
            }
            at += count as u32;
        }
        counts.reordered += runs[before..]
            .iter()
            .filter(|run| run.late)
            .map(|run| u64::from(run.count))
            .sum::<u64>();
        // What is lost took its time on the link all the same.
        if let Some(rate) = self.settings.rate_bits {
            let (taken, remainder) = transmit_ns(shape.wire_bytes(admitted), rate, self.remainder);
            self.free_at = start + taken;
            self.remainder = remainder;
        }
    }

    /// How many segments the queue has room for, from the first, when the link is busy for `backlog` from now.
    fn admit(&self, backlog: u64, shape: &Shape) -> u32 {
        let Some(rate) = self.settings.rate_bits else { return shape.segments };
        let room = self.settings.queue_ns.saturating_sub(backlog);
        let fits = |count: u32| transmit_ns(shape.wire_bytes(count), rate, 0).0 <= room;
        if fits(shape.segments) {
            return shape.segments;
        }
        // All segments but the last are of one size.
        let each = transmit_ns(shape.wire_bytes(1), rate, 0).0.max(1);
        let guess = (room / each).min(u64::from(shape.segments)) as u32;
        if fits(guess) { guess } else { guess.saturating_sub(1) }
    }

    fn send_survivors(
        &mut self,
        start: u64,
        shape: &Shape,
        first: u32,
        count: u32,
        runs: &mut Vec<Run>,
    ) {
        let mut at = first;
        while at < first + count {
            let (late, taken) = self.latecomers.take(u64::from(first + count - at));
            let run = Run { first: at, count: taken as u32, due: 0, late };
            at += run.count;
            let sent = match self.settings.rate_bits {
                Some(rate) => start + transmit_ns(shape.wire_bytes(at), rate, self.remainder).0,
                None => start,
            };
            let due = (sent + self.settings.delay_ns + self.wander.at(sent)).max(self.last_due);
            // The order also holds when the delay was just made shorter.
            self.last_due = due;
            let by = self
                .settings
                .reorder
                .filter(|_| late)
                .map_or(0, |reorder| reorder.by.as_nanos() as u64);
            runs.push(Run { due: due + by, ..run });
        }
    }
}

/// Nanoseconds for so many bytes, and what is left over, in `rate`th parts of one.
fn transmit_ns(bytes: u64, rate_bits: u64, remainder: u64) -> (u64, u64) {
    let parts = u128::from(bytes) * 8_000_000_000 + u128::from(remainder);
    let rate = u128::from(rate_bits);
    ((parts / rate) as u64, (parts % rate) as u64)
}

/// Jitter: in a straight line from one random value to the next.
#[derive(Debug)]
struct Wander {
    random: Random,
    size: u64,
    period: u64,
    from: u64,
    to: u64,
    since: u64,
}

impl Wander {
    fn new(size: u64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (from, to) = (random.up_to(size), random.up_to(size));
        let period = (size * WANDER_SLOPE).max(WANDER_NS_MIN);
        Self { random, size, period, from, to, since: 0 }
    }

    /// Times come in order.
    fn at(&mut self, time: u64) -> u64 {
        if self.size == 0 {
            return 0;
        }
        let mut passed = time.saturating_sub(self.since);
        if passed >= self.period {
            // After a long pause the values in between are of no interest.
            self.from =
                if passed < 2 * self.period { self.to } else { self.random.up_to(self.size) };
            self.to = self.random.up_to(self.size);
            passed %= self.period;
            self.since = time - passed;
        }
        let part = |value: u64, of: u64| {
            (u128::from(value) * u128::from(of) / u128::from(self.period)) as u64
        };
        part(self.from, self.period - passed) + part(self.to, passed)
    }
}

#[cfg(test)]
mod tests;
