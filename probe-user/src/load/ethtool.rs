//! What drivers of network interfaces count (`ethtool -S`), which only an ioctl tells.
//! Layouts: <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/ethtool.h>.
//!
//! The names are asked for once; after that a read is one call. All within the namespace in which the
//! caller is.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    ops::Range,
};

use rustix::{
    fd::OwnedFd,
    ioctl::{Opcode, Updater, ioctl},
    net::netdevice,
};
use zerocopy::IntoBytes;

use super::Attachment;
use crate::level::Measure;

const SIOCETHTOOL: Opcode = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x3;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETH_SS_STATS: u32 = 1;
/// In `struct ethtool_drvinfo`: its `bus_info`, and its `n_stats`.
const BUS: Range<usize> = 100..132;
const COUNT: usize = 180;
/// Bytes of a counter's name.
const NAME: usize = 32;
/// Where names begin behind `struct ethtool_gstrings`, and counters behind `struct ethtool_stats`.
const NAMES: usize = 12;
const VALUES: usize = 8;
/// Most counters of a driver: one that has more is not read.
const MOST: usize = 1 << 14;
/// The kernel writes as many as the driver has by then, whatever room it is told of, so there is room for
/// four times the most. Pages that it does not write to cost nothing.
const WORDS: usize = 4 * MOST * NAME / 8 + 2;
/// Most interfaces whose counters' names are remembered; beyond it, all are asked for anew.
const MOST_DEVICES: usize = 4_096;

/// Reads what drivers count.
#[derive(Debug)]
pub struct Drivers {
    buffer: Box<[u64]>,
    devices: HashMap<Attachment, Device>,
}

/// What is known of a device and its driver.
#[derive(Debug, Clone, Default)]
struct Device {
    bus: String,
    /// Counters that it has.
    count: usize,
    /// Those that matter, by name: where they stand. Some drivers call those of all queues the same.
    chosen: BTreeMap<String, Vec<usize>>,
}

/// What a driver tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Where the device is, such as `0000:00:03.0`; empty or something else if it is on no bus.
    pub bus: String,
    /// Counters that matter, by name; those of the same name as their sum.
    pub counters: Vec<(String, u64)>,
}

impl Default for Drivers {
    fn default() -> Self {
        Self { buffer: vec![0; WORDS].into_boxed_slice(), devices: HashMap::new() }
    }
}

impl Drivers {
    /// What the driver of an interface tells, by any socket of its namespace; nothing where it counts
    /// nothing.
    ///
    /// # Errors
    ///
    /// When the interface is gone.
    pub(super) fn read(&mut self, socket: &OwnedFd, attachment: &Attachment) -> io::Result<Told> {
        let name = netdevice::index_to_name(socket, attachment.ifindex)?;
        let (known, mut device) = match self.devices.remove_entry(attachment) {
            Some(known) => known,
            None => (attachment.clone(), self.learn(socket, &name)?),
        };
        let mut told = Told { bus: device.bus.clone(), counters: Vec::new() };
        if !device.chosen.is_empty() {
            if self.counts(socket, &name, device.count)? != device.count {
                device = self.learn(socket, &name)?;
                // The buffer holds names now.
                self.counts(socket, &name, device.count)?;
            }
            told.counters = self.chosen(&device);
        }
        if self.devices.len() >= MOST_DEVICES {
            self.devices.clear();
        }
        self.devices.insert(known, device);
        Ok(told)
    }

    /// Asks for the names.
    fn learn(&mut self, socket: &OwnedFd, name: &str) -> io::Result<Device> {
        // A device without ethtool operations has neither.
        if self.ask(socket, name, [ETHTOOL_GDRVINFO, 0, 0]).is_err() {
            return Ok(Device::default());
        }
        let bus = text(self.bytes(BUS));
        let count = self.number(COUNT);
        if count == 0 || count > MOST {
            return Ok(Device { bus, ..Device::default() });
        }
        let len = u32::try_from(count).unwrap_or(0);
        self.ask(socket, name, [ETHTOOL_GSTRINGS, ETH_SS_STATS, len])?;
        let count = self.number(8).min(MOST);
        let mut chosen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for index in 0..count {
            let name = text(self.bytes(NAMES + index * NAME..NAMES + (index + 1) * NAME));
            if Measure::of_counter(&name).is_some() {
                chosen.entry(name).or_default().push(index);
            }
        }
        Ok(Device { bus, count, chosen })
    }

    /// Asks for all counters, of which there were so many; how many there are.
    fn counts(&mut self, socket: &OwnedFd, name: &str, count: usize) -> io::Result<usize> {
        self.ask(socket, name, [ETHTOOL_GSTATS, u32::try_from(count).unwrap_or(0), 0])?;
        Ok(self.number(4))
    }

    /// Those that matter, of the counters in the buffer.
    fn chosen(&self, device: &Device) -> Vec<(String, u64)> {
        let value = |index: &usize| self.buffer.get(VALUES / 8 + index).copied().unwrap_or(0);
        let sum = |places: &[usize]| places.iter().map(value).fold(0, u64::saturating_add);
        device.chosen.iter().map(|(name, places)| (name.clone(), sum(places))).collect()
    }

    /// One call, whose answer is in the buffer.
    fn ask(&mut self, socket: &OwnedFd, name: &str, [command, first, second]: [u32; 3]) -> io::Result<()> {
        let words = [command, first, second];
        self.buffer.as_mut_bytes()[..NAMES].copy_from_slice(words.as_bytes());
        let mut request = Request { name: [0; 16], data: self.buffer.as_mut_ptr(), unused: [0; 2] };
        // The last byte stays zero.
        request.name[..15].iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        #[expect(unsafe_code, reason = "no safe crate offers the counters of drivers")]
        // SAFETY: the request has the size and layout of `struct ifreq`, and the buffer outlives the call.
        // What the kernel writes has the size of `struct ethtool_drvinfo`, or is one item for each counter
        // of the driver: there is room for four times as many as any is asked for.
        unsafe {
            ioctl(socket, Updater::<SIOCETHTOOL, Request>::new(&mut request))?;
        }
        Ok(())
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.buffer.as_bytes().get(range).unwrap_or_default()
    }

    fn number(&self, at: usize) -> usize {
        let bytes = self.bytes(at..at + 4).first_chunk().copied().unwrap_or_default();
        u32::from_ne_bytes(bytes) as usize
    }
}

/// `struct ifreq` with a pointer.
#[repr(C)]
struct Request {
    name: [u8; 16],
    data: *mut u64,
    unused: [u64; 2],
}

/// Text up to the first NUL, without the space around it.
fn text(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_owned()
}
