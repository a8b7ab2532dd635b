//! `whylag signature list` and `whylag signature test`: what there is, and what it finds.

mod pairing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use super::preset::PRESETS;
use super::{Fault, RuleTable, Signature, SignatureError, readable};
use crate::clock::DurNs;
use crate::source::pcap::{CapturedFrame, PcapCounts, PcapError, PcapReader, Step};
use pairing::Pairing;

/// A trial that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The capture cannot be read.
    #[error("cannot try signatures")]
    Capture(#[from] PcapError),
    /// A signature has too many rules.
    #[error("cannot try signatures")]
    Rules(#[from] Fault),
    /// A preset is wrong; a test prevents it.
    #[error("cannot read the presets")]
    Preset(#[from] SignatureError),
    /// The result cannot be written.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
}

/// What was found in a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// Packets of the file; `matched` are those that at least one signature recognised.
    pub counts: PcapCounts,
    /// Bytes of the file that were whole, if its end is cut.
    pub truncated_at: Option<u64>,
    /// What each signature found, in the order given.
    pub signatures: Vec<SignatureTrial>,
    /// Packets that were not looked into, by what they are.
    pub not_parsed: BTreeMap<&'static str, u64>,
}

/// What one signature found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureTrial {
    /// The signature.
    pub signature: Signature,
    /// By rule, in the signature's order.
    pub rules: Vec<RuleCounts>,
    /// Requests; a repeated one counts once while it is unanswered.
    pub requests: u64,
    /// Of these, answered: by nonce and flow, or by order on the flow if there is no nonce.
    pub answered: u64,
    /// What the answers took, nanoseconds, in the order of the file; of the first million.
    pub times_ns: Vec<u64>,
    /// Requests seen again before they were answered.
    pub repeated: u64,
    /// Replies to nothing that was seen.
    pub unasked: u64,
    /// Requests that were too many to wait for.
    pub untracked: u64,
    /// Flows that had a request or a reply: addresses, ports and protocol.
    pub flows: u64,
    /// Time of the first packet recognised, nanoseconds since 1970.
    pub first_ns: Option<u64>,
    /// Time of the last.
    pub last_ns: Option<u64>,
}

/// Answers whose time is kept.
const MAX_TIMES: usize = 1 << 20;

/// Packets that one rule recognised.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RuleCounts {
    /// In the role of a request.
    pub requests: u64,
    /// In the role of a reply.
    pub replies: u64,
}

/// Writes the presets.
pub fn list(out: &mut impl Write) -> io::Result<()> {
    for preset in PRESETS {
        writeln!(out, "{}\n  {}", preset.name, preset.meaning)?;
        writeln!(out, "  does not see: {}", preset.blind)?;
        for rule in preset.rules {
            writeln!(out, "    {rule}")?;
        }
    }
    Ok(())
}

/// Looks for `signatures` in a capture, or for each preset if there are none, and writes what was
/// found.
pub fn test(path: &Path, signatures: &[Signature], out: &mut impl Write) -> Result<Trial, TrialError> {
    let presets;
    let tried = match signatures {
        [] => {
            presets = all_presets()?;
            presets.as_slice()
        }
        _ => signatures,
    };
    let trial = Trial::of(PcapReader::open(path)?, tried)?;
    trial.write(out, signatures.is_empty())?;
    Ok(trial)
}

fn all_presets() -> Result<Vec<Signature>, SignatureError> {
    PRESETS.iter().map(|preset| Signature::parse(preset.name)).collect()
}

impl Trial {
    /// Reads a capture to its end.
    pub fn of(mut reader: PcapReader, signatures: &[Signature]) -> Result<Self, TrialError> {
        let mut attempts = Vec::new();
        for signature in signatures {
            attempts.push(Attempt::new(signature)?);
        }
        let mut counts = PcapCounts::default();
        let mut truncated_at = None;
        let mut not_parsed = BTreeMap::new();
        loop {
            match reader.step()? {
                Step::End => break,
                Step::Truncated { at } => truncated_at = Some(at),
                Step::Unparsable(what) => {
                    counts.packets += 1;
                    counts.unparsable += 1;
                    *not_parsed.entry(what).or_default() += 1;
                }
                Step::Frame(frame) => {
                    counts.packets += 1;
                    let hits = attempts.iter_mut().filter_map(|attempt| attempt.look_at(&frame));
                    let recognised = hits.count() > 0;
                    counts.matched += u64::from(recognised);
                    if let Some(what) = frame.wrapping().filter(|_| !recognised) {
                        *not_parsed.entry(what).or_default() += 1;
                    }
                }
            }
        }
        let signatures = attempts.into_iter().map(|attempt| attempt.result).collect();
        Ok(Trial { counts, truncated_at, signatures, not_parsed })
    }

    /// Writes the result for people; with `only_found`, only the signatures that found something.
    pub fn write(&self, out: &mut impl Write, only_found: bool) -> io::Result<()> {
        let PcapCounts { packets, matched, .. } = self.counts;
        writeln!(out, "{}, {matched} recognised", count(packets, "packet"))?;
        if !self.not_parsed.is_empty() {
            let named: Vec<String> = self.not_parsed.iter().map(|(what, count)| format!("{count} ({what})")).collect();
            writeln!(out, "not parsed: {}", named.join(", "))?;
        }
        let mut silent = Vec::new();
        for signature in &self.signatures {
            match signature.found() {
                false if only_found => silent.push(signature.signature.name.as_str()),
                _ => signature.write(out)?,
            }
        }
        if !silent.is_empty() {
            writeln!(out, "nothing found for: {}", silent.join(", "))?;
        }
        Ok(())
    }
}

impl SignatureTrial {
    /// Whether any packet was recognised.
    pub fn found(&self) -> bool {
        self.first_ns.is_some()
    }

    /// Least, median and most of what the answers took.
    fn times(&self) -> Option<(DurNs, DurNs, DurNs)> {
        let mut times = self.times_ns.clone();
        times.sort_unstable();
        let (first, last) = (times.first()?, times.last()?);
        Some((DurNs(*first), DurNs(*times.get(times.len() / 2)?), DurNs(*last)))
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", readable(&self.signature.name))?;
        writeln!(
            out,
            "  {} on {}, {} answered, {} not",
            count(self.requests, "request"),
            count(self.flows, "flow"),
            self.answered,
            self.requests.saturating_sub(self.answered),
        )?;
        if let Some((least, median, most)) = self.times() {
            writeln!(out, "  answers took {least} at least, {median} median, {most} at most")?;
        }
        let notes = [
            (self.repeated, "requests seen again before an answer"),
            (self.unasked, "replies to no request in the file"),
            (self.untracked, "requests too many to wait for"),
        ];
        for (count, what) in notes.iter().filter(|(count, _)| *count > 0) {
            writeln!(out, "  {count} {what}")?;
        }
        for (number, rule) in self.rules.iter().enumerate().filter(|_| self.rules.len() > 1) {
            let RuleCounts { requests, replies } = rule;
            writeln!(out, "  rule {}: {requests} requests, {replies} replies", number + 1)?;
        }
        if let (Some(first), Some(last)) = (self.first_ns, self.last_ns) {
            writeln!(out, "  from {} to {}", wall_time(first), wall_time(last))?;
        }
        Ok(())
    }
}

fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn wall_time(ns: u64) -> String {
    match UNIX_EPOCH.checked_add(Duration::from_nanos(ns)) {
        Some(time) => humantime::format_rfc3339_nanos(time).to_string(),
        None => format!("{ns} ns"),
    }
}

/// One signature on its way through a capture.
struct Attempt {
    table: RuleTable,
    pairing: Pairing,
    result: SignatureTrial,
}

impl Attempt {
    fn new(signature: &Signature) -> Result<Self, Fault> {
        Ok(Attempt {
            table: RuleTable::new(std::slice::from_ref(signature))?,
            pairing: Pairing::default(),
            result: SignatureTrial {
                signature: signature.clone(),
                rules: vec![RuleCounts::default(); signature.rules.len()],
                requests: 0,
                answered: 0,
                times_ns: Vec::new(),
                repeated: 0,
                unasked: 0,
                untracked: 0,
                flows: 0,
                first_ns: None,
                last_ns: None,
            },
        })
    }

    fn look_at(&mut self, frame: &CapturedFrame) -> Option<()> {
        let sighting = self.table.sight(&frame.head())?;
        let rule = usize::from(sighting.rule);
        let has_nonce = self.table.rules.get(rule)?.nonce_len != 0;
        let part = self.pairing.push(&sighting, has_nonce, frame.time_ns);
        self.result.count(rule, part, frame.time_ns);
        self.result.flows = self.pairing.flows();
        Some(())
    }
}

impl SignatureTrial {
    fn count(&mut self, rule: usize, part: pairing::Part, time_ns: u64) {
        use pairing::Part;
        self.requests += u64::from(matches!(part, Part::Request | Part::Untracked));
        if let Part::Answer { took_ns } = part {
            self.answered += 1;
            self.times_ns.extend(took_ns.filter(|_| self.times_ns.len() < MAX_TIMES));
        }
        self.repeated += u64::from(part == Part::Repeated);
        self.unasked += u64::from(part == Part::Unasked);
        self.untracked += u64::from(part == Part::Untracked);
        if let Some(counts) = self.rules.get_mut(rule) {
            let is_reply = matches!(part, Part::Answer { .. } | Part::Unasked);
            counts.replies += u64::from(is_reply);
            counts.requests += u64::from(!is_reply);
        }
        self.first_ns = Some(self.first_ns.map_or(time_ns, |first| first.min(time_ns)));
        self.last_ns = Some(self.last_ns.map_or(time_ns, |last| last.max(time_ns)));
    }
}
