//! whylag itself, run as a child on the leash and spoken to as an operator would.

use super::case::{Case, SLOW_MS};
use super::contract::{Absence, Episode, Join, Journey, Line, Loss, Queue, Receive};
use super::leash::Leash;
use super::process::{Launcher, forward_lines};
use super::world::{PNIC, Shape, VNIC, World};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Until all hooks are live.
const ATTACH_PATIENCE: Duration = Duration::from_secs(30);
/// The same on an emulated machine, for each time that it is slower.
const SLOW_ATTACH_PATIENCE: Duration = Duration::from_secs(10);
/// Until it has written its last line after an interrupt.
const FINISH_PATIENCE: Duration = Duration::from_secs(15);
/// The same on an emulated machine, for each time that it is slower.
const SLOW_FINISH_PATIENCE: Duration = Duration::from_secs(10);
/// It ends by itself if nobody ends it.
const LONGEST_RUN: &str = "60s";

/// How to run whylag.
#[derive(Debug, Clone)]
pub struct Attach {
    /// Its binary.
    pub binary: PathBuf,
    /// Where to keep the recording.
    pub record: Option<PathBuf>,
    /// The socket at which another whylag joins what it sees.
    pub send: Option<PathBuf>,
}

/// A whylag that is attached, or that joins two.
#[derive(Debug)]
pub struct Whylag {
    child: Child,
    out: Receiver<String>,
    /// Lines of its standard output that were heard before its end.
    heard: Vec<String>,
    err: Receiver<String>,
    /// For how long it may still speak after an interrupt.
    finish: Duration,
}

/// What a bounded run said.
#[derive(Debug)]
pub struct Said {
    /// Standard output, line by line.
    pub lines: Vec<String>,
    /// The last word on every check, in the order of the first.
    pub journeys: Vec<Journey>,
    /// Requests that did not come.
    pub absences: Vec<Absence>,
    /// What happened at each target.
    pub episodes: Vec<Episode>,
    /// Queues in which checks waited.
    pub queues: Vec<Queue>,
    /// CPUs that were behind with receiving.
    pub receiving: Vec<Receive>,
    /// Every record accounted for.
    pub loss: Loss,
    /// Where the halves went, if it joined two.
    pub join: Option<Join>,
    /// How it ended.
    pub status: ExitStatus,
}

impl Attach {
    /// Finds the binary: as named, else `WHYLAG_BIN`, else beside the lab.
    ///
    /// # Errors
    /// There is none.
    pub fn find(named: Option<PathBuf>, lab: &Path, record: Option<PathBuf>) -> Result<Self> {
        let from_environment = std::env::var_os("WHYLAG_BIN").map(PathBuf::from);
        let binary = named.or(from_environment).unwrap_or_else(|| lab.with_file_name("whylag"));
        ensure!(binary.exists(), "{} does not exist: build whylag, or set WHYLAG_BIN", binary.display());
        Ok(Self { binary, record, send: None })
    }

    /// Arguments that make it watch a world.
    #[must_use]
    pub fn arguments(world: &World, signature: &str) -> Vec<OsString> {
        let mut args = vec!["attach".into(), "--netns".into(), world.host.path().into()];
        args.extend(["--pnic", PNIC].map(OsString::from));
        if matches!(world.shape, Shape::Pod | Shape::Vm | Shape::Bridge | Shape::Macvtap) {
            args.extend(["--vnic", VNIC].map(OsString::from));
        }
        args.extend(["--signature".into(), signature.into()]);
        args
    }

    /// Arguments that say when a check of `case` is slow or lost.
    #[must_use]
    pub fn judging(case: &Case) -> [String; 2] {
        [
            format!("--threshold={}ms", SLOW_MS * case.slowdown),
            format!("--lost-after={}s", case.lost_after_s() * case.slowdown),
        ]
    }

    /// Attaches it and waits until all hooks are live.
    ///
    /// # Errors
    /// It does not attach in time; the error holds what it said.
    pub fn start(&self, launcher: &Launcher, world: &World, case: &Case) -> Result<Whylag> {
        let mut command = Leash { nice: Some(-5), ..Leash::default() }.command(&launcher.lab, &self.binary);
        command.args(Self::arguments(world, &case.signature())).args(Self::judging(case));
        command.args(["--format", "json", "--duration", LONGEST_RUN]);
        // A recording that is made to be joined is for no graph.
        command.args(case.inside.map(|_| "--stacks=off"));
        if let Some(size) = case.ring_size {
            command.args(["--ring-size", size]);
        }
        if let Some(file) = &self.record {
            // The latest case is kept; whylag itself writes over nothing.
            let _ = std::fs::remove_file(file);
            command.arg("--record").arg(file);
        }
        command.args(self.send.as_ref().map(|socket| format!("--send=unix:{}", socket.display())));
        let slow = |each: Duration| each.saturating_mul(u32::try_from(case.slowdown).unwrap_or(u32::MAX));
        Whylag::start(command, slow(SLOW_FINISH_PATIENCE).max(FINISH_PATIENCE))?.ready(
            slow(SLOW_ATTACH_PATIENCE).max(ATTACH_PATIENCE),
            "attach",
            |said| said.starts_with("attached"),
        )
    }
}

impl Whylag {
    fn start(mut command: Command, finish: Duration) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start whylag")?;
        let out = forward_lines(child.stdout.take().context("standard output is piped")?);
        let err = forward_lines(child.stderr.take().context("standard error is piped")?);
        Ok(Self { child, out, heard: Vec::new(), err, finish })
    }

    /// Waits until it says on standard error that it is ready to `work`.
    fn ready(self, patience: Duration, work: &str, is_ready: impl Fn(&str) -> bool) -> Result<Self> {
        let deadline = Instant::now() + patience;
        let mut said = Vec::new();
        loop {
            match self.err.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if is_ready(line.strip_prefix("whylag: ").unwrap_or(&line)) => return Ok(self),
                Ok(line) => said.push(line),
                Err(_) => bail!("whylag did not {work}; it said: {}", said.join(" | ")),
            }
        }
    }

    /// The next line of its standard output, before its end; `None` if none comes in time.
    pub fn hear(&mut self, deadline: Instant) -> Option<&str> {
        let line = self.out.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?;
        self.heard.push(line);
        self.heard.last().map(String::as_str)
    }

    /// Interrupts it and reads what it has to say to the end.
    ///
    /// # Errors
    /// It does not end in time, fails, or breaks the contract.
    pub fn finish(mut self) -> Result<Said> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("a process number")?;
        kill_process(pid, Signal::INT).context("interrupt whylag")?;
        self.ended()
    }

    /// Reads what it has to say to the end, which comes by itself.
    ///
    /// # Errors
    /// It does not end in time, fails, or breaks the contract.
    pub fn ended(&mut self) -> Result<Said> {
        let mut lines = std::mem::take(&mut self.heard);
        lines.extend(drain(&self.out, Instant::now() + self.finish)?);
        let status = self.child.wait().context("wait for whylag")?;
        let complaints: Vec<String> = self.err.try_iter().collect();
        ensure!(status.success(), "whylag ended with {status}: {}", complaints.join(" | "));
        Said::parse(lines, status)
    }
}

impl Drop for Whylag {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn drain(out: &Receiver<String>, deadline: Instant) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        match out.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => lines.push(line),
            Err(RecvTimeoutError::Disconnected) => return Ok(lines),
            Err(RecvTimeoutError::Timeout) => bail!("whylag did not end in time"),
        }
    }
}

impl Said {
    fn parse(lines: Vec<String>, status: ExitStatus) -> Result<Self> {
        let mut last_word: HashMap<String, usize> = HashMap::new();
        let (mut journeys, mut absences, mut loss) = (Vec::new(), Vec::new(), None);
        let (mut episodes, mut queues, mut receiving, mut join) = (Vec::new(), Vec::new(), Vec::new(), None);
        for line in &lines {
            match serde_json::from_str(line).with_context(|| format!("whylag wrote {line}"))? {
                Line::Journey(journey) => keep_last(&mut last_word, &mut journeys, journey),
                Line::Absence(absence) => absences.push(absence),
                Line::Loss(found) => loss = Some(found),
                Line::Episode(episode) => episodes.push(episode),
                Line::Queue(queue) => queues.push(queue),
                Line::Receive(receive) => receiving.push(receive),
                Line::Join(found) => join = Some(found),
                Line::Summary {} | Line::Other => {}
            }
        }
        let loss = loss.context("whylag wrote no line of type loss")?;
        Ok(Self { lines, journeys, absences, episodes, queues, receiving, loss, join, status })
    }

    /// The lines about checks, as they were written.
    #[must_use]
    pub fn journey_lines(&self) -> Vec<&str> {
        let is_journey = |line: &&String| line.starts_with(r#"{"type":"journey""#);
        self.lines.iter().filter(is_journey).map(String::as_str).collect()
    }
}

fn keep_last(last_word: &mut HashMap<String, usize>, journeys: &mut Vec<Journey>, journey: Journey) {
    let index = *last_word.entry(journey.id.clone()).or_insert(journeys.len());
    match journeys.get_mut(index) {
        Some(earlier) => *earlier = journey,
        None => journeys.push(journey),
    }
}

/// Lets whylag join the two halves of a guest's checks.
///
/// # Errors
/// It fails, or breaks the contract.
pub fn join(binary: &Path, host: &Path, guest: &Path) -> Result<Said> {
    let mut command = Command::new(binary);
    let output = command.arg("join").args([host, guest]).args(["--format", "json"]).output().context("start whylag")?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "whylag join ended with {}: {}", output.status, complaints.trim());
    Said::parse(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect(), output.status)
}

/// Has `whylag` join two halves while they are sent to it at the addresses of `from`, of which the last
/// is the guest's. It ends when both are over.
///
/// # Errors
/// It does not listen.
pub fn join_live(mut whylag: Command, from: [&str; 2]) -> Result<Whylag> {
    let listens = format!("listening at {}", from[1]);
    whylag.arg("join").args(from).args(["--format", "json"]);
    Whylag::start(whylag, FINISH_PATIENCE)?.ready(ATTACH_PATIENCE, "listen", |said| said.starts_with(&listens))
}

/// Lets whylag replay a recording; its standard output, line by line.
///
/// # Errors
/// It fails.
pub fn replay(binary: &Path, recording: &Path) -> Result<Vec<String>> {
    let mut command = Command::new(binary);
    let output = command.arg("replay").arg(recording).args(["--format", "json"]).output().context("start whylag")?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "whylag replay ended with {}: {}", output.status, complaints.trim());
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
