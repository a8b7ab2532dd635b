//! A block device that takes long over requests, or in front of which they are held back: a
//! `null_blk`, whose timer completes them.
//!
//! It would outlive the lab, so this program is not on the leash; the machine is the lab's alone.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::file::COLD;
use super::mapper::Mapped;
use super::set_comm;
use anyhow::{Context, Result};
use rustix::mount::{MountFlags, mount};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Where such devices are made.
const CONFIG: &str = "/sys/kernel/config";
/// Requests are completed by a timer, and each after the time that is set.
/// <https://docs.kernel.org/block/null_blk.html>
const BY_TIMER: &str = "2";
/// Its size, MiB.
const SIZE_MIB: &str = "64";
/// Writes that fill the device's room so often, one after the other.
pub(super) const TURNS: usize = 10;
/// Requests that the device takes at once, or that may be written at once.
pub(super) const ROOM: usize = 16;
/// With so many, three quarters of them, the most that may ever be written at once, are hardly more.
/// <https://github.com/torvalds/linux/blob/v6.12/block/blk-rq-qos.c#L106> (`rq_depth_scale_up`)
const ROOM_FOR_MORE: usize = 22;

/// What holds a request up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Hold {
    /// The device itself.
    Device,
    /// A mapped device on it, which hands them on late.
    Mapped,
    /// Its limit of buffered writes in flight (wbt).
    Writes,
    /// It takes no more requests at once.
    Tags,
    /// A limit of the server's cgroup, `io.max`.
    GroupLimit,
    /// What requests of the server's cgroup cost, `io.cost`.
    GroupCost,
}

impl Hold {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Mapped => "mapped",
            Self::Writes => "writes",
            Self::Tags => "tags",
            Self::GroupLimit => "group-limit",
            Self::GroupCost => "group-cost",
        }
    }

    /// Whether it is the server's cgroup that does.
    #[must_use]
    pub const fn is_by_group(self) -> bool {
        matches!(self, Self::GroupLimit | Self::GroupCost)
    }

    /// How long the device itself takes over a request, so that the fault lasts for `ms`.
    const fn device_ms(self, ms: u64) -> u64 {
        match self {
            Self::Device => ms,
            Self::Writes | Self::Tags => ms / TURNS as u64,
            Self::Mapped | Self::GroupLimit | Self::GroupCost => 1,
        }
    }

    /// Requests that the device takes at once.
    const fn room(self) -> usize {
        if matches!(self, Self::Writes) { ROOM_FOR_MORE } else { ROOM }
    }
}

/// Options of `lab role slow-device`.
#[derive(Debug, clap::Args)]
pub struct SlowDeviceArgs {
    /// Directory that is made for it, and removed.
    #[arg(long)]
    dir: PathBuf,
    /// For how long a fault lasts.
    #[arg(long)]
    delay_ms: u64,
    /// What holds requests up.
    #[arg(long, default_value = "device")]
    hold: Hold,
}

pub(super) fn slow_device(args: &SlowDeviceArgs) -> Result<()> {
    set_comm("disk-guardian")?;
    rustix::process::setsid().context("leave the terminal")?;
    let device = Device::make(args)?;
    announce(Announcement::Ready);
    let lasted = obey_orders(|order| {
        if let Order::Fault { ms } = order {
            // It is slow all the time, and used only now.
            announce_fault(|| sleep(Duration::from_millis(ms)));
        }
        Ok(())
    });
    drop(device);
    lasted
}

/// The device, and the file by which the server finds it.
#[derive(Debug)]
struct Device {
    /// What lies on it is removed first.
    mapped: Option<Mapped>,
    settings: PathBuf,
    dir: PathBuf,
}

impl Device {
    fn make(args: &SlowDeviceArgs) -> Result<Self> {
        let devices = Path::new(CONFIG).join("nullb");
        if !devices.exists() {
            mount("configfs", CONFIG, "configfs", MountFlags::empty(), None).context("mount configfs")?;
        }
        let settings = devices.join(format!("nullb-{}", std::process::id()));
        fs::create_dir(&settings).with_context(|| format!("create {}", settings.display()))?;
        let mut device = Self { mapped: None, settings, dir: args.dir.clone() };
        device.start(args)?;
        let mut node = device.node()?;
        set_queue(&node, "scheduler", "none")?;
        if matches!(args.hold, Hold::Writes | Hold::Tags) {
            // What it aims at for reads, of which there are none here; 0 is no limit of writes at all.
            set_queue(&node, "wbt_lat_usec", if args.hold == Hold::Writes { "2000" } else { "0" })?;
        }
        if args.hold == Hold::Mapped {
            let mapped = Mapped::delaying(&node, args.delay_ms)?;
            node = device.mapped.insert(mapped).node()?;
        }
        let file = args.dir.join("mount").join(COLD);
        fs::create_dir_all(args.dir.join("mount")).with_context(|| format!("create {}", args.dir.display()))?;
        symlink(node, file).context("link to the device")?;
        Ok(device)
    }

    fn start(&self, args: &SlowDeviceArgs) -> Result<()> {
        let time = (args.hold.device_ms(args.delay_ms) * 1_000_000).to_string();
        let room = args.hold.room().to_string();
        let settings = [
            ("irqmode", BY_TIMER),
            ("completion_nsec", &time),
            ("size", SIZE_MIB),
            ("submit_queues", "1"),
            ("hw_queue_depth", &room),
            ("power", "1"),
        ];
        settings.iter().try_for_each(|(name, value)| {
            fs::write(self.settings.join(name), value).with_context(|| format!("set its {name}"))
        })
    }

    /// Newer kernels name it as its settings are.
    fn node(&self) -> Result<PathBuf> {
        let index = fs::read_to_string(self.settings.join("index")).context("read its index")?;
        let own = self.settings.file_name().map(|name| Path::new("/dev").join(name));
        let node = own.filter(|node| node.exists());
        Ok(node.unwrap_or_else(|| PathBuf::from(format!("/dev/nullb{}", index.trim()))))
    }
}

/// Sets what is known as `name` of a device's queue.
fn set_queue(node: &Path, name: &str, value: &str) -> Result<()> {
    let device = node.file_name().context("a device has a name")?;
    let file = Path::new("/sys/block").join(device).join("queue").join(name);
    fs::write(&file, value).with_context(|| format!("write {value} to {}", file.display()))
}

impl Drop for Device {
    fn drop(&mut self) {
        drop(self.mapped.take());
        // Whatever is left of it ends with the machine.
        let _ = fs::write(self.settings.join("power"), "0");
        let _ = fs::remove_dir(&self.settings);
        let _ = fs::remove_dir_all(&self.dir);
    }
}
