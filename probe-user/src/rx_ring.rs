//! NICs that lost packets themselves, before the kernel had them, and what would have them lose fewer.
//!
//! What their counters said, the requests that did not come meanwhile and the CPUs' budgets go in; an
//! [`RxRingShare`] for each such NIC comes out, by [`RxRingTable`]. Pure, and bounded by NICs and CPUs.

use crate::attribution::{Absence, UnseenLoss, counted};
use crate::clock::MonoNs;
use crate::event::{Fact, InterfaceId};
use crate::host::{HostFact, NicFact, RingsFact};
use crate::level::{Level, Measure};
use crate::sender::Advice;
use std::collections::BTreeMap;

/// Most interfaces whose settings are known.
const MOST_NICS: usize = 4_096;
/// Most CPUs whose budgets are known.
const MOST_CPUS: usize = probe_wire::MAX_CPUS;

/// What is known of NICs that lost packets.
#[derive(Debug, Default)]
pub(crate) struct RxRingTable {
    nics: BTreeMap<InterfaceId, RxNic>,
    absent: BTreeMap<InterfaceId, Absent>,
    budgets: Budgets,
}

/// How a NIC receives, as far as it is set and known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RxNic {
    /// Its name.
    pub name: String,
    /// Entries of each of its rings, and most that they could have.
    pub rings: Option<RingsFact>,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Most queues that its hardware has, if it says.
    pub most_queues: Option<u32>,
}

/// Requests that did not come through a NIC.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Absent {
    /// All of them.
    pub requests: u64,
    /// Those that it may have lost itself.
    pub perhaps: u64,
}

/// A CPU that had no budget left for receiving while packets waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Squeezed {
    /// The CPU.
    pub cpu: u32,
    /// How often, between readings between which a NIC lost packets.
    pub times: u64,
}

/// What a NIC itself lost, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RxRingShare {
    /// Which.
    pub interface: InterfaceId,
    /// What it lost, over the run.
    pub loss: UnseenLoss,
    /// What did not come through it.
    pub absent: Absent,
    /// How it receives, if that is known.
    pub nic: Option<RxNic>,
    /// CPUs that had no budget left meanwhile, by number.
    pub squeezed: Vec<Squeezed>,
}

/// How often CPUs had no budget left.
#[derive(Debug, Default)]
struct Budgets {
    cpus: BTreeMap<u32, Budget>,
    read_at: MonoNs,
    /// Between the reading and the one before it, a NIC lost packets.
    lost: bool,
    /// It is not the first: what was counted before that is nobody's here.
    began: bool,
}

#[derive(Debug, Default)]
struct Budget {
    value: u64,
    /// Since the reading before, and in all readings in which a NIC lost packets.
    fresh: u64,
    sum: u64,
}

impl RxRingTable {
    /// Takes in what is known of interfaces and CPUs.
    pub(crate) fn learn(&mut self, fact: &Fact) {
        match fact {
            Fact::Host(host) => {
                let HostFact::Nic(nic) = &**host else { return };
                let id = InterfaceId { netns: nic.netns, ifindex: nic.ifindex };
                if self.nics.len() < MOST_NICS || self.nics.contains_key(&id) {
                    self.nics.insert(id, RxNic::of(nic));
                }
            }
            Fact::Levels { at, levels, .. } => {
                self.budgets.turn(*at);
                levels.iter().for_each(|level| self.budgets.take(&level.name, level.value));
            }
            _ => {}
        }
    }

    /// A NIC was seen to lose packets until the reading at `at`.
    pub(crate) fn lost(&mut self, at: MonoNs) {
        self.budgets.lost |= at == self.budgets.read_at;
    }

    /// Takes in that requests did not come.
    pub(crate) fn miss(&mut self, absence: &Absence) {
        if self.absent.len() < MOST_NICS || self.absent.contains_key(&absence.interface) {
            let absent = self.absent.entry(absence.interface).or_default();
            absent.requests = absent.requests.saturating_add(absence.requests);
            absent.perhaps = absent.perhaps.saturating_add(absence.perhaps_by_nic());
        }
    }

    /// What is known of each NIC that lost something, in their order.
    pub(crate) fn shares(mut self, losses: impl Iterator<Item = (InterfaceId, UnseenLoss)>) -> Vec<RxRingShare> {
        let squeezed = self.budgets.squeezed();
        let share = |(interface, loss)| RxRingShare {
            interface,
            loss,
            absent: self.absent.get(&interface).copied().unwrap_or_default(),
            nic: self.nics.get(&interface).cloned(),
            squeezed: squeezed.clone(),
        };
        let mut shares: Vec<_> = losses.map(share).collect();
        shares.sort_by_key(|share| share.interface);
        shares
    }
}

impl RxNic {
    fn of(nic: &NicFact) -> Self {
        let NicFact { name, rings, rx_queues, most_queues, .. } = nic;
        Self { name: name.clone(), rings: *rings, rx_queues: *rx_queues, most_queues: *most_queues }
    }
}

impl Budgets {
    /// A reading at `at` begins; it may be told in several facts.
    fn turn(&mut self, at: MonoNs) {
        if at == self.read_at {
            return;
        }
        self.settle();
        self.began |= self.read_at > MonoNs::default();
        self.read_at = at;
    }

    fn settle(&mut self) {
        for budget in self.cpus.values_mut() {
            let fresh = std::mem::take(&mut budget.fresh);
            budget.sum += if self.lost { fresh } else { 0 };
        }
        self.lost = false;
    }

    fn take(&mut self, name: &str, value: u64) {
        let Some(Level { measure: Measure::CpuSqueezed, of, .. }) = Level::of(name) else { return };
        let Some(cpu) = of.strip_prefix("CPU ").and_then(|cpu| cpu.parse().ok()) else { return };
        if self.cpus.len() < MOST_CPUS || self.cpus.contains_key(&cpu) {
            let budget = self.cpus.entry(cpu).or_default();
            let before = std::mem::replace(&mut budget.value, value);
            budget.fresh = if self.began { value.saturating_sub(before) } else { 0 };
        }
    }

    fn squeezed(&mut self) -> Vec<Squeezed> {
        self.settle();
        let times = |(cpu, budget): (&u32, &Budget)| Squeezed { cpu: *cpu, times: budget.sum };
        self.cpus.iter().map(times).filter(|squeezed| squeezed.times > 0).collect()
    }
}

impl RxRingShare {
    /// In a sentence; `device` is the NIC.
    #[must_use]
    pub fn sentence(&self, device: &str) -> String {
        let Self { loss, absent: Absent { requests, perhaps }, .. } = self;
        let lost = counted(loss.packets, "packet");
        let over = loss.until.since(loss.after);
        let meanwhile = match requests {
            0 => String::new(),
            _ => format!("; {} did not come, of which these may be {perhaps}", counted(*requests, "request")),
        };
        format!("{device} itself lost up to {lost} in {over} ({}){meanwhile}", self.loss.counter)
    }

    /// What would have it lose fewer, as far as what was measured points to it; `device` is the NIC.
    #[must_use]
    pub fn advice(&self, device: &str) -> Vec<Advice> {
        if self.loss.is_by_program() {
            return vec![Advice {
                step: format!("look at the program at the driver of {device} (bpftool net)"),
                fact: format!("it dropped up to {} ({})", counted(self.loss.packets, "packet"), self.loss.counter),
            }];
        }
        let nic = self.nic.as_ref();
        let ring = nic.and_then(|nic| self.ring(nic.rings.as_ref()?, device));
        let queues = nic.and_then(|nic| more_queues(nic, device));
        ring.into_iter().chain(queues).chain(self.budget()).collect()
    }

    fn ring(&self, rings: &RingsFact, device: &str) -> Option<Advice> {
        let (lost, counter) = (counted(self.loss.packets, "packet"), &self.loss.counter);
        let RingsFact { rx, most_rx, .. } = rings;
        let advice = |step, size: &str| Advice {
            step,
            fact: format!("a receive ring of {device} has {size}, and up to {lost} found no room ({counter})"),
        };
        match (rx, most_rx) {
            (0, _) => None,
            _ if rx < most_rx => Some(advice(
                format!("give {device} a larger receive ring: ethtool -G {device} rx N, up to {most_rx}"),
                &format!("{rx} entries of at most {most_rx}"),
            )),
            _ => Some(advice(
                format!(
                    "receive sooner: keep other work off the CPUs that serve {device}, or have its peers pace bursts"
                ),
                &format!("all the {rx} entries that it can have"),
            )),
        }
    }

    fn budget(&self) -> Option<Advice> {
        let most = self.squeezed.iter().max_by_key(|squeezed| squeezed.times)?;
        let Squeezed { cpu, times } = most;
        Some(Advice {
            step: "let a CPU receive more at a time: net.core.netdev_budget, net.core.netdev_budget_usecs".to_owned(),
            fact: format!(
                "CPU {cpu} had no budget left {} while packets waited, between readings in which some were lost",
                counted(*times, "time")
            ),
        })
    }
}

fn more_queues(nic: &RxNic, device: &str) -> Option<Advice> {
    let most = nic.most_queues.filter(|most| *most > nic.rx_queues)?;
    Some(Advice {
        step: format!("spread what {device} receives over more queues: ethtool -L {device} combined N, up to {most}"),
        fact: format!("{device} receives by {} of {most}", counted(nic.rx_queues.into(), "queue")),
    })
}

#[cfg(test)]
mod tests {
    use super::{Absence, Absent, Advice, Fact, RingsFact, RxNic, RxRingShare, RxRingTable, UnseenLoss};
    use crate::attribution::story::{ETH, MS, at};
    use crate::host::CounterFact;

    fn loss(packets: u64, counter: &str) -> UnseenLoss {
        UnseenLoss { packets, counter: counter.to_owned(), after: at(0), until: at(1_000 * MS) }
    }

    fn nic(rx: u32, rx_queues: u32) -> RxNic {
        let rings = RingsFact { rx, tx: 64, most_rx: 4_096, most_tx: 64 };
        RxNic { name: "eth0".to_owned(), rings: Some(rings), rx_queues, most_queues: Some(2) }
    }

    fn share(table: RxRingTable, counter: &str) -> RxRingShare {
        table.shares([(ETH, loss(70, counter))].into_iter()).remove(0)
    }

    fn squeezed(ms: u64, times: u64) -> Fact {
        let levels = vec![CounterFact { name: "CPU 1 backlog squeezed".to_owned(), value: times }];
        Fact::Levels { at: at(ms * MS), levels, unseen: Vec::new() }
    }

    fn steps(share: &RxRingShare) -> Vec<String> {
        let first = |Advice { step, .. }: Advice| step.split(':').next().unwrap_or_default().to_owned();
        share.advice("eth0").into_iter().map(first).collect()
    }

    #[test]
    fn requests_that_a_nic_may_have_lost_are_told_beside_what_it_lost() {
        let mut table = RxRingTable::default();
        let unseen = Some(loss(12, "driver pkts rx OOB"));
        let (due_at, until) = (at(0), at(MS));
        table.miss(&Absence { signature: 0, interface: ETH, due_at, until, requests: 20, unseen, unread: false });
        table.miss(&Absence { signature: 0, interface: ETH, due_at, until, requests: 5, unseen: None, unread: false });
        let share = share(table, "driver pkts rx OOB");
        assert_eq!(share.absent, Absent { requests: 25, perhaps: 12 });
        assert_eq!(
            share.sentence("eth0"),
            "eth0 itself lost up to 70 packets in 1.00 s (driver pkts rx OOB); 25 requests did not come, of which these \
             may be 12"
        );
        assert_eq!(steps(&share), [""; 0], "nothing is known of the NIC");
    }

    #[test]
    fn advice_rests_on_what_is_set_and_was_measured() {
        let of = |nic, counter: &str| RxRingShare { nic: Some(nic), ..share(RxRingTable::default(), counter) };
        let (ring, queues) = ("give eth0 a larger receive ring", "spread what eth0 receives over more queues");
        assert_eq!(steps(&of(nic(64, 1), "link rx_missed_errors")), [ring, queues]);
        assert_eq!(steps(&of(nic(4_096, 2), "link rx_missed_errors")), ["receive sooner"]);
        assert_eq!(steps(&of(nic(0, 2), "link rx_missed_errors")), [""; 0], "the driver does not tell");
        let by_program = "look at the program at the driver of eth0 (bpftool net)";
        assert_eq!(steps(&of(nic(64, 1), "driver rx_queue_0_xdp_drops")), [by_program]);
    }

    #[test]
    fn a_budget_matters_only_where_packets_were_lost_meanwhile() {
        let mut table = RxRingTable::default();
        for (ms, times, lost) in [(1_000, 900, true), (2_000, 907, false), (3_000, 910, true), (4_000, 950, false)] {
            table.learn(&squeezed(ms, times));
            if lost {
                table.lost(at(ms * MS));
            }
        }
        let share = share(table, "link rx_missed_errors");
        assert_eq!(share.squeezed.iter().map(|found| (found.cpu, found.times)).collect::<Vec<_>>(), [(1, 3)]);
        assert_eq!(steps(&share), ["let a CPU receive more at a time"]);
    }
}
