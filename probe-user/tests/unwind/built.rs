//! The programs, built as distributions build them.

use anyhow::{Context, Result};
use debian_packages::{Index, Lock, Steps};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const GO: [&str; 2] = ["golang-1.19-go", "golang-1.19-src"];

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unwind");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unwind/programs").join(name)
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn cpp() -> PathBuf {
    let program = folder().join("threads");
    let kind = ["-O2", "-fomit-frame-pointer", "-s", "-pthread", "-o"];
    run(Command::new("g++").args(kind).args([&program, &source("threads.cpp")]));
    program
}

/// With the versions that the workspace has, so that nothing is downloaded.
pub(crate) fn tokio() -> PathBuf {
    let copy = folder().join("server");
    fs::create_dir_all(copy.join("src")).unwrap();
    for file in ["Cargo.toml", "src/main.rs"] {
        fs::copy(source("server").join(file), copy.join(file)).unwrap();
    }
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    fs::copy(lock, copy.join("Cargo.lock")).unwrap();
    let target = folder().join("server-target");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--offline", "--target-dir"]).arg(&target).arg("--manifest-path");
    run(cargo.arg(copy.join("Cargo.toml")).env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS"));
    target.join("release/server")
}

/// With Debian's compiler; stripped as Debian strips.
pub(crate) fn go() -> Result<PathBuf> {
    let root = go_packages()?;
    let program = folder().join("routines");
    let mut go = Command::new(root.join("usr/lib/go-1.19/bin/go"));
    go.args(["build", "-trimpath", "-ldflags=-s -w", "-o"]).args([&program, &source("routines.go")]);
    go.env("GOROOT", root.join("usr/lib/go-1.19")).env("GOCACHE", folder().join("go-cache"));
    run(go.env("GO111MODULE", "off").env("GOPATH", folder().join("go")).env("CGO_ENABLED", "0"));
    Ok(program)
}

fn go_packages() -> Result<PathBuf> {
    let cache = bpf_toolchain::user_cache()?.join("compilers-1");
    let root = cache.join("go");
    if root.exists() {
        return Ok(root);
    }
    fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
    let lock = Lock::take(&cache)?;
    let steps = Steps::new(&cache, &lock);
    let mut index = Index::new(&cache, &steps);
    let names = GO.map(str::to_owned);
    debian_packages::install("go", &cache, &mut index, &[], |index| index.resolve(&names))
}
