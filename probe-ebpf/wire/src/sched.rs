//! Threads: switches, wake-ups, births and deaths.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Kernel frames kept of a thread that goes to sleep.
pub const STACK_DEPTH: usize = 20;

/// A run on a CPU that was shorter is not told, nanoseconds.
pub const RAN_LEAST_NS: u64 = 10_000;
/// Most runs told of a CPU in a stretch of time.
pub const MOST_RUNS: u64 = 512;
/// That stretch, nanoseconds.
pub const RUNS_STRETCH_NS: u64 = 1 << 27;

/// A thread's CPU time by the kernel's own account, and what the CPU's run queue kept out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CpuAccount {
    /// Time charged to the thread so far, nanoseconds of the run queue's clock
    /// (`se.sum_exec_runtime`); it grows only while the thread is on a CPU. `u64::MAX` where the
    /// kernel does not tell.
    pub exec_ns: u64,
    /// Time this CPU's run queue has charged to nobody because the hypervisor took it,
    /// nanoseconds (`rq.prev_steal_time_rq`); 0 in a kernel that does not account it.
    pub steal_ns: u64,
    /// The same for hard interrupts and softirqs (`rq.prev_irq_time`).
    pub irq_ns: u64,
}

impl CpuAccount {
    /// What is known of a kernel that tells nothing.
    pub const UNKNOWN: Self = Self { exec_ns: u64::MAX, steal_ns: 0, irq_ns: 0 };
}

/// A watched thread (the header's) left the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SwitchOutBody {
    /// Its start time, nanoseconds of `CLOCK_MONOTONIC`: tells two lives of one number apart.
    pub start_time_ns: u64,
    /// Time this CPU has spent in softirq since attach, nanoseconds.
    pub softirq_ns: u64,
    /// Time this thread's CPU bandwidth groups have been throttled, all ancestors and CPUs
    /// summed, nanoseconds (`cfs_bandwidth.throttled_time`).
    pub throttled_ns: u64,
    /// Periods in which they were throttled (`nr_throttled`), summed likewise.
    pub throttled_count: u64,
    /// `prev_state` as the kernel gives it, bits: 0 runnable, 1 interruptible, 2 uninterruptible,
    /// 4 stopped, 8 traced, …; modifiers such as 0x2000 (freezable) can be set besides.
    pub state: u32,
    /// 1 when it was preempted inside the kernel. A thread that the CPU is taken from on its way
    /// back to user mode, or that yields, leaves with `state` 0 and 0 here.
    pub preempted: u32,
    /// Thread that got the CPU.
    pub next_tid: u32,
    /// Process of that thread.
    pub next_tgid: u32,
    /// Name of the thread that leaves.
    pub comm: [u8; 16],
    /// Name of the thread that got the CPU.
    pub next_comm: [u8; 16],
    /// Frames in `stack`; 0 when none was taken.
    pub stack_len: u32,
    /// Always 0.
    pub reserved: u32,
    /// Kernel return addresses, innermost first; zeros behind `stack_len`. The first few, up to
    /// `__schedule`, are the BPF program's and the tracepoint's own.
    pub stack: [u64; STACK_DEPTH],
    /// Of the thread that leaves, its slice included.
    pub account: CpuAccount,
    /// How long it has had the CPU, nanoseconds of the run queue's clock, steal and interrupts
    /// included (`rq.clock - sched_info.last_arrival`); `u64::MAX` where the kernel does not tell.
    pub ran_ns: u64,
}

/// A watched thread got the CPU. The header's thread is the one that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SwitchInBody {
    /// Start time of the thread that got the CPU.
    pub start_time_ns: u64,
    /// As in [`SwitchOutBody::softirq_ns`].
    pub softirq_ns: u64,
    /// As in [`SwitchOutBody::throttled_ns`], of the thread that got the CPU.
    pub throttled_ns: u64,
    /// As in [`SwitchOutBody::throttled_count`].
    pub throttled_count: u64,
    /// Thread that got the CPU.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Name of the thread that got the CPU.
    pub comm: [u8; 16],
    /// Name of the thread that left.
    pub prev_comm: [u8; 16],
    /// Of the thread that got the CPU.
    pub account: CpuAccount,
}

/// A watched thread is being woken. The header's thread is the waker (in softirq, the thread
/// that the softirq interrupted: see `EventHeader::softirq`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WakingBody {
    /// Thread woken.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// CPU it last ran on.
    pub cpu: u32,
    /// 1 when the waker's process is watched too.
    pub waker_watched: u32,
    /// Name of the waker.
    pub waker_comm: [u8; 16],
    /// Name of the thread woken.
    pub comm: [u8; 16],
}

/// A watched thread (the header's) ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TaskExitBody {
    /// Its start time.
    pub start_time_ns: u64,
}

/// A watched process (the header's thread) made a thread or a child; the child is watched from
/// here on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TaskForkBody {
    /// Start time of the child.
    pub start_time_ns: u64,
    /// Thread number of the child.
    pub tid: u32,
    /// Process of the child: the parent's for a thread.
    pub tgid: u32,
}

/// A thread that nobody watches (the header's) left a CPU for which a watched one waits: one that
/// was taken off it, or that last ran there and was woken. Or any thread (the header's) that still has
/// its CPU, where a softirq begins that others had kept waiting as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RanBody {
    /// Its start time, as in [`SwitchOutBody::start_time_ns`].
    pub start_time_ns: u64,
    /// As in [`SwitchOutBody::ran_ns`].
    pub ran_ns: u64,
    /// Its name.
    pub comm: [u8; 16],
}
