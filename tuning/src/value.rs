//! How a setting's text is read, when it is what is wanted, and what is written when it is not.
//!
//! Text in, text out. A [`Form`] refuses what the kernel would not have written: what is not understood
//! is never compared and never overwritten. The text it gives is the one that is stored, compared and
//! written back.

use serde::{Deserialize, Serialize};

use crate::cpus::Cpus;

/// The longest word that is taken for a setting.
const WORD_BYTES_MAX: usize = 64;

/// How the kernel writes a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// So many numbers, spaces between.
    Numbers(usize),
    /// One word.
    Word,
    /// Words, spaces between.
    Words,
    /// Words of which one is chosen: `always [madvise] never`.
    Choice,
    /// Processors as a list.
    CpuList,
    /// Processors as a mask.
    CpuMask,
    /// A route, as `ip route` shows it in one line.
    Route,
}

impl Form {
    /// The value in its plain form, or nothing when it is not one of this form.
    #[must_use]
    pub fn parse(self, text: &str) -> Option<String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match self {
            Self::Numbers(count) => {
                let numbers = numbers(text)?;
                (numbers.len() == count).then(|| join(&numbers))
            }
            Self::Word => {
                let [word] = words[..] else { return None };
                is_word(word).then(|| word.to_owned())
            }
            Self::Words => (!words.is_empty() && words.iter().all(|word| is_word(word)))
                .then(|| words.join(" ")),
            Self::Choice => {
                let chosen = |word: &&str| word.starts_with('[') && word.ends_with(']');
                let mut marked = words.iter().copied().filter(chosen);
                let word = match (marked.next(), &words[..]) {
                    (Some(word), _) => word.strip_prefix('[')?.strip_suffix(']')?,
                    // Where there is no choice some kernels leave the brackets out.
                    (None, [only]) => only,
                    (None, _) => return None,
                };
                (marked.next().is_none() && is_word(word)).then(|| word.to_owned())
            }
            Self::CpuList => Some(text.parse::<Cpus>().ok()?.to_string()),
            Self::CpuMask => Some(Cpus::from_mask(text)?.mask()),
            Self::Route => {
                let lines = text.trim().lines().count();
                (lines == 1 && !words.contains(&"nexthop")).then(|| words.join(" "))
            }
        }
    }
}

/// What a setting should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Each number at least this large.
    AtLeast(Vec<u64>),
    /// At most this large.
    AtMost(u64),
    /// This number.
    Exactly(u64),
    /// One of these words, the first when it has to be changed.
    OneOf(Vec<&'static str>),
    /// These processors and no others.
    Cpus(Cpus),
    /// Some of these processors and no others; all of them when it has to be changed.
    CpusWithin(Cpus),
    /// A route with this congestion control.
    Congestion(&'static str),
}

impl Wish {
    /// What to write in place of a plain value; nothing when it is well as it is.
    #[must_use]
    pub fn target(&self, form: Form, value: &str) -> Option<String> {
        let target = match self {
            Self::AtLeast(least) => {
                let raised: Vec<u64> =
                    numbers(value)?.iter().zip(least).map(|(now, least)| *now.max(least)).collect();
                join(&raised)
            }
            Self::AtMost(most) => join(&[*numbers(value)?.first()?.min(most)]),
            Self::Exactly(number) => number.to_string(),
            Self::OneOf(words) => {
                let kept = words.iter().find(|word| **word == value).or(words.first())?;
                (*kept).to_owned()
            }
            Self::Cpus(cpus) => write_cpus(form, cpus),
            Self::CpusWithin(cpus) => {
                let now = read_cpus(form, value)?;
                let outside = now.without(cpus);
                if outside.is_empty() && !now.is_empty() {
                    value.to_owned()
                } else {
                    write_cpus(form, cpus)
                }
            }
            Self::Congestion(name) => with_congestion(value, name),
        };
        (target != value).then_some(target)
    }

    /// What is wanted, for people.
    #[must_use]
    pub fn describe(&self, form: Form) -> String {
        match self {
            Self::AtLeast(least) => match &least[..] {
                [least] => format!("at least {least}"),
                // Numbers that may be anything stand for themselves.
                several => {
                    let texts: Vec<String> = several
                        .iter()
                        .map(|least| if *least == 0 { "-".to_owned() } else { least.to_string() })
                        .collect();
                    format!("{} or more", texts.join(" "))
                }
            },
            Self::AtMost(most) => format!("at most {most}"),
            Self::Exactly(number) => number.to_string(),
            Self::OneOf(words) => words.join(" or "),
            Self::Cpus(cpus) => write_cpus(form, cpus),
            Self::CpusWithin(cpus) => format!("within {}", write_cpus(form, cpus)),
            Self::Congestion(name) => format!("congctl {name}"),
        }
    }
}

/// A route's congestion control, if it names one.
#[must_use]
pub fn congestion(route: &str) -> Option<&str> {
    let mut words = route.split_whitespace().skip_while(|word| *word != "congctl").skip(1);
    words.next().and_then(|word| if word == "lock" { words.next() } else { Some(word) })
}

fn with_congestion(route: &str, name: &str) -> String {
    if congestion(route) == Some(name) {
        return route.to_owned();
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut words = route.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if word != "congctl" {
            kept.push(word);
        } else if words.next() == Some("lock") {
            words.next();
        }
    }
    kept.extend(["congctl", name]);
    kept.join(" ")
}

fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split_whitespace().map(|word| word.parse().ok()).collect()
}

fn join(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

fn is_word(word: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+.".contains(&byte);
    !word.is_empty() && word.len() <= WORD_BYTES_MAX && word.bytes().all(letter)
}

fn read_cpus(form: Form, value: &str) -> Option<Cpus> {
    match form {
        Form::CpuMask => Cpus::from_mask(value),
        _ => value.parse().ok(),
    }
}

fn write_cpus(form: Form, cpus: &Cpus) -> String {
    match form {
        Form::CpuMask => cpus.mask(),
        _ => cpus.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_the_kernel_writes_them() {
        for (form, text, plain) in [
            (Form::Numbers(1), "4096\n", "4096"),
            (Form::Numbers(3), "4096\t131072\t33554432\n", "4096 131072 33554432"),
            (Form::Word, "cubic\n", "cubic"),
            (Form::Choice, "always [madvise] never\n", "madvise"),
            (Form::Choice, "[none] mq-deadline kyber\n", "none"),
            (Form::Choice, "none\n", "none"),
            (Form::CpuList, "0-1\n", "0-1"),
            (Form::CpuMask, "00000000,00000003\n", "3"),
            (Form::Route, "default via 192.0.2.1 dev eth0 \n", "default via 192.0.2.1 dev eth0"),
        ] {
            assert_eq!(form.parse(text).as_deref(), Some(plain), "{form:?} {text:?}");
        }
    }

    #[test]
    fn what_the_kernel_would_not_write_is_no_value() {
        for (form, text) in [
            (Form::Numbers(1), ""),
            (Form::Numbers(1), "-1"),
            (Form::Numbers(1), "1 2"),
            (Form::Numbers(1), "99999999999999999999999"),
            (Form::Numbers(3), "1 2 x"),
            (Form::Word, ""),
            (Form::Word, "two words"),
            (Form::Word, "$(reboot)"),
            (Form::Choice, "madvise never"),
            (Form::Choice, "[always"),
            (Form::Choice, "[always] [never]"),
            (Form::Choice, "[] never"),
            (Form::CpuList, "all"),
            (Form::CpuMask, "0x3"),
            (Form::Route, ""),
            (Form::Route, "default nexthop via 192.0.2.1 dev a nexthop via 192.0.2.2 dev b"),
            (Form::Route, "default\n nexthop via 192.0.2.1"),
        ] {
            assert_eq!(form.parse(text), None, "{form:?} {text:?}");
        }
    }

    #[test]
    fn what_is_large_enough_is_never_lowered() {
        let wish = Wish::AtLeast(vec![0, 0, 100]);
        let form = Form::Numbers(3);
        assert_eq!(wish.target(form, "1 2 100"), None);
        assert_eq!(wish.target(form, "1 2 900"), None);
        assert_eq!(wish.target(form, "1 2 99").as_deref(), Some("1 2 100"));
        let all = Wish::AtLeast(vec![10, 20, 30]);
        assert_eq!(all.target(form, "15 5 40").as_deref(), Some("15 20 40"));
        assert_eq!(Wish::AtMost(10).target(Form::Numbers(1), "1"), None);
        assert_eq!(Wish::AtMost(10).target(Form::Numbers(1), "60").as_deref(), Some("10"));
    }

    #[test]
    fn a_word_that_is_as_good_is_kept() {
        let wish = Wish::OneOf(vec!["madvise", "never"]);
        assert_eq!(wish.target(Form::Choice, "never"), None);
        assert_eq!(wish.target(Form::Choice, "always").as_deref(), Some("madvise"));
    }

    #[test]
    fn processors_are_written_in_the_settings_own_way() {
        let cpus: Cpus = "0-1".parse().unwrap();
        assert_eq!(Wish::Cpus(cpus.clone()).target(Form::CpuMask, "0").as_deref(), Some("3"));
        assert_eq!(Wish::Cpus(cpus.clone()).target(Form::CpuList, "0-1"), None);
        assert_eq!(Wish::CpusWithin(cpus.clone()).target(Form::CpuList, "1"), None);
        assert_eq!(Wish::CpusWithin(cpus).target(Form::CpuList, "1-2").as_deref(), Some("0-1"));
    }

    #[test]
    fn a_route_keeps_everything_but_its_congestion_control() {
        let wish = Wish::Congestion("bbr");
        for (route, wanted) in [
            ("default via 192.0.2.1 dev eth0", "default via 192.0.2.1 dev eth0 congctl bbr"),
            ("default dev a congctl cubic mtu 1400", "default dev a mtu 1400 congctl bbr"),
            ("default dev a congctl lock cubic", "default dev a congctl bbr"),
        ] {
            assert_eq!(wish.target(Form::Route, route).as_deref(), Some(wanted));
            assert_eq!(wish.target(Form::Route, wanted), None);
        }
        assert_eq!(congestion("default dev a congctl lock bbr"), Some("bbr"));
        assert_eq!(congestion("default dev a"), None);
    }
}
