//! JSON lines against the catalogue of published fields.

use crate::made::Made;
use crate::whylag::{Run, whylag};
use probe_user::catalog::{FIELDS, Shape};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use tempfile::NamedTempFile;

fn replayed(file: &[u8], more: &[&str]) -> Run {
    let mut recording = NamedTempFile::new().unwrap();
    recording.write_all(file).unwrap();
    whylag(["replay", recording.path().to_str().unwrap()].iter().chain(more))
}

fn names(prefix: &str, value: &Value, into: &mut BTreeSet<(String, Option<Shape>)>) {
    let shape = match value {
        Value::Null => None,
        Value::Bool(_) => Some(Shape::Boolean),
        Value::Number(number) => Some(if number.is_u64() { Shape::Integer } else { Shape::Float }),
        Value::String(_) => Some(Shape::String),
        Value::Array(_) => Some(Shape::List),
        Value::Object(_) => Some(Shape::Object),
    };
    if !prefix.is_empty() && !prefix.ends_with("[]") {
        into.insert((prefix.to_owned(), shape));
    }
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                names(&if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") }, value, into);
            }
        }
        Value::Array(elements) => {
            elements
                .iter()
                .filter(|element| element.is_object())
                .for_each(|one| names(&format!("{prefix}[]"), one, into));
        }
        _ => {}
    }
}

#[test]
fn every_field_written_is_in_the_catalogue_with_its_type() {
    for line in replayed(&Made::story().file(0), &["--format", "json"]).lines() {
        let mut found = BTreeSet::new();
        names("", &line, &mut found);
        for (name, shape) in found {
            let known = FIELDS.iter().find(|field| line["type"] == field.record && field.name == name);
            let field = known.unwrap_or_else(|| panic!("{name} of {} is not in the catalogue", line["type"]));
            assert!(shape.map_or(field.nullable, |shape| shape == field.shape), "{name}: {shape:?}");
        }
        let top = FIELDS.iter().filter(|field| line["type"] == field.record && !field.name.contains(['.', '[']));
        for field in top {
            assert!(line.get(field.name).is_some(), "{} is missing in {line}", field.name);
        }
    }
}

#[test]
fn the_last_lines_are_episode_loss_and_summary() {
    let lines = replayed(&Made::story().file(0), &["--format", "json"]).lines();
    let types: Vec<&str> = lines.iter().rev().take(3).map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["summary", "loss", "episode"]);
    assert!(lines.iter().rev().skip(3).all(|line| line["type"] == "journey"));
}

#[test]
fn outcomes_and_times_are_those_of_the_events() {
    let run = replayed(&Made::story().file(0), &["--format", "json"]);
    let journeys = run.of_type("journey");
    let last = |id: &str| journeys.iter().rfind(|line| line["id"] == id).unwrap_or_else(|| panic!("journey {id}"));
    assert_eq!(last("1")["outcome"], "replied");
    assert_eq!(last("1")["started_at"], "2020-09-13T12:26:41.000000000Z");
    assert_eq!(last("4")["slow"], true);
    assert_eq!(last("4")["elapsed_ns"], 400_025_000);
    assert_eq!(last("4")["stages"][0]["at_ns"], 0);
    assert_eq!(last("5")["outcome"], "lost");
    assert_eq!(last("5")["drops"][0]["reason"], "SOCKET_RCVBUFF");
    assert_eq!(last("5")["drops"][0]["location"], "udp_queue_rcv_one_skb");
    assert_eq!(last("6")["outcome"], "lost");
    assert_eq!(last("7")["outcome"], "open");
    assert_eq!(run.of_type("summary")[0]["checks"], 7);
}

#[test]
fn the_ledger_adds_up_to_the_last_nanosecond() {
    for line in replayed(&Made::story().file(0), &["--format", "json"]).of_type("journey") {
        let entries = line["ledger"].as_array().unwrap();
        let explained: u64 = entries.iter().map(|entry| entry["ns"].as_u64().unwrap()).sum();
        assert_eq!(Value::from(explained + line["unexplained_ns"].as_u64().unwrap()), line["elapsed_ns"], "{line}");
    }
}

#[test]
fn the_exit_status_says_what_was_asked() {
    let (whole, gappy) = (Made::story().file(0), Made::story().file(2));
    assert_eq!(replayed(&whole, &[]).status, 0);
    assert_eq!(replayed(&whole, &["--check"]).status, 3);
    assert_eq!(replayed(&whole, &["--strict"]).status, 0);
    assert_eq!(replayed(&gappy, &["--strict"]).status, 4);
    assert_eq!(replayed(&gappy, &["--strict", "--check"]).status, 4);
    assert_eq!(replayed(&gappy, &[]).status, 0);
}

#[test]
fn a_replay_is_the_same_every_time() {
    let file = Made::story().file(0);
    let once = replayed(&file, &["--format", "json"]).stdout;
    assert_eq!(once, replayed(&file, &["--format", "json"]).stdout);
}

#[test]
fn hostile_names_reach_a_reader_only_made_harmless() {
    let text = replayed(&Made::story().file(0), &[]).stdout;
    assert!(text.contains("eth0·[2J·"), "{text}");
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
}
