//! Ground truth: counters of the kernel and logs of the lab's own programs that prove a fault.
//!
//! None of them is read by whylag, so a case cannot prove itself.

use super::case::Fault;
use super::device;
use super::netns::Netns;
use super::path::{self, PathFault, Place};
use super::run::Rig;
use super::vmm::Part;
use super::vmm::threads::Threads;
use super::world::{PNIC, VNIC};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Counts of all namespaces together.
const ARP_CACHE: &str = "/proc/net/stat/arp_cache";
/// A line for each CPU.
pub(super) const SOFTNET: &str = "/proc/net/softnet_stat";
/// The process that starts the kernel's threads.
const KTHREADD: u32 = 2;

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
    /// `SndbufErrors` in the server's namespace.
    SendBufferErrors,
    /// `InCsumErrors` of UDP in the server's namespace.
    ChecksumErrors,
    /// Packets that the tap dropped on their way to the virtual machine, `ip -s link`.
    TapDrops,
    /// Packets that the macvtap dropped on their way to the virtual machine, same place.
    MacvtapDrops,
    /// Connection requests that found a full accept queue, `ListenOverflows` in the server's namespace.
    ListenOverflows,
    /// Datagrams that the host received and neither delivered nor forwarded, `/proc/net/snmp`.
    NotForwarded,
    /// Times that the shaper held a packet back, from `tc -s`.
    QdiscOverlimits,
    /// Packets that the queueing discipline dropped, from `tc -s`.
    QdiscDrops,
    /// Time that CPU 1 spent in softirq, `/proc/stat`, ns.
    SoftirqTime,
    /// CPU time of the pod's kernel thread for receiving, schedstat, ns.
    ConsumerCpuTime,
    /// Time for which that thread could run and did not, schedstat, ns.
    ConsumerRunDelay,
    /// Time for which the thread for softirqs of CPU 1 could run and did not, schedstat, ns.
    SoftirqThreadRunDelay,
    /// CPU time in the kernel of whoever makes trouble, `/proc/PID/stat`, ns.
    TroublemakerKernelTime,
    /// Neighbours that no host answered for, `/proc/net/stat/arp_cache`.
    NeighboursFailed,
    /// CPU time of the guest's virtual CPUs, schedstat, ns.
    VcpuTime,
    /// Time for which they could run and did not, schedstat, ns.
    VcpuRunDelay,
    /// Time for which the VMM's main loop could run and did not, schedstat, ns.
    VmmRunDelay,
    /// Time for which the kernel's threads that move a guest's packets could run and did not,
    /// schedstat, ns.
    VhostRunDelay,
    /// Time that the guest's CPUs spent in softirq, the guest's own `/proc/stat`, ns.
    GuestSoftirqTime,
    /// Time for which the server's threads in the guest could run and did not, the guest's own schedstat, ns.
    GuestRunDelay,
    /// Neighbours that were entered in a table, same file.
    NeighboursEntered,
    /// Neighbours for which the table had no room, same file.
    NeighboursRefused,
    /// Packets that the queueing discipline sent, from `tc -s`.
    QdiscPackets,
    /// Packets for which a CPU's backlog had no room, `/proc/net/softnet_stat`.
    BacklogDrops,
    /// Packets that the host's tracking of connections dropped, `/proc/net/stat/nf_conntrack`.
    ConnectionDrops,
    /// How long requests of the server's cgroup waited for budget, `io.stat` (`cost.wait`), ns.
    CostWait,
    /// How long the fault lasted by its own log, less what a request took at the device by
    /// `/sys/dev/block/X/stat`, ns.
    BeforeDevice,
    /// Packets that a rule of nftables dropped, by its own counter.
    RuleDrops,
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
    #[serde(default)]
    packets: u64,
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
            Self::SendBufferErrors => "snmp SndbufErrors",
            Self::ChecksumErrors => "snmp InCsumErrors of UDP",
            Self::TapDrops => "tx_dropped of the tap",
            Self::MacvtapDrops => "rx_dropped of the macvtap",
            Self::ListenOverflows => "netstat ListenOverflows",
            Self::NotForwarded => "snmp InReceives less InDelivers and ForwDatagrams",
            Self::QdiscOverlimits => "tc overlimits",
            Self::QdiscDrops => "tc drops",
            Self::SoftirqTime => "CPU 1 softirq time, ns",
            Self::ConsumerCpuTime => "schedstat CPU time of the NAPI thread, ns",
            Self::ConsumerRunDelay => "schedstat run delay of the NAPI thread, ns",
            Self::SoftirqThreadRunDelay => "schedstat run delay of ksoftirqd/1, ns",
            Self::TroublemakerKernelTime => "CPU time in the kernel of the program at fault, ns",
            Self::NeighboursFailed => "arp_cache res_failed",
            Self::VcpuTime => "schedstat CPU time of vCPU threads, ns",
            Self::VcpuRunDelay => "schedstat run delay of vCPU threads, ns",
            Self::VmmRunDelay => "schedstat run delay of the VMM's main loop, ns",
            Self::VhostRunDelay => "schedstat run delay of vhost threads, ns",
            Self::GuestSoftirqTime => "softirq time in the guest's /proc/stat, ns",
            Self::GuestRunDelay => "schedstat run delay in the guest, ns",
            Self::NeighboursEntered => "arp_cache allocs",
            Self::NeighboursRefused => "arp_cache table_fulls",
            Self::QdiscPackets => "tc packets",
            Self::BacklogDrops => "softnet_stat dropped",
            Self::ConnectionDrops => "nf_conntrack drop",
            Self::RuleDrops => "nft counter",
            Self::CostWait => "io.stat cost.wait, ns",
            Self::BeforeDevice => "fault's own log less the time of a request by the device's stat, ns",
        }
    }

    /// Whether a guest's own kernel counts it.
    #[must_use]
    pub const fn is_guests(self) -> bool {
        matches!(self, Self::GuestSoftirqTime | Self::GuestRunDelay)
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
            Self::SendBufferErrors => snmp(&rig.world().server_netns().proc_net("snmp")?, "Udp:", "SndbufErrors"),
            Self::ChecksumErrors => snmp(&rig.world().server_netns().proc_net("snmp")?, "Udp:", "InCsumErrors"),
            Self::ListenOverflows => {
                snmp(&rig.world().server_netns().proc_net("netstat")?, "TcpExt:", "ListenOverflows")
            }
            Self::NotForwarded => not_forwarded(&rig.world().host.proc_net("snmp")?),
            Self::QdiscOverlimits => qdiscs(rig)?.iter().map(|qdisc| qdisc.overlimits).sum(),
            Self::QdiscDrops => qdiscs(rig)?.iter().map(|qdisc| qdisc.drops).sum(),
            Self::SoftirqTime => softirq_ns(&fs::read_to_string("/proc/stat").context("read /proc/stat")?, "cpu1"),
            Self::ConsumerCpuTime => schedstat(consumer()?, 0)?,
            Self::ConsumerRunDelay => schedstat(consumer()?, 1)?,
            Self::SoftirqThreadRunDelay => schedstat(softirq_thread()?, 1)?,
            Self::TroublemakerKernelTime => kernel_time(rig)?,
            Self::QdiscPackets => qdiscs(rig)?.iter().map(|qdisc| qdisc.packets).sum(),
            Self::NeighboursFailed => by_cpu(&read(ARP_CACHE)?, "res_failed"),
            Self::NeighboursEntered => by_cpu(&read(ARP_CACHE)?, "allocs"),
            Self::NeighboursRefused => by_cpu(&read(ARP_CACHE)?, "table_fulls"),
            Self::BacklogDrops => sum_of_column(read(SOFTNET)?.lines(), 1),
            Self::ConnectionDrops => by_cpu(&rig.world().host.proc_net("stat/nf_conntrack")?, "drop"),
            Self::RuleDrops => path::dropped_by_rule(rule_of(rig))?,
            Self::CostWait => rig.cost_wait_ns()?,
            Self::BeforeDevice => rig.fault_ns().saturating_sub(device_ns(&rig.device()?)?),
            Self::VcpuTime => Threads::of(rig.server_id())?.schedstat(Part::Vcpus, 0)?,
            Self::VcpuRunDelay => Threads::of(rig.server_id())?.schedstat(Part::Vcpus, 1)?,
            Self::VmmRunDelay => Threads::of(rig.server_id())?.schedstat(Part::MainLoop, 1)?,
            Self::VhostRunDelay => Threads::of(rig.server_id())?.schedstat(Part::Vhost, 1)?,
            Self::TapDrops => dropped(&rig.world().host.proc_net("dev")?, VNIC, TX_DROPPED),
            Self::MacvtapDrops => dropped(&rig.world().host.proc_net("dev")?, VNIC, RX_DROPPED),
            Self::GuestSoftirqTime => rig.counts()?.softirq_ns,
            Self::GuestRunDelay => rig.counts()?.run_delay_ns,
        })
    }

    /// By how much a fault of this length must move it: half of its length, or three times. Softirqs
    /// also run on top of who keeps their thread from its CPU, which then has not waited all the while. A
    /// vhost thread sleeps between packets; and from 6.12 on a thread that is kept from its CPU by a real-time
    /// one gets 50 ms of each second (the fair server), in which it empties its ring and sleeps again.
    /// <https://github.com/torvalds/linux/blob/v6.12/kernel/sched/deadline.c> (`fair_server_init`)
    #[must_use]
    pub const fn at_least(self, fault_ms: u64) -> u64 {
        match self {
            Self::FaultLog
            | Self::CpuTime
            | Self::RunDelay
            | Self::Throttled
            | Self::OverdueReplies
            | Self::SoftirqTime
            | Self::ConsumerCpuTime
            | Self::ConsumerRunDelay
            | Self::TroublemakerKernelTime
            | Self::CostWait
            | Self::BeforeDevice
            | Self::VcpuTime
            | Self::VcpuRunDelay
            | Self::VmmRunDelay
            | Self::GuestSoftirqTime
            | Self::GuestRunDelay => fault_ms * 500_000,
            Self::SoftirqThreadRunDelay | Self::VhostRunDelay => fault_ms * 250_000,
            Self::Checks
            | Self::MemoryFailures
            | Self::ReceiveBufferErrors
            | Self::SendBufferErrors
            | Self::ChecksumErrors
            | Self::TapDrops
            | Self::MacvtapDrops
            | Self::ListenOverflows
            | Self::NotForwarded
            | Self::QdiscOverlimits
            | Self::QdiscDrops
            | Self::NeighboursFailed
            | Self::NeighboursEntered
            | Self::NeighboursRefused
            | Self::QdiscPackets
            | Self::BacklogDrops
            | Self::ConnectionDrops
            | Self::RuleDrops => 3,
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

pub(super) fn schedstat_of(process: u32, field: usize) -> Result<u64> {
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

/// How long a device's requests took on average, reads or writes, whichever is more.
fn device_ns(number: &str) -> Result<u64> {
    let stat = Path::new("/sys/dev/block").join(number).join("stat");
    let text = fs::read_to_string(&stat).with_context(|| format!("read {}", stat.display()))?;
    Ok(mean_request_ns(&text))
}

/// Fields are counts of requests, of those that were merged, of sectors, and milliseconds; for reads,
/// then for writes. <https://docs.kernel.org/block/stat.html>
fn mean_request_ns(stat: &str) -> u64 {
    let fields: Vec<u64> = stat.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let mean = |first: usize| Some(fields.get(first + 3)? * 1_000_000 / fields.get(first)?.max(&1));
    mean(0).max(mean(4)).unwrap_or(0)
}

/// The kernel thread that receives for the pod.
fn consumer() -> Result<u32> {
    let thread = device::napi_thread("eth0").context("the pod has no thread for receiving")?;
    Ok(thread.as_raw_nonzero().get().unsigned_abs())
}

/// The thread for the softirqs of CPU 1.
fn softirq_thread() -> Result<u32> {
    softirq_threads("1").first().copied().context("there is no ksoftirqd/1")
}

/// The threads for the softirqs of the CPUs whose numbers begin so.
pub(super) fn softirq_threads(cpu: &str) -> Vec<u32> {
    let begin = format!("ksoftirqd/{cpu}");
    let named = |id: &u32| fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.starts_with(&begin));
    descendants(KTHREADD).into_iter().filter(named).collect()
}

/// Counted in ticks of 10 ms.
fn kernel_time(rig: &Rig) -> Result<u64> {
    let process = rig.troublemaker_id().context("nobody makes trouble")?;
    let stat = read(&format!("/proc/{process}/stat"))?;
    let field = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(12)?.parse::<u64>().ok());
    Ok(field.context("no CPU time in /proc/PID/stat")? * 10_000_000)
}

/// Softirq time of one CPU, counted in ticks of 10 ms.
pub(super) fn softirq_ns(text: &str, cpu: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(cpu)?.strip_prefix(' '));
    let ticks = line.and_then(|line| line.split_whitespace().nth(6)?.parse::<u64>().ok());
    ticks.unwrap_or(0) * 10_000_000
}

pub(super) fn read(file: &str) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("read {file}"))
}

/// A line of names, and below it a line of hexadecimal counts for each CPU.
fn by_cpu(text: &str, name: &str) -> u64 {
    let mut lines = text.lines();
    let names = lines.next().unwrap_or_default();
    let column = names.split_whitespace().position(|found| found == name);
    column.map_or(0, |column| sum_of_column(lines, column))
}

/// Of lines of hexadecimal counts.
pub(super) fn sum_of_column<'a>(lines: impl Iterator<Item = &'a str>, column: usize) -> u64 {
    lines.filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(column)?, 16).ok()).sum()
}

/// Fields of `/proc/net/dev`: eight counts of what was received, each time bytes, packets, errors and drops
/// first, then those of what was sent.
const RX_DROPPED: usize = 3;
const TX_DROPPED: usize = 11;

fn dropped(text: &str, device: &str, field: usize) -> u64 {
    let counts = text.lines().find_map(|line| line.trim_start().strip_prefix(device)?.strip_prefix(':'));
    counts.and_then(|counts| counts.split_whitespace().nth(field)?.parse().ok()).unwrap_or(0)
}

fn qdiscs(rig: &Rig) -> Result<Vec<Qdisc>> {
    let (netns, nic) = match rig.fault() {
        Fault::Path(fault) => fault.nic(rig.world()),
        _ => (&rig.world().host, PNIC),
    };
    let text = netns.run("tc", &format!("-s -j qdisc show dev {nic}"))?;
    serde_json::from_str(&text).context("parse what tc says")
}

/// Where the fault has its rule.
fn rule_of(rig: &Rig) -> &Netns {
    match rig.fault() {
        Fault::Path(PathFault::Rule { at: Place::Outside }) => &rig.world().client,
        _ => &rig.world().host,
    }
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
    use super::{
        RX_DROPPED, TX_DROPPED, by_cpu, descendants, dropped, mean_request_ns, parent_of, snmp, softirq_ns,
        sum_of_column,
    };

    #[test]
    fn a_device_s_requests_take_what_it_says_on_average() {
        assert_eq!(mean_request_ns("2 0 16 400 160 0 1280 19200 0 1200 19600"), 200_000_000);
        assert_eq!(mean_request_ns("0 0 0 0 160 0 1280 19200 0 1200 19200"), 120_000_000);
        assert_eq!(mean_request_ns(""), 0);
    }

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

    #[test]
    fn counts_are_found_by_cpu_and_by_column() {
        let devices = "lo: 1\n vnic0: 1 2 3 4 5 6 7 8 9 10 11 12 13\n";
        assert_eq!([RX_DROPPED, TX_DROPPED].map(|field| dropped(devices, "vnic0", field)), [4, 12]);
        assert_eq!(softirq_ns("cpu 1 1 1 1 1 1 9\ncpu1 1 2 3 4 5 6 70 8\n", "cpu1"), 700_000_000);
        let arp_cache = "entries res_failed\n00000002 0000000a\n00000002 00000001\n";
        assert_eq!((by_cpu(arp_cache, "res_failed"), by_cpu(arp_cache, "lookups")), (11, 0));
        assert_eq!(sum_of_column("0000000a 00000010\n0000000b 00000001\n".lines(), 1), 17);
    }
}
