//! What the presets find in captures of real traffic.
//!
//! The captures are not part of the project: the tests run where `WHYLAG_CAPTURES` points to
//! them, or where `../shared/captures` lies beside the checkout, and otherwise say that they were
//! skipped. The numbers were counted with tshark.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use probe_user::signature::{RuleTable, Signature, SignatureTrial, Trial, test};
use probe_user::source::pcap::{Captured, PcapPackets, PcapReader};
use probe_wire::{FLAG_TUNNEL, FLAG_VLAN};

/// The file, or `None` with a line that says why.
fn capture(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures");
    let folder = std::env::var_os("WHYLAG_CAPTURES").map_or(beside, PathBuf::from);
    let path = folder.join(name);
    if !path.exists() {
        println!("skipped: {} is not here; set WHYLAG_CAPTURES", path.display());
        return None;
    }
    Some(path)
}

/// What one signature finds in a file.
fn trial(name: &str, signature: &str) -> Option<SignatureTrial> {
    let path = capture(name)?;
    let signature = Signature::parse(signature).unwrap();
    let mut trial = test(&path, &[signature], &mut Vec::new()).unwrap();
    trial.signatures.pop()
}

/// Requests, answers and replies to nothing.
fn assert_found(name: &str, signature: &str, expected: (u64, u64, u64)) {
    if let Some(found) = trial(name, signature) {
        let counts = (found.requests, found.answered, found.unasked);
        assert_eq!(counts, expected, "{signature} in {name}");
    }
}

/// Requests and replies of each rule.
fn assert_rules(name: &str, signature: &str, expected: &[(u64, u64)]) {
    if let Some(found) = trial(name, signature) {
        let rules = found.rules.iter();
        let counts: Vec<_> = rules.map(|rule| (rule.requests, rule.replies)).collect();
        assert_eq!(counts, expected, "{signature} in {name}");
    }
}

#[test]
fn voice_pings_are_paired_by_flow_and_sequence() {
    assert_found("ndpi-discord.pcap", "discord-voice", (30, 28, 0));
    assert_found("ndpi-discord.pcap", "udp:len=8,at=0,bytes=1337cafe,nonce=4+4", (30, 28, 0));
}

#[test]
fn stun_is_found_over_udp_ipv6_and_framed_tcp() {
    assert_rules("ndpi-stun.pcap", "stun", &[(28, 29), (0, 0), (6, 6)]);
}

#[test]
fn dns_is_found_over_udp_tcp_and_in_vxlan() {
    assert_found("tcpdump-dns_udp.pcap", "dns", (1, 1, 0));
    assert_found("tcpdump-dns_tcp.pcap", "dns", (1, 1, 0));
    assert_found("ndpi-vxlan.pcap", "dns", (4, 4, 0));
    assert_rules("ndpi-dns_fragmented.pcap", "dns", &[(20, 19), (2, 2)]);
}

#[test]
fn pings_and_handshakes_are_found_in_geneve() {
    assert_found("tcpdump-geneve.pcap", "icmp-echo", (3, 3, 0));
    assert_found("tcpdump-geneve.pcap", "tcp-connect", (1, 1, 0));
}

#[test]
fn http_and_sip_are_found_where_they_are() {
    assert_found("ndpi-http.pcapng", "http", (1, 1, 0));
    assert_found("ndpi-http_ipv6.pcap", "http", (0, 0, 0));
    assert_found("ndpi-http_ipv6.pcap", "tcp-connect", (6, 6, 0));
    // it holds REGISTER and INVITE, but no OPTIONS
    assert_found("ndpi-sip.pcap", "sip-options", (0, 0, 34));
    let register = r#"udp:bytes="REGISTER sip",reply-bytes="SIP/2.0 ""#;
    assert_rules("ndpi-sip.pcap", register, &[(18, 34)]);
}

/// The flags of every packet of a file that a signature recognises.
fn flags_of(name: &str, signature: &str) -> Vec<u16> {
    let Some(path) = capture(name) else {
        return Vec::new();
    };
    let table = RuleTable::new(&[Signature::parse(signature).unwrap()]).unwrap();
    let packets = PcapPackets::new(PcapReader::open(&path).unwrap(), &table);
    let found = packets.filter_map(|packet| match packet.unwrap() {
        Captured::Packet(packet) => Some(packet.sighting.flags),
        Captured::Truncated { .. } => None,
    });
    found.collect()
}

#[test]
fn inner_packets_say_that_they_were_inside() {
    for name in ["ndpi-vxlan.pcap", "tcpdump-geneve.pcap"] {
        let flags = flags_of(name, "tcp-connect");
        assert!(flags.iter().all(|flags| flags & FLAG_TUNNEL != 0), "{name}");
    }
    let tagged = flags_of("ndpi-stun.pcap", "stun");
    let tagged = tagged.iter().filter(|flags| *flags & FLAG_VLAN != 0).count();
    assert!(matches!(tagged, 0 | 12), "{tagged} with a VLAN tag");
}

#[test]
fn a_link_type_that_is_not_understood_is_counted() {
    if let Some(path) = capture("tcpdump-icmp-rfc5837.pcap") {
        let trial = Trial::of(PcapReader::open(&path).unwrap(), &[]).unwrap();
        assert_eq!((trial.counts.packets, trial.counts.unparsable), (1, 1));
    }
}
