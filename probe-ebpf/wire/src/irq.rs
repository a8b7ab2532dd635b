//! Interrupt work.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A softirq that ran for at least [`Settings::softirq_min_ns`](crate::Settings); the header's
/// time is its end, the header's thread the one it interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SoftirqBody {
    /// How long it ran, nanoseconds.
    pub duration_ns: u64,
    /// Vector: 0 HI, 1 TIMER, 2 NET_TX, 3 NET_RX, 4 BLOCK, …
    pub vector: u32,
    /// Always 0.
    pub reserved: u32,
}
