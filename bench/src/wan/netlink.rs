//! The few requests to the kernel's routing socket that set up a device: up, MTU, queue length, addresses, one route.
//!
//! Owns a socket of the namespace it was opened in; runs on the thread that calls. Must never read more from an answer
//! than its error number. Message layouts: `linux/rtnetlink.h`, `linux/if_link.h`, `linux/if_addr.h`.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The routing socket is protocol 0 of its family.
const NETLINK_ROUTE: Option<Protocol> = None;
const NEW_LINK: u16 = 16;
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const REPLACE: u16 = 0x100;
const CREATE: u16 = 0x400;
const HEADER_LEN: usize = 16;
const ERROR: u16 = 2;

/// A routing socket of the calling thread's namespace.
pub(super) struct Netlink {
    socket: OwnedFd,
}

/// One device, by its index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Device(u32);

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, NETLINK_ROUTE)?;
        Ok(Self { socket })
    }

    pub(super) fn device(&self, name: &str) -> io::Result<Device> {
        Ok(Device(rustix::net::netdevice::name_to_index(&self.socket, name)?))
    }

    /// Sets what is asked for and switches the device on.
    pub(super) fn up(
        &self,
        device: Device,
        mtu: Option<u32>,
        queue_packets: Option<u32>,
    ) -> io::Result<()> {
        const UP: u32 = 1;
        const ATTRIBUTE_MTU: u16 = 4;
        const ATTRIBUTE_QUEUE: u16 = 13;
        let mut message = Message::new(NEW_LINK, 0);
        message
            .bytes(&[0, 0, 0, 0])
            .bytes(&device.0.to_ne_bytes())
            .bytes(&UP.to_ne_bytes())
            .bytes(&UP.to_ne_bytes());
        if let Some(mtu) = mtu {
            message.attribute(ATTRIBUTE_MTU, &mtu.to_ne_bytes());
        }
        if let Some(packets) = queue_packets {
            message.attribute(ATTRIBUTE_QUEUE, &packets.to_ne_bytes());
        }
        self.ask(message)
    }

    /// Makes two devices of the same name that are joined, one here and one in another namespace.
    pub(super) fn add_pair(&self, name: &str, other: &OwnedFd) -> io::Result<()> {
        const ATTRIBUTE_NAME: u16 = 3;
        const ATTRIBUTE_KIND_INFO: u16 = 18;
        const ATTRIBUTE_NAMESPACE: u16 = 28;
        const INFO_KIND: u16 = 1;
        const INFO_DATA: u16 = 2;
        const PEER: u16 = 1;
        let device_header = [0_u8; 16];
        let name = [name.as_bytes(), b"\0"].concat();
        let mut peer = Message { bytes: Vec::new() };
        peer.bytes(&device_header).attribute(ATTRIBUTE_NAME, &name);
        peer.attribute(ATTRIBUTE_NAMESPACE, &other.as_raw_fd().to_ne_bytes());
        let mut data = Message { bytes: Vec::new() };
        data.attribute(PEER, &peer.bytes);
        let mut info = Message { bytes: Vec::new() };
        info.attribute(INFO_KIND, b"veth").attribute(INFO_DATA, &data.bytes);
        let mut message = Message::new(NEW_LINK, CREATE);
        message
            .bytes(&device_header)
            .attribute(ATTRIBUTE_NAME, &name)
            .attribute(ATTRIBUTE_KIND_INFO, &info.bytes);
        self.ask(message)
    }

    /// What TCP hands to the device is at most so many segments at a time.
    pub(super) fn set_segments_max(&self, device: Device, segments: u32) -> io::Result<()> {
        const ATTRIBUTE_SEGMENTS_MAX: u16 = 40;
        let mut message = Message::new(NEW_LINK, 0);
        message.bytes(&[0; 4]).bytes(&device.0.to_ne_bytes()).bytes(&[0; 8]);
        message.attribute(ATTRIBUTE_SEGMENTS_MAX, &segments.to_ne_bytes());
        self.ask(message)
    }

    /// Gives the device an address that no route comes with.
    pub(super) fn add_address(&self, device: Device, address: IpAddr) -> io::Result<()> {
        const NEW_ADDRESS: u16 = 20;
        const ATTRIBUTE_ADDRESS: u16 = 1;
        const ATTRIBUTE_LOCAL: u16 = 2;
        // Nobody else is on this link: an IPv6 address needs no second of probing for duplicates.
        const NO_DUPLICATE_DETECTION: u8 = 2;
        let mut message = Message::new(NEW_ADDRESS, CREATE | REPLACE);
        message
            .bytes(&[family(address), bits(address), NO_DUPLICATE_DETECTION, 0])
            .bytes(&device.0.to_ne_bytes());
        message
            .attribute(ATTRIBUTE_LOCAL, &octets(address))
            .attribute(ATTRIBUTE_ADDRESS, &octets(address));
        self.ask(message)
    }

    /// The way to one address, and how TCP is to control congestion on it; replaces the one before.
    pub(super) fn set_route(
        &self,
        device: Device,
        to: IpAddr,
        congestion: Option<&str>,
    ) -> io::Result<()> {
        const NEW_ROUTE: u16 = 24;
        const ATTRIBUTE_DESTINATION: u16 = 1;
        const ATTRIBUTE_DEVICE: u16 = 4;
        const ATTRIBUTE_METRICS: u16 = 8;
        const METRIC_CONGESTION: u16 = 16;
        const TABLE_MAIN: u8 = 254;
        const PROTOCOL_STATIC: u8 = 4;
        const SCOPE_LINK: u8 = 253;
        const UNICAST: u8 = 1;
        let mut message = Message::new(NEW_ROUTE, CREATE | REPLACE);
        message.bytes(&[
            family(to),
            bits(to),
            0,
            0,
            TABLE_MAIN,
            PROTOCOL_STATIC,
            SCOPE_LINK,
            UNICAST,
        ]);
        message.bytes(&[0; 4]);
        message
            .attribute(ATTRIBUTE_DESTINATION, &octets(to))
            .attribute(ATTRIBUTE_DEVICE, &device.0.to_ne_bytes());
        if let Some(name) = congestion {
            let mut metrics = Message { bytes: Vec::new() };
            metrics.attribute(METRIC_CONGESTION, &[name.as_bytes(), b"\0"].concat());
            message.attribute(ATTRIBUTE_METRICS, &metrics.bytes);
        }
        self.ask(message)
    }

    fn ask(&self, message: Message) -> io::Result<()> {
        let request = message.finish();
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&self.socket, &request, SendFlags::empty(), &kernel)?;
        let mut answer = [0_u8; 4096];
        let (_, len) = rustix::net::recv(&self.socket, &mut answer, RecvFlags::empty())?;
        let kind = answer.get(4..6).map(|two| u16::from_ne_bytes([two[0], two[1]]));
        let code = answer[..len].get(HEADER_LEN..HEADER_LEN + 4);
        match (kind, code) {
            (Some(ERROR), Some(code)) => {
                match i32::from_ne_bytes([code[0], code[1], code[2], code[3]]) {
                    0 => Ok(()),
                    code => Err(io::Error::from_raw_os_error(-code)),
                }
            }
            _ => {
                Err(io::Error::other("the kernel's routing socket gave an answer of another kind"))
            }
        }
    }
}

struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: u16) -> Self {
        let mut message = Self { bytes: vec![0; 4] };
        message
            .bytes(&kind.to_ne_bytes())
            .bytes(&(REQUEST | ACK | flags).to_ne_bytes())
            .bytes(&[0; 8]);
        message
    }

    fn bytes(&mut self, more: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(more);
        self
    }

    /// Length, kind, value, and zeros up to a multiple of four bytes.
    fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let len = (value.len() + 4) as u16;
        self.bytes(&len.to_ne_bytes()).bytes(&kind.to_ne_bytes()).bytes(value);
        let padded = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(padded, 0);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes
    }
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_holds_its_length_and_padded_attributes() {
        let mut message = Message::new(16, CREATE);
        message.attribute(13, &[1, 2, 3]).attribute(4, &[9; 4]);
        let bytes = message.finish();
        assert_eq!(bytes.len(), HEADER_LEN + 8 + 8);
        assert_eq!(bytes[..4], 32_u32.to_ne_bytes());
        assert_eq!(bytes[4..6], 16_u16.to_ne_bytes());
        assert_eq!(bytes[6..8], (REQUEST | ACK | CREATE).to_ne_bytes());
        assert_eq!(bytes[16..24], [[7, 0, 13, 0], [1, 2, 3, 0]].concat());
        assert_eq!(bytes[24..26], 8_u16.to_ne_bytes());
    }
}
