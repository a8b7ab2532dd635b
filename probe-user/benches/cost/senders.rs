//! What it costs to count who sends through a transmit queue, beside the boundary stamps alone.
//!
//! A thread sends datagrams through a veth pair to nobody, and the kernel tells how long the two
//! programs ran that count: its own account adds the same to both sides, and what else the machine
//! does is in neither. Connected sockets have one flow, the packets of others are looked at.

use std::{net::UdpSocket, process::Command};

use anyhow::{Context as _, Result, ensure};
use aya::sys::{Stats, enable_stats};
use probe_user::load::{Attached, Attachment, Request, load};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use crate::{
    frame,
    report::{Figure, Row},
    samples::Samples,
};

/// Datagrams of one measurement, and measurements with and without.
const DATAGRAMS: u32 = 50_000;
const ROUNDS: usize = 7;
/// Packets a second for which the share of a CPU is told.
const RATE: f64 = 200_000.0;
/// The programs that count.
const PROGRAMS: [&str; 2] = ["stamp_egress", "start_xmit"];
const NEAR: &str = "bench0";
const FAR: &str = "bench1";
const PEER: &str = "10.88.0.2:9";

pub(crate) fn run() -> Result<Vec<Row>> {
    let ifindex = make_pair()?;
    let result = measure(ifindex);
    ip(&format!("link del {NEAR}"))?;
    result
}

fn measure(ifindex: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (connected, what) in [(true, "a connected socket"), (false, "a socket with many peers")] {
        let socket = UdpSocket::bind("10.88.0.1:0").context("bind a socket")?;
        if connected {
            socket.connect(PEER)?;
        }
        let (mut without, mut added) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let base = run_ns(ifindex, false, &socket, connected)?;
            without.push(base);
            added.push(run_ns(ifindex, true, &socket, connected)? - base);
        }
        let samples = |all| Samples::new(all).context("nothing was measured");
        let (without, added) = (samples(without)?, samples(added)?);
        let ns = added.median();
        let percent = ns * RATE / 1e9 * 100.0;
        let base = Row::new(format!("{what}: both programs with stamps alone, the account included"), "ns", without);
        let more = Row::new(format!("{what}: counting its senders adds"), "ns", added);
        let share = Row::new(format!("{what}: the same at 200,000 packets/s, of a CPU"), "%", Samples::one(percent));
        rows.extend([
            base,
            more.figure(Figure::at_most(ns, 40.0, "ns")),
            share.figure(Figure::at_most(percent, 5.0, "%")),
        ]);
    }
    Ok(rows)
}

/// How long the programs run for a datagram.
fn run_ns(ifindex: u32, senders: bool, socket: &UdpSocket, connected: bool) -> Result<f64> {
    let interface = Attachment { netns: None, ifindex, name: NEAR.to_owned() };
    let request = Request { rules: vec![frame::rule()], interfaces: vec![interface], senders, ..Request::default() };
    let attached = load(&request)?;
    let _account = enable_stats(Stats::RunTime).context("the kernel does not account for programs")?;
    send(socket, connected, DATAGRAMS / 10)?;
    let before = accounts(&attached);
    send(socket, connected, DATAGRAMS)?;
    let each = accounts(&attached)
        .into_iter()
        .zip(before)
        .map(|((runs, ns), (runs_before, ns_before))| (ns - ns_before) / (runs - runs_before).max(1.0));
    Ok(each.sum())
}

/// Runs and nanoseconds of each of the programs.
fn accounts(attached: &Attached) -> Vec<(f64, f64)> {
    let runs = attached.runs();
    let of = |name: &&str| {
        let found = runs.iter().find(|(program, ..)| program == *name);
        found.map_or((0.0, 0.0), |(_, runs, time)| (*runs as f64, time.as_secs_f64() * 1e9))
    };
    PROGRAMS.iter().map(of).collect()
}

fn send(socket: &UdpSocket, connected: bool, count: u32) -> Result<()> {
    let datagram = [0; 100];
    for _ in 0..count {
        if connected {
            socket.send(&datagram)?
        } else {
            socket.send_to(&datagram, PEER)?
        };
    }
    Ok(())
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
