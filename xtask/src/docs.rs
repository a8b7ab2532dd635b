//! `cargo xtask docs`: the reference, from the tables in the code.

use anyhow::{Context, Result};

use crate::{setup, workspace};

/// Where the reference lies in the workspace.
const DIRECTORY: &str = "docs/reference";

/// Writes the reference.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    workspace::run("reference", workspace::cargo().args(GENERATOR).arg(DIRECTORY))
}

/// Fails when the reference is not what would be written.
pub(crate) fn check() -> Result<()> {
    workspace::run("reference", workspace::cargo().args(GENERATOR).args(["--check", DIRECTORY]))
        .context("docs/reference does not tell what the code does; run: cargo xtask docs")
}

const GENERATOR: [&str; 7] = ["run", "--quiet", "-p", "probe-user", "--example", "reference", "--"];
