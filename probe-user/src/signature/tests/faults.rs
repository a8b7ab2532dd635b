use super::refused;
use crate::signature::{Fault, LoadError, Signature, TomlError, from_toml, load};

/// The column of the fault, and its text.
fn message(text: &str) -> String {
    Signature::parse(text).unwrap_err().to_string()
}

#[test]
fn a_fault_names_its_column_and_what_would_be_right() {
    for (text, expected) in [
        ("udp:port=70000,at=0,bytes=48", "column 10: port is `70000`; it must be a number from 1 to 65535"),
        ("udp:port=0", "column 10: port is `0`; it must be a number from 1 to 65535"),
        ("udp:port=+5", "column 10: port is `+5`; it must be a number from 1 to 65535"),
        ("udp:bytes=484", "column 11: `484` is neither hex, two digits a byte, nor \"text\""),
        ("udp:bytes=", "column 11: 0 bytes; one comparison takes 1 to 16"),
        (r#"udp:bytes="\q""#, r#"column 11: escape `\q` is unknown; use \\, \", \n, \r, \t or \x41"#),
        ("udp:bytes=\"4", "column 11: the text is not closed; it ends with a second `\"`"),
        ("udp:port=1,nonce=4", "column 18: nonce is `4`; write offset+bytes with 1 to 16 bytes, such as 4+8"),
        ("udp:len=9..8", "column 9: len is `9..8`; write 8, 8..64, 8.. or ..64, the lower first"),
        ("udp:port=1,port=2", "column 12: `port` is given twice"),
        ("udp:port", "column 5: `port` has no value; write key=value"),
        ("icmp:port=1", "column 6: `port` makes no sense for icmp"),
        ("udp:flags=syn", "column 5: `flags` makes no sense for udp"),
        ("udp:port=1,interval=0s", "column 21: interval is `0s`; write a time above zero, such as 20ms or 1s"),
        (
            "sctp:port=1",
            "column 1: `sctp` is neither a preset (see `whylag signature list`) nor a rule such as `udp:port=4000,at=0,bytes=4841`",
        ),
        ("udp:port=1;sctp:port=1", "column 12: protocol `sctp` is unknown; use udp, tcp or icmp"),
    ] {
        assert_eq!(message(text), expected, "{text}");
    }
}

#[test]
fn columns_count_characters() {
    assert_eq!(refused("udp:bytes=\"äö\",port=x").0, Some(21));
}

#[test]
fn masks_must_fit_their_bytes() {
    assert_eq!(refused("udp:bytes=4841,mask=ff").1, Fault::MaskLength { mask: 1, bytes: 2 });
    assert_eq!(refused("udp:bytes=00,mask=00").1, Fault::ZeroMask);
    assert_eq!(refused("udp:at=3,bytes=00ff,mask=ff0f").1, Fault::BitsOutsideMask(4));
    assert_eq!(refused("udp:mask=ff").1, Fault::MaskWithoutBytes("mask".to_owned()));
    let twice = refused("udp:bytes=00,mask=0f,mask=0f").1;
    assert_eq!(twice, Fault::MaskWithoutBytes("mask".to_owned()));
}

#[test]
fn groups_must_be_whole() {
    assert_eq!(refused("udp:port=1,at=4").1, Fault::AtWithoutBytes("at".to_owned()));
    assert_eq!(refused("udp:at=4,at=5,bytes=00").1, Fault::AtWithoutBytes("at".to_owned()));
    assert_eq!(refused("udp:bytes=00,bytes=00").1, Fault::BytesWithoutAt("bytes".to_owned()));
    let five = "udp:at=0,bytes=00,at=1,bytes=00,at=2,bytes=00,at=3,bytes=00,at=4,bytes=00";
    assert_eq!(refused(five), (Some(61), Fault::TooManyFields));
    let reply = refused("udp:port=1,reply-at=0").1;
    assert_eq!(reply, Fault::AtWithoutBytes("reply-at".to_owned()));
}

#[test]
fn what_is_never_looked_at_cannot_be_asked_for() {
    let (column, fault) = refused("udp:at=213,bytes=0000");
    assert_eq!(column, Some(18));
    let Fault::Invisible { end, visible, .. } = fault else {
        panic!("{fault}");
    };
    assert_eq!((end, visible), (215, 214));
    assert!(Signature::parse("udp:at=212,bytes=0000").is_ok());
    assert!(matches!(refused("tcp:port=1,nonce=200+4").1, Fault::Invisible { .. }));
    assert!(matches!(refused("udp:port=1,nonce=0+17").1, Fault::Nonce(_)));
    assert!(matches!(refused("udp:at=70000,bytes=00").1, Fault::Number { .. }));
}

#[test]
fn what_can_never_match_is_refused() {
    let behind = Fault::BehindLength { end: 9, longest: 8 };
    assert_eq!(refused("udp:len=8,at=8,bytes=00").1, behind);
    assert!(matches!(refused("udp:port=1,len=8,nonce=4+8").1, Fault::BehindLength { .. }));
    assert_eq!(refused("udp:at=0,bytes=48,at=0,bytes=49").1, Fault::Contradiction(0));
    assert_eq!(refused("udp:at=0,bytes=4849,at=1,bytes=4a50").1, Fault::Contradiction(1));
    assert_eq!(refused("udp:port=1,reply-at=4,reply-bytes=00,reply-at=4,reply-bytes=01").1, Fault::Contradiction(4));
    assert!(Signature::parse("udp:at=0,bytes=48,at=0,bytes=48").is_ok());
    assert!(Signature::parse("udp:at=0,bytes=40,mask=f0,at=0,bytes=08,mask=0f").is_ok());
}

#[test]
fn a_long_argument_is_shown_around_its_fault() {
    let long = format!("udp:port=4000,prt=1,bytes={}", "41".repeat(10_000));
    let Err(error @ LoadError::Text { .. }) = load(&long) else { panic!("it is not refused as a text") };
    assert!(error.to_string().contains("prt=1") && error.to_string().chars().count() < 120, "{error}");
    for text in ["x".repeat(20_000), format!("udp:bytes={}", "z".repeat(20_000))] {
        let fault = message(&text);
        assert!(fault.chars().count() < 320 && fault.contains("neither"), "{fault}");
    }
}

#[test]
fn a_file_must_hold_a_signature() {
    assert!(matches!(from_toml("# nothing\n"), Err(TomlError::Empty)));
}

#[test]
fn what_matches_every_packet_is_refused() {
    assert_eq!(refused("udp:").1, Fault::MatchesAll("request"));
    assert_eq!(refused("udp:nonce=0+4").1, Fault::MatchesAll("request"));
    assert_eq!(refused("udp:bytes=00,reply-len=0..").1, Fault::MatchesAll("reply"));
    assert!(Signature::parse("udp:port=9").is_ok());
}

#[test]
fn reply_and_request_must_have_nonces_alike() {
    let fault = refused("udp:port=1,nonce=0+4,reply-nonce=0+8").1;
    assert_eq!(fault, Fault::NonceLength { request: 4, reply: 8 });
    let fault = refused("udp:port=1,reply-nonce=0+8").1;
    assert_eq!(fault, Fault::NonceLength { request: 0, reply: 8 });
}

#[test]
fn unknown_keys_and_presets_are_refused() {
    assert!(matches!(refused("udp:prot=1").1, Fault::UnknownKey(key) if key == "prot"));
    assert!(matches!(refused("udp:reply-port=1").1, Fault::UnknownKey(_)));
    assert!(matches!(refused("stunn").1, Fault::UnknownName(_)));
    assert!(matches!(refused("").1, Fault::UnknownName(_)));
    assert!(matches!(refused("stun:nonce=0+4").1, Fault::NotForPreset(_)));
    assert!(matches!(refused("icmp-echo:port=1").1, Fault::WrongProtocol { .. }));
    assert!(matches!(refused("udp:port=1,interval=1s;udp:port=2,interval=1s").1, Fault::Duplicate(_)));
    assert!(matches!(refused(&"udp:port=1;".repeat(9)).1, Fault::UnknownProtocol(_)));
    let nine = ["udp:port=1"; 9].join(";");
    assert_eq!(refused(&nine).1, Fault::TooManyRules(9));
}
