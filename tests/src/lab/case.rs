//! The table of cases: what is done to a health check, and what whylag must then say.
//!
//! A twin looks like its sibling and has another cause. The proof is a counter that whylag does
//! not read and that must move while the fault lasts; if it does not, the rig has failed.

use super::firewall::Rules;
use super::need::{Module, Need};
use super::path::{PathFault, Place};
use super::receive::ReceiveFault;
use super::receiving::Kept;
use super::software::{Real, Software};
use super::truth::Counter;
use super::vmm::{Guest, Part};
use super::workload::{EventLoop, Hold, Medium, ServeFault, VmFault, signature};
use super::world::{BONDED, Link, PNIC, Shape, VNIC};

/// A check that takes longer than this is slow, ms.
pub const SLOW_MS: u64 = 20;

/// One case.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is true of it, in a sentence.
    pub claim: &'static str,
    /// The world.
    pub shape: Shape,
    /// What the client is joined by.
    pub link: Link,
    /// Who answers the checks.
    pub server: Server,
    /// Time between two checks.
    pub interval_ms: u64,
    /// Checks are under way when whylag attaches.
    pub attach_late: bool,
    /// What goes wrong.
    pub fault: Fault,
    /// For how long.
    pub fault_ms: u64,
    /// What is right to say about it.
    pub expect: Expect,
    /// What is right when whylag inside the guest tells its half of the checks, too; without it, none
    /// looks there.
    pub inside: Option<Expect>,
    /// The halves are joined while they are made, rather than from files.
    pub live: bool,
    /// Checks share the guest's own ring with a flood. What they wait for in there neither half sees, and
    /// who emulates the guest is behind: how long they were with the VM and how long inside need not agree.
    pub shares_ring: bool,
    /// The case that looks the same.
    pub twin_of: Option<&'static str>,
    /// What must move.
    pub proof: Counter,
    /// What is right to say of the app; without it, anything but that it is saturated.
    pub service: Option<Service>,
    /// The replies wait because a thread receives and does not send, and the evidence must say so.
    pub starves: bool,
    /// The disk that is frozen, if one is.
    pub disk: Medium,
    /// No check that is answered takes long. Load on the machine can break that, so a run in which one
    /// did, by the client's clock, is skipped.
    pub none_waits: bool,
    /// What must have taken the most of a wait for a block request, by the evidence.
    pub part: Option<&'static str>,
    /// The shares of the queue's senders must be those that the senders counted themselves.
    pub senders: bool,
    /// Who must be named, or not, as what kept the CPU that receives from doing so.
    pub kept: Option<Kept>,
    /// Of lost checks, the threads of the fault must be named as those who had filled this transmit queue.
    pub filled: Option<u32>,
    /// Of two faults, each must be told with all that is known of it: see [`picture`](super::picture).
    pub picture: bool,
    /// The place at which every lost check must be said to have ended, and what the sender's call
    /// must be said to have returned.
    pub lost_at: Option<LostAt>,
    /// Bytes of each of whylag's rings, if its usual ones are too small for what happens at once.
    pub ring_size: Option<&'static str>,
    /// What a machine must have that not every machine has.
    pub needs: Need,
    /// Why whylag does not get it right yet.
    pub gap: Option<&'static str>,
    /// How many times slower the machine is than those for which the table was written.
    pub slowdown: u64,
}

/// Where a lost check ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostAt {
    /// The place, as whylag writes it.
    pub place: &'static str,
    /// What the send call of the answer returned, as whylag writes it.
    pub sent: Option<&'static str>,
}

/// A place behind which no send call stands.
const fn at(place: &'static str) -> Option<LostAt> {
    Some(LostAt { place, sent: None })
}

/// How the app dealt with the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// They wait, and are then held as usual.
    Saturated,
    /// They are held.
    Broken,
    /// The app is not at fault, or it is not proven how.
    Neither,
}

impl Service {
    /// As whylag writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Saturated => "saturated",
            Self::Broken => "broken",
            Self::Neither => "neither",
        }
    }
}

/// Who answers the checks.
#[derive(Debug, Clone, Copy)]
pub enum Server {
    /// A process with these options.
    Process(Process),
    /// The virtual machine's stand-in.
    Vm(VmFault),
    /// A virtual machine with a kernel of its own.
    Guest(Guest),
    /// A server that nobody here wrote.
    Real(Real),
}

/// Options of a serving process.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    /// TCP instead of UDP.
    pub tcp: bool,
    /// How the client uses connections.
    pub connections: Connections,
    /// Connections that may wait to be accepted.
    pub backlog: Option<u32>,
    /// Checks are HTTP requests, two at a time on one connection (TCP).
    pub http: bool,
    /// Bytes of every answer, for a client whose receive buffer holds two of them (TCP). The host's
    /// NIC is then given one segment at a time.
    pub answer_bytes: Option<usize>,
    /// What the name server does with its questions; it then asks one of the lab's own.
    pub resolve: Option<&'static str>,
    /// The fault inside it, if the case asks for one.
    pub fault: ServeFault,
    /// Threads that answer.
    pub workers: usize,
    /// CPU time of every check, µs.
    pub work_us: u64,
    /// Receive buffer, bytes.
    pub receive_buffer: Option<usize>,
    /// Send buffer, bytes.
    pub send_buffer: Option<usize>,
    /// whylag is told how often checks are due.
    pub periodic: bool,
    /// It does not wait for room to send, and lives with errors (UDP).
    pub send_at_once: bool,
    /// It asks to be told what becomes of what it sends (UDP).
    pub told_errors: bool,
    /// Bytes of access log for every check; a log shipper reads them.
    pub access_log_bytes: Option<usize>,
    /// One thread reads the checks and hands them over to another.
    pub hand_over: bool,
    /// One event loop answers.
    pub event_loop: Option<EventLoop>,
    /// Threads that do nothing but wake up once a second.
    pub idle_threads: usize,
    /// Processes and threads of its own come and go all the while.
    pub churn: bool,
    /// The only CPU it runs on.
    pub cpu: Option<usize>,
    /// Nice value, below zero so that the machine's other work does not disturb the case.
    pub nice: i32,
}

/// How the client uses connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    /// All checks go over one.
    One,
    /// Each check is a connection's handshake; the serving thread accepts them by itself.
    EachHandshake,
    /// Each check is the one request of its connection; the serving thread accepts them by itself.
    EachRequest,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    Nothing,
    /// The server's own fault, on order.
    Server,
    /// The server is stopped, then continued.
    Stopped,
    /// The server's own fault, and after it the server is stopped for half as long.
    ServerThenStopped,
    /// Threads compute on the server's CPU.
    Hogs {
        /// How many.
        threads: usize,
    },
    /// A thread with real-time priority computes on CPU 1.
    RealtimeHog,
    /// Another guest computes on CPU 1.
    NeighbourGuest,
    /// The server's cgroup gets a CPU quota; of a guest, its virtual CPUs do.
    Quota {
        /// In percent of one CPU.
        percent: u32,
    },
    /// The log shipper stops reading and computes.
    Shipper,
    /// Bulk traffic from the host leaves through the NIC, which has a shaper.
    Flood {
        /// Sockets that send.
        sockets: usize,
        /// Rate of the shaper, Mbit/s.
        shaper_mbit: u32,
        /// Its queue, packets.
        queue_packets: u32,
    },
    /// The same through a NIC with two transmit queues, each with a shaper of its own. The CPU of the
    /// checks uses the first, that of the bulk traffic the second, or the first as well.
    QueueFlood {
        /// Sockets that send, each smaller datagrams than the one before.
        sockets: usize,
        /// Rate of each shaper, Mbit/s.
        shaper_mbit: u32,
        /// The bulk traffic has a queue of its own.
        apart: bool,
    },
    /// Four workers share the only one of the NIC's two transmit queues that is in use, behind which a
    /// shaper drops what finds no room; later, datagrams for nobody come in, all on CPU 1.
    QueueThenStorm,
    /// The client's host sends other datagrams to the server's port as well.
    Rush {
        /// How many.
        datagrams_per_ms: u32,
    },
    /// The client's host asks for echoes as fast as the server's answers them, with pauses.
    Echoes {
        /// Requests that are under way at a time.
        outstanding: u64,
        /// So long it asks, ms.
        busy_ms: u64,
        /// And so long it does not, ms.
        idle_ms: u64,
    },
    /// Another service, at the client, answers late.
    Dependency,
    /// A rule of a firewall drops packets.
    Firewall {
        /// Its chain and what it matches, as `iptables -A` takes it.
        rule: &'static str,
        /// The firewall is that of the world outside.
        outside: bool,
    },
    /// The checks' checksums are wrong.
    Damage,
    /// The virtual machine's own fault, with a ring of few places.
    ShortRing,
    /// A port of the host's bridge does not forward.
    BridgePort,
    /// The server's disk is frozen while it uses a file.
    FrozenDisk,
    /// Another client asks the server for this, which takes long.
    Asked(&'static [&'static str]),
    /// Another client asks for this while writes to the server's disk are frozen.
    AskedOnFrozenDisk(&'static [&'static str]),
    /// The server's disk is frozen, whatever the server does there.
    DiskFreezes,
    /// The same, and data that the journal's next commit waits for is not written back.
    FrozenData,
    /// The disk is frozen, and few of its pages may be dirty.
    DirtyLimit,
    /// The same, and another process has made most of them dirty.
    NeighbourWrites,
    /// The disk is frozen, and others have as many requests there as its device takes.
    FullQueue,
    /// The disk is frozen, and the server's cgroup may use little more memory than it does.
    MemoryLimit,
    /// A file system in user space answers late.
    LateFile,
    /// A file server of the network answers late.
    LateFileServer,
    /// The server's requests to its device take long.
    SlowDevice(Hold),
    /// A program looks at the server's memory, and has hardly any CPU to do so.
    Inspector,
    /// The route to the server becomes a black hole.
    Blackhole,
    /// What the client sends is dropped before it leaves the client.
    ClientLink,
    /// The server's own fault, and meanwhile the route to it becomes a black hole.
    ServerAndBlackhole {
        /// From so long after its beginning, ms.
        after_ms: u64,
        /// For so long, ms.
        for_ms: u64,
    },
    /// The client sends checks in two parts.
    ClientSplits {
        /// Time between the two, ms.
        pause_ms: u64,
        /// The route to the server becomes a black hole then, for so long, ms; and that three times.
        blackhole_ms: u64,
    },
    /// Datagrams for nobody come in through a second NIC; each is expensive to receive, and CPU 1
    /// receives them all. In a pod, it also receives what is for the pod.
    ReceiveStorm {
        /// Sockets that send; one can have fewer on their way than the backlog holds.
        sockets: usize,
        /// Datagrams that each sends in a row; the kernel receives at most 64 at a time.
        burst: u32,
        /// Their rate, Mbit/s; CPU 1 is busy with about 11.
        mbit: u32,
    },
    /// Bulk traffic enters the pod, whose kernel thread for receiving is behind.
    SlowConsumer {
        /// Sockets that send.
        sockets: usize,
        /// A queueing discipline stands before the ring; without one, what does not fit is dropped.
        queue: bool,
    },
    /// The pod's kernel thread for receiving does not get its CPU.
    StarvedConsumer,
    /// Nobody answers who the pod's address belongs to.
    NeighbourSilent {
        /// The host gives up after one question, and not only after three.
        fails: bool,
    },
    /// Checks have one hop left when they reach the host.
    HopLimit,
    /// An operator pauses the guest by QEMU's monitor, then continues it.
    Paused,
    /// The server's own fault, and meanwhile QEMU holds back what the guest wants of its disk.
    GuestDiskSlow,
    /// The threads of the guest's virtual CPUs are frozen by a cgroup.
    VcpusFrozen,
    /// The way that checks take is at fault.
    Path(PathFault),
    /// The CPU that receives is at fault.
    Receive(ReceiveFault),
    /// The client does not read answers.
    ClientReadsLate,
    /// The client does not send, then sends all that is overdue.
    ClientSendsLate,
}

/// What is right to say.
#[derive(Debug, Clone, Copy)]
pub struct Expect {
    /// Causes that are right for slow checks; with none, nothing may be blamed.
    pub slow: &'static [&'static str],
    /// Causes that are right for lost checks.
    pub lost: &'static [&'static str],
    /// Thread, cgroup or device that must be named.
    pub offender: Option<&'static str>,
    /// Causes that take part of a slow check's time by the design of the case, such as the work
    /// that every check is: counted to the amount, and never the right verdict.
    pub beside: &'static [&'static str],
    /// Slow checks, and lost checks, for which the verdict must be right.
    pub at_least: usize,
}

/// The work that every check is.
const WORK: &[&str] = &["app.on_cpu"];
/// The same, and the wait for the CPU that softirqs have left to several threads.
const WORK_IN_TURN: &[&str] = &["app.on_cpu", "app.runqueue"];
/// Payload of a full TCP segment with timestamps, over a device for 1,500 bytes.
const SEGMENT_BYTES: usize = 1_448;

/// Emulates a network.
const NETEM: Need = modules(&[Module { name: "sch_netem", symbol: "netem_enqueue" }]);
/// Rules with a counter that has a name.
const NFTABLES: Need = modules(&[
    Module { name: "nf_tables", symbol: "nf_tables_newrule" },
    Module { name: "nft_objref", symbol: "nft_objref_eval" },
]);
const FQ_CODEL: Need = modules(&[Module { name: "sch_fq_codel", symbol: "fq_codel_enqueue" }]);
/// What it changes, all of a machine share.
const OWN_MACHINE: Need = Need { own_machine: true, ..Need::NOTHING };
/// The same, and packets that are expensive to receive.
const FILTERS: Need = Need { own_machine: true, modules: &[Module { name: "cls_u32", symbol: "u32_classify" }] };
/// A device that completes requests by a timer.
const NULL_BLK: Need = Need { own_machine: true, modules: &[Module { name: "null_blk", symbol: "null_queue_rq" }] };
/// The same, and a mapped one on it.
const MAPPED: Need = Need {
    own_machine: true,
    modules: &[Module { name: "null_blk", symbol: "null_queue_rq" }, Module { name: "dm_delay", symbol: "delay_map" }],
};
/// Files of another host's.
const NFS: Need = modules(&[Module { name: "nfsv3", symbol: "nfs3_proc_getattr" }]);
/// Bonds and VLANs.
const BONDS: Need = modules(&[
    Module { name: "bonding", symbol: "bond_enslave" },
    Module { name: "8021q", symbol: "register_vlan_dev" },
]);
/// Taps that share a NIC with the host.
const MACVTAP: Need = modules(&[Module { name: "macvtap", symbol: "macvtap_newlink" }]);
/// Guests by the processor's own virtualisation, of whichever maker, and a backend in the kernel.
const KVM_HOST: Need = modules(&[
    Module { name: "kvm_amd", symbol: "kvm_vcpu_ioctl" },
    Module { name: "vhost_net", symbol: "vhost_net_open" },
]);
/// All of a machine share the settings, and the host's firewall tracks connections.
const CONNTRACK: Need = Need {
    own_machine: true,
    modules: &[
        Module { name: "nf_conntrack", symbol: "nf_conntrack_in" },
        Module { name: "nf_tables", symbol: "nf_tables_newrule" },
        Module { name: "nft_ct", symbol: "nft_ct_get_eval" },
    ],
};

const fn modules(modules: &'static [Module]) -> Need {
    Need { modules, own_machine: false }
}

/// Nothing may be blamed.
const NOTHING: Expect = Expect { slow: &[], lost: &[], offender: None, beside: &[], at_least: 0 };

/// Healthy until told otherwise.
const QUIET: Case = Case {
    name: "healthy",
    claim: "nothing happens, and nothing is blamed",
    shape: Shape::Direct,
    link: Link::Single,
    server: Server::Process(ECHO),
    interval_ms: 10,
    attach_late: false,
    fault: Fault::Nothing,
    fault_ms: 400,
    expect: NOTHING,
    inside: None,
    live: false,
    shares_ring: false,
    twin_of: None,
    proof: Counter::Checks,
    service: None,
    starves: false,
    disk: Medium::Ext4,
    none_waits: false,
    part: None,
    senders: false,
    kept: None,
    picture: false,
    filled: None,
    lost_at: None,
    ring_size: None,
    needs: Need::NOTHING,
    gap: None,
    slowdown: 1,
};

const ECHO: Process = Process {
    tcp: false,
    connections: Connections::One,
    backlog: None,
    http: false,
    answer_bytes: None,
    resolve: None,
    fault: ServeFault::Sleep,
    workers: 1,
    work_us: 0,
    receive_buffer: None,
    send_buffer: None,
    periodic: false,
    send_at_once: false,
    told_errors: false,
    access_log_bytes: None,
    hand_over: false,
    event_loop: None,
    idle_threads: 0,
    churn: false,
    cpu: None,
    nice: -10,
};

const fn slow(cause: &'static [&'static str], offender: &'static str) -> Expect {
    Expect { slow: cause, lost: &[], offender: Some(offender), beside: &[], at_least: 5 }
}

const PING: Real = Real { software: Software::Redis, check: &["PING"], signature: "redis-ping", handshake: false };
const REDIS: Server = Server::Real(PING);
const POSTGRES: Server = Server::Real(Real {
    software: Software::Postgres,
    check: &["UPDATE health SET beat = beat + 1"],
    signature: r#"tcp:port=5432,at=0,bytes="Q",at=5,bytes="UPDATE health",reply-at=0,reply-bytes="C""#,
    handshake: false,
});

/// A web server that is asked for a page.
const fn web(software: Software, check: &'static [&'static str]) -> Server {
    Server::Real(Real { software, check, signature: "http", handshake: false })
}

/// A guest whose server answers at once.
const ECHO_GUEST: Guest = Guest::with(ServeFault::Sleep);

/// A guest whose server's own fault is the case.
const fn in_guest(fault: ServeFault) -> Server {
    Server::Guest(Guest { fault: Some(fault), ..ECHO_GUEST })
}

/// A guest some of whose threads have CPU 1, and the others CPU 0.
const fn guest_apart(part: Part, work_ms: u64) -> Server {
    Server::Guest(Guest { apart: Some(part), work_ms, ..ECHO_GUEST })
}

/// Work of a check as time of an undisturbed CPU, with which a guest needs more than half of that.
const BUSY_MS: u64 = 10;
/// Work of a check as time of an undisturbed CPU: with 40 ms from one to the next, a quarter of it.
const WORK_MS: u64 = 10;
/// For so long a packet passes filters on an undisturbed CPU.
const PACKET_US: u64 = 200;
/// What takes four fifths of a guest's CPU to receive, however fast it is, and never fills its ring.
const INTO_GUEST: Fault = Fault::Echoes { outstanding: 8, busy_ms: 20, idle_ms: 5 };

/// Healthy until told otherwise. A guest that is emulated answers in a few milliseconds, now and
/// then in some tens.
const GUEST: Case = Case {
    shape: Shape::Vm,
    server: Server::Guest(ECHO_GUEST),
    interval_ms: 20,
    fault_ms: 1_000,
    slowdown: 4,
    ..QUIET
};

/// The same by KVM, with the kernel as its backend.
const KVM_GUEST: Guest = Guest { kvm: true, ..ECHO_GUEST };

/// Healthy until told otherwise. A host that is emulated itself runs it in some milliseconds.
const KVM: Case = Case { server: Server::Guest(KVM_GUEST), slowdown: 2, needs: KVM_HOST, ..GUEST };

/// Such a guest some of whose threads have CPU 1, and the others CPU 0.
const fn kvm_apart(part: Part) -> Server {
    Server::Guest(Guest { apart: Some(part), ..KVM_GUEST })
}

/// A guest's own work on a check.
const INSIDE: &[&str] = &["vm.guest_internal"];

/// Of what goes on in a guest, the host says no more.
const fn inside_guest() -> Expect {
    Expect { offender: None, ..slow(INSIDE, "") }
}

/// A server of connections that carry one check each.
const EACH_HANDSHAKE: Process = Process { tcp: true, connections: Connections::EachHandshake, ..ECHO };

/// An echo server that asks the lab's name server.
const fn resolves(habit: &'static str) -> Server {
    Server::Process(Process { fault: ServeFault::Resolve, resolve: Some(habit), ..ECHO })
}

/// An echo server whose own fault is the case.
const fn in_server(fault: ServeFault) -> Server {
    Server::Process(Process { fault, ..ECHO })
}

/// A server that is one event loop with a small receive buffer.
const fn event_loop(kind: EventLoop) -> Server {
    let options = Process { event_loop: Some(kind), work_us: 100, receive_buffer: Some(65_536), cpu: Some(1), ..ECHO };
    Server::Process(options)
}

/// The table.
pub const CASES: &[Case] = &[
    QUIET,
    Case {
        name: "attach-late",
        claim: "checks are under way when whylag attaches, and nothing is blamed",
        interval_ms: 1,
        attach_late: true,
        ..QUIET
    },
    Case {
        name: "handler-sleeps",
        claim: "the serving thread sleeps by choice",
        server: in_server(ServeFault::Sleep),
        fault: Fault::Server,
        expect: slow(&["app.self_wait"], "echo-worker-0"),
        proof: Counter::FaultLog,
        service: Some(Service::Broken),
        ..QUIET
    },
    Case {
        name: "handler-computes",
        claim: "the serving thread computes",
        server: in_server(ServeFault::Compute),
        fault: Fault::Server,
        expect: slow(&["app.on_cpu"], "echo-worker-0"),
        twin_of: Some("handler-sleeps"),
        proof: Counter::CpuTime,
        service: Some(Service::Broken),
        ..QUIET
    },
    Case {
        name: "other-thread-computes",
        claim: "the thread that the check was handed over to computes",
        server: Server::Process(Process { fault: ServeFault::Compute, hand_over: true, ..ECHO }),
        fault: Fault::Server,
        expect: slow(&["app.on_cpu"], "echo-worker-0"),
        twin_of: Some("handler-sleeps"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "lock-holder-computes",
        claim: "the serving thread waits for a lock whose holder computes",
        server: in_server(ServeFault::LockComputing),
        fault: Fault::Server,
        expect: slow(&["app.futex"], "stats-rollup"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "lock-holder-sleeps",
        claim: "the serving thread waits for a lock whose holder sleeps by choice",
        server: in_server(ServeFault::LockAsleep),
        fault: Fault::Server,
        expect: slow(&["app.self_wait"], "stats-rollup"),
        twin_of: Some("lock-holder-computes"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "pool-behind-lock",
        claim: "four serving threads queue for a lock whose holder computes",
        server: Server::Process(Process { fault: ServeFault::LockComputing, workers: 4, ..ECHO }),
        fault: Fault::Server,
        expect: slow(&["app.futex"], "stats-rollup"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "cpu-neighbours",
        claim: "the serving thread can run, and others run on its CPU",
        server: Server::Process(Process { work_us: 2_000, cpu: Some(1), ..ECHO }),
        fault: Fault::Hogs { threads: 12 },
        fault_ms: 800,
        expect: Expect { beside: WORK, ..slow(&["app.runqueue"], "batch-report") },
        proof: Counter::RunDelay,
        service: Some(Service::Neither),
        ..QUIET
    },
    Case {
        name: "cpu-quota",
        claim: "the serving thread looks runnable, and its cgroup is out of quota",
        server: Server::Process(Process { work_us: 2_000, cpu: Some(1), ..ECHO }),
        fault: Fault::Quota { percent: 4 },
        fault_ms: 800,
        expect: Expect { beside: WORK, ..slow(&["app.quota_throttle"], "whylag-lab") },
        twin_of: Some("cpu-neighbours"),
        proof: Counter::Throttled,
        service: Some(Service::Neither),
        ..QUIET
    },
    Case {
        name: "server-stopped",
        claim: "the server is stopped by a signal",
        fault: Fault::Stopped,
        expect: slow(&["app.self_wait"], "echo-worker-0"),
        twin_of: Some("cpu-quota"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "two-causes",
        claim: "a lock is held while its holder computes, and later the server is stopped",
        server: in_server(ServeFault::LockComputing),
        fault: Fault::ServerThenStopped,
        expect: Expect { offender: None, ..slow(&["app.futex", "app.self_wait"], "") },
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "log-pipe-full",
        claim: "the serving thread writes to a pipe whose reader is busy",
        server: Server::Process(Process { access_log_bytes: Some(2_000), ..ECHO }),
        fault: Fault::Shipper,
        expect: Expect { offender: None, ..slow(&["app.blocked_io"], "") },
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "dependency-late",
        claim: "the serving thread waits for a service on another host",
        server: in_server(ServeFault::Dependency),
        fault: Fault::Dependency,
        expect: Expect { offender: None, ..slow(&["dependency.remote"], "") },
        twin_of: Some("handler-sleeps"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "disk-frozen",
        claim: "the serving thread syncs a file whose pages are not written back",
        server: in_server(ServeFault::FileSync),
        fault: Fault::FrozenDisk,
        expect: slow(&["storage.writeback"], "loop"),
        twin_of: Some("handler-sleeps"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "receive-buffer-full",
        claim: "the serving thread sleeps, and its small receive buffer overflows",
        server: Server::Process(Process { receive_buffer: Some(4_096), ..ECHO }),
        fault: Fault::Server,
        expect: Expect {
            slow: &["app.self_wait"],
            lost: &["app.socket_queue"],
            offender: None,
            beside: &[],
            at_least: 5,
        },
        twin_of: Some("handler-sleeps"),
        proof: Counter::ReceiveBufferErrors,
        lost_at: at("socket_buffer"),
        ..QUIET
    },
    Case {
        name: "server-silent",
        claim: "checks are read and never answered",
        server: in_server(ServeFault::Silent),
        fault: Fault::Server,
        expect: Expect { slow: &[], lost: &["app.self_wait"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("receive-buffer-full"),
        proof: Counter::FaultLog,
        lost_at: at("unanswered"),
        ..QUIET
    },
    Case {
        name: "shaper",
        claim: "answers queue behind bulk traffic in a shaper",
        fault: Fault::Flood { sockets: 1, shaper_mbit: 10, queue_packets: 400 },
        fault_ms: 600,
        expect: slow(&["nic.qdisc"], "tbf"),
        proof: Counter::QdiscOverlimits,
        ..QUIET
    },
    Case {
        name: "shaper-drops",
        claim: "answers are dropped at the tail of a shaper's queue",
        fault: Fault::Flood { sockets: 4, shaper_mbit: 10, queue_packets: 60 },
        fault_ms: 600,
        expect: Expect { slow: &["nic.qdisc"], lost: &["nic.drop"], offender: Some(PNIC), beside: &[], at_least: 5 },
        twin_of: Some("shaper"),
        proof: Counter::QdiscDrops,
        filled: Some(0),
        lost_at: Some(LostAt { place: "qdisc", sent: Some("success") }),
        ..QUIET
    },
    Case {
        name: "client-reads-late",
        claim: "the client leaves answers unread, which is nothing of the host's",
        fault: Fault::ClientReadsLate,
        twin_of: Some("handler-sleeps"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "client-sends-late",
        claim: "the client sends checks late, which is nothing of the host's",
        fault: Fault::ClientSendsLate,
        twin_of: Some("handler-sleeps"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "tcp-healthy",
        claim: "checks over one connection, and nothing is blamed",
        server: Server::Process(Process { tcp: true, ..ECHO }),
        ..QUIET
    },
    Case {
        name: "tcp-handler-computes",
        claim: "the thread that serves a connection computes",
        server: Server::Process(Process { tcp: true, fault: ServeFault::Compute, ..ECHO }),
        fault: Fault::Server,
        expect: slow(&["app.on_cpu"], "echo-worker-0"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "tcp-delayed-ack",
        claim: "the second part of each answer waits for the client to acknowledge the first",
        server: Server::Process(Process { tcp: true, fault: ServeFault::TwoParts, ..ECHO }),
        interval_ms: 60,
        fault: Fault::Server,
        fault_ms: 900,
        expect: Expect { offender: None, ..slow(&["app.socket_queue"], "") },
        twin_of: Some("tcp-handler-computes"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case { name: "pod-healthy", claim: "the host routes to a pod, and nothing is blamed", shape: Shape::Pod, ..QUIET },
    Case {
        name: "pod-handler-sleeps",
        claim: "the serving thread in a pod sleeps by choice",
        shape: Shape::Pod,
        fault: Fault::Server,
        expect: slow(&["app.self_wait"], "echo-worker-0"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "route-is-black-hole",
        claim: "the host drops checks on their way to the pod",
        shape: Shape::Pod,
        fault: Fault::Blackhole,
        expect: Expect { slow: &[], lost: &["host.forwarding"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("server-silent"),
        proof: Counter::NotForwarded,
        lost_at: at("routing"),
        ..QUIET
    },
    Case {
        name: "vm-healthy",
        claim: "a virtual machine answers, and nothing is blamed",
        shape: Shape::Vm,
        server: Server::Vm(VmFault::GuestComputes),
        ..QUIET
    },
    Case {
        name: "guest-computes",
        claim: "the virtual machine has taken the check and computes",
        shape: Shape::Vm,
        server: Server::Vm(VmFault::GuestComputes),
        fault: Fault::Server,
        expect: Expect { offender: None, ..slow(&["vm.guest_internal"], "") },
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "vm-backend-asleep",
        claim: "the virtual machine's I/O thread leaves checks in the ring",
        shape: Shape::Vm,
        server: Server::Vm(VmFault::BackendAsleep),
        fault: Fault::Server,
        expect: slow(&["vm.backend"], "vmm-io"),
        twin_of: Some("guest-computes"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "server-saturated",
        claim: "more work comes than the serving thread can do, and each check is then held as usual",
        server: Server::Process(Process { work_us: 2_000, cpu: Some(1), ..ECHO }),
        fault: Fault::Rush { datagrams_per_ms: 1 },
        fault_ms: 600,
        expect: Expect { lost: &["app.socket_queue"], at_least: 0, ..slow(&["app.on_cpu"], "echo-worker-0") },
        twin_of: Some("handler-computes"),
        proof: Counter::CpuTime,
        service: Some(Service::Saturated),
        ..QUIET
    },
    Case {
        name: "workers-saturated",
        claim: "one thread reads at once, and checks wait within the app for the worker, which nobody sees",
        server: Server::Process(Process { work_us: 2_000, cpu: Some(1), hand_over: true, ..ECHO }),
        fault: Fault::Rush { datagrams_per_ms: 1 },
        expect: slow(&["app.on_cpu"], "echo-worker-0"),
        twin_of: Some("server-saturated"),
        proof: Counter::CpuTime,
        service: Some(Service::Neither),
        ..QUIET
    },
    Case {
        name: "loop-starves-replies",
        claim: "an event loop receives whenever it can, and its replies wait for a timer that never gets its turn",
        server: event_loop(EventLoop::Biased),
        fault: Fault::Rush { datagrams_per_ms: 16 },
        fault_ms: 600,
        expect: Expect { lost: &["app.socket_queue"], ..slow(&["app.on_cpu"], "media-loop") },
        proof: Counter::OverdueReplies,
        service: Some(Service::Broken),
        starves: true,
        ..QUIET
    },
    Case {
        name: "loop-is-fair",
        claim: "the same load, and the loop chooses by chance: checks are lost in its full socket, none waits long",
        server: event_loop(EventLoop::Fair),
        fault: Fault::Rush { datagrams_per_ms: 16 },
        fault_ms: 600,
        expect: Expect { slow: &[], lost: &["app.socket_queue"], offender: None, beside: &[], at_least: 3 },
        twin_of: Some("loop-starves-replies"),
        proof: Counter::ReceiveBufferErrors,
        none_waits: true,
        ..QUIET
    },
    Case {
        name: "loop-has-a-budget",
        claim: "the same load, and the loop sends after so many datagrams: checks are lost, none waits long",
        server: event_loop(EventLoop::Budgeted),
        fault: Fault::Rush { datagrams_per_ms: 16 },
        fault_ms: 600,
        expect: Expect { slow: &[], lost: &["app.socket_queue"], offender: None, beside: &[], at_least: 3 },
        twin_of: Some("loop-starves-replies"),
        proof: Counter::ReceiveBufferErrors,
        none_waits: true,
        ..QUIET
    },
    Case { name: "redis-healthy", claim: "redis answers, and nothing is blamed", server: REDIS, ..QUIET },
    Case {
        name: "redis-sleeps",
        claim: "the one thread of redis sleeps, as another client told it to",
        server: REDIS,
        fault: Fault::Asked(&["DEBUG", "SLEEP", "0.4"]),
        expect: slow(&["app.self_wait"], "redis-server"),
        twin_of: Some("redis-script"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "redis-script",
        claim: "the one thread of redis computes in a script of another client",
        server: REDIS,
        fault: Fault::Asked(&["EVAL", "for i = 1, 100000000 do end", "0"]),
        expect: slow(&["app.on_cpu"], "redis-server"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "redis-log-on-slow-disk",
        claim: "redis syncs its log for another client, and the disk is frozen",
        server: Server::Real(Real { software: Software::RedisLog, ..PING }),
        fault: Fault::AskedOnFrozenDisk(&["SET", "key", "value"]),
        expect: slow(&["storage.writeback"], "redis-server"),
        twin_of: Some("redis-sleeps"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "python-lock",
        claim: "threads of Python wait for the interpreter's lock, whose holder computes",
        server: web(Software::Python, &["GET", "/"]),
        fault: Fault::Asked(&["PUT", "/400"]),
        expect: Expect { at_least: 4, ..slow(&["app.futex"], "report-maker") },
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "nginx-healthy",
        claim: "nginx answers, and nothing is blamed",
        server: web(Software::Nginx, &["GET", "/health"]),
        ..QUIET
    },
    Case {
        name: "nginx-worker-stopped",
        claim: "the worker of nginx is stopped by a signal",
        server: web(Software::Nginx, &["GET", "/health"]),
        fault: Fault::Stopped,
        expect: slow(&["app.self_wait"], "nginx"),
        twin_of: Some("nginx-slow-disk"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "nginx-slow-disk",
        claim: "the worker of nginx reads a file from a frozen disk",
        server: web(Software::Nginx, &["GET", "/static"]),
        fault: Fault::DiskFreezes,
        expect: slow(&["storage.block_queue"], "nginx"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "node-event-loop",
        claim: "the event loop of Node.js computes for another request",
        server: web(Software::Node, &["GET", "/"]),
        fault: Fault::Asked(&["PUT", "/400"]),
        expect: slow(&["app.on_cpu"], "node"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "java-collection",
        claim: "all threads of a JVM wait for the one that collects garbage",
        server: web(Software::Java, &["GET", "/"]),
        fault: Fault::Asked(&["PUT", "/"]),
        fault_ms: 200,
        expect: slow(&["app.futex"], "VM Thread"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "postgres-row-lock",
        claim: "sessions of PostgreSQL wait for a row that another session has locked in an open transaction",
        server: POSTGRES,
        fault: Fault::Asked(&[
            "COPY (SELECT 'another-session') TO '/proc/self/comm'; UPDATE health SET beat = beat + 1; SELECT pg_sleep(0.4)",
        ]),
        expect: slow(&["app.blocked_io"], "another-session"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "write-throttled",
        claim: "the serving thread writes to a file, and the disk's dirty pages are at their limit",
        server: in_server(ServeFault::FileWrite),
        fault: Fault::DirtyLimit,
        expect: slow(&["storage.writeback"], "echo-worker-0"),
        twin_of: Some("write-reclaims"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "neighbour-writes",
        claim: "the serving thread writes to a file, and another process's pages are those that are dirty",
        server: in_server(ServeFault::FileWrite),
        fault: Fault::NeighbourWrites,
        expect: slow(&["storage.writeback"], "bulk-writer"),
        twin_of: Some("write-throttled"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "write-reclaims",
        claim: "the serving thread writes to a file, and its cgroup's memory is at its limit",
        server: in_server(ServeFault::FileWrite),
        fault: Fault::MemoryLimit,
        expect: slow(&["memory.reclaim"], "echo-worker-0"),
        twin_of: Some("write-throttled"),
        proof: Counter::MemoryFailures,
        ..QUIET
    },
    Case {
        name: "journal-commit",
        claim: "the serving thread syncs an empty file, and the journal's commit waits for others' data",
        server: in_server(ServeFault::FileCommit),
        fault: Fault::FrozenData,
        expect: slow(&["storage.journal"], "loop"),
        twin_of: Some("disk-frozen"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "read-past-cache",
        claim: "the serving thread reads a file past the page cache, and the disk does not answer",
        server: in_server(ServeFault::FileReadDirect),
        fault: Fault::FrozenDisk,
        expect: slow(&["storage.block_queue"], "loop"),
        twin_of: Some("journal-commit"),
        proof: Counter::FaultLog,
        part: Some("held back by a throttle"),
        ..QUIET
    },
    Case {
        name: "mapped-file-faults",
        claim: "the serving thread touches a page of a mapped file, and the disk does not answer",
        server: in_server(ServeFault::FileReadMapped),
        fault: Fault::FrozenDisk,
        expect: slow(&["storage.block_queue"], "loop"),
        twin_of: Some("handler-computes"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "disk-not-used",
        claim: "a disk of the server is frozen, and the serving thread sleeps by choice",
        server: in_server(ServeFault::Sleep),
        fault: Fault::FrozenDisk,
        expect: slow(&["app.self_wait"], "echo-worker-0"),
        twin_of: Some("read-past-cache"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "lock-holder-writes",
        claim: "the serving thread waits for a lock whose holder is held back at the dirty limit",
        server: in_server(ServeFault::LockWriting),
        fault: Fault::DirtyLimit,
        expect: slow(&["storage.writeback"], "stats-rollup"),
        twin_of: Some("lock-holder-sleeps"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "flush-stalls-pool",
        claim: "four serving threads queue for a lock whose holder is held back by another process's pages",
        server: Server::Process(Process { fault: ServeFault::LockWriting, workers: 4, ..ECHO }),
        fault: Fault::NeighbourWrites,
        expect: slow(&["storage.writeback"], "bulk-writer"),
        twin_of: Some("pool-behind-lock"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "user-file-late",
        claim: "the serving thread reads a file whose file system, a process, answers late",
        server: in_server(ServeFault::FileRead),
        fault: Fault::LateFile,
        expect: slow(&["storage.block_queue"], "file-server"),
        twin_of: Some("log-pipe-full"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "memory-inspected",
        claim: "the serving thread maps memory, and a reader of its memory map has the lock and no CPU",
        server: in_server(ServeFault::MemoryMap),
        fault: Fault::Inspector,
        expect: slow(&["kernel.lock"], "mem-inspector"),
        twin_of: Some("lock-holder-computes"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "connect-healthy",
        claim: "connections are accepted in time, and nothing is blamed",
        server: Server::Process(EACH_HANDSHAKE),
        interval_ms: 20,
        ..QUIET
    },
    Case {
        name: "accept-queue-full",
        claim: "the serving thread does not accept, and its small accept queue is full",
        server: Server::Process(Process { backlog: Some(2), fault: ServeFault::AcceptLate, ..EACH_HANDSHAKE }),
        interval_ms: 20,
        fault: Fault::Server,
        fault_ms: 1_900,
        expect: slow(&["app.socket_queue"], "port 4000"),
        proof: Counter::ListenOverflows,
        ..QUIET
    },
    Case {
        name: "accept-queue-waits",
        claim: "the serving thread sleeps, and requests wait in connections that are not accepted",
        server: Server::Process(Process {
            connections: Connections::EachRequest,
            fault: ServeFault::AcceptLate,
            ..EACH_HANDSHAKE
        }),
        interval_ms: 20,
        fault: Fault::Server,
        fault_ms: 600,
        expect: slow(&["app.self_wait"], "echo-worker-0"),
        twin_of: Some("accept-queue-full"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "accepted-handler-sleeps",
        claim: "connections are accepted, and the handler sleeps by choice",
        server: Server::Process(Process { connections: Connections::EachRequest, ..EACH_HANDSHAKE }),
        interval_ms: 20,
        fault: Fault::Server,
        expect: slow(&["app.self_wait"], "echo-worker-0"),
        twin_of: Some("accept-queue-full"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "connect-black-hole",
        claim: "the host drops connection requests on their way to the pod",
        shape: Shape::Pod,
        server: Server::Process(EACH_HANDSHAKE),
        interval_ms: 20,
        fault: Fault::Blackhole,
        fault_ms: 1_900,
        expect: Expect { slow: &["host.forwarding"], lost: &[], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("accept-queue-full"),
        proof: Counter::NotForwarded,
        ..QUIET
    },
    Case {
        name: "connect-lost-outside",
        claim: "connection requests are lost before they reach the host, which is nothing of the host's",
        server: Server::Process(EACH_HANDSHAKE),
        interval_ms: 20,
        fault: Fault::ClientLink,
        fault_ms: 900,
        twin_of: Some("accept-queue-full"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "dns-late",
        claim: "the serving thread waits for a name server that answers late",
        server: resolves("late"),
        fault: Fault::Server,
        expect: slow(&["dependency.dns"], "10.77.0.1:53"),
        twin_of: Some("handler-sleeps"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "dns-deaf",
        claim: "the name server ignores the first questions, and the resolver asks again after a second",
        server: resolves("deaf"),
        fault: Fault::Server,
        expect: slow(&["dependency.dns"], "10.77.0.1:53"),
        twin_of: Some("handler-sleeps"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "dns-half-deaf",
        claim: "the name server ignores the first question for an IPv6 address, and answers that for IPv4",
        server: resolves("half"),
        fault: Fault::Server,
        expect: slow(&["dependency.dns"], "10.77.0.1:53"),
        twin_of: Some("dns-deaf"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "dns-answer-dropped",
        claim: "the host drops the name server's answer on its way to the pod",
        shape: Shape::Pod,
        server: resolves("first"),
        interval_ms: 50,
        fault: Fault::ServerAndBlackhole { after_ms: 20, for_ms: 250 },
        fault_ms: 100,
        expect: Expect {
            slow: &["host.forwarding"],
            lost: &["host.forwarding"],
            offender: None,
            beside: &[],
            at_least: 1,
        },
        twin_of: Some("dns-deaf"),
        proof: Counter::NotForwarded,
        ..QUIET
    },
    Case {
        name: "request-rest-late",
        claim: "the client sends the second part of each request late",
        server: Server::Process(Process { tcp: true, ..ECHO }),
        interval_ms: 20,
        fault: Fault::ClientSplits { pause_ms: 80, blackhole_ms: 0 },
        fault_ms: 600,
        expect: Expect { slow: &["external.outside_host"], lost: &[], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("tcp-handler-computes"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "request-rest-dropped",
        claim: "the host drops the second part of a request on its way to the pod",
        shape: Shape::Pod,
        server: Server::Process(Process { tcp: true, ..ECHO }),
        interval_ms: 20,
        fault: Fault::ClientSplits { pause_ms: 30, blackhole_ms: 100 },
        expect: Expect { slow: &["host.forwarding"], lost: &[], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("request-rest-late"),
        proof: Counter::NotForwarded,
        ..QUIET
    },
    Case {
        name: "client-window-closed",
        claim: "the client does not read, and an answer waits for room in its receive window",
        server: Server::Process(Process { tcp: true, answer_bytes: Some(SEGMENT_BYTES), ..ECHO }),
        interval_ms: 20,
        fault: Fault::ClientReadsLate,
        fault_ms: 600,
        expect: Expect { slow: &["external.outside_host"], lost: &[], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("tcp-delayed-ack"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "http-healthy",
        claim: "HTTP requests are pipelined on one connection, and nothing is blamed",
        server: Server::Process(Process { tcp: true, http: true, ..ECHO }),
        ..QUIET
    },
    Case {
        name: "http-handler-computes",
        claim: "the handler computes, and the HTTP requests pipelined behind wait",
        server: Server::Process(Process { tcp: true, http: true, fault: ServeFault::Compute, ..ECHO }),
        fault: Fault::Server,
        expect: slow(&["app.on_cpu"], "echo-worker-0"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "http-handler-sleeps",
        claim: "the handler sleeps by choice, and the HTTP requests pipelined behind wait",
        server: Server::Process(Process { tcp: true, http: true, ..ECHO }),
        fault: Fault::Server,
        expect: slow(&["app.self_wait"], "echo-worker-0"),
        twin_of: Some("http-handler-computes"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "softirq-on-worker-cpu",
        claim: "all packets of a NIC are received on the CPU of the serving thread",
        server: Server::Process(Process { work_us: 4_000, cpu: Some(1), ..ECHO }),
        fault: Fault::ReceiveStorm { sockets: 1, burst: 24, mbit: 10 },
        fault_ms: 600,
        expect: Expect { beside: WORK_IN_TURN, ..slow(&["host.cpu_gap"], "softirq NET_RX CPU 1") },
        twin_of: Some("cpu-neighbours"),
        proof: Counter::SoftirqTime,
        ..QUIET
    },
    Case {
        name: "short-softirqs-on-worker-cpu",
        claim: "the serving thread holds its CPU all the time, which receives packets in between",
        server: Server::Process(Process { work_us: 4_000, cpu: Some(1), ..ECHO }),
        fault: Fault::ReceiveStorm { sockets: 1, burst: 7, mbit: 10 },
        fault_ms: 600,
        expect: Expect { beside: WORK_IN_TURN, ..slow(&["host.cpu_gap"], "softirq NET_RX CPU 1") },
        twin_of: Some("handler-computes"),
        proof: Counter::SoftirqTime,
        ..QUIET
    },
    Case {
        name: "backlog-behind-storm",
        claim: "checks for a pod wait, or find no room, in the backlog of a CPU that is busy receiving",
        shape: Shape::Pod,
        server: Server::Process(Process { cpu: Some(0), ..ECHO }),
        fault: Fault::ReceiveStorm { sockets: 10, burst: 24, mbit: 40 },
        fault_ms: 600,
        expect: Expect { lost: &["nic.drop"], offender: None, ..slow(&["nic.rx_softirq"], "") },
        proof: Counter::SoftirqTime,
        lost_at: at("backlog"),
        ..QUIET
    },
    Case {
        name: "consumer-behind",
        claim: "bulk traffic fills the ring into a pod, whose kernel thread cannot take it out as fast",
        shape: Shape::Pod,
        server: Server::Process(Process { cpu: Some(0), ..ECHO }),
        fault: Fault::SlowConsumer { sockets: 6, queue: true },
        fault_ms: 800,
        expect: slow(&["nic.tx_queue"], "napi/eth0-"),
        twin_of: Some("shaper"),
        proof: Counter::ConsumerCpuTime,
        ..QUIET
    },
    Case {
        name: "consumer-starved",
        claim: "the kernel thread that takes packets into a pod does not get its CPU",
        shape: Shape::Pod,
        server: Server::Process(Process { cpu: Some(0), ..ECHO }),
        fault: Fault::StarvedConsumer,
        fault_ms: 300,
        // Whoever ran last is not who ran all the while.
        expect: Expect { offender: None, ..slow(&["nic.rx_softirq"], "") },
        twin_of: Some("consumer-behind"),
        proof: Counter::ConsumerRunDelay,
        ..QUIET
    },
    Case {
        name: "server-elsewhere-late",
        claim: "the host asks a server elsewhere, which answers late",
        shape: Shape::Asking,
        fault: Fault::Server,
        expect: Expect { offender: None, ..slow(&["external.outside_host"], "") },
        twin_of: Some("handler-sleeps"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "asking-behind-shaper",
        claim: "the host asks a server elsewhere, and its requests queue behind bulk traffic in a shaper",
        shape: Shape::Asking,
        fault: Fault::Flood { sockets: 1, shaper_mbit: 10, queue_packets: 400 },
        fault_ms: 600,
        expect: slow(&["nic.qdisc"], "tbf"),
        twin_of: Some("server-elsewhere-late"),
        proof: Counter::QdiscOverlimits,
        ..QUIET
    },
    Case {
        name: "neighbour-silent",
        claim: "the host does not know the pod's link address for a while",
        shape: Shape::Pod,
        fault: Fault::NeighbourSilent { fails: false },
        expect: Expect { offender: None, ..slow(&["host.forwarding"], "") },
        twin_of: Some("pod-handler-sleeps"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "neighbour-fails",
        claim: "the host gives up asking for the pod's link address, and drops what waits for it",
        shape: Shape::Pod,
        fault: Fault::NeighbourSilent { fails: true },
        expect: Expect { slow: &[], lost: &["host.forwarding"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("server-silent"),
        proof: Counter::NeighboursFailed,
        lost_at: at("neighbour"),
        ..QUIET
    },
    Case {
        name: "hops-used-up",
        claim: "checks have no hop left, and the host does not forward them",
        shape: Shape::Pod,
        fault: Fault::HopLimit,
        expect: Expect { slow: &[], lost: &["host.forwarding"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("server-silent"),
        proof: Counter::NotForwarded,
        lost_at: at("ttl"),
        ..QUIET
    },
    Case {
        name: "disk-slow",
        claim: "the serving thread reads past the page cache, and the device takes long over the request",
        server: in_server(ServeFault::FileReadDirect),
        fault: Fault::FrozenDisk,
        expect: slow(&["storage.block_queue"], "loop"),
        twin_of: Some("read-past-cache"),
        proof: Counter::FaultLog,
        disk: Medium::OnDisk,
        part: Some("at the device"),
        ..QUIET
    },
    Case {
        name: "disk-queue-full",
        claim: "the serving thread reads past the page cache, and the device has no tag left for its request",
        server: in_server(ServeFault::FileReadDirect),
        fault: Fault::FullQueue,
        expect: slow(&["storage.block_queue"], "loop"),
        twin_of: Some("disk-slow"),
        proof: Counter::FaultLog,
        disk: Medium::OnDisk,
        part: Some("a free tag of the device's queue"),
        ..QUIET
    },
    Case {
        name: "xfs-log-commit",
        claim: "the serving thread syncs an empty file on xfs, and the log is not written",
        server: in_server(ServeFault::FileCommit),
        fault: Fault::FrozenDisk,
        expect: slow(&["storage.journal"], "xfs"),
        twin_of: Some("disk-frozen"),
        proof: Counter::FaultLog,
        disk: Medium::Xfs,
        ..QUIET
    },
    Case {
        name: "btrfs-log-commit",
        claim: "the serving thread syncs an empty file on btrfs, and the log is not written",
        server: in_server(ServeFault::FileCommit),
        fault: Fault::FrozenDisk,
        expect: slow(&["storage.journal"], "btrfs"),
        twin_of: Some("disk-frozen"),
        proof: Counter::FaultLog,
        disk: Medium::Btrfs,
        ..QUIET
    },
    Case {
        name: "nginx-accept-queue-full",
        claim: "the worker of nginx does not accept, and its small accept queue is full",
        server: Server::Real(Real {
            software: Software::NginxBacklog,
            check: &[],
            signature: "tcp-connect",
            handshake: true,
        }),
        interval_ms: 20,
        fault: Fault::Stopped,
        fault_ms: 1_900,
        expect: slow(&["app.socket_queue"], "port 4000"),
        twin_of: Some("nginx-worker-stopped"),
        proof: Counter::ListenOverflows,
        ..QUIET
    },
    Case {
        name: "postgres-checkpoint",
        claim: "sessions of PostgreSQL commit while another has a checkpoint written, and the disk is frozen",
        // Each its own row, so that they wait for the log alone.
        server: Server::Real(Real {
            software: Software::PostgresLog,
            check: &["INSERT INTO health VALUES (1)"],
            signature: r#"tcp:port=5432,at=0,bytes="Q",at=5,bytes="INSERT INTO",reply-at=0,reply-bytes="C""#,
            handshake: false,
        }),
        interval_ms: 40,
        fault: Fault::AskedOnFrozenDisk(&["CHECKPOINT"]),
        fault_ms: 800,
        expect: slow(&["storage.writeback", "storage.journal"], "postgres"),
        twin_of: Some("postgres-row-lock"),
        proof: Counter::FaultLog,
        disk: Medium::InMemory,
        // A commit goes through five threads of the kernel, which takes up to 15 ms beside others' work.
        slowdown: 2,
        ..QUIET
    },
    Case {
        name: "connect-firewall",
        claim: "a rule of the host's firewall drops connection requests",
        server: Server::Process(EACH_HANDSHAKE),
        interval_ms: 20,
        fault: Fault::Firewall { rule: "INPUT -p tcp --dport 4000 --syn", outside: false },
        fault_ms: 1_900,
        expect: slow(&["host.forwarding"], PNIC),
        twin_of: Some("accept-queue-full"),
        proof: Counter::NotForwarded,
        ..QUIET
    },
    Case {
        name: "tcp-two-parts-at-once",
        claim: "each answer is sent in two parts, with TCP_NODELAY, and nothing is blamed",
        server: Server::Process(Process { tcp: true, fault: ServeFault::TwoPartsAtOnce, ..ECHO }),
        interval_ms: 60,
        fault: Fault::Server,
        fault_ms: 900,
        twin_of: Some("tcp-delayed-ack"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "kernel-mutex-held",
        claim: "the serving thread spins for a mutex of the kernel, whose owner copies much on the other CPU",
        server: in_server(ServeFault::PositionHeld),
        fault: Fault::Server,
        expect: slow(&["kernel.lock"], "stats-rollup"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "handler-copies",
        claim: "the serving thread itself copies much in the kernel, and spins for nothing",
        server: in_server(ServeFault::PositionRead),
        fault: Fault::Server,
        expect: slow(&["app.on_cpu"], "echo-worker-0"),
        twin_of: Some("kernel-mutex-held"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "processes-compute",
        claim: "the serving thread asks a process, that asks another over a Unix socket, and the last computes",
        server: in_server(ServeFault::ProcessesComputing),
        fault: Fault::Server,
        expect: slow(&["app.blocked_io"], "relay-1"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "processes-sleep",
        claim: "the serving thread asks a process, that asks another over a Unix socket, and the last sleeps",
        server: in_server(ServeFault::ProcessesAsleep),
        fault: Fault::Server,
        expect: slow(&["app.self_wait"], "relay-1"),
        twin_of: Some("processes-compute"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "send-buffer-full",
        claim: "the client does not read, and the serving thread waits for room in its small send buffer",
        server: Server::Process(Process {
            tcp: true,
            answer_bytes: Some(SEGMENT_BYTES),
            send_buffer: Some(4 * SEGMENT_BYTES),
            ..ECHO
        }),
        interval_ms: 20,
        fault: Fault::ClientReadsLate,
        fault_ms: 600,
        expect: Expect { slow: &["external.outside_host"], lost: &[], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("log-pipe-full"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "threads-compute",
        claim: "the serving thread waits for a condition of a thread that waits for one of another, which computes",
        server: in_server(ServeFault::ThreadsComputing),
        fault: Fault::Server,
        expect: slow(&["app.futex"], "stage-1"),
        proof: Counter::CpuTime,
        ..QUIET
    },
    Case {
        name: "threads-sleep",
        claim: "the serving thread waits for a condition of a thread that waits for one of another, which sleeps",
        server: in_server(ServeFault::ThreadsAsleep),
        fault: Fault::Server,
        expect: slow(&["app.self_wait"], "stage-1"),
        twin_of: Some("threads-compute"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "one-of-two-services-late",
        claim: "the serving thread asks two services, and waits for the one that it asked first",
        server: in_server(ServeFault::TwoDependencies),
        fault: Fault::Dependency,
        expect: slow(&["dependency.remote"], "10.77.0.1:5000"),
        twin_of: Some("dependency-late"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case {
        name: "ten-thousand-threads",
        claim: "the serving thread computes, and ten thousand others of its process wake up at once, every second",
        server: Server::Process(Process { fault: ServeFault::Compute, idle_threads: 10_000, ..ECHO }),
        fault: Fault::Server,
        expect: slow(&["app.on_cpu"], "echo-worker-0"),
        proof: Counter::CpuTime,
        // Ten thousand switches at once are some 3 MiB on each of two CPUs.
        ring_size: Some("16M"),
        ..QUIET
    },
    Case {
        name: "processes-come-and-go",
        claim: "the serving thread sleeps by choice, while processes and threads of its own come and go",
        server: Server::Process(Process { fault: ServeFault::Sleep, churn: true, ..ECHO }),
        fault: Fault::Server,
        expect: slow(&["app.self_wait"], "echo-worker-0"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case { name: "guest-healthy", claim: "a guest answers, and nothing is blamed", inside: Some(NOTHING), ..GUEST },
    Case {
        name: "guest-handler-computes",
        claim: "the guest has taken the check and its server computes",
        server: in_guest(ServeFault::Compute),
        fault: Fault::Server,
        expect: inside_guest(),
        inside: Some(slow(&["app.on_cpu"], "echo-worker-0")),
        proof: Counter::VcpuTime,
        ..GUEST
    },
    Case {
        name: "guest-handler-sleeps",
        claim: "the guest has taken the check and its server sleeps by choice",
        fault: Fault::Server,
        expect: inside_guest(),
        inside: Some(slow(&["app.self_wait"], "echo-worker-0")),
        twin_of: Some("guest-paused"),
        proof: Counter::FaultLog,
        ..GUEST
    },
    Case {
        name: "guest-lock-held",
        claim: "the guest's server waits for a lock whose holder computes",
        server: in_guest(ServeFault::LockComputing),
        fault: Fault::Server,
        expect: inside_guest(),
        inside: Some(slow(&["app.futex"], "stats-rollup")),
        proof: Counter::VcpuTime,
        ..GUEST
    },
    Case {
        name: "guest-server-stopped",
        claim: "the guest's server is stopped, and the guest is not",
        server: Server::Guest(Guest { fault: None, ..ECHO_GUEST }),
        fault: Fault::Server,
        expect: inside_guest(),
        inside: Some(slow(&["app.self_wait"], "echo-worker-0")),
        twin_of: Some("guest-paused"),
        proof: Counter::FaultLog,
        ..GUEST
    },
    Case {
        name: "guest-disk-slow",
        claim: "the guest's server reads from the guest's disk, which is slow",
        server: in_guest(ServeFault::FileReadDirect),
        fault: Fault::GuestDiskSlow,
        expect: inside_guest(),
        inside: Some(slow(&["storage.block_queue"], "vda")),
        twin_of: Some("guest-vmm-disk-frozen"),
        proof: Counter::FaultLog,
        ..GUEST
    },
    Case {
        name: "guest-flushes",
        claim: "the guest's server waits for the guest's page cache to be written to the guest's disk",
        server: in_guest(ServeFault::FileSync),
        fault: Fault::GuestDiskSlow,
        expect: inside_guest(),
        inside: Some(slow(&["storage.writeback"], "vda")),
        twin_of: Some("guest-vmm-flushes"),
        proof: Counter::FaultLog,
        ..GUEST
    },
    Case {
        name: "guest-paused",
        claim: "an operator pauses the guest",
        server: Server::Guest(Guest { vcpus: 2, ..ECHO_GUEST }),
        fault: Fault::Paused,
        fault_ms: 700,
        expect: Expect { offender: None, ..slow(&["vm.paused"], "") },
        proof: Counter::FaultLog,
        ..GUEST
    },
    Case {
        name: "guest-starved",
        claim: "a neighbour computes on the CPU of the guest's virtual CPU",
        server: guest_apart(Part::Vcpus, 0),
        fault: Fault::RealtimeHog,
        fault_ms: 900,
        expect: slow(&["vm.vcpu_steal"], "batch-report"),
        twin_of: Some("guest-handler-computes"),
        proof: Counter::VcpuRunDelay,
        ..GUEST
    },
    Case {
        name: "guest-crowded-out",
        claim: "the guest's virtual CPU has its share of a CPU, and needs more",
        server: guest_apart(Part::Vcpus, BUSY_MS),
        fault: Fault::Hogs { threads: 6 },
        expect: Expect { beside: INSIDE, ..slow(&["vm.vcpu_steal"], "batch-report") },
        twin_of: Some("guest-handler-computes"),
        proof: Counter::VcpuRunDelay,
        ..GUEST
    },
    Case {
        name: "guest-hurts-guest",
        claim: "another guest computes on the CPU of the guest's virtual CPU",
        server: guest_apart(Part::Vcpus, BUSY_MS),
        fault: Fault::NeighbourGuest,
        fault_ms: 800,
        expect: Expect { beside: INSIDE, ..slow(&["vm.vcpu_steal"], "CPU 0/TCG") },
        twin_of: Some("guest-lock-held"),
        proof: Counter::VcpuRunDelay,
        ..GUEST
    },
    Case {
        name: "guest-quota",
        claim: "the thread of the guest's virtual CPU has used up its cgroup's quota",
        fault: Fault::Quota { percent: 1 },
        expect: Expect { offender: None, ..slow(&["vm.vcpu_steal"], "") },
        twin_of: Some("guest-crowded-out"),
        proof: Counter::Throttled,
        ..GUEST
    },
    Case {
        name: "guest-frozen",
        claim: "a cgroup freezes the thread of the guest's only virtual CPU",
        fault: Fault::VcpusFrozen,
        expect: Expect { offender: None, ..slow(&["vm.paused"], "") },
        twin_of: Some("guest-handler-sleeps"),
        proof: Counter::FaultLog,
        ..GUEST
    },
    Case {
        name: "guest-vmm-starved",
        claim: "a neighbour computes on the CPU of the VMM's main loop, and the virtual CPU has its own",
        server: guest_apart(Part::MainLoop, 0),
        fault: Fault::RealtimeHog,
        fault_ms: 900,
        expect: slow(&["vm.backend"], "batch-report"),
        twin_of: Some("guest-starved"),
        proof: Counter::VmmRunDelay,
        ..GUEST
    },
    Case {
        name: "guest-queues-starved",
        claim: "the same with two queues of the tap and two virtual CPUs",
        server: Server::Guest(Guest { apart: Some(Part::MainLoop), queues: 2, vcpus: 2, ..ECHO_GUEST }),
        fault: Fault::RealtimeHog,
        fault_ms: 900,
        expect: slow(&["vm.backend"], "batch-report"),
        twin_of: Some("guest-starved"),
        proof: Counter::VmmRunDelay,
        ..GUEST
    },
    Case {
        name: "guest-ring-full",
        claim: "the VMM's main loop does not run, and what the tap has no room for is dropped",
        server: Server::Guest(Guest { apart: Some(Part::MainLoop), ring_packets: Some(10), ..ECHO_GUEST }),
        fault: Fault::RealtimeHog,
        fault_ms: 900,
        expect: Expect { lost: &["nic.drop"], offender: None, ..slow(&["vm.backend"], "") },
        twin_of: Some("guest-vmm-starved"),
        proof: Counter::TapDrops,
        ..GUEST
    },
    Case {
        name: "guest-vmm-flushes",
        claim: "the VMM's main loop writes the guest's memory to a disk at its dirty limit",
        fault: Fault::DirtyLimit,
        expect: slow(&["storage.writeback"], "qemu-system-x86"),
        proof: Counter::FaultLog,
        ..GUEST
    },
    Case {
        name: "guest-vmm-disk-frozen",
        claim: "the VMM's main loop waits for a disk that is plugged into the guest",
        fault: Fault::FrozenDisk,
        expect: slow(&["storage.block_queue"], "loop"),
        proof: Counter::FaultLog,
        ..GUEST
    },
    Case {
        name: "queue-shared",
        claim: "four workers and the checks' answers share one transmit queue, while the other is idle",
        shape: Shape::TwoQueues,
        server: Server::Process(Process { cpu: Some(0), ..ECHO }),
        fault: Fault::QueueFlood { sockets: 4, shaper_mbit: 10, apart: false },
        fault_ms: 1_000,
        expect: slow(&["nic.qdisc"], "tbf"),
        proof: Counter::QdiscOverlimits,
        senders: true,
        ..QUIET
    },
    Case {
        name: "queue-of-its-own",
        claim: "four workers fill a transmit queue, and the checks' answers take the other",
        shape: Shape::TwoQueues,
        server: Server::Process(Process { cpu: Some(0), ..ECHO }),
        fault: Fault::QueueFlood { sockets: 4, shaper_mbit: 10, apart: true },
        fault_ms: 1_000,
        twin_of: Some("queue-shared"),
        proof: Counter::QdiscOverlimits,
        ..QUIET
    },
    Case {
        name: "queue-of-many",
        claim: "eight workers share the only transmit queue of a NIC with the checks' answers",
        fault: Fault::Flood { sockets: 8, shaper_mbit: 20, queue_packets: 2_000 },
        fault_ms: 2_000,
        expect: slow(&["nic.qdisc"], "tbf"),
        twin_of: Some("queue-of-its-own"),
        proof: Counter::QdiscOverlimits,
        senders: true,
        ..QUIET
    },
    Case {
        name: "path-delays",
        claim: "the host asks a server elsewhere, and the network on the way back is slow",
        shape: Shape::Asking,
        fault: Fault::Path(PathFault::Delay { at: Place::Outside, ms: 100 }),
        expect: Expect { offender: None, ..slow(&["external.outside_host"], "") },
        twin_of: Some("nic-delays"),
        proof: Counter::QdiscPackets,
        needs: NETEM,
        ..QUIET
    },
    Case {
        name: "nic-delays",
        claim: "the host's own NIC holds back what it sends",
        fault: Fault::Path(PathFault::Delay { at: Place::Host, ms: 100 }),
        expect: slow(&["nic.qdisc"], "netem"),
        twin_of: Some("path-delays"),
        proof: Counter::QdiscPackets,
        needs: NETEM,
        ..QUIET
    },
    Case {
        name: "path-delays-checks",
        claim: "the network on the way to the host is slow, which is nothing of the host's",
        fault: Fault::Path(PathFault::Delay { at: Place::Outside, ms: 100 }),
        twin_of: Some("nic-delays"),
        proof: Counter::QdiscPackets,
        needs: NETEM,
        ..QUIET
    },
    Case {
        name: "path-loses",
        claim: "the host asks a server elsewhere, and the network loses half of the answers",
        shape: Shape::Asking,
        fault: Fault::Path(PathFault::Loss { at: Place::Outside, percent: 50 }),
        expect: Expect { slow: &[], lost: &["external.outside_host"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("nic-loses"),
        proof: Counter::QdiscDrops,
        needs: NETEM,
        ..QUIET
    },
    Case {
        name: "nic-loses",
        claim: "the queueing discipline of the host's own NIC drops half of the answers",
        fault: Fault::Path(PathFault::Loss { at: Place::Host, percent: 50 }),
        expect: Expect { slow: &[], lost: &["nic.drop"], offender: Some(PNIC), beside: &[], at_least: 5 },
        twin_of: Some("path-loses"),
        proof: Counter::QdiscDrops,
        needs: NETEM,
        ..QUIET
    },
    Case {
        name: "backlog-full",
        claim: "few packets may wait for the CPU that receives checks, and it is behind",
        // Away from that CPU, and ahead of the others there.
        server: Server::Process(Process { cpu: Some(0), nice: -15, ..ECHO }),
        fault: Fault::Path(PathFault::FullBacklog { packets: 8, mbit: 60 }),
        fault_ms: 600,
        expect: Expect { slow: &[], lost: &["nic.drop"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("receive-buffer-full"),
        proof: Counter::BacklogDrops,
        needs: FILTERS,
        ..QUIET
    },
    Case {
        name: "connection-table-full",
        claim: "the host tracks connections, and has no room for another",
        server: Server::Process(EACH_HANDSHAKE),
        fault: Fault::Path(PathFault::FullConnectionTable),
        fault_ms: 600,
        expect: slow(&["host.forwarding"], PNIC),
        twin_of: Some("accept-queue-full"),
        proof: Counter::ConnectionDrops,
        needs: CONNTRACK,
        ..QUIET
    },
    Case {
        name: "rule-drops",
        claim: "a rule of nftables on the host drops checks for the pod",
        shape: Shape::Pod,
        fault: Fault::Path(PathFault::Rule { at: Place::Host }),
        expect: Expect { slow: &[], lost: &["host.forwarding"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("rule-drops-elsewhere"),
        proof: Counter::RuleDrops,
        needs: NFTABLES,
        ..QUIET
    },
    Case {
        name: "rule-drops-elsewhere",
        claim: "a rule of nftables at the client drops answers, which is nothing of the host's",
        shape: Shape::Pod,
        fault: Fault::Path(PathFault::Rule { at: Place::Outside }),
        twin_of: Some("rule-drops"),
        proof: Counter::RuleDrops,
        needs: NFTABLES,
        ..QUIET
    },
    Case {
        name: "neighbour-table-full",
        claim: "the host forgets the pod's link address, and its table of neighbours is full",
        shape: Shape::Pod,
        fault: Fault::Path(PathFault::ForgottenNeighbour { table_is_full: true }),
        expect: Expect { slow: &[], lost: &["host.forwarding"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("neighbour-forgotten"),
        proof: Counter::NeighboursRefused,
        needs: OWN_MACHINE,
        ..QUIET
    },
    Case {
        name: "neighbour-forgotten",
        claim: "the host forgets the pod's link address, and is told it at once",
        shape: Shape::Pod,
        fault: Fault::Path(PathFault::ForgottenNeighbour { table_is_full: false }),
        twin_of: Some("neighbour-table-full"),
        proof: Counter::NeighboursEntered,
        ..QUIET
    },
    Case {
        name: "shaper-is-fair",
        claim: "bulk traffic queues in a shaper, and the answers overtake it",
        fault: Fault::Path(PathFault::Shaper { nic: PNIC, sockets: 4, mbit: 12, queue: "fq_codel" }),
        fault_ms: 600,
        twin_of: Some("shaper"),
        proof: Counter::QdiscOverlimits,
        needs: FQ_CODEL,
        ..QUIET
    },
    Case {
        name: "shaper-controls-delay",
        claim: "answers wait behind bulk traffic in a queue that drops from its head",
        fault: Fault::Path(PathFault::Shaper { nic: PNIC, sockets: 4, mbit: 12, queue: "fq_codel flows 1 noecn" }),
        fault_ms: 600,
        expect: Expect { slow: &["nic.qdisc"], lost: &["nic.drop"], offender: None, beside: &[], at_least: 3 },
        twin_of: Some("shaper-is-fair"),
        proof: Counter::QdiscDrops,
        needs: FQ_CODEL,
        ..QUIET
    },
    Case {
        name: "device-completes-late",
        claim: "the serving thread reads from a device whose timer completes each request late",
        server: in_server(ServeFault::FileReadDirect),
        fault: Fault::SlowDevice(Hold::Device),
        fault_ms: 200,
        expect: slow(&["storage.block_queue"], "nullb"),
        twin_of: Some("handler-sleeps"),
        proof: Counter::FaultLog,
        needs: NULL_BLK,
        ..QUIET
    },
    Case {
        name: "bond-healthy",
        claim: "the NIC is a bond of two devices, and nothing is blamed",
        link: Link::Bond,
        needs: BONDS,
        ..QUIET
    },
    Case {
        name: "bond-handler-sleeps",
        claim: "the NIC is a bond, and the serving thread sleeps by choice",
        link: Link::Bond,
        fault: Fault::Server,
        expect: slow(&["app.self_wait"], "echo-worker-0"),
        twin_of: Some("bonded-shaper"),
        proof: Counter::FaultLog,
        needs: BONDS,
        ..QUIET
    },
    Case {
        name: "bonded-shaper",
        claim: "the NIC is a bond, and answers queue in a shaper of the device below it",
        link: Link::Bond,
        fault: Fault::Path(PathFault::Shaper { nic: BONDED, sockets: 1, mbit: 10, queue: "pfifo limit 400" }),
        fault_ms: 600,
        expect: slow(&["nic.qdisc"], "tbf"),
        twin_of: Some("bond-handler-sleeps"),
        proof: Counter::QdiscOverlimits,
        needs: BONDS,
        ..QUIET
    },
    Case {
        name: "vlan-healthy",
        claim: "the NIC is a VLAN on a bond, and nothing is blamed",
        link: Link::VlanOnBond,
        needs: BONDS,
        ..QUIET
    },
    Case {
        name: "vlan-shaper",
        claim: "the NIC is a VLAN on a bond, and answers queue in a shaper of the device at the bottom",
        link: Link::VlanOnBond,
        fault: Fault::Path(PathFault::Shaper { nic: BONDED, sockets: 1, mbit: 10, queue: "pfifo limit 400" }),
        fault_ms: 600,
        expect: slow(&["nic.qdisc"], "tbf"),
        twin_of: Some("bond-handler-sleeps"),
        proof: Counter::QdiscOverlimits,
        needs: BONDS,
        ..QUIET
    },
    Case {
        name: "reply-refused",
        claim: "answers are dropped at the tail of a shaper's queue, and the server is told",
        server: Server::Process(Process { send_at_once: true, told_errors: true, ..ECHO }),
        fault: Fault::Flood { sockets: 4, shaper_mbit: 10, queue_packets: 60 },
        fault_ms: 600,
        expect: Expect { slow: &["nic.qdisc"], lost: &["nic.drop"], offender: Some(PNIC), beside: &[], at_least: 5 },
        twin_of: Some("shaper-drops"),
        proof: Counter::QdiscDrops,
        lost_at: Some(LostAt { place: "qdisc", sent: Some("ENOBUFS") }),
        ..QUIET
    },
    Case {
        name: "reply-without-room",
        claim: "answers wait in a shaper, and the server's small send buffer has no room for more",
        server: Server::Process(Process { send_at_once: true, send_buffer: Some(4_608), ..ECHO }),
        interval_ms: 2,
        fault: Fault::Flood { sockets: 1, shaper_mbit: 10, queue_packets: 400 },
        fault_ms: 600,
        expect: Expect { slow: &["nic.qdisc"], lost: &["app.socket_queue"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("reply-refused"),
        proof: Counter::SendBufferErrors,
        lost_at: Some(LostAt { place: "send_buffer", sent: Some("EAGAIN") }),
        filled: Some(0),
        ..QUIET
    },
    Case {
        name: "request-filtered",
        claim: "a rule of the host's firewall drops requests",
        fault: Fault::Firewall { rule: "INPUT -p udp --dport 4000", outside: false },
        expect: Expect { slow: &[], lost: &["host.forwarding"], offender: Some(PNIC), beside: &[], at_least: 5 },
        twin_of: Some("server-silent"),
        proof: Counter::NotForwarded,
        lost_at: at("netfilter"),
        ..QUIET
    },
    Case {
        name: "reply-filtered",
        claim: "a rule of the host's firewall drops answers before they reach a device, and the server is told",
        server: Server::Process(Process { send_at_once: true, ..ECHO }),
        fault: Fault::Firewall { rule: "OUTPUT -p udp --sport 4000", outside: false },
        expect: Expect { slow: &[], lost: &["host.forwarding"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("server-silent"),
        proof: Counter::FaultLog,
        lost_at: Some(LostAt { place: "netfilter", sent: Some("EPERM") }),
        ..QUIET
    },
    Case {
        name: "request-damaged",
        claim: "requests come with a wrong checksum, which is nothing of the host's",
        fault: Fault::Damage,
        expect: Expect { slow: &[], lost: &["external.outside_host"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("request-filtered"),
        proof: Counter::ChecksumErrors,
        lost_at: at("checksum"),
        ..QUIET
    },
    Case {
        name: "asked-lost-outside",
        claim: "the host asks a server elsewhere, and its requests are dropped there",
        shape: Shape::Asking,
        fault: Fault::Firewall { rule: "INPUT -p udp --dport 4000", outside: true },
        expect: Expect { slow: &[], lost: &["external.outside_host"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("request-filtered"),
        proof: Counter::FaultLog,
        lost_at: at("left_in_time"),
        ..QUIET
    },
    Case {
        name: "tap-ring-full",
        claim: "the virtual machine's I/O thread sleeps, and its short ring overflows",
        shape: Shape::Vm,
        server: Server::Vm(VmFault::BackendAsleep),
        fault: Fault::ShortRing,
        expect: Expect { slow: &["vm.backend"], lost: &["nic.drop"], offender: Some(VNIC), beside: &[], at_least: 1 },
        twin_of: Some("vm-backend-asleep"),
        proof: Counter::TapDrops,
        lost_at: at("tap_ring"),
        ..QUIET
    },
    Case {
        name: "veth-ring-full",
        claim: "bulk traffic fills the ring into a pod, before which no queue stands",
        shape: Shape::Pod,
        server: Server::Process(Process { cpu: Some(0), ..ECHO }),
        fault: Fault::SlowConsumer { sockets: 6, queue: false },
        fault_ms: 800,
        expect: Expect { slow: &["nic.tx_queue"], lost: &["nic.drop"], offender: None, beside: &[], at_least: 1 },
        twin_of: Some("consumer-behind"),
        proof: Counter::ConsumerCpuTime,
        lost_at: at("nic_ring"),
        ..QUIET
    },
    Case {
        name: "bridge-healthy",
        claim: "the host bridges to a pod, and nothing is blamed",
        shape: Shape::Bridge,
        ..QUIET
    },
    Case {
        name: "bridge-port-down",
        claim: "the port of the host's bridge to the pod does not forward",
        shape: Shape::Bridge,
        fault: Fault::BridgePort,
        expect: Expect { slow: &[], lost: &["host.forwarding"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("pod-handler-sleeps"),
        proof: Counter::FaultLog,
        lost_at: at("bridge"),
        ..QUIET
    },
    Case {
        name: "request-never-arrives",
        claim: "requests that are due every 10 ms are lost before they reach the host, which is nothing of the host's",
        server: Server::Process(Process { periodic: true, ..ECHO }),
        fault: Fault::ClientLink,
        twin_of: Some("client-sends-late"),
        proof: Counter::FaultLog,
        lost_at: at("never_arrived"),
        ..QUIET
    },
    Case {
        name: "ksoftirqd-starved",
        claim: "checks for a pod wait where more comes in than a softirq takes in at a time, and a real-time thread \
                keeps the thread for the rest from its CPU",
        shape: Shape::Pod,
        server: Server::Process(Process { cpu: Some(0), ..ECHO }),
        fault: Fault::Receive(ReceiveFault::Starved { storm: true }),
        fault_ms: 600,
        // Softirqs also run on top of the real-time thread, and take time themselves.
        expect: Expect { offender: None, ..slow(&["nic.rx_softirq"], "") },
        twin_of: Some("worker-starved-where-received"),
        proof: Counter::SoftirqThreadRunDelay,
        kept: Some(Kept::By("batch-report")),
        ..QUIET
    },
    Case {
        name: "worker-starved-where-received",
        claim: "a real-time thread has the CPU that receives what is for a pod, whose server is to run there too",
        shape: Shape::Pod,
        server: Server::Process(Process { cpu: Some(1), ..ECHO }),
        fault: Fault::Receive(ReceiveFault::Starved { storm: false }),
        fault_ms: 300,
        expect: slow(&["app.runqueue"], "batch-report"),
        twin_of: Some("ksoftirqd-starved"),
        proof: Counter::RunDelay,
        kept: Some(Kept::NotBy("batch-report")),
        ..QUIET
    },
    Case {
        name: "long-kernel-read",
        claim: "a program reads a large table in the kernel, and the CPU that receives what is for a pod runs no \
                softirq meanwhile",
        shape: Shape::Pod,
        server: Server::Process(Process { cpu: Some(0), ..ECHO }),
        fault: Fault::Receive(ReceiveFault::LongRead { receives: true }),
        fault_ms: 600,
        expect: slow(&["nic.rx_softirq"], "inventory"),
        twin_of: Some("kernel-read-on-worker-cpu"),
        proof: Counter::TroublemakerKernelTime,
        kept: Some(Kept::By("inventory")),
        ..QUIET
    },
    Case {
        name: "kernel-read-on-worker-cpu",
        claim: "a program reads a large table in the kernel on the CPU of the serving thread, and another CPU receives",
        shape: Shape::Pod,
        server: Server::Process(Process { cpu: Some(1), ..ECHO }),
        fault: Fault::Receive(ReceiveFault::LongRead { receives: false }),
        fault_ms: 600,
        expect: slow(&["app.runqueue"], "inventory"),
        twin_of: Some("long-kernel-read"),
        proof: Counter::TroublemakerKernelTime,
        kept: Some(Kept::NotBy("inventory")),
        ..QUIET
    },
    Case {
        name: "asking-behind-kernel-read",
        claim: "the host asks a server elsewhere, and its own CPU takes the answers in late, which nothing outside did",
        shape: Shape::Asking,
        server: Server::Process(Process { cpu: Some(0), ..ECHO }),
        fault: Fault::Receive(ReceiveFault::LongRead { receives: true }),
        fault_ms: 600,
        twin_of: Some("server-elsewhere-late"),
        proof: Counter::TroublemakerKernelTime,
        ..QUIET
    },
    Case {
        name: "accept-queue-lost",
        claim: "the serving thread does not accept for longer than a client waits, and its small accept queue is full",
        server: Server::Process(Process { backlog: Some(2), fault: ServeFault::AcceptLate, ..EACH_HANDSHAKE }),
        interval_ms: 40,
        fault: Fault::Server,
        fault_ms: 5_000,
        expect: Expect {
            slow: &["app.socket_queue"],
            lost: &["app.socket_queue"],
            offender: Some("port 4000"),
            beside: &[],
            at_least: 5,
        },
        twin_of: Some("connect-filtered"),
        proof: Counter::ListenOverflows,
        lost_at: at("accept_queue"),
        ..QUIET
    },
    Case {
        name: "connect-filtered",
        claim: "a rule of the host's firewall drops connection requests for longer than a client waits",
        server: Server::Process(EACH_HANDSHAKE),
        interval_ms: 40,
        fault: Fault::Firewall { rule: "INPUT -p tcp --dport 4000 --syn", outside: false },
        fault_ms: 5_000,
        expect: Expect {
            slow: &["host.forwarding"],
            lost: &["host.forwarding"],
            offender: Some(PNIC),
            beside: &[],
            at_least: 5,
        },
        twin_of: Some("accept-queue-lost"),
        proof: Counter::NotForwarded,
        lost_at: at("netfilter"),
        ..QUIET
    },
    Case {
        name: "asked-filtered",
        claim: "the host asks a server elsewhere, and a rule of its own firewall drops its requests",
        shape: Shape::Asking,
        fault: Fault::Firewall { rule: "OUTPUT -p udp --dport 4000", outside: false },
        expect: Expect { slow: &[], lost: &["host.forwarding"], offender: None, beside: &[], at_least: 5 },
        twin_of: Some("asked-lost-outside"),
        proof: Counter::FaultLog,
        lost_at: Some(LostAt { place: "netfilter", sent: Some("EPERM") }),
        ..QUIET
    },
    Case {
        name: "asked-connect-filtered",
        claim: "the host asks a server elsewhere by a connection each, and a rule of its own drops its requests",
        shape: Shape::Asking,
        server: Server::Process(EACH_HANDSHAKE),
        interval_ms: 40,
        fault: Fault::Firewall { rule: "OUTPUT -p tcp --dport 4000 --syn", outside: false },
        fault_ms: 1_900,
        expect: slow(&["host.forwarding"], PNIC),
        twin_of: Some("connect-firewall"),
        proof: Counter::FaultLog,
        ..QUIET
    },
    Case { name: "kvm-healthy", claim: "a guest by KVM answers, and nothing is blamed", inside: Some(NOTHING), ..KVM },
    Case {
        name: "kvm-handler-computes",
        claim: "the guest by KVM has taken the check and its server computes",
        server: Server::Guest(Guest { fault: Some(ServeFault::Compute), ..KVM_GUEST }),
        fault: Fault::Server,
        expect: inside_guest(),
        inside: Some(slow(&["app.on_cpu"], "echo-worker-0")),
        proof: Counter::VcpuTime,
        ..KVM
    },
    Case {
        name: "kvm-handler-sleeps",
        claim: "the guest by KVM has taken the check and its server sleeps by choice",
        fault: Fault::Server,
        expect: inside_guest(),
        twin_of: Some("kvm-handler-computes"),
        proof: Counter::FaultLog,
        ..KVM
    },
    Case {
        name: "kvm-starved",
        claim: "a neighbour computes on the CPU of the virtual CPU, and vhost has its own",
        server: kvm_apart(Part::Vcpus),
        fault: Fault::RealtimeHog,
        fault_ms: 900,
        expect: slow(&["vm.vcpu_steal"], "batch-report"),
        twin_of: Some("kvm-handler-computes"),
        proof: Counter::VcpuRunDelay,
        ..KVM
    },
    Case {
        name: "kvm-quota",
        claim: "the thread of the virtual CPU has used up its cgroup's quota",
        fault: Fault::Quota { percent: 1 },
        expect: Expect { offender: None, ..slow(&["vm.vcpu_steal"], "") },
        twin_of: Some("kvm-starved"),
        proof: Counter::Throttled,
        ..KVM
    },
    Case {
        name: "kvm-paused",
        claim: "an operator pauses the guest by KVM",
        fault: Fault::Paused,
        fault_ms: 700,
        expect: Expect { offender: None, ..slow(&["vm.paused"], "") },
        twin_of: Some("kvm-handler-sleeps"),
        proof: Counter::FaultLog,
        ..KVM
    },
    Case {
        name: "kvm-vhost-starved",
        claim: "a neighbour computes on the CPU of the kernel's vhost thread, and the virtual CPU has its own",
        server: kvm_apart(Part::Vhost),
        fault: Fault::RealtimeHog,
        fault_ms: 900,
        expect: slow(&["vm.backend"], "batch-report"),
        twin_of: Some("kvm-starved"),
        proof: Counter::VhostRunDelay,
        ..KVM
    },
    Case {
        name: "disk-wbt",
        claim: "the serving thread syncs many pages, of which the kernel lets few be written at once (wbt)",
        server: in_server(ServeFault::FileWriteScattered),
        fault: Fault::SlowDevice(Hold::Writes),
        fault_ms: 200,
        // The last turn's pages are under writeback.
        expect: slow(&["storage.block_queue", "storage.writeback"], "nullb"),
        twin_of: Some("disk-out-of-tags"),
        proof: Counter::BeforeDevice,
        part: Some("the device's limit of writes in flight (wbt)"),
        needs: NULL_BLK,
        ..QUIET
    },
    Case {
        name: "disk-out-of-tags",
        claim: "the serving thread syncs many pages, of which the device takes few at once",
        server: in_server(ServeFault::FileWriteScattered),
        fault: Fault::SlowDevice(Hold::Tags),
        fault_ms: 200,
        // The last turn's pages are under writeback.
        expect: slow(&["storage.block_queue", "storage.writeback"], "nullb"),
        twin_of: Some("disk-wbt"),
        proof: Counter::BeforeDevice,
        needs: NULL_BLK,
        ..QUIET
    },
    Case {
        name: "disk-io-max",
        claim: "the serving thread reads from a device, and its cgroup may read little (io.max)",
        server: in_server(ServeFault::FileReadDirect),
        fault: Fault::SlowDevice(Hold::GroupLimit),
        fault_ms: 200,
        expect: slow(&["storage.block_queue"], "whylag-lab-"),
        twin_of: Some("device-completes-late"),
        proof: Counter::BeforeDevice,
        needs: NULL_BLK,
        ..QUIET
    },
    Case {
        name: "disk-io-cost",
        claim: "the serving thread reads from a device, which its cgroup has no budget for (io.cost)",
        server: in_server(ServeFault::FileReadDirect),
        fault: Fault::SlowDevice(Hold::GroupCost),
        fault_ms: 200,
        expect: slow(&["storage.block_queue"], "whylag-lab-"),
        twin_of: Some("disk-io-max"),
        proof: Counter::CostWait,
        part: Some("its cgroup's io.cost budget"),
        needs: NULL_BLK,
        ..QUIET
    },
    Case {
        name: "nfs-server-stopped",
        claim: "the serving thread reads a file of a file server in the network, which stops answering",
        server: in_server(ServeFault::FileRead),
        fault: Fault::LateFileServer,
        expect: slow(&["storage.block_queue"], "127.0.0.1:/whylag-lab"),
        twin_of: Some("nfs-handler-sleeps"),
        proof: Counter::FaultLog,
        needs: NFS,
        ..QUIET
    },
    Case {
        name: "nfs-read-past-cache",
        claim: "the same past the page cache, so that the thread waits for the answer itself",
        server: in_server(ServeFault::FileReadDirect),
        fault: Fault::LateFileServer,
        expect: slow(&["storage.block_queue"], "127.0.0.1:/whylag-lab"),
        twin_of: Some("nfs-handler-sleeps"),
        proof: Counter::FaultLog,
        needs: NFS,
        ..QUIET
    },
    Case {
        name: "nfs-handler-sleeps",
        claim: "files of a file server are mounted, which is not asked, and the serving thread sleeps by choice",
        server: in_server(ServeFault::Sleep),
        fault: Fault::LateFileServer,
        expect: slow(&["app.self_wait"], "echo-worker-0"),
        twin_of: Some("nfs-server-stopped"),
        proof: Counter::FaultLog,
        needs: NFS,
        ..QUIET
    },
    Case {
        name: "disk-mapped-late",
        claim: "the serving thread reads from a mapped device, which hands each request on to its disk late",
        server: in_server(ServeFault::FileReadDirect),
        fault: Fault::SlowDevice(Hold::Mapped),
        fault_ms: 200,
        expect: slow(&["storage.block_queue"], "dm-0"),
        twin_of: Some("device-completes-late"),
        proof: Counter::FaultLog,
        needs: MAPPED,
        ..QUIET
    },
    Case {
        name: "macvtap-healthy",
        claim: "a virtual machine on a macvtap answers, and nothing is blamed",
        shape: Shape::Macvtap,
        server: Server::Vm(VmFault::GuestComputes),
        needs: MACVTAP,
        ..QUIET
    },
    Case {
        name: "macvtap-guest-computes",
        claim: "the virtual machine has taken the check off its macvtap and computes",
        shape: Shape::Macvtap,
        server: Server::Vm(VmFault::GuestComputes),
        fault: Fault::Server,
        expect: Expect { offender: None, ..slow(&["vm.guest_internal"], "") },
        proof: Counter::CpuTime,
        needs: MACVTAP,
        ..QUIET
    },
    Case {
        name: "macvtap-backend-asleep",
        claim: "the virtual machine's I/O thread leaves checks in the ring of its macvtap",
        shape: Shape::Macvtap,
        server: Server::Vm(VmFault::BackendAsleep),
        fault: Fault::Server,
        expect: slow(&["vm.backend"], "vmm-io"),
        twin_of: Some("macvtap-guest-computes"),
        proof: Counter::FaultLog,
        needs: MACVTAP,
        ..QUIET
    },
    Case {
        name: "macvtap-ring-full",
        claim: "the virtual machine's I/O thread leaves checks in the ring of its macvtap, until it is full",
        shape: Shape::Macvtap,
        server: Server::Vm(VmFault::BackendAsleep),
        fault: Fault::ShortRing,
        expect: Expect { slow: &["vm.backend"], lost: &["nic.drop"], offender: Some(VNIC), beside: &[], at_least: 1 },
        twin_of: Some("macvtap-backend-asleep"),
        proof: Counter::MacvtapDrops,
        lost_at: at("tap_ring"),
        needs: MACVTAP,
        ..QUIET
    },
    Case {
        name: "guest-lock-held-live",
        claim: "a lock in the guest, of which the guest's half is joined while the guest tells it",
        server: in_guest(ServeFault::LockComputing),
        fault: Fault::Server,
        expect: inside_guest(),
        inside: Some(slow(&["app.futex"], "stats-rollup")),
        live: true,
        twin_of: Some("guest-handler-computes"),
        proof: Counter::VcpuTime,
        ..GUEST
    },
    Case {
        name: "guest-softirq-on-worker-cpu",
        claim: "all packets of the guest's one queue are received on the CPU of the guest's worker",
        server: Server::Guest(Guest { work_ms: WORK_MS, packet_us: PACKET_US, ..ECHO_GUEST }),
        interval_ms: 40,
        fault: INTO_GUEST,
        fault_ms: 1_600,
        expect: inside_guest(),
        inside: Some(Expect { beside: WORK_IN_TURN, ..slow(&["host.cpu_gap"], "softirq NET_RX CPU 0") }),
        shares_ring: true,
        twin_of: Some("guest-crowd-on-worker-cpu"),
        proof: Counter::GuestSoftirqTime,
        ..GUEST
    },
    Case {
        name: "guest-crowd-on-worker-cpu",
        claim: "other threads of the guest compute on the CPU of the guest's worker",
        server: Server::Guest(Guest { fault: Some(ServeFault::Crowd), work_ms: WORK_MS, ..ECHO_GUEST }),
        interval_ms: 40,
        fault: Fault::Server,
        fault_ms: 1_600,
        expect: inside_guest(),
        inside: Some(Expect { beside: WORK, ..slow(&["app.runqueue"], "batch-report") }),
        twin_of: Some("guest-softirq-on-worker-cpu"),
        proof: Counter::GuestRunDelay,
        ..GUEST
    },
    Case {
        name: "guest-softirq-elsewhere",
        claim: "all packets of the guest's one queue are received on one CPU, and the guest's worker has another",
        server: Server::Guest(Guest { work_ms: WORK_MS, packet_us: PACKET_US, vcpus: 2, cpu: Some(1), ..ECHO_GUEST }),
        interval_ms: 40,
        fault: INTO_GUEST,
        fault_ms: 1_600,
        inside: Some(NOTHING),
        shares_ring: true,
        twin_of: Some("guest-softirq-on-worker-cpu"),
        proof: Counter::GuestSoftirqTime,
        none_waits: true,
        ..GUEST
    },
    Case {
        name: "workers-share-queue-and-cpu",
        claim: "four workers share a transmit queue that drops what their calls were told is sent, and later all \
                packets are received on the CPU of the serving thread",
        shape: Shape::TwoQueues,
        server: Server::Process(Process { work_us: 4_000, cpu: Some(1), ..ECHO }),
        fault: Fault::QueueThenStorm,
        fault_ms: 800,
        expect: Expect {
            slow: &["nic.qdisc", "host.cpu_gap"],
            lost: &["nic.drop"],
            offender: None,
            beside: WORK_IN_TURN,
            at_least: 5,
        },
        twin_of: Some("queue-shared"),
        proof: Counter::SendBufferErrors,
        picture: true,
        filled: Some(0),
        lost_at: Some(LostAt { place: "qdisc", sent: Some("success") }),
        ..QUIET
    },
];

/// The case with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

impl Fault {
    /// The program that makes its firewall rules, if it has any.
    #[must_use]
    pub const fn rules_by(self) -> Option<Rules> {
        match self {
            Self::Firewall { .. } => Some(Rules::Iptables),
            Self::Path(fault) => fault.rules_by(),
            _ => None,
        }
    }

    /// Whether it keeps the server from its CPU by design.
    #[must_use]
    pub const fn takes_cpu(self) -> bool {
        matches!(
            self,
            Self::Hogs { .. }
                | Self::Quota { .. }
                | Self::ReceiveStorm { .. }
                | Self::QueueThenStorm
                | Self::RealtimeHog
                | Self::NeighbourGuest
        )
    }

    /// Whether the server has a disk that can be frozen.
    #[must_use]
    pub const fn freezes_disk(self) -> bool {
        matches!(
            self,
            Self::FrozenDisk
                | Self::FrozenData
                | Self::DirtyLimit
                | Self::NeighbourWrites
                | Self::FullQueue
                | Self::MemoryLimit
                | Self::AskedOnFrozenDisk(_)
                | Self::DiskFreezes
        )
    }
}

impl Case {
    /// The same case on a machine that is `factor` times slower: all its times are that much
    /// longer, and so is all that counts as slow, lost, or off. What the kernel times (a turn on a
    /// CPU, a delayed acknowledgement) is as long as ever, so such cases may come out too quick.
    #[must_use]
    pub fn slowed(&self, factor: u64) -> Self {
        let server = match self.server {
            Server::Process(process) => Server::Process(Process { work_us: process.work_us * factor, ..process }),
            other => other,
        };
        let fault = match self.fault {
            // A queue of the same length takes longer.
            Fault::Flood { sockets, shaper_mbit, queue_packets } => {
                let shaper_mbit = shaper_mbit / u32::try_from(factor).unwrap_or(u32::MAX);
                Fault::Flood { sockets, shaper_mbit: shaper_mbit.max(1), queue_packets }
            }
            Fault::QueueFlood { sockets, shaper_mbit, apart } => {
                let shaper_mbit = shaper_mbit / u32::try_from(factor).unwrap_or(u32::MAX);
                Fault::QueueFlood { sockets, shaper_mbit: shaper_mbit.max(1), apart }
            }
            Fault::Path(fault) => Fault::Path(fault.slowed(factor)),
            other => other,
        };
        Self {
            server,
            fault,
            interval_ms: self.interval_ms * factor,
            fault_ms: self.fault_ms * factor,
            slowdown: self.slowdown * factor,
            ..*self
        }
    }

    /// A check that takes longer than this is slow, ns.
    #[must_use]
    pub fn slow_ns(&self) -> u64 {
        SLOW_MS * self.slowdown * 1_000_000
    }

    /// Whether it has a guest by KVM.
    #[must_use]
    pub const fn has_kvm(&self) -> bool {
        matches!(self.server, Server::Guest(Guest { kvm: true, .. }))
    }

    /// How the client uses connections.
    #[must_use]
    pub const fn connections(&self) -> Connections {
        match self.server {
            Server::Process(process) => process.connections,
            Server::Real(Real { handshake: true, .. }) => Connections::EachHandshake,
            Server::Vm(_) | Server::Guest(_) | Server::Real(_) => Connections::One,
        }
    }

    /// Whether its checks are HTTP requests.
    #[must_use]
    pub const fn http(&self) -> bool {
        matches!(self.server, Server::Process(Process { http: true, .. }))
    }

    /// Whether its server asks a name server of the lab's.
    #[must_use]
    pub const fn resolves(&self) -> bool {
        matches!(self.server, Server::Process(Process { resolve: Some(_), .. }))
    }

    /// After so many seconds whylag gives a check up. Connection requests and questions for names
    /// are sent again after a second.
    #[must_use]
    pub fn lost_after_s(&self) -> u64 {
        if self.resolves() || self.connections() != Connections::One { 4 } else { 1 }
    }

    /// Whether its checks go over TCP.
    #[must_use]
    pub fn tcp(&self) -> bool {
        matches!(self.server, Server::Process(Process { tcp: true, .. }) | Server::Real(_))
    }

    /// How whylag recognises its checks.
    #[must_use]
    pub fn signature(&self) -> String {
        match self.server {
            Server::Real(real) => real.signature.to_owned(),
            Server::Process(Process { connections: Connections::EachHandshake, .. }) => "tcp-connect".to_owned(),
            Server::Process(Process { http: true, .. }) => "http".to_owned(),
            Server::Process(Process { periodic: true, .. }) => {
                format!("{},interval={}ms", signature(self.tcp()), self.interval_ms)
            }
            Server::Process(_) | Server::Vm(_) | Server::Guest(_) => signature(self.tcp()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CASES, Fault, find};

    #[test]
    fn a_slower_machine_takes_longer_over_everything() {
        let case = find("shaper").unwrap();
        let slow = case.slowed(2);
        assert_eq!((slow.interval_ms, slow.fault_ms), (2 * case.interval_ms, 2 * case.fault_ms));
        assert_eq!(slow.slow_ns(), 2 * case.slow_ns());
        assert!(matches!(slow.fault, Fault::Flood { shaper_mbit: 5, queue_packets: 400, .. }));
        assert_eq!(case.slowed(1).slow_ns(), case.slow_ns());
    }

    #[test]
    fn names_are_unique_and_twins_exist() {
        for (index, case) in CASES.iter().enumerate() {
            assert!(CASES.iter().skip(index + 1).all(|other| other.name != case.name), "{}", case.name);
            assert!(case.twin_of.is_none_or(|twin| find(twin).is_some()), "{}", case.name);
        }
    }
}
