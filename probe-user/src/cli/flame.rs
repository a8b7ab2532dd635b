//! `whylag flame`: where the time of a recording's slow checks and threads went, drawn for people or
//! written for other tools.

use super::args::{FlameArgs, FlameFormat, FlameKind};
use super::destination::Destination;
use super::input::{Input, in_part};
use super::{Outcome, UsageError};
use crate::flame::{Empty, Flame, Graph, ThreadTimes};
use crate::pipeline::{Collector, Output};
use crate::source::recording::RecordingError;
use crate::timeline::Timeline;
use anyhow::Context;
use std::io;
use std::path::Path;

/// Runs the command. Of a recording with damage, what can be read is drawn, then it is a failure.
pub(super) fn run(args: &FlameArgs) -> anyhow::Result<Outcome> {
    let to = Destination::new(args.output.as_deref())?;
    let format = format(args, to)?;
    let path = args.file.display();
    match drawing(args)? {
        (Ok(drawing), damage) => {
            let bytes = drawing.bytes(format, damage.is_some()).with_context(|| format!("cannot draw {path}"))?;
            to.write(&bytes)?;
            damage.map_or(Ok(Outcome::Healthy), |damage| Err(in_part(damage, &args.file, "read")))
        }
        (Err(empty), None) => Err(empty).with_context(|| format!("nothing to draw in {path}")),
        (Err(_), Some(damage)) => Err(in_part(damage, &args.file, "read, with nothing to draw")),
    }
}

/// The format that was asked for, if it fits what is drawn and where it goes.
fn format(args: &FlameArgs, to: Destination<'_>) -> Result<FlameFormat, UsageError> {
    if args.against.is_some() && args.kind != FlameKind::Diff {
        return Err(UsageError("--against compares checks: use it with --kind diff".to_owned()));
    }
    let timeline = args.kind == FlameKind::Timeline;
    let usual = if timeline { FlameFormat::Perfetto } else { FlameFormat::Svg };
    let format = args.format.unwrap_or(usual);
    match (timeline, format) {
        (true, FlameFormat::Perfetto) | (false, FlameFormat::Pprof) if to.is_terminal() => {
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
        Some(damage) => Err(in_part(damage, path, "read")),
        None => Ok(flame),
    }
}

fn read(path: &Path, kind: FlameKind, out: &mut impl FnMut(Output)) -> anyhow::Result<Option<RecordingError>> {
    let mut input = Input::open(path)?;
    let mut collector = match kind {
        FlameKind::Delay | FlameKind::Diff => Collector::new().telling_hops(),
        FlameKind::Cpu | FlameKind::Offcpu | FlameKind::Timeline => Collector::new().telling_activities(),
    };
    let damage = input.drain(&mut |record| collector.push(record, out));
    collector.finish(out);
    Ok(damage)
}
