//! The report of an incident: one HTML page that is complete in itself.
//!
//! Outputs of the pipeline come in, a [`Page`] goes out. It tells in this order: the verdict, the
//! causes, a timeline of checks with what threads, queues and disks did, how long checks took, flame
//! graphs, offenders, evidence, what is known of the host, what is missing, and what to try next.
//! Healthy checks are counted; of slow ones, a bounded number is drawn, and a smaller one told in
//! full. Pure; the same recording gives the same bytes.
//!
//! Every name on the page comes from somebody else's process. It is put in as text, by an escaping
//! template, and the page's policy lets nothing run but its own script, whose hash it names.

mod causes;
mod chart;
mod custody;
mod detail;
mod distribution;
mod evidence;
mod facts;
mod flame;
mod kept;
mod lane;
mod levels;
mod losses;
mod lost;
mod next;
mod offenders;
mod page;
mod queues;
mod strip;
mod timeline;
mod verdict;
mod words;

use crate::attribution::{Absence, Cause, Episode, Gap, Judged, Lapse};
use crate::bundle::Manifest;
use crate::clock::{DurNs, MonoNs};
use crate::event::InterfaceId;
use crate::flame::{Flame, ThreadTimes};
use crate::journey::{JourneyId, Outcome};
use crate::loss::LossReport;
use crate::pipeline::Output;
use crate::receive::ReceiveShare;
use crate::rx_ring::RxRingShare;
use crate::sender::QueueShare;
use crate::sink::Names;
use crate::summary::RunSummary;
use distribution::Distributions;
use evidence::Witnesses;
use facts::Facts;
use kept::Kept;
use levels::Levels;
use offenders::Offenders;
use std::collections::{BTreeMap, HashMap};
use strip::Strip;
use thiserror::Error;

/// Late requests, and interfaces that went, kept apart.
const MAX_NOTICES: usize = 50;
/// Signatures of targets kept apart.
const MAX_SIGNATURES: usize = 2_048;
/// Reasons for unexplained time kept apart.
const MAX_REASONS: usize = 512;

/// Why there is nothing to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Nothing {
    /// No check at all.
    #[error("it holds no check; `whylag replay FILE` says what was recorded")]
    NoCheck,
}

/// A finished page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    html: String,
}

impl Page {
    /// The whole document, UTF-8.
    #[must_use]
    pub fn html(&self) -> &str {
        &self.html
    }
}

/// Gathers what a page tells.
#[derive(Debug, Default)]
pub struct Report {
    names: Names,
    facts: Facts,
    levels: Levels,
    flame: Flame,
    threads: ThreadTimes,
    kept: Kept,
    /// The last word on each check that is still open.
    open: HashMap<JourneyId, Box<Judged>>,
    distributions: Distributions,
    strip: Strip,
    offenders: Offenders,
    witnesses: Witnesses,
    signatures: BTreeMap<(InterfaceId, usize), Counts>,
    /// Unexplained time of slow checks, by its reason.
    gaps: BTreeMap<String, DurNs>,
    lapses: Vec<(InterfaceId, Lapse)>,
    late_requests: u64,
    /// Requests of periodic checks that never arrived.
    absent: Absent,
    gone: Vec<(MonoNs, InterfaceId, String)>,
    episodes: Vec<Episode>,
    queues: Vec<QueueShare>,
    receiving: Vec<ReceiveShare>,
    rx_rings: Vec<RxRingShare>,
    loss: Option<LossReport>,
    run: RunSummary,
    damage: Option<String>,
    bundle: Option<Manifest>,
}

/// Requests that never arrived.
#[derive(Debug, Default)]
struct Absent {
    requests: u64,
    /// Those that the host's own NIC may have lost.
    unproven: u64,
    /// What it lost meanwhile.
    remarks: Vec<String>,
    /// When they were due, and until when they had not come.
    times: Vec<(MonoNs, MonoNs)>,
}

impl Absent {
    fn push(&mut self, absence: &Absence, names: &Names) {
        self.requests += absence.requests;
        self.unproven += if absence.cause().is_some() { 0 } else { absence.requests };
        if self.times.len() < MAX_NOTICES {
            self.times.push((absence.due_at, absence.until));
            self.remarks.extend(absence.remark(&names.target(absence.interface)));
        }
    }
}

/// Checks of one signature at one target.
#[derive(Debug, Default)]
struct Counts {
    checks: u64,
    slow: u64,
    lost: u64,
    /// Of the slow and lost ones, by the cause of their verdict.
    verdicts: BTreeMap<Option<Cause>, u64>,
}

impl Report {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one output of the pipeline in; one that tells hops and activities gives the fullest page.
    pub fn push(&mut self, output: &Output) {
        self.flame.push(output);
        self.threads.push(output);
        match output {
            Output::Fact(fact) => {
                if Names::learns_from(fact) {
                    self.names.learn(fact);
                }
                self.facts.push(fact);
                self.levels.push(fact);
            }
            Output::Journey(judged) => self.check(judged),
            Output::Lapse { target, lapse, .. } => self.lapse(*target, *lapse),
            Output::Absence(absence) => self.absent.push(absence, &self.names),
            Output::Gone { at, interface, reason } if self.gone.len() < MAX_NOTICES => {
                self.gone.push((*at, *interface, reason.clone()));
            }
            Output::Gone { .. } | Output::Activity(_) | Output::Softirq { .. } | Output::Join(_) => {}
            Output::Episode(episode) => self.episodes.push(episode.clone()),
            Output::Queue(share) => self.queues.push((**share).clone()),
            Output::Receive(share) => self.receiving.push((**share).clone()),
            Output::RxRing(share) => self.rx_rings.push((**share).clone()),
            Output::Loss(report) => self.loss = Some(report.clone()),
            Output::Summary(run) => self.run = *run,
        }
    }

    /// Says on the page that the recording came in a bundle, and what that did to it.
    pub fn came_in(&mut self, bundle: Manifest) {
        self.bundle = Some(bundle);
    }

    /// Says on the page that a part of the recording could not be read.
    pub fn damaged(&mut self, how: &str) {
        self.damage = Some(how.to_owned());
    }

    /// A check that was told as open is told again, and counts once.
    fn check(&mut self, judged: &Judged) {
        let id = judged.journey.id;
        if judged.journey.outcome == Outcome::Open {
            self.open.insert(id, Box::new(judged.clone()));
        } else {
            self.open.remove(&id);
            self.ended(judged);
        }
    }

    fn ended(&mut self, judged: &Judged) {
        self.count(judged);
        self.distributions.push(judged);
        self.strip.push(judged);
        if judged.slow {
            self.slow(judged);
        }
    }

    fn count(&mut self, judged: &Judged) {
        let journey = &judged.journey;
        let key = (journey.target, journey.signature);
        if self.signatures.len() >= MAX_SIGNATURES && !self.signatures.contains_key(&key) {
            return;
        }
        let lost = matches!(journey.outcome, Outcome::Lost(_));
        let counts = self.signatures.entry(key).or_default();
        counts.checks += 1;
        counts.lost += u64::from(lost);
        counts.slow += u64::from(judged.slow && !lost);
        if judged.slow {
            *counts.verdicts.entry(kept::cause(&judged.verdict)).or_default() += 1;
        }
    }

    fn slow(&mut self, judged: &Judged) {
        self.kept.push(judged);
        if kept::is_believed(judged) {
            self.offenders.push(judged);
            self.witnesses.push(judged);
            judged.ledger.gaps.iter().for_each(|gap| self.gap(gap));
        } else {
            let reason = "events were lost while a check was under way".to_owned();
            self.gap(&Gap { time: judged.journey.elapsed(), reason });
        }
    }

    fn gap(&mut self, gap: &Gap) {
        let room = self.gaps.len() < MAX_REASONS || self.gaps.contains_key(&gap.reason);
        let reason = if room { gap.reason.clone() } else { "other reasons".to_owned() };
        let sum = self.gaps.entry(reason).or_default();
        *sum = sum.plus(gap.time);
    }

    fn lapse(&mut self, target: InterfaceId, lapse: Lapse) {
        self.late_requests += 1;
        if self.lapses.len() < MAX_NOTICES {
            self.lapses.push((target, lapse));
        }
    }

    /// The page.
    ///
    /// # Errors
    /// When there was no check.
    pub fn finish(mut self) -> Result<Page, Nothing> {
        let mut open: Vec<_> = std::mem::take(&mut self.open).into_values().collect();
        open.sort_by_key(|judged| judged.journey.id);
        open.iter().for_each(|judged| self.ended(judged));
        match self.run.checks {
            0 if self.kept.is_empty() => Err(Nothing::NoCheck),
            _ => Ok(Page { html: page::page(&self).into_string() }),
        }
    }
}
