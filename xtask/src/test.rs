//! `cargo xtask test`: all a fresh machine needs to say whether this source is good.

use anyhow::Result;

use crate::{ci, packages, setup, workspace};

/// Debian packages that the tests call.
const PACKAGES: &[&str] = &[];

/// Sets up, installs what the tests need, runs them, then the gate.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    packages::ensure(PACKAGES)?;
    workspace::run(
        "tests",
        workspace::cargo().args(["test", "--workspace", "--no-fail-fast"]),
    )?;
    ci::gate()
}
