//! Time: instants of `CLOCK_MONOTONIC` and durations, in whole nanoseconds.
//!
//! Wall time appears only in sinks, through a [`ClockAnchor`].

use serde::{Deserialize, Serialize};
use std::fmt;

/// An instant, nanoseconds of `CLOCK_MONOTONIC` of the observed host.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonoNs(pub u64);

/// A duration, nanoseconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurNs(pub u64);

impl MonoNs {
    /// Time since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> DurNs {
        DurNs(self.0.saturating_sub(earlier.0))
    }

    /// The instant `by` later, at most the end of time.
    #[must_use]
    pub const fn after(self, by: DurNs) -> Self {
        Self(self.0.saturating_add(by.0))
    }

    /// The instant `by` earlier, at least the start of the clock.
    #[must_use]
    pub const fn before(self, by: DurNs) -> Self {
        Self(self.0.saturating_sub(by.0))
    }
}

impl DurNs {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// From milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// From seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self::from_millis(secs.saturating_mul(1_000))
    }

    /// Sum, at most the greatest duration.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// One `parts`-th of it; `parts` is not 0.
    #[must_use]
    pub const fn part(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }

    /// What it becomes where `whole` becomes `scaled`; nothing of nothing.
    #[must_use]
    pub fn in_proportion(self, scaled: Self, whole: Self) -> Self {
        let product = u128::from(self.0) * u128::from(scaled.0);
        Self(product.checked_div(u128::from(whole.0)).map_or(0, |time| u64::try_from(time).unwrap_or(u64::MAX)))
    }

    /// Difference, at least zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for DurNs {
    /// Three significant figures with the unit that fits, such as `1.23 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")];
        // What three figures would round up to a thousand belongs to the next unit.
        let reaches = |scale: u64| self.0 >= scale - scale / 2_000;
        let (scale, unit) = UNITS.into_iter().find(|(scale, _)| reaches(*scale)).unwrap_or((1, "ns"));
        #[expect(clippy::cast_precision_loss, reason = "three figures are shown")]
        let value = self.0 as f64 / scale as f64;
        let decimals = if scale == 1 || value >= 99.95 {
            0
        } else if value >= 9.995 {
            1
        } else {
            2
        };
        write!(f, "{value:.decimals$} {unit}")
    }
}

/// One instant on both clocks, so that sinks can print wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAnchor {
    /// The instant on the host's monotonic clock.
    pub mono: MonoNs,
    /// The same instant, nanoseconds since 1970-01-01T00:00:00Z.
    pub unix_ns: u64,
}

impl ClockAnchor {
    /// Wall time of `at`, nanoseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub const fn unix_ns(&self, at: MonoNs) -> u64 {
        if at.0 >= self.mono.0 {
            self.unix_ns.saturating_add(at.0 - self.mono.0)
        } else {
            self.unix_ns.saturating_sub(self.mono.0 - at.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DurNs;

    #[test]
    fn three_figures_with_the_unit_that_fits() {
        let said = |ns| DurNs(ns).to_string();
        assert_eq!([said(0), said(999), said(1_000), said(12_340)], ["0 ns", "999 ns", "1.00 µs", "12.3 µs"]);
        assert_eq!([said(999_499_999), said(999_500_000)], ["999 ms", "1.00 s"], "never 1000 ms");
        assert_eq!([said(99_960_000), said(9_999_000)], ["100 ms", "10.0 ms"]);
    }
}
