//! From a list of packages to a directory with their files.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result};

use crate::{Index, Package, Steps};

/// Where packages lie between download and unpacking.
pub const DOWNLOADS: &str = "downloads";

/// Parts of packages that nobody reads, for `tar`.
const UNREAD: [&str; 4] = [
    // Without these a pattern also fits deeper directories of the same name.
    "--anchored",
    "--no-wildcards-match-slash",
    "--exclude=./usr/share/doc",
    "--exclude=./usr/share/man",
];

/// Unpacks what `choose` picks from the refreshed index as `cache/name`, unless it is there, and
/// returns that directory. `unread` are further arguments of `tar` about what to leave out.
///
/// # Errors
/// A package is not offered, or a program fails; what is complete is kept for the next try.
pub fn install(
    name: &str,
    cache: &Path,
    index: &mut Index<'_>,
    unread: &[&str],
    choose: impl FnOnce(&Index<'_>) -> Result<Vec<Package>>,
) -> Result<PathBuf> {
    let root = cache.join(name);
    if root.exists() {
        return Ok(root);
    }
    index.refresh()?;
    let packages = choose(index)?;
    let downloads = cache.join(DOWNLOADS).join(name);
    index.download(name, &packages, &downloads)?;
    let staged = cache.join(format!("{name}.partial"));
    if staged.exists() {
        fs::remove_dir_all(&staged)?;
    }
    fs::create_dir(&staged)?;
    let started = Instant::now();
    for package in &packages {
        unpack(&downloads.join(&package.file), &staged, unread, index.steps())?;
    }
    fs::rename(&staged, &root).with_context(|| format!("cannot create {}", root.display()))?;
    fs::remove_dir_all(downloads)?;
    let took = started.elapsed().as_secs_f64();
    index.steps().note(&format!("unpack {name}: {took:.1} s"));
    Ok(root)
}

/// Where packages for this machine keep shared libraries, relative to a root.
#[must_use]
pub fn library_dirs() -> [String; 2] {
    let directory = format!("lib/{}-linux-gnu", env::consts::ARCH);
    [format!("usr/{directory}"), directory]
}

/// Unpacks one package without the parts that nobody reads.
fn unpack(package: &Path, into: &Path, unread: &[&str], steps: &Steps<'_>) -> Result<()> {
    let log = steps.log_file()?;
    let mut archive = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdin(steps.lock().as_input()?)
        .stdout(Stdio::piped())
        .stderr(log.try_clone()?)
        .spawn()
        .context("cannot start dpkg-deb")?;
    let stream = archive.stdout.take().context("dpkg-deb has no output")?;
    let unpacked = Command::new("tar")
        .args(["--extract", "--no-same-owner", "--directory"])
        .arg(into)
        .args(UNREAD)
        .args(unread)
        .stdin(stream)
        .stderr(log)
        .status()
        .context("cannot start tar")?;
    let what = format!("unpack {}", package.display());
    steps.check(&what, archive.wait()?)?;
    steps.check(&what, unpacked)
}
