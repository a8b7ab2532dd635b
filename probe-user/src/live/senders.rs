//! Who sends through transmit queues, from the kernel's counts to facts: one a queue and reading.

use super::clock;
use super::stacks::Say;
use crate::clock::{DurNs, MonoNs};
use crate::event::{Fact, InterfaceId, TaskId};
use crate::load::{Attached, LoadError, SentRound};
use crate::sender::{FlowFact, QueueFact, Rest, SenderFact, Sent, Who};
use crate::target::task_fact;
use probe_wire::{Sender, SentCount, SentKey};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// How often the counts are read at most: with each tick of a run that is not busy, so that a check is
/// judged with what was sent until then.
const READ_EVERY: DurNs = DurNs::from_millis(50);
/// Senders that are told of a queue one by one.
const TOLD: usize = 16;
/// Flows that are told of a sender.
const FLOWS: usize = 4;
/// Sockets whose sender is remembered; beyond it all are asked for again.
const MOST_SOCKETS: usize = 1 << 14;
/// `/proc` rounds a start time to a clock tick.
const START_TOLERANCE_NS: u64 = 20_000_000;

/// Reads counts and says them.
#[derive(Debug, Default)]
pub(super) struct Senders {
    turn: u32,
    /// Since when the programs count for this turn.
    since: MonoNs,
    /// Since when they counted for the one before, if that has not been read.
    before: Option<MonoNs>,
    /// By cookie; a socket whose sender is not known yet is asked for each time.
    sockets: HashMap<u64, Who>,
    uncounted: Sent,
}

impl Senders {
    pub(super) fn new(now: MonoNs) -> Self {
        Self { since: now, ..Self::default() }
    }

    /// Begins another turn, if it is due. What was counted before is read by [`say`](Self::say), a
    /// moment later.
    pub(super) fn turn(&mut self, now: MonoNs, attached: &mut Attached) -> Result<(), LoadError> {
        if self.before.is_some() || now.since(self.since) < READ_EVERY {
            return Ok(());
        }
        attached.turn_senders(self.turn.wrapping_add(1))?;
        self.turn = self.turn.wrapping_add(1);
        self.before = Some(std::mem::replace(&mut self.since, clock::now()));
        Ok(())
    }

    /// Says what was counted in the turn before, if one has ended.
    pub(super) fn say(
        &mut self,
        attached: &mut Attached,
        watched: &HashSet<InterfaceId>,
        say: Say<'_>,
    ) -> Result<(), LoadError> {
        let Some(from) = self.before.take() else { return Ok(()) };
        let to = self.since;
        let SentRound { counts, uncounted } = attached.sent(self.turn)?;
        let all = Sent { packets: uncounted.packets, bytes: uncounted.bytes };
        let fresh = Sent { packets: all.packets - self.uncounted.packets, bytes: all.bytes - self.uncounted.bytes };
        self.uncounted = all;
        let mut queues: BTreeMap<(InterfaceId, u32), Counted> = BTreeMap::new();
        for (key, values) in counts {
            let interface = InterfaceId { netns: key.netns, ifindex: key.ifindex };
            if watched.contains(&interface) {
                let who = self.who(&key, attached)?;
                queues.entry((interface, key.queue)).or_default().add(who, &values);
            }
        }
        for ((interface, queue), counted) in queues {
            let fact = counted.fact(QueueFact { uncounted: fresh, ..empty(interface, queue, from, to) });
            say(to, &Fact::Queue(Box::new(fact)));
        }
        Ok(())
    }

    fn who(&mut self, key: &SentKey, attached: &Attached) -> Result<Who, LoadError> {
        if key.socket == 0 {
            let ifindex = key.came_in;
            return Ok(if ifindex == 0 { Who::Unknown } else { Who::Interface { ifindex } });
        }
        let known = self.sockets.get(&key.socket);
        let Some(sender) = attached.sender(key.socket)? else { return Ok(known.cloned().unwrap_or(Who::Unknown)) };
        if let Some(known @ Who::Task { id, start_time_ns, shared, .. }) = known
            && (id.tgid, *start_time_ns, *shared) == (sender.tgid, sender.start_time_ns, sender.shared != 0)
        {
            return Ok(known.clone());
        }
        let who = task(&sender);
        if self.sockets.len() >= MOST_SOCKETS {
            self.sockets.clear();
        }
        self.sockets.insert(key.socket, who.clone());
        Ok(who)
    }
}

/// The name may have changed since then: the kernel's word counts.
fn task(sender: &Sender) -> Who {
    let Sender { start_time_ns, comm, tgid, tid, shared, .. } = *sender;
    let id = TaskId { tgid, tid };
    let same = task_fact(id).filter(|fact| fact.start_time_ns.abs_diff(start_time_ns) <= START_TOLERANCE_NS);
    let len = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    Who::Task {
        id,
        start_time_ns,
        comm: String::from_utf8_lossy(comm.get(..len).unwrap_or_default()).into_owned(),
        cgroup: same.map(|fact| fact.cgroup).unwrap_or_default(),
        shared: shared != 0,
    }
}

fn empty(interface: InterfaceId, queue: u32, from: MonoNs, to: MonoNs) -> QueueFact {
    let (cpus, senders) = (Vec::new(), Vec::new());
    let nothing = Sent { packets: 0, bytes: 0 };
    QueueFact {
        interface,
        queue,
        from,
        to,
        cpus,
        senders,
        rest: Rest { senders: 0, sent: nothing },
        uncounted: nothing,
    }
}

/// What one queue carried.
#[derive(Debug, Default)]
struct Counted {
    cpus: BTreeMap<u32, u64>,
    senders: BTreeMap<Who, Vec<FlowFact>>,
}

impl Counted {
    fn add(&mut self, who: Who, values: &[SentCount]) {
        let mut sent = Sent::default();
        for (cpu, value) in (0..).zip(values).filter(|(_, value)| value.packets > 0) {
            *self.cpus.entry(cpu).or_default() += value.packets;
            sent = sent.plus(Sent { packets: value.packets, bytes: value.bytes });
        }
        // Only the CPU that began to count has looked at the packet.
        let ends = values.iter().find(|value| value.protocol != 0).copied().unwrap_or_default();
        let SentCount { source, destination, source_port, destination_port, protocol, .. } = ends;
        let protocol = u8::try_from(protocol).unwrap_or(0);
        self.senders.entry(who).or_default().push(FlowFact {
            source,
            destination,
            source_port,
            destination_port,
            protocol,
            sent,
        });
    }

    fn fact(self, fact: QueueFact) -> QueueFact {
        let mut senders: Vec<_> = self.senders.into_iter().map(|(who, flows)| sender(who, flows)).collect();
        senders.sort_by_key(|sender| Reverse(sender.sent.bytes));
        let others = senders.split_off(senders.len().min(TOLD));
        let sent = others.iter().fold(Sent::default(), |sum, sender| sum.plus(sender.sent));
        let rest = Rest { senders: others.len() as u64, sent };
        QueueFact { cpus: self.cpus.into_iter().collect(), senders, rest, ..fact }
    }
}

fn sender(who: Who, mut flows: Vec<FlowFact>) -> SenderFact {
    let sent = flows.iter().fold(Sent::default(), |sum, flow| sum.plus(flow.sent));
    let flow_count = flows.len() as u64;
    flows.sort_by_key(|flow| Reverse(flow.sent.bytes));
    flows.truncate(FLOWS);
    SenderFact { who, sent, flows, flow_count }
}
