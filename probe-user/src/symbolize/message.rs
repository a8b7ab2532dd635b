//! What parent and children say to each other: one JSON value a packet.

use super::sandbox::Sandbox;
use crate::stack::{Function, Nameless};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest packet: the text of a place, all of it control characters.
pub(super) const MAX_MESSAGE: usize = 128 << 10;
/// Most addresses of one question.
pub(super) const MAX_ADDRESSES: usize = 512;
/// Most functions of one place: more levels of inlining are cut.
pub(super) const MAX_FUNCTIONS: usize = 64;
/// Most text of all functions of one place, bytes.
pub(super) const MAX_TEXT: usize = 16 << 10;
/// Longest name of a function or a file, bytes.
pub(super) const MAX_NAME: usize = 1024;

/// A question to the child that names. The file comes with it, and a debug file after it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question {
    /// An ELF file.
    Elf {
        /// Stands for the file: its device and number, for what is kept between questions.
        module: [u64; 3],
        /// What its build id must be; empty if any.
        build_id: String,
        /// Leave out debug information, which may take long.
        symbols_only: bool,
        /// After this time it is left out for the places that remain, milliseconds.
        full_ms: u64,
        /// Virtual addresses as its symbols count.
        addresses: Vec<u64>,
    },
    /// A perf map.
    PerfMap {
        /// Stands for the map.
        module: [u64; 3],
        /// Addresses in the process.
        addresses: Vec<u64>,
    },
}

impl Question {
    /// How long debug information is to be looked into.
    pub(super) const fn full_time(&self) -> Duration {
        match self {
            Self::Elf { full_ms, .. } => Duration::from_millis(*full_ms),
            Self::PerfMap { .. } => Duration::ZERO,
        }
    }

    pub(super) const fn addresses(&self) -> &Vec<u64> {
        match self {
            Self::Elf { addresses, .. } | Self::PerfMap { addresses, .. } => addresses,
        }
    }
}

/// What the child that names says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// First of all: what holds it.
    Ready(Sandbox),
    /// One place.
    Place {
        /// Which of the addresses asked for.
        index: usize,
        /// What is there.
        place: Place,
    },
    /// Nothing more comes.
    Done {
        /// Debug information was not to be found in the file.
        stripped: bool,
    },
}

/// Functions, innermost first, or why there are none.
pub(super) type Place = Result<Vec<Function>, Nameless>;

/// Cuts functions to what a place may have.
pub(super) fn cut_to_bounds(functions: &mut Vec<Function>) {
    let mut text = 0;
    let fits = |function: &&Function| {
        text += function.name.len() + function.file.len();
        text <= MAX_TEXT
    };
    let kept = functions.iter().take(MAX_FUNCTIONS).take_while(fits).count();
    functions.truncate(kept);
}

/// A place is within its bounds, and says something.
pub(super) fn is_sane(place: &Place) -> bool {
    let Ok(functions) = place else { return true };
    let text: usize = functions.iter().map(|function| function.name.len() + function.file.len()).sum();
    (1..=MAX_FUNCTIONS).contains(&functions.len()) && text <= MAX_TEXT
}

/// A question to the child that opens. The root comes with it, if it is not the host's.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Opening {
    /// The separate debug information of a file with this build id.
    DebugFile {
        /// In hexadecimal.
        build_id: String,
    },
    /// A perf map.
    PerfMap {
        /// The process in its own count.
        own_tgid: u32,
        /// Whose it may be, besides root's.
        uid: u32,
    },
}

/// What it says; the file comes with it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Opened {
    /// First of all.
    Ready,
    /// Here it is.
    Here,
    /// There is none that may be read.
    None,
}

/// A question to the child that fetches. The file that it fills comes with it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Fetching {
    /// Addresses of servers, in the order in which they are asked.
    pub(super) servers: Vec<String>,
    /// In hexadecimal.
    pub(super) build_id: String,
}

/// What it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Fetched {
    /// The file is filled.
    Here,
    /// All servers answered that they have none.
    None,
    /// None gave it, and one at least failed.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Control characters take six bytes each in JSON.
    #[test]
    fn the_largest_place_fits_into_a_packet() {
        let function = Function { name: "\u{1}".repeat(MAX_NAME), file: "\u{1}".repeat(MAX_NAME), line: u32::MAX };
        let mut functions = vec![function; MAX_FUNCTIONS + 1];
        assert!(!is_sane(&Ok(functions.clone())));
        cut_to_bounds(&mut functions);
        let place = Ok(functions);
        assert!(is_sane(&place) && !is_sane(&Ok(Vec::new())));
        let packet = serde_json::to_vec(&Answer::Place { index: usize::MAX, place }).unwrap();
        assert!(packet.len() <= MAX_MESSAGE, "{}", packet.len());
        let addresses = vec![u64::MAX; MAX_ADDRESSES];
        let question = Question::Elf {
            module: [u64::MAX; 3],
            build_id: "f".repeat(128),
            symbols_only: false,
            full_ms: 0,
            addresses,
        };
        assert!(serde_json::to_vec(&question).unwrap().len() <= MAX_MESSAGE);
    }
}
