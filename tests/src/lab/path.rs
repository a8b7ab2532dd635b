//! Faults of the way that checks take: what lies outside the host, what the host's firewall, its
//! tables of connections and of neighbours, and its NIC's queues do to them.

use super::device;
use super::firewall::{self, Rules};
use super::leash::Leash;
use super::netns::Netns;
use super::process::{Launcher, Process};
use super::workload::PORT;
use super::world::{CLIENT_NIC, PNIC, SECOND_NIC, VNIC, World};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// How many of the other neighbours there are, and how many the table takes where it is full.
const NEIGHBOURS: u8 = 2;
/// Connections that the table takes where it is full: fewer than a control period makes.
const CONNECTIONS: &str = "16";
/// With so many filters it takes about 20 µs to receive a packet.
const FILTERS: u32 = 2_000;

/// A fault of the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathFault {
    /// A NIC keeps what it sends for so long (netem).
    Delay {
        /// Whose.
        at: Place,
        /// How long.
        ms: u64,
    },
    /// A NIC loses a part of what it sends (netem).
    Loss {
        /// Whose.
        at: Place,
        /// The part.
        percent: u32,
    },
    /// A rule of nftables drops checks on the host, or answers at the client.
    Rule {
        /// Whose.
        at: Place,
    },
    /// The host tracks connections, and its table of them is full.
    FullConnectionTable,
    /// The host forgets the pod's link address, and asks for it.
    ForgottenNeighbour {
        /// Its table of neighbours has no room for the answer.
        table_is_full: bool,
    },
    /// Few packets may wait for a CPU to receive them, and datagrams for nobody come in through a
    /// second NIC faster than CPU 1 receives them, which receives the checks too.
    FullBacklog {
        /// How many may wait.
        packets: u32,
        /// Rate of the datagrams, Mbit/s.
        mbit: u32,
    },
    /// Bulk traffic from the host leaves through the NIC, and a device of the host has a shaper.
    Shaper {
        /// Which.
        nic: &'static str,
        /// Sockets that send.
        sockets: usize,
        /// Rate of the shaper, Mbit/s; twice as much is sent.
        mbit: u32,
        /// Its queue, as `tc` takes it.
        queue: &'static str,
    },
}

/// On which side of the link between the client and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The observed host.
    Host,
    /// The world outside.
    Outside,
}

impl Place {
    /// Its namespace, and its end of the link.
    fn nic(self, world: &World) -> (&Netns, &'static str) {
        match self {
            Self::Host => (&world.host, PNIC),
            Self::Outside => (&world.client, CLIENT_NIC),
        }
    }
}

impl PathFault {
    /// The same on a machine that is `factor` times slower.
    #[must_use]
    pub fn slowed(self, factor: u64) -> Self {
        let slower = |mbit: u32| (mbit / u32::try_from(factor).unwrap_or(u32::MAX)).max(1);
        match self {
            Self::Delay { at, ms } => Self::Delay { at, ms: ms * factor },
            Self::FullBacklog { packets, mbit } => Self::FullBacklog { packets, mbit: slower(mbit) },
            Self::Shaper { nic, sockets, mbit, queue } => Self::Shaper { nic, sockets, mbit: slower(mbit), queue },
            other => other,
        }
    }

    /// The program that makes its rules.
    #[must_use]
    pub const fn rules_by(self) -> Option<Rules> {
        match self {
            Self::Rule { .. } | Self::FullConnectionTable => Some(Rules::Nftables),
            _ => None,
        }
    }

    /// The NIC whose queueing discipline is the fault, or proves it.
    pub(super) fn nic(self, world: &World) -> (&Netns, &'static str) {
        match self {
            Self::Delay { at, .. } | Self::Loss { at, .. } => at.nic(world),
            Self::Shaper { nic, .. } => (&world.host, nic),
            _ => Place::Host.nic(world),
        }
    }

    /// Makes what must be there before the fault; who commits it, if the lab does not itself.
    ///
    /// # Errors
    /// The kernel or a program refuses.
    pub(super) fn prepare(self, launcher: &Launcher, world: &World) -> Result<Option<Process>> {
        match self {
            Self::Rule { at } => prepare_rule(at.nic(world).0).map(|()| None),
            Self::FullConnectionTable => track_connections(&world.host).map(|()| None),
            Self::FullBacklog { mbit, .. } => start_storm(launcher, world, mbit).map(Some),
            Self::Shaper { nic, sockets, mbit, queue } => {
                start_behind_shaper(launcher, world, nic, sockets, mbit, queue).map(Some)
            }
            Self::Delay { .. } | Self::Loss { .. } | Self::ForgottenNeighbour { .. } => Ok(None),
        }
    }

    /// What is set for the whole machine while somebody else commits the fault.
    ///
    /// # Errors
    /// There is no such setting.
    pub(super) fn setting(self) -> Result<Option<Setting>> {
        match self {
            Self::FullBacklog { packets, .. } => {
                Setting::change("net/core/netdev_max_backlog", &packets.to_string()).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Commits it for `time`; nothing where somebody else does.
    ///
    /// # Errors
    /// The kernel or a program refuses.
    pub(super) fn commit(self, world: &World, time: Duration) -> Result<()> {
        match self {
            Self::Delay { at, ms } => emulate(at.nic(world), &format!("delay {ms}ms"), "delay 0ms", time),
            Self::Loss { at, percent } => emulate(at.nic(world), &format!("loss {percent}%"), "loss 0%", time),
            Self::Rule { at } => drop_by_rule(at, world, time),
            Self::FullConnectionTable => {
                let _full = Setting::change("net/netfilter/nf_conntrack_max", CONNECTIONS)?;
                sleep(time);
                Ok(())
            }
            Self::ForgottenNeighbour { table_is_full: true } => forget_in_full_table(world, time),
            Self::ForgottenNeighbour { table_is_full: false } => {
                (0..4).try_for_each(|_| forget(world).map(|()| sleep(time / 4)))
            }
            Self::FullBacklog { .. } | Self::Shaper { .. } => Ok(()),
        }
    }
}

/// What was dropped, by the counter of the rule's table.
///
/// # Errors
/// There is none.
pub(super) fn dropped_by_rule(netns: &Netns) -> Result<u64> {
    let said = firewall::nft(netns, "list counter ip lab drops")?;
    let mut words = said.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).and_then(|count| count.parse().ok()).with_context(|| format!("no count in {said}"))
}

/// Has a NIC do to what it sends as `netem` is told, for `time`. What it holds at the end leaves
/// when its time has come.
fn emulate((netns, nic): (&Netns, &str), how: &str, quiet: &str, time: Duration) -> Result<()> {
    netns.run("tc", &format!("qdisc add dev {nic} root netem limit 10000 {how}"))?;
    sleep(time);
    netns.run("tc", &format!("qdisc change dev {nic} root netem limit 10000 {quiet}")).map(drop)
}

/// The counter outlives the rule, since it is read when the fault is over.
fn prepare_rule(netns: &Netns) -> Result<()> {
    firewall::nft(netns, "add table ip lab ; add counter ip lab drops")?;
    let chain = |name: &str| format!("add chain ip lab {name} {{ type filter hook {name} priority 0 ; }}");
    ["forward", "input"].into_iter().try_for_each(|name| firewall::nft(netns, &chain(name)).map(drop))
}

fn drop_by_rule(at: Place, world: &World, time: Duration) -> Result<()> {
    let (netns, _) = at.nic(world);
    let (chain, packets) = match at {
        Place::Host => ("forward", format!("udp dport {PORT}")),
        Place::Outside => ("input", format!("udp sport {PORT}")),
    };
    firewall::nft(netns, &format!("add rule ip lab {chain} {packets} counter name drops drop"))?;
    sleep(time);
    firewall::nft(netns, &format!("flush chain ip lab {chain}")).map(drop)
}

/// A rule that asks for the state of a connection has the host keep it.
fn track_connections(host: &Netns) -> Result<()> {
    firewall::nft(host, "add table ip lab")?;
    firewall::nft(host, "add chain ip lab input { type filter hook input priority 0 ; }")?;
    firewall::nft(host, "add rule ip lab input ct state invalid drop").map(drop)
}

fn forget(world: &World) -> Result<()> {
    world.host.run("ip", &format!("neigh del {} dev {VNIC}", world.server())).map(drop)
}

/// Neighbours that were just learned are not forgotten in favour of another.
fn forget_in_full_table(world: &World, time: Duration) -> Result<()> {
    let full = Setting::change("net/ipv4/neigh/default/gc_thresh3", &NEIGHBOURS.to_string())?;
    let [a, b, c, server] = world.server().octets();
    for other in 1..=NEIGHBOURS {
        let neighbour = format!("{a}.{b}.{c}.{} lladdr 02:00:00:00:02:{other:02x}", server + other);
        world.host.run("ip", &format!("neigh add {neighbour} dev {VNIC} nud reachable"))?;
    }
    forget(world)?;
    sleep(time);
    drop(full);
    world.host.run("ip", &format!("neigh replace {}", world.neighbour())).map(drop)
}

/// Datagrams for nobody, through a second NIC whose packets CPU 1 receives, as those of the first.
fn start_storm(launcher: &Launcher, world: &World, mbit: u32) -> Result<Process> {
    let to = world.join_again()?;
    device::slow_down(&world.host, SECOND_NIC, FILTERS)?;
    device::receive_on(&world.host, SECOND_NIC, 1)?;
    device::receive_on(&world.host, PNIC, 1)?;
    // What comes back is received elsewhere: that is not the host's.
    device::receive_on(&world.client, CLIENT_NIC, 0)?;
    let args = [format!("--to={to}:9"), "--bytes=100".into(), "--burst=64".into(), format!("--mbit={mbit}")];
    let leash = Leash { cpu: Some(0), nice: Some(-10), ..world.client.leash() };
    launcher.role(&leash, "flood", args)
}

/// Twice as much bulk traffic as a shaper of a device of the host lets through.
pub(super) fn start_behind_shaper(
    launcher: &Launcher,
    world: &World,
    nic: &str,
    sockets: usize,
    mbit: u32,
    queue: &str,
) -> Result<Process> {
    let rate = format!("rate {mbit}mbit burst 3000 limit 3000");
    world.host.run("tc", &format!("qdisc add dev {nic} root handle 1: tbf {rate}"))?;
    world.host.run("tc", &format!("qdisc add dev {nic} parent 1:1 handle 10: {queue}"))?;
    let to = format!("--to={}:9", world.client_address());
    let args = [to, format!("--sockets={sockets}"), format!("--mbit={}", 2 * mbit)];
    let leash = Leash { cpu: Some(1), nice: Some(-10), ..world.host.leash() };
    launcher.role(&leash, "flood", args)
}

/// A setting of the whole machine, which is as before when this is dropped.
#[derive(Debug)]
pub(super) struct Setting {
    file: PathBuf,
    before: String,
}

impl Setting {
    fn change(name: &str, value: &str) -> Result<Self> {
        let file = PathBuf::from("/proc/sys").join(name);
        let before = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        fs::write(&file, value).with_context(|| format!("write {value} to {}", file.display()))?;
        Ok(Self { file, before: before.trim().to_owned() })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        // It took a value before, so it takes this one; the machine is the lab's alone anyway.
        let _ = fs::write(&self.file, &self.before);
    }
}
