//! Bulk traffic at a fixed rate, for a bounded time; where a send buffer is full, slower.

use super::super::message::{Announcement, Order, Sent, announce, announce_fault, obey_orders};
use super::set_comm;
use anyhow::{Context, Result};
use rustix::thread::gettid;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::thread::{Builder, scope, sleep};
use std::time::{Duration, Instant};

/// Options of `lab role flood`.
#[derive(Debug, clap::Args)]
pub struct FloodArgs {
    /// Where to; nobody needs to listen.
    #[arg(long)]
    to: SocketAddrV4,
    /// How many sockets, each with its own send buffer and thread.
    #[arg(long, default_value_t = 1)]
    sockets: usize,
    /// Rate of all sockets together, Mbit/s.
    #[arg(long)]
    mbit: u32,
    /// Bytes of each datagram.
    #[arg(long, default_value_t = 1000)]
    bytes: usize,
    /// Datagrams that a socket sends in a row, before it waits for the next time to send.
    #[arg(long, default_value_t = 1)]
    burst: u32,
    /// Each socket sends smaller datagrams than the one before.
    #[arg(long)]
    mixed: bool,
}

/// Headers of a datagram: Ethernet, IPv4 and UDP.
const HEADERS: u64 = 14 + 20 + 8;

pub(super) fn flood(args: FloodArgs) -> Result<()> {
    set_comm("backup")?;
    let bind = |_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("bind a socket");
    let sockets = (0..args.sockets).map(bind).collect::<Result<Vec<_>>>()?;
    announce(Announcement::Ready);
    obey_orders(|order| match order {
        Order::Fault { ms } => send_from_all(&args, &sockets, Duration::from_millis(ms)),
        _ => Ok(()),
    })
}

fn send_from_all(args: &FloodArgs, sockets: &[UdpSocket], time: Duration) -> Result<()> {
    let mut started = Ok(());
    announce_fault(|| {
        scope(|scope| {
            started = (0..).zip(sockets).try_for_each(|(index, socket)| {
                let bytes = args.bytes_of(index);
                let send =
                    move || announce(Announcement::Sent(send_until(args, (socket, bytes), Instant::now() + time)));
                Builder::new().name("backup-upload".to_owned()).spawn_scoped(scope, send).map(drop)
            });
        });
    });
    started.context("start a sender")
}

fn send_until(args: &FloodArgs, (socket, bytes): (&UdpSocket, usize), end: Instant) -> Sent {
    let datagram = vec![0; bytes];
    let mut sent = Sent { tid: gettid().as_raw_nonzero().get().unsigned_abs(), datagrams: 0, bytes: 0 };
    let mut due = Instant::now();
    while Instant::now() < end {
        for _ in 0..args.burst {
            // ENOBUFS is the drop that some cases are about.
            if socket.send_to(&datagram, args.to).is_ok() {
                sent.datagrams += 1;
                sent.bytes += bytes as u64 + HEADERS;
            }
        }
        due += args.pause();
        sleep(due.saturating_duration_since(Instant::now()));
    }
    sent
}

impl FloodArgs {
    /// Bytes of a datagram of this socket.
    const fn bytes_of(&self, index: usize) -> usize {
        if self.mixed { self.bytes * (self.sockets - index) / self.sockets } else { self.bytes }
    }

    /// Time between two bursts of one socket.
    fn pause(&self) -> Duration {
        let bytes_per_second = f64::from(self.mbit) * 1e6 / 8.0;
        Duration::from_secs_f64((self.bytes * self.sockets) as f64 * f64::from(self.burst) / bytes_per_second)
    }
}
