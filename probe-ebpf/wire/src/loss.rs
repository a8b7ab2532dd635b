//! What the kernel programs count of themselves.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One row per event kind and CPU, in the per-CPU array `LOSS`. `emitted` counts attempts, so
/// for every kind: records received + `lost` == `emitted`, exactly.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LossRow {
    /// Attempts to emit a record.
    pub emitted: u64,
    /// Attempts that found the ring full.
    pub lost: u64,
}
