//! What is known beside the checks themselves: threads, softirqs, sockets and names.
//!
//! Every event goes in, in the order of its time; [`Attributor`](super::Attributor) asks what a
//! thread did over a stretch of time. Memory is bounded: by age ([`Evidence::trim`]) and by
//! count. In steady state a push allocates nothing.

mod interfaces;
mod sockets;
mod threads;
mod words;

pub(super) use self::sockets::{OtherSocket, Socket};
use self::threads::Current;
pub(super) use self::words::{described, text};
use super::exits::GuestExits;
use super::flow::{Flow, FlowDrop, FlowDrops};
use super::frame::Frame;
use super::futex::Futexes;
use super::held::{HeldSend, HeldSends};
use super::queue::Queues;
use super::request::Requests;
use super::run::{Runs, Share};
use super::sent::SendCalls;
use super::softirq::{SoftirqRun, Softirqs, Tally};
use super::softirq_wait::{SoftirqWait, SoftirqWaits};
use super::spin::Spins;
use super::storage::Storage;
use super::symbol::{Fast, Stacks, Symbols};
use super::taken::TakenStacks;
use super::tap::Taps;
use super::thread::{Data, Life, Mark, SoftirqRuns as _};
use super::traffic::Traffic;
use super::unseen::{Unseen, UnseenLoss};
use crate::clock::{DurNs, MonoNs};
use crate::event::{Body, Departed, Event, Fact, InterfaceFact, InterfaceId, TaskId};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

/// Begin of the name of a CPU's softirq thread; its number follows.
pub(crate) const SOFTIRQ_THREAD: &str = "ksoftirqd/";
/// Drops of a flow are kept for this long before the oldest check: what a check waits for may have
/// been dropped just before.
const DROPS_KEPT: DurNs = DurNs::from_secs(1);

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
    softirq_waits: SoftirqWaits,
    sockets: HashMap<u64, Socket, Fast>,
    ports: HashMap<(u32, u32), u64, Fast>,
    /// What last entered a socket, by CPU.
    arrived: HashMap<u32, (MonoNs, Data), Fast>,
    others: HashMap<u64, OtherSocket, Fast>,
    /// Peers of sockets, told before the first call on them.
    peers: HashMap<u64, [u8; 16], Fast>,
    flow_drops: FlowDrops,
    held: HeldSends,
    send_calls: SendCalls,
    interfaces: HashMap<InterfaceId, InterfaceFact>,
    departed: Departed,
    drop_reasons: HashMap<u32, String>,
    taps: Taps,
    traffic: Traffic,
    storage: Storage,
    requests: Requests,
    spins: Spins,
    exits: GuestExits,
    futexes: Futexes,
    runs: Runs,
    /// Threads that take packets in at an interface, outside of softirq.
    receivers: HashMap<InterfaceId, TaskId>,
    /// When neighbours became known for which packets waited, the last ones.
    neighbours: HashMap<InterfaceId, VecDeque<MonoNs>>,
    queues: Queues,
    unseen: Unseen,
    /// Softirq threads, by CPU.
    softirq_threads: HashMap<u32, TaskId, Fast>,
    /// Process of whylag itself; 0 if unknown.
    own: u32,
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
    pub(super) raises: bool,
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
            raises: lacks("softirq_raise"),
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
            Body::SoftirqWait(body) => self.softirq_waited(event, body),
            Body::BackendRx(body) => self.taken(event, body),
            Body::Xmit(body) => self.handed(event, body),
            Body::Neighbour(body) => self.neighbour(event.at, body),
            Body::FileWait(body) => self.storage.waits(event, body),
            Body::Dirtied(body) => self.storage.dirtied(event, body),
            Body::Reclaim(body) => self.storage.reclaimed(event, body),
            Body::BlockRequest(body) => self.requests.add(event, body),
            Body::LockSpin(body) => self.spins.add(event, body),
            Body::FutexWait(body) => self.futex_wait(event, body),
            Body::GuestExits(body) => self.exits.add(event, body),
            Body::Ran(body) => self.ran(event, body.ran_ns, (body.comm, body.start_time_ns)),
            Body::QdiscEnqueue(body) => self.send_calls.enters(event.at, body),
            Body::QdiscDequeue(body) => self.send_calls.leaves(body.skb),
            Body::Drop(body) => {
                self.send_calls.leaves(body.skb);
                self.flow_drops.add(event, body);
                self.send_calls.dropped(event);
            }
            Body::OtherPeer(body) => self.peer(body),
            Body::SockSend(body) => self.answered(event, body),
            Body::SendHeld(body) => self.held.add(event, body),
            Body::Fact(fact) => self.fact(event.at, fact),
            Body::PacketIngress(body) => self.ingress(event, body),
            Body::PacketEgress(_) | Body::AcceptFull(_) | Body::Tick => {}
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
        self.softirq_waits.trim(before);
        self.flow_drops.trim(before.before(DROPS_KEPT));
        self.held.trim(before.before(DROPS_KEPT));
        self.send_calls.trim(before.before(DROPS_KEPT));
        self.trim_sockets();
        self.traffic.trim(before);
        self.storage.trim(before);
        self.requests.trim(before);
        self.spins.trim(before);
        self.exits.trim(before);
        self.futexes.trim(before);
        self.runs.trim(before);
        self.queues.trim(before);
        self.taken.trim(before);
        if self.stacks.crowded() {
            let used = self.stacks_in_use();
            self.stacks.retain(&used);
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

    fn fact(&mut self, at: MonoNs, fact: &Fact) {
        match fact {
            Fact::Symbol { address, name } => self.symbols.learn(*address, name),
            Fact::DropReason { number, name } => {
                self.drop_reasons.insert(*number, name.clone());
            }
            Fact::Interface(fact) => {
                self.departed.come(fact.id);
                self.unseen.meet(fact);
                self.interfaces.insert(fact.id, fact.clone());
            }
            Fact::Gone { interface, .. } => self.gone(at, *interface),
            Fact::Task(fact) => self.task(at, fact),
            Fact::Runner { id, start_time_ns, cgroup } => self.runs.learn_cgroup(*id, *start_time_ns, cgroup),
            Fact::Device { number, name, below } => self.storage.learn_device(*number, name, below),
            Fact::Hooks { active } => {
                self.learn_hooks(active);
                self.blind = Blind::of(active);
            }
            Fact::Taken(taken) if self.tells_hops => self.taken.add(at, taken),
            Fact::Taken(_) => {}
            Fact::Own { tgid } => self.own = *tgid,
            Fact::Queue(fact) => self.queues.add(fact),
            Fact::Levels { .. } => self.unseen.learn(fact),
            Fact::Holders { interface, tgids } => self.taps.hold(*interface, tgids),
            _ => debug_assert!(!fact.learners().evidence),
        }
    }

    /// All of them.
    #[cfg(test)]
    pub(super) const fn requests(&self) -> &Requests {
        &self.requests
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
    pub(super) const fn futexes(&self) -> &Futexes {
        &self.futexes
    }

    /// All of them.
    pub(super) const fn exits(&self) -> &GuestExits {
        &self.exits
    }

    /// What a NIC may have lost between `from` and `to` before the kernel had it.
    pub fn unseen_loss(&self, interface: InterfaceId, from: MonoNs, to: MonoNs) -> Option<UnseenLoss> {
        self.unseen.between(interface, from, to)
    }

    /// Whether its counters are read, but not so that what it lost in that time shows.
    pub fn is_unread(&self, interface: InterfaceId, from: MonoNs, to: MonoNs) -> bool {
        self.unseen.is_unread(interface, from, to)
    }

    /// Whether the reading at `at` found that it had lost more.
    pub fn lost_unseen(&self, interface: InterfaceId, at: MonoNs) -> bool {
        self.unseen.grew(interface, at)
    }

    /// What each NIC has lost so since it was first read.
    pub fn unseen_losses(&self) -> impl Iterator<Item = (InterfaceId, UnseenLoss)> {
        self.unseen.all()
    }

    /// Whether all that is to be known of that until `to` is known `now`.
    #[must_use]
    pub fn knows_unseen(&self, interface: InterfaceId, to: MonoNs, now: MonoNs) -> bool {
        self.unseen.is_settled(interface, to, now)
    }

    /// Who but `waiter` had a CPU between `from` and `to`, as far as that is told, longest first.
    pub(super) fn runs(&self, cpu: u32, waiter: TaskId, from: MonoNs, to: MonoNs) -> Vec<Share> {
        self.runs.shares(cpu, waiter, from, to)
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

    /// What send calls returned that failed, or within which a packet was dropped.
    pub(super) const fn send_calls(&self) -> &SendCalls {
        &self.send_calls
    }

    /// Whether something was held back in the same socket before, from `from` on.
    pub(super) fn held_earlier(&self, held: &HeldSend, from: MonoNs) -> bool {
        self.held.has_earlier(held, from)
    }

    /// Long softirqs of a CPU that overlap a stretch of time.
    pub(super) fn softirqs(&self, cpu: u32, from: MonoNs, to: MonoNs) -> impl Iterator<Item = &SoftirqRun> {
        self.softirqs.overlapping(cpu, from, to)
    }

    /// When received packets waited on a CPU for a softirq that was due.
    pub(super) fn softirq_waits(&self, cpu: u32, from: MonoNs, to: MonoNs) -> impl Iterator<Item = &SoftirqWait> {
        self.softirq_waits.overlapping(cpu, from, to)
    }

    #[cfg(test)]
    pub(super) fn softirq_wait_count(&self, cpu: u32) -> usize {
        self.softirq_waits.count(cpu)
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

    /// The thread that runs a CPU's softirqs when they are too many at a time.
    pub(super) fn softirq_thread(&self, cpu: u32) -> Option<TaskId> {
        self.softirq_threads.get(&cpu).copied()
    }

    /// What transmit queues carried, and who sent it.
    pub(crate) const fn queues(&self) -> &Queues {
        &self.queues
    }

    /// What the hooks of this run can tell.
    pub(super) const fn sees(&self) -> Sees {
        self.sees
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

/// Whether a kernel thread of this name takes packets in: threaded NAPI, of a device or a backlog.
/// <https://github.com/torvalds/linux/blob/v6.12/net/core/dev.c> (`napi_kthread_create`)
pub(crate) fn receives_packets(comm: &str) -> bool {
    comm.starts_with("napi/") || comm.starts_with("backlog_napi/")
}

#[cfg(test)]
mod tests {
    use super::threads::{MAX_LIVES, MAX_MARKS};
    use super::{Evidence, Softirqs};
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
