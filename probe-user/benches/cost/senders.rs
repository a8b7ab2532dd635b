//! What it costs to count who sends through a transmit queue, beside the boundary stamps alone.
//!
//! A thread sends datagrams through a veth pair to nobody; its CPU time holds what the kernel does
//! for each, the programs included. Connected sockets have one flow, others are looked at closer.

use std::{net::UdpSocket, process::Command};

use anyhow::{Context as _, Result, ensure};
use probe_user::load::{Attachment, Request, load};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use crate::{
    frame,
    pair::{Tries, take_turns},
    report::{Figure, Row},
    samples::{Samples, cpu_time, each_ns},
};

/// Datagrams of one measurement.
const DATAGRAMS: u32 = 200_000;
/// Packets a second for which the share of a CPU is told.
const RATE: f64 = 200_000.0;
const NEAR: &str = "bench0";
const FAR: &str = "bench1";
const PEER: &str = "10.88.0.2:9";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Connected,
    Unconnected,
}

pub(crate) fn run() -> Result<Vec<Row>> {
    let ifindex = make_pair()?;
    let result = measure(ifindex);
    ip(&format!("link del {NEAR}"))?;
    result
}

fn measure(ifindex: u32) -> Result<Vec<Row>> {
    let mut subjects = vec![Tries::new(Subject::Connected), Tries::new(Subject::Unconnected)];
    take_turns(&mut subjects, |subject| {
        let socket = UdpSocket::bind("10.88.0.1:0").context("bind a socket")?;
        if subject == Subject::Connected {
            socket.connect(PEER)?;
        }
        let send = |senders| with_programs(ifindex, senders, || send_all(&socket, subject));
        Ok([send(false)?, send(true)?, send(false)?])
    })?;
    let mut rows = Vec::new();
    for tries in subjects {
        let what = match tries.subject {
            Subject::Connected => "a connected socket: counting its senders adds",
            Subject::Unconnected => "a socket with many peers: counting its senders adds",
        };
        rows.extend(match tries.finish() {
            Some(added) => {
                let ns = added.added.median();
                let percent = ns * RATE / 1e9 * 100.0;
                let ratio = (added.factor, "stamps alone");
                let cpu = Row::new(format!("{what}, at 200,000 packets/s"), "% of a CPU", Samples::one(percent));
                vec![
                    Row::new("a datagram with stamps alone", "ns", added.without),
                    Row::new(what, "ns", added.added)
                        .ratio(ratio.0, ratio.1)
                        .note(added.kept)
                        .figure(Figure::at_most(ns, 40.0, "ns")),
                    cpu.figure(Figure::at_most(percent, 5.0, "%")),
                ]
            }
            None => vec![Row::missing(what, "too noisy: no try was kept")],
        });
    }
    Ok(rows)
}

fn with_programs(ifindex: u32, senders: bool, send: impl FnOnce() -> Result<f64>) -> Result<f64> {
    let interface = Attachment { netns: None, ifindex, name: NEAR.to_owned() };
    let request = Request { rules: vec![frame::rule()], interfaces: vec![interface], senders, ..Request::default() };
    let attached = load(&request)?;
    let took = send();
    drop(attached);
    took
}

fn send_all(socket: &UdpSocket, subject: Subject) -> Result<f64> {
    let datagram = [0; 100];
    let begun = cpu_time();
    for _ in 0..DATAGRAMS {
        match subject {
            Subject::Connected => socket.send(&datagram)?,
            Subject::Unconnected => socket.send_to(&datagram, PEER)?,
        };
    }
    Ok(each_ns(begun, DATAGRAMS))
}

/// A pair whose far end drops what nobody there wants; the near end's index.
fn make_pair() -> Result<u32> {
    ip(&format!("link add {NEAR} type veth peer name {FAR}"))?;
    ip(&format!("addr add 10.88.0.1/24 dev {NEAR}"))?;
    ip(&format!("link set {FAR} arp off up"))?;
    ip(&format!("link set {NEAR} up"))?;
    ip(&format!("neigh replace 10.88.0.2 lladdr 02:00:00:00:00:09 dev {NEAR} nud permanent"))?;
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    netdevice::name_to_index(&socket, NEAR).context("find the interface")
}

fn ip(arguments: &str) -> Result<()> {
    let status = Command::new("ip").args(arguments.split(' ')).status().context("cannot run ip")?;
    ensure!(status.success(), "ip {arguments} failed");
    Ok(())
}
