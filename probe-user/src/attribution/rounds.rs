//! Waits in rounds: a lock that is asked for with a timeout, again and again, as Python asks for
//! its interpreter's.
//!
//! One such wait ends by its own timeout, and still the thread that has the lock is what it is
//! for. What shows it is the next one: the same wait, begun without work in between. The kernel
//! does not tell whether both are for the same futex, so two rounds at least must have timed out,
//! and the last must have ended before it would have too.

use super::symbol::StackRef;
use super::thread::{Blocked, Leave, Life, Mark, Wake};
use crate::clock::{DurNs, MonoNs};

/// Marks that are looked at for the end of the rounds: a thread leaves four in each.
const LOOK: usize = 4_096;
/// A thread that computes for longer between two waits does more than ask again.
const WORK: DurNs = DurNs::from_millis(1);
/// By how much a round may last longer than another with the same timeout.
const LATE: DurNs = DurNs::from_millis(1);

/// What a wait that its own timeout ended belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounds<'a> {
    /// To none: the thread went on.
    Alone,
    /// To several, the last of which this wake-up ended early.
    Ended(&'a Wake),
    /// Not known, for this reason.
    Unknown(&'static str),
}

const NO_END: &str = "it waited again and again, each time until a timeout of its own: for what is not known";
const AGAIN: &str = "it timed out, and the thread went on waiting: whether for the same is not known";

const UNSEEN: &str = "it timed out, and a switch record of what the thread did next is missing";

/// What comes after a wait that timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next<'a> {
    /// Another round, which timed out as well, with this wake-up.
    Round(&'a Wake),
    /// Another round, ended so long after its beginning by a wake-up that is no timeout.
    Ended(&'a Wake, DurNs),
    /// What it did is not known.
    Unseen,
    /// Anything else.
    Other,
}

impl Life {
    /// The rounds that a wait which a timer ended is one of.
    pub(super) fn rounds<'a>(&'a self, wait: &Blocked<'a>, wake: &'a Wake) -> Rounds<'a> {
        let longest = wake.at.since(wait.from).plus(LATE);
        let mut timed_out = 1 + usize::from(self.timed_out_before(wait));
        let mut seen = 0;
        let mut end = wake;
        while seen < LOOK {
            match self.next_round(end, wait.stack, &mut seen) {
                Next::Round(wake) => (timed_out, end) = (timed_out + 1, wake),
                Next::Ended(wake, time) if time <= longest => {
                    return if timed_out < 2 { Rounds::Unknown(AGAIN) } else { Rounds::Ended(wake) };
                }
                Next::Unseen => return Rounds::Unknown(UNSEEN),
                Next::Ended(..) | Next::Other => break,
            }
        }
        if timed_out < 2 { Rounds::Alone } else { Rounds::Unknown(NO_END) }
    }

    /// What the thread did after `wake`, a wait in `stack` expected.
    fn next_round(&self, wake: &Wake, stack: StackRef, seen: &mut usize) -> Next<'_> {
        let begin = self.marks.partition_point(|mark| mark.at() <= wake.at);
        let (mut on_since, mut asleep_since) = (None, None);
        for mark in self.marks.range(begin..) {
            *seen += 1;
            match (mark, asleep_since) {
                (Mark::In(switch), None) => on_since = Some(switch.at),
                (Mark::Out(switch, _), None) if works(on_since, switch.at) => return Next::Other,
                (Mark::Out(switch, leave), None) if asleep(*leave) && leave.stack == stack => {
                    asleep_since = Some(switch.at);
                }
                (Mark::Out(_, leave), None) if can_run(*leave) => {}
                // Woken while it runs, for nothing.
                (Mark::Waking(_), None) => {}
                (Mark::Waking(wake), Some(_)) if wake.by_timer() => return Next::Round(wake),
                (Mark::Waking(wake), Some(since)) => return Next::Ended(wake, wake.at.since(since)),
                (Mark::Present(_) | Mark::Gone { .. }, _) => return Next::Unseen,
                _ => return Next::Other,
            }
        }
        Next::Other
    }

    /// Whether the same wait, before this one, timed out too.
    fn timed_out_before(&self, wait: &Blocked<'_>) -> bool {
        let Some(wake) = self.wakes_before(wait.from).next().filter(|wake| wake.by_timer()) else { return false };
        let asleep = self.last_sleep_before(wake.at) == Some(wait.stack);
        asleep && matches!(self.next_round(wake, wait.stack, &mut 0), Next::Round(_))
    }
}

fn works(on_since: Option<MonoNs>, to: MonoNs) -> bool {
    on_since.is_some_and(|since| to.since(since) > WORK)
}

/// Whether a thread that leaves its CPU so falls asleep.
const fn asleep(leave: Leave) -> bool {
    !leave.preempted && leave.state & 3 != 0
}

/// Whether it only lost the CPU. 256 is how some kernels mark that.
const fn can_run(leave: Leave) -> bool {
    leave.preempted || leave.state & !256 == 0
}
