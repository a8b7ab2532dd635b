//! The command line that all machines have in common.

use std::{fs, path::Path, process::Command};

use crate::{Image, Kernel, Qemu};

/// How big a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Processors, each a thread of the emulator.
    pub cpus: usize,
    /// Memory, MiB.
    pub memory_mib: usize,
}

/// The command that boots `kernel` with `image`, which runs `lab guest` as its first process.
///
/// The machine has no device but two serial lines: the kernel's console, which is written to the
/// file `console`, and the job's, which is the command's standard input and output.
#[must_use]
pub fn command(qemu: &Qemu, kernel: &Kernel, image: &Image, size: Size, console: &Path) -> Command {
    let mut command = qemu.command();
    command
        .args(["-accel", "tcg,thread=multi", "-cpu", "max"])
        .args(["-smp", &size.cpus.to_string(), "-m", &size.memory_mib.to_string()])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"])
        .arg("-chardev")
        .arg(format!("file,id=console,path={}", console.display()))
        .args(["-chardev", "stdio,id=job,signal=off"])
        .args(["-serial", "chardev:console", "-serial", "chardev:job"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(image.path())
        .args(["-append", "console=ttyS0 quiet panic=-1 rdinit=/bin/lab -- guest"]);
    command
}

/// The last `lines` of what the kernel said to its console.
#[must_use]
pub fn last_words(console: &Path, lines: usize) -> Vec<String> {
    let bytes = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let said: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    said.iter().skip(said.len().saturating_sub(lines)).map(|line| (*line).to_owned()).collect()
}
