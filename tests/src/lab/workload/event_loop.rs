//! A server that is one event loop: it receives datagrams, does a little work for each, and sends
//! its replies in batches, from a timer.
//!
//! While more datagrams come than it can take, the receive branch of the loop is always ready. What
//! that does to the replies is a matter of how the loop chooses between its branches.

use super::super::clock::mono_ns;
use super::super::message::{Announcement, announce};
use super::fault::compute;
use super::{MARK, PORT, spawn};
use anyhow::{Context, Result};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often replies are sent.
const FLUSH: Duration = Duration::from_millis(5);
/// A reply that waited longer for its flush is a fault of the loop's, and announced.
const OVERDUE_NS: u64 = 20_000_000;
/// Datagrams that a loop with a budget receives before it sends what is due.
const BUDGET: usize = 32;

/// How the loop chooses between receiving and sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum EventLoop {
    /// Receives first, whenever it can.
    Biased,
    /// By chance.
    Fair,
    /// Receives so many at most, then sends.
    Budgeted,
}

impl EventLoop {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Biased => "biased",
            Self::Fair => "fair",
            Self::Budgeted => "budgeted",
        }
    }
}

/// Starts the thread of the loop. Every datagram takes `work` of CPU time; checks are answered.
pub(super) fn start(kind: EventLoop, work: Duration, receive_buffer: Option<usize>) -> Result<()> {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("bind the server's socket")?;
    if let Some(bytes) = receive_buffer {
        set_socket_recv_buffer_size(&socket, bytes).context("set the receive buffer")?;
    }
    socket.set_nonblocking(true).context("make the socket non-blocking")?;
    spawn("media-loop", move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
        runtime.block_on(async {
            let mut flush = interval(FLUSH);
            flush.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let socket = UdpSocket::from_std(socket).context("hand the socket to the runtime")?;
            Media { socket, work, due: Vec::new(), oldest_ns: 0 }.turn(kind, flush).await
        })
    })
}

/// The loop's socket and the replies that are due.
struct Media {
    socket: UdpSocket,
    work: Duration,
    due: Vec<(Vec<u8>, SocketAddr)>,
    /// Since when the oldest of them is, `CLOCK_MONOTONIC`.
    oldest_ns: u64,
}

impl Media {
    async fn turn(mut self, kind: EventLoop, mut flush: Interval) -> Result<()> {
        let mut buffer = [0; 2048];
        loop {
            match kind {
                EventLoop::Biased => tokio::select! {
                    biased;
                    received = self.socket.recv_from(&mut buffer) => self.take(&buffer, received?),
                    _ = flush.tick() => self.send().await?,
                },
                EventLoop::Fair => tokio::select! {
                    received = self.socket.recv_from(&mut buffer) => self.take(&buffer, received?),
                    _ = flush.tick() => self.send().await?,
                },
                EventLoop::Budgeted => {
                    flush.tick().await;
                    while self.take_some(&mut buffer)? {
                        self.send().await?;
                    }
                    self.send().await?;
                }
            }
        }
    }

    /// Receives what its budget allows; whether there may be more.
    fn take_some(&mut self, buffer: &mut [u8]) -> Result<bool> {
        for _ in 0..BUDGET {
            match self.socket.try_recv_from(buffer) {
                Ok(received) => self.take(buffer, received),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error).context("receive a datagram"),
            }
        }
        Ok(true)
    }

    /// Does the work of one datagram; the reply to a check is due from now on.
    fn take(&mut self, buffer: &[u8], (length, from): (usize, SocketAddr)) {
        compute(self.work);
        let datagram = buffer.get(..length).unwrap_or_default();
        if datagram.starts_with(MARK) {
            if self.due.is_empty() {
                self.oldest_ns = mono_ns();
            }
            self.due.push((datagram.to_vec(), from));
        }
    }

    /// Sends what is due, and announces a fault if that was long overdue.
    async fn send(&mut self) -> Result<()> {
        let late = !self.due.is_empty() && mono_ns().saturating_sub(self.oldest_ns) > OVERDUE_NS;
        for (reply, to) in self.due.drain(..) {
            self.socket.send_to(&reply, to).await.context("answer a check")?;
        }
        if late {
            announce(Announcement::FaultBegan { at_ns: self.oldest_ns });
            announce(Announcement::FaultEnded { at_ns: mono_ns() });
        }
        Ok(())
    }
}
