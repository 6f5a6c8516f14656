//! The executor: makes the changes of a report, and takes them back.
//!
//! One change at a time: announced in the state file, made, read back, noted. A crash at any instant
//! leaves a state from which [`rollback`] brings back exactly what was before. What somebody else changed
//! in between is told and left, unless force is asked for.

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use crate::check::{self, Report, State};
use crate::host::Host;
use crate::knobs::Place;
use crate::state::{Change, Entry, StateError, StateFile};
use crate::value::Form;

/// Why nothing, or not everything, was applied or rolled back.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The state file.
    #[error(transparent)]
    State(#[from] StateError),
    /// A place that cannot be read at the moment.
    #[error("cannot read {place}: {source}; nothing was changed")]
    Read {
        /// Which place.
        place: String,
        /// The system's error.
        source: io::Error,
    },
}

/// What became of one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Made: the place holds what was written.
    Done {
        /// What it held.
        before: String,
        /// What it holds.
        after: String,
    },
    /// The kernel refused it, or took something else.
    Refused(String),
    /// Nothing to do: the place holds what it should.
    Already,
    /// Somebody else changed it since, so it is left.
    Changed {
        /// What this program left there.
        left: String,
        /// What is there now.
        now: String,
        /// What was there before.
        before: String,
    },
}

/// A change and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The knob.
    pub knob: String,
    /// The place.
    pub place: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What [`apply`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Every change was taken.
    All,
    /// Some were refused; the state file has what was before.
    Part,
    /// None was taken: everything is as before, and there is no state file.
    Nothing,
}

/// Makes every change that a report asks for and allows. `told` hears of each once it is made.
pub fn apply(
    report: &Report,
    host: &Host,
    state: &Path,
    told: &mut dyn FnMut(Progress),
) -> Result<Applied, ApplyError> {
    let changes = plan(report, host)?;
    if changes.is_empty() {
        return Ok(Applied::All);
    }
    let mut file = StateFile::create(state, host, report.profile, &changes)?;
    let mut refused = 0;
    let mut untouched = true;
    for (number, change) in changes.iter().enumerate() {
        file.doing(number)?;
        let written = write(host, &change.before, &change.after);
        let outcome = match written.and_then(|()| read(host, &change.before)) {
            Ok(holds) => {
                file.did(number, &holds)?;
                if holds == change.after {
                    Outcome::Done { before: change.before.value.clone(), after: holds }
                } else {
                    Outcome::Refused(format!("{} was written, it holds {holds}", change.after))
                }
            }
            Err(error) => Outcome::Refused(format!("{} is refused: {error}", change.after)),
        };
        refused += usize::from(!matches!(outcome, Outcome::Done { .. }));
        untouched &= read(host, &change.before).is_ok_and(|holds| holds == change.before.value);
        told(Progress { knob: change.knob.clone(), place: change.before.name(), outcome });
    }
    if refused == 0 {
        return Ok(Applied::All);
    }
    if untouched {
        file.remove()?;
        return Ok(Applied::Nothing);
    }
    Ok(Applied::Part)
}

/// What [`rollback`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rollback {
    /// Nothing was applied, or the machine was started anew since.
    Nothing {
        /// The latter.
        restarted: bool,
    },
    /// All that was changed is as before; the state file is gone.
    Complete,
    /// Something was left as somebody else set it, or refused; the state file still has it.
    Partial,
}

/// Brings back what was before, the last change first. With `force` also what somebody else changed since, and,
/// of a state file of another network namespace, what the whole host shares.
pub fn rollback(
    host: &Host,
    state: &Path,
    force: bool,
    told: &mut dyn FnMut(Progress),
) -> Result<Rollback, ApplyError> {
    let Some((mut file, saved)) = StateFile::open(state, host)? else {
        return Ok(Rollback::Nothing { restarted: false });
    };
    if saved.restarted {
        file.remove()?;
        return Ok(Rollback::Nothing { restarted: true });
    }
    let theirs = |change: &Change| saved.elsewhere.is_some() && change.before.is_of_a_namespace();
    if let Some((there, here)) = &saved.elsewhere
        && !force
        && saved.begun.iter().any(|(_, change, _)| theirs(change))
    {
        let (path, there, here) = (state.to_owned(), there.clone(), here.clone());
        return Err(StateError::OtherNamespace { path, there, here }.into());
    }
    let mut all = true;
    for (number, change, holds) in saved.begun.iter().rev() {
        if theirs(change) {
            continue;
        }
        let outcome = take_back(host, change, holds.as_deref(), force);
        if matches!(outcome, Outcome::Done { .. } | Outcome::Already) {
            file.undone(*number)?;
        } else {
            all = false;
        }
        told(Progress { knob: change.knob.clone(), place: change.before.name(), outcome });
    }
    if all {
        file.remove()?;
        return Ok(Rollback::Complete);
    }
    Ok(Rollback::Partial)
}

/// Forgets what was before, and leaves everything as it is now.
pub fn forget(host: &Host, state: &Path) -> Result<bool, ApplyError> {
    let Some((file, _)) = StateFile::open(state, host)? else { return Ok(false) };
    file.remove()?;
    Ok(true)
}

/// The changes of a report with everything that is needed to take them back.
fn plan(report: &Report, host: &Host) -> Result<Vec<Change>, ApplyError> {
    let mut changes = Vec::new();
    for finding in &report.findings {
        for reading in finding.readings.iter().filter(|reading| reading.state == State::Wrong) {
            let Some(found) = &reading.found else { continue };
            let setting = &found.setting;
            let place = match &setting.place {
                Place::File(path) => path.clone(),
                Place::Route(destination) => destination.clone(),
                Place::Limit { .. } => continue,
            };
            let before = Entry { place, form: setting.form, value: found.before.clone() };
            let mut restore = match &setting.return_by {
                Some((value, path)) if *value == found.before => {
                    vec![now(host, path, Form::Numbers(1))?]
                }
                _ => vec![before.clone()],
            };
            for (path, form) in &setting.beside {
                restore.push(now(host, path, *form)?);
            }
            let after = found.after.clone();
            changes.push(Change { knob: finding.knob.to_owned(), before, after, restore });
        }
    }
    Ok(changes)
}

/// What a file holds now.
fn now(host: &Host, path: &str, form: Form) -> Result<Entry, ApplyError> {
    let mut entry = Entry { place: path.to_owned(), form, value: String::new() };
    entry.value =
        read(host, &entry).map_err(|source| ApplyError::Read { place: entry.name(), source })?;
    Ok(entry)
}

fn take_back(host: &Host, change: &Change, left: Option<&str>, force: bool) -> Outcome {
    let refused = |error: io::Error| Outcome::Refused(error.to_string());
    let found = match read(host, &change.before) {
        Ok(found) => found,
        Err(error) => return refused(error),
    };
    let is_ours =
        found == change.before.value || found == change.after || Some(found.as_str()) == left;
    if !is_ours && !force {
        return Outcome::Changed {
            left: left.unwrap_or(&change.after).to_owned(),
            now: found,
            before: change.before.value.clone(),
        };
    }
    let mut any = false;
    for entry in &change.restore {
        match read(host, entry) {
            Ok(value) if value == entry.value => {}
            _ => match write(host, entry, &entry.value) {
                Ok(()) => any = true,
                Err(error) => return refused(error),
            },
        }
    }
    match read(host, &change.before) {
        Ok(holds) if holds == change.before.value => {
            if any {
                Outcome::Done { before: found, after: holds }
            } else {
                Outcome::Already
            }
        }
        Ok(holds) => {
            Outcome::Refused(format!("{} was written, it holds {holds}", change.before.value))
        }
        Err(error) => refused(error),
    }
}

fn read(host: &Host, entry: &Entry) -> io::Result<String> {
    let text = check::value_of(&entry.as_place(), host)?;
    entry.form.parse(&text).ok_or_else(|| {
        io::Error::other(format!("it holds \"{}\", which the kernel would not write", text.trim()))
    })
}

fn write(host: &Host, entry: &Entry, value: &str) -> io::Result<()> {
    if entry.form != Form::Route {
        return host.write(&entry.place, value);
    }
    let family = if entry.place.contains(':') { "-6" } else { "-4" };
    // Words that `ip` shows but does not take.
    let words = value.split(' ').filter(|word| !["linkdown", "dead", "offload"].contains(word));
    let arguments: Vec<&str> = [family, "route", "replace"].into_iter().chain(words).collect();
    host.ip(&arguments).map(|_| ())
}

impl Entry {
    fn as_place(&self) -> Place {
        match self.form {
            Form::Route => Place::Route(self.place.clone()),
            _ => Place::File(self.place.clone()),
        }
    }

    /// Its place for people.
    fn name(&self) -> String {
        self.as_place().to_string()
    }
}
