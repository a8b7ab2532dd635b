//! Attribution: who took a check's time.
//!
//! A [`Journey`](crate::journey::Journey) and the evidence about threads, queues and drops come
//! in; a [`Judged`] journey with an exact [`Ledger`] and a [`Verdict`] goes out.

mod cause;
mod ledger;

pub use cause::{CAUSES, Cause, CauseRow, Family};
pub use ledger::{Entry, Episode, EpisodeCause, Judged, Ledger, Offender, Unresolved, Verdict};
