//! What it costs to count who sends through a transmit queue, beside the boundary stamps alone.
//!
//! A thread sends 200,000 datagrams a second through a veth pair to nobody, and what was counted is
//! taken out as often as a run does. Once the kernel tells how long the two programs ran: its own account adds
//! the same to both sides, and what else the machine does is in neither. Once it is the CPU time of
//! the thread. Connected sockets have one flow; of others, packets are looked at.

use std::{
    net::UdpSocket,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use aya::sys::{Stats, enable_stats};
use probe_user::load::{Attached, Attachment, Request, load};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use crate::{
    frame,
    pair::{Tries, take_turns},
    programs,
    report::{Figure, Row},
    samples::{Samples, cpu_time, each_ns},
};

/// Datagrams of one measurement.
const DATAGRAMS: u32 = 50_000;
/// Datagrams a millisecond.
const BURST: u32 = 200;
const PACE: Duration = Duration::from_millis(1);
/// Bursts after which what was counted is taken out: a run does so each 50 ms, which at the pace are as
/// many. On a machine that cannot keep it, packets cost what they would at the pace.
const BURSTS: u32 = 50;
/// Longest time that one measurement may take; at the pace it is a quarter of a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time for all of one kind.
const LONGEST: Duration = Duration::from_secs(150);
/// The programs that count.
const PROGRAMS: [&str; 2] = ["stamp_egress", "start_xmit"];
const NEAR: &str = "bench0";
const FAR: &str = "bench1";
const PEER: &str = "10.88.0.2:9";

/// Whose packets are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Connected,
    Free,
}

impl Sender {
    const ALL: [Self; 2] = [Self::Connected, Self::Free];

    const fn name(self) -> &'static str {
        match self {
            Self::Connected => "a connected socket",
            Self::Free => "a socket with many peers",
        }
    }

    fn socket(self) -> Result<UdpSocket> {
        let socket = UdpSocket::bind("10.88.0.1:0").context("bind a socket")?;
        if self == Self::Connected {
            socket.connect(PEER)?;
        }
        Ok(socket)
    }

    fn send(self, socket: &UdpSocket) -> Result<()> {
        let datagram = [0; 100];
        match self {
            Self::Connected => socket.send(&datagram)?,
            Self::Free => socket.send_to(&datagram, PEER)?,
        };
        Ok(())
    }
}

pub(crate) fn run() -> Result<Vec<Row>> {
    let ifindex = make_pair()?;
    let result = measure(ifindex);
    ip(&format!("link del {NEAR}"))?;
    result
}

fn measure(ifindex: u32) -> Result<Vec<Row>> {
    let mut rows = vec![empty_row()?];
    let mut tries = Sender::ALL.map(Tries::new);
    take_turns(&mut tries, LONGEST, |sender| triple(ifindex, sender, account_ns))?;
    rows.extend(tries.into_iter().flat_map(account_rows));
    let mut tries = Sender::ALL.map(Tries::new);
    take_turns(&mut tries, LONGEST, |sender| triple(ifindex, sender, cpu_ns))?;
    rows.extend(tries.into_iter().flat_map(cpu_rows));
    Ok(rows)
}

fn account_rows(tries: Tries<Sender>) -> Vec<Row> {
    let who = tries.subject.name();
    let what = format!("{who}: counting its senders adds, by the kernel's account");
    let Some(added) = tries.finish() else { return vec![Row::missing(what, TOO_NOISY)] };
    let figure = Figure::at_most(added.added.median(), 40.0, "ns");
    vec![
        Row::new(format!("{who}: both programs with stamps alone, the account included"), "ns", added.without),
        Row::new(what, "ns", added.added).figure(figure).note(added.kept),
    ]
}

fn cpu_rows(tries: Tries<Sender>) -> Vec<Row> {
    let who = tries.subject.name();
    let what = format!("{who}: counting and reading the counts adds");
    let Some(added) = tries.finish() else { return vec![Row::missing(what, TOO_NOISY)] };
    let figure = Figure::at_most(added.factor, 1.05, "×");
    vec![
        Row::new(format!("{who}: CPU time of a datagram with stamps alone"), "ns", added.without),
        Row::new(what, "ns", added.added).ratio(added.factor, "stamps alone").figure(figure).note(added.kept),
    ]
}

const TOO_NOISY: &str = "too noisy: in no try were the two measurements without it the same; \
                         wait until the machine does less else";

/// Without, with and without it.
fn triple(ifindex: u32, sender: Sender, measure: Measure) -> Result<[f64; 3]> {
    let of = |senders| Sending::start(ifindex, senders, sender).and_then(measure);
    Ok([of(false)?, of(true)?, of(false)?])
}

type Measure = fn(Sending) -> Result<f64>;

/// How long the programs run for a datagram.
fn account_ns(mut sending: Sending) -> Result<f64> {
    let _account = enable_stats(Stats::RunTime).context("the kernel does not account for programs")?;
    sending.send(DATAGRAMS / 10)?;
    let before = sending.accounts();
    sending.send(DATAGRAMS)?;
    let each = sending
        .accounts()
        .into_iter()
        .zip(before)
        .map(|((runs, ns), (runs_before, ns_before))| (ns - ns_before) / (runs - runs_before).max(1.0));
    Ok(each.sum())
}

/// CPU time of the thread that sends a datagram.
fn cpu_ns(mut sending: Sending) -> Result<f64> {
    sending.send(DATAGRAMS / 10)?;
    let begun = cpu_time();
    sending.send(DATAGRAMS)?;
    Ok(each_ns(begun, DATAGRAMS))
}

/// A sender beside programs that stamp, and perhaps count.
struct Sending {
    attached: Attached,
    sender: Sender,
    socket: UdpSocket,
    turn: u32,
}

impl Sending {
    fn start(ifindex: u32, senders: bool, sender: Sender) -> Result<Self> {
        let interface = Attachment { netns: None, ifindex, name: NEAR.to_owned() };
        let request =
            Request { rules: vec![frame::rule()], interfaces: vec![interface], senders, ..Request::default() };
        Ok(Self { attached: load(&request)?, sender, socket: sender.socket()?, turn: 0 })
    }

    /// Sends at the pace, as far as the machine can keep it.
    fn send(&mut self, count: u32) -> Result<()> {
        let begun = Instant::now();
        for burst in 0..count / BURST {
            for _ in 0..BURST {
                self.sender.send(&self.socket)?;
            }
            if burst % BURSTS == BURSTS - 1 {
                self.read()?;
            }
            let passed = begun.elapsed();
            ensure!(
                passed < PATIENCE,
                "the machine does too much else: {count} datagrams were not sent within {PATIENCE:?}; try again later"
            );
            sleep((PACE * (burst + 1)).saturating_sub(passed));
        }
        Ok(())
    }

    /// Takes out what was counted.
    fn read(&mut self) -> Result<()> {
        if self.attached.counts_senders() {
            self.turn += 1;
            self.attached.turn_senders(self.turn)?;
            self.attached.sent(self.turn)?;
        }
        Ok(())
    }

    /// Runs and nanoseconds of each of the programs.
    fn accounts(&self) -> Vec<(f64, f64)> {
        let runs = self.attached.runs();
        let of = |name: &&str| {
            let found = runs.iter().find(|(program, ..)| program == *name);
            found.map_or((0.0, 0.0), |(_, runs, time)| (*runs as f64, time.as_secs_f64() * 1e9))
        };
        PROGRAMS.iter().map(of).collect()
    }
}

/// What the account says of two programs that do nothing at the same places.
fn empty_row() -> Result<Row> {
    let mut samples = Vec::new();
    let (sender, begun) = (Sender::Connected, Instant::now());
    let socket = sender.socket()?;
    while samples.len() < 9 {
        ensure!(begun.elapsed() < LONGEST, "the machine does too much else; try again later");
        let programs = programs::empty_on_transmit(NEAR)?;
        let _account = enable_stats(Stats::RunTime).context("the kernel does not account for programs")?;
        (0..DATAGRAMS / 5).try_for_each(|_| sender.send(&socket))?;
        samples.push(programs::account_ns(&programs)?);
    }
    let samples = Samples::new(samples).context("nothing was measured")?;
    Ok(Row::new("two empty programs at the same places, by the kernel's account", "ns", samples))
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
