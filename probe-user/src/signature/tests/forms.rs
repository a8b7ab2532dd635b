use std::time::Duration;

use super::one_rule;
use crate::signature::{LoadError, PRESETS, RuleTable, Signature, TomlError, find_preset, from_toml, load};

#[test]
fn the_inline_form_gives_port_bytes_and_nonce() {
    let rule = one_rule("udp:port=4000,at=0,bytes=4841,nonce=4+8");
    assert_eq!((rule.protocol, rule.port, rule.nonce_len, rule.symmetric), (17, 4000, 8, 1));
    assert_eq!((rule.request.nonce_offset, rule.reply.nonce_offset), (4, 4));
    let field = rule.request.fields[0];
    assert_eq!((field.offset, field.len), (0, 2));
    assert_eq!((&field.bytes[..3], &field.mask[..3]), (&[0x48, 0x41, 0][..], &[255, 255, 0][..]));
    assert_eq!((rule.request.min_len, rule.request.max_len), (0, u16::MAX));
}

#[test]
fn text_and_hex_are_the_same_bytes() {
    let hex = one_rule("tcp:bytes=48415c220d0a");
    assert_eq!(one_rule(r#"tcp:at=0,bytes="HA\\\"\r\x0a""#), hex);
    assert_eq!(one_rule(r#" tcp: bytes = "HA\\\"\r\n" "#), hex);
}

#[test]
fn separators_inside_quotes_are_bytes() {
    let rule = one_rule(r#"udp:at=1,bytes="a,b=c;d""#);
    assert_eq!(&rule.request.fields[0].bytes[..7], b"a,b=c;d");
}

#[test]
fn up_to_four_groups_each_with_its_mask() {
    let rule = one_rule("udp:at=0,bytes=01,at=1,bytes=02,mask=0f,at=5,bytes=03,at=9,bytes=0405");
    assert_eq!(rule.request.fields.map(|field| field.offset), [0, 1, 5, 9]);
    assert_eq!(rule.request.fields.map(|field| field.mask[0]), [0xff, 0x0f, 0xff, 0xff]);
}

#[test]
fn reply_keys_describe_the_reply_alone() {
    let rule = one_rule("udp:len=8..64,at=0,bytes=01,nonce=4+2,reply-at=0,reply-bytes=02");
    assert_eq!((rule.request.min_len, rule.request.max_len), (8, 64));
    assert_eq!((rule.reply.min_len, rule.reply.max_len), (0, u16::MAX));
    assert_eq!((rule.reply.fields[0].bytes[0], rule.reply.nonce_offset), (2, 4));
    assert_eq!(rule.symmetric, 0);
    let moved = one_rule("udp:port=9,nonce=4+2,reply-nonce=6+2");
    assert_eq!((moved.request.nonce_offset, moved.reply.nonce_offset), (4, 6));
}

#[test]
fn flags_name_the_kind_of_segment_and_leave_the_rest_free() {
    let rule = one_rule("tcp:flags=syn,reply-flags=syn+ack");
    assert_eq!((rule.request.tcp_flags_mask, rule.request.tcp_flags), (0x17, 0x02));
    assert_eq!((rule.reply.tcp_flags_mask, rule.reply.tcp_flags), (0x17, 0x12));
    let push = one_rule("tcp:port=1,flags=psh+ack");
    assert_eq!((push.request.tcp_flags_mask, push.request.tcp_flags), (0x1f, 0x18));
}

#[test]
fn the_interval_belongs_to_the_signature() {
    let signature = Signature::parse("udp:port=1,interval=20ms").unwrap();
    assert_eq!(signature.interval, Some(Duration::from_millis(20)));
    let preset = Signature::parse("stun:interval=1s 500ms,port=3479").unwrap();
    assert_eq!(preset.interval, Some(Duration::from_millis(1500)));
    assert_eq!(preset.text, "stun:port=3479,interval=1s500ms");
}

#[test]
fn every_preset_is_sound_and_fits_with_others() {
    for preset in PRESETS {
        let signature = Signature::parse(preset.name).unwrap();
        assert_eq!(signature.rules.len(), preset.rules.len());
        assert_eq!((signature.name.as_str(), signature.text.as_str()), (preset.name, preset.name));
        assert!(signature.rules.len() <= 3, "{} leaves little room", preset.name);
        assert!(!preset.meaning.is_empty() && !preset.blind.is_empty());
    }
    assert_eq!(find_preset("no-such"), None);
}

#[test]
fn a_presets_port_can_be_set() {
    let signature = Signature::parse("http:port=8080").unwrap();
    assert!(signature.rules.iter().all(|rule| rule.port == 8080));
    assert_eq!((signature.name.as_str(), signature.text.as_str()), ("http", "http:port=8080"));
}

#[test]
fn several_rules_make_one_signature() {
    let signature = Signature::parse("udp:port=53,len=12..;tcp:port=53,len=14..").unwrap();
    assert_eq!(signature.rules.len(), 2);
    let table = RuleTable::new(&[Signature::parse("discord-voice").unwrap(), signature]).unwrap();
    assert_eq!(table.count, 3);
    let owners: Vec<_> = (0..4).map(|rule| table.signature_of(rule)).collect();
    assert_eq!(owners, [Some(0), Some(1), Some(1), None]);
}

#[test]
fn nine_rules_do_not_fit() {
    let stun = Signature::parse("stun").unwrap();
    assert!(RuleTable::new(&[stun.clone(), stun.clone()]).is_ok());
    let fault = RuleTable::new(&[stun.clone(), stun.clone(), stun]).unwrap_err();
    assert_eq!(fault.to_string(), "9 rules; at most 8 can be active at once");
}

const TOML: &str = r#"
[[signature]]
name = "voice"
protocol = "udp"
port = 4000
at = 0
bytes = "4841"
also = [{ at = 2, bytes = "0001", mask = "00ff" }]
nonce = "4+8"
len = 12
interval = "20ms"
reply-at = 0
reply-bytes = '"OK"'
reply-len = "2..64"

[[signature]]
name = "names"
rules = ["udp:port=53,len=12..", "tcp:port=53,len=14.."]
"#;

#[test]
fn toml_gives_what_the_inline_form_gives() {
    let [voice, names] = from_toml(TOML).unwrap().try_into().unwrap();
    let inline = "udp:port=4000,len=12,at=0,bytes=4841,at=2,bytes=0001,mask=00ff,nonce=4+8,\
                  reply-len=2..64,reply-at=0,reply-bytes=4f4b,interval=20ms";
    let same = Signature::parse(inline).unwrap();
    assert_eq!((&voice.rules, voice.interval), (&same.rules, same.interval));
    assert_eq!((voice.name.as_str(), voice.text.as_str()), ("voice", inline));
    assert_eq!((names.name.as_str(), names.rules.len()), ("names", 2));
}

#[test]
fn toml_refuses_what_it_does_not_know() {
    let refused = |text: &str| from_toml(text).unwrap_err();
    let entry = |rest: &str| format!("[[signature]]\nname = \"x\"\n{rest}");
    let unknown = refused(&entry("protocol = \"udp\"\nports = 1"));
    assert!(matches!(unknown, TomlError::Syntax(_)), "{unknown}");
    let TomlError::Signature { name, source } = refused(&entry("protocol = \"udp\"\nport = 0")) else {
        panic!("port 0 is wrong in the signature");
    };
    assert_eq!(name, "x");
    assert_eq!(source.to_string(), "port is `0`; it must be a number from 1 to 65535");
    for form in ["", "rules = [\"udp:port=1\"]\nprotocol = \"udp\"", "port = 1"] {
        assert!(matches!(refused(&entry(form)), TomlError::Signature { .. }), "{form}");
    }
    let twice = entry("rules = [\"udp:port=1\"]\n").repeat(2);
    assert!(matches!(refused(&twice), TomlError::DuplicateName(name) if name == "x"));
}

#[test]
fn an_argument_with_a_slash_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checks.toml");
    std::fs::write(&path, TOML).unwrap();
    assert_eq!(load(path.to_str().unwrap()).unwrap().len(), 2);
    assert!(matches!(load("./no-such.toml"), Err(LoadError::Read { .. })));
    let text = load(r#"tcp:bytes="GET /x.toml""#).unwrap();
    assert_eq!(text.len(), 1);
    assert!(matches!(load("icmp-ecco"), Err(LoadError::Text { .. })));
}
