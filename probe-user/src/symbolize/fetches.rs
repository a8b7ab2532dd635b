//! Debug files on their way from servers: one after the other, none for long, not for ever.

use super::cache::{MAX_FILE, MAX_KEPT, is_build_id};
use super::debuginfod::Debuginfod;
use super::message::{Fetched, Fetching};
use super::process::{Program, Servant, Stuck, start_fetcher};
use rustix::fs::fstat;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a file may take, whatever its servers do.
pub(super) const FETCH_TIME: Duration = Duration::from_secs(10);
/// After so many files in a row that servers failed to give, they are not asked again.
const MAX_FAILURES: u32 = 3;
/// Most build ids that are remembered; others are not fetched.
const MAX_FILES: usize = 1024;

/// What is known of the debug file of a build id.
enum State {
    /// It is fetched, or waits for it.
    Coming,
    /// It is here, and in the folder or not yet.
    Here { file: OwnedFd, is_kept: bool },
    /// There is none: not asked again in this run.
    None,
}

/// The child at work.
struct Running {
    child: Servant,
    build_id: String,
    file: File,
    until: Instant,
}

/// All that were wanted.
pub(super) struct Fetches<'a> {
    program: &'a Program,
    debuginfod: &'a Debuginfod,
    states: HashMap<String, State>,
    waiting: VecDeque<String>,
    running: Option<Running>,
    failures: u32,
    bytes: u64,
    /// One that hangs in the kernel; no other is started.
    stuck: Option<Stuck>,
}

impl<'a> Fetches<'a> {
    pub(super) fn new(program: &'a Program, debuginfod: &'a Debuginfod) -> Self {
        let (states, waiting) = (HashMap::new(), VecDeque::new());
        Self { program, debuginfod, states, waiting, running: None, failures: 0, bytes: 0, stuck: None }
    }

    /// One is wanted; kept ones are here at once.
    pub(super) fn want(&mut self, build_id: &str) {
        if self.states.contains_key(build_id) || self.states.len() >= MAX_FILES || !is_build_id(build_id) {
            return;
        }
        let state = match self.debuginfod.cache.find(build_id) {
            Some(file) => State::Here { file, is_kept: true },
            None => {
                self.waiting.push_back(build_id.to_owned());
                State::Coming
            }
        };
        self.states.insert(build_id.to_owned(), state);
    }

    pub(super) fn is_coming(&self, build_id: &str) -> bool {
        matches!(self.states.get(build_id), Some(State::Coming))
    }

    pub(super) fn is_any_coming(&self) -> bool {
        self.running.is_some() || !self.waiting.is_empty()
    }

    pub(super) fn file(&self, build_id: &str) -> Option<BorrowedFd<'_>> {
        match self.states.get(build_id)? {
            State::Here { file, .. } => Some(file.as_fd()),
            State::Coming | State::None => None,
        }
    }

    /// It was looked at, and told what it should.
    pub(super) fn accept(&mut self, build_id: &str) {
        if let Some(State::Here { file, is_kept }) = self.states.get_mut(build_id)
            && !std::mem::replace(is_kept, true)
        {
            self.debuginfod.cache.keep(build_id, file);
        }
    }

    /// It was looked at, and is not what was asked for.
    pub(super) fn refuse(&mut self, build_id: &str) {
        self.debuginfod.cache.forget(build_id);
        self.leave(build_id);
    }

    /// It is not looked at again in this run.
    pub(super) fn leave(&mut self, build_id: &str) {
        self.states.insert(build_id.to_owned(), State::None);
    }

    /// Looks how it goes, without waiting: what has come or failed since, by build id.
    pub(super) fn advance(&mut self) -> Option<String> {
        let ended = match self.running.take() {
            Some(running) => self.look(running),
            None => self.start(),
        }?;
        self.states.entry(ended.clone()).and_modify(|state| {
            if matches!(state, State::Coming) {
                *state = State::None;
            }
        });
        Some(ended)
    }

    /// None is to be waited for any more.
    pub(super) fn give_up(&mut self) {
        self.failures = MAX_FAILURES;
        if let Some(running) = self.running.take() {
            self.waiting.push_back(running.build_id);
            self.stuck = running.child.end();
        }
    }

    fn look(&mut self, running: Running) -> Option<String> {
        let answer = match running.child.has_answer() {
            Ok(false) if Instant::now() < running.until => {
                self.running = Some(running);
                return None;
            }
            Ok(true) => running.child.receive(running.until, &|| true).map_or(Fetched::Failed, |(answer, _)| answer),
            Ok(false) | Err(_) => Fetched::Failed,
        };
        let Running { child, build_id, file, .. } = running;
        // Nobody writes to the file any more when it is read.
        self.stuck = child.end();
        self.failures = if answer == Fetched::Failed { self.failures.saturating_add(1) } else { 0 };
        if answer == Fetched::Here && self.stuck.is_none() {
            self.bytes += fstat(&file).map_or(MAX_FILE, |facts| u64::try_from(facts.st_size).unwrap_or(MAX_FILE));
            self.states.insert(build_id.clone(), State::Here { file: file.into(), is_kept: false });
        }
        Some(build_id)
    }

    /// Starts the next; its build id comes back if that cannot be.
    fn start(&mut self) -> Option<String> {
        let build_id = self.waiting.pop_front()?;
        match self.start_child(&build_id) {
            Some((child, file)) => {
                let until = Instant::now() + FETCH_TIME;
                self.running = Some(Running { child, build_id, file, until });
                None
            }
            None => Some(build_id),
        }
    }

    fn start_child(&mut self, build_id: &str) -> Option<(Servant, File)> {
        if self.failures >= MAX_FAILURES || self.stuck.is_some() || self.bytes + MAX_FILE > MAX_KEPT {
            return None;
        }
        let file = self.debuginfod.cache.room()?;
        let fetching = Fetching { servers: self.debuginfod.servers.clone(), build_id: build_id.to_owned() };
        let child = start_fetcher(self.program).ok()?;
        match child.send(&fetching, &[file.as_fd()]) {
            Ok(()) => Some((child, file)),
            Err(_) => {
                self.stuck = child.end();
                None
            }
        }
    }
}

impl Drop for Fetches<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}
