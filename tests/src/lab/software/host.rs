//! Hosts a real server: prepares its directory, starts it in its namespace, and takes all of it
//! back when the lab ends, however that comes. So this program is not on the leash.

use super::super::leash::Leash;
use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::super::truth::descendants;
use super::super::workload::set_comm;
use super::fetch::library_path;
use super::{STATIC_FILE, Software, Start, data_dir};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Until a server listens.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at whether it does.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes of the file that is served from disk.
const STATIC_BYTES: usize = 4_096;
/// Lines of a server's log that an error repeats.
const TAIL_LINES: usize = 8;

/// Options of `lab role host`.
#[derive(Debug, clap::Args)]
pub struct HostArgs {
    /// The server.
    #[arg(long)]
    software: Software,
    /// Where its packages are unpacked.
    #[arg(long)]
    root: PathBuf,
    /// Directory that is made for it, and removed.
    #[arg(long)]
    dir: PathBuf,
    /// Where it keeps its data, if elsewhere.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Namespace of the network that it serves.
    #[arg(long)]
    netns: PathBuf,
}

/// A server that runs. It and its directory are gone when this is dropped.
#[derive(Debug)]
struct Host {
    args: HostArgs,
    data: PathBuf,
    child: Option<Child>,
}

pub(crate) fn host(args: HostArgs) -> Result<()> {
    set_comm("server-host")?;
    rustix::process::setsid().context("leave the terminal")?;
    let data = args.data.clone().unwrap_or_else(|| data_dir(&args.dir));
    let mut host = Host { args, data, child: None };
    host.prepare()?;
    host.start()?;
    announce(Announcement::Ready);
    obey_orders(|order| match order {
        Order::Fault { ms } => host.stop_for(Duration::from_millis(ms)),
        _ => Ok(()),
    })
}

impl Host {
    fn prepare(&self) -> Result<()> {
        let dir = &self.args.dir;
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        fs::create_dir_all(&self.data).with_context(|| format!("create {}", self.data.display()))?;
        for (name, text) in self.args.software.files(dir, &self.data) {
            fs::write(dir.join(name), text).with_context(|| format!("write {name}"))?;
        }
        fs::write(self.data.join(STATIC_FILE), [b'.'; STATIC_BYTES]).context("write the file to serve")?;
        for step in self.args.software.preparations(&self.data) {
            let status = self.spawn(&step)?.wait().with_context(|| format!("wait for {}", step.program))?;
            ensure!(status.success(), "{} ended with {status}: {}", step.program, self.said());
        }
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let server = self.args.software.server(&self.args.dir, &self.data);
        self.child = Some(self.spawn(&server)?);
        let deadline = Instant::now() + START_PATIENCE;
        while !self.listens() || !self.says_ready() {
            let ended = self.child.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()));
            ensure!(!ended, "{} ended: {}", server.program, self.said());
            ensure!(Instant::now() < deadline, "{} does not listen: {}", server.program, self.said());
            sleep(LOOK);
        }
        Ok(())
    }

    /// Starts a program of the packages on a leash of ours; what it says goes to the log.
    fn spawn(&self, start: &Start) -> Result<Child> {
        let lab = std::env::current_exe().context("find the lab's own binary")?;
        // Ends a process that has children of its own so that it ends them too.
        let term = Signal::TERM.as_raw();
        let leash =
            Leash { netns: Some(self.args.netns.clone()), nice: Some(-10), end_with: Some(term), ..Leash::default() };
        let program = self.args.root.join(start.program);
        let mut words = self.args.software.wrapper(&self.args.root).into_iter().map(PathBuf::from).chain([program]);
        let mut command = leash.command(&lab, &words.next().context("a program")?);
        command.args(words);
        command.args(&start.args).env("LD_LIBRARY_PATH", library_path(&self.args.root));
        let log = File::options().create(true).append(true).open(self.log()).context("open the server's log")?;
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn().with_context(|| format!("start {}", start.program))?;
        child.stdin.take().context("standard input is piped")?.write_all(start.input.as_bytes())?;
        Ok(child)
    }

    fn log(&self) -> PathBuf {
        self.args.dir.join("log")
    }

    /// The end of its log.
    fn said(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(TAIL_LINES)..).unwrap_or_default().join(" | ")
    }

    fn says_ready(&self) -> bool {
        let said = |line| fs::read_to_string(self.log()).is_ok_and(|text| text.contains(line));
        self.args.software.ready_line().is_none_or(said)
    }

    /// Whether someone listens on its port in its namespace.
    fn listens(&self) -> bool {
        let Some(child) = &self.child else { return false };
        let files = ["tcp", "tcp6"].map(|file| format!("/proc/{}/net/{file}", child.id()));
        let entry = format!(":{:04X} ", self.args.software.port());
        let listening = |line: &str| line.contains(&entry) && line.split_whitespace().nth(3) == Some("0A");
        files.iter().any(|file| fs::read_to_string(file).is_ok_and(|text| text.lines().any(listening)))
    }

    /// Stops the process that serves: the last of the line, where a master has a worker.
    fn stop_for(&self, time: Duration) -> Result<()> {
        let server = descendants(std::process::id()).into_iter().next_back().context("the server runs")?;
        signal(server, Signal::STOP)?;
        let mut outcome = Ok(());
        announce_fault(|| {
            sleep(time);
            outcome = signal(server, Signal::CONT);
        });
        outcome
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Each step is tried, whatever became of the others.
        for process in descendants(std::process::id()) {
            let _ = signal(process, Signal::KILL);
        }
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.args.dir);
    }
}

fn signal(process: u32, signal: Signal) -> Result<()> {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { bail!("no process {process}") };
    kill_process(pid, signal).with_context(|| format!("send {signal:?} to {process}"))
}
