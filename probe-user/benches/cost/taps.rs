//! What the boundary stamps of a host with many VMs cost.
//!
//! 200 taps, behind which one thread turns each check round as VMs would, and 1,000 checks a second
//! that come in through another, which plays the physical NIC, and are routed to them. In: the
//! kernel's own account of the programs that stamp, and CPU times. Out: parts of one core. Who
//! sends, and who turns round, does all the kernel's work on the way, the programs' included: their
//! CPU time with whylag and without tells what a check costs more.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use aya::sys::{Stats, enable_stats};
use probe_user::{
    event::tick_record,
    hooks::HOOKS,
    journey::Outcome,
    load::{Attached, load},
    pipeline::{Collector, Output},
    source::ring::Rings,
};

use crate::{
    arrange::Beside,
    pair::{Tries, take_turns},
    report::{Figure, Row},
    samples::{Samples, cpu_time},
};

mod host;

use host::{CHECKS, Host, STAGES, now};

/// Measurements of each.
const ROUNDS: usize = 5;
/// Longest time for all measurements with and without stamps.
const LONGEST: Duration = Duration::from_secs(60);
/// How long the command runs for itself.
const ALONE: Duration = Duration::from_secs(3);
/// What all is to cost at most, percent of a core.
const MOST: f64 = 1.0;
const WHYLAG: &str = env!("CARGO_BIN_EXE_whylag");

pub(crate) fn run() -> Result<Vec<Row>> {
    let host = Host::make()?;
    let rows = measure(&host);
    host.remove()?;
    rows
}

fn measure(host: &Host) -> Result<Vec<Row>> {
    let accounted = Accounted::measure(host)?;
    let command = Command::measure(host)?;
    let both = accounted.programs.median() + command.busy.median();
    let mut rows = accounted.rows();
    rows.extend(command.rows(both));
    let mut tries = [Tries::new(())];
    take_turns(&mut tries, LONGEST, |()| triple(host))?;
    rows.extend(tries.into_iter().map(|tries| {
        match tries.finish() {
            Some(added) => Row::new("by CPU time: stamps add to a check's way in and out", "ns", added.added)
                .ratio(added.factor, "none")
                .note(added.kept),
            None => Row::missing("by CPU time: stamps add to a check's way in and out", "too noisy: no try was kept"),
        }
    }));
    Ok(rows)
}

/// The stamps alone, by the kernel's account of the programs and the CPU time of a collector.
struct Accounted {
    /// Percent of a core.
    programs: Samples,
    /// Percent of a core.
    collector: Samples,
    /// Nanoseconds a check.
    each: Samples,
    joined: u64,
}

impl Accounted {
    fn measure(host: &Host) -> Result<Self> {
        let mut attached = load(&host.request())?;
        let mut rings = attached.take_rings().context("the programs have no rings")?;
        let mut collector = host.collector(&attached)?;
        let _account = enable_stats(Stats::RunTime).context("the kernel does not account for programs")?;
        let (mut programs, mut taken, mut each, mut joined) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for _ in 0..ROUNDS {
            let (begun, before) = (Instant::now(), stamp_ns(&attached));
            let over = AtomicBool::new(false);
            let (of_checks, cpu) = thread::scope(|scope| {
                let reader = scope.spawn(|| collect(&mut rings, &mut collector, &over));
                host.checks(|| {
                    over.store(true, Ordering::Relaxed);
                    reader.join().expect("the collector does not panic")
                })
            })?
            .1;
            let (ns, core) = (stamp_ns(&attached) - before, percent_ns(begun.elapsed()));
            joined += of_checks;
            programs.push(ns / core);
            taken.push(cpu.as_secs_f64() * 1e9 / core);
            each.push(ns / CHECKS as f64);
        }
        let samples = |all| Samples::new(all).context("nothing was measured");
        Ok(Self { programs: samples(programs)?, collector: samples(taken)?, each: samples(each)?, joined })
    }

    fn rows(self) -> Vec<Row> {
        let joined = format!("{} of {} checks joined", self.joined, CHECKS * ROUNDS as u64);
        let both = self.programs.median() + self.collector.median();
        vec![
            Row::new("programs that stamp, for a check, the account included", "ns", self.each).note(joined),
            Row::new("the same", "% of a core", self.programs),
            Row::new("draining, ordering, joining, judging these stamps", "% of a core", self.collector),
            Row::new("boundary stamps alone: both", "% of a core", Samples::one(both)).figure(Figure::at_most(
                both,
                MOST,
                "% of a core",
            )),
        ]
    }
}

/// The command that users run, with all hooks.
struct Command {
    /// Percent of a core while nothing happens, and with the checks.
    idle: f64,
    busy: Samples,
    /// Milliseconds.
    start: f64,
    stop: f64,
    resident_mib: f64,
}

impl Command {
    fn measure(host: &Host) -> Result<Self> {
        let begun = Instant::now();
        let whylag = Beside::start(&mut host.command(WHYLAG), "attached")?;
        let start = begun.elapsed().as_secs_f64() * 1e3;
        let idle = part_of_core(whylag.id(), || {
            thread::sleep(ALONE);
            Ok(())
        })?;
        let busy = (0..ROUNDS).map(|_| part_of_core(whylag.id(), || host.checks(|| Ok(())).map(drop)));
        let busy = Samples::new(busy.collect::<Result<_>>()?).context("nothing was measured")?;
        let resident_mib = resident_mib(whylag.id())?;
        let begun = Instant::now();
        whylag.stop()?;
        Ok(Self { idle, busy, start, stop: begun.elapsed().as_secs_f64() * 1e3, resident_mib })
    }

    fn rows(self, both: f64) -> [Row; 6] {
        let one = |what: &str, unit, value| Row::new(what, unit, Samples::one(value));
        [
            one("the whole command, without checks", "% of a core", self.idle),
            Row::new("the whole command, with them", "% of a core", self.busy),
            one("programs that stamp and the whole command", "% of a core", both).figure(Figure::at_most(
                both,
                MOST,
                "% of a core",
            )),
            one("start to attached", "ms", self.start),
            one("signal to exit", "ms", self.stop),
            one("resident memory", "MiB", self.resident_mib),
        ]
    }
}

/// CPU time of a check's way without stamps, with them, and without; nanoseconds.
fn triple(host: &Host) -> Result<[f64; 3]> {
    let before = host.checks(|| Ok(()))?.0;
    let mut attached = load(&host.request())?;
    let mut rings = attached.take_rings().context("the programs have no rings")?;
    let over = AtomicBool::new(false);
    let with = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                rings.poll(Duration::from_millis(100), usize::MAX, |_, _| ())?;
            }
            anyhow::Ok(())
        });
        let with = host.checks(|| Ok(()));
        over.store(true, Ordering::Relaxed);
        reader.join().expect("the reader does not panic").and(with)
    })?;
    drop(attached);
    Ok([before, with.0, host.checks(|| Ok(()))?.0])
}

/// Collects until it is over; checks that were answered, and the CPU time that it took.
fn collect(rings: &mut Rings, collector: &mut Collector, over: &AtomicBool) -> Result<(u64, Duration)> {
    let begun = cpu_time();
    let mut joined = 0;
    let mut see = |output: Output| {
        let replied = matches!(output, Output::Journey(judged) if judged.journey.outcome == Outcome::Replied);
        joined += u64::from(replied);
    };
    while !over.load(Ordering::Relaxed) {
        rings.wait(Duration::from_millis(100))?;
        let now = now();
        while rings.drain(rings.round(), |_, record| collector.push(record, &mut see)).more {}
        collector.push(&tick_record(now), &mut see);
    }
    Ok((joined, cpu_time().saturating_sub(begun)))
}

/// How long the programs ran that stamp.
fn stamp_ns(attached: &Attached) -> f64 {
    let stamps: Vec<&str> = HOOKS
        .iter()
        .filter(|hook| hook.informs.iter().any(|stage| STAGES.contains(stage)))
        .flat_map(|hook| hook.choices.iter().map(|choice| choice.program))
        .collect();
    let of = |(name, _, time): &(String, u64, Duration)| stamps.contains(&name.as_str()).then_some(time.as_secs_f64());
    attached.runs().iter().filter_map(of).sum::<f64>() * 1e9
}

/// One percent of a core for so long, nanoseconds.
fn percent_ns(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9 / 100.0
}

/// The part of a core that a process takes meanwhile, percent.
fn part_of_core(process: u32, meanwhile: impl FnOnce() -> Result<()>) -> Result<f64> {
    let (begun, before) = (Instant::now(), process_time(process)?);
    meanwhile()?;
    let taken = process_time(process)?.saturating_sub(before);
    Ok(taken.as_secs_f64() * 1e9 / percent_ns(begun.elapsed()))
}

/// CPU time of a process, with its threads that have ended.
fn process_time(process: u32) -> Result<Duration> {
    let process = nix::unistd::Pid::from_raw(i32::try_from(process)?);
    let clock = nix::time::clock_getcpuclockid(process).context("the command has ended")?;
    Ok(nix::time::clock_gettime(clock).context("read its clock")?.into())
}

fn resident_mib(process: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).context("the command has ended")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("the kernel tells its memory")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}
