//! Apply and rollback on an invented machine: crashes at every instant, other hands, strange state files.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::check::check;
use crate::knobs::Request;
use crate::machine::{Machine, folder};
use crate::profile::Profile;

/// Some that differ in form: three numbers, a word, one number, a mask, a list, a route.
const CHANGES: [(&str, &str); 6] = [
    ("proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456"),
    ("proc/sys/net/ipv4/tcp_congestion_control", "cubic"),
    ("proc/sys/vm/swappiness", "60"),
    ("sys/class/net/eth0/queues/rx-1/rps_cpus", "0"),
    ("proc/irq/42/smp_affinity_list", "0-7"),
    ("route", "unicast default via 192.0.2.1 dev eth0 table main"),
];

struct Bench {
    machine: Machine,
    state: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let machine = Machine::server();
        for (path, wrong) in CHANGES {
            machine.set(path, wrong);
        }
        let folder = folder();
        Self { machine, state: folder.path().join("tune.state"), _folder: folder }
    }

    fn report(&self) -> Report {
        let mut request = Request::of(Profile::Wan10g);
        request.route = Some("198.51.100.7".to_owned());
        check(&request, &self.machine.host()).unwrap()
    }

    fn apply(&self) -> Vec<Progress> {
        let mut told = Vec::new();
        let all =
            apply(&self.report(), &self.machine.host(), &self.state, &mut |one| told.push(one));
        assert_eq!(all.unwrap(), Applied::All, "{told:?}");
        told
    }

    fn rollback(&self, force: bool) -> (Rollback, Vec<Progress>) {
        let mut told = Vec::new();
        let end = rollback(&self.machine.host(), &self.state, force, &mut |one| told.push(one));
        (end.unwrap(), told)
    }
}

#[test]
fn everything_is_changed_and_comes_back() {
    let bench = Bench::new();
    let before = bench.machine.files();
    assert_eq!(bench.apply().len(), CHANGES.len());
    assert!(bench.report().findings.iter().all(|finding| finding.state != State::Wrong));
    let (end, told) = bench.rollback(false);
    assert_eq!((end, told.len()), (Rollback::Complete, CHANGES.len()));
    assert_eq!(bench.machine.files(), before);
    assert!(!bench.state.exists());
    assert_eq!(bench.rollback(false).0, Rollback::Nothing { restarted: false });
}

/// The stand-in for `ip` looks at the state file at the moment in which it is told to change the route.
#[test]
fn a_change_is_announced_in_the_state_file_before_it_is_made() {
    let bench = Bench::new();
    let look = format!("cp '{}' \"$(dirname \"$0\")/seen\"; shift 3;", bench.state.display());
    let ip = bench.machine.get("ip");
    assert!(ip.contains("shift 3;"));
    bench.machine.set("ip", &ip.replace("shift 3;", &look));
    let told = bench.apply();
    let number = told.iter().position(|one| one.knob == "congctl_route").unwrap();
    let seen = bench.machine.get("seen");
    assert_eq!(seen.lines().last(), Some(format!("{{\"doing\":{number}}}").as_str()), "{seen}");
    for saved in CHANGES {
        assert!(seen.lines().next().unwrap().contains(saved.1), "{saved:?}");
    }
}

/// A crash leaves a prefix of the state file, perhaps with a torn line, and the changes that were made
/// by then: those that are noted, and perhaps the one that is announced last.
#[test]
fn after_a_crash_at_any_instant_rollback_brings_back_everything() {
    let bench = Bench::new();
    let before = bench.machine.files();
    bench.apply();
    let after = bench.machine.files();
    let whole = fs::read_to_string(&bench.state).unwrap();
    let ends: Vec<usize> = whole.match_indices('\n').map(|(place, _)| place + 1).collect();
    assert_eq!(ends.len(), 1 + 2 * CHANGES.len());
    let places: Vec<String> = bench
        .report()
        .findings
        .iter()
        .filter_map(|finding| CHANGES.iter().find(|(path, _)| concerns(finding.knob, path)))
        .map(|(path, _)| (*path).to_owned())
        .collect();
    assert_eq!(places.len(), CHANGES.len());
    // The file appears with its first line whole.
    for lines in 1..=ends.len() {
        let end = ends[lines - 1];
        for torn in [0, 1, 7] {
            let made = (lines - 1).div_ceil(2);
            // Announced but not noted: it may have been made or not.
            let sure = (lines - 1) / 2;
            for made in sure..=made {
                let cut = (end + torn).min(whole.len());
                fs::write(&bench.state, &whole[..cut]).unwrap();
                for (number, place) in places.iter().enumerate() {
                    let from = if number < made { &after } else { &before };
                    bench.machine.set(place, &from[place]);
                }
                assert_ne!(bench.rollback(false).0, Rollback::Partial, "{lines} {torn} {made}");
                assert_eq!(bench.machine.files(), before, "{lines} {torn} {made}");
                assert!(!bench.state.exists());
            }
        }
    }
}

/// Which knob a file of [`CHANGES`] belongs to.
fn concerns(knob: &str, path: &str) -> bool {
    match knob {
        "congctl_route" => path == "route",
        "irq_affinity" => path.starts_with("proc/irq"),
        "rps" => path.ends_with("rps_cpus"),
        _ => path.rsplit('/').next() == Some(knob),
    }
}

#[test]
fn a_rollback_that_crashed_is_taken_up_again() {
    let bench = Bench::new();
    let before = bench.machine.files();
    bench.apply();
    let saved = fs::read(&bench.state).unwrap();
    for (path, wrong) in &CHANGES[3..] {
        bench.machine.set(path, wrong);
    }
    let (end, told) = bench.rollback(false);
    assert_eq!(end, Rollback::Complete);
    assert!(told.iter().any(|one| one.outcome == Outcome::Already), "{told:?}");
    assert_eq!(bench.machine.files(), before);
    // And once more with nothing left to do.
    fs::write(&bench.state, saved).unwrap();
    assert_eq!(bench.rollback(false).0, Rollback::Complete);
    assert_eq!(bench.machine.files(), before);
}

#[test]
fn what_somebody_else_changed_is_told_and_left_until_force() {
    let bench = Bench::new();
    let before = bench.machine.files();
    bench.apply();
    bench.machine.set("proc/sys/vm/swappiness", "33");
    let (end, told) = bench.rollback(false);
    assert_eq!(end, Rollback::Partial);
    let left: Vec<&Progress> =
        told.iter().filter(|one| matches!(one.outcome, Outcome::Changed { .. })).collect();
    assert_eq!(left.len(), 1, "{told:?}");
    assert_eq!(left[0].place, "vm.swappiness");
    assert_eq!(
        left[0].outcome,
        Outcome::Changed { left: "10".into(), now: "33".into(), before: "60".into() }
    );
    assert_eq!(bench.machine.get("proc/sys/vm/swappiness"), "33");
    // Only what was left is taken up again.
    let (end, told) = bench.rollback(true);
    assert_eq!((end, told.len()), (Rollback::Complete, 1));
    assert_eq!(bench.machine.files(), before);
}

#[test]
fn forgetting_leaves_everything_as_it_is() {
    let bench = Bench::new();
    bench.apply();
    let after = bench.machine.files();
    assert!(forget(&bench.machine.host(), &bench.state).unwrap());
    assert!(!forget(&bench.machine.host(), &bench.state).unwrap());
    assert_eq!(bench.machine.files(), after);
}

#[test]
fn a_second_apply_is_refused_until_the_first_is_taken_back() {
    let bench = Bench::new();
    bench.apply();
    bench.machine.set("proc/sys/net/core/somaxconn", "128");
    let told = apply(&bench.report(), &bench.machine.host(), &bench.state, &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(told.contains("wan-10g is applied already") && told.contains("rollback"), "{told}");
    assert_eq!(bench.machine.get("proc/sys/net/core/somaxconn"), "128");
}

#[test]
fn two_at_a_time_are_refused() {
    let bench = Bench::new();
    bench.apply();
    let _held = StateFile::open(&bench.state, &bench.machine.host()).unwrap().unwrap();
    let told = rollback(&bench.machine.host(), &bench.state, false, &mut |_| {});
    assert!(told.unwrap_err().to_string().contains("another `longhaul tune`"));
}

#[test]
fn after_a_restart_of_the_machine_nothing_is_taken_back_and_apply_starts_anew() {
    let bench = Bench::new();
    bench.apply();
    let saved = fs::read(&bench.state).unwrap();
    let after = bench.machine.files();
    bench.machine.set("proc/sys/kernel/random/boot_id", "second\n");
    assert_eq!(bench.rollback(false), (Rollback::Nothing { restarted: true }, Vec::new()));
    bench.machine.set("proc/sys/kernel/random/boot_id", &after["proc/sys/kernel/random/boot_id"]);
    assert_eq!(bench.machine.files(), after);
    fs::write(&bench.state, saved).unwrap();
    bench.machine.set("proc/sys/kernel/random/boot_id", "second\n");
    bench.machine.set("proc/sys/vm/swappiness", "60");
    assert_eq!(bench.apply().len(), 1);
}

#[test]
fn another_network_namespace_is_refused() {
    let bench = Bench::new();
    bench.apply();
    bench.machine.link("proc/self/ns/net", "net:[7]");
    let told = rollback(&bench.machine.host(), &bench.state, false, &mut |_| {}).unwrap_err();
    assert!(told.to_string().contains("another network namespace"), "{told}");
}

/// The namespace may be gone: what it had is gone with it, what the host shares is not.
#[test]
fn what_the_host_shares_comes_back_from_another_network_namespace() {
    let bench = Bench::new();
    let before = bench.machine.files();
    bench.apply();
    let after = bench.machine.files();
    bench.machine.link("proc/self/ns/net", "net:[7]");
    assert_eq!(bench.rollback(true).0, Rollback::Complete);
    for (place, value) in bench.machine.files() {
        let theirs = ["proc/sys/net/", "sys/class/net/", "route"];
        let is_theirs = theirs.iter().any(|start| place.starts_with(start));
        let expected = if is_theirs { &after } else { &before };
        assert_eq!(expected.get(&place), Some(&value), "{place}");
    }
    assert!(!bench.state.exists());
}

#[test]
fn a_state_file_that_names_other_files_is_refused_before_anything_is_written() {
    for (from, to) in [
        ("proc/sys/vm/swappiness", "etc/shadow"),
        ("proc/sys/vm/swappiness", "sys/../etc/shadow"),
        ("proc/sys/vm/swappiness", "/etc/shadow"),
        ("198.51.100.7", "198.51.100.7; reboot"),
        ("\"longhaul_tune\":1", "\"longhaul_tune\":2"),
        ("\"doing\":0", "\"doing\":99"),
        ("\"doing\":0", "\"redoing\":0"),
        ("{\"longhaul_tune\"", "x{\"longhaul_tune\""),
        ("\"value\":\"60\"", "\"value\":\"--help\""),
    ] {
        let bench = Bench::new();
        bench.apply();
        let after = bench.machine.files();
        let text = fs::read_to_string(&bench.state).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(&bench.state, text.replace(from, to)).unwrap();
        let told = rollback(&bench.machine.host(), &bench.state, true, &mut |_| {}).unwrap_err();
        assert!(told.to_string().contains("not a state file of this program"), "{to}: {told}");
        assert_eq!(bench.machine.files(), after);
    }
}

#[test]
fn a_place_that_refuses_is_told_and_the_rest_goes_on() {
    let bench = Bench::new();
    let report = bench.report();
    bench.machine.remove("proc/irq/42/smp_affinity_list");
    let mut told = Vec::new();
    let all = apply(&report, &bench.machine.host(), &bench.state, &mut |one| told.push(one));
    assert_eq!(all.unwrap(), Applied::Part);
    let refused: Vec<&Progress> =
        told.iter().filter(|one| matches!(one.outcome, Outcome::Refused(_))).collect();
    assert_eq!((told.len(), refused.len()), (CHANGES.len(), 1), "{told:?}");
    assert_eq!(refused[0].knob, "irq_affinity");
    assert_eq!(bench.machine.get("proc/sys/vm/swappiness"), "10");
}

#[test]
fn a_value_that_shuts_another_off_is_taken_back_through_the_other() {
    let bench = Bench::new();
    let set = |path, text| bench.machine.set(path, text);
    set("proc/sys/vm/dirty_bytes", "0");
    set("proc/sys/vm/dirty_ratio", "20");
    bench.apply();
    // What the kernel does on its own when bytes are written.
    set("proc/sys/vm/dirty_ratio", "0");
    let (_, told) = bench.rollback(false);
    assert_eq!(bench.machine.get("proc/sys/vm/dirty_ratio"), "20");
    // The kernel sets the bytes to 0 then; this machine does not, and is told of.
    let refused = |one: &&Progress| matches!(one.outcome, Outcome::Refused(_));
    let refused: Vec<&str> = told.iter().filter(refused).map(|one| one.knob.as_str()).collect();
    assert_eq!(refused, ["dirty_bytes"]);
    assert_ne!(bench.machine.get("proc/sys/vm/dirty_bytes"), "0", "a 0 is refused by the kernel");
}

#[test]
fn what_changes_beside_is_brought_back_too() {
    let bench = Bench::new();
    let allowed = "proc/sys/net/ipv4/tcp_allowed_congestion_control";
    bench.machine.set(allowed, "reno cubic");
    bench.apply();
    // A new default is put on the list of those allowed.
    bench.machine.set(allowed, "reno bbr cubic");
    assert_eq!(bench.rollback(false).0, Rollback::Complete);
    assert_eq!(bench.machine.get(allowed), "reno cubic");
}

#[test]
fn where_nothing_is_taken_nothing_is_left_to_roll_back() {
    let bench = Bench::new();
    let report = bench.report();
    for (path, _) in CHANGES {
        bench.machine.remove(path);
    }
    let applied = apply(&report, &bench.machine.host(), &bench.state, &mut |_| {}).unwrap();
    assert_ne!(applied, Applied::All);
    assert_eq!(bench.state.exists(), applied == Applied::Part);
}

#[test]
fn what_is_no_state_file_is_never_removed() {
    let bench = Bench::new();
    let folder = bench.state.parent().unwrap();
    let empty = folder.join("empty");
    fs::write(&empty, "").unwrap();
    let torn = folder.join("torn");
    fs::write(&torn, r#"{"longhaul_tune":1,"#).unwrap();
    let pipe = folder.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [&empty, &torn, &pipe, &folder.to_owned(), &std::path::PathBuf::from("/dev/null")] {
        let told = rollback(&bench.machine.host(), path, true, &mut |_| {});
        assert!(told.is_err(), "{}", path.display());
        assert!(path.exists(), "{}", path.display());
        assert!(forget(&bench.machine.host(), path).is_err() && path.exists());
        assert!(apply(&bench.report(), &bench.machine.host(), path, &mut |_| {}).is_err());
    }
}

#[test]
fn bytes_and_a_link_to_nothing_are_told_to_be_moved_away() {
    let bench = Bench::new();
    let folder = bench.state.parent().unwrap();
    let (bytes, link) = (folder.join("bytes"), folder.join("link"));
    fs::write(&bytes, [0xff, 0xfe, 0]).unwrap();
    std::os::unix::fs::symlink(folder.join("nothing"), &link).unwrap();
    for path in [&bytes, &link] {
        let host = bench.machine.host();
        let told = [
            rollback(&host, path, true, &mut |_| {}).unwrap_err().to_string(),
            apply(&bench.report(), &host, path, &mut |_| {}).unwrap_err().to_string(),
        ];
        assert!(told.iter().all(|told| told.contains("Move it away to go on")), "{told:?}");
    }
    assert!(!folder.join("nothing").exists());
}
