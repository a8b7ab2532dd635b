//! What a flame graph of a million samples takes, beside the Perl programs that made them known.

use std::{
    env,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
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
/// Names a directory with `stackcollapse-perf.pl` and `flamegraph.pl`.
/// <https://github.com/brendangregg/FlameGraph>
const PROGRAMS: &str = "FLAMEGRAPH_DIR";
/// The drawing one alone, from Debian's package `libdevel-nytprof-perl`.
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
    rows.push(match env::var_os(PROGRAMS).map(PathBuf::from) {
        Some(directory) => {
            let theirs = whole_pipeline(&facts, &directory)?;
            beside("stackcollapse-perf.pl and flamegraph.pl", theirs, ours).note("in turn, over text")
        }
        None if Path::new(FLAMEGRAPH).exists() => {
            let theirs = drawn_by(Path::new(FLAMEGRAPH), &each_sample_collapsed(&facts)?)?.1;
            let note = format!("without the step that collapses: {PROGRAMS} names a directory that has it");
            beside("flamegraph.pl, a line for each sample", theirs, ours).note(note)
        }
        None => Row::missing("flamegraph.pl", "install libdevel-nytprof-perl"),
    });
    Ok(rows)
}

fn beside(what: &str, theirs: Duration, ours_ms: f64) -> Row {
    let theirs_ms = theirs.as_secs_f64() * 1e3;
    let times = theirs_ms / ours_ms;
    let row = Row::new(what, "ms", Samples::one(theirs_ms)).ratio(times, "both");
    row.figure(Figure::at_least(times, 100.0, "× both"))
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

/// A line for each sample, as if they were collapsed one by one.
fn each_sample_collapsed(facts: &[Output]) -> Result<String> {
    let stacks = collapsed_once(facts)?;
    let mut text = String::new();
    for number in 0..SAMPLES as usize {
        text.push_str(stacks.get(number % stacks.len().max(1)).map_or("", String::as_str));
        text.push_str(" 1\n");
    }
    Ok(text)
}

/// Each stack once, its functions from below with `;` between them.
fn collapsed_once(facts: &[Output]) -> Result<Vec<String>> {
    let mut times = ThreadTimes::new();
    facts.iter().for_each(|fact| times.push(fact));
    (0..STACKS).for_each(|number| times.push(&sample(number)));
    let folded = times.cpu()?.folded();
    Ok(folded.lines().filter_map(|line| line.rsplit_once(' ')).map(|(stack, _)| stack.to_owned()).collect())
}

/// What `perf script` prints of all samples through both programs.
fn whole_pipeline(facts: &[Output], directory: &Path) -> Result<Duration> {
    let stacks = collapsed_once(facts)?;
    let printed: Vec<String> = stacks.iter().map(|stack| printed(stack)).collect();
    let samples = || (0..SAMPLES as usize).filter_map(|number| printed.get(number % printed.len().max(1)));
    let (collapsed, collapsing) = through(&directory.join("stackcollapse-perf.pl"), &mut |perl| {
        samples().try_for_each(|sample| perl.write_all(sample.as_bytes()))
    })?;
    let (_, drawing) = drawn_by(&directory.join("flamegraph.pl"), &collapsed)?;
    Ok(collapsing + drawing)
}

/// A sample as `perf script` prints it: a line for it, then its functions, innermost first.
fn printed(stack: &str) -> String {
    let functions = stack.split(';').skip(1).collect::<Vec<_>>();
    let lines = functions.iter().rev().map(|name| format!("\t    55d0c0de {name} (/usr/bin/server)\n"));
    let lines: String = lines.collect();
    format!("server     1  1000.000000:   10000000 cpu-clock:\n{lines}\n")
}

fn drawn_by(flamegraph: &Path, collapsed: &str) -> Result<(String, Duration)> {
    let drawn = through(flamegraph, &mut |perl| perl.write_all(collapsed.as_bytes()))?;
    ensure!(drawn.0.contains("<title>"), "{} drew nothing", flamegraph.display());
    Ok(drawn)
}

/// What a Perl program makes of what is written to it, and how long that takes.
fn through(
    program: &Path,
    write: &mut (dyn FnMut(&mut dyn Write) -> io::Result<()> + Send),
) -> Result<(String, Duration)> {
    let mut command = Command::new("perl");
    let mut child = command.arg(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("perl")?;
    let begun = Instant::now();
    let mut input = BufWriter::new(child.stdin.take().context("no pipe to perl")?);
    let output = thread::scope(|scope| {
        scope.spawn(move || write(&mut input).and_then(|()| input.flush()));
        child.wait_with_output()
    })?;
    ensure!(output.status.success(), "{} failed: {}", program.display(), output.status);
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), begun.elapsed()))
}
