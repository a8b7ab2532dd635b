//! A file server of the network, and its files mounted: NFS version 3 over loopback, in a namespace of
//! its own. It stops answering on order, when a file is next read.
//!
//! It speaks the protocol, so nothing has to be installed. Not on the leash, as the disk: the mount
//! would outlive it.
//! <https://www.rfc-editor.org/rfc/rfc1813>

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::fault::Armed;
use super::file::COLD;
use super::fuse::{FILE, Mount};
use super::{set_comm, spawn};
use anyhow::{Context, Result, ensure};
use rustix::mount::{MountFlags, mount};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CString;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;

/// What is mounted, as mounts are listed.
const SOURCE: &str = "127.0.0.1:/whylag-lab";
/// Its own port for both protocols, so that no program has to tell the ports.
const PORT: u16 = 2049;
const FILE_BYTES: u32 = 4_096;
/// Longest call: the arguments of what is answered are far shorter.
const CALL_BYTES: usize = 64 << 10;

/// Options of `lab role nfs`.
#[derive(Debug, clap::Args)]
pub struct NfsArgs {
    /// Directory that is made for it, and removed.
    #[arg(long)]
    dir: PathBuf,
}

pub(super) fn nfs(args: NfsArgs) -> Result<()> {
    set_comm("file-server")?;
    rustix::process::setsid().context("leave the terminal")?;
    let armed = Arc::new(Armed::default());
    enter_namespace()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).context("listen")?;
    let late = Arc::clone(&armed);
    spawn("file-server", move || accept(&listener, &late))?;
    let tidy = mount_at(args.dir)?;
    announce(Announcement::Ready);
    let outcome = obey_orders(|order| {
        if let Order::Fault { ms } = order {
            announce_fault(|| armed.arm(ms));
        }
        Ok(())
    });
    drop(tidy);
    outcome
}

/// Its threads begin later, and are born there.
fn enter_namespace() -> Result<()> {
    // SAFETY: a namespace of the network is no memory, and no other thread is there yet.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.context("make a network namespace")?;
    let status = Command::new("ip").args(["link", "set", "lo", "up"]).status().context("start ip")?;
    ensure!(status.success(), "ip: {status}");
    Ok(())
}

fn mount_at(dir: PathBuf) -> Result<Mount> {
    let point = dir.join("mount");
    fs::create_dir_all(&point).with_context(|| format!("create {}", point.display()))?;
    let tidy = Mount(dir);
    let ports = format!("port={PORT},mountport={PORT}");
    let options = format!("vers=3,proto=tcp,mountproto=tcp,{ports},addr=127.0.0.1,nolock,noacl,hard,sec=sys");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
    mount(SOURCE, &point, "nfs", flags, Some(CString::new(options)?.as_c_str())).context("mount the files")?;
    Ok(tidy)
}

fn accept(listener: &TcpListener, late: &Arc<Armed>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().context("take a connection")?;
        let late = Arc::clone(late);
        spawn("file-server", move || serve(stream, &late))?;
    }
}

/// Answers until the client hangs up.
fn serve(mut stream: TcpStream, late: &Armed) -> Result<()> {
    while let Some(call) = receive(&mut stream)? {
        let Some(call) = Call::parse(&call) else { continue };
        if call.reads()
            && let Some(time) = late.take()
        {
            sleep(time);
        }
        let reply = call.reply();
        let mark = LAST_FRAGMENT | u32::try_from(reply.len())?;
        stream.write_all(&[words(&[mark]), reply].concat()).context("answer a call")?;
    }
    Ok(())
}

/// Bit of a record's mark: nothing of it comes behind.
const LAST_FRAGMENT: u32 = 1 << 31;

/// A call; none if the client has hung up. The kernel sends one in one fragment.
fn receive(stream: &mut TcpStream) -> Result<Option<Vec<u8>>> {
    let mut mark = [0; 4];
    match stream.read_exact(&mut mark) {
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return Ok(None),
        read => read.context("read a call's mark")?,
    }
    let length = (u32::from_be_bytes(mark) & !LAST_FRAGMENT) as usize;
    ensure!(length <= CALL_BYTES, "a call of {length} bytes");
    let mut call = vec![0; length];
    stream.read_exact(&mut call).context("read a call")?;
    Ok(Some(call))
}

const MOUNT: u32 = 100_005;
const NFS: u32 = 100_003;
/// Procedures of both.
const NOTHING: u32 = 0;
/// Procedures of [`MOUNT`].
const MNT: u32 = 1;
const UMNT: u32 = 3;
/// Procedures of [`NFS`].
const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const ACCESS: u32 = 4;
const READ: u32 = 6;
const FSSTAT: u32 = 18;
const FSINFO: u32 = 19;
const PATHCONF: u32 = 20;

const NO_SUCH_FILE: u32 = 2;
const NOT_SUPPORTED: u32 = 10_004;
/// The call was taken, and its program is not here.
const NO_PROGRAM: u32 = 1;

const ROOT: u32 = 1;
/// The files, by their numbers.
const FILES: [(u32, &str); 2] = [(2, FILE), (3, COLD)];

/// A remote procedure call.
struct Call<'a> {
    id: u32,
    program: u32,
    procedure: u32,
    arguments: Arguments<'a>,
}

/// What is left of a call's arguments.
#[derive(Clone, Copy)]
struct Arguments<'a>(&'a [u8]);

impl<'a> Arguments<'a> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    /// Bytes with their length before them.
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.word()? as usize;
        let (bytes, _) = self.0.split_at_checked(length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..)?;
        Some(bytes)
    }

    /// A file's number, which is all of its handle.
    fn file(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.bytes()?.first_chunk()?))
    }
}

impl<'a> Call<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut arguments = Arguments(bytes);
        let mut header = [0; 6];
        for word in &mut header {
            *word = arguments.word()?;
        }
        let [id, 0, 2, program, _version, procedure] = header else { return None };
        // Credentials, and what verifies them, each of some kind.
        for _ in 0..2 {
            arguments.word()?;
            arguments.bytes()?;
        }
        Some(Self { id, program, procedure, arguments })
    }

    /// Whether it asks for what is in a file.
    fn reads(&self) -> bool {
        (self.program, self.procedure) == (NFS, READ)
    }

    fn reply(&self) -> Vec<u8> {
        let results = match self.program {
            MOUNT => Some(self.mounted()),
            NFS => Some(self.answer().unwrap_or_else(|| words(&[NOT_SUPPORTED, 0, 0]))),
            _ => None,
        };
        // Taken, by nobody who is to be verified.
        let accepted = [self.id, 1, 0, 0, 0, if results.is_some() { 0 } else { NO_PROGRAM }];
        [words(&accepted), results.unwrap_or_default()].concat()
    }

    fn mounted(&self) -> Vec<u8> {
        match self.procedure {
            NOTHING | UMNT => Vec::new(),
            // The only way to say who one is: AUTH_SYS.
            MNT => [words(&[0]), handle(ROOT), words(&[1, 1])].concat(),
            _ => words(&[NOT_SUPPORTED]),
        }
    }

    fn answer(&self) -> Option<Vec<u8>> {
        if self.procedure == NOTHING {
            return Some(Vec::new());
        }
        let mut arguments = self.arguments;
        let file = arguments.file()?;
        let about = |rest: &[u32]| [words(&[0, 1]), attributes(file), words(rest)].concat();
        Some(match self.procedure {
            GETATTR => [words(&[0]), attributes(file)].concat(),
            LOOKUP => look_up(arguments.bytes()?),
            ACCESS => about(&[arguments.word()?]),
            READ => {
                let (_, from, count) = (arguments.word()?, arguments.word()?, arguments.word()?);
                let count = count.min(FILE_BYTES.saturating_sub(from));
                let ends = u32::from(from.saturating_add(count) >= FILE_BYTES);
                [about(&[count, ends, count]), vec![b'.'; count as usize]].concat()
            }
            FSSTAT => about(&[0; 13]),
            FSINFO => about(&[FILE_BYTES, FILE_BYTES, 1, FILE_BYTES, FILE_BYTES, 1, FILE_BYTES, 0, u32::MAX, 0, 1, 0]),
            PATHCONF => about(&[1, 255, 1, 1, 0, 1]),
            _ => return None,
        })
    }
}

fn look_up(name: &[u8]) -> Vec<u8> {
    let known = FILES.iter().find(|(_, known)| known.as_bytes() == name);
    let of_root = [words(&[1]), attributes(ROOT)].concat();
    match known {
        Some((file, _)) => [words(&[0]), handle(*file), words(&[1]), attributes(*file), of_root].concat(),
        None => [words(&[NO_SUCH_FILE]), of_root].concat(),
    }
}

fn handle(file: u32) -> Vec<u8> {
    words(&[4, file])
}

/// `fattr3`.
fn attributes(file: u32) -> Vec<u8> {
    let (kind, mode, size) = if file == ROOT { (2, 0o755, FILE_BYTES) } else { (1, 0o644, FILE_BYTES) };
    let times = [1, 0, 1, 0, 1, 0];
    let number = [0, 7, 0, file];
    [words(&[kind, mode, 1, 0, 0, 0, size, 0, size, 0, 0]), words(&number), words(&times)].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Call, LOOKUP, MNT, MOUNT, NFS, READ, attributes, handle, words};

    fn reply(program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let header = [9, 0, 2, program, 3, procedure, 1, 0, 0, 0];
        let call = [words(&header), arguments.to_vec()].concat();
        Call::parse(&call).expect("a whole call").reply()
    }

    #[test]
    fn answers_have_the_protocol_s_sizes() {
        assert_eq!(attributes(1).len(), 84);
        let header = 24;
        assert_eq!(reply(MOUNT, MNT, &words(&[0])).len(), header + 4 + 8 + 8);
        let look_up = [handle(1), words(&[4]), b"file".to_vec()].concat();
        assert_eq!(reply(NFS, LOOKUP, &look_up).len(), header + 4 + 8 + 2 * 88);
        let read = [handle(2), words(&[0, 0, 64])].concat();
        assert_eq!(reply(NFS, READ, &read).len(), header + 4 + 88 + 12 + 64);
        assert_eq!(reply(1, 0, &[]), words(&[9, 1, 0, 0, 0, 1]), "there is no such program");
        assert!(Call::parse(&words(&[9, 0, 2, NFS])).is_none(), "cut short");
    }
}
