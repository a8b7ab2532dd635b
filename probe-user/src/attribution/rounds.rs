//! Waits in rounds: a lock that is asked for with a timeout, again and again, as Python asks for
//! its interpreter's.
//!
//! One such wait ends by its own timeout, and still the thread that has the lock is what it is
//! for. What shows it is the next one: the same wait, begun without work in between. Where it is not
//! told whether both are for the same futex, two rounds at least must have timed out, and the last must
//! have ended before it would have too.
//!
//! Of a thread whose last round timed out just when the lock became free nobody wakes: there the wake-up
//! of another that waited for the same futex tells who freed it.

use super::futex::FutexWord;
use super::symbol::StackRef;
use super::thread::{Blocked, Leave, Life, Mark, Switch, Wake};
use super::walk::{FALLING_ASLEEP, Kind, fits};
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
    /// To several that all timed out; this wake-up of another that waited for the same futex tells who
    /// freed it right before the thread went on.
    Freed(&'a Wake),
    /// Not known, for this reason.
    Unknown(&'static str),
    /// Records that would tell are not there, for this reason.
    Untold(&'static str),
}

const NO_END: &str = "it waited again and again, each time until a timeout of its own: for what is not known";
const AGAIN: &str = "it timed out, and the thread went on waiting: whether for the same is not known";
const UNSEEN: &str = "it timed out, and a record of what the thread did before or next is missing";
const NOT_YET: &str = "it timed out, and whether the thread then went on or asked again is not known yet";

/// What comes after a wait that timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next<'a> {
    /// Another round, which timed out as well, with this wake-up; and when it began.
    Round(&'a Wake, MonoNs),
    /// Another round, ended so long after its beginning by a wake-up that is no timeout; and its futex.
    Ended(&'a Wake, DurNs, Option<FutexWord>),
    /// What it did is not known, for this reason.
    Untold(&'static str),
    /// Anything else, in the slice that began then.
    Other(Option<MonoNs>),
}

/// Who freed a futex between two instants, by the wake-up of another thread that waited for it.
pub(super) type Freed<'a, 'f> = &'f dyn Fn(FutexWord, MonoNs, MonoNs) -> Option<&'a Wake>;

/// Where a thread is on its way from one wait to the next.
#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    /// It can run, and has no CPU.
    Ready,
    /// It has a CPU since this switch. A wake-up may come just before it is seen to fall asleep.
    On(&'a Switch, Option<&'a Wake>),
    /// It cannot run since this switch, unless that wake-up came while it was falling asleep. It waits
    /// for this futex, if that was told.
    Off(&'a Switch, Option<&'a Wake>, Option<FutexWord>),
}

impl<'a> Place<'a> {
    /// Where it is after a mark; `None` if a record of how it got there is missing. Each state has
    /// its own ways out of it, so no switch and no wake-up can be missing unnoticed.
    fn after(self, mark: &'a Mark) -> Option<Self> {
        match (self, mark) {
            (Self::Ready | Self::Off(_, Some(_), _), Mark::In(switch)) => Some(Self::On(switch, None)),
            (Self::Ready | Self::Off(_, Some(_), _) | Self::On(..), Mark::Out(out, leave)) => {
                let waking = if let Self::On(_, waking) = self { waking } else { None };
                self.ran(out, *leave).map(|_| Self::left(out, *leave, waking))
            }
            (Self::On(since, _), Mark::Waking(wake)) => Some(Self::On(since, Some(wake))),
            (Self::Ready | Self::Off(..), Mark::Waking(_)) => Some(Self::Ready),
            (_, Mark::In(_) | Mark::Out(..) | Mark::Present(_) | Mark::Gone(_)) => None,
            (_, Mark::Read { .. } | Mark::Call(_) | Mark::Seen { .. } | Mark::Born(_) | Mark::Ended(_)) => Some(self),
        }
    }

    fn left(out: &'a Switch, leave: Leave, waking: Option<&'a Wake>) -> Self {
        let waking = waking.filter(|wake| out.at.since(wake.at) <= FALLING_ASLEEP);
        match Kind::of(leave) {
            Kind::Ready(_) | Kind::Ended => Self::Ready,
            Kind::Asleep | Kind::Stopped => Self::Off(out, waking, leave.futex),
        }
    }

    /// How long the slice took that `out` ends: by its switches, or where the first is missing by
    /// the kernel's account. `None` if neither tells.
    fn ran(self, out: &Switch, leave: Leave) -> Option<DurNs> {
        match self {
            Self::On(since, _) => {
                let begun = leave.ran.map(|ran| out.at.before(ran));
                fits(since, out, begun).then(|| out.at.since(since.at))
            }
            Self::Ready | Self::Off(..) => leave.ran,
        }
    }

    /// Whether it was on a CPU, without a break, when it answered.
    fn answered(self, answer: Option<MonoNs>, until: Option<MonoNs>) -> bool {
        let Self::On(since, _) = self else { return false };
        answer.is_some_and(|answer| since.at <= answer && until.is_none_or(|until| answer < until))
    }

    /// Since when it has its CPU.
    fn on_since(self) -> Option<MonoNs> {
        if let Self::On(since, _) = self { Some(since.at) } else { None }
    }

    /// What `mark` says of a thread that is to wait in `stack` again, if that tells.
    fn next(self, mark: &'a Mark, stack: StackRef) -> Option<Next<'a>> {
        match (self, mark) {
            (Self::Off(out, ..), Mark::Waking(wake)) if wake.by_timer() => Some(Next::Round(wake, out.at)),
            (Self::Off(out, _, futex), Mark::Waking(wake)) => Some(Next::Ended(wake, wake.at.since(out.at), futex)),
            (Self::Off(_, Some(wake), futex), Mark::In(_) | Mark::Out(..)) => {
                Some(Next::Ended(wake, DurNs::ZERO, futex))
            }
            (_, Mark::Out(out, leave)) => {
                let works = self.ran(out, *leave).is_some_and(|ran| ran > WORK);
                let again = match Kind::of(*leave) {
                    Kind::Ready(_) => true,
                    Kind::Asleep => leave.stack == stack,
                    Kind::Stopped | Kind::Ended => false,
                };
                (works || !again).then_some(Next::Other(self.on_since()))
            }
            (_, Mark::Read { .. } | Mark::Call(_) | Mark::Born(_) | Mark::Ended(_)) => {
                Some(Next::Other(self.on_since()))
            }
            _ => None,
        }
    }
}

impl Life {
    /// The rounds that a wait which a timer ended is one of. The thread answered the check at
    /// `answer`, if it did.
    pub(super) fn rounds<'a>(
        &'a self,
        wait: &Blocked<'a>,
        wake: &'a Wake,
        answer: Option<MonoNs>,
        freed: Freed<'a, '_>,
    ) -> Rounds<'a> {
        let longest = wake.at.since(wait.from).plus(LATE);
        let before = self.timed_out_before(wait);
        let mut timed_out = 1 + usize::from(before == Some(true));
        let (mut seen, mut end, mut last_from, mut went_on) = (0, wake, wait.from, None);
        while seen < LOOK {
            match self.next_round(end, wait.stack, answer, &mut seen) {
                Next::Round(wake, from) => (timed_out, end, last_from) = (timed_out + 1, wake, from),
                // The lock of the lock itself, as that of a condition variable.
                Next::Ended(wake, time, futex) if time <= WORK && differ(futex, wait.futex) => end = wake,
                Next::Ended(wake, time, futex) if time <= longest && (timed_out >= 2 || same(futex, wait.futex)) => {
                    return Rounds::Ended(wake);
                }
                Next::Ended(_, time, _) if time <= longest && before.is_some() => return Rounds::Unknown(AGAIN),
                Next::Untold(why) => return Rounds::Untold(why),
                Next::Other(since) => {
                    went_on = since;
                    break;
                }
                Next::Ended(..) => break,
            }
        }
        let free = wait.futex.zip(went_on).and_then(|(futex, went_on)| freed(futex, last_from, went_on));
        match (free, before) {
            (Some(wake), _) if timed_out >= 2 => Rounds::Freed(wake),
            _ if timed_out >= 2 => Rounds::Unknown(NO_END),
            (_, Some(_)) => Rounds::Alone,
            (_, None) => Rounds::Untold(UNSEEN),
        }
    }

    /// What the thread did after `wake`, a wait in `stack` expected.
    fn next_round(&self, wake: &Wake, stack: StackRef, answer: Option<MonoNs>, seen: &mut usize) -> Next<'_> {
        let begin = self.marks.partition_point(|mark| mark.at() <= wake.at);
        let mut place = Place::Ready;
        for mark in self.marks.range(begin..) {
            *seen += 1;
            if place.answered(answer, Some(mark.at())) {
                return Next::Other(place.on_since());
            }
            let Some(after) = place.after(mark) else { return Next::Untold(UNSEEN) };
            if let Some(next) = place.next(mark, stack) {
                return next;
            }
            place = after;
        }
        if place.answered(answer, None) { Next::Other(place.on_since()) } else { Next::Untold(NOT_YET) }
    }

    /// Whether the same wait, before this one, timed out too; `None` if a record is missing that
    /// may have told.
    fn timed_out_before(&self, wait: &Blocked<'_>) -> Option<bool> {
        let end = self.marks.partition_point(|mark| mark.at() < wait.from);
        let slept = |mark: &Mark| match mark {
            Mark::Out(switch, leave) => matches!(Kind::of(*leave), Kind::Asleep).then_some((*switch, *leave)),
            _ => None,
        };
        let last = (0..end).rev().find_map(|index| Some((index, slept(self.marks.get(index)?)?)));
        let mut place =
            last.as_ref().map_or(Place::Ready, |(_, (switch, leave))| Place::Off(switch, None, leave.futex));
        let begin = last.as_ref().map_or(0, |(index, _)| index + 1);
        let mut first = None;
        for mark in self.marks.range(begin..self.marks.len().min(end + 1)) {
            place = place.after(mark)?;
            if let (Mark::Waking(wake), None) = (mark, first) {
                first = Some(wake);
            }
        }
        let alike = last.is_some_and(|(_, (_, leave))| leave.stack == wait.stack && !differ(leave.futex, wait.futex));
        let timed_out = first.filter(|wake| alike && wake.by_timer());
        Some(timed_out.is_some_and(|wake| matches!(self.next_round(wake, wait.stack, None, &mut 0), Next::Round(..))))
    }
}

/// Whether two waits were surely for the same futex.
fn same(one: Option<FutexWord>, other: Option<FutexWord>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one == other)
}

/// Whether two waits were surely for different ones.
fn differ(one: Option<FutexWord>, other: Option<FutexWord>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}
