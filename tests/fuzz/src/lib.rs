//! What must hold of any input, one function for each fuzz target.

use std::sync::LazyLock;

use probe_packet::{Head, Load, SNAP, Start, may_match};
use probe_user::pipeline::{Collector, Output};
use probe_user::signature::{FrameHead, PRESETS, RuleTable, Signature};
use probe_user::source::recording::read_all;
use probe_wire::Sighting;

/// Each preset with its own rules.
static TABLES: LazyLock<Vec<RuleTable>> = LazyLock::new(|| {
    let signatures = PRESETS.iter().map(|preset| Signature::parse(preset.name));
    signatures
        .map(|signature| RuleTable::new(&[signature.expect("presets are sound")]))
        .map(|table| table.expect("a preset fits"))
        .collect()
});

/// A packet of which all bytes are readable.
struct Readable<'a>(&'a [u8]);

impl Load for Readable<'_> {
    fn ne16(&self, offset: u32) -> Option<u16> {
        let bytes = self.0.get(offset as usize..)?.first_chunk()?;
        Some(u16::from_ne_bytes(*bytes))
    }
}

impl Head for Readable<'_> {
    fn holds<const LEN: usize>(&self) -> bool {
        self.0.len() >= LEN
    }

    fn byte(&self, at: u32) -> u8 {
        self.0[at as usize]
    }

    fn half(&self, at: u32) -> u16 {
        u16::from_ne_bytes([self.byte(at), self.byte(at + 1)])
    }
}

/// The parser on one frame. The first byte says where it starts and how much of it was captured,
/// the rest is the frame.
pub fn parser(data: &[u8]) {
    let Some((choice, frame)) = data.split_first() else {
        return;
    };
    let start = match choice & 1 {
        0 => Start::Ethernet,
        _ => Start::Network,
    };
    let seen = frame.len().min(SNAP).saturating_sub(usize::from(choice >> 1));
    let mut bytes = [0; SNAP];
    bytes[..seen].copy_from_slice(&frame[..seen]);
    let head = FrameHead {
        bytes: &bytes,
        len: u32::try_from(seen).unwrap_or(0),
        frame_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
        start,
        flags: 0,
    };
    for table in TABLES.iter() {
        let found = table.sight(&head);
        if let Some(sighting) = found {
            assert_is_sound(&sighting, table);
        }
        let readable = Readable(&frame[..seen]);
        let foreign = table.prefilter.glance.is_foreign(&readable, start);
        let maybe = !foreign && may_match(&readable, start, &table.prefilter);
        assert!(maybe || found.is_none(), "refused, but recognised");
    }
}

fn assert_is_sound(sighting: &Sighting, table: &RuleTable) {
    assert!(u32::from(sighting.rule) < table.count);
    assert!((1..=3).contains(&sighting.role));
    let nonce_len = usize::from(table.rules[usize::from(sighting.rule)].nonce_len);
    assert!(sighting.nonce[nonce_len..].iter().all(|byte| *byte == 0));
}

/// The text form: what is accepted must be written so that it is read again.
pub fn signature_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(signature) = Signature::parse(text) else {
        return;
    };
    let written = signature.to_string();
    let again = Signature::parse(&written).expect("what is written is read again");
    assert_eq!((again.rules, again.interval), (signature.rules, signature.interval));
    assert_eq!(again.text, written);
}

/// A recording: whatever stands in the file, what is readable is replayed, every ledger adds up,
/// and the run ends with its losses and its summary.
pub fn recording(data: &[u8]) {
    let (records, _damage) = read_all(data);
    let mut collector = Collector::new();
    let mut ends = 0;
    let mut check = |output: Output| match output {
        Output::Journey(judged) => {
            let ledger = &judged.ledger;
            let explained: u64 = ledger.entries.iter().map(|entry| entry.time().0).sum();
            assert_eq!(explained + ledger.unexplained.0, ledger.to.since(ledger.from).0, "{ledger:?}");
        }
        Output::Summary(_) => ends += 1,
        _ => {}
    };
    for record in &records {
        collector.push(record, &mut check);
    }
    collector.finish(&mut check);
    assert_eq!(ends, 1);
}
