//! The child that opens files by name: in a root that it is handed, never out of it.
//!
//! It reads none. A file system that does not answer hangs it, and nobody else.

use super::message::{Opened, Opening};
use super::sandbox;
use super::socket::{self, SendFlags};
use caps::{CapSet, Capability, CapsHashSet};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags, open, openat2, statx};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Largest perf map that is read.
const MAX_PERF_MAP: u64 = 64 << 20;

pub(super) fn serve(parent: BorrowedFd<'_>) -> io::Result<()> {
    keep_only_reading();
    socket::send(parent, &Opened::Ready, &[], SendFlags::empty())?;
    loop {
        let (opening, root) = match socket::receive::<Opening>(parent) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            received => received?,
        };
        match find(&opening, root.into_iter().next()) {
            Some(file) => socket::send(parent, &Opened::Here, &[file.as_fd()], SendFlags::empty())?,
            None => socket::send(parent, &Opened::None, &[], SendFlags::empty())?,
        }
    }
}

/// Of its capabilities only the one to read any file; without it, those that all may read.
fn keep_only_reading() {
    let kept = CapsHashSet::from([Capability::CAP_DAC_READ_SEARCH]);
    let has = caps::read(None, CapSet::Permitted).unwrap_or_default();
    let kept = has.intersection(&kept).copied().collect();
    let _ = caps::clear(None, CapSet::Ambient);
    let _ = caps::clear(None, CapSet::Inheritable);
    let _ = caps::set(None, CapSet::Effective, &kept);
    let _ = caps::set(None, CapSet::Permitted, &kept);
    let _ = rustix::thread::set_no_new_privs(true);
    let _ = sandbox::die_with_parent();
}

fn find(opening: &Opening, root: Option<OwnedFd>) -> Option<OwnedFd> {
    let root = root.map_or_else(|| open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok(), Some)?;
    match opening {
        Opening::DebugFile { build_id } => {
            let (first, rest) = build_id.split_at_checked(2)?;
            let is_hex = build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
            let path = format!("usr/lib/debug/.build-id/{first}/{rest}.debug");
            (is_hex && !rest.is_empty()).then(|| regular(&root, &path, OFlags::empty(), &|_, _| true))?
        }
        Opening::PerfMap { own_tgid, uid } => {
            let may = |owner: u32, size: u64| (owner == *uid || owner == 0) && size <= MAX_PERF_MAP;
            regular(&root, &format!("tmp/perf-{own_tgid}.map"), OFlags::NOFOLLOW, &may)
        }
    }
}

/// Opens a regular file below a root, if its owner and its size are right. It is looked at before
/// it is opened for reading: opening a device may do something.
fn regular(root: &OwnedFd, path: &str, how: OFlags, may: &dyn Fn(u32, u64) -> bool) -> Option<OwnedFd> {
    let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(root, path, OFlags::PATH | OFlags::CLOEXEC | how, Mode::empty(), within).ok()?;
    let facts = statx(&found, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).ok()?;
    let is_regular = FileType::from_raw_mode(u32::from(facts.stx_mode)) == FileType::RegularFile;
    if !is_regular || !may(facts.stx_uid, facts.stx_size) {
        return None;
    }
    let reading = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(format!("/proc/self/fd/{}", found.as_raw_fd()), reading, Mode::empty()).ok()
}
