//! The packages of a server, or of a program of a case, in the user's cache, which all clones share.

use super::Software;
use anyhow::{Context, Result};
use debian_packages::{Index, Lock, Steps, library_dirs};
use std::fs;
use std::path::{Path, PathBuf};

/// Raised when a server's packages or what is kept of them change.
const SERVERS: &str = "servers-1";
/// The same of compilers.
const COMPILERS: &str = "compilers-1";

/// The root of its unpacked packages; they are downloaded if they are not there.
///
/// # Errors
/// There is no cache, or the packages cannot be had.
pub fn unpacked(software: Software) -> Result<PathBuf> {
    bundle(software.bundle(), software.packages(), software.unread())
}

/// The root of unpacked `packages`, kept as `name`, without what `unread` tells `tar` to leave out.
///
/// # Errors
/// As [`unpacked`].
pub fn bundle(name: &str, packages: &[&str], unread: &[&str]) -> Result<PathBuf> {
    kept(SERVERS, name, packages, unread)
}

/// The same of a compiler.
pub(super) fn compiler(name: &str, packages: &[&str]) -> Result<PathBuf> {
    kept(COMPILERS, name, packages, &[])
}

fn kept(kind: &str, name: &str, packages: &[&str], unread: &[&str]) -> Result<PathBuf> {
    let cache = bpf_toolchain::user_cache()?.join(kind);
    let root = cache.join(name);
    if root.exists() {
        return Ok(root);
    }
    fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
    let lock = Lock::take(&cache)?;
    let steps = Steps::new(&cache, &lock);
    let names: Vec<String> = packages.iter().map(|name| (*name).to_owned()).collect();
    let mut index = Index::new(&cache, &steps);
    debian_packages::install(name, &cache, &mut index, unread, |index| index.resolve(&names))
}

/// What the dynamic loader must search for a server under `root`.
#[must_use]
pub fn library_path(root: &Path) -> String {
    library_dirs().map(|directory| root.join(directory).display().to_string()).join(":")
}
