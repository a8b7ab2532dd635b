//! What the text view counts for itself: the status line, and how often it may speak.

use super::check::INDENT;
use super::line::{Line, Look};
use crate::attribution::{Judged, Offender, Verdict};
use crate::clock::{DurNs, MonoNs};
use crate::event::InterfaceId;
use crate::journey::{JourneyId, Outcome};
use std::collections::BTreeMap;

/// Blocks of different kinds shown in one second of the run; what exceeds them is summed up in a line.
const BLOCKS_PER_SECOND: usize = 5;

/// Counts of the run so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) checks: u64,
    pub(super) slow: u64,
    pub(super) lost: u64,
    /// Elapsed time of the latest answered check.
    pub(super) latest: Option<DurNs>,
    /// Cause of the latest check that was not healthy.
    pub(super) latest_cause: Option<&'static str>,
    /// Open checks that count as slow: how long they have been so, and the age that is next worth a block.
    open: BTreeMap<JourneyId, OpenCheck>,
}

#[derive(Debug, Clone, Copy)]
struct OpenCheck {
    age: DurNs,
    speak_at: DurNs,
}

impl Tally {
    /// Counts a check; true when it is news for a reader.
    pub(super) fn take(&mut self, judged: &Judged) -> bool {
        let id = judged.journey.id;
        if judged.journey.outcome == Outcome::Open {
            return judged.slow && self.still_open(id, judged.journey.elapsed());
        }
        self.open.remove(&id);
        self.checks += 1;
        self.slow += u64::from(judged.slow && judged.journey.outcome == Outcome::Replied);
        self.lost += u64::from(matches!(judged.journey.outcome, Outcome::Lost(_)));
        if judged.journey.outcome == Outcome::Replied {
            self.latest = Some(judged.journey.elapsed());
        }
        let news = judged.slow || judged.journey.outcome != Outcome::Replied;
        if news {
            self.latest_cause = cause_name(&judged.verdict);
        }
        news
    }

    /// An open check speaks when it becomes slow, and each time its age has doubled since.
    fn still_open(&mut self, id: JourneyId, age: DurNs) -> bool {
        let check = self.open.entry(id).or_insert(OpenCheck { age, speak_at: age });
        check.age = age;
        if age < check.speak_at {
            return false;
        }
        check.speak_at = age.plus(age);
        true
    }

    /// Slow open checks, and the age of the oldest.
    pub(super) fn open(&self) -> (usize, Option<DurNs>) {
        (self.open.len(), self.open.values().map(|check| check.age).max())
    }
}

pub(super) const fn cause_name(verdict: &Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Cause { cause, .. } | Verdict::Split { cause, .. } => Some(cause.name()),
        Verdict::Healthy | Verdict::Unresolved(_) => None,
    }
}

/// Keeps a flood of slow checks readable: of those alike in one second of the run, the first is
/// shown whole and the others are counted.
#[derive(Debug, Default)]
pub(super) struct Pace {
    second: u64,
    groups: Vec<Group>,
    /// Those of more kinds than are shown.
    others: u64,
}

/// Checks that are alike.
#[derive(Debug)]
struct Group {
    likeness: Likeness,
    more: u64,
    shortest: DurNs,
    longest: DurNs,
}

/// What makes two checks alike for a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Likeness {
    /// The word for the outcome.
    pub(super) word: &'static str,
    pub(super) target: InterfaceId,
    pub(super) signature: usize,
    /// The verdict's cause, or that there is none.
    pub(super) cause: &'static str,
    pub(super) offender: Option<Offender>,
}

impl Pace {
    /// Goes to the second of `now`; what was held back in one that ended.
    pub(super) fn turn(&mut self, now: MonoNs) -> Vec<Line> {
        let second = now.0 / 1_000_000_000;
        if second <= self.second {
            return Vec::new();
        }
        self.second = second;
        self.held_back()
    }

    /// Whether a check's block may be shown; it is counted if not.
    pub(super) fn admit(&mut self, likeness: Likeness, elapsed: DurNs) -> bool {
        if let Some(group) = self.groups.iter_mut().find(|group| group.likeness == likeness) {
            group.shortest = if group.more == 0 { elapsed } else { group.shortest.min(elapsed) };
            group.longest = if group.more == 0 { elapsed } else { group.longest.max(elapsed) };
            group.more += 1;
            return false;
        }
        if self.groups.len() == BLOCKS_PER_SECOND {
            self.others += 1;
            return false;
        }
        self.groups.push(Group { likeness, more: 0, shortest: elapsed, longest: elapsed });
        true
    }

    /// What is held back, told in a line for each group.
    pub(super) fn held_back(&mut self) -> Vec<Line> {
        let several = self.groups.len() > 1;
        let mut lines: Vec<Line> =
            self.groups.drain(..).filter(|group| group.more > 0).map(|group| group.line(several)).collect();
        let others = std::mem::take(&mut self.others);
        if others > 0 {
            lines.push(
                more().flow(Look::Dim, format!("… and {others} others in the same second; all are in --format json")),
            );
        }
        lines
    }
}

fn more() -> Line {
    Line::hanging(INDENT).plain(format!("{:INDENT$}", ""))
}

impl Group {
    /// With several groups in a second, it says which is meant.
    fn line(self, several: bool) -> Line {
        let Likeness { word, cause, offender, .. } = self.likeness;
        let by = offender.filter(|offender| offender.task.tid != 0).map(|offender| format!(" by {}", offender.name()));
        let which = if several { format!(" ({word}, {cause}{})", by.unwrap_or_default()) } else { String::new() };
        let times = match (self.shortest, self.longest) {
            (one, same) if one.to_string() == same.to_string() => one.to_string(),
            (shortest, longest) => format!("{shortest} to {longest}"),
        };
        more().flow(Look::Dim, format!("… and {} more like it{which}, {times}", self.more))
    }
}
