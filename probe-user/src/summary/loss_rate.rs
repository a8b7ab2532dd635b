//! How many checks are lost, in which span and at which place, with the interval in which the true
//! rate lies.

use crate::attribution::{Judged, LOSS_PLACES, LossPlace};
use crate::journey::{Outcome, Span, last_span, passes};

/// Two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Lost ones of a number of checks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LossRate {
    /// Checks that were lost.
    pub lost: u64,
    /// Checks in all, the lost ones among them.
    pub checks: u64,
}

impl LossRate {
    /// The part that was lost, 0 to 1; 0 of no checks.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than six digits")]
    pub fn share(self) -> f64 {
        if self.checks == 0 { 0.0 } else { self.lost as f64 / self.checks as f64 }
    }

    /// The interval in which the true rate lies with 95 % confidence, by Wilson's score: it stays
    /// within 0 and 1, and holds for few checks and for rates near 0.
    /// <https://doi.org/10.1080/01621459.1927.10502953>
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than six digits")]
    pub fn interval(self) -> (f64, f64) {
        if self.checks == 0 {
            return (0.0, 1.0);
        }
        let (count, share) = (self.checks as f64, self.share());
        let scale = 1.0 + Z * Z / count;
        let middle = (share + Z * Z / (2.0 * count)) / scale;
        let half = Z / scale * (share * (1.0 - share) / count + Z * Z / (4.0 * count * count)).sqrt();
        let low = if self.lost == 0 { 0.0 } else { (middle - half).max(0.0) };
        let high = if self.lost == self.checks { 1.0 } else { (middle + half).min(1.0) };
        (low, high)
    }

    const fn add(&mut self, lost: bool) {
        self.checks += 1;
        self.lost += lost as u64;
    }

    const fn plus(self, other: Self) -> Self {
        Self { lost: self.lost + other.lost, checks: self.checks + other.checks }
    }
}

/// Answered and lost checks, by span and by place. Of checks that are open, or cannot be told apart,
/// nothing is counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Losses {
    total: LossRate,
    spans: [LossRate; Span::ALL.len()],
    places: [u64; LOSS_PLACES.len()],
}

impl Losses {
    /// Counts a check that has ended.
    pub(crate) fn push(&mut self, judged: &Judged) {
        let journey = &judged.journey;
        let lost = match journey.outcome {
            Outcome::Replied => false,
            Outcome::Lost(_) => true,
            Outcome::Open | Outcome::Ambiguous | Outcome::Broken(_) => return,
        };
        self.total.add(lost);
        let last = judged.lost.as_ref().map(|lost| lost.span).or_else(|| last_span(journey)).filter(|_| lost);
        for (span, rate) in Span::ALL.into_iter().zip(&mut self.spans) {
            if last == Some(span) {
                rate.add(true);
            } else if passes(journey, span) {
                rate.add(false);
            }
        }
        let place = judged.lost.as_ref().map_or(LossPlace::Unseen, |lost| lost.place);
        if let Some(count) = self.places.get_mut(place as usize).filter(|_| lost) {
            *count += 1;
        }
    }

    /// The sums of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.total = self.total.plus(other.total);
        self.spans.iter_mut().zip(other.spans).for_each(|(sum, more)| *sum = sum.plus(more));
        self.places.iter_mut().zip(other.places).for_each(|(sum, more)| *sum += more);
        self
    }

    /// Of all checks.
    #[must_use]
    pub const fn total(&self) -> LossRate {
        self.total
    }

    /// Of the checks that entered each span, in the order of a served check's path.
    pub fn by_span(&self) -> impl Iterator<Item = (Span, LossRate)> {
        Span::ALL.into_iter().zip(self.spans).filter(|(_, rate)| rate.checks > 0)
    }

    /// Of all checks, those lost at each place, most first.
    #[must_use]
    pub fn by_place(&self) -> Vec<(LossPlace, LossRate)> {
        let rate = |lost| LossRate { lost, checks: self.total.checks };
        let places = LOSS_PLACES.iter().zip(self.places).filter(|(_, lost)| *lost > 0);
        let mut places: Vec<_> = places.map(|(row, lost)| (row.place, rate(lost))).collect();
        places.sort_by_key(|(_, rate)| std::cmp::Reverse(rate.lost));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::{LossPlace, LossRate, Losses, Span};
    use crate::sink::sample;

    /// R. G. Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in
    /// Medicine 17 (1998), table I, method 3.
    #[test]
    fn intervals_are_those_that_are_published() {
        let published =
            [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)];
        for (lost, checks, low, high) in published {
            let (found_low, found_high) = LossRate { lost, checks }.interval();
            assert!((found_low - low).abs() < 5e-5 && (found_high - high).abs() < 5e-5, "{lost} of {checks}");
        }
        assert!(LossRate { lost: 29, checks: 29 }.interval().1 >= 1.0);
        assert_eq!(LossRate::default().interval(), (0.0, 1.0));
    }

    #[test]
    fn a_check_counts_in_the_spans_that_it_entered_and_is_lost_in_the_last() {
        let mut losses = Losses::default();
        [sample::healthy(), sample::lost(), sample::open(5)].iter().for_each(|judged| losses.push(judged));
        assert_eq!(losses.total(), LossRate { lost: 1, checks: 2 });
        let spans: Vec<_> = losses.by_span().map(|(span, rate)| (span, rate.lost, rate.checks)).collect();
        assert!(spans.contains(&(Span::Queue, 1, 2)) && spans.contains(&(Span::Receive, 0, 2)), "{spans:?}");
        assert_eq!(losses.by_place(), [(LossPlace::SocketBuffer, LossRate { lost: 1, checks: 2 })]);
        let twice = losses.plus(&losses);
        assert_eq!((twice.total().lost, twice.by_place()[0].1.lost), (2, 2));
    }
}
