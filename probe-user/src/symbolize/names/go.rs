//! Go's own table of its functions, `.gopclntab`: stripped programs have it too, since Go itself
//! needs it for its panics.
//!
//! The layout is that of Go 1.18 and later, as its package `debug/gosym` reads it.

use super::symbols::Raw;

/// What the table begins with: Go 1.18, Go 1.20.
const MARKS: [[u8; 6]; 2] = [[0xf0, 0xff, 0xff, 0xff, 0, 0], [0xf1, 0xff, 0xff, 0xff, 0, 0]];
/// Pointers of 8 bytes only.
const POINTER: u8 = 8;
/// Functions of Go rank below those of a symbol table.
const RANK: u8 = 1;

/// Functions, and the names that they have a place in.
pub(super) struct GoFunctions {
    pub(super) functions: Vec<Raw>,
    pub(super) names: Vec<u8>,
}

/// Reads a section. `relocated` tells what the loader puts at a place of the section, where a
/// program can be loaded anywhere. `None` if no table of a known layout is in it.
pub(super) fn functions(section: &[u8], relocated: impl FnOnce(u64) -> Option<u64>) -> Option<GoFunctions> {
    let start = section.chunks_exact(8).position(is_mark)? * 8;
    let table = section.get(start..)?;
    let word = |index: usize| table.get(index * 8..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
    let offset = |index: usize| usize::try_from(word(index)?).ok();
    let text = match word(3)? {
        0 => relocated(start as u64 + 24)?,
        text => text,
    };
    let rows = table.get(offset(8)?..)?;
    // One more tells where the last function ends.
    let rows = rows.get(..offset(1)?.checked_add(1)?.checked_mul(8)?.min(rows.len()))?;
    let names = table.get(offset(4)?..offset(5)?)?.to_vec();
    let functions = rows.chunks_exact(8).zip(rows.chunks_exact(8).skip(1));
    let functions = functions.filter_map(|(row, next)| {
        let (begin, end) = (half(row, 0)?, half(next, 0)?);
        // Behind the address in its entry is where its name begins.
        let name = half(table.get(offset(8)?..)?, (half(row, 4)? as usize).checked_add(4)?)?;
        let start = text.checked_add(begin.into())?;
        Some(Raw { start, size: end.checked_sub(begin)?.into(), name, rank: RANK })
    });
    Some(GoFunctions { functions: functions.collect(), names })
}

fn is_mark(word: &[u8]) -> bool {
    MARKS.iter().any(|mark| word.starts_with(mark)) && word.last() == Some(&POINTER)
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two functions, of 16 and 32 bytes, behind eight other bytes.
    fn section(text: u64) -> Vec<u8> {
        let mark = u64::from_le_bytes([0xf1, 0xff, 0xff, 0xff, 0, 0, 1, POINTER]);
        let names = b"main.one\0main.two\0".to_vec();
        let rows = 72 + names.len() as u64;
        let words = [7, mark, 2, 0, text, 72, rows, 0, 0, rows];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(names);
        let table = [0_u32, 24, 16, 32, 48, 0, 0, 0, 16, 9];
        bytes.extend(table.iter().flat_map(|half| half.to_le_bytes()));
        bytes
    }

    #[test]
    fn functions_have_their_places_and_names() {
        let go = functions(&section(0x1000), |_| None).unwrap();
        let told: Vec<_> = go.functions.iter().map(|raw| (raw.start, raw.size, raw.name)).collect();
        assert_eq!(told, [(0x1000, 16, 0), (0x1010, 32, 9)]);
        assert!(go.names.starts_with(b"main.one\0main.two"));
    }

    #[test]
    fn a_program_for_any_place_is_relocated() {
        let go = functions(&section(0), |place| (place == 8 + 24).then_some(0x2000)).unwrap();
        assert_eq!(go.functions[0].start, 0x2000);
        assert!(functions(&section(0), |_| None).is_none());
    }

    #[test]
    fn every_cut_is_no_more_than_a_smaller_table() {
        let whole = section(0x1000);
        for length in 0..whole.len() {
            let cut = functions(&whole[..length], |_| None);
            assert!(cut.is_none_or(|go| go.functions.len() <= 2));
        }
    }
}
