//! Journeys: one health check each, its stages joined.
//!
//! Events come in, in the order of their time; a [`Journey`] goes out when its check has ended,
//! and again and again while it stays open.

mod carrier;
mod check;
mod correlator;
mod discipline;
mod expiry;
mod join;
mod key;
mod packet;
mod slab;
mod socket;
mod stage;
mod stretch;
#[cfg(test)]
mod tests;

use crate::clock::{DurNs, MonoNs};
use crate::event::{InterfaceId, TaskId};
use probe_wire::{QdiscBody, Sighting};

pub use correlator::{Correlator, Counts, Update};
pub use stage::{Custody, STAGES, Span, Stage, StageRow};
pub(crate) use stretch::{Holder, Stretch, last_span, passes, stretches};

/// Identity of a check within one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JourneyId(pub u64);

/// From which end this host sees the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Perspective {
    /// The request comes in, the reply goes out: stages in the order of their numbers.
    Served,
    /// This host sends the request itself: stages 7 to 12, the world outside, then 1 to 6.
    Sent,
}

/// A request of a signature that is expected at intervals came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The check that it began.
    pub id: JourneyId,
    /// Index of its signature in the run's list.
    pub signature: usize,
    /// Where it was first seen.
    pub interface: InterfaceId,
    /// What it looked like there.
    pub request: Sighting,
    /// When.
    pub at: MonoNs,
}

/// One stage of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Which stage.
    pub stage: Stage,
    /// When.
    pub at: MonoNs,
    /// On which CPU.
    pub cpu: u32,
    /// Hardware queue plus 1, 0 if none or unknown.
    pub queue: u32,
    /// At which interface; zeros for stages inside a socket.
    pub interface: InterfaceId,
    /// The thread for whom it was done (who reads, who sends); zeros if nobody.
    pub task: TaskId,
}

/// How a check ended, or that it has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The reply passed the last stage that this host can see.
    Replied,
    /// It will not be answered: dropped here, or no answer within the limit.
    Lost(Loss),
    /// No answer yet.
    Open,
    /// A packet fitted several open checks, so no stage after that can be trusted.
    Ambiguous,
    /// Stages contradict each other, or the check was evicted.
    Broken(&'static str),
}

/// Why a check counts as lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// The kernel dropped this packet.
    Dropped(PacketDrop),
    /// No answer within the run's limit.
    TimedOut,
}

/// A drop of a check's packet.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PacketDrop {
    /// When.
    pub at: MonoNs,
    /// `enum skb_drop_reason` of the running kernel.
    pub reason: u32,
    /// Kernel address that dropped it.
    pub location: u64,
    /// Device, zeros if none.
    pub interface: InterfaceId,
    /// The reply was dropped, not the request.
    pub reply: bool,
    /// The thread that dropped it in a call of its own; zeros if a softirq did.
    pub task: TaskId,
    /// The queue that it was mapped to, plus 1, 0 if unknown: once it was in a queueing discipline, the
    /// transmit queue.
    pub queue: u32,
}

/// A connection request that its listener had no room for: the kernel ignored it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// When it came in.
    pub at: MonoNs,
    /// Address of its `sk_buff`.
    pub skb: u64,
    /// Connections that waited to be accepted.
    pub waiting: u32,
    /// Most that may wait; one more fits in.
    pub limit: u32,
    /// Connections whose handshake was not complete.
    pub half_open: u32,
}

/// A packet's stay in a queueing discipline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QdiscStay {
    /// When it entered.
    pub entered_at: MonoNs,
    /// The discipline's counters then.
    pub entered: QdiscBody,
    /// When it left; `None` while it stays.
    pub left_at: Option<MonoNs>,
    /// The discipline's counters then.
    pub left: Option<QdiscBody>,
}

impl QdiscStay {
    /// The interface of the discipline.
    #[must_use]
    pub const fn interface(&self) -> InterfaceId {
        InterfaceId { netns: self.entered.netns, ifindex: self.entered.ifindex }
    }
}

/// One health check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journey {
    /// Identity in this run.
    pub id: JourneyId,
    /// Index of its signature in the run's list.
    pub signature: usize,
    /// From which end.
    pub perspective: Perspective,
    /// The interface that names the target: the virtual NIC it used, else the first it was seen at.
    pub target: InterfaceId,
    /// What the request looked like where it was first seen.
    pub request: Sighting,
    /// How it ended.
    pub outcome: Outcome,
    /// Its stages, in the order of their time.
    pub stamps: Vec<Stamp>,
    /// Socket that received it (cookie), 0 if none was seen.
    pub socket: u64,
    /// Every drop of one of its packets; with TCP the check may live on.
    pub drops: Vec<PacketDrop>,
    /// Every copy of a connection request that found its listener's accept queue full.
    pub refusals: Vec<Refusal>,
    /// Stays in queueing disciplines, of the reply (of the request for checks sent from here).
    pub qdisc: Vec<QdiscStay>,
    /// Copies of the request beyond the first that were not seen to be the same packet.
    pub retransmissions: u32,
    /// Until when it is known: its last stage, or for an open check the latest tick.
    pub known_until: MonoNs,
}

impl Journey {
    /// When its first stage was passed.
    #[must_use]
    pub fn started_at(&self) -> MonoNs {
        self.stamps.first().map_or(self.known_until, |stamp| stamp.at)
    }

    /// Time from its first stage to its end, or for an open check until now.
    #[must_use]
    pub fn elapsed(&self) -> DurNs {
        self.known_until.since(self.started_at())
    }

    /// The stamp of a stage, if it was passed.
    #[must_use]
    pub fn stamp(&self, stage: Stage) -> Option<&Stamp> {
        self.stamps.iter().find(|stamp| stamp.stage == stage)
    }
}
