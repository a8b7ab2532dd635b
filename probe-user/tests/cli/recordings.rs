//! Recordings that are cut or damaged, and readers that go away.

use crate::made::Made;
use crate::whylag::whylag;
use probe_user::flame::Flame;
use probe_user::pipeline::Collector;
use probe_user::source::recording::{Compression, Reader, Writer};
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

/// Where the blocks of a recording begin.
fn blocks(file: &[u8]) -> Vec<usize> {
    let is_one = |at: &usize| file[*at..].starts_with(b"\x8bblock\r\n");
    (0..file.len()).filter(is_one).collect()
}

/// Each block in turn: what ends otherwise than it did has no verdict.
#[test]
fn damage_in_the_middle_is_told_with_its_place_counted_and_concluded_from_by_no_check() {
    let whole = Made::story().file(0);
    let key = |line: &serde_json::Value| [&line["started_at"], &line["outcome"], &line["slow"]].map(Clone::clone);
    let replayed = |file: &NamedTempFile| whylag(["replay", "--format", "json", file.path().to_str().unwrap()]);
    let sound: Vec<_> = replayed(&on_disk(&whole)).of_type("journey").iter().map(key).collect();
    let blocks = blocks(&whole);
    for (number, pair) in blocks.windows(2).enumerate().take(blocks.len() - 2) {
        let damaged = on_disk(&damaged_at(&whole, (pair[0] + 40).midpoint(pair[1])));
        let run = replayed(&damaged);
        let place = format!("damaged at bytes {} to {}", pair[0], pair[1]);
        run.fails_with(1, &["only a part of", damaged.path().to_str().unwrap(), &place]);
        assert_eq!(run.of_type("summary").len(), 1);
        let loss = &run.of_type("loss")[0];
        assert!(loss["unreadable"].as_u64() > Some(0) && loss["undecodable"] == 0 && loss["lost"] == 0, "{loss}");
        // Without the first block nobody knows how the run judged.
        for journey in run.of_type("journey").iter().filter(|_| number > 0) {
            let unresolved = journey["verdict"]["status"] == "unresolved";
            assert!(sound.contains(&key(journey)) || unresolved, "without block {number}: {journey}");
        }
    }
    let text = whylag(["replay", on_disk(&damaged_at(&whole, blocks[2] + 60)).path().to_str().unwrap()]);
    assert!(text.stdout.contains("of the recording could not be read"), "{}", text.stdout);
}

fn damaged_at(whole: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    bytes[at] ^= 1;
    bytes
}

/// The bundle of a damaged recording replays to the same, is whole in itself, and says what is missing.
#[test]
fn a_damaged_recording_and_the_bundle_of_it_tell_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let [recording, bundle] = ["recording", "bundle"].map(|name| folder.path().join(name));
    let whole = Made::story().file(0);
    std::fs::write(&recording, damaged_at(&whole, blocks(&whole)[3] + 60)).unwrap();
    let [recording, bundle] = [&recording, &bundle].map(|path| path.to_str().unwrap());
    let export = whylag(["incident", "export", "--from", recording, "-o", bundle, "--addresses"]);
    export.fails_with(1, &["damaged at bytes", "is in the bundle"]);
    let of_recording = whylag(["replay", "--format", "json", recording]);
    let of_bundle = whylag(["replay", "--format", "json", bundle]);
    assert_eq!((of_bundle.status, of_bundle.stderr.as_str()), (0, ""), "no byte of the bundle is damaged");
    assert_eq!(of_bundle.stdout, of_recording.stdout);
    whylag(["replay", "--strict", bundle]).fails_with(4, &[]);
    whylag(["incident", "verify", bundle]).fails_with(0, &[]);
    let shown = whylag(["incident", "show", bundle]).stdout;
    assert!(shown.contains("only a part of the recording could be read") && shown.contains("unreadable"), "{shown}");
}

/// Compressed files, captures and the like are told by name.
#[test]
fn something_else_gets_a_hint() {
    let recording = Made::story().file(0);
    let zst = on_disk(&zstd::encode_all(&recording[..], 1).unwrap());
    for command in [&["replay"][..], &["flame"], &["report", "-o", "-"], &["incident", "show"]] {
        let run = whylag(command.iter().copied().chain([zst.path().to_str().unwrap()]));
        run.fails_with(1, &["unzstd", zst.path().to_str().unwrap()]);
    }
    let recording = on_disk(&recording);
    let show = whylag(["incident", "show", recording.path().to_str().unwrap()]);
    show.fails_with(1, &["not a whylag bundle: it is a recording", "whylag incident export"]);
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
    let read = reader.drain(&mut |record| {
        collector.push(record, &mut |output| flame.push(&output));
        Ok::<_, ()>(())
    });
    read.unwrap();
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
        let whole = Made::story().file(0);
        let mut file = whole.clone();
        for (at, byte) in &damages {
            let at = at % file.len();
            file[at] = *byte;
        }
        outputs(&file);
        // In records, where no checksum keeps it from the collector.
        let mut records: Vec<_> = Reader::new(&whole[..]).unwrap().map(Result::unwrap).collect();
        let mut place = |at: usize, bytes: &[u8]| {
            let record = at % records.len();
            let record = &mut records[record];
            let at = at % record.len();
            record.iter_mut().skip(at).zip(bytes).for_each(|(old, new)| *old = *new);
        };
        damages.iter().for_each(|(at, byte)| place(*at, &[*byte]));
        words.iter().for_each(|(at, word)| place(*at, &word.to_le_bytes()));
        let mut writer = Writer::new(Vec::new(), Compression::None).unwrap();
        records.iter().for_each(|record| writer.write(record).unwrap());
        outputs(&writer.finish().unwrap());
    }
}
