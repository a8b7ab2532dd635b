//! What discovery finds, as values.

use crate::event::{InterfaceId, MACVTAP, TAP};
use serde::Serialize;
use std::path::PathBuf;

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// Its cookie (`SO_NETNS_COOKIE`, Linux 5.14), as in every event.
    pub cookie: u64,
    /// Inode of its file in nsfs: how processes and files refer to it.
    pub inode: u64,
    /// A file through which it can be entered.
    pub path: PathBuf,
    /// Its name, if it was given one (`ip netns`).
    pub name: Option<String>,
    /// whylag itself runs in it.
    pub home: bool,
    /// Processes in it, in the order of their numbers.
    pub tgids: Vec<u32>,
}

impl Namespace {
    /// How to speak of it: the name given to it, else the path by which it is entered.
    #[must_use]
    pub fn display_name(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None if self.home => "the host".to_owned(),
            None => self.path.display().to_string(),
        }
    }
}

/// Whether an interface can pass packets (`operstate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// Ready to pass packets.
    Up,
    /// Not able to.
    Down,
    /// The device below it is down.
    LowerLayerDown,
    /// Waits for an event, such as 802.1X.
    Dormant,
    /// The driver does not say, as with tun and loopback.
    Unknown,
}

/// Offloads that change what a packet looks like at a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Offloads {
    /// Generic receive offload: packets of a flow reach the hook merged.
    pub gro: bool,
    /// Generic segmentation offload.
    pub gso: bool,
    /// TCP segmentation offload: one packet at the hook is several on the wire.
    pub tso: bool,
    /// Large receive offload, in the NIC.
    pub lro: bool,
}

/// How many queues an interface can have at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct QueueLimits {
    /// For both directions.
    pub combined: u32,
    /// For receiving only.
    pub rx: u32,
}

/// Packets that an interface's hardware rings hold, and could hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Rings {
    /// Each receive ring.
    pub rx: u32,
    /// Each transmit ring.
    pub tx: u32,
    /// Most that a receive ring could hold.
    pub most_rx: u32,
    /// Most that a transmit ring could hold.
    pub most_tx: u32,
}

/// The other interface that an interface is tied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// Its index in its own namespace.
    pub ifindex: u32,
    /// Cookie of its namespace; `None` if that namespace could not be reached.
    pub netns: Option<u64>,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Which.
    pub id: InterfaceId,
    /// Its name, unique in its namespace only.
    pub name: String,
    /// `ether` (hardware, or what poses as it), `loopback`, `tap`, `tun`, or the kernel's own
    /// word: `veth`, `bridge`, `bond`, `vlan`, `macvlan`, `macvtap`, …
    pub kind: String,
    /// Other end of a veth, lower device of a vlan, macvlan or macvtap.
    pub peer: Option<Peer>,
    /// Index of the bridge, bond or team that it is part of.
    pub master: Option<u32>,
    /// Largest packet, bytes.
    #[serde(rename = "mtu_bytes")]
    pub mtu: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// Receive queues in use; of a macvtap, those that a VM has open.
    pub rx_queues: u32,
    /// How many queues its hardware has, `None` if it did not say.
    pub queue_limits: Option<QueueLimits>,
    /// What its hardware rings hold, `None` if it did not say.
    pub rings: Option<Rings>,
    /// Mask of the CPUs that the first receive queue's work is spread over by software (RPS), `None`
    /// if unknown.
    pub receive_spread: Option<String>,
    /// Switched on by the administrator.
    pub up: bool,
    /// Able to pass packets.
    pub state: LinkState,
    /// Packets to the world outside leave by it.
    pub outward: bool,
    /// Driver of its hardware, `None` if it has none or it is unknown.
    pub driver: Option<String>,
    /// `None` if the kernel did not say (before Linux 5.8).
    pub offloads: Option<Offloads>,
    /// Processes that hold its file, for a tap, macvtap or tun.
    pub holders: Vec<u32>,
}

impl Interface {
    /// Hardware, or what the hypervisor below shows as such.
    #[must_use]
    pub fn is_physical(&self) -> bool {
        self.kind == "ether"
    }

    /// Whether a VMM has its packets from it, by a file.
    #[must_use]
    pub fn is_tap(&self) -> bool {
        self.is_macvtap() || self.kind == TAP
    }

    /// Whether it is a tap that shares another device with the host.
    #[must_use]
    pub fn is_macvtap(&self) -> bool {
        self.kind == MACVTAP
    }

    /// Up and not known to be unable to pass packets.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.up && matches!(self.state, LinkState::Up | LinkState::Unknown)
    }
}

/// Which program runs a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Vmm {
    /// QEMU.
    Qemu,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// Firecracker.
    Firecracker,
    /// crosvm.
    Crosvm,
    /// Another process that holds a tap.
    TapHolder,
}

/// What a thread of a VM does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VmThreadRole {
    /// Runs guest code.
    Vcpu,
    /// Moves packets between tap and guest, in the kernel.
    Vhost,
    /// Moves packets and blocks, in the VMM.
    Io,
    /// Everything else of the VMM; its main loop often does I/O too.
    Main,
}

/// How names of threads begin that run guest code: QEMU with `debug-threads=on`, stratovirt
/// (`CPU 0/KVM`, `ALL CPUs/TCG`), Cloud Hypervisor, libkrun (`vcpu0`), Firecracker, Dragonball,
/// crosvm, kvmtool, VirtualBox and VMware Workstation.
const VCPUS: &[&str] =
    &["CPU ", "ALL CPUs", "vcpu", "fc_vcpu", "db_vcpu", "crosvm_vcpu", "kvm-vcpu", "vmx-vcpu", "EMT-"];
/// Those of threads that move packets and blocks: QEMU's iothreads (`IO mon_iothread`) and its pool,
/// Cloud Hypervisor's, crosvm's, and the kernel's own for io_uring.
const MOVERS: &[&str] =
    &["IO ", "iothread", "iou-wrk", "_net", "_disk", "virtio_", "v_net", "v_block", "worker", "fc_api", "vring_worker"];

impl VmThreadRole {
    /// What a thread of a VMM does, as far as its name tells. A name proves nothing.
    #[must_use]
    pub fn by_name(comm: &str) -> Self {
        let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| comm.starts_with(prefix));
        if starts(VCPUS) {
            Self::Vcpu
        } else if comm.starts_with("vhost-") {
            Self::Vhost
        } else if starts(MOVERS) {
            Self::Io
        } else {
            Self::Main
        }
    }
}

/// A thread of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VmThread {
    /// Thread.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// Its part, by its name.
    pub role: VmThreadRole,
}

/// A virtual machine: a process, and the taps it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Process of the VMM.
    pub tgid: u32,
    /// Its name.
    pub comm: String,
    /// Which program it is.
    pub vmm: Vmm,
    /// Name for output: from its cgroup (libvirt, systemd), else the process' name and number.
    /// Never from its arguments.
    pub name: String,
    /// Taps it holds.
    pub taps: Vec<InterfaceId>,
    /// Its threads, kernel vhost workers of their own process (before Linux 6.4) included.
    pub threads: Vec<VmThread>,
    /// Processes of those vhost workers.
    pub vhost_tgids: Vec<u32>,
    /// Files and devices that it has open as disks of its guest, as far as that can be told.
    pub disks: Vec<Disk>,
    /// Its cgroup.
    pub cgroup: String,
}

/// What a VM has open as a disk: a block device, or a large file that it can write.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Disk {
    /// Path by which the VMM opened it.
    pub path: PathBuf,
    /// The block device that it is or lies on, such as `sda1`; its numbers where it has no name, as of
    /// some file systems.
    pub device: String,
}

/// A container: processes of one container cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Container {
    /// Its runtime's id; the name for LXC and nspawn.
    pub id: String,
    /// Name, where the host's files say one (Kubernetes' log directory).
    pub name: Option<String>,
    /// `docker`, `containerd`, `crio`, `podman`, `lxc`, `nspawn`, `unknown`.
    pub runtime: &'static str,
    /// Kubernetes pod uid, if it is part of one.
    pub pod: Option<String>,
    /// Cookie of its network namespace; `None` if that could not be reached.
    pub netns: Option<u64>,
    /// Its processes.
    pub tgids: Vec<u32>,
    /// Its cgroup.
    pub cgroup: String,
}

impl Container {
    /// Name if known, else the first twelve characters of the id.
    #[must_use]
    pub fn display_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.chars().take(12).collect())
    }

    /// Whether `--container` means it: by its name, or by the beginning of its id.
    #[must_use]
    pub fn is_called(&self, typed: &str) -> bool {
        self.name.as_deref() == Some(typed) || !typed.is_empty() && self.id.starts_with(typed)
    }

    /// Whether a word without option means it. Fewer than six characters of an id could as well
    /// be a process number or the beginning of anything.
    #[must_use]
    pub fn is_word_for(&self, typed: &str) -> bool {
        self.is_called(typed) && (typed.len() >= 6 || self.name.as_deref() == Some(typed) || self.id == typed)
    }
}

/// Something that discovery could not look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// What.
    pub what: String,
    /// Why.
    pub reason: String,
}
