//! `whylag incident list`.

use super::ListArgs;
use crate::attribution::CAUSES;
use crate::bundle::{Facets, Found, Skipped, search};
use crate::cli::args::Format;
use crate::cli::{Outcome, UsageError, terminal};
use crate::sink::{percent, printable};
use anyhow::Context;
use serde::Serialize;
use std::io::{self, Write};

/// Where further rows of an incident begin, and its path stands.
const HANG: usize = 4;

/// Runs the command. A bundle that cannot be read is a failure, when the others have been told.
pub(super) fn run(args: &ListArgs) -> anyhow::Result<Outcome> {
    args.cause.iter().try_for_each(|name| check_cause(name))?;
    let facets = Facets {
        causes: args.cause.clone(),
        components: args.component.clone(),
        targets: args.target.clone(),
        signatures: args.signature.clone(),
    };
    let mut out = io::stdout().lock();
    let (mut count, mut failed) = (0, None);
    let skipped = search(&args.paths, &facets, &mut |found| {
        count += 1;
        if failed.is_none() {
            failed = write(&found, args.format, &mut out).err();
        }
    });
    failed.map_or(Ok(()), |error| Err(error).context("cannot write the list"))?;
    if count == 0 && args.format == Format::Text {
        terminal::say(&format!("no bundle in {} fits", paths(args)));
    }
    let outcome = if skipped.is_empty() { Outcome::Healthy } else { Outcome::Broken };
    for Skipped { path, reason } in skipped {
        terminal::say(&format!("{}: {}", path.display(), terminal::sentence(&reason.into())));
    }
    Ok(outcome)
}

fn paths(args: &ListArgs) -> String {
    let paths: Vec<_> = args.paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

/// A typing error would find nothing and look like an answer.
fn check_cause(wanted: &str) -> Result<(), UsageError> {
    let is_named = |name: &str| name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    match CAUSES.iter().any(|row| is_named(row.name)) {
        true => Ok(()),
        false => Err(UsageError(format!("--cause {wanted}: no cause is called so; `whylag explain` lists all"))),
    }
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    incident: &'a crate::bundle::IncidentRecord,
    path: String,
}

fn write(found: &Found, format: Format, out: &mut impl Write) -> io::Result<()> {
    let path = found.path.display().to_string();
    if format == Format::Json {
        serde_json::to_writer(&mut *out, &Line { incident: &found.incident, path })?;
        return writeln!(out);
    }
    let incident = &found.incident;
    let verdict = incident.verdicts.first().map_or_else(
        || if incident.counts.checks == 0 { "nothing seen" } else { "healthy" }.to_owned(),
        |verdict| {
            let share = verdict.share.map_or_else(String::new, |share| format!(" {}", percent(share)));
            format!("{}{share}", verdict.cause.as_deref().unwrap_or(&verdict.status))
        },
    );
    let started = incident.started_at.as_deref().and_then(|at| at.get(..19)).unwrap_or("-");
    let line = format!("{started}  {verdict}  {}", incident.symptom);
    terminal::rows(&printable(&line), HANG).iter().try_for_each(|row| writeln!(out, "{row}"))?;
    writeln!(out, "{:HANG$}{}", "", printable(&path))
}
