//! How long checks were with the VM by the host's clock, and how long inside by the guest's.
//!
//! The difference is what virtio takes: the hypervisor, the backend, the interrupts. How much that is
//! tell the checks that nothing delayed: the median of theirs. The two residences of a slow check agree
//! if they differ by no more than it and a little.

use super::contract::{GuestHalf, Join, Journey};
use serde::Serialize;

/// Of so many slow checks one may differ by more: the machine that emulates the guest has other work.
const ONE_IN: usize = 20;
/// What two clocks may differ by besides: so much, or this part of the residence.
const SLACK_NS: u64 = 100_000;
const SLACK_PART: u64 = 50;

/// The residences of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Residence {
    /// Checks whose halves were joined and that were answered.
    pub joined: usize,
    /// Those of them that were not slow, which tell what virtio takes.
    pub undelayed: usize,
    /// What virtio takes: by how much the halves of undelayed checks differ, the quickest quarter, ns.
    pub cost_p25_ns: u64,
    /// The median.
    pub cost_p50_ns: u64,
    /// The slowest twentieth.
    pub cost_p95_ns: u64,
    /// Slow checks.
    pub slow: usize,
    /// Those of them whose residences agree: within 100 µs or 2 %, and the median of what virtio takes.
    pub agreeing: usize,
    /// By how much the residences of slow checks differ: the median, ns.
    pub differ_p50_ns: u64,
    /// The most, ns.
    pub differ_max_ns: u64,
}

impl Residence {
    /// Compares the halves of checks that were answered.
    #[must_use]
    pub fn of(journeys: &[Journey]) -> Self {
        let answered = |journey: &&Journey| journey.outcome == "replied";
        Self::of_pairs(&journeys.iter().filter(answered).filter_map(pair).collect::<Vec<_>>())
    }

    fn of_pairs(pairs: &[Pair]) -> Self {
        let differences = |slow: bool| {
            let mut found: Vec<_> = pairs.iter().filter(|pair| pair.slow == slow).map(Pair::difference_ns).collect();
            found.sort_unstable();
            found
        };
        let (costs, differences) = (differences(false), differences(true));
        let cost_p50_ns = percentile(&costs, 50);
        Self {
            joined: pairs.len(),
            undelayed: costs.len(),
            cost_p25_ns: percentile(&costs, 25),
            cost_p50_ns,
            cost_p95_ns: percentile(&costs, 95),
            slow: differences.len(),
            agreeing: pairs.iter().filter(|pair| pair.slow && pair.agrees(cost_p50_ns)).count(),
            differ_p50_ns: percentile(&differences, 50),
            differ_max_ns: percentile(&differences, 100),
        }
    }

    /// Whether there are pairs, and the residences of nearly all slow ones agree.
    #[must_use]
    pub const fn is_right(&self) -> bool {
        self.joined > 0 && (self.slow - self.agreeing) * ONE_IN <= self.slow
    }

    /// In words.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { joined, undelayed, cost_p25_ns, cost_p50_ns, cost_p95_ns, slow, agreeing, .. } = *self;
        let (cost, p25, p95) = (cost_p50_ns / 1_000, cost_p25_ns / 1_000, cost_p95_ns / 1_000);
        let cost = format!("virtio takes {cost} µs (median of {undelayed} undelayed; p25 {p25}, p95 {p95})");
        if slow == 0 {
            return format!("{joined} pairs, none of them slow; {cost}");
        }
        let (differ, most) = (self.differ_p50_ns / 1_000, self.differ_max_ns / 1_000);
        format!(
            "{joined} pairs, {slow} of them slow: the two residences of {agreeing} agree within 100 µs or 2 % and what \
             virtio takes; they differ by {differ} µs (median), {most} µs at most; {cost}"
        )
    }
}

/// Of sorted times; 0 of none.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0)
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
    let half: &GuestHalf = journey.guest.as_deref().filter(|half| half.is_joined())?;
    let (with_vm_ns, inside_ns) = half.with_vm_ns.zip(half.inside_ns)?;
    Some(Pair { slow: journey.slow, with_vm_ns, inside_ns })
}

impl Pair {
    const fn difference_ns(&self) -> u64 {
        self.with_vm_ns.abs_diff(self.inside_ns)
    }

    fn agrees(&self, virtio_ns: u64) -> bool {
        self.difference_ns() <= virtio_ns + (self.with_vm_ns / SLACK_PART).max(SLACK_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::{Pair, Residence};

    const fn pair(slow: bool, with_vm_ns: u64, inside_ns: u64) -> Pair {
        Pair { slow, with_vm_ns, inside_ns }
    }

    #[test]
    fn a_slow_check_may_add_what_virtio_takes_and_2_percent() {
        let slow = |with_vm_ns, inside_ns| pair(true, with_vm_ns, inside_ns);
        assert!(slow(1_000_000_000, 979_000_000).agrees(1_000_000));
        assert!(!slow(1_000_000_000, 978_000_000).agrees(1_000_000));
        assert!(slow(3_000_000, 1_900_000).agrees(1_000_000) && !slow(3_000_000, 1_800_000).agrees(1_000_000));
        assert!(!slow(1_000_000_000, 1_022_000_000).agrees(1_000_000), "a guest cannot have it for longer");
    }

    #[test]
    fn what_virtio_takes_is_the_median_of_undelayed_checks() {
        let undelayed = [300_000, 500_000, 9_000_000].map(|cost| pair(false, 2_000_000 + cost, 2_000_000));
        let slow = [600_000, 2_600_000].map(|cost| pair(true, 100_000_000 + cost, 100_000_000));
        let residence = Residence::of_pairs(&undelayed.into_iter().chain(slow).collect::<Vec<_>>());
        assert_eq!((residence.joined, residence.undelayed, residence.cost_p50_ns), (5, 3, 500_000));
        assert_eq!((residence.slow, residence.agreeing, residence.differ_max_ns), (2, 1, 2_600_000));
        assert!(!residence.is_right() && residence.line().contains("of 1 agree"), "{}", residence.line());
    }

    #[test]
    fn one_slow_check_of_twenty_may_differ_by_more() {
        assert!(!Residence::of(&[]).is_right());
        let twenty = Residence { joined: 30, slow: 20, agreeing: 19, ..Residence::default() };
        assert!(twenty.is_right() && !Residence { agreeing: 18, ..twenty }.is_right());
    }
}
