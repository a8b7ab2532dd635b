//! QEMU and kernels out of Debian's packages, unpacked in the user's cache.
//!
//! Each suite has a package index of its own, so that its newest version is meant, whatever the
//! others have. Each unpacked tree appears by a rename: a killed run is resumed where it stopped.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use bpf_toolchain::{LIBRARY_PATH, cache_dir};
use debian_packages::{Index, Lock, Steps, install, library_dirs};

/// The package that depends on a suite's newest kernel for virtual machines.
const NEWEST: &str = "linux-image-cloud-amd64";
/// Older ones misexecute kernels from 6.12 on.
const OLDEST_QEMU: u32 = 10;
/// Its name in the cache.
const QEMU: &str = "qemu";
/// The emulator of the machines that the kernels are for.
const PROGRAM: &str = "qemu-system-x86_64";
/// Where its packages have firmware.
const FIRMWARE: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];
/// Where Debian 12 has that QEMU.
const QEMU_SUITE: &str = "bookworm-backports";
/// Suites that the libraries of QEMU are in.
const LIBRARY_SUITES: [&str; 3] = ["bookworm", "bookworm-updates", "bookworm-security"];

/// A kernel for virtual machines: the newest that a suite of Debian has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// Its name on command lines and in the cache.
    pub name: &'static str,
    /// The suite that has it.
    pub suite: &'static str,
}

impl Release {
    /// The oldest that the project is tried on; it boots fastest.
    pub const OLDEST: Self = Self { name: "6.1", suite: "bookworm-security" };
    /// One between the two.
    pub const MIDDLE: Self = Self { name: "6.12", suite: "trixie-security" };
    /// The newest there is.
    pub const NEWEST: Self = Self { name: "newest", suite: "trixie-backports" };
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OLDEST, Self::MIDDLE, Self::NEWEST];
}

/// The part of the cache that is ours.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
}

/// An unpacked kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// As `uname -r` says it.
    pub release: String,
    /// The kernel itself.
    pub image: PathBuf,
    /// Its modules.
    pub modules: PathBuf,
}

/// A QEMU, and where its own files lie if it is not installed.
#[derive(Debug)]
pub struct Qemu {
    root: Option<PathBuf>,
}

impl Store {
    /// Opens it. What is in it appeared by a rename and stays, so it is read without a lock.
    ///
    /// # Errors
    /// This machine is none that the kernels are for, or the user has no cache.
    pub fn open() -> Result<Self> {
        ensure!(std::env::consts::ARCH == "x86_64", "virtual machines of this project are x86_64 only");
        let directory = cache_dir()?.with_file_name("vm");
        fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        Ok(Self { directory })
    }

    /// Where images are made.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The kernel of `release` if it is there.
    #[must_use]
    pub fn cached(&self, release: Release) -> Option<Kernel> {
        let root = self.kernel_root(release);
        let modules = root.join("usr/lib/modules");
        let modules = if modules.exists() { modules } else { root.join("lib/modules") };
        let release = fs::read_dir(&modules).ok()?.flatten().next()?.file_name().into_string().ok()?;
        let modules = modules.join(&release);
        let places = [root.join(format!("boot/vmlinuz-{release}")), modules.join("vmlinuz")];
        let image = places.into_iter().find(|place| place.is_file())?;
        Some(Kernel { release, image, modules })
    }

    /// Removes the kernel of `release`, so that its suite is asked again.
    ///
    /// # Errors
    /// It is not ours to remove.
    pub fn forget(&self, release: Release) -> Result<()> {
        let _lock = self.lock()?;
        remove(&self.kernel_root(release))
    }

    /// The kernel of `release`, fetched if it is not there.
    ///
    /// # Errors
    /// Debian does not answer, or its suite has no such kernel.
    pub fn kernel(&self, release: Release) -> Result<Kernel> {
        if let Some(kernel) = self.cached(release) {
            return Ok(kernel);
        }
        let lock = self.lock()?;
        let steps = Steps::new(&self.directory, &lock);
        let mut index = self.index(release.suite, &[release.suite], &steps);
        let root = install(&kernel_name(release), &self.directory, &mut index, &[], |index| {
            let mut names = index.dependencies(NEWEST, true)?;
            names.retain(|name| is_part_of_kernel(name));
            index.resolve(&names)
        })?;
        self.cached(release).with_context(|| format!("there is no kernel in {}", root.display()))
    }

    fn kernel_root(&self, release: Release) -> PathBuf {
        self.directory.join(kernel_name(release))
    }

    /// The machine's own QEMU if it is new enough, else one from the cache, fetched if need be.
    ///
    /// # Errors
    /// Debian does not answer, or has none that is new enough.
    pub fn qemu(&self) -> Result<Qemu> {
        let installed = Qemu { root: None };
        if installed.is_new_enough() {
            return Ok(installed);
        }
        let cached = Qemu { root: Some(self.directory.join(QEMU)) };
        if cached.is_new_enough() {
            return Ok(cached);
        }
        let qemu = Qemu { root: Some(self.fetched_qemu()?) };
        let major = qemu.major().with_context(|| format!("QEMU does not run: {:?}", qemu.command()))?;
        ensure!(major >= OLDEST_QEMU, "QEMU {major} misexecutes new kernels; version {OLDEST_QEMU} is needed");
        Ok(qemu)
    }

    fn fetched_qemu(&self) -> Result<PathBuf> {
        let lock = self.lock()?;
        let steps = Steps::new(&self.directory, &lock);
        let suites: Vec<&str> = LIBRARY_SUITES.into_iter().chain([QEMU_SUITE]).collect();
        let mut index = self.index(QEMU, &suites, &steps);
        install(QEMU, &self.directory, &mut index, &[], |index| index.lacking("qemu-system-x86", QEMU_SUITE))
    }

    /// Held only while something is fetched: who boots a machine waits for nobody's download.
    fn lock(&self) -> Result<Lock> {
        Lock::take(&self.directory)
    }

    fn index<'a>(&self, name: &str, suites: &[&str], steps: &'a Steps<'a>) -> Index<'a> {
        let lines = suites.iter().map(|suite| source_line(suite));
        Index::of_sources(self.directory.join(format!("apt-{name}")), lines.collect(), steps)
    }
}

impl Qemu {
    /// The command, ready for arguments.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(self.program());
        command.envs(self.library_path().map(|path| (LIBRARY_PATH, path)));
        for directory in self.firmware() {
            command.arg("-L").arg(directory);
        }
        command
    }

    /// The program; without a directory if it is installed.
    pub(crate) fn program(&self) -> PathBuf {
        self.root.as_ref().map_or_else(|| PROGRAM.into(), |root| root.join("usr/bin").join(PROGRAM))
    }

    /// Where the dynamic loader finds those of its libraries that are not installed.
    pub(crate) fn library_path(&self) -> Option<String> {
        let root = self.root.as_ref()?;
        Some(library_dirs().map(|directory| root.join(directory).display().to_string()).join(":"))
    }

    /// Where one of its files of firmware lies.
    pub(crate) fn firmware_file(&self, name: &str) -> Option<PathBuf> {
        self.firmware().map(|directory| directory.join(name)).find(|file| file.is_file())
    }

    /// Where a file of its own would lie if it were installed.
    pub(crate) fn installed(&self, file: &Path) -> PathBuf {
        let within = self.root.as_ref().and_then(|root| file.strip_prefix(root).ok());
        within.map_or_else(|| file.to_owned(), |file| Path::new("/").join(file))
    }

    /// Where its firmware is looked for. What the machine has already is not in our tree.
    fn firmware(&self) -> impl Iterator<Item = PathBuf> {
        let places = self.root.iter().map(PathBuf::as_path).chain([Path::new("/")]);
        places.flat_map(|root| FIRMWARE.map(|directory| root.join(directory)))
    }

    fn is_new_enough(&self) -> bool {
        self.major().is_some_and(|major| major >= OLDEST_QEMU)
    }

    fn major(&self) -> Option<u32> {
        let output = self.command().arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.strip_prefix("QEMU emulator version ")?.split('.').next()?.parse().ok()
    }
}

fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(())
}

fn kernel_name(release: Release) -> String {
    format!("kernel-{}", release.name)
}

/// Whether a package is the kernel or holds a part of it, as opposed to what installs it.
fn is_part_of_kernel(name: &str) -> bool {
    let parts = ["linux-image-", "linux-binary-", "linux-modules-"];
    let version = parts.iter().find_map(|part| name.strip_prefix(part));
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

/// A line of `sources.list`. Release files of a mirror that lags are out of date, but signed
/// still; kernels that only run in our virtual machines may be old.
fn source_line(suite: &str) -> String {
    let security = suite.ends_with("-security");
    let mirror = mirror(security);
    format!("deb [check-valid-until=no signed-by={KEYRING}] {mirror} {suite} main\n")
}

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The mirror that the machine's own sources name, else Debian's.
fn mirror(security: bool) -> String {
    let name = if security { "debian-security" } else { "debian" };
    let text = sources_text();
    let words = text.split_whitespace().map(|word| word.trim_end_matches('/'));
    let mut mirrors = words.filter(|word| word.starts_with("http") && word.ends_with(&format!("/{name}")));
    mirrors.next().map_or_else(|| format!("http://deb.debian.org/{name}"), str::to_owned)
}

/// All that the machine's lists of sources say, comments left out.
fn sources_text() -> String {
    let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path());
    let files = parts.chain([PathBuf::from("/etc/apt/sources.list")]);
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    texts
        .flat_map(|text| {
            text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_told_from_what_installs_it() {
        let parts = ["linux-image-6.1.0-57-cloud-amd64", "linux-binary-7.3.4+deb13-cloud-amd64"];
        assert!(parts.into_iter().all(is_part_of_kernel));
        let others = [NEWEST, "linux-base", "linux-base-7.3.4+deb13-cloud-amd64", "kmod"];
        assert!(!others.into_iter().any(is_part_of_kernel));
    }
}
