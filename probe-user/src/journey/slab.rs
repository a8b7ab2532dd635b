//! Numbered slots that are reused, and grow without moving: memory follows what is in use.

use std::ops::{Index, IndexMut};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

const CHUNK: usize = 512;

/// Values in numbered slots. A slot that was released keeps its old value until it is taken again.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    vacant: Vec<u32>,
    used: u32,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), vacant: Vec::new(), used: 0 }
    }

    /// Slots in use.
    pub(super) const fn len(&self) -> u32 {
        self.used
    }

    /// Puts a value into a vacant slot.
    pub(super) fn take(&mut self, value: T) -> u32 {
        self.used += 1;
        if let Some(slot) = self.vacant.pop() {
            self[slot] = value;
            return slot;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
            // Giving slots back never allocates.
            self.vacant.reserve(self.chunks.len() * CHUNK);
        }
        let full = (self.chunks.len() - 1) * CHUNK;
        let Some(chunk) = self.chunks.last_mut() else { return NONE };
        chunk.push(value);
        u32::try_from(full + chunk.len() - 1).unwrap_or(NONE)
    }

    /// Gives a slot back.
    pub(super) fn release(&mut self, slot: u32) {
        self.used -= 1;
        self.vacant.push(slot);
    }

    /// The value of a slot that was taken at some time.
    pub(super) fn get(&self, slot: u32) -> Option<&T> {
        self.chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}
