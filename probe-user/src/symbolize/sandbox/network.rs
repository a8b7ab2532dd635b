//! What the child gives up that fetches: everything but to connect, and to write what it is handed.

use super::{CALLS, Fallible, MEMORY, drop_privileges, masked};
use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope, path_beneath_rules};
use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule};
use std::collections::BTreeMap;

/// Most CPU time, seconds: of a connection with TLS and half a gigabyte, much less is used.
const CPU_SECONDS: u64 = 30;
/// The requests of `ioctl` for what can be read and for waiting or not; the same on all
/// architectures that are served.
const FIONREAD: u64 = 0x541b;
const FIONBIO: u64 = 0x5421;
/// Where it is written how names of hosts are looked up.
const RESOLVER_FILES: [&str; 2] = ["/etc", "/run/systemd/resolve"];

/// Unlike one that reads files, this child does not start where a layer is missing: nobody needs
/// debug files from elsewhere that badly. Landlock, which older kernels lack, is the exception.
pub(in super::super) fn enter() -> Fallible {
    drop_privileges()?;
    limit()?;
    // The calls are forbidden all the same.
    let _ = forbid_names();
    forbid_calls()
}

fn limit() -> Fallible {
    let at_most = |most| Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Core, at_most(0))?;
    setrlimit(Resource::Fsize, at_most(super::super::cache::MAX_FILE))?;
    setrlimit(Resource::Nproc, at_most(0))?;
    setrlimit(Resource::Nofile, at_most(32))?;
    setrlimit(Resource::Cpu, at_most(CPU_SECONDS))?;
    setrlimit(Resource::As, at_most(MEMORY))?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

fn forbid_names() -> Fallible {
    let newest = ABI::V6;
    Ruleset::default()
        .handle_access(AccessFs::from_all(newest))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(newest))?
        .create()?
        .add_rules(path_beneath_rules(RESOLVER_FILES, AccessFs::ReadFile | AccessFs::ReadDir))?
        .restrict_self()?;
    Ok(())
}

/// Beside those of a child that reads.
const MORE_CALLS: [i64; 19] = [
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_fcntl,
    libc::SYS_newfstatat,
    libc::SYS_uname,
    libc::SYS_getpid,
];

/// Anything else is refused, not deadly: what the C library tries when it looks up a name differs
/// between hosts.
fn forbid_calls() -> Fallible {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        CALLS.iter().chain(&MORE_CALLS).map(|call| (*call, Vec::new())).collect();
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_poll, Vec::new());
    let is = |argument, value: libc::c_int| -> Result<SeccompRule, seccompiler::BackendError> {
        SeccompRule::new(vec![masked(argument, u64::from(u32::MAX), u64::from(value.unsigned_abs()))?])
    };
    rules.insert(libc::SYS_socket, vec![is(0, libc::AF_INET)?, is(0, libc::AF_INET6)?, is(0, libc::AF_NETLINK)?]);
    let (readable, nonblocking) = (masked(1, u64::from(u32::MAX), FIONREAD)?, masked(1, u64::from(u32::MAX), FIONBIO)?);
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(vec![readable])?, SeccompRule::new(vec![nonblocking])?]);
    let writes = u64::from((libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC).unsigned_abs());
    rules.insert(libc::SYS_openat, vec![SeccompRule::new(vec![masked(2, writes, 0)?])?]);
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![SeccompRule::new(vec![masked(2, executable, 0)?])?]);
    }
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)?;
    Ok(())
}
