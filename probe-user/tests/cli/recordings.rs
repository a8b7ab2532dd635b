//! Recordings that are cut or damaged, and readers that go away.

use crate::made::Made;
use crate::whylag::whylag;
use probe_user::flame::Flame;
use probe_user::pipeline::Collector;
use probe_user::source::recording::Reader;
use proptest::prelude::*;
use std::io::Write;
use std::process::{Command, Stdio};
use tempfile::NamedTempFile;

fn on_disk(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn a_cut_recording_gives_all_that_can_be_read_then_says_so() {
    let whole = Made::story().file(0);
    let cut = on_disk(&whole[..whole.len() - 700]);
    let run = whylag(["replay", "--format", "json", cut.path().to_str().unwrap()]);
    run.fails_with(1, &["cut off", cut.path().to_str().unwrap()]);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.of_type("journey").len() >= 5, "{}", run.stdout);
    assert_eq!(run.of_type("summary").len(), 1);
}

#[test]
fn a_damaged_recording_gives_all_before_the_damage_then_says_so() {
    let mut bytes = Made::story().file(0);
    let middle = bytes.len() / 2;
    // longer than any record of the kernel's, so that the head of one is hit
    bytes[middle..middle + 300].fill(0xff);
    let damaged = on_disk(&bytes);
    let run = whylag(["replay", "--format", "json", damaged.path().to_str().unwrap()]);
    assert!(run.status == 1 || run.of_type("loss")[0]["undecodable"].as_u64() > Some(0), "{}", run.stderr);
    assert_eq!(run.of_type("summary").len(), 1);
    assert!(!run.stderr.contains("panicked"));
}

#[test]
fn something_else_is_not_taken_for_a_recording() {
    let other = on_disk(b"GIF89a, or anything else that is no recording");
    whylag(["replay", other.path().to_str().unwrap()]).fails_with(1, &["not a whylag recording"]);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let recording = on_disk(&Made::story().file(0));
    for format in ["json", "text"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whylag"));
        command.args(["replay", "--format", format, recording.path().to_str().unwrap()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    }
}

/// Every output of a file's records, as far as they can be read, all of them drawn.
fn outputs(file: &[u8]) -> usize {
    let mut collector = Collector::new().telling_hops();
    let (mut count, mut flame) = (0, Flame::new());
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(_) => return 0,
    };
    while let Some(Ok(record)) = reader.next_record() {
        collector.push(record, &mut |output| flame.push(&output));
    }
    collector.finish(&mut |output| {
        flame.push(&output);
        count += 1;
    });
    for graph in [flame.delay(), flame.diff()].into_iter().flatten() {
        // Times that no run has are refused.
        let drawn = graph.svg().map_or(0, |svg| svg.len());
        count += graph.folded().lines().count() + drawn;
    }
    count
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Times, lengths, kinds and numbers of any value: wrong conclusions at worst, never a panic.
    #[test]
    fn no_damage_makes_the_collector_panic(
        damages in prop::collection::vec((16_usize..6000, any::<u8>()), 1..40),
        words in prop::collection::vec((16_usize..6000, prop_oneof![Just(0_u64), Just(u64::MAX), any::<u64>()]), 0..4),
    ) {
        let mut file = Made::story().file(0);
        for (at, byte) in damages {
            let at = at % file.len();
            file[at] = byte;
        }
        for (at, word) in words {
            let at = (at % (file.len() - 8)).max(16);
            file[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        outputs(&file);
    }
}
