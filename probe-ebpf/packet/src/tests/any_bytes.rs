//! What holds of any bytes and any rules.

use super::encapsulations::wrappings;
use super::{Start, all_rules, cut_sighting, maybe};
use probe_wire::{FieldMatch, Pattern, Rule};
use proptest::prelude::*;

fn start() -> impl Strategy<Value = Start> {
    prop_oneof![Just(Start::Ethernet), Just(Start::Network)]
}

/// A frame that was sound, with some bytes changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let frames: Vec<Vec<u8>> = wrappings().into_iter().map(|(_, frame, _)| frame).collect();
    let edits = prop::collection::vec((0_usize..120, any::<u8>()), 0..4);
    (prop::sample::select(frames), edits).prop_map(|(mut frame, edits)| {
        for (at, byte) in edits {
            if let Some(slot) = frame.get_mut(at) {
                *slot = byte;
            }
        }
        frame
    })
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![mutated(), prop::collection::vec(any::<u8>(), 0..300)]
}

fn any_field() -> impl Strategy<Value = FieldMatch> {
    let byte = prop_oneof![Just(0x48), Just(0x41), Just(0), any::<u8>()];
    let mask = prop_oneof![Just(0), Just(0xff), any::<u8>()];
    (prop::array::uniform16(byte), prop::array::uniform16(mask), 0_u16..20, 0_u16..20).prop_map(
        |(bytes, mask, offset, len)| FieldMatch {
            bytes: std::array::from_fn(|i| bytes[i] & mask[i]),
            mask,
            offset,
            len,
        },
    )
}

fn any_pattern() -> impl Strategy<Value = Pattern> {
    let fields = prop::collection::vec(any_field(), 0..3);
    let max_len = prop_oneof![Just(u16::MAX), any::<u16>()];
    let flags = prop_oneof![Just(0), any::<u8>()];
    (fields, 0_u16..20, max_len, flags, any::<u8>(), any::<u8>()).prop_map(
        |(given, min_len, max_len, tcp_flags_mask, tcp_flags, nonce_offset)| {
            let mut pattern = Pattern {
                min_len,
                max_len,
                tcp_flags_mask,
                tcp_flags: tcp_flags & tcp_flags_mask,
                nonce_offset: u16::from(nonce_offset),
                ..Pattern::default()
            };
            pattern.fields[..given.len()].copy_from_slice(&given);
            pattern
        },
    )
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let port = prop_oneof![Just(0), Just(4000), Just(4789), any::<u16>()];
    let protocol = prop_oneof![Just(1), Just(6), Just(17), any::<u8>()];
    (any_pattern(), any_pattern(), port, protocol, 0_u8..18, any::<bool>()).prop_map(
        |(request, reply, port, protocol, nonce_len, echo)| Rule {
            request,
            reply: if echo { request } else { reply },
            port,
            protocol,
            nonce_len,
            symmetric: u8::from(echo),
            reserved: [0; 3],
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_bytes_and_no_rule_make_it_panic(
        frame in bytes(), seen in any::<prop::sample::Index>(), start in start(),
        rules in prop::collection::vec(any_rule(), 0..=8),
    ) {
        let seen = seen.index(frame.len() + 1);
        let _ = cut_sighting(&frame, seen, start, &rules);
        let _ = maybe(&frame[..seen], start, &rules);
    }

    #[test]
    fn what_the_prefilter_refuses_is_never_recognised(
        frame in bytes(), linear in any::<prop::sample::Index>(), start in start(),
        mut rules in prop::collection::vec(any_rule(), 0..6),
    ) {
        rules.extend(all_rules().into_iter().take(2));
        let linear = linear.index(frame.len() + 1);
        if !maybe(&frame[..linear], start, &rules) {
            let found = cut_sighting(&frame, frame.len(), start, &rules);
            prop_assert_eq!(found, None);
        }
    }

    #[test]
    fn a_check_seen_in_part_is_seen_alike_in_full(
        frame in mutated(), seen in any::<prop::sample::Index>(),
    ) {
        let seen = seen.index(frame.len() + 1);
        let rules = all_rules();
        if let Some(part) = cut_sighting(&frame, seen, Start::Ethernet, &rules[..1]) {
            let full = cut_sighting(&frame, frame.len(), Start::Ethernet, &rules[..1]);
            prop_assert_eq!(Some(part), full);
        }
    }
}
