//! What a run's outputs mean for when it stops and how it exits.

use super::Outcome;
use super::args::OutputArgs;
use crate::event::Fact;
use crate::journey;
use crate::pipeline::Output;

/// Counts of a run, as far as its end and exit status depend on them.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    /// Checks that have ended.
    pub(crate) ended: u64,
    /// Some check was slow or lost.
    pub(crate) unhealthy: bool,
    /// Events or stacks were lost on the way, or an interface has gone during the run.
    pub(crate) incomplete: bool,
    /// Records that came too late to be used.
    pub(crate) late: u64,
    /// Addresses are not those that were seen.
    pub(crate) pseudonyms: bool,
}

impl Tally {
    /// Looks at one output.
    pub(crate) fn take(&mut self, output: &Output) {
        match output {
            Output::Journey(judged) => {
                self.ended += u64::from(judged.journey.outcome != journey::Outcome::Open);
                self.unhealthy |= judged.slow;
            }
            Output::Loss(report) => {
                self.incomplete |= report.lost + report.unreadable + report.stacks_lost > 0;
                self.late = report.late;
            }
            Output::Gone { .. } => self.incomplete = true,
            Output::Join(report) => self.incomplete |= report.guest_lost > 0,
            Output::Absence(_) => self.unhealthy = true,
            Output::Fact(Fact::Pseudonyms) => self.pseudonyms = true,
            Output::Fact(_)
            | Output::Lapse { .. }
            | Output::Activity(_)
            | Output::Softirq { .. }
            | Output::Episode(_)
            | Output::Queue(_)
            | Output::Receive(_)
            | Output::RxRing(_)
            | Output::Summary(_) => {}
        }
    }

    /// The exit status that was asked for; an incomplete run proves nothing, so it comes first.
    pub(crate) const fn outcome(self, asked: OutputArgs) -> Outcome {
        match self {
            Self { incomplete: true, .. } if asked.strict => Outcome::Incomplete,
            Self { unhealthy: true, .. } if asked.check => Outcome::Unhealthy,
            _ => Outcome::Healthy,
        }
    }
}
