//! Waits over several hops: the handler waits for the first of a chain, that for the next, and the
//! last works or sleeps.
//!
//! The hops are processes that speak over Unix sockets, or threads of the server with condition
//! variables.

use super::fault::compute;
use super::{set_comm, spawn};
use anyhow::{Context, Result};
use std::io::{ErrorKind, Read, Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// Hops behind the handler.
const HOPS: usize = 2;

/// What the last one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Last {
    /// It computes.
    Computes,
    /// It sleeps.
    Sleeps,
}

impl Last {
    const fn name(self) -> &'static str {
        match self {
            Self::Computes => "computes",
            Self::Sleeps => "sleeps",
        }
    }

    fn work(self, time: Duration) {
        match self {
            Self::Computes => compute(time),
            Self::Sleeps => sleep(time),
        }
    }
}

/// The first of a chain, as the handler sees it.
#[derive(Debug)]
pub(super) enum Chain {
    Processes(UnixStream),
    Threads(Arc<Slot>),
}

impl Chain {
    /// Starts processes, each the child of the one before.
    pub(super) fn of_processes(last: Last) -> Result<Self> {
        start_process(HOPS, last).map(Self::Processes)
    }

    /// Starts threads.
    pub(super) fn of_threads(last: Last) -> Result<Self> {
        start_thread(HOPS, last).map(Self::Threads)
    }

    /// Waits until the last has worked for `time`.
    pub(super) fn ask(&mut self, time: Duration) -> Result<()> {
        match self {
            Self::Processes(stream) => ask(stream, &millis(time)).context("ask the first process"),
            Self::Threads(slot) => {
                slot.ask(time);
                Ok(())
            }
        }
    }
}

fn millis(time: Duration) -> [u8; 8] {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).to_le_bytes()
}

fn ask(stream: &mut UnixStream, question: &[u8; 8]) -> Result<()> {
    stream.write_all(question).context("ask the next process")?;
    stream.read_exact(&mut [0]).context("hear from the next process")
}

fn start_process(hops: usize, last: Last) -> Result<UnixStream> {
    let (own, its) = UnixStream::pair().context("make a pair of sockets")?;
    let mut command = Command::new(std::env::current_exe().context("find the lab")?);
    command.args(["role", "relay", &format!("--hops={hops}"), &format!("--last={}", last.name())]);
    command.stdin(Stdio::from(OwnedFd::from(its))).stdout(Stdio::null());
    command.spawn().context("start the next process")?;
    Ok(own)
}

/// Options of `lab role relay`.
#[derive(Debug, clap::Args)]
pub struct RelayArgs {
    /// Processes from this one on.
    #[arg(long)]
    hops: usize,
    /// What the last one does.
    #[arg(long)]
    last: Last,
}

/// Answers what comes over the socket that is its standard input, until that is closed.
pub(super) fn relay(args: &RelayArgs) -> Result<()> {
    set_comm(&format!("relay-{}", HOPS.saturating_sub(args.hops)))?;
    let mut before = UnixStream::from(stdin().as_fd().try_clone_to_owned().context("keep the socket")?);
    let mut next = (args.hops > 1).then(|| start_process(args.hops - 1, args.last)).transpose()?;
    let mut question = [0; 8];
    loop {
        match before.read_exact(&mut question) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read.context("hear from the process before")?,
        }
        match &mut next {
            Some(next) => ask(next, &question)?,
            None => args.last.work(Duration::from_millis(u64::from_le_bytes(question))),
        }
        before.write_all(&[1]).context("answer the process before")?;
    }
}

/// Where one thread waits for another's work.
#[derive(Debug, Default)]
pub(super) struct Slot {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Work {
    #[default]
    None,
    Wanted(Duration),
    Done,
}

impl Slot {
    /// Wants work and waits until it is done.
    fn ask(&self, time: Duration) {
        self.put(Work::Wanted(time));
        self.take(|work| (work == Work::Done).then_some(()));
    }

    fn put(&self, work: Work) {
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = work;
        self.changed.notify_all();
    }

    fn take<T>(&self, wanted: impl Fn(Work) -> Option<T>) -> T {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = wanted(*work) {
                *work = Work::None;
                return found;
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn start_thread(hops: usize, last: Last) -> Result<Arc<Slot>> {
    let slot = Arc::new(Slot::default());
    let next = (hops > 1).then(|| start_thread(hops - 1, last)).transpose()?;
    let own = Arc::clone(&slot);
    spawn(&format!("stage-{}", HOPS.saturating_sub(hops)), move || {
        loop {
            let time = own.take(|work| match work {
                Work::Wanted(time) => Some(time),
                Work::None | Work::Done => None,
            });
            match &next {
                Some(next) => next.ask(time),
                None => last.work(time),
            }
            own.put(Work::Done);
        }
    })?;
    Ok(slot)
}
