//! A slow disk: an ext4 image on a loop device that can be frozen, for writing and for reading.
//!
//! The throttle is set on the root of the blkio controller, so that writeback by the kernel's own
//! threads is frozen too. It would outlive the lab, as would the limit of dirty pages, so this
//! program is not on the leash: it waits for the lab's end, however that comes, and takes
//! everything back. Should it be killed too, the next one that gets the loop device does.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::file::{COLD, COLD_BYTES};
use super::{set_comm, spawn};
use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise, major, minor, stat};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::Duration;

/// Where the blkio controller of version 1 limits writes for all.
pub(in crate::lab) const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";
/// The same for reads.
const READ_THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device";
/// What may be dirty of this device only, where that is limited, bytes.
const DIRTY_BYTES: &str = "2000000";
/// Pages that the bulk writer writes; a part of them is more than may be dirty.
const BULK_PAGES: usize = 1024;
/// Who writes nothing for so long is held back.
const HELD_BACK: Duration = Duration::from_millis(50);
/// Size of the image.
const IMAGE_BYTES: u64 = 64 << 20;

/// Options of `lab role disk`.
#[derive(Debug, clap::Args)]
pub struct DiskArgs {
    /// Directory that is made for it, and removed.
    #[arg(long)]
    dir: PathBuf,
    /// Let few of its pages be dirty while it is frozen.
    #[arg(long)]
    limit_dirty: bool,
    /// Begin to write back data of a file while it is frozen; the journal's commit waits for it.
    #[arg(long)]
    write_data: bool,
    /// Write to a file while it is frozen, as much as may be dirty and more.
    #[arg(long)]
    write_much: bool,
}

/// A mounted image. What it did to the host is undone when it is dropped.
#[derive(Debug)]
struct Disk {
    args: DiskArgs,
    device: String,
}

pub(super) fn disk(args: DiskArgs) -> Result<()> {
    set_comm("disk-guardian")?;
    rustix::process::setsid().context("leave the terminal")?;
    let disk = Disk::mount(args)?;
    announce(Announcement::Ready);
    obey_orders(|order| match order {
        Order::Fault { ms } => disk.freeze(Duration::from_millis(ms)),
        _ => Ok(()),
    })
}

impl Disk {
    fn mount(args: DiskArgs) -> Result<Self> {
        let (image, mount) = (args.dir.join("image"), args.dir.join("mount"));
        fs::create_dir_all(&mount).with_context(|| format!("create {}", mount.display()))?;
        let file = File::create(&image).context("create the image")?;
        file.set_len(IMAGE_BYTES).context("size the image")?;
        let mut disk = Self { args, device: String::new() };
        succeed(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        // Blocks that are allocated as written make the journal's commit wait for their data.
        let options = if disk.args.write_data { "loop,nodioread_nolock" } else { "loop" };
        succeed(Command::new("mount").args(["-o", options]).arg(&image).arg(&mount))?;
        disk.device = device_of(&mount)?;
        disk.release()?;
        let mut cold = File::create(mount.join(COLD)).context("create a file")?;
        cold.write_all(&vec![7; COLD_BYTES]).and_then(|()| cold.sync_all()).context("fill the file")?;
        Ok(disk)
    }

    fn freeze(&self, time: Duration) -> Result<()> {
        let mut outcome = self.hold();
        announce_fault(|| {
            sleep(time);
            outcome = std::mem::replace(&mut outcome, Ok(())).and(self.release());
        });
        outcome
    }

    fn hold(&self) -> Result<()> {
        if self.args.limit_dirty {
            self.set("max_bytes", DIRTY_BYTES)?;
            self.set("strict_limit", "1")?;
        }
        self.limit(1)?;
        if self.args.write_data {
            self.write_data()?;
        }
        if self.args.write_much { self.write_much() } else { Ok(()) }
    }

    /// A thread that writes on until it is held back, and ends after the freeze. Comes back when it
    /// has made most of what may be dirty.
    fn write_much(&self) -> Result<()> {
        let mut file = File::create(self.args.dir.join("mount/bulk")).context("create a file")?;
        let (tell, told) = channel();
        spawn("bulk-writer", move || {
            for page in 0..BULK_PAGES {
                file.write_all(&[9; 4096]).context("write to the file")?;
                let _ = tell.send(page);
            }
            Ok(())
        })?;
        while told.recv_timeout(HELD_BACK).is_ok() {}
        Ok(())
    }

    /// The advice begins writeback and does not wait for it.
    fn write_data(&self) -> Result<()> {
        let mut file = File::create(self.args.dir.join("mount/data")).context("create a file")?;
        file.write_all(&vec![3; COLD_BYTES]).context("fill the file")?;
        fadvise(&file, 0, None, Advice::DontNeed).context("begin to write the file back")
    }

    /// Back to what the kernel begins with; each step is tried, whatever became of the others.
    fn release(&self) -> Result<()> {
        let dirty = self.set("strict_limit", "0").and(self.set("max_ratio", "100"));
        self.limit(0).and(dirty)
    }

    /// Bytes per second that may be written, and read; 0 lifts the limit.
    fn limit(&self, bytes: u32) -> Result<()> {
        let limit =
            |file| fs::write(file, format!("{} {bytes}", self.device)).with_context(|| format!("write to {file}"));
        limit(THROTTLE).and(limit(READ_THROTTLE))
    }

    /// Sets what the device's pages are allowed.
    fn set(&self, what: &str, value: &str) -> Result<()> {
        let path = format!("/sys/class/bdi/{}/{what}", self.device);
        fs::write(&path, value).with_context(|| format!("write {value} to {path}"))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Each step is tried, whatever became of the others.
        if !self.device.is_empty() {
            let _ = self.release();
        }
        let _ = Command::new("umount").arg("--lazy").arg(self.args.dir.join("mount")).status();
        let _ = fs::remove_dir_all(&self.args.dir);
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
