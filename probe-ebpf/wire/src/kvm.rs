//! Exits of KVM's guests.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Handling of one exit that is told as soon as it is over, nanoseconds.
pub const EXIT_TOLD_NS: u64 = 1_000_000;
/// Handling of several that is told as soon as it comes to this, nanoseconds; less is not told.
pub const EXITS_TOLD_NS: u64 = 4_000_000;

/// Exits with which a guest says that it has nothing to do, each as the processor and its reason: `HLT`
/// of VMX, and of SVM, where the processor may look for interrupts first. KVM polls for a while for what
/// ends a halt, on the thread's CPU; that is no work for the guest.
/// <https://github.com/torvalds/linux/blob/v6.12/virt/kvm/kvm_main.c> (`kvm_vcpu_halt`)
pub const HALTS: [(u32, u32); 3] = [(1, 12), (2, 0x78), (2, 0xa6)];

/// The host has handled exits of a guest on a watched vCPU's thread (the header's), which had its
/// CPU all that time. The header's time is when the guest was entered again. Exits during which the
/// thread left its CPU are not in it, and neither are halts of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct GuestExitsBody {
    /// When the first exit came.
    pub since_ns: u64,
    /// How long all of them took, nanoseconds.
    pub handled_ns: u64,
    /// How long the longest took, nanoseconds.
    pub longest_ns: u64,
    /// How many they were.
    pub exits: u32,
    /// Why the guest exited that time, as its processor tells it.
    pub reason: u32,
    /// What that processor has: 1 VMX, 2 SVM, 0 if the kernel does not tell.
    pub processor: u32,
    /// Zero.
    pub reserved: u32,
}
