//! How long checks were with the VM by the host's clock, and how long inside by the guest's.
//!
//! The difference is what virtio takes: the hypervisor, the backend, the interrupts. It is measured
//! on checks that nothing delayed, and a delayed check may add no more than it and a little.

use super::contract::{GuestHalf, Join, Journey};
use serde::Serialize;

/// Of so many slow checks one may be beyond: the machine that emulates the guest has other work.
const ONE_IN: usize = 20;
/// What two clocks may differ by besides: so much, or this part of the residence.
const SLACK_NS: u64 = 100_000;
const SLACK_PART: u64 = 50;

/// The residences of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Residence {
    /// Checks whose halves were joined.
    pub joined: usize,
    /// Slow ones of them.
    pub slow: usize,
    /// Slow ones of which the halves differ by more than virtio takes.
    pub beyond: usize,
    /// What virtio takes, the quickest quarter of undelayed checks, ns.
    pub cost_p25_ns: u64,
    /// The median of them.
    pub cost_p50_ns: u64,
    /// The slowest twentieth of them.
    pub cost_p95_ns: u64,
}

impl Residence {
    /// Compares the halves of checks that were answered.
    #[must_use]
    pub fn of(journeys: &[Journey]) -> Self {
        let answered = |journey: &&Journey| journey.outcome == "replied";
        let pairs: Vec<_> = journeys.iter().filter(answered).filter_map(pair).collect();
        let mut costs: Vec<u64> = pairs.iter().filter(|pair| !pair.slow).map(Pair::overhead_ns).collect();
        costs.sort_unstable();
        let percentile =
            |percent: usize| costs.get(costs.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0);
        let cost_p95_ns = percentile(95);
        let slow = pairs.iter().filter(|pair| pair.slow).count();
        let beyond = pairs.iter().filter(|pair| pair.slow && !pair.is_within(cost_p95_ns)).count();
        Self {
            joined: pairs.len(),
            slow,
            beyond,
            cost_p25_ns: percentile(25),
            cost_p50_ns: percentile(50),
            cost_p95_ns,
        }
    }
}

impl Residence {
    /// Whether there are pairs, and their halves differ by no more than virtio takes.
    #[must_use]
    pub const fn is_right(&self) -> bool {
        self.joined > 0 && self.beyond * ONE_IN <= self.slow
    }
}

/// Whether all halves are counted once on each side, and as many are joined on both.
#[must_use]
pub const fn is_counted(join: &Join) -> bool {
    join.host.add_up() && join.guest.add_up() && join.host.joined == join.guest.joined
}

struct Pair {
    slow: bool,
    with_vm_ns: u64,
    inside_ns: u64,
}

fn pair(journey: &Journey) -> Option<Pair> {
    let GuestHalf { pairing, with_vm_ns, inside_ns, .. } = journey.guest.as_deref()?;
    let (with_vm_ns, inside_ns) = (*with_vm_ns).zip(*inside_ns)?;
    (pairing == "joined").then_some(Pair { slow: journey.slow, with_vm_ns, inside_ns })
}

impl Pair {
    const fn overhead_ns(&self) -> u64 {
        self.with_vm_ns.saturating_sub(self.inside_ns)
    }

    fn is_within(&self, virtio_ns: u64) -> bool {
        self.overhead_ns() <= virtio_ns + (self.with_vm_ns / SLACK_PART).max(SLACK_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::{Pair, Residence};

    #[test]
    fn a_slow_check_may_add_what_virtio_takes_and_2_percent() {
        let slow = |with_vm_ns, inside_ns| Pair { slow: true, with_vm_ns, inside_ns };
        assert!(slow(1_000_000_000, 979_000_000).is_within(1_000_000));
        assert!(!slow(1_000_000_000, 978_000_000).is_within(1_000_000));
        assert!(slow(3_000_000, 1_900_000).is_within(1_000_000) && !slow(3_000_000, 1_800_000).is_within(1_000_000));
        assert!(!Residence::of(&[]).is_right());
        let twenty = Residence { joined: 30, slow: 20, beyond: 1, ..Residence::default() };
        assert!(twenty.is_right() && !Residence { beyond: 2, ..twenty }.is_right());
    }
}
