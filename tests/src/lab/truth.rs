//! Ground truth: counters of the kernel and logs of the lab's own programs that prove a fault.
//!
//! None of them is read by whylag, so a case cannot prove itself.

use super::run::Rig;
use super::world::PNIC;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;

/// What must move while a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Checks that the client concluded.
    Checks,
    /// The log of whoever was at fault says how long, ns.
    FaultLog,
    /// CPU time of the server's threads, `/proc/PID/task/TID/schedstat`, ns.
    CpuTime,
    /// Time for which the server's threads could run and did not, same file, ns.
    RunDelay,
    /// Time for which the server's cgroup was throttled, `cpu.stat`, ns.
    Throttled,
    /// For how long replies of an event loop were overdue by its own log, ns.
    OverdueReplies,
    /// Times that the server's cgroup was at its limit of memory, `memory.failcnt`.
    MemoryFailures,
    /// `RcvbufErrors` in the server's namespace.
    ReceiveBufferErrors,
    /// Connection requests that found a full accept queue, `ListenOverflows` in the server's namespace.
    ListenOverflows,
    /// Datagrams that the host received and neither delivered nor forwarded, `/proc/net/snmp`.
    NotForwarded,
    /// Times that the shaper held a packet back, from `tc -s`.
    QdiscOverlimits,
    /// Packets that the queueing discipline dropped, from `tc -s`.
    QdiscDrops,
}

/// A counter before and after the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// By how much it moved.
    pub moved: u64,
    /// By how much it must move at least.
    pub at_least: u64,
}

impl Proof {
    /// Whether the fault really happened.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.moved >= self.at_least
    }
}

/// One queueing discipline as `tc -s -j` shows it.
#[derive(Debug, Deserialize)]
struct Qdisc {
    #[serde(default)]
    drops: u64,
    #[serde(default)]
    overlimits: u64,
}

impl Counter {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checks => "checks concluded",
            Self::FaultLog => "fault's own log, ns",
            Self::CpuTime => "schedstat CPU time, ns",
            Self::RunDelay => "schedstat run delay, ns",
            Self::Throttled => "cpu.stat throttled time, ns",
            Self::OverdueReplies => "event loop's own log of overdue replies, ns",
            Self::MemoryFailures => "memory.failcnt",
            Self::ReceiveBufferErrors => "snmp RcvbufErrors",
            Self::ListenOverflows => "netstat ListenOverflows",
            Self::NotForwarded => "snmp InReceives less InDelivers and ForwDatagrams",
            Self::QdiscOverlimits => "tc overlimits",
            Self::QdiscDrops => "tc drops",
        }
    }

    /// Its value now.
    ///
    /// # Errors
    /// The kernel does not show it.
    pub fn read(self, rig: &Rig) -> Result<u64> {
        Ok(match self {
            Self::Checks => rig.checks().len() as u64,
            Self::FaultLog => rig.fault_ns(),
            Self::CpuTime => schedstat(rig.server_id(), 0)?,
            Self::RunDelay => schedstat(rig.server_id(), 1)?,
            Self::Throttled => rig.throttled_ns()?,
            Self::OverdueReplies => rig.overdue_ns(),
            Self::MemoryFailures => rig.memory_failures()?,
            Self::ReceiveBufferErrors => snmp(&rig.world().server_netns().proc_net("snmp")?, "Udp:", "RcvbufErrors"),
            Self::ListenOverflows => {
                snmp(&rig.world().server_netns().proc_net("netstat")?, "TcpExt:", "ListenOverflows")
            }
            Self::NotForwarded => not_forwarded(&rig.world().host.proc_net("snmp")?),
            Self::QdiscOverlimits => qdiscs(rig)?.iter().map(|qdisc| qdisc.overlimits).sum(),
            Self::QdiscDrops => qdiscs(rig)?.iter().map(|qdisc| qdisc.drops).sum(),
        })
    }

    /// By how much a fault of this length must move it: half of its length, or three times.
    #[must_use]
    pub const fn at_least(self, fault_ms: u64) -> u64 {
        match self {
            Self::FaultLog | Self::CpuTime | Self::RunDelay | Self::Throttled | Self::OverdueReplies => {
                fault_ms * 500_000
            }
            Self::Checks
            | Self::MemoryFailures
            | Self::ReceiveBufferErrors
            | Self::ListenOverflows
            | Self::NotForwarded
            | Self::QdiscOverlimits
            | Self::QdiscDrops => 3,
        }
    }
}

/// All that a process started, and what those started, parents first.
#[must_use]
pub fn descendants(ancestor: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = numbers.filter_map(|process| Some((process, parent_of(process)?))).collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while let Some(of) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(process, _)| *process));
        next += 1;
    }
    found.split_off(1)
}

fn parent_of(process: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The command name, in parentheses, can hold spaces.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Sum of one field over all threads of a process and of what it started.
fn schedstat(process: u32, field: usize) -> Result<u64> {
    let started = descendants(process).into_iter().filter_map(|process| schedstat_of(process, field).ok());
    Ok(schedstat_of(process, field)? + started.sum::<u64>())
}

fn schedstat_of(process: u32, field: usize) -> Result<u64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).context("list the server's threads")?;
    let value = |task: fs::DirEntry| {
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split_whitespace().nth(field)?.parse::<u64>().ok()
    };
    Ok(tasks.flatten().filter_map(value).sum())
}

fn not_forwarded(text: &str) -> u64 {
    let field = |name| snmp(text, "Ip:", name);
    field("InReceives").saturating_sub(field("InDelivers") + field("ForwDatagrams"))
}

fn qdiscs(rig: &Rig) -> Result<Vec<Qdisc>> {
    let text = rig.world().host.run("tc", &format!("-s -j qdisc show dev {PNIC}"))?;
    serde_json::from_str(&text).context("parse what tc says")
}

/// A field of `/proc/net/snmp`: a line of names and below it a line of values.
fn snmp(text: &str, protocol: &str, field: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let found = names.split_whitespace().zip(values.split_whitespace()).find(|(name, _)| *name == field);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{descendants, parent_of, snmp};

    #[test]
    fn this_process_descends_from_its_parent_and_not_from_itself() {
        let own = std::process::id();
        let parent = parent_of(own).expect("this process has a parent");
        assert!(descendants(parent).contains(&own));
        assert!(!descendants(own).contains(&own));
    }

    #[test]
    fn a_counter_is_found_under_its_name() {
        let text = "Udp: InDatagrams NoPorts RcvbufErrors\nUdp: 5 6 7\n";
        assert_eq!(snmp(text, "Udp:", "RcvbufErrors"), 7);
        assert_eq!(snmp(text, "Ip:", "RcvbufErrors"), 0);
    }
}
