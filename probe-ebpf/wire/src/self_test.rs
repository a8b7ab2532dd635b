//! What the self-test programs saw, for the loader to compare with what it knows.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The only entry of the array `SELF_TEST`: fields of the loader's own task, and of a packet that
/// the loader made up, read at the [`Offsets`](crate::Offsets) it gave.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SelfTest {
    /// Start time of the task.
    pub start_time_ns: u64,
    /// Network namespace cookie of the packet's device.
    pub netns: u64,
    /// Thread number of the task.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Its name.
    pub comm: [u8; 16],
    /// Index of the packet's device.
    pub ifindex: u32,
    /// Bytes of the packet.
    pub len: u32,
    /// Bytes from its first byte to the end of its linear part.
    pub linear_len: u32,
    /// Bytes from its first byte to its network header.
    pub network_offset: u32,
    /// Bytes from its first byte to its link header.
    pub mac_offset: u32,
    /// Its protocol, as it lies in memory.
    pub protocol: u32,
    /// The [`Interrupt`](crate::Interrupt) that the test ran in: none.
    pub interrupt: u32,
    /// Always 0.
    pub reserved: u32,
    /// The first bytes of its network header.
    pub network: [u8; 8],
}
