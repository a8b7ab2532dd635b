//! From a journey and the evidence to a ledger and a verdict.

use super::baseline::{Baselines, times};
use super::cause::Cause;
use super::evidence::Evidence;
use super::ledger::{Judged, Ledger, Unresolved, Verdict};
use super::piece::{self, Found, Piece};
use super::place::LostAt;
use super::rules::{LONG_SILENCE, Leg, drops, handover, lost, outside, receive, transmit, vm};
use super::service::{Stay, service};
use super::verdict::{conclude, limit, main_reason, slow, untrusted};
use crate::clock::{DurNs, MonoNs};
use crate::event::{RunFact, Threshold};
use crate::journey::{Journey, Loss, Outcome, Perspective, Span, Stage, Stamp};

/// Records of threads that may be looked at for each second of the stream.
const STEPS_PER_SECOND: i64 = 1 << 19;
/// And at once, after a time in which few were.
const STEPS_AT_ONCE: i64 = 1 << 20;
/// Records that every check may look at for nothing: what a quick one takes.
const STEPS_FREE: i64 = 64;
/// Why a check is not looked into.
const CROWDED: &str = "more checks at once than can be looked into; it was counted only";

/// Work that may still be done. Time is the stream's, so that a replay judges as the live run did.
#[derive(Debug)]
struct Budget {
    left: i64,
    at: MonoNs,
}

impl Budget {
    fn refill(&mut self, now: MonoNs) {
        let passed = i64::try_from(now.since(self.at).0.min(1 << 32)).unwrap_or(0);
        let more = passed.saturating_mul(STEPS_PER_SECOND) / 1_000_000_000;
        if more > 0 {
            self.left = self.left.saturating_add(more).min(STEPS_AT_ONCE);
            self.at = now;
        }
    }

    fn spend(&mut self, steps: u64) {
        let steps = i64::try_from(steps).unwrap_or(i64::MAX);
        self.left = self.left.saturating_sub(steps.saturating_sub(STEPS_FREE).max(0));
    }
}

/// Judges journeys, and remembers what is normal at each target.
#[derive(Debug)]
pub struct Attributor {
    threshold: Threshold,
    baselines: Baselines,
    budget: Budget,
    steps: u64,
}

impl Attributor {
    /// Judges by the run's threshold. A threshold that is a multiple counts from the median of
    /// the last 128 healthy checks of the same target and signature; until there are 20 of
    /// them, a check is slow above 100 ms. A check below 1 ms is never slow by a multiple.
    #[must_use]
    pub fn new(run: &RunFact) -> Self {
        let budget = Budget { left: STEPS_AT_ONCE, at: MonoNs(0) };
        Self { threshold: run.threshold, baselines: Baselines::default(), budget, steps: 0 }
    }

    /// The stream has come to `now`: what is judged from here on may cost more again.
    pub fn advance(&mut self, now: MonoNs) {
        self.budget.refill(now);
    }

    /// Whether the next check is counted only, because judging took too much lately.
    #[must_use]
    pub const fn is_crowded(&self) -> bool {
        self.budget.left <= 0
    }

    /// Records of threads that were looked at so far: the work that judging was.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Splits a journey's time between causes and concludes. `lost` tells how many events were
    /// lost between two instants. In a burst of checks that would take too much work, some are
    /// counted only: see [`Judged::brief`].
    pub fn judge(&mut self, journey: Journey, evidence: &Evidence, lost: &dyn Fn(MonoNs, MonoNs) -> u64) -> Judged {
        if self.is_crowded() && untrusted(&journey).is_none() {
            return self.judge_briefly(journey);
        }
        evidence.take_usage();
        let mut account = account(&journey, evidence, self.usual_hold(&journey));
        let usage = evidence.take_usage();
        self.steps = self.steps.saturating_add(usage.steps);
        self.budget.spend(usage.steps);
        account.since = usage.oldest.map_or(account.ledger.from, |oldest| oldest.min(account.ledger.from));
        let slow = slow(&journey, limit(self.threshold, self.baselines.of(journey.target, journey.signature)));
        let lost_events = lost(account.since, account.ledger.to);
        let verdict = self.verdict(&journey, &account, slow, lost_events);
        if verdict == Verdict::Healthy && journey.outcome == Outcome::Replied {
            let baseline = self.baselines.of(journey.target, journey.signature);
            baseline.push(journey.elapsed(), times(&account.ledger));
            Stay::of(&journey).into_iter().for_each(|stay| baseline.push_stay(stay));
        }
        let baseline = self.baselines.of(journey.target, journey.signature);
        let service = service(&journey, &account.ledger, &verdict, baseline, evidence);
        Judged {
            journey,
            ledger: account.ledger,
            slow,
            verdict,
            lost: account.lost,
            service,
            brief: false,
            lost_events,
            guest: None,
        }
    }

    /// How long checks like this one are usually held: asked only of one that may have been held long.
    fn usual_hold(&mut self, journey: &Journey) -> Option<DurNs> {
        let long = journey.elapsed() >= LONG_SILENCE;
        let baseline = long.then(|| self.baselines.of(journey.target, journey.signature))?;
        baseline.usual_stay().map(|stay| stay.held)
    }

    /// Judges by time alone: no thread is looked at.
    pub fn judge_briefly(&mut self, journey: Journey) -> Judged {
        let (from, to) = (journey.started_at(), journey.known_until.max(journey.started_at()));
        let whole = (from < to).then(|| Piece::unexplained(from, to, Span::Receive, CROWDED));
        let ledger = piece::ledger(whole.into_iter().collect(), from, to);
        let slow = slow(&journey, limit(self.threshold, self.baselines.of(journey.target, journey.signature)));
        let verdict = match (untrusted(&journey), slow) {
            (Some(reason), _) => Verdict::Unresolved(Unresolved::Journey(reason)),
            (None, false) => Verdict::Healthy,
            (None, true) => Verdict::Unresolved(Unresolved::NoTrace(CROWDED.to_owned())),
        };
        Judged { journey, ledger, slow, verdict, lost: None, service: None, brief: true, lost_events: 0, guest: None }
    }

    fn verdict(&mut self, journey: &Journey, account: &Account, slow: bool, lost_events: u64) -> Verdict {
        if let Some(reason) = untrusted(journey) {
            return Verdict::Unresolved(Unresolved::Journey(reason));
        }
        if !slow {
            return Verdict::Healthy;
        }
        let Account { ledger, dropped, tail, .. } = account;
        if lost_events > 0 {
            return Verdict::Unresolved(Unresolved::EventsLost { count: lost_events });
        }
        match (dropped, tail) {
            (Some(Dropped::By(cause)), _) => return Verdict::Cause { cause: *cause, share: 1.0 },
            (Some(Dropped::Unproven(reason)), _) => {
                return Verdict::Unresolved(Unresolved::NoTrace(reason.clone()));
            }
            (None, _) => {}
        }
        let baseline = self.baselines.of(journey.target, journey.signature);
        let excess = baseline.excess(journey.elapsed(), &times(ledger));
        match (conclude(&excess, || main_reason(ledger)), tail) {
            (Verdict::Unresolved(_), Some(reason)) => Verdict::Unresolved(Unresolved::NoTrace(reason.clone())),
            (verdict, _) => verdict,
        }
    }
}

/// What a journey's legs came to.
struct Account {
    ledger: Ledger,
    /// What the drop that lost the check means.
    dropped: Option<Dropped>,
    /// Why the last leg of a check that is open or lost is unexplained, if it is.
    tail: Option<String>,
    /// Where it ended, if it is lost.
    lost: Option<LostAt>,
    /// The oldest record on which it rests, or its start: records lost since then may have told
    /// another story.
    since: MonoNs,
}

enum Dropped {
    By(Cause),
    Unproven(String),
}

fn account(journey: &Journey, evidence: &Evidence, usual_hold: Option<DurNs>) -> Account {
    let (from, to) = (journey.started_at(), journey.known_until.max(journey.started_at()));
    if let Some(reason) = untrusted(journey) {
        let pieces = vec![Piece::unexplained(from, to, Span::Receive, reason)];
        let pieces = pieces.into_iter().filter(|piece| piece.from < piece.to).collect();
        return Account { ledger: piece::ledger(pieces, from, to), dropped: None, tail: None, lost: None, since: from };
    }
    let legs = legs(journey, evidence, usual_hold, to);
    let mut pieces = Vec::new();
    let mut tail = None;
    for leg in &legs {
        let fitted = piece::fit(pieces_of(leg), leg.from, leg.to, leg.span);
        tail = open_end(leg, &fitted);
        pieces.extend(fitted);
    }
    let dropped = legs.last().and_then(dropped);
    let lost = legs.last().and_then(lost::lost_at);
    Account { ledger: piece::ledger(pieces, from, to), dropped, tail, lost, since: from }
}

/// The stretches between stages that were seen, and from the last one to the end.
fn legs<'a>(journey: &'a Journey, evidence: &'a Evidence, usual_hold: Option<DurNs>, to: MonoNs) -> Vec<Leg<'a>> {
    let ends = journey.stamps.iter().skip(1).map(Some).chain([None]);
    let mut cursor = journey.started_at();
    let mut legs = Vec::with_capacity(journey.stamps.len());
    for (start, end) in journey.stamps.iter().zip(ends) {
        let until = end.map_or(to, |end| end.at).clamp(cursor, to);
        let over = end.is_none() && journey.outcome == Outcome::Replied;
        if cursor < until || (end.is_none() && !over) {
            let span = span(journey.perspective, start, end);
            legs.push(Leg { journey, evidence, usual_hold, span, start, end, from: cursor, to: until });
        }
        cursor = until;
    }
    legs
}

/// Who holds the check between two stages, or after the last one that was seen.
fn span(perspective: Perspective, start: &Stamp, end: Option<&Stamp>) -> Span {
    let from = start.stage;
    let Some(end) = end else {
        return if from == Stage::PnicXmit { Span::Outside } else { from.row().then };
    };
    let came_back = perspective == Perspective::Sent && from > end.stage;
    match (from, end.stage) {
        (Stage::PnicQueue, _) if came_back => Span::Transmit,
        _ if came_back => Span::Outside,
        (_, Stage::SockRead) => Span::Queue,
        (from, Stage::AppSend) if from < Stage::SockRead => Span::Hold,
        (Stage::VnicTx | Stage::BackendRx, Stage::GuestRx | Stage::SockEnqueue) => Span::Receive,
        (Stage::PnicRx, Stage::VnicTx | Stage::VnicRx) => Span::Forward,
        // The kernel answered by itself, unless it left by another device.
        (Stage::PnicRx, _) if start.interface != end.interface && from_device(end.stage) => Span::Forward,
        (Stage::SockEnqueue, to) if to > Stage::AppSend => Span::Hold,
        _ => from.row().then,
    }
}

const fn from_device(stage: Stage) -> bool {
    matches!(stage, Stage::PnicQueue | Stage::PnicXmit | Stage::PnicDone)
}

fn pieces_of(leg: &Leg<'_>) -> Vec<Piece> {
    let Some(drop) = drops::within(leg) else {
        return by_custody(leg);
    };
    let lost = leg.end.is_none() && matches!(leg.journey.outcome, Outcome::Lost(Loss::Dropped(_)));
    let from = if lost { leg.from } else { drop.at };
    let mut pieces = if leg.from < from { by_custody(&Leg { to: from, ..*leg }) } else { Vec::new() };
    pieces.push(drops::wait_after(leg, drop, from));
    pieces
}

fn by_custody(leg: &Leg<'_>) -> Vec<Piece> {
    match (leg.span, leg.start.stage, leg.end) {
        (Span::Receive, ..) => receive::receive(leg),
        (Span::Forward, ..) => vm::forwarding(leg),
        (Span::Vm, Stage::VnicTx, _) => vm::handed_over(leg),
        (Span::Vm, ..) => vm::inside(leg),
        (Span::Queue, ..) => handover::queue(leg),
        (Span::Hold, ..) => handover::hold(leg),
        (Span::Send, ..) => transmit::send(leg),
        (Span::Transmit, from, Some(end)) if from > end.stage => transmit::transmit_and_outside(leg),
        (Span::Transmit, ..) => transmit::transmit(leg),
        (Span::Outside, ..) => outside::outside(leg),
    }
}

/// Why the last leg of a check without an answer is unexplained, if that is most of it.
fn open_end(leg: &Leg<'_>, pieces: &[Piece]) -> Option<String> {
    if leg.end.is_some() {
        return None;
    }
    let gaps = pieces.iter().filter_map(|piece| match &piece.found {
        Found::Unexplained(reason) => Some((piece.time(), reason)),
        Found::Charged(_) => None,
    });
    let (time, reason) = gaps.max_by_key(|(time, _)| *time)?;
    (time.0 >= leg.time().0 / 2).then(|| format!("no answer seen, last at {}: {reason}", leg.start.stage.name()))
}

/// What the drop that lost the check means; the leg is its last.
fn dropped(leg: &Leg<'_>) -> Option<Dropped> {
    let Outcome::Lost(Loss::Dropped(drop)) = &leg.journey.outcome else {
        return None;
    };
    Some(match drops::cause(leg, drop) {
        Some(cause) => Dropped::By(cause),
        None => Dropped::Unproven(drops::unproven(leg, drop)),
    })
}
