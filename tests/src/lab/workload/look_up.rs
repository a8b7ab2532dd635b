//! A monitoring program that looks through the kernel's table of neighbours. The kernel holds the
//! table's lock all the while, and no softirq can run on that CPU.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::set_comm;
use anyhow::{Context, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

const TABLE: &str = "/proc/net/arp";
/// Behind the end of the largest table: the kernel goes through all of it in one call.
const BEHIND_ALL: u64 = 1 << 40;
/// Between two looks; what has waited is received then.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn look_up() -> Result<()> {
    set_comm("inventory")?;
    announce(Announcement::Ready);
    obey_orders(|order| match order {
        Order::Fault { ms } => look_until(Duration::from_millis(ms)),
        _ => Ok(()),
    })
}

fn look_until(time: Duration) -> Result<()> {
    let mut looked = Ok(());
    announce_fault(|| {
        let end = Instant::now() + time;
        while looked.is_ok() && Instant::now() < end {
            // A file that was read before remembers how far.
            looked = File::open(TABLE).and_then(|table| table.read_at(&mut [0; 64], BEHIND_ALL)).map(drop);
            sleep(PAUSE);
        }
    });
    looked.context("look through the table")
}
