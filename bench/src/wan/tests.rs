//! The whole emulator, with devices. Skipped, and it says so, where this user may not make namespaces or there is no TUN.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::*;

/// The path, or `None` with a sentence on standard error.
fn open(settings: &PathSettings) -> Option<WanPath> {
    match WanPath::open(settings) {
        Ok(path) => Some(path),
        Err(error @ (WanError::Namespaces(_) | WanError::Tun(_))) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED, not tested: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn fast() -> PathSettings {
    PathSettings {
        delay: Duration::from_millis(2),
        rate_bits: Some(1_000_000_000),
        ..PathSettings::default()
    }
}

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|place| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn listen(path: &WanPath, side: Side, address: IpAddr) -> (TcpListener, SocketAddr) {
    let listener = path.enter(side, || TcpListener::bind((address, 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Sends from the source to the destination; what arrived.
fn transfer(path: &WanPath, to: IpAddr, bytes: &[u8]) -> Vec<u8> {
    let (listener, address) = listen(path, Side::Destination, to);
    let mut sender = path.enter(Side::Source, || TcpStream::connect(address).unwrap()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sender.write_all(bytes).unwrap();
        });
        let mut arrived = Vec::new();
        let (mut receiver, _) = listener.accept().unwrap();
        receiver.read_to_end(&mut arrived).unwrap();
        arrived
    })
}

#[test]
fn bytes_arrive_as_they_were_through_loss_and_reordering() {
    let settings = PathSettings {
        loss: Loss::Burst { share: 0.01, mean_length: 3.0 },
        return_loss: Loss::Random { share: 0.01 },
        reorder: Some(Reorder { share: 0.01, by: Duration::from_millis(1) }),
        ..fast()
    };
    let Some(path) = open(&settings) else { return };
    let bytes = pattern(20 << 20);
    for to in [path.address(Side::Destination), path.address_v6(Side::Destination)] {
        path.restart_counts().unwrap();
        assert!(transfer(&path, to, &bytes) == bytes, "other bytes arrived over {to}");
        let report = path.report().unwrap();
        let data = &report.source_to_destination;
        assert!(data.counts.packets > (20 << 20) / 1_448, "{report}");
        assert!(data.counts.lost > 0 && data.counts.reordered > 0 && data.cuts > 0, "{report}");
    }
}

#[test]
fn a_round_trip_takes_no_less_than_it_should() {
    let settings = PathSettings { delay: Duration::from_millis(20), ..fast() };
    let Some(path) = open(&settings) else { return };
    let (_listener, address) = listen(&path, Side::Destination, path.address(Side::Destination));
    let connect = || {
        let begin = Instant::now();
        TcpStream::connect(address).unwrap();
        begin.elapsed()
    };
    assert!(path.enter(Side::Source, connect).unwrap() >= Duration::from_millis(40));
    path.change(&PathSettings { delay: Duration::from_millis(60), ..fast() }).unwrap();
    assert!(path.enter(Side::Source, connect).unwrap() >= Duration::from_millis(120));
}

/// A socket on each side; what is sent on the first goes to the second.
fn datagrams(path: &WanPath) -> (UdpSocket, UdpSocket) {
    let bind = |side| {
        let address = path.address(side);
        path.enter(side, || UdpSocket::bind((address, 0)).unwrap()).unwrap()
    };
    let (sender, receiver) = (bind(Side::Source), bind(Side::Destination));
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    (sender, receiver)
}

fn outward(path: &WanPath) -> LinkCounts {
    path.report().unwrap().source_to_destination.counts
}

/// Waits until the path has decided about `packets` of them; what it decided.
fn decided(path: &WanPath, packets: u64) -> LinkCounts {
    loop {
        let counts = outward(path);
        if counts.packets >= packets {
            return counts;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Numbers of the datagrams that arrive of `count` sent one after the other.
fn arrivals(settings: &PathSettings, count: u32) -> Option<Vec<u32>> {
    // Few enough for the receiving socket's buffer.
    const AT_A_TIME: u32 = 50;
    let path = open(settings)?;
    let (sender, receiver) = datagrams(&path);
    let mut arrived = Vec::new();
    for first in (0..count).step_by(AT_A_TIME as usize) {
        for number in first..first + AT_A_TIME {
            sender.send(&number.to_be_bytes()).unwrap();
        }
        let sent = u64::from(first + AT_A_TIME);
        let lost = decided(&path, sent).lost;
        while (arrived.len() as u64) < sent - lost {
            let mut number = [0; 4];
            receiver.recv(&mut number).unwrap();
            arrived.push(u32::from_be_bytes(number));
        }
    }
    assert_eq!(outward(&path).lost + arrived.len() as u64, u64::from(count));
    Some(arrived)
}

#[test]
fn the_same_seed_loses_the_same_packets() {
    let settings = PathSettings {
        loss: Loss::Random { share: 0.05 },
        delay: Duration::from_millis(1),
        ..fast()
    };
    let Some(arrived) = arrivals(&settings, 2_000) else { return };
    assert!((1_800..2_000).contains(&arrived.len()), "{}", arrived.len());
    assert!(arrived.is_sorted(), "packets changed places");
    assert_eq!(Some(&arrived), arrivals(&settings, 2_000).as_ref());
    assert_ne!(Some(arrived), arrivals(&PathSettings { seed: 2, ..settings }, 2_000));
}

#[test]
fn late_packets_change_places() {
    let reorder = Some(Reorder { share: 0.1, by: Duration::from_millis(20) });
    let Some(arrived) = arrivals(&PathSettings { reorder, ..fast() }, 200) else { return };
    assert!(!arrived.is_sorted());
    let mut sorted = arrived.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..200), "not each of them once");
}

#[test]
fn a_path_can_be_cut_and_mended_while_it_is_used() {
    let Some(path) = open(&fast()) else { return };
    let (sender, receiver) = datagrams(&path);
    path.change(&PathSettings { down: true, ..fast() }).unwrap();
    // The lanes take a change up at once, but not before it was made.
    while outward(&path).down_dropped == 0 {
        sender.send(b"down").unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    path.change(&fast()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let mut bytes = [0; 4];
    loop {
        sender.send(b"up").unwrap();
        if let Ok(len) = receiver.recv(&mut bytes)
            && bytes[..len] == *b"up"
        {
            return;
        }
    }
}

#[test]
fn a_congestion_control_that_is_not_there_is_named_with_those_that_are() {
    if open(&fast()).is_none() {
        return;
    }
    let settings = PathSettings { congestion: Some("carrier-pigeon".to_owned()), ..fast() };
    let said = WanPath::open(&settings).unwrap_err().to_string();
    assert!(said.contains("carrier-pigeon") && said.contains("reno"), "{said}");
}

#[test]
fn closing_the_path_ends_what_runs_in_it() {
    let Some(path) = open(&fast()) else { return };
    let mut command = path.command(Side::Destination, "/bin/sh");
    // The second sleep is nobody's child once the shell is gone.
    let mut shell =
        command.args(["-c", "sleep 1000 & echo $!; wait"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(shell.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    let sleep: u32 = line.trim().parse().unwrap();
    // Ended, or ended and not yet collected by its parent.
    let runs = || {
        std::fs::read_to_string(format!("/proc/{sleep}/stat"))
            .is_ok_and(|line| !line.contains(") Z "))
    };
    assert!(runs());
    drop(path);
    assert!(!shell.wait().unwrap().success());
    assert!(!runs());
}

#[test]
fn two_namespaces_are_joined_by_a_pair_of_devices() {
    if open(&fast()).is_none() {
        return;
    }
    let (here, there) =
        (namespace::Namespace::create().unwrap(), namespace::Namespace::create().unwrap());
    let made = here.run(|| {
        let netlink = netlink::Netlink::open()?;
        netlink.add_pair(sys::DEVICE, &there.descriptor)?;
        let device = netlink.device(sys::DEVICE)?;
        netlink.set_segments_max(device, 1)?;
        netlink.up(device, Some(1_400), None)
    });
    made.unwrap().unwrap();
    assert!(there.run(|| netlink::Netlink::open()?.device(sys::DEVICE)).unwrap().is_ok());
}

#[test]
fn netem_is_used_where_it_was_asked_for_and_missed_with_a_sentence() {
    let settings = PathSettings { backend: BackendChoice::Netem, ..fast() };
    match WanPath::open(&settings) {
        Ok(path) => {
            let bytes = pattern(1 << 20);
            assert!(transfer(&path, path.address(Side::Destination), &bytes) == bytes);
            assert_eq!(path.report().unwrap().lateness, None);
        }
        Err(WanError::NoNetem | WanError::Namespaces(_)) => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED, not tested: netem, which this kernel does not have"
            );
        }
        Err(error) => panic!("{error}"),
    }
}
