//! What is known of the exits of KVM's guests that the host handled on their vCPUs' threads.
//!
//! Records go in; what of a stretch of time went to that comes out. Bounded by age and by count.

use super::exit_reason;
use super::storage::{forget, keep};
use super::symbol::Fast;
use super::thread::spread;
use crate::clock::{DurNs, MonoNs};
use crate::event::{Event, TaskId};
use probe_wire::GuestExitsBody;
use std::collections::{HashMap, VecDeque};

/// Most threads whose exits are kept.
const MAX_THREADS: usize = 8_192;
/// Most records kept of one.
const MAX_PER_THREAD: usize = 8_192;
/// Exits that were handled one after the other, the thread's CPU its own all the while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exits {
    from: MonoNs,
    to: MonoNs,
    handled: DurNs,
    longest: DurNs,
    count: u32,
    reason: u32,
    processor: u32,
}

impl Exits {
    fn of(at: MonoNs, body: &GuestExitsBody) -> Self {
        let from = MonoNs(body.since_ns).min(at);
        let handled = DurNs(body.handled_ns.min(at.since(from).0));
        let GuestExitsBody { longest_ns, exits, reason, processor, .. } = *body;
        Self { from, to: at, handled, longest: DurNs(longest_ns).min(handled), count: exits, reason, processor }
    }

    fn reason(&self) -> String {
        exit_reason::name(self.processor, self.reason)
    }
}

/// What the exits of a stretch of time came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Handled {
    pub(super) time: DurNs,
    /// How often the guest exited, or a little more often.
    pub(super) count: u64,
    pub(super) longest: DurNs,
    /// Why it exited that time.
    pub(super) reason: String,
}

/// Everything known of such exits.
#[derive(Debug, Default)]
pub(super) struct GuestExits {
    exits: HashMap<TaskId, VecDeque<Exits>, Fast>,
}

impl GuestExits {
    pub(super) fn add(&mut self, event: &Event, body: &GuestExitsBody) {
        keep(&mut self.exits, event.task, Exits::of(event.at, body), (MAX_THREADS, MAX_PER_THREAD));
    }

    /// Forgets what ended before `before`.
    pub(super) fn trim(&mut self, before: MonoNs) {
        forget(&mut self.exits, |exits| exits.to < before);
    }

    /// Whether an exit of a thread's guest is kept: it is a vCPU of KVM's.
    pub(super) fn any(&self, task: TaskId) -> bool {
        self.exits.get(&task).is_some_and(|exits| !exits.is_empty())
    }

    /// The exits of `task`'s guest between `from` and `to`; where those of one record lie is not told.
    pub(super) fn handled(&self, task: TaskId, from: MonoNs, to: MonoNs) -> Option<Handled> {
        let known = self.exits.get(&task)?;
        let begin = known.partition_point(|exits| exits.to <= from);
        let within: Vec<&Exits> = known.range(begin..).take_while(|exits| exits.from < to).collect();
        let longest = within.iter().max_by_key(|exits| exits.longest)?;
        let part = |exits: &&Exits| {
            let inside = exits.to.min(to).since(exits.from.max(from));
            spread(exits.handled, inside, exits.to.since(exits.from))
        };
        Some(Handled {
            time: within.iter().map(part).fold(DurNs::ZERO, DurNs::plus),
            count: within.iter().map(|exits| u64::from(exits.count)).sum(),
            longest: longest.longest,
            reason: longest.reason(),
        })
    }
}
