//! Other services: each answers questions after as many milliseconds as the question says.

use super::super::message::{Announcement, announce, obey_orders};
use super::{set_comm, spawn};
use anyhow::{Context, Result};
use std::net::{SocketAddrV4, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

/// Options of `lab role backend`.
#[derive(Debug, clap::Args)]
pub struct BackendArgs {
    /// Where it listens, each place a service of its own.
    #[arg(long, required = true)]
    listen: Vec<SocketAddrV4>,
}

pub(super) fn backend(args: &BackendArgs) -> Result<()> {
    set_comm("backend")?;
    for listen in &args.listen {
        let socket = UdpSocket::bind(listen).context("bind the service's socket")?;
        spawn("backend-worker", move || answer_late(&socket))?;
    }
    announce(Announcement::Ready);
    obey_orders(|_| Ok(()))
}

fn answer_late(socket: &UdpSocket) -> Result<()> {
    let mut buffer = [0; 16];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).context("receive a question")?;
        let question = std::str::from_utf8(buffer.get(..length).unwrap_or_default()).context("read a question")?;
        sleep(Duration::from_millis(question.parse().context("read a question")?));
        socket.send_to(b"done", from).context("answer a question")?;
    }
}
