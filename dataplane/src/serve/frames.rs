//! Bytes of one connection as they arrive, cut into frames. No input or output, no clock.
//!
//! The buffer is small while a client is idle and grows only as bytes arrive, so a length prefix
//! alone makes the node allocate nothing. Growth is charged to the node's budget.

use std::sync::Arc;

use bytes::Bytes;

use super::budget::{Budget, Charge};

/// Bytes of a frame's length.
pub(super) const PREFIX_BYTES: usize = 4;
/// Buffer of an idle connection; most requests fit. Twice this costs 10,000 idle clients 40 MB more.
pub(super) const IDLE_BUFFER_BYTES: usize = 4096;

/// A frame that must not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame length {0} is negative or above the limit")]
pub(super) struct BadLength(pub(super) i32);

/// What can be done with the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// A whole frame is there; this is its length without the prefix.
    Frame(usize),
    /// More bytes are needed and there is room for some.
    More,
    /// More bytes are needed, and first room for them: see [`FrameBuffer::grow`].
    Grow,
}

/// Received bytes: the frame at the front, and what came behind it.
#[derive(Debug)]
pub(super) struct FrameBuffer {
    /// Empty while lent.
    buffer: Box<[u8]>,
    filled: usize,
    charge: Charge,
    frame_bytes_max: usize,
}

impl FrameBuffer {
    /// An empty, idle buffer.
    pub(super) fn new(budget: &Arc<Budget>, frame_bytes_max: usize) -> Self {
        Self { buffer: idle_buffer(), filled: 0, charge: budget.charge(), frame_bytes_max }
    }

    /// Gives the memory away to be received into, from the returned position on.
    pub(super) fn lend(&mut self) -> (Box<[u8]>, usize) {
        (std::mem::take(&mut self.buffer), self.filled)
    }

    /// Takes the memory back with `received` more bytes.
    pub(super) fn take_back(&mut self, buffer: Box<[u8]>, received: usize) {
        self.filled = (self.filled + received).min(buffer.len());
        self.buffer = buffer;
    }

    /// Makes room for more of the frame. `false`: the budget has none, try later.
    pub(super) fn grow(&mut self) -> bool {
        let capacity = self.buffer.len();
        let wanted = self.announced().unwrap_or(0).saturating_add(PREFIX_BYTES);
        let grown = wanted.min(capacity * 2).max(IDLE_BUFFER_BYTES);
        if grown <= capacity {
            return true;
        }
        if !self.charge.grow(grown - capacity) {
            return false;
        }
        let mut larger = vec![0; grown].into_boxed_slice();
        larger[..self.filled].copy_from_slice(&self.buffer[..self.filled]);
        self.buffer = larger;
        true
    }

    /// Removes the frame of `len` bytes at the front, without its prefix, and what it was charged
    /// with. The rest stays.
    pub(super) fn take_frame(&mut self, len: usize) -> (Bytes, Charge) {
        let end = PREFIX_BYTES + len;
        let mut charge = self.charge.sibling();
        if self.filled == end && self.buffer.len() > IDLE_BUFFER_BYTES {
            self.filled = 0;
            std::mem::swap(&mut charge, &mut self.charge);
            let whole = Bytes::from(std::mem::replace(&mut self.buffer, idle_buffer()));
            return (whole.slice(PREFIX_BYTES..end), charge);
        }
        let frame = Bytes::copy_from_slice(&self.buffer[PREFIX_BYTES..end]);
        charge.grow_beyond(len);
        self.consume(len);
        (frame, charge)
    }

    /// Removes the frame of `len` bytes at the front.
    pub(super) fn consume(&mut self, len: usize) {
        let end = PREFIX_BYTES + len;
        let rest = self.filled - end;
        if self.buffer.len() > IDLE_BUFFER_BYTES && rest <= IDLE_BUFFER_BYTES {
            let mut idle = idle_buffer();
            idle[..rest].copy_from_slice(&self.buffer[end..self.filled]);
            self.buffer = idle;
            self.charge = self.charge.sibling();
        } else {
            self.buffer.copy_within(end..self.filled, 0);
        }
        self.filled = rest;
    }

    /// Whether a frame has begun and more of it is to come.
    pub(super) fn is_mid_frame(&self) -> bool {
        self.filled > 0
    }

    /// Whether it is larger than that of an idle connection.
    pub(super) fn holds_memory(&self) -> bool {
        self.buffer.len() > IDLE_BUFFER_BYTES
    }

    /// Whether this buffer is the one that went beyond the node's budget.
    pub(super) fn is_beyond_budget(&self) -> bool {
        self.charge.is_beyond()
    }

    /// The frame at the front, `len` bytes without the prefix.
    pub(super) fn frame(&self, len: usize) -> &[u8] {
        &self.buffer[PREFIX_BYTES..PREFIX_BYTES + len]
    }

    /// What can be done with the bytes so far. Not while the memory is lent.
    pub(super) fn framing(&self) -> Result<Framing, BadLength> {
        let Some(prefix) = self.buffer[..self.filled].first_chunk::<PREFIX_BYTES>() else {
            return Ok(Framing::More);
        };
        let signed = i32::from_be_bytes(*prefix);
        let len = usize::try_from(signed).map_err(|_| BadLength(signed))?;
        if len > self.frame_bytes_max {
            return Err(BadLength(signed));
        }
        Ok(if self.filled >= PREFIX_BYTES + len {
            Framing::Frame(len)
        } else if self.filled < self.buffer.len() {
            Framing::More
        } else {
            Framing::Grow
        })
    }

    fn announced(&self) -> Option<usize> {
        let prefix = self.buffer[..self.filled].first_chunk::<PREFIX_BYTES>()?;
        usize::try_from(i32::from_be_bytes(*prefix)).ok()
    }
}

fn idle_buffer() -> Box<[u8]> {
    vec![0; IDLE_BUFFER_BYTES].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    fn receive(frames: &mut FrameBuffer, bytes: &[u8]) -> usize {
        let (mut buffer, from) = frames.lend();
        let count = bytes.len().min(buffer.len() - from);
        buffer[from..from + count].copy_from_slice(&bytes[..count]);
        frames.take_back(buffer, count);
        count
    }

    fn frame_of(len: usize) -> Vec<u8> {
        let mut bytes = u32::try_from(len).expect("small").to_be_bytes().to_vec();
        bytes.extend((0..len).map(|index| index as u8));
        bytes
    }

    /// Feeds everything, growing where asked, and returns the frames found.
    fn feed(frames: &mut FrameBuffer, mut bytes: &[u8], step: usize) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        loop {
            match frames.framing().expect("good lengths") {
                Framing::Frame(len) => found.push(frames.take_frame(len).0.to_vec()),
                Framing::Grow => assert!(frames.grow()),
                Framing::More if bytes.is_empty() => return found,
                Framing::More => {
                    let taken = receive(frames, &bytes[..step.min(bytes.len())]);
                    bytes = &bytes[taken..];
                }
            }
        }
    }

    #[test]
    fn frames_come_out_whole_whatever_the_pieces() {
        let budget = Budget::new(4 * MAX);
        let lens = [0, 1, 4091, 4092, 4093, 4096, 9000, 100_000, 3];
        let stream: Vec<u8> = lens.iter().flat_map(|len| frame_of(*len)).collect();
        for step in [1, 7, 4096, usize::MAX] {
            let mut frames = FrameBuffer::new(&budget, MAX);
            let found = feed(&mut frames, &stream, step);
            assert_eq!(found.len(), lens.len(), "step {step}");
            for (frame, len) in found.iter().zip(lens) {
                assert_eq!(frame[..], frame_of(len)[PREFIX_BYTES..], "step {step}");
            }
            assert_eq!(budget.used(), 0, "idle again, step {step}");
            assert_eq!(frames.buffer.len(), IDLE_BUFFER_BYTES);
        }
    }

    #[test]
    fn impossible_lengths_are_refused_at_once() {
        let budget = Budget::new(4 * MAX);
        for bad in [-1, i32::MIN, MAX as i32 + 1, i32::MAX] {
            let mut frames = FrameBuffer::new(&budget, MAX);
            receive(&mut frames, &bad.to_be_bytes());
            assert_eq!(frames.framing(), Err(BadLength(bad)));
        }
        let mut frames = FrameBuffer::new(&budget, MAX);
        receive(&mut frames, &(MAX as i32).to_be_bytes());
        assert_eq!(frames.framing(), Ok(Framing::More));
    }

    #[test]
    fn a_length_alone_allocates_nothing() {
        let budget = Budget::new(4 * MAX);
        let mut frames = FrameBuffer::new(&budget, MAX);
        receive(&mut frames, &(MAX as u32).to_be_bytes());
        assert_eq!(frames.framing(), Ok(Framing::More));
        assert_eq!(frames.buffer.len(), IDLE_BUFFER_BYTES);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_frame_beyond_the_budget_waits_until_another_is_done() {
        let budget = Budget::new(16 * 1024);
        let stream = frame_of(64 * 1024);
        let mut first = FrameBuffer::new(&budget, MAX);
        let mut second = FrameBuffer::new(&budget, MAX);
        let mut fed = 0;
        while first.framing() != Ok(Framing::Frame(64 * 1024)) {
            match first.framing() {
                Ok(Framing::Grow) => assert!(first.grow(), "one may go beyond"),
                _ => fed += receive(&mut first, &stream[fed..]),
            }
        }
        receive(&mut second, &stream);
        assert_eq!(second.framing(), Ok(Framing::Grow));
        assert!(!second.grow());
        first.consume(64 * 1024);
        assert!(second.grow());
    }
}
