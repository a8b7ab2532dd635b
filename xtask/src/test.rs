//! `cargo xtask test`: all a fresh machine needs to say whether this source is good.

use anyhow::Result;

use crate::{ci, demo, packages, setup, vm, workspace};

/// Sets up, installs what the tests need, runs them, then the gate.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    packages::ensure(demo::PACKAGES)?;
    vm::prepare();
    workspace::run("tests", workspace::cargo().args(["test", "--workspace", "--no-fail-fast"]))?;
    vm::smoke()?;
    ci::gate()
}
