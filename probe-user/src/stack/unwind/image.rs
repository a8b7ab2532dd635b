//! What is needed of an ELF file: where its parts are loaded, its build id and its unwind
//! information. Read in bounded pieces, and nothing in it is believed: it may be made to mislead.

use super::frames::{self, CallFrames};
use super::golang::{self, GoFunctions};
use object::LittleEndian;
use object::elf::{self, FileHeader64, NoteHeader64, ProgramHeader64, Rela64, SectionHeader64};
use object::pod::{self, Pod};
use std::fs::File;
use std::os::unix::fs::FileExt;

type Header = FileHeader64<LittleEndian>;
type Segment = ProgramHeader64<LittleEndian>;
type SectionHeader = SectionHeader64<LittleEndian>;
type Relocation = Rela64<LittleEndian>;

const LE: LittleEndian = LittleEndian;
/// Parts are loaded in pages of this many bytes, or larger ones.
const PAGE: u64 = 4096;
/// Most segments of a file; real ones have some ten.
const MOST_SEGMENTS: usize = 128;
/// Most sections of a file that are looked at.
const MOST_SECTIONS: usize = 4096;
/// Most tables of relocations that are looked at; programs have two.
const MOST_RELOCATIONS: usize = 4;
/// Most bytes of notes, and of names of sections.
const MOST_TEXT: u64 = 64 << 10;
/// Most bytes of unwind information of a file: a browser has some 20 MiB.
const MOST_FRAMES: u64 = 32 << 20;
/// Longest build id; real ones have 20 bytes.
const LONGEST_BUILD_ID: usize = 64;

/// Something that bytes can be read from.
pub(super) trait ReadAt {
    /// So many bytes at an offset; `None` if there are fewer, or they cannot be read.
    fn read(&self, offset: u64, length: usize) -> Option<Box<[u8]>>;
}

impl ReadAt for File {
    fn read(&self, offset: u64, length: usize) -> Option<Box<[u8]>> {
        let mut bytes = vec![0; length].into_boxed_slice();
        self.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

impl ReadAt for [u8] {
    fn read(&self, offset: u64, length: usize) -> Option<Box<[u8]>> {
        let from = usize::try_from(offset).ok()?;
        self.get(from..from.checked_add(length)?).map(Into::into)
    }
}

/// What was read of a file.
#[derive(Debug)]
pub(super) struct Image {
    segments: Vec<Segment>,
    /// GNU build id in hexadecimal; empty if it has none.
    pub(super) build_id: String,
    /// How its frames are unwound; `None` if it does not say.
    pub(super) frames: Option<CallFrames>,
    /// What Go says of its own functions.
    pub(super) go: Option<GoFunctions>,
}

impl Image {
    /// Reads it; `None` if it is no ELF file of this machine's kind.
    pub(super) fn read(file: &(impl ReadAt + ?Sized)) -> Option<Self> {
        let header: Header = *first(&file.read(0, size_of::<Header>())?)?;
        let ident = &header.e_ident;
        let known = ident.magic == elf::ELFMAG && ident.class == elf::ELFCLASS64 && ident.data == elf::ELFDATA2LSB;
        let count = usize::from(header.e_phnum.get(LE));
        let size = usize::from(header.e_phentsize.get(LE));
        if !known || count > MOST_SEGMENTS || size != size_of::<Segment>() {
            return None;
        }
        let segments: Vec<Segment> = many(file, header.e_phoff.get(LE), count)?;
        let parts = Parts { file, segments: &segments, sections: Sections::read(file, &header).unwrap_or_default() };
        let (build_id, frames, go) = (parts.build_id().unwrap_or_default(), parts.frames(), parts.go());
        Some(Self { segments, build_id, frames, go })
    }

    /// The virtual address of what is at an offset of the file.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            let start = segment.p_offset.get(LE);
            let end = start.checked_add(segment.p_filesz.get(LE)).and_then(|end| end.checked_next_multiple_of(PAGE));
            start - start % PAGE <= offset && end.is_some_and(|end| offset < end)
        };
        let loaded = || self.segments.iter().filter(|segment| segment.p_type.get(LE) == elf::PT_LOAD).filter(holds);
        let with_code = loaded().find(|segment| segment.p_flags.get(LE) & elf::PF_X != 0);
        let segment = with_code.or_else(|| loaded().next())?;
        Some(segment.p_vaddr.get(LE).wrapping_add(offset).wrapping_sub(segment.p_offset.get(LE)))
    }

    /// Bytes of memory that it takes.
    pub(super) fn size(&self) -> usize {
        self.segments.len() * size_of::<Segment>()
            + self.frames.as_ref().map_or(0, CallFrames::size)
            + self.go.as_ref().map_or(0, GoFunctions::size)
    }
}

/// What an image is made of.
struct Parts<'a, F: ?Sized> {
    file: &'a F,
    segments: &'a [Segment],
    sections: Sections,
}

impl<F: ReadAt + ?Sized> Parts<'_, F> {
    fn frames(&self) -> Option<CallFrames> {
        self.with_header().or_else(|| self.without_header()).or_else(|| self.debug_frame())
    }

    /// `.eh_frame` by way of the segment that its header has: it is there without any section.
    fn with_header(&self) -> Option<CallFrames> {
        let segment = self.segments.iter().find(|segment| segment.p_type.get(LE) == elf::PT_GNU_EH_FRAME)?;
        let address = segment.p_vaddr.get(LE);
        let bytes = self.bytes(segment.p_offset.get(LE), segment.p_filesz.get(LE))?;
        let header = frames::header(&bytes, address)?;
        let section = self.loaded(header.section)?;
        CallFrames::eh(section, header.section, Some((header, &bytes, address)))
    }

    fn without_header(&self) -> Option<CallFrames> {
        let section = self.sections.named(b".eh_frame")?;
        let bytes = self.bytes(section.sh_offset.get(LE), section.sh_size.get(LE))?;
        CallFrames::eh(bytes, section.sh_addr.get(LE), None)
    }

    fn debug_frame(&self) -> Option<CallFrames> {
        let section = self.sections.named(b".debug_frame")?;
        let plain = section.sh_flags.get(LE) & u64::from(elf::SHF_COMPRESSED) == 0;
        let bytes = plain.then(|| self.bytes(section.sh_offset.get(LE), section.sh_size.get(LE)))??;
        CallFrames::debug(bytes)
    }

    fn go(&self) -> Option<GoFunctions> {
        // The system's linker merges it into the last.
        let names: [&[u8]; 3] = [b".gopclntab", b".data.rel.ro.gopclntab", b".data.rel.ro"];
        let section = names.iter().find_map(|name| self.sections.named(name))?;
        let mut bytes = self.bytes(section.sh_offset.get(LE), section.sh_size.get(LE))?.into_vec();
        let start = golang::start(&bytes)?;
        let bytes = bytes.split_off(start).into_boxed_slice();
        let text = section.sh_addr.get(LE).checked_add((start + golang::TEXT) as u64)?;
        GoFunctions::new(bytes, || self.relocated(text))
    }

    /// What the loader writes to an address of a program that can be loaded anywhere.
    fn relocated(&self, address: u64) -> Option<u64> {
        let tables = self.sections.list.iter().filter(|section| section.sh_type.get(LE) == elf::SHT_RELA);
        tables.take(MOST_RELOCATIONS).find_map(|table| {
            let bytes = self.bytes(table.sh_offset.get(LE), table.sh_size.get(LE))?;
            let count = bytes.len() / size_of::<Relocation>();
            let (relocations, _) = pod::slice_from_bytes::<Relocation>(&bytes, count).ok()?;
            let found = relocations.iter().find(|relocation| relocation.r_offset.get(LE) == address)?;
            u64::try_from(found.r_addend.get(LE)).ok()
        })
    }

    /// What is loaded from an address on: to the end of its section, else of its segment.
    fn loaded(&self, address: u64) -> Option<Box<[u8]>> {
        let section = self.sections.list.iter().find(|section| section.sh_addr.get(LE) == address);
        if let Some(section) = section.filter(|section| section.sh_type.get(LE) != elf::SHT_NOBITS) {
            return self.bytes(section.sh_offset.get(LE), section.sh_size.get(LE));
        }
        self.segments.iter().filter(|segment| segment.p_type.get(LE) == elf::PT_LOAD).find_map(|segment| {
            let inside = address.checked_sub(segment.p_vaddr.get(LE))?;
            let rest = segment.p_filesz.get(LE).checked_sub(inside).filter(|rest| *rest != 0)?;
            self.bytes(segment.p_offset.get(LE).checked_add(inside)?, rest.min(MOST_FRAMES))
        })
    }

    fn bytes(&self, offset: u64, length: u64) -> Option<Box<[u8]>> {
        self.file.read(offset, usize::try_from(length).ok().filter(|_| length <= MOST_FRAMES)?)
    }

    fn build_id(&self) -> Option<String> {
        let notes = self.segments.iter().filter(|segment| segment.p_type.get(LE) == elf::PT_NOTE);
        notes.take(8).find_map(|segment| {
            let length = segment.p_filesz.get(LE).min(MOST_TEXT);
            let notes = self.bytes(segment.p_offset.get(LE), length)?;
            build_id(&notes, segment.p_align.get(LE))
        })
    }
}

/// The sections of a file, as far as they have names; a stripped file may have none.
#[derive(Debug, Default)]
struct Sections {
    list: Vec<SectionHeader>,
    names: Box<[u8]>,
}

impl Sections {
    fn read(file: &(impl ReadAt + ?Sized), header: &Header) -> Option<Self> {
        let count = usize::from(header.e_shnum.get(LE));
        if count > MOST_SECTIONS || usize::from(header.e_shentsize.get(LE)) != size_of::<SectionHeader>() {
            return None;
        }
        let list: Vec<SectionHeader> = many(file, header.e_shoff.get(LE), count)?;
        let names = list.get(usize::from(header.e_shstrndx.get(LE)))?;
        let length = usize::try_from(names.sh_size.get(LE).min(MOST_TEXT)).ok()?;
        let names = file.read(names.sh_offset.get(LE), length)?;
        Some(Self { list, names })
    }

    fn named(&self, name: &[u8]) -> Option<&SectionHeader> {
        self.list.iter().find(|section| {
            let rest = usize::try_from(section.sh_name.get(LE)).ok().and_then(|start| self.names.get(start..));
            rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.first() == Some(&0))
        })
    }
}

/// The build id among notes.
fn build_id(mut notes: &[u8], align: u64) -> Option<String> {
    let align = if align == 8 { 8 } else { 4 };
    loop {
        let (header, rest) = pod::from_bytes::<NoteHeader64<LittleEndian>>(notes).ok()?;
        let length = |word: u32| usize::try_from(word).ok();
        let name_length = length(header.n_namesz.get(LE))?;
        let value_length = length(header.n_descsz.get(LE))?;
        let name = rest.get(..name_length)?;
        let rest = rest.get(padded(size_of_val(header), name_length, align)?..)?;
        let value = rest.get(..value_length)?;
        if header.n_type.get(LE) == elf::NT_GNU_BUILD_ID && name == b"GNU\0" && value.len() <= LONGEST_BUILD_ID {
            return Some(hex::encode(value));
        }
        notes = rest.get(value_length.checked_next_multiple_of(align)?..)?;
    }
}

/// Length of a note's name with what pads it: the value is aligned, counted from the note's start.
fn padded(before: usize, length: usize, align: usize) -> Option<usize> {
    Some(before.checked_add(length)?.checked_next_multiple_of(align)? - before)
}

fn first<T: Pod>(bytes: &[u8]) -> Option<&T> {
    pod::from_bytes(bytes).ok().map(|(value, _)| value)
}

fn many<T: Pod + Copy>(file: &(impl ReadAt + ?Sized), offset: u64, count: usize) -> Option<Vec<T>> {
    let bytes = file.read(offset, count.checked_mul(size_of::<T>())?)?;
    pod::slice_from_bytes(&bytes, count).ok().map(|(values, _)| values.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::unwind::process::vdso;
    use crate::stack::unwind::{memory::Memory, registers::Registers};
    use gimli::UnwindContext;

    /// Looks at all that an image says, and unwinds from every place of its code.
    fn use_up(bytes: &[u8], context: &mut UnwindContext<usize>) -> Option<usize> {
        let image = Image::read(bytes)?;
        let copied = [0x11; 256];
        let mut rules = 0;
        for offset in (0..bytes.len() as u64).step_by(128) {
            let Some(address) = image.address(offset) else { continue };
            image.go.as_ref().map(|go| go.frame(address));
            let Some(frames) = &image.frames else { continue };
            let Some(rule) = frames.rule(address, context) else { continue };
            let mut memory = Memory::new(0x7000, &copied, 0x8000);
            let _ = rule.step(frames.section(), &Registers::new(address, 0x7000, 0x7010), &mut memory);
            rules += 1;
        }
        Some(rules)
    }

    #[test]
    fn the_kernels_own_object_is_understood() {
        let bytes = vdso().unwrap();
        let image = Image::read(&*bytes).unwrap();
        assert_eq!(image.build_id.len(), 40, "{image:?}");
        let rules = use_up(&bytes, &mut UnwindContext::new());
        assert!(rules > Some(2), "{rules:?} {image:?}");
        assert_eq!(image.address(u64::MAX), None);
    }

    #[test]
    fn every_truncation_is_survived() {
        let (bytes, mut context) = (vdso().unwrap(), UnwindContext::new());
        assert!((0..bytes.len()).all(|length| use_up(&bytes[..length], &mut context) <= Some(bytes.len())));
        assert_eq!(use_up(&bytes[..63], &mut context), None);
    }

    #[test]
    fn every_damaged_byte_is_survived() {
        let (bytes, mut context) = (vdso().unwrap(), UnwindContext::new());
        let mut understood = 0;
        for (at, change) in (0..bytes.len()).zip([0x01, 0x80, 0xff].into_iter().cycle()) {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= change;
            understood += usize::from(use_up(&damaged, &mut context).is_some());
        }
        assert!(understood > bytes.len() / 2, "most bytes are code, and nothing that is looked at");
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes() {
        let note = |name: &[u8], kind: u32, value: &[u8]| {
            let mut note = Vec::new();
            let length = |part: &[u8]| u32::try_from(part.len()).unwrap();
            [length(name), length(value), kind].iter().for_each(|word| note.extend(word.to_le_bytes()));
            for part in [name, value] {
                note.extend(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let other = note(b"Go\0\0", 4, b"abcde");
        let own = note(b"GNU\0", elf::NT_GNU_BUILD_ID, &[0xab, 1]);
        assert_eq!(build_id(&[other.clone(), own.clone()].concat(), 4).as_deref(), Some("ab01"));
        assert_eq!(build_id(&other, 4), None);
        assert_eq!(build_id(&own[..own.len() - 3], 4), None);
        assert_eq!(build_id(&note(b"GNU\0", elf::NT_GNU_BUILD_ID, &[1; 65]), 4), None, "none is so long");
    }
}
