//! What parent and children say to each other: one JSON value a packet.

use super::sandbox::Sandbox;
use crate::stack::{Function, Nameless};
use serde::{Deserialize, Serialize};

/// Longest packet; names are cut long before.
pub(super) const MAX_MESSAGE: usize = 128 << 10;
/// Most addresses of one question.
pub(super) const MAX_ADDRESSES: usize = 512;
/// Most functions of one place: more levels of inlining are cut.
pub(super) const MAX_FUNCTIONS: usize = 64;
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
