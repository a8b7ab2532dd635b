//! What is lost, late, unmatched or dropped: the ledger of ourselves.
//!
//! Every decoded record comes in before it is ordered, and the kernel programs' own counters as
//! facts; the identity *received + lost == emitted* per kind and CPU goes out, with the windows of
//! time in which records are missing. Sequence numbers say when and where, counters how many: a
//! record that is lost last on a CPU leaves no gap behind it.

mod gap;
#[cfg(test)]
mod tests;

use crate::clock::{DurNs, MonoNs};
use crate::event::{Body, CounterRow, Event, Fact};
use crate::journey::Counts;
use crate::stack::StackCounts;
use gap::{Gaps, Sequence};
use probe_wire::{EventKind, MAX_CPUS};
use serde::Serialize;
use std::collections::BTreeMap;

/// The programs' counters are read within this of the time that they carry.
const READ_WITHIN: DurNs = DurNs::from_millis(20);

/// An identity that does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Invariant 1, for one kind on one CPU.
    #[error(
        "{kind:?} on CPU {cpu}: {received} received + {lost} lost != {emitted} emitted ({others} more rows do not add up)"
    )]
    Emitted {
        /// Kind.
        kind: EventKind,
        /// CPU.
        cpu: u32,
        /// Records that came out of the ring.
        received: u64,
        /// Attempts that found the ring full.
        lost: u64,
        /// Attempts.
        emitted: u64,
        /// Other kinds and CPUs that do not add up either.
        others: usize,
    },
    /// Invariant 2.
    #[error("{decoded} decoded != {joined} joined + {evidence} evidence + {unmatched} unmatched + {late} late")]
    Decoded {
        /// Records decoded.
        decoded: u64,
        /// Records that belong to a check.
        joined: u64,
        /// Records about threads and interrupts.
        evidence: u64,
        /// Records that belong to no check.
        unmatched: u64,
        /// Records that came after the reorder window.
        late: u64,
    },
    /// Invariant 5, for one sink.
    #[error("{offered} offered to a sink != {written} written + {dropped} dropped")]
    Sink {
        /// Items offered.
        offered: u64,
        /// Items written.
        written: u64,
        /// Items dropped because the sink's queue was full.
        dropped: u64,
    },
}

/// Checks invariant 2: every decoded record is joined, evidence, unmatched or late.
///
/// # Errors
/// When the sum does not hold.
pub const fn check_decoded(decoded: u64, counts: &Counts, late: u64) -> Result<(), Violation> {
    let Counts { joined, evidence, unmatched, .. } = *counts;
    if joined + evidence + unmatched + late == decoded {
        return Ok(());
    }
    Err(Violation::Decoded { decoded, joined, evidence, unmatched, late })
}

/// Checks invariant 5: what a sink was offered is written or dropped.
///
/// # Errors
/// When the sum does not hold.
pub const fn check_sink(offered: u64, written: u64, dropped: u64) -> Result<(), Violation> {
    if written + dropped == offered { Ok(()) } else { Err(Violation::Sink { offered, written, dropped }) }
}

/// What was counted and not told in full.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut {
    /// Checks judged by their time alone.
    pub brief: u64,
    /// Lines about open checks.
    pub unreported: u64,
}

/// The kernel's word on one kind and CPU.
#[derive(Debug, Default, Clone, Copy)]
struct Row {
    received: u64,
    emitted: u64,
    lost: u64,
    /// Left in the ring when the run ended.
    undrained: u64,
}

/// Counts what was received and what is missing.
#[derive(Debug, Default)]
pub struct LossLedger {
    /// By CPU, then by kind number.
    rows: Vec<[Row; EventKind::SLOTS]>,
    sequences: Vec<Sequence>,
    gaps: Gaps,
    /// The kernel's counters have been seen.
    counted: bool,
    /// When they were read last, and the time before.
    counted_at: MonoNs,
    counted_before: MonoNs,
    skipped_runs: BTreeMap<String, u64>,
    decoded: u64,
    undecodable: u64,
    late: u64,
    dropped: u64,
    counts: Counts,
    left_out: LeftOut,
    /// What the kernel says it lost, by CPU.
    told: Vec<u64>,
    unreadable: u64,
    /// Every record earlier than this has been read.
    ticked_at: MonoNs,
    /// Records that could not be read since that tick.
    hole: u64,
    stacks: StackCounts,
}

impl LossLedger {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A record was decoded; to be called in the order in which records were read.
    pub fn received(&mut self, event: &Event) {
        match &event.body {
            Body::Fact(fact) => {
                if let Fact::Counters { rows, skipped_runs } = &**fact {
                    rows.iter().for_each(|row| self.count(row));
                    self.counted(event.at);
                    skipped_runs.iter().for_each(|(program, runs)| self.skip(program, *runs));
                }
                match &**fact {
                    Fact::Unreadable { records, .. } => self.cannot_read(*records),
                    Fact::StackCounts(counts) => self.stacks = *counts,
                    _ => {}
                }
            }
            Body::Tick => self.tick(event.at),
            body => {
                self.decoded += 1;
                if let Some(kind) = body.kind() {
                    self.take(event, kind);
                }
            }
        }
    }

    /// A record could not be decoded.
    pub const fn undecodable(&mut self) {
        self.undecodable += 1;
    }

    /// A record came too late to take part: to whatever rests on that instant it is as good as lost.
    pub fn came_late(&mut self, at: MonoNs) {
        self.gaps.add_late(at);
    }

    /// Sets how many records came after the reorder window so far.
    pub const fn set_late(&mut self, late: u64) {
        self.late = late;
    }

    /// Sets where the ordered records went so far.
    pub const fn set_counts(&mut self, counts: Counts) {
        self.counts = counts;
    }

    /// Sets what was not told in full so far.
    pub const fn set_left_out(&mut self, left_out: LeftOut) {
        self.left_out = left_out;
    }

    /// Items that sinks could not take because their queue was full.
    pub const fn dropped(&mut self, items: u64) {
        self.dropped += items;
    }

    /// The stream has ended and every ring was drained: what is missing now is lost.
    pub fn finish(&mut self) {
        self.tick(MonoNs(u64::MAX));
    }

    /// Records stood in a damaged part of the recording; if nobody knows how many, at least one.
    fn cannot_read(&mut self, records: Option<u64>) {
        let records = records.unwrap_or(1);
        self.unreadable = self.unreadable.saturating_add(records);
        self.hole = self.hole.saturating_add(records);
    }

    /// Every record earlier than `at` has been read, or could not be read.
    fn tick(&mut self, at: MonoNs) {
        let hole = std::mem::take(&mut self.hole);
        if hole > 0 {
            self.gaps.add_unsaid(self.ticked_at, at, hole);
        }
        self.ticked_at = self.ticked_at.max(at);
        self.settle(at);
    }

    /// Records that are known to be missing between two instants, ends included: the sum of all
    /// gaps that touch the stretch. Never too few, but a gap counts whole; one behind which nothing
    /// has been read yet, of which only the programs' counters tell, has no end.
    #[must_use]
    pub fn lost_between(&self, from: MonoNs, to: MonoNs) -> u64 {
        let hole = if self.ticked_at <= to { self.hole } else { 0 };
        self.gaps.between(from, to).saturating_add(self.untimed(to)).saturating_add(hole)
    }

    /// Records that the programs lost behind the last ones of their CPU that were read, if those
    /// came before `to`.
    fn untimed(&self, to: MonoNs) -> u64 {
        let behind = self.told.iter().enumerate().map(|(cpu, told)| match self.sequences.get(cpu) {
            Some(sequence) if sequence.before() > to => 0,
            Some(sequence) => told.saturating_sub(sequence.lost()),
            None => *told,
        });
        total(behind)
    }

    /// Records decoded so far, late ones included; facts and ticks are none.
    #[must_use]
    pub const fn decoded(&self) -> u64 {
        self.decoded
    }

    /// Checks invariant 1 against the last counters seen. It holds exactly once the rings are
    /// drained; while records are in flight it does not. Without any counters there is nothing to
    /// check.
    ///
    /// # Errors
    /// The first kind and CPU that does not add up.
    pub fn identity(&self) -> Result<(), Violation> {
        let mut wrong = self.all_rows().filter(|(_, _, row)| {
            row.received.checked_add(row.lost).and_then(|sum| sum.checked_add(row.undrained)) != Some(row.emitted)
        });
        match wrong.next().filter(|_| self.counted) {
            None => Ok(()),
            Some((cpu, kind, Row { received, emitted, lost, undrained })) => {
                let lost = lost.saturating_add(undrained);
                Err(Violation::Emitted { kind, cpu, received, lost, emitted, others: wrong.count() })
            }
        }
    }

    /// Checks invariant 2.
    ///
    /// # Errors
    /// When a decoded record is neither joined nor evidence nor unmatched nor late.
    pub const fn decoded_identity(&self) -> Result<(), Violation> {
        check_decoded(self.decoded, &self.counts, self.late)
    }

    /// Everything in one value.
    #[must_use]
    pub fn report(&self) -> LossReport {
        let by_kind = self.by_kind();
        let sum = |of: fn(&KindLoss) -> u64| total(by_kind.iter().map(of));
        LossReport {
            kind: "loss",
            emitted: sum(|row| row.emitted),
            received: self.decoded,
            lost: self.lost(sum(|row| row.lost), self.gaps.total()),
            unreadable: self.unreadable,
            stacks_lost: self.stacks.lost(),
            stacks_spared: self.stacks.spared(),
            late: self.late,
            unmatched: self.counts.unmatched,
            dropped: self.dropped,
            undecodable: self.undecodable,
            ambiguous: self.counts.ambiguous,
            evicted: self.counts.evicted,
            brief: self.left_out.brief,
            unreported: self.left_out.unreported,
            joined: self.counts.joined,
            evidence: self.counts.evidence,
            by_cpu: self.by_cpu(),
            by_kind,
            skipped_runs: self.skipped_runs.iter().map(SkippedRuns::from_entry).collect(),
        }
    }

    /// A record arrived in its ring.
    fn take(&mut self, event: &Event, kind: EventKind) {
        // A CPU number beyond the rings is not one of the kernel's; it shares the last row.
        let cpu = (event.cpu as usize).min(MAX_CPUS - 1);
        self.row(cpu, kind as usize).received += 1;
        if self.sequences.len() <= cpu {
            self.sequences.resize_with(cpu + 1, Sequence::new);
        }
        if event.seq != 0 {
            self.sequences[cpu].take(event.seq, event.at, &mut self.gaps);
        }
    }

    /// Every record earlier than `at` has been read.
    fn settle(&mut self, at: MonoNs) {
        for sequence in &mut self.sequences {
            sequence.settle(at, &mut self.gaps);
        }
    }

    fn count(&mut self, counted: &CounterRow) {
        let Ok(kind) = EventKind::try_from(counted.kind) else { return };
        let cpu = (counted.cpu as usize).min(MAX_CPUS - 1);
        let row = self.row(cpu, kind as usize);
        row.emitted = row.emitted.max(counted.emitted);
        row.undrained = row.undrained.max(counted.undrained);
        let more = counted.lost.saturating_sub(row.lost);
        row.lost = row.lost.max(counted.lost);
        self.counted = true;
        let left = counted.undrained;
        if self.told.len() <= cpu {
            self.told.resize(cpu + 1, 0);
        }
        self.told[cpu] = self.told[cpu].saturating_add(more).saturating_add(left);
    }

    /// Counters of `at` follow, perhaps in several parts.
    fn counted(&mut self, at: MonoNs) {
        if at > self.counted_at {
            self.counted_before = std::mem::replace(&mut self.counted_at, at);
        }
    }

    /// What a skipped run would have said is missing some time since the counters before these.
    fn skip(&mut self, program: &str, runs: u64) {
        const MOST_PROGRAMS: usize = 1024;
        let known = self.skipped_runs.get(program).copied().unwrap_or(0);
        if runs > known && (known > 0 || self.skipped_runs.len() < MOST_PROGRAMS) {
            self.skipped_runs.insert(program.to_owned(), runs);
            let (from, to) = (self.counted_before.before(READ_WITHIN), self.counted_at.after(READ_WITHIN));
            self.gaps.add_unsaid(from, to, runs - known);
        }
    }

    fn row(&mut self, cpu: usize, kind: usize) -> &mut Row {
        if self.rows.len() <= cpu {
            self.rows.resize_with(cpu + 1, || [Row::default(); EventKind::SLOTS]);
        }
        &mut self.rows[cpu][kind]
    }

    fn all_rows(&self) -> impl Iterator<Item = (u32, EventKind, Row)> {
        (0..)
            .zip(&self.rows)
            .flat_map(|(cpu, rows)| EventKind::ALL.into_iter().map(move |kind| (cpu, kind, rows[kind as usize])))
    }

    fn by_kind(&self) -> Vec<KindLoss> {
        let of = |kind: EventKind| {
            let rows = self.rows.iter().map(|rows| rows[kind as usize]);
            rows.fold(KindLoss { kind: kind.name(), emitted: 0, received: 0, lost: 0 }, |sum, row| KindLoss {
                emitted: sum.emitted.saturating_add(self.emitted(row)),
                received: sum.received.saturating_add(row.received),
                lost: sum.lost.saturating_add(row.lost).saturating_add(row.undrained),
                ..sum
            })
        };
        EventKind::ALL.into_iter().map(of).filter(|row| row.emitted > 0).collect()
    }

    fn by_cpu(&self) -> Vec<CpuLoss> {
        let of = |(cpu, rows): (u32, &[Row; EventKind::SLOTS])| {
            let sum = |of: fn(&Row) -> u64| total(rows.iter().map(of));
            let missing = self.sequences.get(cpu as usize).map_or(0, Sequence::lost);
            CpuLoss {
                cpu,
                emitted: total(rows.iter().map(|row| self.emitted(*row))),
                received: sum(|row| row.received),
                lost: self.lost(sum(|row| row.lost.saturating_add(row.undrained)), missing),
            }
        };
        (0..).zip(&self.rows).map(of).filter(|row| row.emitted > 0).collect()
    }

    /// What the programs counted as lost, or the missing sequence numbers if they are more: but not
    /// those that stand in a damaged part of the recording.
    const fn lost(&self, counted: u64, missing: u64) -> u64 {
        let known = self.counted && self.unreadable > 0;
        if known || counted > missing { counted } else { missing }
    }

    /// Attempts as the kernel counts them; without its counters, what was received.
    const fn emitted(&self, row: Row) -> u64 {
        if self.counted { row.emitted } else { row.received }
    }
}

/// A sum that hostile counters cannot overflow.
fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// The last word on losses, as the output has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LossReport {
    /// Always `loss`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Attempts to emit a record, as the kernel programs count them; without their counters, the
    /// records received.
    pub emitted: u64,
    /// Records that came out of the rings and could be decoded.
    pub received: u64,
    /// Records that found their ring full: the programs' own count, or the gaps in sequence
    /// numbers if they show more.
    pub lost: u64,
    /// Records that came after the reorder window.
    pub late: u64,
    /// Records about packets and sockets that belong to no check.
    pub unmatched: u64,
    /// Items that sinks could not take.
    pub dropped: u64,
    /// Records that could not be decoded.
    pub undecodable: u64,
    /// Of the unmatched: packets that fitted several checks.
    pub ambiguous: u64,
    /// Checks that made room for newer ones.
    pub evicted: u64,
    /// Checks that were counted, but came with more others than can be looked into.
    pub brief: u64,
    /// Lines about open checks that were left out because there were too many.
    pub unreported: u64,
    /// Records, facts and ticks included, that stand in a damaged part of the recording; at least this
    /// many.
    pub unreadable: u64,
    /// Stacks of watched threads that were due, and for which there was no room or no time.
    pub stacks_lost: u64,
    /// Stacks of watched threads that were due, beyond what whylag may spend on them.
    pub stacks_spared: u64,
    /// Records that belong to a check.
    pub joined: u64,
    /// Records about threads and interrupts.
    pub evidence: u64,
    /// Per kind of record, of those that occurred.
    pub by_kind: Vec<KindLoss>,
    /// Per CPU, of those that emitted anything.
    pub by_cpu: Vec<CpuLoss>,
    /// Per program whose runs the kernel skipped.
    pub skipped_runs: Vec<SkippedRuns>,
}

/// Losses of one kind of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct KindLoss {
    /// Public name of the kind.
    pub kind: &'static str,
    /// Attempts to emit.
    pub emitted: u64,
    /// Records received.
    pub received: u64,
    /// Attempts that found the ring full.
    pub lost: u64,
}

/// Losses of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CpuLoss {
    /// CPU.
    pub cpu: u32,
    /// Attempts to emit.
    pub emitted: u64,
    /// Records received.
    pub received: u64,
    /// Attempts that found the ring full, or missing sequence numbers if they are more.
    pub lost: u64,
}

/// Runs of a program that the kernel skipped because it was already running on that CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedRuns {
    /// Program.
    pub program: String,
    /// Runs.
    pub count: u64,
}

impl SkippedRuns {
    fn from_entry((program, count): (&String, &u64)) -> Self {
        Self { program: program.clone(), count: *count }
    }
}
