//! A child of the lab: it takes orders, makes announcements, and never outlives its owner.

use super::leash::Leash;
use super::message::{Announcement, Order};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A running child.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    orders: Option<ChildStdin>,
    lines: Receiver<String>,
    tidying: Option<Duration>,
}

/// Starts children from the lab's own binary.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// Path of the lab's binary.
    pub lab: PathBuf,
}

impl Launcher {
    /// Starts a role of the lab, such as `serve`, and waits until it is ready.
    ///
    /// # Errors
    /// It does not start, or is not ready in 10 s.
    pub fn role<I, S>(&self, leash: &Leash, name: &str, args: I) -> Result<Process>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        Process::start(name, self.role_command(leash, name, args), Stdio::piped())?.ready()
    }

    /// The command that [`Launcher::role`] starts.
    pub fn role_command<I, S>(&self, leash: &Leash, name: &str, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = leash.command(&self.lab, &self.lab);
        command.args(["role", name]).args(args);
        command
    }

    /// Runs a program to its end in a namespace and returns its standard output.
    ///
    /// # Errors
    /// It does not start or fails; the error holds what it said.
    pub fn output(&self, netns: &Path, program: &str, args: &str) -> Result<String> {
        let leash = Leash { netns: Some(netns.to_owned()), ..Leash::default() };
        let mut command = leash.command(&self.lab, Path::new(program));
        let output = command.args(args.split_whitespace()).output().with_context(|| format!("start {program}"))?;
        if !output.status.success() {
            bail!("{program} {args}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Process {
    /// Starts `command` and listens to what it announces; it takes orders if `stdin` is a pipe
    /// of ours.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(name: &str, mut command: Command, stdin: Stdio) -> Result<Self> {
        command.stdin(stdin).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {name}"))?;
        let orders = child.stdin.take();
        let lines = forward_lines(child.stdout.take().context("standard output is piped")?);
        Ok(Self { name: name.to_owned(), child, orders, lines, tidying: None })
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// It is not in 10 s.
    pub fn ready(self) -> Result<Self> {
        self.ready_within(Duration::from_secs(10))
    }

    /// Waits until it is ready, for so long.
    ///
    /// # Errors
    /// It is not in that time.
    pub fn ready_within(self, time: Duration) -> Result<Self> {
        self.await_announcement(time, |said| (said == Announcement::Ready).then_some(()))?;
        Ok(self)
    }

    /// It tidies up when its orders end: it is given so long for it.
    #[must_use]
    pub fn tidying(mut self, within: Duration) -> Self {
        self.tidying = Some(within);
        self
    }

    /// Its process number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order.
    ///
    /// # Errors
    /// The child is gone.
    pub fn order(&self, order: Order) -> Result<()> {
        let line = serde_json::to_string(&order)?;
        let mut orders = self.orders.as_ref().context("orders are closed")?;
        writeln!(orders, "{line}").with_context(|| format!("order {} to {line}", self.name))
    }

    /// Waits for the announcement that `pick` is looking for; others are dropped.
    ///
    /// # Errors
    /// It does not come in time, or the child ends.
    pub fn await_announcement<T>(
        &self,
        within: Duration,
        mut pick: impl FnMut(Announcement) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(found) = pick(self.next_announcement(deadline)?) {
                return Ok(found);
            }
        }
    }

    /// What it announces next.
    ///
    /// # Errors
    /// Nothing before `deadline`, or the child has ended.
    pub fn next_announcement(&self, deadline: Instant) -> Result<Announcement> {
        let line = self.next_line(deadline)?;
        serde_json::from_str(&line).with_context(|| format!("{} said {line}", self.name))
    }

    /// What it has announced and nobody has heard yet.
    ///
    /// # Errors
    /// It said something else.
    pub fn announced(&self) -> Result<Vec<Announcement>> {
        let parse = |line: String| serde_json::from_str(&line).with_context(|| format!("{} said {line}", self.name));
        self.lines.try_iter().map(parse).collect()
    }

    /// The next line of its standard output.
    ///
    /// # Errors
    /// None comes before `deadline`, or the child has closed it.
    pub fn next_line(&self, deadline: Instant) -> Result<String> {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("{} did not answer in time", self.name),
            Err(RecvTimeoutError::Disconnected) => bail!("{} ended", self.name),
        }
    }

    /// Closes its orders and waits until it has tidied up; whoever takes too long is killed.
    pub fn dismiss(&mut self, within: Duration) {
        self.orders = None;
        let deadline = Instant::now() + within;
        while self.next_line(deadline).is_ok() {}
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// It is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw).context("a process number")?;
        kill_process(pid, signal).with_context(|| format!("send {signal:?} to {}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(within) = self.tidying {
            self.dismiss(within);
        }
        // Both fail only if it has ended, and then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines on a thread of its own, so that the child never blocks on a full pipe.
pub fn forward_lines(out: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(|line| line.ok()) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}
