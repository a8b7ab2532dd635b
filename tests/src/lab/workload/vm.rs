//! A stand-in for a virtual machine: a process behind a tap or macvtap that answers checks.
//!
//! As in a VMM, one thread moves frames and another plays the guest's CPU, so that time in the
//! ring and time in the guest are different times of different threads.

use super::super::message::{Announcement, Order, announce, obey_orders};
use super::super::world::GUEST_MAC;
use super::fault::{Armed, compute};
use super::{PORT, set_comm, spawn};
use anyhow::{Context, Result};
use rustix::ioctl::{Setter, ioctl};
use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;

/// A kind of fault of the virtual machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum VmFault {
    /// The guest computes before it answers.
    GuestComputes,
    /// The VMM's I/O thread sleeps and leaves frames in the ring.
    BackendAsleep,
}

impl VmFault {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GuestComputes => "guest-computes",
            Self::BackendAsleep => "backend-asleep",
        }
    }
}

/// Options of `lab role vm`.
#[derive(Debug, clap::Args)]
pub struct VmArgs {
    /// The tap device.
    #[arg(long)]
    tap: String,
    /// It is a macvtap.
    #[arg(long)]
    macvtap: bool,
    /// The fault that an order begins.
    #[arg(long)]
    fault: VmFault,
}

/// `struct ifreq` as `TUNSETIFF` reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

const TUNSETIFF: u32 = 0x4004_54ca;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;

pub(super) fn vm(args: &VmArgs) -> Result<()> {
    set_comm("vmm")?;
    let tap = if args.macvtap { open_macvtap(&args.tap)? } else { open_tap(&args.tap)? };
    let armed = Arc::new(Armed::default());
    let (frames, guest) = channel();
    start_guest(args.fault, &armed, tap.try_clone().context("share the tap")?, guest)?;
    start_backend(args.fault, &armed, tap, frames)?;
    announce(Announcement::Ready);
    obey_orders(|order| {
        if let Order::Fault { ms } = order {
            armed.arm(ms);
        }
        Ok(())
    })
}

fn start_backend(fault: VmFault, armed: &Arc<Armed>, mut tap: File, frames: Sender<Vec<u8>>) -> Result<()> {
    let armed = Arc::clone(armed);
    spawn("vmm-io", move || {
        let mut buffer = [0; 2048];
        loop {
            if fault == VmFault::BackendAsleep {
                armed.strike(sleep);
            }
            let length = tap.read(&mut buffer).context("read the tap")?;
            frames.send(buffer.get(..length).unwrap_or_default().to_vec()).context("the guest ended")?;
        }
    })
}

fn start_guest(fault: VmFault, armed: &Arc<Armed>, mut tap: File, frames: Receiver<Vec<u8>>) -> Result<()> {
    let armed = Arc::clone(armed);
    spawn("CPU 0/KVM", move || {
        for mut frame in frames {
            if !turn_round(&mut frame) {
                continue;
            }
            if fault == VmFault::GuestComputes {
                armed.strike(compute);
            }
            tap.write_all(&frame).context("write to the tap")?;
        }
        Ok(())
    })
}

/// Opens the queue of a tap device of the namespace that the caller is in.
///
/// # Errors
/// When there is no such device.
pub fn open_tap(name: &str) -> Result<File> {
    let tap = open(Path::new("/dev/net/tun"))?;
    take_frames(&tap, name)?;
    Ok(tap)
}

/// Opens the queue of a macvtap of the namespace that the caller is in. `/dev` has those of all namespaces,
/// each under its index, which must be no other's.
fn open_macvtap(name: &str) -> Result<File> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).context("open a socket")?;
    let index = name_to_index(&socket, name).with_context(|| format!("look for {name}"))?;
    let tap = open(Path::new(&format!("/dev/tap{index}")))?;
    take_frames(&tap, name)?;
    Ok(tap)
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).write(true).open(path).with_context(|| format!("open {}", path.display()))
}

/// Attaches a file to its device, for bare frames.
fn take_frames(tap: &File, name: &str) -> Result<()> {
    let mut request = InterfaceRequest { name: [0; 16], flags: IFF_TAP | IFF_NO_PI, rest: [0; 22] };
    for (to, from) in request.name.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which `InterfaceRequest` has the size and layout of.
    let set_interface = unsafe { Setter::<TUNSETIFF, InterfaceRequest>::new(request) };
    // SAFETY: the descriptor is that of a tap, for which TUNSETIFF is defined.
    unsafe { ioctl(tap, set_interface) }.with_context(|| format!("attach to {name}"))
}

/// Turns a check into its answer by exchanging source and destination, which leaves every
/// checksum right; whether it was a check.
pub fn turn_round(frame: &mut [u8]) -> bool {
    if !is_check(frame) {
        return false;
    }
    exchange(frame, 0, 6);
    exchange(frame, ETHERNET + 12, 4);
    exchange(frame, ETHERNET + IPV4, 2);
    true
}

fn is_check(frame: &[u8]) -> bool {
    let part = |at: usize, length: usize| frame.get(at..at + length).unwrap_or_default();
    part(0, 6) == GUEST_MAC
        && part(12, 2) == [8, 0]
        && part(ETHERNET, 1) == [0x45]
        && part(ETHERNET + 9, 1) == [17]
        && part(ETHERNET + IPV4 + 2, 2) == PORT.to_be_bytes()
        && frame.len() >= ETHERNET + IPV4 + UDP
}

/// Exchanges the `length` bytes at `at` with those behind them.
fn exchange(frame: &mut [u8], at: usize, length: usize) {
    if let Some(pair) = frame.get_mut(at..at + 2 * length) {
        pair.rotate_left(length);
    }
}

#[cfg(test)]
mod tests {
    use super::{ETHERNET, GUEST_MAC, IPV4, PORT, turn_round};

    #[test]
    fn a_check_is_turned_round_and_other_frames_are_not() {
        let mut frame = [0_u8; 60];
        frame[..6].copy_from_slice(&GUEST_MAC);
        frame[6..12].copy_from_slice(&[9; 6]);
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[ETHERNET] = 0x45;
        assert!(!turn_round(&mut frame));
        frame[ETHERNET + 9] = 17;
        frame[ETHERNET + IPV4 + 2..ETHERNET + IPV4 + 4].copy_from_slice(&PORT.to_be_bytes());
        assert!(turn_round(&mut frame));
        assert_eq!(frame[..6], [9; 6]);
        assert_eq!(frame[6..12], GUEST_MAC);
        assert_eq!(frame[ETHERNET + IPV4..ETHERNET + IPV4 + 2], PORT.to_be_bytes());
    }
}
