//! Sets of Debian packages, unpacked side by side in the cache.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result};
use bpf_toolchain::LLVM_MAJOR;

use super::{
    apt::{Index, Package},
    error::SetupError,
    progress::Steps,
};

/// Where packages lie between download and unpacking.
pub(super) const DOWNLOADS: &str = "downloads";

/// Parts of packages that no build reads: two thirds of their size.
const UNREAD: [&str; 8] = [
    // Without these a pattern also fits deeper directories of the same name.
    "--anchored",
    "--no-wildcards-match-slash",
    "--exclude=./usr/share/doc",
    "--exclude=./usr/share/man",
    "--exclude=./usr/lib/llvm-*/lib/*.a",
    "--exclude=./usr/src/rustc-*/src",
    "--exclude=./usr/src/rustc-*/compiler",
    "--exclude=./usr/src/rustc-*/debian",
];

/// Libraries that must be the machine's own: the dynamic loader is bound to its C library.
const SYSTEM_LIBRARIES: [&str; 4] = ["libc6", "libgcc-s1", "libstdc++6", "libcrypt1"];

/// A set of packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bundle {
    /// LLVM with its development files, and the libraries it loads.
    Llvm,
    /// The newest rustc that Debian has (it is packaged for web browsers), and its source.
    /// It loads the libraries of the other bundle.
    Rust,
}

impl Bundle {
    fn name(self) -> &'static str {
        match self {
            Self::Llvm => "llvm",
            Self::Rust => "rust",
        }
    }

    fn packages(self, index: &Index<'_>) -> Result<Vec<Package>> {
        match self {
            Self::Llvm => llvm_packages(index),
            Self::Rust => rust_packages(index),
        }
    }
}

/// Unpacks `bundle` under the cache, unless it is there, and returns its root.
pub(super) fn install(bundle: Bundle, cache: &Path, index: &mut Index<'_>, steps: &Steps<'_>) -> Result<PathBuf> {
    let root = cache.join(bundle.name());
    if root.exists() {
        return Ok(root);
    }
    index.refresh()?;
    let packages = bundle.packages(index)?;
    let downloads = cache.join(DOWNLOADS).join(bundle.name());
    index.download(bundle.name(), &packages, &downloads)?;
    let staged = cache.join(format!("{}.partial", bundle.name()));
    if staged.exists() {
        fs::remove_dir_all(&staged)?;
    }
    fs::create_dir(&staged)?;
    let started = Instant::now();
    for package in &packages {
        unpack(&downloads.join(&package.file), &staged, steps)?;
    }
    fs::rename(&staged, &root).with_context(|| format!("cannot create {}", root.display()))?;
    fs::remove_dir_all(downloads)?;
    let took = started.elapsed().as_secs_f64();
    steps.note(&format!("unpack {}: {took:.1} s", bundle.name()));
    Ok(root)
}

/// Where a package for this machine keeps shared libraries, relative to a bundle's root.
pub(crate) fn library_dir() -> String {
    format!("usr/lib/{}-linux-gnu", env::consts::ARCH)
}

fn llvm_packages(index: &Index<'_>) -> Result<Vec<Package>> {
    let library = format!("libllvm{LLVM_MAJOR}");
    let mut names = index.dependencies(&library, true)?;
    names.retain(|name| is_loaded_library(name));
    names.push(format!("llvm-{LLVM_MAJOR}"));
    names.push(format!("llvm-{LLVM_MAJOR}-dev"));
    index.resolve(&names)
}

fn is_loaded_library(name: &str) -> bool {
    let library = name.starts_with("lib") || name.starts_with("zlib");
    library && !SYSTEM_LIBRARIES.contains(&name)
}

fn rust_packages(index: &Index<'_>) -> Result<Vec<Package>> {
    let mut names = index.dependencies("libstd-rust-web-dev", false)?;
    names.retain(|name| name.starts_with("libstd-rust-web-"));
    expect_our_llvm(index, &names)?;
    names.extend(["rustc-web", "rust-web-src"].map(String::from));
    let packages = index.resolve(&names)?;
    same_version(&packages)?;
    Ok(packages)
}

/// The compiler loads the library that came with the linker's LLVM, so it must want that one.
fn expect_our_llvm(index: &Index<'_>, runtime: &[String]) -> Result<()> {
    let ours = format!("libllvm{LLVM_MAJOR}");
    for name in runtime {
        let needed = index.dependencies(name, false)?;
        if let Some(other) = needed.iter().find(|n| n.starts_with("libllvm") && **n != ours) {
            return Err(SetupError::LlvmTooNew {
                rustc: "Debian's rustc".into(),
                llvm: other.trim_start_matches("libllvm").to_owned(),
            }
            .into());
        }
    }
    Ok(())
}

fn same_version(packages: &[Package]) -> Result<(), SetupError> {
    let version = |name: &str| {
        let package = packages.iter().find(|package| package.name == name);
        package.map(|package| package.version.clone())
    };
    match (version("rustc-web"), version("rust-web-src")) {
        (Some(rustc), Some(source_version)) if rustc != source_version => {
            Err(SetupError::SourceDiffers { rustc, source_version })
        }
        _ => Ok(()),
    }
}

/// Unpacks one package without the parts that nobody reads.
pub(crate) fn unpack(package: &Path, into: &Path, steps: &Steps<'_>) -> Result<()> {
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
        .stdin(stream)
        .stderr(log)
        .status()
        .context("cannot start tar")?;
    let what = format!("unpack {}", package.display());
    steps.check(&what, archive.wait()?)?;
    steps.check(&what, unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str) -> Package {
        Package { name: name.to_owned(), version: version.to_owned(), file: String::new(), bytes: 0 }
    }

    #[test]
    fn a_compiler_without_its_own_source_is_refused() {
        let rustc = package("rustc-web", "1.96.0-1");
        assert!(same_version(&[rustc.clone(), package("rust-web-src", "1.96.0-1")]).is_ok());
        assert!(same_version(&[rustc, package("rust-web-src", "1.85.0-1")]).is_err());
    }

    #[test]
    fn the_c_library_is_never_unpacked() {
        let names = ["libc6", "gcc-12-base", "libz3-4", "zlib1g", "libllvm22"];
        let kept: Vec<_> = names.into_iter().filter(|n| is_loaded_library(n)).collect();
        assert_eq!(kept, ["libz3-4", "zlib1g", "libllvm22"]);
    }
}
