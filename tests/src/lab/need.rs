//! What a case needs of the machine that not every machine has, and what this one lacks of it.

use super::case::{Case, Fault, Server};
use super::cgroup::{CpuGroup, FreezerGroup, IoGroup, MemoryGroup};
use super::firewall;
use super::software::fetch;
use super::workload::{DISK_THROTTLE, Hold, mapper_tools};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a case needs, beyond what all cases do.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Parts of the kernel.
    pub modules: &'static [Module],
    /// It changes what all of a machine share, so it needs one that is the lab's alone.
    pub own_machine: bool,
}

/// A part of the kernel that is often a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module {
    /// As `modprobe` knows it.
    pub name: &'static str,
    /// A function of it, by which it is found in `/proc/kallsyms`, built in or loaded.
    pub symbol: &'static str,
}

impl Need {
    /// Nothing.
    pub const NOTHING: Self = Self { modules: &[], own_machine: false };

    /// Whether a machine may lack it.
    #[must_use]
    pub const fn is_special(&self) -> bool {
        self.own_machine || !self.modules.is_empty()
    }

    /// In words, if a machine may lack it.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let own = self.own_machine.then(|| "a virtual machine of the lab's".to_owned());
        let names: Vec<&str> = self.modules.iter().map(|module| module.name).collect();
        let modules = (!names.is_empty()).then(|| format!("the kernel's {}", names.join(", ")));
        self.is_special().then(|| own.into_iter().chain(modules).collect::<Vec<_>>().join(" and "))
    }

    /// What this machine lacks of it.
    fn missing(&self) -> Option<String> {
        if self.own_machine && !is_own_machine() {
            return Some("it changes what all of a machine share: cargo xtask vm run runs it in one of its own".into());
        }
        let missing = self.modules.iter().find(|module| !module.is_there())?;
        Some(format!("this kernel has no {}", missing.name))
    }
}

impl Module {
    /// Whether it is in the kernel, or can be loaded into it.
    fn is_there(&self) -> bool {
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        has_symbol(&symbols, self.symbol) || self.can_be_loaded()
    }

    fn can_be_loaded(&self) -> bool {
        let mut command = Command::new("modprobe");
        command.args(["--dry-run", "--quiet", self.name]).stdin(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// Lines are `ADDRESS TYPE NAME`, and of a module ` [MODULE]` behind it.
fn has_symbol(symbols: &str, name: &str) -> bool {
    symbols.lines().any(|line| line.split_whitespace().nth(2) == Some(name))
}

/// Whether the first process is the lab.
fn is_own_machine() -> bool {
    let program = |process: &str| fs::read_link(format!("/proc/{process}/exe")).ok();
    program("1").is_some_and(|first| Some(first) == program("self"))
}

impl Case {
    /// Why it cannot run on this machine, if it cannot. What it needs of Debian is fetched.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let fault = missing(self).map(|missing| format!("this host has no {missing}"));
        let packages = || self.unpacked().err().map(|why| format!("{why:#}"));
        self.needs.missing().or(fault).or_else(packages)
    }

    /// The roots of the unpacked packages that it needs of Debian; they are downloaded if they are
    /// not there.
    ///
    /// # Errors
    /// They cannot be had.
    pub fn unpacked(&self) -> Result<Vec<PathBuf>> {
        let server = match self.server {
            Server::Real(real) => Some((real.software.bundle(), fetch::unpacked(real.software))),
            Server::Process(_) | Server::Vm(_) | Server::Guest(_) => None,
        };
        let disk = (!self.disk.packages().is_empty()).then(|| (self.disk.name(), self.disk.tools()));
        let rules = self.fault.rules_by().map(|program| (program.name(), firewall::unpacked(program)));
        let mapper = (self.fault == Fault::SlowDevice(Hold::Mapped)).then(|| ("dmsetup", mapper_tools()));
        let found = [server, disk, rules, mapper].into_iter().flatten();
        found.map(|(name, root)| root.with_context(|| format!("{name} cannot be had from Debian"))).collect()
    }
}

/// What a fault or a guest needs and this host does not have.
fn missing(case: &Case) -> Option<&'static str> {
    let lacks = |path: &'static str| (!Path::new(path).exists()).then_some(path);
    let guest = case.has_kvm().then(|| lacks("/dev/kvm").or_else(|| lacks("/dev/vhost-net"))).flatten();
    guest.or_else(|| match case.fault {
        Fault::VcpusFrozen if !FreezerGroup::exists() => Some("freezer of version 1"),
        Fault::Quota { .. } if matches!(case.server, Server::Guest(_)) && !CpuGroup::takes_threads() => {
            Some("cpu controller that takes single threads of a VMM: of version 1, or of the root of version 2")
        }
        Fault::MemoryLimit if !MemoryGroup::exists() => Some("memory controller of version 1"),
        Fault::SlowDevice(hold) if hold.is_by_group() && !IoGroup::exists() => Some("io controller of version 2"),
        Fault::LateFile => lacks("/dev/fuse"),
        fault if fault.freezes_disk() => lacks(DISK_THROTTLE),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::{Need, has_symbol};
    use crate::lab::case::CASES;

    #[test]
    fn a_part_of_the_kernel_is_found_built_in_or_loaded() {
        let symbols = "0000000000000000 t netem_enqueue\t[sch_netem]\n0000000000000000 T nf_conntrack_in\n";
        assert!(has_symbol(symbols, "netem_enqueue") && has_symbol(symbols, "nf_conntrack_in"));
        assert!(!has_symbol(symbols, "sch_netem") && !has_symbol(symbols, "netem"));
    }

    #[test]
    fn what_is_special_is_said() {
        assert_eq!(Need::NOTHING.text(), None);
        for case in CASES.iter().filter(|case| case.needs.is_special()) {
            assert!(case.needs.text().is_some_and(|text| !text.is_empty()), "{}", case.name);
        }
    }
}
