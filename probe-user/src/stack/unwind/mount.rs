//! Whether a mapped file can be read without waiting for anybody: a file system that another
//! process or another host answers for may never answer, and who waits for it cannot be ended.

use std::fs::{self, File};
use std::io::Read;
use std::sync::LazyLock;

/// File systems that this kernel answers for from its own memory and disks.
const LOCAL: [&str; 17] = [
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "ramfs", "rootfs", "squashfs", "erofs",
    "iso9660", "vfat", "exfat", "jfs",
];

/// Most text of mounts that is read.
const MOST_TEXT: u64 = 4 << 20;

/// The user namespace that the agent is in.
static OURS: LazyLock<Option<String>> = LazyLock::new(|| user_namespace("self"));

/// Whether the file system of a mount of a process is known to answer. A mount that neither the
/// process nor the agent sees is not.
pub(super) fn answers(tgid: u32, mount: u64) -> bool {
    let process = tgid.to_string();
    // A process with another root sees less than what is mapped.
    ["self", &process].iter().any(|from| match mounts(from).as_deref().and_then(|mounts| kind(mounts, mount)) {
        // What lies below it cannot be seen; with a user namespace of its own, anybody lays it.
        Some("overlay") => OURS.is_some() && user_namespace(&process) == *OURS,
        Some(kind) => LOCAL.contains(&kind),
        None => false,
    })
}

fn mounts(process: &str) -> Option<String> {
    let mut mounts = String::new();
    let file = File::open(format!("/proc/{process}/mountinfo")).ok()?;
    file.take(MOST_TEXT).read_to_string(&mut mounts).ok()?;
    Some(mounts)
}

/// The kind of a mount's file system, from the text of `mountinfo`.
fn kind(mounts: &str, mount: u64) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let (number, rest) = line.split_once(' ')?;
        let (_, behind) = rest.split_once(" - ").filter(|_| number.parse() == Ok(mount))?;
        behind.split(' ').next()
    })
}

fn user_namespace(process: &str) -> Option<String> {
    let link = fs::read_link(format!("/proc/{process}/ns/user")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_number() {
        let mounts = "\
24 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
240 24 0:44 / /home/a\\040-\\040b rw - fuse.sshfs x@y:/ rw,user_id=0
";
        assert_eq!(kind(mounts, 24), Some("ext4"));
        assert_eq!(kind(mounts, 240), Some("fuse.sshfs"));
        assert_eq!(kind(mounts, 2), None);
    }

    #[test]
    fn no_file_system_with_a_server_answers() {
        for kind in ["fuse", "fuseblk", "fuse.sshfs", "nfs", "nfs4", "cifs", "9p", "ceph", "virtiofs"] {
            assert!(!LOCAL.contains(&kind), "{kind}");
        }
    }
}
