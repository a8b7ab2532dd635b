//! The thread that finds names: what is looked into, for how long, and what is tried next.

use super::Named;
use super::children::Children;
use super::debuginfod::Debuginfod;
use super::fetches::Fetches;
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
/// How often it is looked whether a debug file has come.
const FETCH_LOOK: Duration = Duration::from_millis(20);
/// Most files that are remembered.
const MAX_FILES: usize = 4096;

/// A file by device and number, or what stands for one.
type Module = [u64; 3];

/// Until the queue is closed.
pub(super) fn run(program: &Program, debuginfod: Option<&Debuginfod>, queue: &Queue) {
    let mut worker = Worker {
        children: Children::new(program, queue),
        given_up: HashSet::new(),
        debug: HashMap::new(),
        fetches: debuginfod.map(|debuginfod| Fetches::new(program, debuginfod)),
        parked: Vec::new(),
    };
    loop {
        match queue.next(worker.patience()) {
            Next::Batch(batch) => worker.name(queue, batch),
            Next::Idle if worker.is_fetching() => {}
            Next::Idle => worker.children.rest(),
            Next::Closed => return,
        }
        worker.follow_fetches(queue);
    }
}

/// Places of a file whose debug file is being fetched.
struct Parked {
    build_id: String,
    batch: Vec<Wanted>,
    /// What is known without it.
    places: Vec<Place>,
}

struct Worker<'a> {
    children: Children<'a>,
    /// Files that took too long.
    given_up: HashSet<Module>,
    /// Separate debug files that were found, the most trusted last.
    debug: HashMap<Module, Vec<OwnedFd>>,
    /// Only if the operator asked for it.
    fetches: Option<Fetches<'a>>,
    parked: Vec<Parked>,
}

impl Worker<'_> {
    fn name(&mut self, queue: &Queue, batch: Vec<Wanted>) {
        debug_assert!(batch.len() <= MAX_ADDRESSES);
        let Some(places) = self.look_up(&batch) else { return };
        match self.build_id_on_its_way(&batch) {
            Some(build_id) => self.parked.push(Parked { build_id, batch, places }),
            None => give(queue, &batch, places),
        }
    }

    fn look_up(&mut self, batch: &[Wanted]) -> Option<Vec<Place>> {
        let addresses: Vec<u64> = batch.iter().map(|wanted| wanted.address).collect();
        batch.first().map(|first| match &*first.source {
            Source::File(file) => self.in_file(file, &addresses),
            Source::PerfMap(map) => self.in_perf_map(map, &addresses),
            Source::Vdso(image) => self.in_vdso(image, &addresses),
        })
    }

    fn build_id_on_its_way(&self, batch: &[Wanted]) -> Option<String> {
        let Source::File(file) = &*batch.first()?.source else { return None };
        let fetches = self.fetches.as_ref()?;
        fetches.is_coming(&file.build_id).then(|| file.build_id.clone())
    }

    fn is_fetching(&self) -> bool {
        self.fetches.as_ref().is_some_and(Fetches::is_any_coming)
    }

    fn patience(&self) -> Duration {
        if self.is_fetching() { FETCH_LOOK } else { IDLE }
    }

    /// Gives back the places whose debug file has come, or will not.
    fn follow_fetches(&mut self, queue: &Queue) {
        if queue.is_hurried() {
            self.fetches.iter_mut().for_each(Fetches::give_up);
        }
        while let Some(build_id) = self.fetches.as_mut().and_then(Fetches::advance) {
            let is_here = self.fetches.as_ref().is_some_and(|fetches| fetches.file(&build_id).is_some());
            let (ended, others) = self.parked.drain(..).partition(|parked| parked.build_id == build_id);
            self.parked = others;
            let ended: Vec<Parked> = ended;
            for Parked { batch, places, .. } in ended {
                let better = if is_here { self.look_up(&batch) } else { None };
                give(queue, &batch, better.unwrap_or(places));
            }
        }
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
                self.ask_fetched_file(&mut search, file, until);
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

    /// One from a server, where no other told lines; if there is none, it is wanted from now on.
    fn ask_fetched_file(&mut self, search: &mut Search<'_>, file: &MappedFile, until: Instant) {
        let Some(fetches) = self.fetches.as_mut().filter(|_| search.lacks_lines()) else { return };
        fetches.want(&file.build_id);
        let Some(debug) = fetches.file(&file.build_id).and_then(|debug| debug.try_clone_to_owned().ok()) else {
            return;
        };
        search.is_refused = true;
        let is_file = look_at(debug.as_fd()).is_ok();
        let is_in_time = !is_file || self.ask_elf(search, &[file.file.as_fd(), debug.as_fd()], until).is_some();
        let Some(fetches) = self.fetches.as_mut() else { return };
        match (is_in_time, search.is_refused) {
            (true, true) => fetches.refuse(&file.build_id),
            (true, false) => fetches.accept(&file.build_id),
            (false, _) => fetches.leave(&file.build_id),
        }
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
    /// Nothing was learnt but that a debug file is none, or another's.
    is_refused: bool,
}

impl<'a> Search<'a> {
    fn new(module: Module, build_id: &'a str, addresses: &'a [u64]) -> Self {
        Self { module, build_id, addresses, places: vec![None; addresses.len()], is_refused: false }
    }

    fn question(&self, symbols_only: bool) -> Question {
        let (build_id, addresses) = (self.build_id.to_owned(), self.addresses.to_vec());
        let full_ms = u64::try_from(LINES_TIME.as_millis()).unwrap_or_default();
        Question::Elf { module: self.module, build_id, symbols_only, full_ms, addresses }
    }

    /// A name is not taken back by a later answer, only made better: with lines, or inlined ones.
    fn learn(&mut self, index: usize, place: Place) {
        let Some(known) = self.places.get_mut(index) else { return };
        self.is_refused &= matches!(place, Err(Nameless::OtherBuildId | Nameless::Damaged));
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

    /// No debug information was found for a place that it should have.
    fn lacks_lines(&self) -> bool {
        self.places.iter().flatten().all(|place| place.as_ref().map_or(true, |known| wealth(known).1 == 0))
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

fn give(queue: &Queue, batch: &[Wanted], places: Vec<Place>) {
    queue.give(batch.iter().zip(places).map(|(wanted, place)| named(wanted.frame, place)));
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
