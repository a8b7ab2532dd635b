//! `whylag incident verify`.

use super::{VerifyArgs, whole};
use crate::bundle;
use crate::cli::Outcome;
use crate::sink::printable;
use anyhow::Context;
use std::io::{self, Write};

/// Runs the command.
pub(super) fn run(args: &VerifyArgs) -> anyhow::Result<Outcome> {
    let wanted =
        args.key.as_deref().map(|path| bundle::public_key(path).with_context(|| format!("--key {}", path.display())));
    let wanted = wanted.transpose()?;
    let path = args.bundle.display().to_string();
    let mut bundle = whole(&args.bundle)?;
    bundle.check_sense().with_context(|| path.clone())?;
    wanted.map_or(Ok(()), |key| bundle.check_signer(&key)).with_context(|| path.clone())?;
    let signed = match (bundle.signer(), wanted) {
        (Some(key), Some(_)) => format!("signed by the key that was asked for, {}", key.fingerprint()),
        (Some(key), None) => format!("signed by key {}; with --key it is checked who that is", key.fingerprint()),
        (None, _) => "not signed, so anybody could have made it".to_owned(),
    };
    let members = bundle.manifest().members.len();
    writeln!(io::stdout(), "{}: whole, {members} members that make sense; {signed}", printable(&path))?;
    Ok(Outcome::Healthy)
}
