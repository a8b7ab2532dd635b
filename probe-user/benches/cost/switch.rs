//! What a switch between two threads costs that nobody watches.

use std::{
    io::{PipeReader, PipeWriter, Read as _, Write as _, pipe},
    process::Command,
    thread,
    time::Instant,
};

use anyhow::{Result, ensure};
use probe_user::load::load;

use crate::{
    arrange::{Beside, stay_on_cpu},
    attach::request,
    pair::{Tries, take_turns},
    report::Row,
};

/// Turns of one measurement; each is two switches.
const TURNS: u32 = 20_000;
/// Above everything that is not real-time.
const PRIORITY: i32 = 1;

#[derive(Debug, Clone, Copy)]
enum Subject {
    Whylag,
    PerfSched,
}

pub(crate) fn run() -> Result<Vec<Row>> {
    let mut subjects = vec![Tries::new(Subject::Whylag)];
    let no_perf = perf_sched().err();
    if no_perf.is_none() {
        subjects.push(Tries::new(Subject::PerfSched));
    }
    take_turns(&mut subjects, attempt)?;
    let mut rows: Vec<Row> = subjects.into_iter().flat_map(rows).collect();
    rows.extend(no_perf.map(|error| Row::missing("perf sched record", format!("no perf: {error:#}"))));
    Ok(rows)
}

fn rows(tries: Tries<Subject>) -> Vec<Row> {
    let (what, is_first) = match tries.subject {
        Subject::Whylag => ("whylag, which watches neither, adds", true),
        Subject::PerfSched => ("perf sched record adds", false),
    };
    let Some(added) = tries.finish() else { return vec![Row::missing(what, "too noisy: no try was kept")] };
    let row = Row::new(what, "ns", added.added).ratio(added.factor, "none").note(added.kept);
    let without = is_first.then(|| Row::new("a switch with nothing attached", "ns", added.without));
    without.into_iter().chain([row]).collect()
}

fn attempt(subject: Subject) -> Result<[f64; 3]> {
    let before = ping_pong()?;
    let with = match subject {
        Subject::Whylag => {
            let attached = load(&request())?;
            let with = ping_pong()?;
            drop(attached);
            with
        }
        Subject::PerfSched => {
            let perf = perf_sched()?;
            let with = ping_pong()?;
            perf.stop()?;
            with
        }
    };
    Ok([before, with, ping_pong()?])
}

/// The command that it is given runs when it records.
fn perf_sched() -> Result<Beside> {
    let mut command = Command::new("perf");
    command.args(["sched", "record", "-o", "/dev/null", "sh", "-c", "echo recording >&2; exec sleep 60"]);
    Beside::start(&mut command, "recording")
}

/// Nanoseconds a switch: two threads on one CPU pass a byte to and fro.
fn ping_pong() -> Result<f64> {
    let (mut from_first, to_second) = pipe()?;
    let (from_second, mut to_first) = pipe()?;
    thread::scope(|scope| {
        let second = scope.spawn(move || {
            alone_on_the_last_cpu()?;
            (0..TURNS).try_for_each(|_| turn(&mut from_first, &mut to_first))
        });
        let first = scope.spawn(move || begin(from_second, to_second));
        let took = first.join().expect("the first thread does not panic")?;
        second.join().expect("the second thread does not panic")?;
        Ok(took / f64::from(2 * TURNS))
    })
}

fn begin(mut from: PipeReader, mut to: PipeWriter) -> Result<f64> {
    alone_on_the_last_cpu()?;
    let begun = Instant::now();
    to.write_all(&[0])?;
    (1..TURNS).try_for_each(|_| turn(&mut from, &mut to))?;
    from.read_exact(&mut [0])?;
    Ok(begun.elapsed().as_secs_f64() * 1e9)
}

fn turn(from: &mut PipeReader, to: &mut PipeWriter) -> Result<()> {
    from.read_exact(&mut [0])?;
    Ok(to.write_all(&[0])?)
}

/// Real-time, so that no other thread takes part in the game.
fn alone_on_the_last_cpu() -> Result<()> {
    let cpus = thread::available_parallelism()?.get();
    stay_on_cpu(cpus - 1)?;
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the pointer is to a value of this frame, and 0 is the calling thread.
    let failed = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    ensure!(failed == 0, "cannot get real-time priority: {}", std::io::Error::last_os_error());
    Ok(())
}
