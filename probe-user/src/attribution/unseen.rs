//! What NICs lost before the kernel had a packet, by their own counters, over time.
//!
//! Such a counter names no packet, so it proves of none that it was lost there. But where a packet did not
//! come, and the host's own NIC lost as many meanwhile, it is not proven either that it was lost elsewhere.

use super::rules::counted;
use crate::clock::{DurNs, MonoNs};
use crate::event::{Fact, InterfaceFact, InterfaceId, UnseenFact};
use crate::host::CounterFact;
use crate::level::{Counted, Measure};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// Some drivers ask their hardware for its counters every 2 s, whenever they are read.
/// <https://github.com/torvalds/linux/blob/v6.12/drivers/net/ethernet/intel/ixgbe/ixgbe_main.c>
/// (`ixgbe_service_timer`).
const LAG: DurNs = DurNs::from_secs(2);
/// How long a conclusion waits for a reading that covers it.
const LONGEST_WAIT: DurNs = DurNs::from_secs(4);
/// Stretches with losses that are remembered of a NIC: minutes, if it loses some all the time.
const MOST: usize = 1_024;

/// Losses by interface.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// The last reading, and the one before it.
    read_at: MonoNs,
    before: MonoNs,
    nics: HashMap<InterfaceId, Nic>,
    /// Those whose counters are right whenever they are read.
    prompt: HashSet<InterfaceId>,
}

#[derive(Debug)]
struct Nic {
    first_read_at: MonoNs,
    counters: BTreeMap<String, u64>,
    grown: VecDeque<Growth>,
    all: Option<Sums>,
}

/// What was lost over a while, by counter.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sums {
    after: MonoNs,
    until: MonoNs,
    counters: BTreeMap<String, u64>,
}

/// What was lost between two readings.
#[derive(Debug)]
struct Growth {
    after: MonoNs,
    until: MonoNs,
    counters: Vec<CounterFact>,
}

/// Packets that a NIC lost before the kernel had them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnseenLoss {
    /// How many at most: some drivers count one packet for its queue and for the device. What the kernel
    /// counts beside the driver counts once.
    pub packets: u64,
    /// The counter that grew most, such as `link rx_missed_errors`.
    pub counter: String,
    /// Between which readings, `CLOCK_MONOTONIC`.
    pub after: MonoNs,
    /// The later of them.
    pub until: MonoNs,
}

impl UnseenLoss {
    /// What it means for a packet that did not come, in words; `device` is the NIC.
    #[must_use]
    pub fn sentence(&self, device: &str) -> String {
        let (packets, over) = (counted(self.packets, "packet"), self.until.since(self.after));
        format!("{device} itself lost up to {packets} in the same {over} ({}), and nothing tells whose", self.counter)
    }

    /// A program at the driver (XDP) dropped them; else its ring had no room.
    #[must_use]
    pub fn is_by_program(&self) -> bool {
        Counted::split(&self.counter).and_then(|(_, name)| Measure::of_counter(name)) == Some(Measure::XdpDrops)
    }
}

impl Nic {
    const fn new(first_read_at: MonoNs) -> Self {
        Self { first_read_at, counters: BTreeMap::new(), grown: VecDeque::new(), all: None }
    }
}

impl Sums {
    const fn new(after: MonoNs) -> Self {
        Self { after, until: after, counters: BTreeMap::new() }
    }

    fn add(&mut self, growth: &Growth) {
        self.until = growth.until;
        for CounterFact { name, value } in &growth.counters {
            match self.counters.get_mut(name) {
                Some(sum) => *sum = sum.saturating_add(*value),
                None => drop(self.counters.insert(name.clone(), *value)),
            }
        }
    }

    fn loss(&self) -> Option<UnseenLoss> {
        let by = |by: Counted| {
            let of = |name: &str| Counted::split(name).is_some_and(|(found, _)| found == by);
            self.counters.iter().filter(|(name, _)| of(name)).map(|(_, more)| *more).sum::<u64>()
        };
        let packets = by(Counted::Link).max(by(Counted::Driver));
        let (counter, _) = self.counters.iter().max_by_key(|(_, more)| **more)?;
        Some(UnseenLoss { packets, counter: counter.clone(), after: self.after, until: self.until })
    }
}

impl Unseen {
    /// Takes in what was read.
    pub(super) fn learn(&mut self, fact: &Fact) {
        let Fact::Levels { at, unseen, .. } = fact else { return };
        if *at > self.read_at {
            (self.before, self.read_at) = (self.read_at, *at);
        }
        unseen.iter().for_each(|fact| self.nic(fact));
    }

    /// Takes in what an interface is.
    pub(super) fn meet(&mut self, interface: &InterfaceFact) {
        let _ = match interface.counts_at_once() {
            true => self.prompt.insert(interface.id),
            false => self.prompt.remove(&interface.id),
        };
    }

    fn nic(&mut self, fact: &UnseenFact) {
        let (after, until) = (self.before, self.read_at);
        let is_new = !self.nics.contains_key(&fact.interface);
        let nic = self.nics.entry(fact.interface).or_insert_with(|| Nic::new(until));
        let mut grown = Vec::new();
        for CounterFact { name, value } in &fact.counters {
            let before = nic.counters.insert(name.clone(), *value).unwrap_or(0);
            // One that fell has begun anew.
            let more = if *value < before { *value } else { value - before };
            grown.push(CounterFact { name: name.clone(), value: more });
        }
        grown.retain(|counter| counter.value > 0);
        // What was lost before the first reading is nobody's here.
        if is_new || grown.is_empty() {
            return;
        }
        if nic.grown.len() >= MOST {
            nic.grown.pop_front();
        }
        let growth = Growth { after, until, counters: grown };
        nic.all.get_or_insert_with(|| Sums::new(after)).add(&growth);
        nic.grown.push_back(growth);
    }

    /// What each NIC has lost since it was first read.
    pub(super) fn all(&self) -> impl Iterator<Item = (InterfaceId, UnseenLoss)> {
        self.nics.iter().filter_map(|(interface, nic)| Some((*interface, nic.all.as_ref()?.loss()?)))
    }

    /// Whether the reading at `at` found that a NIC had lost more.
    pub(super) fn grew(&self, interface: InterfaceId, at: MonoNs) -> bool {
        self.nics.get(&interface).and_then(|nic| nic.grown.back()).is_some_and(|growth| growth.until == at)
    }

    /// Whether all that a NIC lost until `to` is known, or will not be known in time. One of which nothing
    /// was ever read is not waited for.
    pub(super) fn is_settled(&self, interface: InterfaceId, to: MonoNs, now: MonoNs) -> bool {
        !self.nics.contains_key(&interface) || self.has_read_until(interface, to) || now >= to.after(LONGEST_WAIT)
    }

    /// Whether a NIC's counters are read, but not so that what it lost between `from` and `to` shows. One
    /// of which nothing was ever read has none.
    pub(super) fn is_unread(&self, interface: InterfaceId, from: MonoNs, to: MonoNs) -> bool {
        self.nics.get(&interface).is_some_and(|nic| nic.first_read_at > from || !self.has_read_until(interface, to))
    }

    /// Whether what was counted until `to` has been read, even if the driver is late to ask its hardware.
    fn has_read_until(&self, interface: InterfaceId, to: MonoNs) -> bool {
        self.read_at >= if self.prompt.contains(&interface) { to } else { to.after(LAG) }
    }

    /// What a NIC may have lost between `from` and `to`.
    pub(super) fn between(&self, interface: InterfaceId, from: MonoNs, to: MonoNs) -> Option<UnseenLoss> {
        let grown = &self.nics.get(&interface)?.grown;
        let mut within = grown.iter().filter(|growth| growth.until >= from && growth.after < to.after(LAG)).peekable();
        let mut sums = Sums::new(within.peek()?.after);
        within.for_each(|growth| sums.add(growth));
        sums.loss()
    }
}

#[cfg(test)]
mod tests {
    use super::Unseen;
    use crate::attribution::story::{ETH, MS, at};
    use crate::event::{Fact, InterfaceFact, InterfaceRole, UnseenFact};
    use crate::host::CounterFact;

    fn read(ms: u64, counters: Option<&[(&str, u64)]>) -> Fact {
        let counter = |(name, value): &(&str, u64)| CounterFact { name: (*name).to_owned(), value: *value };
        let fact = |counters: &[_]| UnseenFact { interface: ETH, counters: counters.iter().map(counter).collect() };
        Fact::Levels { at: at(ms * MS), levels: Vec::new(), unseen: counters.into_iter().map(fact).collect() }
    }

    fn interface(kind: &str) -> InterfaceFact {
        let (name, label, kind) = ("eth0".to_owned(), "eth0".to_owned(), kind.to_owned());
        InterfaceFact { id: ETH, name, role: InterfaceRole::PhysicalNic, label, kind, tx_queues: 1, rx_queues: 1 }
    }

    fn learnt(facts: &[Fact]) -> Unseen {
        let mut unseen = Unseen::default();
        facts.iter().for_each(|fact| unseen.learn(fact));
        unseen
    }

    fn lost(unseen: &Unseen, from_ms: u64, to_ms: u64) -> Option<(u64, String)> {
        unseen.between(ETH, at(from_ms * MS), at(to_ms * MS)).map(|loss| (loss.packets, loss.counter))
    }

    #[test]
    fn what_was_lost_is_known_between_two_readings_and_a_little_longer() {
        let unseen = learnt(&[
            read(0, Some(&[("link rx_missed_errors", 1_000)])),
            read(10_000, None),
            read(11_000, Some(&[("link rx_missed_errors", 1_012)])),
            read(12_000, None),
        ]);
        let counted = Some((12, "link rx_missed_errors".to_owned()));
        assert_eq!(lost(&unseen, 10_300, 10_400), counted);
        assert_eq!(lost(&unseen, 9_000, 9_900), counted, "the driver may have been late to ask its hardware");
        assert_eq!(lost(&unseen, 7_000, 7_900), None);
        assert_eq!(lost(&unseen, 11_001, 11_500), None);
        let all = unseen.all().map(|(interface, loss)| (interface, loss.packets, loss.after, loss.until));
        assert_eq!(all.collect::<Vec<_>>(), [(ETH, 12, at(10_000 * MS), at(11_000 * MS))]);
    }

    #[test]
    fn what_kernel_and_driver_both_count_counts_once() {
        let unseen = learnt(&[
            read(0, Some(&[])),
            read(
                1_000,
                Some(&[
                    ("driver rx_missed_errors", 7),
                    ("driver rx_queue_0_drops", 2),
                    ("link rx_fifo_errors", 2),
                    ("link rx_missed_errors", 7),
                ]),
            ),
        ]);
        assert_eq!(lost(&unseen, 0, 1_000).map(|(packets, _)| packets), Some(9));
    }

    #[test]
    fn what_was_lost_before_the_first_reading_is_not_lost_now() {
        let unseen = learnt(&[read(1_000, Some(&[("link rx_missed_errors", 5)]))]);
        assert_eq!(lost(&unseen, 0, 5_000), None);
        let anew = learnt(&[
            read(1_000, Some(&[("link rx_missed_errors", 5)])),
            read(2_000, Some(&[("link rx_missed_errors", 2)])),
        ]);
        assert_eq!(lost(&anew, 0, 5_000).map(|(packets, _)| packets), Some(2), "a counter that began anew");
    }

    #[test]
    fn time_is_read_between_the_first_reading_of_a_nic_and_the_last_of_all() {
        let is_unread = |unseen: &Unseen, from_ms, to_ms| unseen.is_unread(ETH, at(from_ms * MS), at(to_ms * MS));
        let unread = |facts: &[Fact], from_ms, to_ms| is_unread(&learnt(facts), from_ms, to_ms);
        let facts = [read(500, None), read(1_000, Some(&[])), read(9_000, None)];
        assert!(!unread(&facts, 1_000, 7_000));
        assert!(unread(&facts, 1_000, 7_001), "its driver may not have asked the hardware since");
        assert!(unread(&facts, 999, 7_000), "what was lost before the first reading does not show");
        assert!(!unread(&[read(500, None)], 0, 7_000), "a NIC of which nothing is read");
        let mut veth = learnt(&facts);
        veth.meet(&interface("veth"));
        assert!(!is_unread(&veth, 1_000, 9_000), "no hardware is asked");
        assert!(is_unread(&veth, 1_000, 9_001));
        veth.meet(&interface("ether"));
        assert!(is_unread(&veth, 1_000, 9_000), "another interface by now");
    }

    #[test]
    fn a_conclusion_waits_for_a_reading_but_not_for_ever() {
        let unseen = learnt(&[read(0, Some(&[])), read(3_000, None)]);
        let settled = |to_ms, now_ms| unseen.is_settled(ETH, at(to_ms * MS), at(now_ms * MS));
        assert!(settled(1_000, 3_000));
        assert!(!settled(1_001, 3_000));
        assert!(settled(1_001, 5_001));
        assert!(learnt(&[]).is_settled(ETH, at(0), at(0)), "a recording without such readings");
    }
}
