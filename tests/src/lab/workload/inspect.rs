//! An inspector: a monitoring program that reads how much memory a process uses. It has little
//! CPU, and holds the lock of that process's address space all the while.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::fault::compute;
use super::set_comm;
use anyhow::{Context, Result};
use rustix::process::setpriority_process;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{Builder, scope};
use std::time::Duration;

/// Options of `lab role inspect`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// The process that is looked at.
    #[arg(long)]
    process: u32,
}

pub(super) fn inspect(args: &InspectArgs) -> Result<()> {
    set_comm("mem-inspector")?;
    let file = PathBuf::from(format!("/proc/{}/smaps_rollup", args.process));
    announce(Announcement::Ready);
    obey_orders(|order| match order {
        Order::Fault { ms } => look(&file, Duration::from_millis(ms)),
        _ => Ok(()),
    })
}

/// Looks again and again, beside a thread that leaves it hardly any CPU for `time`.
fn look(file: &PathBuf, time: Duration) -> Result<()> {
    let over = &AtomicBool::new(false);
    let (tell, told) = channel();
    scope(|scope| {
        let reader = Builder::new().name("mem-inspector".to_owned()).spawn_scoped(scope, move || {
            setpriority_process(None, 19).context("be nice")?;
            while !over.load(Ordering::Relaxed) {
                fs::read(file).context("look at the memory")?;
                let _ = tell.send(());
            }
            anyhow::Ok(())
        });
        told.recv().context("the reader ended")?;
        announce_fault(|| compute(time));
        over.store(true, Ordering::Relaxed);
        reader.context("start the reader")?.join().expect("the reader does not panic")
    })
}
