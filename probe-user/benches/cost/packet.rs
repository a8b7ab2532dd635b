//! What a packet that is no health check pays.
//!
//! In place: frames that the interface receives and that are used up right behind the hook. And
//! precisely, by `BPF_PROG_TEST_RUN`: the program's own instructions, net of the kernel's loop.

use std::{fs, io, process::Command};

use anyhow::{Context as _, Result};
use aya::{
    TestRun as _, TestRunOptions,
    programs::{SchedClassifier, loaded_programs},
};
use probe_user::load::{Attached, load};

use crate::{
    arrange::{Beside, INTERFACE},
    attach::request,
    frame::{self, Frame},
    pair::{Added, LONGEST, Tries, take_turns},
    programs::Programs,
    report::{Figure, Row},
    samples::{Samples, cpu_time, each_ns},
};

/// Frames of one measurement in place.
const FRAMES: u32 = 500_000;
/// Runs of a program in one measurement, and measurements.
const RUNS: u32 = 20_000;
const ROUNDS: usize = 101;
/// Runs of a program that emits: no more than its ring has room for.
const MATCHES: u32 = 2_000;

pub(crate) fn run() -> Result<Vec<Row>> {
    let mut programs = Programs::load()?;
    let (mut rows, empty_ns) = in_place(&mut programs)?;
    rows.extend(alone(&mut programs, empty_ns)?);
    Ok(rows)
}

/// What stands on the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Empty,
    Whylag,
    Tcpdump,
}

/// The rows, and what an empty program costs here.
fn in_place(programs: &mut Programs) -> Result<(Vec<Row>, Option<f64>)> {
    programs.swallow()?;
    let mut subjects = vec![Tries::new(Subject::Empty), Tries::new(Subject::Whylag)];
    let no_tcpdump = tcpdump().err();
    if no_tcpdump.is_none() {
        subjects.push(Tries::new(Subject::Tcpdump));
    }
    take_turns(&mut subjects, LONGEST, |subject| attempt(programs, subject))?;
    let mut results = subjects.into_iter().map(Tries::finish);
    let (empty, whylag) = (results.next().flatten(), results.next().flatten());
    let tcpdump = results.next().flatten();
    let missing = no_tcpdump.map_or("too noisy: no try was kept".to_owned(), |error| format!("no tcpdump: {error:#}"));
    let empty_ns = empty.as_ref().map(|empty| empty.added.median());
    Ok((compare(empty, whylag, tcpdump, &missing), empty_ns))
}

fn compare(empty: Option<Added>, whylag: Option<Added>, tcpdump: Option<Added>, missing: &str) -> Vec<Row> {
    let ns = |added: &Option<Added>| added.as_ref().map_or(f64::NAN, |added| added.added.median());
    let (of_empty, of_tcpdump) = (ns(&whylag) / ns(&empty), ns(&whylag) / ns(&tcpdump));
    let row = |what: &str, added: Option<Added>| match added {
        Some(added) => Row::new(what, "ns", added.added).ratio(added.factor, "none").note(added.kept),
        None => Row::missing(what, missing),
    };
    let mut rows = Vec::new();
    rows.extend(
        whylag.as_ref().map(|added| Row::new("in place: a frame with nothing attached", "ns", added.without.clone())),
    );
    rows.push(row("in place: an empty program adds", empty));
    rows.push(row("in place: whylag adds", whylag));
    rows.push(row("in place: tcpdump that matches nothing adds", tcpdump));
    let ratio = |what, value: f64, of| Row::new(what, "×", Samples::one(value)).ratio(value, of);
    if of_empty.is_finite() {
        rows.push(
            ratio("in place: whylag to an empty program", of_empty, "empty")
                .figure(Figure::at_most(of_empty, 1.2, "×")),
        );
    }
    if of_tcpdump.is_finite() {
        rows.push(
            ratio("in place: whylag to tcpdump", of_tcpdump, "tcpdump").figure(Figure::at_most(of_tcpdump, 0.5, "×")),
        );
    }
    rows
}

/// Nanoseconds a frame: without, with, without.
fn attempt(programs: &mut Programs, subject: Subject) -> Result<[f64; 3]> {
    let before = inject(programs)?;
    let with = match subject {
        Subject::Empty => {
            let link = programs.attach_empty()?;
            let with = inject(programs);
            programs.detach_empty(link)?;
            with?
        }
        Subject::Whylag => {
            let attached = load(&request())?;
            let with = inject(programs)?;
            drop(attached);
            with
        }
        Subject::Tcpdump => {
            let tcpdump = tcpdump()?;
            let with = inject(programs)?;
            tcpdump.stop()?;
            with
        }
    };
    Ok([before, with, inject(programs)?])
}

fn tcpdump() -> Result<Beside> {
    let mut command = Command::new("tcpdump");
    command.args(["-i", INTERFACE, "-n", "-Z", "root", "-w", "/dev/null", "udp port 9"]);
    Beside::start(&mut command, "listening on")
}

fn inject(programs: &mut Programs) -> Result<f64> {
    let frame = frame::usual();
    let begun = cpu_time();
    programs.inject(&frame, FRAMES)?;
    Ok(each_ns(begun, FRAMES))
}

/// The programs run by themselves, in turn inside each round.
fn alone(programs: &mut Programs, empty_ns: Option<f64>) -> Result<Vec<Row>> {
    let mut attached = load(&request())?;
    let stamp = loaded("stamp_ingress")?;
    let mut rows = Vec::new();
    for frame in frame::foreign() {
        rows.push(beside_empty(programs.empty()?, &stamp, &frame, empty_ns)?);
    }
    rows.push(beside_empty(programs.empty()?, &stamp, &frame::near_miss(), None)?);
    rows.push(matching(programs.empty()?, &stamp, &mut attached)?);
    Ok(rows)
}

/// This process's own program of that name.
fn loaded(name: &str) -> Result<SchedClassifier> {
    let own = own_programs().context("cannot read /proc/self/fdinfo")?;
    let found = loaded_programs().find_map(|info| {
        let info = info.ok()?;
        (info.name() == name.as_bytes() && own.contains(&info.id())).then_some(info)
    });
    let info = found.with_context(|| format!("{name} is not loaded"))?;
    Ok(SchedClassifier::from_program_info(info, name.to_owned().into())?)
}

fn own_programs() -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for file in fs::read_dir("/proc/self/fdinfo")? {
        // The descriptor of the directory itself is gone by now.
        let Ok(info) = fs::read_to_string(file?.path()) else { continue };
        ids.extend(info.lines().filter_map(|line| line.strip_prefix("prog_id:")?.trim().parse::<u32>().ok()));
    }
    Ok(ids)
}

fn beside_empty(empty: &SchedClassifier, stamp: &SchedClassifier, frame: &Frame, empty_ns: Option<f64>) -> Result<Row> {
    let (mut nothing, mut more) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let base = run_alone(empty, frame, RUNS)?;
        nothing.push(base);
        more.push(run_alone(stamp, frame, RUNS)? - base);
    }
    let nothing = Samples::new(nothing).context("nothing was measured")?.median();
    let more = Samples::new(more).context("nothing was measured")?;
    let added = more.median();
    let row = Row::new(format!("alone, more than an empty program: {}", frame.what), "ns", more);
    let row = row.note(format!("loop and empty program {nothing:.1} ns"));
    Ok(match empty_ns {
        Some(live) => {
            let ratio = (live + added) / live;
            row.ratio(ratio, "empty in place").figure(Figure::at_most(ratio, 1.2, "×"))
        }
        None => row,
    })
}

/// What a health check itself pays: the record of it is taken out of the ring in between.
fn matching(empty: &SchedClassifier, stamp: &SchedClassifier, attached: &mut Attached) -> Result<Row> {
    let mut rings = attached.take_rings().context("the rings are taken")?;
    let check = frame::check();
    let mut more = Vec::new();
    for _ in 0..ROUNDS {
        let base = run_alone(empty, &check, MATCHES)?;
        more.push(run_alone(stamp, &check, MATCHES)? - base);
        rings.drain(usize::MAX, |_, _| ());
    }
    let more = Samples::new(more).context("nothing was measured")?;
    Ok(Row::new("alone, more than an empty program: a health check", "ns", more))
}

fn run_alone(program: &SchedClassifier, frame: &Frame, runs: u32) -> Result<f64> {
    let options = TestRunOptions { data_in: Some(&frame.bytes), repeat: runs, ..TestRunOptions::new() };
    let begun = cpu_time();
    program.test_run(options)?;
    Ok(each_ns(begun, runs))
}
