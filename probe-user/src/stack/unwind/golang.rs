//! Go's own table of its functions, `.gopclntab`: it is there in stripped programs too, where
//! nothing else says how large a frame is. Pure.
//!
//! The layout is that of Go 1.18 and later, as its package `debug/gosym` reads it and its
//! `runtime/symtab.go` describes it.

/// Most steps of a function's frame size that are gone through.
const MOST_STEPS: usize = 1 << 14;
/// What tables begin with on this architecture, by their layout.
const KINDS: [Kind; 2] = [
    // Go 1.18
    Kind { start: [0xf0, 0xff, 0xff, 0xff, 0, 0, QUANTUM, 8], flags: 36 },
    // Go 1.20
    Kind { start: [0xf1, 0xff, 0xff, 0xff, 0, 0, QUANTUM, 8], flags: 40 },
];
/// Bytes of the smallest instruction.
const QUANTUM: u8 = if cfg!(target_arch = "x86_64") { 1 } else { 4 };
/// Where in the table the address of its code stands.
pub(super) const TEXT: usize = 24;
/// A thread or goroutine begins in such a function.
const TOP_FRAME: u8 = 1;
/// Such a function changes to another stack.
const WRITES_STACK_POINTER: u8 = 2;

/// Where the table begins among the bytes of its section.
pub(super) fn start(section: &[u8]) -> Option<usize> {
    let (words, _) = section.as_chunks::<8>();
    words.iter().position(|word| KINDS.iter().any(|kind| *word == kind.start)).map(|word| word * 8)
}

/// The table.
#[derive(Debug)]
pub(super) struct GoFunctions {
    bytes: Box<[u8]>,
    /// Where its code begins.
    text: u64,
    functions: usize,
    names: usize,
    steps: usize,
    table: usize,
    /// Where in a function's entry its number and flags are.
    flags: usize,
}

/// A layout.
#[derive(Debug)]
struct Kind {
    /// Mark of the layout, two zeros, bytes of the smallest instruction and of a pointer.
    start: [u8; 8],
    /// Where in a function's entry its number and flags are.
    flags: usize,
}

/// How the frame of a Go function is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GoFrame {
    /// Its thread or goroutine begins here.
    Outermost,
    /// It has this many bytes below the return address.
    Size(u64),
    /// It changes to another stack, and its caller waits on the first.
    Changes,
}

impl GoFunctions {
    /// From the bytes of the section; `None` if they are not of a known layout. `relocated`: where
    /// its code begins, if the loader has to put that in.
    pub(super) fn new(bytes: Box<[u8]>, relocated: impl FnOnce() -> Option<u64>) -> Option<Self> {
        let word =
            |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u64::from_le_bytes(*word));
        let offset = |at: usize| word(at).and_then(|offset| usize::try_from(offset).ok());
        let kind = KINDS.iter().find(|kind| bytes.starts_with(&kind.start))?;
        let text = word(TEXT)?;
        let text = if text == 0 { relocated()? } else { text };
        let [functions, names, steps, table] = [offset(8)?, offset(32)?, offset(56)?, offset(64)?];
        Some(Self { text, functions, names, steps, table, flags: kind.flags, bytes })
    }

    /// Bytes of memory that it takes.
    pub(super) const fn size(&self) -> usize {
        self.bytes.len()
    }

    /// How the frame at an address is left; `None` if there is no Go function.
    pub(super) fn frame(&self, address: u64) -> Option<GoFrame> {
        let inside = u32::try_from(address.checked_sub(self.text)?).ok()?;
        let (start, entry) = self.function(inside)?;
        let flags = *self.bytes.get(entry.checked_add(self.flags + 1)?)?;
        if flags & TOP_FRAME != 0 {
            return Some(GoFrame::Outermost);
        }
        Some(match flags & WRITES_STACK_POINTER != 0 {
            true if self.never_returns(entry) => GoFrame::Outermost,
            true => GoFrame::Changes,
            false => GoFrame::Size(self.frame_size(entry, u64::from(inside - start))?),
        })
    }

    /// It gives its goroutine away, so nobody waits for it; what is on the goroutine's stack is
    /// no caller of what the thread does since.
    fn never_returns(&self, entry: usize) -> bool {
        let name = self.name(entry).unwrap_or_default();
        [&b"runtime.mcall\0"[..], b"runtime.morestack\0"].iter().any(|never| name.starts_with(never))
    }

    /// Where a function begins, counted from the first one, and where its entry is.
    fn function(&self, inside: u32) -> Option<(u32, usize)> {
        // The row behind the last tells where that ends.
        let behind = self.table.checked_add(self.functions.checked_mul(8)?)?;
        let (rows, _) = self.bytes.get(self.table..behind)?.as_chunks::<8>();
        let first = |row: &[u8; 8]| u32::from_le_bytes([row[0], row[1], row[2], row[3]]);
        let row = rows.get(rows.partition_point(|row| first(row) <= inside).checked_sub(1)?)?;
        let entry = u32::from_le_bytes([row[4], row[5], row[6], row[7]]);
        (inside < self.end()?).then_some((first(row), self.table.checked_add(usize::try_from(entry).ok()?)?))
    }

    fn end(&self) -> Option<u32> {
        self.half(self.table.checked_add(self.functions.checked_mul(8)?)?)
    }

    fn half(&self, at: usize) -> Option<u32> {
        self.bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
    }

    /// The function's name and what is behind it.
    fn name(&self, entry: usize) -> Option<&[u8]> {
        let name = usize::try_from(self.half(entry.checked_add(4)?)?).ok()?;
        self.bytes.get(self.names.checked_add(name)?..)
    }

    /// The size of the frame so far into its function.
    fn frame_size(&self, entry: usize, inside: u64) -> Option<u64> {
        let steps = usize::try_from(self.half(entry.checked_add(16)?)?).ok()?;
        let mut rest = self.bytes.get(self.steps.checked_add(steps)?..)?;
        let (mut size, mut reached) = (-1i64, 0u64);
        for step in 0..MOST_STEPS {
            let change = number(&mut rest)?;
            if change == 0 && step != 0 {
                return None;
            }
            let sign = -i64::from(change & 1);
            size = size.checked_add(i64::from(change >> 1) ^ sign)?;
            reached = reached.checked_add(u64::from(number(&mut rest)?).checked_mul(u64::from(QUANTUM))?)?;
            if inside < reached {
                return u64::try_from(size).ok();
            }
        }
        None
    }
}

/// A number of the table: seven bits a byte, the lowest first.
fn number(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for shift in (0..32).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Code at 0x40_1000 of two functions of 0x20 bytes, as Go 1.20 lays a table out: the first
    /// has a frame of 24 bytes from its eighth byte on.
    fn table(flags: [u8; 2], names: &[u8]) -> Vec<u8> {
        const NAMES: u64 = 72;
        const STEPS: u64 = NAMES + 64;
        const TABLE: u64 = STEPS + 16;
        const ROWS: u32 = 3 * 8;
        let mut bytes = KINDS[1].start.to_vec();
        [2, 0, 0x40_1000, NAMES, 0, 0, STEPS, TABLE].iter().for_each(|word: &u64| bytes.extend(word.to_le_bytes()));
        bytes.extend(names);
        bytes.resize(usize::try_from(STEPS).unwrap(), 0);
        // One for nothing, then: from -1 to 0 until 8, to 24 until 32.
        let until = |bytes: u8| bytes / QUANTUM;
        bytes.extend([0, 2, until(8), 48, until(24), 0]);
        bytes.resize(usize::try_from(TABLE).unwrap(), 0);
        let entry = |function: u32| ROWS + function * 44;
        [0, entry(0), 0x20, entry(1), 0x40, 0].iter().for_each(|word: &u32| bytes.extend(word.to_le_bytes()));
        for (function, flags) in (0u32..).zip(flags) {
            [function * 0x20, 0, 0, 0, 1, 0, 0, 0, 0, 0].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            bytes.extend([0, flags, 0, 0]);
        }
        bytes
    }

    fn frame(flags: [u8; 2], names: &[u8], address: u64) -> Option<GoFrame> {
        GoFunctions::new(table(flags, names).into(), || None).unwrap().frame(address)
    }

    #[test]
    fn a_frame_grows_where_the_table_says() {
        let sizes =
            [0x40_1000, 0x40_1007, 0x40_1008, 0x40_101f, 0x40_1028].map(|address| frame([0, 0], b"f\0", address));
        let size = |bytes| Some(GoFrame::Size(bytes));
        assert_eq!(sizes, [size(0), size(0), size(24), size(24), size(24)]);
        assert_eq!([0x40_0fff, 0x40_1040, u64::MAX].map(|address| frame([0, 0], b"f\0", address)), [None; 3]);
    }

    #[test]
    fn where_a_goroutine_begins_or_is_given_away_is_outermost() {
        let at = 0x40_1010;
        assert_eq!(frame([TOP_FRAME, 0], b"runtime.goexit\0", at), Some(GoFrame::Outermost));
        assert_eq!(frame([WRITES_STACK_POINTER, 0], b"runtime.mcall\0", at), Some(GoFrame::Outermost));
        assert_eq!(frame([WRITES_STACK_POINTER, 0], b"runtime.mcalls\0", at), Some(GoFrame::Changes));
    }

    proptest! {
        #[test]
        fn a_damaged_table_is_survived(at in 0usize..300, value: u8, cut in 0usize..300, address in 0x40_0ff0u64..0x40_1050) {
            let mut bytes = table([0, WRITES_STACK_POINTER], b"runtime.x\0");
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
            for bytes in [bytes.clone(), bytes.into_iter().take(cut).collect()] {
                if let Some(functions) = start(&bytes).and_then(|start| GoFunctions::new(bytes[start..].into(), || Some(1))) {
                    functions.frame(address);
                }
            }
        }
    }
}
