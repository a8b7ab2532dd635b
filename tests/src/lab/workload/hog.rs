//! The CPU hog: threads named `batch-report` that compute, for a bounded time.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::fault::compute;
use super::set_comm;
use anyhow::{Context, Result};
use std::thread::{Builder, scope};
use std::time::Duration;

/// Options of `lab role hog`.
#[derive(Debug, clap::Args)]
pub struct HogArgs {
    /// How many threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

pub(super) fn hog(args: &HogArgs) -> Result<()> {
    set_comm("batch")?;
    announce(Announcement::Ready);
    obey_orders(|order| match order {
        Order::Fault { ms } => compete(args.threads, Duration::from_millis(ms)),
        _ => Ok(()),
    })
}

pub(super) fn compete(threads: usize, time: Duration) -> Result<()> {
    let mut started = Ok(());
    announce_fault(|| {
        scope(|scope| {
            let spawn = || Builder::new().name("batch-report".to_owned()).spawn_scoped(scope, || compute(time));
            started = (0..threads).try_for_each(|_| spawn().map(drop));
        });
    });
    started.context("start a hog")
}
