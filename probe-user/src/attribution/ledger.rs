//! The exact split of a journey's time between causes, and what is concluded from it.

use super::place::LostAt;
use super::stall::{Stall, Victim};
use super::{Cause, Service};
use crate::clock::{DurNs, MonoNs};
use crate::counters::Counted;
use crate::event::{InterfaceId, TaskId};
use crate::join::GuestHalf;
use crate::journey::{Journey, Span};
use crate::summary::Losses;
use std::fmt;
use std::sync::Arc;

/// The thread, group, device or flow behind a cause.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Offender {
    /// Name of the thread; empty if it is not a thread.
    pub comm: String,
    /// The thread; zeros if it is not a thread.
    pub task: TaskId,
    /// Its cgroup; empty if unknown.
    pub cgroup: String,
    /// Device or queueing discipline, such as `eth0 tbf 8001:`; empty if it is not a device.
    pub device: String,
    /// It is inside the guest: numbers and names are those that the guest has for it.
    pub guest: bool,
    /// It is a thread of whylag itself.
    pub own: bool,
}

impl Offender {
    /// Whether both are the same. A thread is, whether or not its cgroup was known in time.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let same_group = || self.cgroup == other.cgroup || self.cgroup.is_empty() || other.cgroup.is_empty();
        let same = (&self.comm, self.task, &self.device) == (&other.comm, other.task, &other.device);
        same && if self.task.tid == 0 { self.cgroup == other.cgroup } else { same_group() }
    }

    /// What tells it from others: a thread without its cgroup, which may not have been known in time.
    #[must_use]
    pub fn key(&self) -> Self {
        let cgroup = if self.task.tid == 0 { self.cgroup.clone() } else { String::new() };
        Self { cgroup, ..self.clone() }
    }

    /// Its shortest name: a thread without one has its numbers.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { comm, task, cgroup, device, .. } = self;
        let numbers = if task.tid == 0 { String::new() } else { format!("pid {}/{}", task.tgid, task.tid) };
        [comm, &numbers, device, cgroup].into_iter().find(|name| !name.is_empty()).cloned().unwrap_or_default()
    }

    /// Takes over what is known of the same one elsewhere.
    pub fn learn(&mut self, other: &Self) {
        if self.cgroup.is_empty() {
            self.cgroup.clone_from(&other.cgroup);
        }
    }
}

/// A thread on the way from a check to who took its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Its name; empty if unknown.
    pub comm: String,
    /// The thread.
    pub task: TaskId,
    /// The kernel functions it slept in, outermost first; empty if it did not sleep, or if no
    /// stack of it is known.
    pub frames: Vec<String>,
    /// The user code from which it left the CPU: number of a stack, if one was taken.
    pub user: Option<u32>,
    /// Of the last thread, if it was on a CPU: what it did there, by samples.
    pub samples: Arc<[Sampled]>,
}

/// What a thread on a CPU did, by samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampled {
    /// Its user code: number of a stack, if one was taken.
    pub user: Option<u32>,
    /// Kernel functions on top of that, outermost first; empty in user mode.
    pub kernel: Vec<String>,
    /// Time that the samples stand for. Of the entry, it is this part of all of them.
    pub time: DurNs,
}

/// Time for which no cause is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// How long.
    pub time: DurNs,
    /// Why no cause is proven.
    pub reason: String,
}

/// One part of a journey's time. Where very many parts fall into one span, equal ones are
/// gathered: their time is exact, their place within the span is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Who took it.
    pub cause: Cause,
    /// Start.
    pub from: MonoNs,
    /// End; entries of a ledger never overlap.
    pub to: MonoNs,
    /// In which span of the path.
    pub span: Span,
    /// Who is behind it, if known.
    pub offender: Option<Offender>,
    /// The waits followed from the check's own thread to this cause, outermost first; the last
    /// element is `cause`.
    pub path: Vec<Cause>,
    /// The threads of that path, outermost first: the check's own, then each that was waited for.
    /// Empty without threads, and unless the run [tells hops](crate::pipeline::Collector::telling_hops).
    pub hops: Vec<Hop>,
    /// What proves it, one fact a line.
    pub evidence: Vec<String>,
    /// What is true here of all that the cause may mean.
    pub meaning: &'static str,
    /// Where a known device was waited for: the threads that this held up, outermost first.
    pub stalled: Vec<Victim>,
}

impl Entry {
    /// How long.
    #[must_use]
    pub const fn time(&self) -> DurNs {
        self.to.since(self.from)
    }
}

/// A journey's time, split. Σ entries + unexplained == end − start, exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    /// Start of the journey.
    pub from: MonoNs,
    /// Its end, or for an open check now.
    pub to: MonoNs,
    /// Parts with a cause, in the order of their time.
    pub entries: Vec<Entry>,
    /// Time for which no cause is proven.
    pub unexplained: DurNs,
    /// The same, one for each reason, the longest first; they sum to it.
    pub gaps: Vec<Gap>,
    /// Why, one reason per kind of gap.
    pub unexplained_reasons: Vec<String>,
}

/// Why there is no verdict.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Unresolved {
    /// Records were lost while the check was under way.
    EventsLost {
        /// How many.
        count: u64,
    },
    /// Too much of the excess is unexplained.
    Unexplained {
        /// The unexplained part of the excess, 0 to 100.
        percent: u8,
        /// The largest reason.
        reason: String,
    },
    /// The journey itself cannot be trusted.
    Journey(&'static str),
    /// The check is lost or open, and nothing tells where.
    NoTrace(String),
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EventsLost { count: 1 } => write!(f, "1 event was lost while the check was under way"),
            Self::EventsLost { count } => write!(f, "{count} events were lost while the check was under way"),
            Self::Unexplained { percent, reason } => write!(f, "{percent} % of the delay is unexplained: {reason}"),
            Self::Journey(reason) => write!(f, "{reason}"),
            Self::NoTrace(reason) => write!(f, "{reason}"),
        }
    }
}

/// What is concluded.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Neither slow nor lost.
    Healthy,
    /// One cause owns at least half of the delay above the baseline.
    Cause {
        /// Which.
        cause: Cause,
        /// Its part of the delay above the baseline, 0 to 1.
        share: f64,
    },
    /// Explained, but no cause owns half.
    Split {
        /// The largest.
        cause: Cause,
        /// Its part, 0 to 1.
        share: f64,
    },
    /// The proof is missing.
    Unresolved(Unresolved),
}

/// A journey with its ledger and verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The journey.
    pub journey: Journey,
    /// Its time, split.
    pub ledger: Ledger,
    /// Slower than the threshold, or lost, or open for longer than the threshold.
    pub slow: bool,
    /// The conclusion.
    pub verdict: Verdict,
    /// Where it ended; `None` if it is not lost, or only counted.
    pub lost: Option<LostAt>,
    /// Whether the app was saturated or broken; `None` where neither is proven.
    pub service: Option<Service>,
    /// It came with more others than can be looked into: only its time was judged, and no
    /// episode ascribes that to anything.
    pub brief: bool,
    /// Records that were lost while it was under way, or of what its ledger rests on.
    pub lost_events: u64,
    /// What the half inside the guest added; only of what a [`Join`](crate::join::Join) gives.
    pub guest: Option<Box<GuestHalf>>,
}

/// A cause's part in an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeCause {
    /// Which.
    pub cause: Cause,
    /// Time it took from slow and lost checks above what it takes of a healthy one, as in their
    /// ledgers. That of a dropped check ends at the drop.
    pub time: DurNs,
    /// Its part of their delay above the baseline, 0 to 1. Here a dropped check counts with the
    /// time its client waits: at least the run's limit for lost checks.
    pub share: f64,
    /// Checks it touched.
    pub checks: u64,
    /// Lost checks whose verdict it is.
    pub lost: u64,
    /// Who took the most of it.
    pub offender: Option<Offender>,
    /// How much of `time` that was.
    pub offender_time: DurNs,
    /// What that thread counted while any checks were slow; `None` if it is not a thread, or was not
    /// counted.
    pub counted: Option<Counted>,
    /// What is true, for most of it, of all that the cause may mean.
    pub meaning: Option<&'static str>,
}

/// A stretch of time at one target, with its ranked causes.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// The target's interface.
    pub target: InterfaceId,
    /// Start of its first check.
    pub started_at: MonoNs,
    /// End of its last check.
    pub ended_at: MonoNs,
    /// Checks.
    pub checks: u64,
    /// Slow ones, the lost not counted.
    pub slow: u64,
    /// Lost ones.
    pub lost: u64,
    /// Still open ones at its end.
    pub open: u64,
    /// Slow or lost ones without a verdict.
    pub unresolved: u64,
    /// Median of the healthy checks before and within it; `None` without any.
    pub baseline_p50: Option<DurNs>,
    /// By share, largest first.
    pub causes: Vec<EpisodeCause>,
    /// Stalls of storage, in the order of their time.
    pub stalls: Vec<Stall>,
    /// Unexplained time of slow and lost checks above what is unexplained in a healthy one; all
    /// of a check's time if events were lost meanwhile.
    pub unexplained: DurNs,
    /// The conclusion over all its checks.
    pub verdict: Verdict,
    /// Whether the app was saturated or broken, by at least half of the time of its slow checks; `None`
    /// where neither is proven.
    pub service: Option<Service>,
    /// Lost checks by span and by place.
    pub losses: Losses,
}
