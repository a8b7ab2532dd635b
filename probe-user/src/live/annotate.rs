//! What a record needs to be understood, said before it: names of kernel addresses and of drop
//! reasons, and the threads that it is about.

use super::device::device_fact;
use crate::attribution::receives_packets;
use crate::clock::MonoNs;
use crate::event::{Body, Event, Fact, InterfaceFact, InterfaceId, InterfaceRole, TaskFact, TaskId, decode};
use crate::symbols::KernelSymbols;
use crate::target::{task_fact, task_facts};
use probe_wire::{EventHeader, EventKind, PacketBody};
use std::collections::HashSet;
use zerocopy::FromBytes;

/// Threads looked up in one second: a storm of short-lived threads must not become ours.
const LOOKUPS_PER_SECOND: u32 = 1_000;
/// Threads remembered; beyond it all are forgotten and said again when they are next seen.
const MOST_THREADS: usize = 1 << 16;

/// `/proc` rounds a start time to a clock tick.
const START_TOLERANCE_NS: u64 = 20_000_000;
/// Devices whose names are said.
const MOST_DEVICES: usize = 1 << 12;
/// Most threads that are looked at because they took a packet in.
const MOST_RECEIVERS: usize = 256;
/// Most processes that are told to take packets out of rings.
const MOST_TAKERS: usize = 4_096;

/// Knows what has been said already.
#[derive(Debug)]
pub(super) struct Annotator {
    symbols: KernelSymbols,
    drop_reasons: Vec<(u32, String)>,
    said_addresses: HashSet<u64>,
    said_reasons: HashSet<u32>,
    said_devices: HashSet<u32>,
    said_threads: HashSet<TaskId>,
    /// With the start time of their records.
    said_runners: HashSet<(TaskId, u64)>,
    second: u64,
    lookups: u32,
    /// Interfaces behind a ring, whose receiving threads are watched; empty if softirqs are not,
    /// because then no thread can be told from what a softirq interrupted.
    behind_rings: HashSet<InterfaceId>,
    receivers: HashSet<TaskId>,
    new_receivers: Vec<u32>,
    takers: HashSet<u32>,
    new_takers: Vec<u32>,
}

impl Annotator {
    pub(super) fn new(symbols: KernelSymbols, drop_reasons: Vec<(u32, String)>) -> Self {
        Self {
            symbols,
            drop_reasons,
            said_addresses: HashSet::new(),
            said_reasons: HashSet::new(),
            said_devices: HashSet::new(),
            said_threads: HashSet::new(),
            said_runners: HashSet::new(),
            second: 0,
            lookups: 0,
            behind_rings: HashSet::new(),
            receivers: HashSet::new(),
            new_receivers: Vec::new(),
            takers: HashSet::new(),
            new_takers: Vec::new(),
        }
    }

    /// Looks out for the threads that take packets in at an interface, which has a stage before it.
    pub(super) fn look_behind_ring(&mut self, interface: &InterfaceFact) {
        if interface.role != InterfaceRole::PhysicalNic {
            self.behind_rings.insert(interface.id);
        }
    }

    /// Processes whose threads take packets in, each told once.
    pub(super) fn take_receivers(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.new_receivers)
    }

    /// Processes whose threads took packets out of rings of taps, each told once.
    pub(super) fn take_takers(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.new_takers)
    }

    fn taker(&mut self, event: &Event) {
        let tgid = event.task.tgid;
        if event.softirq == 0 && self.takers.len() < MOST_TAKERS && self.takers.insert(tgid) {
            self.new_takers.push(tgid);
        }
    }

    fn receiver(&mut self, event: &Event, body: &PacketBody) {
        let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        let room = self.receivers.len() < MOST_RECEIVERS;
        if room
            && self.behind_rings.contains(&id)
            && self.receivers.insert(event.task)
            && task_fact(event.task).is_some_and(|fact| receives_packets(&fact.comm))
        {
            self.new_receivers.push(event.task.tgid);
        }
    }

    /// Gives `say` every fact that must stand before `record`.
    pub(super) fn before(&mut self, record: &[u8], say: &mut dyn FnMut(MonoNs, &Fact)) {
        if !names_something(record) {
            return;
        }
        let Ok(event) = decode(record) else { return };
        self.begin(event.at);
        let mut say_now = |fact: &Fact| say(event.at, fact);
        match &event.body {
            Body::SwitchOut(body) => {
                self.frames(&body.stack, body.stack_len, &mut say_now);
                self.thread(event.task, &mut say_now);
            }
            Body::SoftirqWait(body) => {
                self.frames(&body.stack, body.stack_len, &mut say_now);
                self.runner(event.task, body.start_time_ns, &mut say_now);
            }
            Body::Drop(body) => {
                self.address(body.location, &mut say_now);
                self.reason(body.reason, &mut say_now);
            }
            Body::BackendRx(body) => {
                self.address(body.location, &mut say_now);
                self.thread(event.task, &mut say_now);
                self.taker(&event);
            }
            Body::Ran(body) => self.runner(event.task, body.start_time_ns, &mut say_now),
            Body::FileWait(body) => self.device(body.device, event.task, &mut say_now),
            Body::Dirtied(body) => self.device(body.device, event.task, &mut say_now),
            Body::BlockRequest(body) => self.device(body.device, event.task, &mut say_now),
            Body::PacketIngress(body) => self.receiver(&event, body),
            Body::TaskExit(_) => {
                self.said_threads.remove(&event.task);
            }
            _ => self.thread(thread_of(&event), &mut say_now),
        }
    }

    /// Says what is known of all threads of a process.
    pub(super) fn process(&mut self, tgid: u32, say: &mut dyn FnMut(&Fact)) {
        for fact in task_facts(tgid) {
            self.task(fact, say);
        }
    }

    /// Says what a sample of a thread needs: names of its kernel functions, and the thread.
    pub(super) fn stack(&mut self, task: TaskId, kernel: &[u64], say: &mut dyn FnMut(&Fact)) {
        kernel.iter().for_each(|address| self.address(*address, say));
        self.thread(task, say);
    }

    fn thread(&mut self, id: TaskId, say: &mut dyn FnMut(&Fact)) {
        if id.tid == 0 || self.said_threads.contains(&id) || self.lookups >= LOOKUPS_PER_SECOND {
            return;
        }
        self.lookups += 1;
        match task_fact(id) {
            Some(fact) => self.task(fact, say),
            // It is gone already, and will not be looked for again.
            None => drop(self.said_threads.insert(id)),
        }
    }

    /// Says the cgroup of a thread that nobody watches.
    fn runner(&mut self, id: TaskId, start_time_ns: u64, say: &mut dyn FnMut(&Fact)) {
        let life = (id, start_time_ns);
        if self.said_runners.contains(&life) || self.lookups >= LOOKUPS_PER_SECOND {
            return;
        }
        self.lookups += 1;
        if self.said_runners.len() >= MOST_THREADS {
            self.said_runners.clear();
        }
        self.said_runners.insert(life);
        // The number may stand for another by now.
        let same = |fact: &TaskFact| fact.start_time_ns.abs_diff(start_time_ns) <= START_TOLERANCE_NS;
        if let Some(TaskFact { cgroup, .. }) = task_fact(id).filter(same).filter(|fact| !fact.cgroup.is_empty()) {
            say(&Fact::Runner { id, start_time_ns, cgroup });
        }
    }

    fn begin(&mut self, at: MonoNs) {
        let second = at.0 / 1_000_000_000;
        if second != self.second {
            (self.second, self.lookups) = (second, 0);
        }
    }

    fn task(&mut self, fact: TaskFact, say: &mut dyn FnMut(&Fact)) {
        if self.said_threads.len() >= MOST_THREADS {
            self.said_threads.clear();
        }
        if self.said_threads.insert(fact.id) {
            say(&Fact::Task(fact));
        }
    }

    fn frames(&mut self, stack: &[u64], len: u32, say: &mut dyn FnMut(&Fact)) {
        stack.iter().take(len as usize).for_each(|address| self.address(*address, say));
    }

    fn address(&mut self, address: u64, say: &mut dyn FnMut(&Fact)) {
        if address == 0 || !self.said_addresses.insert(address) {
            return;
        }
        if let Some(name) = self.symbols.name(address) {
            say(&Fact::Symbol { address, name: name.to_owned() });
        }
    }

    /// Says what is known of a device that a thread used, and of those that it is made of. The number of
    /// one that was removed may come back under another name; that is told as the first.
    fn device(&mut self, number: u32, task: TaskId, say: &mut dyn FnMut(&Fact)) {
        let mut unsaid = vec![number];
        while let Some(number) = unsaid.pop() {
            if self.said_devices.len() >= MOST_DEVICES || !self.said_devices.insert(number) {
                continue;
            }
            let Some(fact) = device_fact(number, task) else { continue };
            if let Fact::Device { below, .. } = &fact {
                unsaid.extend(below);
            }
            say(&fact);
        }
    }

    fn reason(&mut self, number: u32, say: &mut dyn FnMut(&Fact)) {
        if !self.said_reasons.insert(number) {
            return;
        }
        if let Some((_, name)) = self.drop_reasons.iter().find(|(known, _)| *known == number) {
            say(&Fact::DropReason { number, name: name.clone() });
        }
    }
}

/// The thread that an event is about, if it must be watched for the event to exist.
fn thread_of(event: &Event) -> TaskId {
    match &event.body {
        Body::SwitchIn(body) => TaskId { tgid: body.tgid, tid: body.tid },
        Body::Waking(body) => TaskId { tgid: body.tgid, tid: body.tid },
        Body::TaskFork(body) => TaskId { tgid: body.tgid, tid: body.tid },
        Body::SockRead(_) | Body::SockSend(_) => event.task,
        _ => TaskId::default(),
    }
}

/// Cheap look at the kind: packets, the most of all records, name nothing, unless a thread takes
/// them in.
fn names_something(record: &[u8]) -> bool {
    let Ok((header, _)) = EventHeader::read_from_prefix(record) else { return false };
    EventKind::try_from(header.kind).is_ok_and(|kind| match kind {
        EventKind::PacketIngress => header.softirq == 0 && header.tid != 0,
        EventKind::SwitchOut
        | EventKind::SwitchIn
        | EventKind::Waking
        | EventKind::Drop
        | EventKind::TaskExit
        | EventKind::TaskFork
        | EventKind::SockRead
        | EventKind::SockSend
        | EventKind::FileWait
        | EventKind::Dirtied
        | EventKind::BlockRequest
        | EventKind::Ran
        | EventKind::SoftirqWait
        | EventKind::BackendRx => true,
        EventKind::PacketEgress
        | EventKind::SockEnqueue
        | EventKind::OtherRead
        | EventKind::OtherSend
        | EventKind::AcceptFull
        | EventKind::OtherPeer
        | EventKind::SendHeld
        | EventKind::QdiscEnqueue
        | EventKind::QdiscDequeue
        | EventKind::Xmit
        | EventKind::Reclaim
        | EventKind::LockSpin
        | EventKind::FutexWait
        | EventKind::GuestExits
        | EventKind::Softirq
        | EventKind::Neighbour => false,
    })
}
