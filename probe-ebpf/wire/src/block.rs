//! Requests of block devices.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The end of a request woke a watched thread. Follows its [`WakingBody`](crate::WakingBody).
///
/// Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct BlockRequestBody {
    /// When its first part was handed to the device's queue; by a throttle, when that let it go.
    pub queued_ns: u64,
    /// When there was room for it among the device's requests (`request.start_time_ns`); 0 where the
    /// kernel does not tell.
    pub granted_ns: u64,
    /// When it was handed to the driver for the first time; 0 if that was not seen.
    pub issued_ns: u64,
    /// When the driver was done with it.
    pub done_ns: u64,
    /// The thread that was woken.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// The thread that queued it; a worker, if a throttle had held it back.
    pub by_tid: u32,
    /// Its process.
    pub by_tgid: u32,
    /// The device: major number << 20 | minor number.
    pub device: u32,
    /// 1 if the device's throttle (blk-throttle) had held it back.
    pub throttled: u32,
}
