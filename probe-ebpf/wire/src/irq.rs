//! Interrupt work.

use crate::sched::STACK_DEPTH;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of softirq vectors.
pub const SOFTIRQ_VECTORS: usize = 10;
/// The vector of received packets (`NET_RX_SOFTIRQ`).
pub const NET_RX: u32 = 3;

/// Softirq work of one vector that took at least [`Settings::softirq_min_ns`](crate::Settings):
/// one run, or shorter ones together; or, every 0.1 s, one of no length on top of a watched thread,
/// which shows that the thread has the CPU. The header's time is the end of the last, the header's
/// thread the one that it interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SoftirqBody {
    /// How long it ran, nanoseconds; of several runs, their sum.
    pub duration_ns: u64,
    /// Vector: 0 HI, 1 TIMER, 2 NET_TX, 3 NET_RX, 4 BLOCK, …
    pub vector: u32,
    /// Of several runs, the time from the begin of the first to the end of the last, nanoseconds;
    /// 0 for one run.
    pub window_ns: u32,
}

/// The softirq was raised while its CPU was in a softirq already: what that one left over.
pub const WAIT_LEFT_OVER: u32 = 1;
/// The header's thread has not left the CPU since then.
pub const WAIT_SAME_SLICE: u32 = 2;

/// NET_RX was raised on a CPU and begun no sooner than [`Settings::softirq_min_ns`](crate::Settings)
/// later. The header's time is when it began; the header's thread is the one on top of which it runs:
/// the thread for softirqs (`ksoftirqd`), one that has held softirqs off itself, or one that an
/// interrupt interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SoftirqWaitBody {
    /// When it was raised, nanoseconds of `CLOCK_MONOTONIC`.
    pub raised_ns: u64,
    /// Start time of the header's thread, nanoseconds of `CLOCK_MONOTONIC`.
    pub start_time_ns: u64,
    /// What the hypervisor took of the CPU meanwhile, nanoseconds, as far as the run queue has
    /// accounted it ([`CpuAccount::steal_ns`](crate::CpuAccount)).
    pub steal_ns: u64,
    /// [`WAIT_LEFT_OVER`], [`WAIT_SAME_SLICE`].
    pub flags: u32,
    /// Frames in `stack`.
    pub stack_len: u32,
    /// Name of the header's thread.
    pub comm: [u8; 16],
    /// Kernel stack on which it began, innermost first: who lets softirqs run again is in it.
    pub stack: [u64; STACK_DEPTH],
}

/// What a program interrupted, from the preempt count of its CPU.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Interrupt {
    /// Not looked at, or this kernel's preempt count cannot be read.
    #[default]
    Unknown = 0,
    /// No hard interrupt: the header's thread itself runs, or a softirq.
    None = 1,
    /// A hard interrupt, such as a timer's: the header's thread has nothing to do with it.
    Hard = 2,
    /// A non-maskable interrupt.
    Nmi = 3,
}

impl Interrupt {
    /// From the field of a header.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        match number {
            1 => Self::None,
            2 => Self::Hard,
            3 => Self::Nmi,
            _ => Self::Unknown,
        }
    }

    /// From a preempt count, whose bits are the same on all kernels.
    /// <https://github.com/torvalds/linux/blob/v6.12/include/linux/preempt.h#L32>
    #[must_use]
    pub const fn of(preempt_count: u32) -> Self {
        match (preempt_count & 0x00f0_0000, preempt_count & 0x000f_0000) {
            (0, 0) => Self::None,
            (0, _) => Self::Hard,
            _ => Self::Nmi,
        }
    }
}
