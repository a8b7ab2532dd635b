//! What is said of a device: its name, and the devices that it is made of; of a file system without a
//! block device, from where it is mounted.

use crate::event::{Fact, TaskId};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest name that is said of a mount, bytes.
const LONGEST: usize = 256;

/// What is known of the device with this number, major number << 20 | minor number, which `task` used.
/// What a file system is mounted from is no file that is looked at: its server may not answer.
pub(super) fn device_fact(number: u32, task: TaskId) -> Option<Fact> {
    let (major, minor) = (number >> 20, number & 0xf_ffff);
    if major == 0 {
        let name = mounted_from(task.tgid, &format!("{major}:{minor}"))?;
        return Some(Fact::Device { number, name, below: Vec::new() });
    }
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    Some(Fact::Device { number, name: block_name(&device)?, below: below(&device) })
}

/// The kernel's name of a block device, and of a mapped one its own.
fn block_name(device: &Path) -> Option<String> {
    let about = fs::read_to_string(device.join("uevent")).ok()?;
    let name = about.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    let mapped = fs::read_to_string(device.join("dm/name")).ok();
    Some(mapped.map_or_else(|| name.to_owned(), |mapped| format!("{name} ({})", mapped.trim())))
}

/// Numbers of the devices that one is made of, in the order of their numbers.
fn below(device: &Path) -> Vec<u32> {
    let parts = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = parts.filter_map(|part| number_in(&part.path().join("dev"))).collect();
    numbers.sort_unstable();
    numbers
}

fn number_in(file: &Path) -> Option<u32> {
    let text = fs::read_to_string(file).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
}

fn mounted_from(tgid: u32, number: &str) -> Option<String> {
    let mounts = fs::read_to_string(format!("/proc/{tgid}/mountinfo")).ok()?;
    source_of(&mounts, number).map(str::to_owned)
}

/// From where the file system with this number is mounted, by a list of mounts; `None` where that is no
/// more than a name of its type.
fn source_of<'a>(mounts: &'a str, number: &str) -> Option<&'a str> {
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(number))?;
    let (_, rest) = line.split_once(" - ")?;
    let mut words = rest.split(' ');
    let (kind, source) = (words.next()?, words.next()?);
    (source != kind && source != "none" && source.len() <= LONGEST).then_some(source)
}

#[cfg(test)]
mod tests {
    use super::source_of;

    #[test]
    fn a_file_system_without_a_device_is_told_by_its_source() {
        let mounts = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      40 21 0:45 / /home rw,nosuid shared:9 - nfs4 files.example:/home rw,vers=4.2\n\
                      41 21 0:46 / /run rw - tmpfs tmpfs rw\n\
                      42 21 0:47 / /mnt rw master:1 - btrfs /dev/loop0 rw\n";
        let source = |number| source_of(mounts, number);
        assert_eq!(source("0:45"), Some("files.example:/home"));
        assert_eq!(source("0:47"), Some("/dev/loop0"));
        assert_eq!((source("0:46"), source("0:4")), (None, None));
    }
}
