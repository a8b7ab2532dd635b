//! Dumps: registers and the upper end of a watched thread's stack, for unwinding.
//!
//! They hold memory of a process. They travel in rings of their own and are no events: nothing
//! that keeps or shows events can come by one.

use crate::sched::STACK_DEPTH;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a dump was taken for: the kind in its [`EventHeader`](crate::EventHeader), beside those of
/// events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum DumpKind {
    /// The header's thread was on a CPU.
    Sample = 50,
    /// The header's thread has been off the CPU, and gets it at the header's time.
    Wait = 51,
}

impl DumpKind {
    /// Every kind, in the order of its number.
    pub const ALL: [Self; 2] = [Self::Sample, Self::Wait];

    /// Its place in an array of one for each.
    #[must_use]
    pub const fn index(self) -> u32 {
        self as u32 - Self::Sample as u32
    }
}

/// User frames kept of those that the kernel finds by frame pointers.
pub const CHAIN_DEPTH: usize = 32;
/// Bytes that a place of a waiting thread has before its dump: a word that is not 0 while a program
/// uses it, and a word with the thread's number, 0 when it is free.
pub const PLACE_HEAD: usize = 16;
/// Bytes of stack that are copied of a thread at first.
pub const STACK_BYTES: u32 = 4 << 10;
/// Bytes of stack that are copied of a thread for which those do not suffice.
pub const STACK_BYTES_MOST: u32 = 32 << 10;
/// Waiting threads whose stacks can be kept at a time.
pub const WAITING: u32 = 2048;
/// Of these, such with [`STACK_BYTES_MOST`].
pub const WAITING_DEEP: u32 = 128;
/// Stretch of time for which [`Settings::waits_per_stretch`](crate::Settings) counts.
pub const WAITS_STRETCH_NS: u64 = 1 << 27;
/// A wait of so many times the minimum is a long one: the last half of the budget is kept for those.
pub const LONG_WAIT: u64 = 10;

/// What follows the header of a dump; the memory follows this, and is as long as the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DumpBody {
    /// Of a wait: when it began, which is the time of its `SwitchOut`.
    pub since_ns: u64,
    /// Of a sample: time between two of this CPU.
    pub period_ns: u64,
    /// Instruction pointer in user mode.
    pub ip: u64,
    /// Stack pointer there.
    pub sp: u64,
    /// Frame pointer register there.
    pub bp: u64,
    /// Bytes of memory from `sp` upwards.
    pub copied: u32,
    /// Frames in `kernel`; 0 in user mode, and of a wait.
    pub kernel_len: u32,
    /// Kernel addresses, innermost first; meaningless behind `kernel_len`.
    pub kernel: [u64; STACK_DEPTH],
    /// Addresses in `chain`; 0 of a wait.
    pub chain_len: u32,
    /// Always 0.
    pub reserved: u32,
    /// Of a sample: the instruction pointer in user mode and return addresses above, as the kernel
    /// finds them by frame pointers, innermost first; meaningless behind `chain_len`.
    pub chain: [u64; CHAIN_DEPTH],
}

/// What one CPU has done about dumps of one kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DumpRow {
    /// Those that were due: samples of watched threads, waits of at least the minimum.
    pub due: u64,
    /// Of these, those for which the ring had no room.
    pub lost: u64,
    /// Of these, those beyond the budget.
    pub spared: u64,
    /// Stacks of waiting threads that had to make room for another's, before it was known how long
    /// the wait would be.
    pub displaced: u64,
    /// The stretch of time for which `spent` counts.
    pub stretch: u64,
    /// Waits told of in it.
    pub spent: u64,
}
