//! Storage and memory: what threads wait for there, who writes, who reclaims.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// [`FileWaitBody::call`] of a thread that faulted a page in.
pub const CALL_FAULT: u32 = u32::MAX;
/// Fewest folios that get dirty on a CPU between two records of it.
pub const DIRTIED_FOLIOS: u32 = 16;
/// Shortest time between two such records, nanoseconds.
pub const DIRTIED_EVERY_NS: u64 = 200_000;

/// A watched thread (the header's) went to sleep uninterruptibly while it used a file. Follows
/// its [`SwitchOutBody`](crate::SwitchOutBody).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileWaitBody {
    /// The file's inode number.
    pub inode: u64,
    /// Device of its file system, or that it is itself, as in the kernel: major number << 20 |
    /// minor number.
    pub device: u32,
    /// The system call that it is in, of which the file is the first argument; or [`CALL_FAULT`].
    pub call: u32,
    /// Name of the file system's type, NUL-padded.
    pub file_system: [u8; 16],
}

/// Folios of files got dirty: a sample of those on this CPU, the last of which the header's
/// thread made dirty, watched or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DirtiedBody {
    /// As in [`FileWaitBody::device`].
    pub device: u32,
    /// Folios that got dirty on this CPU since its last such record.
    pub folios: u32,
    /// Name of the thread.
    pub comm: [u8; 16],
}

/// A watched thread (the header's) has looked for memory itself, because there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReclaimBody {
    /// When it began.
    pub began_ns: u64,
    /// Pages that it freed.
    pub pages: u64,
    /// 1 if its memory cgroup was at its limit, 0 if the machine had none left.
    pub cgroup: u32,
    /// Always 0.
    pub reserved: u32,
}
