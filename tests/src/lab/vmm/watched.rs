//! A server inside a guest, and whylag beside it, which tells its half of the checks to the host.

use super::super::leash::Leash;
use super::super::message::{Announcement, Order, announce, obey_orders};
use super::super::process::forward_lines;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Until all hooks are live, on an emulated machine.
const ATTACH_PATIENCE: Duration = Duration::from_secs(60);
/// whylag in a guest runs behind all else: an emulated CPU is slow, and a debug build is, too.
const BEHIND: i32 = 19;
/// whylag's binary in the guest.
const WHYLAG: &str = "/bin/whylag";

/// Options of `lab role watched`.
#[derive(Debug, clap::Args)]
pub struct WatchedArgs {
    /// An argument of whylag's; can be given several times.
    #[arg(long, allow_hyphen_values = true)]
    with: Vec<String>,
    /// The role of the server, and its options.
    #[arg(required = true, last = true)]
    server: Vec<String>,
}

/// Starts the server, then whylag, as an operator would; all orders are for the server but the last, which
/// ends whylag.
pub(in crate::lab) fn watched(args: &WatchedArgs) -> Result<()> {
    let lab = std::env::current_exe().context("find the lab's own binary")?;
    let mut command = Command::new(lab);
    let mut server = command.arg("role").args(&args.server).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut orders = server.stdin.take().context("orders are piped")?;
    let said = forward_lines(server.stdout.take().context("standard output is piped")?);
    let ready = said.recv().context("the server ended")?;
    let mut whylag = attach(&args.with)?;
    println!("{ready}");
    std::thread::spawn(move || said.into_iter().for_each(|line| println!("{line}")));
    obey_orders(|order| match order {
        Order::Stop => {
            end(&mut whylag)?;
            announce(Announcement::Done);
            Ok(())
        }
        order => writeln!(orders, "{}", serde_json::to_string(&order)?).context("pass an order on"),
    })
}

/// Waits until all hooks are live; what whylag says from then on is shown.
fn attach(with: &[String]) -> Result<Child> {
    let lab = std::env::current_exe().context("find the lab's own binary")?;
    let mut command = Leash { nice: Some(BEHIND), ..Leash::default() }.command(&lab, Path::new(WHYLAG));
    let mut whylag = command.args(with).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let said = forward_lines(whylag.stderr.take().context("standard error is piped")?);
    let deadline = Instant::now() + ATTACH_PATIENCE;
    let mut before = Vec::new();
    loop {
        match said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if line.contains("attached") => break,
            Ok(line) => before.push(line),
            Err(_) => bail!("whylag did not attach; it said: {}", before.join(" | ")),
        }
    }
    std::thread::spawn(move || said.into_iter().for_each(|line| eprintln!("lab: {line}")));
    Ok(whylag)
}

/// Has it send what is left.
fn end(whylag: &mut Child) -> Result<()> {
    let pid = i32::try_from(whylag.id()).ok().and_then(Pid::from_raw).context("a process number")?;
    kill_process(pid, Signal::INT).context("interrupt whylag")?;
    let status = whylag.wait().context("wait for whylag")?;
    ensure!(status.success(), "whylag ended with {status}");
    Ok(())
}
