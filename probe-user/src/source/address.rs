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
use vsock::{VMADDR_CID_ANY, VMADDR_CID_HOST, VMADDR_CID_LOCAL, VsockListener, VsockStream};

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

    /// As whoever sends to a listener at this address must name it. From inside a VM, its host is 2.
    #[must_use]
    pub fn from_outside(&self) -> Self {
        match self {
            Self::Vsock { cid: VMADDR_CID_ANY, port } => Self::Vsock { cid: VMADDR_CID_HOST, port: *port },
            Self::Unix(_) | Self::Tcp(_) | Self::Vsock { .. } => self.clone(),
        }
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
            Self::Vsock { cid, port } => {
                let listener = VsockListener::bind_with_cid_port(*cid, *port);
                Ok(Listener::Vsock(listener.map_err(|error| advised(error, not_listening))?))
            }
        }
    }

    /// Connects, within 5 s. A write that takes longer than `patience` fails.
    ///
    /// # Errors
    /// When nobody listens there, or no way leads there.
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
            Self::Vsock { cid: VMADDR_CID_ANY, .. } => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "`any` is for listening; inside a VM, its host is 2"))
            }
            Self::Vsock { cid, port } => {
                let stream = VsockStream::connect_with_cid_port(*cid, *port);
                let stream = stream.map_err(|error| advised(error, |error| not_connected(error, *cid)))?;
                stream.set_write_timeout(Some(patience))?;
                Ok(Box::new(stream))
            }
        }
    }
}

/// An error of vsock with what to do about it: the kernel's words for it are those of networks.
fn advised(error: io::Error, advice: impl Fn(i32) -> Option<&'static str>) -> io::Error {
    match error.raw_os_error().and_then(advice) {
        Some(advice) => io::Error::new(error.kind(), format!("{error}: {advice}")),
        None => error,
    }
}

const NO_VSOCK: &str = "this kernel has no vsock; load its module vsock, or use tcp: or a file";

/// Why a vsock address cannot be listened at.
const fn not_listening(error: i32) -> Option<&'static str> {
    match error {
        libc::EAFNOSUPPORT => Some(NO_VSOCK),
        libc::EADDRNOTAVAIL => Some("that CID is not this machine's own; give `any`"),
        libc::EADDRINUSE => Some("somebody listens at this port already; give another"),
        libc::EACCES => Some("ports below 1024 need CAP_NET_BIND_SERVICE"),
        _ => None,
    }
}

/// Why nobody answers at a vsock address of machine `cid`.
/// <https://man7.org/linux/man-pages/man7/vsock.7.html>
const fn not_connected(error: i32, cid: u32) -> Option<&'static str> {
    match (error, cid) {
        (libc::EAFNOSUPPORT, _) => Some(NO_VSOCK),
        (libc::ENODEV, VMADDR_CID_LOCAL) => Some("1 is this machine itself, which needs the module vsock_loopback"),
        (libc::ENODEV, VMADDR_CID_HOST) => Some(
            "this machine has no vsock device to its host; give the VM one (QEMU: -device vhost-vsock-pci,guest-cid=3) \
             and load vmw_vsock_virtio_transport in it",
        ),
        (libc::ENODEV, _) => Some("no VM of this host has that CID, or the module vhost_vsock is not loaded"),
        (libc::ECONNRESET, _) => Some("nobody listens at that port there"),
        (libc::ETIMEDOUT, VMADDR_CID_HOST) => Some("the host does not answer"),
        (libc::ETIMEDOUT, _) => Some("nobody answers; from inside a VM only its host can be reached, which is 2"),
        _ => None,
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
    use super::{Address, VMADDR_CID_ANY, VMADDR_CID_HOST, VMADDR_CID_LOCAL, not_connected};
    use std::io::{ErrorKind, Read, Write};
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_millis(50);

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let tcp = ["tcp:127.0.0.1:7070", "tcp:[::1]:7070", "tcp:host:1"];
        for text in tcp.into_iter().chain(["unix:/run/whylag.sock", "vsock:2:7070", "vsock:any:7070"]) {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        let sent_to = |text: &str| text.parse::<Address>().unwrap().from_outside().to_string();
        assert_eq!(["vsock:any:7070", "vsock:1:7070"].map(sent_to), ["vsock:2:7070", "vsock:1:7070"]);
        let tcp = ["tcp:7070", "tcp::7070", "tcp:host:99999", "udp:host:1"];
        for text in tcp.into_iter().chain(["unix:", "vsock:7070", "vsock:host:7070", "vsock:2:-1", "file"]) {
            assert!(text.parse::<Address>().unwrap_err().contains("tcp:HOST:PORT"), "{text}");
        }
    }

    #[test]
    fn what_is_sent_arrives_and_a_sender_that_says_nothing_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        arrives(&Address::Unix(folder.path().join("socket")));
        let this_machine = Address::Vsock { cid: VMADDR_CID_LOCAL, port: 7070 };
        match this_machine.listen().err() {
            None => arrives(&this_machine),
            Some(error) => eprintln!("over vsock skipped: this kernel has no vsock_loopback ({error})"),
        }
    }

    #[test]
    fn what_vsock_refuses_is_told_with_what_to_do() {
        let at = |cid| Address::Vsock { cid, port: 4_000_000_000 };
        let refused = |address: Address| address.connect(PATIENCE).map(drop).expect_err("nobody listens").to_string();
        assert!(refused(at(VMADDR_CID_ANY)).contains("inside a VM, its host is 2"));
        let error = at(4_000_000_000).listen().map(drop).expect_err("not this machine's own").to_string();
        assert!(["module vsock", "give `any`"].iter().any(|says| error.contains(says)), "{error}");
        // A kernel that does not reach itself would ask the host of this machine.
        if at(VMADDR_CID_LOCAL).listen().is_ok() {
            assert!(refused(at(VMADDR_CID_LOCAL)).contains("nobody listens at that port there"));
        }
    }

    #[test]
    fn where_no_way_leads_over_vsock_is_told_with_what_to_do() {
        let told = |error, cid| not_connected(error, cid).unwrap_or_default();
        assert!(told(libc::ENODEV, VMADDR_CID_HOST).contains("-device vhost-vsock-pci"));
        assert!(told(libc::ENODEV, 3).contains("vhost_vsock"));
        assert!(told(libc::ENODEV, VMADDR_CID_LOCAL).contains("vsock_loopback"));
        assert!(told(libc::ETIMEDOUT, 5).contains("only its host can be reached"));
        assert_eq!(not_connected(libc::EINTR, 3), None);
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
