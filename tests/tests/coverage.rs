//! What the tables ask for: each cause that a host without virtual machines can show has a case in
//! the lab, a twin that looks like it and is something else, and a recording.

use anyhow::{Context, Result};
use probe_tests::lab::case::{CASES, Case, find};
use probe_user::attribution::{CAUSES, Family};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Public names of the causes that need no virtual machine.
fn causes() -> impl Iterator<Item = &'static str> {
    CAUSES.iter().filter(|row| row.family != Family::Vm).map(|row| row.name)
}

/// What is right to say in a case.
fn right(case: &Case) -> impl Iterator<Item = &'static str> {
    case.expect.slow.iter().chain(case.expect.lost).copied()
}

fn cases_of(cause: &str) -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(move |case| right(case).any(|name| name == cause))
}

/// The cases that look like this one.
fn twins_of(case: &Case) -> impl Iterator<Item = &'static Case> {
    let named = case.twin_of.and_then(find);
    CASES.iter().filter(|other| other.twin_of == Some(case.name)).chain(named)
}

/// Of each recording its name and the causes of its verdicts.
fn recordings() -> Result<Vec<(String, BTreeSet<String>)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let files = fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
    let paths =
        files.flatten().map(|file| file.path()).filter(|path| path.extension().is_some_and(|ext| ext == "expected"));
    paths
        .map(|path| {
            let name = path.file_stem().and_then(|name| name.to_str()).context("a recording has a name")?.to_owned();
            let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            Ok((name, verdicts(&text)?))
        })
        .collect()
}

/// The causes of the episodes that are told.
fn verdicts(told: &str) -> Result<BTreeSet<String>> {
    let episodes = told.lines().filter(|line| line.starts_with(r#"{"type":"episode""#));
    let episodes: Vec<Value> =
        episodes.map(serde_json::from_str).collect::<Result<_, _>>().context("read an episode")?;
    Ok(episodes.iter().filter_map(|episode| Some(episode["verdict"]["cause"].as_str()?.to_owned())).collect())
}

#[test]
fn each_cause_has_a_case() {
    let without: Vec<_> = causes().filter(|cause| cases_of(cause).next().is_none()).collect();
    assert!(without.is_empty(), "no case for {without:?}");
}

#[test]
fn each_cause_has_a_case_with_a_twin_that_is_something_else() {
    let told_apart =
        |cause: &&str| cases_of(cause).flat_map(twins_of).any(|twin| right(twin).all(|name| name != *cause));
    let without: Vec<_> = causes().filter(|cause| !told_apart(cause)).collect();
    assert!(without.is_empty(), "no twin for {without:?}");
}

#[test]
fn each_cause_has_a_recording_of_one_of_its_cases() -> Result<()> {
    let recordings = recordings()?;
    let recorded = |cause: &str| {
        let has = |case: &Case| recordings.iter().any(|(name, verdicts)| name == case.name && verdicts.contains(cause));
        cases_of(cause).any(has)
    };
    let without: Vec<_> = causes().filter(|cause| !recorded(cause)).collect();
    assert!(without.is_empty(), "no recording for {without:?}");
    Ok(())
}
