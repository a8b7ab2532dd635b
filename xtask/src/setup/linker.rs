//! `bpf-linker`, built from its published source on the unpacked LLVM.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use bpf_toolchain::{LLVM_MAJOR, search_libraries};
use debian_packages::Steps;

use super::{bundle, compiler::ask};
use crate::workspace;

/// Where its build lies in the cache, kept so that a killed build goes on.
pub(super) const BUILD_DIRECTORY: &str = "linker-build";

/// The release that reads the bitcode of every compiler we accept.
const VERSION: &str = "0.13.0";

/// Builds the linker, unless it is there, and returns the executable.
pub(super) fn install(cache: &Path, llvm: &Path, steps: &Steps<'_>) -> Result<PathBuf> {
    let root = cache.join("linker");
    let executable = root.join("bin/bpf-linker");
    if executable.is_file() {
        return Ok(executable);
    }
    let staged = cache.join("linker.partial");
    steps.note("build bpf-linker: starts, takes a minute or two");
    steps.run(&format!("build bpf-linker {VERSION}"), &mut build(cache, llvm, &staged), None)?;
    fs::rename(&staged, &root).with_context(|| format!("cannot create {}", root.display()))?;
    Ok(executable)
}

fn build(cache: &Path, llvm: &Path, staged: &Path) -> Command {
    let mut command = workspace::cargo();
    // The user's flags are for their own programs.
    command.env_remove("RUSTFLAGS");
    command
        .args(["install", "bpf-linker", "--version", VERSION, "--locked"])
        .args(["--no-default-features", "--features"])
        .arg(format!("llvm-{LLVM_MAJOR}"))
        .arg("--root")
        .arg(staged)
        .arg("--target-dir")
        .arg(cache.join(BUILD_DIRECTORY))
        .env("LLVM_PREFIX", llvm.join(format!("usr/lib/llvm-{LLVM_MAJOR}")));
    // The linker that links the linker must find LLVM's own libraries as well.
    let libraries = llvm.join(bundle::library_dir());
    command.env("LIBRARY_PATH", &libraries);
    search_libraries(&mut command, &[libraries]);
    command
}

/// What the linker says it is.
pub(super) fn version(linker: &Path, library_path: &[PathBuf]) -> Result<String> {
    Ok(ask(linker, library_path, &["--version"])?.trim().to_owned())
}
