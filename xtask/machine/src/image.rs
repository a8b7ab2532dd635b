//! What a virtual machine starts with: the lab, the programs that are called there, the libraries
//! of these, modules, and the job. All of it is this machine's own, so nothing has to be built anew.

use std::{
    collections::BTreeSet,
    env, fs,
    io::BufWriter,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use bpf_toolchain::{LIBRARY_PATH, user_cache};

use crate::{archive::Archive, modules, store::Kernel};

/// The first process's standard streams, before it has mounted anything.
const CONSOLE: (u32, u32) = (5, 1);

/// What is in an image.
#[derive(Debug, Clone, Copy)]
pub struct Contents<'a> {
    /// Programs by their path; the lab must be among them.
    pub programs: &'a [PathBuf],
    /// Programs of this machine by their name.
    pub commands: &'a [&'a str],
    /// Directories of unpacked packages in the user's cache; they lie in the machine's.
    pub packages: &'a [PathBuf],
    /// Modules, which are loaded in this order, and what they need before them.
    pub modules: &'a [&'a str],
    /// Commands that are run one after another.
    pub job: &'a [Vec<String>],
}

/// The directory of the user's caches in the machine; its first process knows it too.
const CACHES: &str = "cache";

/// The file; it is removed with the value.
#[derive(Debug)]
pub struct Image(PathBuf);

impl Image {
    /// Writes it to `file`, for `kernel`.
    ///
    /// # Errors
    /// Something of its contents is not on this machine.
    pub fn build(file: PathBuf, kernel: &Kernel, contents: &Contents<'_>) -> Result<Self> {
        let image = Self(file);
        let file = fs::File::create(&image.0).with_context(|| format!("cannot create {}", image.0.display()))?;
        let mut archive = Archive::new(BufWriter::new(file));
        archive.device(Path::new("dev/console"), CONSOLE.0, CONSOLE.1)?;
        add_programs(&mut archive, contents)?;
        contents.packages.iter().try_for_each(|root| add_packages(&mut archive, root))?;
        let modules = modules::wanted(&kernel.modules, contents.modules, &|| Command::new("xz"))?;
        for (number, module) in modules.iter().enumerate() {
            archive.file(Path::new(&format!("modules/{number:02}-{}.ko", module.name)), &module.content)?;
        }
        let job: String = contents.job.iter().map(|words| words.join("\t") + "\n").collect();
        archive.file(Path::new("job"), job.as_bytes())?;
        archive.finish()?.into_inner()?;
        Ok(image)
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // A file that stays is written over by the next run.
        let _ = fs::remove_file(&self.0);
    }
}

fn add_programs<W: std::io::Write>(archive: &mut Archive<W>, contents: &Contents<'_>) -> Result<()> {
    let mut programs = contents.programs.to_vec();
    for name in contents.commands {
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

/// Adds unpacked packages, at the place where the lab looks for them.
fn add_packages<W: std::io::Write>(archive: &mut Archive<W>, root: &Path) -> Result<()> {
    let caches = user_cache()?;
    let caches = caches.parent().context("whylag's cache lies among others")?;
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let place = Path::new(CACHES).join(path.strip_prefix(caches)?);
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_symlink() {
                archive.link(&place, &fs::read_link(&path)?)?;
            } else {
                archive.file(&place, &read(&path)?)?;
            }
        }
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
