//! What every record starts with.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The first 40 bytes of every record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EventHeader {
    /// When the program ran: nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Counts the attempts to emit on this CPU, from 1; a gap is exactly that many lost records.
    pub seq: u64,
    /// An [`EventKind`](crate::EventKind).
    pub kind: u16,
    /// Bytes of the body that follows.
    pub body_len: u16,
    /// The CPU the program ran on, whose ring holds the record.
    pub cpu: u32,
    /// Process of the current task; in an interrupt, of the task it interrupted.
    pub tgid: u32,
    /// Thread of the current task.
    pub tid: u32,
    /// Softirq vector being served on this CPU when the program ran, plus 1; 0 outside softirq.
    pub softirq: u32,
    /// What the program interrupted: an [`Interrupt`](crate::Interrupt). Only wake-ups tell.
    pub interrupt: u32,
}
