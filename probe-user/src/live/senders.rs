//! Who sends through transmit queues, from the kernel's counts to facts: one a queue and reading.

use super::clock;
use super::stacks::Say;
use crate::clock::{DurNs, MonoNs};
use crate::event::{Fact, InterfaceId, TaskId};
use crate::load::{Attached, LoadError, SentRound};
use crate::sender::{FlowFact, QueueFact, Rest, SenderFact, Sent, Who};
use crate::target::task_fact;
use probe_wire::{Sender, SentCount, SentKey, Uncounted};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// How often the counts are read at most: with each tick of a run that is not busy, so that a check is
/// judged with what was sent until then.
const READ_EVERY: DurNs = DurNs::from_millis(50);
/// Senders that are told of a queue one by one.
const TOLD: usize = 16;
/// Flows that are told of a sender.
const FLOWS: usize = 4;
/// Standard deviations in which the truth is in 95 of 100 cases.
const DEVIATIONS: u64 = 2;
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
    uncounted: Uncounted,
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
        is_watched: impl Fn(InterfaceId) -> bool,
        say: Say<'_>,
    ) -> Result<(), LoadError> {
        let Some(from) = self.before.take() else { return Ok(()) };
        let to = self.since;
        let SentRound { counts, uncounted } = attached.sent(self.turn)?;
        let Uncounted { packets, bytes } = self.uncounted;
        let fresh = Sent { packets: uncounted.packets - packets, bytes: uncounted.bytes - bytes, error_bytes: 0 };
        self.uncounted = uncounted;
        let mut queues: BTreeMap<(InterfaceId, u32), Counted> = BTreeMap::new();
        for (key, values) in counts {
            let interface = InterfaceId { netns: key.netns, ifindex: key.ifindex };
            if is_watched(interface) {
                let who = self.who(&key, attached)?;
                queues.entry((interface, key.queue)).or_default().add(who, &key, &values);
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
    let nothing = Sent::default();
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
    senders: BTreeMap<Who, Sockets>,
}

/// What a sender sent through its sockets, by their cookies. What came in has none, and is one.
type Sockets = BTreeMap<u64, Socket>;

#[derive(Debug, Default)]
struct Socket {
    /// All that was sent; its ends are those of the first packet.
    whole: FlowFact,
    /// What did not go through a connected socket, flow by flow.
    flows: Vec<FlowFact>,
}

impl Counted {
    fn add(&mut self, who: Who, key: &SentKey, values: &[SentCount]) {
        let socket = self.senders.entry(who).or_default().entry(key.socket).or_default();
        if key.flow != 0 {
            socket.flows.push(flow(values));
            return;
        }
        socket.whole = flow(values);
        for (cpu, value) in (0..).zip(values).filter(|(_, value)| value.packets > 0) {
            *self.cpus.entry(cpu).or_default() += value.packets;
        }
    }

    fn fact(self, fact: QueueFact) -> QueueFact {
        let senders = self.senders.into_iter().map(|(who, sockets)| sender(who, sockets));
        let mut senders: Vec<_> = senders.filter(|sender| sender.sent.packets > 0).collect();
        senders.sort_by_key(|sender| Reverse(sender.sent.bytes));
        let others = senders.split_off(senders.len().min(TOLD));
        let sent = others.iter().fold(Sent::default(), |sum, sender| sum.plus(sender.sent));
        let rest = Rest { senders: others.len() as u64, sent };
        QueueFact { cpus: self.cpus.into_iter().collect(), senders, rest, ..fact }
    }
}

/// The sum over CPUs.
fn flow(values: &[SentCount]) -> FlowFact {
    let sum = |field: fn(&SentCount) -> u64| values.iter().map(field).fold(0, u64::saturating_add);
    let sent = Sent {
        packets: sum(|value| value.packets),
        bytes: sum(|value| value.bytes),
        error_bytes: DEVIATIONS * sum(|value| value.squares).isqrt(),
    };
    // Only the CPU that began to count has looked at the packet.
    let ends = values.iter().find(|value| value.protocol != 0).copied().unwrap_or_default();
    let SentCount { source, destination, source_port, destination_port, protocol, .. } = ends;
    let protocol = u8::try_from(protocol).unwrap_or(0);
    FlowFact { source, destination, source_port, destination_port, protocol, sent }
}

fn sender(who: Who, sockets: Sockets) -> SenderFact {
    let sent = sockets.values().fold(Sent::default(), |sum, socket| sum.plus(socket.whole.sent));
    let flows_sampled = sockets.values().any(Socket::is_sampled);
    let mut flows: Vec<_> = sockets.into_values().flat_map(Socket::flows).collect();
    let flow_count = flows.len() as u64;
    flows.sort_by_key(|flow| Reverse(flow.sent.bytes));
    flows.truncate(FLOWS);
    SenderFact { who, sent, flows, flow_count, flows_sampled }
}

impl Socket {
    /// Without other flows it is one itself.
    fn flows(self) -> Vec<FlowFact> {
        if self.flows.is_empty() { vec![self.whole] } else { self.flows }
    }

    fn is_sampled(&self) -> bool {
        self.flows.iter().any(|flow| flow.sent.error_bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(packets: u64, squares: u64, port: u16) -> SentCount {
        SentCount {
            packets,
            bytes: packets * 100,
            squares,
            source_port: port,
            protocol: u32::from(port > 0) * 17,
            ..SentCount::default()
        }
    }

    fn key(socket: u64, flow: u64) -> SentKey {
        SentKey { netns: 1, socket, flow, ifindex: 2, queue: 0, came_in: 0, turn: 0 }
    }

    fn fact(rows: &[(SentKey, [SentCount; 2])]) -> QueueFact {
        let mut counted = Counted::default();
        for (key, values) in rows {
            counted.add(Who::Unknown, key, values);
        }
        counted.fact(empty(InterfaceId { netns: 1, ifindex: 2 }, 0, MonoNs(0), MonoNs(1)))
    }

    #[test]
    fn flows_are_parts_of_what_their_socket_sent_and_count_no_packet_twice() {
        let rows = [
            (key(1, 0), [count(300, 0, 7), count(100, 0, 0)]),
            (key(2, 0), [count(50, 0, 8), count(0, 0, 0)]),
            (key(2, 11), [count(32, 900, 8), count(0, 0, 0)]),
            (key(2, 12), [count(16, 2_500, 9), count(0, 0, 0)]),
        ];
        let fact = fact(&rows);
        let [sender] = &fact.senders[..] else { panic!("one sender") };
        assert_eq!((fact.cpus.as_slice(), sender.sent.packets), ([(0, 350), (1, 100)].as_slice(), 450));
        assert_eq!((sender.sent.error_bytes, sender.flow_count, sender.flows_sampled), (0, 3, true));
        let flows: Vec<_> = sender.flows.iter().map(|flow| (flow.source_port, flow.sent.error_bytes)).collect();
        assert_eq!(flows, [(7, 0), (8, 60), (9, 100)]);
    }

    #[test]
    fn a_flow_without_packets_of_its_sender_is_nothing() {
        assert_eq!(fact(&[(key(2, 11), [count(32, 900, 8), count(0, 0, 0)])]).senders, []);
        let fact = fact(&[(key(1, 0), [count(3, 0, 7); 2])]);
        assert_eq!((fact.senders[0].flow_count, fact.senders[0].flows_sampled), (1, false));
    }
}
