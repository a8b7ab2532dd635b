use probe_wire::{ROLE_EITHER, ROLE_REPLY, ROLE_REQUEST, Sighting};

use super::pairing::{Pairing, Part};
use super::{PRESETS, Trial, list, test};
use crate::signature::Signature;
use crate::source::pcap::PcapReader;

/// A packet from a client's port to the server's, or back.
fn packet(role: u8, client: u16, to_server: bool, nonce: u8) -> Sighting {
    let (source_port, destination_port) = match to_server {
        true => (client, 53),
        false => (53, client),
    };
    Sighting { source_port, destination_port, nonce: [nonce; 16], role, ..Sighting::default() }
}

fn parts(has_nonce: bool, packets: &[Sighting]) -> Vec<Part> {
    let mut pairing = Pairing::default();
    packets.iter().zip(0..).map(|(packet, at)| pairing.push(packet, has_nonce, at)).collect()
}

/// An answer that took so many packets of the list.
fn answer(took: u64) -> Part {
    Part::Answer { took_ns: Some(took) }
}

#[test]
fn a_reply_answers_the_request_of_its_nonce_and_flow() {
    let found = parts(
        true,
        &[
            packet(ROLE_REQUEST, 1, true, 7),
            packet(ROLE_REQUEST, 2, true, 7),
            packet(ROLE_REPLY, 2, false, 7),
            packet(ROLE_REPLY, 1, false, 8),
            packet(ROLE_REPLY, 1, false, 7),
            packet(ROLE_REPLY, 1, false, 7),
        ],
    );
    use Part::{Request, Unasked};
    assert_eq!(found, [Request, Request, answer(1), Unasked, answer(4), Unasked]);
}

#[test]
fn of_two_that_look_the_same_the_first_is_the_request() {
    let found = parts(
        true,
        &[
            packet(ROLE_EITHER, 1, false, 7),
            packet(ROLE_EITHER, 1, true, 7),
            packet(ROLE_EITHER, 1, true, 8),
            packet(ROLE_EITHER, 1, true, 8),
        ],
    );
    assert_eq!(found, [Part::Request, answer(1), Part::Request, Part::Repeated]);
}

#[test]
fn without_a_nonce_order_decides_and_retransmissions_count_once() {
    let mut retransmitted = packet(ROLE_REQUEST, 1, true, 0);
    retransmitted.tcp_seq = 5;
    let reply = packet(ROLE_REPLY, 1, false, 0);
    let found = parts(false, &[retransmitted, retransmitted, reply, reply]);
    assert_eq!(found, [Part::Request, Part::Repeated, answer(2), Part::Unasked]);
    let request = packet(ROLE_REQUEST, 1, true, 0);
    let found = parts(false, &[request, request, reply, reply]);
    assert_eq!(found, [Part::Request, Part::Request, answer(2), answer(2)]);
}

#[test]
fn the_list_names_every_preset_with_its_rules() {
    let mut out = Vec::new();
    list(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for preset in PRESETS {
        assert!(text.contains(&format!("\n{}\n", preset.name)) || text.starts_with(preset.name));
        assert!(preset.rules.iter().all(|rule| text.contains(rule)));
    }
}

/// A pcap file of one raw IPv4 UDP datagram from port 999 to 4000, and its second cut.
fn file() -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(999, 4000);
    let mut packet = Vec::new();
    builder.write(&mut packet, b"HA12345678").unwrap();
    let len = u32::try_from(packet.len()).unwrap();
    let head = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101, 1_700_000_000, 0, len, len];
    let mut file = head.map(u32::to_le_bytes).as_flattened().to_vec();
    file.extend(packet);
    file.extend([0; 7]);
    file
}

#[test]
fn a_trial_says_what_was_found_and_what_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("check.pcap");
    std::fs::write(&path, file()).unwrap();
    let voice = Signature::parse("udp:port=4000,bytes=4841,nonce=2+8").unwrap();
    let mut out = Vec::new();
    let trial = test(&path, &[voice], &mut out).unwrap();
    let expected = "1 packet, 1 recognised\n\
                    udp:port=4000,at=0,bytes=\"HA\",nonce=2+8\n  \
                    1 request on 1 flow, 0 answered, 1 not\n  \
                    from 2023-11-14T22:13:20.000000000Z to 2023-11-14T22:13:20.000000000Z\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    assert_eq!(trial.truncated_at, Some(78));
}

#[test]
fn without_signatures_every_preset_is_tried() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("check.pcap");
    std::fs::write(&path, file()).unwrap();
    let mut out = Vec::new();
    let trial = test(&path, &[], &mut out).unwrap();
    assert_eq!(trial.signatures.len(), PRESETS.len());
    assert!(String::from_utf8(out).unwrap().contains("nothing found for: icmp-echo, udp-echo"));
}

#[test]
fn more_than_eight_rules_are_tried_one_signature_at_a_time() {
    let stun = Signature::parse("stun").unwrap();
    let reader = PcapReader::new(std::io::Cursor::new(file())).unwrap();
    let trial = Trial::of(reader, &[stun.clone(), stun.clone(), stun]).unwrap();
    assert_eq!(trial.signatures.len(), 3);
}

#[test]
fn the_name_from_a_file_is_shown_and_what_the_answers_took() {
    let mut trial = Trial::of(PcapReader::new(std::io::Cursor::new(file())).unwrap(), &[]).unwrap();
    let mut found = Trial::of(
        PcapReader::new(std::io::Cursor::new(file())).unwrap(),
        &[Signature { name: "voice".to_owned(), ..Signature::parse("udp:port=4000,bytes=4841,nonce=2+8").unwrap() }],
    )
    .unwrap();
    found.signatures[0].times_ns = vec![3_000_000, 1_000_000, 2_000_000];
    trial.signatures = found.signatures;
    trial.not_parsed.insert("PPPoE", 3);
    let mut out = Vec::new();
    trial.write(&mut out, true).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("\nvoice\n") && text.contains("not parsed: 3 (PPPoE)\n"), "{text}");
    assert!(text.contains("answers took 1.00 ms at least, 2.00 ms median, 3.00 ms at most"), "{text}");
}
