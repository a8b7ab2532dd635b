//! The closed taxonomy of causes: nine families, 25 leaves, mutually exclusive.

use serde::{Deserialize, Serialize};

/// First part of a cause's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are the meaning")]
pub enum Family {
    Vm,
    App,
    Dependency,
    Storage,
    Memory,
    Kernel,
    Nic,
    Host,
    External,
}

/// A leaf of the taxonomy. See [`CAUSES`] for what each means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the table below tells what each means")]
pub enum Cause {
    VmVcpuSteal,
    VmBackend,
    VmPaused,
    VmGuestInternal,
    AppOnCpu,
    AppRunqueue,
    AppQuotaThrottle,
    AppFutex,
    AppBlockedIo,
    AppSelfWait,
    AppSocketQueue,
    DependencyDns,
    DependencyRemote,
    StorageWriteback,
    StorageJournal,
    StorageBlockQueue,
    MemoryReclaim,
    KernelLock,
    NicQdisc,
    NicTxQueue,
    NicRxSoftirq,
    NicDrop,
    HostForwarding,
    HostCpuGap,
    ExternalOutsideHost,
}

/// What is known of a cause.
#[derive(Debug, Clone, Copy)]
pub struct CauseRow {
    /// The cause.
    pub cause: Cause,
    /// Public name, `family.leaf`.
    pub name: &'static str,
    /// Its family.
    pub family: Family,
    /// What must be true for it.
    pub must_be_true: &'static str,
    /// From where to where it is measured, and what proves it.
    pub proof: &'static str,
}

/// The table of causes.
pub const CAUSES: [CauseRow; 25] = [
    row(
        Cause::VmVcpuSteal,
        "vm.vcpu_steal",
        Family::Vm,
        "in VM custody, a vCPU has work and does not run it: runnable, throttled, or busy in host exit handling",
        "vCPU thread: wake-up to switch-in, throttled time, exit to entry",
    ),
    row(
        Cause::VmBackend,
        "vm.backend",
        Family::Vm,
        "in the tap or vhost ring, and the vhost worker or VMM thread does not drain it",
        "ring enqueue to drain, and the worker's state and frame",
    ),
    row(
        Cause::VmPaused,
        "vm.paused",
        Family::Vm,
        "the VMM stopped all vCPUs together",
        "all vCPU threads off the CPU with no wake-up",
    ),
    row(
        Cause::VmGuestInternal,
        "vm.guest_internal",
        Family::Vm,
        "delivered to the guest, and the guest computes or waits by its own choice",
        "virtual NIC out to virtual NIC in; refined only with the half inside the guest",
    ),
    row(
        Cause::AppOnCpu,
        "app.on_cpu",
        Family::App,
        "the serving thread runs user code or a system call it asked for",
        "its time on CPU minus interrupts",
    ),
    row(
        Cause::AppRunqueue,
        "app.runqueue",
        Family::App,
        "the serving thread can run, does not, and is not throttled",
        "wake-up or preemption to switch-in; who ran meanwhile",
    ),
    row(
        Cause::AppQuotaThrottle,
        "app.quota_throttle",
        Family::App,
        "the serving thread looks runnable while its cgroup is out of CPU quota",
        "the cgroup's throttled time grew over the gap",
    ),
    row(
        Cause::AppFutex,
        "app.futex",
        Family::App,
        "blocked in a futex whose owner does its own work",
        "futex frame, waker, and the waker's state meanwhile",
    ),
    row(
        Cause::AppBlockedIo,
        "app.blocked_io",
        Family::App,
        "blocked on a pipe, terminal, Unix socket or other local peer",
        "frame of the wait, and the peer",
    ),
    row(
        Cause::AppSelfWait,
        "app.self_wait",
        Family::App,
        "data is ready, and the thread sleeps by choice, is stopped or frozen",
        "sleep or poll frame, or the stopped state",
    ),
    row(
        Cause::AppSocketQueue,
        "app.socket_queue",
        Family::App,
        "lost because an accept queue or receive buffer was full, or the reply is held in the send queue",
        "overflow drop; or send to first transmit",
    ),
    row(
        Cause::DependencyDns,
        "dependency.dns",
        Family::Dependency,
        "the serving thread waits for a DNS answer",
        "its socket to port 53",
    ),
    row(
        Cause::DependencyRemote,
        "dependency.remote",
        Family::Dependency,
        "the serving thread waits for another service",
        "its connected socket, with a request outstanding",
    ),
    row(
        Cause::StorageWriteback,
        "storage.writeback",
        Family::Storage,
        "asleep because of dirty limits or pages under writeback",
        "balance_dirty_pages or folio_wait_writeback frame",
    ),
    row(
        Cause::StorageJournal,
        "storage.journal",
        Family::Storage,
        "waits for a file system transaction or log",
        "jbd2, xlog or btrfs transaction frame",
    ),
    row(
        Cause::StorageBlockQueue,
        "storage.block_queue",
        Family::Storage,
        "waits for a block or remote file system request",
        "block layer or file system read frame",
    ),
    row(
        Cause::MemoryReclaim,
        "memory.reclaim",
        Family::Memory,
        "the thread itself reclaims, compacts, migrates, swaps in or sleeps for memory.high",
        "reclaim, compaction or swap frame",
    ),
    row(
        Cause::KernelLock,
        "kernel.lock",
        Family::Kernel,
        "sleeps on a kernel lock or an RCU grace period",
        "mutex, rwsem or RCU frame",
    ),
    row(
        Cause::NicQdisc,
        "nic.qdisc",
        Family::Nic,
        "between qdisc enqueue and dequeue while the device can take packets",
        "the pair of events; overlimits up, requeues flat",
    ),
    row(
        Cause::NicTxQueue,
        "nic.tx_queue",
        Family::Nic,
        "held because the device queue was stopped or its consumer is behind",
        "stopped queue state or requeues over the stay",
    ),
    row(
        Cause::NicRxSoftirq,
        "nic.rx_softirq",
        Family::Nic,
        "in the ring or backlog while receive softirq does not run or is slow",
        "softirq raise to entry, and what held that CPU",
    ),
    row(
        Cause::NicDrop,
        "nic.drop",
        Family::Nic,
        "this packet was dropped at NIC, ring, backlog, qdisc or tap",
        "drop event with reason and place",
    ),
    row(
        Cause::HostForwarding,
        "host.forwarding",
        Family::Host,
        "time or drop between devices: netfilter, conntrack, bridge, neighbour, routing",
        "stage gap, or drop reason",
    ),
    row(
        Cause::HostCpuGap,
        "host.cpu_gap",
        Family::Host,
        "the CPU that the thread nominally held ran interrupt work or was stolen",
        "softirq time inside the thread's slice",
    ),
    row(
        Cause::ExternalOutsideHost,
        "external.outside_host",
        Family::External,
        "host time is normal: the request came late or never, or the answer did",
        "first and last stage on this host",
    ),
];

const fn row(
    cause: Cause,
    name: &'static str,
    family: Family,
    must_be_true: &'static str,
    proof: &'static str,
) -> CauseRow {
    CauseRow { cause, name, family, must_be_true, proof }
}

impl Cause {
    /// Its row in the table.
    #[must_use]
    pub const fn row(self) -> &'static CauseRow {
        &CAUSES[self as usize]
    }

    /// The public name, `family.leaf`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// The cause with this public name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        CAUSES.iter().find(|row| row.name == name).map(|row| row.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::CAUSES;

    #[test]
    fn every_row_stands_at_its_cause_and_names_its_family() {
        for (index, row) in CAUSES.iter().enumerate() {
            assert_eq!(index, row.cause as usize, "{}", row.name);
            assert!(row.name.starts_with(&format!("{:?}.", row.family).to_lowercase()), "{}", row.name);
        }
    }
}
