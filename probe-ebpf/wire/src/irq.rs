//! Interrupt work.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Number of softirq vectors.
pub const SOFTIRQ_VECTORS: usize = 10;

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
