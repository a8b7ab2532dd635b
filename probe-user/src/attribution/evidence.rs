//! What is known beside the checks themselves: threads, softirqs, sockets and names.
//!
//! Every event goes in, in the order of its time; [`Attributor`](super::Attributor) asks what a
//! thread did over a stretch of time. Memory is bounded: by age ([`Evidence::trim`]) and by
//! count. In steady state a push allocates nothing.

use super::exits::GuestExits;
use super::flow::{Flow, FlowDrop, FlowDrops};
use super::frame::{self, Frame, Wait};
use super::held::{HeldSend, HeldSends};
use super::ledger::{Hop, Offender, Sampled};
use super::queue::Queues;
use super::request::{Request, Requests};
use super::run::{Runs, Share};
use super::softirq::{SoftirqRun, Softirqs, Tally};
use super::spin::Spins;
use super::storage::{FileWait, Storage};
use super::symbol::{Fast, StackRef, Stacks, Symbols};
use super::taken::TakenStacks;
use super::tap::{Tap, Taps};
use super::thread::{
    Account, Blocked, Call, Data, Interval, Leave, Life, Mark, Named, SoftirqRuns, State, Switch, Throttled, Wake,
};
use super::traffic::Traffic;
use crate::clock::{DurNs, MonoNs};
use crate::event::{Body, Event, Fact, InterfaceFact, InterfaceId, TaskFact, TaskId};
use probe_wire::{
    BackendRxBody, MAX_CPUS, NeighbourBody, OtherCallBody, OtherPeerBody, PacketBody, STACK_DEPTH, SockCallBody,
    SockEnqueueBody, SwitchInBody, SwitchOutBody, TaskForkBody, WakingBody,
};
use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Most lives of threads kept.
const MAX_LIVES: usize = 32_768;
/// Most records kept of one life.
const MAX_MARKS: usize = 65_536;
/// Most records kept of all lives, about 140 bytes each.
const MAX_MARKS_TOTAL: usize = 524_288;
/// Most neighbours of an interface of which it is kept when they became known.
const MAX_NEIGHBOURS: usize = 256;
/// Most sockets kept.
const MAX_SOCKETS: usize = 65_536;
const TCP: u32 = 6;
const MSG_PEEK: u32 = 2;
/// Begin of the name of a CPU's softirq thread; its number follows.
pub(crate) const SOFTIRQ_THREAD: &str = "ksoftirqd/";
/// `/proc` rounds a thread's start time to a clock tick; a number is not reused that fast.
const START_TOLERANCE_NS: u64 = 20_000_000;
/// Longest time from data entering a socket to the wake-up of who waits for it: the kernel does
/// both in one function.
const DATA_TO_WAKE_UP: DurNs = DurNs(50_000);

/// Drops of a flow are kept for this long before the oldest check: what a check waits for may have
/// been dropped just before.
const DROPS_KEPT: DurNs = DurNs::from_secs(1);

/// What is known of a watched socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct Socket {
    /// Who read from it last; zeros if nobody was seen.
    pub(super) reader: TaskId,
    /// More than one thread has read from it.
    pub(super) shared: bool,
    /// When it was used last.
    pub(super) used: MonoNs,
    /// Bytes of receive memory charged to it when data last came.
    pub(super) receive_bytes: u32,
    /// Its receive limit, bytes.
    pub(super) receive_limit_bytes: u32,
}

/// What is known of a socket of a watched process that carries no checks.
#[derive(Debug, Clone, Copy)]
pub(super) struct OtherSocket {
    /// The first that was seen of it is that data came: the peer asks there, and not this host.
    pub(super) serves: bool,
    pub(super) protocol: u32,
    pub(super) local_port: u32,
    /// 0 if it is not connected.
    pub(super) remote_port: u32,
    /// Address of whom it is connected to; zeros if that is not known.
    pub(super) peer: [u8; 16],
    /// An answer has come there.
    pub(super) answered: bool,
    used: MonoNs,
}

/// The thread that was last known to have a CPU.
#[derive(Debug, Clone, Copy, Default)]
struct Current {
    task: TaskId,
    seen: MonoNs,
    /// Only the one that left said that it comes.
    announced: bool,
}

/// Everything known beside the checks themselves.
#[derive(Debug, Default)]
pub struct Evidence {
    lives: HashMap<TaskId, Vec<Life>, Fast>,
    /// Threads of which lives are kept, by process.
    processes: HashMap<u32, Vec<u32>, Fast>,
    /// By CPU.
    current: Vec<Current>,
    life_count: usize,
    mark_count: usize,
    stacks: Stacks,
    symbols: Symbols,
    softirqs: Softirqs,
    sockets: HashMap<u64, Socket, Fast>,
    ports: HashMap<(u32, u32), u64, Fast>,
    /// What last entered a socket, by CPU.
    arrived: HashMap<u32, (MonoNs, Data), Fast>,
    others: HashMap<u64, OtherSocket, Fast>,
    /// Peers of sockets, told before the first call on them.
    peers: HashMap<u64, [u8; 16], Fast>,
    flow_drops: FlowDrops,
    held: HeldSends,
    interfaces: HashMap<InterfaceId, InterfaceFact>,
    drop_reasons: HashMap<u32, String>,
    taps: Taps,
    traffic: Traffic,
    storage: Storage,
    requests: Requests,
    spins: Spins,
    exits: GuestExits,
    runs: Runs,
    /// Threads that take packets in at an interface, outside of softirq.
    receivers: HashMap<InterfaceId, TaskId>,
    /// When neighbours became known for which packets waited, the last ones.
    neighbours: HashMap<InterfaceId, VecDeque<MonoNs>>,
    queues: Queues,
    /// Softirq threads, by CPU.
    softirq_threads: HashMap<u32, TaskId, Fast>,
    sees: Sees,
    blind: Blind,
    usage: Cell<Usage>,
    /// Entries of ledgers carry the threads they were reached by.
    tells_hops: bool,
    /// Stacks in user code; kept for those only.
    taken: TakenStacks,
}

/// What judging a check took out of the evidence.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Usage {
    /// Records of threads that were looked at.
    pub(super) steps: u64,
    /// The oldest record on which something rests that has not ended.
    pub(super) oldest: Option<MonoNs>,
}

/// What the attached hooks can tell.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Sees {
    /// When a packet leaves a tap's ring.
    pub(super) rings: bool,
    /// When watched threads run.
    pub(super) switches: bool,
    /// When KVM's guests run.
    pub(super) guests: bool,
}

/// What this run cannot have seen, for want of a hook.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Blind {
    pub(super) softirqs: bool,
    pub(super) files: bool,
    pub(super) sockets: bool,
    pub(super) qdiscs: bool,
    pub(super) drops: bool,
    pub(super) switches: bool,
}

impl Blind {
    fn of(active: &[String]) -> Self {
        let lacks = |hook: &str| !active.iter().any(|name| name == hook);
        Self {
            softirqs: lacks("softirq_entry") || lacks("softirq_exit"),
            files: lacks("file_wait"),
            sockets: lacks("sk_data_ready"),
            qdiscs: lacks("qdisc_enqueue") || lacks("qdisc_dequeue"),
            drops: lacks("kfree_skb"),
            switches: lacks("sched_switch"),
        }
    }
}

impl Evidence {
    /// From here on, ledgers tell by which threads and kernel stacks each entry was reached.
    pub fn tell_hops(&mut self) {
        self.tells_hops = true;
    }

    /// Takes in one event. Events must come in the order of their time.
    pub fn push(&mut self, event: &Event) {
        self.witness(event);
        match &event.body {
            Body::SwitchOut(body) => self.switch_out(event, body),
            Body::SwitchIn(body) => self.switch_in(event, body),
            Body::Waking(body) => self.waking(event, body),
            Body::TaskExit(body) => self.mark(event.task, body.start_time_ns, None, Mark::Ended(event.at)),
            Body::TaskFork(body) => self.fork(event.at, body),
            Body::SockRead(body) => self.read(event, body),
            Body::SockEnqueue(body) => self.enqueue(event, body),
            Body::OtherRead(body) => self.other(event, body, true),
            Body::OtherSend(body) => self.other(event, body, false),
            Body::Softirq(body) => self.softirqs.add(event.cpu, event.at, body),
            Body::BackendRx(body) => self.taken(event, body),
            Body::Xmit(body) => {
                let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
                self.taps.hand(id, event.at, body.skb, body.queue);
            }
            Body::Neighbour(body) => self.neighbour(event.at, body),
            Body::FileWait(body) => self.storage.waits(event, body),
            Body::Dirtied(body) => self.storage.dirtied(event, body),
            Body::Reclaim(body) => self.storage.reclaimed(event, body),
            Body::BlockRequest(body) => self.requests.add(event, body),
            Body::LockSpin(body) => self.spins.add(event, body),
            Body::GuestExits(body) => self.exits.add(event, body),
            Body::Ran(body) => self.ran(event, body.ran_ns, (body.comm, body.start_time_ns)),
            Body::Drop(body) => self.flow_drops.add(event, body),
            Body::OtherPeer(body) => self.peer(body),
            Body::SockSend(body) => self.answered(event, body),
            Body::SendHeld(body) => self.held.add(event, body),
            Body::Fact(fact) => self.fact(event.at, fact),
            Body::PacketIngress(body) => self.ingress(event, body),
            Body::PacketEgress(_)
            | Body::QdiscEnqueue(_)
            | Body::QdiscDequeue(_)
            | Body::AcceptFull(_)
            | Body::Tick => {}
        }
    }

    /// Forgets what happened before `before`. The state that each thread had then is kept, so
    /// `before` is the start of the oldest open check, or now when there is none.
    pub fn trim(&mut self, before: MonoNs) {
        let mut dropped = 0;
        self.lives.retain(|_, lives| {
            lives.retain_mut(|life| {
                dropped += life.trim(before);
                !life.over_before(before)
            });
            !lives.is_empty()
        });
        let lives = &self.lives;
        self.processes.retain(|tgid, tids| {
            tids.retain(|tid| lives.contains_key(&TaskId { tgid: *tgid, tid: *tid }));
            !tids.is_empty()
        });
        self.recount();
        // What short softirqs took of a slice is known only beside its long ones.
        let slices = self.lives.values().flatten().map(|life| life.on_cpu_since(before));
        let oldest = slices.min().unwrap_or(before);
        self.softirqs.trim(oldest);
        self.flow_drops.trim(before.before(DROPS_KEPT));
        self.held.trim(before.before(DROPS_KEPT));
        self.trim_sockets();
        self.traffic.trim(before);
        self.storage.trim(before);
        self.requests.trim(before);
        self.spins.trim(before);
        self.exits.trim(before);
        self.runs.trim(before);
        self.queues.trim(before);
        self.taken.trim(before);
        if self.stacks.crowded() {
            let used = self.stacks_in_use();
            self.stacks.retain(&used);
        }
    }

    /// Every record names the thread that was current on its CPU. Where that contradicts what the
    /// switches say, one of them is missing, whether or not its loss was counted.
    fn witness(&mut self, event: &Event) {
        let cpu = event.cpu as usize;
        // A wait for a file is told beside the switch itself, a moment behind it.
        let beside_a_switch = matches!(event.body, Body::FileWait(_));
        if event.body.kind().is_none() || beside_a_switch || cpu >= MAX_CPUS {
            return;
        }
        if self.current.len() <= cpu {
            self.current.resize(cpu + 1, Current::default());
        }
        let (left, now) = match &event.body {
            Body::SwitchIn(body) => (None, TaskId { tgid: body.tgid, tid: body.tid }),
            Body::SwitchOut(body) => (Some(event.task), TaskId { tgid: body.next_tgid, tid: body.next_tid }),
            _ => (None, event.task),
        };
        let current = Current { task: now, seen: event.at, announced: left.is_some() };
        let before = std::mem::replace(&mut self.current[cpu], current);
        if before.task != now && left != Some(before.task) {
            self.contradict(before.task, Mark::Gone(event.at), |life| life.is_on(event.cpu));
        }
        let switches = matches!(event.body, Body::SwitchIn(_) | Body::SwitchOut(_));
        if !switches && (before.task != now || before.announced) {
            self.contradict(now, Mark::Present(event.at), |life| life.denies_presence(event.cpu));
        }
    }

    fn contradict(&mut self, task: TaskId, mark: Mark, is_news: impl FnOnce(&Life) -> bool) {
        if self.lives.get(&task).and_then(|lives| lives.last()).is_some_and(is_news) {
            self.mark(task, 0, None, mark);
        }
    }

    fn recount(&mut self) {
        self.life_count = self.lives.values().map(Vec::len).sum();
        self.mark_count = self.lives.values().flatten().map(|life| life.marks.len()).sum();
    }

    fn stacks_in_use(&self) -> HashSet<StackRef> {
        let marks = self.lives.values().flatten().flat_map(|life| &life.marks);
        marks
            .filter_map(|mark| match mark {
                Mark::Out(_, leave) => Some(leave.stack),
                _ => None,
            })
            .collect()
    }

    /// Of too many sockets, those used longest ago go.
    fn trim_sockets(&mut self) {
        if self.others.len() > MAX_SOCKETS / 2 {
            let cut = median(self.others.values().map(|socket| socket.used));
            self.others.retain(|_, socket| socket.used > cut);
            let others = &self.others;
            self.peers.retain(|cookie, _| others.contains_key(cookie));
        }
        if self.sockets.len() <= MAX_SOCKETS / 2 {
            return;
        }
        let cut = median(self.sockets.values().map(|socket| socket.used));
        self.sockets.retain(|_, socket| socket.used > cut);
        let sockets = &self.sockets;
        self.ports.retain(|_, cookie| sockets.contains_key(cookie));
    }

    fn switch_out(&mut self, event: &Event, body: &SwitchOutBody) {
        let stack = self.stacks.keep(&body.stack, body.stack_len);
        let next = Named { task: TaskId { tgid: body.next_tgid, tid: body.next_tid }, comm: body.next_comm };
        let throttled = Throttled { time: DurNs(body.throttled_ns), count: body.throttled_count };
        let switch = Switch {
            at: event.at,
            cpu: event.cpu,
            softirq: DurNs(body.softirq_ns),
            throttled,
            account: Account::from(body.account),
            other: next,
        };
        self.ran(event, body.ran_ns, (body.comm, body.start_time_ns));
        let ran = (body.ran_ns != u64::MAX).then_some(DurNs(body.ran_ns));
        let leave = Leave { state: body.state, preempted: body.preempted != 0, stack, ran };
        self.mark(event.task, body.start_time_ns, Some(&body.comm), Mark::Out(switch, leave));
    }

    /// Where the kernel does not tell for how long, it is not known.
    fn ran(&mut self, event: &Event, ran_ns: u64, (comm, start_ns): ([u8; 16], u64)) {
        if ran_ns != u64::MAX {
            let who = (Named { task: event.task, comm }, start_ns);
            self.runs.add(event.cpu, who, event.at, DurNs(ran_ns));
        }
    }

    fn switch_in(&mut self, event: &Event, body: &SwitchInBody) {
        let prev = Named { task: event.task, comm: body.prev_comm };
        let throttled = Throttled { time: DurNs(body.throttled_ns), count: body.throttled_count };
        let switch = Switch {
            at: event.at,
            cpu: event.cpu,
            softirq: DurNs(body.softirq_ns),
            throttled,
            account: Account::from(body.account),
            other: prev,
        };
        let task = TaskId { tgid: body.tgid, tid: body.tid };
        self.mark(task, body.start_time_ns, Some(&body.comm), Mark::In(switch));
    }

    fn waking(&mut self, event: &Event, body: &WakingBody) {
        let waker = Named { task: event.task, comm: body.waker_comm };
        let arrived = self.arrived.get(&event.cpu).filter(|(at, _)| event.at.since(*at) <= DATA_TO_WAKE_UP);
        let wake = Wake {
            at: event.at,
            waker,
            softirq: event.softirq,
            softirqs_told: !self.blind.softirqs,
            interrupt: event.interrupt,
            cpu: body.cpu,
            data: arrived.map(|(_, data)| *data),
        };
        let task = TaskId { tgid: body.tgid, tid: body.tid };
        self.mark(task, 0, Some(&body.comm), Mark::Waking(wake));
    }

    fn fork(&mut self, at: MonoNs, body: &TaskForkBody) {
        let task = TaskId { tgid: body.tgid, tid: body.tid };
        self.mark(task, body.start_time_ns, None, Mark::Born(at));
    }

    fn read(&mut self, event: &Event, body: &SockCallBody) {
        let socket = self.socket(body.socket, event.at, (body.protocol, body.local_port));
        if body.result < 0 {
            return;
        }
        if let Some(socket) = socket {
            socket.shared |= socket.reader.tid != 0 && socket.reader != event.task;
            socket.reader = event.task;
        }
        let ended = body.result == 0 && body.protocol == TCP;
        if !ended && body.flags & MSG_PEEK == 0 {
            self.traffic.received(event.task, event.at);
        }
        let read = Mark::Read { first: event.at, last: event.at, socket: body.socket, ended };
        self.mark(event.task, 0, Some(&body.comm), read);
    }

    /// A call that moved no data tells nothing of who waits for whom.
    fn other(&mut self, event: &Event, body: &OtherCallBody, received: bool) {
        match received {
            true if body.result > 0 => self.traffic.took(event.task, event.at),
            true => {}
            false => self.sent(event, body.result),
        }
        let full = self.others.len() >= MAX_SOCKETS && !self.others.contains_key(&body.socket);
        if body.result <= 0 || full {
            return;
        }
        let OtherCallBody { protocol, local_port, remote_port, .. } = *body;
        let peer = self.peers.get(&body.socket).copied().unwrap_or_default();
        let fresh =
            OtherSocket { serves: received, protocol, local_port, remote_port, peer, answered: false, used: event.at };
        let socket = self.others.entry(body.socket).or_insert(fresh);
        socket.used = event.at;
        socket.answered |= received;
        let call = Call { first: event.at, last: event.at, socket: body.socket, received };
        self.mark(event.task, 0, None, Mark::Call(call));
    }

    fn sent(&mut self, event: &Event, result: i32) {
        if result >= 0 {
            self.traffic.sent(event.task, event.at);
        }
    }

    /// A call that sent an answer, or a part of one.
    fn answered(&mut self, event: &Event, body: &SockCallBody) {
        self.sent(event, body.result);
        if body.result > 0 && body.protocol == TCP {
            let call = Call { first: event.at, last: event.at, socket: body.socket, received: false };
            self.mark(event.task, 0, Some(&body.comm), Mark::Call(call));
        }
    }

    fn peer(&mut self, body: &OtherPeerBody) {
        if self.peers.len() < MAX_SOCKETS {
            self.peers.insert(body.socket, body.peer);
        }
        if let Some(socket) = self.others.get_mut(&body.socket) {
            socket.peer = body.peer;
        }
    }

    fn enqueue(&mut self, event: &Event, body: &SockEnqueueBody) {
        self.traffic.queued(body.socket, event.at, body.receive_bytes);
        let data = Data { socket: body.socket, of_check: body.packet_seq != 0 };
        self.arrived.insert(event.cpu, (event.at, data));
        if let Some(socket) = self.socket(body.socket, event.at, (body.protocol, body.local_port)) {
            socket.receive_bytes = body.receive_bytes;
            socket.receive_limit_bytes = body.receive_limit_bytes;
        }
    }

    /// Who takes packets in there, and since when, if it is softirq.
    fn ingress(&mut self, event: &Event, body: &PacketBody) {
        let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        let by_thread = event.softirq == 0 && !self.blind.softirqs;
        match self.receivers.get_mut(&id) {
            Some(receiver) => *receiver = if by_thread { event.task } else { TaskId::default() },
            None if by_thread && self.interfaces.contains_key(&id) => drop(self.receivers.insert(id, event.task)),
            None => {}
        }
        if let (Some(vector), 1..) = (event.softirq.checked_sub(1), body.softirq_ns) {
            self.softirqs.see(event.cpu, event.at.before(DurNs(body.softirq_ns.into())), event.at, vector);
        }
    }

    fn taken(&mut self, event: &Event, body: &BackendRxBody) {
        let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        if self.interfaces.contains_key(&id) {
            self.taps.take(id, event.at, body.skb, event.task);
        }
    }

    fn neighbour(&mut self, at: MonoNs, body: &NeighbourBody) {
        let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        if self.interfaces.contains_key(&id) {
            let known = self.neighbours.entry(id).or_default();
            if known.len() >= MAX_NEIGHBOURS {
                known.pop_front();
            }
            known.push_back(at);
        }
    }

    fn learn_hooks(&mut self, active: &[String]) {
        let attached = |name: &str| active.iter().any(|hook| hook.rsplit(':').next() == Some(name));
        self.sees = Sees {
            rings: attached("consume_skb") && attached("net_dev_start_xmit"),
            switches: attached("sched_switch"),
            guests: attached("kvm_entry") && attached("kvm_exit"),
        };
    }

    fn socket(&mut self, cookie: u64, at: MonoNs, port: (u32, u32)) -> Option<&mut Socket> {
        if self.sockets.len() >= MAX_SOCKETS && !self.sockets.contains_key(&cookie) {
            return None;
        }
        self.ports.insert(port, cookie);
        let fresh =
            Socket { reader: TaskId::default(), shared: false, used: at, receive_bytes: 0, receive_limit_bytes: 0 };
        let socket = self.sockets.entry(cookie).or_insert(fresh);
        socket.used = at;
        Some(socket)
    }

    fn fact(&mut self, at: MonoNs, fact: &Fact) {
        match fact {
            Fact::Symbol { address, name } => self.symbols.learn(*address, name),
            Fact::DropReason { number, name } => {
                self.drop_reasons.insert(*number, name.clone());
            }
            Fact::Interface(fact) => {
                self.interfaces.insert(fact.id, fact.clone());
            }
            Fact::Task(fact) => self.task(at, fact),
            Fact::Runner { id, start_time_ns, cgroup } => self.runs.learn_cgroup(*id, *start_time_ns, cgroup),
            Fact::Device { number, name } => self.storage.learn_name(*number, name),
            Fact::Hooks { active } => {
                self.learn_hooks(active);
                self.blind = Blind::of(active);
            }
            Fact::Taken(taken) if self.tells_hops => self.taken.add(at, taken),
            Fact::Taken(_) => {}
            Fact::Queue(fact) => self.queues.add(fact),
            Fact::Holders { interface, tgids } => self.taps.hold(*interface, tgids),
            _ => debug_assert!(!fact.learners().evidence),
        }
    }

    fn task(&mut self, at: MonoNs, fact: &TaskFact) {
        if let Some(cpu) = fact.comm.strip_prefix(SOFTIRQ_THREAD).and_then(|cpu| cpu.parse().ok()) {
            self.softirq_threads.insert(cpu, fact.id);
        }
        let asleep = matches!(fact.state, 'S' | 'D' | 'I' | 'T' | 't').then_some(fact.wchan.as_deref()).flatten();
        let asleep_in = asleep.filter(|name| !name.is_empty() && *name != "0");
        let asleep_in = asleep_in.map(|name| Box::new(Frame::new(name)));
        self.mark(fact.id, fact.start_time_ns, Some(&padded(&fact.comm)), Mark::Seen { at, asleep_in });
        if let Some(life) = self.lives.get_mut(&fact.id).and_then(|lives| lives.last_mut()) {
            life.cgroup.clone_from(&fact.cgroup);
        }
    }

    /// Adds to the life of `task` that started at `start_ns` (0: the one that is running).
    fn mark(&mut self, task: TaskId, start_ns: u64, comm: Option<&[u8; 16]>, mark: Mark) {
        let full = self.mark_count >= MAX_MARKS_TOTAL;
        let exact = !matches!(mark, Mark::Seen { .. });
        let Some(life) = self.life(task, start_ns, exact, mark.at()) else {
            return;
        };
        if let Some(comm) = comm {
            life.comm = *comm;
        }
        if life.add(mark) {
            let over = full || life.marks.len() > MAX_MARKS;
            let forgotten = if over { life.marks.pop_front() } else { None };
            self.mark_count += usize::from(forgotten.is_none());
        }
    }

    fn life(&mut self, task: TaskId, start_ns: u64, exact: bool, at: MonoNs) -> Option<&mut Life> {
        let full = self.life_count >= MAX_LIVES;
        if task.tid == 0 || (full && !self.lives.contains_key(&task)) {
            return None;
        }
        let lives = self.lives.entry(task).or_default();
        let known = lives.last_mut().is_some_and(|life| life.is(start_ns, exact));
        if !known && full {
            return None;
        }
        if !known {
            if lives.is_empty() {
                self.processes.entry(task.tgid).or_default().push(task.tid);
            }
            self.life_count += 1;
            lives.push(Life::new(start_ns, exact && start_ns != 0, at));
        }
        lives.last_mut()
    }
}

impl Life {
    /// Whether a record with this start time is of this life; learns the start time if so.
    fn is(&mut self, start_ns: u64, exact: bool) -> bool {
        let tolerance = if exact && self.exact { 0 } else { START_TOLERANCE_NS };
        let same = start_ns == 0 || self.start_ns == 0 || self.start_ns.abs_diff(start_ns) <= tolerance;
        if same && start_ns != 0 && !self.exact {
            self.start_ns = start_ns;
            self.exact = exact;
        }
        same
    }
}

impl Evidence {
    /// What `task` did; a single unknown interval when nothing is known of it.
    pub(super) fn intervals(&self, task: TaskId, from: MonoNs, to: MonoNs) -> Vec<Interval<'_>> {
        let Some(life) = self.life_at(task, to) else { return Vec::new() };
        let current = life.cpu().and_then(|cpu| self.current.get(cpu as usize)).filter(|current| current.task == task);
        let seen = current.map_or(MonoNs(0), |current| current.seen);
        let walked = life.intervals(from, to, seen, &self.softirqs);
        let Usage { steps, oldest } = self.usage.get();
        let oldest = [oldest, walked.open_since].into_iter().flatten().min();
        self.usage.set(Usage { steps: steps.saturating_add(walked.steps), oldest });
        walked.intervals
    }

    /// Looks at evidence without counting what that takes.
    pub(super) fn apart(&self, look: impl FnOnce(&Self)) {
        let usage = self.usage.get();
        look(self);
        self.usage.set(usage);
    }

    /// Stretches of threads' lives that have not been told: up to the latest record of each, or up
    /// to `until`. They count as told from here on.
    pub(super) fn take_untold(&mut self, until: Option<MonoNs>) -> Vec<(TaskId, MonoNs, MonoNs)> {
        let mut untold = Vec::new();
        for (task, lives) in &mut self.lives {
            for life in lives {
                let latest = life.marks.back().map_or(life.since, Mark::at);
                let (from, to) = (life.told_until.max(life.since), until.unwrap_or(latest));
                if from < to {
                    untold.push((*task, from, to));
                    life.told_until = to;
                }
            }
        }
        untold
    }

    /// What was used since this was asked last.
    pub(super) fn take_usage(&self) -> Usage {
        self.usage.take()
    }

    /// The life that a thread number stood for at `at`.
    pub(super) fn life_at(&self, task: TaskId, at: MonoNs) -> Option<&Life> {
        let lives = self.lives.get(&task)?;
        lives.iter().rev().find(|life| life.since <= at).or(lives.first())
    }

    /// The kind of a wait and the kernel function that tells it.
    pub(super) fn wait<'a>(&'a self, blocked: &Blocked<'a>) -> Option<(Wait, &'a str)> {
        frame::classify(self.frames(blocked))
    }

    /// Why the kind of a wait is not known.
    pub(super) fn unknown_wait(&self, blocked: &Blocked<'_>) -> String {
        match (frame::innermost(self.frames(blocked)), blocked.stack) {
            (Some(name), _) => format!("asleep in {name}, which names no known kind of wait"),
            (None, StackRef::Kept(_)) => "asleep, and its kernel stack has no known names".to_owned(),
            (None, StackRef::NotKept) => "asleep, and there was no room for its kernel stack".to_owned(),
            (None, StackRef::NotTaken) => "asleep, and no kernel stack was taken".to_owned(),
        }
    }

    /// `task` and, if it sleeps, where, else what its samples are; `None` when hops are not told.
    pub(super) fn hop(&self, task: TaskId, interval: &Interval<'_>, samples: &Arc<[Sampled]>) -> Option<Hop> {
        if !self.tells_hops {
            return None;
        }
        let (frames, samples) = match &interval.state {
            State::Blocked(blocked) => (self.shown(blocked), Arc::default()),
            State::OnCpu(_) => (Vec::new(), Arc::clone(samples)),
            State::Runnable(_) | State::Stopped { .. } | State::Unknown(_) => (Vec::new(), Arc::default()),
        };
        let comm = self.life_at(task, interval.to).map_or(String::new(), |life| text(&life.comm));
        Some(Hop { comm, task, frames, user: self.user_stack(task, interval), samples })
    }

    /// The user code from which a thread left the CPU for this interval.
    pub(super) fn user_stack(&self, task: TaskId, interval: &Interval<'_>) -> Option<u32> {
        let since = match &interval.state {
            State::Blocked(blocked) => blocked.from,
            State::Runnable(runnable) => runnable.out?.at,
            State::OnCpu(_) | State::Stopped { .. } | State::Unknown(_) => return None,
        };
        self.taken.of_wait(task, since)
    }

    /// What a thread did on its CPUs between `from` and `to`, by samples.
    pub(super) fn sampled(&self, task: TaskId, from: MonoNs, to: MonoNs) -> Arc<[Sampled]> {
        self.taken.sampled(task, (from, to), &self.symbols).into()
    }

    pub(super) fn shown(&self, blocked: &Blocked<'_>) -> Vec<String> {
        let stack = self.stacks.frames(blocked.stack).iter().map(|address| self.symbols.at(*address));
        frame::shown(stack.chain(blocked.asleep_in.map(Some)))
    }

    /// The file that a wait was about, or why that is not known.
    pub(super) fn file(&self, task: TaskId, blocked: &Blocked<'_>) -> Result<&FileWait, &'static str> {
        if self.blind.files {
            return Err("whose file system and device are not known: there is no hook for it");
        }
        let found = self.storage.file(task, blocked.from);
        let found = found.ok_or("whose file system and device are not known: the call names no file")?;
        let faults = self.frames(blocked).any(|frame| frame.name() == "filemap_fault");
        let whole = self.stacks.frames(blocked.stack).len() < STACK_DEPTH;
        match (found.is_fault(), faults) {
            (true, true) => Ok(found),
            // A system call can fault on a page of another file than its own.
            (false, false) if whole => Ok(found),
            _ => Err("whose file system and device are not known: a page fault may be of another file"),
        }
    }

    /// The block request whose end ended a wait, if that was seen.
    pub(super) fn request(&self, task: TaskId, blocked: &Blocked<'_>) -> Option<&Request> {
        self.requests.ended(task, blocked.wake?.at)
    }

    /// The block request for which a thread itself was held back before it had one, if that was seen.
    pub(super) fn wanted_request(&self, task: TaskId, blocked: &Blocked<'_>) -> Option<&Request> {
        self.requests.wanted(task, blocked.from, blocked.wake?.at)
    }

    /// All of them.
    #[cfg(test)]
    pub(super) const fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Which part of a device's queue a thread itself waits in.
    pub(super) fn queue_part(&self, blocked: &Blocked<'_>) -> Option<&'static str> {
        frame::queue_part(self.frames(blocked))
    }

    /// What is known of storage and reclaim.
    pub(super) const fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Kernel locks that threads wait for on the CPU.
    pub(super) const fn spins(&self) -> &Spins {
        &self.spins
    }

    /// Exits of guests that the host handled.
    pub(super) const fn exits(&self) -> &GuestExits {
        &self.exits
    }

    /// Who but `waiter` had a CPU between `from` and `to`, as far as that is told, longest first.
    pub(super) fn runs(&self, cpu: u32, waiter: TaskId, from: MonoNs, to: MonoNs) -> Vec<Share> {
        self.runs.shares(cpu, waiter, from, to)
    }

    fn frames<'a>(&'a self, blocked: &Blocked<'a>) -> impl Iterator<Item = &'a Frame> {
        self.frames_of(blocked.stack).chain(blocked.asleep_in)
    }

    /// `pid 812/815 worker-2`.
    pub(super) fn name(&self, task: TaskId, at: MonoNs) -> String {
        let comm = self.life_at(task, at).map_or(String::new(), |life| text(&life.comm));
        described(task, &comm)
    }

    /// A thread as an offender.
    pub(super) fn offender(&self, task: TaskId, at: MonoNs) -> Offender {
        let life = self.life_at(task, at);
        let comm = life.map_or(String::new(), |life| text(&life.comm));
        let cgroup = life.map_or(String::new(), |life| life.cgroup.clone());
        Offender { comm, task, cgroup, ..Offender::default() }
    }

    /// A thread that another record names, with its cgroup where that is known.
    pub(super) fn offender_named(&self, named: &Named, at: MonoNs) -> Offender {
        Offender { comm: text(&named.comm), ..self.offender(named.task, at) }
    }

    /// Who had a CPU, with its cgroup where that is known.
    pub(super) fn offender_of(&self, share: &Share, at: MonoNs) -> Offender {
        let offender = self.offender_named(&share.who, at);
        let cgroup = self.runs.cgroup(share.who.task, share.start_ns).map_or(offender.cgroup, str::to_owned);
        Offender { cgroup, ..offender }
    }

    /// The socket with this cookie, else the one last used at this port.
    pub(super) fn socket_of(&self, cookie: u64, protocol: u8, port: u16) -> Option<&Socket> {
        let by_port = || self.ports.get(&(u32::from(protocol), u32::from(port)));
        let cookie = if cookie == 0 { by_port()? } else { &cookie };
        self.sockets.get(cookie)
    }

    /// A socket without checks on which this host asks a peer. `None` for one where peers ask: it
    /// also has the port of the checks, or was seen to be read before anything was sent.
    pub(super) fn asking(&self, cookie: u64) -> Option<&OtherSocket> {
        let socket = self.others.get(&cookie)?;
        let at_check_port = self.ports.contains_key(&(socket.protocol, socket.local_port));
        (!socket.serves && !at_check_port && !self.sockets.contains_key(&cookie)).then_some(socket)
    }

    /// The first drop of a flow's data between `from` and `to`, in either direction.
    pub(super) fn flow_drop(&self, flow: &Flow, from: MonoNs, to: MonoNs) -> Option<&FlowDrop> {
        self.flow_drops.first(flow, from, to)
    }

    /// Whether drops between `from` and `to` were too many to be told.
    pub(super) fn drops_crowded(&self, from: MonoNs, to: MonoNs) -> bool {
        self.flow_drops.may_lack(from, to)
    }

    /// Whether drops between `from` and `to` were not all told, or none was.
    pub(super) fn drops_untold(&self, from: MonoNs, to: MonoNs) -> bool {
        self.blind.drops || self.drops_crowded(from, to)
    }

    /// What was held back after a thread's last send call up to `to`, if that left something.
    pub(super) fn held_send(&self, task: TaskId, from: MonoNs, to: MonoNs) -> Option<&HeldSend> {
        self.held.last(task, from, to)
    }

    /// Whether something was held back in the same socket before, from `from` on.
    pub(super) fn held_earlier(&self, held: &HeldSend, from: MonoNs) -> bool {
        self.held.has_earlier(held, from)
    }

    /// Long softirqs of a CPU that overlap a stretch of time.
    pub(super) fn softirqs(&self, cpu: u32, from: MonoNs, to: MonoNs) -> impl Iterator<Item = &SoftirqRun> {
        self.softirqs.overlapping(cpu, from, to)
    }

    /// What a CPU spent in softirqs over a stretch of time.
    pub(super) fn softirq_tally(&self, cpu: u32, from: MonoNs, to: MonoNs) -> Tally {
        self.softirqs.tally(cpu, from, to)
    }

    /// Time of a CPU's short softirqs over a stretch of time, as far as records tell.
    pub(super) fn short_softirqs(&self, cpu: u32, from: MonoNs, to: MonoNs) -> DurNs {
        self.softirqs.short_within(cpu, from, to)
    }

    /// Time of a CPU's long softirqs over a stretch of time.
    pub(super) fn long_softirqs(&self, cpu: u32, from: MonoNs, to: MonoNs) -> DurNs {
        self.softirqs.within(cpu, from, to)
    }

    /// The thread of the kernel's that takes packets in at an interface, if no softirq does.
    pub(super) fn receiver(&self, id: InterfaceId, at: MonoNs) -> Option<TaskId> {
        let task = self.receivers.get(&id).copied()?;
        self.life_at(task, at).is_some_and(|life| receives_packets(&text(&life.comm))).then_some(task)
    }

    /// Whether a neighbour on `id` became known, for which packets waited, between these times.
    pub(super) fn neighbour_known(&self, id: InterfaceId, from: MonoNs, to: MonoNs) -> bool {
        self.neighbours.get(&id).is_some_and(|known| known.iter().rev().any(|at| (from..=to).contains(at)))
    }

    /// The thread that runs a CPU's softirqs when they are too many at a time.
    pub(super) fn softirq_thread(&self, cpu: u32) -> Option<TaskId> {
        self.softirq_threads.get(&cpu).copied()
    }

    /// The name of an interface, or its number.
    pub(super) fn interface(&self, id: InterfaceId) -> String {
        self.interfaces.get(&id).map_or_else(|| format!("interface {}", id.ifindex), |fact| fact.name.clone())
    }

    /// What is known of an interface.
    pub(super) fn interface_fact(&self, id: InterfaceId) -> Option<&InterfaceFact> {
        self.interfaces.get(&id)
    }

    /// What transmit queues carried, and who sent it.
    pub(crate) const fn queues(&self) -> &Queues {
        &self.queues
    }

    /// What the hooks of this run can tell.
    pub(super) const fn sees(&self) -> Sees {
        self.sees
    }

    /// Who takes packets out of a tap's ring.
    pub(super) fn tap(&self, id: InterfaceId) -> Option<&Tap> {
        self.taps.get(id)
    }

    /// The threads of these processes that are known.
    pub(super) fn threads_of(&self, tgids: &[u32]) -> Vec<TaskId> {
        let mut threads = Vec::new();
        for tgid in tgids {
            let tids = self.processes.get(tgid).into_iter().flatten();
            threads.extend(tids.map(|tid| TaskId { tgid: *tgid, tid: *tid }));
        }
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    /// The label of the VM or tap that a process holds, if it holds one.
    pub(super) fn machine(&self, tgid: u32) -> Option<&str> {
        let facts = self.taps.held_by(tgid).filter_map(|id| self.interfaces.get(&id));
        facts.map(|fact| fact.label.as_str()).min()
    }

    /// Whether a thread slept there because its guest had nothing to do: KVM took the guest's halt.
    pub(super) fn is_guest_halt(&self, blocked: &Blocked<'_>) -> bool {
        frame::is_guest_halt(self.frames(blocked))
    }

    /// Whether the last sleep of a thread before `at` was inside the kernel's run of a guest.
    pub(super) fn slept_in_guest_run(&self, task: TaskId, at: MonoNs) -> bool {
        let stack = self.life_at(task, at).and_then(|life| life.last_sleep_before(at));
        stack.is_some_and(|stack| frame::is_guest_run(self.frames_of(stack)))
    }

    /// The kind of the last sleep of a thread before `at`, if it is known.
    pub(super) fn last_wait(&self, task: TaskId, at: MonoNs) -> Option<Wait> {
        let stack = self.life_at(task, at)?.last_sleep_before(at)?;
        frame::classify(self.frames_of(stack)).map(|(wait, _)| wait)
    }

    fn frames_of(&self, stack: StackRef) -> impl Iterator<Item = &Frame> {
        self.stacks.frames(stack).iter().filter_map(|address| self.symbols.at(*address))
    }

    /// What threads received and sent, and how full sockets were.
    pub(super) const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// What this run cannot have seen.
    pub(super) const fn blind(&self) -> Blind {
        self.blind
    }

    /// The name of a drop reason, or its number.
    pub(super) fn drop_reason(&self, number: u32) -> String {
        self.drop_reasons.get(&number).map_or_else(|| format!("reason {number}"), Clone::clone)
    }

    /// The name of a kernel address.
    pub(super) fn symbol(&self, address: u64) -> Option<&str> {
        self.symbols.at(address).map(Frame::name)
    }
}

fn median(times: impl Iterator<Item = MonoNs>) -> MonoNs {
    let mut times: Vec<MonoNs> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn padded(comm: &str) -> [u8; 16] {
    let mut padded = [0; 16];
    padded.iter_mut().zip(comm.bytes()).for_each(|(to, from)| *to = from);
    padded
}

/// Whether a kernel thread of this name takes packets in: threaded NAPI, of a device or a backlog.
/// <https://github.com/torvalds/linux/blob/v6.12/net/core/dev.c> (`napi_kthread_create`)
pub(crate) fn receives_packets(comm: &str) -> bool {
    comm.starts_with("napi/") || comm.starts_with("backlog_napi/")
}

/// A thread's name as the kernel keeps it, NUL-padded.
pub(super) fn text(comm: &[u8; 16]) -> String {
    let len = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(comm.get(..len).unwrap_or_default()).into_owned()
}

/// `pid 812/815 worker-2`.
pub(super) fn described(task: TaskId, comm: &str) -> String {
    let TaskId { tgid, tid } = task;
    if comm.is_empty() { format!("pid {tgid}/{tid}") } else { format!("pid {tgid}/{tid} {comm}") }
}

#[cfg(test)]
mod tests {
    use super::{Evidence, MAX_LIVES, MAX_MARKS, Softirqs};
    use crate::attribution::story::{Actor, FUTEX, SERVER, Story, at};

    fn told(story: Story) -> Evidence {
        let mut story = story;
        story.tell();
        story.evidence
    }

    #[test]
    fn a_busy_thread_cannot_grow_without_bound() {
        let mut story = Story::new();
        for turn in 0..MAX_MARKS as u64 {
            story.runs(turn * 2, SERVER).sleeps(turn * 2 + 1, SERVER, 1, FUTEX);
        }
        story.softirq_storm(Softirqs::MOST as u64 + 10);
        let evidence = told(story);
        let life = evidence.life_at(SERVER.id(), at(0)).unwrap();
        assert_eq!((life.marks.len(), evidence.mark_count), (MAX_MARKS, MAX_MARKS));
        assert_eq!(evidence.softirqs.count(0), Softirqs::MOST);
    }

    #[test]
    fn many_threads_cannot_grow_it_without_bound() {
        let mut story = Story::new();
        for tid in 1..=u32::try_from(MAX_LIVES).unwrap() + 10 {
            story.runs(u64::from(tid), Actor(1, tid, "many"));
        }
        let mut evidence = told(story);
        assert_eq!((evidence.life_count, evidence.lives.len()), (MAX_LIVES, MAX_LIVES));
        evidence.trim(at(1));
        assert_eq!(evidence.life_count, MAX_LIVES, "threads that live are kept");
    }

    #[test]
    fn reads_in_a_row_take_no_room() {
        let mut story = Story::new();
        (0..1_000).for_each(|us| {
            story.reads(us, SERVER);
        });
        assert_eq!(told(story).mark_count, 1);
    }
}
