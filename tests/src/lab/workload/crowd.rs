//! Threads and processes that have nothing to do with the checks.

use super::spawn;
use anyhow::{Context, Result};
use std::process::{Command, Stdio};
use std::thread::{Builder, sleep};
use std::time::Duration;

/// Stack of an idle thread, bytes.
const STACK_BYTES: usize = 32_768;
/// From one of those that come and go to the next.
const PAUSE: Duration = Duration::from_millis(5);

/// Starts threads that only wake up once a second and, if wanted, one that starts others and
/// processes that end at once.
pub(super) fn start(idle_threads: usize, churn: bool) -> Result<()> {
    for _ in 0..idle_threads {
        let idle = || loop {
            sleep(Duration::from_secs(1));
        };
        Builder::new().name("idle".to_owned()).stack_size(STACK_BYTES).spawn(idle).context("start a thread")?;
    }
    if churn {
        spawn("churn", || {
            loop {
                come_and_go()?;
            }
        })
    } else {
        Ok(())
    }
}

/// A thread that ends, and a process that becomes another program and ends.
fn come_and_go() -> Result<()> {
    Builder::new().spawn(|| {}).context("start a thread")?.join().ok().context("a thread panicked")?;
    let mut command = Command::new("true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("start a process")?;
    sleep(PAUSE);
    Ok(())
}
