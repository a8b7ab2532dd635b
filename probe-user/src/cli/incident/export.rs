//! `whylag incident export`.

use super::ExportArgs;
use crate::bundle::{self, Addresses, Export, IncidentRecord, looks_like_a_bundle};
use crate::cli::{Outcome, UsageError, terminal};
use crate::file;
use crate::source::recording::Reader;
use anyhow::Context;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Runs the command. Of a recording with damage, what can be read goes in, then it is a failure.
pub(super) fn run(args: &ExportArgs) -> anyhow::Result<Outcome> {
    let (from, to) = (args.from.display(), args.output.display());
    file::may_be_created(&args.output).map_err(|error| UsageError(format!("--output {to}: {error}")))?;
    let signer = args
        .sign_key
        .as_deref()
        .map(|path| bundle::secret_key(path).with_context(|| format!("--sign-key {}", path.display())));
    let signer = signer.transpose()?;
    let reader = open(&args.from).with_context(|| format!("cannot read {from}"))?;
    let addresses = if args.addresses { Addresses::Plain } else { Addresses::Pseudonyms };
    let how = Export { to: &args.output, addresses, signer: signer.as_ref() };
    let exported = bundle::export(reader, &how).with_context(|| format!("cannot make the bundle {to}"))?;
    terminal::say(&said(&exported.incident, &args.output));
    match exported.damage {
        None => Ok(Outcome::Healthy),
        Some(damage) => {
            Err(damage).with_context(|| format!("only a part of {from} could be read, and is in the bundle"))
        }
    }
}

/// A bundle in a bundle would claim pseudonyms of pseudonyms to be addresses.
fn open(path: &Path) -> anyhow::Result<Reader<File>> {
    let mut file = file::open(path)?;
    let mut start = [0; 32];
    let got = file.read(&mut start)?;
    anyhow::ensure!(!looks_like_a_bundle(start.get(..got).unwrap_or_default()), "this is a bundle already");
    file.seek(SeekFrom::Start(0))?;
    Ok(Reader::new(file)?)
}

fn said(incident: &IncidentRecord, path: &Path) -> String {
    format!("incident {} is in {}: {}", incident.id, path.display(), incident.symptom)
}
