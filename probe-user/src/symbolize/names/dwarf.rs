//! Debug information: functions with those inlined in them, files and lines.

use super::super::message::MAX_FUNCTIONS;
use super::demangle::{cut, demangle};
use super::elf::{ElfFile, section};
use super::read::Bytes;
use crate::stack::{Function, Nameless};
use addr2line::{Context, Frame};
use gimli::{EndianRcSlice, RunTimeEndian, SectionId};
use object::{Object, ObjectSection};
use std::rc::Rc;

type Reader = EndianRcSlice<RunTimeEndian>;

/// What names and lines need.
const SECTIONS: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

pub(super) struct Dwarf {
    context: Context<Reader>,
    size_bytes: usize,
}

impl Dwarf {
    /// `None` where there is none that fits into the budget or that makes sense: symbols do
    /// without.
    pub(super) fn load(elf: &ElfFile<'_>, file: &Bytes) -> Option<Self> {
        let total = SECTIONS.iter().filter_map(|id| elf.section_by_name(id.name())).map(|section| section.size());
        let total = total.fold(0, u64::saturating_add);
        if total > file.left() / 2 {
            return None;
        }
        let endian = if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let load = |id: SectionId| -> Result<Reader, Nameless> {
            let wanted = SECTIONS.contains(&id);
            let bytes = if wanted { section(elf, file, id.name())?.unwrap_or_default() } else { Vec::new() };
            Ok(EndianRcSlice::new(Rc::from(bytes), endian))
        };
        let dwarf = gimli::Dwarf::load(load).ok()?;
        let size_bytes = usize::try_from(total).unwrap_or(usize::MAX);
        Some(Self { context: Context::from_dwarf(dwarf).ok()?, size_bytes })
    }

    /// Innermost first; names that it does not tell are empty.
    pub(super) fn functions(&self, address: u64) -> Vec<Function> {
        let Ok(mut frames) = self.context.find_frames(address).skip_all_loads() else { return Vec::new() };
        let mut functions = Vec::new();
        while let Ok(Some(frame)) = frames.next()
            && functions.len() < MAX_FUNCTIONS
        {
            functions.push(function(&frame));
        }
        functions
    }

    pub(super) const fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}

fn function(frame: &Frame<'_, Reader>) -> Function {
    let name = frame.function.as_ref().and_then(|function| function.raw_name().ok().map(|name| demangle(&name)));
    let location = frame.location.as_ref();
    Function {
        name: name.unwrap_or_default(),
        file: location.and_then(|location| location.file).map(cut).unwrap_or_default(),
        line: location.and_then(|location| location.line).unwrap_or_default(),
    }
}
