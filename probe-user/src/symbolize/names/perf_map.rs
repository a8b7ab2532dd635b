//! `perf-PID.map`: lines `START SIZE NAME` in hexadecimal, written by whoever makes code at run
//! time. A later line takes the place of those before it, since memory is used again.

use super::super::message::Place;
use super::demangle::demangle;
use super::read::Bytes;
use crate::stack::{Function, Nameless};

/// How many lines before an address are looked at: old code may reach over newer.
const OVERLAPPING: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Row {
    start: u64,
    end: u64,
    line: u32,
    /// Where its name lies in the text.
    name: (u32, u32),
}

/// Functions by address.
pub(in crate::symbolize) struct PerfMap {
    text: Vec<u8>,
    rows: Vec<Row>,
}

impl PerfMap {
    pub(super) fn read(file: &Bytes) -> Result<Self, Nameless> {
        Ok(Self::parse(file.all()?))
    }

    /// Lines that make no sense are left out.
    fn parse(text: Vec<u8>) -> Self {
        let (mut rows, mut at, mut number) = (Vec::new(), 0, 0);
        for line in text.split(|byte| *byte == b'\n') {
            rows.extend(row(line, at, number));
            at += line.len() + 1;
            number += 1;
        }
        rows.sort_by_key(|row| (row.start, row.line));
        rows.shrink_to_fit();
        Self { text, rows }
    }

    pub(super) fn name(&self, address: u64) -> Place {
        let after = self.rows.partition_point(|row| row.start <= address);
        let before = self.rows.get(after.saturating_sub(OVERLAPPING)..after).unwrap_or_default();
        let row = before.iter().filter(|row| address < row.end).max_by_key(|row| row.line);
        let name = row.and_then(|row| self.text.get(row.name.0 as usize..row.name.1 as usize));
        let name = demangle(&String::from_utf8_lossy(name.ok_or(Nameless::NoSymbol)?));
        Ok(vec![Function { name, file: String::new(), line: 0 }])
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.text.capacity() + self.rows.capacity() * size_of::<Row>()
    }
}

fn row(text: &[u8], at: usize, line: u32) -> Option<Row> {
    let mut words = text.splitn(3, |byte| *byte == b' ');
    let (start, size) = (hexadecimal(words.next()?)?, hexadecimal(words.next()?)?);
    let name = words.next()?.trim_ascii_end();
    if name.is_empty() || size == 0 {
        return None;
    }
    let begin = at + text.len() - words_len(text, name);
    let name = (u32::try_from(begin).ok()?, u32::try_from(begin + name.len()).ok()?);
    Some(Row { start, end: start.checked_add(size)?, line, name })
}

/// How much of a line its name and the spaces behind that take.
fn words_len(text: &[u8], name: &[u8]) -> usize {
    name.len() + (text.len() - text.trim_ascii_end().len())
}

fn hexadecimal(word: &[u8]) -> Option<u64> {
    let word = word.strip_prefix(b"0x").unwrap_or(word);
    u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> PerfMap {
        PerfMap::parse(text.as_bytes().to_vec())
    }

    fn name(map: &PerfMap, address: u64) -> Result<String, Nameless> {
        map.name(address).map(|functions| functions[0].name.clone())
    }

    #[test]
    fn a_line_names_its_addresses() {
        let map = names("7f00 20 JS:*serve /srv/app.js:3:1 \n0x8000 10 LFoo;::bar\r\n");
        assert_eq!(name(&map, 0x7f00).as_deref(), Ok("JS:*serve /srv/app.js:3:1"));
        assert_eq!(name(&map, 0x7f1f).as_deref(), Ok("JS:*serve /srv/app.js:3:1"));
        assert_eq!(name(&map, 0x7f20), Err(Nameless::NoSymbol));
        assert_eq!(name(&map, 0x800f).as_deref(), Ok("LFoo;::bar"));
    }

    #[test]
    fn memory_that_is_used_again_has_its_last_name() {
        let map = names("1000 100 old\n1080 20 new\n1000 10 newest\n");
        assert_eq!(name(&map, 0x1000).as_deref(), Ok("newest"));
        assert_eq!(name(&map, 0x1040).as_deref(), Ok("old"));
        assert_eq!(name(&map, 0x1085).as_deref(), Ok("new"));
    }

    #[test]
    fn nonsense_is_left_out() {
        let map = names("zz 10 a\n10\n20 10\n30 0 b\nffffffffffffffff 10 c\n40 4 \n\n50 4 good");
        assert_eq!(map.rows.len(), 1);
        assert_eq!(name(&map, 0x50).as_deref(), Ok("good"));
    }
}
