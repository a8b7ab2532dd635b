//! Where a half of a check's records comes from or goes to while it is being made: a stream socket.
//!
//! What goes over it is a recording, as in a file. The sender connects, the receiver listens and takes
//! one sender; nothing is answered.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use vsock::{VMADDR_CID_ANY, VsockListener, VsockStream};

/// How long a connection may take to come about; over vsock the kernel itself gives up after 2 s.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A stream socket's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `unix:PATH`.
    Unix(PathBuf),
    /// `tcp:HOST:PORT`.
    Tcp(String),
    /// `vsock:CID:PORT`: between a VM and its host, without a network.
    Vsock {
        /// Which machine: 2 is the host; `any`, to listen at all that are one's own.
        cid: u32,
        /// Which port.
        port: u32,
    },
}

const FORMS: &str = "give unix:PATH, tcp:HOST:PORT or vsock:CID:PORT";
/// How the CID of all of one's own addresses is written.
const ANY: &str = "any";

impl Address {
    /// Whether `text` is meant as an address, right or wrong, rather than as a file.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        ["unix:", "tcp:", "vsock:"].iter().any(|kind| text.starts_with(kind))
    }

    /// Begins to listen. A socket file that nobody listens at any more is replaced.
    ///
    /// # Errors
    /// When the address is taken or not this host's.
    pub fn listen(&self) -> io::Result<Listener> {
        match self {
            Self::Unix(path) => {
                remove_deserted(path)?;
                Ok(Listener::Unix(UnixListener::bind(path)?, path.clone()))
            }
            Self::Tcp(name) => Ok(Listener::Tcp(TcpListener::bind(name.as_str())?)),
            Self::Vsock { cid, port } => Ok(Listener::Vsock(VsockListener::bind_with_cid_port(*cid, *port)?)),
        }
    }

    /// Connects, within 5 s. A write that takes longer than `patience` fails.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(&self, patience: Duration) -> io::Result<Box<dyn Write + Send>> {
        match self {
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_write_timeout(Some(patience))?;
                Ok(Box::new(stream))
            }
            Self::Tcp(name) => {
                let stream = connect_to_any(name)?;
                stream.set_write_timeout(Some(patience))?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Self::Vsock { cid, port } => {
                let stream = VsockStream::connect_with_cid_port(*cid, *port)?;
                stream.set_write_timeout(Some(patience))?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// Tries each address of a name.
fn connect_to_any(name: &str) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in name.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_WITHIN) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn remove_deserted(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    match UnixStream::connect(path) {
        Err(error) if is_socket && error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Ok(()),
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Some(Self::Unix(path.into())),
            Some(("tcp", name)) => tcp(name),
            Some(("vsock", name)) => vsock(name),
            _ => None,
        };
        read.ok_or_else(|| FORMS.to_owned())
    }
}

fn tcp(name: &str) -> Option<Address> {
    let (host, port) = name.rsplit_once(':')?;
    (!host.is_empty() && port.parse::<u16>().is_ok()).then(|| Address::Tcp(name.to_owned()))
}

fn vsock(name: &str) -> Option<Address> {
    let (cid, port) = name.split_once(':')?;
    let cid = if cid == ANY { Some(VMADDR_CID_ANY) } else { cid.parse().ok() };
    Some(Address::Vsock { cid: cid?, port: port.parse().ok()? })
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(name) => write!(f, "tcp:{name}"),
            Self::Vsock { cid: VMADDR_CID_ANY, port } => write!(f, "vsock:{ANY}:{port}"),
            Self::Vsock { cid, port } => write!(f, "vsock:{cid}:{port}"),
        }
    }
}

/// Waits for senders. A socket file goes with it.
#[derive(Debug)]
pub enum Listener {
    /// At a path.
    Unix(UnixListener, PathBuf),
    /// At a port.
    Tcp(TcpListener),
    /// At a port that VMs and their host reach without a network.
    Vsock(VsockListener),
}

impl Listener {
    /// Takes the next sender; a read that takes longer than `patience` fails.
    ///
    /// # Errors
    /// When the listening socket fails.
    pub fn accept(&self, patience: Duration) -> io::Result<Box<dyn Read + Send>> {
        match self {
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_read_timeout(Some(patience))?;
                Ok(Box::new(stream))
            }
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_read_timeout(Some(patience))?;
                Ok(Box::new(stream))
            }
            Self::Vsock(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_read_timeout(Some(patience))?;
                Ok(Box::new(stream))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Address;
    use std::io::{ErrorKind, Read, Write};
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_millis(50);

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let tcp = ["tcp:127.0.0.1:7070", "tcp:[::1]:7070", "tcp:host:1"];
        for text in tcp.into_iter().chain(["unix:/run/whylag.sock", "vsock:2:7070", "vsock:any:7070"]) {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let tcp = ["tcp:7070", "tcp::7070", "tcp:host:99999", "udp:host:1"];
        for text in tcp.into_iter().chain(["unix:", "vsock:7070", "vsock:host:7070", "vsock:2:-1", "file"]) {
            assert!(text.parse::<Address>().unwrap_err().contains("tcp:HOST:PORT"), "{text}");
        }
    }

    #[test]
    fn what_is_sent_arrives_and_a_sender_that_says_nothing_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        arrives(&Address::Unix(folder.path().join("socket")));
        let this_machine = Address::Vsock { cid: vsock::VMADDR_CID_LOCAL, port: 7070 };
        match this_machine.listen().err() {
            None => arrives(&this_machine),
            Some(error) => eprintln!("over vsock skipped: this kernel has no vsock_loopback ({error})"),
        }
    }

    fn arrives(address: &Address) {
        let listener = address.listen().unwrap();
        let mut sender = address.connect(PATIENCE).unwrap();
        let mut receiver = listener.accept(PATIENCE).unwrap();
        sender.write_all(b"half").unwrap();
        let mut got = [0; 4];
        receiver.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"half");
        let start = Instant::now();
        assert_eq!(receiver.read(&mut got).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_socket_that_is_listened_at_is_not_taken_and_a_deserted_one_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = Address::Unix(path.clone());
        let listener = address.listen().unwrap();
        assert_eq!(address.listen().unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        address.listen().unwrap();
        std::fs::write(folder.path().join("file"), "kept").unwrap();
        assert!(Address::Unix(folder.path().join("file")).listen().is_err());
        assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"kept");
    }
}
