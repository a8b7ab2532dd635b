//! Transmit queues: what each carried while a check waited in it, and who sent that.

use super::cause::Cause;
use super::evidence::Evidence;
use super::ledger::{Judged, Offender};
use super::sent::{HeldAt, SendCall};
use crate::clock::{DurNs, MonoNs};
use crate::event::InterfaceId;
use crate::journey::{Journey, PacketDrop, Stage};
use crate::sender::{QueueFact, Rest, SenderFact, Sent, Who};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Most windows kept of all queues; the oldest of the longest queue makes room.
const MAX_WINDOWS: usize = 16_384;
/// A queue that drops a packet was filled within so long before.
const FILLED_WITHIN: DurNs = DurNs::from_millis(200);
/// Senders that a sentence names.
const NAMED: usize = 4;
/// Begins of the reasons for which a queueing discipline drops a packet that leaves.
const BY_QUEUE: [&str; 4] = ["QDISC_", "FQ_", "CAKE_", "CODEL_"];

/// Why it is not known who filled a queue.
const NOT_COUNTED: &str = "no sender through its interface was counted around then";
const NOT_CARRIED: &str = "nothing was counted on its queue around then";
const SEVERAL: &str = "its interface sent by several queues, and by which one it was to leave is not known";
const NOT_SENT: &str = "its process was not seen to send through the interface whose queueing discipline held others";
const SENT_BY_SEVERAL: &str = "its process sent by several queues of the interface";

/// A transmit queue of an interface.
pub(crate) type QueueId = (InterfaceId, u32);

/// What transmit queues carried lately.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    windows: BTreeMap<QueueId, VecDeque<Arc<QueueFact>>>,
    count: usize,
}

/// A stretch of time in which a check waited in a transmit queue, or found it full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueWait {
    /// The queue.
    pub(crate) id: QueueId,
    /// How long the check waited.
    pub(crate) time: DurNs,
    /// What it carried meanwhile; not empty.
    pub(crate) windows: Vec<Arc<QueueFact>>,
    /// Queues of the interface that carried something meanwhile.
    pub(crate) busy: Vec<u32>,
}

impl Queues {
    /// Takes in what a queue carried; windows of a queue come in the order of their time.
    pub(super) fn add(&mut self, fact: &QueueFact) {
        if self.count >= MAX_WINDOWS
            && let Some(longest) = self.windows.values_mut().max_by_key(|windows| windows.len())
        {
            self.count -= usize::from(longest.pop_front().is_some());
        }
        self.windows.entry((fact.interface, fact.queue)).or_default().push_back(Arc::new(fact.clone()));
        self.count += 1;
    }

    /// Forgets what ended before.
    pub(super) fn trim(&mut self, before: MonoNs) {
        let kept = before.before(FILLED_WITHIN);
        self.windows.retain(|_, windows| {
            while windows.front().is_some_and(|window| window.to < kept) {
                windows.pop_front();
            }
            !windows.is_empty()
        });
        self.count = self.windows.values().map(VecDeque::len).sum();
    }

    /// What a queue of an interface carried between two instants; where the queue is not known, the
    /// only one that is in use.
    ///
    /// # Errors
    /// Why it is not known.
    pub(super) fn wait(
        &self,
        (interface, queue): (InterfaceId, Option<u32>),
        from: MonoNs,
        to: MonoNs,
    ) -> Result<QueueWait, &'static str> {
        let busy = self.busy(interface, from, to);
        let queue = match (queue, busy.as_slice()) {
            (Some(queue), _) => queue,
            (None, [only]) => *only,
            (None, []) => return Err(NOT_COUNTED),
            (None, _) => return Err(SEVERAL),
        };
        let windows = self.windows.get(&(interface, queue)).into_iter().flatten();
        let windows: Vec<_> = windows.filter(|window| overlaps(window, from, to)).cloned().collect();
        if windows.is_empty() {
            return Err(if busy.is_empty() { NOT_COUNTED } else { NOT_CARRIED });
        }
        Ok(QueueWait { id: (interface, queue), time: to.since(from), windows, busy })
    }

    /// Queues of an interface that carried something between two instants.
    fn busy(&self, interface: InterfaceId, from: MonoNs, to: MonoNs) -> Vec<u32> {
        let queues = self.of_interface(interface).filter(|(_, windows)| is_busy(windows, from, to));
        queues.map(|(queue, _)| queue).collect()
    }

    /// What the queue carried by which a process sends through an interface whose discipline holds
    /// packets back, before an instant at which a socket of the process had no room for more.
    fn behind_socket(&self, interface: InterfaceId, tgid: u32, at: MonoNs) -> Result<QueueWait, &'static str> {
        let from = at.before(FILLED_WITHIN);
        let is_its = |window: &&Arc<QueueFact>| {
            let mut tasks = window.senders.iter().filter_map(|sender| sender.who.task());
            overlaps(window, from, at) && tasks.any(|task| task.tgid == tgid)
        };
        let its = self.of_interface(interface).filter(|(_, windows)| windows.iter().any(|window| is_its(&window)));
        let its: Vec<u32> = its.map(|(queue, _)| queue).collect();
        match its.as_slice() {
            [only] => self.wait((interface, Some(*only)), from, at),
            [] if self.busy(interface, from, at).is_empty() => Err(NOT_COUNTED),
            [] => Err(NOT_SENT),
            _ => Err(SENT_BY_SEVERAL),
        }
    }

    fn of_interface(&self, interface: InterfaceId) -> impl Iterator<Item = (u32, &VecDeque<Arc<QueueFact>>)> {
        let range = (interface, 0)..=(interface, u32::MAX);
        self.windows.range(range).map(|((_, queue), windows)| (*queue, windows))
    }
}

/// Every wait of a check in a transmit queue for which its ledger charges somebody, and every queue
/// that dropped it.
pub(crate) fn waits(evidence: &Evidence, judged: &Judged) -> Vec<QueueWait> {
    let journey = &judged.journey;
    let entries = judged.ledger.entries.iter().filter(|_| judged.slow);
    let waits = entries.filter_map(|entry| match entry.cause {
        Cause::NicQdisc | Cause::NicTxQueue => {
            let stay = journey.qdisc.iter().rfind(|stay| stay.entered_at < entry.to)?;
            let from = stay.entered_at.max(entry.from).min(entry.to);
            evidence.queues().wait(taken_through(journey, stay.interface()), from, entry.to).ok()
        }
        Cause::AppSocketQueue => {
            let lost = judged.lost.as_ref().filter(|_| entry.to == judged.ledger.to)?;
            lost.filled.clone()?.ok()
        }
        Cause::NicDrop => {
            let drop = journey.drops.iter().rfind(|drop| drop.at <= entry.to)?;
            Some(QueueWait { time: entry.time(), ..filled(evidence, journey, drop)?.ok()? })
        }
        _ => None,
    });
    waits.collect()
}

/// An interface, and the queue by which the check left through it, if it did.
pub(super) fn taken_through(journey: &Journey, interface: InterfaceId) -> (InterfaceId, Option<u32>) {
    let left = journey.stamp(Stage::PnicXmit).filter(|stamp| stamp.interface == interface);
    (interface, left.and_then(|stamp| stamp.queue.checked_sub(1)))
}

/// What had filled the transmit queue that dropped a packet; `None` if something else did.
pub(super) fn filled(
    evidence: &Evidence,
    journey: &Journey,
    drop: &PacketDrop,
) -> Option<Result<QueueWait, &'static str>> {
    let reason = evidence.drop_reason(drop.reason);
    let by_queue = BY_QUEUE.iter().any(|begin| reason.starts_with(begin));
    let (interface, left) = taken_through(journey, drop.interface);
    let queue = (interface, drop.queue.checked_sub(1).or(left));
    by_queue.then(|| evidence.queues().wait(queue, drop.at.before(FILLED_WITHIN), drop.at))
}

/// What had filled the queue behind which the socket of a send call had no room.
pub(super) fn behind_socket(evidence: &Evidence, call: &SendCall) -> Result<QueueWait, &'static str> {
    match call.held_at {
        HeldAt::One(interface) => evidence.queues().behind_socket(interface, call.task.tgid, call.at),
        HeldAt::None => Err("no answer before it was seen in a queueing discipline then"),
        HeldAt::Several => Err("answers before it were in the queueing disciplines of several interfaces"),
    }
}

fn is_busy(windows: &VecDeque<Arc<QueueFact>>, from: MonoNs, to: MonoNs) -> bool {
    windows.iter().any(|window| overlaps(window, from, to))
}

fn overlaps(window: &QueueFact, from: MonoNs, to: MonoNs) -> bool {
    window.from < to && from < window.to
}

impl QueueWait {
    /// Number of the queue, from 0 on.
    #[must_use]
    pub const fn queue(&self) -> u32 {
        self.id.1
    }

    /// Who sent in all windows together, the one with the most bytes first, and all that was sent.
    pub(crate) fn senders(&self) -> (Vec<(Who, Sent)>, Sent) {
        let mut sums: BTreeMap<&Who, Sent> = BTreeMap::new();
        let mut all = Sent::default();
        for window in &self.windows {
            for SenderFact { who, sent, .. } in &window.senders {
                let sum = sums.entry(who).or_default();
                *sum = sum.plus(*sent);
                all = all.plus(*sent);
            }
            let Rest { sent, .. } = window.rest;
            all = all.plus(sent);
        }
        let mut senders: Vec<_> = sums.into_iter().map(|(who, sent)| (who.clone(), sent)).collect();
        senders.sort_by_key(|(_, sent)| std::cmp::Reverse(sent.bytes));
        (senders, all)
    }

    /// The offender, if one thread surely sent more than half of the bytes; its device is `device`.
    pub(super) fn offender(&self, device: String) -> Offender {
        let (senders, all) = self.senders();
        match senders.into_iter().next() {
            Some((Who::Task { id, comm, cgroup, .. }, sent)) if sent.is_most_of(all) => {
                Offender { comm, task: id, cgroup, device, ..Offender::default() }
            }
            _ => Offender { device, ..Offender::default() },
        }
    }

    /// Who filled the queue, in a sentence.
    pub(super) fn sentence(&self, evidence: &Evidence) -> String {
        let (senders, all) = self.senders();
        let (id, queue) = self.id;
        let index = |ifindex| evidence.interface(InterfaceId { ifindex, ..id });
        let part = |(who, sent): &(Who, Sent)| format!("{} {}", named(who, &index), sent.share_of(all));
        let shares: Vec<_> = senders.iter().take(NAMED).map(part).collect();
        let more = senders.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let count = if senders.len() == 1 { "1 sender".to_owned() } else { format!("{} senders", senders.len()) };
        format!("{count} on queue {queue} of {}, of its bytes: {}{more}", evidence.interface(id), shares.join(", "))
    }
}

/// A sender, for people.
pub(crate) fn named(who: &Who, interface: &dyn Fn(u32) -> String) -> String {
    match who {
        Who::Task { id, comm, shared: false, .. } => format!("{comm} (pid {}/{})", id.tgid, id.tid),
        Who::Task { id, comm, .. } => format!("{comm} and others with its socket (pid {})", id.tgid),
        Who::Interface { ifindex } => format!("what came in through {}", interface(*ifindex)),
        Who::Unknown => "senders that were not seen".to_owned(),
    }
}

/// Rounded; 0 of nothing.
pub(crate) fn percent(part: u64, of: u64) -> u64 {
    u64::try_from((u128::from(part) * 200 + u128::from(of)) / (u128::from(of) * 2).max(1)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::{Evidence, NOT_CARRIED, NOT_COUNTED, NOT_SENT, Queues, SENT_BY_SEVERAL, SEVERAL, percent};
    use crate::clock::MonoNs;
    use crate::event::{InterfaceId, TaskId};
    use crate::sender::{QueueFact, Rest, SenderFact, Sent, Who};

    const NIC: InterfaceId = InterfaceId { netns: 1, ifindex: 2 };

    fn worker(tid: u32) -> Who {
        let id = TaskId { tgid: 9, tid };
        Who::Task { id, start_time_ns: 1, comm: format!("worker-{tid}"), cgroup: "/app".into(), shared: false }
    }

    /// A thread of another process.
    fn other(tid: u32) -> Who {
        let id = TaskId { tgid: 8, tid };
        Who::Task { id, start_time_ns: 1, comm: format!("other-{tid}"), cgroup: String::new(), shared: false }
    }

    fn window(queue: u32, ms: u64, senders: &[(Who, u64)]) -> QueueFact {
        let (from, to) = (MonoNs(ms * 1_000_000), MonoNs((ms + 100) * 1_000_000));
        let sent = |bytes| Sent { packets: bytes / 100, bytes, error_bytes: 0 };
        let fact = |(who, bytes): &(Who, u64)| SenderFact {
            who: who.clone(),
            sent: sent(*bytes),
            flows: Vec::new(),
            flow_count: 1,
            flows_sampled: false,
        };
        let senders = senders.iter().map(fact).collect();
        QueueFact {
            interface: NIC,
            queue,
            from,
            to,
            cpus: vec![(0, 1)],
            senders,
            rest: Rest::default(),
            uncounted: Sent::default(),
        }
    }

    #[test]
    fn what_was_sent_around_a_wait_is_summed_over_its_windows_and_no_others() {
        let mut queues = Queues::default();
        for ms in [0, 100, 200, 300] {
            queues.add(&window(0, ms, &[(worker(1), 300), (worker(2), 100)]));
        }
        let wait = queues.wait((NIC, None), MonoNs(150_000_000), MonoNs(250_000_000)).unwrap();
        let (senders, all) = wait.senders();
        assert_eq!((wait.windows.len(), all.bytes), (2, 800));
        assert_eq!(senders[0], (worker(1), Sent { packets: 6, bytes: 600, error_bytes: 0 }));
        assert_eq!(wait.offender("eth0".into()).comm, "worker-1");
        let said = wait.sentence(&Evidence::default());
        assert_eq!(
            said,
            "2 senders on queue 0 of interface 2, of its bytes: worker-1 (pid 9/1) 75 %, worker-2 (pid 9/2) 25 %"
        );
    }

    #[test]
    fn nobody_is_the_offender_where_nobody_sent_more_than_half() {
        let mut queues = Queues::default();
        queues.add(&window(0, 0, &[(worker(1), 400), (worker(2), 400)]));
        let wait = queues.wait((NIC, None), MonoNs(0), MonoNs(1_000_000)).unwrap();
        assert_eq!(
            (wait.offender("eth0".into()).comm.as_str(), wait.offender("eth0".into()).device.as_str()),
            ("", "eth0")
        );
    }

    #[test]
    fn a_queue_is_not_guessed_where_several_are_in_use() {
        let mut queues = Queues::default();
        queues.add(&window(0, 0, &[(worker(1), 400)]));
        queues.add(&window(1, 0, &[(worker(2), 400)]));
        let (from, to) = (MonoNs(0), MonoNs(1_000_000));
        assert_eq!(queues.wait((NIC, None), from, to), Err(SEVERAL));
        assert_eq!(queues.wait((NIC, Some(1)), from, to).map(|wait| wait.id), Ok((NIC, 1)), "the drop tells it");
        assert_eq!(queues.wait((NIC, Some(2)), from, to), Err(NOT_CARRIED));
        assert_eq!(Queues::default().wait((NIC, None), from, to), Err(NOT_COUNTED));
    }

    #[test]
    fn behind_a_full_socket_is_the_queue_by_which_its_process_sends() {
        let mut queues = Queues::default();
        queues.add(&window(0, 0, &[(worker(1), 100), (other(7), 900)]));
        queues.add(&window(1, 0, &[(other(7), 400)]));
        let (mine, at) = (worker(1).task().unwrap().tgid, MonoNs(50_000_000));
        let wait = queues.behind_socket(NIC, mine, at).unwrap();
        assert_eq!((wait.id, wait.offender("eth0".into()).comm.as_str()), ((NIC, 0), "other-7"));
        assert_eq!(queues.behind_socket(NIC, 8, at), Err(SENT_BY_SEVERAL));
        assert_eq!(queues.behind_socket(NIC, 77, at), Err(NOT_SENT));
        assert_eq!(queues.behind_socket(NIC, mine, MonoNs(900_000_000)), Err(NOT_COUNTED));
    }

    #[test]
    fn old_windows_are_forgotten() {
        let mut queues = Queues::default();
        queues.add(&window(0, 0, &[(worker(1), 400)]));
        queues.add(&window(0, 900, &[(worker(1), 400)]));
        queues.trim(MonoNs(1_000_000_000));
        assert_eq!((queues.count, queues.windows.len()), (1, 1));
    }

    #[test]
    fn a_part_of_nothing_is_nothing() {
        assert_eq!((percent(0, 0), percent(1, 3), percent(2, 3), percent(5, 5)), (0, 33, 67, 100));
    }
}
