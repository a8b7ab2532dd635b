//! The two children of the thread: started when needed, ended when late, and not too often.

use super::message::{Answer, Opened, Opening, Place, Question, is_sane};
use super::process::{Program, Servant, Stuck, start_namer, start_opener};
use super::queue::Queue;
use rustix::fs::{AtFlags, Statx, StatxFlags, statx};
use std::collections::HashSet;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long opening a file may take.
const OPEN_TIME: Duration = Duration::from_secs(1);
/// After so much work a child is replaced: well before its limit of CPU time ends it.
const WORK: Duration = Duration::from_secs(super::sandbox::CPU_SECONDS - 15);
/// Most children that hang in the kernel; with so many no other is started.
const MAX_STUCK: usize = 4;
/// So many failures one after the other are nothing special.
const FREE_FAILURES: u32 = 4;
/// The pause before the first start after those; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause is that many times doubled: 10 s.
const MAX_DOUBLED: u32 = 10;

type Device = (u32, u32);

/// Children, and what they taught.
pub(super) struct Children<'a> {
    program: &'a Program,
    queue: &'a Queue,
    namer: Option<Servant>,
    opener: Option<Servant>,
    /// How long the one that names has worked.
    worked: Duration,
    /// How often in a row a child had to be ended.
    failures: u32,
    stuck: Vec<Stuck>,
    /// File systems that did not answer.
    hanging: HashSet<Device>,
}

impl<'a> Children<'a> {
    pub(super) fn new(program: &'a Program, queue: &'a Queue) -> Self {
        let (namer, opener, stuck, hanging) = (None, None, Vec::new(), HashSet::new());
        Self { program, queue, namer, opener, worked: Duration::ZERO, failures: 0, stuck, hanging }
    }

    /// Its file system did not answer once.
    pub(super) fn hangs(&self, file: &Statx) -> bool {
        self.hanging.contains(&(file.stx_dev_major, file.stx_dev_minor))
    }

    /// Ends those that have nothing to do.
    pub(super) fn rest(&mut self) {
        let idle = [self.namer.take(), self.opener.take()];
        self.stuck.extend(idle.into_iter().flatten().filter_map(Servant::end));
    }

    /// Asks, and says for each answer where it belongs. `None` if the child failed or is late; else
    /// whether the file is without debug information.
    pub(super) fn ask(
        &mut self,
        question: &Question,
        files: &[BorrowedFd<'_>],
        until: Instant,
        learn: &mut impl FnMut(usize, Place),
    ) -> Option<bool> {
        if Instant::now() >= until {
            return None;
        }
        let child = self.namer()?;
        let (began, queue) = (Instant::now(), self.queue);
        let answer = converse(&child, question, files, until, &|| !queue.is_closed(), learn);
        self.worked += began.elapsed();
        match answer {
            Ok(stripped) => {
                self.failures = 0;
                self.namer = Some(child);
                Some(stripped)
            }
            Err(_) => {
                self.end(child, files.last().copied());
                None
            }
        }
    }

    fn namer(&mut self) -> Option<Servant> {
        let kept = self.namer.take();
        if let Some(child) = kept {
            if self.worked < WORK {
                return Some(child);
            }
            self.stuck.extend(child.end());
        }
        self.may_start().then_some(())?;
        match start_namer(self.program) {
            Ok((child, sandbox)) => {
                self.queue.set_sandbox(sandbox);
                self.worked = Duration::ZERO;
                Some(child)
            }
            Err(_) => {
                self.failures = self.failures.saturating_add(1);
                None
            }
        }
    }

    /// Opens a file by name in a root; the host's if none is said.
    pub(super) fn open(&mut self, opening: &Opening, root: Option<BorrowedFd<'_>>) -> Option<OwnedFd> {
        if root.is_some_and(|root| device(root).is_none_or(|device| self.hanging.contains(&device))) {
            return None;
        }
        let kept = self.opener.take();
        let child = match kept {
            Some(child) => child,
            None => self.may_start().then(|| start_opener(self.program).ok())??,
        };
        let queue = self.queue;
        let files: Vec<_> = root.into_iter().collect();
        let answer = child
            .send(opening, &files)
            .and_then(|()| child.receive::<Opened>(Instant::now() + OPEN_TIME, &|| !queue.is_closed()));
        if let Ok((_, files)) = answer {
            self.opener = Some(child);
            return files.into_iter().next();
        }
        self.end(child, root);
        None
    }

    /// Ends a child that failed. If it hangs in the kernel, `over` is not asked again.
    fn end(&mut self, child: Servant, over: Option<BorrowedFd<'_>>) {
        self.failures = self.failures.saturating_add(1);
        if let Some(stuck) = child.end() {
            self.stuck.push(stuck);
            self.hanging.extend(over.and_then(device));
        }
    }

    /// Waits where too many have failed. False if none may be started.
    fn may_start(&mut self) -> bool {
        self.stuck.retain_mut(Stuck::is_there);
        if self.stuck.len() >= MAX_STUCK {
            return false;
        }
        let until = Instant::now() + pause(self.failures);
        while Instant::now() < until && !self.queue.is_closed() {
            std::thread::sleep(FIRST_PAUSE);
        }
        !self.queue.is_closed()
    }
}

impl Drop for Children<'_> {
    fn drop(&mut self) {
        self.rest();
    }
}

fn pause(failures: u32) -> Duration {
    match failures.checked_sub(FREE_FAILURES) {
        None | Some(0) => Duration::ZERO,
        Some(more) => FIRST_PAUSE * (1 << more.min(MAX_DOUBLED)),
    }
}

fn device(file: BorrowedFd<'_>) -> Option<Device> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let facts = statx(file, "", flags, StatxFlags::BASIC_STATS).ok()?;
    Some((facts.stx_dev_major, facts.stx_dev_minor))
}

/// One question with all its answers. What the child says is not believed beyond its bounds.
fn converse(
    child: &Servant,
    question: &Question,
    files: &[BorrowedFd<'_>],
    until: Instant,
    wanted: &impl Fn() -> bool,
    learn: &mut impl FnMut(usize, Place),
) -> io::Result<bool> {
    child.send(question, files)?;
    for _ in 0..=question.addresses().len() {
        match child.receive(until, wanted)?.0 {
            Answer::Place { index, place } if is_sane(&place) => learn(index, place),
            Answer::Done { stripped } => return Ok(stripped),
            Answer::Place { .. } | Answer::Ready(_) => break,
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}
