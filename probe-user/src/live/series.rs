//! Levels and counters of queues over time: read again and again, and said as facts where they changed.
//!
//! A thread of its own reads, since it enters network namespaces and the kernel may take its time: some
//! drivers ask their hardware. The longer a reading takes, the rarer it is.

use crate::clock::MonoNs;
use crate::event::{Fact, InterfaceId, UnseenFact};
use crate::host::{CounterFact, interrupt_levels, queue_levels};
use crate::level::{Counted, Measure, nic_counter};
use crate::load::{Attachment, Drivers, InterfaceLevels, Netns, levels_of};
use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How often they are read, and how often while checks are slow.
const READ_EVERY: Duration = Duration::from_secs(1);
const READ_EVERY_SLOW: Duration = Duration::from_millis(200);
/// Between two readings passes so many times what one took, but no more than the longest pause.
const PAUSES: u32 = 50;
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Most levels; beyond it, new ones are not taken.
const MOST: usize = 4_096;
/// How long the end of a run waits for the last reading, beside what readings take; and no longer than that.
const LAST_READING: Duration = Duration::from_millis(200);
const LONGEST_LAST: Duration = Duration::from_secs(2);
/// Levels that fit into one record.
const TOLD_AT_ONCE: usize = 256;

/// What is watched: which, its name, and where it is.
type Watched = (InterfaceId, String, Attachment);

/// What is read from now on.
#[derive(Debug)]
struct Order {
    every: Duration,
    interfaces: Vec<Watched>,
}

/// What a reading found to be new or different.
#[derive(Debug)]
struct Reading {
    at: MonoNs,
    took: Duration,
    changed: Vec<CounterFact>,
    unseen: Vec<UnseenFact>,
}

impl Reading {
    /// At least one, so that it is known when nothing has changed.
    fn facts(&self) -> impl Iterator<Item = Fact> {
        let mut parts: Vec<_> = self.changed.chunks(TOLD_AT_ONCE).map(<[CounterFact]>::to_vec).collect();
        let last = parts.pop().unwrap_or_default();
        let at = self.at;
        let before = parts.into_iter().map(move |levels| Fact::Levels { at, levels, unseen: Vec::new() });
        // The reading is complete with what was lost unseen.
        let unseen = self.unseen.chunks(TOLD_AT_ONCE).map(<[UnseenFact]>::to_vec);
        let unseen = unseen.map(move |unseen| Fact::Levels { at, levels: Vec::new(), unseen });
        before.chain(unseen).chain([Fact::Levels { at, levels: last, unseen: Vec::new() }])
    }
}

/// Reads levels beside the run.
#[derive(Debug)]
pub(super) struct Series {
    orders: Sender<Order>,
    readings: Receiver<Reading>,
    slow_checks: u64,
    interfaces: Vec<Watched>,
    every: Duration,
    /// What the last reading took.
    took: Duration,
}

impl Series {
    /// Begins; `None` without a thread, and the run goes on without.
    pub(super) fn begin() -> Option<Self> {
        let (orders, ordered) = mpsc::channel();
        let (tell, readings) = mpsc::channel();
        thread::Builder::new().name("levels".to_owned()).spawn(move || read(&ordered, &tell)).ok()?;
        Some(Self { orders, readings, slow_checks: 0, interfaces: Vec::new(), every: READ_EVERY, took: Duration::ZERO })
    }

    /// Has them read once more, and says all that was read.
    pub(super) fn finish(self, say: &mut dyn FnMut(&Fact)) {
        drop(self.orders);
        let end = Instant::now() + last_wait(self.took);
        while let Ok(reading) = self.readings.recv_timeout(end.saturating_duration_since(Instant::now())) {
            reading.facts().for_each(|fact| say(&fact));
        }
    }

    /// Has the levels of these read from now on.
    pub(super) fn watch(&mut self, interfaces: Vec<Watched>) {
        if interfaces != self.interfaces {
            self.interfaces = interfaces;
            self.order();
        }
    }

    /// Says what has been read by now, and has it read faster while checks are slow.
    pub(super) fn turn(&mut self, slow_checks: u64, say: &mut dyn FnMut(&Fact)) {
        let before = self.every;
        if slow_checks > self.slow_checks {
            self.every = READ_EVERY_SLOW;
        }
        for reading in self.readings.try_iter() {
            self.every = if slow_checks > self.slow_checks { READ_EVERY_SLOW } else { READ_EVERY };
            self.slow_checks = slow_checks;
            self.took = reading.took;
            reading.facts().for_each(|fact| say(&fact));
        }
        if self.every != before {
            self.order();
        }
    }

    fn order(&self) {
        // Where the thread has ended, nothing is said any more.
        let _ = self.orders.send(Order { every: self.every, interfaces: self.interfaces.clone() });
    }
}

/// Reads until the run is over, and once more then.
fn read(orders: &Receiver<Order>, tell: &Sender<Reading>) {
    let Ok(mut order) = orders.recv() else { return };
    let mut reader = Reader::default();
    let mut over = false;
    while !over {
        let began = Instant::now();
        if tell.send(reader.look(&order.interfaces)).is_err() {
            return;
        }
        over = is_over(orders, &mut order, began);
    }
    // Nobody may be there any more who wants it.
    let _ = tell.send(reader.look(&order.interfaces));
}

/// Waits until the next reading is due behind the one that began then; true if the run is over.
fn is_over(orders: &Receiver<Order>, order: &mut Order, began: Instant) -> bool {
    let took = began.elapsed();
    loop {
        let due = began + took + pause(order.every, took);
        match orders.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(next) => *order = next,
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
}

/// How long to wait for the last reading, if one took so long: another may be under way.
fn last_wait(took: Duration) -> Duration {
    (took * 2 + LAST_READING).min(LONGEST_LAST)
}

/// How long to wait behind a reading that took so long.
fn pause(every: Duration, took: Duration) -> Duration {
    every.max((took * PAUSES).min(LONGEST_PAUSE))
}

/// What was found so far.
#[derive(Debug, Default)]
struct Reader {
    drivers: Drivers,
    known: HashMap<String, u64>,
    /// What the last reading found of each interface, by the name that it had.
    found: HashMap<InterfaceId, (String, InterfaceLevels)>,
    unseen: HashMap<InterfaceId, Vec<CounterFact>>,
}

impl Reader {
    /// What is new or different now.
    fn look(&mut self, interfaces: &[Watched]) -> Reading {
        let began = Instant::now();
        let mut levels: BTreeMap<String, u64> = of_host();
        let mut unseen = Vec::new();
        let before = std::mem::take(&mut self.found);
        // Where several have one name, as those of pods have, it means the last.
        let named: HashMap<&str, InterfaceId> = interfaces.iter().map(|(id, name, _)| (name.as_str(), *id)).collect();
        for ((interface, name, _), found) in self.read(interfaces) {
            let is_meant = named.get(name.as_str()) == Some(interface);
            levels.extend(of_interrupts(name, &found).filter(|_| is_meant));
            let found = (name.clone(), found);
            if before.get(interface) != Some(&found) {
                let counters: Vec<_> = counters(&found.1).collect();
                unseen.extend(self.unseen(*interface, &counters));
                let of_nic =
                    counters.into_iter().map(|(_, counter)| (format!("{name} {}", counter.name), counter.value));
                levels.extend(of_queues(name, &found.1).chain(of_nic).filter(|_| is_meant));
            }
            self.found.insert(*interface, found);
        }
        self.unseen.retain(|interface, _| self.found.contains_key(interface));
        let changed = changes(&mut self.known, levels);
        // What was counted until it was read, was so before now.
        Reading { at: super::clock::now(), took: began.elapsed(), changed, unseen }
    }

    /// The interfaces with what was found of them, those of one namespace at once. One that has gone has
    /// no queues.
    fn read<'a>(&mut self, interfaces: &'a [Watched]) -> Vec<(&'a Watched, InterfaceLevels)> {
        let mut places: BTreeMap<_, Vec<&Watched>> = BTreeMap::new();
        for watched @ (interface, _, attachment) in interfaces {
            let place = (interface.netns, attachment.netns.as_ref().map(Netns::path));
            places.entry(place).or_default().push(watched);
        }
        let mut read = Vec::with_capacity(interfaces.len());
        for there in places.into_values() {
            let attachments: Vec<_> = there.iter().map(|(_, _, attachment)| attachment).collect();
            if let Ok(found) = levels_of(&attachments, &mut self.drivers) {
                read.extend(there.into_iter().zip(found));
            }
        }
        read
    }

    /// What is told of it, if it is new or different.
    fn unseen(&mut self, interface: InterfaceId, counters: &[(Measure, CounterFact)]) -> Option<UnseenFact> {
        let is_unseen = |measure: &Measure| matches!(measure, Measure::RingDrops | Measure::XdpDrops);
        let counters = counters.iter().filter(|(measure, counter)| is_unseen(measure) && counter.value > 0);
        let counters: Vec<_> = counters.map(|(_, counter)| counter.clone()).take(TOLD_AT_ONCE).collect();
        let before = self.unseen.insert(interface, counters.clone());
        (before.as_ref() != Some(&counters)).then_some(UnseenFact { interface, counters })
    }
}

/// Levels of what the whole host shares.
fn of_host() -> BTreeMap<String, u64> {
    queue_levels().into_iter().map(|level| (level.name, level.value)).collect()
}

fn of_queues<'a>(name: &'a str, found: &'a InterfaceLevels) -> impl Iterator<Item = (String, u64)> + 'a {
    found.queues.iter().flat_map(move |queue| {
        let title = queue.title(name);
        queue.levels().map(move |(what, value)| (format!("{title} {}", what.suffix()), u64::from(value)))
    })
}

fn of_interrupts(name: &str, found: &InterfaceLevels) -> impl Iterator<Item = (String, u64)> + use<> {
    interrupt_levels(name, &found.driver.bus).into_iter().map(|level| (level.name, level.value))
}

/// What the kernel and the driver count of an interface, by name.
fn counters(found: &InterfaceLevels) -> impl Iterator<Item = (Measure, CounterFact)> {
    let named = |by, name: &str, value| {
        let measure = Measure::of_counter(name)?;
        Some((measure, CounterFact { name: nic_counter(by, name), value }))
    };
    let link = found.link.iter().filter_map(move |(name, value)| named(Counted::Link, name, *value));
    link.chain(found.driver.counters.iter().filter_map(move |(name, value)| named(Counted::Driver, name, *value)))
}

/// What is new or different.
fn changes(known: &mut HashMap<String, u64>, levels: BTreeMap<String, u64>) -> Vec<CounterFact> {
    let mut changed = Vec::new();
    for (name, value) in levels {
        let before = known.get(&name).copied();
        // What has never counted anything is not worth a word.
        if before.unwrap_or(0) == value || (before.is_none() && known.len() >= MOST) {
            continue;
        }
        known.insert(name.clone(), value);
        changed.push(CounterFact { name, value });
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::{
        LONGEST_LAST, LONGEST_PAUSE, READ_EVERY, READ_EVERY_SLOW, Reader, Reading, TOLD_AT_ONCE, changes, last_wait,
        pause,
    };
    use crate::clock::MonoNs;
    use crate::event::{Fact, InterfaceId, UnseenFact};
    use crate::host::CounterFact;
    use crate::level::Measure;
    use crate::load::Attachment;
    use std::collections::{BTreeMap, HashMap};
    use std::time::Duration;

    fn levels(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
        of.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn only_what_changed_is_told() {
        let mut known = HashMap::new();
        let mut told = |of: &[(&str, u64)]| {
            changes(&mut known, levels(of)).into_iter().map(|level| (level.name, level.value)).collect::<Vec<_>>()
        };
        assert_eq!(told(&[("a", 0), ("b", 2)]), [("b".to_owned(), 2)]);
        assert_eq!(told(&[("a", 0), ("b", 2)]), []);
        assert_eq!(told(&[("a", 1), ("b", 0)]), [("a".to_owned(), 1), ("b".to_owned(), 0)]);
    }

    fn counter(name: &str, value: u64) -> CounterFact {
        CounterFact { name: name.to_owned(), value }
    }

    #[test]
    fn what_a_nic_lost_unseen_is_told_at_first_and_when_it_grew() {
        let mut reader = Reader::default();
        let nic = InterfaceId { netns: 1, ifindex: 2 };
        let mut told = |missed, dropped| {
            let counters = [
                (Measure::RingDrops, counter("link rx_missed_errors", missed)),
                (Measure::NicDrops, counter("link rx_dropped", dropped)),
            ];
            reader.unseen(nic, &counters).map(|fact| fact.counters)
        };
        assert_eq!(told(0, 7), Some(vec![]));
        assert_eq!(told(0, 8), None);
        assert_eq!(told(3, 8), Some(vec![counter("link rx_missed_errors", 3)]));
        assert_eq!(told(3, 9), None);
    }

    #[test]
    fn a_reading_is_one_fact_at_least_and_its_last_completes_it() {
        let reading = |levels: usize, nics: usize| Reading {
            at: MonoNs(5),
            took: Duration::ZERO,
            changed: vec![counter("a", 1); levels],
            unseen: vec![UnseenFact { interface: InterfaceId::default(), counters: Vec::new() }; nics],
        };
        let parts = |reading: Reading| {
            let size = |fact: &Fact| match fact {
                Fact::Levels { levels, unseen, .. } => (levels.len(), unseen.len()),
                _ => (usize::MAX, 0),
            };
            reading.facts().map(|fact| size(&fact)).collect::<Vec<_>>()
        };
        assert_eq!(parts(reading(0, 0)), [(0, 0)]);
        assert_eq!(parts(reading(TOLD_AT_ONCE + 1, 2)), [(TOLD_AT_ONCE, 0), (0, 2), (1, 0)]);
    }

    #[test]
    fn what_takes_long_is_read_rarely() {
        assert_eq!(pause(READ_EVERY_SLOW, Duration::from_millis(1)), READ_EVERY_SLOW);
        assert_eq!(pause(READ_EVERY, Duration::from_millis(60)), Duration::from_secs(3));
        assert_eq!(pause(READ_EVERY, Duration::from_secs(2)), LONGEST_PAUSE);
        assert_eq!(last_wait(Duration::from_millis(300)), Duration::from_millis(800));
        assert_eq!(last_wait(Duration::from_secs(9)), LONGEST_LAST);
    }

    #[test]
    fn this_host_s_backlogs_are_read_and_an_interface_that_is_not_there_has_none() {
        let nowhere = Attachment { netns: None, ifindex: u32::MAX >> 1, name: "none".to_owned() };
        let levels = Reader::default().look(&[(InterfaceId::default(), "none".to_owned(), nowhere)]).changed;
        assert!(levels.iter().any(|level| level.name.starts_with("CPU 0 backlog")), "{levels:?}");
        assert!(!levels.iter().any(|level| level.name.starts_with("none")));
    }
}
