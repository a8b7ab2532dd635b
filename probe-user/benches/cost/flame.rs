//! What a flame graph of a million samples takes, beside the Perl program that made them known.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use probe_user::{
    clock::DurNs,
    event::{Fact, TaskId},
    flame::ThreadTimes,
    pipeline::Output,
    stack::{FrameFact, Function, ModuleFact, StackEnd, StackFact, Taken, TakenFact},
};

use crate::{
    report::{Figure, Row},
    samples::{Samples, cpu_time},
};

const SAMPLES: u32 = 1_000_000;
const STACKS: u32 = 100_000;
const DEPTH: u32 = 20;
const ROUNDS: usize = 5;
/// From Debian's package `libdevel-nytprof-perl`.
const FLAMEGRAPH: &str = "/usr/share/perl5/Devel/NYTProf/flamegraph.pl";

/// From counted stacks to a drawing, and from a line for each sample to one.
pub(crate) fn run() -> Result<Vec<Row>> {
    let facts = stacks();
    let rounds: Vec<_> = (0..ROUNDS).map(|_| ours(&facts)).collect::<Result<_>>()?;
    let (count, draw): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
    let whole: Vec<_> = count.iter().zip(&draw).map(|(count, draw)| count + draw).collect();
    let (Some(count), Some(draw), Some(whole)) = (Samples::new(count), Samples::new(draw), Samples::new(whole)) else {
        return Ok(Vec::new());
    };
    let ours = whole.median();
    let what = "1 M samples, 100,000 stacks";
    let mut rows = vec![
        Row::new(format!("{what}: counted"), "ms", count),
        Row::new(format!("{what}: drawn"), "ms", draw),
        Row::new(format!("{what}: both"), "ms", whole),
    ];
    if Path::new(FLAMEGRAPH).exists() {
        let theirs = perl(&facts)?.as_secs_f64() * 1e3;
        let times = theirs / ours;
        let row = Row::new("flamegraph.pl, a line for each sample", "ms", Samples::one(theirs)).ratio(times, "both");
        rows.push(row.figure(Figure::at_least(times, 100.0, "× both")).note("without the step that collapses"));
    } else {
        rows.push(Row::missing("flamegraph.pl", "install libdevel-nytprof-perl"));
    }
    Ok(rows)
}

/// A tree of functions with a hundred thousand leaves, and a sample of each now and again.
fn stacks() -> Vec<Output> {
    let mut facts = vec![Fact::Module(ModuleFact { id: 0, name: "server".to_owned(), build_id: String::new() })];
    for id in 0..STACKS + DEPTH * 100 {
        let name = format!("server::module_{}::function_{id}", id % 97);
        let functions = vec![Function { name, file: String::new(), line: 0 }];
        facts.push(Fact::Frame(FrameFact { id, module: Some(0), address: u64::from(id), functions, unknown: None }));
    }
    for id in 0..STACKS {
        // Innermost first: a leaf of its own on one of a hundred callers at each level.
        let callers = (1..DEPTH).rev().map(|level| STACKS + level * 100 + (id / (level + 1)) % (1 + level * 5) % 100);
        let frames = std::iter::once(id).chain(callers).collect();
        facts.push(Fact::Stack(StackFact { id, frames, end: StackEnd::Entry }));
    }
    facts.into_iter().map(Output::Fact).collect()
}

fn sample(number: u32) -> Output {
    let why = Taken::Sample { period: DurNs::from_millis(10) };
    let user = Some(number.wrapping_mul(7919) % STACKS);
    Output::Fact(Fact::Taken(TakenFact { task: TaskId { tgid: 1, tid: 1 }, why, user, kernel: Vec::new() }))
}

/// Milliseconds of CPU time to count all samples, and to draw them.
fn ours(facts: &[Output]) -> Result<(f64, f64)> {
    let mut times = ThreadTimes::new();
    facts.iter().for_each(|fact| times.push(fact));
    let begun = cpu_time();
    (0..SAMPLES).for_each(|number| times.push(&sample(number)));
    let counted = cpu_time();
    let drawing = times.cpu()?.svg()?;
    let drawn = cpu_time();
    ensure!(drawing.contains("<title>"), "nothing was drawn");
    Ok(((counted - begun).as_secs_f64() * 1e3, (drawn - counted).as_secs_f64() * 1e3))
}

fn perl(facts: &[Output]) -> Result<Duration> {
    let mut times = ThreadTimes::new();
    facts.iter().for_each(|fact| times.push(fact));
    (0..STACKS).for_each(|number| times.push(&sample(number)));
    let folded = times.cpu()?.folded();
    let lines: Vec<_> = folded.lines().filter_map(|line| line.rsplit_once(' ')).map(|(stack, _)| stack).collect();
    let mut text = String::new();
    for number in 0..SAMPLES as usize {
        text.push_str(lines.get(number % lines.len().max(1)).unwrap_or(&""));
        text.push_str(" 1\n");
    }
    let mut command = Command::new("perl");
    let mut child = command.arg(FLAMEGRAPH).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("perl")?;
    let begun = Instant::now();
    child.stdin.take().context("no pipe to perl")?.write_all(text.as_bytes()).context("cannot write to perl")?;
    let status = child.wait().context("perl")?;
    ensure!(status.success(), "flamegraph.pl failed: {status}");
    Ok(begun.elapsed())
}
