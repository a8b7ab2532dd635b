//! What the kernel of a guest has counted of the server's CPU, as its own files in `/proc` have it.

use super::super::message::Counts;
use super::super::truth::{SOFTNET, read, schedstat_of, softirq_ns, sum_of_column};
use anyhow::Result;

/// Column of `/proc/net/softnet_stat`: packets that a CPU has taken in.
const TAKEN_IN: usize = 0;

/// Reads them; the server is this process.
pub(super) fn counts() -> Result<Counts> {
    Ok(Counts {
        softirq_ns: softirq_ns(&read("/proc/stat")?, "cpu"),
        received: sum_of_column(read(SOFTNET)?.lines(), TAKEN_IN),
        run_delay_ns: schedstat_of(std::process::id(), 1)?,
    })
}
