//! Echo requests, of which a few are always under way: who answers them has as much to receive as it
//! can take in, however fast it is, and never more than these few in its ring.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::set_comm;
use anyhow::{Context, Result};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket, sockopt};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Options of `lab role ping`.
#[derive(Debug, clap::Args)]
pub struct PingArgs {
    /// Who is asked.
    #[arg(long)]
    to: Ipv4Addr,
    /// Requests that are under way at a time.
    #[arg(long)]
    outstanding: usize,
    /// For so long requests are sent, ms.
    #[arg(long)]
    busy_ms: u64,
    /// And then none for so long, ms.
    #[arg(long)]
    idle_ms: u64,
}

/// A request without an answer for so long is lost.
const LOST_AFTER: Duration = Duration::from_millis(50);
/// An echo request with its checksum (RFC 792), and nothing in it that tells it from others.
const REQUEST: [u8; 8] = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
/// Type of an answer, behind an IPv4 header without options.
const ANSWER: (usize, u8) = (20, 0);

pub(super) fn ping(args: &PingArgs) -> Result<()> {
    set_comm("ping-flood")?;
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).context("open a raw socket")?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(LOST_AFTER)).context("set a timeout")?;
    announce(Announcement::Ready);
    obey_orders(|order| match order {
        Order::Fault { ms } => {
            let mut outcome = Ok(());
            announce_fault(|| outcome = flood(args, &socket, Duration::from_millis(ms)));
            outcome
        }
        _ => Ok(()),
    })
}

fn flood(args: &PingArgs, socket: &OwnedFd, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        ask(args, socket, (Instant::now() + Duration::from_millis(args.busy_ms)).min(end))?;
        sleep(Duration::from_millis(args.idle_ms));
    }
    Ok(())
}

/// Each answer makes room for a request.
fn ask(args: &PingArgs, socket: &OwnedFd, end: Instant) -> Result<()> {
    let to = SocketAddrV4::new(args.to, 0);
    let mut open = 0;
    while Instant::now() < end {
        while open < args.outstanding {
            sendto(socket, &REQUEST, SendFlags::empty(), &to).context("send an echo request")?;
            open += 1;
        }
        let mut answer = [0; 64];
        match recv(socket, &mut answer, RecvFlags::empty()) {
            Ok(_) => open -= usize::from(answer[ANSWER.0] == ANSWER.1),
            // They are lost.
            Err(_) => open = 0,
        }
    }
    Ok(())
}
