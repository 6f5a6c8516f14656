//! Advice for the source's hosts: they send, so they choose congestion control and send buffers.
//!
//! Text for somebody else's machines, computed from the path alone; nothing here is read or changed.

use crate::knobs::human;
use crate::path::{Path, Rate};

/// A stock broker's `socket.send.buffer.bytes`.
const STOCK_SEND_BYTES: u64 = 102_400;
/// The kernel doubles what a program asks for, and about half of that is payload; what was measured with
/// a stock broker is about two and a half times the buffer in one round trip.
const STOCK_WINDOWS: f64 = 2.5;

/// The advice for a path.
#[must_use]
pub fn advice(path: &Path) -> String {
    let bdp = human(path.bdp_bytes());
    let buffer = path.lane_buffer_bytes();
    let stock = STOCK_SEND_BYTES as f64 * STOCK_WINDOWS / path.rtt.time().as_secs_f64();
    let full = path.rate.bits() as f64 / 8.0;
    let needed = (full / stock).ceil().max(1.0);
    let pacing = if path.rate > Rate::gigabits(1) {
        "# Paces each connection; without it BBR paces by timers of its own.\n"
    } else {
        ""
    };
    let stock_text = if needed <= 1.0 {
        "one connection fills the path".to_owned()
    } else {
        format!("{needed:.0} connections are needed to fill the path")
    };
    format!(
        "\
# Advice for the source's hosts: {rate}, {rtt}, {lanes} lanes; {bdp} under way when the path is full.
# They send, so they choose congestion control and send buffers; the node's host cannot do it for them.

# 1. Brokers: server.properties. Needs a restart, one broker after the other.
# The stock value, 102400 bytes, holds a connection to about {stock:.1} MB/s at {rtt}:
# {stock_text}.
# With -1 the kernel sizes the buffer itself, up to tcp_wmem below. A large fixed number is worse: it is cut
# to net.core.wmem_max in silence, and is held for every connection.
socket.send.buffer.bytes=-1

# 2. Hosts: /etc/sysctl.d/90-longhaul-source.conf, then: sysctl --system
# A connection's unacknowledged bytes stay in this buffer: 3 x (under way + queued) for its share.
net.ipv4.tcp_wmem = 4096 16384 {buffer}
# BBR keeps a long path full through losses that make CUBIC halve. Only the sender's choice counts.
# Harms: beside CUBIC on the same link it may take more than its share.
net.ipv4.tcp_congestion_control = bbr
{pacing}net.core.default_qdisc = fq
# A lane that waited for new records is at speed at once.
net.ipv4.tcp_slow_start_after_idle = 0
net.ipv4.tcp_mtu_probing = 1

# 3. Where the host's other traffic should stay as it is: for the route to the node only, in place of the
# default congestion control. NODE is the node's address; keep the words of your own route.
#   ip route replace NODE/32 via GATEWAY dev INTERFACE congctl bbr

# 4. To see it work, on a broker's host while the mirror catches up:
#   ss -tin dst NODE        shows bbr or cubic, cwnd, and whether `sndbuf_limited` or `rwnd_limited` grows
",
        rate = path.rate,
        rtt = path.rtt,
        lanes = path.lanes,
        stock = stock / 1e6,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Rtt;

    #[test]
    fn the_properties_are_lines_that_a_broker_reads() {
        let text = advice(&Path { rate: Rate::gigabits(10), rtt: Rtt::micros(100_000), lanes: 16 });
        for line in [
            "socket.send.buffer.bytes=-1",
            "net.ipv4.tcp_congestion_control = bbr",
            "net.ipv4.tcp_wmem = 4096 16384 94371840",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} not in {text}");
        }
        let others: Vec<_> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.contains('='))
            .collect();
        assert!(others.is_empty(), "{others:?}");
    }

    #[test]
    fn a_stock_broker_is_told_with_the_connections_that_it_takes() {
        let far = advice(&Path { rate: Rate::gigabits(1), rtt: Rtt::micros(100_000), lanes: 4 });
        assert!(far.contains("2.6 MB/s at 100 ms:\n# 49 connections are needed"), "{far}");
        let near = advice(&Path { rate: Rate::gigabits(1), rtt: Rtt::micros(200), lanes: 1 });
        assert!(near.contains("one connection fills the path"), "{near}");
    }
}
