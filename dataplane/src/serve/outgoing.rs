//! An answer on its way out, in pieces that are timed one by one. No input or output, no clock.
//!
//! A slow reader is told from a stalled one by its progress, and the ring reports a send only when
//! all of it is done: so an answer is sent piece by piece, each within the send timeout.

use std::collections::VecDeque;

use crate::ring::SendPart;

use super::budget::Charge;

/// Bytes of one piece. Smaller: more system calls for each answer; larger: a slow but living reader
/// takes longer for a piece than the send timeout. At 30 s it must take 17 KB/s.
pub(super) const PIECE_BYTES_MAX: usize = 512 * 1024;
/// Parts of one piece; the kernel takes 1024 in one call.
const PIECE_PARTS_MAX: usize = 256;

/// What is left of an answer.
#[derive(Debug)]
pub(super) struct Outgoing {
    parts: VecDeque<SendPart>,
    /// Bytes of the whole answer.
    pub(super) total_bytes: u64,
    /// The memory its fields hold.
    _charge: Charge,
}

impl Outgoing {
    /// An answer of these parts, with what it is charged.
    pub(super) fn new(parts: Vec<SendPart>, charge: Charge) -> Self {
        let total_bytes = parts.iter().map(|part| part.len_bytes() as u64).sum();
        Self { parts: parts.into(), total_bytes, _charge: charge }
    }

    /// The next piece; `None` when all was given out.
    pub(super) fn next_piece(&mut self) -> Option<Vec<SendPart>> {
        let mut piece = Vec::new();
        let mut bytes = 0;
        while bytes < PIECE_BYTES_MAX && piece.len() < PIECE_PARTS_MAX {
            let Some(part) = self.parts.pop_front() else { break };
            let (front, rest) = split(part, PIECE_BYTES_MAX - bytes);
            bytes += front.len_bytes();
            piece.push(front);
            if let Some(rest) = rest {
                self.parts.push_front(rest);
            }
        }
        (bytes > 0).then_some(piece)
    }
}

fn split(mut part: SendPart, len: usize) -> (SendPart, Option<SendPart>) {
    if part.len_bytes() <= len {
        return (part, None);
    }
    let front = match &mut part {
        SendPart::Bytes(bytes) => SendPart::Bytes(bytes.split_to(len)),
        SendPart::Records(records) => SendPart::Records(records.split_to(len)),
    };
    (front, Some(part))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::budget::Budget;
    use super::*;

    #[test]
    fn pieces_join_to_the_answer_and_stay_within_their_bounds() {
        let budget = Budget::new(1 << 20);
        let sizes = [4, PIECE_BYTES_MAX * 3 + 17, 0, 1, 1, 5].map(|size: usize| size);
        let mut all = Vec::new();
        let mut parts = Vec::new();
        for (index, size) in sizes.into_iter().chain([1; 600]).enumerate() {
            let bytes: Vec<u8> = (0..size).map(|at| (at + index) as u8).collect();
            all.extend_from_slice(&bytes);
            parts.push(SendPart::Bytes(Bytes::from(bytes)));
        }
        let mut outgoing = Outgoing::new(parts, budget.charge());
        assert_eq!(outgoing.total_bytes, all.len() as u64);
        let mut sent = Vec::new();
        while let Some(piece) = outgoing.next_piece() {
            let bytes: usize = piece.iter().map(SendPart::len_bytes).sum();
            assert!(bytes <= PIECE_BYTES_MAX && piece.len() <= PIECE_PARTS_MAX);
            for part in piece {
                let SendPart::Bytes(part) = part else { panic!("only bytes went in") };
                sent.extend_from_slice(&part);
            }
        }
        assert!(sent == all);
    }
}
