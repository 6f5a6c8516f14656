//! Reports and runs in files: what a benchmark leaves in its directory, and what is read from there.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::hlog::{self, HlogError, Interval};
use super::{PageError, encoding, html};
use crate::run::{
    self, Case, FORMAT, FileError, Machine, NamedHistogram, Row, Run, Sample, Series,
};

/// Tags of a log that are shown over time; a log of more has them as distributions only.
const TAGS_OVER_TIME_MAX: usize = 12;

/// Why a run cannot be read or a report not written.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A run's own file.
    #[error(transparent)]
    Run(#[from] FileError),
    /// The page.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A file that cannot be read or written.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A histogram log that is none.
    #[error("{path}: {source}")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: HlogError,
    },
    /// More than will be read.
    #[error("{0} is larger than {max} bytes: split it", max = hlog::LOG_BYTES_MAX)]
    TooLarge(PathBuf),
    /// A directory without results.
    #[error("{0} has no run in it; `longhaul bench ... --out {0}` leaves some there")]
    Nothing(PathBuf),
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> LoadError {
    let path = path.to_owned();
    move |source| LoadError::Io { doing, path, source }
}

/// Writes a run with its page and its histogram log; answers the files written.
///
/// # Errors
/// When one cannot be written.
pub fn write(directory: &Path, run: &Run) -> Result<Vec<PathBuf>, LoadError> {
    let mut files = run::write(directory, run)?;
    let page = directory.join(format!("{}.html", run.bench));
    run::replace(&page, html(std::slice::from_ref(run))?.as_bytes())?;
    files.push(page);
    let intervals = log_of(run);
    if !intervals.is_empty() {
        let path = directory.join(format!("{}.hlog", run.bench));
        let mut log = Vec::new();
        hlog::write(&mut log, run.started_ms, &run.command, &intervals)
            .map_err(failed("write", &path))?;
        run::replace(&path, &log)?;
        files.push(path);
    }
    Ok(files)
}

/// A run's valid histograms as the intervals of a log: each is one interval over the whole run, since a
/// repeat does not say when it was. Tags name the condition and the subject where there are several.
#[must_use]
pub fn log_of(run: &Run) -> Vec<Interval> {
    let length = Duration::try_from_secs_f64(run.seconds).unwrap_or_default();
    let mut intervals = Vec::new();
    for case in &run.cases {
        for row in &case.rows {
            let mut place = Vec::new();
            if run.cases.len() > 1 {
                place.push(hlog::slug(&case.name));
            }
            if case.rows.len() > 1 {
                place.push(hlog::slug(&row.subject));
            }
            for named in row.valid().flat_map(|sample| &sample.histograms) {
                let mut parts = place.clone();
                parts.push(hlog::slug(&named.name));
                let (tag, histogram) = (parts.join("."), named.histogram.clone());
                intervals.push(Interval { tag, from: Duration::ZERO, length, histogram });
            }
        }
    }
    intervals
}

/// Reads a run's file, a histogram log (`.hlog`), or every run of a directory.
///
/// # Errors
/// When there is none, or one cannot be read.
pub fn load(path: &Path) -> Result<Vec<Run>, LoadError> {
    if !path.is_dir() {
        return match path.extension() {
            Some(extension) if extension == "hlog" => Ok(vec![of_log(path)?]),
            _ => Ok(vec![run::read(path)?]),
        };
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed("read", path))? {
        let file = entry.map_err(failed("read", path))?.path();
        if file.extension().is_some_and(|extension| extension == "json") {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(LoadError::Nothing(path.to_owned()));
    }
    files.iter().map(|file| Ok(run::read(file)?)).collect()
}

/// A histogram log as a run of one row.
fn of_log(path: &Path) -> Result<Run, LoadError> {
    let file = fs::File::open(path).map_err(failed("read", path))?;
    let mut log = Vec::new();
    let read = file.take(hlog::LOG_BYTES_MAX + 1).read_to_end(&mut log);
    read.map_err(failed("read", path))?;
    if log.len() as u64 > hlog::LOG_BYTES_MAX {
        return Err(LoadError::TooLarge(path.to_owned()));
    }
    let mut sample = Sample::default();
    let mut end = Duration::ZERO;
    for interval in hlog::read(&log) {
        let interval =
            interval.map_err(|source| LoadError::Log { path: path.to_owned(), source })?;
        end = end.max(interval.from + interval.length);
        add(&mut sample, interval);
    }
    if sample.series.len() > 3 * TAGS_OVER_TIME_MAX {
        sample.series.clear();
    }
    let started_ms = hlog::started_ms(&log);
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    let row =
        Row { subject: name.clone(), ours: true, samples: vec![sample], failures: Vec::new() };
    Ok(Run {
        format: FORMAT,
        bench: "hlog".to_owned(),
        question: format!("What is in {name}?"),
        command: format!("longhaul report {}", path.display()),
        started_ms,
        seconds: end.as_secs_f64(),
        machine: Machine::read(),
        cases: vec![Case { name, rows: vec![row] }],
        left_out: vec![
            "the machine it was recorded on: the one named here is the reader's".to_owned(),
        ],
        interrupted: false,
    })
}

/// Adds an interval to its tag's distribution and lines.
fn add(sample: &mut Sample, interval: Interval) {
    let Interval { tag, from, length, histogram } = interval;
    let name = if tag.is_empty() { "untagged".to_owned() } else { tag };
    if !histogram.is_empty() && super::view::core_of(&name).is_none() {
        let at = (from + length).as_secs_f64();
        for (word, quantile) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            let value = histogram.value_at_quantile(quantile) as f64 / 1e6;
            let line = format!("{name} {word}");
            match sample.series.iter_mut().find(|series| series.name == line) {
                Some(series) => series.points.push((at, value)),
                None => sample.series.push(Series {
                    name: line,
                    unit: "ms".to_owned(),
                    points: vec![(at, value)],
                }),
            }
        }
    }
    let known = sample.histograms.iter().position(|named| named.name == name);
    let index = known.unwrap_or_else(|| {
        sample.histograms.push(NamedHistogram { name, histogram: encoding::sum() });
        sample.histograms.len() - 1
    });
    // The sum grows with what is added, so nothing is out of its range.
    let _ = sample.histograms[index].histogram.add(&histogram);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing;

    #[test]
    fn what_is_written_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let run = testing::run();
        let files = write(directory.path(), &run).unwrap();
        let names: Vec<_> = files.iter().map(|file| file.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["lag.json", "lag.html", "lag.hlog"]);
        let back = load(directory.path()).unwrap();
        assert_eq!(back.len(), 1);
        assert_eq!(back[0].cases[1].rows[1].subject, run.cases[1].rows[1].subject);

        let log = load(&files[2]).unwrap().remove(0);
        assert_eq!(log.started_ms, run.started_ms);
        let histograms = &log.cases[0].rows[0].samples[0].histograms;
        let tag = "1_partition_1_Gbit_s_100_ms.Longhaul.lag";
        let lag = histograms.iter().find(|named| named.name == tag).unwrap();
        assert_eq!(lag.histogram.len(), 2 * testing::VALUES);
    }

    #[test]
    fn what_is_no_run_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let said = load(directory.path()).unwrap_err().to_string();
        assert!(said.contains("has no run in it"), "{said}");
        for (name, text) in [("a.json", "{}"), ("b.hlog", "not a log\n")] {
            let file = directory.path().join(name);
            fs::write(&file, text).unwrap();
            let said = load(&file).unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
        }
        assert!(load(&directory.path().join("none")).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn a_log_in_which_nothing_was_timed_is_told_from_one_that_has_something() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("some.hlog");
        let run_of = |intervals: &[Interval]| {
            let mut log = Vec::new();
            hlog::write(&mut log, 1_000, "", intervals).unwrap();
            fs::write(&file, log).unwrap();
            load(&file).unwrap().remove(0)
        };
        let full = log_of(&testing::run()).remove(0);
        let mut hollow = full.clone();
        hollow.histogram.reset();
        assert!(super::super::is_measured(&run_of(&[full])));
        for nothing in [run_of(&[]), run_of(&[hollow])] {
            assert!(!super::super::is_measured(&nothing));
            assert!(super::super::terminal(&nothing).contains("Nothing was measured."));
        }
    }

    #[test]
    fn one_condition_and_one_subject_need_no_prefix() {
        let mut run = testing::run();
        run.cases.truncate(1);
        run.cases[0].rows.truncate(1);
        let tags: Vec<_> = log_of(&run).into_iter().map(|interval| interval.tag).collect();
        assert!(
            tags.contains(&"lag".to_owned()) && tags.contains(&"core-1.lag".to_owned()),
            "{tags:?}"
        );
    }
}
