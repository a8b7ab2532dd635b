//! Places whose names are asked for, and what to look into for them.
//!
//! The unwinder gives these away, the symbolizer answers with the frame said again. Nothing here
//! is a path: a file is handed over open, as the very one that was mapped.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A frame that has no name yet.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Number of the frame, as in its `FrameFact`.
    pub frame: u32,
    /// What to look into.
    pub source: Arc<Source>,
    /// What to look up: for a file or the vdso the virtual address as its symbols count it, for
    /// code made at run time the address in the process. Of a caller it is the last byte of its
    /// call, so that it lies in the call's line and function.
    pub address: u64,
}

/// What tells names of addresses.
#[derive(Debug)]
pub enum Source {
    /// A file that was mapped.
    File(MappedFile),
    /// Code made at run time: the perf map that the process may write.
    PerfMap(PerfMap),
    /// The kernel's own shared object, whole, as an ELF image.
    Vdso(Arc<[u8]>),
}

/// A file that was mapped, open for reading: regular, of any size, and its owner may change it at
/// any time, so it must not be mapped by who cannot bear a `SIGBUS`.
#[derive(Debug)]
pub struct MappedFile {
    /// The file itself, also after its deletion and from another mount namespace. Read it at
    /// offsets: its position is shared.
    pub file: OwnedFd,
    /// Its name without folder, for messages only.
    pub name: String,
    /// GNU build id in hexadecimal that the unwinder read from it; empty if it has none.
    pub build_id: String,
    /// A process that mapped it, in whose root its debug files lie; it may be gone.
    pub process: Arc<ProcessRoot>,
}

/// Where a process writes a perf map: `tmp/perf-NUMBER.map` under its root.
#[derive(Debug)]
pub struct PerfMap {
    /// The process, as the host numbers it.
    pub tgid: u32,
    /// The process as it numbers itself, thus as its perf map is named.
    pub own_tgid: u32,
    /// Its owner, as the host numbers users (effective user): whose file the map must be.
    pub uid: u32,
    /// Its root.
    pub process: Arc<ProcessRoot>,
}

/// The root directory of a process as a handle (`O_PATH`): of it, only names below it may be
/// opened (`RESOLVE_IN_ROOT`, no magic links).
#[derive(Debug)]
pub struct ProcessRoot {
    /// The directory; `None` if the process was gone or it may not be looked into.
    pub root: Option<OwnedFd>,
}
