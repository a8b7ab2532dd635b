//! Stacks of real programs, built as distributions build them: optimised, without frame pointers
//! and stripped. They are stopped at any instruction, and their frames must reach the function
//! that their thread began in. Needs root.
//!
//! `STACKS_OF=PID cargo test --test unwind -- --nocapture any_other` tells of a process that runs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod built;
mod stopped;

use probe_tests::lab::software::golang::Go;
use probe_user::stack::unwind::{RawStack, Unwinder};
use probe_user::stack::wanted::Source;
use probe_user::stack::{StackEnd, StackTable};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How many times each thread is stopped.
const ROUNDS: usize = 150;

/// A program that runs, until the test ends.
struct Running(Child);

impl Running {
    fn start(program: &Path) -> Self {
        let mut child = Command::new(program).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What came of the stacks of a process.
#[derive(Default)]
struct Tally {
    ends: BTreeMap<StackEnd, usize>,
    /// Some of those that did not reach their entry.
    cut: Vec<(StackEnd, String)>,
    depths: usize,
    took: Vec<Duration>,
}

impl Tally {
    fn all(&self) -> usize {
        self.ends.values().sum()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut took = self.took.clone();
        took.sort_unstable();
        let [median, most] = [2, 100].map(|part| took.get(took.len() - took.len().div_ceil(part)));
        writeln!(f, "{:?} of {} stacks, {} frames", self.ends, self.all(), self.depths)?;
        writeln!(f, "an unwind took {median:?}, of a hundred the longest {most:?}")?;
        self.cut.iter().try_for_each(|(end, frames)| writeln!(f, "{end:?}: {frames}"))
    }
}

fn tally(unwinder: &mut Unwinder, tgid: u32) -> Tally {
    let mut table = StackTable::default();
    let mut tally = Tally::default();
    for tid in (0..ROUNDS).flat_map(|_| stopped::threads(tgid)) {
        let Some(taken) = stopped::take(tgid, tid) else { continue };
        let stopped::Taken { ip, sp, bp, copied, chain } = &taken;
        let raw = RawStack { tgid, tid, ip: *ip, sp: *sp, bp: *bp, copied, chain };
        let begun = Instant::now();
        let unwound = unwinder.unwind(&raw, &mut |fact| table.learn(fact));
        tally.took.push(begun.elapsed());
        *tally.ends.entry(unwound.end).or_default() += 1;
        let frames: Vec<_> = table.frames(unwound.stack.unwrap()).collect();
        tally.depths += frames.len();
        if unwound.end != StackEnd::Entry && tally.cut.len() < 12 {
            let place = |(frame, module): &(&probe_user::stack::FrameFact, Option<&probe_user::stack::ModuleFact>)| {
                format!("{}+{:#x}", module.map_or("?", |module| &module.name), frame.address)
            };
            tally.cut.push((unwound.end, frames.iter().map(place).collect::<Vec<_>>().join(" < ")));
        }
    }
    tally
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: needs root to open the files that a process has mapped");
    }
    root
}

/// At least 99 of 100 stacks of a program reach the entry of their thread.
fn check(program: &Path) {
    let running = Running::start(program);
    let tally = tally(&mut Unwinder::new(), running.0.id());
    println!("{}: {tally}", program.display());
    let reached = tally.ends.get(&StackEnd::Entry).copied().unwrap_or_default();
    assert!(tally.all() >= ROUNDS, "{tally}");
    assert!(tally.depths > 2 * tally.all(), "{tally}");
    assert!(reached * 100 >= tally.all() * 99, "{tally}");
}

#[test]
fn stacks_of_cpp_reach_their_entry() {
    if is_root() {
        check(&built::cpp());
    }
}

#[test]
fn stacks_of_tokio_reach_their_entry() {
    if is_root() {
        check(&built::tokio());
    }
}

#[test]
fn stacks_of_go_reach_their_entry() {
    if !is_root() {
        return;
    }
    match Go::fetched() {
        Ok(go) => built::go(&go).iter().for_each(|program| check(program)),
        Err(why) => println!("skipped: Go cannot be had from Debian: {why:#}"),
    }
}

#[test]
fn a_deleted_program_is_unwound_and_handed_over() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("deleted");
    fs::copy(built::cpp(), &program).unwrap();
    let running = Running::start(&program);
    let bytes = fs::read(&program).unwrap();
    fs::remove_file(&program).unwrap();
    // Another file under its name must not be taken for it.
    fs::write(&program, "another").unwrap();
    let mut unwinder = Unwinder::new();
    let tally = tally(&mut unwinder, running.0.id());
    assert!(tally.ends.get(&StackEnd::Entry) > Some(&(tally.all() / 2)), "{tally}");
    let wanted = unwinder.take_nameless(usize::MAX);
    let handed = wanted.iter().find_map(|wanted| match &*wanted.source {
        Source::File(file) if file.name == "deleted" => Some(file),
        _ => None,
    });
    let file = File::from(handed.unwrap().file.try_clone().unwrap());
    let mut read = vec![0; bytes.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(read, bytes);
    assert_eq!(handed.unwrap().build_id.len(), 40);
}

/// A look, not a test.
#[test]
fn any_other_process() {
    match std::env::var("STACKS_OF").ok().and_then(|tgid| tgid.parse().ok()) {
        Some(tgid) => println!("{}", tally(&mut Unwinder::new(), tgid)),
        None => println!("skipped: STACKS_OF names no process"),
    }
}
