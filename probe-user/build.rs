//! Builds the kernel programs and leaves the object at `$OUT_DIR/probe-ebpf` for embedding.
//!
//! In: the sources under `probe-ebpf` and the toolchain that `cargo xtask setup` made.
//! It never installs anything.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use bpf_toolchain::{LINKER_OVERRIDE, ObjectBuild, RUSTC_OVERRIDE, Toolchain, description_path};

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={error}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), Box<dyn Error>> {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let workspace = manifest.parent().ok_or("probe-user has no parent")?;
    watch(workspace)?;
    let toolchain = Toolchain::find()?;
    let cargo = PathBuf::from(variable("CARGO")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    let arch = variable("CARGO_CFG_TARGET_ARCH")?;
    let build = ObjectBuild {
        cargo: &cargo,
        workspace,
        target_dir: &shared_target(&out, &arch)?,
        arch: &arch,
        big_endian: variable("CARGO_CFG_TARGET_ENDIAN")? == "big",
    };
    if !build.command(&toolchain).status()?.success() {
        return Err("the kernel programs did not build; their compiler's messages are below".into());
    }
    fs::copy(build.object(), out.join("probe-ebpf"))?;
    Ok(())
}

/// The inner build's target directory, beside the outer build's profiles.
///
/// Cargo gives this script another `OUT_DIR` for each profile and each set of features; a build
/// of `core` for each of them would cost half a minute a time.
fn shared_target(out: &Path, arch: &str) -> Result<PathBuf, String> {
    // <target>/<profile>/build/<package>/out
    let target = out.ancestors().nth(4);
    let target = target.ok_or_else(|| format!("{} is no OUT_DIR", out.display()))?;
    Ok(target.join(format!("bpf-{arch}")))
}

/// Tells cargo when the object is out of date.
fn watch(workspace: &Path) -> Result<(), Box<dyn Error>> {
    for source in ["probe-ebpf", "Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    println!("cargo::rerun-if-changed={}", description_path()?.display());
    for name in [RUSTC_OVERRIDE, LINKER_OVERRIDE, "XDG_CACHE_HOME"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("cargo's variable {name}: {error}"))
}
