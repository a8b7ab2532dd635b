//! Bulk traffic at a fixed rate, for a bounded time; where a send buffer is full, slower.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::set_comm;
use anyhow::{Context, Result};
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
}

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
            started = sockets.iter().try_for_each(|socket| {
                let send = move || send_until(args, socket, Instant::now() + time);
                Builder::new().name("backup-upload".to_owned()).spawn_scoped(scope, send).map(drop)
            });
        });
    });
    started.context("start a sender")
}

fn send_until(args: &FloodArgs, socket: &UdpSocket, end: Instant) {
    let datagram = vec![0; args.bytes];
    let mut due = Instant::now();
    while Instant::now() < end {
        for _ in 0..args.burst {
            // ENOBUFS is the drop that some cases are about.
            let _ = socket.send_to(&datagram, args.to);
        }
        due += args.pause();
        sleep(due.saturating_duration_since(Instant::now()));
    }
}

impl FloodArgs {
    /// Time between two bursts of one socket.
    fn pause(&self) -> Duration {
        let bytes_per_second = f64::from(self.mbit) * 1e6 / 8.0;
        Duration::from_secs_f64((self.bytes * self.sockets) as f64 * f64::from(self.burst) / bytes_per_second)
    }
}
