//! What a switch between two tasks costs that nobody watches.

use std::{
    env,
    fs::File,
    io::{Read, Write, pipe, stdin, stdout},
    os::fd::AsFd as _,
    process::{Child, Command, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};
use probe_user::load::load;

use crate::{
    arrange::{Beside, stay_on_cpu},
    attach::request,
    pair::{LONGEST, Tries, take_turns},
    programs,
    report::{Figure, Row},
};

/// Argument of the process that passes bytes back.
pub(crate) const PARTNER: &str = "--pass-bytes-back";

/// Turns of one measurement; each is two switches.
const TURNS: u32 = 20_000;
/// Above everything that is not real-time.
const PRIORITY: i32 = 1;

/// Largest part that whylag may add.
const MOST: f64 = 1.03;

#[derive(Debug, Clone, Copy)]
enum Subject {
    Whylag,
    Empty,
    PerfSched,
    Bpftrace,
}

impl Subject {
    const fn name(self) -> &'static str {
        match self {
            Self::Whylag => "whylag, which watches neither,",
            Self::Empty => "an empty program on each of its two tracepoints",
            Self::PerfSched => "perf sched record",
            Self::Bpftrace => "bpftrace (run queue latency)",
        }
    }

    /// Measures while it is there.
    fn beside(self, measure: impl FnOnce() -> Result<f64>) -> Result<f64> {
        match self {
            Self::Whylag => {
                let attached = load(&request())?;
                let measured = measure();
                drop(attached);
                measured
            }
            Self::Empty => {
                let programs = programs::empty_on_switches()?;
                let measured = measure();
                drop(programs);
                measured
            }
            Self::PerfSched | Self::Bpftrace => {
                let beside = self.start()?;
                let measured = measure()?;
                beside.stop()?;
                Ok(measured)
            }
        }
    }

    /// Starts one that is another's program.
    fn start(self) -> Result<Beside> {
        match self {
            Self::Whylag | Self::Empty => bail!("it is loaded, not started"),
            Self::PerfSched => perf_sched(),
            Self::Bpftrace => bpftrace(),
        }
    }
}

/// Who passes bytes to and fro.
#[derive(Debug, Clone, Copy)]
enum Players {
    /// Of one process: the cheapest switch there is.
    Threads,
    /// As `perf bench sched pipe` does.
    Processes,
}

impl Players {
    const fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Processes => "processes",
        }
    }

    fn play(self) -> Result<f64> {
        match self {
            Self::Threads => ping_pong(),
            Self::Processes => ping_pong_of_processes(),
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
    let subjects: Vec<_> = [Subject::Whylag, Subject::Empty].into_iter().chain(there).collect();
    let of_processes = subjects.iter().take(2).map(|subject| Tries::new((*subject, Players::Processes)));
    let of_threads = subjects.iter().map(|subject| Tries::new((*subject, Players::Threads)));
    let mut tries: Vec<_> = of_threads.chain(of_processes).collect();
    take_turns(&mut tries, LONGEST, attempt)?;
    let mut rows: Vec<Row> = tries.into_iter().flat_map(rows).collect();
    let missing = others.iter().filter_map(|(subject, absent)| absent.as_ref().map(|error| (subject.name(), error)));
    rows.extend(missing.map(|(name, error)| Row::missing(name, format!("it does not run here: {error:#}"))));
    Ok(rows)
}

fn rows(tries: Tries<(Subject, Players)>) -> Vec<Row> {
    let (subject, players) = tries.subject;
    let what = format!("{}: {} adds", players.name(), subject.name());
    let is_first = matches!(subject, Subject::Whylag);
    let Some(added) = tries.finish() else { return vec![Row::missing(what, "too noisy: no try was kept")] };
    let row = Row::new(what, "ns", added.added).ratio(added.factor, "none").note(added.kept);
    if !is_first {
        return vec![row];
    }
    let without = format!("{}: a switch with nothing attached", players.name());
    vec![Row::new(without, "ns", added.without), row.figure(Figure::at_most(added.factor, MOST, "×"))]
}

fn attempt((subject, players): (Subject, Players)) -> Result<[f64; 3]> {
    let before = players.play()?;
    let with = subject.beside(|| players.play())?;
    Ok([before, with, players.play()?])
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
        let each = first.join().expect("the first thread does not panic")?;
        second.join().expect("the second thread does not panic")?;
        Ok(each)
    })
}

/// The same between this process and another.
fn ping_pong_of_processes() -> Result<f64> {
    let mut partner = Partner::start()?;
    let (from, to) = (partner.0.stdout.take(), partner.0.stdin.take());
    let (from, to) = (from.context("it has no output")?, to.context("it has no input")?);
    // A thread of its own keeps what it becomes to itself.
    let first = thread::spawn(move || begin(from, to));
    first.join().expect("the first thread does not panic")
}

/// A process that passes bytes back.
#[derive(Debug)]
struct Partner(Child);

impl Partner {
    fn start() -> Result<Self> {
        let this = env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(this);
        command.arg(PARTNER).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self(command.spawn().context("cannot start this program again")?))
    }
}

impl Drop for Partner {
    /// It ends with its input.
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}

/// What the other process does, until nobody writes to it.
pub(crate) fn pass_bytes_back() -> Result<()> {
    alone_on_the_last_cpu()?;
    let mut from = File::from(stdin().as_fd().try_clone_to_owned()?);
    let mut to = File::from(stdout().as_fd().try_clone_to_owned()?);
    let mut byte = [0];
    while from.read(&mut byte)? != 0 {
        to.write_all(&byte)?;
    }
    Ok(())
}

/// Nanoseconds a switch.
fn begin(mut from: impl Read, mut to: impl Write) -> Result<f64> {
    alone_on_the_last_cpu()?;
    to.write_all(&[0])?;
    from.read_exact(&mut [0])?;
    let begun = Instant::now();
    to.write_all(&[0])?;
    (2..TURNS).try_for_each(|_| turn(&mut from, &mut to))?;
    from.read_exact(&mut [0])?;
    Ok(begun.elapsed().as_secs_f64() * 1e9 / f64::from(2 * (TURNS - 1)))
}

fn turn(from: &mut impl Read, to: &mut impl Write) -> Result<()> {
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
