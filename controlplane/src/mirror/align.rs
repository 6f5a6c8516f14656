//! Asks one source broker about many partitions at once: log start, end, and where epochs end.

use std::sync::Arc;

use storage::{LeaderEpoch, LogReader, Offset};

use super::fault::Failure;
use super::last_batch::{contradicts, last_batch};
use super::machine::FaultClass;
use super::verdict::{CommonPoint, OurLog, Search, SourceLog, Step, Verdict, judge};
use crate::client::{
    Address, BatchQuestion, ClientError, Connection, EpochQuestion, OffsetAnswer, OffsetQuestion,
    OffsetSpec, SourceClient,
};

/// A partition to align.
#[derive(Debug)]
pub(super) struct Question {
    /// Which entry of the task, and which of its questions.
    pub(super) entry: (u32, u32),
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    /// The epoch we believe the leader has.
    pub(super) leader_epoch: LeaderEpoch,
    /// Whether the source gives the topic an id. Without, our last batch is compared as well.
    pub(super) has_id: bool,
    /// Our log, if there is one; nobody writes to it while it is aligned.
    pub(super) log: Option<Arc<LogReader>>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) entry: (u32, u32),
    /// Our end when the question was asked: if it moved since, the verdict says nothing.
    pub(super) end: Option<Offset>,
    pub(super) verdict: Result<Verdict, Failure>,
}

struct Pending {
    question: Question,
    ours: Option<OurLog>,
    source: SourceLog,
    search: Option<Search>,
    common: Option<CommonPoint>,
    /// Where the source has another batch than our last one.
    replaced_at: Option<Offset>,
    failure: Option<Failure>,
}

/// Aligns partitions that `address` leads. Two requests for offsets and one for each round of epochs,
/// whatever the number of partitions.
pub(super) async fn align(
    client: SourceClient,
    address: Address,
    questions: Vec<Question>,
) -> Vec<Answered> {
    let mut pending: Vec<Pending> = questions.into_iter().map(begin).collect();
    if let Err(error) = ask_broker(&client, &address, &mut pending).await {
        let failure = Failure::from_client(&error);
        for partition in &mut pending {
            partition.failure.get_or_insert_with(|| failure.clone());
        }
    }
    pending.into_iter().map(finish).collect()
}

async fn ask_broker(
    client: &SourceClient,
    address: &Address,
    pending: &mut [Pending],
) -> Result<(), ClientError> {
    loop {
        let mut lease = client.lease(address).await?;
        match ask(lease.connection(), pending).await {
            Err(error) if lease.was_stale(&error) => {}
            answered => return answered,
        }
    }
}

fn begin(question: Question) -> Pending {
    let ours = question.log.as_ref().map(|log| OurLog {
        start: log.log_start(),
        end: log.log_end(),
        epoch: log.latest_epoch(),
    });
    Pending {
        ours,
        source: SourceLog { start: Offset(-1), end: Offset(-1) },
        search: None,
        common: None,
        replaced_at: None,
        failure: None,
        question,
    }
}

fn finish(partition: Pending) -> Answered {
    let verdict = match (partition.failure, partition.replaced_at) {
        (Some(failure), _) => Err(failure),
        (None, Some(offset)) => Ok(Verdict::Replaced(offset)),
        (None, None) => Ok(judge(partition.ours, partition.common, partition.source)),
    };
    let end = partition.ours.map(|ours| ours.end);
    Answered { entry: partition.question.entry, end, verdict }
}

async fn ask(connection: &mut Connection, pending: &mut [Pending]) -> Result<(), ClientError> {
    for partition in pending.iter_mut() {
        // Asked again on a fresh connection: what the broken one brought is forgotten.
        partition.failure = None;
        partition.common = None;
        partition.replaced_at = None;
        partition.search = partition.ours.and_then(Search::begin);
    }
    // The end first: a trim between the two answers then makes a start at most, never an end, that
    // is newer than the other.
    ask_offsets(connection, OffsetSpec::Latest, pending).await?;
    ask_offsets(connection, OffsetSpec::Earliest, pending).await?;
    while ask_epochs(connection, pending).await? {}
    compare_last_batches(connection, pending).await
}

/// For topics without an id that look like a prefix of the source's log so far.
async fn compare_last_batches(
    connection: &mut Connection,
    pending: &mut [Pending],
) -> Result<(), ClientError> {
    let mut open = Vec::new();
    let mut questions = Vec::new();
    for partition in pending.iter_mut() {
        let looks_same = partition.failure.is_none()
            && judge(partition.ours, partition.common, partition.source) == Verdict::GoOn;
        let question = &partition.question;
        if question.has_id || !looks_same {
            continue;
        }
        let Some(last) = question.log.as_deref().and_then(last_batch) else { continue };
        // Beyond the high watermark there is nothing to read yet, and nothing to compare.
        if last.base_offset < partition.source.start || last.base_offset >= partition.source.end {
            continue;
        }
        questions.push(BatchQuestion {
            topic: question.topic.clone(),
            partition: question.partition,
            leader_epoch: question.leader_epoch,
            offset: last.base_offset,
            size_bytes: last.size_bytes,
        });
        open.push((partition, last));
    }
    let answers = connection.batches_at(&questions).await?;
    for ((partition, last), answer) in open.into_iter().zip(answers) {
        match answer {
            Some(answer) if answer.code.is_error() => {
                partition.failure = Some(Failure::from_code("Fetch", answer.code));
            }
            Some(answer) => {
                partition.replaced_at = contradicts(last, &answer.bytes).then_some(last.base_offset)
            }
            None => partition.failure = Some(unanswered("Fetch")),
        }
    }
    Ok(())
}

async fn ask_offsets(
    connection: &mut Connection,
    spec: OffsetSpec,
    pending: &mut [Pending],
) -> Result<(), ClientError> {
    let open: Vec<&mut Pending> =
        pending.iter_mut().filter(|partition| partition.failure.is_none()).collect();
    let questions: Vec<_> = open
        .iter()
        .map(|partition| OffsetQuestion {
            topic: partition.question.topic.clone(),
            partition: partition.question.partition,
            leader_epoch: partition.question.leader_epoch,
        })
        .collect();
    let answers = connection.list_offsets(spec, &questions).await?;
    for (partition, answer) in open.into_iter().zip(answers) {
        match answer {
            Some(OffsetAnswer { code, offset }) if !code.is_error() && offset.0 >= 0 => {
                match spec {
                    OffsetSpec::Earliest => partition.source.start = offset,
                    OffsetSpec::Latest => partition.source.end = offset,
                }
            }
            Some(OffsetAnswer { code, .. }) if code.is_error() => {
                partition.failure = Some(Failure::from_code("ListOffsets", code));
            }
            _ => partition.failure = Some(unanswered("ListOffsets")),
        }
    }
    Ok(())
}

/// One round; returns whether there is another.
async fn ask_epochs(
    connection: &mut Connection,
    pending: &mut [Pending],
) -> Result<bool, ClientError> {
    let open: Vec<&mut Pending> = pending
        .iter_mut()
        .filter(|partition| partition.failure.is_none() && partition.search.is_some())
        .collect();
    if open.is_empty() {
        return Ok(false);
    }
    let questions: Vec<_> = open
        .iter()
        .filter_map(|partition| {
            Some(EpochQuestion {
                topic: partition.question.topic.clone(),
                partition: partition.question.partition,
                leader_epoch: partition.question.leader_epoch,
                epoch: partition.search.as_ref()?.asked(),
            })
        })
        .collect();
    let answers = connection.offsets_for_leader_epoch(&questions).await?;
    for (partition, answer) in open.into_iter().zip(answers) {
        let (Some(search), Some(log)) = (&mut partition.search, &partition.question.log) else {
            continue;
        };
        let Some(answer) = answer else {
            partition.failure = Some(unanswered("OffsetForLeaderEpoch"));
            continue;
        };
        if answer.code.is_error() {
            partition.failure = Some(Failure::from_code("OffsetForLeaderEpoch", answer.code));
            continue;
        }
        match search.answer(answer, |epoch| log.epoch_end(epoch)) {
            Step::Ask(_) => {}
            Step::Found(common) => {
                partition.common = Some(common);
                partition.search = None;
            }
            Step::Nonsense => {
                partition.failure = Some(Failure::retry(format!(
                    "the source answered OffsetForLeaderEpoch {} with epoch {}",
                    search.asked(),
                    answer.epoch
                )));
            }
        }
    }
    Ok(true)
}

fn unanswered(what: &str) -> Failure {
    Failure {
        class: FaultClass::Leader,
        ..Failure::retry(format!("the source left the partition out of its answer to {what}"))
    }
}
