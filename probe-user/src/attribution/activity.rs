//! What watched threads did, one stretch after the other: for pictures of threads over time.
//!
//! A stretch is told once its end is known, by the same walk over a thread's records that ledgers
//! rest on: a missing record makes it unknown, and nothing is told twice.

use super::Evidence;
use super::evidence::text;
use super::rules::receive::vector;
use super::thread::{Blocked, By, Interval, State};
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;

/// What a thread did for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// Which thread.
    pub task: TaskId,
    /// Its name; empty if unknown.
    pub comm: String,
    /// Start.
    pub from: MonoNs,
    /// End; the activities of a thread never overlap.
    pub to: MonoNs,
    /// What.
    pub doing: Doing,
}

/// What a thread does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doing {
    /// It has a CPU.
    OnCpu {
        /// Which.
        cpu: u32,
        /// How much of it went to interrupts, softirqs, the hypervisor, or nobody that is known.
        not_its_own: DurNs,
    },
    /// It could run, and waits for a CPU.
    Runnable {
        /// Who had that meanwhile, if known.
        instead: Option<String>,
    },
    /// It waits for something else.
    Asleep {
        /// When it left its CPU: the start of the stretch, unless that began before it was seen.
        since: MonoNs,
        /// The kernel functions it sleeps in, outermost first; empty if no stack was taken.
        frames: Vec<String>,
        /// Who ended the wait: a thread's name, or what interrupted; `None` if that is not known.
        waker: Option<String>,
        /// Device of the file it waits for; empty if there is none or it is not known.
        device: String,
    },
    /// Stopped, traced or frozen.
    Stopped,
    /// Not known, and why.
    Unknown(&'static str),
}

impl Activity {
    /// How long.
    #[must_use]
    pub const fn time(&self) -> DurNs {
        self.to.since(self.from)
    }
}

impl Evidence {
    /// Tells what every thread did since that was told last: up to its latest record, or up to
    /// `until` where the stream is over.
    pub fn activities(&mut self, until: Option<MonoNs>) -> Vec<Activity> {
        let untold = self.take_untold(until);
        let mut told = Vec::new();
        // What this looks at counts for no check.
        self.apart(|evidence| {
            for (task, from, to) in untold {
                let intervals = evidence.intervals(task, from, to);
                told.extend(intervals.iter().map(|interval| evidence.activity(task, interval)));
            }
        });
        told.sort_by_key(|activity| (activity.from, activity.task));
        told
    }

    fn activity(&self, task: TaskId, interval: &Interval<'_>) -> Activity {
        let comm = self.life_at(task, interval.to).map_or(String::new(), |life| text(&life.comm));
        let doing = match &interval.state {
            State::OnCpu(slice) => Doing::OnCpu { cpu: slice.cpu, not_its_own: slice.gaps() },
            State::Runnable(wait) => Doing::Runnable { instead: wait.instead().map(|named| text(&named.comm)) },
            State::Blocked(blocked) => self.asleep(task, blocked),
            State::Stopped { .. } => Doing::Stopped,
            State::Unknown(reason) => Doing::Unknown(reason),
        };
        Activity { task, comm, from: interval.from, to: interval.to, doing }
    }

    fn asleep(&self, task: TaskId, blocked: &Blocked<'_>) -> Doing {
        let waker = blocked.wake.and_then(|wake| match wake.by() {
            By::Thread => Some(text(&wake.waker.comm)),
            By::Softirq(number) => Some(format!("softirq {}", vector(number))),
            By::Interrupt => Some("a timer".to_owned()),
            By::Unsure => None,
        });
        let device = self.file(task, blocked).ok().map(|file| self.storage().device(file.device()));
        Doing::Asleep { since: blocked.from, frames: self.shown(blocked), waker, device: device.unwrap_or_default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::story::{FUTEX, HOG, IDLE, MS, SERVER, Story, WORKER, at};

    fn doing(story: &mut Story, until: Option<u64>) -> Vec<(TaskId, u64, u64, Doing)> {
        let told = story.tell().evidence.activities(until.map(at));
        let us = |time: MonoNs| time.since(at(0)).0 / 1_000;
        told.into_iter().map(|one| (one.task, us(one.from), us(one.to), one.doing)).collect()
    }

    fn story() -> Story {
        let mut story = Story::new();
        story.runs(0, SERVER).sleeps(2 * MS, SERVER, 1, FUTEX);
        story.runs(500, WORKER).wakes(5 * MS, WORKER, SERVER).runs_after(6 * MS, SERVER, HOG);
        story.sleeps(8 * MS, SERVER, 1, FUTEX).wakes_amid(9 * MS, IDLE, SERVER, (0, probe_wire::Interrupt::Hard));
        story
    }

    #[test]
    fn a_thread_computes_sleeps_and_waits_for_a_cpu() {
        let told = doing(&mut story(), None);
        let server: Vec<_> = told.into_iter().filter(|one| one.0 == SERVER.id()).collect();
        let (spans, doing): (Vec<_>, Vec<_>) = server.into_iter().map(|one| ((one.1, one.2), one.3)).unzip();
        assert_eq!(spans, [(0, 2_000), (2_000, 5_000), (5_000, 6_000), (6_000, 8_000), (8_000, 9_000)]);
        let Doing::Asleep { since, frames, waker, .. } = &doing[1] else { panic!("{:?}", doing[1]) };
        assert_eq!((*since, waker.as_deref()), (at(2 * MS), Some("worker")));
        assert_eq!(frames.last().map(String::as_str), Some("futex_do_wait"));
        assert_eq!(doing[2], Doing::Runnable { instead: Some("hog".to_owned()) });
        assert!(matches!(doing[3], Doing::OnCpu { .. }), "{:?}", doing[3]);
        let Doing::Asleep { waker, .. } = &doing[4] else { panic!("{:?}", doing[4]) };
        assert_eq!(waker.as_deref(), Some("a timer"));
    }

    #[test]
    fn nothing_is_told_twice_and_the_end_of_the_stream_closes_what_goes_on() {
        let mut story = story();
        let mut told = doing(&mut story, None);
        assert!(story.evidence.activities(None).is_empty());
        told.extend(doing(&mut story, Some(20 * MS)));
        let mut server: Vec<_> = told.iter().filter(|one| one.0 == SERVER.id()).collect();
        server.sort_by_key(|one| one.1);
        assert!(server.windows(2).all(|pair| pair[0].2 == pair[1].1), "without gap or overlap: {server:?}");
        assert_eq!(server.last().map(|one| one.2), Some(20 * MS));
    }

    #[test]
    fn telling_changes_no_verdict() {
        let judged = |tells: bool| {
            let mut story = Story::served(862 * MS);
            story.sleeps(MS, SERVER, 1, FUTEX).wakes(861 * MS, WORKER, SERVER).runs(861 * MS + 5, SERVER);
            story.runs(500, WORKER).sleeps(900 * MS, WORKER, 1, FUTEX);
            story.tell();
            if tells {
                story.evidence.activities(None);
            }
            story.judge()
        };
        assert_eq!(format!("{:?}", judged(true)), format!("{:?}", judged(false)));
    }
}
