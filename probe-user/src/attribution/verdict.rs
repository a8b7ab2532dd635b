//! What is concluded from a ledger: slow or not, and whose the delay is.

use super::baseline::{Baseline, Excess};
use super::ledger::{Ledger, Unresolved, Verdict};
use crate::clock::DurNs;
use crate::event::Threshold;
use crate::journey::{Journey, Outcome};

/// Healthy checks before a multiple of their median means anything.
pub(crate) const ENOUGH: usize = 20;
/// What counts as slow until then.
pub(crate) const FALLBACK: DurNs = DurNs::from_millis(100);
/// A check that takes less is never slow by a multiple of the usual, however fast the usual is.
pub(crate) const FLOOR: DurNs = DurNs::from_millis(1);
/// Least share of a cause that is the verdict.
const HALF: f64 = 0.5;
/// Most of the excess that may be unexplained.
const UNEXPLAINED: f64 = 0.2;

/// The time above which a check is slow.
#[expect(clippy::cast_precision_loss, reason = "a threshold needs no more than six digits")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float to integer saturates")]
pub(super) fn limit(threshold: Threshold, baseline: &Baseline) -> DurNs {
    match threshold {
        Threshold::Fixed(limit) => limit,
        Threshold::Multiple(_) if baseline.len() < ENOUGH => FALLBACK,
        Threshold::Multiple(times) => DurNs((baseline.p50().0 as f64 * times) as u64).max(FLOOR),
    }
}

/// Slower than the limit, or lost, or open for longer than the limit. Nothing is said of a
/// journey whose stages cannot be trusted.
pub(super) fn slow(journey: &Journey, limit: DurNs) -> bool {
    match journey.outcome {
        Outcome::Lost(_) => true,
        Outcome::Replied | Outcome::Open => journey.elapsed() > limit,
        Outcome::Ambiguous | Outcome::Broken(_) => false,
    }
}

/// Why a journey cannot be judged at all.
pub(crate) const fn untrusted(journey: &Journey) -> Option<&'static str> {
    match journey.outcome {
        Outcome::Broken(reason) => Some(reason),
        Outcome::Ambiguous => Some("a packet fitted several open checks"),
        Outcome::Replied | Outcome::Open | Outcome::Lost(_) => None,
    }
}

/// The conclusion over an excess; `reason` is the largest reason for what is unexplained.
pub(crate) fn conclude(excess: &Excess, reason: impl FnOnce() -> String) -> Verdict {
    let unexplained = excess.unexplained_share();
    match excess.largest() {
        Some((cause, share)) if unexplained <= UNEXPLAINED && share >= HALF => Verdict::Cause { cause, share },
        Some((cause, share)) if unexplained <= UNEXPLAINED => Verdict::Split { cause, share },
        _ => Verdict::Unresolved(Unresolved::Unexplained { percent: percent(unexplained), reason: reason() }),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is between 0 and 1")]
fn percent(share: f64) -> u8 {
    (share * 100.0).round() as u8
}

/// The largest reason for what a ledger leaves unexplained.
pub(crate) fn main_reason(ledger: &Ledger) -> String {
    ledger.unexplained_reasons.first().cloned().unwrap_or_else(|| "no time above the normal was found".to_owned())
}
