//! What a child gives up before it looks at anything: everything but to read what it is handed.

use caps::CapSet;
use landlock::{ABI, Access, AccessFs, AccessNet, RestrictionStatus, Ruleset, RulesetAttr, RulesetStatus, Scope};
use rustix::process::{Gid, Resource, Rlimit, Signal, Uid, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;

pub(super) mod network;

/// Most memory of a child, its own code included: address space in bytes.
const MEMORY: u64 = 1 << 30;
/// Most CPU time of a child in seconds; it is replaced before.
pub(super) const CPU_SECONDS: u64 = 60;
/// `nobody`, by convention of every distribution.
const NOBODY: u32 = 65534;

/// What holds a child that reads hostile files. Each is `None` if it is in force, else why not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// It has no capability, cannot gain one, and is not root.
    pub privileges: Option<String>,
    /// Its memory and CPU time are bounded, and it dumps no core.
    pub limits: Option<String>,
    /// It reaches no file and no network by name (Landlock).
    pub landlock: Option<String>,
    /// It may do a handful of system calls (seccomp).
    pub seccomp: Option<String>,
}

impl Sandbox {
    /// Nothing is missing.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.privileges.is_none() && self.limits.is_none() && self.landlock.is_none() && self.seccomp.is_none()
    }

    /// What is missing, by name, with the reason.
    pub fn missing(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let layers = [
            ("privileges", &self.privileges),
            ("limits", &self.limits),
            ("Landlock", &self.landlock),
            ("seccomp", &self.seccomp),
        ];
        layers.into_iter().filter_map(|(name, reason)| Some((name, reason.as_deref()?)))
    }
}

type Fallible = Result<(), Box<dyn Error>>;

/// Gives everything up that can be given up, for the calling thread, which should be the only one.
/// Goes on where the kernel lacks something.
pub(super) fn enter() -> Sandbox {
    let told = |layer: Fallible| layer.err().map(|error| error.to_string());
    Sandbox {
        privileges: told(drop_privileges()),
        limits: told(limit()),
        landlock: told(forbid_names()),
        seccomp: told(forbid_calls()),
    }
}

/// The order matters: to drop from the bounding set takes a capability, to become nobody too, and
/// a change of user forgets the signal for the parent's death.
fn drop_privileges() -> Fallible {
    caps::clear(None, CapSet::Ambient)?;
    if rustix::process::geteuid().is_root() {
        let bounding = caps::clear(None, CapSet::Bounding);
        become_nobody()?;
        bounding?;
    }
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        caps::clear(None, set)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    die_with_parent()?;
    Ok(())
}

fn become_nobody() -> Fallible {
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// A parent that is dead already is noticed at its closed socket.
pub(super) fn die_with_parent() -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

fn limit() -> Fallible {
    let at_most = |most| Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Core, at_most(0))?;
    setrlimit(Resource::Fsize, at_most(0))?;
    setrlimit(Resource::Nproc, at_most(0))?;
    setrlimit(Resource::Cpu, at_most(CPU_SECONDS))?;
    setrlimit(Resource::As, at_most(MEMORY))?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Best effort of the crate: the rights that this kernel knows.
fn forbid_names() -> Fallible {
    let newest = ABI::V6;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(newest))?
        .handle_access(AccessNet::from_all(newest))?
        .scope(Scope::from_all(newest))?
        .create()?
        .restrict_self()?;
    told_by(&status)
}

fn told_by(status: &RestrictionStatus) -> Fallible {
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced => Err("this kernel's Landlock is older and forbids files only".into()),
        RulesetStatus::NotEnforced => Err("this kernel has no Landlock, or it is not among its `lsm=`".into()),
    }
}

/// What is left: to read at offsets, to answer, to have memory, to end.
const CALLS: [i64; 21] = [
    libc::SYS_pread64,
    libc::SYS_fstat,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_close,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_sched_yield,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigaction,
    libc::SYS_sigaltstack,
    libc::SYS_gettid,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Anything else ends the child at once.
fn forbid_calls() -> Fallible {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    let (anonymous, error_output) = (u64::from(libc::MAP_ANONYMOUS.unsigned_abs()), 2);
    let memory = vec![masked(2, executable, 0)?, masked(3, anonymous, anonymous)?];
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(memory)?]);
    rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![masked(2, executable, 0)?])?]);
    rules.insert(libc::SYS_write, vec![SeccompRule::new(vec![masked(0, u64::from(u32::MAX), error_output)?])?]);
    // A debug build looks at a file before it closes it.
    let look = u64::from(libc::F_GETFD.unsigned_abs());
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(vec![masked(1, u64::from(u32::MAX), look)?])?]);
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}

/// An argument, masked, has a value.
fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), value)
}

#[cfg(test)]
mod tests;
