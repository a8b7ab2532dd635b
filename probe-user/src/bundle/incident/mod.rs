//! The incident in a few facts, as JSON: what a person reads first, and what bundles are found by.
//!
//! Outputs of the pipeline come in ([`Incident`]), an [`IncidentRecord`] goes out. It concludes nothing of
//! its own: every cause in it is one of an episode, every fact one of a ledger.

mod build;
mod component;
mod moment;

pub(super) use build::{Incident, NOTABLE};
pub use component::Component;

use serde::{Deserialize, Serialize};

/// Most characters of a name or sentence in the record; the ledgers hold them whole.
const LONGEST: usize = 400;

/// An incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IncidentRecord {
    /// `incident`, as every JSON object of whylag says what it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The first 12 digits of the SHA-256 of its recording.
    pub id: String,
    /// Start of the first check, RFC 3339; `None` without any.
    pub started_at: Option<String>,
    /// End of the last check.
    pub ended_at: Option<String>,
    /// What was noticed, in a sentence.
    pub symptom: String,
    /// Checks, and what became of them.
    pub counts: CountsRecord,
    /// What was looked for.
    pub signatures: Vec<String>,
    /// Where checks were seen, by label.
    pub targets: Vec<String>,
    /// Parts of the host with at least a tenth of the delay of a target, the largest first.
    pub components: Vec<Component>,
    /// The conclusion at each target with slow or lost checks, the worst target first.
    pub verdicts: Vec<VerdictRecord>,
    /// What took the time, the largest first.
    pub causes: Vec<CauseRecord>,
    /// The first slow or lost check, and what it waited for; `None` if all were healthy.
    pub trigger: Option<MomentRecord>,
    /// What else is known to have played a part, a sentence each.
    pub contributing_factors: Vec<String>,
    /// What happened, in the order of time.
    pub timeline: Vec<MomentRecord>,
    /// What proves the causes, the facts of most time first.
    pub evidence: Vec<EvidenceRecord>,
    /// What people did about it: left empty for them.
    pub actions: Vec<String>,
}

/// Checks, and what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountsRecord {
    /// All.
    pub checks: u64,
    /// Slow ones, the lost not counted.
    pub slow: u64,
    /// Lost ones.
    pub lost: u64,
    /// Open at the end.
    pub open: u64,
    /// Slow or lost ones without a verdict.
    pub unresolved: u64,
    /// Time of slow and lost ones for which no cause is proven, nanoseconds; not in older bundles.
    #[serde(default)]
    pub unexplained_ns: u64,
    /// The longest time of a slow or lost check, nanoseconds.
    pub worst_ns: u64,
    /// Events that were lost on the way; with any, nothing is sure.
    pub lost_events: u64,
}

/// The conclusion at a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerdictRecord {
    /// The target's label.
    pub target: String,
    /// `cause`, `split` or `unresolved`.
    pub status: String,
    /// The largest cause, if there is one.
    pub cause: Option<String>,
    /// Its part of the delay, 0 to 1.
    pub share: Option<f64>,
    /// Why there is no verdict.
    pub reason: Option<String>,
    /// Median of the healthy checks, nanoseconds.
    pub usual_ns: Option<u64>,
    /// Slow and lost checks.
    pub affected: u64,
}

/// What a cause took at a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CauseRecord {
    /// Its name.
    pub cause: String,
    /// The part of the host that it is about.
    pub component: Component,
    /// The target's label.
    pub target: String,
    /// Time it took from slow and lost checks.
    pub ns: u64,
    /// Its part of their delay, 0 to 1.
    pub share: f64,
    /// Checks it touched.
    pub checks: u64,
    /// Lost checks that it explains.
    pub lost: u64,
    /// Who took most of it.
    pub offender: Option<OffenderRecord>,
    /// How much that was, nanoseconds; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offender_ns: Option<u64>,
    /// What is true of all that the cause may mean.
    pub meaning: Option<String>,
    /// What people do about it.
    pub remedy: String,
}

/// A thread, group or device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffenderRecord {
    /// Name of the thread; empty if it is none.
    pub comm: String,
    /// Its process.
    pub tgid: u32,
    /// Itself.
    pub tid: u32,
    /// Its cgroup; empty if unknown.
    pub cgroup: String,
    /// Device or queueing discipline; empty if it is none.
    pub device: String,
    /// It is a thread of whylag itself.
    #[serde(default)]
    pub own: bool,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MomentRecord {
    /// When, RFC 3339.
    pub happened_at: String,
    /// `slow`, `lost`, `open`, `late`, `stall` or `gone`.
    pub what: String,
    /// Where, by label.
    pub target: String,
    /// How long it took, nanoseconds; 0 for what has no length.
    pub ns: u64,
    /// The cause of the verdict on it, if there is one.
    pub cause: Option<String>,
    /// In a sentence.
    pub text: String,
}

/// A fact of the ledgers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceRecord {
    /// What it proves.
    pub cause: String,
    /// The fact; of several that differ in numbers only, the one of most time.
    pub text: String,
    /// Time that rests on it and its like.
    pub ns: u64,
    /// Parts of ledgers in which it is.
    pub checks: u64,
}

/// What is kept of a text.
fn clipped(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
