//! The demo: a server with a fault of a kind that real servers have, and whylag finding it.
//!
//! The fault is a thread that computes statistics under the lock that every request needs.

use super::leash::Leash;
use super::message::{Announcement, Check, Order};
use super::process::{Launcher, Process};
use super::whylag::Attach;
use super::workload::signature;
use super::world::{Link, Shape, World};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Answers above this are slow to the client.
const SLOW: Duration = Duration::from_millis(20);

/// Options of `lab demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// For how long whylag watches, in seconds.
    #[arg(long, default_value_t = 8)]
    seconds: u32,
}

/// Shows it.
///
/// # Errors
/// Not root, or whylag cannot attach.
pub fn demo(args: &DemoArgs, launcher: &Launcher, attach: &Attach) -> Result<ExitCode> {
    println!("{INTRODUCTION}");
    let world = World::build(launcher, Shape::Direct, Link::Single)?;
    // Ahead of the machine's other work, so that the picture is clean.
    let ahead = |leash| Leash { nice: Some(-10), ..leash };
    let _server = launcher.role(&ahead(world.host.leash()), "serve", SERVER)?;
    let client = launcher.role(&ahead(world.client.leash()), "client", [format!("--to={}", world.server())])?;
    watch(args, launcher, attach, &world)?;
    client.order(Order::Stop)?;
    println!("\n{}", measurement(&collect(&client)?));
    println!("\n{NEXT}");
    Ok(ExitCode::SUCCESS)
}

const INTRODUCTION: &str = "\
A client in one network namespace checks a server in another 100 times a second.
The server answers with four threads. Now and then some answers take most of a
second. The client sees only that. Let whylag look at the server's host:";

/// A pool of four behind one lock; every 2 s `stats-rollup` computes for 800 ms while it holds it.
const SERVER: [&str; 4] = ["--fault=lock-computing", "--workers=4", "--rollup-every-ms=2000", "--rollup-ms=800"];

const NEXT: &str = "\
That was the lock: every check waits for it, and stats-rollup computes while it
holds it. The world of the demo is gone again. On a host of yours, as root:
  whylag doctor                        what this host can show, and what it cannot
  whylag signature list                the health checks that are known by name
  whylag attach --signature icmp-echo  watch, live
  whylag attach --record FILE          keep the run; whylag replay FILE shows it
                                       again, without root
  whylag explain app.futex             what that cause means, and what proves it";

/// Runs whylag in this terminal, and shows the command as an operator would type it.
fn watch(args: &DemoArgs, launcher: &Launcher, attach: &Attach, world: &World) -> Result<()> {
    let mut arguments = Attach::arguments(world, &signature(false));
    arguments.extend(["--threshold".into(), "20ms".into(), "--duration".into(), format!("{}s", args.seconds).into()]);
    let typed: Vec<String> = arguments.iter().map(|argument| quoted(&argument.to_string_lossy())).collect();
    println!("\n$ whylag {}\n", typed.join(" ").replace(" --", " \\\n    --"));
    // An interrupt lets whylag end by itself, and put the terminal in order.
    let leash = Leash { end_with: Some(Signal::TERM.as_raw()), ..Leash::default() };
    let mut command = leash.command(&launcher.lab, &attach.binary);
    let status = command.args(&arguments).status().context("start whylag")?;
    ensure!(status.success(), "whylag ended with {status}");
    Ok(())
}

fn quoted(argument: &str) -> String {
    if argument.contains('"') { format!("'{argument}'") } else { argument.to_owned() }
}

fn collect(client: &Process) -> Result<Vec<Check>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut checks = Vec::new();
    loop {
        match client.next_announcement(deadline)? {
            Announcement::Check(check) => checks.push(check),
            Announcement::Done => return Ok(checks),
            _ => {}
        }
    }
}

/// What the client saw, by its own clock.
fn measurement(checks: &[Check]) -> String {
    let mut rtts: Vec<Duration> = checks.iter().filter_map(Check::rtt_ns).map(Duration::from_nanos).collect();
    rtts.sort_unstable();
    let median = rtts.get(rtts.len() / 2).copied().unwrap_or_default();
    let worst = rtts.last().copied().unwrap_or_default();
    let slow = rtts.iter().filter(|rtt| **rtt > SLOW).count();
    format!(
        "The client's own measurement: {} checks, median {median:.0?},\n{slow} slower than {SLOW:?}, \
         the slowest {worst:.0?}, {} lost.",
        checks.len(),
        checks.len() - rtts.len(),
    )
}
