//! The part of the host that a cause is about: whom to call.

use crate::attribution::Cause;
use serde::{Deserialize, Serialize};

/// A part of the host, or of the world around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// CPUs and who gets them.
    Cpu,
    /// Disks and file systems.
    Disk,
    /// NICs and their queues.
    Nic,
    /// Virtual machines and what runs them.
    Vm,
    /// The application that answers.
    App,
    /// Forwarding on the host, and the network outside.
    Network,
    /// Other services that the application asks.
    Dependency,
    /// Memory.
    Memory,
    /// Locks, of the application and of the kernel.
    Lock,
}

impl Component {
    /// All, in the order of their names' table.
    pub const ALL: [Self; 9] = [
        Self::Cpu,
        Self::Disk,
        Self::Nic,
        Self::Vm,
        Self::App,
        Self::Network,
        Self::Dependency,
        Self::Memory,
        Self::Lock,
    ];

    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Disk => "disk",
            Self::Nic => "nic",
            Self::Vm => "vm",
            Self::App => "app",
            Self::Network => "network",
            Self::Dependency => "dependency",
            Self::Memory => "memory",
            Self::Lock => "lock",
        }
    }

    /// The one that a cause is about.
    #[must_use]
    pub const fn of(cause: Cause) -> Self {
        match cause {
            Cause::VmVcpuSteal | Cause::VmBackend | Cause::VmPaused | Cause::VmGuestInternal => Self::Vm,
            Cause::AppOnCpu | Cause::AppBlockedIo | Cause::AppSelfWait | Cause::AppSocketQueue => Self::App,
            Cause::AppRunqueue | Cause::AppQuotaThrottle | Cause::HostCpuGap => Self::Cpu,
            Cause::AppFutex | Cause::KernelLock => Self::Lock,
            Cause::DependencyDns | Cause::DependencyRemote => Self::Dependency,
            Cause::StorageWriteback | Cause::StorageJournal | Cause::StorageBlockQueue => Self::Disk,
            Cause::MemoryReclaim => Self::Memory,
            Cause::NicQdisc | Cause::NicTxQueue | Cause::NicRxSoftirq | Cause::NicDrop => Self::Nic,
            Cause::HostForwarding | Cause::ExternalOutsideHost => Self::Network,
        }
    }
}
