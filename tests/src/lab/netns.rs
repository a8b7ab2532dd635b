//! A network namespace that lives as long as a process of ours, and has no name to leave behind.

use super::leash::{self, Leash};
use super::process::{Launcher, Process};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// A network namespace.
#[derive(Debug)]
pub struct Netns {
    holder: Process,
    path: PathBuf,
    launcher: Launcher,
}

impl Netns {
    /// Makes one, with its loopback device up.
    ///
    /// # Errors
    /// Not root, or `ip` is missing.
    pub fn new(launcher: &Launcher) -> Result<Self> {
        let holder = launcher.role(&Leash { new_netns: true, ..Leash::default() }, "hold", [""; 0])?;
        let path = PathBuf::from(format!("/proc/{}/ns/net", holder.id()));
        let netns = Self { holder, path, launcher: launcher.clone() };
        netns.run("ip", "link set lo up")?;
        Ok(netns)
    }

    /// The file that stands for it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A process that lives in it.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        self.holder.id()
    }

    /// A leash that ends in it.
    #[must_use]
    pub fn leash(&self) -> Leash {
        Leash { netns: Some(self.path.clone()), ..Leash::default() }
    }

    /// Runs a program in it to its end; its standard output.
    ///
    /// # Errors
    /// The program fails.
    pub fn run(&self, program: &str, args: &str) -> Result<String> {
        self.launcher.output(&self.path, program, args)
    }

    /// The command `program`, in it.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        self.leash().command(&self.launcher.lab, program)
    }

    /// Writes a network setting of it, such as `net/ipv4/ip_forward`.
    ///
    /// # Errors
    /// There is no such setting.
    pub fn set(&self, setting: &str, value: &str) -> Result<()> {
        let file = Path::new("/proc/sys").join(setting);
        self.within(|| std::fs::write(&file, value).with_context(|| format!("write {value} to {}", file.display())))
    }

    /// What a file under `/proc/net` says in it.
    ///
    /// # Errors
    /// There is no such file.
    pub fn proc_net(&self, file: &str) -> Result<String> {
        let file = format!("/proc/{}/net/{file}", self.process_id());
        std::fs::read_to_string(&file).with_context(|| format!("read {file}"))
    }

    /// Runs `work` on a thread inside it. What is spawned there must end there: the leash of a
    /// process is its parent's thread.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = &self.path;
        let inside = || leash::enter(path).and_then(|()| work());
        thread::scope(|scope| scope.spawn(inside).join()).expect("the work does not panic")
    }
}
