//! What the collector takes: events a second on one core, allocations, memory.

use std::{env, fs, process::Command};

use anyhow::{Context as _, Result, bail, ensure};
use probe_user::{
    clock::DurNs,
    event::{Event, Orderer, decode, encode},
    journey::{Correlator, Journey, Update},
    loss::LossLedger,
    pipeline::Collector,
};

use crate::{
    allocator::allocations,
    report::{Figure, Row},
    samples::{Samples, cpu_time},
    synthetic,
};

/// The argument that makes this program hold open checks and tell its memory.
pub(crate) const OPEN_CHECKS: &str = "--hold-open-checks";

const CHECKS: u64 = 50_000;
const ROUNDS: usize = 9;
const MAX_OPEN: u32 = 1_000_000;
/// How long before a tick an event may have happened: as the live collector waits.
const WINDOW: DurNs = DurNs::from_millis(2);
/// Open checks whose memory is measured, and the time between them.
const OPEN: u64 = 100_000;
const APART_NS: u64 = 20_000;
/// How long they stay open, and so are reported every second.
const STAY_NS: u64 = 5_000_000_000;

/// Records in memory, as a recording has them.
#[derive(Debug)]
struct Records {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Records {
    fn new(events: impl IntoIterator<Item = Event>) -> Result<Self> {
        let mut records = Self { bytes: Vec::new(), ends: Vec::new() };
        for event in events {
            records.bytes.extend(encode(&event)?);
            records.ends.push(records.bytes.len());
        }
        Ok(records)
    }

    fn each(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| self.bytes.get(std::mem::replace(&mut start, end)..end).unwrap_or_default())
    }
}

/// How far records are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    Decode,
    Order,
    Join,
    Whole,
}

/// The collector up to a depth.
struct Part {
    depth: Depth,
    losses: LossLedger,
    orderer: Orderer,
    correlator: Correlator,
    ended: Vec<Journey>,
    whole: Collector,
}

impl Part {
    fn new(depth: Depth) -> Self {
        Self {
            depth,
            losses: LossLedger::new(),
            orderer: Orderer::new(WINDOW),
            correlator: Correlator::new(),
            ended: Vec::with_capacity(16),
            whole: Collector::new(),
        }
    }

    fn push(&mut self, record: &[u8]) {
        let Self { depth, losses, orderer, correlator, ended, whole } = self;
        if *depth == Depth::Whole {
            return whole.push(record, &mut drop);
        }
        let Ok(event) = decode(record) else { return };
        losses.received(&event);
        match depth {
            Depth::Decode => drop(event),
            Depth::Order => orderer.push(event, &mut drop),
            Depth::Join | Depth::Whole => orderer.push(event, &mut |event| join(correlator, ended, &event)),
        }
    }
}

/// Joins an event and gives the buffers of what has ended back, as a sink can.
fn join(correlator: &mut Correlator, ended: &mut Vec<Journey>, event: &Event) {
    correlator.push(event, &mut |update| {
        if let Update::Ended(journey) = update {
            ended.push(journey);
        }
    });
    ended.drain(..).for_each(|journey| correlator.recycle(journey));
}

pub(crate) fn throughput() -> Result<Vec<Row>> {
    let events = synthetic::facts(MAX_OPEN).into_iter().chain(synthetic::load(CHECKS));
    let records = Records::new(events)?;
    let depths = [Depth::Decode, Depth::Order, Depth::Join, Depth::Whole];
    let mut passes = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        for (depth, passes) in depths.into_iter().zip(&mut passes) {
            passes.push(pass(&records, depth));
        }
    }
    let mut rows = Vec::new();
    for (depth, passes) in depths.into_iter().zip(passes) {
        rows.extend(depth_rows(depth, &passes)?);
    }
    Ok(rows)
}

/// One way through all records.
#[derive(Debug, Clone, Copy)]
struct Pass {
    /// Million records a second of CPU time.
    rate: f64,
    /// Allocations a record in the second half.
    allocations: f64,
}

fn depth_rows(depth: Depth, passes: &[Pass]) -> Result<[Row; 2]> {
    let what = match depth {
        Depth::Decode => "decode and count",
        Depth::Order => "decode, order",
        Depth::Join => "decode, order, join",
        Depth::Whole => "whole collector, to verdict and summary",
    };
    let samples = |value: fn(&Pass) -> f64| Samples::new(passes.iter().map(value).collect());
    let rate = samples(|pass| pass.rate).context("nothing was measured")?;
    let allocations = samples(|pass| pass.allocations).context("nothing was measured")?;
    let (reached, none) = (rate.median(), allocations.median());
    let rows = [
        Row::new(what, "M events/s", rate),
        Row::new(format!("{what}: allocations an event, in steady state"), "", Samples::one(none)),
    ];
    let figures = |[rate, allocations]: [Row; 2]| {
        let few = Figure::at_most(none, 0.0, "");
        [rate.figure(Figure::at_least(reached, 2.0, "M events/s")), allocations.figure(few)]
    };
    Ok(if depth == Depth::Join { figures(rows) } else { rows })
}

fn pass(records: &Records, depth: Depth) -> Pass {
    let mut part = Part::new(depth);
    let (count, half) = (records.ends.len(), records.ends.len() / 2);
    let mut before = 0;
    let begun = cpu_time();
    for (index, record) in records.each().enumerate() {
        if index == half {
            before = allocations();
        }
        part.push(record);
    }
    let took = cpu_time().saturating_sub(begun);
    let allocated = allocations() - before;
    Pass { rate: count as f64 / took.as_secs_f64() / 1e6, allocations: allocated as f64 / (count - half) as f64 }
}

/// Memory is the process's, so other processes are measured.
pub(crate) fn memory() -> Result<Vec<Row>> {
    let [empty, joined, _] = sizes_of("join")?;
    let [_, held, peak] = sizes_of("whole")?;
    let mib = |mib| Samples::one(mib);
    Ok(vec![
        Row::new("resident before any check", "MiB", mib(empty)),
        Row::new("resident with 100,000 open checks, joined only", "MiB", mib(joined)),
        Row::new("resident with 100,000 open checks, whole collector", "MiB", mib(held))
            .figure(Figure::at_most(held, 64.0, "MiB")),
        Row::new("most resident meanwhile", "MiB", mib(peak)),
    ])
}

/// MiB that another process of this program says.
fn sizes_of(depth: &str) -> Result<[f64; 3]> {
    let this = env::current_exe().context("cannot find this program")?;
    let output = Command::new(this).args([OPEN_CHECKS, depth]).output().context("cannot start this program again")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "no memory was measured: {}", String::from_utf8_lossy(&output.stderr));
    let sizes: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [before, held, peak] = sizes[..] else { bail!("no memory was measured: {text}") };
    Ok([before, held, peak].map(|kib| kib / 1024.0))
}

/// Holds open checks for some seconds of their time, and tells resident memory: before, then, at most.
pub(crate) fn hold_open_checks(depth: &str) -> Result<()> {
    let before = resident("VmRSS:")?;
    let mut part = Part::new(if depth == "join" { Depth::Join } else { Depth::Whole });
    for fact in synthetic::facts(MAX_OPEN) {
        part.push(&encode(&fact)?);
    }
    for n in 0..OPEN {
        let at = 1_000_000 + n * APART_NS;
        part.push(&encode(&synthetic::arrival(n, at))?);
        if n % 50 == 0 {
            part.push(&encode(&synthetic::tick(at))?);
        }
    }
    let end = OPEN * APART_NS;
    for at in (end..end + STAY_NS).step_by(10_000_000) {
        part.push(&encode(&synthetic::tick(at))?);
    }
    println!("{before} {} {}", resident("VmRSS:")?, resident("VmHWM:")?);
    drop(part);
    Ok(())
}

/// KiB.
fn resident(key: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.trim().split(' ').next());
    number.and_then(|number| number.parse().ok()).context("no memory in /proc/self/status")
}
