//! What whylag costs, beside what a user would otherwise run, and whether its figures are reached.
//!
//! `cost [--json] [NAME…]`, run by `cargo xtask bench`. It makes a network namespace of its own
//! first; nothing outside of that is touched. Method and numbers: `docs/measuring.md`.

mod allocator;
mod arrange;
mod attach;
mod collector;
mod flame;
mod frame;
mod levels;
mod pair;
mod packet;
mod programs;
mod report;
mod samples;
mod senders;
mod stacks;
mod switch;
mod taps;
#[path = "../../tests/synthetic/mod.rs"]
mod synthetic;

use std::process::ExitCode;

use anyhow::{Result, bail};
use report::{Report, Row};

/// A measurement.
struct Bench {
    name: &'static str,
    run: fn() -> Result<Vec<Row>>,
}

const BENCHES: [Bench; 10] = [
    Bench { name: "attach", run: attach::run },
    Bench { name: "packet", run: packet::run },
    Bench { name: "senders", run: senders::run },
    Bench { name: "taps", run: taps::run },
    Bench { name: "switch", run: switch::run },
    Bench { name: "stacks", run: stacks::run },
    Bench { name: "collector", run: collector::throughput },
    Bench { name: "memory", run: collector::memory },
    Bench { name: "flame", run: flame::run },
    Bench { name: "levels", run: levels::run },
];

fn main() -> ExitCode {
    match run(std::env::args().skip(1).filter(|argument| argument != "--bench").collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cost: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> Result<()> {
    if let [collector::OPEN_CHECKS, depth] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return collector::hold_open_checks(depth);
    }
    if arguments == [switch::PARTNER] {
        return switch::pass_bytes_back();
    }
    let (flags, names): (Vec<_>, Vec<_>) = arguments.into_iter().partition(|argument| argument.starts_with("--"));
    let json = match flags.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--json"] => true,
        _ => bail!("usage: cost [--json] [NAME…]"),
    };
    let mut report = Report::new(json);
    let chosen = choose(&names)?;
    arrange::own_network()?;
    for bench in chosen {
        eprintln!("measuring: {}", bench.name);
        report.add(bench.name, (bench.run)()?);
    }
    report.finish();
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Bench>> {
    if names.is_empty() {
        return Ok(BENCHES.iter().collect());
    }
    let find = |name: &String| match BENCHES.iter().find(|bench| bench.name == name) {
        Some(bench) => Ok(bench),
        None => bail!("no measurement {name}; there are {}", BENCHES.map(|bench| bench.name).join(", ")),
    };
    names.iter().map(find).collect()
}
