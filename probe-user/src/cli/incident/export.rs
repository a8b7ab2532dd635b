//! `whylag incident export`.

use super::ExportArgs;
use crate::bundle::{self, Addresses, Export, IncidentRecord};
use crate::cli::destination::named;
use crate::cli::input::{Input, in_part};
use crate::cli::{Outcome, terminal};
use anyhow::Context;
use std::path::Path;

/// Runs the command. Of a recording with damage, what can be read goes in, then it is a failure.
pub(super) fn run(args: &ExportArgs) -> anyhow::Result<Outcome> {
    named(&args.output, "--output")?;
    let signer = args
        .sign_key
        .as_deref()
        .map(|path| bundle::secret_key(path).with_context(|| format!("--sign-key {}", path.display())));
    let signer = signer.transpose()?;
    let Input { reader, bundle } = Input::open(&args.from)?;
    anyhow::ensure!(bundle.is_none(), "cannot make a bundle of {}: this is a bundle already", args.from.display());
    let addresses = if args.addresses { Addresses::Plain } else { Addresses::Pseudonyms };
    let how = Export { to: &args.output, addresses, signer: signer.as_ref() };
    let exported = bundle::export(reader, &how);
    let exported = exported.with_context(|| format!("cannot make the bundle {}", args.output.display()))?;
    terminal::say(&said(&exported.incident, &args.output));
    if exported.addresses != addresses {
        terminal::say("addresses in the recording are pseudonyms, and so they are in the bundle, --addresses or not");
    }
    match exported.damage {
        None => Ok(Outcome::Healthy),
        Some(damage) => Err(in_part(damage, &args.from, "read, and is in the bundle")),
    }
}

fn said(incident: &IncidentRecord, path: &Path) -> String {
    format!("incident {} is in {}: {}", incident.id, path.display(), incident.symptom)
}
