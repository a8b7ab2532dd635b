//! Which way a check goes.

use super::encapsulations::{ethernet, udp4};
use super::{MAGIC, Start, field, pattern, sighting, udp_rule};
use probe_wire::{ROLE_EITHER, ROLE_REPLY, ROLE_REQUEST, Rule};

/// The check's packet with other ports.
fn between(source: u16, destination: u16) -> Vec<u8> {
    let mut packet = udp4();
    packet[20..22].copy_from_slice(&source.to_be_bytes());
    packet[22..24].copy_from_slice(&destination.to_be_bytes());
    ethernet(&packet)
}

fn role(frame: &[u8], rule: Rule) -> Option<u8> {
    sighting(frame, Start::Ethernet, &[rule]).map(|found| found.role)
}

/// A rule whose reply begins with other bytes.
fn different(port: u16) -> Rule {
    let mut rule = udp_rule();
    rule.port = port;
    rule.reply = pattern(&[field(0, &[0xff])], 4);
    rule.symmetric = 0;
    rule
}

#[test]
fn the_servers_port_tells_requests_from_replies() {
    assert_eq!(role(&between(999, 4000), udp_rule()), Some(ROLE_REQUEST));
    assert_eq!(role(&between(4000, 999), udp_rule()), Some(ROLE_REPLY));
    assert_eq!(role(&between(998, 999), udp_rule()), None);
}

#[test]
fn one_port_on_both_sides_leaves_an_echo_undecided() {
    assert_eq!(role(&between(4000, 4000), udp_rule()), Some(ROLE_EITHER));
}

#[test]
fn one_port_on_both_sides_is_decided_by_different_patterns() {
    assert_eq!(role(&between(4000, 4000), different(4000)), Some(ROLE_REQUEST));
    let mut reply = between(4000, 4000);
    reply[42..44].copy_from_slice(&[0xff, 0]);
    assert_eq!(role(&reply, different(4000)), Some(ROLE_REPLY));
}

#[test]
fn a_request_pattern_from_the_servers_port_is_no_request() {
    assert_eq!(role(&between(4000, 999), different(4000)), None);
}

#[test]
fn without_a_port_an_echo_is_undecided_and_others_are_not() {
    let mut echo = udp_rule();
    echo.port = 0;
    assert_eq!(role(&between(1, 2), echo), Some(ROLE_EITHER));
    assert_eq!(role(&between(1, 2), different(0)), Some(ROLE_REQUEST));
}

#[test]
fn the_reply_has_its_own_place_for_the_nonce() {
    let mut rule = different(4000);
    rule.reply = pattern(&[field(0, &MAGIC)], 2);
    let found = sighting(&between(4000, 999), Start::Ethernet, &[rule]).unwrap();
    assert_eq!(found.nonce[..8], [0, 0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(found.nonce[8..], [0; 8]);
}

#[test]
fn length_bounds_are_of_the_payload() {
    let bounded = |min_len, max_len| {
        let mut rule = udp_rule();
        (rule.request.min_len, rule.request.max_len) = (min_len, max_len);
        role(&between(999, 4000), rule)
    };
    assert_eq!(bounded(12, 12), Some(ROLE_REQUEST));
    assert_eq!(bounded(0, 11), None);
    assert_eq!(bounded(13, u16::MAX), None);
}

#[test]
fn bits_outside_the_mask_do_not_count() {
    let mut rule = udp_rule();
    rule.request.fields[0].bytes[0] = 0x40;
    rule.request.fields[0].mask[0] = 0xf0;
    assert_eq!(role(&between(999, 4000), rule), Some(ROLE_REQUEST));
}

#[test]
fn the_first_rule_that_matches_wins() {
    let found = sighting(&between(999, 4000), Start::Ethernet, &[different(7), udp_rule()]);
    assert_eq!(found.unwrap().rule, 1);
    let found = sighting(&between(999, 4000), Start::Ethernet, &[different(4000), udp_rule()]);
    assert_eq!(found.unwrap().rule, 0);
}
