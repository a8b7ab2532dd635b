//! All active rules, as programs and parser take them.

use probe_packet::{Prefilter, SNAP, Start, sight};
use probe_wire::{MAX_RULES, Rule, Sighting};

use super::Signature;
use super::error::Fault;

/// The rules of several signatures, numbered as [`Sighting::rule`] has them.
#[derive(Debug, Clone)]
pub struct RuleTable {
    /// Rules; the first `count` are in use.
    pub rules: [Rule; MAX_RULES],
    /// Rules in use.
    pub count: u32,
    /// What the programs ask first.
    pub prefilter: Prefilter,
    /// Which signature each rule in use belongs to.
    owners: Vec<usize>,
}

impl RuleTable {
    /// Numbers the rules of these signatures in order.
    pub fn new(signatures: &[Signature]) -> Result<Self, Fault> {
        let numbered = signatures.iter().enumerate();
        let all: Vec<(usize, Rule)> =
            numbered.flat_map(|(owner, signature)| signature.rules.iter().map(move |rule| (owner, *rule))).collect();
        let mut rules = [Rule::default(); MAX_RULES];
        if all.len() > rules.len() {
            return Err(Fault::TooManyRules(all.len()));
        }
        for (slot, (_, rule)) in rules.iter_mut().zip(&all) {
            *slot = *rule;
        }
        let count = u32::try_from(all.len()).unwrap_or(0);
        Ok(RuleTable {
            rules,
            count,
            prefilter: Prefilter::new(&rules, count),
            owners: all.into_iter().map(|(owner, _)| owner).collect(),
        })
    }

    /// The number, in the slice given to [`new`](Self::new), of the signature that a rule belongs
    /// to. Checks are told apart by signature, not by rule: a reply matches the first rule whose
    /// reply looks so, which need not be the rule of its request.
    pub fn signature_of(&self, rule: u8) -> Option<usize> {
        self.owners.get(usize::from(rule)).copied()
    }

    /// Recognises a health check in a frame of which `len` bytes are at hand.
    pub fn sight(&self, frame: &FrameHead<'_>) -> Option<Sighting> {
        let mut sighting = Sighting::default();
        sight(frame.bytes, frame.len, frame.frame_len, frame.start, &self.rules, self.count, frame.flags, &mut sighting)
            .then_some(sighting)
    }
}

/// The beginning of a frame.
#[derive(Debug, Clone, Copy)]
pub struct FrameHead<'a> {
    /// Its bytes.
    pub bytes: &'a [u8; SNAP],
    /// How many of them are valid.
    pub len: u32,
    /// Bytes of the frame on the wire.
    pub frame_len: u32,
    /// What it begins with.
    pub start: Start,
    /// `FLAG_*` bits known from elsewhere.
    pub flags: u16,
}
