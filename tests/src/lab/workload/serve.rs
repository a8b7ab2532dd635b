//! The server: answers each check with the same bytes.
//!
//! Every check takes the lock of the server's statistics, as real servers do; a thread named
//! `stats-rollup` can hold it for longer.

use super::super::leash::pin;
use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::chain::{Chain, Last};
use super::crowd;
use super::event_loop::{self, EventLoop};
use super::fault::{Armed, compute, compute_rounds, rounds_in};
use super::position::Position;
use super::{HTTP_PATH_BYTES, PAYLOAD_BYTES, PORT, count, file, hog, memory, set_comm, spawn};
use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_reuseaddr, set_socket_send_buffer_size};
use rustix::net::{AddressFamily, SendFlags, SocketType, bind, listen, sendto, socket};
use std::fs;
use std::io::{ErrorKind, Read, Write, stderr};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Threads of a crowd.
const CROWD: usize = 6;

/// A kind of fault inside the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ServeFault {
    /// The handler sleeps.
    Sleep,
    /// The handler computes.
    Compute,
    /// Another thread computes while it holds the lock.
    LockComputing,
    /// Another thread sleeps while it holds the lock.
    LockAsleep,
    /// No connection is accepted.
    AcceptLate,
    /// Checks are read and not answered.
    Silent,
    /// Answers are sent in two parts, with Nagle's algorithm on (TCP).
    TwoParts,
    /// The same with Nagle's algorithm off.
    TwoPartsAtOnce,
    /// The handler asks another service, which answers late.
    Dependency,
    /// The handler asks two other services, of which the first answers late, and the second at once.
    TwoDependencies,
    /// The handler asks for the address of a name.
    Resolve,
    /// The handler writes to a file and syncs it.
    FileSync,
    /// The handler writes more to a file than may be dirty.
    FileWrite,
    /// The handler writes pages that lie apart, and syncs the file.
    FileWriteScattered,
    /// The handler creates a file and makes its name last.
    FileCommit,
    /// The handler reads a file past the page cache.
    FileReadDirect,
    /// The handler touches a page of a mapped file.
    FileReadMapped,
    /// The handler reads a file.
    FileRead,
    /// Another thread writes more to a file than may be dirty, while it holds the lock.
    LockWriting,
    /// The handler maps memory, in a process with a large page table.
    MemoryMap,
    /// Another thread reads a file for long, and the handler needs the mutex of its position.
    PositionHeld,
    /// The handler reads a file for long.
    PositionRead,
    /// The handler asks a process, which asks another, which computes.
    ProcessesComputing,
    /// The handler asks a process, which asks another, which sleeps.
    ProcessesAsleep,
    /// The handler waits for a thread, which waits for another, which computes.
    ThreadsComputing,
    /// The handler waits for a thread, which waits for another, which sleeps.
    ThreadsAsleep,
    /// Threads that have nothing to do with checks compute.
    Crowd,
}

impl ServeFault {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Compute => "compute",
            Self::LockComputing => "lock-computing",
            Self::LockAsleep => "lock-asleep",
            Self::AcceptLate => "accept-late",
            Self::Silent => "silent",
            Self::TwoParts => "two-parts",
            Self::TwoPartsAtOnce => "two-parts-at-once",
            Self::Dependency => "dependency",
            Self::TwoDependencies => "two-dependencies",
            Self::Resolve => "resolve",
            Self::FileSync => "file-sync",
            Self::FileWrite => "file-write",
            Self::FileWriteScattered => "file-write-scattered",
            Self::FileCommit => "file-commit",
            Self::FileReadDirect => "file-read-direct",
            Self::FileReadMapped => "file-read-mapped",
            Self::FileRead => "file-read",
            Self::LockWriting => "lock-writing",
            Self::MemoryMap => "memory-map",
            Self::PositionHeld => "position-held",
            Self::PositionRead => "position-read",
            Self::ProcessesComputing => "processes-computing",
            Self::ProcessesAsleep => "processes-asleep",
            Self::ThreadsComputing => "threads-computing",
            Self::ThreadsAsleep => "threads-asleep",
            Self::Crowd => "crowd",
        }
    }
}

/// Options of `lab role serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// TCP instead of UDP.
    #[arg(long)]
    tcp: bool,
    /// The fault that an order begins.
    #[arg(long, default_value = "sleep")]
    fault: ServeFault,
    /// Threads that answer (UDP).
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// CPU time that every check takes, µs.
    #[arg(long, default_value_t = 0)]
    work_us: u64,
    /// The same as an amount of work: thousands of multiplications.
    #[arg(long, default_value_t = 0)]
    work_rounds: u64,
    /// The same as the time that it takes at the speed that the CPU has at the start, ms.
    #[arg(long, default_value_t = 0, conflicts_with = "work_rounds")]
    work_ms: u64,
    /// Size of the receive buffer, bytes (UDP).
    #[arg(long)]
    receive_buffer: Option<usize>,
    /// Size of the send buffer, bytes.
    #[arg(long)]
    send_buffer: Option<usize>,
    /// Send without waiting for room, and live with errors (UDP).
    #[arg(long)]
    send_at_once: bool,
    /// Ask to be told what becomes of what is sent (UDP).
    #[arg(long)]
    told_errors: bool,
    /// Write a line of this many bytes to standard error for every check.
    #[arg(long)]
    access_log_bytes: Option<usize>,
    /// The serving thread accepts connections by itself, one after another (TCP).
    #[arg(long)]
    serial: bool,
    /// Connections that may wait to be accepted (TCP).
    #[arg(long, default_value_t = 128)]
    backlog: i32,
    /// A thread of its own reads the checks, and hands them over to the workers (UDP).
    #[arg(long)]
    hand_over: bool,
    /// One event loop answers, not threads that wait (UDP).
    #[arg(long)]
    event_loop: Option<EventLoop>,
    /// Bytes of every answer: the check, and zeros (TCP).
    #[arg(long, default_value_t = PAYLOAD_BYTES)]
    answer_bytes: usize,
    /// The other service that is asked.
    #[arg(long)]
    dependency: Option<SocketAddrV4>,
    /// What the name server does with the question, such as `late`.
    #[arg(long, default_value = "late")]
    resolve: String,
    /// The file that is written, synced or read.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Hold the lock for --rollup-ms, computing, again and again with pauses this long, ms.
    #[arg(long)]
    rollup_every_ms: Option<u64>,
    /// Threads that do nothing but wake up once a second.
    #[arg(long, default_value_t = 0)]
    idle_threads: usize,
    /// Processes and threads that come and go all the while.
    #[arg(long)]
    churn: bool,
    /// The only CPU of a guest that it runs on; the guest's devices interrupt the first.
    #[arg(long)]
    guest_cpu: Option<usize>,
    /// How long each of these lasts, ms.
    #[arg(long, default_value_t = 800)]
    rollup_ms: u64,
}

/// What all threads of the server share.
#[derive(Debug)]
struct Server {
    args: ServeArgs,
    armed: Armed,
    /// Until when a fault lasts that concerns every check.
    faulty_until: Mutex<Option<Instant>>,
    answered: Mutex<u64>,
    /// Whom the handler asks, once the first order has come.
    chain: Mutex<Option<Chain>>,
    position: Option<Position>,
}

pub(super) fn serve(mut args: ServeArgs) -> Result<()> {
    set_comm("echo-server")?;
    args.guest_cpu.map(stay_on).transpose()?;
    if args.work_ms > 0 {
        args.work_rounds = rounds_in(Duration::from_millis(args.work_ms));
    }
    let _large = (args.fault == ServeFault::MemoryMap).then(memory::Large::map).transpose()?;
    let position = matches!(args.fault, ServeFault::PositionHeld | ServeFault::PositionRead);
    let position = position.then(Position::open).transpose()?;
    let server = Arc::new(Server {
        args,
        armed: Armed::default(),
        faulty_until: Mutex::new(None),
        answered: Mutex::new(0),
        chain: Mutex::new(None),
        position,
    });
    crowd::start(server.args.idle_threads, server.args.churn)?;
    let (roll_up, orders) = channel();
    server.start_rollup(orders)?;
    let ServeArgs { tcp, event_loop, work_us, receive_buffer, .. } = server.args;
    match event_loop {
        Some(kind) => event_loop::start(kind, Duration::from_micros(work_us), receive_buffer)?,
        None if tcp => server.start_tcp()?,
        None => server.start_udp()?,
    }
    announce(Announcement::Ready);
    obey_orders(|order| server.obey(order, &roll_up))
}

/// Runs on one CPU, and leaves the interrupts of devices to the first.
fn stay_on(cpu: usize) -> Result<()> {
    pin(cpu)?;
    for interrupt in fs::read_dir("/proc/irq").context("list the interrupts")?.flatten() {
        // Those of the machine itself stay where they are.
        let _ = fs::write(interrupt.path().join("smp_affinity"), "1");
    }
    Ok(())
}

/// Sets `IP_RECVERR`: with it, a send call also says that a queueing discipline had no room.
fn ask_for_errors(socket: &UdpSocket) -> Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).context("the length of an integer")?;
    // SAFETY: the option is an integer, which lives through the call.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, (&raw const on).cast(), length)
    };
    ensure!(set == 0, "set IP_RECVERR: {}", std::io::Error::last_os_error());
    Ok(())
}

impl Server {
    fn obey(&self, order: Order, roll_up: &Sender<u64>) -> Result<()> {
        let ms = match order {
            Order::Fault { ms } => ms,
            Order::Count => {
                announce(Announcement::Counted(count::counts()?));
                return Ok(());
            }
            _ => return Ok(()),
        };
        match self.args.fault {
            ServeFault::Crowd => spawn("batch", move || hog::compete(CROWD, Duration::from_millis(ms)))?,
            ServeFault::LockComputing | ServeFault::LockAsleep | ServeFault::LockWriting | ServeFault::PositionHeld => {
                roll_up.send(ms).context("stats-rollup ended")?;
            }
            ServeFault::Silent | ServeFault::TwoParts | ServeFault::TwoPartsAtOnce => {
                self.begin(Duration::from_millis(ms))?;
            }
            _ => {
                self.start_chain()?;
                self.armed.arm(ms);
            }
        }
        Ok(())
    }

    /// Starts whom the handler asks: by now whylag is attached and sees who starts whom.
    fn start_chain(&self) -> Result<()> {
        let mut chain = self.chain.lock().unwrap_or_else(PoisonError::into_inner);
        if chain.is_none() {
            *chain = match self.args.fault {
                ServeFault::ProcessesComputing => Some(Chain::of_processes(Last::Computes)?),
                ServeFault::ProcessesAsleep => Some(Chain::of_processes(Last::Sleeps)?),
                ServeFault::ThreadsComputing => Some(Chain::of_threads(Last::Computes)?),
                ServeFault::ThreadsAsleep => Some(Chain::of_threads(Last::Sleeps)?),
                _ => None,
            };
        }
        Ok(())
    }

    fn ask_chain(&self, time: Duration) -> Result<()> {
        let mut chain = self.chain.lock().unwrap_or_else(PoisonError::into_inner);
        chain.as_mut().context("there is no chain")?.ask(time)
    }

    fn position(&self) -> Result<&Position> {
        self.position.as_ref().context("there is no file")
    }

    /// Begins a fault that concerns every check.
    fn begin(&self, time: Duration) -> Result<()> {
        *self.faulty_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + time);
        spawn("fault-clock", move || {
            announce_fault(|| sleep(time));
            Ok(())
        })
    }

    fn is_faulty(&self, fault: ServeFault) -> bool {
        let until = *self.faulty_until.lock().unwrap_or_else(PoisonError::into_inner);
        self.args.fault == fault && until.is_some_and(|end| Instant::now() < end)
    }

    /// Starts the thread that holds the lock, on order or again and again.
    fn start_rollup(self: &Arc<Self>, orders: Receiver<u64>) -> Result<()> {
        let server = Arc::clone(self);
        spawn("stats-rollup", move || {
            loop {
                let ms = match server.args.rollup_every_ms {
                    None => orders.recv().context("the server ended")?,
                    Some(pause) => {
                        sleep(Duration::from_millis(pause));
                        server.args.rollup_ms
                    }
                };
                server.roll_up(Duration::from_millis(ms))?;
            }
        })
    }

    fn roll_up(&self, time: Duration) -> Result<()> {
        if self.args.fault == ServeFault::PositionHeld {
            let mut outcome = Ok(());
            announce_fault(|| outcome = self.position().and_then(|position| position.read_for(time)));
            return outcome;
        }
        let _held = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut outcome = Ok(());
        announce_fault(|| match self.args.fault {
            ServeFault::LockAsleep => sleep(time),
            ServeFault::LockWriting => outcome = self.file().and_then(file::write_much),
            _ => compute(time),
        });
        outcome
    }

    fn start_udp(self: &Arc<Self>) -> Result<()> {
        let socket = Arc::new(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("bind the server's socket")?);
        if let Some(bytes) = self.args.receive_buffer {
            set_socket_recv_buffer_size(&*socket, bytes).context("set the receive buffer")?;
        }
        if let Some(bytes) = self.args.send_buffer {
            set_socket_send_buffer_size(&*socket, bytes).context("set the send buffer")?;
        }
        if self.args.told_errors {
            ask_for_errors(&socket)?;
        }
        if self.args.hand_over {
            return self.start_hand_over(socket);
        }
        for number in 0..self.args.workers {
            let (server, socket) = (Arc::clone(self), Arc::clone(&socket));
            spawn(&format!("echo-worker-{number}"), move || server.answer_datagrams(&socket))?;
        }
        Ok(())
    }

    fn answer_datagrams(&self, socket: &UdpSocket) -> Result<()> {
        loop {
            let (check, from) = receive_datagram(socket)?;
            self.answer(socket, &check, from)?;
        }
    }

    fn answer(&self, socket: &UdpSocket, check: &[u8], from: SocketAddr) -> Result<()> {
        if !self.handle()? {
            return Ok(());
        }
        if self.args.send_at_once {
            // That it fails is what some cases are about.
            let _ = sendto(socket, check, SendFlags::DONTWAIT, &from);
            return Ok(());
        }
        socket.send_to(check, from).context("answer a check")?;
        Ok(())
    }

    /// One thread reads, another answers.
    fn start_hand_over(self: &Arc<Self>, socket: Arc<UdpSocket>) -> Result<()> {
        let (checks, work) = channel();
        let (server, answering) = (Arc::clone(self), Arc::clone(&socket));
        spawn("echo-worker-0", move || {
            work.into_iter().try_for_each(|(check, from): (Vec<u8>, _)| server.answer(&answering, &check, from))
        })?;
        spawn("echo-reader", move || {
            loop {
                checks.send(receive_datagram(&socket)?).context("echo-worker-0 ended")?;
            }
        })
    }

    fn start_tcp(self: &Arc<Self>) -> Result<()> {
        let listener = listener(self.args.backlog).context("listen")?;
        if self.args.serial {
            let server = Arc::clone(self);
            return spawn("echo-worker-0", move || server.answer_connections(&listener));
        }
        let server = Arc::clone(self);
        spawn("echo-accept", move || {
            loop {
                let (stream, _) = listener.accept().context("accept a connection")?;
                let server = Arc::clone(&server);
                spawn("echo-worker-0", move || server.answer_stream(stream))?;
            }
        })
    }

    /// One connection after another.
    fn answer_connections(&self, listener: &TcpListener) -> Result<()> {
        loop {
            let (stream, _) = listener.accept().context("accept a connection")?;
            // A client that has given up resets its connection.
            let _ = self.answer_stream(stream);
            if self.args.fault == ServeFault::AcceptLate {
                self.armed.strike(sleep);
            }
        }
    }

    fn answer_stream(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(self.args.fault != ServeFault::TwoParts).context("set TCP_NODELAY")?;
        if let Some(bytes) = self.args.send_buffer {
            set_socket_send_buffer_size(&stream, bytes).context("set the send buffer")?;
        }
        let mut check = [0; PAYLOAD_BYTES];
        loop {
            match stream.read_exact(&mut check) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                read => read.context("receive a check")?,
            }
            if self.handle()? {
                self.answer_on(&mut stream, &check)?;
            }
        }
    }

    /// In two parts, with Nagle's algorithm the second is held back until the client has acknowledged
    /// the first.
    fn answer_on(&self, stream: &mut TcpStream, check: &[u8]) -> Result<()> {
        if self.is_faulty(ServeFault::TwoParts) || self.is_faulty(ServeFault::TwoPartsAtOnce) {
            stream.write_all(b"OK: ").context("answer a check")?;
        }
        let mut answer = http_answer(check).unwrap_or_else(|| check.to_vec());
        answer.resize(self.args.answer_bytes, 0);
        stream.write_all(&answer).context("answer a check")
    }

    /// Does the work of one check; whether it is to be answered.
    fn handle(&self) -> Result<bool> {
        match self.args.fault {
            ServeFault::Sleep => self.armed.strike(sleep),
            ServeFault::Compute => self.armed.strike(compute),
            ServeFault::Dependency => self.try_strike(|time| self.ask(time))?,
            ServeFault::TwoDependencies => self.try_strike(|time| self.ask_two(time))?,
            ServeFault::Resolve => self.try_strike(|time| self.resolve(time))?,
            ServeFault::FileSync => self.try_strike(|_| file::write_and_sync(self.file()?))?,
            ServeFault::FileWrite => self.try_strike(|_| file::write_much(self.file()?))?,
            ServeFault::FileWriteScattered => self.try_strike(|_| file::write_scattered(self.file()?))?,
            ServeFault::FileCommit => self.try_strike(|_| file::create_and_commit(self.file()?))?,
            ServeFault::FileReadDirect => self.try_strike(|_| file::read_directly(self.file()?))?,
            ServeFault::FileReadMapped => self.try_strike(|_| memory::touch_file(self.file()?))?,
            ServeFault::FileRead => self.try_strike(|_| file::read(self.file()?))?,
            ServeFault::MemoryMap => self.try_strike(memory::map_and_unmap)?,
            ServeFault::PositionHeld => self.position()?.ask()?,
            ServeFault::PositionRead => self.try_strike(|time| self.position()?.read_for(time))?,
            ServeFault::ProcessesComputing
            | ServeFault::ProcessesAsleep
            | ServeFault::ThreadsComputing
            | ServeFault::ThreadsAsleep => self.try_strike(|time| self.ask_chain(time))?,
            ServeFault::LockComputing | ServeFault::LockAsleep | ServeFault::LockWriting => {}
            ServeFault::AcceptLate | ServeFault::Silent | ServeFault::TwoParts | ServeFault::TwoPartsAtOnce => {}
            ServeFault::Crowd => {}
        }
        compute(Duration::from_micros(self.args.work_us));
        compute_rounds(self.args.work_rounds);
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.log()?;
        Ok(!self.is_faulty(ServeFault::Silent))
    }

    fn try_strike(&self, fault: impl FnOnce(Duration) -> Result<()>) -> Result<()> {
        let mut outcome = Ok(());
        self.armed.strike(|time| outcome = fault(time));
        outcome
    }

    /// Asks the other service, which takes its time.
    fn ask(&self, time: Duration) -> Result<()> {
        hear(&ask(self.args.dependency.context("--dependency is needed")?, time)?)
    }

    /// Asks the other service, which takes its time, and the one behind it, which does not; takes
    /// the answers as they come.
    fn ask_two(&self, time: Duration) -> Result<()> {
        let late = self.args.dependency.context("--dependency is needed")?;
        let prompt = SocketAddrV4::new(*late.ip(), late.port() + 1);
        let mut open = vec![ask(late, time)?, ask(prompt, Duration::ZERO)?];
        while !open.is_empty() {
            let mut ready: Vec<PollFd<'_>> = open.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
            poll(&mut ready, None).context("wait for the other services")?;
            let answered: Vec<bool> = ready.iter().map(|socket| !socket.revents().is_empty()).collect();
            for (index, _) in answered.iter().enumerate().rev().filter(|(_, answered)| **answered) {
                hear(&open.remove(index))?;
            }
        }
        Ok(())
    }

    fn resolve(&self, time: Duration) -> Result<()> {
        let name = format!("{}-{}.lab", self.args.resolve, time.as_millis());
        (name.as_str(), 80).to_socket_addrs().with_context(|| format!("resolve {name}"))?;
        Ok(())
    }

    fn file(&self) -> Result<&Path> {
        self.args.file.as_deref().context("--file is needed")
    }

    fn log(&self) -> Result<()> {
        let Some(bytes) = self.args.access_log_bytes else { return Ok(()) };
        let mut line = vec![b'.'; bytes];
        line.push(b'\n');
        stderr().write_all(&line).context("write the access log")
    }
}

/// Asks a service to answer after `time`.
fn ask(to: SocketAddrV4, time: Duration) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("bind a socket")?;
    socket.connect(to).context("connect to the other service")?;
    socket.send(&time.as_millis().to_string().into_bytes()).context("ask the other service")?;
    Ok(socket)
}

fn hear(socket: &UdpSocket) -> Result<()> {
    socket.recv(&mut [0; 16]).context("hear from the other service")?;
    Ok(())
}

/// A listener for checks on every address, with room for `backlog` connections.
fn listener(backlog: i32) -> Result<TcpListener> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT))?;
    listen(&socket, backlog)?;
    Ok(socket.into())
}

/// The answer to an HTTP request, as long as that and with its path.
fn http_answer(request: &[u8]) -> Option<Vec<u8>> {
    let path = request.strip_prefix(b"GET /")?.get(..HTTP_PATH_BYTES)?;
    Some([b"HTTP/1.1 200 ", path, b"\r\n\r\n ".as_slice()].concat())
}

fn receive_datagram(socket: &UdpSocket) -> Result<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; 2048];
    let (length, from) = socket.recv_from(&mut buffer).context("receive a check")?;
    Ok((buffer.get(..length).unwrap_or_default().to_vec(), from))
}
