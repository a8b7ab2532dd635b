//! Facts about the host in words, for people who were not there.

use super::{CostFact, CounterFact, DiskFact, GuestFact, HostFact, NicFact, SystemFact};
use crate::clock::DurNs;

/// What a fact is about, and what it says of that; `None` of settings and counters, which are many.
pub(crate) fn told(fact: &HostFact) -> Option<(String, String)> {
    Some(match fact {
        HostFact::System(it) => system(it),
        HostFact::Nic(it) => nic(it),
        HostFact::Disk(it) => disk(it),
        HostFact::Guest(it) => guest(it),
        HostFact::Gap { what, reason } => ("not looked at".to_owned(), format!("{what}, {reason}")),
        HostFact::Settings { .. } | HostFact::Counters { .. } => return None,
    })
}

fn system(system: &SystemFact) -> (String, String) {
    let on = if system.virtualised { " (itself a VM)" } else { "" };
    let model = if system.cpu_model.is_empty() { String::new() } else { format!(" ({})", system.cpu_model) };
    let swap = if system.swap_bytes == 0 { String::new() } else { format!(", swap {}", gib(system.swap_bytes)) };
    let text = format!(
        "CPUs {}{model}, memory {}, {} of it to be had{swap}, clock {}, cgroups {}",
        system.online_cpus,
        gib(system.memory_bytes),
        gib(system.available_bytes),
        system.clock_source,
        if system.cgroups.is_empty() { "unknown" } else { &system.cgroups }
    );
    (format!("kernel {} {}{on}", system.kernel, system.architecture), text)
}

fn nic(nic: &NicFact) -> (String, String) {
    let driver = if nic.driver.is_empty() { &nic.kind } else { &nic.driver };
    let most = nic.most_queues.map_or_else(String::new, |most| format!(" of {most}"));
    let rings = nic.rings.map_or_else(String::new, |rings| {
        format!(", rings of {} (of {}) and {} (of {})", rings.rx, rings.most_rx, rings.tx, rings.most_tx)
    });
    let cpus: Vec<_> = nic.interrupts.iter().map(|irq| irq.effective_cpus.as_str()).collect();
    let interrupts = if cpus.is_empty() { String::new() } else { format!(", interrupts on CPU {}", cpus.join(" ")) };
    let rps = if nic.rps_cpus.iter().any(|mask| names_a_cpu(mask)) { ", RPS on" } else { "" };
    let speed = nic.speed_mbit.map_or_else(String::new, |speed| format!(", {speed} Mbit/s"));
    let offloads = nic.offloads.as_ref().filter(|on| !on.is_empty());
    let offloads = offloads.map_or_else(String::new, |on| format!(", {}", on.join(" ")));
    let (watched, up) = (if nic.watched { ", watched" } else { "" }, if nic.up { "" } else { ", down" });
    let (rx, tx, mtu) = (nic.rx_queues, nic.tx_queues, nic.mtu_bytes);
    let text =
        format!("{rx} rx and {tx} tx queues{most}{rings}{interrupts}{rps}, MTU {mtu}{speed}{offloads}{watched}{up}");
    (format!("{} ({driver})", nic.name), text)
}

/// Of a mask such as `00000000,00000003`.
fn names_a_cpu(mask: &str) -> bool {
    mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0')
}

fn disk(disk: &DiskFact) -> (String, String) {
    let turns = if disk.rotational { "rotational" } else { "not rotational" };
    let depth = disk.queue_depth.map_or_else(String::new, |depth| format!(", queue of {depth}"));
    let wbt = disk.wbt_latency_us.map_or_else(String::new, |us| format!(", writeback throttled at {us} µs"));
    let cache = if disk.write_cache.is_empty() { String::new() } else { format!(", cache {}", disk.write_cache) };
    let model = if disk.model.is_empty() { String::new() } else { format!(", {}", disk.model) };
    let text = format!("{turns}, scheduler {}{depth}{wbt}{cache}{model}", disk.scheduler);
    (format!("{} ({})", disk.name, gib(disk.size_bytes)), text)
}

fn guest(guest: &GuestFact) -> (String, String) {
    let vcpus = if guest.vcpus == 0 { String::new() } else { format!(", {} vCPUs", guest.vcpus) };
    let taps = if guest.taps.is_empty() { String::new() } else { format!(", taps {}", guest.taps.join(" ")) };
    let limit = |name: &str, limit: &str| if limit.is_empty() { String::new() } else { format!(", {name} {limit}") };
    let limits = limit("cpu.max", &guest.cpu_max) + &limit("memory.max", &guest.memory_max);
    let text = format!("{}, pid {}{vcpus}{taps}{limits}", guest.runtime, guest.tgid);
    (format!("{} {}", guest.kind, guest.name), text)
}

/// The queues of a network interface one by one: interrupts, and the CPUs that share their work.
pub(crate) fn queues(nic: &NicFact) -> Vec<(String, String)> {
    let name = &nic.name;
    let interrupts = nic.interrupts.iter().map(|irq| {
        let goes =
            if irq.effective_cpus.is_empty() { String::new() } else { format!(", goes to {}", irq.effective_cpus) };
        (format!("{name} interrupt {} {}", irq.irq, irq.name), format!("may go to CPU {}{goes}", irq.cpus))
    });
    let masks = |what: &'static str, masks: &'_ [String]| -> Vec<(String, String)> {
        let row =
            |(queue, mask): (usize, &String)| (format!("{name} {what} queue {queue}"), format!("CPU mask {mask}"));
        masks.iter().enumerate().filter(|(_, mask)| names_a_cpu(mask)).map(row).collect()
    };
    interrupts.chain(masks("RPS", &nic.rps_cpus)).chain(masks("XPS", &nic.xps_cpus)).collect()
}

/// What counters grew by from the first look to the last, those that did.
pub(crate) fn grown(first: &[CounterFact], last: &[CounterFact]) -> Vec<(String, u64)> {
    let before = |name: &str| first.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value);
    let grown = last.iter().map(|counter| (counter.name.clone(), counter.value.saturating_sub(before(&counter.name))));
    grown.filter(|(_, more)| *more > 0).collect()
}

/// What a run has cost, each with what it is.
pub(crate) fn spent(cost: &CostFact) -> Vec<(&'static str, String)> {
    let cpu = DurNs(cost.user_ns.saturating_add(cost.system_ns));
    let total = cost.programs.iter().fold(DurNs::ZERO, |sum, program| sum.plus(DurNs(program.run_ns)));
    let runs = cost.programs.iter().fold(0_u64, |sum, program| sum.saturating_add(program.runs));
    let programs = match cost.programs.as_slice() {
        [] => "not counted, as kernel.bpf_stats_enabled was 0".to_owned(),
        _ => format!("{total} in {runs} runs, the counting included"),
    };
    let memory = cost.peak_memory_bytes.map(|bytes| ("memory", format!("at most {} MiB", bytes >> 20)));
    let cpu = ("CPU", format!("{cpu} in {}", DurNs(cost.elapsed_ns)));
    [Some(cpu), memory, Some(("kernel programs", programs))].into_iter().flatten().collect()
}

/// To a tenth.
fn gib(bytes: u64) -> String {
    let tenths = bytes / (1 << 30) * 10 + bytes % (1 << 30) * 10 / (1 << 30);
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{InterruptFact, ProgramCost};

    fn counter(name: &str, value: u64) -> CounterFact {
        CounterFact { name: name.to_owned(), value }
    }

    #[test]
    fn only_counters_that_grew_are_told_and_a_new_one_counts_from_zero() {
        let first = [counter("Udp.RcvbufErrors", 7), counter("eth0.rx_dropped", 3)];
        let last = [counter("Udp.RcvbufErrors", 9), counter("eth0.rx_dropped", 3), counter("new", 1)];
        assert_eq!(grown(&first, &last), [("Udp.RcvbufErrors".to_owned(), 2), ("new".to_owned(), 1)]);
    }

    #[test]
    fn queues_are_told_one_by_one_and_masks_without_a_cpu_are_not() {
        let irq = InterruptFact {
            irq: 24,
            name: "eth0-rx-0".to_owned(),
            cpus: "0-3".to_owned(),
            effective_cpus: "2".to_owned(),
        };
        let nic = NicFact {
            name: "eth0".to_owned(),
            interrupts: vec![irq],
            rps_cpus: vec!["00000000,00000000".to_owned(), "00000000,0000000c".to_owned()],
            ..NicFact::default()
        };
        let told: Vec<_> = queues(&nic).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
        assert_eq!(
            told,
            [
                "eth0 interrupt 24 eth0-rx-0: may go to CPU 0-3, goes to 2",
                "eth0 RPS queue 1: CPU mask 00000000,0000000c"
            ]
        );
    }

    #[test]
    fn programs_that_were_not_counted_are_not_told_as_free() {
        let text = |cost: &CostFact| spent(cost).last().map(|(_, text)| text.clone()).unwrap();
        assert!(text(&CostFact::default()).contains("bpf_stats_enabled"));
        let program = |run_ns| ProgramCost { name: String::new(), runs: 3, run_ns };
        let cost = CostFact { programs: vec![program(2_000_000), program(1_000_000)], ..CostFact::default() };
        assert_eq!(text(&cost), "3.00 ms in 6 runs, the counting included");
    }
}
