//! Both halves of a guest's checks: whylag on the host keeps its own in a file, whylag inside the
//! guest sends its own over the guest's network, and when both have ended, whylag joins them.

use super::case::Case;
use super::message::Announcement;
use super::process::{Launcher, Process};
use super::whylag::{Attach, Said, join};
use super::world::{GUEST_NIC, World};
use anyhow::{Context, Result};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Where the host listens for the guest's half.
const PORT: u16 = 7070;
/// Until the guest's half has come whole, after whylag in the guest was told to end.
const PATIENCE: Duration = Duration::from_secs(40);

/// The halves of a run.
#[derive(Debug)]
pub(super) struct Halves {
    receiver: Process,
    whylag: PathBuf,
    host: PathBuf,
    guest: PathBuf,
    /// Somebody wants to have the files.
    kept: bool,
}

impl Halves {
    /// Begins to listen for the guest's. They are kept if the host's recording is.
    pub(super) fn begin(launcher: &Launcher, world: &World, attach: &Attach) -> Result<Self> {
        let kept = attach.record.is_some();
        let temporary = || std::env::temp_dir().join(format!("whylag-lab-half-{}", std::process::id()));
        let host = attach.record.clone().unwrap_or_else(temporary);
        let guest = host.with_added_extension("guest");
        let args = [format!("--listen={}", address(world)), format!("--file={}", guest.display())];
        let command = launcher.role_command(&world.host.leash(), "receive", args);
        let receiver = Process::start("receive", command, Stdio::null())?.ready()?;
        Ok(Self { receiver, whylag: attach.binary.clone(), host, guest, kept })
    }

    /// The same attachment, which keeps the host's half.
    pub(super) fn recorded(&self, attach: &Attach) -> Attach {
        Attach { record: Some(self.host.clone()), ..attach.clone() }
    }

    /// Waits until all of the guest's has come; what whylag makes of both.
    pub(super) fn joined(&self) -> Result<Said> {
        let done = |said| (said == Announcement::Done).then_some(());
        self.receiver.await_announcement(PATIENCE, done).context("the guest's half is not whole")?;
        join(&self.whylag, &self.host, &self.guest)
    }
}

impl Drop for Halves {
    fn drop(&mut self) {
        if !self.kept {
            // What is not there need not be removed.
            let _ = [&self.host, &self.guest].map(std::fs::remove_file);
        }
    }
}

/// whylag inside the guest: its binary, and its arguments there.
#[derive(Debug, Clone)]
pub(super) struct Inside {
    pub(super) whylag: PathBuf,
    pub(super) arguments: Vec<String>,
}

impl Inside {
    /// What watches `case` inside the guest and sends its half to the host.
    pub(super) fn of(case: &Case, world: &World, whylag: &Path) -> Self {
        let mut arguments = ["attach", "--pnic", GUEST_NIC].map(str::to_owned).to_vec();
        arguments.push(format!("--signature={}", case.signature()));
        arguments.extend(Attach::judging(case));
        arguments.extend(["--stacks=off".to_owned(), format!("--send=tcp:{}", address(world))]);
        Self { whylag: whylag.to_owned(), arguments }
    }
}

fn address(world: &World) -> SocketAddrV4 {
    SocketAddrV4::new(world.tap_address(), PORT)
}
