//! What a switch between two threads costs that nobody watches.

use std::{
    io::{PipeReader, PipeWriter, Read as _, Write as _, pipe},
    process::Command,
    thread,
    time::Instant,
};

use anyhow::{Result, bail, ensure};
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
    Bpftrace,
}

impl Subject {
    const fn name(self) -> &'static str {
        match self {
            Self::Whylag => "whylag, which watches neither,",
            Self::PerfSched => "perf sched record",
            Self::Bpftrace => "bpftrace (run queue latency)",
        }
    }

    /// Starts one that is not whylag.
    fn start(self) -> Result<Beside> {
        match self {
            Self::Whylag => bail!("whylag is loaded, not started"),
            Self::PerfSched => perf_sched(),
            Self::Bpftrace => bpftrace(),
        }
    }
}

/// How long threads could run before they did, for all of them: what is asked of a host that is slow.
const RUN_QUEUE_LATENCY: &str = "
    tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup_new { @since[args->pid] = nsecs; }
    tracepoint:sched:sched_switch {
        if (args->prev_state == 0) { @since[args->prev_pid] = nsecs; }
        if (@since[args->next_pid]) { @us = hist((nsecs - @since[args->next_pid]) / 1000); }
        delete(@since[args->next_pid]);
    }
    interval:ms:300 { printf(\"recording\\n\"); }";

pub(crate) fn run() -> Result<Vec<Row>> {
    let others = [Subject::PerfSched, Subject::Bpftrace].map(|subject| (subject, subject.start().err()));
    let there = others.iter().filter(|(_, absent)| absent.is_none()).map(|(subject, _)| *subject);
    let mut subjects: Vec<_> = std::iter::once(Subject::Whylag).chain(there).map(Tries::new).collect();
    take_turns(&mut subjects, attempt)?;
    let mut rows: Vec<Row> = subjects.into_iter().flat_map(rows).collect();
    let missing = others.iter().filter_map(|(subject, absent)| absent.as_ref().map(|error| (subject.name(), error)));
    rows.extend(missing.map(|(name, error)| Row::missing(name, format!("it does not run here: {error:#}"))));
    Ok(rows)
}

fn rows(tries: Tries<Subject>) -> Vec<Row> {
    let what = format!("{} adds", tries.subject.name());
    let is_first = matches!(tries.subject, Subject::Whylag);
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
        other => {
            let beside = other.start()?;
            let with = ping_pong()?;
            beside.stop()?;
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

/// What it prints goes to its standard output; its first interval comes when all is attached.
fn bpftrace() -> Result<Beside> {
    let mut command = Command::new("sh");
    command.args(["-c", "exec bpftrace -e \"$1\" >&2", "sh", RUN_QUEUE_LATENCY]);
    Beside::start(&mut command, "recording")
}

/// Nanoseconds a switch: two threads on one CPU pass a byte to and fro.
pub(crate) fn ping_pong() -> Result<f64> {
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
