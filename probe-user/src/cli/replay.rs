//! `whylag replay`: the same journeys again, from a recording or from captures. Needs no root.

use super::args::{OutputArgs, ReplayArgs};
use super::input::{Input, in_part};
use super::tally::Tally;
use super::{Outcome, signature, terminal, value};
use crate::bundle::Addresses;
use crate::clock::DurNs;
use crate::event::InterfaceRole;
use crate::pipeline::{Collector, Output};
use crate::sink::Printer;
use crate::source::capture::{self, Capture, CaptureCounts, Judgement};
use anyhow::Context;
use std::io;
use std::path::{Path, PathBuf};

/// In a capture, nobody waits for a result, so a check may take its time.
const LOST_AFTER: DurNs = DurNs::from_secs(90);

/// Runs the command.
pub(super) fn run(args: &ReplayArgs) -> anyhow::Result<Outcome> {
    match &args.file {
        Some(file) => replay_recording(file, args.output),
        None => replay_captures(args),
    }
}

fn replay_recording(path: &Path, output: OutputArgs) -> anyhow::Result<Outcome> {
    let mut input = Input::open(path)?;
    let mut replay = Replay::new(output);
    let hidden = input.bundle.as_ref().is_some_and(|manifest| manifest.addresses == Addresses::Pseudonyms);
    replay.print.tally.pseudonyms = hidden;
    let read = input.reader.drain(&mut |record| {
        replay.push(record);
        if replay.is_read() { Ok(()) } else { Err(()) }
    });
    let outcome = replay.finish()?;
    match read.unwrap_or_default() {
        None => Ok(outcome),
        Some(damage) => Err(in_part(damage, path, "replayed")),
    }
}

fn replay_captures(args: &ReplayArgs) -> anyhow::Result<Outcome> {
    let chosen = signature::load(&args.signatures)?;
    let judgement = Judgement {
        signatures: &chosen.signatures,
        table: &chosen.table,
        threshold: args.threshold.unwrap_or(value::USUAL_THRESHOLD),
        lost_after: args.lost_after.unwrap_or(LOST_AFTER),
    };
    let mut replay = Replay::new(args.output);
    let read = capture::replay(&captures(args), &judgement, &mut |record| replay.push(record));
    let counts = match read {
        Ok(counts) => counts,
        Err(error) => {
            replay.break_off()?;
            return Err(error.into());
        }
    };
    let (outcome, late) = replay.finish_late()?;
    report(&counts, late)?;
    Ok(outcome)
}

fn captures(args: &ReplayArgs) -> Vec<Capture> {
    let at = |path: &Option<PathBuf>, role| path.clone().map(|path| Capture { path, role });
    let captures = [at(&args.pnic, InterfaceRole::PhysicalNic), at(&args.vnic, InterfaceRole::VirtualNic)];
    captures.into_iter().flatten().collect()
}

/// What a reader must know of the captures. A cut capture is a failure, as a cut recording is, when
/// all that can be read has been told.
fn report(counts: &CaptureCounts, late: u64) -> anyhow::Result<()> {
    if late > 0 {
        terminal::say(&format!(
            "{late} packets were not used: they stand behind packets with later times, as after a clock was set back; \
             `reordercap` puts a capture in order"
        ));
    }
    if counts.matched == 0 {
        terminal::say(&format!(
            "none of {} packets matched; `whylag signature test PCAP` tells which checks are in it, `whylag signature \
             list` which are known",
            counts.packets
        ));
    }
    let cut = counts.cut.iter().map(|(path, at)| format!("{} is cut off behind byte {at}", path.display()));
    let cut: Vec<_> = cut.collect();
    anyhow::ensure!(cut.is_empty(), "only a part could be replayed: {}", cut.join("; "));
    Ok(())
}

/// A collector whose outputs are printed at once.
struct Replay {
    collector: Collector,
    print: Print,
    asked: OutputArgs,
}

struct Print {
    printer: Printer,
    tally: Tally,
    failed: Option<io::Error>,
}

impl Replay {
    fn new(asked: OutputArgs) -> Self {
        let printer = Printer::new(terminal::sink(asked.format, false));
        Self { collector: Collector::new(), print: Print { printer, tally: Tally::default(), failed: None }, asked }
    }

    fn push(&mut self, record: &[u8]) {
        let Self { collector, print, .. } = self;
        collector.push(record, &mut |output| print.take(&output));
    }

    /// Somebody still reads what is printed.
    const fn is_read(&self) -> bool {
        self.print.failed.is_none()
    }

    /// Prints what there is before the place where it could not go on; where there is no check, the
    /// reason says all.
    fn break_off(mut self) -> anyhow::Result<()> {
        let mut rest = Vec::new();
        self.collector.finish(&mut |output| rest.push(output));
        let any = self.print.tally.ended > 0 || rest.iter().any(|output| matches!(output, Output::Journey(_)));
        rest.iter().filter(|_| any).for_each(|output| self.print.take(output));
        self.print.failed.map_or(Ok(()), |error| Err(error).context("cannot write the result"))
    }

    fn finish(self) -> anyhow::Result<Outcome> {
        self.finish_late().map(|(outcome, _)| outcome)
    }

    /// Also gives the number of records that came too late.
    fn finish_late(mut self) -> anyhow::Result<(Outcome, u64)> {
        let print = &mut self.print;
        self.collector.finish(&mut |output| print.take(&output));
        if print.tally.pseudonyms {
            terminal::say("addresses here are pseudonyms: no real host has them");
        }
        match self.print.failed {
            Some(error) => Err(error).context("cannot write the result"),
            None => Ok((self.print.tally.outcome(self.asked), self.print.tally.late)),
        }
    }
}

impl Print {
    fn take(&mut self, output: &Output) {
        self.tally.take(output);
        if self.failed.is_none() {
            self.failed = self.printer.print(output, 0).err();
        }
    }
}
