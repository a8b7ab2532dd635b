//! What happened when: kept few, the worst and the first.

use super::{MomentRecord, clipped};
use crate::attribution::{Judged, Stall, Verdict};
use crate::clock::MonoNs;
use crate::journey::Outcome;
use crate::sink::{self, Names};
use std::collections::BTreeMap;

/// Most moments in a timeline.
const MOST: usize = 200;
/// Most that are remembered of a kind; the shortest goes first.
const MOST_KEPT: usize = 2 * MOST;

/// Moments by their time.
#[derive(Debug, Default)]
pub(super) struct Moments {
    /// By time and check, so that what is told again replaces what was told before.
    moments: BTreeMap<(MonoNs, u64), MomentRecord>,
    left_out: u64,
}

impl Moments {
    /// A slow or lost check; one that is still open replaces its former self.
    pub(super) fn check(&mut self, judged: &Judged, names: &Names) {
        let journey = &judged.journey;
        let began = journey.started_at();
        let key = (began, journey.id.0);
        if judged.slow {
            self.keep(key, check(judged, names));
        } else {
            self.moments.remove(&key);
        }
    }

    pub(super) fn add(&mut self, at: MonoNs, moment: MomentRecord) {
        let order = u64::MAX - u64::try_from(self.moments.len()).unwrap_or(0);
        self.keep((at, order), moment);
    }

    fn keep(&mut self, key: (MonoNs, u64), moment: MomentRecord) {
        self.moments.insert(key, moment);
        if self.moments.len() > MOST_KEPT {
            self.shorten(MOST);
        }
    }

    /// The first is what set it off, so it stays.
    fn shorten(&mut self, most: usize) {
        let mut by_length: Vec<_> = self.moments.iter().skip(1).map(|(key, moment)| (moment.ns, *key)).collect();
        by_length.sort_unstable();
        for (_, key) in by_length.iter().take(self.moments.len().saturating_sub(most)) {
            self.moments.remove(key);
            self.left_out += 1;
        }
    }

    /// In the order of time, and how many were left out.
    pub(super) fn finish(mut self) -> (Vec<MomentRecord>, u64) {
        self.shorten(MOST);
        (self.moments.into_values().collect(), self.left_out)
    }
}

fn check(judged: &Judged, names: &Names) -> MomentRecord {
    let journey = &judged.journey;
    let (what, became) = match journey.outcome {
        Outcome::Lost(_) => ("lost", "was lost after"),
        Outcome::Open => ("open", "is open for"),
        Outcome::Replied | Outcome::Ambiguous | Outcome::Broken(_) => ("slow", "took"),
    };
    let (cause, why) = verdict(&judged.verdict);
    let who = offender(judged).map_or_else(String::new, |who| format!(" ({who})"));
    MomentRecord {
        happened_at: names.rfc3339(journey.started_at()),
        what: what.to_owned(),
        target: clipped(&names.target(journey.target)),
        ns: journey.elapsed().0,
        cause,
        text: clipped(&format!("a check {became} {}: {why}{who}", journey.elapsed())),
    }
}

/// Who took the most of what the verdict's cause took.
fn offender(judged: &Judged) -> Option<String> {
    let Verdict::Cause { cause, .. } = judged.verdict else { return None };
    let entries = judged.ledger.entries.iter().filter(|entry| entry.cause == cause);
    let offender = entries.max_by_key(|entry| entry.time())?.offender.as_ref()?;
    Some(offender.name()).filter(|name| !name.is_empty())
}

fn verdict(verdict: &Verdict) -> (Option<String>, String) {
    match verdict {
        Verdict::Healthy => (None, "healthy".to_owned()),
        Verdict::Cause { cause, share } => (Some(cause.name().to_owned()), percent(cause.name(), *share)),
        Verdict::Split { cause, share } => (None, format!("split, {} the most", percent(cause.name(), *share))),
        Verdict::Unresolved(reason) => (None, format!("unresolved, {reason}")),
    }
}

pub(super) fn percent(cause: &str, share: f64) -> String {
    format!("{cause} {}", sink::percent(share))
}

/// A stall of storage.
pub(super) fn stall(stall: &Stall, target: String, names: &Names) -> MomentRecord {
    let causes: Vec<_> = stall.causes.iter().map(|cause| cause.name()).collect();
    let by = stall.offender.as_ref().filter(|offender| offender.task.tid != 0);
    let by = by.map_or_else(String::new, |offender| format!(", behind it {}", offender.name()));
    let time = stall.to.since(stall.from);
    let victims = stall.victims.len();
    MomentRecord {
        happened_at: names.rfc3339(stall.from),
        what: "stall".to_owned(),
        target,
        ns: time.0,
        cause: stall.causes.first().map(|cause| cause.name().to_owned()),
        text: clipped(&format!("{} held {victims} threads up for {time}: {}{by}", stall.device, causes.join(", "))),
    }
}
