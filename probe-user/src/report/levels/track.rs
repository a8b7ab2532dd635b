//! One level over time.

use super::AROUND;
use crate::clock::MonoNs;
use crate::level::Measure;
use crate::report::chart::Window;
use crate::report::words::real;

/// Columns of a drawing.
pub(super) const COLUMNS: usize = 240;

/// Stretches of time, in order, none touching another.
#[derive(Debug, Default)]
pub(super) struct Spans(Vec<(MonoNs, MonoNs)>);

impl Spans {
    pub(super) fn of(spans: impl Iterator<Item = (MonoNs, MonoNs)>) -> Self {
        let mut sorted: Vec<_> = spans.collect();
        sorted.sort();
        let mut merged: Vec<(MonoNs, MonoNs)> = Vec::new();
        for (from, to) in sorted {
            match merged.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => merged.push((from, to)),
            }
        }
        Self(merged)
    }

    pub(super) fn all(&self) -> &[(MonoNs, MonoNs)] {
        &self.0
    }

    /// Whether any of them and what was read between `after` and `until` can be of the same time.
    fn touch(&self, after: MonoNs, until: MonoNs) -> bool {
        let behind = self.0.partition_point(|(_, to)| to.after(AROUND) < after);
        self.0.get(behind).is_some_and(|(from, _)| *from <= until)
    }
}

/// A level with all its values.
#[derive(Debug)]
pub(super) struct Track<'a> {
    counts: bool,
    values: &'a [(MonoNs, u64)],
    readings: &'a [MonoNs],
}

impl<'a> Track<'a> {
    pub(super) const fn new(measure: Measure, values: &'a [(MonoNs, u64)], readings: &'a [MonoNs]) -> Self {
        Self { counts: measure.row().counts, values, readings }
    }

    /// How much it counted, or most of what it was, in slow time; `None` if it did not move.
    pub(super) fn moved(&self, slow: &Spans) -> Option<u64> {
        let within = self.steps().filter(|step| slow.touch(step.after, step.until)).map(|step| step.value);
        let moved = if self.counts { within.fold(0, u64::saturating_add) } else { within.max().unwrap_or(0) };
        Some(moved).filter(|moved| *moved > 0)
    }

    /// How much it counted over the run, or the most that it was.
    pub(super) fn total(&self) -> u64 {
        let values = self.steps().map(|step| step.value);
        if self.counts { values.fold(0, u64::saturating_add) } else { values.max().unwrap_or(0) }
    }

    /// For each column, what it was, or how much it counted a second.
    pub(super) fn columns(&self, window: Window) -> Vec<f64> {
        let mut columns = vec![0.0_f64; COLUMNS];
        for step in self.steps() {
            let seconds = real(step.until.since(step.after).0.max(1)) / 1e9;
            let height = if self.counts { real(step.value) / seconds } else { real(step.value) };
            for column in columns.iter_mut().take(place(window, step.until) + 1).skip(place(window, step.after)) {
                *column = column.max(height);
            }
        }
        columns
    }

    /// Between two readings: what was counted, or what it is until it is told again. What was counted
    /// before the first reading is not of this run.
    fn steps(&self) -> impl Iterator<Item = Step> {
        let first = self.readings.first().copied().unwrap_or_default();
        let end = self.readings.last().copied().unwrap_or_default();
        let pairs = self.values.iter().enumerate();
        pairs.filter_map(move |(index, (at, value))| {
            let before = index.checked_sub(1).and_then(|index| self.values.get(index)).map_or(0, |(_, value)| *value);
            if !self.counts {
                let until = self.values.get(index + 1).map_or(end, |(next, _)| *next);
                return Some(Step { after: self.reading_before(*at), until, value: *value });
            }
            // A counter that fell has begun anew.
            let more = value.checked_sub(before).unwrap_or(*value);
            (*at > first).then(|| Step { after: self.reading_before(*at), until: *at, value: more })
        })
    }

    fn reading_before(&self, at: MonoNs) -> MonoNs {
        let index = self.readings.partition_point(|reading| *reading < at);
        index.checked_sub(1).and_then(|index| self.readings.get(index)).copied().unwrap_or(at)
    }
}

/// A part of a level's time.
struct Step {
    after: MonoNs,
    until: MonoNs,
    value: u64,
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fraction of a few columns")]
fn place(window: Window, at: MonoNs) -> usize {
    ((window.at(at) * real(COLUMNS as u64)) as usize).min(COLUMNS - 1)
}

#[cfg(test)]
mod tests {
    use super::{Spans, Track};
    use crate::clock::MonoNs;
    use crate::level::Measure;
    use crate::report::chart::Window;

    const S: u64 = 1_000_000_000;

    fn at(second: u64) -> MonoNs {
        MonoNs(second * S)
    }

    fn values(of: &[(u64, u64)]) -> Vec<(MonoNs, u64)> {
        of.iter().map(|(second, value)| (at(*second), *value)).collect()
    }

    #[test]
    fn a_counter_moves_between_two_readings_and_not_before_the_first() {
        let readings: Vec<_> = (1..=10).map(at).collect();
        let counted = values(&[(1, 1_000), (5, 1_007), (9, 1_010)]);
        let track = Track::new(Measure::Drops, &counted, &readings);
        let moved = |from, to| track.moved(&Spans::of([(at(from), at(to))].into_iter()));
        assert_eq!((track.total(), moved(4, 5), moved(8, 9), moved(6, 6)), (10, Some(7), Some(3), None));
        assert_eq!(moved(1, 2), None, "what was counted before is not of this run");
    }

    #[test]
    fn a_level_is_what_it_was_told_to_be_until_it_is_told_again() {
        let readings: Vec<_> = (1..=10).map(at).collect();
        let told = values(&[(3, 500), (6, 0)]);
        let track = Track::new(Measure::Backlog, &told, &readings);
        let moved = |from, to| track.moved(&Spans::of([(at(from), at(to))].into_iter()));
        assert_eq!((moved(4, 5), moved(9, 10)), (Some(500), None));
        let columns = track.columns(Window { from: at(0), to: at(10) });
        assert!(columns[100] > 499.0 && columns[200] < 1.0 && columns[10] < 1.0);
    }

    #[test]
    fn stretches_that_touch_are_one() {
        let spans = Spans::of([(at(4), at(6)), (at(1), at(2)), (at(2), at(3))].into_iter());
        assert_eq!(spans.all(), [(at(1), at(3)), (at(4), at(6))]);
    }
}
