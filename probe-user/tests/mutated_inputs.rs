//! The fuzz targets on mutated seeds: no fuzzer and no nightly compiler needed, the same inputs
//! every time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use probe_user::event::encode;
use probe_user::source::recording::{Compression, Writer, read_all};
use std::path::Path;

#[path = "synthetic/mod.rs"]
mod synthetic;

#[path = "../../tests/fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "for the fuzzers it is a library")]
mod targets;

/// Inputs for each seed; both tests together take a few seconds unoptimised.
const INPUTS_PER_SEED: u32 = 20_000;

/// Xorshift64 (Marsaglia 2003).
struct Random(u64);

impl Random {
    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/seeds").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Changes a few bytes, inserts or removes one, or cuts; sometimes takes a byte from another seed.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.below(input.len() + 1);
        match (random.below(6), input.get_mut(at)) {
            (0, Some(slot)) => *slot = random.byte(),
            (1, Some(slot)) => *slot ^= 1 << random.below(8),
            (2, Some(slot)) => *slot = other[random.below(other.len())],
            (3, Some(_)) => drop(input.remove(at)),
            (4, _) => input.insert(at, other[random.below(other.len())]),
            (5, _) => input.truncate(at),
            _ => {}
        }
    }
}

fn run(seeds: &[Vec<u8>], inputs_per_seed: u32, target: fn(&[u8])) {
    assert!(!seeds.is_empty());
    let mut random = Random(0x5eed);
    for seed in seeds {
        target(seed);
        for _ in 0..inputs_per_seed {
            let mut input = seed.clone();
            let other = &seeds[random.below(seeds.len())];
            mutate(&mut input, other, &mut random);
            target(&input);
        }
    }
}

#[test]
fn the_parser_holds_on_mutated_frames() {
    run(&seeds("parser"), INPUTS_PER_SEED, targets::parser);
}

#[test]
fn the_text_form_holds_on_mutated_text() {
    run(&seeds("signature_text"), INPUTS_PER_SEED, targets::signature_text);
}

/// A recording of a few checks, as a run would write it.
fn recording(checks: u64, compression: Compression) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), compression).unwrap();
    for event in synthetic::facts(100).iter().chain(&synthetic::load(checks)) {
        writer.write(&encode(event).unwrap()).unwrap();
    }
    writer.finish().unwrap()
}

/// The same in the format without checksums, where what is changed comes through.
fn in_first_format(recording: &[u8]) -> Vec<u8> {
    let head = [&b"\x89whylag\n\x01\0\0\0"[..], &probe_wire::WIRE_VERSION.to_le_bytes(), &[0, 0]].concat();
    let whole = read_all(recording).0.into_iter().fold(head, |mut all, record| {
        all.extend(u32::try_from(record.len()).unwrap().to_le_bytes());
        all.extend(record);
        all
    });
    [whole, vec![0; 4]].concat()
}

#[test]
fn a_mutated_recording_is_replayed_as_far_as_it_is_readable() {
    let seeds = [(4, Compression::None), (40, Compression::None), (40, Compression::Zstd)];
    let seeds = seeds.map(|(checks, compression)| recording(checks, compression));
    let first = in_first_format(&seeds[0]);
    assert!(read_all(&first).1.is_none());
    run(&[&seeds[..], &[first]].concat(), 2_000, targets::recording);
}
