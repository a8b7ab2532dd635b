//! What is known of kernel locks that threads wait for on the CPU.
//!
//! Records go in; the parts of a slice that went to such waits come out. Bounded by age and by
//! count, as all evidence.

use super::storage::{forget, keep};
use super::symbol::Fast;
use super::thread::{Named, spread};
use crate::clock::{DurNs, MonoNs};
use crate::event::{Event, TaskId};
use probe_wire::{LOCK_MUTEX, LOCK_PERCPU, LOCK_RT, LOCK_SPIN, LockSpinBody};
use std::collections::{HashMap, VecDeque};

/// Most threads whose waits are kept.
const MAX_THREADS: usize = 8_192;
/// Most records kept of one.
const MAX_PER_THREAD: usize = 8_192;

/// A stretch of one slice in which a thread waited for kernel locks without leaving its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spin {
    pub(super) from: MonoNs,
    pub(super) to: MonoNs,
    /// How much of it were waits; where in it they lay is not told.
    pub(super) spun: DurNs,
    pub(super) waits: u32,
    flags: u32,
    /// Who had the lock when the longest wait began, if the lock tells.
    pub(super) owner: Option<Named>,
}

impl Spin {
    fn of(at: MonoNs, body: &LockSpinBody) -> Self {
        let from = MonoNs(body.since_ns).min(at);
        let task = TaskId { tgid: body.owner_tgid, tid: body.owner_tid };
        Self {
            from,
            to: at,
            spun: DurNs(body.spun_ns.min(at.since(from).0)),
            waits: body.waits,
            flags: body.flags,
            owner: (task.tid != 0).then_some(Named { task, comm: body.owner_comm }),
        }
    }

    /// What kind of lock it was.
    pub(super) const fn kind(&self) -> &'static str {
        match self.flags {
            flags if flags & LOCK_MUTEX != 0 => "mutex",
            flags if flags & LOCK_RT != 0 => "mutex with priority inheritance",
            flags if flags & LOCK_PERCPU != 0 => "semaphore with readers per CPU",
            flags if flags & LOCK_SPIN != 0 => "spinlock",
            _ => "semaphore",
        }
    }

    /// The part of it that falls into `from` to `to`, at the end of what both have in common.
    fn within(&self, from: MonoNs, to: MonoNs) -> (MonoNs, MonoNs) {
        let (begin, end) = (self.from.max(from), self.to.min(to).max(from));
        let spun = spread(self.spun, end.since(begin), self.to.since(self.from));
        (end.before(spun).max(begin), end)
    }
}

/// Everything known of such waits.
#[derive(Debug, Default)]
pub(super) struct Spins {
    spins: HashMap<TaskId, VecDeque<Spin>, Fast>,
}

impl Spins {
    pub(super) fn add(&mut self, event: &Event, body: &LockSpinBody) {
        keep(&mut self.spins, event.task, Spin::of(event.at, body), (MAX_THREADS, MAX_PER_THREAD));
    }

    /// Forgets what ended before `before`.
    pub(super) fn trim(&mut self, before: MonoNs) {
        forget(&mut self.spins, |spin| spin.to < before);
    }

    /// The waits of `task` between `from` and `to`, in their order: when, and what is known.
    pub(super) fn within(&self, task: TaskId, from: MonoNs, to: MonoNs) -> impl Iterator<Item = Spell<'_>> {
        let known = self.spins.get(&task).into_iter();
        known
            .flat_map(move |known| known.range(known.partition_point(|spin| spin.to <= from)..))
            .take_while(move |spin| spin.from < to)
            .map(move |spin| (spin.within(from, to), spin))
            .filter(|((from, to), _)| from < to)
    }

    /// How long `task` waited so between `from` and `to`.
    pub(super) fn time(&self, task: TaskId, from: MonoNs, to: MonoNs) -> DurNs {
        self.within(task, from, to).fold(DurNs::ZERO, |sum, ((from, to), _)| sum.plus(to.since(from)))
    }
}

/// From when to when, and what is known of it.
pub(super) type Spell<'a> = ((MonoNs, MonoNs), &'a Spin);

#[cfg(test)]
mod tests {
    use super::MAX_PER_THREAD;
    use crate::attribution::Cause;
    use crate::attribution::story::{
        Actor, FUTEX, HOG, MS, RECEIVE, SERVER, Story, THIRD, WORKER, at, concluded, longest, taken,
    };
    use crate::clock::DurNs;
    use probe_wire::{LOCK_MUTEX, LOCK_SPIN};

    const OWNER: Actor = Actor(950, 951, "owner");

    /// The server works on a check for 100 ms, and then waits for the next.
    fn worked() -> Story {
        let mut story = Story::served(100 * MS);
        story.sleeps(101 * MS, SERVER, 1, RECEIVE);
        story
    }

    #[test]
    fn spinning_for_a_kernel_lock_is_not_the_application_s() {
        let mut story = worked();
        story.spins((10 * MS, 90 * MS), SERVER, (80 * MS, 1), (LOCK_SPIN, None));
        let judged = story.judge();
        assert_eq!(concluded(&judged), Some(Cause::KernelLock), "{judged:#?}");
        assert_eq!(taken(&judged, Cause::KernelLock), DurNs::from_millis(80));
        let entry = longest(&judged, Cause::KernelLock);
        let facts = entry.evidence.join("; ");
        assert_eq!(entry.offender, None);
        assert!(facts.contains("waited 80.0 ms on CPU for a kernel spinlock"), "{facts}");
        assert!(facts.contains("who had it is not known"), "{facts}");
        let facts = longest(&judged, Cause::AppOnCpu).evidence.join("; ");
        assert!(facts.contains("was on CPU 19.9 ms of the 99.9 ms"), "{facts}");
    }

    #[test]
    fn who_has_a_mutex_is_the_offender() {
        let mut story = worked();
        story.spins((10 * MS, 90 * MS), SERVER, (80 * MS, 1), (LOCK_MUTEX | LOCK_SPIN, Some(OWNER)));
        let judged = story.judge();
        let entry = longest(&judged, Cause::KernelLock);
        assert_eq!(entry.offender.as_ref().map(|who| (who.task, who.comm.as_str())), Some((OWNER.id(), "owner")));
        assert!(entry.evidence.join("; ").contains("pid 950/951 owner had it when the wait began"), "{entry:#?}");
    }

    #[test]
    fn of_many_short_waits_only_the_time_they_took_is_taken() {
        let mut story = worked();
        for ms in 10..90 {
            story.spins((ms * MS, (ms + 1) * MS), SERVER, (MS / 4, 20), (LOCK_SPIN, None));
        }
        let judged = story.judge();
        assert_eq!(taken(&judged, Cause::KernelLock), DurNs::from_millis(20));
        assert_eq!(concluded(&judged), Some(Cause::AppOnCpu), "{judged:#?}");
    }

    #[test]
    fn a_wait_that_began_before_the_check_counts_from_there() {
        let mut story = Story::served(100 * MS);
        story.sleeps(101 * MS, SERVER, 1, RECEIVE).spins((0, 50 * MS), SERVER, (50 * MS, 1), (LOCK_SPIN, None));
        let judged = story.judge();
        let taken = taken(&judged, Cause::KernelLock);
        assert!(taken > DurNs::from_millis(49) && taken < DurNs::from_millis(50), "{taken}");
    }

    #[test]
    fn asleep_in_the_midst_of_it_the_sleep_keeps_its_cause() {
        let mut story = worked();
        story.sleeps(20 * MS, SERVER, 1, FUTEX).wakes(80 * MS, WORKER, SERVER).runs(80 * MS, SERVER);
        story.runs(0, WORKER).sleeps(81 * MS, WORKER, 1, FUTEX);
        story.spins((10 * MS, 90 * MS), SERVER, (80 * MS, 1), (LOCK_MUTEX, Some(THIRD)));
        let judged = story.judge();
        assert_eq!(taken(&judged, Cause::AppFutex), DurNs::from_millis(60), "{judged:#?}");
        assert_eq!(taken(&judged, Cause::KernelLock), DurNs::from_millis(20), "{judged:#?}");
    }

    #[test]
    fn a_holder_that_spins_is_followed_to_the_kernel_s_lock() {
        let mut story = worked();
        story.sleeps(MS, SERVER, 1, FUTEX).wakes(99 * MS, WORKER, SERVER).runs(99 * MS, SERVER);
        story.runs(0, WORKER).spins((2 * MS, 98 * MS), WORKER, (96 * MS, 1), (LOCK_SPIN, None));
        story.sleeps(100 * MS, WORKER, 1, FUTEX);
        let judged = story.judge();
        assert_eq!(concluded(&judged), Some(Cause::KernelLock), "{judged:#?}");
        assert_eq!(longest(&judged, Cause::KernelLock).path, [Cause::AppFutex, Cause::KernelLock]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut story = Story::new();
        for us in 0..10_000 {
            story.spins((us, us + 1), HOG, (1, 1), (LOCK_SPIN, None));
        }
        assert_eq!(story.tell().evidence.spins().spins[&HOG.id()].len(), MAX_PER_THREAD);
        story.evidence.trim(at(60_000 * MS));
        assert!(story.evidence.spins().spins.is_empty());
    }
}
