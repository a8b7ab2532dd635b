//! A slow disk: an ext4 image on a loop device, whose writes can be frozen.
//!
//! The throttle is set on the root of the blkio controller, so that writeback by the kernel's own
//! threads is frozen too. It would outlive the lab, so this program is not on the leash: it waits
//! for the lab's end, however that comes, and takes everything back.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::set_comm;
use anyhow::{Context, Result, ensure};
use rustix::fs::{major, minor, stat};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Where the blkio controller of version 1 limits writes for all.
pub(in crate::lab) const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
/// The same for reads.
const READ_THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device";
/// Size of the image.
const IMAGE_BYTES: u64 = 64 << 20;

/// Options of `lab role disk`.
#[derive(Debug, clap::Args)]
pub struct DiskArgs {
    /// Directory that is made for it, and removed.
    #[arg(long)]
    dir: PathBuf,
}

/// A mounted image. What it did to the host is undone when it is dropped.
#[derive(Debug)]
struct Disk {
    dir: PathBuf,
    device: String,
}

pub(super) fn disk(args: DiskArgs) -> Result<()> {
    set_comm("disk-guardian")?;
    rustix::process::setsid().context("leave the terminal")?;
    let disk = Disk::mount(args.dir)?;
    announce(Announcement::Ready);
    obey_orders(|order| match order {
        Order::Fault { ms } => disk.freeze(Duration::from_millis(ms)),
        _ => Ok(()),
    })
}

impl Disk {
    fn mount(dir: PathBuf) -> Result<Self> {
        let (image, mount) = (dir.join("image"), dir.join("mount"));
        fs::create_dir_all(&mount).with_context(|| format!("create {}", mount.display()))?;
        let mut disk = Self { dir, device: String::new() };
        let file = File::create(&image).context("create the image")?;
        file.set_len(IMAGE_BYTES).context("size the image")?;
        succeed(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        succeed(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mount))?;
        disk.device = device_of(&mount)?;
        Ok(disk)
    }

    fn freeze(&self, time: Duration) -> Result<()> {
        let mut outcome = self.limit(1);
        announce_fault(|| {
            sleep(time);
            outcome = std::mem::replace(&mut outcome, Ok(())).and(self.limit(0));
        });
        outcome
    }

    /// Bytes per second that may be written, and read; 0 lifts the limit.
    fn limit(&self, bytes: u32) -> Result<()> {
        let limit =
            |file| fs::write(file, format!("{} {bytes}", self.device)).with_context(|| format!("write to {file}"));
        [THROTTLE, READ_THROTTLE].into_iter().try_for_each(limit)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Each step is tried, whatever became of the others.
        if !self.device.is_empty() {
            let _ = self.limit(0);
        }
        let _ = Command::new("umount").arg("--lazy").arg(self.dir.join("mount")).status();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Major and minor number of the device that a directory lies on.
fn device_of(dir: &Path) -> Result<String> {
    let device = stat(dir).context("look at the mounted image")?.st_dev;
    Ok(format!("{}:{}", major(device), minor(device)))
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("start {}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", command.get_program().display(), said.trim());
    Ok(())
}
