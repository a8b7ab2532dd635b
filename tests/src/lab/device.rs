//! Settings of network devices: features, receive CPUs, threaded NAPI, and filters that make
//! every packet expensive to receive.

use super::netns::Netns;
use anyhow::{Context, Result, ensure};
use rustix::ioctl::{Updater, ioctl};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, UnshareFlags, sched_setaffinity, unshare_unsafe};
use std::fs;
use std::path::Path;

/// A feature as `ethtool -K` sets it: `ETHTOOL_STSO` and `ETHTOOL_SGRO` of `linux/ethtool.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Feature {
    /// Segmentation by the device.
    Tso = 0x1f,
    /// Merging of received packets; with it, a veth receives by NAPI.
    Gro = 0x2c,
}

const SIOCETHTOOL: rustix::ioctl::Opcode = 0x8946;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ifreq` with a pointer.
#[repr(C)]
struct Request {
    name: [u8; 16],
    value: *mut Value,
    unused: [u64; 2],
}

/// Switches a feature of a device on or off.
///
/// # Errors
/// The device has no such feature.
pub(super) fn set_feature(netns: &Netns, device: &str, feature: Feature, on: bool) -> Result<()> {
    netns.within(|| {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).context("open a socket")?;
        let mut value = Value { command: feature as u32, data: on.into() };
        let mut request = Request { name: [0; 16], value: &raw mut value, unused: [0; 2] };
        request.name.iter_mut().zip(device.bytes()).for_each(|(to, from)| *to = from);
        // SAFETY: the request has the size and layout of `struct ifreq`, and its value outlives
        // the call.
        unsafe { ioctl(&socket, Updater::<SIOCETHTOOL, Request>::new(&mut request)) }
            .with_context(|| format!("set {feature:?} of {device}"))
    })
}

/// Has the packets that a device receives processed on one CPU (RPS).
///
/// # Errors
/// The kernel refuses it.
pub(super) fn receive_on(netns: &Netns, device: &str, cpu: usize) -> Result<()> {
    write(netns, &format!("{device}/queues/rx-0/rps_cpus"), &format!("{:x}", 1_u64 << cpu))
}

/// Has packets that are sent on these CPUs leave a device by this queue (XPS).
///
/// # Errors
/// The kernel refuses it.
pub(super) fn send_by(netns: &Netns, device: &str, queue: usize, cpus: u64) -> Result<()> {
    write(netns, &format!("{device}/queues/tx-{queue}/xps_cpus"), &format!("{cpus:x}"))
}

/// Has a veth receive by a kernel thread of its own, which runs on one CPU.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn receive_by_thread(netns: &Netns, device: &str, cpu: usize) -> Result<()> {
    set_feature(netns, device, Feature::Gro, true)?;
    write(netns, &format!("{device}/threaded"), "1")?;
    let thread = napi_thread(device).context("the kernel starts no thread for NAPI")?;
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(Some(thread), &cpus).context("bind the NAPI thread to a CPU")?;
    // The machine's other work does not disturb it.
    setpriority_process(Some(thread), -20).context("set the nice value of the NAPI thread")
}

/// The kernel thread that receives for a device of this name; of several, the newest.
pub(super) fn napi_thread(device: &str) -> Option<Pid> {
    let prefix = format!("napi/{device}-");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let named = |id: &i32| fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.starts_with(&prefix));
    processes.filter_map(number).filter(named).max().and_then(Pid::from_raw)
}

/// Writes a file below `/sys/class/net`, which shows the namespace that mounted it.
fn write(netns: &Netns, file: &str, value: &str) -> Result<()> {
    netns.within(|| {
        // SAFETY: a mount namespace of its own affects neither memory nor file descriptors.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.context("make a mount namespace")?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).context("keep mounts apart")?;
        mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).context("mount sysfs")?;
        let path = Path::new("/sys/class/net").join(file);
        fs::write(&path, value).with_context(|| format!("write {value} to {}", path.display()))
    })
}

/// Gives a device filters that match nothing: about 14 ns for each, and for every packet.
///
/// # Errors
/// `tc` fails.
pub(super) fn slow_down(netns: &Netns, device: &str, filters: u32) -> Result<()> {
    netns.run("tc", &format!("qdisc add dev {device} ingress"))?;
    let batch = self::filters(device, filters);
    let file = std::env::temp_dir().join(format!("whylag-lab-filters-{}", std::process::id()));
    fs::write(&file, batch).context("write the filters")?;
    let added = netns.run("tc", &format!("-batch {}", file.display()));
    let _ = fs::remove_file(&file);
    ensure!(added?.is_empty(), "tc has something to say about the filters");
    Ok(())
}

/// As `tc -batch` reads them, for a device with a queueing discipline for what comes in.
pub(super) fn filters(device: &str, count: u32) -> String {
    // Three keys that fit every datagram here, and one that does not.
    let filter = |number: u32| {
        format!(
            "filter add dev {device} parent ffff:fff2 protocol ip prio 1 u32 match ip protocol 17 0xff \
             match ip src 10.0.0.0/8 match ip dst 10.0.0.0/8 match ip dport {} 0xffff flowid 1:1\n",
            20_000 + number % 20_000
        )
    };
    (0..count).map(filter).collect()
}
