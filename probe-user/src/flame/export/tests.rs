use super::super::graph::{Graph, Share, Width};
use super::super::tower::{Kind, Level, Place, Tower};
use super::pprof::Profile;
use super::*;
use crate::clock::DurNs;
use flate2::read::GzDecoder;
use prost::Message;
use serde_json::Value;
use std::io::Read;
use std::rc::Rc;

/// Longer than one weight of the Firefox Profiler.
const LONG: u64 = 5_000_000_001;
const HOSTILE: &str = "</script><b>\"';\u{202e}";

fn tower(texts: &[&str], line: u32) -> Tower {
    let thread = Level::new(Kind::Thread, "server");
    let functions = texts.iter().map(|text| Level {
        place: Some(Place { file: "/src/serve.rs".to_owned(), line }),
        ..Level::new(Kind::User, text)
    });
    std::iter::once(thread).chain(functions).map(Rc::new).collect()
}

fn graph(widths: [Width; 3]) -> Graph {
    let towers = [tower(&["main", "serve"], 3), tower(&["main", "serve"], 9), tower(&["main", HOSTILE], 1)];
    let shares = towers.into_iter().zip(widths).map(|(tower, width)| Share { tower, width }).collect();
    Graph::new("CPU time", "a title".to_owned(), "a note".to_owned(), shares)
}

fn delay() -> Graph {
    graph([Width::Of(DurNs(LONG)), Width::Of(DurNs(2)), Width::Of(DurNs(3))])
}

fn diff() -> Graph {
    let against = |now, before| Width::Against { now: DurNs(now), before: DurNs(before) };
    graph([against(LONG, 1), against(2, LONG), against(0, 3)])
}

fn unpacked(graph: &Graph) -> Profile {
    let mut bytes = Vec::new();
    GzDecoder::new(pprof(graph).unwrap().as_slice()).read_to_end(&mut bytes).unwrap();
    Profile::decode(bytes.as_slice()).unwrap()
}

#[test]
fn pprof_keeps_times_lines_and_names() {
    let profile = unpacked(&delay());
    let sum: i64 = profile.sample.iter().flat_map(|sample| &sample.value).sum();
    assert_eq!(sum, i64::try_from(LONG).unwrap() + 5);
    assert_eq!(profile.string_table[0], "", "by the format");
    let names: Vec<_> = profile
        .function
        .iter()
        .map(|function| profile.string_table[usize::try_from(function.name).unwrap()].as_str())
        .collect();
    assert_eq!(names.iter().filter(|name| **name == "serve").count(), 1, "one function with two lines: {names:?}");
    assert_eq!(profile.location.len(), 7, "a location for each line");
    assert!(profile.sample.iter().all(|sample| sample.location_id.len() == 3));
}

#[test]
fn pprof_of_a_difference_has_both_sides() {
    let profile = unpacked(&diff());
    assert_eq!(profile.sample_type.len(), 2);
    let sums = profile.sample.iter().fold((0, 0), |sum, sample| (sum.0 + sample.value[0], sum.1 + sample.value[1]));
    let long = i64::try_from(LONG).unwrap();
    assert_eq!(sums, (long + 2, long + 4));
}

fn json(bytes: serde_json::Result<Vec<u8>>) -> Value {
    serde_json::from_slice(&bytes.unwrap()).unwrap()
}

#[test]
fn speedscope_keeps_times_lines_and_names() {
    let file = json(speedscope(&delay()));
    let profile = &file["profiles"][0];
    assert_eq!((profile["endValue"].as_u64(), profile["unit"].as_str()), (Some(LONG + 5), Some("nanoseconds")));
    let frames = file["shared"]["frames"].as_array().unwrap();
    assert_eq!(frames.iter().filter(|frame| frame["name"] == "serve").count(), 2, "with a line each");
    let numbers = profile["samples"].as_array().unwrap().iter().flat_map(|stack| stack.as_array().unwrap());
    assert!(numbers.map(|number| number.as_u64().unwrap()).all(|number| number < frames.len() as u64));
}

#[test]
fn speedscope_of_a_difference_has_a_profile_for_each_side() {
    let file = json(speedscope(&diff()));
    let ends: Vec<_> =
        file["profiles"].as_array().unwrap().iter().map(|profile| profile["endValue"].as_u64()).collect();
    assert_eq!(ends, [Some(LONG + 2), Some(LONG + 4)]);
}

#[test]
fn firefox_weights_sum_to_the_time_however_long_it_is() {
    let weights = |graph: &Graph| {
        let file = json(firefox(graph));
        let weights = file["threads"][0]["samples"]["weight"].as_array().unwrap().clone();
        weights.iter().map(|weight| weight.as_i64().unwrap()).sum::<i64>()
    };
    assert_eq!(weights(&delay()), i64::try_from(LONG).unwrap() + 5);
    assert_eq!(weights(&diff()), -2, "what grew less what shrank");
}

#[test]
fn a_hostile_name_is_a_name_in_every_format() {
    let shown = Level::new(Kind::User, HOSTILE).text;
    assert!(unpacked(&delay()).string_table.contains(&shown));
    let frames = json(speedscope(&delay()))["shared"]["frames"].clone();
    assert!(frames.as_array().unwrap().iter().any(|frame| frame["name"] == shown.as_str()));
    let strings = json(firefox(&delay())).to_string();
    assert!(strings.contains(serde_json::to_string(&shown).unwrap().as_str()), "{shown}");
}
