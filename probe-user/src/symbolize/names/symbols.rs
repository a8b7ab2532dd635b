//! A table of symbols.

use super::demangle::demangle;
use std::cmp::Reverse;

/// How many symbols before an address are looked at: functions can lie within others.
const NESTED: usize = 16;
/// Longest mangled name.
const MAX_RAW: usize = 16 << 10;

/// A symbol as a file has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw {
    pub(super) start: u64,
    /// 0 if the file does not say.
    pub(super) size: u64,
    /// Where its name begins in the string table.
    pub(super) name: u32,
    /// Of several with one start, the highest names it.
    pub(super) rank: u8,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    start: u64,
    end: u64,
    rank: u8,
    table: u8,
    name: u32,
}

/// Functions by address.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    rows: Vec<Row>,
    strings: Vec<Vec<u8>>,
}

impl Symbols {
    /// Adds a table with the strings that its names lie in. Without a size, a symbol reaches to
    /// the next one, if [`close`](Self::close) is called with where the code ends.
    pub(super) fn add(&mut self, raw: impl Iterator<Item = Raw>, strings: Vec<u8>) {
        let Ok(table) = u8::try_from(self.strings.len()) else { return };
        self.strings.push(strings);
        self.rows.extend(raw.map(|raw| Row {
            start: raw.start,
            end: raw.start.saturating_add(raw.size),
            rank: raw.rank,
            table,
            name: raw.name,
        }));
    }

    /// Sorts; `end_of` tells where the code around an address ends.
    pub(super) fn close(&mut self, end_of: impl Fn(u64) -> Option<u64>) {
        self.rows.sort_by_key(|row| (row.start, Reverse(row.end > row.start), Reverse(row.rank)));
        self.rows.dedup_by_key(|row| row.start);
        let mut next = u64::MAX;
        for row in self.rows.iter_mut().rev() {
            if row.end == row.start {
                row.end = end_of(row.start).map_or(row.start, |end| end.min(next));
            }
            next = row.start;
        }
        self.rows.shrink_to_fit();
    }

    /// The function that holds an address.
    pub(super) fn name(&self, address: u64) -> Option<String> {
        let after = self.rows.partition_point(|row| row.start <= address);
        let before = self.rows.get(after.saturating_sub(NESTED)..after)?;
        let row = before.iter().rev().find(|row| address < row.end)?;
        let from = self.strings.get(usize::from(row.table))?.get(row.name as usize..)?;
        let from = from.get(..from.len().min(MAX_RAW))?;
        let end = from.iter().position(|byte| *byte == 0).unwrap_or(from.len());
        let name = demangle(&String::from_utf8_lossy(from.get(..end)?));
        (!name.is_empty()).then_some(name)
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>() + self.strings.iter().map(Vec::capacity).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(raw: &[(u64, u64, u32, u8)]) -> Symbols {
        let mut symbols = Symbols::default();
        let raw = raw.iter().map(|&(start, size, name, rank)| Raw { start, size, name, rank });
        symbols.add(raw, b"\0one\0two\0three\0".to_vec());
        symbols.close(|address| (address < 0x1000).then_some(0x1000));
        symbols
    }

    #[test]
    fn a_symbol_holds_its_size_and_no_more() {
        let symbols = table(&[(0x100, 0x10, 1, 0), (0x200, 0x10, 5, 0)]);
        assert_eq!(symbols.name(0x10f).as_deref(), Some("one"));
        assert_eq!(symbols.name(0x110), None);
        assert_eq!(symbols.name(0xff), None);
    }

    #[test]
    fn without_a_size_it_reaches_to_the_next_or_the_end_of_the_code() {
        let symbols = table(&[(0x100, 0, 1, 0), (0x200, 0, 5, 0), (0x2000, 0, 9, 0)]);
        assert_eq!(symbols.name(0x1ff).as_deref(), Some("one"));
        assert_eq!(symbols.name(0xfff).as_deref(), Some("two"));
        assert_eq!(symbols.name(0x1000), None);
        assert_eq!(symbols.name(0x2000), None, "in no code");
    }

    #[test]
    fn the_inner_function_wins_and_the_outer_goes_on_behind_it() {
        let symbols = table(&[(0x100, 0x100, 1, 0), (0x120, 0x10, 5, 0)]);
        assert_eq!(symbols.name(0x125).as_deref(), Some("two"));
        assert_eq!(symbols.name(0x130).as_deref(), Some("one"));
    }

    #[test]
    fn of_several_at_one_address_the_best_name_counts() {
        let symbols = table(&[(0x100, 0x10, 1, 1), (0x100, 0x10, 5, 2), (0x100, 0, 9, 3)]);
        assert_eq!(symbols.name(0x100).as_deref(), Some("two"), "one with a size is no label");
    }

    #[test]
    fn a_name_beyond_the_strings_is_none() {
        assert_eq!(table(&[(0x100, 0x10, 99, 0)]).name(0x100), None);
    }
}
