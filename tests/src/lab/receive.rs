//! Faults of the CPU that receives: what is due there is not run.

use super::device;
use super::leash::Leash;
use super::netns::Netns;
use super::process::{Launcher, Process};
use super::world::{CLIENT_NIC, PNIC, POD_NIC, SECOND_NIC, VNIC, World};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;

/// With so many filters it takes about 80 µs to receive a packet.
pub(super) const STORM_FILTERS: u32 = 8_000;
/// Entries of a table through which a program looks: 60 ms and more.
const NEIGHBOURS: u32 = 100_000;

/// A fault of CPU 1, which receives what is for the pod, or for a host that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveFault {
    /// A real-time thread computes there.
    Starved {
        /// Datagrams for nobody come in through a second NIC as well, more than one softirq takes in.
        storm: bool,
    },
    /// A program looks through a large table of the kernel's there, and no softirq can run meanwhile.
    LongRead {
        /// The CPU receives; if not, it only runs the server.
        receives: bool,
    },
}

impl ReceiveFault {
    /// Starts who commits it.
    ///
    /// # Errors
    /// The kernel or a program refuses.
    pub(super) fn start(self, launcher: &Launcher, world: &World) -> Result<Process> {
        if !matches!(self, Self::LongRead { receives: false }) {
            receive_on_cpu_1(world)?;
        }
        match self {
            Self::Starved { storm: true } => {
                // No more on their way than a CPU's backlog holds.
                let rate = ["--sockets=3", "--burst=24", "--mbit=40"].map(str::to_owned);
                start_storm(launcher, world, rate)
            }
            Self::Starved { storm: false } => start_hog(launcher),
            Self::LongRead { .. } => {
                // What comes back from the host is received elsewhere: that is not the host's time.
                device::receive_on(&world.client, CLIENT_NIC, 0)?;
                add_neighbours(&world.host)?;
                let leash = Leash { cpu: Some(1), nice: Some(-10), ..world.host.leash() };
                launcher.role(&leash, "look-up", [""; 0])
            }
        }
    }

    /// Starts who must be there as well.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn start_accomplice(self, launcher: &Launcher) -> Result<Option<Process>> {
        (self == Self::Starved { storm: true }).then(|| start_hog(launcher)).transpose()
    }
}

fn start_hog(launcher: &Launcher) -> Result<Process> {
    launcher.role(&Leash { cpu: Some(1), realtime: true, ..Leash::default() }, "hog", [""; 0])
}

fn receive_on_cpu_1(world: &World) -> Result<()> {
    match &world.pod {
        Some(pod) => device::receive_on(pod, POD_NIC, 1),
        None => device::receive_on(&world.host, PNIC, 1),
    }
}

/// Datagrams for nobody, through a second NIC whose packets CPU 1 receives.
pub(super) fn start_storm(launcher: &Launcher, world: &World, rate: [String; 3]) -> Result<Process> {
    let to = world.join_again()?;
    device::slow_down(&world.host, SECOND_NIC, STORM_FILTERS)?;
    device::receive_on(&world.host, SECOND_NIC, 1)?;
    // What comes back from the host is received elsewhere: that is not the host's time.
    device::receive_on(&world.client, CLIENT_NIC, 0)?;
    if let Some(pod) = &world.pod {
        device::receive_on(pod, POD_NIC, 1)?;
    }
    let args = [format!("--to={to}:9"), "--bytes=100".into()].into_iter().chain(rate);
    let leash = Leash { cpu: Some(0), nice: Some(-10), ..world.client.leash() };
    launcher.role(&leash, "flood", args)
}

/// Neighbours that are never asked for and never forgotten.
fn add_neighbours(host: &Netns) -> Result<()> {
    let device = if host.run("ip", "-br link")?.contains(VNIC) { VNIC } else { PNIC };
    let mut batch = String::new();
    for number in 0..NEIGHBOURS {
        let [_, net, high, low] = number.to_be_bytes();
        let (address, link) =
            (format!("10.{}.{high}.{low}", 98 + net), format!("02:00:63:{net:02x}:{high:02x}:{low:02x}"));
        writeln!(batch, "neigh add {address} lladdr {link} dev {device} nud permanent")?;
    }
    let file = std::env::temp_dir().join(format!("whylag-lab-neighbours-{}", std::process::id()));
    fs::write(&file, batch).context("write the neighbours")?;
    let added = host.run("ip", &format!("-batch {}", file.display()));
    let _ = fs::remove_file(&file);
    ensure!(added?.is_empty(), "ip has something to say about the neighbours");
    Ok(())
}
