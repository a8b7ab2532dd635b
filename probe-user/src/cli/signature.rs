//! `whylag signature`: what whylag can recognise, and whether it does.

use super::args::SignatureCommand;
use super::{Outcome, terminal};
use crate::signature::{self, RuleTable, Signature};
use anyhow::Context;
use std::io::Write;
use std::path::Path;

/// What is looked for when no signature is given: needs no port and no set-up.
pub(super) const DEFAULT_SIGNATURE: &str = "icmp-echo";

/// Runs a subcommand.
pub(super) fn run(command: &SignatureCommand, out: &mut impl Write) -> anyhow::Result<Outcome> {
    match command {
        SignatureCommand::List => {
            let mut list = Vec::new();
            signature::list(&mut list).context("cannot write the list")?;
            out.write_all(terminal::wrapped(&String::from_utf8_lossy(&list)).as_bytes())?;
        }
        SignatureCommand::Test { signature, signatures, capture } => {
            let named: Vec<String> = signature.iter().chain(signatures).cloned().collect();
            test(&named, capture, out)?;
        }
    }
    Ok(Outcome::Healthy)
}

/// Tries the signatures named, or every preset.
fn test(named: &[String], capture: &Path, out: &mut impl Write) -> anyhow::Result<()> {
    let signatures = if named.is_empty() { Vec::new() } else { load(named)?.signatures };
    let mut text = Vec::new();
    let trial = signature::test(capture, &signatures, &mut text).with_context(|| capture.display().to_string())?;
    out.write_all(terminal::wrapped(&String::from_utf8_lossy(&text)).as_bytes())?;
    match trial.truncated_at {
        None => Ok(()),
        Some(at) => anyhow::bail!("{} is cut off behind byte {at}; all before it was read", capture.display()),
    }
}

/// Signatures and their rules, numbered for parser and programs.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) signatures: Vec<Signature>,
    pub(super) table: RuleTable,
}

/// Reads the signatures that the arguments name, in their order.
///
/// # Errors
/// What is no signature is wrong usage; a file that cannot be read is not.
pub(super) fn load(arguments: &[String]) -> anyhow::Result<Chosen> {
    let mut signatures = Vec::new();
    for argument in arguments {
        signatures.extend(signature::load(argument).map_err(usage_or_file)?);
    }
    let table = RuleTable::new(&signatures).map_err(|fault| super::UsageError(fault.to_string()))?;
    Ok(Chosen { signatures, table })
}

fn usage_or_file(error: signature::LoadError) -> anyhow::Error {
    match error {
        error @ (signature::LoadError::Text { .. } | signature::LoadError::File { .. }) => {
            super::UsageError(format!("{:#}", anyhow::Error::from(error))).into()
        }
        error => error.into(),
    }
}
