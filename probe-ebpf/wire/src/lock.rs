//! Locks: of the kernel that threads wait for on the CPU, and of processes that they sleep for.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Spinning that is told as soon as it comes to this, nanoseconds.
pub const SPIN_TOLD_NS: u64 = 50_000;
/// Spinning that is told when the thread leaves the CPU, nanoseconds; less is not told.
pub const SPIN_LEAST_NS: u64 = 5_000;

/// [`LockSpinBody::flags`]: a lock that is only ever spun for (`LCB_F_SPIN`), or that a thread
/// spins for before it sleeps.
/// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/lock.h#L10>
pub const LOCK_SPIN: u32 = 1;
/// A reader waits.
pub const LOCK_READ: u32 = 2;
/// A writer waits.
pub const LOCK_WRITE: u32 = 4;
/// A mutex with priority inheritance.
pub const LOCK_RT: u32 = 8;
/// A semaphore whose readers count per CPU.
pub const LOCK_PERCPU: u32 = 16;
/// A mutex.
pub const LOCK_MUTEX: u32 = 32;

/// A watched thread (the header's) has waited for a kernel lock without leaving its CPU: once, or
/// several times in one slice. The header's time is the end of the last wait, or now while it
/// lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LockSpinBody {
    /// When the first wait began.
    pub since_ns: u64,
    /// How long it waited in all, nanoseconds; all the time since then if it was one wait.
    pub spun_ns: u64,
    /// Address of the lock of the longest wait.
    pub lock: u64,
    /// What kind of lock that is, bits: [`LOCK_SPIN`] and the others.
    pub flags: u32,
    /// Waits.
    pub waits: u32,
    /// Thread that had that lock when the wait began, if the lock tells; 0 if not.
    pub owner_tid: u32,
    /// Process of that thread.
    pub owner_tgid: u32,
    /// Name of that thread.
    pub owner_comm: [u8; 16],
}

/// A watched thread (the header's) leaves its CPU to sleep in a futex call. Follows its
/// [`SwitchOutBody`](crate::SwitchOutBody).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FutexWaitBody {
    /// Which aligned word of eight bytes of its process the futex lies in: its address / 8.
    pub word: u64,
}
