//! Names of kernel addresses, and kernel stacks kept once each.

use super::frame::Frame;
use probe_wire::STACK_DEPTH;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Most names kept; a kernel's stacks hold a few thousand different addresses.
const MAX_SYMBOLS: usize = 65_536;
/// Most different stacks kept at a time.
const MAX_STACKS: usize = 32_768;

/// Hashing for keys that the kernel chose: thread numbers, addresses, cookies. It costs a few
/// nanoseconds where the default, safe against chosen keys, costs fifty for a stack.
pub(super) type Fast = BuildHasherDefault<Mix>;

/// One multiplication and rotation a word.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        // The golden ratio in 64 bits: neighbouring keys land far apart.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Names of kernel addresses.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    names: HashMap<u64, Frame, Fast>,
}

impl Symbols {
    /// Learns a name; beyond the limit it is not kept, and the frame stays unknown.
    pub(super) fn learn(&mut self, address: u64, name: &str) {
        if self.names.len() < MAX_SYMBOLS {
            self.names.insert(address, Frame::new(name));
        }
    }

    /// The function at an address.
    pub(super) fn at(&self, address: u64) -> Option<&Frame> {
        self.names.get(&address)
    }
}

/// A stack in [`Stacks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum StackRef {
    /// None was taken.
    NotTaken,
    /// There was no room left for another stack.
    NotKept,
    /// Its index.
    Kept(u32),
}

/// Stacks, each kept once however often threads sleep in it.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    by_frames: HashMap<Box<[u64]>, u32, Fast>,
    frames: Vec<Box<[u64]>>,
    free: Vec<u32>,
}

impl Stacks {
    /// Keeps a stack. Allocates only for one that was not seen before.
    pub(super) fn keep(&mut self, stack: &[u64; STACK_DEPTH], len: u32) -> StackRef {
        let taken = usize::try_from(len).unwrap_or(STACK_DEPTH).min(STACK_DEPTH);
        let Some(frames) = stack.get(..taken).filter(|frames| !frames.is_empty()) else {
            return StackRef::NotTaken;
        };
        match self.by_frames.get(frames) {
            Some(index) => StackRef::Kept(*index),
            None => self.add(frames),
        }
    }

    /// Return addresses, innermost first; empty if there are none.
    pub(super) fn frames(&self, stack: StackRef) -> &[u64] {
        match stack {
            StackRef::Kept(index) => self.frames.get(index as usize).map_or(&[], |frames| frames),
            StackRef::NotTaken | StackRef::NotKept => &[],
        }
    }

    /// Whether it is time to [`retain`](Self::retain) only what is in use.
    pub(super) fn crowded(&self) -> bool {
        self.by_frames.len() > MAX_STACKS / 2
    }

    /// Forgets the stacks that are not in `used`.
    pub(super) fn retain(&mut self, used: &HashSet<StackRef>) {
        let free = &mut self.free;
        self.by_frames.retain(|_, index| {
            let keep = used.contains(&StackRef::Kept(*index));
            if !keep {
                free.push(*index);
            }
            keep
        });
    }

    fn add(&mut self, frames: &[u64]) -> StackRef {
        if self.by_frames.len() >= MAX_STACKS {
            return StackRef::NotKept;
        }
        let Some(index) = self.place(frames) else {
            return StackRef::NotKept;
        };
        self.by_frames.insert(frames.into(), index);
        StackRef::Kept(index)
    }

    fn place(&mut self, frames: &[u64]) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            *self.frames.get_mut(index as usize)? = frames.into();
            return Some(index);
        }
        self.frames.push(frames.into());
        u32::try_from(self.frames.len() - 1).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{STACK_DEPTH, StackRef, Stacks};
    use std::collections::HashSet;

    fn stack(first: u64) -> [u64; STACK_DEPTH] {
        let mut stack = [0; STACK_DEPTH];
        stack[..2].copy_from_slice(&[first, 7]);
        stack
    }

    #[test]
    fn a_stack_is_kept_once() {
        let mut stacks = Stacks::default();
        let first = stacks.keep(&stack(1), 2);
        assert_eq!(first, stacks.keep(&stack(1), 2));
        assert_ne!(first, stacks.keep(&stack(2), 2));
        assert_eq!(stacks.frames(first), [1, 7]);
        assert_eq!(stacks.keep(&stack(1), 0), StackRef::NotTaken);
    }

    #[test]
    fn the_place_of_a_forgotten_stack_is_used_again() {
        let mut stacks = Stacks::default();
        let (first, second) = (stacks.keep(&stack(1), 2), stacks.keep(&stack(2), 2));
        stacks.retain(&HashSet::from([second]));
        assert_eq!(stacks.keep(&stack(3), 2), first);
        assert_eq!((stacks.frames(first), stacks.frames(second)), (&[3, 7][..], &[2, 7][..]));
    }
}
