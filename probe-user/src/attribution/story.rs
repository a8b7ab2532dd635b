//! Tells what happened on a host, event by event, so that tests read like incidents.
//!
//! Times are microseconds. Events may be told in any order.

use super::thread::{Slice, State};
use super::{Attributor, Cause, Entry, Evidence, Judged, Verdict};
use crate::clock::{DurNs, MonoNs};
use crate::event::{
    Body, Event, Fact, InterfaceFact, InterfaceId, InterfaceRole, RunFact, TaskFact, TaskId, Threshold,
};
use crate::journey::{Journey, JourneyId, Loss, Outcome, PacketDrop, Perspective, QdiscStay, Refusal, Stage, Stamp};
use crate::sender::{QueueFact, Rest, SenderFact, Sent as SentBytes, Who};
use probe_wire::{
    BackendRxBody, BlockRequestBody, CpuAccount, DROP_OF_PORT, DROP_OF_PORT_LAST, DirtiedBody, DropBody, FileWaitBody,
    FutexWaitBody, GuestExitsBody, Interrupt, LockSpinBody, NeighbourBody, OtherCallBody, PacketBody, QdiscBody,
    RanBody, ReclaimBody, STACK_DEPTH, SendHeldBody, Sighting, SockCallBody, SockEnqueueBody, SoftirqBody,
    SoftirqWaitBody, SwitchInBody, SwitchOutBody, TaskExitBody, TaskForkBody, WakingBody,
};
use zerocopy::FromZeros as _;

pub(crate) const MS: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000_000;
pub(crate) const SOCKET: u64 = 77;

/// A thread of a story: process, thread and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Actor(pub(crate) u32, pub(crate) u32, pub(crate) &'static str);

pub(crate) const IDLE: Actor = Actor(0, 0, "swapper/0");
pub(crate) const SERVER: Actor = Actor(800, 800, "server");
pub(crate) const WORKER: Actor = Actor(800, 801, "worker");
pub(crate) const THIRD: Actor = Actor(800, 802, "third");
pub(crate) const HOG: Actor = Actor(900, 900, "hog");
pub(crate) const KWORKER: Actor = Actor(60, 60, "kworker/0:1");
pub(crate) const ETH: InterfaceId = InterfaceId { netns: 1, ifindex: 2 };
pub(crate) const TAP: InterfaceId = InterfaceId { netns: 1, ifindex: 7 };

impl Actor {
    pub(crate) const fn id(self) -> TaskId {
        TaskId { tgid: self.0, tid: self.1 }
    }

    /// Each thread has a CPU of its own, the server the first.
    const fn cpu(self) -> u32 {
        if self.1 == SERVER.1 { 0 } else { 1 + self.1 % 1_000 }
    }

    /// Start time: one life unless a story says otherwise.
    const fn start(self) -> u64 {
        self.1 as u64 * 1_000_000_000
    }
}

fn comm(name: &str) -> [u8; 16] {
    let mut comm = [0; 16];
    comm.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    comm
}

pub(crate) const fn at(us: u64) -> MonoNs {
    MonoNs(1_000_000_000_000 + us * 1_000)
}

pub(crate) struct Story {
    pub(crate) evidence: Evidence,
    pub(crate) journey: Journey,
    pub(crate) lost_events: u64,
    events: Vec<Event>,
    /// Who has the first CPU.
    running: TaskId,
    /// The reply has been told.
    answered: bool,
    symbols: Vec<String>,
    throttled: u64,
    softirq: u64,
    account: CpuAccount,
    ran: Option<u64>,
}

impl Story {
    pub(crate) fn new() -> Self {
        let mut story = Self {
            evidence: Evidence::default(),
            journey: journey(),
            lost_events: 0,
            events: Vec::new(),
            running: TaskId::default(),
            answered: false,
            symbols: Vec::new(),
            throttled: 0,
            softirq: 0,
            account: CpuAccount::UNKNOWN,
            ran: None,
        };
        story.interface(ETH, "eth0", "ether");
        story.interface(TAP, "tap0", "tap");
        story
    }

    /// A check that the server reads at once, and answers after `us`. The server waits for it
    /// in a receive call.
    pub(crate) fn served(us: u64) -> Self {
        let mut story = Self::new();
        story.sleeps(0, SERVER, 1, RECEIVE);
        story.packet_wakes(105, SERVER).runs(110, SERVER);
        story.stamp(100, Stage::PnicRx, None).stamp(104, Stage::SockEnqueue, None);
        story.stamp(112, Stage::SockRead, Some(SERVER)).reads(112, SERVER);
        story.stamp(us, Stage::AppSend, Some(SERVER)).stamp(us + 2, Stage::PnicQueue, None);
        story.stamp(us + 4, Stage::PnicXmit, None);
        story
    }

    /// A check that comes at 100 µs, and that the server reads at `us` and answers at once.
    pub(crate) fn queued(us: u64) -> Self {
        let mut story = Self::new();
        story.stamp(100, Stage::PnicRx, None).stamp(104, Stage::SockEnqueue, None);
        story.stamp(us, Stage::SockRead, Some(SERVER)).reads(us, SERVER);
        story.stamp(us + 5, Stage::AppSend, Some(SERVER)).stamp(us + 7, Stage::PnicQueue, None);
        story
    }

    fn push(&mut self, us: u64, task: Actor, softirq: u32, body: Body) -> &mut Self {
        self.push_in(us, task, (softirq, Interrupt::Unknown), body)
    }

    fn push_in(&mut self, us: u64, task: Actor, (softirq, interrupt): (u32, Interrupt), body: Body) -> &mut Self {
        let cpu = task.cpu();
        self.events.push(Event { at: at(us), seq: 1, cpu, task: task.id(), softirq, interrupt, body });
        self
    }

    fn push_on(&mut self, us: u64, cpu: u32, task: Actor, body: Body) -> &mut Self {
        let interrupt = Interrupt::Unknown;
        self.events.push(Event { at: at(us), seq: 1, cpu, task: task.id(), softirq: 0, interrupt, body });
        self
    }

    pub(crate) fn fact(&mut self, us: u64, fact: Fact) -> &mut Self {
        self.push(us, IDLE, 0, Body::Fact(Box::new(fact)))
    }

    pub(crate) fn interface(&mut self, id: InterfaceId, name: &str, kind: &str) -> &mut Self {
        self.fact(
            0,
            Fact::Interface(InterfaceFact {
                id,
                name: name.to_owned(),
                role: InterfaceRole::PhysicalNic,
                label: name.to_owned(),
                kind: kind.to_owned(),
                tx_queues: 1,
                rx_queues: 1,
            }),
        )
    }

    pub(crate) fn hooks(&mut self, active: &[&str]) -> &mut Self {
        let active = active.iter().map(|name| (*name).to_owned()).collect();
        self.fact(0, Fact::Hooks { active })
    }

    /// A process holds the tap.
    pub(crate) fn holds_tap(&mut self, holder: Actor) -> &mut Self {
        self.fact(0, Fact::Holders { interface: TAP, tgids: vec![holder.0] })
    }

    /// A thread takes some packet out of the tap's ring.
    pub(crate) fn takes(&mut self, us: u64, who: Actor) -> &mut Self {
        let body = BackendRxBody { skb: 1, netns: TAP.netns, location: 0, ifindex: TAP.ifindex, reserved: 0 };
        self.push(us, who, 0, Body::BackendRx(body))
    }

    pub(crate) fn task(&mut self, us: u64, who: Actor, state: char, wchan: Option<&str>) -> &mut Self {
        self.fact(
            us,
            Fact::Task(TaskFact {
                id: who.id(),
                start_time_ns: who.start() / 10_000_000 * 10_000_000,
                comm: who.2.to_owned(),
                cgroup: format!("/{}.slice", who.2),
                state,
                wchan: wchan.map(str::to_owned),
            }),
        )
    }

    /// From here on, told events carry this much throttled time of the server's group.
    pub(crate) fn throttled(&mut self, us: u64) -> &mut Self {
        self.throttled = us;
        self
    }

    /// From here on, told events carry this much softirq time of the CPU.
    pub(crate) fn softirq_total(&mut self, us: u64) -> &mut Self {
        self.softirq = us;
        self
    }

    /// From here on, told switches carry this account, in microseconds: what the thread was
    /// charged, and what the hypervisor took of its CPU.
    pub(crate) fn account(&mut self, exec: u64, steal: u64) -> &mut Self {
        self.account = CpuAccount { exec_ns: exec * 1_000, steal_ns: steal * 1_000, irq_ns: 0 };
        self
    }

    /// From here on, told switches say that the slice they end took this long.
    pub(crate) fn ran(&mut self, us: u64) -> &mut Self {
        self.ran = Some(us);
        self
    }

    pub(crate) fn runs(&mut self, us: u64, who: Actor) -> &mut Self {
        self.runs_after(us, who, IDLE)
    }

    pub(crate) fn runs_after(&mut self, us: u64, who: Actor, before: Actor) -> &mut Self {
        self.switches(us, who, before, who.start())
    }

    /// A thread that started `second` seconds after boot.
    pub(crate) fn runs_at(&mut self, us: u64, who: Actor, second: u64) -> &mut Self {
        self.switches(us, who, IDLE, second * 1_000_000_000)
    }

    fn switches(&mut self, us: u64, who: Actor, before: Actor, start_time_ns: u64) -> &mut Self {
        let body = SwitchInBody {
            start_time_ns,
            softirq_ns: self.softirq * 1_000,
            throttled_ns: self.throttled * 1_000,
            throttled_count: self.throttled / 100_000 + u64::from(self.throttled > 0),
            tid: who.1,
            tgid: who.0,
            comm: comm(who.2),
            prev_comm: comm(before.2),
            account: self.account,
        };
        self.push_on(us, who.cpu(), before, Body::SwitchIn(body))
    }

    /// Goes to sleep in `frames`, innermost first.
    pub(crate) fn sleeps(&mut self, us: u64, who: Actor, state: u32, frames: &str) -> &mut Self {
        let stack = self.stack(frames);
        self.leaves(us, who, (state, 0), stack, IDLE)
    }

    pub(crate) fn preempted(&mut self, us: u64, who: Actor, by: Actor) -> &mut Self {
        self.leaves(us, who, (0, 1), ([0; STACK_DEPTH], 0), by)
    }

    pub(crate) fn leaves(
        &mut self,
        us: u64,
        who: Actor,
        (state, preempted): (u32, u32),
        (stack, stack_len): ([u64; STACK_DEPTH], u32),
        next: Actor,
    ) -> &mut Self {
        let body = SwitchOutBody {
            start_time_ns: who.start(),
            softirq_ns: self.softirq * 1_000,
            throttled_ns: self.throttled * 1_000,
            throttled_count: self.throttled / 100_000 + u64::from(self.throttled > 0),
            state,
            preempted,
            next_tid: next.1,
            next_tgid: next.0,
            comm: comm(who.2),
            next_comm: comm(next.2),
            stack_len,
            reserved: 0,
            stack,
            account: self.account,
            ran_ns: self.ran.map_or(u64::MAX, |us| us * 1_000),
        };
        self.push(us, who, 0, Body::SwitchOut(Box::new(body)))
    }

    fn stack(&mut self, frames: &str) -> ([u64; STACK_DEPTH], u32) {
        let mut stack = [0; STACK_DEPTH];
        let mut len = 0;
        for (slot, frame) in stack.iter_mut().zip(frames.split_whitespace()) {
            *slot = self.address(frame);
            len += 1;
        }
        (stack, len)
    }

    pub(crate) fn address(&mut self, name: &str) -> u64 {
        let known = self.symbols.iter().position(|symbol| symbol == name);
        let index = known.unwrap_or(self.symbols.len()) as u64;
        let address = 0xffff_ffff_8100_0000 + index * 16;
        if known.is_none() {
            self.symbols.push(name.to_owned());
            self.fact(0, Fact::Symbol { address, name: name.to_owned() });
        }
        address
    }

    /// The file of the wait that begins at the same time.
    pub(crate) fn waits_for_file(&mut self, us: u64, who: Actor, device: u32, call: u32) -> &mut Self {
        let body = FileWaitBody { inode: 12, device, call, file_system: comm("ext4") };
        self.push(us, who, 0, Body::FileWait(body))
    }

    /// The futex of the wait that begins at the same time.
    pub(crate) fn waits_for_futex(&mut self, us: u64, who: Actor, word: u64) -> &mut Self {
        self.push(us, who, 0, Body::FutexWait(FutexWaitBody { word }))
    }

    /// A completion, of a request to the device, throttled or not, wakes a thread: queued, granted,
    /// issued and done at these times, 0 where one is not known.
    pub(crate) fn request_ends(
        &mut self,
        us: u64,
        waker: Actor,
        who: Actor,
        (device, throttled): (u32, bool),
        times: [u64; 4],
    ) -> &mut Self {
        let [queued_ns, granted_ns, issued_ns, done_ns] = times.map(|us| if us == 0 { 0 } else { at(us).0 });
        let (tgid, tid, throttled) = (who.0, who.1, u32::from(throttled));
        // A thread's own, unless a throttle's worker had to queue it.
        let TaskId { tgid: by_tgid, tid: by_tid } = if throttled == 0 { who.id() } else { KWORKER.id() };
        let body = BlockRequestBody {
            queued_ns,
            granted_ns,
            issued_ns,
            done_ns,
            tid,
            tgid,
            by_tid,
            by_tgid,
            device,
            throttled,
        };
        self.push(us, waker, 0, Body::BlockRequest(body))
    }

    pub(crate) fn dirties(&mut self, us: u64, who: Actor, device: u32, folios: u32) -> &mut Self {
        self.push(us, who, 0, Body::Dirtied(DirtiedBody { device, folios, comm: comm(who.2) }))
    }

    pub(crate) fn reclaims(&mut self, from: u64, to: u64, who: Actor, pages: u64) -> &mut Self {
        let body = ReclaimBody { began_ns: at(from).0, pages, cgroup: 1, reserved: 0 };
        self.push(to, who, 0, Body::Reclaim(body))
    }

    /// Waits for a kernel lock of this kind on the CPU: so long in all, in so many waits.
    pub(crate) fn spins(
        &mut self,
        (from, to): (u64, u64),
        who: Actor,
        (spun, waits): (u64, u32),
        (flags, owner): (u32, Option<Actor>),
    ) -> &mut Self {
        let owner = owner.unwrap_or(Actor(0, 0, ""));
        let body = LockSpinBody {
            since_ns: at(from).0,
            spun_ns: spun * 1_000,
            lock: 0xffff_8880_0000_1000,
            flags,
            waits,
            owner_tid: owner.1,
            owner_tgid: owner.0,
            owner_comm: comm(owner.2),
        };
        self.push(to, who, 0, Body::LockSpin(body))
    }

    /// A thread that nobody watches leaves the first CPU, which it had for so long.
    pub(crate) fn ran_there(&mut self, us: u64, who: Actor, ran: u64) -> &mut Self {
        self.push_on(
            us,
            SERVER.cpu(),
            who,
            Body::Ran(RanBody { start_time_ns: who.start(), ran_ns: ran * 1_000, comm: comm(who.2) }),
        )
    }

    pub(crate) fn wakes(&mut self, us: u64, waker: Actor, who: Actor) -> &mut Self {
        self.wakes_in(us, waker, who, 0)
    }

    /// Receive softirq wakes a thread.
    pub(crate) fn packet_wakes(&mut self, us: u64, who: Actor) -> &mut Self {
        self.wakes_in(us, HOG, who, 4)
    }

    /// Receive softirq on the first CPU, on top of `current`, wakes a thread.
    pub(crate) fn packet_wakes_on(&mut self, us: u64, current: Actor, who: Actor) -> &mut Self {
        self.wakes_in(us, current, who, 4);
        self.events.last_mut().into_iter().for_each(|event| event.cpu = SERVER.cpu());
        self
    }

    /// A thread, a softirq, or on an idle CPU a timer's interrupt wakes a thread.
    pub(crate) fn wakes_in(&mut self, us: u64, waker: Actor, who: Actor, softirq: u32) -> &mut Self {
        let interrupt = if softirq == 0 && waker == IDLE { Interrupt::Hard } else { Interrupt::None };
        self.wakes_amid(us, waker, who, (softirq, interrupt))
    }

    /// A wake-up on top of what `waker` does, or by it.
    pub(crate) fn wakes_amid(&mut self, us: u64, waker: Actor, who: Actor, amid: (u32, Interrupt)) -> &mut Self {
        let body = WakingBody {
            tid: who.1,
            tgid: who.0,
            cpu: 0,
            waker_watched: 1,
            waker_comm: comm(waker.2),
            comm: comm(who.2),
        };
        self.push_in(us, waker, amid, Body::Waking(body))
    }

    /// The host handles so many exits of a guest from one time to another, on its vCPU's thread.
    pub(crate) fn guest_exits(
        &mut self,
        (from, to): (u64, u64),
        who: Actor,
        (handled, exits, reason): (u64, u32, u32),
    ) -> &mut Self {
        let body = GuestExitsBody {
            since_ns: at(from).0,
            handled_ns: handled * 1_000,
            longest_ns: handled * 1_000 / u64::from(exits),
            exits,
            reason,
            processor: 2,
            reserved: 0,
        };
        self.push(to, who, 0, Body::GuestExits(body))
    }

    /// How many records have been told.
    pub(crate) fn records(&self) -> usize {
        self.events.iter().filter(|event| event.body.kind().is_some()).count()
    }

    /// Loses one record, and nobody counts it; a word for what it was.
    pub(crate) fn loses(&mut self, record: usize) -> String {
        let index = self.record(record);
        let event = self.events.remove(index);
        format!("{:?} of {:?} at {}", event.body.kind(), event.task, (event.at.0 - at(0).0) / 1_000)
    }

    /// A record is told by a clock that is off by some nanoseconds.
    pub(crate) fn moves(&mut self, record: usize, by: i64) -> String {
        let index = self.record(record);
        let event = &mut self.events[index];
        event.at = MonoNs(event.at.0.saturating_add_signed(by));
        format!("{:?} of {:?} at {} by {by} ns", event.body.kind(), event.task, (event.at.0 - at(0).0) / 1_000)
    }

    fn record(&self, record: usize) -> usize {
        let records = self.events.iter().enumerate().filter(|(_, event)| event.body.kind().is_some());
        records.map(|(index, _)| index).nth(record).unwrap()
    }

    /// Nothing is known of what comes behind `us`.
    pub(crate) fn until(&mut self, us: u64) -> &mut Self {
        self.sends_once();
        self.events.retain(|event| event.at <= at(us));
        self
    }

    fn sends_once(&mut self) {
        if !std::mem::replace(&mut self.answered, true) {
            self.answers();
        }
    }

    /// Whoever answers the check sends on its socket.
    fn answers(&mut self) {
        let protocol = u32::from(self.journey.request.protocol);
        let (socket, local_port) = (SOCKET, 4000);
        for stamp in self.journey.stamps.iter().filter(|stamp| stamp.stage == Stage::AppSend) {
            let body = SockCallBody { socket, cgroup: 0, result: 64, flags: 0, local_port, protocol, comm: [0; 16] };
            let Stamp { at, task, .. } = *stamp;
            let (cpu, interrupt) = (Actor(task.tgid, task.tid, "").cpu(), Interrupt::Unknown);
            self.events.push(Event { at, seq: 1, cpu, task, softirq: 0, interrupt, body: Body::SockSend(body) });
        }
    }

    pub(crate) fn reads(&mut self, us: u64, who: Actor) -> &mut Self {
        self.reads_bytes(us, who, 64)
    }

    pub(crate) fn reads_bytes(&mut self, us: u64, who: Actor, result: i32) -> &mut Self {
        let body = SockCallBody {
            socket: SOCKET,
            cgroup: 0,
            result,
            flags: 0,
            local_port: 4000,
            protocol: u32::from(self.journey.request.protocol),
            comm: comm(who.2),
        };
        self.push(us, who, 0, Body::SockRead(body))
    }

    /// Gives data to the check's socket.
    pub(crate) fn sends(&mut self, us: u64, who: Actor) -> &mut Self {
        self.sends_bytes(us, who, 64)
    }

    /// A send call on the check's socket returns bytes, or a negated error number.
    pub(crate) fn sends_bytes(&mut self, us: u64, who: Actor, result: i32) -> &mut Self {
        let protocol = u32::from(self.journey.request.protocol);
        let (socket, comm) = (SOCKET, comm(who.2));
        let body = SockCallBody { socket, cgroup: 0, result, flags: 0, local_port: 4000, protocol, comm };
        self.push(us, who, 0, Body::SockSend(body))
    }

    /// Data that is no check enters the check's socket, which then holds so many bytes.
    pub(crate) fn fills(&mut self, us: u64, receive_bytes: u32) -> &mut Self {
        let body = SockEnqueueBody {
            socket: SOCKET,
            skb: 0,
            packet_seq: 0,
            receive_bytes,
            receive_limit_bytes: 200_000,
            local_port: 4000,
            protocol: u32::from(self.journey.request.protocol),
        };
        self.push(us, HOG, 4, Body::SockEnqueue(body))
    }

    /// Data enters the check's socket, and receive softirq wakes the thread that waits for it. The
    /// data is a check's request, or none that was followed.
    pub(crate) fn data_wakes(&mut self, us: u64, who: Actor, of_check: bool) -> &mut Self {
        let body = SockEnqueueBody {
            socket: SOCKET,
            skb: 0,
            packet_seq: u64::from(of_check) * 9,
            receive_bytes: 768,
            receive_limit_bytes: 200_000,
            local_port: 4000,
            protocol: u32::from(self.journey.request.protocol),
        };
        self.push(us, HOG, 4, Body::SockEnqueue(body)).packet_wakes(us, who)
    }

    /// Sends to, or receives from, another service at `remote_port`. The port is the socket.
    pub(crate) fn calls(&mut self, us: u64, who: Actor, received: bool, remote_port: u32) -> &mut Self {
        self.calls_on(us, who, received, (1_000 + u64::from(remote_port), 50_000, remote_port))
    }

    /// The same on a socket, from a local port.
    pub(crate) fn calls_on(
        &mut self,
        us: u64,
        who: Actor,
        received: bool,
        (socket, local_port, remote_port): (u64, u32, u32),
    ) -> &mut Self {
        let body = OtherCallBody { socket, result: 64, flags: 0, local_port, remote_port, protocol: 17, family: 2 };
        self.push(us, who, 0, if received { Body::OtherRead(body) } else { Body::OtherSend(body) })
    }

    /// A child that started `second` seconds after boot.
    pub(crate) fn forks_at(&mut self, us: u64, parent: Actor, child: Actor, second: u64) -> &mut Self {
        let body = TaskForkBody { start_time_ns: second * 1_000_000_000, tid: child.1, tgid: child.0 };
        self.push(us, parent, 0, Body::TaskFork(body))
    }

    pub(crate) fn exits(&mut self, us: u64, who: Actor) -> &mut Self {
        self.push(us, who, 0, Body::TaskExit(TaskExitBody { start_time_ns: who.start() }))
    }

    /// What a thread did between two times: from, to (microseconds), and a word for the state.
    pub(crate) fn did(&mut self, who: Actor, from: u64, to: u64) -> Vec<(u64, u64, String)> {
        self.tell();
        let origin = at(0).0;
        let intervals = self.evidence.intervals(who.id(), at(from), at(to));
        let rows = intervals.iter().map(|interval| {
            ((interval.from.0 - origin) / 1_000, (interval.to.0 - origin) / 1_000, word(&interval.state))
        });
        rows.collect()
    }

    /// A long softirq on CPU 0.
    pub(crate) fn softirq(&mut self, from: u64, to: u64, vector: u32) -> &mut Self {
        let body = SoftirqBody { duration_ns: (to - from) * 1_000, vector, window_ns: 0 };
        self.push_on(to, SERVER.cpu(), IDLE, Body::Softirq(body))
    }

    /// NET_RX is due on CPU 0 from one time to another, and then begins on top of a thread, with this
    /// stack.
    pub(crate) fn softirq_waits(
        &mut self,
        (from, to): (u64, u64),
        who: Actor,
        (flags, steal): (u32, u64),
        frames: &str,
    ) -> &mut Self {
        let (stack, stack_len) = self.stack(frames);
        let body = SoftirqWaitBody {
            raised_ns: at(from).0,
            start_time_ns: who.start(),
            steal_ns: steal * 1_000,
            flags,
            stack_len,
            comm: comm(who.2),
            stack,
        };
        self.push_on(to, SERVER.cpu(), who, Body::SoftirqWait(Box::new(body)))
    }

    /// Short softirqs on CPU 0 that took `sum` together.
    pub(crate) fn softirqs(&mut self, from: u64, to: u64, sum: u64, vector: u32) -> &mut Self {
        let window_ns = u32::try_from((to - from) * 1_000).unwrap();
        let body = SoftirqBody { duration_ns: sum * 1_000, vector, window_ns };
        self.push_on(to, SERVER.cpu(), IDLE, Body::Softirq(body))
    }

    /// A check comes in at an interface; in a softirq that has run for some time, or taken in by a
    /// thread.
    pub(crate) fn comes_in(&mut self, us: u64, at: InterfaceId, by: Option<Actor>, running: u64) -> &mut Self {
        let body = PacketBody {
            skb: 1,
            netns: at.netns,
            ifindex: at.ifindex,
            queue: 0,
            sighting: self.journey.request,
            frame_len: 64,
            softirq_ns: u32::try_from(running * 1_000).unwrap(),
        };
        match by {
            Some(by) => self.push(us, by, 0, Body::PacketIngress(body)),
            None => {
                self.push_on(us, SERVER.cpu(), IDLE, Body::PacketIngress(body));
                self.events.last_mut().expect("an event").softirq = 4;
                self
            }
        }
    }

    /// A neighbour for which packets wait answers on a device.
    pub(crate) fn neighbour(&mut self, us: u64, device: InterfaceId) -> &mut Self {
        let body = NeighbourBody { netns: device.netns, ifindex: device.ifindex, state: 2 };
        self.push_on(us, SERVER.cpu(), IDLE, Body::Neighbour(body))
    }

    pub(crate) fn softirq_storm(&mut self, count: u64) -> &mut Self {
        (0..count).for_each(|turn| {
            self.softirq(turn * 3, turn * 3 + 2, 3);
        });
        self
    }

    pub(crate) fn stamp(&mut self, us: u64, stage: Stage, who: Option<Actor>) -> &mut Self {
        let task = who.map_or_else(TaskId::default, Actor::id);
        let interface = match stage {
            Stage::PnicRx | Stage::PnicQueue | Stage::PnicXmit | Stage::PnicDone => ETH,
            Stage::VnicTx | Stage::VnicRx | Stage::BackendRx => TAP,
            Stage::GuestRx | Stage::SockEnqueue | Stage::SockRead | Stage::AppSend | Stage::GuestTx => {
                InterfaceId::default()
            }
        };
        self.journey.stamps.push(Stamp { stage, at: at(us), cpu: 0, queue: 0, interface, task });
        self.journey.known_until = at(us);
        self
    }

    /// Forgets the stages behind `stage`; the check is still open at `us`.
    pub(crate) fn open_after(&mut self, stage: Stage, us: u64) -> &mut Self {
        let last = self.journey.stamps.iter().position(|stamp| stamp.stage == stage).unwrap();
        let forgotten: Vec<MonoNs> = self.journey.stamps.drain(last + 1..).map(|stamp| stamp.at).collect();
        let reads = |event: &Event| matches!(event.body, Body::SockRead(_));
        self.events.retain(|event| !reads(event) || !forgotten.contains(&event.at));
        self.ends(us, Outcome::Open)
    }

    pub(crate) fn ends(&mut self, us: u64, outcome: Outcome) -> &mut Self {
        self.journey.known_until = at(us);
        self.journey.outcome = outcome;
        self
    }

    /// The packet is dropped; the check is lost to it.
    pub(crate) fn dropped(&mut self, us: u64, reason: &str, place: &str) -> &mut Self {
        let number = 40;
        self.fact(0, Fact::DropReason { number, name: reason.to_owned() });
        let location = self.address(place);
        let drop = PacketDrop { at: at(us), reason: number, location, interface: ETH, ..PacketDrop::default() };
        self.journey.drops.push(drop.clone());
        self.ends(us, Outcome::Lost(Loss::Dropped(drop)))
    }

    /// The check's packet, a reply, is dropped by a thread in a call of its own; the check is lost to it.
    pub(crate) fn drops_reply(&mut self, us: u64, who: Actor, reason: &str, place: &str) -> &mut Self {
        self.drops_packet(us, (4000, 9), reason, place);
        let Some(event) = self.events.last_mut() else { panic!("a drop") };
        (event.task, event.softirq) = (who.id(), 0);
        self.dropped(us, reason, place);
        let Outcome::Lost(Loss::Dropped(drop)) = &mut self.journey.outcome else { panic!("a drop") };
        (drop.reply, drop.task) = (true, who.id());
        self
    }

    /// A copy of the connection request finds its listener's accept queue full.
    pub(crate) fn refused(&mut self, us: u64) -> &mut Self {
        let refusal = Refusal { at: at(us), skb: 1, waiting: 3, limit: 2, half_open: 1 };
        self.journey.refusals.push(refusal);
        self
    }

    /// The drop that was told last is not the last there was.
    pub(crate) fn and_more(&mut self) -> &mut Self {
        let Some(Event { body: Body::Drop(body), .. }) = self.events.last_mut() else { panic!("a drop") };
        body.signature_known = DROP_OF_PORT_LAST;
        self
    }

    /// A send call leaves so many bytes, with so many in flight of a window.
    pub(crate) fn held(&mut self, us: u64, who: Actor, unsent: u32, (in_flight, window): (u32, u32)) -> &mut Self {
        let body = SendHeldBody {
            socket: SOCKET,
            unsent,
            in_flight,
            window,
            packets_out: 1,
            congestion_window: 10,
            segment: 1_448,
        };
        self.push(us, who, 0, Body::SendHeld(body))
    }

    /// The congestion control allows so many packets in what was told last.
    pub(crate) fn congestion_window(&mut self, packets: u32) -> &mut Self {
        let Some(Event { body: Body::SendHeld(body), .. }) = self.events.last_mut() else { panic!("a send call") };
        body.congestion_window = packets;
        self
    }

    /// A packet with data that fits no signature, from one port to another, is dropped.
    pub(crate) fn drops_packet(&mut self, us: u64, (from, to): (u16, u16), reason: &str, place: &str) -> &mut Self {
        let number = 41;
        self.fact(0, Fact::DropReason { number, name: reason.to_owned() });
        let location = self.address(place);
        let protocol = if from == 53 { 17 } else { self.journey.request.protocol };
        let sighting =
            Sighting { source_port: from, destination_port: to, payload_len: 16, protocol, ..Sighting::default() };
        let body = DropBody {
            skb: 3,
            netns: ETH.netns,
            location,
            ifindex: ETH.ifindex,
            reason: number,
            sighting,
            signature_known: DROP_OF_PORT,
            own: 0,
            queue_mapping: 0,
            reserved: [0; 4],
        };
        self.push(us, HOG, 4, Body::Drop(body))
    }

    pub(crate) fn qdisc(&mut self, from: u64, to: u64, kind: &str, change: impl FnOnce(&mut QdiscBody)) -> &mut Self {
        self.qdisc_at(ETH, from, to, kind, change)
    }

    pub(crate) fn qdisc_at(
        &mut self,
        device: InterfaceId,
        from: u64,
        to: u64,
        kind: &str,
        change: impl FnOnce(&mut QdiscBody),
    ) -> &mut Self {
        let entered = QdiscBody {
            skb: 1,
            netns: device.netns,
            ifindex: device.ifindex,
            handle: 0x8001 << 16,
            queue_len: 20,
            backlog_bytes: 30_000,
            overlimits: 7,
            requeues: 3,
            drops: 0,
            queue_state: 0,
            kind: comm(kind),
        };
        let mut left = entered;
        change(&mut left);
        let stay = QdiscStay { entered_at: at(from), entered, left_at: Some(at(to)), left: Some(left) };
        self.journey.qdisc.push(stay);
        self
    }

    /// A packet of another check is in a queueing discipline of a device.
    pub(crate) fn holds_another(&mut self, device: InterfaceId, (from, to): (u64, u64)) -> &mut Self {
        let (skb, kind) = (from, comm("tbf"));
        let body = QdiscBody { skb, netns: device.netns, ifindex: device.ifindex, kind, ..QdiscBody::new_zeroed() };
        self.push(from, HOG, 4, Body::QdiscEnqueue(body)).push(to, HOG, 4, Body::QdiscDequeue(body))
    }

    /// Threads send so many bytes by a queue of the NIC.
    pub(crate) fn carries(&mut self, queue: u32, (from, to): (u64, u64), senders: &[(Actor, u64)]) -> &mut Self {
        let sender = |(who, bytes): &(Actor, u64)| SenderFact {
            who: Who::Task {
                id: who.id(),
                start_time_ns: who.start(),
                comm: who.2.to_owned(),
                cgroup: String::new(),
                shared: false,
            },
            sent: SentBytes { packets: 1, bytes: *bytes, error_bytes: 0 },
            flows: Vec::new(),
            flow_count: 1,
            flows_sampled: false,
        };
        let fact = QueueFact {
            interface: ETH,
            queue,
            from: at(from),
            to: at(to),
            cpus: vec![(0, 1)],
            senders: senders.iter().map(sender).collect(),
            rest: Rest::default(),
            uncounted: SentBytes::default(),
        };
        self.fact(to, Fact::Queue(Box::new(fact)))
    }

    /// Hands the events over in the order of their time; of one instant, as they were told.
    pub(crate) fn tell(&mut self) -> &mut Self {
        self.sends_once();
        self.events.sort_by_key(|event| event.at);
        for mut event in self.events.drain(..) {
            if let Body::Softirq(_) = &event.body {
                event.task = self.running;
            }
            self.running = match &event.body {
                Body::SwitchIn(body) if event.cpu == 0 => TaskId { tgid: body.tgid, tid: body.tid },
                Body::SwitchOut(body) if event.cpu == 0 => TaskId { tgid: body.next_tgid, tid: body.next_tid },
                _ => self.running,
            };
            self.evidence.push(&event);
        }
        self
    }

    pub(crate) fn judge(&mut self) -> Judged {
        self.judge_with(&mut Attributor::new(&run(Threshold::Fixed(DurNs::from_millis(20)))))
    }

    pub(crate) fn judge_with(&mut self, attributor: &mut Attributor) -> Judged {
        self.tell();
        let count = self.lost_events;
        attributor.judge(self.journey.clone(), &self.evidence, &|_, _| count)
    }
}

pub(crate) const RECEIVE: &str = "__schedule schedule_timeout __skb_wait_for_more_packets __skb_recv_udp udp_recvmsg";
pub(crate) const TCP_RECEIVE: &str = "__schedule schedule_timeout wait_woken sk_wait_data tcp_recvmsg";
pub(crate) const FUTEX: &str = "__schedule schedule futex_do_wait __futex_wait futex_wait do_futex";
pub(crate) const EPOLL: &str = "__schedule schedule schedule_hrtimeout_range_clock ep_poll do_epoll_wait";
pub(crate) const POLL: &str = "__schedule schedule_hrtimeout_range poll_schedule_timeout do_poll do_sys_poll";
pub(crate) const NANOSLEEP: &str = "__schedule schedule do_nanosleep hrtimer_nanosleep";
pub(crate) const PIPE: &str = "__schedule schedule anon_pipe_write vfs_write ksys_write";

pub(crate) fn run(threshold: Threshold) -> RunFact {
    RunFact {
        version: "0".to_owned(),
        wire_version: 1,
        signatures: Vec::new(),
        threshold,
        lost_after: DurNs::from_secs(2),
        open_report_every: DurNs::from_secs(1),
        max_open: 1_000,
    }
}

pub(crate) fn journey() -> Journey {
    Journey {
        id: JourneyId(1),
        signature: 0,
        perspective: Perspective::Served,
        target: ETH,
        request: Sighting { protocol: 17, source_port: 5000, destination_port: 4000, ..Sighting::default() },
        outcome: Outcome::Replied,
        stamps: Vec::new(),
        socket: SOCKET,
        drops: Vec::new(),
        refusals: Vec::new(),
        qdisc: Vec::new(),
        retransmissions: 0,
        known_until: at(0),
    }
}

fn word(state: &State<'_>) -> String {
    match state {
        State::OnCpu(Slice { unknown, .. }) if unknown.0 > 0 => format!("on cpu, unknown {unknown}"),
        State::OnCpu(Slice { steal, .. }) if steal.0 > 0 => format!("on cpu, steal {steal}"),
        State::OnCpu(Slice { softirq, .. }) if softirq.0 > 0 => format!("on cpu, softirq {softirq}"),
        State::OnCpu(_) => "on cpu".to_owned(),
        State::Runnable(runnable) => format!("runnable {:?}", runnable.ready).to_lowercase(),
        State::Blocked(blocked) => match blocked.wake {
            Some(wake) => format!("blocked, woken by {}", wake.waker.task.tid),
            None => "blocked".to_owned(),
        },
        State::Stopped { .. } => "stopped".to_owned(),
        State::Unknown(reason) => format!("unknown: {reason}"),
    }
}

/// Time that a cause took.
pub(crate) fn taken(judged: &Judged, cause: Cause) -> DurNs {
    let entries = judged.ledger.entries.iter().filter(|entry| entry.cause == cause);
    entries.fold(DurNs::ZERO, |sum, entry| sum.plus(entry.time()))
}

/// The longest entry of a cause.
pub(crate) fn longest(judged: &Judged, cause: Cause) -> &Entry {
    let entries = judged.ledger.entries.iter().filter(|entry| entry.cause == cause);
    entries.max_by_key(|entry| entry.time()).unwrap_or_else(|| panic!("no {cause:?} in {judged:#?}"))
}

/// The cause of a verdict.
pub(crate) fn concluded(judged: &Judged) -> Option<Cause> {
    match judged.verdict {
        Verdict::Cause { cause, .. } => Some(cause),
        Verdict::Healthy | Verdict::Split { .. } | Verdict::Unresolved(_) => None,
    }
}
