//! A firewall rule on a host, by Debian's `iptables`, which the machine need not have installed.

use super::netns::Netns;
use super::software::fetch;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// Its packages. It brings a form for kernels with nftables and one for those without.
const PACKAGES: &[&str] = &["iptables", "libxtables12", "libip4tc2", "libip6tc2"];
/// The program for kernels without nftables.
const PROGRAM: &str = "usr/sbin/xtables-legacy-multi";
/// Its extensions, such as the target of a rule.
const EXTENSIONS: &str = "usr/lib/x86_64-linux-gnu/xtables";

/// The root of its unpacked packages; they are downloaded if they are not there.
///
/// # Errors
/// They cannot be had.
pub(super) fn unpacked() -> Result<PathBuf> {
    fetch::bundle("iptables", PACKAGES, &[])
}

/// Changes the rules of a host's network namespace, with arguments as `iptables` takes them.
///
/// # Errors
/// The packages cannot be had, or the kernel refuses the rule.
pub(super) fn change(netns: &Netns, args: &str) -> Result<()> {
    let root = unpacked()?;
    let mut command = netns.command(&root.join(PROGRAM));
    command.env("LD_LIBRARY_PATH", fetch::library_path(&root)).env("XTABLES_LIBDIR", root.join(EXTENSIONS));
    command.env("XTABLES_LOCKFILE", lock(&root));
    let output = command.arg("iptables").args(args.split_whitespace()).output().context("start iptables")?;
    ensure!(output.status.success(), "iptables {args}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Two labs may change rules at once, though never those of one namespace.
fn lock(root: &Path) -> PathBuf {
    root.join("lock")
}
