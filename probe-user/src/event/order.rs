//! The streams of all CPUs merged into one, in the order of time.
//!
//! Events come in roughly in order per CPU and in any order between CPUs; they go out strictly
//! ordered by (time, facts first, CPU, sequence number). A tick at T releases everything earlier
//! than T − window and goes out itself with that time, so that downstream a tick means: nothing
//! earlier will come. An event older than what was released is *late*: counted, never processed.
//! A fact is never late; it takes part at once, because what follows may rest on it.

use super::{Body, Event};
use crate::clock::{DurNs, MonoNs};
use probe_wire::MAX_CPUS;
use std::collections::{BinaryHeap, VecDeque};

/// Events held at most; beyond it the oldest are released without waiting for a tick, so that a
/// stream without ticks cannot grow memory. At 160 bytes an event this is 160 MiB.
const MAX_HELD: usize = 1 << 20;

/// Position of an event in the order.
type Key = (MonoNs, u32, u64);

/// One CPU's events, or all facts.
#[derive(Debug, Default)]
struct Stream {
    held: VecDeque<Event>,
    /// Some event was pushed behind one with a greater key.
    disordered: bool,
}

/// The next event of a stream; the smallest stands on top of the heap.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head(std::cmp::Reverse<(Key, usize)>);

/// Merges the events of all CPUs by time.
#[derive(Debug)]
pub struct Orderer {
    window: DurNs,
    /// Everything earlier has been released.
    horizon: MonoNs,
    newest: MonoNs,
    /// Facts first, then one stream per CPU.
    streams: Vec<Stream>,
    heads: BinaryHeap<Head>,
    held: usize,
    facts: u64,
    late: u64,
}

impl Orderer {
    /// An empty one. `window` is how long before a tick an event may have happened and still not
    /// have been read.
    #[must_use]
    pub fn new(window: DurNs) -> Self {
        Self {
            window,
            horizon: MonoNs(0),
            newest: MonoNs(0),
            streams: vec![Stream::default()],
            heads: BinaryHeap::new(),
            held: 0,
            facts: 0,
            late: 0,
        }
    }

    /// Takes an event in; a tick gives everything that is due to `out`, in order.
    pub fn push(&mut self, mut event: Event, out: &mut dyn FnMut(Event)) {
        if matches!(event.body, Body::Tick) {
            return self.tick(event, out);
        }
        if matches!(event.body, Body::Fact(_)) {
            event.at = event.at.max(self.horizon);
        } else if event.at < self.horizon {
            self.late += 1;
            return;
        }
        self.hold(event);
        if self.held > MAX_HELD {
            self.relieve(out);
        }
    }

    /// Gives everything that is still held to `out`, in order: the stream has ended.
    pub fn finish(&mut self, out: &mut dyn FnMut(Event)) {
        self.release(None, out);
        self.horizon = self.horizon.max(self.newest.after(DurNs(1)));
    }

    /// Events that came after later ones had been released.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Events held back now.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    fn tick(&mut self, mut tick: Event, out: &mut dyn FnMut(Event)) {
        let horizon = tick.at.before(self.window);
        if horizon <= self.horizon {
            return;
        }
        self.release(Some(horizon), out);
        self.horizon = horizon;
        tick.at = horizon;
        out(tick);
    }

    fn hold(&mut self, mut event: Event) {
        let index = match event.body {
            Body::Fact(_) | Body::Tick => {
                // Facts carry no number; the one they came in with keeps their order.
                self.facts += 1;
                (event.cpu, event.seq) = (0, self.facts);
                0
            }
            _ => 1 + event.cpu as usize % MAX_CPUS,
        };
        if index >= self.streams.len() {
            self.streams.resize_with(index + 1, Stream::default);
        }
        self.newest = self.newest.max(event.at);
        self.held += 1;
        let stream = &mut self.streams[index];
        stream.disordered |= stream.held.back().is_some_and(|last| key(last) > key(&event));
        stream.held.push_back(event);
    }

    /// Too much is held: takes the newest event for a tick, and if even the window holds too much,
    /// lets go of everything.
    fn relieve(&mut self, out: &mut dyn FnMut(Event)) {
        let horizon = self.newest.before(self.window);
        self.release(Some(horizon), out);
        self.horizon = self.horizon.max(horizon);
        if self.held > MAX_HELD / 2 {
            self.release(None, out);
            self.horizon = self.newest;
        }
    }

    /// Merges out what is earlier than `before`, or everything.
    fn release(&mut self, before: Option<MonoNs>, out: &mut dyn FnMut(Event)) {
        for index in 0..self.streams.len() {
            let stream = &mut self.streams[index];
            if std::mem::take(&mut stream.disordered) {
                stream.held.make_contiguous().sort_unstable_by_key(key);
            }
            self.offer_head(index, before);
        }
        while let Some(Head(std::cmp::Reverse((_, index)))) = self.heads.pop() {
            if let Some(event) = self.streams[index].held.pop_front() {
                self.held -= 1;
                out(unnumbered(event));
            }
            self.offer_head(index, before);
        }
    }

    fn offer_head(&mut self, index: usize, before: Option<MonoNs>) {
        if let Some(event) = self.streams[index].held.front()
            && before.is_none_or(|before| event.at < before)
        {
            self.heads.push(Head(std::cmp::Reverse((key(event), index))));
        }
    }
}

/// Facts come first at their time: CPUs count from 1 here.
fn key(event: &Event) -> Key {
    let class = if matches!(event.body, Body::Fact(_)) { 0 } else { event.cpu.saturating_add(1) };
    (event.at, class, event.seq)
}

/// Takes from a fact the number that it only had in here.
fn unnumbered(mut event: Event) -> Event {
    if matches!(event.body, Body::Fact(_)) {
        event.seq = 0;
    }
    event
}

#[cfg(test)]
mod tests {
    use super::super::{Fact, TaskId};
    use super::*;
    use probe_wire::{Interrupt, TaskExitBody};
    use proptest::prelude::*;

    fn event(at: u64, cpu: u32, seq: u64) -> Event {
        let body = Body::TaskExit(TaskExitBody { start_time_ns: 0 });
        Event { at: MonoNs(at), seq, cpu, task: TaskId::default(), softirq: 0, interrupt: Interrupt::Unknown, body }
    }

    fn fact(at: u64, name: &str) -> Event {
        let body = Body::Fact(Box::new(Fact::Symbol { address: 0, name: name.to_owned() }));
        Event { body, ..event(at, 0, 0) }
    }

    fn tick(at: u64) -> Event {
        Event { body: Body::Tick, ..event(at, 0, 0) }
    }

    fn order(window: u64, events: Vec<Event>) -> (Vec<Event>, Orderer) {
        let mut orderer = Orderer::new(DurNs(window));
        let mut out = Vec::new();
        events.into_iter().for_each(|event| orderer.push(event, &mut |event| out.push(event)));
        (out, orderer)
    }

    fn times(events: &[Event]) -> Vec<(u64, u32, u64)> {
        events.iter().map(|event| (event.at.0, event.cpu, event.seq)).collect()
    }

    #[test]
    fn a_tick_releases_what_is_older_than_the_window_and_says_so() {
        let (mut out, mut orderer) = order(10, vec![event(5, 1, 1), event(4, 0, 1), event(6, 1, 2), tick(16)]);
        assert_eq!(times(&out), [(4, 0, 1), (5, 1, 1), (6, 0, 0)]);
        assert_eq!(out[2].body, Body::Tick);
        assert_eq!(orderer.held(), 1);
        out.clear();
        orderer.finish(&mut |event| out.push(event));
        assert_eq!(times(&out), [(6, 1, 2)]);
    }

    #[test]
    fn what_comes_after_its_time_was_released_is_late_and_never_given() {
        let (out, orderer) = order(10, vec![tick(30), event(19, 0, 1), event(20, 0, 2), tick(40)]);
        assert_eq!(times(&out), [(20, 0, 0), (20, 0, 2), (30, 0, 0)]);
        assert_eq!(orderer.late(), 1);
    }

    #[test]
    fn a_fact_is_never_late() {
        let (out, orderer) = order(0, vec![tick(30), fact(1, "old"), event(31, 0, 1), tick(40)]);
        assert_eq!(orderer.late(), 0);
        assert!(matches!(out[1].body, Body::Fact(_)) && out[1].at == MonoNs(30));
    }

    #[test]
    fn ties_go_to_facts_in_their_order_then_by_cpu_and_number() {
        let events =
            vec![event(5, 1, 9), event(5, 0, 4), event(5, 0, 3), fact(5, "first"), fact(5, "second"), tick(100)];
        let (out, _) = order(0, events);
        let names: Vec<_> = out
            .iter()
            .filter_map(|event| match &event.body {
                Body::Fact(fact) => match &**fact {
                    Fact::Symbol { name, .. } => Some(name.as_str()),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        assert_eq!(names, ["first", "second"]);
        assert_eq!(times(&out)[2..5], [(5, 0, 3), (5, 0, 4), (5, 1, 9)]);
        assert!(out[..2].iter().all(|fact| fact.seq == 0));
    }

    #[test]
    fn a_stream_without_ticks_cannot_grow_memory() {
        let mut orderer = Orderer::new(DurNs(1000));
        let mut given = 0_u64;
        let total = MAX_HELD as u64 * 2;
        for at in 0..total {
            orderer.push(event(at, 0, at), &mut |_| given += 1);
            assert!(orderer.held() <= MAX_HELD);
        }
        orderer.finish(&mut |_| given += 1);
        assert_eq!(given + orderer.late(), total);
        assert_eq!(orderer.late(), 0);
    }

    #[test]
    fn a_hostile_time_and_cpu_do_no_harm() {
        let (out, orderer) = order(5, vec![event(u64::MAX, u32::MAX, 1), tick(u64::MAX), event(3, 0, 1), tick(0)]);
        assert_eq!(out.len(), 1);
        assert_eq!((orderer.held(), orderer.late()), (1, 1));
    }

    proptest! {
        #[test]
        fn every_event_is_given_in_order_or_late(
            stream in prop::collection::vec((0_u64..500, 0_u32..4, any::<bool>()), 0..300), window in 0_u64..100
        ) {
            let events = stream.iter().zip(1..).map(|(&(at, cpu, is_tick), seq)| {
                if is_tick { tick(at) } else { event(at, cpu, seq) }
            });
            let (mut out, mut orderer) = order(window, events.collect());
            orderer.finish(&mut |event| out.push(event));
            let records: Vec<_> = out.iter().filter(|event| event.body != Body::Tick).cloned().collect();
            let pushed = stream.iter().filter(|(.., is_tick)| !is_tick).count();
            prop_assert_eq!(records.len() as u64 + orderer.late(), pushed as u64);
            prop_assert!(times(&records).is_sorted());
            prop_assert!(out.is_sorted_by_key(|event| event.at));
            prop_assert_eq!(orderer.held(), 0);
        }
    }
}
