//! A datagram as bytes, made without the kernel's help.

use std::net::SocketAddrV4;

const IPV4: usize = 20;
const UDP: usize = 8;

/// An IPv4 packet with a UDP datagram whose checksum is wrong. The kernel fills in the checksum of the
/// IP header.
pub(super) fn damaged(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    let ports = [from.port(), to.port()].map(u16::to_be_bytes).concat();
    let udp = [ports, length(UDP + payload.len()).to_vec(), vec![0; 2], payload.to_vec()].concat();
    let pseudo = [&from.ip().octets()[..], &to.ip().octets()[..], &[0, 17], &length(udp.len())[..], &udp[..]].concat();
    let head = [&[0x45, 0][..], &length(IPV4 + udp.len())[..], &[0, 0, 0, 0, 64, 17, 0, 0]].concat();
    let mut packet = [&head[..], &from.ip().octets(), &to.ip().octets(), &udp].concat();
    // The sum instead of its complement: never right, since the two differ in every bit.
    let wrong = sum(&pseudo).max(1).to_be_bytes();
    packet.iter_mut().skip(IPV4 + 6).zip(wrong).for_each(|(to, byte)| *to = byte);
    packet
}

/// The sum of 16-bit words in ones' complement.
fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let all: u32 = bytes.chunks(2).map(word).sum();
    let folded = (all & 0xffff) + (all >> 16);
    u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::{damaged, sum};

    #[test]
    fn a_damaged_datagram_is_whole_but_for_its_checksum() {
        let (from, to) = ("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:4000".parse().unwrap());
        let packet = damaged(from, to, b"WLAG payload");
        assert_eq!((packet.len(), packet[0], packet[9]), (40, 0x45, 17));
        assert_eq!(packet[2..4], [0, 40]);
        assert_eq!(packet[20..26], [3, 232, 15, 160, 0, 20]);
        let pseudo = [&packet[12..20], &[0, 17, 0, 20], &packet[20..]].concat();
        assert_ne!(sum(&pseudo), 0xffff, "a right checksum makes the sum all ones");
    }
}
