//! What whylag said of a CPU that was behind with receiving, against what is known of who kept it.

use super::contract::{Journey, Keeper, Receive};
use super::message::Ran;
use super::run::Window;
use std::collections::BTreeMap;

/// The CPU that receives in the lab.
const CPU: u32 = 1;
/// The cause of being received late.
const LATE: &str = "nic.rx_softirq";
/// Of what checks waited, a keeper cannot have more than of the time of the fault, and so much.
const SLACK: f64 = 0.05;

/// Who keeps the CPU from receiving, by the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// A thread of this name. If it kept the CPU for most of the wait, another CPU must be advised for it.
    By(&'static str),
    /// Anyone but a thread of this name, which only has the CPU.
    NotBy(&'static str),
}

/// What is wrong about what was said, if anything is. `guilty` are the checks that the fault delayed, `ran`
/// is what the keepers themselves say.
#[must_use]
pub(super) fn mistake(
    kept: Kept,
    said: &[Receive],
    guilty: &[&Journey],
    (ran, window): (&[Ran], Window),
) -> Option<String> {
    let line = said.iter().find(|line| line.cpu == CPU);
    let (Kept::By(name) | Kept::NotBy(name)) = kept;
    if kept == Kept::NotBy(name) {
        return line?.keepers.iter().find(|keeper| keeper.comm == name).map(|keeper| format!("{keeper:?}"));
    }
    let Some(line) = line else { return Some(format!("no line tells that CPU {CPU} was behind")) };
    let mut keepers = line.keepers.iter().filter(|keeper| keeper.comm == name && !keeper.cgroup.is_empty());
    let is_right = |keeper: &Keeper| is_right(keeper, line, ran, window) && is_advised(keeper, line);
    let blamed = most(guilty);
    let right = keepers.any(is_right) && blamed.as_deref() == Some(name);
    (!right).then(|| format!("{line:?}; most delayed checks blame {blamed:?}, of threads; by its own count: {ran:?}"))
}

/// The thread that most checks blame most for being received late. The fault of one that keeps the CPU may
/// end before the storm does, and others have it then.
fn most(checks: &[&Journey]) -> Option<String> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for name in checks.iter().filter_map(|check| blamed(check)) {
        *counts.entry(name).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, checks)| *checks).map(|(name, _)| name.to_owned())
}

/// The thread that a check blames most.
fn blamed(check: &Journey) -> Option<&str> {
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in check.ledger.iter().filter(|entry| entry.cause == LATE) {
        if let Some(who) = entry.offender.as_ref().filter(|who| who.tid != 0) {
            *times.entry(&who.comm).or_default() += entry.ns;
        }
    }
    times.into_iter().max_by_key(|(_, ns)| *ns).map(|(name, _)| name)
}

fn is_advised(keeper: &Keeper, line: &Receive) -> bool {
    let advised = line.advice.iter().any(|advice| advice.step.contains(&keeper.comm));
    advised || keeper.ns * 2 < line.late_ns
}

/// Whether it is the thread that says so itself, with no more of the wait than it ran.
fn is_right(keeper: &Keeper, line: &Receive, ran: &[Ran], window: Window) -> bool {
    let lasted = window.ended_ns.saturating_sub(window.began_ns) as f64;
    let told = keeper.ns as f64 / line.late_ns as f64;
    let is_it = |ran: &Ran| ran.tid == keeper.tid && told <= ran.ns as f64 / lasted + SLACK;
    ran.is_empty() || ran.iter().any(is_it)
}

#[cfg(test)]
mod tests {
    use super::{Journey, Keeper, Kept, Ran, Receive, Window, mistake};
    use crate::lab::contract::Advice;

    const BATCH: Kept = Kept::By("batch");

    fn line(ns: u64, advised: &str) -> Receive {
        let keeper = Keeper { comm: "batch".into(), tid: 7, cgroup: "/".into(), ns };
        let advice = vec![Advice { step: advised.into() }];
        Receive { cpu: 1, late_ns: 1_000, taken_ns: 0, workers: Vec::new(), keepers: vec![keeper], advice }
    }

    /// A check that was late by this thread and by softirqs.
    fn late(who: &str, ns: u64) -> Journey {
        let entry = |comm: &str, tid: u32, ns: u64| {
            serde_json::json!({"cause": "nic.rx_softirq", "ns": ns, "span": "receive", "path": [], "evidence": [],
                "offender": {"comm": comm, "tid": tid}})
        };
        let journey = serde_json::json!({"type": "journey", "id": "1", "signature": "s", "target": "t",
            "outcome": "replied", "started_at": "1970-01-01T00:00:02.000000007Z", "elapsed_ns": 9, "slow": true,
            "stages": [], "ledger": [entry(who, 7, ns), entry("", 0, 900)], "unexplained_ns": 0,
            "verdict": {"status": "cause", "cause": "nic.rx_softirq", "share": 1.0, "reason": null}});
        serde_json::from_value(journey).unwrap()
    }

    #[test]
    fn the_keeper_is_right_with_its_thread_its_part_and_advice() {
        let checks = [late("batch", 4), late("batch", 4), late("other", 30)];
        let window = Window { began_ns: 0, ended_ns: 100 };
        let guilty: Vec<&Journey> = checks.iter().collect();
        let is_right = |line: Receive, ran: &[Ran]| mistake(BATCH, &[line], &guilty, (ran, window)).is_none();
        assert!(is_right(line(400, ""), &[Ran { tid: 7, ns: 50 }]));
        assert!(is_right(line(400, ""), &[]), "who does not count is taken by its name");
        assert!(!is_right(line(400, ""), &[Ran { tid: 8, ns: 50 }]), "another thread");
        assert!(!is_right(line(400, ""), &[Ran { tid: 7, ns: 30 }]), "more than it ran");
        assert!(is_right(line(600, "keep batch off"), &[]) && !is_right(line(600, "a wider mask"), &[]));
        assert!(mistake(BATCH, &[line(400, "")], &guilty[2..], (&[], window)).is_some(), "others are blamed");
        assert!(mistake(BATCH, &[], &guilty, (&[], window)).is_some());
    }

    #[test]
    fn who_only_has_the_cpu_is_not_named() {
        let mistaken = |name, said: &[Receive]| mistake(Kept::NotBy(name), said, &[], (&[], Window::default()));
        assert!(mistaken("batch", &[line(1, "")]).is_some());
        assert!(mistaken("inventory", &[line(1, "")]).is_none() && mistaken("batch", &[]).is_none());
    }
}
