//! An ELF file, and its separate debug file: their build ids, symbols and debug information.

use super::super::message::{Place, cut_to_bounds};
use super::dwarf::Dwarf;
use super::go;
use super::read::{Bytes, Cursor};
use super::symbols::{Raw, Symbols};
use crate::stack::{Function, Nameless};
use object::read::ReadCache;
use object::{
    CompressedFileRange, CompressionFormat, Endianness, File, Object, ObjectSection, ReadRef, SectionFlags, elf, pod,
};
use std::io::{self, Write};

/// Most bytes of symbols that a compressed table within a file may have.
const MAX_MINI: usize = 64 << 20;

pub(super) type ElfFile<'a> = File<'a, &'a ReadCache<Cursor<'a>>>;

/// What an ELF file tells of its places.
pub(in crate::symbolize) struct ElfNames {
    symbols: Symbols,
    dwarf: Option<Dwarf>,
    has_debug: bool,
    /// A debug file was found, and is of another build.
    other_debug: bool,
}

impl ElfNames {
    /// Reads a file that must have a build id, if one is said.
    pub(super) fn open(
        file: &Bytes,
        debug: Option<&Bytes>,
        build_id: &str,
        symbols_only: bool,
    ) -> Result<Self, Nameless> {
        let cache = ReadCache::new(Cursor::new(file));
        let elf = parse(&cache)?;
        if !build_id.is_empty() && id_of(&elf) != build_id {
            return Err(Nameless::OtherBuildId);
        }
        let mut names = Self {
            symbols: Symbols::default(),
            dwarf: None,
            has_debug: elf.section_by_name(".debug_info").is_some(),
            other_debug: false,
        };
        names.take_symbols(&elf, file, &[".symtab", ".dynsym"])?;
        if elf.section_by_name(".symtab").is_none() {
            names.take_mini(&elf, file)?;
            names.take_go(&elf, file)?;
        }
        if let Some(debug) = debug {
            names.take_debug_file(debug, build_id, symbols_only)?;
        } else if names.has_debug && !symbols_only {
            names.dwarf = Dwarf::load(&elf, file);
        }
        let code: Vec<(u64, u64)> = elf.sections().filter_map(|section| code_of(&section)).collect();
        names
            .symbols
            .close(|address| code.iter().find(|(start, end)| (*start..*end).contains(&address)).map(|code| code.1));
        Ok(names)
    }

    /// Its debug information may lie in a file of its own.
    pub(super) const fn is_stripped(&self) -> bool {
        !self.has_debug
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.symbols.size_bytes() + self.dwarf.as_ref().map_or(0, Dwarf::size_bytes)
    }

    /// What is at an address. Debug information tells inlined functions and lines; a symbol names
    /// what it does not.
    pub(super) fn name(&self, address: u64, fully: bool) -> Place {
        let dwarf = self.dwarf.as_ref().filter(|_| fully);
        let mut functions = dwarf.map(|dwarf| dwarf.functions(address)).unwrap_or_default();
        if functions.last().is_none_or(|outermost| outermost.name.is_empty())
            && let Some(name) = self.symbols.name(address)
        {
            match functions.last_mut() {
                Some(outermost) => outermost.name = name,
                None => functions.push(Function { name, file: String::new(), line: 0 }),
            }
        }
        functions.retain(|function| !function.name.is_empty());
        cut_to_bounds(&mut functions);
        match functions.is_empty() {
            false => Ok(functions),
            true if self.other_debug => Err(Nameless::OtherBuildId),
            true => Err(Nameless::NoSymbol),
        }
    }

    fn take_symbols(&mut self, elf: &ElfFile<'_>, file: &Bytes, tables: &[&str]) -> Result<(), Nameless> {
        for table in tables {
            let strings = if *table == ".symtab" { ".strtab" } else { ".dynstr" };
            let (Some(entries), Some(strings)) = (section(elf, file, table)?, section(elf, file, strings)?) else {
                continue;
            };
            let endian = elf.endianness();
            if elf.is_64() {
                self.symbols.add(
                    entries_of::<elf::Sym64<Endianness>>(&entries).filter_map(|entry| raw64(entry, endian)),
                    strings,
                );
            } else {
                self.symbols.add(
                    entries_of::<elf::Sym32<Endianness>>(&entries).filter_map(|entry| raw32(entry, endian)),
                    strings,
                );
            }
        }
        Ok(())
    }

    /// The symbols that some distributions leave in a stripped file, compressed.
    fn take_mini(&mut self, elf: &ElfFile<'_>, file: &Bytes) -> Result<(), Nameless> {
        let Some(compressed) = section(elf, file, ".gnu_debugdata")? else { return Ok(()) };
        let mut bytes = Bounded(Vec::new());
        // Without them, the file still has what else it tells.
        if lzma_rs::xz_decompress(&mut compressed.as_slice(), &mut bytes).is_err() {
            return Ok(());
        }
        let mini = Bytes::of_memory(bytes.0);
        let cache = ReadCache::new(Cursor::new(&mini));
        parse(&cache).map_or(Ok(()), |elf| self.take_symbols(&elf, &mini, &[".symtab"]))
    }

    fn take_go(&mut self, elf: &ElfFile<'_>, file: &Bytes) -> Result<(), Nameless> {
        // The system's linker merges the table into the last of these.
        let sections = [".gopclntab", ".data.rel.ro.gopclntab", ".data.rel.ro"];
        let Some(found) = sections.iter().find_map(|name| elf.section_by_name(name)) else { return Ok(()) };
        let bytes = section(elf, file, found.name().unwrap_or_default())?.unwrap_or_default();
        if let Some(go) = go::functions(&bytes, |place| relocated(elf, found.address().checked_add(place)?)) {
            self.symbols.add(go.functions.into_iter(), go.names);
        }
        Ok(())
    }

    fn take_debug_file(&mut self, debug: &Bytes, build_id: &str, symbols_only: bool) -> Result<(), Nameless> {
        let cache = ReadCache::new(Cursor::new(debug));
        let elf = parse(&cache)?;
        if id_of(&elf) != build_id {
            self.other_debug = true;
            return Ok(());
        }
        self.take_symbols(&elf, debug, &[".symtab"])?;
        if !symbols_only {
            self.dwarf = Dwarf::load(&elf, debug);
        }
        Ok(())
    }
}

fn parse<'a>(cache: &'a ReadCache<Cursor<'a>>) -> Result<ElfFile<'a>, Nameless> {
    File::parse(cache).map_err(|_| Nameless::Damaged)
}

/// Its GNU build id in hexadecimal; empty if it has none.
fn id_of(elf: &ElfFile<'_>) -> String {
    elf.build_id().ok().flatten().map(hex::encode).unwrap_or_default()
}

/// Content of a section, decompressed; `None` if there is no such section or nothing in it.
pub(super) fn section(elf: &ElfFile<'_>, file: &Bytes, name: &str) -> Result<Option<Vec<u8>>, Nameless> {
    let Some(section) = elf.section_by_name(name) else { return Ok(None) };
    let range = section.compressed_file_range().map_err(|_| Nameless::Damaged)?;
    if range.uncompressed_size == 0 {
        return Ok(None);
    }
    content(file, range).map(Some)
}

fn content(file: &Bytes, range: CompressedFileRange) -> Result<Vec<u8>, Nameless> {
    let end = range.offset.checked_add(range.compressed_size).ok_or(Nameless::Damaged)?;
    let stored = |file: &Bytes| file.range(range.offset..end);
    if range.format == CompressionFormat::None {
        return stored(file);
    }
    file.spend(range.uncompressed_size)?;
    let size = usize::try_from(range.uncompressed_size).map_err(|_| Nameless::TooLarge)?;
    let content = match range.format {
        CompressionFormat::Zlib => inflate(&stored(file)?, size),
        CompressionFormat::Zstandard => zstd::bulk::decompress(&stored(file)?, size).ok(),
        _ => None,
    };
    content.filter(|content| content.len() == size).ok_or(Nameless::Damaged)
}

/// Never more than `size` bytes, whatever is packed there.
fn inflate(packed: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(size);
    flate2::Decompress::new(true).decompress_vec(packed, &mut content, flate2::FlushDecompress::Finish).ok()?;
    Some(content)
}

/// What the loader writes to an address.
fn relocated(elf: &ElfFile<'_>, address: u64) -> Option<u64> {
    let (_, found) = elf.dynamic_relocations()?.find(|(place, _)| *place == address)?;
    u64::try_from(found.addend()).ok()
}

fn code_of<'a, R: ReadRef<'a>>(section: &object::Section<'a, '_, R>) -> Option<(u64, u64)> {
    let SectionFlags::Elf { sh_flags } = section.flags() else { return None };
    let is_code = sh_flags & u64::from(elf::SHF_EXECINSTR) != 0;
    is_code.then(|| Some((section.address(), section.address().checked_add(section.size())?)))?
}

fn entries_of<S: pod::Pod>(bytes: &[u8]) -> impl Iterator<Item = &S> {
    let count = bytes.len() / size_of::<S>();
    pod::slice_from_bytes(bytes, count).map_or(&[][..], |(entries, _)| entries).iter()
}

fn raw64(entry: &elf::Sym64<Endianness>, endian: Endianness) -> Option<Raw> {
    raw(
        entry.st_info,
        entry.st_shndx.get(endian),
        (entry.st_value.get(endian), entry.st_size.get(endian)),
        entry.st_name.get(endian),
    )
}

fn raw32(entry: &elf::Sym32<Endianness>, endian: Endianness) -> Option<Raw> {
    let place = (entry.st_value.get(endian).into(), entry.st_size.get(endian).into());
    raw(entry.st_info, entry.st_shndx.get(endian), place, entry.st_name.get(endian))
}

/// Functions, and labels of assembly without a type.
fn raw(info: u8, section: u16, (start, size): (u64, u64), name: u32) -> Option<Raw> {
    let kind = info & 0xf;
    let is_function = kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC;
    if !is_function && kind != elf::STT_NOTYPE || section == elf::SHN_UNDEF || name == 0 {
        return None;
    }
    let binding = match info >> 4 {
        elf::STB_GLOBAL => 2,
        elf::STB_WEAK => 1,
        _ => 0,
    };
    let size = if is_function { size } else { 0 };
    Some(Raw { start, size, name, rank: if is_function { 3 + binding } else { binding } })
}

/// Memory that refuses to grow.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_MINI {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
