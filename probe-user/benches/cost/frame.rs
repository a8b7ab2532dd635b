//! Frames, and the signature that none but the last of them carries.

use etherparse::PacketBuilder;
use probe_wire::{FieldMatch, Pattern, Rule};

/// Port of the health checks.
const PORT: u16 = 4000;
const MAGIC: [u8; 4] = *b"PING";
/// No interface's: the stack takes the frame for another host's.
const TO: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A UDP request of eight bytes of nonce behind four that are always the same.
pub(crate) fn rule() -> Rule {
    let mut magic = FieldMatch { len: 4, ..FieldMatch::default() };
    for (index, byte) in MAGIC.into_iter().enumerate() {
        (magic.bytes[index], magic.mask[index]) = (byte, 0xff);
    }
    let mut pattern = Pattern { min_len: 12, max_len: u16::MAX, nonce_offset: 4, ..Pattern::default() };
    pattern.fields[0] = magic;
    Rule { request: pattern, reply: pattern, port: PORT, protocol: 17, nonce_len: 8, symmetric: 1, ..Rule::default() }
}

/// A frame and what it is.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) what: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// Frames that are not health checks and that nothing more than a port tells so.
pub(crate) fn foreign() -> Vec<Frame> {
    vec![
        Frame { what: "UDP to another port", bytes: udp(PORT + 1, b"some payload") },
        Frame { what: "TCP", bytes: tcp() },
        Frame { what: "IPv6 UDP", bytes: udp_v6() },
        Frame { what: "ICMP", bytes: icmp() },
        Frame { what: "ARP", bytes: arp() },
    ]
}

/// A datagram to the checks' port that is none.
pub(crate) fn near_miss() -> Frame {
    Frame { what: "UDP to the checks' port, other payload", bytes: udp(PORT, b"some payload") }
}

/// A health check.
pub(crate) fn check() -> Frame {
    Frame { what: "a health check", bytes: udp(PORT, b"PING12345678") }
}

/// The frame that most traffic is likest to.
pub(crate) fn usual() -> Vec<u8> {
    udp(PORT + 1, b"some payload")
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(FROM, TO).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(40_000, port);
    let mut frame = Vec::new();
    builder.write(&mut frame, payload).expect("a vector takes every byte");
    frame
}

fn tcp() -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(FROM, TO).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    let mut frame = Vec::new();
    builder.tcp(40_000, 443, 1, 1024).ack(2).write(&mut frame, b"some payload").expect("a vector takes every byte");
    frame
}

fn icmp() -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(FROM, TO).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).icmpv4_echo_request(1, 2);
    let mut frame = Vec::new();
    builder.write(&mut frame, b"some payload").expect("a vector takes every byte");
    frame
}

/// A request, filled up to the least length of a frame.
fn arp() -> Vec<u8> {
    let mut frame =
        [&TO[..], &FROM, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &FROM, &[10, 0, 0, 1], &TO, &[10, 0, 0, 2]].concat();
    frame.resize(60, 0);
    frame
}

fn udp_v6() -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(FROM, TO).ipv6([0xfd; 16], [0xfc; 16], 64).udp(40_000, PORT + 1);
    let mut frame = Vec::new();
    builder.write(&mut frame, b"some payload").expect("a vector takes every byte");
    frame
}
