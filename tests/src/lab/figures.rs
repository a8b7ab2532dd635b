//! What many runs come to: how often whylag was right, and by how much it was off.

use super::score::{Amount, Score};
use serde::Serialize;

/// Collects the scores of runs.
#[derive(Debug, Default)]
pub struct Figures {
    checks: usize,
    right: usize,
    wrong: usize,
    inexact: usize,
    amounts: Vec<Amount>,
}

/// The figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// Checks that a fault delayed or lost.
    pub checks: usize,
    /// Of them, those with the right verdict.
    pub right: usize,
    /// Verdicts that were confident and wrong, those about undisturbed checks included.
    pub wrong: usize,
    /// Slow checks with the right verdict whose amount was compared.
    pub amounts: usize,
    /// Of them, those within 5 % or 2 ms of the client's clock.
    pub amounts_right: usize,
    /// Part of a slow check's time in no entry, in 1,000: the median.
    pub unexplained_p50_permille: u64,
    /// The same, 95th percentile.
    pub unexplained_p95_permille: u64,
    /// Ledgers that do not add up.
    pub inexact: usize,
}

impl Figures {
    /// Adds a run.
    pub fn add(&mut self, score: &Score) {
        self.checks += score.guilty;
        self.right += score.right_slow + score.right_lost;
        self.wrong += score.wrong;
        self.inexact += score.inexact;
        self.amounts.extend(&score.amounts);
    }

    /// What they come to.
    #[must_use]
    pub fn shown(&self) -> Shown {
        let mut unexplained: Vec<u64> = self.amounts.iter().map(Amount::unexplained_permille).collect();
        unexplained.sort_unstable();
        let percentile = |percent: usize| {
            let last = unexplained.len().saturating_sub(1);
            unexplained.get(last * percent / 100).copied().unwrap_or(0)
        };
        Shown {
            checks: self.checks,
            right: self.right,
            wrong: self.wrong,
            amounts: self.amounts.len(),
            amounts_right: self.amounts.iter().filter(|amount| amount.is_right()).count(),
            unexplained_p50_permille: percentile(50),
            unexplained_p95_permille: percentile(95),
            inexact: self.inexact,
        }
    }
}

impl Shown {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { checks, right, wrong, amounts, amounts_right, inexact, .. } = self;
        format!(
            "{right} of {checks} delayed checks have the right verdict{}, {wrong} confident wrong ones\n\
             {amounts_right} of {amounts} slow checks have the right amount within 5 % or 2 ms{}\n\
             unexplained of a slow check's time: median {}, p95 {}\n\
             {inexact} ledgers do not add up",
            percent(*right, *checks),
            percent(*amounts_right, *amounts),
            permille(self.unexplained_p50_permille),
            permille(self.unexplained_p95_permille),
        )
    }
}

fn percent(part: usize, whole: usize) -> String {
    let permille = (part * 1_000).checked_div(whole);
    permille.map_or(String::new(), |permille| format!(" ({})", self::permille(permille as u64)))
}

fn permille(permille: u64) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

#[cfg(test)]
mod tests {
    use super::{Amount, Figures, Score};

    #[test]
    fn runs_are_summed_up() {
        let amount = |attributed_ns, unexplained_ns| Amount { measured_ns: 100_000_000, attributed_ns, unexplained_ns };
        let amounts = vec![amount(99_000_000, 1_000_000), amount(90_000_000, 10_000_000)];
        let mut figures = Figures::default();
        figures.add(&Score { guilty: 3, right_slow: 2, amounts, ..Score::default() });
        figures.add(&Score { guilty: 1, wrong: 1, inexact: 1, ..Score::default() });
        let shown = figures.shown();
        assert_eq!((shown.checks, shown.right, shown.wrong, shown.inexact), (4, 2, 1, 1));
        assert_eq!((shown.amounts, shown.amounts_right), (2, 1));
        assert_eq!((shown.unexplained_p50_permille, shown.unexplained_p95_permille), (10, 10));
        assert!(shown.text().starts_with("2 of 4 delayed checks have the right verdict (50.0 %), 1 confident"));
        assert!(Figures::default().shown().text().starts_with("0 of 0 delayed checks have the right verdict, 0"));
    }
}
