use proptest::prelude::*;

use crate::signature::{Fault, PRESETS, Signature};

/// Items of one direction; `longest` keeps bytes inside `len`.
fn side(prefix: &'static str, tcp: bool) -> impl Strategy<Value = Vec<String>> {
    let group = (0_u16..80, prop::collection::vec(any::<u8>(), 1..=8), any::<bool>());
    let groups = prop::collection::vec(group, 0..=3);
    let len = prop::option::of((0_u16..50, prop::option::of(100_u16..2000)));
    let flags = prop::sample::subsequence(vec!["syn", "ack", "fin", "psh", "ece"], 1..=5);
    let flags = prop::option::of(flags).prop_map(move |flags| flags.filter(|_| tcp));
    (groups, len, flags).prop_map(move |(groups, len, flags)| {
        let mut items = Vec::new();
        for (at, bytes, masked) in groups {
            let hex: String = bytes.iter().map(|byte| format!("{:02x}", byte & 0x7f)).collect();
            items.push(format!("{prefix}at={at},{prefix}bytes={hex}"));
            if masked {
                items.push(format!("{prefix}mask={}", "7f".repeat(bytes.len())));
            }
        }
        if let Some((least, greatest)) = len {
            let greatest = greatest.map(|len| len.to_string()).unwrap_or_default();
            items.push(format!("{prefix}len={least}..{greatest}"));
        }
        items.extend(flags.map(|flags| format!("{prefix}flags={}", flags.join("+"))));
        items
    })
}

fn rule_text() -> impl Strategy<Value = String> {
    let nonce = prop::option::of((0_u16..80, 1_u8..=16, prop::option::of(0_u16..80)));
    any::<bool>()
        .prop_flat_map(move |tcp| {
            let port = 1_u16..;
            (Just(tcp), port, side("", tcp), prop::option::of(side("reply-", tcp)), nonce.clone())
        })
        .prop_map(|(tcp, port, mut items, reply, nonce)| {
            items.push(format!("port={port}"));
            if let Some((at, len, reply_at)) = nonce {
                items.push(format!("nonce={at}+{len}"));
                items.extend(reply_at.map(|at| format!("reply-nonce={at}+{len}")));
            }
            items.extend(reply.into_iter().flatten());
            format!("{}:{}", if tcp { "tcp" } else { "udp" }, items.join(","))
        })
}

fn signature_text() -> impl Strategy<Value = String> {
    let interval = prop::option::of(1_u64..10_000_000_000);
    (prop::collection::vec(rule_text(), 1..=3), interval).prop_map(|(rules, interval)| {
        let interval = interval.map(|ns| format!(",interval={ns}ns")).unwrap_or_default();
        format!("{}{interval}", rules.join(";"))
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(text in signature_text()) {
        let parsed = Signature::parse(&text);
        prop_assume!(!matches!(&parsed, Err(error) if matches!(error.fault, Fault::Contradiction(_))));
        let signature = parsed.unwrap();
        let written = signature.to_string();
        let again = Signature::parse(&written).unwrap();
        prop_assert_eq!(&again.rules, &signature.rules);
        prop_assert_eq!(again.interval, signature.interval);
        prop_assert_eq!(again.to_string(), written);
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,60}", key in "[a-z-]{0,12}", value in ".{0,12}") {
        let _ = Signature::parse(&text);
        let _ = Signature::parse(&format!("udp:port=1,{key}={value}"));
        let _ = Signature::parse(&format!("tcp:at=0,bytes={value},mask={value}"));
    }
}

#[test]
fn presets_are_written_as_they_are_read() {
    for preset in PRESETS {
        for text in [preset.name.to_owned(), format!("{}:interval=1s", preset.name)] {
            assert_eq!(Signature::parse(&text).unwrap().to_string(), text);
        }
        let spelled = Signature::parse(&preset.rules.join(";")).unwrap();
        let again = Signature::parse(&spelled.to_string()).unwrap();
        assert_eq!(again.rules, Signature::parse(preset.name).unwrap().rules);
    }
}
