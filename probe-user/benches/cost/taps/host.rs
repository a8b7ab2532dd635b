//! The host with many taps, the checks that come to it, and the guests that answer.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::fd::AsFd,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use etherparse::PacketBuilder;
use probe_tests::lab::{
    workload::{open_tap, turn_round},
    world::GUEST_MAC,
};
use probe_user::{
    clock::{DurNs, MonoNs},
    event::{Fact, InterfaceFact, InterfaceId, InterfaceRole, RunFact, SignatureFact, Threshold, fact_records},
    hooks::HOOKS,
    load::{Attached, Attachment, Request},
    pipeline::Collector,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{AddressFamily, SocketType, netdevice, socket},
    time::{ClockId, clock_gettime},
};

use crate::{frame, samples::cpu_time};

const TAPS: usize = 200;
/// Checks a second, over all taps.
const RATE: u64 = 1_000;
/// Of one measurement.
pub(super) const CHECKS: u64 = 3_000;
/// Not even a loaded machine answers the last checks later.
const LAST: Duration = Duration::from_millis(200);
/// The stages at the boundary.
pub(super) const STAGES: [&str; 6] = ["pnic_rx", "vnic_tx", "backend_rx", "vnic_rx", "pnic_queue", "pnic_xmit"];
/// Plays the physical NIC.
const NEAR: &str = "bench0";
const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 8];
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// As [`frame::rule`] has it, for the command line.
const SIGNATURE: &str = "udp:port=4000,at=0,bytes=\"PING\",nonce=4+8";

/// The host: its physical NIC, which is the first, and its taps.
pub(super) struct Host {
    taps: Vec<File>,
    interfaces: Vec<(Attachment, InterfaceRole)>,
}

impl Host {
    pub(super) fn make() -> Result<Self> {
        fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("let the host forward")?;
        // A new address makes a device forget its neighbours.
        let mut batch = format!("tuntap add {NEAR} mode tap\nlink set {NEAR} address {}\n", mac(NEAR_MAC));
        batch += &settle(NEAR, "10.88.0.1", "10.88.0.2", CLIENT_MAC);
        for n in 0..TAPS {
            batch += &format!("tuntap add {} mode tap\n", tap(n));
            batch += &settle(&tap(n), &format!("10.89.{n}.1"), &format!("10.89.{n}.2"), GUEST_MAC);
        }
        ip(&batch)?;
        let names: Vec<String> = std::iter::once(NEAR.to_owned()).chain((0..TAPS).map(tap)).collect();
        let taps = names.iter().map(|name| open_tap(name)).collect::<Result<_>>()?;
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        let interfaces = names.into_iter().map(|name| {
            let role = if name == NEAR { InterfaceRole::PhysicalNic } else { InterfaceRole::VirtualNic };
            let ifindex = netdevice::name_to_index(&socket, &name).context("find the interface")?;
            Ok((Attachment { netns: None, ifindex, name }, role))
        });
        Ok(Self { taps, interfaces: interfaces.collect::<Result<_>>()? })
    }

    pub(super) fn remove(self) -> Result<()> {
        drop(self.taps);
        let links: String = self.interfaces.iter().map(|(tap, _)| format!("link del {}\n", tap.name)).collect();
        ip(&links)
    }

    /// Only the programs that stamp.
    pub(super) fn request(&self) -> Request {
        let stamps = |stages: &[&str]| stages.iter().any(|stage| STAGES.contains(stage));
        let others = HOOKS.iter().filter(|hook| !hook.required && !stamps(hook.informs));
        Request {
            rules: vec![frame::rule()],
            interfaces: self.interfaces.iter().map(|(interface, _)| interface.clone()).collect(),
            excluded: others.map(|hook| hook.name.to_owned()).collect(),
            ..Request::default()
        }
    }

    /// The command that watches all of it.
    pub(super) fn command(&self, whylag: &str) -> Command {
        let mut command = Command::new(whylag);
        command.args(["attach", "--pnic", NEAR, "--signature", SIGNATURE, "--format", "text"]);
        command.args(self.interfaces.iter().skip(1).flat_map(|(tap, _)| ["--vnic".to_owned(), tap.name.clone()]));
        command
    }

    /// A collector that knows what is attached.
    pub(super) fn collector(&self, attached: &Attached) -> Result<Collector> {
        let signature =
            SignatureFact { name: "bench".to_owned(), first: 0, count: 1, rules: vec![frame::rule()], interval: None };
        let run = RunFact {
            version: "bench".to_owned(),
            wire_version: probe_wire::WIRE_VERSION,
            signatures: vec![signature],
            threshold: Threshold::Multiple(5.0),
            lost_after: DurNs::from_secs(10),
            open_report_every: DurNs::from_secs(1),
            max_open: 100_000,
        };
        let active = attached.hooks().iter().map(|state| state.hook.name.to_owned()).collect();
        let told = attached.interfaces().iter().zip(&self.interfaces).map(|(found, (_, role))| {
            let Attachment { ifindex, name, .. } = &found.attachment;
            Fact::Interface(InterfaceFact {
                id: InterfaceId { netns: found.netns_cookie, ifindex: *ifindex },
                name: name.clone(),
                role: *role,
                label: name.clone(),
                kind: "tap".to_owned(),
                tx_queues: 1,
                rx_queues: 1,
            })
        });
        let mut collector = Collector::new();
        for fact in [Fact::Run(run), Fact::Hooks { active }].into_iter().chain(told) {
            for record in fact_records(now(), &fact)? {
                collector.push(&record, &mut drop);
            }
        }
        Ok(collector)
    }

    /// Sends the checks of one measurement and has them answered, then does what is last; CPU time
    /// of both for each check, ns.
    pub(super) fn checks<T>(&self, last: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
        let over = AtomicBool::new(false);
        let (guests, sending, last) = thread::scope(|scope| {
            let guests = scope.spawn(|| self.answer(&over));
            let sender = scope.spawn(|| self.send());
            let sending = sender.join().expect("the sender does not panic");
            thread::sleep(LAST);
            let last = last();
            over.store(true, Ordering::Relaxed);
            (guests.join().expect("the guests do not panic"), sending, last)
        });
        let (answering, came_back) = guests?;
        ensure!(came_back == CHECKS, "{came_back} of {CHECKS} checks came back");
        Ok(((answering + sending?).as_secs_f64() * 1e9 / CHECKS as f64, last?))
    }

    /// A check every millisecond, to one tap after the other; the CPU time of that.
    fn send(&self) -> Result<Duration> {
        let mut line = self.taps.first().context("there is a physical NIC")?;
        let (cpu, begun) = (cpu_time(), Instant::now());
        for n in 0..CHECKS {
            let due = begun + Duration::from_nanos(n * 1_000_000_000 / RATE);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            line.write_all(&check(n)).context("send a check")?;
        }
        Ok(cpu_time().saturating_sub(cpu))
    }

    /// Plays all guests, and takes what leaves the host, until it is over; its CPU time, and how
    /// many answers have left.
    fn answer(&self, over: &AtomicBool) -> Result<(Duration, u64)> {
        let cpu = cpu_time();
        let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let (mut buffer, mut left) = ([0; 2048], 0);
        let waiting = self.taps.iter().map(|tap| PollFd::from_borrowed_fd(tap.as_fd(), PollFlags::IN));
        let mut waiting: Vec<PollFd<'_>> = waiting.collect();
        while !over.load(Ordering::Relaxed) {
            poll(&mut waiting, Some(&wait)).context("wait for the taps")?;
            let ready = |(_, waiting): &(&File, &PollFd<'_>)| waiting.revents().contains(PollFlags::IN);
            for (mut tap, _) in self.taps.iter().zip(&waiting).filter(ready) {
                let length = tap.read(&mut buffer).context("read a tap")?;
                let frame = buffer.get_mut(..length).unwrap_or_default();
                left += u64::from(frame.starts_with(&CLIENT_MAC));
                if turn_round(frame) {
                    tap.write_all(frame).context("write to a tap")?;
                }
            }
        }
        Ok((cpu_time().saturating_sub(cpu), left))
    }
}

fn tap(number: usize) -> String {
    format!("tap{number}")
}

/// Commands for a tap's address, and the only neighbour behind it.
fn settle(name: &str, own: &str, other: &str, other_mac: [u8; 6]) -> String {
    format!(
        "addr add {own}/24 dev {name}\nlink set {name} up\n\
         neigh replace {other} lladdr {} dev {name} nud permanent\n",
        mac(other_mac),
    )
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// The frame of check `n` as it comes in.
fn check(n: u64) -> Vec<u8> {
    let guest = u8::try_from(n % TAPS as u64).unwrap_or(0);
    let builder = PacketBuilder::ethernet2(CLIENT_MAC, NEAR_MAC).ipv4([10, 88, 0, 2], [10, 89, guest, 2], 64);
    let mut frame = Vec::new();
    let payload = [b"PING".as_slice(), &n.to_be_bytes()].concat();
    builder.udp(40_000, 4_000).write(&mut frame, &payload).expect("a vector takes every byte");
    frame
}

pub(super) fn now() -> MonoNs {
    let now = clock_gettime(ClockId::Monotonic);
    MonoNs(Duration::try_from(now).map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)))
}

/// Runs the lines as commands of `ip`.
fn ip(lines: &str) -> Result<()> {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().context("cannot run ip")?;
    child.stdin.take().context("ip has an input")?.write_all(lines.as_bytes())?;
    ensure!(child.wait().context("wait for ip")?.success(), "ip failed");
    Ok(())
}
