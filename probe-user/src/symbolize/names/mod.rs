//! Places to functions, in the child: what a file says, believed within bounds.

mod demangle;
mod dwarf;
mod elf;
mod go;
mod perf_map;
mod read;
mod symbols;

use super::message::{Place, Question};
use crate::stack::Nameless;
use elf::ElfNames;
use perf_map::PerfMap;
use read::Bytes;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Most memory of what is kept between questions, bytes.
const MAX_KEPT: usize = 256 << 20;

/// What a file tells.
pub(super) enum Names {
    Elf(Box<ElfNames>),
    PerfMap(PerfMap),
}

impl Names {
    /// What is at an address; `fully`: debug information may be looked into.
    pub(super) fn name(&self, address: u64, fully: bool) -> Place {
        match self {
            Self::Elf(elf) => elf.name(address, fully),
            Self::PerfMap(map) => map.name(address),
        }
    }

    /// It is a file whose debug information may lie elsewhere.
    pub(super) fn is_stripped(&self) -> bool {
        matches!(self, Self::Elf(elf) if elf.is_stripped())
    }

    fn size_bytes(&self) -> usize {
        match self {
            Self::Elf(elf) => elf.size_bytes(),
            Self::PerfMap(map) => map.size_bytes(),
        }
    }
}

/// What names are kept by: a file that has changed is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    module: [u64; 3],
    symbols_only: bool,
    /// Size and time of change of each file.
    files: [Option<(u64, i64, i64)>; 2],
}

/// Files that were opened, the newest last.
#[derive(Default)]
pub(super) struct Library {
    kept: VecDeque<(Key, Rc<Names>)>,
}

impl Library {
    /// The names in the files of a question.
    pub(super) fn open(&mut self, question: &Question, files: Vec<OwnedFd>) -> Result<Rc<Names>, Nameless> {
        let mut files = files.into_iter().map(Bytes::of_file);
        let file = files.next().ok_or(Nameless::FileGone)??;
        let debug = files.next().transpose()?;
        let (module, symbols_only) = match question {
            Question::Elf { module, symbols_only, .. } => (*module, *symbols_only),
            Question::PerfMap { module, .. } => (*module, false),
        };
        let key = Key { module, symbols_only, files: [Some(file.version()), debug.as_ref().map(Bytes::version)] };
        if let Some((_, names)) = self.kept.iter().find(|(kept, _)| *kept == key) {
            return Ok(Rc::clone(names));
        }
        self.kept.retain(|(kept, _)| kept.module != module);
        let names = Rc::new(match question {
            Question::Elf { build_id, .. } => {
                Names::Elf(Box::new(ElfNames::open(&file, debug.as_ref(), build_id, symbols_only)?))
            }
            Question::PerfMap { .. } => Names::PerfMap(PerfMap::read(&file)?),
        });
        self.keep(key, Rc::clone(&names));
        Ok(names)
    }

    fn keep(&mut self, key: Key, names: Rc<Names>) {
        self.kept.push_back((key, names));
        while self.kept.iter().map(|(_, names)| names.size_bytes()).sum::<usize>() > MAX_KEPT {
            self.kept.pop_front();
        }
    }
}
