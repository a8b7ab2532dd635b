//! `cargo xtask bench`: what whylag costs, beside what a user would otherwise run.

use anyhow::{Context, Result, ensure};

use crate::{packages, setup, workspace};

/// Debian packages whose programs are measured for comparison.
const COMPARED: &[&str] = &["tcpdump", "linux-perf", "bpftrace", "libdevel-nytprof-perl"];

/// Sets up, builds for release, and measures; all if no `names` are given.
pub(crate) fn run(json: bool, names: &[String]) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "measuring loads kernel programs: run it as root");
    setup::run()?;
    packages::ensure(&["iproute2"])?;
    if let Err(missing) = packages::ensure(COMPARED) {
        eprintln!("without what is absent of {}: {missing:#}", COMPARED.join(", "));
    }
    let mut command = workspace::cargo();
    command.args(["bench", "--quiet", "-p", "probe-user", "--bench", "cost", "--"]).args(names);
    if json {
        command.arg("--json");
    }
    workspace::run("bench", &mut command).context("a measurement could not be made")
}
