//! Single batches of a source, to compare with ours. Never to store: that is the cores' work.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use dataplane::wire::{
    FetchEvent, FetchPartition, FetchRequest, FetchResponseParser, FetchTopic, IsolationLevel,
    TopicKey, WireError,
};
use kafka_protocol::protocol::VersionRange;
use storage::{LeaderEpoch, Offset};

use super::calls::{by_topic, collect_in_order};
use super::lane::FETCH_KEY;
use super::{ClientError, Connection, KafkaCode};

const WHAT: &str = "Fetch";
const CORRELATION: [u8; 4] = [0; 4];
/// Partitions are named in these, not numbered by topic id.
const VERSIONS_BY_NAME: VersionRange = VersionRange { min: 4, max: 12 };
/// Bytes of one answer, but for one larger batch.
const ANSWER_BYTES_MAX: u32 = 8 * 1024 * 1024;
/// Partitions of one request.
const PARTITIONS_MAX: usize = 500;

/// Asks for the batch that holds an offset.
#[derive(Clone, Debug)]
pub struct BatchQuestion {
    /// Topic.
    pub topic: Arc<str>,
    /// Index.
    pub partition: i32,
    /// The epoch we believe its leader has.
    pub leader_epoch: LeaderEpoch,
    /// The batch's first offset.
    pub offset: Offset,
    /// How long it is expected to be: a longer one is another one, and may be cut or left out.
    pub size_bytes: u32,
}

/// Its answer: what the source has there.
#[derive(Clone, Debug)]
pub struct BatchAnswer {
    /// Error.
    pub code: KafkaCode,
    /// Batches from the one asked for on, the last maybe cut; empty when there is none.
    pub bytes: Bytes,
}

impl Connection {
    /// The batches at these offsets, in the order of the questions. `None` where the broker left a
    /// partition out.
    pub async fn batches_at(
        &mut self,
        questions: &[BatchQuestion],
    ) -> Result<Vec<Option<BatchAnswer>>, ClientError> {
        let version = self.version_for(WHAT, FETCH_KEY, VERSIONS_BY_NAME)?;
        let mut answers = Vec::with_capacity(questions.len());
        let mut rest = questions;
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(fitting(rest));
            rest = later;
            let mut body = BytesMut::new();
            request(chunk).encode(version, &mut body);
            let answer = self.call_fetch(version, &body).await?;
            let found = self.parse(version, &answer)?;
            let found = found
                .iter()
                .map(|(topic, partition, answer)| (topic.as_str(), *partition, answer.clone()));
            collect_in_order(chunk, |q| (&*q.topic, q.partition), found, &mut answers);
        }
        Ok(answers)
    }

    /// Takes an answer apart with the data plane's parser, the only one that trusts no count.
    fn parse(
        &self,
        version: i16,
        answer: &Bytes,
    ) -> Result<Vec<(String, i32, BatchAnswer)>, ClientError> {
        let malformed = |error: WireError| self.malformed(WHAT, error);
        let mut parser = FetchResponseParser::new(version, CORRELATION.len() + answer.len());
        // The connection has checked and taken the correlation id already.
        parser.next(&mut &CORRELATION[..]).map_err(malformed)?;
        let mut found: Vec<(String, i32, BatchAnswer)> = Vec::new();
        let mut rest: &[u8] = answer;
        while let Some(event) = parser.next(&mut rest).map_err(malformed)? {
            match event {
                FetchEvent::Head(head) if head.error_code != 0 => {
                    let address = self.address().clone();
                    let code = KafkaCode(head.error_code);
                    return Err(ClientError::Refused { address, what: WHAT, code });
                }
                FetchEvent::Partition(head) => {
                    let topic = parser.topic().0.to_owned();
                    let code = KafkaCode(head.error_code);
                    found.push((topic, head.partition, BatchAnswer { code, bytes: Bytes::new() }));
                }
                FetchEvent::Records => {
                    let len = parser.records_remaining().min(rest.len());
                    if let Some((.., current)) = found.last_mut() {
                        let at = answer.len() - rest.len();
                        current.bytes = answer.slice(at..at + len);
                    }
                    parser.take_records(len);
                    rest = &rest[len..];
                }
                FetchEvent::End(_) => return Ok(found),
                FetchEvent::Head(_) | FetchEvent::PartitionEnd(_) => {}
            }
        }
        Err(self.malformed(WHAT, "it is cut short"))
    }
}

/// How many of the questions fit into one answer; at least one.
fn fitting(questions: &[BatchQuestion]) -> usize {
    let mut room = ANSWER_BYTES_MAX;
    let fit = questions.iter().take(PARTITIONS_MAX).take_while(|question| {
        let fits = question.size_bytes <= room;
        room = room.saturating_sub(question.size_bytes);
        fits
    });
    fit.count().max(1)
}

fn request(questions: &[BatchQuestion]) -> FetchRequest {
    let topics =
        by_topic(questions, |question| &question.topic).into_iter().map(|(topic, questions)| {
            let partitions = questions.into_iter().map(|question| FetchPartition {
                partition: question.partition,
                current_leader_epoch: question.leader_epoch.0,
                fetch_offset: question.offset.0,
                last_fetched_epoch: -1,
                log_start_offset: -1,
                max_bytes: i32::try_from(question.size_bytes).unwrap_or(i32::MAX),
            });
            FetchTopic { topic: TopicKey::Name(topic.clone()), partitions: partitions.collect() }
        });
    FetchRequest {
        replica_id: -1,
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: i32::MAX,
        isolation: IsolationLevel::ReadUncommitted,
        session_id: 0,
        session_epoch: -1,
        topics: topics.collect(),
        forgotten: Vec::new(),
        rack_id: String::new(),
    }
}
