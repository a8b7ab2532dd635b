//! What a virtual machine starts with: the lab, whylag, the programs they call, the libraries of
//! these, modules, and the job. All of it is this machine's own, so nothing has to be built anew.

use std::{
    collections::BTreeSet,
    env, fs,
    io::BufWriter,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use bpf_toolchain::LIBRARY_PATH;

use super::{
    archive::Archive,
    debian::{Kernel, Store},
    modules,
};
use crate::workspace;

/// Programs of this machine that the lab calls.
const PROGRAMS: [&str; 4] = ["ip", "tc", "chrt", "true"];
/// The first process's standard streams, before it has mounted anything.
const CONSOLE: (u32, u32) = (5, 1);

/// The programs to be tried.
#[derive(Debug)]
pub(super) struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// Those of one profile's build.
    pub(super) fn of_build(profile: &str) -> Self {
        let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        Self { directory: target.unwrap_or_else(|| workspace::root().join("target")).join(profile) }
    }
}

impl Binaries {
    /// The lab.
    pub(super) fn lab(&self) -> PathBuf {
        self.directory.join("lab")
    }
}

/// The file; it is removed with the value.
#[derive(Debug)]
pub(super) struct Image(PathBuf);

impl Image {
    pub(super) fn build(store: &Store, kernel: &Kernel, binaries: &Binaries, job: &[Vec<String>]) -> Result<Self> {
        let image = Self(store.directory().join(format!("image-{}", kernel.release)));
        let file = fs::File::create(&image.0).with_context(|| format!("cannot create {}", image.0.display()))?;
        let mut archive = Archive::new(BufWriter::new(file));
        archive.device(Path::new("dev/console"), CONSOLE.0, CONSOLE.1)?;
        add_programs(&mut archive, binaries)?;
        let modules = modules::wanted(&kernel.modules, &|| Command::new("xz"))?;
        for (number, module) in modules.iter().enumerate() {
            archive.file(Path::new(&format!("modules/{number:02}-{}.ko", module.name)), &module.content)?;
        }
        let job: String = job.iter().map(|words| words.join("\t") + "\n").collect();
        archive.file(Path::new("job"), job.as_bytes())?;
        archive.finish()?.into_inner()?;
        Ok(image)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // A file that stays is written over by the next run.
        let _ = fs::remove_file(&self.0);
    }
}

fn add_programs<W: std::io::Write>(archive: &mut Archive<W>, binaries: &Binaries) -> Result<()> {
    let mut programs = vec![binaries.lab(), binaries.directory.join("whylag")];
    for name in PROGRAMS {
        programs.push(find(name).with_context(|| format!("this machine has no program {name}"))?);
    }
    let mut libraries = BTreeSet::new();
    for program in &programs {
        let name = program.file_name().context("a program has a name")?;
        archive.file(&Path::new("bin").join(name), &read(program)?)?;
        libraries.extend(libraries_of(program)?);
    }
    for library in libraries {
        archive.file(&library, &read(&library)?)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Where a program lies; an ordinary user's path lacks the administrator's directories.
fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    directories.map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}

/// The libraries that a program loads, and its loader.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).env_remove(LIBRARY_PATH).output().context("cannot start ldd")?;
    ensure!(output.status.success(), "ldd {}: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(library).collect())
}

/// Reads a line of `ldd`: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader.
fn library(line: &str) -> Option<PathBuf> {
    let place = line.split_once("=>").map_or(line, |(_, place)| place).trim();
    let path = place.split_once(" (").map_or(place, |(path, _)| path);
    path.starts_with('/').then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found_and_the_kernels_own_is_not() {
        let path = |line| library(line).map(|path| path.display().to_string());
        assert_eq!(path("\tlibc.so.6 => /lib/x/libc.so.6 (0x7f)").as_deref(), Some("/lib/x/libc.so.6"));
        assert_eq!(path("\t/lib64/ld-linux-x86-64.so.2 (0x7f)").as_deref(), Some("/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(path("\tlinux-vdso.so.1 (0x7f)"), None);
        assert_eq!(path("\tlibgone.so => not found"), None);
    }
}
