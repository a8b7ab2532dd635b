//! The ABI between the kernel programs and the collector.
//!
//! Rules: plain integers and arrays only; no padding (the zerocopy derives make it a compile
//! error); every byte of a record is written; kinds and field meanings are append-only, and a
//! change of layout raises [`WIRE_VERSION`]. Times are nanoseconds of `CLOCK_MONOTONIC`
//! (`bpf_ktime_get_ns`). `tgid` is the process, `tid` the thread, in the initial pid namespace.
//! A record is one [`EventHeader`] followed by the body of its [`EventKind`].
#![no_std]
#![forbid(unsafe_code)]

mod block;
mod header;
mod irq;
mod kind;
mod kvm;
mod lock;
mod loss;
mod net;
mod sampler;
mod sched;
mod self_test;
mod sender;
mod settings;
mod signature;
mod sock;
mod stack;
mod storage;

pub use block::BlockRequestBody;
pub use header::EventHeader;
pub use irq::{Interrupt, NET_RX, SOFTIRQ_VECTORS, SoftirqBody, SoftirqWaitBody, WAIT_LEFT_OVER, WAIT_SAME_SLICE};
pub use kind::{EventKind, UnknownKind};
pub use kvm::{EXIT_TOLD_NS, EXITS_TOLD_NS, GuestExitsBody, HALTS};
pub use lock::{
    FutexWaitBody, LOCK_MUTEX, LOCK_PERCPU, LOCK_READ, LOCK_RT, LOCK_SPIN, LOCK_WRITE, LockSpinBody, SPIN_LEAST_NS,
    SPIN_TOLD_NS,
};
pub use loss::LossRow;
pub use net::{
    BackendRxBody, DROP_OF_PORT, DROP_OF_PORT_LAST, DROP_STRETCH_NS, DROP_UNPARSED, DropBody, FLAG_FRAGMENT,
    FLAG_TUNNEL, FLAG_VLAN, NeighbourBody, PacketBody, QdiscBody, ROLE_EITHER, ROLE_REPLY, ROLE_REQUEST, Sighting,
    XMIT_HANDS_ON, XmitBody,
};
pub use sampler::{LOOKED_AT, ROW, Sampler, variance};
pub use sched::{
    CpuAccount, MOST_RUNS, RAN_LEAST_NS, RUNS_STRETCH_NS, RanBody, STACK_DEPTH, SwitchInBody, SwitchOutBody,
    TaskExitBody, TaskForkBody, WakingBody,
};
pub use self_test::SelfTest;
pub use sender::{
    CAME_IN, DEVICE_BITS, MOST_SENDERS, MOST_SENT, NEAR_SENDERS, NearSender, NearSenders, Sender, SentCount, SentKey,
    Uncounted,
};
pub use settings::{MAX_CPUS, Offsets, Settings, UNKNOWN_OFFSET};
pub use signature::{FIELDS_PER_RULE, FieldMatch, MAX_RULES, Pattern, RULE_BYTES, Rule};
pub use sock::{AcceptFullBody, OtherCallBody, OtherPeerBody, SendHeldBody, SockCallBody, SockEnqueueBody};
pub use stack::{
    CHAIN_DEPTH, DumpBody, DumpKind, DumpRow, LONG_WAIT, PLACE_HEAD, STACK_BYTES, STACK_BYTES_MOST, WAITING,
    WAITING_DEEP, WAITS_STRETCH_NS,
};
pub use storage::{CALL_FAULT, DIRTIED_EVERY_NS, DIRTIED_FOLIOS, DirtiedBody, FileWaitBody, ReclaimBody};

/// Raised when a layout or a meaning changes; a recording carries it.
pub const WIRE_VERSION: u16 = 3;
/// The oldest version that can still be read: its switches end before their [`CpuAccount`].
pub const OLDEST_WIRE_VERSION: u16 = 2;
