//! Flame graphs of recordings, good and bad ones.

use crate::made::Made;
use crate::whylag::{Run, whylag};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::{NamedTempFile, TempDir};

fn on_disk(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn flame(file: &Path, more: &[&str]) -> Run {
    whylag(["flame", file.to_str().unwrap()].iter().chain(more))
}

fn total(folded: &str) -> u64 {
    folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn every_slow_lost_and_late_check_is_in_it_with_all_its_time() {
    let recording = on_disk(&Made::story().file(0));
    let path = recording.path();
    let replay = whylag(["replay", path.to_str().unwrap(), "--format", "json"]);
    let last = |id: &str| replay.of_type("journey").into_iter().rfind(|check| check["id"] == id).unwrap();
    let ids: std::collections::BTreeSet<_> =
        replay.of_type("journey").iter().map(|check| check["id"].as_str().unwrap().to_owned()).collect();
    let slow = ids.iter().map(|id| last(id)).filter(|check| check["slow"] == true);
    let delay: u64 = slow.map(|check| check["elapsed_ns"].as_u64().unwrap()).sum();
    let folded = flame(path, &["--format", "folded"]);
    assert_eq!((folded.status, folded.stderr.as_str()), (0, ""));
    assert_eq!(total(&folded.stdout), delay, "{}", folded.stdout);
    assert!(delay > 10_400_000_000, "a slow one, a lost one, an open one: {delay}");
}

#[test]
fn the_same_recording_gives_the_same_bytes() {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/lock-holder-computes.whylag");
    for kind in ["delay", "diff", "offcpu"] {
        for format in ["svg", "folded", "speedscope", "firefox"] {
            let draw = || flame(&recording, &["--kind", kind, "--format", format]).stdout;
            let drawn = draw();
            assert!(!drawn.is_empty());
            assert_eq!(drawn, draw());
        }
    }
}

#[test]
fn a_recording_is_compared_with_another() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let (slow, healthy) = (folder.join("handler-sleeps.whylag"), folder.join("healthy.whylag"));
    let run = flame(&slow, &["--kind", "diff", "--against", healthy.to_str().unwrap(), "--format", "folded"]);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let wait = run.stdout.lines().find(|line| line.contains("app.self_wait")).unwrap();
    let (levels, here) = wait.rsplit_once(' ').unwrap();
    let there = levels.rsplit_once(' ').unwrap().1;
    assert!(here.parse::<u64>().unwrap() > 1_000_000 && there == "0", "{wait}");
    flame(&slow, &["--kind", "diff", "--against", "/nonexistent"]).fails_with(1, &["cannot read /nonexistent"]);
    let other = on_disk(&Made::story().file(0));
    let nothing = ["nothing to draw in", "no signature in common"];
    flame(&slow, &["--kind", "diff", "--against", other.path().to_str().unwrap()]).fails_with(1, &nothing);
}

#[test]
fn files_for_other_tools_are_made_of_every_recording() {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/lock-holder-computes.whylag");
    let folder = TempDir::new().unwrap();
    for (kind, format, magic) in [
        ("delay", "pprof", &b"\x1f\x8b"[..]),
        ("offcpu", "speedscope", b"{\"$schema\":\"https://www.speedscope.app/"),
        ("diff", "firefox", b"{\"meta\":"),
        ("timeline", "perfetto", b"\x0a"),
    ] {
        let out = folder.path().join(format);
        let run = flame(&recording, &["--kind", kind, "--format", format, "-o", out.to_str().unwrap()]);
        assert_eq!((run.status, run.stderr.as_str()), (0, ""), "{kind} {format}");
        assert!(std::fs::read(&out).unwrap().starts_with(magic), "{format}");
    }
}

#[test]
fn without_a_slow_check_it_says_what_to_do() {
    let healthy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/healthy.whylag");
    for kind in ["delay", "diff"] {
        let run = flame(&healthy, &["--kind", kind]);
        run.fails_with(1, &["nothing to draw in", "none of its 102 checks was slow", "--threshold", "whylag replay"]);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn a_missing_file_and_one_that_is_no_recording_are_told_apart() {
    flame(Path::new("/nonexistent/file"), &[]).fails_with(1, &["cannot read /nonexistent/file", "No such file"]);
    let other = on_disk(b"GIF89a, or anything else that is no recording");
    flame(other.path(), &[]).fails_with(1, &["not a whylag recording"]);
    flame(Path::new("/dev/zero"), &[]).fails_with(1, &["a device"]);
}

#[test]
fn of_a_cut_recording_all_that_can_be_read_is_drawn_and_both_say_so() {
    let whole = Made::story().file(0);
    let cut = on_disk(&whole[..whole.len() - 700]);
    let run = flame(cut.path(), &[]);
    run.fails_with(1, &["only a part of", "cut off"]);
    assert!(run.stdout.contains("incomplete: the recording is cut or damaged"));
    let start = on_disk(&whole[..200]);
    let run = flame(start.path(), &[]);
    run.fails_with(1, &["only a part of", "with nothing to draw", "cut off"]);
    assert_eq!(run.stdout, "");
}

#[test]
fn a_recording_with_lost_events_says_so_in_the_drawing() {
    let recording = on_disk(&Made::story().file(3));
    assert!(flame(recording.path(), &[]).stdout.contains("incomplete: 3 events lost"));
}

#[test]
fn a_graph_is_never_written_over_a_file() {
    let recording = on_disk(&Made::story().file(0));
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out.svg");
    let draw = || flame(recording.path(), &["-o", out.to_str().unwrap()]);
    let first = draw();
    assert_eq!((first.status, first.stdout.as_str(), first.stderr.as_str()), (0, "", ""));
    let drawn = std::fs::read_to_string(&out).unwrap();
    assert!(drawn.ends_with("</svg>"));
    draw().fails_with(2, &["--output", "it exists; remove it or choose another name"]);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), drawn);
    let nowhere = flame(recording.path(), &["-o", "/nonexistent/out.svg"]);
    nowhere.fails_with(2, &["--output /nonexistent/out.svg", "there is no folder /nonexistent"]);
    let dash = flame(recording.path(), &["-o", "-"]);
    assert_eq!((dash.status, dash.stdout.as_str()), (0, drawn.as_str()), "- is standard output");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_failure_leaves_no_file_behind() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out.svg");
    let healthy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/healthy.whylag");
    flame(&healthy, &["-o", out.to_str().unwrap()]).fails_with(1, &["nothing to draw"]);
    assert!(!out.exists());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let recording = on_disk(&Made::story().file(0));
    let mut command = Command::new(env!("CARGO_BIN_EXE_whylag"));
    command.arg("flame").arg(recording.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
