//! Debug files that were fetched, kept by build id: a bounded folder that nobody else writes.
//!
//! A file has no name until it is known to be whole and of its build id, so what is broken off
//! leaves nothing behind.

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, fstatvfs, linkat, open, openat, statat, unlinkat,
};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Largest debug file, bytes.
pub(super) const MAX_FILE: u64 = 512 << 20;
/// Most that is kept, and most that is fetched in a run, bytes.
pub(super) const MAX_KEPT: u64 = 4 << 30;
/// What stays free for others on the file system, bytes.
const LEFT_FREE: u64 = 1 << 30;

/// The folder, open.
#[derive(Debug)]
pub(super) struct Cache(OwnedFd);

impl Cache {
    /// Makes the folder if it is not there. One that others may write could lead anywhere.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let folder = open(path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let facts = fstat(&folder)?;
        let others = Mode::from_raw_mode(facts.st_mode).intersects(Mode::WGRP | Mode::WOTH);
        if facts.st_uid != rustix::process::geteuid().as_raw() || others {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others may write to this folder"));
        }
        let cache = Self(folder);
        cache.nameless()?;
        Ok(cache)
    }

    /// What was kept in this run or an earlier one.
    pub(super) fn find(&self, build_id: &str) -> Option<OwnedFd> {
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(&self.0, name(build_id)?, how, Mode::empty()).ok()
    }

    /// A file without a name, if there is room for the largest.
    pub(super) fn room(&self) -> Option<File> {
        let facts = fstatvfs(&self.0).ok()?;
        let free = facts.f_bavail.saturating_mul(facts.f_frsize);
        if free < MAX_FILE + LEFT_FREE { None } else { self.nameless().ok() }
    }

    fn nameless(&self) -> io::Result<File> {
        let how = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(openat(&self.0, ".", how, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Gives such a file its name; the oldest go for it. One that has no room is not kept.
    pub(super) fn keep(&self, build_id: &str, file: &impl AsFd) {
        let Some(name) = name(build_id) else { return };
        let kept = fstat(file).map_err(io::Error::from).and_then(|facts| self.make_room(size(&facts)));
        if kept.is_ok() {
            let open = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
            // Another run may have been faster, and its file is as good.
            let _ = linkat(CWD, open, &self.0, name, AtFlags::SYMLINK_FOLLOW);
        }
    }

    /// What is not what its name says is not asked again.
    pub(super) fn forget(&self, build_id: &str) {
        if let Some(name) = name(build_id) {
            // It was never kept.
            let _ = unlinkat(&self.0, name, AtFlags::empty());
        }
    }

    fn make_room(&self, wanted: u64) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_owned();
            let Ok(facts) = statat(&self.0, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile {
                files.push((facts.st_mtime, size(&facts), name));
            }
        }
        files.sort();
        let mut total = files.iter().fold(wanted, |total, (_, size, _)| total.saturating_add(*size));
        for (_, size, name) in files {
            if total <= MAX_KEPT {
                break;
            }
            match unlinkat(&self.0, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => total = total.saturating_sub(size),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn size(facts: &Stat) -> u64 {
    u64::try_from(facts.st_size).unwrap_or_default()
}

/// Nothing but a build id becomes a name, or a part of an address.
fn name(build_id: &str) -> Option<String> {
    is_build_id(build_id).then(|| format!("{build_id}.debug"))
}

/// It is one as linkers make them, in lower case: 8 to 64 bytes.
pub(super) fn is_build_id(text: &str) -> bool {
    let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hex && (16..=128).contains(&text.len()) && text.len().is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const ID: &str = "00112233445566778899aabbccddeeff00112233";

    #[test]
    fn a_file_has_no_name_before_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(&dir.path().join("a/b")).unwrap();
        let file = cache.nameless().unwrap();
        let names = || std::fs::read_dir(dir.path().join("a/b")).unwrap().count();
        assert_eq!(names(), 0);
        cache.keep(ID, &file);
        assert!(cache.find(ID).is_some());
        cache.forget(ID);
        assert_eq!((names(), cache.find(ID).is_none()), (0, true));
    }

    #[test]
    fn only_a_build_id_becomes_a_name() {
        assert!(is_build_id(ID));
        for wrong in ["", "../../../etc/passwd", "0123", &ID.to_uppercase(), &ID[1..], &"a".repeat(130)] {
            assert!(!is_build_id(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let cache = Cache::open(dir.path()).unwrap();
        for (index, age) in [(0, 30), (1, 10), (2, 20)] {
            // A hole: it has a size and takes nothing.
            let file = File::create(dir.path().join(format!("{index}.debug"))).unwrap();
            file.set_len(MAX_KEPT / 4).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 - age)).unwrap();
        }
        cache.make_room(MAX_KEPT / 2).unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["1.debug", "2.debug"]);
    }

    #[test]
    fn a_folder_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(Cache::open(dir.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
