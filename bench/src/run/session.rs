//! How a benchmark goes: subjects in turn, repeat by repeat, until all is measured or the operator ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::others::{self, ProcessorTime};
use super::{Case, FORMAT, Machine, Row, Run, Sample, TOO_SHORT, is_too_short};

/// Why a subject gave no sample: a sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    /// It could not be measured; the other subjects go on.
    #[error("{0}")]
    Failed(String),
    /// There was nothing to measure: no failure.
    #[error("{0}")]
    Skipped(String),
    /// The operator ended the benchmark meanwhile.
    #[error("interrupted")]
    Interrupted,
}

impl SubjectError {
    /// From any error, with what was being done.
    pub fn failed(doing: &str, error: impl std::fmt::Display) -> Self {
        Self::Failed(format!("cannot {doing}: {error}"))
    }
}

impl From<crate::node::NodeError> for SubjectError {
    fn from(error: crate::node::NodeError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<crate::load::ProcessError> for SubjectError {
    fn from(error: crate::load::ProcessError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Someone who is measured.
pub trait Subject {
    /// The name of the row.
    fn name(&self) -> String;
    /// Whether it is Longhaul and not a peer.
    fn ours(&self) -> bool;
    /// Measures once, and leaves nothing running. Looks at `session.stopped()` while it waits.
    ///
    /// # Errors
    /// When it could not be measured, or bytes were wrong.
    fn measure(&mut self, session: &Session, repeat: u32) -> Result<Sample, SubjectError>;
}

/// A benchmark under way.
pub struct Session {
    stop: Arc<AtomicBool>,
    progress: Box<dyn Fn(&str) + Send + Sync>,
    began: Instant,
    run: std::sync::Mutex<Run>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Session").field("began", &self.began).finish_non_exhaustive()
    }
}

impl Session {
    /// Begins. `stop` is raised by the operator's Ctrl-C; `progress` hears a line for each sample.
    #[must_use]
    pub fn begin(
        bench: &str,
        question: &str,
        stop: Arc<AtomicBool>,
        progress: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let run = Run {
            format: FORMAT,
            bench: bench.to_owned(),
            question: question.to_owned(),
            command: command_line(std::env::args()),
            started_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
            seconds: 0.0,
            machine: Machine::read(),
            cases: Vec::new(),
            left_out: Vec::new(),
            interrupted: false,
        };
        Self { stop, progress: Box::new(progress), began: Instant::now(), run: run.into() }
    }

    /// Whether the operator asked to end.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Tells the operator.
    pub fn say(&self, line: &str) {
        (self.progress)(line);
    }

    /// Notes what is not measured, and why.
    pub fn leave_out(&self, what: impl Into<String>) {
        let what = what.into();
        self.with_run(|run| {
            // Once, however many repeats say it.
            if !run.left_out.contains(&what) {
                self.say(&format!("left out: {what}"));
                run.left_out.push(what);
            }
        });
    }

    /// Notes a case that could not be begun; what was measured in others is kept.
    pub fn case_failed(&self, name: &str, subject: &str, why: String) {
        self.say(&format!("{name}, {subject}: {why}"));
        let row = Row {
            subject: subject.to_owned(),
            ours: true,
            samples: Vec::new(),
            failures: vec![why],
        };
        self.with_run(|run| run.cases.push(Case { name: name.to_owned(), rows: vec![row] }));
    }

    /// Measures the subjects in turn, `repeats` times. A failure is noted in the subject's row and the
    /// others go on; after an interruption what was measured is kept.
    pub fn case(&self, name: &str, subjects: &mut [Box<dyn Subject + '_>], repeats: u32) {
        let mut rows: Vec<Row> = subjects
            .iter()
            .map(|subject| Row {
                subject: subject.name(),
                ours: subject.ours(),
                samples: Vec::new(),
                failures: Vec::new(),
            })
            .collect();
        'measuring: for repeat in 0..repeats.max(1) {
            for (subject, row) in subjects.iter_mut().zip(&mut rows) {
                let outcome = if self.stopped() {
                    Err(SubjectError::Interrupted)
                } else {
                    measure_watched(subject.as_mut(), self, repeat)
                };
                let place = format!("{name}, {}, run {} of {repeats}", row.subject, repeat + 1);
                match outcome {
                    Ok(sample) => {
                        self.say(&format!("{place}: {}", words(&sample)));
                        row.samples.push(sample);
                    }
                    Err(SubjectError::Interrupted) => {
                        self.with_run(|run| run.interrupted = true);
                        break 'measuring;
                    }
                    Err(SubjectError::Skipped(why)) => {
                        self.leave_out(format!("{name}, {}: {why}", row.subject));
                    }
                    Err(SubjectError::Failed(why)) => {
                        self.say(&format!("{place}: {why}"));
                        row.failures.push(why);
                    }
                }
            }
        }
        rows.retain(|row| !row.samples.is_empty() || !row.failures.is_empty());
        if !rows.is_empty() {
            self.with_run(|run| run.cases.push(Case { name: name.to_owned(), rows }));
        }
    }

    /// Ends; answers everything that was measured.
    #[must_use]
    pub fn end(self) -> Run {
        let mut run = self.run.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        run.seconds = self.began.elapsed().as_secs_f64();
        run.interrupted |= self.stop.load(Ordering::Relaxed);
        run
    }

    fn with_run(&self, change: impl FnOnce(&mut Run)) {
        change(&mut self.run.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

/// Measures, and says so when other programs took too much of the machine meanwhile.
fn measure_watched(
    subject: &mut (dyn Subject + '_),
    session: &Session,
    repeat: u32,
) -> Result<Sample, SubjectError> {
    let (began, before) = (Instant::now(), ProcessorTime::read(&[]));
    let mut sample = subject.measure(session, repeat)?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let share = ProcessorTime::read(&[])
        .zip(before)
        .and_then(|(now, before)| now.others_share(&before, began.elapsed(), processors));
    if share.is_none() {
        session.leave_out(others::TOO_SHORT);
    }
    if sample.invalid.is_none() {
        sample.invalid = share.and_then(others::spoilt);
    }
    Ok(sample)
}

/// The figures of a sample on one line.
fn words(sample: &Sample) -> String {
    let mut parts: Vec<String> = sample
        .figures
        .iter()
        .map(|figure| format!("{} {:.2} {}", figure.name, figure.value, figure.unit))
        .collect();
    match (sample.cpu_seconds_per_gigabyte(), sample.processes.first()) {
        (Some(_), Some(own)) if is_too_short(own.seconds()) => {
            parts.push(format!("CPU {TOO_SHORT}"));
        }
        (Some(cpu), _) => parts.push(format!("{cpu:.2} CPU s/GB")),
        _ => {}
    }
    if let Some(why) = &sample.invalid {
        parts.push(format!("INVALID: {why}"));
    }
    parts.join(", ")
}

/// Arguments as a shell takes them, the program by its name alone.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let plain = |word: &str| {
        !word.is_empty()
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:,=%+@".contains(c))
    };
    let words = arguments.enumerate().map(|(index, word)| match (index, plain(&word)) {
        (0, _) => "longhaul".to_owned(),
        (_, true) => word,
        (_, false) => format!("'{}'", word.replace('\'', r"'\''")),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Figure;

    struct Scripted {
        name: &'static str,
        outcomes: Vec<Result<f64, SubjectError>>,
    }

    impl Subject for Scripted {
        fn name(&self) -> String {
            self.name.to_owned()
        }
        fn ours(&self) -> bool {
            false
        }
        fn measure(&mut self, _: &Session, _: u32) -> Result<Sample, SubjectError> {
            self.outcomes.remove(0).map(|value| Sample {
                figures: vec![Figure::new("throughput", "MB/s", value)],
                ..Sample::default()
            })
        }
    }

    fn session() -> Session {
        Session::begin("test", "?", Arc::new(AtomicBool::new(false)), |_| {})
    }

    fn scripted<'a>(
        name: &'static str,
        outcomes: Vec<Result<f64, SubjectError>>,
    ) -> Box<dyn Subject + 'a> {
        Box::new(Scripted { name, outcomes })
    }

    #[test]
    fn one_subjects_failure_does_not_stop_the_others() {
        let session = session();
        let broken = SubjectError::Failed("no Java".to_owned());
        let mut subjects =
            [scripted("a", vec![Ok(1.0), Err(broken)]), scripted("b", vec![Ok(2.0), Ok(4.0)])];
        session.case("case", &mut subjects, 2);
        let run = session.end();
        let rows = &run.cases[0].rows;
        assert_eq!(rows[0].failures, ["no Java"]);
        assert_eq!(rows[1].figure("throughput").unwrap().median, 3.0);
        assert!(!run.complete() && !run.interrupted);
    }

    #[test]
    fn what_there_is_nothing_of_is_left_out_once_and_is_no_failure() {
        let session = session();
        let nothing = || Err(SubjectError::Skipped("none here".to_owned()));
        let mut subjects =
            [scripted("a", vec![Ok(1.0), Ok(2.0)]), scripted("b", vec![nothing(), nothing()])];
        session.case("case", &mut subjects, 2);
        let run = session.end();
        assert!(run.left_out.contains(&"case, b: none here".to_owned()), "{:?}", run.left_out);
        let none_here = |what: &&String| what.contains("none here");
        assert_eq!(run.left_out.iter().filter(none_here).count(), 1);
        assert_eq!(run.cases[0].rows.len(), 1);
        assert!(run.complete());
    }

    #[test]
    fn a_case_that_cannot_begin_is_a_failure_and_the_others_stay() {
        let session = session();
        session.case("one", &mut [scripted("a", vec![Ok(1.0)])], 1);
        session.case_failed("two", "a", "no room".to_owned());
        let run = session.end();
        assert_eq!(run.cases.len(), 2);
        assert_eq!(run.cases[1].rows[0].failures, ["no room"]);
        assert!(!run.complete());
    }

    #[test]
    fn a_sample_that_is_too_short_to_judge_is_not_passed_over_in_silence() {
        let session = session();
        session.case("case", &mut [scripted("a", vec![Ok(1.0), Ok(1.0)])], 2);
        assert_eq!(session.end().left_out, [others::TOO_SHORT]);
    }

    #[test]
    fn an_interruption_keeps_what_was_measured() {
        let session = session();
        let mut subjects =
            [scripted("a", vec![Ok(1.0)]), scripted("b", vec![Err(SubjectError::Interrupted)])];
        session.case("case", &mut subjects, 3);
        let run = session.end();
        assert!(run.interrupted);
        assert_eq!(run.cases[0].rows.len(), 1, "who was not measured has no row");
        assert_eq!(run.cases[0].rows[0].samples.len(), 1);
    }

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        let words = ["/usr/bin/longhaul", "bench", "wan", "--out", "my runs", "it's"];
        let line = command_line(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(line, r"longhaul bench wan --out 'my runs' 'it'\''s'");
    }
}
