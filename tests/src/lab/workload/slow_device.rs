//! A block device that takes long over each request: a `null_blk`, whose timer completes them.
//!
//! It would outlive the lab, so this program is not on the leash; the machine is the lab's alone.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::file::COLD;
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

/// Options of `lab role slow-device`.
#[derive(Debug, clap::Args)]
pub struct SlowDeviceArgs {
    /// Directory that is made for it, and removed.
    #[arg(long)]
    dir: PathBuf,
    /// Time that it takes over a request.
    #[arg(long)]
    delay_ms: u64,
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
        let device = Self { settings, dir: args.dir.clone() };
        let time = (args.delay_ms * 1_000_000).to_string();
        for (name, value) in [("irqmode", BY_TIMER), ("completion_nsec", &time), ("size", SIZE_MIB), ("power", "1")] {
            fs::write(device.settings.join(name), value).with_context(|| format!("set its {name}"))?;
        }
        let file = args.dir.join("mount").join(COLD);
        fs::create_dir_all(args.dir.join("mount")).with_context(|| format!("create {}", args.dir.display()))?;
        symlink(device.node()?, file).context("link to the device")?;
        Ok(device)
    }

    /// Newer kernels name it as its settings are.
    fn node(&self) -> Result<PathBuf> {
        let index = fs::read_to_string(self.settings.join("index")).context("read its index")?;
        let own = self.settings.file_name().map(|name| Path::new("/dev").join(name));
        let node = own.filter(|node| node.exists());
        Ok(node.unwrap_or_else(|| PathBuf::from(format!("/dev/nullb{}", index.trim()))))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Whatever is left of it ends with the machine.
        let _ = fs::write(self.settings.join("power"), "0");
        let _ = fs::remove_dir(&self.settings);
        let _ = fs::remove_dir_all(&self.dir);
    }
}
