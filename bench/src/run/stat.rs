//! The line that `/proc` has for a process and for each thread: who it is, and its processor time.

use std::fs;
use std::path::Path;

/// Ticks of the kernel's clock in a second, as all of Linux' user interfaces count them.
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

/// Times in ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) parent: u32,
    /// In a wait that no signal ends, as those for storage are.
    pub(crate) uninterruptible: bool,
    /// Outside the kernel.
    pub(crate) user: u64,
    /// In the kernel.
    pub(crate) system: u64,
    /// Both, of children that have ended and were waited for.
    pub(crate) children: u64,
}

impl Stat {
    /// Of a process; nothing when there is none.
    pub(crate) fn of(process: u32) -> Option<Self> {
        Self::read(&Path::new("/proc").join(process.to_string()))
    }

    /// Of a process or thread by its folder.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(folder.join("stat")).ok()?)
    }

    /// Of each thread of a process; none when there is no such process.
    pub(crate) fn threads(process: u32) -> impl Iterator<Item = Self> {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| Self::read(&task.path()))
    }

    /// `number (name) state parent ...`, with times from the fourteenth field on. The name may have blanks and brackets.
    fn parse(line: &str) -> Option<Self> {
        let (head, rest) = line.rsplit_once(')')?;
        let (id, name) = head.split_once(" (")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            id: id.parse().ok()?,
            name: name.to_owned(),
            parent: u32::try_from(field(1)?).ok()?,
            uninterruptible: fields.first() == Some(&"D"),
            user: field(11)?,
            system: field(12)?,
            children: field(13)? + field(14)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name() {
        let line = "77 (odd) (name) S 42 77 77 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 5\n";
        let wanted = Stat {
            id: 77,
            name: "odd) (name".to_owned(),
            parent: 42,
            uninterruptible: false,
            user: 10,
            system: 20,
            children: 70,
        };
        let waiting = Stat::parse(&line.replace(") S", ") D")).unwrap();
        assert!(waiting.uninterruptible);
        assert_eq!(Stat::parse(line), Some(wanted));
        assert_eq!(Stat::parse("77 (cut) S 42 77"), None);
        assert_eq!(Stat::of(std::process::id()).map(|stat| stat.id), Some(std::process::id()));
    }
}
