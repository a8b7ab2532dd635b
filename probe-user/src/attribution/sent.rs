//! What send calls returned: those that failed, and those within which a packet was dropped.

use crate::clock::{DurNs, MonoNs};
use crate::event::{Event, InterfaceId, TaskId};
use probe_wire::QdiscBody;
use std::collections::{HashMap, VecDeque};

/// Most calls kept; the oldest go.
const MAX_CALLS: usize = 16_384;
/// Most of them looked through for one check.
const MAX_LOOKED_AT: usize = 1_024;
/// Most threads whose last call is remembered.
const MAX_SENDERS: usize = 4_096;

/// Most packets of checks in queueing disciplines that are remembered.
const MAX_HELD: usize = 16_384;
/// None stays there for longer; the record of its leaving is missing.
const LONGEST_STAY: DurNs = DurNs::from_secs(5);

/// At which interfaces queueing disciplines hold packets of checks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldAt {
    /// At none, as far as was seen.
    #[default]
    None,
    /// At this one alone.
    One(InterfaceId),
    /// At several.
    Several,
}

/// A send call that failed, or within which a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SendCall {
    /// When it returned.
    pub(super) at: MonoNs,
    /// Who called.
    pub(super) task: TaskId,
    /// Bytes, or a negated error number.
    pub(super) result: i32,
    /// When the thread's send call before it returned; 0 if none was seen.
    pub(super) after: MonoNs,
    /// When the last packet was dropped within it; `None` if none was.
    pub(super) dropped_at: Option<MonoNs>,
    /// When the thread read the only check that it has read since its send call before; `None` if it
    /// has read several, or none.
    pub(super) read_at: Option<MonoNs>,
    /// Where packets of checks waited to leave when it returned, if it failed.
    pub(super) held_at: HeldAt,
}

/// What a thread has done since its last send call.
#[derive(Debug, Default, Clone, Copy)]
struct Sender {
    last: MonoNs,
    dropped_at: Option<MonoNs>,
    read_at: Option<MonoNs>,
    reads: u32,
}

/// The latest of them, in the order of their time.
#[derive(Debug, Default)]
pub(super) struct SendCalls {
    calls: VecDeque<SendCall>,
    senders: HashMap<TaskId, Sender>,
    /// Packets in queueing disciplines, by address: since when, and at which interface.
    held: HashMap<u64, (MonoNs, InterfaceId)>,
}

impl SendCalls {
    /// A packet was dropped while a thread was on the CPU; if no interrupt did it, that thread did.
    pub(super) fn dropped(&mut self, event: &Event) {
        if event.softirq == 0 && event.task.tid != 0 {
            self.sender(event.task).dropped_at = Some(event.at);
        }
    }

    /// A thread has read from a socket that carries checks.
    pub(super) fn read(&mut self, event: &Event) {
        let sender = self.sender(event.task);
        sender.reads = sender.reads.saturating_add(1);
        sender.read_at = Some(event.at).filter(|_| sender.reads == 1);
    }

    /// A send call has returned this: bytes, or a negated error number. On a socket that carries no
    /// checks it answers none.
    pub(super) fn returned(&mut self, event: &Event, carries_checks: bool, result: i32) {
        let sender = self.sender(event.task);
        let Sender { last: after, dropped_at, read_at, .. } = *sender;
        (sender.last, sender.dropped_at) = (event.at, None);
        if carries_checks {
            (sender.read_at, sender.reads) = (None, 0);
        }
        if dropped_at.is_none() && (result >= 0 || !carries_checks) {
            return;
        }
        if self.calls.len() >= MAX_CALLS {
            self.calls.pop_front();
        }
        let (at, task) = (event.at, event.task);
        let held_at = if result < 0 { self.held_at(at) } else { HeldAt::None };
        self.calls.push_back(SendCall { at, task, result, after, dropped_at, read_at, held_at });
    }

    /// A packet of a check waits in a queueing discipline from here on.
    pub(super) fn enters(&mut self, at: MonoNs, body: &QdiscBody) {
        if self.held.len() >= MAX_HELD {
            self.held.clear();
        }
        self.held.insert(body.skb, (at, InterfaceId { netns: body.netns, ifindex: body.ifindex }));
    }

    /// A packet is in no queueing discipline any more.
    pub(super) fn leaves(&mut self, skb: u64) {
        self.held.remove(&skb);
    }

    fn held_at(&mut self, at: MonoNs) -> HeldAt {
        self.held.retain(|_, (since, _)| at.since(*since) <= LONGEST_STAY);
        let mut interfaces = self.held.values().map(|(_, interface)| *interface);
        let Some(first) = interfaces.next() else { return HeldAt::None };
        if interfaces.all(|other| other == first) { HeldAt::One(first) } else { HeldAt::Several }
    }

    fn sender(&mut self, task: TaskId) -> &mut Sender {
        if self.senders.len() >= MAX_SENDERS && !self.senders.contains_key(&task) {
            self.senders.clear();
        }
        self.senders.entry(task).or_default()
    }

    /// Forgets what happened before `before`.
    pub(super) fn trim(&mut self, before: MonoNs) {
        let old = self.calls.partition_point(|call| call.at < before);
        self.calls.drain(..old);
    }

    /// The call of a thread within which a packet was dropped at this instant, having begun to send
    /// it at `began`.
    pub(super) fn that_dropped(&self, task: TaskId, began: MonoNs, at: MonoNs) -> Option<&SendCall> {
        let call = self.of(task, at).next()?;
        (call.dropped_at.is_some_and(|dropped| dropped >= at) && call.after <= began).then_some(call)
    }

    /// The calls of a thread between `from` and `to` that failed.
    pub(super) fn failed(&self, task: TaskId, from: MonoNs, to: MonoNs) -> impl Iterator<Item = &SendCall> {
        self.of(task, from).take_while(move |call| call.at <= to).filter(|call| call.result < 0)
    }

    /// Those of a thread from `from` on.
    fn of(&self, task: TaskId, from: MonoNs) -> impl Iterator<Item = &SendCall> {
        let begin = self.calls.partition_point(|call| call.at < from);
        self.calls.range(begin..).take(MAX_LOOKED_AT).filter(move |call| call.task == task)
    }
}

#[cfg(test)]
mod tests {
    use super::{MonoNs, SendCalls, TaskId};
    use crate::event::{Body, Event};
    use probe_wire::Interrupt;

    const SENDER: TaskId = TaskId { tgid: 5, tid: 6 };
    const OTHER: TaskId = TaskId { tgid: 7, tid: 7 };

    fn event(at: u64, task: TaskId, softirq: u32) -> Event {
        Event { at: MonoNs(at), seq: 0, cpu: 0, task, softirq, interrupt: Interrupt::None, body: Body::Tick }
    }

    #[test]
    fn a_drop_belongs_to_the_call_in_which_it_happened() {
        let mut calls = SendCalls::default();
        calls.returned(&event(10, SENDER, 0), true, 32);
        calls.dropped(&event(20, SENDER, 0));
        calls.returned(&event(25, SENDER, 0), true, 32);
        calls.dropped(&event(30, SENDER, 4));
        calls.returned(&event(35, SENDER, 0), true, 32);
        let found = |began, at| calls.that_dropped(SENDER, MonoNs(began), MonoNs(at)).map(|call| call.at.0);
        assert_eq!(found(18, 20), Some(25));
        assert_eq!(found(9, 20), None, "sent by an earlier call, and dropped later");
        assert_eq!(found(28, 30), None, "a softirq dropped it");
    }

    #[test]
    fn a_failed_call_is_of_the_check_that_alone_was_read_before_it() {
        let mut calls = SendCalls::default();
        let read_at = |calls: &SendCalls, at| {
            calls.failed(SENDER, MonoNs(at), MonoNs(at)).map(|call| call.read_at.map(|read| read.0)).last()
        };
        calls.read(&event(5, SENDER, 0));
        calls.returned(&event(10, SENDER, 0), true, -11);
        assert_eq!(read_at(&calls, 10), Some(Some(5)));
        calls.read(&event(11, SENDER, 0));
        calls.read(&event(12, SENDER, 0));
        calls.returned(&event(15, SENDER, 0), true, -11);
        assert_eq!(read_at(&calls, 15), Some(None), "one of two");
        calls.returned(&event(16, SENDER, 0), true, -11);
        calls.returned(&event(17, OTHER, 0), true, -11);
        assert_eq!(read_at(&calls, 16), Some(None), "none was read since");
        assert_eq!(calls.failed(SENDER, MonoNs(0), MonoNs(30)).count(), 3);
        calls.trim(MonoNs(16));
        assert_eq!(calls.failed(SENDER, MonoNs(0), MonoNs(30)).count(), 1);
    }
}
