//! The host as a recording holds it, so that who was not there can see what it was like: kernel, NICs,
//! disks, settings, guests, the kernel's own counters of losses; and what whylag itself has cost.
//!
//! Facts come out ([`gather()`], [`counters`], [`cost()`]), at the edge and in bounded time. Names and
//! numbers only: no address, no argument, no environment, no host name, no serial number.

mod cost;
mod disk;
mod gather;
mod guest;
mod interrupts;
mod levels;
mod nic;
mod read;
mod settings;
mod told;

pub use cost::cost;
pub use gather::{counters, gather};
pub use interrupts::interrupt_levels;
pub use levels::queue_levels;
pub(crate) use told::{grown, queues, spent, told};

use serde::{Deserialize, Serialize};

/// One thing about the host. Each is a record of its own, and short enough for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "snake_case")]
pub enum HostFact {
    /// Kernel, CPUs and memory.
    System(SystemFact),
    /// Settings that matter.
    Settings {
        /// By name.
        settings: Vec<SettingFact>,
    },
    /// A network interface.
    Nic(NicFact),
    /// A disk.
    Disk(DiskFact),
    /// A virtual machine or a container.
    Guest(GuestFact),
    /// The kernel's counters of losses and stalls, at the time of the record.
    Counters {
        /// By name.
        counters: Vec<CounterFact>,
    },
    /// What could not be looked at.
    Gap {
        /// What.
        what: String,
        /// Why.
        reason: String,
    },
}

/// Kernel, CPUs and memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemFact {
    /// Release of the kernel.
    pub kernel: String,
    /// Its build, such as `#1 SMP PREEMPT_DYNAMIC Debian 6.12.1`.
    pub build: String,
    /// Architecture.
    pub architecture: String,
    /// CPUs that are online.
    pub online_cpus: String,
    /// Model of the first CPU; empty if unknown.
    pub cpu_model: String,
    /// The host is itself a guest of a hypervisor.
    pub virtualised: bool,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Memory that could be had at that time without swapping, bytes.
    pub available_bytes: u64,
    /// Swap space, bytes.
    pub swap_bytes: u64,
    /// `unified`, `hybrid`, `legacy` or `absent`; empty if unknown.
    pub cgroups: String,
    /// What the kernel reads time from.
    pub clock_source: String,
}

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingFact {
    /// As `sysctl` writes it; else the file below /sys.
    pub name: String,
    /// What it is.
    pub value: String,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicFact {
    /// Its name.
    pub name: String,
    /// Cookie of its network namespace.
    pub netns: u64,
    /// Its index there.
    pub ifindex: u32,
    /// `ether`, `tap`, `veth`, …
    pub kind: String,
    /// Checks are watched there.
    pub watched: bool,
    /// Driver of its hardware; empty if it has none or it is unknown.
    pub driver: String,
    /// Able to pass packets.
    pub up: bool,
    /// Largest packet, bytes.
    pub mtu_bytes: u32,
    /// Speed, Mbit/s; `None` if it does not say.
    pub speed_mbit: Option<u32>,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// Most queues its hardware has; `None` if it does not say.
    pub most_queues: Option<u32>,
    /// Packets that its rings hold; `None` if it does not say.
    pub rings: Option<RingsFact>,
    /// Offloads that are on, of gro, gso, tso, lro; `None` if it does not say.
    pub offloads: Option<Vec<String>>,
    /// Most packets that wait for it where its queueing discipline sets no limit (`txqueuelen`).
    pub tx_queue_len: Option<u32>,
    /// Its interrupts.
    pub interrupts: Vec<InterruptFact>,
    /// CPUs that each receive queue's work is spread over by software (RPS), as masks.
    pub rps_cpus: Vec<String>,
    /// CPUs that use each transmit queue (XPS), as masks.
    pub xps_cpus: Vec<String>,
}

/// Packets that the rings of a NIC's hardware hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingsFact {
    /// Each receive ring.
    pub rx: u32,
    /// Each transmit ring.
    pub tx: u32,
    /// Most that a receive ring could hold.
    pub most_rx: u32,
    /// Most that a transmit ring could hold.
    pub most_tx: u32,
}

/// An interrupt of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptFact {
    /// Its number.
    pub irq: u32,
    /// Its name, which often tells the queue.
    pub name: String,
    /// CPUs that it may go to.
    pub cpus: String,
    /// CPUs that it does go to; empty if unknown.
    pub effective_cpus: String,
}

/// A disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFact {
    /// Its name.
    pub name: String,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Model, as the device says; empty if it does not.
    pub model: String,
    /// I/O scheduler.
    pub scheduler: String,
    /// Requests that the scheduler keeps (`nr_requests`).
    pub queue_depth: Option<u64>,
    /// Hardware queues.
    pub hardware_queues: Option<u64>,
    /// It turns.
    pub rotational: bool,
    /// Target of writeback throttling, µs; 0 switches it off; `None` without it.
    pub wbt_latency_us: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: String,
    /// Reads ahead, bytes.
    pub read_ahead_bytes: Option<u64>,
}

/// A virtual machine or a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFact {
    /// `vm` or `container`.
    pub kind: String,
    /// Its name, as doctor shows it.
    pub name: String,
    /// VMM or runtime.
    pub runtime: String,
    /// Its first process.
    pub tgid: u32,
    /// Threads that run guest code; 0 for a container.
    pub vcpus: u32,
    /// Names of its taps.
    pub taps: Vec<String>,
    /// Its cgroup.
    pub cgroup: String,
    /// CPU limit of that (`cpu.max`); empty without one.
    pub cpu_max: String,
    /// Memory limit of that, bytes; empty without one.
    pub memory_max: String,
}

/// A counter of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterFact {
    /// Such as `Udp.RcvbufErrors` or `eth0.rx_dropped`.
    pub name: String,
    /// Its value, since the host or the interface came up.
    pub value: u64,
}

/// What a run of whylag has cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostFact {
    /// From the start of the process, nanoseconds.
    pub elapsed_ns: u64,
    /// CPU time in user code, nanoseconds, in the kernel's ticks.
    pub user_ns: u64,
    /// CPU time in the kernel, nanoseconds, in its ticks. That of the kernel programs is not in it: it is in
    /// the time of whomever they ran on.
    pub system_ns: u64,
    /// Most memory at any time, bytes; `None` if unknown.
    pub peak_memory_bytes: Option<u64>,
    /// The kernel programs; empty unless `kernel.bpf_stats_enabled` is 1: only then does the kernel count.
    pub programs: Vec<ProgramCost>,
}

/// What a kernel program has cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramCost {
    /// Its name.
    pub name: String,
    /// How often it ran.
    pub runs: u64,
    /// How long, nanoseconds, the counting itself included.
    pub run_ns: u64,
}
