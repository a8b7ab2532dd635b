//! Attribution: who took a check's time.
//!
//! A [`Journey`](crate::journey::Journey) and the [`Evidence`] about threads, queues and drops
//! come in; a [`Judged`] journey with an exact [`Ledger`] and a [`Verdict`] goes out.

mod activity;
mod attribute;
pub(crate) mod baseline;
#[cfg(test)]
mod cases;
mod cause;
#[cfg(test)]
mod endings;
mod evidence;
mod exit_reason;
mod exits;
mod flow;
mod frame;
mod futex;
mod held;
mod ledger;
pub(crate) mod piece;
mod place;
#[cfg(test)]
mod properties;
mod questions;
mod queue;
mod receiving;
mod request;
mod rounds;
mod rules;
mod run;
mod sent;
mod service;
#[cfg(test)]
mod single_loss;
mod softirq;
mod softirq_wait;
mod spin;
mod stall;
mod storage;
#[cfg(test)]
pub(crate) mod story;
mod symbol;
mod taken;
mod tap;
mod thread;
mod traffic;
mod unseen;
pub(crate) mod verdict;
mod walk;

pub use activity::{Activity, Doing};
pub use attribute::Attributor;
pub use cause::{CAUSES, Cause, CauseRow, Family};
pub use evidence::Evidence;
pub(crate) use evidence::{SOFTIRQ_THREAD, receives_packets};
pub use ledger::{Entry, Episode, EpisodeCause, Gap, Hop, Judged, Ledger, Offender, Sampled, Unresolved, Verdict};
pub use place::{LOSS_PLACES, LossPlace, LossPlaceRow, LostAt, Sent};
pub use queue::QueueWait;
pub(crate) use queue::{named as named_sender, percent, waits as queue_waits};
pub(crate) use receiving::{ReceiveWait, receive_waits};
pub(crate) use rules::counted;
pub use rules::outside::{Absence, Lapse, Lapses};
pub(crate) use rules::receive::vector as softirq_name;
pub use service::{Condition, Service, Stay};
pub(crate) use stall::Stalls;
pub use stall::{Stall, StalledVm, Victim};
pub use unseen::UnseenLoss;
