//! `whylag report`: one HTML page that tells a recording's incident to somebody who was not there.

use super::Outcome;
use super::args::ReportArgs;
use super::destination::Destination;
use super::input::{Input, in_part};
use crate::pipeline::Collector;
use crate::report::Report;
use crate::source::recording::RecordingError;
use anyhow::Context;
use std::path::Path;

/// Runs the command. Of a recording with damage, what can be read is told, then it is a failure.
pub(super) fn run(args: &ReportArgs) -> anyhow::Result<Outcome> {
    let to = Destination::new(Some(&args.output))?;
    let (mut report, damage) = read(&args.file)?;
    if let Some(damage) = &damage {
        report.damaged(&damage.to_string());
    }
    match (report.finish(), damage) {
        (Ok(page), damage) => {
            to.write(page.html().as_bytes())?;
            damage.map_or(Ok(Outcome::Healthy), |damage| Err(in_part(damage, &args.file, "read")))
        }
        (Err(nothing), None) => Err(nothing).with_context(|| format!("nothing to report of {}", args.file.display())),
        (Err(_), Some(damage)) => Err(in_part(damage, &args.file, "read, with nothing to report")),
    }
}

fn read(path: &Path) -> anyhow::Result<(Report, Option<RecordingError>)> {
    let mut input = Input::open(path)?;
    let mut collector = Collector::new().telling_hops().telling_activities();
    let mut report = Report::new();
    if let Some(manifest) = input.bundle.take() {
        report.came_in(manifest);
    }
    let damage = input.drain(&mut |record| collector.push(record, &mut |output| report.push(&output)));
    collector.finish(&mut |output| report.push(&output));
    Ok((report, damage))
}
