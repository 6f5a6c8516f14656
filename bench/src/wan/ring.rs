//! Where packets are while they are under way: one contiguous piece of memory, used in turn.
//!
//! Owns the memory and who uses which part. A packet is read into a vacancy, and its room is free again once all runs
//! cut from it are delivered, in the order of arrival. Runs on the lane's thread; must never allocate for a packet, and
//! is touched in full before it is used, since a page fault costs as much as a packet.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use memmap2::{Advice, MmapMut};

use super::segment::PACKET_MAX;

const PAGE: usize = 4096;

/// Memory for packets, touched, in huge pages where the kernel gives them.
#[derive(Debug)]
pub(super) struct Memory(MmapMut);

/// The packets under way.
#[derive(Debug)]
pub(super) struct Ring {
    memory: MmapMut,
    packets: VecDeque<Packet>,
    /// The number of the first packet in `packets`.
    oldest: u64,
    /// Where the next one goes, unless it does not fit there.
    tail: usize,
}

#[derive(Debug)]
struct Packet {
    start: usize,
    len: usize,
    /// Runs of it that are not delivered yet.
    runs: u32,
}

/// A packet in the ring, by its number of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

impl Memory {
    pub(super) fn new(bytes: u64) -> io::Result<Self> {
        let len = (bytes as usize).max(4 * PACKET_MAX).next_multiple_of(2 << 20);
        let mut memory = MmapMut::map_anon(len)?;
        // Both are wishes: small pages are slower, and a child of ours that shares them costs page faults.
        let _ = memory.advise(Advice::HugePage);
        let _ = memory.advise(Advice::DontFork);
        for page in memory.chunks_mut(PAGE) {
            page[0] = 1;
        }
        Ok(Self(memory))
    }
}

impl Ring {
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory: memory.0, packets: VecDeque::new(), oldest: 0, tail: 0 }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Room for the largest packet, or `None` when there is none.
    pub(super) fn vacancy(&mut self) -> Option<&mut [u8]> {
        let start = self.vacancy_at()?;
        Some(&mut self.memory[start..start + PACKET_MAX])
    }

    /// The vacancy's first `len` bytes are a packet now, delivered in so many runs.
    pub(super) fn admit(&mut self, len: usize, runs: u32) -> Option<Ticket> {
        let start = self.vacancy_at()?;
        self.packets.push_back(Packet { start, len, runs });
        self.tail = start + len;
        Some(Ticket(self.oldest + self.packets.len() as u64 - 1))
    }

    /// One run is delivered.
    pub(super) fn deliver(&mut self, ticket: Ticket) {
        if let Some(packet) = self.packets.get_mut((ticket.0 - self.oldest) as usize) {
            packet.runs -= 1;
        }
        while self.packets.front().is_some_and(|packet| packet.runs == 0) {
            self.packets.pop_front();
            self.oldest += 1;
        }
    }

    /// Part of a packet.
    pub(super) fn bytes(&self, ticket: Ticket, part: Range<usize>) -> &[u8] {
        self.packets
            .get((ticket.0 - self.oldest) as usize)
            .map_or(&[], |packet| &self.memory[packet.start..packet.start + packet.len][part])
    }

    /// Goes on in larger memory; tickets stay good.
    pub(super) fn move_to(&mut self, memory: Memory) {
        let mut memory = memory.0;
        if memory.len() < self.memory.len() {
            return;
        }
        let mut end = 0;
        for packet in &mut self.packets {
            let bytes = &self.memory[packet.start..packet.start + packet.len];
            memory[end..end + packet.len].copy_from_slice(bytes);
            packet.start = end;
            end += packet.len;
        }
        self.tail = end;
        self.memory = memory;
    }

    fn vacancy_at(&self) -> Option<usize> {
        let Some(head) = self.packets.front().map(|packet| packet.start) else {
            // From the beginning again: a short queue stays in the processor's cache.
            return Some(0);
        };
        if self.tail > head {
            if self.memory.len() - self.tail >= PACKET_MAX {
                return Some(self.tail);
            }
            return (head >= PACKET_MAX).then_some(0);
        }
        (head - self.tail >= PACKET_MAX).then_some(self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wan::chance::Random;

    #[test]
    fn packets_keep_their_bytes_until_their_last_run_is_delivered() {
        let mut ring = Ring::new(Memory::new(0).unwrap());
        let mut random = Random::new(9);
        let mut under_way: VecDeque<(Ticket, usize, u8, u32)> = VecDeque::new();
        let mut full = 0;
        for round in 0..60_000_u32 {
            let fill = round as u8;
            let len = 1 + random.up_to(PACKET_MAX as u64 - 1) as usize;
            match ring.vacancy() {
                Some(room) if random.up_to(2) > 0 => {
                    room[..len].fill(fill);
                    let runs = 1 + random.up_to(2) as u32;
                    under_way.push_back((ring.admit(len, runs).unwrap(), len, fill, runs));
                }
                other => {
                    full += u32::from(other.is_none());
                    // Runs leave in any order.
                    let Some(place) =
                        (under_way.len() as u64).checked_sub(1).map(|last| random.up_to(last))
                    else {
                        continue;
                    };
                    let (ticket, len, fill, runs) = &mut under_way[place as usize];
                    let bytes = ring.bytes(*ticket, 0..*len);
                    assert!(
                        bytes[0] == *fill && bytes[*len - 1] == *fill && bytes[*len / 2] == *fill
                    );
                    ring.deliver(*ticket);
                    *runs -= 1;
                    if *runs == 0 {
                        under_way.remove(place as usize);
                    }
                }
            }
            if round == 30_000 {
                ring.move_to(Memory::new(ring.capacity() * 2).unwrap());
            }
        }
        assert!(full > 0, "the ring was never full");
    }
}
