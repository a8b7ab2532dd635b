//! Names of user frames, found by a child without privileges.
//!
//! Files of watched processes are hostile ground: their owners can craft them, cut them while they
//! are read, or let a file system of theirs never answer. So this process never reads one. It hands
//! each over, open, to a child that can do nothing but read what it was given and answer
//! ([`Sandbox`]); which is killed at its deadline and started again. What it was asked then stays
//! without a name, and says so. Files that have to be found by name, in the root of a watched
//! process, are opened by another child: even opening may hang. Those that have to come from a
//! debuginfod server, which only an operator asks for, are fetched by a third.
//!
//! [`Symbolizer`] never blocks its caller: one thread talks to the children.

mod cache;
mod child;
mod children;
mod debuginfod;
mod fetcher;
mod fetches;
mod message;
mod names;
mod opener;
mod process;
mod queue;
mod sandbox;
mod socket;
mod worker;

pub use child::{Role, role, serve};
pub use debuginfod::{Debuginfod, DebuginfodError};
pub use sandbox::Sandbox;

use crate::stack::wanted::Wanted;
use crate::stack::{Function, Nameless};
use process::Program;
use queue::Queue;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// Most places that may wait for their names; beyond it they stay as they are.
const MAX_WAITING: usize = 1 << 16;

/// What became of a place that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Number of the frame, as it was asked for.
    pub frame: u32,
    /// The functions there: the innermost inlined one first, last the one that is no inline.
    pub functions: Vec<Function>,
    /// Why there are none; `None` if there are.
    pub unknown: Option<Nameless>,
}

/// Why no frame gets a name.
#[derive(Debug, Error)]
pub enum SymbolizerError {
    /// No thread.
    #[error("cannot start the thread that looks up names of user frames; raise the limit of tasks (ulimit -u)")]
    Thread(#[source] io::Error),
    /// This program is not there to be started again.
    #[error("cannot start this program again as the child that names user frames; is /proc mounted?")]
    Program(#[source] io::Error),
    /// The child did not start or did not answer.
    #[error("the child that names user frames does not start")]
    Child(#[source] io::Error),
}

/// Names places, a thread and at most three children of its own. Dropping it ends them.
#[derive(Debug)]
pub struct Symbolizer {
    queue: Arc<Queue>,
    fetches: bool,
    thread: Option<JoinHandle<()>>,
}

impl Symbolizer {
    /// Starts the thread; children are started when they are needed. Servers are asked for debug
    /// files only if some are given.
    ///
    /// # Errors
    /// There is no thread to be had, or `/proc` is not there.
    pub fn start(debuginfod: Option<Arc<Debuginfod>>) -> Result<Self, SymbolizerError> {
        Self::start_program(Program::own().map_err(SymbolizerError::Program)?, debuginfod)
    }

    /// As [`start`](Self::start), for a process that is not whylag: its children run `program`.
    ///
    /// # Errors
    /// The program cannot be opened, or there is no thread to be had.
    pub fn start_with(program: &Path, debuginfod: Option<Arc<Debuginfod>>) -> Result<Self, SymbolizerError> {
        Self::start_program(Program::open(program).map_err(SymbolizerError::Program)?, debuginfod)
    }

    fn start_program(program: Program, debuginfod: Option<Arc<Debuginfod>>) -> Result<Self, SymbolizerError> {
        let fetches = debuginfod.is_some();
        let queue = Arc::new(Queue::new(MAX_WAITING));
        let thread = std::thread::Builder::new().name("names".to_owned());
        let theirs = Arc::clone(&queue);
        let thread = thread.spawn(move || worker::run(&program, debuginfod.as_deref(), &theirs));
        let thread = thread.map_err(SymbolizerError::Thread)?;
        Ok(Self { queue, fetches, thread: Some(thread) })
    }

    /// Asks for names; returns at once. Those that have no room come back as not looked up.
    pub fn ask(&mut self, wanted: Vec<Wanted>) {
        self.queue.ask(wanted);
    }

    /// What has become known since the last call; returns at once. Each place asked for comes back
    /// once.
    pub fn take(&mut self) -> Vec<Named> {
        self.queue.take()
    }

    /// Places asked for that [`take`](Self::take) has not given back.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// How long a place may wait for a debug file from a server, beside what its naming takes.
    #[must_use]
    pub const fn fetch_time(&self) -> Duration {
        if self.fetches { fetches::FETCH_TIME } else { Duration::ZERO }
    }

    /// Debug files that have not come are not waited for any more: their places come back with what
    /// is known of them.
    pub fn hurry(&self) {
        self.queue.hurry();
    }

    /// What holds the child that reads; `None` before it was needed first.
    #[must_use]
    pub fn sandbox(&self) -> Option<Sandbox> {
        self.queue.sandbox()
    }
}

impl Drop for Symbolizer {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // It looks at the flag at least every 50 ms; a panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// What holds the child on this host, found by starting one.
///
/// # Errors
/// It does not start, or does not say.
pub fn look_at_sandbox() -> Result<Sandbox, SymbolizerError> {
    let program = Program::own().map_err(SymbolizerError::Program)?;
    let (child, sandbox) = process::start_namer(&program).map_err(SymbolizerError::Child)?;
    // It has looked at nothing that could hold it.
    let _ = child.end();
    Ok(sandbox)
}
