//! Speedscope's JSON, as its published schema has it. A differential graph becomes two profiles,
//! that of now and that of what it is compared with.
//! <https://github.com/jlfwong/speedscope/wiki/Importing-from-custom-sources>

use super::super::graph::{Graph, Share, Width};
use super::{Numbered, name};
use crate::clock::DurNs;
use serde::Serialize;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: &'a str,
    shared: Shared<'a>,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Debug, PartialEq, Eq, Hash, Clone, Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    r#type: &'static str,
    name: &'static str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// The graph as one JSON document.
pub(in crate::flame) fn speedscope(graph: &Graph) -> serde_json::Result<Vec<u8>> {
    let mut frames = Frames { numbers: Numbered::new(), frames: Vec::new() };
    let stacks: Vec<_> = graph.shares.iter().map(|share| frames.stack(share)).collect();
    let profile = |name, width: &dyn Fn(Width) -> DurNs| Profile::new(name, &stacks, graph, width);
    let differs = graph.shares.iter().any(|share| share.width.before().is_some());
    let profiles = if differs {
        let before = |width: Width| width.before().unwrap_or_default();
        vec![profile(graph.measure, &Width::now), profile(graph.compared_with, &before)]
    } else {
        vec![profile(graph.measure, &Width::now)]
    };
    let exporter = format!("whylag {}", env!("CARGO_PKG_VERSION"));
    let shared = Shared { frames: frames.frames };
    serde_json::to_vec(&File { schema: SCHEMA, exporter, name: &graph.title, shared, profiles })
}

struct Frames<'a> {
    numbers: Numbered<Frame<'a>>,
    frames: Vec<Frame<'a>>,
}

impl<'a> Frames<'a> {
    fn stack(&mut self, share: &'a Share) -> Vec<usize> {
        let levels = share.tower.iter().map(|level| {
            let place = level.place.as_ref();
            let line = place.map(|place| place.line).filter(|line| *line > 0);
            Frame { name: name(level), file: place.map(|place| place.file.as_str()), line }
        });
        levels.map(|frame| self.number(frame)).collect()
    }

    fn number(&mut self, frame: Frame<'a>) -> usize {
        let (number, new) = self.numbers.number(frame.clone());
        if new {
            self.frames.push(frame);
        }
        number
    }
}

impl Profile {
    fn new(name: &'static str, stacks: &[Vec<usize>], graph: &Graph, width: &dyn Fn(Width) -> DurNs) -> Self {
        let times = graph.shares.iter().map(|share| width(share.width).0);
        let (samples, weights): (Vec<_>, Vec<_>) =
            stacks.iter().cloned().zip(times).filter(|(_, time)| *time > 0).unzip();
        let end_value = weights.iter().fold(0_u64, |sum, time| sum.saturating_add(*time));
        Self { r#type: "sampled", name, unit: "nanoseconds", start_value: 0, end_value, samples, weights }
    }
}
