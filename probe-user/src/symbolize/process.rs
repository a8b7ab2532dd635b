//! The parent's side of a child: started, asked, ended.

use super::child::{Role, can_be_a_child};
use super::message::{Answer, Opened};
use super::sandbox::Sandbox;
use super::socket::{self, SendFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Serialize, de::DeserializeOwned};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a child may take to say that it is ready.
const START: Duration = Duration::from_secs(10);
/// How long a killed child may take to be gone. One that hangs in a file system takes longer.
const END: Duration = Duration::from_millis(500);

/// Whom a child that fetches has to ask instead, as its HTTP client reads it.
const PROXIES: [&str; 8] =
    ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"];

/// The program that children run: held open, so that an upgrade meanwhile changes nothing.
#[derive(Debug)]
pub(super) struct Program(File);

impl Program {
    /// The one that runs, if it is whylag.
    pub(super) fn own() -> io::Result<Self> {
        if !can_be_a_child() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Self::open(Path::new("/proc/self/exe"))
    }

    pub(super) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }
}

/// A child that runs, until it is ended or the program is over.
#[derive(Debug)]
pub(super) struct Servant {
    process: Child,
    socket: OwnedFd,
}

impl Servant {
    fn start(program: &Program, role: Role) -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let proxies = PROXIES.iter().filter(|_| role == Role::Fetches);
        let process = Command::new(format!("/proc/self/fd/{}", program.0.as_raw_fd()))
            .arg0(role.arg0())
            .env_clear()
            .envs(proxies.filter_map(|name| Some((name, std::env::var_os(name)?))))
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { process, socket: ours })
    }

    /// Asks; the files go with it. A child that does not read its questions is an error.
    pub(super) fn send(&self, value: &impl Serialize, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        socket::send(self.socket.as_fd(), value, files, SendFlags::DONTWAIT)
    }

    /// The next answer, before the deadline and as long as it is wanted.
    pub(super) fn receive<T: DeserializeOwned>(
        &self,
        deadline: Instant,
        wanted: &impl Fn() -> bool,
    ) -> io::Result<(T, Vec<OwnedFd>)> {
        socket::wait(self.socket.as_fd(), deadline, wanted)?;
        socket::receive(self.socket.as_fd())
    }

    /// Whether [`receive`](Self::receive) would return at once.
    pub(super) fn has_answer(&self) -> io::Result<bool> {
        socket::readable(self.socket.as_fd(), Duration::ZERO)
    }

    /// Kills it. It comes back if it is not gone: it hangs in the kernel, where no signal reaches it.
    pub(super) fn end(mut self) -> Option<Stuck> {
        // It has ended by itself if this fails.
        let _ = self.process.kill();
        let deadline = Instant::now() + END;
        loop {
            match self.process.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
                Ok(None) => return Some(Stuck(self.process)),
                Ok(Some(_)) | Err(_) => return None,
            }
        }
    }
}

/// A killed child that does not end.
#[derive(Debug)]
pub(super) struct Stuck(Child);

impl Stuck {
    /// It has not ended yet; looks without waiting.
    pub(super) fn is_there(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

/// Starts a child that names, and hears what holds it.
pub(super) fn start_namer(program: &Program) -> io::Result<(Servant, Sandbox)> {
    let child = Servant::start(program, Role::Names)?;
    match child.receive(Instant::now() + START, &|| true) {
        Ok((Answer::Ready(sandbox), _)) => Ok((child, sandbox)),
        Ok(_) => Err(failed(child, io::ErrorKind::InvalidData.into())),
        Err(error) => Err(failed(child, error)),
    }
}

/// Starts a child that opens.
pub(super) fn start_opener(program: &Program) -> io::Result<Servant> {
    let child = Servant::start(program, Role::Opens)?;
    match child.receive(Instant::now() + START, &|| true) {
        Ok((Opened::Ready, _)) => Ok(child),
        Ok(_) => Err(failed(child, io::ErrorKind::InvalidData.into())),
        Err(error) => Err(failed(child, error)),
    }
}

/// Starts a child that fetches. It gives up its privileges before it hears its question.
pub(super) fn start_fetcher(program: &Program) -> io::Result<Servant> {
    Servant::start(program, Role::Fetches)
}

fn failed(child: Servant, error: io::Error) -> io::Error {
    child.end();
    error
}
