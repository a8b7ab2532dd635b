//! What the lab and its children tell each other, one JSON object a line: orders on a child's
//! standard input, announcements on its standard output.

use super::clock::mono_ns;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// From the lab to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Begin the fault that the child was started with, now or at the next check.
    Fault {
        /// How long it lasts.
        ms: u64,
    },
    /// Client: leave answers unread for this long.
    ReadLate {
        /// How long.
        ms: u64,
    },
    /// Client: send nothing for this long, then all that is overdue.
    SendLate {
        /// How long.
        ms: u64,
    },
    /// Client: send each check in two parts for this long (TCP).
    Split {
        /// How long.
        ms: u64,
        /// Time between the two parts.
        pause_ms: u64,
    },
    /// Client: send checks with a wrong checksum for this long (UDP).
    Damage {
        /// How long.
        ms: u64,
    },
    /// Guest: say [`Announcement::Counted`].
    Count,
    /// Client: send no more, wait for the outstanding answers, say [`Announcement::Done`]. Guest: end the
    /// whylag in there, and say so then.
    Stop,
}

/// From a child to the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum Announcement {
    /// The child can do its work from now on.
    Ready,
    /// The fault began.
    FaultBegan {
        /// When, `CLOCK_MONOTONIC`.
        at_ns: u64,
    },
    /// The fault ended.
    FaultEnded {
        /// When, `CLOCK_MONOTONIC`.
        at_ns: u64,
    },
    /// The client knows the end of a check.
    Check(Check),
    /// The client has nothing outstanding, or the whylag inside a guest has ended.
    Done,
    /// What a guest's kernel has counted.
    Counted(Counts),
    /// What a thread of the fault has sent.
    Sent(Sent),
    /// For how long a thread of the fault computed.
    Ran(Ran),
}

/// For how long a thread computed while nothing interrupted it, by its own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Thread.
    pub tid: u32,
    /// How long.
    pub ns: u64,
}

/// What a guest's kernel has counted since it was booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Time of all its CPUs in softirqs, by `/proc/stat`, ns.
    pub softirq_ns: u64,
    /// Packets that softirqs have taken in, by `/proc/net/softnet_stat`.
    pub received: u64,
    /// For how long the server's threads could run and did not, by `schedstat`, ns.
    pub run_delay_ns: u64,
}

impl Counts {
    /// What has been counted since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            softirq_ns: self.softirq_ns.saturating_sub(before.softirq_ns),
            received: self.received.saturating_sub(before.received),
            run_delay_ns: self.run_delay_ns.saturating_sub(before.run_delay_ns),
        }
    }

    /// In words.
    #[must_use]
    pub fn line(self) -> String {
        let Self { softirq_ns, received, run_delay_ns } = self;
        let (softirq_ms, run_delay_ms) = (softirq_ns / 1_000_000, run_delay_ns / 1_000_000);
        format!(
            "the guest itself counts {softirq_ms} ms in softirqs, {received} packets, and {run_delay_ms} ms for which \
             the server could run and did not"
        )
    }
}

/// What a thread has sent, by its own count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Thread.
    pub tid: u32,
    /// Datagrams that the kernel took.
    pub datagrams: u64,
    /// Their bytes, with headers down to the link's.
    pub bytes: u64,
}

/// One health check as its client saw it. All times are `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Its nonce.
    pub nonce: u64,
    /// When it should have been sent.
    pub due_at_ns: u64,
    /// When it was sent.
    pub sent_at_ns: u64,
    /// When the answer was read; `None` if it did not come in time.
    pub answered_at_ns: Option<u64>,
}

impl Check {
    /// Time from sending to reading the answer; `None` if it is lost.
    #[must_use]
    pub fn rtt_ns(&self) -> Option<u64> {
        Some(self.answered_at_ns?.saturating_sub(self.sent_at_ns))
    }
}

/// Says it to the lab. When the lab is gone nobody listens, and that is no error.
pub fn announce(announcement: Announcement) {
    let line = serde_json::to_string(&announcement).expect("announcements are plain data");
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Runs `fault` and announces its beginning and its end.
pub fn announce_fault(fault: impl FnOnce()) {
    announce(Announcement::FaultBegan { at_ns: mono_ns() });
    fault();
    announce(Announcement::FaultEnded { at_ns: mono_ns() });
}

/// Obeys the orders on standard input until the lab closes it.
///
/// # Errors
/// An order that cannot be read, or that `obey` cannot follow.
pub fn obey_orders(mut obey: impl FnMut(Order) -> Result<()>) -> Result<()> {
    for line in io::stdin().lock().lines() {
        let line = line.context("read an order")?;
        obey(serde_json::from_str(&line).with_context(|| format!("parse the order {line}"))?)?;
    }
    Ok(())
}
