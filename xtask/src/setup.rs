//! `cargo xtask setup`: makes the kernel programs buildable without touching the system.
//!
//! In: the machine's own package sources and rustup toolchains. Out: a compiler with source,
//! LLVM and `bpf-linker` in the user's cache, and the description that names them.
//! Each step ends in a rename, so a killed run is resumed where it stopped; a lock keeps
//! two runs apart. It never installs a package and never writes outside the cache.

mod bundle;
mod compiler;
mod error;
mod linker;

use std::{fs, path::Path, time::Instant};

use anyhow::{Context, Result};
use bpf_toolchain::{LINKER_OVERRIDE, RUSTC_OVERRIDE, Toolchain, cache_dir, description_path, overridden};
use debian_packages::{Index, Lock, Steps};

use bundle::Bundle;

/// Sets the toolchain up, or says in one line that it is.
pub(crate) fn run() -> Result<()> {
    if let Some(ready) = ready() {
        eprintln!("{ready}");
        return Ok(());
    }
    let cache = cache_dir()?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let lock = Lock::take(&cache)?;
    // Another run may have finished the work while this one waited.
    if ready().is_none() {
        let started = Instant::now();
        let steps = Steps::new(&cache, &lock);
        install(&cache, &steps).map_err(error::with_way_out)?;
        steps.note(&format!("set up in {:.0?}", started.elapsed()));
    }
    eprintln!("{}", ready().context("the new toolchain does not run")?);
    Ok(())
}

/// The line that describes a toolchain which is there and runs.
fn ready() -> Option<String> {
    let toolchain = Toolchain::find().ok()?;
    let rustc = compiler::inspect(&toolchain.rustc, &toolchain.library_path).ok()?;
    rustc.check_llvm().ok()?;
    rustc.check_source(&toolchain.library_path).ok()?;
    let linker = linker::version(&toolchain.linker, &toolchain.library_path).ok()?;
    Some(format!("kernel toolchain ready: rustc {} (LLVM {}), {linker}", rustc.release, rustc.llvm))
}

fn install(cache: &Path, steps: &Steps<'_>) -> Result<()> {
    let own_linker = overridden(LINKER_OVERRIDE);
    let own_rustc = overridden(RUSTC_OVERRIDE).or_else(compiler::in_rustup);
    let mut apt = Index::new(cache, steps);
    let mut library_path = Vec::new();
    let mut unpacked = |bundle| {
        let root = bundle::install(bundle, cache, &mut apt)?;
        library_path.push(root.join(bundle::library_dir()));
        anyhow::Ok(root)
    };
    let (linker, rustc) = match (own_linker, own_rustc) {
        (Some(linker), Some(rustc)) => (linker, rustc),
        (linker, rustc) => {
            let llvm = unpacked(Bundle::Llvm)?;
            let rustc = match rustc {
                Some(rustc) => rustc,
                None => unpacked(Bundle::Rust)?.join("usr/bin/rustc"),
            };
            let linker = match linker {
                Some(linker) => linker,
                None => linker::install(cache, &llvm, steps)?,
            };
            (linker, rustc)
        }
    };
    let compiler = compiler::inspect(&rustc, &library_path)?;
    compiler.check_llvm()?;
    compiler.check_source(&library_path)?;
    let toolchain = Toolchain { rustc, linker, library_path };
    let description = description_path()?;
    toolchain.describe(&description).with_context(|| format!("cannot write {}", description.display()))?;
    clean(cache)
}

/// Removes what only the set-up itself needed.
fn clean(cache: &Path) -> Result<()> {
    for name in [debian_packages::DIRECTORY, debian_packages::DOWNLOADS, linker::BUILD_DIRECTORY] {
        let path = cache.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}
