//! What a process has mapped: the lines of `/proc/PID/maps`. Pure.

use std::ops::Range;
use std::sync::Arc;

/// Most mappings with code, and most with writable memory, that are kept of a process: real ones
/// have some hundred, and a process may not grow the agent.
const MOST: usize = 2048;
/// Longest name that is kept.
const LONGEST_NAME: usize = 255;

/// Mappings of a process that stacks run through, in the order of their addresses.
#[derive(Debug, Default)]
pub(super) struct Maps {
    code: Vec<Mapping>,
    writable: Vec<Range<u64>>,
}

/// A mapping that holds code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Its addresses in the process.
    pub(super) range: Range<u64>,
    /// What is mapped there.
    pub(super) what: Mapped,
}

/// What a mapping shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mapped {
    /// A file, from this offset on.
    File {
        /// Offset in the file of the mapping's first byte.
        offset: u64,
        /// Its name without folder.
        name: Arc<str>,
    },
    /// The kernel's own shared object.
    Vdso,
    /// Memory without a file that lasts, so code that was made at run time.
    Anonymous,
}

impl Maps {
    /// From the text of the file; a line that is none is passed over.
    pub(super) fn parse(text: &str) -> Self {
        let mut maps = Self::default();
        for line in text.lines().filter_map(Line::parse) {
            if line.permissions.contains('x') && maps.code.len() < MOST {
                maps.code.push(line.mapping());
            } else if line.permissions.contains('w') && maps.writable.len() < MOST {
                maps.writable.push(line.range);
            }
        }
        maps
    }

    /// Whether there is no code at all: a kernel thread, or a process that has ended.
    pub(super) const fn is_empty(&self) -> bool {
        self.code.is_empty()
    }

    /// The mapping with the code at an address.
    pub(super) fn code(&self, address: u64) -> Option<&Mapping> {
        let behind = self.code.partition_point(|mapping| mapping.range.start <= address);
        self.code.get(behind.checked_sub(1)?).filter(|mapping| mapping.range.contains(&address))
    }

    /// Where the kernel's own shared object is.
    pub(super) fn vdso(&self) -> Option<&Range<u64>> {
        self.code.iter().find(|mapping| mapping.what == Mapped::Vdso).map(|mapping| &mapping.range)
    }

    /// Where the memory around an address ends: of a stack pointer, the end of its stack.
    pub(super) fn end_of_memory(&self, address: u64) -> Option<u64> {
        let behind = self.writable.partition_point(|range| range.start <= address);
        self.writable.get(behind.checked_sub(1)?).filter(|range| range.contains(&address)).map(|range| range.end)
    }
}

/// A line of the file.
#[derive(Debug)]
struct Line<'a> {
    range: Range<u64>,
    permissions: &'a str,
    offset: u64,
    inode: u64,
    path: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut rest = line;
        let mut word = || {
            let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = behind.trim_start_matches(' ');
            word
        };
        let (start, end) = word().split_once('-')?;
        let range = hex(start)?..hex(end)?;
        let (permissions, offset, _device) = (word(), hex(word())?, word());
        let inode = word().parse().ok()?;
        Some(Self { range, permissions, offset, inode, path: rest })
    }

    fn mapping(self) -> Mapping {
        let what = match self.path {
            "[vdso]" => Mapped::Vdso,
            path if self.inode != 0 && is_lasting(path) => Mapped::File { offset: self.offset, name: name(path) },
            _ => Mapped::Anonymous,
        };
        Mapping { range: self.range, what }
    }
}

/// Not one of the files that the kernel makes for memory.
fn is_lasting(path: &str) -> bool {
    path.starts_with('/')
        && !["/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage"].iter().any(|made| path.starts_with(made))
}

/// The name without folder, as the kernel escapes it, and without its mark for deleted files.
fn name(path: &str) -> Arc<str> {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    name.chars().take(LONGEST_NAME).collect::<String>().into()
}

fn hex(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
55d0c8a00000-55d0c8a02000 r--p 00000000 fe:01 1311                       /usr/bin/cat
55d0c8a02000-55d0c8a07000 r-xp 00002000 fe:01 1311                       /usr/bin/cat
55d0ca1f1000-55d0ca212000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000021000 rwxp 00000000 00:00 0 
7f1000000000-7f1000001000 r-xp 00001000 00:05 77                         /memfd:doublemapper (deleted)
7f2000000000-7f2000001000 r-xp 00003000 fe:01 12                         /opt/my lib/a b.so.1 (deleted)
7ffd0a5d4000-7ffd0a5f5000 rw-p 00000000 00:00 0                          [stack]
7ffd0a5fb000-7ffd0a5fd000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn code_is_found_by_its_address() {
        let maps = Maps::parse(TEXT);
        let what = |address| maps.code(address).map(|mapping| mapping.what.clone());
        let file = |offset, name: &str| Some(Mapped::File { offset, name: name.into() });
        assert_eq!(what(0x55d0_c8a0_1fff), None, "not executable");
        assert_eq!(what(0x55d0_c8a0_2000), file(0x2000, "cat"));
        assert_eq!(what(0x55d0_c8a0_7000), None);
        assert_eq!(what(0x7f00_0000_0010), Some(Mapped::Anonymous));
        assert_eq!(what(0x7f10_0000_0010), Some(Mapped::Anonymous), "memory, though it has an inode");
        assert_eq!(what(0x7f20_0000_0010), file(0x3000, "a b.so.1"));
        assert_eq!(what(0x7ffd_0a5f_b000), Some(Mapped::Vdso));
        assert_eq!((what(0), what(u64::MAX)), (None, None));
    }

    #[test]
    fn a_stack_ends_where_its_memory_ends() {
        let maps = Maps::parse(TEXT);
        assert_eq!(maps.end_of_memory(0x7ffd_0a5d_4008), Some(0x7ffd_0a5f_5000));
        assert_eq!(maps.end_of_memory(0x7ffd_0a5f_5000), None);
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in ".{0,200}", address: u64) {
            let maps = Maps::parse(&text);
            prop_assert!(maps.code(address).is_none_or(|mapping| mapping.range.contains(&address)));
        }
    }
}
