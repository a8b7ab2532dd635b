//! Who had a CPU: runs of threads, watched or not, while a watched one waited for that CPU.
//!
//! Records go in; the runs of a CPU over a stretch of time come out, one sum for each thread.
//! Bounded by age and by count, as all evidence.

use super::symbol::Fast;
use super::thread::Named;
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use std::collections::{HashMap, VecDeque};

/// Most CPUs whose runs are kept.
const MAX_CPUS: usize = probe_wire::MAX_CPUS;
/// Most runs kept of one.
const MAX_RUNS: usize = 16_384;
/// Most threads whose cgroups are kept.
const MAX_CGROUPS: usize = 8_192;

/// A thread had a CPU.
#[derive(Debug, Clone, Copy)]
struct Run {
    from: MonoNs,
    to: MonoNs,
    who: Named,
    /// Start time: tells two lives of one number apart.
    start_ns: u64,
}

/// How long a thread had a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) who: Named,
    pub(super) start_ns: u64,
    pub(super) time: DurNs,
}

/// Everything known of who had which CPU.
#[derive(Debug, Default)]
pub(super) struct Runs {
    by_cpu: HashMap<u32, VecDeque<Run>, Fast>,
    cgroups: HashMap<(TaskId, u64), String, Fast>,
}

impl Runs {
    /// A thread left a CPU that it had had for so long.
    pub(super) fn add(&mut self, cpu: u32, (who, start_ns): (Named, u64), at: MonoNs, ran: DurNs) {
        if who.task.tid == 0 || (self.by_cpu.len() >= MAX_CPUS && !self.by_cpu.contains_key(&cpu)) {
            return;
        }
        let runs = self.by_cpu.entry(cpu).or_default();
        if runs.len() >= MAX_RUNS {
            runs.pop_front();
        }
        // The run queue's clock is a little behind.
        let before = runs.back().map_or(MonoNs(0), |run| run.to);
        runs.push_back(Run { from: at.before(ran).max(before), to: at.max(before), who, start_ns });
    }

    /// The cgroup of a thread that nobody watches.
    pub(super) fn learn_cgroup(&mut self, task: TaskId, start_ns: u64, cgroup: &str) {
        if self.cgroups.len() < MAX_CGROUPS || self.cgroups.contains_key(&(task, start_ns)) {
            self.cgroups.insert((task, start_ns), cgroup.to_owned());
        }
    }

    pub(super) fn cgroup(&self, task: TaskId, start_ns: u64) -> Option<&str> {
        self.cgroups.get(&(task, start_ns)).map(String::as_str)
    }

    /// Forgets what ended before `before`, and when nothing is left, whose runs they were.
    pub(super) fn trim(&mut self, before: MonoNs) {
        self.by_cpu.retain(|_, runs| {
            runs.drain(..runs.partition_point(|run| run.to < before));
            !runs.is_empty()
        });
        if self.cgroups.len() >= MAX_CGROUPS {
            self.cgroups.clear();
        }
    }

    /// Who but `waiter` had a CPU between `from` and `to`, longest first.
    pub(super) fn shares(&self, cpu: u32, waiter: TaskId, from: MonoNs, to: MonoNs) -> Vec<Share> {
        let mut shares: Vec<Share> = Vec::new();
        let known = self.by_cpu.get(&cpu).into_iter();
        let known = known.flat_map(|runs| runs.range(runs.partition_point(|run| run.to <= from)..));
        for run in known.take_while(|run| run.from < to).filter(|run| run.who.task != waiter) {
            let time = run.to.min(to).since(run.from.max(from));
            match shares.iter_mut().find(|share| (share.who.task, share.start_ns) == (run.who.task, run.start_ns)) {
                Some(share) => share.time = share.time.plus(time),
                None => shares.push(Share { who: run.who, start_ns: run.start_ns, time }),
            }
        }
        shares.sort_by_key(|share| (std::cmp::Reverse(share.time), share.who.task));
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_RUNS, Runs};
    use crate::attribution::Cause;
    use crate::attribution::story::{Actor, HOG, IDLE, KWORKER, MS, RECEIVE, SERVER, Story, at, concluded, longest};
    use crate::attribution::thread::Named;
    use crate::clock::DurNs;
    use crate::event::Fact;

    const BATCH: Actor = Actor(950, 951, "batch");
    const LAST: Actor = Actor(960, 960, "last");

    /// The server is preempted by `HOG` at 1 ms and comes back after `LAST` at 99 ms.
    fn preempted() -> Story {
        let mut story = Story::served(100 * MS);
        story.preempted(MS, SERVER, HOG).runs_after(99 * MS, SERVER, LAST).sleeps(101 * MS, SERVER, 1, RECEIVE);
        story
    }

    /// Who is behind the wait for the CPU, by name and cgroup, and all facts in one.
    fn behind(story: &mut Story) -> (String, String, String) {
        let judged = story.judge();
        assert_eq!(concluded(&judged), Some(Cause::AppRunqueue), "{judged:#?}");
        let entry = longest(&judged, Cause::AppRunqueue);
        let offender = entry.offender.clone().unwrap_or_default();
        (offender.comm, offender.cgroup, entry.evidence.join("; "))
    }

    #[test]
    fn whoever_had_the_cpu_longest_is_behind_the_wait() {
        let mut story = preempted();
        let runner =
            |start_time_ns, cgroup: &str| Fact::Runner { id: BATCH.id(), start_time_ns, cgroup: cgroup.to_owned() };
        story.fact(0, runner(951_000_000_000, "/batch.slice")).fact(0, runner(7, "/before.slice"));
        story.ran_there(11 * MS, HOG, 10 * MS).ran_there(81 * MS, BATCH, 70 * MS);
        story.ran_there(83 * MS, KWORKER, 2 * MS).ran_there(99 * MS, LAST, 16 * MS);
        let (comm, cgroup, facts) = behind(&mut story);
        assert_eq!((comm.as_str(), cgroup.as_str()), ("batch", "/batch.slice"));
        let list = "pid 950/951 batch 70.0 ms, pid 960/960 last 16.0 ms, pid 900/900 hog 10.0 ms, 1 others 2.00 ms";
        assert!(facts.contains(&format!("CPU 0 ran instead: {list}")), "{facts}");
    }

    #[test]
    fn of_a_thread_that_came_and_went_the_sum_counts() {
        let mut story = preempted();
        story.ran_there(40 * MS, LAST, 39 * MS);
        for ms in (42..99).step_by(2) {
            story.ran_there(ms * MS, BATCH, 3 * MS / 2);
        }
        assert_eq!(behind(&mut story).0, "batch");
    }

    #[test]
    fn a_run_that_began_before_the_wait_counts_from_its_begin() {
        let mut story = preempted();
        story.ran_there(60 * MS, HOG, 500 * MS).ran_there(99 * MS, LAST, 39 * MS);
        let (comm, _, facts) = behind(&mut story);
        assert_eq!(comm, "hog");
        assert!(facts.contains("hog 59.0 ms"), "{facts}");
    }

    #[test]
    fn where_little_of_the_wait_is_covered_the_switches_beside_it_tell() {
        let mut story = preempted();
        story.ran_there(40 * MS, BATCH, 10 * MS);
        let (comm, _, facts) = behind(&mut story);
        assert_eq!(comm, "last");
        assert!(facts.contains("pid 960/960 last ran instead"), "{facts}");
    }

    #[test]
    fn runs_never_overlap_and_are_bounded() {
        let who = |actor: Actor| (Named { task: actor.id(), comm: [0; 16] }, 1);
        let mut runs = Runs::default();
        runs.add(0, who(HOG), at(10), DurNs(8_000));
        runs.add(0, who(BATCH), at(20), DurNs(15_000));
        runs.add(0, who(IDLE), at(30), DurNs(10_000));
        let shares = runs.shares(0, SERVER.id(), at(0), at(100));
        let times: Vec<_> = shares.iter().map(|share| (share.who.task, share.time.0)).collect();
        assert_eq!(times, [(BATCH.id(), 10_000), (HOG.id(), 8_000)]);
        assert!(runs.shares(0, BATCH.id(), at(11), at(100)).is_empty());
        for us in 0..20_000 {
            runs.add(1, who(HOG), at(us), DurNs(1_000));
        }
        assert_eq!(runs.by_cpu[&1].len(), MAX_RUNS);
        runs.trim(at(30_000));
        assert!(runs.by_cpu.is_empty());
    }
}
