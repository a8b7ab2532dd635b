//! What the lab prints about a run, for people and as JSON.

use super::case::Case;
use super::excerpt::excerpt;
use super::message::{Check, Counts};
use super::run::{Observed, Run, Window};
use super::score::{Inside, Mark, Score, disturbance, score, score_inside};
use super::truth::Proof;
use anyhow::Result;
use serde::Serialize;

/// One run of one case, marked.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The case.
    pub case: &'static str,
    /// `None` if the run was skipped.
    pub mark: Option<Mark>,
    /// Why it was skipped.
    pub skipped: Option<String>,
    /// What happened to the checks, and the proof of the fault.
    pub truth: Option<Truth>,
    /// What whylag made of it.
    pub score: Option<Score>,
    /// What it made of it with the half inside the guest, if there was one.
    pub inside: Option<Inside>,
    /// Of a run that is not right: what whylag said of itself and of the first suspect, and what
    /// else the machine was busy with.
    pub details: Vec<String>,
}

/// What happened, whatever whylag said.
#[derive(Debug, Serialize)]
pub struct Truth {
    /// Checks sent.
    pub checks: usize,
    /// Slow ones.
    pub slow: usize,
    /// Lost ones.
    pub lost: usize,
    /// The longest round trip.
    pub worst_ns: u64,
    /// 95th percentile of the control period.
    pub control_p95_ns: u64,
    /// When the fault lasted.
    pub fault: Window,
    /// What proves it.
    pub counter: &'static str,
    /// By how much it moved.
    pub proof: Proof,
    /// What the guest itself counted while it lasted, if its counts are the proof.
    pub guest: Option<Counts>,
}

impl Truth {
    /// Counts.
    #[must_use]
    pub fn new(case: &Case, observed: &Observed) -> Self {
        let rtts: Vec<u64> = observed.checks.iter().filter_map(Check::rtt_ns).collect();
        Self {
            checks: observed.checks.len(),
            slow: rtts.iter().filter(|rtt| **rtt > case.slow_ns()).count(),
            lost: observed.checks.len() - rtts.len(),
            worst_ns: rtts.into_iter().max().unwrap_or(0),
            control_p95_ns: observed.control_p95_ns,
            fault: observed.window,
            counter: case.proof.name(),
            proof: observed.proof,
            guest: observed.guest,
        }
    }

    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        format!(
            "{} checks, {} slow, {} lost, worst {} ms; control p95 {} µs; fault {} ms; {}: {} of {} {}{}",
            self.checks,
            self.slow,
            self.lost,
            self.worst_ns / 1_000_000,
            self.control_p95_ns / 1_000,
            (self.fault.ended_ns - self.fault.began_ns) / 1_000_000,
            self.counter,
            self.proof.moved,
            self.proof.at_least,
            if self.proof.holds() { "proven" } else { "NOT PROVEN" },
            self.guest.map_or(String::new(), |counts| format!("; {}", counts.line())),
        )
    }
}

impl Report {
    /// Marks a run.
    ///
    /// # Errors
    /// whylag took no part in it.
    pub fn new(case: &Case, run: &Run) -> Result<Self> {
        match run {
            Run::Skipped(reason) => {
                let skipped = Some(reason.clone());
                Ok(Self {
                    case: case.name,
                    mark: None,
                    skipped,
                    truth: None,
                    score: None,
                    inside: None,
                    details: Vec::new(),
                })
            }
            Run::Done(observed) => {
                let (mark, score) = score(case, observed)?;
                let truth = Some(Truth::new(case, observed));
                if let Some(disturbance) = disturbance(case, observed, &score) {
                    let skipped = Some(disturbance);
                    return Ok(Self {
                        case: case.name,
                        mark: None,
                        skipped,
                        truth,
                        score: None,
                        inside: None,
                        details: Vec::new(),
                    });
                }
                let inside = score_inside(case, observed)?;
                let details = details(observed, (mark, &score), inside.as_ref());
                // What the host alone says wrongly, no other half makes right.
                let mark = inside.as_ref().filter(|_| mark == Mark::Right).map_or(mark, |inside| inside.mark);
                Ok(Self {
                    case: case.name,
                    mark: Some(mark),
                    skipped: None,
                    truth,
                    score: Some(score),
                    inside,
                    details,
                })
            }
        }
    }

    /// For people, with the first things that went wrong.
    #[must_use]
    pub fn text(&self) -> String {
        let Some((mark, score)) = self.mark.zip(self.score.as_ref()) else {
            return format!("{:22} skipped     {}", self.case, self.skipped.as_deref().unwrap_or_default());
        };
        let mut text = format!("{:22} {:11} {}", self.case, format!("{mark:?}").to_lowercase(), score.line());
        text.extend(self.inside.iter().map(|inside| format!("\n    with the guest's half: {}", inside.line())));
        if mark != Mark::Right {
            text.extend(self.truth.iter().map(|truth| format!("\n    {}", truth.line())));
            let inside = self.inside.iter().flat_map(|inside| &inside.score.remarks);
            let remarks = score.remarks.iter().chain(inside).chain(&self.details);
            text.extend(remarks.map(|remark| format!("\n    {remark}")));
        }
        text
    }
}

/// Nothing of what is right.
fn details(observed: &Observed, (mark, score): (Mark, &Score), inside: Option<&Inside>) -> Vec<String> {
    let alone = observed.said.iter().map(|said| (mark, said, score));
    let joined = observed.joined.iter().zip(inside).map(|(said, inside)| (inside.mark, said, &inside.score));
    let wrong: Vec<_> = alone.chain(joined).filter(|(mark, ..)| *mark != Mark::Right).collect();
    let told = wrong.iter().flat_map(|(_, said, score)| excerpt(said, score.suspect.as_deref()));
    (!wrong.is_empty()).then(|| observed.machine.clone()).into_iter().chain(told).collect()
}

impl Inside {
    fn line(&self) -> String {
        let live = self.told_live.map(|told| format!("; {told} slow ones told while both halves were being made"));
        format!("{}; {}{}", self.score.line(), self.residence.line(), live.unwrap_or_default())
    }
}

impl Score {
    fn line(&self) -> String {
        format!(
            "{} right, {} wrong, {} unresolved, {} unseen of {}; {} misnamed, {} mistimed; {} of {} ms attributed{}{}",
            self.right_slow + self.right_lost,
            self.wrong,
            self.unresolved,
            self.unseen,
            self.guilty,
            self.misnamed,
            self.mistimed,
            self.attributed_ns / 1_000_000,
            self.measured_ns / 1_000_000,
            match self.placed + self.misplaced + self.unplaced {
                0 => String::new(),
                lost => format!("; {} of {lost} lost in the right place", self.placed),
            },
            if self.lost_records > 0 { format!("; {} records lost", self.lost_records) } else { String::new() },
        )
    }
}

/// The marks of many runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Runs marked right.
    pub right: usize,
    /// Runs with a confident wrong verdict.
    pub wrong: usize,
    /// Runs with too few verdicts.
    pub unresolved: usize,
    /// Runs whose fault is not proven.
    pub unproven: usize,
    /// Runs skipped.
    pub skipped: usize,
}

impl Tally {
    /// Of no run.
    pub const NONE: Self = Self { right: 0, wrong: 0, unresolved: 0, unproven: 0, skipped: 0 };

    /// Adds a run.
    pub fn add(&mut self, mark: Option<Mark>) {
        *match mark {
            Some(Mark::Right) => &mut self.right,
            Some(Mark::Wrong) => &mut self.wrong,
            Some(Mark::Unresolved) => &mut self.unresolved,
            Some(Mark::Unproven) => &mut self.unproven,
            None => &mut self.skipped,
        } += 1;
    }

    /// Whether there was something to mark and all of it was right.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.right > 0 && self.wrong == 0 && self.unresolved == 0 && self.unproven == 0
    }

    /// In one line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { right, wrong, unresolved, unproven, skipped } = self;
        format!("{right} right, {wrong} wrong, {unresolved} unresolved, {unproven} unproven, {skipped} skipped")
    }
}
