//! The whole emulator, with devices. Skipped, and it says so, where this user may not make namespaces or there is no TUN.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
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
