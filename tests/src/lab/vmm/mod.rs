//! Real guests: QEMU with a kernel of Debian's, on the tap of the observed host; by software
//! emulation, or by KVM with the tap in the kernel's hands (vhost).
//!
//! [`role`] is the process that keeps one: it [`boot`]s the machine, passes orders on to the server
//! in it, and does what an operator would by [`qmp`]. [`threads`] finds the threads of the VMM, so
//! that the lab can do to one of them what a neighbour would. Guest and host have clocks of their
//! own: all times are the host's.

mod boot;
mod qmp;
pub(super) mod role;
pub(super) mod threads;
pub(super) mod watched;

use super::case::Fault;
use super::halves::Inside;
use super::leash::Leash;
use super::process::{Launcher, Process};
use super::workload::ServeFault;
use super::world::{GUEST_NIC, VNIC, World};
use anyhow::{Context, Result, ensure};
use role::Trouble;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use threads::Threads;
use virtual_machine::{Kernel, Qemu, Release, Store};

pub use boot::{MODULES, PACKET_MODULES};

/// The kernel of the guests: what boots fastest.
pub const KERNEL: Release = Release::OLDEST;
/// Until a guest answers: two boots, of which the first may hang.
const START_PATIENCE: Duration = Duration::from_secs(310);
/// Until a keeper has ended its guest.
const TIDY_PATIENCE: Duration = Duration::from_secs(5);

/// A virtual machine whose guest answers the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guest {
    /// The fault inside the guest's server; without one, the server is stopped on order.
    pub fault: Option<ServeFault>,
    /// Its virtual CPUs.
    pub vcpus: usize,
    /// Queues of its NIC, and of the tap.
    pub queues: u32,
    /// Work of every check, thousands of multiplications.
    pub work_rounds: u64,
    /// The same as time of its CPU, ms.
    pub work_ms: u64,
    /// The only virtual CPU that its server runs on; its devices interrupt the first.
    pub cpu: Option<usize>,
    /// For so long each packet passes filters when it comes in, µs of its CPU.
    pub packet_us: u64,
    /// The threads of its VMM that run on CPU 1, and no other threads of it do.
    pub apart: Option<Part>,
    /// Packets that may wait in the tap, if not the usual 1,000.
    pub ring_packets: Option<u32>,
    /// Its code runs on the host's processors, and the kernel moves its packets.
    pub kvm: bool,
}

impl Guest {
    /// One that is emulated, with one virtual CPU and one queue, whose server has this fault.
    #[must_use]
    pub const fn with(fault: ServeFault) -> Self {
        Self {
            fault: Some(fault),
            vcpus: 1,
            queues: 1,
            work_rounds: 0,
            work_ms: 0,
            cpu: None,
            packet_us: 0,
            apart: None,
            ring_packets: None,
            kvm: false,
        }
    }
}

/// A part of a VMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The threads of the virtual CPUs.
    Vcpus,
    /// The thread that moves packets between the tap and the guest, without KVM.
    MainLoop,
    /// The kernel's threads that do so with it.
    Vhost,
}

/// QEMU and the guests' kernel, fetched if they are not in the cache.
///
/// # Errors
/// They cannot be had.
pub fn fetched() -> Result<(Store, Qemu, Kernel)> {
    virtual_machine::permitted()?;
    ensure!(Path::new("/dev/net/tun").exists(), "this host has no /dev/net/tun");
    let store = Store::open()?;
    let qemu = store.qemu().context("no QEMU")?;
    let kernel = store.kernel(KERNEL).with_context(|| format!("no kernel {}", KERNEL.name))?;
    Ok((store, qemu, kernel))
}

/// Boots the guest behind the world's tap, and waits until its server answers. `file` lies on the
/// case's disk; `inside` watches in the guest.
///
/// # Errors
/// It does not boot.
pub(super) fn start(
    launcher: &Launcher,
    world: &World,
    guest: Guest,
    fault: Fault,
    file: Option<&Path>,
    inside: Option<&Inside>,
) -> Result<Process> {
    if guest.queues > 1 {
        world.divide_tap()?;
    }
    if let Some(packets) = guest.ring_packets {
        world.host.run("ip", &format!("link set {VNIC} txqueuelen {packets}"))?;
    }
    let leash = Leash { nice: Some(-10), ..world.host.leash() };
    let mut command = keeper(launcher, &leash, "observed", guest, trouble(fault));
    command.arg(format!("--tap={VNIC}")).arg(format!("--queues={}", guest.queues));
    command.args(world.guest_settings(GUEST_NIC).map(|setting| format!("--ip={setting}")));
    command.args(file.map(|file| format!("--file={}", file.display())));
    if let Some(Inside { whylag, arguments }) = inside {
        command.arg("--whylag").arg(whylag).args(arguments.iter().map(|argument| format!("--inside={argument}")));
    }
    ready(command, guest)
}

/// Boots another guest, without a NIC, which computes on order on CPU 1 ahead of the first.
///
/// # Errors
/// It does not boot.
pub(super) fn start_neighbour(launcher: &Launcher) -> Result<Process> {
    let guest = Guest { apart: Some(Part::Vcpus), ..Guest::with(ServeFault::LockComputing) };
    let leash = Leash { nice: Some(-19), ..Leash::default() };
    ready(keeper(launcher, &leash, "neighbour", guest, Trouble::Serve), guest)
}

const fn trouble(fault: Fault) -> Trouble {
    match fault {
        Fault::Paused => Trouble::Pause,
        Fault::GuestDiskSlow => Trouble::SlowDisk,
        Fault::DirtyLimit => Trouble::Dump,
        Fault::FrozenDisk => Trouble::Plug,
        _ => Trouble::Serve,
    }
}

fn keeper(launcher: &Launcher, leash: &Leash, name: &str, guest: Guest, trouble: Trouble) -> Command {
    let args = [format!("--name={name}"), format!("--trouble={}", trouble.name())];
    let mut command = launcher.role_command(leash, "vmm", args);
    command.arg(format!("--vcpus={}", guest.vcpus)).arg(format!("--work-rounds={}", guest.work_rounds));
    command.args(guest.fault.map(|fault| format!("--fault={}", fault.name())));
    command.arg(format!("--work-ms={}", guest.work_ms)).arg(format!("--packet-us={}", guest.packet_us));
    command.args(guest.cpu.map(|cpu| format!("--cpu={cpu}")));
    command.args(guest.kvm.then_some("--kvm"));
    command
}

fn ready(keeper: Command, guest: Guest) -> Result<Process> {
    let keeper = Process::start("vmm", keeper, Stdio::piped())?;
    let keeper = keeper.tidying(TIDY_PATIENCE).ready_within(START_PATIENCE)?;
    if let Some(part) = guest.apart {
        Threads::of(keeper.id())?.set_apart(part)?;
    }
    Ok(keeper)
}
