//! Firewall rules of a host, by Debian's programs, which the machine need not have installed.

use super::netns::Netns;
use super::software::fetch;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that makes rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// `iptables`, in its form for kernels without nftables.
    Iptables,
    /// `nft`.
    Nftables,
}

impl Rules {
    /// Its name, here and in the cache.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
        }
    }

    /// What it consists of, beside the C library.
    const fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Iptables => &["iptables", "libxtables12", "libip4tc2", "libip6tc2"],
            Self::Nftables => &[
                "nftables",
                "libnftables1",
                "libnftnl11",
                "libmnl0",
                "libxtables12",
                "libjansson4",
                "libgmp10",
                "libedit2",
                "libbsd0",
                "libmd0",
                "libtinfo6",
            ],
        }
    }

    /// Under the root of its packages.
    const fn program(self) -> &'static str {
        match self {
            Self::Iptables => "usr/sbin/xtables-legacy-multi",
            Self::Nftables => "usr/sbin/nft",
        }
    }
}

/// Extensions of iptables, such as the target of a rule.
const EXTENSIONS: &str = "usr/lib/x86_64-linux-gnu/xtables";

/// The root of a program's unpacked packages; they are downloaded if they are not there.
///
/// # Errors
/// They cannot be had.
pub(super) fn unpacked(rules: Rules) -> Result<PathBuf> {
    fetch::bundle(rules.name(), rules.packages(), &[])
}

/// Changes the rules of a host's network namespace, with arguments as `iptables` takes them.
///
/// # Errors
/// The packages cannot be had, or the kernel refuses the rule.
pub(super) fn iptables(netns: &Netns, args: &str) -> Result<()> {
    let root = unpacked(Rules::Iptables)?;
    let mut command = command(netns, Rules::Iptables, &root);
    command.env("XTABLES_LIBDIR", root.join(EXTENSIONS)).env("XTABLES_LOCKFILE", lock(&root));
    run(command.arg("iptables"), args).map(drop)
}

/// Runs commands in a host's network namespace, as `nft` takes them; what it says.
///
/// # Errors
/// As [`iptables`].
pub(super) fn nft(netns: &Netns, commands: &str) -> Result<String> {
    let root = unpacked(Rules::Nftables)?;
    run(&mut command(netns, Rules::Nftables, &root), commands)
}

fn command(netns: &Netns, rules: Rules, root: &Path) -> Command {
    let mut command = netns.command(&root.join(rules.program()));
    command.env("LD_LIBRARY_PATH", fetch::library_path(root));
    command
}

fn run(command: &mut Command, args: &str) -> Result<String> {
    let output = command.args(args.split_whitespace()).output().with_context(|| format!("start {command:?}"))?;
    ensure!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Two labs may change rules at once, though never those of one namespace.
fn lock(root: &Path) -> PathBuf {
    root.join("lock")
}
