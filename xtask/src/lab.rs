//! `cargo xtask lab`: the lab, built and ready, with the arguments it is given.

use anyhow::Result;
use std::process::Command;

use crate::{demo, workspace};

/// Builds the lab and whylag, and runs `lab` with `arguments`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    demo::prepare()?;
    workspace::run("lab", Command::new(demo::built("lab")).args(arguments))
}
