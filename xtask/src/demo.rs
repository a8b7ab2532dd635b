//! `cargo xtask demo`: from a fresh checkout to a first verdict.

use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

use crate::{packages, setup, workspace};

/// Debian packages that the lab calls.
pub(crate) const PACKAGES: &[&str] = &["iproute2"];

/// Sets up, builds, and shows whylag at work.
pub(crate) fn run() -> Result<()> {
    prepare()?;
    workspace::run("demo", Command::new(built("lab")).arg("demo"))
}

/// Makes ready what the lab needs: toolchain, packages, binaries.
pub(crate) fn prepare() -> Result<()> {
    setup::run()?;
    packages::ensure(PACKAGES)?;
    workspace::run("build", workspace::cargo().args(["build", "--release", "-p", "probe-user", "-p", "probe-tests"]))
}

/// A binary of the release build.
pub(crate) fn built(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| workspace::root().join("target")).join("release").join(name)
}
