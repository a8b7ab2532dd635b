//! The thread that finds names: what is looked into, for how long, and what is tried next.

use super::Named;
use super::children::Children;
use super::message::{MAX_ADDRESSES, Opening, Place, Question};
use super::process::Program;
use super::queue::{Next, Queue};
use crate::stack::wanted::{MappedFile, PerfMap, Source, Wanted};
use crate::stack::{Function, Nameless};
use rustix::fs::{AtFlags, FileType, MemfdFlags, SealFlags, Statx, StatxFlags, fcntl_add_seals, memfd_create, statx};
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Largest file that is looked into. Only parts of it are read.
const MAX_FILE: u64 = 4 << 30;
/// How long one file may take, whatever is tried with it.
const FILE_TIME: Duration = Duration::from_millis(4500);
/// How much of that all that it tells may take; the rest is for its symbols alone.
const FULL_TIME: Duration = Duration::from_millis(3000);
/// After this time the child itself leaves out what takes long.
const LINES_TIME: Duration = Duration::from_millis(2000);
/// After this time without work the children end; their memory is for others.
const IDLE: Duration = Duration::from_secs(10);
/// Most files that are remembered.
const MAX_FILES: usize = 4096;

/// A file by device and number, or what stands for one.
type Module = [u64; 3];

/// Until the queue is closed.
pub(super) fn run(program: &Program, queue: &Queue) {
    let mut worker =
        Worker { children: Children::new(program, queue), given_up: HashSet::new(), debug: HashMap::new() };
    loop {
        match queue.next(IDLE) {
            Next::Batch(batch) => worker.name(queue, batch),
            Next::Idle => worker.children.rest(),
            Next::Closed => return,
        }
    }
}

struct Worker<'a> {
    children: Children<'a>,
    /// Files that took too long.
    given_up: HashSet<Module>,
    /// Separate debug files that were found, the most trusted last.
    debug: HashMap<Module, Vec<OwnedFd>>,
}

impl Worker<'_> {
    fn name(&mut self, queue: &Queue, batch: Vec<Wanted>) {
        debug_assert!(batch.len() <= MAX_ADDRESSES);
        let addresses: Vec<u64> = batch.iter().map(|wanted| wanted.address).collect();
        let places = batch.first().map(|first| match &*first.source {
            Source::File(file) => self.in_file(file, &addresses),
            Source::PerfMap(map) => self.in_perf_map(map, &addresses),
            Source::Vdso(image) => self.in_vdso(image, &addresses),
        });
        let named = batch.iter().zip(places.into_iter().flatten()).map(|(wanted, place)| named(wanted.frame, place));
        queue.give(named);
    }

    fn in_file(&mut self, file: &MappedFile, addresses: &[u64]) -> Vec<Place> {
        let module = match look_at(file.file.as_fd()) {
            Ok(facts) if self.children.hangs(&facts) => return all(addresses, Nameless::GaveUp),
            Ok(facts) => module_of(&facts),
            Err(reason) => return all(addresses, reason),
        };
        if self.given_up.contains(&module) {
            return all(addresses, Nameless::GaveUp);
        }
        let until = Instant::now() + FILE_TIME;
        let mut search = Search::new(module, &file.build_id, addresses);
        match self.ask_elf(&mut search, &[file.file.as_fd()], until) {
            Some(true) if !file.build_id.is_empty() && search.wants_more() => {
                self.ask_debug_files(&mut search, file, until);
            }
            Some(_) => {}
            None => self.give_up(module),
        }
        search.places()
    }

    /// All that a file tells; if that takes too long, its symbols. Says whether it is without
    /// debug information; `None` if that took too long too.
    fn ask_elf(&mut self, search: &mut Search<'_>, files: &[BorrowedFd<'_>], until: Instant) -> Option<bool> {
        let full = until.min(Instant::now() + FULL_TIME);
        for (symbols_only, until) in [(false, full), (true, until)] {
            let question = search.question(symbols_only);
            if let Some(stripped) =
                self.children.ask(&question, files, until, &mut |index, place| search.learn(index, place))
            {
                return Some(stripped);
            }
        }
        None
    }

    fn give_up(&mut self, module: Module) {
        if self.given_up.len() >= MAX_FILES {
            self.given_up.clear();
        }
        self.given_up.insert(module);
    }

    fn ask_debug_files(&mut self, search: &mut Search<'_>, file: &MappedFile, until: Instant) {
        let mut found = match self.debug.remove(&search.module) {
            Some(found) => found,
            None => self.find_debug_files(file),
        };
        // One that takes too long is not asked again.
        found.retain(|debug| {
            look_at(debug.as_fd()).is_ok_and(|facts| !self.children.hangs(&facts))
                && self.ask_elf(search, &[file.file.as_fd(), debug.as_fd()], until).is_some()
        });
        if self.debug.len() >= MAX_FILES {
            self.debug.clear();
        }
        self.debug.insert(search.module, found);
    }

    /// In the root of the process, and in the host's.
    fn find_debug_files(&mut self, file: &MappedFile) -> Vec<OwnedFd> {
        let opening = Opening::DebugFile { build_id: file.build_id.clone() };
        let root = file.process.root.as_ref().map(AsFd::as_fd);
        let theirs = root.and_then(|root| self.children.open(&opening, Some(root)));
        theirs.into_iter().chain(self.children.open(&opening, None)).collect()
    }

    fn in_perf_map(&mut self, map: &PerfMap, addresses: &[u64]) -> Vec<Place> {
        let opening = Opening::PerfMap { own_tgid: map.own_tgid, uid: map.uid };
        let root = map.process.root.as_ref();
        let Some(file) = root.and_then(|root| self.children.open(&opening, Some(root.as_fd()))) else {
            return all(addresses, Nameless::NoPerfMap);
        };
        let module = match look_at(file.as_fd()) {
            Ok(facts) if self.children.hangs(&facts) => return all(addresses, Nameless::GaveUp),
            Ok(facts) => module_of(&facts),
            Err(reason) => return all(addresses, reason),
        };
        let question = Question::PerfMap { module, addresses: addresses.to_vec() };
        let mut search = Search::new(module, "", addresses);
        let until = Instant::now() + FILE_TIME;
        self.children.ask(&question, &[file.as_fd()], until, &mut |index, place| search.learn(index, place));
        search.places()
    }

    fn in_vdso(&mut self, image: &[u8], addresses: &[u64]) -> Vec<Place> {
        let Ok(file) = in_memory(image) else { return all(addresses, Nameless::GaveUp) };
        let mut search = Search::new([0, 0, image.len() as u64], "", addresses);
        self.ask_elf(&mut search, &[file.as_fd()], Instant::now() + FILE_TIME);
        search.places()
    }
}

/// What is known so far of the places of one file.
struct Search<'a> {
    module: Module,
    build_id: &'a str,
    addresses: &'a [u64],
    places: Vec<Option<Place>>,
}

impl<'a> Search<'a> {
    fn new(module: Module, build_id: &'a str, addresses: &'a [u64]) -> Self {
        Self { module, build_id, addresses, places: vec![None; addresses.len()] }
    }

    fn question(&self, symbols_only: bool) -> Question {
        let (build_id, addresses) = (self.build_id.to_owned(), self.addresses.to_vec());
        let full_ms = u64::try_from(LINES_TIME.as_millis()).unwrap_or_default();
        Question::Elf { module: self.module, build_id, symbols_only, full_ms, addresses }
    }

    /// A name is not taken back by a later answer, only made better: with lines, or inlined ones.
    fn learn(&mut self, index: usize, place: Place) {
        let Some(known) = self.places.get_mut(index) else { return };
        let is_better = match (&known, &place) {
            (Some(Ok(_)), Err(_)) => false,
            (Some(Ok(known)), Ok(place)) => wealth(place) > wealth(known),
            _ => true,
        };
        if is_better {
            *known = Some(place);
        }
    }

    /// The file could be read, and a debug file might tell more than it did.
    fn wants_more(&self) -> bool {
        self.places.iter().flatten().any(|place| matches!(place, Ok(_) | Err(Nameless::NoSymbol)))
    }

    fn places(self) -> Vec<Place> {
        self.places.into_iter().map(|place| place.unwrap_or(Err(Nameless::GaveUp))).collect()
    }
}

/// How much is told of a place: levels of inlining, then lines.
fn wealth(functions: &[Function]) -> (usize, usize) {
    (functions.len(), functions.iter().filter(|function| function.line > 0).count())
}

fn named(frame: u32, place: Place) -> Named {
    match place {
        Ok(functions) => Named { frame, functions, unknown: None },
        Err(reason) => Named { frame, functions: Vec::new(), unknown: Some(reason) },
    }
}

fn all(addresses: &[u64], reason: Nameless) -> Vec<Place> {
    vec![Err(reason); addresses.len()]
}

/// What is known of an open file without asking its file system, which may never answer.
fn look_at(file: BorrowedFd<'_>) -> Result<Statx, Nameless> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let facts = statx(file, "", flags, StatxFlags::BASIC_STATS).map_err(|_| Nameless::FileGone)?;
    if FileType::from_raw_mode(facts.stx_mode.into()) != FileType::RegularFile {
        return Err(Nameless::Damaged);
    }
    if facts.stx_size > MAX_FILE {
        return Err(Nameless::TooLarge);
    }
    Ok(facts)
}

fn module_of(facts: &Statx) -> Module {
    [u64::from(facts.stx_dev_major) << 32 | u64::from(facts.stx_dev_minor), facts.stx_ino, 1]
}

fn in_memory(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    let file = memfd_create("vdso", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(lines: &[u32]) -> Place {
        let function = |line: &u32| Function { name: "serve".to_owned(), file: String::new(), line: *line };
        Ok(lines.iter().map(function).collect())
    }

    /// What is left after answers in turn.
    fn learnt(answers: impl IntoIterator<Item = Place>) -> Place {
        let mut search = Search::new([0; 3], "", &[1]);
        answers.into_iter().for_each(|place| search.learn(0, place));
        search.places().remove(0)
    }

    #[test]
    fn a_later_answer_only_makes_a_place_better() {
        let (bare, lined, inlined) = (|| functions(&[0]), || functions(&[7]), || functions(&[7, 9]));
        assert_eq!(learnt([bare(), lined()]), lined());
        assert_eq!(learnt([lined(), bare()]), lined(), "as of a debug file that gave up");
        assert_eq!(learnt([inlined(), lined()]), inlined());
        assert_eq!(learnt([lined(), Err(Nameless::OtherBuildId)]), lined());
        assert_eq!(learnt([Err(Nameless::NoSymbol), Err(Nameless::OtherBuildId)]), Err(Nameless::OtherBuildId));
        assert_eq!(learnt([]), Err(Nameless::GaveUp));
    }

    #[test]
    fn a_place_that_was_not_asked_for_is_none() {
        let mut search = Search::new([0; 3], "", &[1]);
        search.learn(1, functions(&[7]));
        assert_eq!(search.places(), [Err(Nameless::GaveUp)]);
    }
}
