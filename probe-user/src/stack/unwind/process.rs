//! A process as `/proc` shows it: its mappings, and the files behind them. It may end, or become
//! another, at any moment.

use super::image::ReadAt;
use super::maps::{Mapping, Maps};
use super::mount;
use crate::stack::Nameless;
use crate::stack::wanted::{PerfMap, ProcessRoot, Source};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags, open, statx};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Longest text of mappings that is read.
const MOST_TEXT: u64 = 4 << 20;
/// How long mappings are believed; a library that went may be replaced by another.
const FRESH: Duration = Duration::from_secs(10);
/// How often at most they are read again because an address is in none of them.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often it is looked at whether the process still is the same.
const LOOK: Duration = Duration::from_millis(250);

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    tgid: u32,
    /// Which life of that number this is.
    pub(super) life: u32,
    identity: Identity,
    maps: Maps,
    read_at: Instant,
    looked_at: Instant,
    /// The files of mappings that were looked at, by where they begin.
    files: HashMap<u64, Result<FileKey, Nameless>>,
    root: Weak<ProcessRoot>,
    made: Weak<Source>,
}

/// What changes when a number is given to another process, or a process executes another file.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    /// Clock ticks since boot.
    started: u64,
    executable: Option<String>,
}

/// Which file is mapped, beyond its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileKey {
    device: (u32, u32),
    inode: u64,
    size: u64,
    changed: (i64, u32),
}

impl Process {
    /// Reads what there is to read of a process; `None` if it is gone or has no memory of its own.
    pub(super) fn read(tgid: u32, life: u32, now: Instant) -> Option<Self> {
        let identity = Identity::read(tgid)?;
        let maps = read_maps(&tgid.to_string()).filter(|maps| !maps.is_empty())?;
        Some(Self {
            tgid,
            life,
            identity,
            maps,
            read_at: now,
            looked_at: now,
            files: HashMap::new(),
            root: Weak::new(),
            made: Weak::new(),
        })
    }

    /// Whether it has become another since it was read: its number was given away, or it executes
    /// another file. One that has ended is what it was.
    pub(super) fn has_changed(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.looked_at) < LOOK {
            return false;
        }
        self.looked_at = now;
        Identity::read(self.tgid).is_some_and(|identity| identity != self.identity)
    }

    /// Reads its mappings again if they are old.
    pub(super) fn refresh(&mut self, now: Instant) {
        self.read_again(now, FRESH);
    }

    /// The mapping with the code at an address; mappings are read again if there is none.
    pub(super) fn code(&mut self, address: u64, now: Instant) -> Option<Mapping> {
        if self.maps.code(address).is_none() {
            self.read_again(now, PATIENCE);
        }
        self.maps.code(address).cloned()
    }

    /// Where the memory around an address ends.
    pub(super) fn end_of_memory(&mut self, address: u64, now: Instant) -> Option<u64> {
        if self.maps.end_of_memory(address).is_none() {
            self.read_again(now, PATIENCE);
        }
        self.maps.end_of_memory(address)
    }

    fn read_again(&mut self, now: Instant, age: Duration) {
        if now.saturating_duration_since(self.read_at) < age {
            return;
        }
        self.read_at = now;
        if let Some(maps) = read_maps(&self.tgid.to_string()).filter(|maps| !maps.is_empty()) {
            self.maps = maps;
            self.files.clear();
        }
    }

    /// Which file a mapping shows.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn file(&mut self, range: &Range<u64>) -> Result<FileKey, Nameless> {
        if let Some(file) = self.files.get(&range.start) {
            return *file;
        }
        let file = self.open(range).map(|(key, _)| key);
        self.files.insert(range.start, file);
        file
    }

    /// The file of a mapping, open for reading: the very one, by no path.
    ///
    /// # Errors
    /// It is gone, is no regular file, or lies where reading it could keep the agent waiting.
    pub(super) fn open(&self, range: &Range<u64>) -> Result<(FileKey, File), Nameless> {
        let link = format!("/proc/{}/map_files/{:x}-{:x}", self.tgid, range.start, range.end);
        // A handle asks nothing of the file system: another process may answer for it, or none.
        let handle = open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(why_closed)?;
        let status = status(&handle).map_err(why_closed)?;
        if FileType::from_raw_mode(u32::from(status.stx_mode)) != FileType::RegularFile {
            return Err(Nameless::Damaged);
        }
        if !mount::answers(self.tgid, status.stx_mnt_id) {
            return Err(Nameless::NotOpened);
        }
        let itself = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open(itself, flags, Mode::empty()).map_err(why_closed)?;
        Ok((FileKey::of(&status), file.into()))
    }

    /// Its root directory.
    pub(super) fn root(&mut self) -> Arc<ProcessRoot> {
        self.root.upgrade().unwrap_or_else(|| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = open(format!("/proc/{}/root", self.tgid), flags, Mode::empty()).ok();
            let root = Arc::new(ProcessRoot { root });
            self.root = Arc::downgrade(&root);
            root
        })
    }

    /// Where it tells names of code made at run time; `None` if it is gone.
    pub(super) fn names_made(&mut self) -> Option<Arc<Source>> {
        if let Some(source) = self.made.upgrade() {
            return Some(source);
        }
        let source = Arc::new(Source::PerfMap(self.perf_map()?));
        self.made = Arc::downgrade(&source);
        Some(source)
    }

    fn perf_map(&mut self) -> Option<PerfMap> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.tgid)).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let own_tgid = field("NSpid:")?.split_whitespace().next_back()?.parse().ok()?;
        let uid = field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
        Some(PerfMap { tgid: self.tgid, own_tgid, uid, process: self.root() })
    }
}

/// The kernel's own shared object, from the agent's memory: it is the same for all.
pub(super) fn vdso() -> Option<Arc<[u8]>> {
    let maps = read_maps("self")?;
    let range = maps.vdso()?;
    let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
    File::open("/proc/self/mem").ok()?.read(range.start, length).map(Into::into)
}

impl Identity {
    fn read(tgid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{tgid}/stat")).ok()?;
        // The name before may hold anything.
        let (_, behind) = stat.rsplit_once(')')?;
        let started = behind.split_whitespace().nth(19)?.parse().ok()?;
        let executable = fs::read_link(format!("/proc/{tgid}/exe")).ok();
        Some(Self { started, executable: executable.map(|path| path.to_string_lossy().into_owned()) })
    }
}

impl FileKey {
    fn of(status: &Statx) -> Self {
        Self {
            device: (status.stx_dev_major, status.stx_dev_minor),
            inode: status.stx_ino,
            size: status.stx_size,
            changed: (status.stx_ctime.tv_sec, status.stx_ctime.tv_nsec),
        }
    }
}

/// What is known of a file without asking anybody.
fn status(handle: &OwnedFd) -> rustix::io::Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    statx(handle, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, wanted)
}

const fn why_closed(error: Errno) -> Nameless {
    match error {
        Errno::ACCESS | Errno::PERM => Nameless::NotOpened,
        _ => Nameless::FileGone,
    }
}

fn read_maps(process: &str) -> Option<Maps> {
    let mut text = Vec::new();
    File::open(format!("/proc/{process}/maps")).ok()?.take(MOST_TEXT).read_to_end(&mut text).ok()?;
    Some(Maps::parse(&String::from_utf8_lossy(&text)))
}
