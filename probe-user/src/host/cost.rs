//! What whylag itself has cost so far.

use super::{CostFact, ProgramCost};
use procfs::process::Process;
use std::time::Duration;

/// Of this process, as of now; `programs` as the loader knows them.
#[must_use]
pub fn cost(programs: Vec<(String, u64, Duration)>) -> CostFact {
    let process = Process::myself().ok();
    let stat = process.as_ref().and_then(|process| process.stat().ok());
    let status = process.as_ref().and_then(|process| process.status().ok());
    let ticks = |of: fn(&procfs::process::Stat) -> u64| stat.as_ref().map_or(0, |stat| ns_of(of(stat)));
    let age = stat.as_ref().map_or(0, |stat| uptime_ns().saturating_sub(ns_of(stat.starttime)));
    CostFact {
        elapsed_ns: age,
        user_ns: ticks(|stat| stat.utime),
        system_ns: ticks(|stat| stat.stime),
        peak_memory_bytes: status.and_then(|status| status.vmhwm).map(|kib| kib.saturating_mul(1024)),
        programs: programs.into_iter().filter(|(_, runs, _)| *runs > 0).map(program).collect(),
    }
}

fn program((name, runs, time): (String, u64, Duration)) -> ProgramCost {
    ProgramCost { name, runs, run_ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) }
}

fn ns_of(ticks: u64) -> u64 {
    let per_second = procfs::ticks_per_second().max(1);
    u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(per_second)).unwrap_or(u64::MAX)
}

/// Since boot, suspended time included, as the start of a process counts.
fn uptime_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, ns) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}

#[cfg(test)]
mod tests {
    use super::cost;
    use std::time::Duration;

    #[test]
    fn this_process_has_cost_something() {
        let ran = ("packet_ingress".to_owned(), 3, Duration::from_nanos(90));
        let cost = cost(vec![ran, ("idle".to_owned(), 0, Duration::ZERO)]);
        assert!(cost.peak_memory_bytes.is_some_and(|bytes| bytes > 1 << 20), "{cost:?}");
        assert!(cost.elapsed_ns > 0 && cost.programs.len() == 1, "a program that did not run is no cost");
    }
}
