//! What this host can do, and why it cannot do the rest.
//!
//! Features are tried or read from the kernel's own type information; version numbers prove
//! nothing, since distributions move features between them. "The kernel refuses" and "could not
//! tell" are different answers.

use std::{error::Error as _, fs, io, sync::OnceLock};

use aya::{
    maps::MapType,
    programs::{ProgramError, ProgramType},
    sys::{is_map_supported, is_program_supported},
};
use thiserror::Error;

use crate::{
    hooks::{Attach, Choice, HOOKS, Hook},
    kernel::btf::{BtfError, KernelBtf},
    load::unsafe_kernel,
};

/// A hook that does not run here, as a value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the hook {hook} cannot be used: {reason}; {fix}")]
pub struct Refusal {
    /// The hook's public name.
    pub hook: &'static str,
    /// Why.
    pub reason: String,
    /// What would help.
    pub fix: String,
}

impl Refusal {
    fn new(hook: &Hook, reason: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { hook: hook.name, reason: reason.into(), fix: fix.into() }
    }

    pub(crate) fn nothing_to_try(hook: &Hook) -> Self {
        Self::new(hook, "no way to attach it is left", "allow one of its ways")
    }

    pub(crate) fn avoided(hook: &Hook, choice: &Choice) -> Self {
        let reason = format!("attaching by {} was ruled out", choice.attach.name());
        Self::new(hook, reason, "allow it")
    }

    pub(crate) fn doubtful_field(hook: &Hook, field: &str) -> Self {
        let reason = format!("the kernel's {field} is not where its type information says, or not at all");
        Self::new(hook, reason, "report this kernel's version to whylag's developers")
    }

    pub(crate) fn alone(hook: &Hook, needed: &str) -> Self {
        let reason = format!("it would tell nonsense without {needed}, which does not run");
        Self::new(hook, reason, format!("see what is said of {needed}"))
    }

    pub(crate) fn no_tracepoint(hook: &Hook, tracepoint: &str) -> Self {
        let reason = format!("this kernel has no tracepoint {tracepoint}");
        Self::new(hook, reason, since(tracepoint))
    }

    pub(crate) fn old_tracepoint(hook: &Hook, tracepoint: &str, arguments: u32) -> Self {
        let reason = format!("this kernel passes only {arguments} arguments to {tracepoint}");
        Self::new(hook, reason, "use a newer kernel")
    }

    pub(crate) fn strange_format(hook: &Hook, tracepoint: &str) -> Self {
        let reason = format!("this kernel's format of {tracepoint} is not the one that is known");
        Self::new(hook, reason, "nothing needs to be done; whylag works without")
    }

    pub(crate) fn no_tcx(hook: &Hook) -> Self {
        let reason = "this kernel has no TCX links";
        Self::new(hook, reason, "use kernel 6.6 or newer, or let whylag use clsact")
    }

    pub(crate) fn by_kernel(hook: &Hook, choice: &Choice, error: &ProgramError) -> Self {
        let reason = format!("the kernel refuses {}: {}", choice.program, chain(error));
        Self::new(hook, reason, remedy(error))
    }
}

/// When the kernel got a tracepoint that older ones lack.
fn since(tracepoint: &str) -> String {
    let version = match tracepoint {
        "sk_data_ready" | "sock_recv_length" | "sock_send_length" => "6.3",
        "qdisc_enqueue" => "5.15",
        "mm_filemap_fault" => "6.12",
        _ => return "enable CONFIG_TRACEPOINTS and the subsystem".into(),
    };
    format!("use kernel {version} or newer")
}

/// An error with all its sources, and of a verifier's log the end, where the reason stands.
fn chain(error: &ProgramError) -> String {
    if let ProgramError::LoadError { io_error, verifier_log } = error {
        return format!("{io_error}: {}", verdict(&verifier_log.to_string()));
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The last lines of a verifier's log before its statistics.
fn verdict(log: &str) -> String {
    const LINES: usize = 3;
    const STATISTICS: [&str; 3] = ["verification time", "stack depth", "processed"];
    let is_statistics = |line: &&str| STATISTICS.iter().any(|start| line.starts_with(start));
    let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty() && !is_statistics(line)).collect();
    let from = lines.len().saturating_sub(LINES);
    lines.get(from..).unwrap_or_default().join("; ")
}

fn remedy(error: &ProgramError) -> &'static str {
    if matches!(error, ProgramError::LoadError { verifier_log, .. } if !verifier_log.to_string().is_empty()) {
        return "report this kernel's version to whylag's developers";
    }
    let io_error = match error {
        ProgramError::LoadError { io_error, .. } => Some(io_error),
        ProgramError::SyscallError(error) => Some(&error.io_error),
        _ => None,
    };
    if io_error.and_then(io::Error::raw_os_error) == Some(libc::EMFILE) {
        return "let the process have more files open: `ulimit -n 1024`";
    }
    match io_error.map(io::Error::kind) {
        Some(io::ErrorKind::PermissionDenied) => {
            "run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, in the initial user namespace; see also lockdown"
        }
        _ => "report this kernel's version to whylag's developers",
    }
}

/// Whether a feature is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// It is.
    Yes,
    /// It is not.
    No {
        /// Why.
        reason: String,
        /// What would help.
        fix: String,
    },
    /// It could not be found out.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// A feature of the host that hooks depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// Its public name.
    pub name: &'static str,
    /// What whylag needs it for.
    pub needed_for: &'static str,
    /// Whether it is there.
    pub support: Support,
}

/// Every capability, found out on the first call.
pub fn capabilities() -> &'static [Capability] {
    static FOUND: OnceLock<Vec<Capability>> = OnceLock::new();
    FOUND.get_or_init(probe)
}

fn probe() -> Vec<Capability> {
    let btf = KernelBtf::of_running_kernel();
    let capability = |name, needed_for, support| Capability { name, needed_for, support };
    let mut found = vec![
        capability("privileges", "everything", privileges()),
        capability("lockdown", "reading kernel memory", lockdown()),
        capability("btf", "everything", types(&btf)),
        capability("ring_buffer", "everything", ring_buffer()),
        capability("classifier", "packet stamps", classifier()),
        capability("tcx", "packet stamps that cannot outlive whylag", tcx(&btf)),
    ];
    found.push(capability("user_stacks", "stacks of watched threads in user code", user_stacks()));
    found.extend(HOOKS.iter().flat_map(|hook| tracepoints(hook, &btf)));
    found
}

/// Effective capabilities that whylag uses, by their bit.
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/capability.h>
const PRIVILEGES: [(&str, u32); 3] = [("CAP_BPF", 39), ("CAP_PERFMON", 38), ("CAP_NET_ADMIN", 12)];
const CAP_SYS_ADMIN: u32 = 21;

fn privileges() -> Support {
    let Some(held) = effective_capabilities() else {
        return Support::Unknown { reason: "/proc/self/status does not tell CapEff".into() };
    };
    let has = |bit: u32| held >> bit & 1 == 1;
    let missing: Vec<&str> = PRIVILEGES.iter().filter(|(_, bit)| !has(*bit)).map(|(name, _)| *name).collect();
    // Before 5.8 there was only the one.
    if missing.is_empty() || (has(CAP_SYS_ADMIN) && missing == ["CAP_BPF", "CAP_PERFMON"]) {
        return Support::Yes;
    }
    Support::No {
        reason: format!("this process lacks {}", missing.join(", ")),
        fix: "run whylag as root, or grant it these capabilities".into(),
    }
}

fn effective_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(held.trim(), 16).ok()
}

fn lockdown() -> Support {
    match fs::read_to_string("/sys/kernel/security/lockdown") {
        Ok(modes) if modes.contains("[confidentiality]") => Support::No {
            reason: "the kernel is locked down for confidentiality".into(),
            fix: "boot with lockdown=integrity, or without Secure Boot".into(),
        },
        Ok(_) => Support::Yes,
        // Without the file there is no lockdown to ask about, or securityfs is not mounted.
        Err(error) => Support::Unknown { reason: format!("/sys/kernel/security/lockdown: {error}") },
    }
}

fn types(btf: &Result<KernelBtf, BtfError>) -> Support {
    match btf {
        Ok(_) => Support::Yes,
        Err(error) => {
            Support::No { reason: error.to_string(), fix: "use a kernel with CONFIG_DEBUG_INFO_BTF=y".into() }
        }
    }
}

fn ring_buffer() -> Support {
    tried(is_map_supported(MapType::RingBuf).map_err(ProgramError::from), "ring buffers", "5.8")
}

fn classifier() -> Support {
    tried(is_program_supported(ProgramType::SchedClassifier), "classifier programs", "5.8")
}

fn user_stacks() -> Support {
    match unsafe_kernel() {
        Some(reason) => Support::No { reason, fix: "update the kernel; whylag works without".into() },
        None => tried(is_program_supported(ProgramType::PerfEvent), "programs on a CPU's clock", "5.8"),
    }
}

fn tried(answer: Result<bool, ProgramError>, what: &str, version: &str) -> Support {
    match answer {
        Ok(true) => Support::Yes,
        Ok(false) => {
            Support::No { reason: format!("the kernel refuses {what}"), fix: format!("use kernel {version} or newer") }
        }
        Err(error) => Support::Unknown { reason: chain(&error) },
    }
}

fn tcx(btf: &Result<KernelBtf, BtfError>) -> Support {
    match btf {
        Ok(btf) if btf.has_tcx_function("tcx_link_attach") => Support::Yes,
        Ok(_) => Support::No {
            reason: "the kernel has no TCX links, so whylag adds clsact filters, \
                     which stay behind if it is killed"
                .into(),
            fix: "use kernel 6.6 or newer".into(),
        },
        Err(error) => Support::Unknown { reason: error.to_string() },
    }
}

/// One capability for each tracepoint that a hook can use.
fn tracepoints(hook: &'static Hook, btf: &Result<KernelBtf, BtfError>) -> Option<Capability> {
    let tracepoint = hook.choices.iter().find_map(|choice| match choice.attach {
        Attach::BtfTracepoint { tracepoint, .. } | Attach::TailCall { tracepoint, .. } => Some(tracepoint),
        Attach::Tracepoint { .. } | Attach::Tcx(_) | Attach::Clsact(_) | Attach::CpuClock => None,
    })?;
    let support = match btf {
        Ok(btf) if btf.tracepoint_arguments(tracepoint).is_some() => Support::Yes,
        Ok(_) => Support::No { reason: format!("the kernel has no tracepoint {tracepoint}"), fix: since(tracepoint) },
        Err(error) => Support::Unknown { reason: error.to_string() },
    };
    Some(Capability { name: hook.name, needed_for: hook.tells, support })
}
