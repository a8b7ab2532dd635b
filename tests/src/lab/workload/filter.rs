//! Makes every packet that comes in at a device of a guest expensive to receive, and has that go before
//! all else: as in the interrupts' softirqs, so in the thread for what they leave.

use super::super::device::filters;
use super::super::truth::softirq_threads;
use super::fault::rounds_in;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, setpriority_process};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Options of `lab role filter`.
#[derive(Debug, clap::Args)]
pub struct FilterArgs {
    /// The device.
    #[arg(long)]
    device: String,
    /// For so long a packet passes filters, at the speed that the CPU has now, µs.
    #[arg(long)]
    packet_us: u64,
}

/// An emulated CPU looks at so many filters in the time of a thousand multiplications.
const FILTERS_PER_ROUND: u64 = 1_200;
/// What `tc` reads, in a guest that has nothing else there.
const BATCH: &str = "/tmp/filters";

/// They stand before whylag's own program, in the queueing discipline that it would add too.
pub(super) fn filter(args: &FilterArgs) -> Result<()> {
    let FilterArgs { device, packet_us } = args;
    let count = rounds_in(Duration::from_millis(*packet_us)) * FILTERS_PER_ROUND / 1_000;
    let filters = filters(device, u32::try_from(count).context("too many filters")?);
    fs::write(BATCH, format!("qdisc add dev {device} clsact\n{filters}")).with_context(|| format!("write {BATCH}"))?;
    let status = Command::new("tc").args(["-batch", BATCH]).status().context("start tc")?;
    ensure!(status.success(), "tc ended with {status}");
    softirq_threads("").into_iter().try_for_each(|thread| {
        let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
        setpriority_process(thread, -20).context("set the nice value of a softirq thread")
    })
}
