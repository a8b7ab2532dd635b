//! An inspector: a monitoring program that reads how much memory a process uses. It has little
//! CPU, and holds the lock of that process's address space all the while.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::fault::compute;
use super::set_comm;
use anyhow::{Context, Result};
use rustix::process::setpriority_process;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
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

/// Readers: one alone may lose its CPU between two looks, when it has no lock.
const READERS: usize = 4;

/// Looks again and again, beside a thread that leaves it hardly any CPU for `time`.
fn look(file: &Path, time: Duration) -> Result<()> {
    let over = &AtomicBool::new(false);
    let (tell, told) = channel();
    scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let tell = tell.clone();
                let name = Builder::new().name("mem-inspector".to_owned());
                name.spawn_scoped(scope, move || read_until(file, over, &tell)).context("start a reader")
            })
            .collect();
        (0..READERS).try_for_each(|_| told.recv()).context("a reader ended")?;
        announce_fault(|| compute(time));
        over.store(true, Ordering::Relaxed);
        readers.into_iter().try_for_each(|reader| reader?.join().expect("a reader does not panic"))
    })
}

fn read_until(file: &Path, over: &AtomicBool, tell: &Sender<()>) -> Result<()> {
    setpriority_process(None, 19).context("be nice")?;
    for look in 0_u64.. {
        fs::read(file).context("look at the memory")?;
        if look == 0 {
            tell.send(()).context("say that the first look is over")?;
        }
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}
