//! The files: the same in every run with the same compilers.

use super::programs::{C, CPP, addresses, build, run};
use object::{Object, ObjectSection};
use std::path::{Path, PathBuf};

/// A file that nobody means well with, and what it is asked.
pub(crate) struct Hostile {
    pub(crate) kind: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) places: Vec<u64>,
}

/// A real file that hostile ones are made of.
struct Seed {
    name: &'static str,
    bytes: Vec<u8>,
    places: Vec<u64>,
    /// Where its sections lie in the file: of all, and of debug information alone.
    debug: Vec<(usize, usize)>,
    sections: (usize, usize),
}

/// The seeds.
pub(crate) struct Corpus {
    seeds: Vec<Seed>,
    good: (PathBuf, u64),
}

/// A library in Rust, as an object file: small, and with all that rustc writes about code.
const RUST: &str = "\
#![crate_type = \"lib\"]
#[inline(never)] pub fn mix(values: &[u32]) -> u32 { values.iter().map(|x| x.rotate_left(3)).fold(7, |a, b| a ^ b) }
";

/// Debug information whose entries stand for each other: `DW_AT_abstract_origin` of one function
/// is itself, of two others each other, and an inlined one's is its own parent.
const LOOPS: &str = include_str!("loops.s");

impl Corpus {
    pub(crate) fn build(dir: &Path) -> Self {
        let c = |name, args: &[&str]| build(dir, (name, C), &[&["cc", "-O2"], args].concat());
        let good = c("good.c", &["-g"]);
        let place = addresses(&good, "opaque").start;
        let stripped = c("stripped.c", &["-g"]);
        let outer: Vec<u64> = addresses(&good, "outer").step_by(4).chain([place, 0, u64::MAX]).collect();
        run(dir, &["strip", "stripped.c.out"]);
        let rust = build(dir, ("mix.rs", RUST), &["rustc", "-O", "-g", "--emit=obj"]);
        let cpp = build(dir, ("cart.cpp", CPP), &["c++", "-g", "-gdwarf-4"]);
        let loops = build(dir, ("loops.s", LOOPS), &["cc", "-nostdlib", "-static"]);
        let cart = vec![addresses(&cpp, "3add").start + 1, 0, u64::MAX];
        let looping = addresses(&loops, "looping").step_by(4).collect();
        let seeds = vec![
            Seed::read("c", &good, outer.clone()),
            Seed::read("c, compressed", &c("small.c", &["-g", "-gz=zlib"]), outer.clone()),
            Seed::read("c, stripped", &stripped, outer),
            Seed::read("c++", &cpp, cart),
            Seed::read("rust", &rust, (0..64).step_by(8).collect()),
            Seed::read("loops", &loops, looping),
        ];
        Self { seeds, good: (good, place) }
    }

    /// A program that is as it should be, and a place in its function `opaque`.
    pub(crate) fn good(&self) -> (PathBuf, u64) {
        self.good.clone()
    }

    /// All of them.
    pub(crate) fn files(&self) -> impl Iterator<Item = Hostile> + '_ {
        let seed = |index: usize| (&self.seeds[index % self.seeds.len()], Dice(index as u64));
        let whole = self.seeds.iter().map(|seed| seed.hostile("whole", seed.bytes.clone()));
        let cut = (0..144).map(move |index| seed(index).0.cut(index / self.seeds.len(), 24));
        let flipped = (0..250).map(move |index| seed(index).0.flipped(seed(index + 1000).1));
        let heads = (0..150).map(move |index| seed(index).0.with_strange_words(seed(index + 2000).1));
        let noise = (0..120).map(move |index| seed(index).0.with_noise(seed(index + 3000).1));
        let bombs = (0..30).map(move |index| self.seeds[0].with_bomb(index));
        whole.chain(cut).chain(flipped).chain(heads).chain(noise).chain(bombs)
    }
}

impl Seed {
    fn read(name: &'static str, path: &Path, places: Vec<u64>) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let debug = elf.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug")));
        let debug = debug.filter_map(|section| section.file_range()).filter(|range| range.1 > 0);
        let debug = debug.map(|(start, length)| (whole(start), whole(length))).collect();
        let table = whole(u64::from_le_bytes(bytes[40..48].try_into().unwrap()));
        let sections = (table, bytes.len() - table);
        Self { name, places, debug, sections, bytes }
    }

    fn hostile(&self, what: &str, bytes: Vec<u8>) -> Hostile {
        Hostile { kind: format!("{}: {what}", self.name), bytes, places: self.places.clone() }
    }

    fn cut(&self, part: usize, parts: usize) -> Hostile {
        self.hostile("cut", self.bytes[..self.bytes.len() * part / parts].to_vec())
    }

    /// A few bits, anywhere.
    fn flipped(&self, mut dice: Dice) -> Hostile {
        let mut bytes = self.bytes.clone();
        for _ in 0..1 << dice.below(8) {
            let at = dice.below(bytes.len());
            bytes[at] ^= 1 << dice.below(8);
        }
        self.hostile("flipped bits", bytes)
    }

    /// Numbers, offsets and sizes in the headers of file and sections that nobody would write.
    fn with_strange_words(&self, mut dice: Dice) -> Hostile {
        let mut bytes = self.bytes.clone();
        let strange = [0, 1, 0x40, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, u64::MAX, self.bytes.len() as u64];
        for _ in 0..1 + dice.below(6) {
            let (start, length) = if dice.below(3) == 0 { (16, 48) } else { self.sections };
            let at = start + dice.below(length - 8) / 4 * 4;
            let word = strange[dice.below(strange.len())].to_le_bytes();
            let width = [2, 4, 8][dice.below(3)];
            bytes[at..at + width].copy_from_slice(&word[..width]);
        }
        self.hostile("strange headers", bytes)
    }

    /// Nonsense within debug information, or anywhere in a file without.
    fn with_noise(&self, mut dice: Dice) -> Hostile {
        let mut bytes = self.bytes.clone();
        let everywhere = [(64, bytes.len() - 64)];
        let parts = if self.debug.is_empty() { &everywhere[..] } else { &self.debug };
        let (start, length) = parts[dice.below(parts.len())];
        for _ in 0..1 + dice.below(64) {
            bytes[start + dice.below(length)] = u8::try_from(dice.below(256)).unwrap();
        }
        self.hostile("noise", bytes)
    }

    /// Its line information is replaced by a small compressed section that says to be a large one,
    /// of zeros, or is.
    fn with_bomb(&self, index: usize) -> Hostile {
        let unpacked = 1_u64 << (16 + index % 12);
        let said = [unpacked, 16, 1 << 40][index / 10];
        let zeros = zstd::stream::encode_all(std::io::Read::take(std::io::repeat(0), unpacked), 1).unwrap();
        let mut section: Vec<u8> = [2_u64, said, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
        section.extend(zeros);
        let mut bytes = self.bytes.clone();
        let header = self.header_of(".debug_line");
        let (flags, offset, size) = (header + 8, header + 24, header + 32);
        let put = |bytes: &mut Vec<u8>, at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        let end = bytes.len() as u64;
        // SHF_COMPRESSED.
        put(&mut bytes, flags, 0x800);
        put(&mut bytes, offset, end);
        put(&mut bytes, size, section.len() as u64);
        bytes.extend(section);
        self.hostile(&format!("{unpacked} bytes that say to be {said}"), bytes)
    }

    /// Where the header of a section lies.
    fn header_of(&self, name: &str) -> usize {
        let elf = object::File::parse(&*self.bytes).unwrap();
        let index = elf.section_by_name(name).unwrap().index().0;
        self.sections.0 + index * 64
    }
}

/// Numbers that look like chance and are the same in every run (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        whole((word ^ (word >> 31)) % most as u64)
    }
}

fn whole(number: u64) -> usize {
    usize::try_from(number).unwrap()
}
