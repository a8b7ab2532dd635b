//! Packets in every wrapping: innermost by etherparse, the wrappings by hand.

use super::{PORT, all_rules, connect_rule, cut_sighting, maybe, payload, ping_rule, sighting};
use super::{Start, udp_rule};
use etherparse::{IpFragOffset, IpNumber, Ipv4Header, Ipv4Options, PacketBuilder, UdpHeader};
use probe_wire::{FLAG_FRAGMENT, FLAG_TUNNEL, FLAG_VLAN, ROLE_REPLY, ROLE_REQUEST, Sighting};

const SOURCE: [u8; 4] = [10, 0, 0, 1];
const DESTINATION: [u8; 4] = [10, 0, 0, 2];
const MAPPED_SOURCE: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
const SOURCE6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const DESTINATION6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

fn written(size: usize, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size);
    write(&mut bytes);
    bytes
}

/// IPv4 and UDP to [`PORT`].
pub(super) fn udp4() -> Vec<u8> {
    let builder = PacketBuilder::ipv4(SOURCE, DESTINATION, 64).udp(999, PORT);
    let payload = payload();
    written(builder.size(payload.len()), |to| {
        builder.write(to, &payload).unwrap();
    })
}

/// IPv6 and UDP to [`PORT`].
pub(super) fn udp6() -> Vec<u8> {
    let builder = PacketBuilder::ipv6(SOURCE6, DESTINATION6, 64).udp(999, PORT);
    let payload = payload();
    written(builder.size(payload.len()), |to| {
        builder.write(to, &payload).unwrap();
    })
}

fn syn() -> Vec<u8> {
    let builder = PacketBuilder::ipv4(SOURCE, DESTINATION, 64).tcp(999, 80, 7, 1024).syn();
    written(builder.size(0), |to| builder.write(to, &[]).unwrap())
}

fn ping() -> Vec<u8> {
    let builder = PacketBuilder::ipv4(SOURCE, DESTINATION, 64).icmpv4_echo_request(0x1234, 7);
    written(builder.size(4), |to| builder.write(to, &[0; 4]).unwrap())
}

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Ethernet around what begins with an IP header.
pub(super) fn ethernet(inner: &[u8]) -> Vec<u8> {
    join(&[&MACS, ethertype(inner), inner])
}

fn ethertype(inner: &[u8]) -> &'static [u8] {
    match inner[0] >> 4 {
        4 => &[0x08, 0x00],
        _ => &[0x86, 0xdd],
    }
}

fn tagged(tags: &[[u8; 2]], inner: &[u8]) -> Vec<u8> {
    let mut frame = MACS.to_vec();
    for tag in tags {
        frame.extend(tag);
        frame.extend([0, 42]);
    }
    join(&[&frame, ethertype(inner), inner])
}

/// A PPPoE session, behind tags.
fn pppoe(tags: &[[u8; 2]], inner: &[u8]) -> Vec<u8> {
    let protocol = if inner[0] >> 4 == 4 { 0x0021 } else { 0x0057 };
    pppoe_of(tags, protocol, inner)
}

fn pppoe_of(tags: &[[u8; 2]], protocol: u16, inner: &[u8]) -> Vec<u8> {
    let tags: Vec<u8> = tags.iter().flat_map(|[high, low]| [*high, *low, 0, 42]).collect();
    let len = u16::try_from(inner.len() + 2).unwrap().to_be_bytes();
    join(&[&MACS, &tags, &[0x88, 0x64, 0x11, 0, 0, 1], &len, &protocol.to_be_bytes(), inner])
}

#[test]
fn a_ppp_session_without_ip_is_no_check() {
    assert_eq!(sighting(&pppoe_of(&[], 0xc021, &udp4()), Start::Ethernet, &[udp_rule()]), None);
    assert_eq!(sighting(&pppoe(&[], &udp4())[..20], Start::Ethernet, &[udp_rule()]), None);
}

/// IPv4 around any protocol.
fn ipv4(protocol: u8, inner: &[u8]) -> Vec<u8> {
    let len = u16::try_from(inner.len()).unwrap();
    let mut header = Ipv4Header::new(len, 64, IpNumber(protocol), [192, 0, 2, 1], [192, 0, 2, 2]).unwrap();
    header.header_checksum = header.calc_header_checksum();
    join(&[&header.to_bytes(), inner])
}

/// IPv6 around any protocol or extension.
fn ipv6(next_header: u8, inner: &[u8]) -> Vec<u8> {
    let len = u16::try_from(inner.len()).unwrap().to_be_bytes();
    let start = [0x60, 0, 0, 0, len[0], len[1], next_header, 64];
    join(&[&start, &SOURCE6, &DESTINATION6, inner])
}

/// UDP around a tunnel.
fn udp_to(port: u16, inner: &[u8]) -> Vec<u8> {
    let header = UdpHeader {
        source_port: 50_000,
        destination_port: port,
        length: u16::try_from(inner.len() + 8).unwrap(),
        checksum: 0,
    };
    join(&[&header.to_bytes(), inner])
}

fn vxlan(port: u16, inner: &[u8]) -> Vec<u8> {
    let header: &[u8] = &[0x08, 0, 0, 0, 0, 0, 42, 0];
    ipv4(17, &udp_to(port, &join(&[header, &ethernet(inner)])))
}

fn geneve(option_words: u8, protocol: [u8; 2], inner: &[u8]) -> Vec<u8> {
    let header = [option_words, 0, protocol[0], protocol[1], 0, 0, 42, 0];
    let options = vec![0; usize::from(option_words) * 4];
    ipv4(17, &udp_to(6081, &join(&[&header, &options, inner])))
}

/// GRE with `flags`, each of which takes four bytes.
fn gre(flags: u8, protocol: [u8; 2], inner: &[u8]) -> Vec<u8> {
    let fields = vec![0; usize::try_from(flags.count_ones()).unwrap() * 4];
    ipv4(47, &join(&[&[flags, 0], &protocol, &fields, inner]))
}

/// Removes the IPv6 header.
fn behind_ipv6(packet: &[u8]) -> &[u8] {
    &packet[40..]
}

/// One extension header of eight bytes.
fn extension(next_header: u8, inner: &[u8]) -> Vec<u8> {
    join(&[&[next_header, 0, 0, 0, 0, 0, 0, 0], inner])
}

fn fragment6(next_header: u8, offset_and_more: u16, inner: &[u8]) -> Vec<u8> {
    let [high, low] = offset_and_more.to_be_bytes();
    join(&[&[next_header, 0, high, low, 0, 0, 0, 1], inner])
}

/// Every wrapping of the UDP check: name, frame, flags that it must give.
pub(super) fn wrappings() -> Vec<(&'static str, Vec<u8>, u16)> {
    let (v4, v6) = (udp4(), udp6());
    let bridged = [0x65, 0x58];
    let chain = extension(43, &extension(60, &extension(17, behind_ipv6(&v6))));
    let ah = join(&[&[17, 4], &[0; 22], behind_ipv6(&v6)]);
    let mut padded = ethernet(&v4);
    padded.extend([0; 18]);
    vec![
        ("IPv4", ethernet(&v4), 0),
        ("IPv6", ethernet(&v6), 0),
        ("padding", padded, 0),
        ("VLAN", tagged(&[[0x81, 0]], &v4), FLAG_VLAN),
        ("QinQ", tagged(&[[0x88, 0xa8], [0x81, 0]], &v6), FLAG_VLAN),
        ("three tags", tagged(&[[0x88, 0xa8], [0x81, 0], [0x81, 0]], &v4), FLAG_VLAN),
        ("old QinQ", tagged(&[[0x91, 0], [0x81, 0]], &v4), FLAG_VLAN),
        ("PPPoE", pppoe(&[], &v4), 0),
        ("PPPoE, IPv6, in a VLAN", pppoe(&[[0x81, 0]], &v6), FLAG_VLAN),
        ("IPv4 options", ethernet(&with_options(&v4)), 0),
        ("IPv6 extensions", ethernet(&ipv6(0, &chain)), 0),
        ("authentication header", ethernet(&ipv6(51, &ah)), 0),
        ("IPIP", ethernet(&ipv4(4, &v4)), FLAG_TUNNEL),
        ("6in4", ethernet(&ipv4(41, &v6)), FLAG_TUNNEL),
        ("4in6", ethernet(&ipv6(4, &v4)), FLAG_TUNNEL),
        ("GRE", ethernet(&gre(0, [8, 0], &v4)), FLAG_TUNNEL),
        ("GRE with all fields", ethernet(&gre(0xb0, [0x86, 0xdd], &v6)), FLAG_TUNNEL),
        ("GRE bridging", ethernet(&gre(0x20, bridged, &ethernet(&v4))), FLAG_TUNNEL),
        ("VXLAN", ethernet(&vxlan(4789, &v4)), FLAG_TUNNEL),
        ("VXLAN, old port", ethernet(&vxlan(8472, &v6)), FLAG_TUNNEL),
        ("Geneve", ethernet(&geneve(0, bridged, &ethernet(&v4))), FLAG_TUNNEL),
        ("Geneve with options", ethernet(&geneve(5, [8, 0], &v4)), FLAG_TUNNEL),
        ("VXLAN in IPIP", ethernet(&ipv4(4, &vxlan(4789, &v4))), FLAG_TUNNEL),
        (
            "VLAN in VXLAN in VLAN",
            tagged(&[[0x81, 0]], &vxlan_of_frame(&tagged(&[[0x81, 0]], &v4))),
            FLAG_VLAN | FLAG_TUNNEL,
        ),
    ]
}

fn vxlan_of_frame(frame: &[u8]) -> Vec<u8> {
    let header: &[u8] = &[0x08, 0, 0, 0, 0, 0, 42, 0];
    ipv4(17, &udp_to(4789, &join(&[header, frame])))
}

fn with_options(packet: &[u8]) -> Vec<u8> {
    let (mut header, rest) = Ipv4Header::from_slice(packet).unwrap();
    header.options = Ipv4Options::from([1; 8]);
    header.set_payload_len(rest.len()).unwrap();
    join(&[&header.to_bytes(), rest])
}

fn assert_is_the_check(name: &str, found: Option<Sighting>, flags: u16) {
    let Some(found) = found else {
        panic!("{name}: not recognised");
    };
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(found.nonce, nonce, "{name}");
    assert_eq!((found.source_port, found.destination_port), (999, PORT), "{name}");
    assert!([MAPPED_SOURCE, SOURCE6].contains(&found.source), "{name}");
    assert_eq!((found.flags, found.role, found.rule), (flags, ROLE_REQUEST, 0), "{name}");
    assert_eq!((found.protocol, found.payload_len), (17, 12), "{name}");
    assert_eq!((found.tcp_seq, found.tcp_ack, found.tcp_flags), (0, 0, 0), "{name}");
}

#[test]
fn a_check_is_recognised_in_every_wrapping() {
    for (name, frame, flags) in wrappings() {
        assert_is_the_check(name, sighting(&frame, Start::Ethernet, &[udp_rule()]), flags);
        assert!(maybe(&frame, Start::Ethernet, &[udp_rule()]), "{name}");
        let without_link = &frame[14..];
        // Behind tags and in PPPoE, what follows 14 bytes is no IP header.
        if [4, 6].contains(&(without_link[0] >> 4)) {
            assert_is_the_check(name, sighting(without_link, Start::Network, &[udp_rule()]), flags);
        }
    }
}

#[test]
fn a_check_cut_before_its_nonce_ends_is_not_recognised() {
    for (name, frame, _) in wrappings() {
        let needed = 12 + frame.windows(2).position(|two| two == super::MAGIC).unwrap();
        for seen in 0..frame.len() {
            let found = cut_sighting(&frame, seen, Start::Ethernet, &all_rules());
            assert_eq!(found.is_some(), seen >= needed, "{name} cut at {seen}");
        }
    }
}

#[test]
fn bytes_behind_the_headers_claim_do_not_match() {
    let mut short = udp4();
    // UDP length of 8: what follows is padding
    short[24..26].copy_from_slice(&[0, 8]);
    assert_eq!(sighting(&ethernet(&short), Start::Ethernet, &[udp_rule()]), None);
}

#[test]
fn a_datagram_longer_than_its_packet_is_not_recognised() {
    let mut long = udp4();
    long[24..26].copy_from_slice(&[0, 200]);
    assert_eq!(sighting(&ethernet(&long), Start::Ethernet, &[udp_rule()]), None);
}

#[test]
fn of_ipv4_fragments_only_the_first_is_recognised() {
    let with = |offset: u16, more: bool| {
        let mut packet = udp4();
        let word = offset | if more { 0x2000 } else { 0 };
        packet[6..8].copy_from_slice(&word.to_be_bytes());
        // the UDP length is of the whole datagram
        packet[24..26].copy_from_slice(&[0x10, 0]);
        sighting(&ethernet(&packet), Start::Ethernet, &[udp_rule()])
    };
    let first = with(0, true).unwrap();
    assert_eq!((first.flags, first.payload_len), (FLAG_FRAGMENT, 0x1000 - 8));
    assert_eq!(with(IpFragOffset::MAX_U16, true), None);
    assert_eq!(with(1, false), None);
}

#[test]
fn of_ipv6_fragments_only_the_first_is_recognised() {
    let v6 = udp6();
    let with = |word| {
        let packet = ipv6(44, &fragment6(17, word, behind_ipv6(&v6)));
        sighting(&ethernet(&packet), Start::Ethernet, &[udp_rule()])
    };
    assert_eq!(with(1).unwrap().flags, FLAG_FRAGMENT);
    assert_eq!(with(0).unwrap().flags, 0, "an atomic fragment is whole");
    assert_eq!(with(8), None);
    assert_eq!(with(9), None);
}

#[test]
fn a_rule_on_the_tunnels_own_port_wins() {
    let mut outer = udp_rule();
    outer.port = 4789;
    outer.request.fields[0] = super::field(0, &[8, 0, 0, 0]);
    let found = sighting(&ethernet(&vxlan(4789, &udp4())), Start::Ethernet, &[udp_rule(), outer]);
    let found = found.unwrap();
    assert_eq!((found.rule, found.flags), (1, 0));
}

#[test]
fn a_third_tunnel_is_not_entered() {
    let two = ipv4(4, &ipv4(4, &udp4()));
    assert!(sighting(&ethernet(&two), Start::Ethernet, &[udp_rule()]).is_some());
    let three = ipv4(4, &two);
    assert_eq!(sighting(&ethernet(&three), Start::Ethernet, &[udp_rule()]), None);
}

#[test]
fn nine_extension_headers_are_too_many() {
    let v6 = udp6();
    let mut inner = extension(17, behind_ipv6(&v6));
    for _ in 0..7 {
        inner = extension(60, &inner);
    }
    assert!(sighting(&ethernet(&ipv6(60, &inner)), Start::Ethernet, &[udp_rule()]).is_some());
    let nine = extension(60, &inner);
    assert_eq!(sighting(&ethernet(&ipv6(60, &nine)), Start::Ethernet, &[udp_rule()]), None);
}

#[test]
fn a_syn_and_its_answer_are_told_apart() {
    let request = sighting(&ethernet(&syn()), Start::Ethernet, &[connect_rule()]).unwrap();
    assert_eq!((request.role, request.tcp_seq, request.tcp_flags), (ROLE_REQUEST, 7, 0x02));
    let builder = PacketBuilder::ipv4(SOURCE, DESTINATION, 64).tcp(80, 999, 9, 1024).syn().ack(8);
    let answer = written(builder.size(0), |to| builder.write(to, &[]).unwrap());
    let reply = sighting(&ethernet(&answer), Start::Ethernet, &[connect_rule()]).unwrap();
    assert_eq!((reply.role, reply.tcp_seq, reply.tcp_ack), (ROLE_REPLY, 9, 8));
}

#[test]
fn a_ping_carries_its_identifier_and_sequence() {
    let found = sighting(&ethernet(&ping()), Start::Ethernet, &[ping_rule()]).unwrap();
    assert_eq!(found.nonce[..4], [0x12, 0x34, 0, 7]);
    assert_eq!((found.payload_len, found.source_port, found.protocol), (12, 0, 1));
}

#[test]
fn a_rule_for_icmp_takes_both_families() {
    let builder = PacketBuilder::ipv6(SOURCE6, DESTINATION6, 64).icmpv6_echo_request(1, 2);
    let packet = written(builder.size(0), |to| builder.write(to, &[]).unwrap());
    let mut rule = ping_rule();
    rule.request.fields[0] = super::field(0, &[128, 0]);
    rule.reply.fields[0] = super::field(0, &[129, 0]);
    let found = sighting(&ethernet(&packet), Start::Ethernet, &[rule]).unwrap();
    assert_eq!((found.protocol, found.role), (58, ROLE_REQUEST));
}

#[test]
fn a_segment_without_a_length_takes_that_of_the_frame() {
    let mut packet = udp4();
    packet[2..4].copy_from_slice(&[0, 0]);
    let found = sighting(&ethernet(&packet), Start::Ethernet, &[udp_rule()]).unwrap();
    assert_eq!(found.payload_len, 12);
}

#[test]
fn plain_packets_of_other_ports_and_protocols_are_refused_at_once() {
    let mut other_port = udp4();
    other_port[22..24].copy_from_slice(&[0, 99]);
    let mut other_bytes = udp6();
    other_bytes[48] ^= 1;
    let arp = join(&[&MACS, &[0x08, 0x06], &[0; 28]]);
    let mut later_fragment = udp4();
    later_fragment[7] = 1;
    for frame in [
        ethernet(&other_port),
        ethernet(&other_bytes),
        ethernet(&syn()),
        ethernet(&ping()),
        ethernet(&later_fragment),
        arp,
    ] {
        assert!(!maybe(&frame, Start::Ethernet, &[udp_rule()]));
    }
}

#[test]
fn only_handshakes_pass_for_a_rule_about_flags() {
    let builder = PacketBuilder::ipv4(SOURCE, DESTINATION, 64).tcp(999, 80, 7, 1024).ack(1);
    let data = written(builder.size(4), |to| builder.write(to, &[0; 4]).unwrap());
    assert!(!maybe(&ethernet(&data), Start::Ethernet, &[connect_rule()]));
    assert!(maybe(&ethernet(&syn()), Start::Ethernet, &[connect_rule()]));
    let builder = PacketBuilder::ipv6(SOURCE6, DESTINATION6, 64).tcp(999, 80, 7, 1024);
    let data = written(builder.size(4), |to| builder.write(to, &[0; 4]).unwrap());
    assert!(!maybe(&ethernet(&data), Start::Ethernet, &[connect_rule()]));
}
