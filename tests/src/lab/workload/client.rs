//! The client: sends checks on a fixed schedule, whatever becomes of the answers, and measures
//! them with its own clock.

use super::super::clock::mono_ns;
use super::super::message::{Announcement, Check, Order, announce, announce_fault, obey_orders};
use super::{datagram, set_comm, spawn};
use anyhow::{Context, Result, bail};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_tcp_quickack};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// The server's port.
pub const PORT: u16 = 4000;
/// Bytes of a check: mark, nonce, padding.
pub const PAYLOAD_BYTES: usize = 32;

/// What every check begins with.
pub(super) const MARK: &[u8; 4] = b"WLAG";
/// Hexadecimal digits of a nonce in the path of an HTTP request.
pub(super) const HTTP_PATH_BYTES: usize = 14;
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
    /// Size of the receive buffer, bytes (TCP).
    #[arg(long)]
    receive_buffer: Option<usize>,
    /// Checks are HTTP requests, two at a time (TCP).
    #[arg(long, requires = "tcp")]
    http: bool,
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
    /// For how long checks are sent in two parts, and the time between the two, ms.
    split: Option<(u64, u64)>,
    /// Until when checks are damaged, `CLOCK_MONOTONIC`.
    damage_until_ns: Option<u64>,
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
            let stream = connect(to, args.receive_buffer).context("connect to the server")?;
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

    /// Sends a check past the socket, with its addresses and a wrong checksum.
    fn send_damaged(&self, payload: &[u8]) -> Result<()> {
        let Self::Udp(own) = self else { bail!("only datagrams are damaged") };
        let (SocketAddr::V4(from), SocketAddr::V4(to)) = (own.local_addr()?, own.peer_addr()?) else {
            bail!("the client speaks IPv4");
        };
        let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))?;
        sendto(&raw, &datagram::damaged(from, to, payload), SendFlags::empty(), &to).context("send a packet")?;
        Ok(())
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
            Order::Split { ms, pause_ms } => state.split = Some((ms, pause_ms)),
            Order::Damage { ms } => {
                announce(Announcement::FaultBegan { at_ns: mono_ns() });
                state.damage_until_ns = Some(mono_ns() + ms * 1_000_000);
            }
            Order::Stop => state.stopped = true,
            Order::Fault { .. } | Order::Count => {}
        }
    }

    /// Sends the checks that are due, again and again until stopped.
    fn send(self: &Arc<Self>) -> Result<()> {
        let interval = self.args.interval_us * 1_000;
        // Nonces of two runs must not meet, even if both are seen by one whylag.
        let mut nonce = RandomState::new().hash_one(std::process::id()) >> 9;
        let mut due_at_ns = mono_ns();
        while !self.state().stopped {
            self.be_late_once(|state| state.send_late.take());
            if let Some((ms, pause_ms)) = self.take_split() {
                announce(Announcement::FaultBegan { at_ns: mono_ns() });
                let until = mono_ns() + ms * 1_000_000;
                while mono_ns() < until {
                    self.send_split(nonce, Duration::from_millis(pause_ms))?;
                    nonce += 1;
                }
                announce(Announcement::FaultEnded { at_ns: mono_ns() });
            }
            self.send_one(nonce, due_at_ns)?;
            if self.args.http {
                nonce += 1;
                self.send_one(nonce, due_at_ns)?;
            }
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
        if self.args.http {
            return self.link.send(format!("GET /{nonce:014x} HTTP/1.1\r\n\r\n").as_bytes());
        }
        match self.damages() {
            true => self.link.send_damaged(&payload(nonce)),
            false => self.link.send(&payload(nonce)),
        }
    }

    /// Whether the check that is sent now is to be damaged; says so once none is any more.
    fn damages(&self) -> bool {
        let mut state = self.state();
        let damages = state.damage_until_ns.is_some_and(|until| mono_ns() < until);
        if !damages && state.damage_until_ns.take().is_some() {
            announce(Announcement::FaultEnded { at_ns: mono_ns() });
        }
        damages
    }

    fn take_split(&self) -> Option<(u64, u64)> {
        self.state().split.take()
    }

    /// Sends the first half of a check, and the rest after `pause`.
    fn send_split(&self, nonce: u64, pause: Duration) -> Result<()> {
        let sent_at_ns = mono_ns();
        let check = Check { nonce, due_at_ns: sent_at_ns, sent_at_ns, answered_at_ns: None };
        self.state().outstanding.insert(nonce, check);
        let payload = payload(nonce);
        let (first, rest) = payload.split_at(PAYLOAD_BYTES / 2);
        self.link.send(first)?;
        sleep(pause);
        self.link.send(rest)
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
            let take = if self.args.http { take_http_answer } else { take_answer };
            while let Some(nonce) = take(&mut bytes) {
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

/// Connects a socket whose receive buffer has a size from the start, as the window depends on it.
fn connect(to: SocketAddrV4, receive_buffer: Option<usize>) -> Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    if let Some(bytes) = receive_buffer {
        set_socket_recv_buffer_size(&socket, bytes)?;
    }
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

fn payload(nonce: u64) -> [u8; PAYLOAD_BYTES] {
    let mut payload = [0; PAYLOAD_BYTES];
    let fields = MARK.iter().copied().chain(nonce.to_be_bytes());
    for (to, from) in payload.iter_mut().zip(fields) {
        *to = from;
    }
    payload
}

/// As [`take_answer`], of an HTTP response whose status line ends with the path that was asked for.
fn take_http_answer(bytes: &mut Vec<u8>) -> Option<u64> {
    let text = bytes.get(..PAYLOAD_BYTES)?.strip_prefix(b"HTTP/1.1 200 ")?.get(..HTTP_PATH_BYTES)?;
    let nonce = u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()?;
    bytes.drain(..PAYLOAD_BYTES);
    Some(nonce)
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
    use super::{payload, take_answer, take_http_answer};

    #[test]
    fn http_answers_are_taken_whole_from_a_stream() {
        let mut bytes = b"HTTP/1.1 200 00000000000abc\r\n\r\n HTTP/1.1 200 ".to_vec();
        assert_eq!(take_http_answer(&mut bytes), Some(0xabc));
        assert_eq!((take_http_answer(&mut bytes), bytes.len()), (None, 13));
    }

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
