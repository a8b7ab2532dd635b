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

use super::Row;

/// The package that depends on a suite's newest kernel for virtual machines.
const NEWEST: &str = "linux-image-cloud-amd64";
/// Older ones misexecute kernels from 6.12 on.
const OLDEST_QEMU: u32 = 10;
/// Its name in the cache.
const QEMU: &str = "qemu";
/// Where Debian 12 has that QEMU.
const QEMU_SUITE: &str = "bookworm-backports";
/// Suites that the libraries of QEMU are in.
const LIBRARY_SUITES: [&str; 3] = ["bookworm", "bookworm-updates", "bookworm-security"];

/// The part of the cache that is ours.
#[derive(Debug)]
pub(super) struct Store {
    directory: PathBuf,
    lock: Lock,
}

/// An unpacked kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    /// As `uname -r` says it.
    pub(super) release: String,
    /// The kernel itself.
    pub(super) image: PathBuf,
    /// Its modules.
    pub(super) modules: PathBuf,
}

/// A QEMU, and where its own files lie if it is not installed.
#[derive(Debug)]
pub(super) struct Qemu {
    root: Option<PathBuf>,
}

impl Store {
    /// Opens it for one user at a time.
    pub(super) fn open() -> Result<Self> {
        ensure!(std::env::consts::ARCH == "x86_64", "virtual machines of this task are x86_64 only");
        let directory = cache_dir()?.with_file_name("vm");
        fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let lock = Lock::take(&directory)?;
        Ok(Self { directory, lock })
    }

    /// Where images are made.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The kernel of `row` if it is there.
    pub(super) fn cached(&self, row: &Row) -> Option<Kernel> {
        let root = self.kernel_root(row);
        let modules = root.join("usr/lib/modules");
        let modules = if modules.exists() { modules } else { root.join("lib/modules") };
        let release = fs::read_dir(&modules).ok()?.flatten().next()?.file_name().into_string().ok()?;
        let modules = modules.join(&release);
        let places = [root.join(format!("boot/vmlinuz-{release}")), modules.join("vmlinuz")];
        let image = places.into_iter().find(|place| place.is_file())?;
        Some(Kernel { release, image, modules })
    }

    /// Removes the kernel of `row`, so that its suite is asked again.
    pub(super) fn forget(&self, row: &Row) -> Result<()> {
        remove(&self.kernel_root(row))
    }

    /// The kernel of `row`, fetched if it is not there.
    pub(super) fn kernel(&self, row: &Row) -> Result<Kernel> {
        if let Some(kernel) = self.cached(row) {
            return Ok(kernel);
        }
        let steps = Steps::new(&self.directory, &self.lock);
        let mut index = self.index(row.suite, &[row.suite], &steps);
        let root = install(&kernel_name(row), &self.directory, &mut index, &[], |index| {
            let mut names = index.dependencies(NEWEST, true)?;
            names.retain(|name| is_part_of_kernel(name));
            index.resolve(&names)
        })?;
        self.cached(row).with_context(|| format!("there is no kernel in {}", root.display()))
    }

    fn kernel_root(&self, row: &Row) -> PathBuf {
        self.directory.join(kernel_name(row))
    }

    /// The machine's own QEMU if it is new enough, else one from the cache, fetched if need be.
    pub(super) fn qemu(&self) -> Result<Qemu> {
        let installed = Qemu { root: None };
        if installed.major().is_some_and(|major| major >= OLDEST_QEMU) {
            return Ok(installed);
        }
        let qemu = Qemu { root: Some(self.fetched_qemu()?) };
        let major = qemu.major().with_context(|| format!("QEMU does not run: {:?}", qemu.command()))?;
        ensure!(major >= OLDEST_QEMU, "QEMU {major} misexecutes new kernels; version {OLDEST_QEMU} is needed");
        Ok(qemu)
    }

    fn fetched_qemu(&self) -> Result<PathBuf> {
        let steps = Steps::new(&self.directory, &self.lock);
        let suites: Vec<&str> = LIBRARY_SUITES.into_iter().chain([QEMU_SUITE]).collect();
        let mut index = self.index(QEMU, &suites, &steps);
        install(QEMU, &self.directory, &mut index, &[], |index| index.lacking("qemu-system-x86", QEMU_SUITE))
    }

    fn index<'a>(&self, name: &str, suites: &[&str], steps: &'a Steps<'a>) -> Index<'a> {
        let lines = suites.iter().map(|suite| source_line(suite));
        Index::of_sources(self.directory.join(format!("apt-{name}")), lines.collect(), steps)
    }
}

impl Qemu {
    /// The command, ready for arguments.
    pub(super) fn command(&self) -> Command {
        let Some(root) = &self.root else { return Command::new("qemu-system-x86_64") };
        let mut command = Command::new(root.join("usr/bin/qemu-system-x86_64"));
        let libraries = library_dirs().map(|directory| root.join(directory).display().to_string());
        command.env(LIBRARY_PATH, libraries.join(":"));
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(root.join(firmware));
        }
        // What the machine has already is not in our tree.
        command.args(["-L", "/usr/share/seabios", "-L", "/usr/share/qemu"]);
        command
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

fn kernel_name(row: &Row) -> String {
    format!("kernel-{}", row.name)
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
