//! The command that builds the kernel object.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{LIBRARY_PATH, Toolchain};

/// Package and executable that hold the kernel programs.
const PACKAGE: &str = "probe-ebpf";

/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`.
const FLAG_SEPARATOR: &str = "\x1f";

/// One build of the kernel object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectBuild<'a> {
    /// The cargo executable to call, not rustup's proxy of it.
    pub cargo: &'a Path,
    /// Root of the workspace that holds `probe-ebpf`.
    pub workspace: &'a Path,
    /// Target directory of this build alone.
    pub target_dir: &'a Path,
    /// Architecture of the kernel that will run the object, in rustc's spelling.
    pub arch: &'a str,
    /// Whether that kernel is big-endian.
    pub big_endian: bool,
}

impl ObjectBuild<'_> {
    /// The object that a successful build leaves behind.
    pub fn object(&self) -> PathBuf {
        let profile = self.target_dir.join(self.target()).join("release");
        profile.join(PACKAGE)
    }

    /// The command that builds the object with `toolchain`.
    pub fn command(&self, toolchain: &Toolchain) -> Command {
        let mut command = Command::new(self.cargo);
        forget_outer_cargo(&mut command);
        command
            .current_dir(self.workspace)
            .args(["build", "--package", PACKAGE, "--bins", "--release"])
            .args(["-Z", "build-std=core", "--target", self.target()])
            .arg("--target-dir")
            .arg(self.target_dir)
            .env("RUSTC", &toolchain.rustc)
            // Unlocks build-std and the BPF target's features on a stable compiler.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags(&toolchain.linker));
        search_libraries(&mut command, &toolchain.library_path);
        command
    }

    fn target(&self) -> &'static str {
        if self.big_endian { "bpfeb-unknown-none" } else { "bpfel-unknown-none" }
    }

    fn flags(&self, linker: &Path) -> OsString {
        let mut linker_flag = OsString::from("-Clinker=");
        linker_flag.push(linker);
        let arch = format!("bpf_target_arch=\"{}\"", self.arch);
        let fixed = [
            "-Clink-arg=--btf",
            // The linker makes BTF from debug information.
            "-Cdebuginfo=2",
            // 32-bit operations and all jumps: every kernel since 5.1 has them.
            "-Ctarget-cpu=v3",
            "--cfg",
            &arch,
        ];
        for flag in fixed {
            linker_flag.push(FLAG_SEPARATOR);
            linker_flag.push(flag);
        }
        linker_flag
    }
}

/// Removes what an outer cargo, clippy or wrapper put into the environment about its own build.
///
/// A build script and a task inherit these, and each would change the inner build: `cargo clippy`
/// sets a wrapper, cargo sets the outer flags. Network, registry and job server settings stay.
pub fn forget_outer_cargo(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(belongs_to_outer_build) {
            command.env_remove(name);
        }
    }
    // An empty value also overrides a wrapper in the user's cargo configuration.
    command.env("RUSTC_WRAPPER", "").env("RUSTC_WORKSPACE_WRAPPER", "");
}

fn belongs_to_outer_build(name: &str) -> bool {
    const KEPT: [&str; 5] = ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_MAKEFLAGS"];
    const REMOVED: [&str; 6] = ["RUSTC", "RUSTDOC", "CLIPPY_", "DEP_", "HOST", "TARGET"];
    const REMOVED_EXACTLY: [&str; 5] = ["RUSTFLAGS", "OUT_DIR", "PROFILE", "DEBUG", "OPT_LEVEL"];
    let starts_with = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
    (name.starts_with("CARGO") && !starts_with(&KEPT))
        || (starts_with(&REMOVED) && name != "HOSTNAME")
        || REMOVED_EXACTLY.contains(&name)
}

/// Lets the dynamic loader of `command` search `directories` before what it already searches.
pub fn search_libraries(command: &mut Command, directories: &[PathBuf]) {
    let inherited = env::var_os(LIBRARY_PATH).unwrap_or_default();
    let all =
        directories.iter().cloned().chain(env::split_paths(&inherited)).filter(|path| !path.as_os_str().is_empty());
    if let Ok(joined) = env::join_paths(all)
        && !joined.is_empty()
    {
        command.env(LIBRARY_PATH, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build() -> ObjectBuild<'static> {
        ObjectBuild {
            cargo: Path::new("cargo"),
            workspace: Path::new("/src"),
            target_dir: Path::new("/out"),
            arch: "aarch64",
            big_endian: false,
        }
    }

    #[test]
    fn flags_name_the_kernels_architecture_and_keep_spaces_in_paths() {
        let flags = build().flags(Path::new("/a b/bpf-linker"));
        let flags: Vec<_> = flags.to_str().unwrap().split(FLAG_SEPARATOR).collect();
        assert_eq!(flags[0], "-Clinker=/a b/bpf-linker");
        assert!(flags.contains(&"-Ctarget-cpu=v3"));
        assert_eq!(flags.last(), Some(&"bpf_target_arch=\"aarch64\""));
    }

    #[test]
    fn the_object_lies_under_the_targets_release_directory() {
        let expected = Path::new("/out/bpfel-unknown-none/release/probe-ebpf");
        assert_eq!(build().object(), expected);
    }

    #[test]
    fn only_the_outer_build_is_forgotten() {
        for name in [
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_TARGET_DIR",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "CLIPPY_ARGS",
            "TARGET",
        ] {
            assert!(belongs_to_outer_build(name), "{name}");
        }
        for name in [
            "CARGO_HOME",
            "CARGO_HTTP_CAINFO",
            "CARGO_NET_OFFLINE",
            "CARGO_REGISTRIES_X_INDEX",
            "HOSTNAME",
            "PATH",
            "RUSTUP_HOME",
        ] {
            assert!(!belongs_to_outer_build(name), "{name}");
        }
    }
}
