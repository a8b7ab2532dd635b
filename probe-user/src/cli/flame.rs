//! `whylag flame`: a flame graph of where the time of a recording's slow checks went.

use super::args::{FlameArgs, FlameFormat, FlameKind};
use super::{Outcome, UsageError, replay};
use crate::file;
use crate::flame::{Empty, Flame, Graph};
use crate::pipeline::Collector;
use crate::source::recording::RecordingError;
use anyhow::Context;
use std::io::{self, Write};
use std::path::Path;

/// Runs the command. Of a recording with damage, what can be read is drawn, then it is a failure.
pub(super) fn run(args: &FlameArgs) -> anyhow::Result<Outcome> {
    if let Some(path) = &args.output {
        file::may_be_created(path).map_err(|error| UsageError(format!("--output {}: {error}", path.display())))?;
    }
    let path = args.file.display();
    let (flame, damage) = read(&args.file)?;
    let in_part = || format!("only a part of {path} could be read");
    match (drawn(args, &flame, damage.is_some()), damage) {
        (Ok(drawing), None) => write(&drawing?, args.output.as_deref())?,
        (Ok(drawing), Some(damage)) => {
            write(&drawing?, args.output.as_deref())?;
            return Err(damage).with_context(in_part);
        }
        (Err(empty), None) => return Err(empty).with_context(|| format!("nothing to draw in {path}")),
        (Err(_), Some(damage)) => return Err(damage).with_context(|| format!("{}, with nothing to draw", in_part())),
    }
    Ok(Outcome::Healthy)
}

fn read(path: &Path) -> anyhow::Result<(Flame, Option<RecordingError>)> {
    let mut reader = replay::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut collector = Collector::new().telling_hops();
    let mut flame = Flame::new();
    let mut damage = None;
    while let Some(record) = reader.next_record() {
        match record {
            Ok(record) => collector.push(record, &mut |output| flame.push(&output)),
            Err(error) => damage = Some(error),
        }
    }
    collector.finish(&mut |output| flame.push(&output));
    Ok((flame, damage))
}

fn drawn(args: &FlameArgs, flame: &Flame, damaged: bool) -> Result<anyhow::Result<String>, Empty> {
    let mut graph = match args.kind {
        FlameKind::Delay => flame.delay()?,
        FlameKind::Diff => flame.diff()?,
    };
    if damaged {
        graph.note("incomplete: the recording is cut or damaged");
    }
    Ok(formatted(&graph, args.format).with_context(|| format!("cannot draw {}", args.file.display())))
}

fn formatted(graph: &Graph, format: FlameFormat) -> io::Result<String> {
    match format {
        FlameFormat::Svg => graph.svg(),
        FlameFormat::Folded => Ok(graph.folded()),
    }
}

fn write(drawing: &str, output: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = output else {
        let mut stdout = io::stdout().lock();
        return stdout.write_all(drawing.as_bytes()).and_then(|()| stdout.flush()).context("cannot write the graph");
    };
    let written = file::create(path).and_then(|mut file| file.write_all(drawing.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}
