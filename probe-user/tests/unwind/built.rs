//! The programs, built as distributions build them.

use probe_tests::lab::software::golang::Go;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

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
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let program = folder().join("threads");
        let kind = ["-O2", "-fomit-frame-pointer", "-s", "-pthread", "-o"];
        // Whole at once: another process of tests may be about to start it.
        let unfinished = folder().join(format!("threads-{}", std::process::id()));
        run(Command::new("g++").args(kind).args([&unfinished, &source("threads.cpp")]));
        fs::rename(&unfinished, &program).unwrap();
        program
    };
    BUILT.get_or_init(build).clone()
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

/// With Debian's compiler, stripped: at a fixed place, anywhere, and linked by the system's linker
/// with what C needs.
pub(crate) fn go(go: &Go) -> [PathBuf; 3] {
    let source = fs::read_to_string(source("routines.go")).unwrap();
    let with_c = folder().join("with_c.go");
    fs::write(&with_c, source.replacen("import (", "import \"C\"\nimport (", 1)).unwrap();
    let plain = folder().join("plain.go");
    fs::write(&plain, source).unwrap();
    [
        built_go(go, "routines", &plain, &["-ldflags=-s -w"], "0"),
        built_go(go, "routines-anywhere", &plain, &["-buildmode=pie", "-ldflags=-s -w"], "0"),
        built_go(go, "routines-with-c", &with_c, &["-buildmode=pie", "-ldflags=-s -w -linkmode=external"], "1"),
    ]
}

fn built_go(go: &Go, name: &str, source: &Path, kind: &[&str], with_c: &str) -> PathBuf {
    let program = folder().join(name);
    run(go.build(&folder()).args(kind).arg("-o").args([&program, source]).env("CGO_ENABLED", with_c));
    program
}
