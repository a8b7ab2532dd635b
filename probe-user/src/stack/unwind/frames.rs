//! A module's unwind information: from an address to the row for it. Pure.

use super::rule::{Bytes, Rule};
use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, EhFrameHdr, LittleEndian, Pointer, Reader,
    UnwindContext, UnwindOffset, UnwindSection,
};

/// Most registers of a row that are kept: a signal's frame has all of them.
const MOST_SAVED: usize = 40;
/// Most functions that an index is made for.
const MOST_FUNCTIONS: usize = 1 << 18;
/// Most bytes of what functions have in common; it is read again for each.
const LONGEST_COMMON: usize = 256;
/// Most bytes of what is said of a function: all of it is gone through for each address.
const LONGEST_FUNCTION: usize = 64 << 10;

/// Unwind information of a module.
#[derive(Debug)]
pub(super) struct CallFrames {
    section: Section,
    bases: BaseAddresses,
    table: Table,
}

#[derive(Debug)]
enum Section {
    /// `.eh_frame`.
    Eh(Box<[u8]>),
    /// `.debug_frame`.
    Debug(Box<[u8]>),
}

/// Where in the section a function's entry is.
#[derive(Debug)]
enum Table {
    /// As the linker made it: pairs of 32 bits, relative to this address.
    Linked { rows: Box<[u8]>, base: u64, section: u64 },
    /// First addresses and offsets, made here.
    Made(Vec<(u64, usize)>),
}

/// What `.eh_frame_hdr` says of its section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Address of `.eh_frame`.
    pub(super) section: u64,
    /// Number of rows in its table, if it is of the one kind that linkers make.
    rows: usize,
    /// Where the table begins.
    start: usize,
}

/// What `.eh_frame_hdr` holds; `address`: its own.
pub(super) fn header(bytes: &[u8], address: u64) -> Option<Header> {
    /// Version 1, and the encodings of the pointer, of the count, and of the table: relative to
    /// the place, plain, and relative to the header, of 32 bits each.
    const KIND: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let parsed = EhFrameHdr::new(bytes, LittleEndian).parse(&bases, 8).ok()?;
    let Pointer::Direct(section) = parsed.eh_frame_ptr() else { return None };
    let rows = match bytes.get(..12)? {
        [kind @ .., _, _, _, _, a, b, c, d] if *kind == KIND => u32::from_le_bytes([*a, *b, *c, *d]),
        _ => 0,
    };
    Some(Header { section, rows: usize::try_from(rows).ok()?, start: 12 })
}

impl CallFrames {
    /// From `.eh_frame` at an address, with its header and the header's address if there is one.
    pub(super) fn eh(section: Box<[u8]>, address: u64, header: Option<(Header, &[u8], u64)>) -> Option<Self> {
        let mut bases = BaseAddresses::default().set_eh_frame(address);
        let linked = header.and_then(|(header, bytes, base)| {
            bases = bases.clone().set_eh_frame_hdr(base);
            let behind = header.rows.checked_mul(8)?.checked_add(header.start)?;
            let rows = bytes.get(header.start..behind).filter(|rows| !rows.is_empty())?;
            Some(Table::Linked { rows: rows.into(), base, section: address })
        });
        let table = match linked {
            Some(table) => table,
            None => Table::Made(index(&eh_frame(&section), &bases)?),
        };
        Some(Self { section: Section::Eh(section), bases, table })
    }

    /// From `.debug_frame`.
    pub(super) fn debug(section: Box<[u8]>) -> Option<Self> {
        let bases = BaseAddresses::default();
        let table = Table::Made(index(&debug_frame(&section), &bases)?);
        Some(Self { section: Section::Debug(section), bases, table })
    }

    /// The bytes that its rules point into.
    pub(super) const fn section(&self) -> &[u8] {
        match &self.section {
            Section::Eh(bytes) | Section::Debug(bytes) => bytes,
        }
    }

    /// Bytes of memory that it takes.
    pub(super) const fn size(&self) -> usize {
        let table = match &self.table {
            Table::Linked { rows, .. } => rows.len(),
            Table::Made(rows) => rows.capacity() * size_of::<(u64, usize)>(),
        };
        self.section().len() + table
    }

    /// The row for an address.
    pub(super) fn rule(&self, address: u64, context: &mut UnwindContext<usize>) -> Option<Rule> {
        let entry = self.table.entry(address)?;
        match &self.section {
            Section::Eh(bytes) => row(&eh_frame(bytes), &self.bases, entry, address, context),
            Section::Debug(bytes) => row(&debug_frame(bytes), &self.bases, entry, address, context),
        }
    }
}

impl Table {
    /// Offset of the entry that an address may belong to.
    fn entry(&self, address: u64) -> Option<usize> {
        match self {
            Self::Linked { rows, base, section } => {
                let (rows, _) = rows.as_chunks::<4>();
                let (rows, _) = rows.as_chunks::<2>();
                let place = |word: [u8; 4]| base.wrapping_add_signed(i64::from(i32::from_le_bytes(word)));
                let behind = rows.partition_point(|[first, _]| place(*first) <= address);
                let [_, entry] = rows.get(behind.checked_sub(1)?)?;
                usize::try_from(place(*entry).checked_sub(*section)?).ok()
            }
            Self::Made(rows) => {
                let behind = rows.partition_point(|(first, _)| *first <= address);
                rows.get(behind.checked_sub(1)?).map(|(_, entry)| *entry)
            }
        }
    }
}

fn eh_frame(bytes: &[u8]) -> EhFrame<Bytes<'_>> {
    let mut section = EhFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section
}

fn debug_frame(bytes: &[u8]) -> DebugFrame<Bytes<'_>> {
    let mut section = DebugFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section
}

/// First addresses and offsets of all entries, in the order of their addresses.
fn index<'a, S: UnwindSection<Bytes<'a>>>(section: &S, bases: &BaseAddresses) -> Option<Vec<(u64, usize)>> {
    let mut rows = Vec::new();
    let mut entries = section.entries(bases);
    while let (Ok(Some(entry)), true) = (entries.next(), rows.len() < MOST_FUNCTIONS) {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(function) = partial.parse(common)
        {
            rows.push((function.initial_address(), function.offset()));
        }
    }
    rows.sort_unstable();
    rows.shrink_to_fit();
    Some(rows).filter(|rows| !rows.is_empty())
}

/// What functions have in common, unless it is so long that reading it costs more than it tells.
fn common<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
) -> gimli::Result<CommonInformationEntry<Bytes<'a>>> {
    let mut length = *section.section();
    length.skip(UnwindOffset::into(offset))?;
    match length.read_u32()? {
        length if usize::try_from(length).is_ok_and(|length| length <= LONGEST_COMMON) => {
            section.cie_from_offset(bases, offset)
        }
        _ => Err(gimli::Error::UnsupportedOffset),
    }
}

fn row<'a, S: UnwindSection<Bytes<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    entry: usize,
    address: u64,
    context: &mut UnwindContext<usize>,
) -> Option<Rule> {
    let function = section.fde_from_offset(bases, S::Offset::from(entry), common).ok()?;
    if !function.contains(address) || function.entry_len() > LONGEST_FUNCTION {
        return None;
    }
    let row = function.unwind_info_for_address(section, bases, context, address).ok()?;
    Some(Rule {
        frame: row.cfa().clone(),
        saved: row.registers().take(MOST_SAVED).cloned().collect(),
        returns: function.cie().return_address_register(),
        signal: function.is_signal_trampoline(),
        encoding: function.cie().encoding(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What two functions have in common, and they: 16 bytes each, from `FIRST` on.
    const FIRST: u64 = 0x1000;

    fn debug_section(common: usize) -> Vec<u8> {
        let entry = |bytes: &[u8], length: usize| {
            let mut entry = u32::try_from(length).unwrap().to_le_bytes().to_vec();
            entry.extend(bytes);
            entry.resize(4 + length, 0);
            entry
        };
        // Version 1, no augmentation, factors 1 and -8, column 16; the frame ends at rsp + 8, and
        // the return address is below.
        let mut section = entry(&[0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1], common);
        for function in 0..2 {
            let mut bytes = 0u32.to_le_bytes().to_vec();
            [FIRST + function * 16, 16].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            section.extend(entry(&bytes, 20));
        }
        section
    }

    fn rule(section: Vec<u8>, address: u64) -> Option<Rule> {
        CallFrames::debug(section.into())?.rule(address, &mut UnwindContext::new())
    }

    #[test]
    fn a_row_is_found_by_an_index_that_is_made() {
        let found =
            [FIRST - 1, FIRST, FIRST + 31, FIRST + 32].map(|address| rule(debug_section(20), address).is_some());
        assert_eq!(found, [false, true, true, false]);
    }

    #[test]
    fn what_takes_too_long_to_read_is_left_out() {
        assert!(rule(debug_section(LONGEST_COMMON), FIRST).is_some());
        assert!(rule(debug_section(LONGEST_COMMON + 4), FIRST).is_none());
    }

    #[test]
    fn a_header_that_lies_about_its_table_is_not_believed() {
        let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
        [16i32, i32::MAX].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        let said = header(&bytes, 0x2000).unwrap();
        assert_eq!(said.section, 0x2014);
        assert!(CallFrames::eh([0; 64].into(), said.section, Some((said, &bytes, 0x2000))).is_none());
        assert_eq!(header(&bytes[..6], 0x2000), None);
    }

    proptest! {
        #[test]
        fn any_section_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..60, value: u8, address: u64) {
            let mut damaged = debug_section(20);
            if let Some(byte) = damaged.get_mut(at) {
                *byte = value;
            }
            rule(damaged, FIRST);
            rule(bytes.clone(), address);
            let said = header(&bytes, address).map(|header| (header, &*bytes, address));
            if let Some(frames) = CallFrames::eh(bytes.clone().into(), address, said) {
                frames.rule(address, &mut UnwindContext::new());
            }
        }
    }
}
