//! Work inside another network namespace.

use std::{
    fmt,
    fs::{self, File},
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace other than the caller's.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Netns {
    /// A file that stands for it, such as `/run/netns/NAME`.
    Path(PathBuf),
    /// That of a process.
    Pid(u32),
}

impl Netns {
    /// The file that stands for it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Path(path) => path.clone(),
            Self::Pid(pid) => Path::new("/proc").join(pid.to_string()).join("ns/net"),
        }
    }
}

impl fmt::Display for Netns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}

/// Runs `work` in a network namespace, or where the caller is. The caller's thread never moves:
/// where it is another namespace, one of its own does, and ends.
///
/// # Errors
///
/// When the namespace is gone or may not be entered.
pub(super) fn inside<T: Send>(netns: Option<&Netns>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let Some(netns) = netns else {
        return Ok(work());
    };
    let file = File::open(netns.path())?;
    if is_own(&file)? {
        return Ok(work());
    }
    let moved = || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(work())
    };
    let joined = thread::scope(|scope| scope.spawn(moved).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Whether the caller's thread is in the namespace that a file stands for.
fn is_own(file: &File) -> io::Result<bool> {
    let own = fs::metadata("/proc/thread-self/ns/net").map(|own| (own.dev(), own.ino()));
    let of_file = file.metadata()?;
    Ok(own.is_ok_and(|own| own == (of_file.dev(), of_file.ino())))
}
