//! Stacks of watched threads as a recording holds them: modules, frames and stacks once each, by
//! number, and when each was taken. No memory of a process is in them, only places in its code.
//!
//! Facts in, frames with names out ([`StackTable`]). Pure; who takes, unwinds and names stacks
//! stands at the edge.

mod table;
pub mod unwind;
pub mod wanted;

pub use table::StackTable;

use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use serde::{Deserialize, Serialize};

/// A file that code was mapped from, or a kind of memory without a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleFact {
    /// Its number in this run.
    pub id: u32,
    /// Name of the file without its folder, else such as `[vdso]` or `[jit]`.
    pub name: String,
    /// GNU build id in hexadecimal; empty if it has none.
    pub build_id: String,
}

/// A place in the code of a process. Said again once it has names; the last word counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameFact {
    /// Its number in this run.
    pub id: u32,
    /// Where its code was mapped from; `None` where nothing is mapped.
    pub module: Option<u32>,
    /// Virtual address as the module's own symbols count it; without a module the plain address.
    pub address: u64,
    /// The functions there: the innermost inlined one first, last the one that is no inline.
    pub functions: Vec<Function>,
    /// Why it has no name.
    pub unknown: Option<Nameless>,
}

/// A function, and where in its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Name, demangled.
    pub name: String,
    /// Source file as the debug information has it; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Line, from 1; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub line: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(line: &u32) -> bool {
    *line == 0
}

/// Why a frame has no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nameless {
    /// Nobody has looked it up yet, or the run ended before.
    NotLookedUp,
    /// No code is mapped there.
    NotMapped,
    /// Code made at run time, and the process tells no names of it.
    NoPerfMap,
    /// The file has no symbol for that place.
    NoSymbol,
    /// The file is gone, or is not the one that was mapped.
    FileGone,
    /// The file found has another build id.
    OtherBuildId,
    /// The file cannot be understood.
    Damaged,
    /// Larger than what is read.
    TooLarge,
    /// The file may not be opened: the agent has no right to, or it lies on a file system that
    /// another process or host answers for, and might not.
    NotOpened,
    /// Naming it took too long or too much memory.
    GaveUp,
}

impl Nameless {
    /// The reason, for people.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotLookedUp => "not looked up",
            Self::NotMapped => "no code is mapped there",
            Self::NoPerfMap => "made at run time, and the process writes no perf map",
            Self::NoSymbol => "no symbol",
            Self::FileGone => "its file is gone",
            Self::OtherBuildId => "its file has another build id",
            Self::Damaged => "its file is damaged",
            Self::TooLarge => "its file is too large",
            Self::NotOpened => "its file may not be opened",
            Self::GaveUp => "naming it took too long",
        }
    }
}

/// A stack of user frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackFact {
    /// Its number in this run.
    pub id: u32,
    /// Numbers of its frames, innermost first.
    pub frames: Vec<u32>,
    /// How far it reaches.
    pub end: StackEnd,
}

/// How far a stack reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StackEnd {
    /// To the function that its thread began in.
    Entry,
    /// The copy of the thread's stack was too short.
    CopyTooShort,
    /// A caller could not be found: no unwind information, or it makes no sense.
    NoCaller,
    /// There are more frames than are kept.
    TooDeep,
}

/// When and why a stack was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Taken {
    /// The thread was on a CPU, and stands for this much time there.
    Sample {
        /// Time between two samples of a CPU.
        period: DurNs,
    },
    /// It left the CPU and was away until the fact's time.
    Wait {
        /// When it left: the time of its `SwitchOut`.
        since: MonoNs,
    },
}

/// A stack of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenFact {
    /// The thread.
    pub task: TaskId,
    /// Why.
    pub why: Taken,
    /// Number of its stack of user frames; `None` if it was in the kernel for good or nothing
    /// could be read.
    pub user: Option<u32>,
    /// Kernel addresses, innermost first; empty in user code, and for a wait: its `SwitchOut`
    /// has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<u64>,
}

/// What became of the stacks that were due, on all CPUs since attach.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackCounts {
    /// Samples of watched threads on a CPU.
    pub samples: TakenCount,
    /// Waits of at least the minimum.
    pub waits: TakenCount,
    /// Copies that were read too late to be told.
    pub late: u64,
    /// Copies that there was no time to unwind.
    pub no_time: u64,
}

/// Stacks of one kind.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenCount {
    /// Those that were due.
    pub due: u64,
    /// Of these, those for which the ring had no room.
    pub lost: u64,
    /// Of these, those beyond the kernel programs' budget.
    pub spared: u64,
    /// Copies that made room for another thread's before it was known whether they were due.
    pub displaced: u64,
}

impl StackCounts {
    /// Stacks that were due and are not told.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.lost().saturating_add(self.spared())
    }

    /// Of these, those for which there was no room or no time.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        let Self { samples, waits, late, no_time } = self;
        samples.lost.saturating_add(waits.lost).saturating_add(*late).saturating_add(*no_time)
    }

    /// Of these, those beyond the kernel programs' budget.
    #[must_use]
    pub const fn spared(&self) -> u64 {
        self.samples.spared.saturating_add(self.waits.spared)
    }
}
