//! `whylag report`: one HTML page that tells a recording's incident to somebody who was not there.

use super::args::ReportArgs;
use super::{Outcome, UsageError, replay};
use crate::file;
use crate::pipeline::Collector;
use crate::report::{Page, Report};
use crate::source::recording::RecordingError;
use anyhow::Context;
use std::io::Write;
use std::path::Path;

/// Runs the command. Of a recording with damage, what can be read is told, then it is a failure.
pub(super) fn run(args: &ReportArgs) -> anyhow::Result<Outcome> {
    let output = &args.output;
    file::may_be_created(output).map_err(|error| UsageError(format!("--output {}: {error}", output.display())))?;
    let path = args.file.display();
    let (mut report, damage) = read(&args.file)?;
    let in_part = || format!("only a part of {path} could be read");
    if let Some(damage) = &damage {
        report.damaged(&damage.to_string());
    }
    match (report.finish(), damage) {
        (Ok(page), None) => write(&page, output)?,
        (Ok(page), Some(damage)) => {
            write(&page, output)?;
            return Err(damage).with_context(in_part);
        }
        (Err(nothing), None) => return Err(nothing).with_context(|| format!("nothing to report of {path}")),
        (Err(_), Some(damage)) => return Err(damage).with_context(|| format!("{}, with nothing to report", in_part())),
    }
    Ok(Outcome::Healthy)
}

fn read(path: &Path) -> anyhow::Result<(Report, Option<RecordingError>)> {
    let opened = replay::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut collector = Collector::new().telling_hops().telling_activities();
    let mut report = Report::new();
    let mut reader = opened.reader;
    if let Some(manifest) = opened.bundle {
        report.came_in(manifest);
    }
    let mut damage = None;
    while let Some(record) = reader.next_record() {
        match record {
            Ok(record) => collector.push(record, &mut |output| report.push(&output)),
            Err(error) => damage = Some(error),
        }
    }
    collector.finish(&mut |output| report.push(&output));
    Ok((report, damage))
}

fn write(page: &Page, path: &Path) -> anyhow::Result<()> {
    let written = file::create(path).and_then(|mut file| file.write_all(page.html().as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}
