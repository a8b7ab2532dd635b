//! Over a run: who filled each queue while checks waited in it.

use super::advice::{Advice, advice};
use super::{FlowFact, QueueFact, SenderFact, Sent, Who};
use crate::attribution::{QueueWait, named_sender};
use crate::clock::{DurNs, MonoNs};
use crate::event::{Fact, InterfaceId};
use crate::host::HostFact;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Most queues of a run.
const MOST_QUEUES: usize = 256;
/// Most senders of a queue; what others sent is in the sums.
const MOST_SENDERS: usize = 256;
/// Senders that are told of a queue.
const TOLD: usize = 16;
/// Senders that a sentence names.
const NAMED: usize = 4;
/// Flows that are told of a sender.
const FLOWS: usize = 4;
/// Flows that are kept of a sender until then.
const MOST_FLOWS: usize = 32;
/// Interfaces whose queues are known.
const MOST_INTERFACES: usize = 4_096;

/// Sums over the queues that checks waited in.
#[derive(Debug, Default)]
pub struct QueueTable {
    queues: BTreeMap<(InterfaceId, u32), Queue>,
    interfaces: BTreeMap<InterfaceId, Interface>,
}

/// What is known of an interface's queues.
#[derive(Debug, Default)]
struct Interface {
    tx_queues: Option<u32>,
    most_queues: Option<u32>,
    xps_cpus: Vec<String>,
}

#[derive(Debug, Default)]
struct Queue {
    windows: HashSet<MonoNs>,
    span: Option<(MonoNs, MonoNs)>,
    senders: BTreeMap<Who, Sums>,
    sent: Sent,
    uncounted: Sent,
    cpus: BTreeMap<u32, u64>,
    busy: BTreeSet<u32>,
    checks: u64,
    wait: DurNs,
}

#[derive(Debug, Default)]
struct Sums {
    sent: Sent,
    wait: DurNs,
    flows: Vec<FlowFact>,
    most_flows: u64,
    flows_sampled: bool,
}

/// Who filled a transmit queue while checks waited in it, or when it dropped them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueShare {
    /// Interface.
    pub interface: InterfaceId,
    /// Queue, from 0 on.
    pub queue: u32,
    /// Start of the first window in which a check waited there.
    pub from: MonoNs,
    /// End of the last.
    pub to: MonoNs,
    /// Checks that waited there, or were dropped.
    pub checks: u64,
    /// How long they waited, summed; of a dropped check, until the drop.
    pub wait: DurNs,
    /// What the queue handed to the driver in all these windows.
    pub sent: Sent,
    /// Packets of all queues that were not counted meanwhile, for want of room.
    pub uncounted: Sent,
    /// Who sent, the one with the largest share of the wait first; at most 16.
    pub senders: Vec<SenderShare>,
    /// Senders in all.
    pub sender_count: u64,
    /// CPUs that handed packets to the driver, the one with the most first, and how many.
    pub cpus: Vec<(u32, u64)>,
    /// Queues of the interface that carried something in these windows, this one included.
    pub busy_queues: Vec<u32>,
    /// Transmit queues of the interface, if known.
    pub tx_queues: Option<u32>,
    /// Most queues that its hardware has, if it says.
    pub most_queues: Option<u32>,
    /// CPUs that use this queue (XPS), as a mask, if that is set and known.
    pub xps_cpus: Option<String>,
}

impl QueueShare {
    /// What the queue of one wait carried.
    #[must_use]
    pub(crate) fn of(wait: &QueueWait) -> Option<Self> {
        let mut table = QueueTable::default();
        table.push(std::slice::from_ref(wait));
        table.shares().pop()
    }

    /// Queues that carried nothing meanwhile.
    #[must_use]
    pub fn idle_queues(&self) -> Vec<u32> {
        (0..self.tx_queues.unwrap_or(0)).filter(|queue| !self.busy_queues.contains(queue)).collect()
    }

    /// Who filled the queue of this device, in a sentence; `interface` names one by its index.
    #[must_use]
    pub fn sentence(&self, device: &str, interface: &dyn Fn(u32) -> String) -> String {
        let part = |sender: &SenderShare| {
            format!("{} {}", named_sender(&sender.who, interface), sender.sent.share_of(self.sent))
        };
        let shares: Vec<_> = self.senders.iter().take(NAMED).map(part).collect();
        let count =
            if self.sender_count == 1 { "1 sender".to_owned() } else { format!("{} senders", self.sender_count) };
        format!("{count} on queue {} of {device}, of its bytes: {}", self.queue, shares.join(", "))
    }

    /// What would relieve the queue of this device, as far as what was measured points to it.
    #[must_use]
    pub fn advice(&self, device: &str) -> Vec<Advice> {
        advice(self, device)
    }
}

/// One sender's part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenderShare {
    /// Who.
    pub who: Who,
    /// What it sent in all these windows.
    pub sent: Sent,
    /// Its share of the waits: of each, the sender's share of the bytes that went through the queue
    /// around it.
    pub wait: DurNs,
    /// Its largest flows.
    pub flows: Vec<FlowFact>,
    /// Most flows that it had in one window; where they were sampled, that were seen.
    pub flow_count: u64,
    /// In one of them only some of its packets were looked at for their flow.
    pub flows_sampled: bool,
}

impl QueueTable {
    /// Takes in what is known of an interface.
    pub(crate) fn learn(&mut self, fact: &Fact) {
        match fact {
            Fact::Interface(fact) if self.has_room(fact.id) => {
                self.interfaces.entry(fact.id).or_default().tx_queues =
                    Some(fact.tx_queues).filter(|queues| *queues > 0);
            }
            Fact::Host(host) => {
                let HostFact::Nic(nic) = &**host else { return };
                let id = InterfaceId { netns: nic.netns, ifindex: nic.ifindex };
                if self.has_room(id) {
                    let known = self.interfaces.entry(id).or_default();
                    (known.most_queues, known.xps_cpus) = (nic.most_queues, nic.xps_cpus.clone());
                }
            }
            _ => {}
        }
    }

    fn has_room(&self, id: InterfaceId) -> bool {
        self.interfaces.len() < MOST_INTERFACES || self.interfaces.contains_key(&id)
    }

    /// Takes in all waits of a check.
    pub(crate) fn push(&mut self, waits: &[QueueWait]) {
        for wait in waits {
            self.add(wait);
        }
        let ids: BTreeSet<_> = waits.iter().map(|wait| wait.id).collect();
        for id in ids {
            self.queues.entry(id).and_modify(|queue| queue.checks += 1);
        }
    }

    fn add(&mut self, wait: &QueueWait) {
        if self.queues.len() >= MOST_QUEUES && !self.queues.contains_key(&wait.id) {
            return;
        }
        let queue = self.queues.entry(wait.id).or_default();
        queue.busy.extend(&wait.busy);
        for window in &wait.windows {
            if queue.windows.insert(window.from) {
                queue.count(window);
            }
        }
        queue.wait = queue.wait.plus(wait.time);
        let (senders, all) = wait.senders();
        for (who, sent) in senders {
            if let Some(sums) = queue.senders.get_mut(&who) {
                let part = u128::from(wait.time.0) * u128::from(sent.bytes) / u128::from(all.bytes.max(1));
                sums.wait = sums.wait.plus(DurNs(u64::try_from(part).unwrap_or(u64::MAX)));
            }
        }
    }

    /// What is known of each queue, in the order of interfaces and queues.
    #[must_use]
    pub fn shares(&self) -> Vec<QueueShare> {
        let share = |(&(interface, queue), sums): (&(InterfaceId, u32), &Queue)| {
            let known = self.interfaces.get(&interface);
            let mask = known.and_then(|known| known.xps_cpus.get(usize::try_from(queue).ok()?));
            Some(QueueShare {
                tx_queues: known.and_then(|known| known.tx_queues),
                most_queues: known.and_then(|known| known.most_queues),
                xps_cpus: mask.filter(|mask| mask.contains(|digit| !matches!(digit, '0' | ','))).cloned(),
                ..sums.share(interface, queue)?
            })
        };
        self.queues.iter().filter_map(share).collect()
    }
}

impl Queue {
    fn count(&mut self, window: &QueueFact) {
        let (from, to) = self.span.unwrap_or((window.from, window.to));
        self.span = Some((from.min(window.from), to.max(window.to)));
        self.uncounted = self.uncounted.plus(window.uncounted);
        self.sent = self.sent.plus(window.rest.sent);
        for (cpu, packets) in &window.cpus {
            *self.cpus.entry(*cpu).or_default() += packets;
        }
        for sender in &window.senders {
            self.sent = self.sent.plus(sender.sent);
            if self.senders.len() < MOST_SENDERS || self.senders.contains_key(&sender.who) {
                self.senders.entry(sender.who.clone()).or_default().count(sender);
            }
        }
    }

    fn share(&self, interface: InterfaceId, queue: u32) -> Option<QueueShare> {
        let (from, to) = self.span?;
        let mut senders: Vec<_> = self.senders.iter().map(|(who, sums)| sums.share(who)).collect();
        senders.sort_by_key(|sender| std::cmp::Reverse((sender.wait, sender.sent.bytes)));
        senders.truncate(TOLD);
        let mut cpus: Vec<_> = self.cpus.iter().map(|(cpu, packets)| (*cpu, *packets)).collect();
        cpus.sort_by_key(|(_, packets)| std::cmp::Reverse(*packets));
        Some(QueueShare {
            interface,
            queue,
            from,
            to,
            checks: self.checks,
            wait: self.wait,
            sent: self.sent,
            uncounted: self.uncounted,
            senders,
            sender_count: self.senders.len() as u64,
            cpus,
            busy_queues: self.busy.iter().copied().collect(),
            tx_queues: None,
            most_queues: None,
            xps_cpus: None,
        })
    }
}

impl Sums {
    fn count(&mut self, sender: &SenderFact) {
        self.sent = self.sent.plus(sender.sent);
        self.most_flows = self.most_flows.max(sender.flow_count);
        self.flows_sampled |= sender.flows_sampled;
        for flow in &sender.flows {
            let same = |kept: &&mut FlowFact| FlowFact { sent: flow.sent, ..**kept } == *flow;
            let room = self.flows.len() < MOST_FLOWS;
            match self.flows.iter_mut().find(same) {
                Some(kept) => kept.sent = kept.sent.plus(flow.sent),
                None if room => self.flows.push(*flow),
                None => {}
            }
        }
    }

    fn share(&self, who: &Who) -> SenderShare {
        let mut flows = self.flows.clone();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.sent.bytes));
        flows.truncate(FLOWS);
        SenderShare {
            who: who.clone(),
            sent: self.sent,
            wait: self.wait,
            flows,
            flow_count: self.most_flows,
            flows_sampled: self.flows_sampled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{InterfaceFact, InterfaceRole, TaskId};
    use crate::sender::Rest;
    use std::sync::Arc;

    const NIC: InterfaceId = InterfaceId { netns: 1, ifindex: 2 };

    fn worker(tid: u32) -> Who {
        let id = TaskId { tgid: 9, tid };
        Who::Task { id, start_time_ns: 1, comm: format!("worker-{tid}"), cgroup: String::new(), shared: false }
    }

    fn window(ms: u64, senders: &[(Who, u64)]) -> Arc<QueueFact> {
        let sent = |bytes| Sent { packets: bytes / 100, bytes, error_bytes: 0 };
        let flow = |bytes, port| FlowFact {
            source: [1; 16],
            destination: [2; 16],
            source_port: port,
            destination_port: 9,
            protocol: 17,
            sent: sent(bytes),
        };
        let fact = |(who, bytes): &(Who, u64)| SenderFact {
            who: who.clone(),
            sent: sent(*bytes),
            flows: vec![flow(bytes / 4, 7), flow(bytes / 2, 8)],
            flow_count: 3,
            flows_sampled: false,
        };
        Arc::new(QueueFact {
            interface: NIC,
            queue: 1,
            from: MonoNs(ms * 1_000_000),
            to: MonoNs((ms + 100) * 1_000_000),
            cpus: vec![(0, 1), (3, 5)],
            senders: senders.iter().map(fact).collect(),
            rest: Rest::default(),
            uncounted: Sent::default(),
        })
    }

    fn wait(ms: u64, windows: &[Arc<QueueFact>]) -> QueueWait {
        QueueWait { id: (NIC, 1), time: DurNs::from_millis(ms), windows: windows.to_vec(), busy: vec![1] }
    }

    fn interface(tx_queues: u32) -> Fact {
        let (name, label, kind) = ("eth0".to_owned(), "eth0".to_owned(), "ether".to_owned());
        Fact::Interface(InterfaceFact {
            id: NIC,
            name,
            role: InterfaceRole::PhysicalNic,
            label,
            kind,
            tx_queues,
            rx_queues: 1,
        })
    }

    #[test]
    fn a_window_counts_once_and_each_wait_is_shared_by_bytes() {
        let windows = [window(0, &[(worker(1), 300), (worker(2), 100)]), window(100, &[(worker(2), 400)])];
        let mut table = QueueTable::default();
        table.push(&[wait(80, &windows[..1])]);
        table.push(&[wait(20, &windows), wait(20, &windows)]);
        let [share] = &table.shares()[..] else { panic!("one queue") };
        assert_eq!((share.checks, share.wait, share.sent.bytes), (2, DurNs::from_millis(120), 800));
        let told: Vec<_> = share.senders.iter().map(|sender| (&sender.who, sender.sent.bytes, sender.wait.0)).collect();
        assert_eq!(told, [(&worker(1), 300, 75_000_000), (&worker(2), 500, 45_000_000)]);
        assert_eq!(
            (share.cpus.as_slice(), share.from, share.to),
            ([(3, 10), (0, 2)].as_slice(), MonoNs(0), MonoNs(200_000_000))
        );
        let flows: Vec<_> = share.senders[1].flows.iter().map(|flow| (flow.source_port, flow.sent.bytes)).collect();
        assert_eq!((flows, share.senders[1].flow_count), (vec![(8, 250), (7, 125)], 3));
    }

    #[test]
    fn what_would_help_rests_on_what_was_measured() {
        let even = [window(0, &[(worker(1), 400), (worker(2), 400)])];
        let advice = |fact: Option<&Fact>, windows: &[Arc<QueueFact>]| {
            let mut table = QueueTable::default();
            fact.into_iter().for_each(|fact| table.learn(fact));
            table.push(&[wait(80, windows)]);
            table.shares()[0].advice("eth0").into_iter().map(|advice| advice.fact).collect::<Vec<_>>()
        };
        assert_eq!(advice(None, &even), Vec::<String>::new());
        assert_eq!(advice(Some(&interface(1)), &even), ["2 senders share the one transmit queue of eth0"]);
        assert_eq!(advice(Some(&interface(3)), &even), ["2 senders share queue 1, while nothing was sent on 0, 2"]);
        let one = [window(0, &[(worker(1), 900), (worker(2), 100)])];
        assert_eq!(advice(Some(&interface(3)), &one), ["worker-1 (pid 9) sent 90 % of the bytes on queue 1 of eth0"]);
    }
}
