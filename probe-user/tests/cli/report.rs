//! `whylag report`, of recordings good and bad.

use crate::made::Made;
use crate::whylag::{Run, whylag};
use std::path::Path;
use tempfile::{NamedTempFile, TempDir};

fn on_disk(bytes: &[u8]) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

fn report(file: &Path, out: &Path) -> Run {
    whylag(["report", file.to_str().unwrap(), "-o", out.to_str().unwrap()])
}

#[test]
fn a_recording_becomes_one_page_that_is_never_written_over_a_file() {
    let recording = on_disk(&Made::story().file(3));
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out.html");
    let first = report(recording.path(), &out);
    assert_eq!((first.status, first.stdout.as_str(), first.stderr.as_str()), (0, "", ""));
    let page = std::fs::read_to_string(&out).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
    for told in ["7 checks: 2 slow, 2 lost, 1 open", "3 events", "SOCKET_RCVBUFF", "--ring-size"] {
        assert!(page.contains(told), "{told}");
    }
    report(recording.path(), &out).fails_with(2, &["--output", "it exists; remove it or choose another name"]);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), page);
    let nowhere = report(recording.path(), Path::new("/nonexistent/out.html"));
    nowhere.fails_with(2, &["--output /nonexistent/out.html", "there is no folder /nonexistent"]);
    let dash = report(recording.path(), Path::new("-"));
    assert_eq!((dash.status, dash.stdout.as_str()), (0, page.as_str()), "- is standard output");
}

#[test]
fn what_cannot_be_reported_is_said_and_leaves_no_file() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out.html");
    report(Path::new("/nonexistent/file"), &out).fails_with(1, &["cannot read /nonexistent/file", "No such file"]);
    let other = on_disk(b"GIF89a, or anything else that is no recording");
    report(other.path(), &out).fails_with(1, &["not a whylag recording"]);
    assert!(!out.exists());
}

#[test]
fn a_healthy_recording_is_reported_as_healthy() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out.html");
    let healthy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/healthy.whylag");
    let run = report(&healthy, &out);
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let page = std::fs::read_to_string(&out).unwrap();
    for told in ["0 slow and 0 lost of 102 checks", "Were health checks slow?", "no check was slow or lost"] {
        assert!(page.contains(told), "{told}");
    }
}

#[test]
fn of_a_cut_recording_all_that_can_be_read_is_told_and_both_say_so() {
    let whole = Made::story().file(0);
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out.html");
    let cut = on_disk(&whole[..whole.len() - 700]);
    report(cut.path(), &out).fails_with(1, &["only a part of", "cut off"]);
    assert!(std::fs::read_to_string(&out).unwrap().contains("Only a part of the recording could be read"));
    let start = on_disk(&whole[..200]);
    let other = folder.path().join("other.html");
    report(start.path(), &other).fails_with(1, &["only a part of", "with nothing to report", "cut off"]);
    assert!(!other.exists());
}
