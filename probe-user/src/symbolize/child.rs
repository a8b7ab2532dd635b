//! The child's side: what it is started as, and the loop in which it names places.

use super::message::{Answer, Place, Question};
use super::names::Library;
use super::socket::{self, SendFlags};
use super::{fetcher, opener, sandbox};
use crate::stack::Nameless;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What a child is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It names places in files that it is handed.
    Names,
    /// It opens files by name below a root that it is handed, and hands them back.
    Opens,
    /// It asks servers for a debug file.
    Fetches,
}

impl Role {
    const ALL: [Self; 3] = [Self::Names, Self::Opens, Self::Fetches];

    /// The name that a child is started by; nobody types it.
    pub(super) const fn arg0(self) -> &'static str {
        match self {
            Self::Names => "whylag: names of frames",
            Self::Opens => "whylag: files for names of frames",
            Self::Fetches => "whylag: debug files from servers",
        }
    }

    const fn comm(self) -> &'static CStr {
        match self {
            Self::Names => c"whylag-names",
            Self::Opens => c"whylag-opens",
            Self::Fetches => c"whylag-fetch",
        }
    }
}

/// This program asks at its start what it is, so it can be its own child.
static ASKED: AtomicBool = AtomicBool::new(false);

/// What this process was started as, if it is such a child. To be called first of all, by a program
/// that is to start itself as one.
#[must_use]
pub fn role() -> Option<Role> {
    ASKED.store(true, Ordering::Relaxed);
    let name = std::env::args_os().next()?;
    Role::ALL.into_iter().find(|role| name == role.arg0())
}

/// Started again under such a name, this program does as it is told. Any other would begin anew
/// what it does, and again start children.
pub(super) fn can_be_a_child() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// A child's life: until its parent is gone.
#[must_use]
pub fn serve(role: Role) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    close_inherited();
    // For `ps` and `top`; it runs as well under any name.
    let _ = rustix::thread::set_name(role.comm());
    let stdin = io::stdin();
    let served = match role {
        Role::Names => serve_names(stdin.as_fd()),
        Role::Opens => opener::serve(stdin.as_fd()),
        Role::Fetches => fetcher::serve(stdin.as_fd()),
    };
    if served.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Files that the parent left open for it by mistake.
fn close_inherited() {
    #[expect(unsafe_code, reason = "no safe crate offers close_range")]
    // SAFETY: no other thread runs, and nothing of this process has opened a file yet that it
    // will use: only what it inherited is closed.
    let _ = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
}

fn serve_names(parent: BorrowedFd<'_>) -> io::Result<()> {
    socket::send(parent, &Answer::Ready(sandbox::enter()), &[], SendFlags::empty())?;
    let mut library = Library::default();
    loop {
        let (question, files) = match socket::receive(parent) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            received => received?,
        };
        answer(parent, &mut library, &question, files)?;
    }
}

/// Debug information is parsed where it is needed first, so that many places of a large program take
/// long together; a name without its line is better than none.
///
/// A panic is a file that cannot be understood: its parser did not expect it.
fn answer(parent: BorrowedFd<'_>, library: &mut Library, question: &Question, files: Vec<OwnedFd>) -> io::Result<()> {
    let until = Instant::now() + question.full_time();
    let opened = catch_unwind(AssertUnwindSafe(|| library.open(question, files))).unwrap_or(Err(Nameless::Damaged));
    let stripped = opened.as_ref().is_ok_and(|names| names.is_stripped());
    for (index, address) in question.addresses().iter().enumerate() {
        let name = |address: u64| -> Place {
            opened.as_ref().map_err(|reason| *reason)?.name(address, Instant::now() < until)
        };
        let place = catch_unwind(AssertUnwindSafe(|| name(*address))).unwrap_or(Err(Nameless::Damaged));
        socket::send(parent, &Answer::Place { index, place }, &[], SendFlags::empty())?;
    }
    socket::send(parent, &Answer::Done { stripped }, &[], SendFlags::empty())
}
