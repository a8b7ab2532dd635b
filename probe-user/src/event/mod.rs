//! Events: what the kernel said, decoded, and the facts that userspace adds to the stream.
//!
//! Bytes come in ([`decode()`]), are put into the order of their time ([`Orderer`]), events go out.
//! Facts travel in the same stream so that a recording holds all that a conclusion rests on.

mod decode;
mod departed;
mod encode;
mod order;

use crate::clock::{ClockAnchor, DurNs, MonoNs};
use crate::counters::{ThreadCounters, Uncounted};
use crate::host::{CostFact, CounterFact, HostFact};
use crate::sender::QueueFact;
use crate::stack::{FrameFact, ModuleFact, StackCounts, StackFact, TakenFact};
use probe_wire::{
    AcceptFullBody, BackendRxBody, BlockRequestBody, DirtiedBody, DropBody, EventKind, FileWaitBody, FutexWaitBody,
    GuestExitsBody, Interrupt, LockSpinBody, NeighbourBody, OtherCallBody, OtherPeerBody, PacketBody, QdiscBody,
    RanBody, ReclaimBody, Rule, SendHeldBody, SockCallBody, SockEnqueueBody, SoftirqBody, SoftirqWaitBody,
    SwitchInBody, SwitchOutBody, TaskExitBody, TaskForkBody, WakingBody, XmitBody,
};
use serde::{Deserialize, Serialize};

pub use decode::{DecodeError, decode};
pub(crate) use departed::Departed;
pub use encode::{EncodeError, HEADER_LEN, MAX_RECORD_LEN, encode, fact_record, fact_records, tick_record};
pub use order::Orderer;

/// Number, in `EventHeader::kind`, of a record without body that says: every record with an
/// earlier time has been read. Only ticks move time forward where nothing happens.
pub const TICK_KIND: u16 = 1000;
/// Number, in `EventHeader::kind`, of a [`Fact`] as JSON.
pub const FACT_KIND: u16 = 1001;

/// A thread: process and thread number.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// Process.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
}

/// An interface: index in a network namespace.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InterfaceId {
    /// Namespace cookie.
    pub netns: u64,
    /// Interface index.
    pub ifindex: u32,
}

/// One decoded record.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When.
    pub at: MonoNs,
    /// Count of emit attempts on the CPU; 0 for facts and ticks.
    pub seq: u64,
    /// CPU; 0 for facts and ticks.
    pub cpu: u32,
    /// Current thread: in an interrupt, the one it interrupted.
    pub task: TaskId,
    /// Softirq vector being served plus 1, 0 outside softirq.
    pub softirq: u32,
    /// What the program interrupted; only wake-ups tell.
    pub interrupt: Interrupt,
    /// What.
    pub body: Body,
}

/// What an event says.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// A matching packet came in through a hooked interface.
    PacketIngress(PacketBody),
    /// A matching packet left through a hooked interface.
    PacketEgress(PacketBody),
    /// Data entered a watched socket.
    SockEnqueue(SockEnqueueBody),
    /// A receive call on a watched socket returned.
    SockRead(SockCallBody),
    /// A send call on a watched socket returned.
    SockSend(SockCallBody),
    /// A watched thread left the CPU.
    SwitchOut(Box<SwitchOutBody>),
    /// A watched thread got the CPU.
    SwitchIn(SwitchInBody),
    /// A watched thread is being woken.
    Waking(WakingBody),
    /// A watched packet entered a queueing discipline.
    QdiscEnqueue(QdiscBody),
    /// A watched packet left a queueing discipline.
    QdiscDequeue(QdiscBody),
    /// A watched packet was handed to a driver.
    Xmit(XmitBody),
    /// A matching packet, or one of a watched port, was dropped.
    Drop(DropBody),
    /// A long softirq ended, or one on top of a watched thread.
    Softirq(SoftirqBody),
    /// A watched thread ended.
    TaskExit(TaskExitBody),
    /// A watched process got a thread or child.
    TaskFork(TaskForkBody),
    /// A receive call of a watched process on a socket without checks returned.
    OtherRead(OtherCallBody),
    /// A send call of a watched process on a socket without checks returned.
    OtherSend(OtherCallBody),
    /// A watched packet was taken out of a tap's ring.
    BackendRx(BackendRxBody),
    /// A neighbour's link address became known for which packets waited.
    Neighbour(NeighbourBody),
    /// A connection request found its listener's accept queue full.
    AcceptFull(AcceptFullBody),
    /// Whom a socket of a watched process without checks is connected to.
    OtherPeer(OtherPeerBody),
    /// A send call on a watched TCP socket left unsent data.
    SendHeld(SendHeldBody),
    /// A watched thread went to sleep while it used a file.
    FileWait(FileWaitBody),
    /// A sample of the pages that got dirty.
    Dirtied(DirtiedBody),
    /// A watched thread has reclaimed memory.
    Reclaim(ReclaimBody),
    /// The end of a block request woke a watched thread.
    BlockRequest(BlockRequestBody),
    /// A watched thread has waited for a kernel lock on the CPU.
    LockSpin(LockSpinBody),
    /// A thread that nobody watches left a CPU for which a watched one waits.
    Ran(RanBody),
    /// Received packets waited for a CPU to take them in.
    SoftirqWait(Box<SoftirqWaitBody>),
    /// A thread went to sleep in a futex call.
    FutexWait(FutexWaitBody),
    /// The host has handled exits of a guest.
    GuestExits(GuestExitsBody),
    /// Something that userspace knows.
    Fact(Box<Fact>),
    /// Every record with an earlier time has been read.
    Tick,
}

/// What userspace adds to the stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// How this run judges; the first record of every recording.
    Run(RunFact),
    /// The two clocks at one instant.
    Clock(ClockAnchor),
    /// Names of the hooks that are attached.
    Hooks {
        /// Names as in `HOOKS`.
        active: Vec<String>,
    },
    /// An interface and its part in the path.
    Interface(InterfaceFact),
    /// Name of a kernel address that occurs in a stack or as the place of a drop.
    Symbol {
        /// Address.
        address: u64,
        /// Name without offset, as in kallsyms.
        name: String,
    },
    /// Name of a drop reason of this kernel.
    DropReason {
        /// Number in `enum skb_drop_reason`.
        number: u32,
        /// Name without the `SKB_DROP_REASON_` prefix.
        name: String,
    },
    /// From when on an interface is watched in both directions, and every hook is attached.
    Live {
        /// The interface.
        interface: InterfaceId,
        /// The instant.
        since: MonoNs,
    },
    /// After so many checks have ended, no other is told to have ended, and none begins.
    Limit {
        /// How many.
        checks: u64,
    },
    /// The run is about to end: from here on no check begins, but replies still end those that are
    /// open.
    Closing,
    /// An interface was removed, moved away or switched off: its checks are no longer seen.
    Gone {
        /// The interface.
        interface: InterfaceId,
        /// How it went, for people.
        reason: String,
    },
    /// Who holds a tap open: its VMM, and kernel workers that work for that.
    Holders {
        /// The tap.
        interface: InterfaceId,
        /// Their processes.
        tgids: Vec<u32>,
    },
    /// Name of a device, said when it first occurs.
    Device {
        /// Its number as in the kernel: major number << 20 | minor number.
        number: u32,
        /// Of a block device such as `sda1`; of a file system without one, from where it is mounted, such
        /// as `server:/home`.
        name: String,
        /// The devices that it is made of, by their numbers: a mapped device's, a RAID's.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        below: Vec<u32>,
    },
    /// A thread of a watched process.
    Task(TaskFact),
    /// A thread that nobody watches, and that has had a CPU for which a watched one waited.
    Runner {
        /// Which.
        id: TaskId,
        /// Start time by its records, nanoseconds of `CLOCK_MONOTONIC`.
        start_time_ns: u64,
        /// As in [`TaskFact::cgroup`].
        cgroup: String,
    },
    /// A file that code of a watched process was mapped from.
    Module(ModuleFact),
    /// A place in the code of a watched process.
    Frame(FrameFact),
    /// A stack of such places.
    Stack(StackFact),
    /// A watched thread had that stack.
    Taken(TakenFact),
    /// Something about the host.
    Host(Box<HostFact>),
    /// What the run itself has cost.
    Cost(Box<CostFact>),
    /// What became of the stacks that were due so far.
    StackCounts(StackCounts),
    /// The process of whylag itself.
    Own {
        /// Its number.
        tgid: u32,
    },
    /// Addresses in this recording are pseudonyms, as a bundle has them.
    Pseudonyms,
    /// Here the recording is damaged: what it said between the tick before and the tick behind is not
    /// known. Put in by whoever reads a recording.
    Unreadable {
        /// Damaged bytes.
        bytes: u64,
        /// Records that stood there, facts and ticks included; `None` if that cannot be told.
        records: Option<u64>,
    },
    /// What a watched thread counted over a while.
    ThreadCounters(ThreadCounters),
    /// Watched threads that nothing was counted of.
    Uncounted(Uncounted),
    /// What a transmit queue handed to its driver over a while, and who sent it.
    Queue(Box<QueueFact>),
    /// Levels and counters of queues were read; what has changed since they were told before.
    Levels {
        /// When they had been read.
        at: MonoNs,
        /// Such as `eth0 tbf 8001: backlog bytes`; [`Level`](crate::level::Level) takes names apart.
        levels: Vec<CounterFact>,
        /// NICs that were read for the first time, or that have lost packets since they were told.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unseen: Vec<UnseenFact>,
    },
    /// The kernel programs' own counters so far, sums since attach.
    Counters {
        /// One row per kind and CPU that has counted anything.
        rows: Vec<CounterRow>,
        /// Runs that the kernel skipped (program already running on that CPU), per program.
        skipped_runs: Vec<(String, u64)>,
    },
}

/// What an interface counts of packets that were gone before the kernel had one: its ring had no room, or
/// a program at its driver dropped them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnseenFact {
    /// The interface.
    pub interface: InterfaceId,
    /// All counters of these that are not zero, since the interface came up, such as
    /// `link rx_missed_errors` or `driver rx_queue_0_drops`.
    pub counters: Vec<CounterFact>,
}

/// Which of the parts that every record passes learn from a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learners {
    /// Names for what is written out.
    pub names: bool,
    /// Joining records into journeys.
    pub joining: bool,
    /// The evidence on which journeys are judged.
    pub evidence: bool,
}

impl Fact {
    /// Who learns from it.
    #[must_use]
    pub const fn learners(&self) -> Learners {
        let (names, joining, evidence) = match self {
            Self::Interface(_) | Self::Gone { .. } | Self::DropReason { .. } => (true, true, true),
            Self::Run(_) => (true, true, false),
            Self::Symbol { .. } => (true, false, true),
            Self::Clock(_) => (true, false, false),
            Self::Hooks { .. } => (false, true, true),
            Self::Live { .. } | Self::Limit { .. } | Self::Closing => (false, true, false),
            Self::Holders { .. }
            | Self::Device { .. }
            | Self::Task(_)
            | Self::Runner { .. }
            | Self::Taken(_)
            | Self::Own { .. }
            | Self::Queue(_)
            | Self::Levels { .. } => (false, false, true),
            Self::Module(_)
            | Self::Frame(_)
            | Self::Stack(_)
            | Self::Host(_)
            | Self::Cost(_)
            | Self::StackCounts(_)
            | Self::Pseudonyms
            | Self::Unreadable { .. }
            | Self::ThreadCounters(_)
            | Self::Uncounted(_)
            | Self::Counters { .. } => (false, false, false),
        };
        Learners { names, joining, evidence }
    }
}

/// How a run judges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunFact {
    /// Version of whylag that ran.
    pub version: String,
    /// `WIRE_VERSION` of the records.
    pub wire_version: u16,
    /// Signatures, in the order of their rules' indexes.
    pub signatures: Vec<SignatureFact>,
    /// When a check counts as slow.
    pub threshold: Threshold,
    /// An open check is lost after this long.
    pub lost_after: DurNs,
    /// How often an open check is reported while it is open.
    pub open_report_every: DurNs,
    /// Most checks in flight; the oldest is evicted beyond it.
    pub max_open: u32,
}

impl RunFact {
    /// For a stream that lost its first record.
    pub(crate) const fn silent() -> Self {
        Self {
            version: String::new(),
            wire_version: 0,
            signatures: Vec::new(),
            threshold: Threshold::Multiple(5.0),
            lost_after: DurNs::from_secs(90),
            open_report_every: DurNs::from_secs(1),
            max_open: 0,
        }
    }
}

/// A signature and its rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignatureFact {
    /// Name, or the text of an inline rule.
    pub name: String,
    /// Its rules, as indexes into the kernel's table: `first..first + count`.
    pub first: u8,
    /// Number of rules.
    pub count: u8,
    /// The rules themselves, as the wire's bytes.
    #[serde(with = "rule_bytes")]
    pub rules: Vec<Rule>,
    /// Expected interval of a periodic packet, if one is expected.
    pub interval: Option<DurNs>,
}

/// When a check counts as slow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// Longer than this.
    Fixed(DurNs),
    /// Longer than this many times the baseline's median.
    Multiple(f64),
}

/// An interface's part in the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceRole {
    /// The host's way to the outside: stages `pnic_*`.
    PhysicalNic,
    /// Host end of a tap, or of a veth pair: stages `vnic_*`.
    VirtualNic,
    /// The end inside the guest or the pod: stages `guest_*`.
    Inner,
}

/// An interface that is hooked, or was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceFact {
    /// Which.
    pub id: InterfaceId,
    /// Its name.
    pub name: String,
    /// Its part.
    pub role: InterfaceRole,
    /// Label in the output: the operator's, else a VM's, container's or the interface's name.
    pub label: String,
    /// `tap`, `macvtap`, `veth`, `ether`, `loopback`, …
    pub kind: String,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Receive queues; of a macvtap, those that a VM has open.
    pub rx_queues: u32,
}

/// Kind of a tap that is a device of its own: what is for its VM leaves the host through it.
pub const TAP: &str = "tap";
/// Kind of a tap that shares another device with the host: what is for its VM comes in through it, and
/// what the VM sends leaves through it.
/// <https://github.com/torvalds/linux/blob/v6.12/drivers/net/tap.c> (`tap_handle_frame`, `tap_get_user`)
pub const MACVTAP: &str = "macvtap";

impl InterfaceFact {
    /// Whether packets wait in a ring of it until a process takes them out.
    #[must_use]
    pub fn has_ring(&self) -> bool {
        self.is_macvtap() || matches!(self.kind.as_str(), TAP | "tun")
    }

    /// Whether its counters are the kernel's own alone: they are right whenever they are read. Hardware, and
    /// what sums up hardware, may be asked for its own now and then only.
    #[must_use]
    pub fn counts_at_once(&self) -> bool {
        self.has_ring() || matches!(self.kind.as_str(), "veth" | "bridge" | "loopback")
    }

    /// Whether what is for the VM comes in through it.
    #[must_use]
    pub fn is_macvtap(&self) -> bool {
        self.kind == MACVTAP
    }
}

/// A thread of a watched process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFact {
    /// Which.
    pub id: TaskId,
    /// Start time, nanoseconds of `CLOCK_MONOTONIC`; 0 if unknown.
    pub start_time_ns: u64,
    /// Name.
    pub comm: String,
    /// cgroup path, v2 if there is one, else the v1 cpu controller's; empty if unknown.
    pub cgroup: String,
    /// State letter of `/proc/PID/stat` when it was first looked at.
    pub state: char,
    /// Kernel function it slept in then (`wchan`), if it slept.
    pub wchan: Option<String>,
}

/// One row of the kernel programs' own counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterRow {
    /// CPU.
    pub cpu: u32,
    /// `EventKind` number.
    pub kind: u16,
    /// Attempts to emit.
    pub emitted: u64,
    /// Attempts that found the ring full.
    pub lost: u64,
    /// Records that were left in the ring because the run had to end.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub undrained: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Body {
    /// The wire kind; `None` for facts and ticks.
    #[must_use]
    pub const fn kind(&self) -> Option<EventKind> {
        Some(match self {
            Self::PacketIngress(_) => EventKind::PacketIngress,
            Self::PacketEgress(_) => EventKind::PacketEgress,
            Self::SockEnqueue(_) => EventKind::SockEnqueue,
            Self::SockRead(_) => EventKind::SockRead,
            Self::SockSend(_) => EventKind::SockSend,
            Self::SwitchOut(_) => EventKind::SwitchOut,
            Self::SwitchIn(_) => EventKind::SwitchIn,
            Self::Waking(_) => EventKind::Waking,
            Self::QdiscEnqueue(_) => EventKind::QdiscEnqueue,
            Self::QdiscDequeue(_) => EventKind::QdiscDequeue,
            Self::Xmit(_) => EventKind::Xmit,
            Self::Drop(_) => EventKind::Drop,
            Self::Softirq(_) => EventKind::Softirq,
            Self::TaskExit(_) => EventKind::TaskExit,
            Self::TaskFork(_) => EventKind::TaskFork,
            Self::OtherRead(_) => EventKind::OtherRead,
            Self::OtherSend(_) => EventKind::OtherSend,
            Self::BackendRx(_) => EventKind::BackendRx,
            Self::Neighbour(_) => EventKind::Neighbour,
            Self::AcceptFull(_) => EventKind::AcceptFull,
            Self::OtherPeer(_) => EventKind::OtherPeer,
            Self::SendHeld(_) => EventKind::SendHeld,
            Self::FileWait(_) => EventKind::FileWait,
            Self::Dirtied(_) => EventKind::Dirtied,
            Self::Reclaim(_) => EventKind::Reclaim,
            Self::BlockRequest(_) => EventKind::BlockRequest,
            Self::LockSpin(_) => EventKind::LockSpin,
            Self::SoftirqWait(_) => EventKind::SoftirqWait,
            Self::Ran(_) => EventKind::Ran,
            Self::FutexWait(_) => EventKind::FutexWait,
            Self::GuestExits(_) => EventKind::GuestExits,
            Self::Fact(_) | Self::Tick => return None,
        })
    }
}

/// Rules as hexadecimal strings of their wire bytes.
mod rule_bytes {
    use probe_wire::Rule;
    use serde::{Deserialize, Deserializer, Serializer, de::Error, ser::SerializeSeq};
    use zerocopy::{FromBytes, IntoBytes};

    pub(super) fn serialize<S: Serializer>(rules: &[Rule], to: S) -> Result<S::Ok, S::Error> {
        let mut seq = to.serialize_seq(Some(rules.len()))?;
        for rule in rules {
            seq.serialize_element(&hex::encode(rule.as_bytes()))?;
        }
        seq.end()
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Rule>, D::Error> {
        Vec::<String>::deserialize(from)?
            .iter()
            .map(|text| {
                let bytes = hex::decode(text).map_err(D::Error::custom)?;
                Rule::read_from_bytes(&bytes).map_err(|_| D::Error::custom("a rule of another size"))
            })
            .collect()
    }
}
