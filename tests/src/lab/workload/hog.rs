//! The CPU hog: threads named `batch-report` that compute, for a bounded time.

use super::super::message::{Announcement, Order, Ran, announce, announce_fault, obey_orders};
use super::fault::compute_rounds;
use super::set_comm;
use anyhow::{Context, Result};
use rustix::thread::gettid;
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

/// A round of work takes some microseconds; if this long, something else ran meanwhile.
const INTERRUPTED: Duration = Duration::from_micros(200);

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
            let spawn = || {
                Builder::new()
                    .name("batch-report".to_owned())
                    .spawn_scoped(scope, || announce(Announcement::Ran(compute(time))))
            };
            started = (0..threads).try_for_each(|_| spawn().map(drop));
        });
    });
    started.context("start a hog")
}

/// Keeps the CPU busy for `time`; for how long of that nothing else had it.
fn compute(time: Duration) -> Ran {
    let (begin, mut ran) = (Instant::now(), Duration::ZERO);
    let mut now = begin;
    while now - begin < time {
        compute_rounds(1);
        let round = now.elapsed();
        now += round;
        ran += Some(round).filter(|round| *round < INTERRUPTED).unwrap_or_default();
    }
    let tid = gettid().as_raw_nonzero().get().unsigned_abs();
    Ran { tid, ns: u64::try_from(ran.as_nanos()).unwrap_or(u64::MAX) }
}
