//! Compilers that could build kernel programs.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use bpf_toolchain::{LLVM_MAJOR, search_libraries};

use super::error::SetupError;

/// The oldest minor version of Rust 1 that builds the workspace.
const OLDEST_MINOR: u32 = 95;

/// What a compiler says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compiler {
    path: PathBuf,
    pub(super) release: String,
    pub(super) llvm: String,
}

impl Compiler {
    /// Refuses a compiler whose bitcode the linker could not read.
    pub(super) fn check_llvm(&self) -> Result<(), SetupError> {
        if number(&self.llvm, 0).is_some_and(|major| major <= LLVM_MAJOR) {
            return Ok(());
        }
        Err(SetupError::LlvmTooNew { rustc: self.path.clone(), llvm: self.llvm.clone() })
    }

    /// Refuses a compiler without the source that `core` is built from.
    pub(super) fn check_source(&self, library_path: &[PathBuf]) -> Result<()> {
        let sysroot = ask(&self.path, library_path, &["--print", "sysroot"])?;
        let sources = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library");
        for part in ["core/src/lib.rs", "std/src/lib.rs"] {
            let path = sources.join(part);
            if !path.is_file() {
                return Err(SetupError::NoSource { rustc: self.path.clone(), path }.into());
            }
        }
        Ok(())
    }

    fn minor(&self) -> Option<u32> {
        number(&self.release, 1)
    }
}

/// Asks `rustc` for its versions.
pub(super) fn inspect(rustc: &Path, library_path: &[PathBuf]) -> Result<Compiler> {
    parse(rustc, &ask(rustc, library_path, &["-vV"])?)
        .with_context(|| format!("{} does not tell its version", rustc.display()))
}

/// What a tool says when asked with `arguments`.
pub(super) fn ask(tool: &Path, library_path: &[PathBuf], arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(tool);
    search_libraries(&mut command, library_path);
    let output = command.args(arguments).output().with_context(|| format!("cannot start {}", tool.display()))?;
    ensure!(
        output.status.success(),
        "{} does not run: {}",
        tool.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The newest of rustup's compilers that has its source and a fitting LLVM.
pub(super) fn in_rustup() -> Option<PathBuf> {
    let home = env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".rustup")))?;
    let toolchains = fs::read_dir(home.join("toolchains")).ok()?;
    toolchains.filter_map(|entry| usable(&entry.ok()?.path())).max_by_key(Compiler::minor).map(|compiler| compiler.path)
}

fn usable(toolchain: &Path) -> Option<Compiler> {
    let source = "lib/rustlib/src/rust/library/core/Cargo.toml";
    if !toolchain.join(source).is_file() {
        return None;
    }
    let compiler = inspect(&toolchain.join("bin/rustc"), &[]).ok()?;
    compiler.check_llvm().ok()?;
    (compiler.minor()? >= OLDEST_MINOR).then_some(compiler)
}

fn parse(path: &Path, text: &str) -> Option<Compiler> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    Some(Compiler {
        path: path.to_owned(),
        release: field("release: ")?.to_owned(),
        llvm: field("LLVM version: ")?.to_owned(),
    })
}

/// The number at `position` of a dotted version.
fn number(version: &str, position: usize) -> Option<u32> {
    version.split('.').nth(position)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiler(llvm: &str) -> Compiler {
        let text = format!("rustc 1.97.0\nrelease: 1.97.0-nightly\nLLVM version: {llvm}\n");
        parse(Path::new("rustc"), &text).unwrap()
    }

    #[test]
    fn a_compiler_with_a_newer_llvm_than_the_linkers_is_refused() {
        assert!(compiler("22.1.8").check_llvm().is_ok());
        assert!(compiler("23.0.0").check_llvm().is_err());
    }

    #[test]
    fn the_release_of_a_nightly_is_read() {
        assert_eq!(compiler("22.1.8").minor(), Some(97));
    }
}
