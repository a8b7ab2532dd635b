//! A slow disk: an image on a loop device that can be frozen, for writing and for reading.
//!
//! The throttle is set on the root of the blkio controller, so that writeback by the kernel's own
//! threads is frozen too. It would outlive the lab, as would the limit of dirty pages, so this
//! program is not on the leash: it waits for the lab's end, however that comes, and takes
//! everything back. Should it be killed too, the next one that gets the loop device does.

use super::super::message::{Announcement, Order, announce, announce_fault, obey_orders};
use super::super::software::fetch::{self, library_path};
use super::file::{COLD, COLD_BYTES, read_directly};
use super::{set_comm, spawn};
use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise, major, minor, stat};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::{Duration, Instant};

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
/// Size of the image, as small as the file systems allow.
const IMAGE_BYTES: u64 = 320 << 20;
/// Size of one that another lies in.
const LOWER_BYTES: u64 = 512 << 20;

/// Readers beyond those that the device takes requests of.
const READERS_WITHOUT_TAG: usize = 8;
/// Until the device has as many requests as it takes, and between two looks at that.
const FULL_WITHIN: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);
/// Where the disk below is mounted, if there is one.
const BELOW: &str = "below";

/// What the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Medium {
    /// A device with ext4.
    Ext4,
    /// A slow device with xfs, as [`Self::OnDisk`]: what xfs writes to its log passes a throttle
    /// (`bio_issue_as_root_blkg`).
    Xfs,
    /// A device with btrfs.
    Btrfs,
    /// A device with ext4 whose bytes are in memory, so that only a freeze makes it slow.
    InMemory,
    /// A device with ext4 that is itself a file of another, which is the one that is frozen: the
    /// upper one is slow, and nothing holds its requests back.
    OnDisk,
}

impl Medium {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::OnDisk => "on-disk",
            Self::InMemory => "in-memory",
        }
    }

    /// Packages of the program that makes it, where a host may lack that.
    #[must_use]
    pub const fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 | Self::OnDisk | Self::InMemory => &[],
            Self::Xfs => &["xfsprogs", "libinih1", "liburcu8", "libblkid1", "libuuid1", "libdevmapper1.02.1"],
            Self::Btrfs => &["btrfs-progs", "liblzo2-2", "libzstd1", "zlib1g", "libblkid1", "libuuid1", "libudev1"],
        }
    }

    /// The root of those packages; they are downloaded if they are not there.
    ///
    /// # Errors
    /// They cannot be had.
    pub fn tools(self) -> Result<PathBuf> {
        fetch::bundle(self.name(), self.packages(), &[])
    }

    /// Whether it lies on another disk, which is the one that is frozen.
    const fn is_on_disk(self) -> bool {
        matches!(self, Self::OnDisk | Self::Xfs)
    }

    /// Makes the file system in a file.
    fn format(self, image: &Path) -> Result<()> {
        match self {
            Self::Ext4 | Self::OnDisk | Self::InMemory => {
                succeed(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image))
            }
            Self::Xfs => self.format_by("mkfs.xfs", &["-q", "-f"], image),
            Self::Btrfs => self.format_by("mkfs.btrfs", &["-q", "-f"], image),
        }
    }

    fn format_by(self, program: &str, args: &[&str], image: &Path) -> Result<()> {
        let root = self.tools()?;
        let mut command = Command::new(root.join("sbin").join(program));
        succeed(command.args(args).arg(image).env("LD_LIBRARY_PATH", library_path(&root)))
    }
}

/// Options of `lab role disk`.
#[derive(Debug, clap::Args)]
pub struct DiskArgs {
    /// Directory that is made for it, and removed.
    #[arg(long)]
    dir: PathBuf,
    /// What it is.
    #[arg(long, default_value = "ext4")]
    medium: Medium,
    /// Let few of its pages be dirty while it is frozen.
    #[arg(long)]
    limit_dirty: bool,
    /// Begin to write back data of a file while it is frozen; the journal's commit waits for it.
    #[arg(long)]
    write_data: bool,
    /// Write to a file while it is frozen, as much as may be dirty and more.
    #[arg(long)]
    write_much: bool,
    /// Read while it is frozen, by as many threads as its device takes requests, and more.
    #[arg(long)]
    fill_queue: bool,
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
        let (mount, below) = (args.dir.join("mount"), args.dir.join(BELOW));
        fs::create_dir_all(&mount).with_context(|| format!("create {}", mount.display()))?;
        let mut disk = Self { args, device: String::new() };
        let image = disk.args.dir.join("image");
        // Blocks that are allocated as written make the journal's commit wait for their data.
        let options = if disk.args.write_data { "loop,nodioread_nolock" } else { "loop" };
        if disk.args.medium == Medium::InMemory {
            fs::create_dir_all(&below).with_context(|| format!("create {}", below.display()))?;
            succeed(Command::new("mount").args(["-t", "tmpfs", "whylag-lab"]).arg(&below))?;
            disk.device = number(&mount_image(Medium::Ext4, &below.join("image"), options, IMAGE_BYTES, &mount)?)?;
        } else if disk.args.medium.is_on_disk() {
            fs::create_dir_all(&below).with_context(|| format!("create {}", below.display()))?;
            disk.device = number(&mount_image(Medium::Ext4, &image, options, LOWER_BYTES, &below)?)?;
            let upper = mount_image(disk.args.medium, &below.join("image"), "loop", IMAGE_BYTES, &mount)?;
            // Past the lower one's page cache.
            succeed(Command::new("losetup").arg("--direct-io=on").arg(upper))?;
        } else {
            let device = mount_image(disk.args.medium, &image, options, IMAGE_BYTES, &mount)?;
            disk.device = number(&device)?;
        }
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
        if self.args.fill_queue {
            self.fill_queue()?;
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

    /// Threads that read past the page cache. Comes back when the device has no tag left.
    fn fill_queue(&self) -> Result<()> {
        let mount = self.args.dir.join("mount");
        let device = PathBuf::from("/sys/dev/block").join(number(&device_of(&mount)?)?);
        let count = |file: &str| {
            let text = fs::read_to_string(device.join(file)).with_context(|| format!("read {file} of the device"))?;
            text.split_whitespace().next().and_then(|word| word.parse::<usize>().ok()).context("a count")
        };
        let tags = count("queue/nr_requests")?;
        for _ in 0..tags + READERS_WITHOUT_TAG {
            let path = mount.join(COLD);
            spawn("bulk-reader", move || read_directly(&path))?;
        }
        let deadline = Instant::now() + FULL_WITHIN;
        while count("inflight")? < tags {
            ensure!(Instant::now() < deadline, "the device has not taken {tags} requests within {FULL_WITHIN:?}");
            sleep(LOOK);
        }
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
        for mount in ["mount", BELOW].map(|name| self.args.dir.join(name)).iter().filter(|mount| mount.exists()) {
            let _ = Command::new("umount").arg("--lazy").arg(mount).status();
        }
        let _ = fs::remove_dir_all(&self.args.dir);
    }
}

/// Makes an image of so many bytes and mounts it; the device that it then is.
fn mount_image(medium: Medium, image: &Path, options: &str, bytes: u64, mount: &Path) -> Result<PathBuf> {
    let file = File::create(image).context("create the image")?;
    file.set_len(bytes).context("size the image")?;
    medium.format(image)?;
    succeed(Command::new("mount").args(["-o", options]).arg(image).arg(mount))?;
    device_of(mount)
}

/// The device that is mounted at a directory: files of some file systems name none.
fn device_of(dir: &Path) -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
    let at = |line: &&str| line.split(' ').nth(4) == dir.to_str();
    let line = mounts.lines().rfind(at).with_context(|| format!("nothing is mounted at {}", dir.display()))?;
    let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1));
    source.map(PathBuf::from).context("a mount without a source")
}

/// Major and minor number of a device.
pub(in crate::lab) fn number(device: &Path) -> Result<String> {
    let number = stat(device).with_context(|| format!("look at {}", device.display()))?.st_rdev;
    Ok(format!("{}:{}", major(number), minor(number)))
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("start {}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}", command.get_program().display(), said.trim());
    Ok(())
}
