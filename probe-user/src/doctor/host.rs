//! Facts about kernel, privileges and settings.

use super::Known;
use crate::counters::Unavailable;
use crate::kernel::btf::KernelBtf;
use crate::kernel::offsets;
use crate::live::Countable;
use crate::symbolize::{self, Sandbox};
use crate::symbols::KernelSymbols;
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;

/// The kernel's type information.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TypeInformation {
    /// Where.
    pub path: PathBuf,
    /// How much.
    pub size_bytes: u64,
}

/// A privilege of this process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Privilege {
    /// `CAP_…`.
    pub name: &'static str,
    /// This process has it.
    pub held: bool,
    /// What whylag does with it.
    pub needed_for: &'static str,
}

/// A setting of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name, as `sysctl` writes it, or the file's.
    pub name: &'static str,
    /// What it is now.
    pub value: Known<String>,
}

/// How cgroups are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupLayout {
    /// v2 only.
    Unified,
    /// v1 controllers, and v2 without controllers beside them.
    Hybrid,
    /// v1 only.
    Legacy,
    /// Not mounted.
    Absent,
}

/// What the kernel's own account of CPU time tells beside the switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CpuAccounts {
    /// What each thread was charged, so that a slice that was not seen shows.
    pub charged: bool,
    /// When each slice began, so that a switch that was not seen can be put right.
    pub slices: bool,
    /// What the hypervisor took is charged to nobody.
    pub steal: bool,
    /// What interrupts took is charged to nobody.
    pub interrupts: bool,
}

/// What can be counted of watched threads: of each kind why it is not, `None` where it is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ThreadCounting {
    /// Time on a CPU, switches, migrations and page faults.
    pub software: Option<Unavailable>,
    /// Cycles and instructions.
    pub hardware: Option<Unavailable>,
}

/// Kernel, privileges and settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostFacts {
    /// Release of the kernel.
    pub kernel: String,
    /// Architecture.
    pub architecture: String,
    /// CPUs that could be online.
    pub possible_cpus: Known<u32>,
    /// CPUs that are online.
    pub online_cpus: Known<u32>,
    /// Type information, without which no hook works.
    pub btf: Known<TypeInformation>,
    /// `none`, `integrity` or `confidentiality`.
    pub lockdown: Known<String>,
    /// This process' privileges.
    pub privileges: Known<Vec<Privilege>>,
    /// Memory that this process may lock, bytes, `None` without limit; limits BPF maps before
    /// Linux 5.11.
    #[serde(rename = "memlock_bytes")]
    pub memlock: Option<u64>,
    /// Kernel functions that have a name here.
    pub kernel_symbols: Known<usize>,
    /// Settings that matter.
    pub settings: Vec<Setting>,
    /// How cgroups are mounted.
    pub cgroups: Known<CgroupLayout>,
    /// Where tracefs is mounted; not needed by hooks with BTF.
    pub tracefs: Known<PathBuf>,
    /// Pressure stall information is on.
    pub pressure: Known<bool>,
    /// What the kernel reads time from.
    pub clock_source: Known<String>,
    /// What it accounts of CPU time.
    pub cpu_accounts: Known<CpuAccounts>,
    /// What holds the child that names user frames.
    pub sandbox: Known<Sandbox>,
    /// What can be counted of watched threads.
    pub thread_counters: ThreadCounting,
}

const SETTINGS: [(&str, &str); 5] = [
    ("net.core.bpf_jit_enable", "/proc/sys/net/core/bpf_jit_enable"),
    ("kernel.unprivileged_bpf_disabled", "/proc/sys/kernel/unprivileged_bpf_disabled"),
    ("kernel.perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid"),
    ("kernel.kptr_restrict", "/proc/sys/kernel/kptr_restrict"),
    ("kernel.bpf_stats_enabled", "/proc/sys/kernel/bpf_stats_enabled"),
];

const PRIVILEGES: [(&str, CapabilitySet, &str); 6] = [
    ("CAP_BPF", CapabilitySet::BPF, "loading programs"),
    ("CAP_PERFMON", CapabilitySet::PERFMON, "following threads"),
    ("CAP_NET_ADMIN", CapabilitySet::NET_ADMIN, "stamping packets"),
    ("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN, "entering namespaces"),
    ("CAP_SYS_PTRACE", CapabilitySet::SYS_PTRACE, "finding owners of taps and sockets"),
    ("CAP_SYSLOG", CapabilitySet::SYSLOG, "naming kernel functions"),
];

impl HostFacts {
    pub(super) fn gather() -> Self {
        let system = rustix::system::uname();
        let mounts = read("/proc/self/mounts");
        Self {
            kernel: system.release().to_string_lossy().into_owned(),
            architecture: system.machine().to_string_lossy().into_owned(),
            possible_cpus: cpus("/sys/devices/system/cpu/possible"),
            online_cpus: cpus("/sys/devices/system/cpu/online"),
            btf: type_information(),
            lockdown: lockdown(),
            privileges: privileges(),
            memlock: getrlimit(Resource::Memlock).current,
            kernel_symbols: match KernelSymbols::load() {
                Ok(symbols) => Known::Known(symbols.len()),
                Err(error) => Known::Unknown(error.to_string()),
            },
            settings: SETTINGS.map(|(name, path)| Setting { name, value: read(path) }).into(),
            cgroups: and_then(&mounts, |mounts| Known::Known(CgroupLayout::of(mounts))),
            tracefs: and_then(&mounts, |mounts| mount_point(mounts, "tracefs")),
            pressure: pressure(),
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            cpu_accounts: cpu_accounts(),
            sandbox: symbolize::look_at_sandbox().map_or_else(|error| Known::Unknown(error.to_string()), Known::Known),
            thread_counters: thread_counters(),
        }
    }

    /// Whether this process holds a privilege; `None` if unknown.
    pub(super) fn holds(&self, name: &str) -> Option<bool> {
        self.privileges.value()?.iter().find(|privilege| privilege.name == name).map(|privilege| privilege.held)
    }

    /// A setting's value.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|setting| setting.name == name)?.value.value().map(String::as_str)
    }
}

fn and_then<T>(text: &Known<String>, read: impl Fn(&str) -> Known<T>) -> Known<T> {
    match text {
        Known::Known(text) => read(text),
        Known::Unknown(reason) => Known::Unknown(reason.clone()),
    }
}

fn read(path: &str) -> Known<String> {
    match fs::read_to_string(path) {
        Ok(text) => Known::Known(text.trim().to_owned()),
        Err(error) => Known::Unknown(format!("{path}: {}", plain(&error))),
    }
}

/// The kernel's words without the number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(words, _)| words).to_lowercase()
}

fn cpus(path: &str) -> Known<u32> {
    let unreadable = || Known::Unknown(format!("{path}: not a list of CPUs"));
    and_then(&read(path), |list| count(list).map_or_else(unreadable, Known::Known))
}

/// Members of a list such as `0-3,8`.
fn count(list: &str) -> Option<u32> {
    let members = |range: &str| -> Option<u32> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
    };
    list.split(',').map(members).sum()
}

fn type_information() -> Known<TypeInformation> {
    let path = PathBuf::from("/sys/kernel/btf/vmlinux");
    match fs::metadata(&path) {
        Ok(metadata) => Known::Known(TypeInformation { size_bytes: metadata.len(), path }),
        Err(error) => Known::Unknown(format!("{}: {}", path.display(), plain(&error))),
    }
}

fn thread_counters() -> ThreadCounting {
    let Countable { software, hardware } = crate::live::look_at_counters();
    ThreadCounting { software, hardware }
}

/// The kernel has the fields only if it is built to account for what they hold.
fn cpu_accounts() -> Known<CpuAccounts> {
    let btf = match KernelBtf::of_running_kernel() {
        Ok(btf) => btf,
        Err(error) => return Known::Unknown(error.to_string()),
    };
    let missing = offsets::resolve(&btf).missing;
    let has = |fields: &[&str]| fields.iter().all(|field| !missing.contains(field));
    Known::Known(CpuAccounts {
        charged: has(&["task_se_sum_exec_runtime"]),
        slices: has(&["task_sched_info_last_arrival", "rq_clock"]),
        steal: has(&["rq_prev_steal_time_rq"]),
        interrupts: has(&["rq_prev_irq_time"]),
    })
}

/// The mode in brackets of `none [integrity] confidentiality`.
fn lockdown() -> Known<String> {
    let chosen = |text: &str| text.split_once('[')?.1.split_once(']').map(|(mode, _)| mode.to_owned());
    match read("/sys/kernel/security/lockdown") {
        Known::Known(text) => chosen(&text).map_or_else(|| Known::Unknown(format!("unexpected: {text}")), Known::Known),
        Known::Unknown(reason) => Known::Unknown(format!("{reason} (securityfs not mounted, or no lockdown)")),
    }
}

fn privileges() -> Known<Vec<Privilege>> {
    let privilege = |held: CapabilitySet| {
        PRIVILEGES.map(|(name, bit, needed_for)| Privilege { name, held: held.contains(bit), needed_for }).into()
    };
    match rustix::thread::capabilities(None) {
        Ok(sets) => Known::Known(privilege(sets.effective)),
        Err(errno) => Known::Unknown(format!("capget: {errno}")),
    }
}

impl CgroupLayout {
    /// From what `/proc/self/mounts` says.
    pub(crate) fn of(mounts: &str) -> Self {
        let has = |kind: &str| mounts.lines().any(|line| line.split(' ').nth(2) == Some(kind));
        match (has("cgroup2"), has("cgroup")) {
            (true, false) => Self::Unified,
            (true, true) => Self::Hybrid,
            (false, true) => Self::Legacy,
            (false, false) => Self::Absent,
        }
    }

    /// As published.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unified => "unified",
            Self::Hybrid => "hybrid",
            Self::Legacy => "legacy",
            Self::Absent => "absent",
        }
    }
}

fn mount_point(mounts: &str, kind: &str) -> Known<PathBuf> {
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(kind));
    let path = mount.and_then(|line| line.split(' ').nth(1)).map(PathBuf::from);
    path.map_or_else(|| Known::Unknown(format!("{kind} is not mounted")), Known::Known)
}

/// With `psi=0` the files are there, and reading them fails.
fn pressure() -> Known<bool> {
    match fs::read_to_string("/proc/pressure/cpu") {
        Ok(_) => Known::Known(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => Known::Known(false),
        Err(error) => Known::Unknown(plain(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_that_is_shipped_grants_what_the_report_lists() {
        let unit = include_str!("../../../deploy/whylag-attach@.service");
        let granted = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
        for (name, _, _) in PRIVILEGES {
            assert!(granted.split(' ').any(|one| one == name), "{name}");
        }
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!([count("0"), count("0-3"), count("0-3,8,10-11")], [Some(1), Some(4), Some(7)]);
        assert_eq!([count(""), count("3-1"), count("x")], [None; 3]);
    }

    #[test]
    fn layouts_of_cgroups_are_told_apart() {
        let v1 = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n";
        let v2 = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(CgroupLayout::of(v2), CgroupLayout::Unified);
        assert_eq!(CgroupLayout::of(v1), CgroupLayout::Legacy);
        assert_eq!(CgroupLayout::of(&format!("{v1}{v2}")), CgroupLayout::Hybrid);
        assert_eq!(CgroupLayout::of("proc /proc proc rw 0 0\n"), CgroupLayout::Absent);
    }

    #[test]
    fn a_mount_is_found_by_its_kind() {
        let mounts = "tracefs /sys/kernel/tracing tracefs rw 0 0\n";
        assert_eq!(mount_point(mounts, "tracefs"), Known::Known(PathBuf::from("/sys/kernel/tracing")));
        assert_eq!(mount_point("", "tracefs"), Known::Unknown("tracefs is not mounted".to_owned()));
    }
}
