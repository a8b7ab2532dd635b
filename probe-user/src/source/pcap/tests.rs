//! Captures written here, byte by byte: links, clocks, cuts and damage.

use std::io::Cursor;

use etherparse::PacketBuilder;
use probe_wire::{FLAG_FRAGMENT, FLAG_VLAN};
use proptest::prelude::*;

use super::{Captured, CapturedPacket, PcapCounts, PcapError, PcapPackets, PcapReader};
use crate::signature::{RuleTable, Signature};

const SECONDS: u32 = 1_700_000_000;
const FRACTION: u32 = 123_456;
const SECONDS_NS: u64 = SECONDS as u64 * 1_000_000_000;
const ETHERNET: u16 = 1;

/// IPv4 and UDP that `udp:port=4000,bytes=4841` recognises.
fn network() -> Vec<u8> {
    let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(999, 4000);
    let mut packet = Vec::new();
    builder.write(&mut packet, b"HA12345678").unwrap();
    packet
}

fn behind(link_header: &[u8]) -> Vec<u8> {
    [link_header, &network()].concat()
}

fn ethernet() -> Vec<u8> {
    behind(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0])
}

fn table() -> RuleTable {
    RuleTable::new(&[Signature::parse("udp:port=4000,bytes=4841").unwrap()]).unwrap()
}

type Numbers = fn(u32) -> [u8; 4];

/// A pcap file of these packets, little-endian.
fn pcap(magic: u32, link: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    pcap_of(u32::to_le_bytes, u16::to_le_bytes, magic, link, packets)
}

fn pcap_of(long: Numbers, short: fn(u16) -> [u8; 2], magic: u32, link: u32, packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = [long(magic).as_slice(), &short(2), &short(4)].concat();
    for number in [0, 0, 65_535, link] {
        file.extend(long(number));
    }
    for packet in packets {
        let len = u32::try_from(packet.len()).unwrap();
        for number in [SECONDS, FRACTION, len, len] {
            file.extend(long(number));
        }
        file.extend(packet);
    }
    file
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
    [kind.to_le_bytes().as_slice(), &len, body, &len].concat()
}

fn section() -> Vec<u8> {
    let start = [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0];
    block(0x0a0d_0d0a, &[start, [0xff; 8]].concat())
}

/// An interface with these options: (code, value).
fn interface(link: u16, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = [link.to_le_bytes().as_slice(), &[0; 6]].concat();
    for (code, value) in options {
        body.extend(code.to_le_bytes());
        body.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
        body.extend(*value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    body.extend([0; 4]);
    block(1, &body)
}

fn enhanced(interface: u32, ticks: u64, packet: &[u8]) -> Vec<u8> {
    let len = u32::try_from(packet.len()).unwrap();
    let low = u32::try_from(ticks & 0xffff_ffff).unwrap();
    let high = u32::try_from(ticks >> 32).unwrap();
    let numbers = [interface, high, low, len, len].map(u32::to_le_bytes);
    let mut body = [numbers.as_flattened(), packet].concat();
    body.resize(body.len().next_multiple_of(4), 0);
    block(6, &body)
}

/// Everything that is read from a file, and the counts.
fn read(file: &[u8]) -> (Vec<Result<Captured, PcapError>>, PcapCounts) {
    let table = table();
    let reader = PcapReader::new(Cursor::new(file.to_vec())).unwrap();
    let mut packets = PcapPackets::new(reader, &table);
    let all = packets.by_ref().collect();
    (all, packets.counts())
}

fn only_packet(file: &[u8]) -> CapturedPacket {
    let (all, _) = read(file);
    match all.as_slice() {
        [Ok(Captured::Packet(packet))] => *packet,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_link_type_leads_to_the_same_check() {
    let mut cooked = [0; 16];
    cooked[14..].copy_from_slice(&[8, 0]);
    let mut cooked2 = [0; 20];
    cooked2[..2].copy_from_slice(&[8, 0]);
    cooked2[7] = 5;
    let mut tagged = [0; 20];
    tagged[14..].copy_from_slice(&[0x81, 0, 0, 42, 8, 0]);
    for (link, packet, interface, flags) in [
        (1, ethernet(), 0, 0),
        (101, network(), 0, 0),
        (12, network(), 0, 0),
        (228, network(), 0, 0),
        (0, behind(&[2, 0, 0, 0]), 0, 0),
        (108, behind(&[0, 0, 0, 2]), 0, 0),
        (113, behind(&cooked), 0, 0),
        (113, behind(&tagged), 0, FLAG_VLAN),
        (276, behind(&cooked2), 5, 0),
    ] {
        let found = only_packet(&pcap(0xa1b2_c3d4, link, std::slice::from_ref(&packet)));
        assert_eq!(found.sighting.destination_port, 4000, "link type {link}");
        assert_eq!((found.interface_index, found.sighting.flags), (interface, flags));
        assert_eq!(found.frame_len as usize, packet.len());
        assert_eq!(found.sighting.payload_len, 10);
    }
}

#[test]
fn a_link_type_that_is_not_understood_is_counted() {
    let (all, counts) = read(&pcap(0xa1b2_c3d4, 147, &[ethernet(), ethernet()]));
    assert!(all.is_empty());
    assert_eq!((counts.packets, counts.unparsable, counts.matched), (2, 2, 0));
}

#[test]
fn both_precisions_and_both_byte_orders_give_nanoseconds() {
    let packets = [ethernet()];
    let micro = only_packet(&pcap(0xa1b2_c3d4, 1, &packets));
    assert_eq!(micro.time_ns, SECONDS_NS + u64::from(FRACTION) * 1000);
    let nano = only_packet(&pcap(0xa1b2_3c4d, 1, &packets));
    assert_eq!(nano.time_ns, SECONDS_NS + u64::from(FRACTION));
    let big = pcap_of(u32::to_be_bytes, u16::to_be_bytes, 0xa1b2_3c4d, 1, &packets);
    assert_eq!(only_packet(&big), nano);
}

#[test]
fn pcapng_interfaces_have_their_own_clocks() {
    let time = |options: &[(u16, &[u8])], ticks| {
        let file = [section(), interface(ETHERNET, options), enhanced(0, ticks, &ethernet())];
        only_packet(&file.concat()).time_ns
    };
    let seconds = u64::from(SECONDS);
    assert_eq!(time(&[], seconds * 1_000_000 + 7), SECONDS_NS + 7_000);
    assert_eq!(time(&[(9, &[9])], SECONDS_NS + 7), SECONDS_NS + 7);
    assert_eq!(time(&[(9, &[3])], seconds * 1000 + 7), SECONDS_NS + 7_000_000);
    assert_eq!(time(&[(9, &[0x81])], seconds * 2 + 1), SECONDS_NS + 500_000_000);
    let offset = 1000_i64.to_le_bytes();
    assert_eq!(time(&[(9, &[0]), (14, &offset)], seconds - 1000), SECONDS_NS);
}

#[test]
fn a_new_section_forgets_the_interfaces_of_the_last() {
    let nano: &[(u16, &[u8])] = &[(9, &[9])];
    let file = [
        section(),
        interface(147, &[]),
        interface(ETHERNET, nano),
        enhanced(1, 5, &ethernet()),
        section(),
        interface(ETHERNET, nano),
        enhanced(0, 6, &ethernet()),
        enhanced(1, 7, &ethernet()),
    ];
    let (all, counts) = read(&file.concat());
    let found: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    let [Captured::Packet(first), Captured::Packet(second)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!((first.time_ns, first.interface_index), (5, 1));
    assert_eq!((second.time_ns, second.interface_index), (6, 0));
    assert_eq!((counts.packets, counts.matched, counts.unparsable), (3, 2, 1));
}

#[test]
fn a_cut_file_gives_what_is_whole_and_says_where_it_is_cut() {
    let step = 16 + ethernet().len();
    let legacy = pcap(0xa1b2_c3d4, 1, &[ethernet(), ethernet(), ethernet()]);
    for cut in 24..legacy.len() {
        let whole = (cut - 24) / step;
        let (all, counts) = read(&legacy[..cut]);
        assert_eq!(counts.matched, whole as u64, "cut at {cut}");
        let last = all.last().map(|last| last.as_ref().unwrap());
        let at = (24 + whole * step) as u64;
        match (cut - 24) % step {
            0 => assert!(!matches!(last, Some(Captured::Truncated { .. }))),
            _ => assert_eq!(last, Some(&Captured::Truncated { at })),
        }
    }
}

#[test]
fn a_cut_pcapng_file_gives_what_is_whole() {
    let start = [section(), interface(ETHERNET, &[])].concat();
    let packet = enhanced(0, 1, &ethernet());
    let file = [start.clone(), packet.clone(), packet].concat();
    let (all, counts) = read(&file[..file.len() - 5]);
    assert_eq!(counts.matched, 1);
    let at = ((file.len() + start.len()) / 2) as u64;
    assert_eq!(all.last().unwrap().as_ref().unwrap(), &Captured::Truncated { at });
}

#[test]
fn what_is_no_capture_is_refused() {
    for bytes in [&b""[..], b"PK\x03\x04 not a capture at all, but long enough", b"\xd4\xc3"] {
        let refused = PcapReader::new(Cursor::new(bytes.to_vec()));
        assert!(matches!(refused, Err(PcapError::NotACapture)), "{bytes:?}");
    }
    let missing = PcapReader::open(std::path::Path::new("/no/such.pcap")).unwrap_err();
    assert_eq!(missing.to_string(), "cannot open capture file /no/such.pcap");
}

#[test]
fn a_block_of_absurd_length_is_damage_and_ends_the_file() {
    let mut file = pcap(0xa1b2_c3d4, 1, &[ethernet()]);
    file.extend([0_u32, 0, 0x7fff_ffff, 0x7fff_ffff].map(u32::to_le_bytes).as_flattened());
    file.resize(32 << 20, 0);
    let (all, counts) = read(&file);
    assert_eq!(counts.matched, 1);
    let at = (24 + 16 + ethernet().len()) as u64;
    assert!(matches!(all.last(), Some(Err(PcapError::Damaged { at: found })) if *found == at));
}

#[test]
fn packets_larger_than_the_buffer_are_read() {
    let mut large = ethernet();
    large.resize(300_000, 0);
    let (_, counts) = read(&pcap(0xa1b2_c3d4, 1, &[large.clone(), ethernet(), large]));
    assert_eq!((counts.packets, counts.matched), (3, 3));
}

#[test]
fn of_fragments_only_the_first_is_found() {
    let mut first = ethernet();
    first[20] = 0x20;
    let mut second = ethernet();
    second[21] = 2;
    let found = only_packet(&pcap(0xa1b2_c3d4, 1, &[first, second]));
    assert_eq!(found.sighting.flags, FLAG_FRAGMENT);
}

proptest! {
    #[test]
    fn damaged_files_end_without_a_panic(
        legacy in any::<bool>(),
        edits in prop::collection::vec((0_usize..300, any::<u8>()), 0..6),
        len in 24_usize..400,
    ) {
        let mut file = if legacy {
            pcap(0xa1b2_c3d4, 1, &[ethernet(), ethernet(), ethernet()])
        } else {
            let packet = enhanced(0, 1, &ethernet());
            [section(), interface(ETHERNET, &[(9, &[9])]), packet.clone(), packet].concat()
        };
        file.truncate(len);
        for (at, byte) in edits {
            if let Some(slot) = file.get_mut(at) {
                *slot = byte;
            }
        }
        if let Ok(reader) = PcapReader::new(Cursor::new(file)) {
            let table = table();
            prop_assert!(PcapPackets::new(reader, &table).take(1000).count() < 1000);
        }
    }
}
