//! The client: sends checks on a fixed schedule, whatever becomes of the answers, and measures
//! them with its own clock.

use super::super::clock::mono_ns;
use super::super::message::{Announcement, Check, Order, announce, announce_fault, obey_orders};
use super::{set_comm, spawn};
use anyhow::{Context, Result, bail};
use rustix::net::sockopt::set_tcp_quickack;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// The server's port.
pub const PORT: u16 = 4000;
/// Bytes of a check: mark, nonce, padding.
pub const PAYLOAD_BYTES: usize = 32;

/// What every check begins with.
pub(super) const MARK: &[u8; 4] = b"WLAG";
/// How often the receiver looks for checks that have run out of time.
const LOOK: Duration = Duration::from_millis(20);

/// The signature of these checks, as whylag takes it.
#[must_use]
pub fn signature(tcp: bool) -> String {
    let protocol = if tcp { "tcp" } else { "udp" };
    format!("{protocol}:port={PORT},at=0,bytes=\"WLAG\",nonce=4+8")
}

/// Options of `lab role client`.
#[derive(Debug, clap::Args)]
pub struct ClientArgs {
    /// The server.
    #[arg(long)]
    to: Ipv4Addr,
    /// TCP instead of UDP.
    #[arg(long)]
    tcp: bool,
    /// A connection for each check (TCP).
    #[arg(long, requires = "tcp")]
    each: Option<Each>,
    /// One check every so many µs.
    #[arg(long, default_value_t = 10_000)]
    interval_us: u64,
    /// After this many ms without an answer a check is lost.
    #[arg(long, default_value_t = 2_000)]
    timeout_ms: u64,
}

/// What a check is that has a connection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Each {
    /// The handshake.
    Handshake,
    /// A request and its answer.
    Request,
}

/// The connection to the server.
#[derive(Debug)]
enum Link {
    Udp(UdpSocket),
    Tcp(TcpStream),
    /// One for each check.
    Each(SocketAddrV4, Each),
}

/// What the threads of the client share.
#[derive(Debug)]
struct Client {
    args: ClientArgs,
    link: Link,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outstanding: HashMap<u64, Check>,
    stopped: bool,
    read_late: Option<Duration>,
    send_late: Option<Duration>,
}

pub(super) fn client(args: ClientArgs) -> Result<()> {
    set_comm("check-client")?;
    let link = Link::open(&args)?;
    let client = Arc::new(Client { args, link, state: Mutex::default() });
    let (sender, receiver) = (Arc::clone(&client), Arc::clone(&client));
    spawn("check-receiver", move || receiver.receive())?;
    announce(Announcement::Ready);
    spawn("check-sender", move || sender.send())?;
    obey_orders(|order| {
        client.obey(order);
        Ok(())
    })
}

impl Link {
    fn open(args: &ClientArgs) -> Result<Self> {
        let to = SocketAddrV4::new(args.to, PORT);
        if let Some(each) = args.each {
            return Ok(Self::Each(to, each));
        }
        if args.tcp {
            let stream = TcpStream::connect(to).context("connect to the server")?;
            stream.set_nodelay(true).context("set TCP_NODELAY")?;
            stream.set_read_timeout(Some(LOOK)).context("set a read timeout")?;
            return Ok(Self::Tcp(stream));
        }
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("bind the client's socket")?;
        socket.connect(to).context("connect the client's socket")?;
        socket.set_read_timeout(Some(LOOK)).context("set a read timeout")?;
        Ok(Self::Udp(socket))
    }

    /// Sends a check. An error that an ICMP message brought belongs to an earlier check.
    fn send(&self, payload: &[u8]) -> Result<()> {
        match self {
            Self::Udp(socket) => {
                let _ = socket.send(payload);
                Ok(())
            }
            Self::Each(..) => Ok(()),
            Self::Tcp(stream) => {
                let mut stream = stream;
                stream.write_all(payload).context("send a check")?;
                // As after a lively dialogue: the kernel leaves this mode after each delayed ACK.
                set_tcp_quickack(stream, false).context("delay acknowledgements")
            }
        }
    }

    /// Appends what arrives to `bytes`; after [`LOOK`] without an arrival, nothing.
    fn receive(&self, bytes: &mut Vec<u8>) -> Result<()> {
        let mut buffer = [0; 2048];
        let received = match self {
            Self::Udp(socket) => socket.recv(&mut buffer),
            Self::Tcp(stream) => {
                let mut stream = stream;
                stream.read(&mut buffer)
            }
            Self::Each(..) => {
                sleep(LOOK);
                return Ok(());
            }
        };
        match received {
            Ok(0) => bail!("the server closed the connection"),
            Ok(length) => bytes.extend_from_slice(buffer.get(..length).unwrap_or_default()),
            Err(error) if is_no_answer(error.kind()) => {}
            Err(error) => return Err(error).context("receive an answer"),
        }
        Ok(())
    }
}

/// A timeout, or an error that an ICMP message brought.
fn is_no_answer(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock
            | ErrorKind::TimedOut
            | ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::PermissionDenied
            | ErrorKind::Interrupted
    )
}

impl Client {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn obey(&self, order: Order) {
        let mut state = self.state();
        match order {
            Order::ReadLate { ms } => state.read_late = Some(Duration::from_millis(ms)),
            Order::SendLate { ms } => state.send_late = Some(Duration::from_millis(ms)),
            Order::Stop => state.stopped = true,
            Order::Fault { .. } => {}
        }
    }

    /// Sends the checks that are due, again and again until stopped.
    fn send(self: &Arc<Self>) -> Result<()> {
        let interval = self.args.interval_us * 1_000;
        // Nonces of two runs must not meet, even if both are seen by one whylag.
        let mut nonce = RandomState::new().hash_one(std::process::id()) >> 1;
        let mut due_at_ns = mono_ns();
        while !self.state().stopped {
            self.be_late_once(|state| state.send_late.take());
            self.send_one(nonce, due_at_ns)?;
            (nonce, due_at_ns) = (nonce + 1, due_at_ns + interval);
            sleep(Duration::from_nanos(due_at_ns.saturating_sub(mono_ns())));
        }
        Ok(())
    }

    fn send_one(self: &Arc<Self>, nonce: u64, due_at_ns: u64) -> Result<()> {
        if let Link::Each(to, each) = self.link {
            let client = Arc::clone(self);
            return spawn("check-sender", move || client.connect(to, each, nonce, due_at_ns));
        }
        let sent_at_ns = mono_ns();
        let check = Check { nonce, due_at_ns, sent_at_ns, answered_at_ns: None };
        self.state().outstanding.insert(nonce, check);
        self.link.send(&payload(nonce))
    }

    /// Sends a check by a connection of its own. One that does not end in time is given up.
    fn connect(&self, to: SocketAddrV4, each: Each, nonce: u64, due_at_ns: u64) -> Result<()> {
        let timeout = Duration::from_millis(self.args.timeout_ms);
        let begin = || {
            let check = Check { nonce, due_at_ns, sent_at_ns: mono_ns(), answered_at_ns: None };
            self.state().outstanding.insert(nonce, check);
        };
        let end = || self.conclude(|check| check.nonce == nonce, Some(mono_ns()));
        if each == Each::Handshake {
            begin();
        }
        let Ok(mut stream) = TcpStream::connect_timeout(&to.into(), timeout) else { return Ok(()) };
        if each == Each::Handshake {
            end();
            return Ok(());
        }
        stream.set_read_timeout(Some(timeout)).context("set a read timeout")?;
        begin();
        let mut answer = [0; PAYLOAD_BYTES];
        if stream.write_all(&payload(nonce)).and_then(|()| stream.read_exact(&mut answer)).is_ok() {
            end();
        }
        Ok(())
    }

    /// Reads answers and announces every check when its end is known.
    fn receive(&self) -> Result<()> {
        let mut bytes = Vec::new();
        loop {
            self.be_late_once(|state| state.read_late.take());
            self.link.receive(&mut bytes)?;
            let now = mono_ns();
            while let Some(nonce) = take_answer(&mut bytes) {
                self.conclude(|check| check.nonce == nonce, Some(now));
            }
            let timeout = self.args.timeout_ms * 1_000_000;
            self.conclude(|check| now.saturating_sub(check.sent_at_ns) > timeout, None);
            if self.is_done() {
                announce(Announcement::Done);
                return Ok(());
            }
        }
    }

    fn be_late_once(&self, take: impl FnOnce(&mut State) -> Option<Duration>) {
        let late = take(&mut self.state());
        if let Some(time) = late {
            announce_fault(|| sleep(time));
        }
    }

    fn conclude(&self, ended: impl Fn(&Check) -> bool, answered_at_ns: Option<u64>) {
        let concluded: Vec<Check> =
            self.state().outstanding.extract_if(|_, check| ended(check)).map(|(_, check)| check).collect();
        for check in concluded {
            announce(Announcement::Check(Check { answered_at_ns, ..check }));
        }
    }

    fn is_done(&self) -> bool {
        let state = self.state();
        state.stopped && state.outstanding.is_empty()
    }
}

fn payload(nonce: u64) -> [u8; PAYLOAD_BYTES] {
    let mut payload = [0; PAYLOAD_BYTES];
    let fields = MARK.iter().copied().chain(nonce.to_be_bytes());
    for (to, from) in payload.iter_mut().zip(fields) {
        *to = from;
    }
    payload
}

/// Takes the first whole answer out of `bytes`, and what stands before it; its nonce.
fn take_answer(bytes: &mut Vec<u8>) -> Option<u64> {
    let start = bytes.windows(MARK.len()).position(|window| window == MARK)?;
    let nonce = bytes.get(start + 4..start + 12)?.try_into().ok()?;
    if bytes.len() < start + PAYLOAD_BYTES {
        return None;
    }
    bytes.drain(..start + PAYLOAD_BYTES);
    Some(u64::from_be_bytes(nonce))
}

#[cfg(test)]
mod tests {
    use super::{payload, take_answer};

    #[test]
    fn answers_are_taken_whole_from_a_stream() {
        let mut bytes = b"OK: ".to_vec();
        bytes.extend(payload(7));
        bytes.extend(&payload(8)[..20]);
        assert_eq!(take_answer(&mut bytes), Some(7));
        assert_eq!(take_answer(&mut bytes), None);
        bytes.extend(&payload(8)[20..]);
        assert_eq!(take_answer(&mut bytes), Some(8));
        assert!(bytes.is_empty());
    }
}
