//! Seeded disturbances of everything at once; afterwards nothing stands still, and every log is a
//! copy of the source's.
//!
//! The source here keeps sessions as Kafka does (additions before removals, only what changed in an
//! answer), so a cursor that the two sides disagree about is left behind and found.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use storage::Offset;

use super::pair::{Asked, BROKER, EPOCH, Pair, Told, assert_stored, batch_of, encode, told};
use crate::handle::{Event, LogRepair, Resume};
use crate::partition::Partition;

const PARTITIONS: usize = 5;
const RECORDS: i64 = 10;
/// Bytes of a v2 batch before its records.
const HEADER_BYTES: usize = 61;

/// A small generator of repeatable numbers (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// What the source remembers of a partition in a session.
struct Member {
    offset: i64,
    told_end: i64,
}

#[derive(Default)]
struct Session {
    id: i32,
    epoch: i32,
    members: BTreeMap<usize, Member>,
}

/// One connection: the requests it has read, and its session.
struct Connection {
    slot: u32,
    asked: Vec<Asked>,
    session: Session,
}

struct Simulation {
    seed: u64,
    chance: Chance,
    pair: Pair,
    partitions: Vec<Arc<Partition>>,
    /// Batches of ten records in each partition at the source.
    batches: Vec<i64>,
    connections: Vec<Connection>,
    parked: Vec<usize>,
    sessions: i32,
    value_bytes: usize,
    batch_bytes: usize,
}

impl Simulation {
    /// Batches of `value_bytes` bytes and a little more.
    fn new(seed: u64, value_bytes: usize) -> Self {
        let mut pair = if value_bytes > 1000 { Pair::warm() } else { Pair::new() };
        let partitions = (0..PARTITIONS)
            .map(|index| pair.assign(["a", "b"][index % 2], i32::try_from(index / 2).unwrap()))
            .collect();
        let mut simulation = Self {
            seed,
            chance: Chance(seed * 0x9e37_79b9 + 1),
            pair,
            partitions,
            batches: vec![3; PARTITIONS],
            connections: Vec::new(),
            parked: Vec::new(),
            sessions: 100,
            value_bytes,
            batch_bytes: source_batch(0, value_bytes).len(),
        };
        simulation.connect();
        simulation
    }

    fn end(&self, index: usize) -> i64 {
        self.batches[index] * RECORDS
    }

    /// Opens what is missing: one tail lane and at most two catch-up lanes.
    fn connect(&mut self) {
        let slot = match self.connections.len() {
            0 => self.pair.tail(),
            _ => self.pair.catch_up(),
        };
        let (asked, session) = (Vec::new(), Session::default());
        self.connections.push(Connection { slot, asked, session });
    }

    fn index_of(&self, partition: &Partition) -> usize {
        let same = |other: &Arc<Partition>| other.id == partition.id;
        self.partitions.iter().position(same).unwrap()
    }

    /// The control plane: reopens lanes and remembers what stopped.
    fn hear(&mut self) {
        for event in self.pair.events() {
            match event {
                Event::Fault(report) => {
                    let index = self.index_of(&report.partition);
                    self.parked.push(index);
                }
                Event::LaneClosed(_) | Event::Throttled(..) => {}
                other => panic!("seed {}: {other:?}", self.seed),
            }
        }
        let lost = |engine: &super::super::engine::Engine, connection: &Connection| {
            engine.is_closed(connection.slot)
        };
        let Self { connections, pair, .. } = self;
        let mut tail_lost = false;
        let mut number = 0;
        connections.retain(|connection| {
            let keep = !lost(&pair.engine, connection);
            if !keep {
                pair.engine.release(connection.slot);
                tail_lost |= number == 0;
            }
            number += 1;
            keep
        });
        if tail_lost {
            let rest = std::mem::take(&mut self.connections);
            self.connect();
            self.connections.extend(rest);
        }
        while self.connections.len() < 2 {
            self.connect();
        }
    }

    fn resume(&mut self, index: usize, repair: Option<LogRepair>) {
        self.parked.retain(|parked| *parked != index);
        let resume = Resume { broker: BROKER, leader_epoch: EPOCH, repair };
        self.pair.engine.resume(&self.partitions[index], resume);
    }

    fn disturb(&mut self) {
        let index = self.chance.below(PARTITIONS);
        let end = self.partitions[index].log.log_end().0;
        match self.chance.below(12) {
            0 => self.batches[index] += 1 + i64::try_from(self.chance.below(20)).unwrap(),
            1 => {
                self.pair.engine.park(&self.partitions[index]);
                self.parked.push(index);
            }
            2 => self.resume(index, None),
            3 => {
                let back = i64::try_from(self.chance.below(3)).unwrap() * RECORDS;
                let offset = Offset((end - back).max(0));
                self.resume(index, Some(LogRepair::TruncateTo(offset)));
            }
            4 if self.connections.len() < 3 => self.connect(),
            5 => {
                // The source forgot the session.
                let connection = self.chance.below(self.connections.len());
                self.connections[connection].session.id = -1;
            }
            6 => self.pair.pass(Duration::from_millis(700)),
            7 => {
                if let Some(parked) = self.parked.first().copied() {
                    self.resume(parked, None);
                }
            }
            _ => {}
        }
    }

    /// Sends requests and answers one, perhaps badly.
    fn exchange(&mut self, calm: bool) {
        for connection in &mut self.connections {
            connection.asked.extend(self.pair.requests(connection.slot));
        }
        let number = self.chance.below(self.connections.len());
        if self.connections[number].asked.is_empty() {
            return;
        }
        let asked = self.connections[number].asked.remove(0);
        let slot = self.connections[number].slot;
        let (mut told, session_id, error_code) = self.answer(number, &asked);
        let mut throttle_time_ms = 0;
        if !calm {
            self.spoil(&mut told);
            if self.chance.one_in(20) {
                throttle_time_ms = 300;
            }
        }
        let mut frame = encode(&asked, told, &[], |head| {
            (head.session_id, head.error_code) = (session_id, error_code);
            head.throttle_time_ms = throttle_time_ms;
        });
        self.pair.piece_bytes = 1 + self.chance.below(4 * self.batch_bytes);
        let cut = !calm && self.chance.one_in(15);
        if cut {
            frame.truncate(self.chance.below(frame.len()));
        }
        self.pair.deliver(slot, &frame);
        if cut && let Some(into) = self.pair.engine.receive(slot) {
            self.pair.engine.received(slot, Ok(0), into, self.pair.moment);
        }
    }

    /// Turns part of an answer into what a source in trouble sends.
    fn spoil(&mut self, told: &mut [Told]) {
        if told.is_empty() || !self.chance.one_in(6) {
            return;
        }
        let victim = self.chance.below(told.len());
        let victim = &mut told[victim];
        match self.chance.below(3) {
            0 => {
                victim.fields.error_code = 6;
                victim.records.clear();
            }
            1 if !victim.records.is_empty() => {
                // Behind the header: a checksum does not cover a batch's offset and epoch.
                let batches = victim.records.len() / self.batch_bytes;
                let body = self.batch_bytes - HEADER_BYTES;
                let at = self.chance.below(batches) * self.batch_bytes
                    + HEADER_BYTES
                    + self.chance.below(body);
                victim.records[at] ^= 0x40;
            }
            _ => {
                let kept = self.chance.below(victim.records.len() + 1);
                victim.records.truncate(kept);
            }
        }
        victim.fields.records_bytes = victim.records.len();
    }

    /// What the source says, its session id and its error.
    fn answer(&mut self, number: usize, asked: &Asked) -> (Vec<Told>, i32, i16) {
        let seed = self.seed;
        let find = |key: &crate::wire::TopicKey, partition: i32| {
            let named = |other: &Arc<Partition>| {
                *key == crate::wire::TopicKey::Id(other.topic_id) && other.id.partition == partition
            };
            self.partitions.iter().position(named).unwrap()
        };
        let listed: Vec<_> = asked
            .partitions()
            .into_iter()
            .map(|(key, fields)| (find(&key, fields.partition), fields.fetch_offset))
            .collect();
        let forgotten: Vec<_> = asked
            .request
            .forgotten
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|part| find(&topic.topic, *part)))
            .collect();
        if asked.request.session_epoch < 0 {
            let told = listed.iter().map(|(index, from)| self.told(*index, *from)).collect();
            return (told, 0, 0);
        }
        let full = asked.request.session_epoch == 0;
        if full {
            self.sessions += 1;
            self.connections[number].session =
                Session { id: self.sessions, epoch: 0, members: BTreeMap::new() };
        }
        let mut session = std::mem::take(&mut self.connections[number].session);
        if !full && asked.request.session_id != session.id {
            return (Vec::new(), 0, 70);
        }
        assert_eq!(asked.request.session_epoch, session.epoch, "seed {seed}");
        session.epoch += 1;
        for (index, offset) in listed {
            session.members.insert(index, Member { offset, told_end: -1 });
        }
        for index in forgotten {
            session.members.remove(&index);
        }
        let mut answer = Vec::new();
        for (index, member) in &mut session.members {
            let told = self.told(*index, member.offset);
            if full || !told.records.is_empty() || member.told_end != self.end(*index) {
                member.told_end = self.end(*index);
                answer.push(told);
            }
        }
        let id = session.id;
        self.connections[number].session = session;
        (answer, id, 0)
    }

    /// At most three batches from an offset on.
    fn told(&self, index: usize, from: i64) -> Told {
        assert!(from % RECORDS == 0 && from <= self.end(index), "seed {}: {from}", self.seed);
        let until = self.end(index).min(from + 3 * RECORDS);
        let numbers = from / RECORDS..until / RECORDS;
        let records = numbers.flat_map(|number| source_batch(number, self.value_bytes)).collect();
        told(&self.partitions[index], self.end(index), records)
    }

    fn copied(&self) -> bool {
        (0..PARTITIONS).all(|index| self.partitions[index].log.log_end().0 == self.end(index))
    }
}

fn source_batch(number: i64, bytes: usize) -> Vec<u8> {
    batch_of(number * RECORDS, i32::try_from(RECORDS).unwrap(), EPOCH, bytes)
}

fn run(seed: u64, steps: usize, value_bytes: usize) -> u64 {
    let mut simulation = Simulation::new(seed, value_bytes);
    for _ in 0..steps {
        simulation.disturb();
        simulation.exchange(false);
        simulation.hear();
    }
    let mut calm_steps = 0;
    while !simulation.copied() {
        for index in std::mem::take(&mut simulation.parked) {
            simulation.resume(index, None);
        }
        simulation.pair.pass(Duration::from_millis(500));
        simulation.exchange(true);
        simulation.hear();
        calm_steps += 1;
        let ends: Vec<_> =
            simulation.partitions.iter().map(|partition| partition.log.log_end().0).collect();
        assert!(calm_steps < 5000, "seed {seed}: {ends:?} of {:?}", simulation.batches);
    }
    for (index, partition) in simulation.partitions.iter().enumerate() {
        let numbers = 0..simulation.batches[index];
        let expected: Vec<u8> =
            numbers.flat_map(|number| source_batch(number, value_bytes)).collect();
        assert_stored(&partition.log, &expected, &format!("seed {seed}"));
        let known = partition.progress.source_high_watermark.load(Ordering::Relaxed);
        assert!(known == -1 || known == simulation.end(index), "seed {seed}: {known}");
    }
    simulation.pair.engine.desk.tally.bytes_direct
}

#[test]
fn nothing_stands_still_after_any_disturbance() {
    for seed in 1..=12 {
        run(seed, 400, 100);
    }
}

#[test]
fn nothing_received_into_segments_is_lost_or_doubled_by_any_disturbance() {
    let direct: u64 = (1..=4).map(|seed| run(seed, 150, 30_000)).sum();
    assert!(direct > 1_000_000, "{direct} bytes");
}
