//! What something adds, on a machine whose speed changes all the time.
//!
//! Each try measures without it, with it, and without it again. Where the two without differ by
//! more than 5 %, the machine was busy with something else and the try says nothing.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::samples::Samples;

/// Tries that are to be kept of each subject.
const WANTED: usize = 15;
/// Tries at most.
const MOST_TRIES: usize = 75;
/// Longest time that all tries of a measurement usually take.
pub(crate) const LONGEST: Duration = Duration::from_secs(600);
/// Largest part by which the two measurements without may differ.
const SAME: f64 = 0.05;

/// What a subject adds.
#[derive(Debug)]
pub(crate) struct Tries<S> {
    pub(crate) subject: S,
    without: Vec<f64>,
    added: Vec<f64>,
    factor: Vec<f64>,
    tried: usize,
}

/// What is left of the tries of a subject.
#[derive(Debug)]
pub(crate) struct Added {
    /// Nanoseconds without it.
    pub(crate) without: Samples,
    /// Nanoseconds that it adds.
    pub(crate) added: Samples,
    /// With it, as a multiple of without.
    pub(crate) factor: f64,
    /// How many tries were kept of how many.
    pub(crate) kept: String,
}

impl<S: Copy> Tries<S> {
    pub(crate) const fn new(subject: S) -> Self {
        Self { subject, without: Vec::new(), added: Vec::new(), factor: Vec::new(), tried: 0 }
    }

    fn push(&mut self, [before, with, after]: [f64; 3]) {
        self.tried += 1;
        let without = (before + after) / 2.0;
        if (before - after).abs() <= SAME * without {
            self.without.push(without);
            self.added.push(with - without);
            self.factor.push(with / without);
        }
    }

    /// `None` if no try was kept.
    pub(crate) fn finish(self) -> Option<Added> {
        let kept = format!("{} of {} tries", self.added.len(), self.tried);
        let factor = Samples::new(self.factor)?.median();
        Some(Added { without: Samples::new(self.without)?, added: Samples::new(self.added)?, factor, kept })
    }
}

/// Tries all subjects in turn, so that a change of the machine touches them alike; no longer than
/// `longest`, which on a busy machine leaves fewer tries, or none.
pub(crate) fn take_turns<S: Copy>(
    subjects: &mut [Tries<S>],
    longest: Duration,
    mut attempt: impl FnMut(S) -> Result<[f64; 3]>,
) -> Result<()> {
    let begun = Instant::now();
    for _ in 0..MOST_TRIES {
        for tries in subjects.iter_mut().filter(|tries| tries.added.len() < WANTED) {
            if begun.elapsed() >= longest {
                return Ok(());
            }
            tries.push(attempt(tries.subject)?);
        }
    }
    Ok(())
}
