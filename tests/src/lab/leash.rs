//! The leash: what a child of the lab becomes before it becomes itself.
//!
//! It asks to be killed when the lab dies, enters its namespace, CPU and priority, and then
//! executes the command. Namespaces have no name: they live as long as a process on a leash.

use anyhow::{Context, Result, bail};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{Signal, getppid, set_parent_process_death_signal, setpriority_process, setsid};
use rustix::thread::{CpuSet, LinkNameSpaceType, UnshareFlags, move_into_link_name_space, sched_setaffinity};
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Under which conditions a child runs.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Leash {
    /// Network namespace to enter.
    #[arg(long)]
    pub netns: Option<PathBuf>,
    /// Make a new network namespace.
    #[arg(long)]
    pub new_netns: bool,
    /// Name server to ask, in a mount namespace of its own.
    #[arg(long)]
    pub resolver: Option<Ipv4Addr>,
    /// Signal that it gets when the lab dies, instead of SIGKILL.
    #[arg(long)]
    pub end_with: Option<i32>,
    /// The only CPU to run on.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Real-time priority, where the system grants it; for threads that hardly compute.
    #[arg(long)]
    pub realtime: bool,
    /// Nice value, among all processes even where the kernel groups them by session.
    #[arg(long, allow_negative_numbers = true)]
    pub nice: Option<i32>,
}

/// The hidden command `lab leash`.
#[derive(Debug, clap::Args)]
pub struct LeashArgs {
    /// The lab's process; when it is gone already, the child does not start.
    #[arg(long)]
    parent: i32,
    #[command(flatten)]
    leash: Leash,
    /// What to execute.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Leash {
    /// The command `program`, on this leash. `lab` is the lab's own binary.
    #[must_use]
    pub fn command(&self, lab: &Path, program: &Path) -> Command {
        let mut command = Command::new(lab);
        command.arg("leash").arg(format!("--parent={}", std::process::id()));
        if let Some(netns) = &self.netns {
            command.arg("--netns").arg(netns);
        }
        if self.new_netns {
            command.arg("--new-netns");
        }
        command.args(self.resolver.map(|address| format!("--resolver={address}")));
        command.args(self.end_with.map(|signal| format!("--end-with={signal}")));
        command.args(self.realtime.then_some("--realtime"));
        command.args(self.cpu.map(|cpu| format!("--cpu={cpu}")));
        command.args(self.nice.map(|nice| format!("--nice={nice}")));
        command.arg("--").arg(program);
        command
    }

    fn apply(&self) -> Result<()> {
        if let Some(netns) = &self.netns {
            enter(netns)?;
        }
        if self.new_netns {
            new_netns().context("make a network namespace")?;
        }
        if let Some(address) = self.resolver {
            resolve_by(address).context("set the name server")?;
        }
        if let Some(cpu) = self.cpu {
            pin(cpu)?;
        }
        if let Some(nice) = self.nice {
            set_nice(nice)?;
        }
        Ok(())
    }
}

/// Executes the command; returns only if that fails.
///
/// # Errors
/// A condition cannot be met, or the command cannot be executed.
pub fn exec(args: LeashArgs) -> Result<()> {
    let signal = args.leash.end_with.and_then(Signal::from_named_raw).unwrap_or(Signal::KILL);
    set_parent_process_death_signal(Some(signal)).context("tie to the parent")?;
    let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if parent != args.parent {
        bail!("the lab ended before its child began");
    }
    args.leash.apply()?;
    let realtime = if args.leash.realtime && grants_realtime() { REALTIME.as_slice() } else { &[] };
    let mut words = realtime.iter().map(OsString::from).chain(args.command);
    let program = words.next().context("a command is required")?;
    Err(Command::new(&program).args(words).exec()).with_context(|| format!("execute {}", program.display()))
}

/// Executes what follows with the lowest real-time priority.
const REALTIME: [&str; 3] = ["chrt", "--fifo", "1"];

fn grants_realtime() -> bool {
    let [program, arguments @ ..] = REALTIME;
    let tried = Command::new(program).args(arguments).arg("true").stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Moves the calling thread into a network namespace.
///
/// # Errors
/// The namespace cannot be opened or entered.
pub fn enter(netns: &Path) -> Result<()> {
    let file = File::open(netns).with_context(|| format!("open {}", netns.display()))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("enter {}", netns.display()))
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// There is no such CPU.
pub fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("run on CPU {cpu} only"))
}

/// With autogroups, a nice value counts only within a session, and the session has its own.
fn set_nice(nice: i32) -> Result<()> {
    setsid().context("begin a session")?;
    setpriority_process(None, nice).context("set the nice value")?;
    let autogroup = Path::new("/proc/self/autogroup");
    if autogroup.exists() {
        fs::write(autogroup, nice.to_string()).context("set the nice value of the session")?;
    }
    Ok(())
}

/// Puts another `resolv.conf` in its place, for this process and its children alone.
fn resolve_by(address: Ipv4Addr) -> Result<()> {
    let file = std::env::temp_dir().join(format!("whylag-lab-resolv-{}", std::process::id()));
    fs::write(&file, format!("nameserver {address}\noptions timeout:1 attempts:3\n"))?;
    // SAFETY: a new mount namespace affects neither memory nor file descriptors of this process.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let mounted = mount_bind(&file, "/etc/resolv.conf");
    fs::remove_file(&file)?;
    Ok(mounted?)
}

fn new_netns() -> rustix::io::Result<()> {
    // SAFETY: a new network namespace affects neither memory nor file descriptors of this process.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
}
