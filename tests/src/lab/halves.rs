//! Both halves of a guest's checks: whylag on the host and whylag inside the guest each tell their own,
//! and whylag joins them, either from files when both have ended, or while both are being made. The
//! guest's half comes over the guest's network.

use super::case::Case;
use super::contract::Line;
use super::leash::Leash;
use super::message::Announcement;
use super::process::{Launcher, Process};
use super::whylag::{Attach, Said, Whylag, join, join_live};
use super::world::{GUEST_NIC, World};
use anyhow::{Context, Result};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Where the host listens for the guest's half.
const PORT: u16 = 7070;
/// Until the guest's half has come whole, after whylag in the guest was told to end; and until what is
/// joined live is told.
const PATIENCE: Duration = Duration::from_secs(40);

/// The halves of a run.
#[derive(Debug)]
pub(super) struct Halves {
    way: Way,
    /// The host's file, or the socket at which its half is joined.
    host: PathBuf,
    /// Somebody wants to have the files.
    kept: bool,
}

/// How they are joined.
#[derive(Debug)]
enum Way {
    /// From files, when both halves are whole.
    Files {
        /// Who keeps what the guest sends.
        receiver: Process,
        whylag: PathBuf,
        guest: PathBuf,
    },
    /// By a whylag that listens for both.
    Live(Whylag),
}

impl Halves {
    /// Begins to listen for the guest's. Files are kept if the host's recording is.
    pub(super) fn begin(launcher: &Launcher, world: &World, case: &Case, attach: &Attach) -> Result<Self> {
        let temporary = std::env::temp_dir().join(format!("whylag-lab-half-{}", std::process::id()));
        if case.live {
            let (host, guest) = (format!("unix:{}", temporary.display()), format!("tcp:{}", address(world)));
            let leash = Leash { nice: Some(-5), ..world.host.leash() };
            let join = join_live(leash.command(&launcher.lab, &attach.binary), [&host, &guest])?;
            return Ok(Self { way: Way::Live(join), host: temporary, kept: true });
        }
        let kept = attach.record.is_some();
        let host = attach.record.clone().unwrap_or(temporary);
        let guest = host.with_added_extension("guest");
        let args = [format!("--listen={}", address(world)), format!("--file={}", guest.display())];
        let command = launcher.role_command(&world.host.leash(), "receive", args);
        let receiver = Process::start("receive", command, Stdio::null())?.ready()?;
        Ok(Self { way: Way::Files { receiver, whylag: attach.binary.clone(), guest }, host, kept })
    }

    /// The same attachment, which keeps the host's half, or sends it where it is joined.
    pub(super) fn told_by(&self, attach: &Attach) -> Attach {
        match self.way {
            Way::Files { .. } => Attach { record: Some(self.host.clone()), ..attach.clone() },
            Way::Live(_) => Attach { send: Some(self.host.clone()), ..attach.clone() },
        }
    }

    /// Slow checks that were told with both halves while both are still being made: waits for one.
    /// `None` if they are joined from files.
    pub(super) fn told_live(&mut self) -> Result<Option<usize>> {
        let Way::Live(join) = &mut self.way else { return Ok(None) };
        let deadline = Instant::now() + PATIENCE;
        let mut told = 0;
        while let Some(line) = join.hear(if told == 0 { deadline } else { Instant::now() }) {
            told += usize::from(is_slow_and_whole(line)?);
        }
        Ok(Some(told))
    }

    /// Waits until both halves are over; what whylag makes of them.
    pub(super) fn joined(mut self) -> Result<Said> {
        match &mut self.way {
            Way::Live(join) => join.ended(),
            Way::Files { receiver, whylag, guest } => {
                let done = |said| (said == Announcement::Done).then_some(());
                receiver.await_announcement(PATIENCE, done).context("the guest's half is not whole")?;
                join(whylag, &self.host, guest)
            }
        }
    }
}

/// Whether a line tells of a slow check with both halves.
fn is_slow_and_whole(line: &str) -> Result<bool> {
    let said = serde_json::from_str(line).with_context(|| format!("whylag wrote {line}"))?;
    let Line::Journey(journey) = said else { return Ok(false) };
    Ok(journey.slow && journey.guest.is_some_and(|half| half.is_joined()))
}

impl Drop for Halves {
    fn drop(&mut self) {
        if let (Way::Files { guest, .. }, false) = (&self.way, self.kept) {
            // What is not there need not be removed.
            let _ = [&self.host, guest].map(std::fs::remove_file);
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
