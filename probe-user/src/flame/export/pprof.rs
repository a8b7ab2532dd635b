//! pprof's protocol buffer, compressed as its tools write it. A differential graph has two values
//! a stack: now, and of what it is compared with.
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>

use super::super::graph::Graph;
use super::super::tower::{Kind, Level};
use super::{Numbered, group, name};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use std::io::{self, Write};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(super) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub(super) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(super) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(super) string_table: Vec<String>,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    r#type: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub(super) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(super) value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    pub(super) name: i64,
    #[prost(int64, tag = "4")]
    pub(super) filename: i64,
}

/// The graph as a compressed profile.
pub(in crate::flame) fn pprof(graph: &Graph) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&profile(graph).encode_to_vec())?;
    packed.finish()
}

fn profile(graph: &Graph) -> Profile {
    let mut tables = Tables::new();
    let differs = graph.shares.iter().any(|share| share.width.before().is_some());
    let mut profile = Profile::default();
    let unit = tables.string("nanoseconds");
    let names: &[&str] = if differs { &["now", graph.compared_with] } else { &["time"] };
    profile.sample_type = names.iter().map(|name| ValueType { r#type: tables.string(name), unit }).collect();
    profile.period_type = profile.sample_type.first().copied();
    profile.period = 1;
    profile.comment = vec![tables.string(&graph.title), tables.string(&graph.note)];
    for share in &graph.shares {
        // Innermost first.
        let location_id = share.tower.iter().rev().map(|level| tables.location(level)).collect();
        let times = [Some(share.width.now()), share.width.before().filter(|_| differs)];
        let value = times.into_iter().flatten().map(|time| i64::try_from(time.0).unwrap_or(i64::MAX)).collect();
        profile.sample.push(Sample { location_id, value });
    }
    (profile.location, profile.function, profile.string_table) = (tables.locations, tables.functions, tables.texts);
    profile
}

struct Tables {
    strings: Numbered<String>,
    texts: Vec<String>,
    location_numbers: Numbered<Level>,
    locations: Vec<Location>,
    function_numbers: Numbered<(Kind, String, String)>,
    functions: Vec<Function>,
}

impl Tables {
    fn new() -> Self {
        let mut tables = Self {
            strings: Numbered::new(),
            texts: Vec::new(),
            location_numbers: Numbered::new(),
            locations: Vec::new(),
            function_numbers: Numbered::new(),
            functions: Vec::new(),
        };
        // The first string is empty, by the format.
        tables.string("");
        tables
    }

    fn string(&mut self, text: &str) -> i64 {
        let (number, new) = self.strings.number(text.to_owned());
        if new {
            self.texts.push(text.to_owned());
        }
        i64::try_from(number).unwrap_or(0)
    }

    /// Numbers of locations and functions begin with 1.
    fn location(&mut self, level: &Level) -> u64 {
        let (number, new) = self.location_numbers.number(level.clone());
        let id = number as u64 + 1;
        if new {
            let line = level.place.as_ref().map_or(0, |place| i64::from(place.line));
            let function_id = self.function(level);
            self.locations.push(Location { id, line: vec![Line { function_id, line }] });
        }
        id
    }

    /// What is no function of a program has the name of its group for a file.
    fn function(&mut self, level: &Level) -> u64 {
        let file = level.place.as_ref().map_or_else(|| group(level.kind).to_owned(), |place| place.file.clone());
        let (number, new) = self.function_numbers.number((level.kind, level.text.clone(), file.clone()));
        let id = number as u64 + 1;
        if new {
            let function = Function { id, name: self.string(name(level)), filename: self.string(&file) };
            self.functions.push(function);
        }
        id
    }
}
