//! Numbers of modules, frames and stacks, each said once. Pure.

use super::process::FileKey;
use crate::event::Fact;
use crate::stack::{FrameFact, ModuleFact, Nameless, StackEnd, StackFact};
use std::collections::HashMap;

/// Most modules of a run.
const MOST_MODULES: usize = 1 << 13;
/// Most frames of a run; a busy host's stacks hold some ten thousand.
const MOST_FRAMES: usize = 1 << 17;
/// Most stacks of a run.
const MOST_STACKS: usize = 1 << 16;

/// What code was mapped from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ModuleKey {
    /// A file.
    File(FileKey),
    /// A file that may not or cannot be opened, by its mapping in this life of a process.
    Closed {
        /// The life.
        life: u32,
        /// Where the mapping begins.
        start: u64,
    },
    /// The kernel's own shared object.
    Vdso,
    /// Made at run time, by this life of a process.
    Made(u32),
}

/// A place in code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FrameKey {
    /// Number of its module.
    pub(super) module: Option<u32>,
    /// As in [`FrameFact`].
    pub(super) address: u64,
}

/// What was numbered, and is new if it was not before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbered {
    New(u32),
    Known(u32),
}

/// All that was numbered. Beyond its limits nothing new gets a number.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    modules: HashMap<ModuleKey, u32>,
    frames: HashMap<FrameKey, u32>,
    stacks: HashMap<(Box<[u32]>, StackEnd), u32>,
}

impl Numbers {
    /// A module's number; it is said if it is new, with what `name` tells: its name and build id.
    pub(super) fn module(
        &mut self,
        key: ModuleKey,
        name: impl FnOnce() -> (String, String),
        say: &mut dyn FnMut(&Fact),
    ) -> Option<u32> {
        let numbered = number(&mut self.modules, key, MOST_MODULES)?;
        if let Numbered::New(id) = numbered {
            let (name, build_id) = name();
            say(&Fact::Module(ModuleFact { id, name, build_id }));
        }
        Some(numbered.id())
    }

    /// A frame's number; it is said if it is new.
    pub(super) fn frame(&mut self, key: FrameKey, unknown: Nameless, say: &mut dyn FnMut(&Fact)) -> Option<Numbered> {
        let numbered = number(&mut self.frames, key, MOST_FRAMES)?;
        if let Numbered::New(id) = numbered {
            let FrameKey { module, address } = key;
            say(&Fact::Frame(FrameFact { id, module, address, functions: Vec::new(), unknown: Some(unknown) }));
        }
        Some(numbered)
    }

    /// A stack's number; it is said if it is new.
    pub(super) fn stack(&mut self, frames: &[u32], end: StackEnd, say: &mut dyn FnMut(&Fact)) -> Option<u32> {
        let numbered = number(&mut self.stacks, (frames.into(), end), MOST_STACKS)?;
        if let Numbered::New(id) = numbered {
            say(&Fact::Stack(StackFact { id, frames: frames.to_vec(), end }));
        }
        Some(numbered.id())
    }
}

impl Numbered {
    /// The number.
    pub(super) const fn id(self) -> u32 {
        match self {
            Self::New(id) | Self::Known(id) => id,
        }
    }
}

fn number<K: std::hash::Hash + Eq>(known: &mut HashMap<K, u32>, key: K, most: usize) -> Option<Numbered> {
    if let Some(id) = known.get(&key) {
        return Some(Numbered::Known(*id));
    }
    let id = u32::try_from(known.len()).ok().filter(|_| known.len() < most)?;
    known.insert(key, id);
    Some(Numbered::New(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_said_once() {
        let mut numbers = Numbers::default();
        let mut said = Vec::new();
        let mut say = |fact: &Fact| said.push(fact.clone());
        for _ in 0..2 {
            let vdso = || ("[vdso]".to_owned(), String::new());
            let module = numbers.module(ModuleKey::Vdso, vdso, &mut say);
            let key = FrameKey { module, address: 16 };
            let frame = numbers.frame(key, Nameless::NotLookedUp, &mut say).unwrap();
            numbers.stack(&[frame.id()], StackEnd::Entry, &mut say).unwrap();
        }
        assert!(matches!(said[..], [Fact::Module(_), Fact::Frame(_), Fact::Stack(_)]), "{said:?}");
    }

    #[test]
    fn what_does_not_fit_gets_no_number() {
        let mut known = HashMap::new();
        assert_eq!(number(&mut known, 'a', 1), Some(Numbered::New(0)));
        assert_eq!(number(&mut known, 'b', 1), None);
        assert_eq!(number(&mut known, 'a', 1), Some(Numbered::Known(0)));
    }
}
