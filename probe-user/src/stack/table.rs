//! What the numbers of stacks, frames and modules stand for.

use super::{FrameFact, ModuleFact, StackEnd, StackFact};
use crate::event::Fact;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Most frames kept; a busy host's stacks hold some ten thousand.
const MAX_FRAMES: usize = 1 << 18;
/// Most stacks kept.
const MAX_STACKS: usize = 1 << 17;
/// Most modules kept.
const MAX_MODULES: usize = 1 << 14;

/// Facts by their numbers.
type Known<T> = HashMap<u32, T, RandomState>;

/// Modules, frames and stacks by their numbers. Beyond its limits nothing new is learnt.
#[derive(Debug, Default)]
pub struct StackTable {
    modules: Known<ModuleFact>,
    frames: Known<FrameFact>,
    stacks: Known<StackFact>,
}

impl StackTable {
    /// Takes a fact in, if it is one of these.
    pub fn learn(&mut self, fact: &Fact) {
        match fact {
            Fact::Module(module) => keep(&mut self.modules, module.id, module, MAX_MODULES),
            Fact::Frame(frame) => keep(&mut self.frames, frame.id, frame, MAX_FRAMES),
            Fact::Stack(stack) => keep(&mut self.stacks, stack.id, stack, MAX_STACKS),
            _ => {}
        }
    }

    /// Whether no stack is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// How far a stack reaches; `None` if it is not known.
    #[must_use]
    pub fn end(&self, stack: u32) -> Option<StackEnd> {
        self.stacks.get(&stack).map(|stack| stack.end)
    }

    /// The numbers of a stack's frames, innermost first; none if it is not known.
    #[must_use]
    pub fn frame_numbers(&self, stack: u32) -> &[u32] {
        self.stacks.get(&stack).map_or(&[], |stack| &stack.frames)
    }

    /// A frame and its module, as far as they are known.
    #[must_use]
    pub fn frame(&self, number: u32) -> Option<(&FrameFact, Option<&ModuleFact>)> {
        let frame = self.frames.get(&number)?;
        Some((frame, frame.module.and_then(|module| self.modules.get(&module))))
    }

    /// The frames of a stack, innermost first, with the module of each; none if it is not known.
    pub fn frames(&self, stack: u32) -> impl DoubleEndedIterator<Item = (&FrameFact, Option<&ModuleFact>)> {
        self.frame_numbers(stack).iter().filter_map(|number| self.frame(*number))
    }
}

fn keep<T: Clone>(known: &mut Known<T>, id: u32, fact: &T, most: usize) {
    if known.len() < most || known.contains_key(&id) {
        known.insert(id, fact.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{Function, Nameless};

    fn frame(id: u32, names: &[&str]) -> Fact {
        let function = |name: &&str| Function { name: (*name).to_owned(), file: String::new(), line: 0 };
        let unknown = names.is_empty().then_some(Nameless::NotLookedUp);
        let functions = names.iter().map(function).collect();
        Fact::Frame(FrameFact { id, module: Some(1), address: 16, functions, unknown })
    }

    #[test]
    fn the_last_word_on_a_frame_counts() {
        let mut table = StackTable::default();
        table.learn(&Fact::Stack(StackFact { id: 3, frames: vec![7, 8], end: StackEnd::Entry }));
        table.learn(&frame(7, &[]));
        table.learn(&frame(7, &["inner", "outer"]));
        let names: Vec<_> = table.frames(3).flat_map(|(frame, _)| &frame.functions).map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["inner", "outer"], "frame 8 was never said");
        assert_eq!((table.end(3), table.end(4)), (Some(StackEnd::Entry), None));
    }
}
