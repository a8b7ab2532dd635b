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
    /// What it is easily taken for, and what takes the same shape.
    pub looks_like: &'static str,
    /// What people do about it.
    pub remedy: &'static str,
}

/// The table of causes.
pub const CAUSES: [CauseRow; 25] = [
    row(
        Cause::VmVcpuSteal,
        "vm.vcpu_steal",
        Family::Vm,
        "in VM custody, a vCPU has work and does not run it: runnable, throttled, or busy in host exit handling",
        "vCPU thread: wake-up to switch-in, throttled time, exit to entry",
        "a busy guest (its own CPU time grows then, here it does not)",
        "give the VM's vCPU threads CPUs of their own, raise their cgroup's quota or weight, or move a neighbour away",
    ),
    row(
        Cause::VmBackend,
        "vm.backend",
        Family::Vm,
        "in the tap or vhost ring, and the vhost worker or VMM thread does not drain it",
        "ring enqueue to drain, and the worker's state and frame",
        "a slow guest, or loss in the network",
        "give the vhost or I/O thread a CPU, look at what it waits for, and use more queues",
    ),
    row(
        Cause::VmPaused,
        "vm.paused",
        Family::Vm,
        "the VMM stopped all vCPUs together",
        "all vCPU threads off the CPU with no wake-up",
        "a hung guest, or a network outage of a second",
        "look for snapshots, migrations and monitor commands at that time",
    ),
    row(
        Cause::VmGuestInternal,
        "vm.guest_internal",
        Family::Vm,
        "delivered to the guest, and the guest computes or waits by its own choice",
        "virtual NIC out to virtual NIC in; refined only with the half inside the guest",
        "vCPU steal (runnable vCPUs show it), or a slow backend (the ring shows it)",
        "run whylag inside the guest too, and join the two halves (whylag join): only its half can tell the application \
         from its kernel",
    ),
    row(
        Cause::AppOnCpu,
        "app.on_cpu",
        Family::App,
        "the serving thread runs user code or a system call it asked for",
        "its time on CPU minus interrupts",
        "interrupt work inside the thread's slice, which is host.cpu_gap",
        "profile the thread over the slow checks, and take the work off the thread that answers; of an event loop that \
         receives and does not send, bound what it receives at a time",
    ),
    row(
        Cause::AppRunqueue,
        "app.runqueue",
        Family::App,
        "the serving thread can run, does not, and is not throttled",
        "wake-up or preemption to switch-in; who ran meanwhile",
        "CPU quota (the cgroup's throttled time grows then), or a long computation of its own",
        "move the neighbour named as offender, pin the thread elsewhere, or raise its weight",
    ),
    row(
        Cause::AppQuotaThrottle,
        "app.quota_throttle",
        Family::App,
        "the serving thread looks runnable while its cgroup is out of CPU quota",
        "the cgroup's throttled time grew over the gap",
        "a busy CPU: a throttled thread looks runnable",
        "raise or remove the cgroup's cpu.max (cfs_quota_us), or use fewer threads",
    ),
    row(
        Cause::AppFutex,
        "app.futex",
        Family::App,
        "blocked in a futex whose owner does its own work",
        "futex frame, waker, and the waker's state meanwhile",
        "slow I/O: the waiting thread does nothing, the lock's owner decides",
        "look at what the owner does while it holds the lock, and make it hold it for less",
    ),
    row(
        Cause::AppBlockedIo,
        "app.blocked_io",
        Family::App,
        "blocked on a pipe, terminal, Unix socket or other local peer",
        "frame of the wait, and the peer",
        "a slow application: its log reader, pipe or local peer is the slow one",
        "find the peer that does not read or answer; log without blocking",
    ),
    row(
        Cause::AppSelfWait,
        "app.self_wait",
        Family::App,
        "data is ready, and the thread sleeps by choice, is stopped or frozen; or it reads a check and never answers",
        "sleep or poll frame, or the stopped state",
        "idleness: data was ready, and the thread was not asked to look",
        "look for sleeps, stops (SIGSTOP, freezer) and event loops that forget a descriptor",
    ),
    row(
        Cause::AppSocketQueue,
        "app.socket_queue",
        Family::App,
        "lost because an accept queue or receive buffer was full, or the reply is held in the send queue",
        "overflow drop; a listener's full accept queue when the request came; or send to first transmit",
        "loss in the network, or 40 ms of Nagle and delayed acknowledgement",
        "read faster or with more threads, raise the receive buffer or backlog, set TCP_NODELAY",
    ),
    row(
        Cause::DependencyDns,
        "dependency.dns",
        Family::Dependency,
        "the serving thread waits for a DNS answer",
        "as dependency.remote, on a socket connected to port 53",
        "a slow application in steps of exactly 5 s",
        "look at the resolver and at drops on the way to it; cache answers",
    ),
    row(
        Cause::DependencyRemote,
        "dependency.remote",
        Family::Dependency,
        "the serving thread waits for another service",
        "it sent on a socket without checks, slept, and the first it did then was to receive there",
        "a slow application: its threads wait for somebody else's answer",
        "look at that service with whylag on its host, and set a shorter timeout",
    ),
    row(
        Cause::StorageWriteback,
        "storage.writeback",
        Family::Storage,
        "asleep because of dirty limits or pages under writeback",
        "balance_dirty_pages or folio_wait_writeback frame; the file's device, and who made its pages dirty",
        "a hung machine: writes wait for pages to be cleaned",
        "lower vm.dirty_bytes so that flushes stay small, write with direct I/O, or use a faster disk",
    ),
    row(
        Cause::StorageJournal,
        "storage.journal",
        Family::Storage,
        "waits for a file system transaction or log",
        "jbd2, xlog or btrfs transaction frame",
        "a slow disk: a commit waits for everybody's data",
        "take fsync-heavy neighbours off that file system, or give the service its own",
    ),
    row(
        Cause::StorageBlockQueue,
        "storage.block_queue",
        Family::Storage,
        "waits for a block or remote file system request",
        "block layer or file system read frame",
        "writeback: here a single request waits for the device or its throttle",
        "look at the device's queue, its throttle (io.max) and the neighbours that fill it",
    ),
    row(
        Cause::MemoryReclaim,
        "memory.reclaim",
        Family::Memory,
        "the thread itself reclaims, compacts, migrates, swaps in or sleeps for memory.high",
        "reclaim, compaction or swap frame; begin and end of direct reclaim",
        "a busy application: the thread works, but for the kernel",
        "raise memory.high or memory.max, free memory, or preallocate",
    ),
    row(
        Cause::KernelLock,
        "kernel.lock",
        Family::Kernel,
        "sleeps on a kernel lock or an RCU grace period",
        "mutex, rwsem or RCU frame",
        "a busy application, or slow I/O of somebody else's",
        "look at what the lock's owner did, such as reading another process' maps or creating namespaces",
    ),
    row(
        Cause::NicQdisc,
        "nic.qdisc",
        Family::Nic,
        "between qdisc enqueue and dequeue while the device can take packets",
        "the pair of events; overlimits up, requeues flat",
        "a device that is behind (requeues grow then)",
        "raise the shaper's rate, or take the bulk traffic out of the class of the checks",
    ),
    row(
        Cause::NicTxQueue,
        "nic.tx_queue",
        Family::Nic,
        "held because the device queue was stopped or its consumer is behind",
        "stopped queue state or requeues over the stay; in a veth's ring, the thread that empties it at work all the while; \
         whoever sent more than half of the queue's bytes meanwhile is named",
        "a shaper; a full ring can show backlog, drops and requeues of zero",
        "spread the senders that the queue's line names over more queues (XPS, mq), let fewer workers share one, or lower \
         their SO_SNDBUF; and look at what the queue's consumer waits for",
    ),
    row(
        Cause::NicRxSoftirq,
        "nic.rx_softirq",
        Family::Nic,
        "in the ring or backlog while receive softirq does not run or is slow",
        "long softirqs on the CPU that takes it in; from the time when one was due to its begin, and who let none run \
         or kept its thread (`ksoftirqd`, threaded NAPI) from the CPU",
        "a slow sender, or a busy application on the same CPU",
        "spread receive work (RSS, RPS), move busy threads off that CPU, or use threaded NAPI",
    ),
    row(
        Cause::NicDrop,
        "nic.drop",
        Family::Nic,
        "this packet was dropped at NIC, ring, backlog, qdisc or tap",
        "drop event with reason and place",
        "loss in the network outside",
        "raise the ring, backlog or queue that the drop names, or slow the traffic that fills it",
    ),
    row(
        Cause::HostForwarding,
        "host.forwarding",
        Family::Host,
        "time or drop between devices: netfilter, conntrack, bridge, neighbour, routing",
        "stage gap, which for a neighbour ends when it becomes known; or drop reason",
        "a slow VM, or loss in the network",
        "look at the rule, table (conntrack, neighbour) or route that the place of the drop names",
    ),
    row(
        Cause::HostCpuGap,
        "host.cpu_gap",
        Family::Host,
        "the CPU that the thread nominally held, or waited for, ran interrupt work or was stolen",
        "softirq time of that CPU inside the thread's slice, or while it waited for it",
        "a busy application: the thread is shown as running; or a neighbour on its CPU",
        "move interrupts or receive work (smp_affinity, RPS) off that CPU, or the thread to another, or use more receive queues",
    ),
    row(
        Cause::ExternalOutsideHost,
        "external.outside_host",
        Family::External,
        "host time is normal: the request came late or never, or the answer did",
        "first and last stage on this host",
        "whatever was last changed on this host",
        "look at the network and at the sender, with this host's stages as proof of its innocence",
    ),
];

const fn row(
    cause: Cause,
    name: &'static str,
    family: Family,
    must_be_true: &'static str,
    proof: &'static str,
    looks_like: &'static str,
    remedy: &'static str,
) -> CauseRow {
    CauseRow { cause, name, family, must_be_true, proof, looks_like, remedy }
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
