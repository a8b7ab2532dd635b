//! A table that keeps what was used last. Pure.

use std::collections::HashMap;
use std::hash::Hash;

/// At most so many values; the one that was not used for longest goes first.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    values: HashMap<K, Used<V>>,
    most: usize,
    uses: u64,
}

#[derive(Debug)]
struct Used<V> {
    last: u64,
    value: V,
}

impl<K: Hash + Eq + Copy, V> Recent<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Self { values: HashMap::new(), most, uses: 0 }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<&mut V> {
        self.uses += 1;
        let used = self.values.get_mut(key)?;
        used.last = self.uses;
        Some(&mut used.value)
    }

    /// Takes a value in, and gives back the one that it replaces.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.is_full() && !self.values.contains_key(&key) {
            self.drop_oldest();
        }
        self.uses += 1;
        self.values.insert(key, Used { last: self.uses, value }).map(|used| used.value)
    }

    /// Whether another value makes one go.
    pub(super) fn is_full(&self) -> bool {
        self.values.len() >= self.most
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.values.remove(key).map(|used| used.value)
    }

    /// Drops the value that was not used for longest.
    pub(super) fn drop_oldest(&mut self) -> Option<V> {
        let oldest = self.values.iter().min_by_key(|(_, used)| used.last).map(|(key, _)| *key)?;
        self.remove(&oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let mut recent = Recent::new(2);
        recent.insert('a', 1);
        recent.insert('b', 2);
        assert_eq!(recent.get(&'a'), Some(&mut 1));
        recent.insert('c', 3);
        assert_eq!(['a', 'b', 'c'].map(|key| recent.get(&key).copied()), [Some(1), None, Some(3)]);
        assert_eq!(recent.insert('a', 4), Some(1));
        assert_eq!(['a', 'c'].map(|key| recent.get(&key).copied()), [Some(4), Some(3)], "no other had to go");
    }
}
