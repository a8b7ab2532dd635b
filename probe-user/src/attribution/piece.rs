//! Parts of a check's time on their way into the ledger.
//!
//! Rules give pieces in any order, with gaps; [`fit`] makes them fill a stretch exactly, and
//! [`ledger`] sums them up.

use super::cause::Cause;
use super::ledger::{Entry, Gap, Hop, Ledger, Offender, Sampled};
use super::stall::Victim;
use crate::clock::{DurNs, MonoNs};
use crate::journey::Span;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Most pieces of one span that keep their own place; beyond it, equal ones are gathered.
const MAX_PIECES: usize = 32;
/// Most kinds of pieces of one span that are kept apart; of what is beyond, each cause is one.
const MAX_KINDS: usize = 24;
/// Why the time of many small gaps is unexplained.
const MANY_REASONS: &str = "many short stretches, each for a reason of its own";
/// Most facts kept of one entry.
const MAX_FACTS: usize = 6;
/// Why a rule left a gap.
const NO_RULE: &str = "nothing is known of this stretch";

/// Who took a piece of time, and why that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Charge {
    pub(super) offender: Option<Offender>,
    /// The waits that were followed; the last is the cause.
    pub(super) path: Vec<Cause>,
    /// The threads of the path, outermost first.
    hops: Vec<Hop>,
    pub(super) evidence: Vec<String>,
    /// What is true of this case of the cause, if that is less than all it may mean.
    meaning: Option<(Cause, &'static str)>,
    /// Threads that a wait for a known device held up, outermost first.
    stalled: Vec<Victim>,
}

impl Charge {
    pub(super) fn new(cause: Cause, offender: Option<Offender>, fact: impl Into<String>) -> Self {
        let (path, evidence) = (vec![cause], vec![fact.into()]);
        Self { offender, path, hops: Vec::new(), evidence, meaning: None, stalled: Vec::new() }
    }

    /// The same, reached by following `waits`.
    pub(super) fn after(mut self, waits: &[Cause]) -> Self {
        self.path.splice(0..0, waits.iter().copied());
        self
    }

    pub(super) fn with(mut self, fact: Option<String>) -> Self {
        self.evidence.extend(fact);
        self
    }

    /// Says what is true of this case of its cause.
    pub(super) fn meaning(mut self, meaning: &'static str) -> Self {
        self.mean(meaning);
        self
    }

    /// The same for a charge that is there.
    pub(super) fn mean(&mut self, meaning: &'static str) {
        self.meaning = self.path.last().map(|cause| (*cause, meaning));
    }

    fn behind(mut self, hop: &Hop) -> Self {
        self.hops.insert(0, hop.clone());
        self
    }

    /// Says whom a wait for a device held up.
    pub(super) fn stalling(mut self, threads: Vec<Victim>) -> Self {
        self.stalled = threads;
        self
    }

    fn same(&self, other: &Self) -> bool {
        (&self.path, &self.offender, self.meaning, &self.stalled)
            == (&other.path, &other.offender, other.meaning, &other.stalled)
    }

    fn lacks(&self, fact: &String) -> bool {
        self.evidence.len() < MAX_FACTS && !self.evidence.contains(fact)
    }
}

/// Charged to a cause, or the reason why it is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// Shared, because a busy thread has thousands of pieces that are alike.
    Charged(Rc<Charge>),
    Unexplained(String),
}

/// A part of a check's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) from: MonoNs,
    pub(super) to: MonoNs,
    pub(super) span: Span,
    pub(super) found: Found,
}

impl Piece {
    pub(super) fn charged(from: MonoNs, to: MonoNs, span: Span, charge: Charge) -> Self {
        Self { from, to, span, found: Found::Charged(Rc::new(charge)) }
    }

    pub(super) fn unexplained(from: MonoNs, to: MonoNs, span: Span, reason: impl Into<String>) -> Self {
        Self { from, to, span, found: Found::Unexplained(reason.into()) }
    }

    pub(super) const fn time(&self) -> DurNs {
        self.to.since(self.from)
    }

    /// The cause that it is charged to.
    pub(super) fn cause(&self) -> Option<Cause> {
        match &self.found {
            Found::Charged(charge) => charge.path.last().copied(),
            Found::Unexplained(_) => None,
        }
    }

    /// What proves its cause.
    pub(super) fn facts(&self) -> &[String] {
        match &self.found {
            Found::Charged(charge) => &charge.evidence,
            Found::Unexplained(_) => &[],
        }
    }

    /// Adds a fact to what proves its cause.
    pub(super) fn learn(&mut self, fact: String) {
        if let Found::Charged(charge) = &mut self.found
            && charge.lacks(&fact)
        {
            Rc::make_mut(charge).evidence.push(fact);
        }
    }

    /// What of it lies before `from` and behind `to`.
    pub(super) fn without(self, from: MonoNs, to: MonoNs) -> impl Iterator<Item = Self> {
        let before = Self { to: self.to.min(from), ..self.clone() };
        let behind = Self { from: self.from.max(to), ..self };
        [before, behind].into_iter().filter(|piece| piece.from < piece.to)
    }

    /// One of many: what is left of it is its cause.
    fn without_names(mut self) -> Self {
        self.found = match &self.found {
            Found::Charged(charge) => {
                let fact = "and many shorter ones, of several threads or waits".to_owned();
                let path = charge.path.last().copied().into_iter().collect();
                let (hops, evidence, stalled) = (Vec::new(), vec![fact], Vec::new());
                let meaning = charge.meaning;
                Found::Charged(Rc::new(Charge { offender: None, path, hops, evidence, meaning, stalled }))
            }
            Found::Unexplained(_) => Found::Unexplained(MANY_REASONS.to_owned()),
        };
        self
    }

    fn same(&self, other: &Self) -> bool {
        self.span == other.span
            && match (&self.found, &other.found) {
                (Found::Charged(one), Found::Charged(two)) => Rc::ptr_eq(one, two) || one.same(two),
                (Found::Unexplained(one), Found::Unexplained(two)) => one == two,
                _ => false,
            }
    }

    /// Takes another piece of the same kind in; its place is the caller's business.
    fn absorb(&mut self, other: &Self) {
        let (Found::Charged(mine), Found::Charged(other)) = (&mut self.found, &other.found) else { return };
        if Rc::ptr_eq(mine, other) {
            return;
        }
        if mine.hops != other.hops {
            let shared = shared_hops(&mine.hops, &other.hops);
            Rc::make_mut(mine).hops = shared;
        }
        other.evidence.iter().for_each(|fact| self.learn(fact.clone()));
    }
}

/// Says of all `pieces` that the check came to depend on them by `hop`. Charges that are shared
/// stay so: a busy thread has thousands of pieces.
pub(super) fn came_by(pieces: &mut [Piece], hop: &Hop) {
    let mut known: HashMap<*const Charge, (Rc<Charge>, Rc<Charge>)> = HashMap::new();
    for piece in pieces {
        let Found::Charged(charge) = &mut piece.found else { continue };
        if let Some(own) = Rc::get_mut(charge) {
            own.hops.insert(0, hop.clone());
            continue;
        }
        // The old one is kept too, so that its address stands for nothing else meanwhile.
        let both = || (Rc::clone(charge), Rc::new(Charge::clone(charge).behind(hop)));
        let (_, behind) = known.entry(Rc::as_ptr(charge)).or_insert_with(both);
        *charge = Rc::clone(behind);
    }
}

/// What two ways to a cause have in common, from the check on.
fn shared_hops(one: &[Hop], two: &[Hop]) -> Vec<Hop> {
    let mut shared = Vec::new();
    for (one, two) in one.iter().zip(two) {
        if (one.task, &one.comm) != (two.task, &two.comm) {
            break;
        }
        let same_user = one.user == two.user;
        let frames = one.frames.iter().zip(&two.frames).take_while(|(one, two)| same_user && one == two);
        shared.push(Hop {
            comm: one.comm.clone(),
            task: one.task,
            frames: frames.map(|(one, _)| one.clone()).collect(),
            user: one.user.filter(|_| same_user),
            samples: all_samples(&one.samples, &two.samples),
        });
        if !same_user || one.frames != two.frames {
            break;
        }
    }
    shared
}

/// The samples of both.
fn all_samples(one: &Arc<[Sampled]>, two: &Arc<[Sampled]>) -> Arc<[Sampled]> {
    if two.is_empty() || Arc::ptr_eq(one, two) {
        return Arc::clone(one);
    }
    let mut all = one.to_vec();
    for more in two.iter() {
        match all.iter_mut().find(|known| (known.user, &known.kernel) == (more.user, &more.kernel)) {
            Some(known) => known.time = known.time.plus(more.time),
            None => all.push(more.clone()),
        }
    }
    all.into()
}

/// Makes pieces fill `from` to `to` exactly: sorted, cut, the earlier wins, gaps unexplained.
pub(super) fn fit(mut pieces: Vec<Piece>, from: MonoNs, to: MonoNs, span: Span) -> Vec<Piece> {
    pieces.sort_by_key(|piece| piece.from);
    let mut fitted: Vec<Piece> = Vec::with_capacity(pieces.len());
    let mut cursor = from;
    for mut piece in pieces {
        piece.from = piece.from.max(cursor);
        piece.to = piece.to.min(to);
        if piece.from >= piece.to {
            continue;
        }
        if cursor < piece.from {
            fitted.push(Piece::unexplained(cursor, piece.from, span, NO_RULE));
        }
        cursor = piece.to;
        join(&mut fitted, piece);
    }
    if cursor < to {
        fitted.push(Piece::unexplained(cursor, to, span, NO_RULE));
    }
    gather(fitted, from)
}

fn join(fitted: &mut Vec<Piece>, piece: Piece) {
    match fitted.last_mut() {
        Some(last) if last.same(&piece) => {
            last.to = piece.to;
            last.absorb(&piece);
        }
        _ => fitted.push(piece),
    }
}

/// Of very many pieces, equal ones become one each, largest first: the times stay exact, the
/// places within the stretch do not. Keeps a ledger short when threads switch thousands of times.
fn gather(pieces: Vec<Piece>, from: MonoNs) -> Vec<Piece> {
    if pieces.len() <= MAX_PIECES {
        return pieces;
    }
    let mut kinds: Vec<(DurNs, Piece)> = Vec::new();
    for piece in longest_first(pieces) {
        let time = piece.time();
        let piece = if kinds.len() < MAX_KINDS || kinds.iter().any(|(_, kind)| kind.same(&piece)) {
            piece
        } else {
            piece.without_names()
        };
        match kinds.iter_mut().find(|(_, kind)| kind.same(&piece)) {
            Some((sum, kind)) => {
                *sum = sum.plus(time);
                kind.absorb(&piece);
            }
            None => kinds.push((time, piece)),
        }
    }
    kinds.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    lay_out(kinds, from)
}

/// So that the facts kept are those of the longest pieces.
fn longest_first(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.time()));
    pieces
}

fn lay_out(kinds: Vec<(DurNs, Piece)>, from: MonoNs) -> Vec<Piece> {
    let mut cursor = from;
    let placed = kinds.into_iter().map(|(time, mut piece)| {
        piece.from = cursor;
        piece.to = cursor.after(time);
        cursor = piece.to;
        piece
    });
    placed.collect()
}

/// Sums up pieces that fill `from` to `to`.
pub(super) fn ledger(pieces: Vec<Piece>, from: MonoNs, to: MonoNs) -> Ledger {
    let mut entries = Vec::new();
    let mut gaps: Vec<Gap> = Vec::new();
    for piece in pieces {
        let time = piece.time();
        match piece.found {
            Found::Charged(charge) => {
                entries.extend(entry(piece.from, piece.to, piece.span, Rc::unwrap_or_clone(charge)));
            }
            Found::Unexplained(reason) => match gaps.iter_mut().find(|gap| gap.reason == reason) {
                Some(gap) => gap.time = gap.time.plus(time),
                None => gaps.push(Gap { time, reason }),
            },
        }
    }
    sum_up(entries, gaps, from, to)
}

/// A ledger of entries in the order of their time, and of what is unexplained beside them, which
/// together fill `from` to `to`.
pub(crate) fn sum_up(entries: Vec<Entry>, mut gaps: Vec<Gap>, from: MonoNs, to: MonoNs) -> Ledger {
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.time));
    let unexplained = gaps.iter().fold(DurNs::ZERO, |sum, gap| sum.plus(gap.time));
    let unexplained_reasons = gaps.iter().map(|Gap { time, reason }| format!("{time}: {reason}")).collect();
    let ledger = Ledger { from, to, entries, unexplained, gaps, unexplained_reasons };
    debug_assert!(exact(&ledger), "{ledger:?}");
    ledger
}

fn entry(from: MonoNs, to: MonoNs, span: Span, charge: Charge) -> Option<Entry> {
    let Charge { offender, path, hops, evidence, meaning, stalled } = charge;
    let cause = *path.last()?;
    let said = meaning.filter(|(of, _)| *of == cause).map(|(_, meaning)| meaning);
    let meaning = said.unwrap_or(cause.row().must_be_true);
    Some(Entry { cause, from, to, span, offender, path, hops, evidence, meaning, stalled })
}

/// Whether the parts of a ledger are in order, apart, and sum to the whole.
pub(crate) fn exact(ledger: &Ledger) -> bool {
    let apart = ledger.entries.windows(2).all(|pair| matches!(pair, [one, two] if one.to <= two.from));
    let inside =
        ledger.entries.iter().all(|entry| ledger.from <= entry.from && entry.from < entry.to && entry.to <= ledger.to);
    let sum = ledger.entries.iter().fold(ledger.unexplained, |sum, entry| sum.plus(entry.time()));
    apart && inside && sum == ledger.to.since(ledger.from)
}
