//! Where a command's result goes: a file, whole or not at all, or standard output.

use super::UsageError;
use crate::file;
use anyhow::Context;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// As `--output` says it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Destination<'a> {
    /// `-`, or not said.
    Stdout,
    /// New or empty.
    File(&'a Path),
}

impl<'a> Destination<'a> {
    /// What `--output` names; said before any work is done if it cannot be written.
    pub(super) fn new(output: Option<&'a Path>) -> Result<Self, UsageError> {
        match output {
            None => Ok(Self::Stdout),
            Some(path) if is_dash(path) => Ok(Self::Stdout),
            Some(path) => check(path, "--output").map(|()| Self::File(path)),
        }
    }

    /// A person looks at it, not a program.
    pub(super) fn is_terminal(self) -> bool {
        matches!(self, Self::Stdout) && io::stdout().is_terminal()
    }

    /// Writes all of it.
    pub(super) fn write(self, bytes: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
                written.context("cannot write to standard output")
            }
            Self::File(path) => {
                let written = file::write_whole(path, |to| to.write_all(bytes));
                written.with_context(|| format!("cannot write {}", path.display()))
            }
        }
    }
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A file that must have a name, as what is written there cannot go through a pipe.
pub(super) fn named(path: &Path, option: &str) -> Result<(), UsageError> {
    match is_dash(path) {
        true => Err(UsageError(format!("{option} -: it needs a file; ./- is one of that name"))),
        false => check(path, option),
    }
}

fn check(path: &Path, option: &str) -> Result<(), UsageError> {
    let new = file::may_be_created(path);
    new.map(drop).map_err(|error| UsageError(format!("{option} {}: {error}", path.display())))
}
