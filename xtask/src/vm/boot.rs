//! One boot: starts the machine, shows what it says, and ends it when it is done or too late.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use virtual_machine::{Image, Kernel, Processor, Qemu, Size, last_words};

use super::marks::Marks;

/// Until the machine says its first word. Nearly all boots take less than 10 s; one in some
/// dozens hangs.
const BOOT: Duration = Duration::from_secs(60);
/// Boots until a kernel is given up. Only a boot is repeated, never a verdict.
const ATTEMPTS: usize = 2;

/// What a machine is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    processor: Processor,
    size: Size,
    /// At most between two words of a machine that is up.
    silence: Duration,
}

/// Room for worlds of their own, and for what takes a CPU there.
pub(super) const PLAIN: Kind =
    Kind { processor: Processor::Emulated, size: Size { cpus: 2, memory_mib: 1024 }, silence: Duration::from_secs(90) };
/// The same, and for a guest of its own, which it boots for each case, with a whylag in both.
pub(super) const HOST: Kind = Kind {
    processor: Processor::EmulatedHost,
    size: Size { cpus: 2, memory_mib: 4096 },
    silence: Duration::from_secs(400),
};
/// Priority of the emulator, that of the lab's servers.
const NICE: i32 = -10;
/// How its first process announces what it does.
const GUEST: &str = "guest: ";
/// Lines of the kernel's console that an error repeats.
const CONSOLE_LINES: usize = 12;

/// A running machine. It is ended with the value.
struct Machine {
    child: Child,
    lines: Receiver<String>,
    silence: Duration,
}

/// Boots `kernel` with `image` and collects the marks that its job prints.
pub(super) fn run(lab: &Path, qemu: &Qemu, kernel: &Kernel, image: &Image, kind: Kind) -> Result<Marks> {
    let console = image.path().with_added_extension("console");
    let mut failure = None;
    for _ in 0..ATTEMPTS {
        let command = virtual_machine::command(qemu, kernel, image, kind.processor, kind.size, &console);
        let machine = Machine::start(lab, &command, kind.silence)?;
        match machine.first_line() {
            Ok(line) => return machine.follow(line).with_context(|| said(&console)),
            Err(error) => {
                eprintln!("    {}: {error:#}", kernel.release);
                failure = Some(error.context(said(&console)));
            }
        }
    }
    Err(failure.context("a boot is attempted")?.context(format!("{} does not boot", kernel.release)))
}

impl Machine {
    fn start(lab: &Path, machine: &Command, silence: Duration) -> Result<Self> {
        let mut child = on_leash(lab, machine)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .context("cannot start QEMU")?;
        let output = child.stdout.take().context("QEMU has no output")?;
        Ok(Self { child, lines: forward(output), silence })
    }

    fn first_line(&self) -> Result<String> {
        match self.lines.recv_timeout(BOOT) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("not booted within {BOOT:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the machine ended before it was up"),
        }
    }

    /// Reads to the end of the job.
    fn follow(self, first: String) -> Result<Marks> {
        let mut marks = Marks::default();
        let mut next = Some(first);
        while let Some(line) = next {
            if line == format!("{GUEST}done") {
                return Ok(marks);
            }
            println!("    {}", marks.read(&line));
            next = Some(self.next_line()?);
        }
        Ok(marks)
    }

    fn next_line(&self) -> Result<String> {
        match self.lines.recv_timeout(self.silence) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("the machine has said nothing for {:?}", self.silence),
            Err(RecvTimeoutError::Disconnected) => bail!("the machine ended before its job"),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A machine whose job is done switches itself off.
        let deadline = Instant::now() + Duration::from_secs(3);
        while Instant::now() < deadline
            && self.lines.recv_timeout(Duration::from_millis(100)) != Err(RecvTimeoutError::Disconnected)
        {}
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As a child of the lab: it dies with us, and root puts it before the machine's other work, whose
/// turns would be gaps in the guest's time.
fn on_leash(lab: &Path, machine: &Command) -> Command {
    let mut command = Command::new(lab);
    command.arg("leash").arg(format!("--parent={}", std::process::id()));
    if rustix::process::geteuid().is_root() {
        command.arg(format!("--nice={NICE}"));
    }
    command.arg("--").arg(machine.get_program()).args(machine.get_args());
    command.envs(machine.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

/// The end of what the kernel said.
fn said(console: &Path) -> String {
    let tail = last_words(console, CONSOLE_LINES).join("\n      ");
    format!("its console ({}) ends:\n      {tail}", console.display())
}

/// Reads lines on a thread of its own, so that they can be waited for with a deadline.
fn forward(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(|line| line.ok()) {
            let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}
