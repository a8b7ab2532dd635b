//! Stacks of real programs, built as distributions build them: optimised, without frame pointers
//! and stripped. They are stopped at any instruction, and their frames must reach the function
//! that their thread began in.

mod built;
mod stopped;

use probe_user::event::Fact;
use probe_user::stack::unwind::{RawStack, Unwinder};
use probe_user::stack::{StackEnd, StackTable};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A program that runs, until the test ends.
struct Running(Child);

impl Running {
    fn start(program: &mut Command) -> Self {
        let mut child = program.stdout(Stdio::piped()).spawn().unwrap();
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

#[derive(Debug, Default)]
struct Tally {
    ends: BTreeMap<StackEnd, usize>,
    cut: Vec<(StackEnd, Vec<String>)>,
}

fn tally(tgid: u32, rounds: usize) -> Tally {
    let mut unwinder = Unwinder::new();
    let mut table = StackTable::default();
    let mut tally = Tally::default();
    let mut took = Vec::new();
    for _ in 0..rounds {
        for tid in stopped::threads(tgid) {
            let Some(taken) = stopped::take(tgid, tid) else { continue };
            let raw = RawStack {
                tgid,
                tid: taken.tid,
                ip: taken.ip,
                sp: taken.sp,
                bp: taken.bp,
                copied: &taken.copied,
                chain: &taken.chain,
            };
            let begun = std::time::Instant::now();
            let unwound = unwinder.unwind(&raw, &mut |fact: &Fact| table.learn(fact));
            took.push(begun.elapsed());
            *tally.ends.entry(unwound.end).or_default() += 1;
            if unwound.end != StackEnd::Entry && tally.cut.len() < 20 {
                let frames = table.frames(unwound.stack.unwrap());
                let names = frames.map(|(frame, module)| {
                    format!("{}+{:#x}", module.map_or("?", |module| &module.name), frame.address)
                });
                tally.cut.push((unwound.end, names.collect()));
            }
        }
    }
    took.sort_unstable();
    println!("median {:?}, p90 {:?}", took[took.len() / 2], took[took.len() * 9 / 10]);
    tally
}

fn check(mut program: Command) {
    let program = Running::start(&mut program);
    let tally = tally(program.0.id(), 200);
    println!("{tally:#?}");
    let all: usize = tally.ends.values().sum();
    assert!(tally.ends[&StackEnd::Entry] * 100 >= all * 99);
}

#[test]
fn cpp_reaches_its_entry() {
    check(Command::new(built::cpp()));
}

#[test]
fn tokio_reaches_its_entry() {
    check(Command::new(built::tokio()));
}

#[test]
fn go_reaches_its_entry() {
    match built::go() {
        Ok(program) => check(Command::new(program)),
        Err(why) => println!("skipped: Go cannot be had from Debian: {why:#}"),
    }
}

#[test]
fn look() {
    if let Some(program) = std::env::var_os("LOOK") {
        check(Command::new(program));
    }
    if let Some(tgid) = std::env::var("LOOK_PID").ok() {
        println!("{:#?}", tally(tgid.parse().unwrap(), 300));
    }
}
