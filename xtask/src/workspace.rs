//! The workspace and the cargo that builds it.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use bpf_toolchain::forget_outer_cargo;

/// The workspace's root directory.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies in the workspace")
}

/// The cargo that runs this task, or the one in the path.
pub(crate) fn cargo_path() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

/// A cargo command in the workspace, free of what the cargo that runs this task set.
pub(crate) fn cargo() -> Command {
    let flags = env::var_os("RUSTFLAGS");
    let target = env::var_os("CARGO_TARGET_DIR");
    let mut command = Command::new(cargo_path());
    forget_outer_cargo(&mut command);
    for (name, value) in [("RUSTFLAGS", flags), ("CARGO_TARGET_DIR", target)] {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.current_dir(root());
    command
}

/// Runs `command` with its output shown; fails with `what` and how to repeat it.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<()> {
    finish(what, command).map(drop)
}

/// Like [`run`], but returns what the command writes to its standard output.
pub(crate) fn capture(what: &str, command: &mut Command) -> Result<String> {
    let output = finish(what, command.stdout(Stdio::piped()))?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

fn finish(what: &str, command: &mut Command) -> Result<Vec<u8>> {
    eprintln!("==> {what}");
    let output = command
        .spawn()
        .and_then(Child::wait_with_output)
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(output.status.success(), "{what} failed: {}", shown(command));
    Ok(output.stdout)
}

/// The command as a user would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    std::iter::once(name).chain(command.get_args()).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
