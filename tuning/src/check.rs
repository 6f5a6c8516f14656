//! The checker: reads every setting of a request and compares it with what is wanted. Changes nothing.

use std::io;

use serde::Serialize;

use crate::host::Host;
use crate::knobs::{Knob, Place, Request, RequestError, Scene, Setting, Severity};
use crate::limits;
use crate::value::{Form, congestion};

/// What became of one setting's check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
pub enum State {
    /// As wanted.
    Good,
    /// Not as wanted, and `apply` can change it.
    Wrong,
    /// Not as wanted, and why `apply` cannot change it.
    Fixed(String),
    /// Not understood, so neither judged nor changed.
    Strange(String),
    /// Not there, and why.
    Absent(String),
}

impl State {
    /// A word for it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Wrong => "wrong",
            Self::Fixed(_) => "fixed",
            Self::Strange(_) => "unclear",
            Self::Absent(_) => "absent",
        }
    }

    /// The reason, where there is one.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Good | Self::Wrong => None,
            Self::Fixed(reason) | Self::Strange(reason) | Self::Absent(reason) => Some(reason),
        }
    }
}

/// One setting as it was found.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    /// Where it lives.
    pub place: String,
    /// What is there, when it could be read.
    pub value: Option<String>,
    /// What is wanted.
    pub wanted: String,
    /// How that was computed; empty when it is a constant.
    pub formula: String,
    /// Whether it is well.
    #[serde(flatten)]
    pub state: State,
    /// The setting, with what is there in its plain form and what should be written.
    #[serde(skip)]
    pub(crate) found: Option<Found>,
}

impl Reading {
    /// What is there and what `apply` would write, when it would write.
    #[must_use]
    pub fn change(&self) -> Option<(&str, &str)> {
        let found = self.found.as_ref().filter(|_| self.state == State::Wrong)?;
        Some((&found.before, &found.after))
    }
}

/// A setting with its value before and the one wanted; both the same when it is well.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) setting: Setting,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// A knob and its settings as they were found.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The knob's name.
    pub knob: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Why the wanted value helps.
    pub why: &'static str,
    /// When it harms.
    pub harms: &'static str,
    /// Where the advice comes from.
    pub source: &'static str,
    /// What is lost without it.
    pub severity: Severity,
    /// The worst of its settings, or why there are none.
    #[serde(flatten)]
    pub state: State,
    /// Its settings.
    pub readings: Vec<Reading>,
}

/// All of a request's knobs as they were found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The profile.
    pub profile: &'static str,
    /// Bits per second of the path.
    pub rate_bits: u64,
    /// Microseconds of its round trip.
    pub rtt_us: u64,
    /// Connections that share it.
    pub lanes: u32,
    /// Bytes under way when the path is full.
    pub bdp_bytes: u64,
    /// Whether nothing is left to do: what is absent does not count, what is fixed does.
    pub well: bool,
    /// Each knob.
    pub findings: Vec<Finding>,
}

/// Checks a request on a host.
pub fn check(request: &Request, host: &Host) -> Result<Report, RequestError> {
    let scene = Scene { request, host };
    let findings: Vec<Finding> =
        request.knobs(host)?.into_iter().map(|knob| find(knob, &scene)).collect();
    let well = |finding: &Finding| matches!(finding.state, State::Good | State::Absent(_));
    Ok(Report {
        profile: request.profile.name(),
        rate_bits: request.path.rate.bits(),
        rtt_us: u64::try_from(request.path.rtt.time().as_micros()).unwrap_or(u64::MAX),
        lanes: request.path.lanes,
        bdp_bytes: request.path.bdp_bytes(),
        well: findings.iter().all(well),
        findings,
    })
}

fn find(knob: &'static Knob, scene: &Scene<'_>) -> Finding {
    let (readings, empty) = match (knob.settings)(scene) {
        // A knob with nothing to set is as it should be.
        Ok(settings) => {
            (settings.into_iter().map(|setting| read(setting, scene.host)).collect(), State::Good)
        }
        Err(reason) => (Vec::new(), State::Absent(reason)),
    };
    let worst =
        readings.iter().map(|reading: &Reading| &reading.state).max_by_key(|state| rank(state));
    Finding {
        knob: knob.name,
        what: knob.what,
        why: knob.why,
        harms: knob.harms,
        source: knob.source,
        severity: knob.severity,
        state: worst.cloned().unwrap_or(empty),
        readings,
    }
}

fn rank(state: &State) -> u8 {
    match state {
        State::Absent(_) => 0,
        State::Good => 1,
        State::Fixed(_) => 2,
        State::Strange(_) => 3,
        State::Wrong => 4,
    }
}

fn read(setting: Setting, host: &Host) -> Reading {
    let mut reading = Reading {
        place: setting.place.to_string(),
        value: None,
        wanted: setting.wish.describe(setting.form),
        formula: setting.formula.clone(),
        state: State::Good,
        found: None,
    };
    let text = match value_of(&setting.place, host) {
        Ok(text) => text,
        Err(error) => {
            reading.state = unread(&setting.place, host, &error);
            return reading;
        }
    };
    let Some(before) = setting.form.parse(&text) else {
        let text: String = text.trim().chars().take(60).collect();
        reading.state = State::Strange(format!(
            "{} holds \"{text}\", which the kernel would not write: left alone",
            setting.place
        ));
        reading.value = Some(text);
        return reading;
    };
    reading.value = Some(shown(setting.form, &before));
    let target = setting.wish.target(setting.form, &before);
    if target.is_some() {
        reading.state = match (&setting.obstacle, &setting.place) {
            (Some(obstacle), _) => State::Fixed(obstacle.clone()),
            (None, Place::File(path)) if !host.is_writable(path) => {
                State::Fixed(if host.is_child_namespace() {
                    "only shown in this network namespace: set it on the host".to_owned()
                } else {
                    "the kernel lets nobody write it".to_owned()
                })
            }
            _ => State::Wrong,
        };
    }
    let after = target.unwrap_or_else(|| before.clone());
    reading.found = Some(Found { setting, before, after });
    reading
}

/// What a place holds now, as the host writes it.
pub(crate) fn value_of(place: &Place, host: &Host) -> io::Result<String> {
    match place {
        Place::File(path) => host.read(path),
        Place::Route(destination) => {
            let family = if destination.contains(':') { "-6" } else { "-4" };
            host.ip(&[family, "-d", "route", "get", destination, "fibmatch"])
        }
        Place::Limit { line, .. } => {
            let text = host.read("proc/self/limits")?;
            let hard = limits::hard_limit(&text, line)
                .ok_or_else(|| io::Error::other(format!("/proc/self/limits has no {line}")))?;
            Ok(hard.to_string())
        }
    }
}

fn unread(place: &Place, host: &Host, error: &io::Error) -> State {
    match (error.kind(), place) {
        (io::ErrorKind::NotFound, Place::File(path))
            if path.starts_with("proc/sys/net/") && host.is_child_namespace() =>
        {
            State::Absent("not in this network namespace: it is the host's".to_owned())
        }
        (io::ErrorKind::NotFound, _) => State::Absent("this kernel does not have it".to_owned()),
        (io::ErrorKind::PermissionDenied, _) => {
            State::Strange(format!("{place} may be read by root only: run the check as root"))
        }
        // It was asked for by name: not to have looked is not well.
        (_, Place::Route(_)) => State::Strange(error.to_string()),
        _ => State::Strange(format!("{place} cannot be read: {error}")),
    }
}

/// A value for people.
fn shown(form: Form, value: &str) -> String {
    match form {
        Form::Route => format!("congctl {}", congestion(value).unwrap_or("not set")),
        _ if value == u64::MAX.to_string() => "unlimited".to_owned(),
        _ => value.to_owned(),
    }
}
