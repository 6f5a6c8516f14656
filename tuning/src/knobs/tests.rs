//! Every knob on invented machines: right, wrong, not there, and not understood; and what is computed.

use super::*;
use crate::apply::{self, Rollback};
use crate::check::{Finding, State, check};
use crate::machine::{Machine, folder};
use crate::path::{Rate, Rtt};

/// A knob, one of its files on [`Machine::server`] (which has it right), a wrong value, what it becomes,
/// and something that no kernel writes.
struct Case {
    knob: &'static str,
    profile: Profile,
    file: &'static str,
    wrong: &'static str,
    becomes: &'static str,
    garbage: &'static str,
}

const fn case(
    knob: &'static str,
    file: &'static str,
    wrong: &'static str,
    becomes: &'static str,
    garbage: &'static str,
) -> Case {
    Case { knob, profile: Profile::Wan10g, file, wrong, becomes, garbage }
}

const fn low_delay(mut case: Case) -> Case {
    case.profile = Profile::Latency;
    case
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    case("tcp_rmem", "proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456", "4096 131072 94371840", "4096 131072"),
    case("tcp_wmem", "proc/sys/net/ipv4/tcp_wmem", "8192 16384 4194304", "8192 16384 94371840", "lots"),
    case("tcp_mem", "proc/sys/net/ipv4/tcp_mem", "100 2000000 300", "491520 2000000 983040", "1 2 3 4"),
    case("tcp_congestion_control", "proc/sys/net/ipv4/tcp_congestion_control", "cubic", "bbr", "cubic bbr"),
    case("tcp_slow_start_after_idle", "proc/sys/net/ipv4/tcp_slow_start_after_idle", "1", "0", "on"),
    case("tcp_mtu_probing", "proc/sys/net/ipv4/tcp_mtu_probing", "0", "1", "-1"),
    case("tcp_no_metrics_save", "proc/sys/net/ipv4/tcp_no_metrics_save", "0", "1", ""),
    case("rmem_max", "proc/sys/net/core/rmem_max", "212992", "94371840", "212992k"),
    case("wmem_max", "proc/sys/net/core/wmem_max", "212992", "94371840", "1e9"),
    case("netdev_max_backlog", "proc/sys/net/core/netdev_max_backlog", "1000", "6666", "many"),
    case("default_qdisc", "proc/sys/net/core/default_qdisc", "pfifo_fast", "fq", "two words"),
    case("somaxconn", "proc/sys/net/core/somaxconn", "128", "4096", "128 128"),
    low_delay(case("busy_read", "proc/sys/net/core/busy_read", "0", "50", "yes")),
    low_delay(case("busy_poll", "proc/sys/net/core/busy_poll", "0", "50", "0x32")),
    case("irq_affinity", "proc/irq/42/smp_affinity_list", "0-7", "2", "all"),
    case("rps", "sys/class/net/eth0/queues/rx-1/rps_cpus", "0", "f", "ghi"),
    case("xps", "sys/class/net/eth0/queues/tx-3/xps_cpus", "ff", "88", "0-7"),
    case("max_map_count", "proc/sys/vm/max_map_count", "65530", "262144", "65530,"),
    case("dirty_bytes", "proc/sys/vm/dirty_bytes", "9999998976", "4999999488", "20%"),
    case("dirty_background_bytes", "proc/sys/vm/dirty_background_bytes", "8192", "1249996800", "10%"),
    case("swappiness", "proc/sys/vm/swappiness", "60", "10", "low"),
    case("transparent_hugepage", "sys/kernel/mm/transparent_hugepage/defrag", "[always] never", "madvise", "always never"),
    case("governor", "sys/devices/system/cpu/cpu5/cpufreq/scaling_governor", "powersave", "performance", "a b"),
    low_delay(case("cstates", "sys/devices/system/cpu/cpu7/cpuidle/state2/disable", "0", "1", "off")),
    case("io_scheduler", "sys/block/nvme0n1/queue/scheduler", "none [mq-deadline]", "none", "none mq-deadline"),
    case("read_ahead_kb", "sys/block/nvme0n1/queue/read_ahead_kb", "128", "4096", "128 kB"),
];

/// These have no file of their own: they have tests of their own below.
const OTHERS: [&str; 3] = ["congctl_route", "memlock", "nofile"];

fn request(profile: Profile, knob: &str) -> Request {
    let mut request = Request::of(profile);
    request.data_dir = Some("/srv/longhaul".into());
    request.route = Some("198.51.100.7".to_owned());
    request.only = vec![knob.to_owned()];
    request
}

fn found(machine: &Machine, request: &Request) -> Finding {
    check(request, &machine.host()).unwrap().findings.remove(0)
}

#[test]
fn each_knob_is_in_the_table_and_in_some_profile() {
    let mut names: Vec<&str> = CASES.iter().map(|case| case.knob).chain(OTHERS).collect();
    let mut all: Vec<&str> = ALL.iter().map(|knob| knob.name).collect();
    names.sort_unstable();
    all.sort_unstable();
    assert_eq!(names, all);
    for knob in ALL {
        assert!(Profile::ALL.iter().any(|profile| knob.is_in(*profile)), "{}", knob.name);
    }
}

#[test]
fn a_knob_that_is_right_is_well_and_nothing_is_written() {
    let machine = Machine::server();
    let before = machine.files();
    for case in CASES {
        let request = request(case.profile, case.knob);
        let finding = found(&machine, &request);
        assert_eq!(finding.state, State::Good, "{}: {finding:?}", case.knob);
        let report = check(&request, &machine.host()).unwrap();
        assert!(report.well);
        let folder = folder();
        let state = folder.path().join("tune.state");
        assert_eq!(
            apply::apply(&report, &machine.host(), &state, &mut |_| {}).unwrap(),
            apply::Applied::All
        );
    }
    assert_eq!(machine.files(), before);
}

#[test]
fn a_knob_that_is_wrong_is_changed_to_what_is_wanted_and_back() {
    for case in CASES {
        let machine = Machine::server();
        machine.set(case.file, case.wrong);
        let report = check(&request(case.profile, case.knob), &machine.host()).unwrap();
        let finding = &report.findings[0];
        assert_eq!(finding.state, State::Wrong, "{}: {finding:?}", case.knob);
        assert!(!report.well, "{}", case.knob);
        let folder = folder();
        let state = folder.path().join("tune.state");
        let mut told = Vec::new();
        let applied =
            apply::apply(&report, &machine.host(), &state, &mut |one| told.push(one)).unwrap();
        assert_eq!(applied, apply::Applied::All, "{told:?}");
        assert_eq!(machine.get(case.file), case.becomes, "{}", case.knob);
        let again = found(&machine, &request(case.profile, case.knob));
        assert_eq!(again.state, State::Good, "{}: {again:?}", case.knob);
        let back = apply::rollback(&machine.host(), &state, false, &mut |_| {}).unwrap();
        assert_eq!(back, Rollback::Complete, "{}", case.knob);
        // A choice is written as a word and shown in brackets by a kernel, which this machine has not.
        let word = case.wrong.split(['[', ']']).nth(1).unwrap_or(case.wrong);
        assert_eq!(machine.get(case.file), word, "{}", case.knob);
    }
}

#[test]
fn a_knob_that_is_not_there_is_absent_with_a_reason_and_does_not_count() {
    for case in CASES {
        let machine = Machine::server();
        let siblings: Vec<String> =
            machine.files().into_keys().filter(|path| is_like(path, case.file)).collect();
        for path in siblings {
            machine.remove(&path);
        }
        let report = check(&request(case.profile, case.knob), &machine.host()).unwrap();
        let finding = &report.findings[0];
        assert!(
            matches!(&finding.state, State::Absent(reason) if !reason.is_empty()),
            "{}: {finding:?}",
            case.knob
        );
        assert!(report.well, "{}", case.knob);
    }
}

/// Whether two files differ in numbers only, or in the last name of the huge pages' folder.
fn is_like(path: &str, file: &str) -> bool {
    let plain = |text: &str| text.replace(|letter: char| letter.is_ascii_digit(), "");
    let folder = "sys/kernel/mm/transparent_hugepage/";
    plain(path) == plain(file) || (path.starts_with(folder) && file.starts_with(folder))
}

#[test]
fn what_is_not_understood_is_told_and_never_written() {
    for case in CASES {
        let machine = Machine::server();
        machine.set(case.file, case.garbage);
        let report = check(&request(case.profile, case.knob), &machine.host()).unwrap();
        let finding = &report.findings[0];
        let told = finding.state.reason().unwrap_or_default();
        assert!(matches!(finding.state, State::Strange(_)), "{}: {finding:?}", case.knob);
        assert!(told.contains("left alone"), "{}: {told}", case.knob);
        assert!(!report.well, "{}", case.knob);
        let folder = folder();
        let state = folder.path().join("tune.state");
        assert_eq!(
            apply::apply(&report, &machine.host(), &state, &mut |_| {}).unwrap(),
            apply::Applied::All
        );
        assert_eq!(machine.get(case.file), case.garbage, "{}", case.knob);
    }
}

#[test]
fn a_route_is_changed_to_the_wanted_congestion_control_and_back() {
    let machine = Machine::server();
    let asked = request(Profile::Wan10g, "congctl_route");
    assert_eq!(found(&machine, &asked).state, State::Good);
    let before = "unicast default via 192.0.2.1 dev eth0 table main mtu 1400";
    machine.set("route", before);
    let report = check(&asked, &machine.host()).unwrap();
    assert_eq!(report.findings[0].state, State::Wrong);
    let folder = folder();
    let state = folder.path().join("tune.state");
    assert_eq!(
        apply::apply(&report, &machine.host(), &state, &mut |_| {}).unwrap(),
        apply::Applied::All
    );
    assert_eq!(machine.get("route").trim(), format!("{before} congctl bbr"));
    apply::rollback(&machine.host(), &state, false, &mut |_| {}).unwrap();
    assert_eq!(machine.get("route").trim(), before);
    machine.set("route", "default nexthop via 192.0.2.1 dev a nexthop via 192.0.2.2 dev b");
    assert!(matches!(found(&machine, &asked).state, State::Strange(_)));
    machine.set("route", "");
    let absent = found(&machine, &asked).state;
    assert!(absent.reason().unwrap().contains("unreachable"), "{absent:?}");
    let mut unasked = asked;
    unasked.route = None;
    let absent = found(&machine, &unasked).state;
    assert!(absent.reason().unwrap().contains("--route"), "{absent:?}");
}

#[test]
fn limits_are_judged_by_the_hard_one_and_sent_to_who_can_set_them() {
    for (knob, line) in [("nofile", "Max open files"), ("memlock", "Max locked memory")] {
        let machine = Machine::server();
        let asked = request(Profile::Wan10g, knob);
        assert_eq!(found(&machine, &asked).state, State::Good, "{knob}");
        machine.set("proc/self/limits", &format!("{line}   1024    4096     units\n"));
        let low = found(&machine, &asked);
        assert!(
            matches!(&low.state, State::Fixed(reason) if reason.contains("systemd")),
            "{low:?}"
        );
        assert_eq!(low.readings[0].value.as_deref(), Some("4096"));
        machine.set("proc/self/limits", &format!("{line}   1024    unlimited     units\n"));
        assert_eq!(found(&machine, &asked).state, State::Good, "{knob}");
        machine.set("proc/self/limits", "nothing of use");
        assert!(matches!(found(&machine, &asked).state, State::Strange(_)), "{knob}");
        machine.remove("proc/self/limits");
        assert!(matches!(found(&machine, &asked).state, State::Absent(_)), "{knob}");
    }
}

#[test]
fn buffers_of_all_lanes_together_stay_below_what_tcp_may_hold() {
    let machine = Machine::server();
    for gibibytes in [1_u64, 4, 24, 64, 256] {
        machine.set("proc/meminfo", &format!("MemTotal: {} kB\n", gibibytes << 20));
        machine.set("proc/sys/net/ipv4/tcp_mem", "1 2 3");
        machine.set("proc/sys/net/ipv4/tcp_rmem", "1 2 3");
        for (gigabits, lanes) in [(1, 1), (1, 4), (10, 16), (100, 64), (400, 1000)] {
            let mut asked = request(Profile::Wan10g, "tcp_rmem");
            asked.only.push("tcp_mem".to_owned());
            asked.path = Path { rate: Rate::gigabits(gigabits), rtt: Rtt::micros(200_000), lanes };
            let report = check(&asked, &machine.host()).unwrap();
            let target = |place: usize| report.findings[place].readings[0].change().unwrap().1;
            let wanted = last(target(0));
            let low: u64 = target(1).split(' ').next().unwrap().parse().unwrap();
            let sum = wanted * u64::from(lanes);
            let tight = wanted == 1 << 20;
            assert!(sum <= low * 4096 || tight, "{gibibytes} GiB, {gigabits} G, {lanes}: {sum}");
            assert!(low * 4096 <= (gibibytes << 30) / 8, "{gibibytes} GiB, {gigabits} G, {lanes}");
        }
    }
}

fn last(numbers: &str) -> u64 {
    numbers.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_path_that_memory_or_lanes_cannot_fill_is_told() {
    let machine = Machine::server();
    machine.set("proc/meminfo", "MemTotal: 4194304 kB\n");
    machine.set("proc/sys/net/ipv4/tcp_mem", "1 2 3");
    machine.set("proc/sys/net/ipv4/tcp_rmem", "1 2 3");
    let mut asked = request(Profile::Wan100g, "tcp_rmem");
    asked.only.push("tcp_mem".to_owned());
    let told = found(&machine, &asked).readings[0].formula.clone();
    assert!(told.contains("64 of these stay below tcp_mem"), "{told}");
    assert!(told.contains("the host needs more memory"), "{told}");
    machine.set("proc/meminfo", "MemTotal: 1073741824 kB\n");
    asked.path.lanes = 1;
    let told = found(&machine, &asked).readings[0].formula.clone();
    assert!(told.contains("use more lanes"), "{told}");
}

#[test]
fn buffers_stay_below_tcp_mem_as_it_is_when_it_is_not_to_be_raised() {
    let machine = Machine::server();
    machine.set("proc/sys/net/ipv4/tcp_rmem", "1 2 3");
    // 64 MiB, of which 16 lanes may take three quarters.
    machine.set("proc/sys/net/ipv4/tcp_mem", "16384 20000 30000");
    let finding = found(&machine, &request(Profile::Wan10g, "tcp_rmem"));
    assert_eq!(last(finding.readings[0].change().unwrap().1), 3 << 20);
}

#[test]
fn in_a_child_namespace_what_is_the_hosts_is_absent_or_fixed() {
    use std::os::unix::fs::PermissionsExt as _;
    let machine = Machine::server();
    for path in ["net/core/netdev_max_backlog", "net/ipv4/tcp_mem"] {
        machine.remove(&format!("proc/sys/{path}"));
    }
    machine.set("proc/sys/net/core/rmem_max", "212992");
    let rmem_max = machine.path().join("proc/sys/net/core/rmem_max");
    std::fs::set_permissions(rmem_max, std::fs::Permissions::from_mode(0o444)).unwrap();
    machine.set("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno cubic");
    machine.set("proc/sys/net/ipv4/tcp_congestion_control", "cubic");
    let state = |knob| found(&machine, &request(Profile::Wan10g, knob)).state;
    for knob in ["tcp_mem", "netdev_max_backlog"] {
        let absent = state(knob);
        assert!(
            matches!(&absent, State::Absent(reason) if reason.contains("namespace")),
            "{absent:?}"
        );
    }
    let fixed = state("rmem_max");
    assert!(matches!(&fixed, State::Fixed(reason) if reason.contains("namespace")), "{fixed:?}");
    let fixed = state("tcp_congestion_control");
    assert!(matches!(&fixed, State::Fixed(reason) if reason.contains("--route")), "{fixed:?}");
    // The buffers are bounded by what the kernel takes by default.
    assert_eq!(state("tcp_rmem"), State::Good);
}

#[test]
fn a_kernel_without_bbr_gets_cubic_and_one_without_fq_is_left() {
    let machine = Machine::server();
    machine.set("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic");
    machine.set("proc/sys/net/ipv4/tcp_congestion_control", "reno");
    let finding = found(&machine, &request(Profile::Wan10g, "tcp_congestion_control"));
    assert_eq!(finding.readings[0].change(), Some(("reno", "cubic")));
    machine.set("lib/modules/6.12.0/modules.dep", "kernel/net/ipv4/tcp_bbr.ko.zst:\n");
    let finding = found(&machine, &request(Profile::Wan10g, "tcp_congestion_control"));
    assert_eq!(finding.readings[0].change(), Some(("reno", "bbr")));
    machine.remove("sys/module/sch_fq");
    let finding = found(&machine, &request(Profile::Wan10g, "default_qdisc"));
    assert!(finding.state.reason().unwrap().contains("CONFIG_NET_SCH_FQ"), "{finding:?}");
}

#[test]
fn interrupts_and_packets_keep_off_the_nodes_cores() {
    let machine = Machine::server();
    let wanted = |cores: Option<&str>, knob| {
        let mut asked = request(Profile::Wan10g, knob);
        asked.cores = cores.map(|cores| cores.parse().unwrap());
        let readings = found(&machine, &asked).readings;
        readings.into_iter().map(|reading| reading.wanted).collect::<Vec<_>>()
    };
    // Near processors first, then any other, then the node's own.
    assert_eq!(wanted(None, "irq_affinity"), ["0", "1", "2", "3"]);
    assert_eq!(wanted(Some("0-1"), "irq_affinity"), ["2", "3", "2", "3"]);
    assert_eq!(wanted(Some("0-3"), "irq_affinity"), ["4", "5", "6", "7"]);
    assert_eq!(wanted(Some("0-7"), "irq_affinity"), ["0", "1", "2", "3"]);
    assert_eq!(wanted(Some("0-1"), "rps"), ["c"; 4]);
}

#[test]
fn one_queue_may_be_answered_anywhere_and_as_many_as_processors_need_no_help() {
    let machine = Machine::server();
    machine.set(
        "proc/interrupts",
        " 40: 1 1 PCI-MSIX virtio2-input.0\n 41: 1 1 PCI virtio2-output.0\n",
    );
    machine.set("proc/irq/40/smp_affinity_list", "0-3");
    machine.set("proc/irq/41/smp_affinity_list", "2");
    assert_eq!(found(&machine, &request(Profile::Wan10g, "irq_affinity")).state, State::Good);
    machine.set("sys/devices/system/cpu/online", "0-3");
    let finding = found(&machine, &request(Profile::Wan10g, "rps"));
    assert_eq!(finding.readings[0].change(), Some(("f", "0")));
}

#[test]
fn an_interface_without_interrupts_or_a_host_without_a_route_is_told() {
    let machine = Machine::server();
    machine.set("sys/class/net/tun0/queues/rx-0/rps_cpus", "0");
    machine.set("sys/class/net/tun0/queues/tx-0/xps_cpus", "0");
    let mut asked = request(Profile::Wan10g, "irq_affinity");
    asked.interface = Some("tun0".to_owned());
    assert!(found(&machine, &asked).state.reason().unwrap().contains("virtual"));
    asked.only = vec!["xps".to_owned()];
    assert!(found(&machine, &asked).state.reason().unwrap().contains("one transmit queue"));
    machine.remove("proc/net/route");
    asked.interface = None;
    assert!(found(&machine, &asked).state.reason().unwrap().contains("--interface"));
}

#[test]
fn a_disk_is_found_through_partitions_and_volumes() {
    let machine = Machine::server();
    // A volume over two spinning disks, mounted below the other file system.
    let mounts =
        machine.get("proc/self/mountinfo") + "29 28 253:0 / /srv/longhaul rw - xfs /dev/dm-0 rw\n";
    machine.set("proc/self/mountinfo", &mounts);
    machine.link("sys/dev/block/253:0", "../../devices/virtual/block/dm-0");
    machine.set("sys/block/dm-0/queue/read_ahead_kb", "128");
    for disk in ["sda", "sdb"] {
        machine.set(&format!("sys/block/dm-0/slaves/{disk}/dev"), "");
        machine.set(&format!("sys/block/{disk}/queue/scheduler"), "[none] mq-deadline");
        machine.set(&format!("sys/block/{disk}/queue/rotational"), "1\n");
    }
    let finding = found(&machine, &request(Profile::Wan10g, "io_scheduler"));
    let places: Vec<&str> = finding.readings.iter().map(|reading| reading.place.as_str()).collect();
    assert_eq!(places, ["/sys/block/sda/queue/scheduler", "/sys/block/sdb/queue/scheduler"]);
    assert_eq!(finding.readings[0].change(), Some(("none", "mq-deadline")));
    let finding = found(&machine, &request(Profile::Wan10g, "read_ahead_kb"));
    assert_eq!(finding.readings[0].place, "/sys/block/dm-0/queue/read_ahead_kb");
    // Memory is no block device; neither is what was not named.
    machine.set("proc/self/mountinfo", "27 1 0:25 / / rw - tmpfs none rw\n");
    let mut asked = request(Profile::Wan10g, "io_scheduler");
    assert!(found(&machine, &asked).state.reason().unwrap().contains("no block device"));
    asked.data_dir = None;
    assert!(found(&machine, &asked).state.reason().unwrap().contains("--data-dir"));
}

#[test]
fn only_deep_sleep_is_switched_off_and_no_deep_states_are_well() {
    let machine = Machine::server();
    for cpu in 0..8 {
        machine.remove(&format!("sys/devices/system/cpu/cpu{cpu}/cpuidle/state2"));
    }
    let finding = found(&machine, &request(Profile::Latency, "cstates"));
    assert_eq!((finding.state, finding.readings.len()), (State::Good, 0));
}

#[test]
fn requests_that_the_host_cannot_have_are_refused_with_what_there_is() {
    let machine = Machine::server();
    let refused = |change: &dyn Fn(&mut Request)| {
        let mut asked = Request::of(Profile::Wan10g);
        change(&mut asked);
        check(&asked, &machine.host()).unwrap_err().to_string()
    };
    for (told, needles) in [
        (refused(&|asked| asked.interface = Some("eth7".to_owned())), ["eth7", "there are eth0"]),
        (refused(&|asked| asked.data_dir = Some("/none".into())), ["/none", "data directory"]),
        (refused(&|asked| asked.cores = Some("6-9".parse().unwrap())), ["6-9", "0-7"]),
        (refused(&|asked| asked.route = Some("west".to_owned())), ["west", "192.0.2.7"]),
        (refused(&|asked| asked.path.lanes = 0), ["0 lanes", "1 to 4096"]),
        (refused(&|asked| asked.only = vec!["tcp_rmen".to_owned()]), ["tcp_rmen", "tcp_rmem"]),
        (refused(&|asked| asked.only = vec!["busy_pol".to_owned()]), ["busy_pol", "wan-10g"]),
        (refused(&|asked| asked.only = vec!["nope".to_owned()]), ["wan-10g. `", "list wan-10g"]),
    ] {
        for needle in needles {
            assert!(told.contains(needle), "{needle:?} not in {told:?}");
        }
    }
}

#[test]
fn the_page_has_a_section_for_each_knob_with_all_its_parts() {
    let page = include_str!("../../../docs/tuning.md");
    let sections: Vec<(&str, &str)> = page
        .split("\n### ")
        .skip(1)
        .map(|section| section.split_once('\n').unwrap())
        .map(|(name, text)| (name.trim_matches('`'), text.split("\n## ").next().unwrap()))
        .collect();
    let named: Vec<&str> = sections.iter().map(|(name, _)| *name).collect();
    let knobs: Vec<&str> = ALL.iter().map(|knob| knob.name).collect();
    assert_eq!(named, knobs, "the sections and the knobs, in order");
    for (name, text) in sections {
        for part in ["**Does.**", "**Wanted.**", "**Source.**", "**Harms.**"] {
            assert!(text.contains(part), "{name} lacks {part}");
        }
    }
    for profile in Profile::ALL {
        assert!(page.contains(&format!("`{profile}`")), "{profile}");
    }
}
