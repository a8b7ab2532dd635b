//! What a virtual machine starts with: the lab, the programs that are called there, the libraries
//! of these, modules, and the job. All of it is this machine's own, so nothing has to be built anew.

use std::{
    collections::BTreeMap,
    env, fs,
    io::BufWriter,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use bpf_toolchain::{LIBRARY_PATH, user_cache};

use crate::{
    archive::Archive,
    boot::KVM_FIRMWARE,
    modules,
    store::{Kernel, Qemu},
};

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
    /// What the machine has guests of its own with.
    pub guests: Option<Guests<'a>>,
}

/// With what a machine can be the host of others, as if it were installed there.
#[derive(Debug, Clone, Copy)]
pub struct Guests<'a> {
    /// Their emulator.
    pub qemu: &'a Qemu,
    /// Their kernel.
    pub kernel: &'a Kernel,
    /// Modules of that kernel, and what these need.
    pub modules: &'a [&'a str],
}

/// The dynamic loader, which lists what a program loads; `ldd` would need a shell.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

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
        for (number, module) in wanted(kernel, contents.modules)?.iter().enumerate() {
            archive.file(Path::new(&format!("modules/{number:02}-{}.ko", module.name)), &module.content)?;
        }
        contents.guests.iter().try_for_each(|guests| add_guest_kernel(&mut archive, guests))?;
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

fn wanted(kernel: &Kernel, names: &[&str]) -> Result<Vec<modules::Module>> {
    modules::wanted(&kernel.modules, names, &|| Command::new("xz"))
}

fn add_programs<W: std::io::Write>(archive: &mut Archive<W>, contents: &Contents<'_>) -> Result<()> {
    let mut programs = contents.programs.to_vec();
    for name in contents.commands {
        programs.push(find(name)?);
    }
    // By where they lie in the machine.
    let mut others = BTreeMap::new();
    for program in programs {
        others.extend(libraries_of(&program, None)?.into_iter().map(|library| (library.clone(), library)));
        archive.file(&in_bin(&program)?, &read(&program)?)?;
    }
    if let Some(Guests { qemu, .. }) = contents.guests {
        let program = find(qemu.program())?;
        archive.file(&in_bin(&program)?, &read(&program)?)?;
        let firmware = qemu.firmware_file(KVM_FIRMWARE).with_context(|| format!("QEMU has no {KVM_FIRMWARE}"))?;
        let files = libraries_of(&program, qemu.library_path().as_deref())?.into_iter().chain([firmware]);
        others.extend(files.map(|file| (qemu.installed(&file), file)));
    }
    for (place, file) in others {
        archive.file(&place, &read(&file)?)?;
    }
    Ok(())
}

fn in_bin(program: &Path) -> Result<PathBuf> {
    Ok(Path::new("bin").join(program.file_name().context("a program has a name")?))
}

/// Adds the kernel of the machine's own guests, where the lab looks for it.
fn add_guest_kernel<W: std::io::Write>(archive: &mut Archive<W>, guests: &Guests<'_>) -> Result<()> {
    let Guests { kernel, modules, .. } = guests;
    archive.file(&in_caches(&kernel.image)?, &read(&kernel.image)?)?;
    for module in wanted(kernel, modules)? {
        let place = kernel.modules.join(format!("{}.ko", module.name));
        archive.file(&in_caches(&place)?, &module.content)?;
    }
    Ok(())
}

/// Where a file of the user's caches lies in the machine.
fn in_caches(file: &Path) -> Result<PathBuf> {
    let caches = user_cache()?;
    let caches = caches.parent().context("whylag's cache lies among others")?;
    Ok(Path::new(CACHES).join(file.strip_prefix(caches)?))
}

/// Adds unpacked packages, at the place where the lab looks for them.
fn add_packages<W: std::io::Write>(archive: &mut Archive<W>, root: &Path) -> Result<()> {
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let place = in_caches(&path)?;
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
fn find(name: impl AsRef<Path>) -> Result<PathBuf> {
    let name = name.as_ref();
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let mut candidates = directories.map(|directory| directory.join(name));
    candidates
        .find(|candidate| candidate.is_file())
        .with_context(|| format!("this machine has no program {}", name.display()))
}

/// The libraries that a program loads, and its loader; some may lie in `library_path`.
fn libraries_of(program: &Path, library_path: Option<&str>) -> Result<Vec<PathBuf>> {
    let mut command = Command::new(LOADER);
    command.arg("--list").arg(program).env_remove(LIBRARY_PATH);
    command.envs(library_path.map(|path| (LIBRARY_PATH, path)));
    let output = command.output().with_context(|| format!("cannot start {LOADER}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(library).collect())
}

/// Reads a line of the loader's: `NAME => PATH (ADDRESS)`, or `PATH (ADDRESS)` for the loader.
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
