//! Every encapsulation, cut everywhere; and what must hold of any bytes.

mod any_bytes;
mod encapsulations;
mod roles;

use crate::{Head, Load, Prefilter, SNAP, Start, may_match, sight};
use probe_wire::{FieldMatch, MAX_RULES, Pattern, Rule, Sighting};

/// Port of the rules below.
const PORT: u16 = 4000;
const MAGIC: [u8; 2] = [0x48, 0x41];

/// Bytes at an offset.
fn field(offset: u16, wanted: &[u8]) -> FieldMatch {
    let mut field = FieldMatch { offset, len: u16::try_from(wanted.len()).unwrap(), ..FieldMatch::default() };
    field.bytes[..wanted.len()].copy_from_slice(wanted);
    field.mask[..wanted.len()].fill(0xff);
    field
}

fn pattern(fields: &[FieldMatch], nonce_offset: u16) -> Pattern {
    let mut pattern = Pattern { max_len: u16::MAX, nonce_offset, ..Pattern::default() };
    pattern.fields[..fields.len()].copy_from_slice(fields);
    pattern
}

/// `udp:port=4000,at=0,bytes=4841,nonce=4+8`.
fn udp_rule() -> Rule {
    let side = pattern(&[field(0, &MAGIC)], 4);
    Rule { request: side, reply: side, port: PORT, protocol: 17, nonce_len: 8, symmetric: 1, ..Rule::default() }
}

/// `tcp:flags=syn,reply-flags=syn+ack`.
fn connect_rule() -> Rule {
    let flags = |tcp_flags| Pattern { tcp_flags_mask: 0x17, tcp_flags, ..pattern(&[], 0) };
    Rule { request: flags(0x02), reply: flags(0x12), protocol: 6, ..Rule::default() }
}

/// Echo request 8/0 with its reply 0/0, identifier and sequence as nonce.
fn ping_rule() -> Rule {
    Rule {
        request: pattern(&[field(0, &[8, 0])], 4),
        reply: pattern(&[field(0, &[0, 0])], 4),
        protocol: 1,
        nonce_len: 4,
        ..Rule::default()
    }
}

/// Rules of every protocol.
fn all_rules() -> Vec<Rule> {
    vec![udp_rule(), connect_rule(), ping_rule()]
}

/// A payload that [`udp_rule`] recognises.
fn payload() -> Vec<u8> {
    let mut payload = MAGIC.to_vec();
    payload.extend([0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    payload
}

/// What [`sight`] makes of a whole frame.
fn sighting(frame: &[u8], start: Start, rules: &[Rule]) -> Option<Sighting> {
    cut_sighting(frame, frame.len(), start, rules)
}

/// What [`sight`] makes of the first `seen` bytes of a frame.
fn cut_sighting(frame: &[u8], seen: usize, start: Start, rules: &[Rule]) -> Option<Sighting> {
    let mut buf = [0; SNAP];
    let seen = seen.min(SNAP);
    buf[..seen].copy_from_slice(&frame[..seen]);
    let mut table = [Rule::default(); MAX_RULES];
    table[..rules.len()].copy_from_slice(rules);
    let mut out = dirty();
    let found = sight(
        &buf,
        u32::try_from(seen).unwrap(),
        u32::try_from(frame.len()).unwrap(),
        start,
        &table,
        u32::try_from(rules.len()).unwrap(),
        0,
        &mut out,
    );
    found.then_some(out)
}

/// A scratch that still holds something.
fn dirty() -> Sighting {
    zerocopy::transmute!([0xa5_u8; size_of::<Sighting>()])
}

/// A packet of which only so many bytes are directly readable.
struct Linear<'a>(&'a [u8]);

impl Load for Linear<'_> {
    fn ne16(&self, offset: u32) -> Option<u16> {
        assert!(offset.is_multiple_of(2) && offset <= 66, "{offset} is no header offset");
        self.payload_ne16(offset)
    }

    fn payload_ne16(&self, offset: u32) -> Option<u16> {
        let bytes = self.0.get(offset as usize..)?.first_chunk()?;
        Some(u16::from_ne_bytes(*bytes))
    }
}

impl Head for Linear<'_> {
    fn holds<const LEN: usize>(&self) -> bool {
        self.0.len() >= LEN
    }

    fn byte(&self, at: u32) -> u8 {
        self.0[at as usize]
    }

    fn half(&self, at: u32) -> u16 {
        assert!(at.is_multiple_of(2), "{at} is odd");
        u16::from_ne_bytes([self.byte(at), self.byte(at + 1)])
    }
}

fn maybe(frame: &[u8], start: Start, rules: &[Rule]) -> bool {
    let mut table = [Rule::default(); MAX_RULES];
    table[..rules.len()].copy_from_slice(rules);
    let filter = Prefilter::new(&table, u32::try_from(rules.len()).unwrap());
    let frame = Linear(frame);
    !filter.glance.is_foreign(&frame, start) && may_match(&frame, start, &filter)
}
