//! What is wrong with a host for whylag, and the command that changes it.

use super::{HookRow, HostFacts, Known, Refused};
use crate::target::{Discovery, Interface};
use probe_wire::MAX_CPUS;
use serde::Serialize;

/// How much a problem costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// `attach` cannot run.
    Blocks,
    /// Some stages, causes or names will be missing.
    Limits,
    /// Everything works, but the host itself may be slower than it need be.
    Advice,
}

impl Severity {
    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Limits => "limits",
            Self::Advice => "advice",
        }
    }
}

/// Something wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How much it costs.
    pub severity: Severity,
    /// What is wrong and what follows.
    pub what: String,
    /// The command that fixes it, or what to do where no command does.
    pub fix: String,
}

fn problem(severity: Severity, what: impl Into<String>, fix: impl Into<String>) -> Problem {
    Problem { severity, what: what.into(), fix: fix.into() }
}

/// Every problem, the worst first.
pub(super) fn find(host: &HostFacts, discovery: &Discovery, hooks: &[HookRow]) -> Vec<Problem> {
    let mut found: Vec<Problem> = privileges(host)
        .chain(kernel(host))
        .chain(settings(host))
        .chain(refused(hooks))
        .chain(discovery.interfaces.iter().filter_map(|interface| single_queue(interface, host)))
        .collect();
    found.sort_by_key(|problem| problem.severity);
    found.dedup();
    found
}

/// `CAP_SYS_ADMIN` was what loading took before Linux 5.8, and still suffices.
fn privileges(host: &HostFacts) -> impl Iterator<Item = Problem> {
    let lacks = |name| host.holds(name) == Some(false);
    let admin = host.holds("CAP_SYS_ADMIN") == Some(true);
    let loading = ["CAP_BPF", "CAP_PERFMON"].into_iter().filter(|name| lacks(name) && !admin);
    let essential: Vec<_> = loading.chain(["CAP_NET_ADMIN"].into_iter().filter(|name| lacks(name))).collect();
    let useful: Vec<_> =
        ["CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_SYSLOG"].into_iter().filter(|name| lacks(name)).collect();
    let blocked = (!essential.is_empty()).then(|| {
        let what = format!("this process lacks {}: no program can be attached", essential.join(", "));
        problem(Severity::Blocks, what, "sudo whylag doctor")
    });
    let limited = (essential.is_empty() && !useful.is_empty()).then(|| {
        let what = format!(
            "this process lacks {}: other namespaces, owners of taps and sockets, or names of kernel functions are not \
             seen",
            useful.join(", ")
        );
        problem(Severity::Limits, what, "sudo whylag doctor")
    });
    blocked.into_iter().chain(limited)
}

fn kernel(host: &HostFacts) -> impl Iterator<Item = Problem> {
    let btf = match &host.btf {
        Known::Known(_) => None,
        Known::Unknown(reason) => {
            let what = format!("no kernel type information ({reason}): no hook can be attached");
            Some(problem(Severity::Blocks, what, "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y"))
        }
    };
    let confidential = host.lockdown.value().is_some_and(|mode| mode == "confidentiality");
    let lockdown = confidential.then(|| {
        let what = "the kernel is locked down for confidentiality: programs may not read its memory";
        problem(Severity::Blocks, what, "boot with lockdown=integrity on the kernel's command line")
    });
    let too_many = host.possible_cpus.value().is_some_and(|count| *count > max_cpus());
    let cpus = too_many.then(|| {
        let what = format!("more than {MAX_CPUS} CPUs are possible: events of CPUs beyond are not seen");
        problem(Severity::Limits, what, format!("boot with possible_cpus={MAX_CPUS} nr_cpus={MAX_CPUS}"))
    });
    [btf, lockdown, cpus].into_iter().flatten()
}

fn max_cpus() -> u32 {
    u32::try_from(MAX_CPUS).unwrap_or(u32::MAX)
}

fn settings(host: &HostFacts) -> impl Iterator<Item = Problem> {
    let jit_off = host.setting("net.core.bpf_jit_enable") == Some("0");
    let jit = jit_off.then(|| {
        let what = "BPF programs are interpreted: every hook costs several times as much";
        problem(Severity::Limits, what, "sudo sysctl net.core.bpf_jit_enable=1")
    });
    let hidden = matches!(host.kernel_symbols, Known::Unknown(_)) && host.holds("CAP_SYSLOG") == Some(true);
    let symbols = hidden.then(|| {
        let what = "addresses of kernel functions are hidden: waits in the kernel have no names";
        problem(Severity::Limits, what, "sudo sysctl kernel.kptr_restrict=1")
    });
    let no_pressure = host.pressure == Known::Known(false);
    let pressure = no_pressure.then(|| {
        let what = "pressure stall information is off";
        problem(Severity::Advice, what, "boot with psi=1 on the kernel's command line")
    });
    let slow_clock =
        host.clock_source.value().filter(|source| matches!(source.as_str(), "hpet" | "acpi_pm" | "jiffies"));
    let clock = slow_clock.map(|source| {
        let what = format!("the kernel reads time from {source}, which costs about a microsecond each time");
        problem(Severity::Advice, what, "boot with clocksource=tsc tsc=reliable, if the hardware's TSC is sound")
    });
    let no_cgroups = host.cgroups == Known::Known(super::CgroupLayout::Absent);
    let cgroups = no_cgroups.then(|| {
        let what = "cgroups are not mounted: throttling by a CPU quota cannot be proven";
        problem(Severity::Limits, what, "sudo mount -t cgroup2 cgroup2 /sys/fs/cgroup")
    });
    [jit, symbols, pressure, clock, cgroups].into_iter().flatten()
}

/// Hooks that work in no way, those with the same reason together; one that works in a lesser
/// way is no problem.
fn refused(hooks: &[HookRow]) -> Vec<Problem> {
    let mut groups: Vec<(Refused, Vec<&HookRow>)> = Vec::new();
    for hook in hooks.iter().filter(|hook| hook.choice.is_none()) {
        let last = hook.refused.last().cloned().unwrap_or_else(untried);
        match groups.iter_mut().find(|(why, _)| (&why.reason, &why.fix) == (&last.reason, &last.fix)) {
            Some((_, group)) => group.push(hook),
            None => groups.push((last, vec![hook])),
        }
    }
    groups.iter().map(|(why, group)| without(why, group)).collect()
}

fn untried() -> Refused {
    let (reason, fix) = ("it was not tried".to_owned(), "run whylag doctor as root".to_owned());
    Refused { attempt: String::new(), reason, fix }
}

fn without(why: &Refused, group: &[&HookRow]) -> Problem {
    let names: Vec<_> = group.iter().map(|hook| hook.name.as_str()).collect();
    let mut informs: Vec<_> = group.iter().flat_map(|hook| &hook.informs).map(String::as_str).collect();
    informs.sort_unstable();
    informs.dedup();
    let less = if informs.is_empty() { String::new() } else { format!(", so less of {}", informs.join(", ")) };
    problem(Severity::Limits, format!("no {}{less}: {}", names.join(", "), why.reason), why.fix.clone())
}

/// All receive work of a NIC with one queue falls to one CPU, and to whoever runs there, unless
/// software spreads it.
fn single_queue(interface: &Interface, host: &HostFacts) -> Option<Problem> {
    let cpus = *host.online_cpus.value()?;
    let alone =
        interface.is_physical() && interface.is_usable() && interface.driver.is_some() && interface.rx_queues == 1;
    (alone && cpus > 1 && !is_spread(interface)).then(|| {
        let what = format!(
            "{} has one receive queue for {cpus} CPUs: the CPU that takes its interrupt does all its receive work",
            interface.name
        );
        problem(Severity::Advice, what, more_queues(interface, cpus))
    })
}

/// More than one CPU is in the mask.
fn is_spread(interface: &Interface) -> bool {
    let digits = interface.receive_spread.iter().flat_map(|mask| mask.chars());
    digits.filter_map(|digit| digit.to_digit(16)).map(u32::count_ones).sum::<u32>() > 1
}

/// More queues where the hardware has them, else the same in software.
fn more_queues(interface: &Interface, cpus: u32) -> String {
    let name = &interface.name;
    match interface.queue_limits {
        Some(limits) if limits.combined > 1 => {
            format!("sudo ethtool -L {name} combined {}", limits.combined.min(cpus))
        }
        Some(limits) if limits.rx > 1 => format!("sudo ethtool -L {name} rx {}", limits.rx.min(cpus)),
        _ => format!("as root: echo {} > /sys/class/net/{name}/queues/rx-0/rps_cpus", mask_of(cpus)),
    }
}

/// The first `count` CPUs as the kernel writes them: hex, groups of 32 bits, the highest first.
fn mask_of(count: u32) -> String {
    let group = |bits: u32| (1_u64 << bits) - 1;
    let (whole, rest) = (count / 32, count % 32);
    let first = (rest > 0).then(|| format!("{:x}", group(rest)));
    first.into_iter().chain((0..whole).map(|_| "ffffffff".to_owned())).collect::<Vec<_>>().join(",")
}
