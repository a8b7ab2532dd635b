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

/// By what a machine's code is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// Emulated in software, which works everywhere.
    Emulated,
    /// The same, and it can run guests of its own by KVM.
    EmulatedHost,
    /// The machine's own, by KVM.
    Kvm,
}

impl Processor {
    /// As QEMU takes it.
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Emulated => &["-accel", EMULATOR, "-cpu", "max"],
            // Guests were seen to run on this one.
            Self::EmulatedHost => &["-accel", EMULATOR, "-cpu", "EPYC,+npt,+svm"],
            // A processor that is emulated itself takes a minute over what the firmware of a PC does in
            // real mode; this one's does nothing there.
            Self::Kvm => {
                const MACHINE: &str = "microvm,x-option-roms=off,rtc=on,pcie=on";
                &["-machine", MACHINE, "-bios", KVM_FIRMWARE, "-accel", "kvm", "-cpu", "host"]
            }
        }
    }

    /// The two serial lines. A small machine is given one only, and has a place for another.
    const fn serial_lines(self) -> &'static [&'static str] {
        match self {
            Self::Emulated | Self::EmulatedHost => &["-serial", "chardev:console", "-serial", "chardev:job"],
            Self::Kvm => &["-serial", "chardev:console", "-device", "isa-serial,index=1,chardev=job"],
        }
    }
}

/// What a guest of KVM's starts with.
pub(crate) const KVM_FIRMWARE: &str = "qboot.rom";

/// The emulator: each virtual processor is a thread.
const EMULATOR: &str = "tcg,thread=multi";

/// The command that boots `kernel` with `image`, which runs `lab guest` as its first process.
///
/// The machine has no device but two serial lines: the kernel's console, which is written to the
/// file `console`, and the job's, which is the command's standard input and output.
#[must_use]
pub fn command(
    qemu: &Qemu,
    kernel: &Kernel,
    image: &Image,
    processor: Processor,
    size: Size,
    console: &Path,
) -> Command {
    let mut command = qemu.command();
    command
        .args(processor.arguments())
        .args(["-smp", &size.cpus.to_string(), "-m", &size.memory_mib.to_string()])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"])
        .arg("-chardev")
        .arg(format!("file,id=console,path={}", console.display()))
        .args(["-chardev", "stdio,id=job,signal=off"])
        .args(processor.serial_lines())
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
