//! Files and roots as they are handed over.

use super::asking::handed;
use object::Object;
use probe_user::stack::wanted::Source;
use rustix::fs::{Mode, OFlags, open};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// A program of a process whose root is not known.
pub(crate) fn file(path: &Path, build_id: &str) -> Arc<Source> {
    handed(File::open(path).unwrap(), build_id, None)
}

/// A directory as the root of a process.
pub(crate) fn root(path: &Path) -> OwnedFd {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

/// The build id as the unwinder would tell it.
pub(crate) fn build_id(program: &Path) -> String {
    let bytes = std::fs::read(program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    elf.build_id().unwrap().map(hex::encode).unwrap_or_default()
}
