//! The link's arithmetic, on times that are made up.

use std::time::Duration;

use super::*;
use crate::wan::settings::Queue;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn path() -> PathSettings {
    PathSettings { delay: Duration::from_millis(50), ..PathSettings::default() }
}

struct Tested {
    link: Link,
    counts: LinkCounts,
}

impl Tested {
    fn change(&mut self, path: &PathSettings) {
        self.link.change(LinkSettings::outward(path));
    }
}

fn link(path: &PathSettings) -> Tested {
    path.check().unwrap();
    Tested { link: Link::new(LinkSettings::outward(path)), counts: LinkCounts::default() }
}

/// A packet of so many bytes that is not cut.
fn single(bytes: usize) -> Shape {
    Shape::of(&vec![0; bytes + crate::wan::segment::VIRTIO_LEN])
}

fn send(tested: &mut Tested, now: u64, shape: &Shape) -> Vec<Run> {
    let mut runs = Vec::new();
    tested.link.send(now, shape, &mut tested.counts, &mut runs);
    runs
}

#[test]
fn without_a_rate_a_packet_takes_the_delay() {
    let mut link = link(&path());
    assert_eq!(
        send(&mut link, 7, &single(1500)),
        [Run { first: 0, count: 1, due: 50 * MS + 7, late: false }]
    );
}

#[test]
fn a_rate_spaces_packets_by_their_bytes() {
    // 1500 bytes in 12 ms.
    let mut link = link(&PathSettings { rate_bits: Some(1_000_000), ..path() });
    for packet in 1..=5 {
        assert_eq!(send(&mut link, 0, &single(1500))[0].due, 50 * MS + packet * 12 * MS);
    }
    // Idle again, so nothing is saved up.
    assert_eq!(send(&mut link, SECOND, &single(1500))[0].due, SECOND + 62 * MS);
}

#[test]
fn a_rate_is_exact_over_many_packets() {
    let rate = 3_333_333_333;
    let mut link =
        link(&PathSettings { rate_bits: Some(rate), queue: Queue::Bytes(1 << 30), ..path() });
    let packets = 100_000;
    let mut last = 0;
    for _ in 0..packets {
        last = send(&mut link, 0, &single(1501))[0].due;
    }
    let exact = u128::from(packets * 1501_u64) * 8 * u128::from(SECOND) / u128::from(rate);
    assert!((u128::from(last - 50 * MS)).abs_diff(exact) <= 1);
}

#[test]
fn a_full_queue_drops_what_comes_and_nothing_else() {
    let mut link =
        link(&PathSettings { rate_bits: Some(1_000_000), queue: Queue::Bytes(15_000), ..path() });
    let sent: usize = (0..25).map(|_| send(&mut link, 0, &single(1500)).len()).sum();
    assert_eq!((sent, link.counts.queue_dropped), (10, 15));
    // 24 ms later two have left.
    let sent: usize = (0..5).map(|_| send(&mut link, 24 * MS, &single(1500)).len()).sum();
    assert_eq!((sent, link.counts.queue_dropped), (2, 18));
}

#[test]
fn a_link_that_is_down_swallows_everything_until_it_is_up() {
    let mut link = link(&path());
    link.change(&PathSettings { down: true, ..path() });
    assert!(send(&mut link, 0, &single(100)).is_empty());
    link.change(&path());
    assert_eq!(send(&mut link, 0, &single(100)).len(), 1);
    assert_eq!((link.counts.packets, link.counts.down_dropped), (2, 1));
}

#[test]
fn losses_are_counted_and_take_their_time_on_the_link() {
    let path = PathSettings {
        rate_bits: Some(1_000_000_000),
        loss: Loss::Random { share: 0.1 },
        ..path()
    };
    let mut link = link(&path);
    let (mut arrived, mut last) = (0, 0);
    for _ in 0..1_000 {
        for run in send(&mut link, 0, &single(1500)) {
            arrived += 1;
            last = run.due;
        }
    }
    assert_eq!(arrived + link.counts.lost, 1_000);
    assert!((50..150).contains(&link.counts.lost), "{}", link.counts.lost);
    assert!(last > 50 * MS + 990 * 12_000, "losses took no time on the link");
}

#[test]
fn late_packets_are_late_by_what_was_asked_and_hold_up_nobody() {
    let reorder = Some(Reorder { share: 0.05, by: Duration::from_millis(3) });
    let mut link = link(&PathSettings { reorder, ..path() });
    let mut late = 0;
    for now in 0..10_000 {
        let run = send(&mut link, now, &single(1500))[0];
        assert_eq!(run.due, now + 50 * MS + if run.late { 3 * MS } else { 0 });
        late += u64::from(run.late);
    }
    assert_eq!(late, link.counts.reordered);
    assert!((350..650).contains(&late), "{late}");
}

#[test]
fn jitter_stays_in_its_range_in_order_and_half_of_it_on_average() {
    let mut link = link(&PathSettings { jitter: Duration::from_millis(4), ..path() });
    let (mut before, mut sum, mut least, mut most) = (0, 0, u64::MAX, 0);
    let packets = 200_000;
    for packet in 0..packets {
        let now = packet * 100_000;
        let due = send(&mut link, now, &single(1500))[0].due;
        assert!(due >= before, "out of order");
        before = due;
        let extra = due - now - 50 * MS;
        (sum, least, most) = (sum + extra, least.min(extra), most.max(extra));
    }
    let mean = sum / packets;
    assert!((1_800_000..2_200_000).contains(&mean), "{mean}");
    assert!(least < MS / 10 && most > 39 * MS / 10 && most <= 4 * MS, "{least} to {most}");
}

#[test]
fn a_shorter_delay_does_not_turn_the_order() {
    let mut link = link(&path());
    let before = send(&mut link, 0, &single(1500))[0].due;
    link.change(&PathSettings { delay: Duration::from_millis(1), ..path() });
    assert!(send(&mut link, MS, &single(1500))[0].due >= before);
    assert_eq!(send(&mut link, SECOND, &single(1500))[0].due, SECOND + MS);
}

#[test]
fn a_change_of_something_else_leaves_the_draws_as_they_were() {
    let path = PathSettings { loss: Loss::Random { share: 0.2 }, ..path() };
    let arrivals = |change: bool| {
        let mut link = link(&path);
        (0..1_000)
            .map(|packet| {
                if change && packet == 500 {
                    let slower = PathSettings { delay: Duration::from_millis(80), ..path.clone() };
                    link.change(&slower);
                }
                send(&mut link, packet, &single(1500)).len()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(arrivals(false), arrivals(true));
}
