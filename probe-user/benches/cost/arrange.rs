//! The world in which is measured: a network namespace, a CPU, programs run beside it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{CpuSet, UnshareFlags, sched_setaffinity},
};

/// The only interface there is.
pub(crate) const INTERFACE: &str = "lo";
/// Its index, in every namespace.
pub(crate) const IFINDEX: u32 = 1;

/// Moves this process, which has one thread yet, to a network namespace of its own.
pub(crate) fn own_network() -> Result<()> {
    // SAFETY: a new network namespace affects neither memory nor file descriptors of this process.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.context("cannot make a network namespace")?;
    let up = Command::new("ip").args(["link", "set", INTERFACE, "up"]).status().context("cannot run ip")?;
    ensure!(up.success(), "ip cannot set {INTERFACE} up");
    Ok(())
}

/// Keeps the calling thread, and the threads and programs that it starts, on one CPU.
pub(crate) fn stay_on_cpu(cpu: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).context("cannot stay on one CPU")
}

/// A program that runs beside the measurement, and ends with this value.
#[derive(Debug)]
pub(crate) struct Beside(Child);

impl Beside {
    /// Starts it; it says on its standard error, in a line with `ready`, that it runs.
    pub(crate) fn start(command: &mut Command, ready: &str) -> Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take().context("the program has no standard error")?;
        let beside = Self(child);
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        ensure!(lines.any(|line| line.contains(ready)), "the program ended without saying {ready:?}");
        // A program that can write no more must not end of it.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(beside)
    }

    /// One that is known to run.
    pub(crate) const fn running(child: Child) -> Self {
        Self(child)
    }

    /// Its process number.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.ask_to_end();
        self.0.wait().context("cannot wait for the program")?;
        Ok(())
    }

    fn ask_to_end(&self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // It has not been waited for, so the number is still its own.
            let _ = kill_process(pid, Signal::INT);
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            self.ask_to_end();
            let _ = self.0.wait();
        }
    }
}
