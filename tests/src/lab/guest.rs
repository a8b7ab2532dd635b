//! The first process of a virtual machine: makes the little that the lab needs of a system, runs
//! the commands it was given, and switches the machine off.
//!
//! There is no shell, no service and no other program than those of the image. Modules lie in
//! [`MODULES`] with names that sort in the order in which they load; [`JOB`] has one command a
//! line, its words separated by tabs.

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Where the image has the kernel modules to load.
const MODULES: &str = "/modules";
/// What is to be done.
const JOB: &str = "/job";
/// The line by which the machine's owner listens and gives orders; the first is the kernel's.
const LINE: &str = "/dev/ttyS1";
/// Where the image has unpacked packages, in a directory like a user's of caches.
const CACHES: &str = "/cache";

/// File systems, where they are mounted, and their options.
const MOUNTS: &[(&str, &str, &str)] = &[
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("tmpfs", "/tmp", ""),
    ("cgroup2", "/sys/fs/cgroup", ""),
    ("tracefs", "/sys/kernel/tracing", ""),
    ("securityfs", "/sys/kernel/security", ""),
    ("bpf", "/sys/fs/bpf", ""),
];

/// Does everything, and returns only if the machine cannot be switched off.
///
/// # Errors
/// It is not the first process, or the machine stays on.
pub fn guest() -> Result<ExitCode> {
    anyhow::ensure!(std::process::id() == 1, "only the first process of a virtual machine may do this");
    if let Err(error) = do_job() {
        eprintln!("guest: {error:#}");
    }
    reboot(RebootCommand::PowerOff).context("switch the machine off")?;
    Ok(ExitCode::FAILURE)
}

fn do_job() -> Result<()> {
    for (kind, place, options) in MOUNTS {
        set_up(kind, Path::new(place), options)?;
    }
    let mut output = open_line()?;
    load_modules(&mut output)?;
    let job = fs::read_to_string(JOB).with_context(|| format!("read {JOB}"))?;
    for line in job.lines() {
        run(&line.split('\t').collect::<Vec<_>>(), &mut output)?;
    }
    writeln!(output, "guest: done").context("say that it is done")
}

/// Opens the line for bytes as they are: orders are not echoed.
fn open_line() -> Result<File> {
    let line = OpenOptions::new().read(true).write(true).open(LINE).with_context(|| format!("open {LINE}"))?;
    let mut settings = tcgetattr(&line).with_context(|| format!("read the settings of {LINE}"))?;
    settings.make_raw();
    tcsetattr(&line, OptionalActions::Now, &settings).with_context(|| format!("set {LINE}"))?;
    Ok(line)
}

fn set_up(kind: &str, place: &Path, options: &str) -> Result<()> {
    fs::create_dir_all(place).with_context(|| format!("create {}", place.display()))?;
    let options = std::ffi::CString::new(options)?;
    mount(kind, place, kind, MountFlags::empty(), options.as_c_str())
        .with_context(|| format!("mount {}", place.display()))
}

fn load_modules(output: &mut File) -> Result<()> {
    let mut files: Vec<_> = fs::read_dir(MODULES).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    for path in files {
        let file = File::open(&path).with_context(|| format!("open {}", path.display()))?;
        if let Err(error) = finit_module(&file, c"", 0) {
            writeln!(output, "guest: {} does not load: {error}", path.display())?;
        }
    }
    Ok(())
}

/// Runs a command, and says its status when it has ended.
fn run(words: &[&str], output: &mut File) -> Result<()> {
    let [program, arguments @ ..] = words else { return Ok(()) };
    writeln!(output, "guest: run {}", words.join(" "))?;
    let status = Command::new(program)
        .args(arguments)
        .env("PATH", "/bin")
        .env("NO_COLOR", "1")
        .stdin(output.try_clone()?)
        .env("XDG_CACHE_HOME", CACHES)
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .status();
    match status {
        Ok(status) => writeln!(output, "guest: {status}")?,
        Err(error) => writeln!(output, "guest: cannot start: {error}")?,
    }
    Ok(())
}
