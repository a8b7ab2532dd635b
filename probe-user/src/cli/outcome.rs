//! What a command comes to: its exit status.

use std::process::ExitCode;

const COULD_NOT_RUN: u8 = 1;
const USAGE: u8 = 2;
const UNHEALTHY: u8 = 3;
const INCOMPLETE: u8 = 4;

/// How a command that ran has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Healthy, or there was nothing to judge: 0.
    Healthy,
    /// It ran, and then could not go on: 1. What was wrong has been said.
    Broken,
    /// Slow or lost checks were found, and `--check` was given: 3.
    Unhealthy,
    /// Events were lost, and `--strict` was given: 4.
    Incomplete,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Healthy => Self::SUCCESS,
            Outcome::Broken => Self::from(COULD_NOT_RUN),
            Outcome::Unhealthy => Self::from(UNHEALTHY),
            Outcome::Incomplete => Self::from(INCOMPLETE),
        }
    }
}

/// Arguments that contradict each other, or that make no sense here.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The exit status of an error.
pub(super) fn of_error(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(if error.is::<UsageError>() { USAGE } else { COULD_NOT_RUN })
}
