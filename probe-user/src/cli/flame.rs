//! `whylag flame`: where the time of a recording's slow checks and threads went, drawn for people or
//! written for other tools.

use super::args::{FlameArgs, FlameFormat, FlameKind};
use super::{Outcome, UsageError, replay};
use crate::file;
use crate::flame::{Empty, Flame, Graph, ThreadTimes};
use crate::pipeline::{Collector, Output};
use crate::source::recording::RecordingError;
use crate::timeline::Timeline;
use anyhow::Context;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// Runs the command. Of a recording with damage, what can be read is drawn, then it is a failure.
pub(super) fn run(args: &FlameArgs) -> anyhow::Result<Outcome> {
    let format = format(args)?;
    if let Some(path) = &args.output {
        file::may_be_created(path).map_err(|error| UsageError(format!("--output {}: {error}", path.display())))?;
    }
    let path = args.file.display();
    let (drawing, damage) = drawing(args)?;
    let in_part = || format!("only a part of {path} could be read");
    let written = drawing.map(|drawing| {
        let bytes = drawing.bytes(format, damage.is_some()).with_context(|| format!("cannot draw {path}"))?;
        write(&bytes, args.output.as_deref())
    });
    match (written, damage) {
        (Ok(written), None) => written?,
        (Ok(written), Some(damage)) => {
            written?;
            return Err(damage).with_context(in_part);
        }
        (Err(empty), None) => return Err(empty).with_context(|| format!("nothing to draw in {path}")),
        (Err(_), Some(damage)) => return Err(damage).with_context(|| format!("{}, with nothing to draw", in_part())),
    }
    Ok(Outcome::Healthy)
}

/// The format that was asked for, if it fits what is drawn and where it goes.
fn format(args: &FlameArgs) -> Result<FlameFormat, UsageError> {
    if args.against.is_some() && args.kind != FlameKind::Diff {
        return Err(UsageError("--against compares checks: use it with --kind diff".to_owned()));
    }
    let timeline = args.kind == FlameKind::Timeline;
    let usual = if timeline { FlameFormat::Perfetto } else { FlameFormat::Svg };
    let format = args.format.unwrap_or(usual);
    match (timeline, format) {
        (true, FlameFormat::Perfetto) | (false, FlameFormat::Pprof)
            if args.output.is_none() && io::stdout().is_terminal() =>
        {
            Err(UsageError("that format is not for a terminal: name a file with --output".to_owned()))
        }
        (true, FlameFormat::Perfetto) => Ok(format),
        (true, _) => Err(UsageError("a timeline is written with --format perfetto only".to_owned())),
        (false, FlameFormat::Perfetto) => {
            Err(UsageError("--format perfetto holds the whole timeline: use it with --kind timeline".to_owned()))
        }
        (false, _) => Ok(format),
    }
}

/// What is to be written.
enum Drawing {
    Graph(Graph),
    Timeline(Vec<u8>),
}

impl Drawing {
    fn bytes(self, format: FlameFormat, damaged: bool) -> io::Result<Vec<u8>> {
        let mut graph = match self {
            Self::Graph(graph) => graph,
            Self::Timeline(trace) => return Ok(trace),
        };
        if damaged {
            graph.note("incomplete: the recording is cut or damaged");
        }
        match format {
            FlameFormat::Folded => Ok(graph.folded().into_bytes()),
            FlameFormat::Pprof => graph.pprof(),
            FlameFormat::Speedscope => graph.speedscope(),
            FlameFormat::Firefox => graph.firefox(),
            FlameFormat::Svg | FlameFormat::Perfetto => Ok(graph.svg()?.into_bytes()),
        }
    }
}

type Drawn = (Result<Drawing, Empty>, Option<RecordingError>);

fn drawing(args: &FlameArgs) -> anyhow::Result<Drawn> {
    let (kind, path) = (args.kind, args.file.as_path());
    let mut flame = Flame::new();
    let mut threads = ThreadTimes::new();
    let mut timeline = Timeline::new();
    let damage = read(path, kind, &mut |output| match kind {
        FlameKind::Delay | FlameKind::Diff => flame.push(&output),
        FlameKind::Cpu | FlameKind::Offcpu => threads.push(&output),
        FlameKind::Timeline => timeline.push(&output),
    })?;
    let drawing = match kind {
        FlameKind::Delay => flame.delay().map(Drawing::Graph),
        FlameKind::Diff => match &args.against {
            Some(base) => flame.against(&whole(base)?).map(Drawing::Graph),
            None => flame.diff().map(Drawing::Graph),
        },
        FlameKind::Cpu => threads.cpu().map(Drawing::Graph),
        FlameKind::Offcpu => threads.offcpu().map(Drawing::Graph),
        FlameKind::Timeline => timeline.perfetto().map(|(trace, left_out)| {
            if left_out > 0 {
                log::warn!("{left_out} slices are left out: more make viewers too slow");
            }
            Drawing::Timeline(trace)
        }),
    };
    Ok((drawing, damage))
}

/// The checks of a recording to compare with, which must be undamaged.
fn whole(path: &Path) -> anyhow::Result<Flame> {
    let mut flame = Flame::new();
    match read(path, FlameKind::Diff, &mut |output| flame.push(&output))? {
        Some(damage) => Err(damage).with_context(|| format!("only a part of {} could be read", path.display())),
        None => Ok(flame),
    }
}

fn read(path: &Path, kind: FlameKind, out: &mut impl FnMut(Output)) -> anyhow::Result<Option<RecordingError>> {
    let mut reader = replay::open(path).with_context(|| format!("cannot read {}", path.display()))?.reader;
    let mut collector = match kind {
        FlameKind::Delay | FlameKind::Diff => Collector::new().telling_hops(),
        FlameKind::Cpu | FlameKind::Offcpu | FlameKind::Timeline => Collector::new().telling_activities(),
    };
    let mut damage = None;
    while let Some(record) = reader.next_record() {
        match record {
            Ok(record) => collector.push(record, out),
            Err(error) => damage = Some(error),
        }
    }
    collector.finish(out);
    Ok(damage)
}

fn write(drawing: &[u8], output: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = output else {
        let mut stdout = io::stdout().lock();
        return stdout.write_all(drawing).and_then(|()| stdout.flush()).context("cannot write the graph");
    };
    let written = file::create(path).and_then(|mut file| file.write_all(drawing));
    written.with_context(|| format!("cannot write {}", path.display()))
}
