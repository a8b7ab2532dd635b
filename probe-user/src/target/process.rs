//! Processes as discovery needs them: one pass over `/proc`.
//!
//! Processes come and go during the pass; one that vanishes is left out. What may not be read is
//! counted, so that the result can say what is missing. Arguments and environment are never read.

use super::model::Gap;
use rustix::fs::{AtFlags, FileType, StatxFlags};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) tgid: u32,
    pub(super) comm: String,
    /// Inode of its network namespace; `None` if it may not be read.
    pub(super) netns: Option<u64>,
    pub(super) cgroup: String,
    /// Names of the tun and tap interfaces whose files it holds.
    pub(super) taps: Vec<String>,
    /// The macvtap interfaces whose files it holds.
    pub(super) macvtaps: Vec<MacvtapFile>,
    /// It holds a KVM virtual machine.
    pub(super) kvm: bool,
}

/// A macvtap whose file a process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MacvtapFile {
    pub(super) name: String,
    pub(super) ifindex: u32,
    /// How many such files the process has open.
    pub(super) opened: u32,
}

/// All processes that `/proc` shows, and what it does not show.
pub(super) fn scan() -> (Vec<Process>, Vec<Gap>) {
    let mut refused = 0;
    let macvtap = macvtap_major(&fs::read_to_string("/proc/devices").unwrap_or_default());
    let tgids = numbered(Path::new("/proc")).collect::<Vec<_>>();
    let processes = tgids.iter().filter_map(|tgid| read(*tgid, macvtap, &mut refused)).collect();
    let gaps = [refused_gap(refused, tgids.len()), hidden_gap()];
    (processes, gaps.into_iter().flatten().collect())
}

fn refused_gap(refused: usize, all: usize) -> Option<Gap> {
    (refused > 0).then(|| Gap {
        what: format!("open files and namespaces of {refused} of {all} processes"),
        reason: format!("permission denied{}", as_root("CAP_SYS_PTRACE")),
    })
}

/// What would help, unless it is so already: some processes are protected even from root.
pub(super) fn as_root(capability: &str) -> String {
    if rustix::process::geteuid().is_root() { String::new() } else { format!("; run as root ({capability})") }
}

/// With `hidepid` other users' processes are absent, so their absence proves nothing.
fn hidden_gap() -> Option<Gap> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let options = mounts.lines().find_map(|line| line.split_once(" /proc proc ").map(|(_, rest)| rest))?;
    let hides = ["hidepid=1", "hidepid=2", "hidepid=invisible", "hidepid=noaccess", "hidepid=ptraceable"];
    let hidden = hides.iter().any(|option| options.contains(option)) && !rustix::process::geteuid().is_root();
    hidden.then(|| Gap {
        what: "processes of other users".to_owned(),
        reason: "/proc is mounted with hidepid; run as root".to_owned(),
    })
}

fn read(tgid: u32, macvtap: Option<u32>, refused: &mut usize) -> Option<Process> {
    let root = PathBuf::from(format!("/proc/{tgid}"));
    let comm = text(&root.join("comm"))?.trim_end().to_owned();
    let netns = fs::read_link(root.join("ns/net"));
    if netns.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        *refused += 1;
    }
    let files = open_files(&root, macvtap);
    Some(Process {
        tgid,
        comm,
        netns: netns.ok().and_then(|link| inode_of_link(&link)),
        cgroup: cgroup(&root),
        taps: files.taps,
        macvtaps: files.macvtaps,
        kvm: files.kvm,
    })
}

/// Text of a file of `/proc`. Names of processes may hold any byte.
pub(super) fn text(file: &Path) -> Option<String> {
    fs::read(file).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Numbered entries of a directory of `/proc`; none if it may not be read.
pub(super) fn numbered(directory: &Path) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Number in a link such as `net:[4026531840]`.
pub(super) fn inode_of_link(link: &Path) -> Option<u64> {
    link.to_str()?.split_once('[')?.1.strip_suffix(']')?.parse().ok()
}

/// cgroup path of a process or thread directory of `/proc`; empty if unknown.
pub(super) fn cgroup(directory: &Path) -> String {
    text(&directory.join("cgroup")).map_or_else(String::new, |text| cgroup_of(&text))
}

/// The path in the v2 hierarchy; where that is the root and v1 is in use beside it (hybrid
/// layout), the v1 cpu controller's, then systemd's, then whichever names one.
fn cgroup_of(text: &str) -> String {
    let rows = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let path_of = |controller: &str| {
        let mut paths = rows().filter(|(names, _)| names.split(',').any(|name| name == controller));
        paths.next().map(|(_, path)| path)
    };
    let known = [path_of(""), path_of("cpu"), path_of("name=systemd")];
    let specific = known.iter().flatten().copied().find(|path| *path != "/");
    let any = || rows().map(|(_, path)| path).find(|path| *path != "/");
    specific.or_else(any).or(known[0]).or(known[1]).unwrap_or_default().to_owned()
}

#[derive(Default)]
struct OpenFiles {
    taps: Vec<String>,
    macvtaps: Vec<MacvtapFile>,
    kvm: bool,
}

impl OpenFiles {
    fn opens(&mut self, (name, ifindex): (String, u32)) {
        match self.macvtaps.iter_mut().find(|file| file.ifindex == ifindex && file.name == name) {
            Some(known) => known.opened += 1,
            None => self.macvtaps.push(MacvtapFile { name, ifindex, opened: 1 }),
        }
    }
}

fn open_files(process: &Path, macvtap: Option<u32>) -> OpenFiles {
    let mut found = OpenFiles::default();
    for number in numbered(&process.join("fd")) {
        let file = process.join(format!("fd/{number}"));
        let Ok(link) = fs::read_link(&file) else { continue };
        found.kvm |= link.as_os_str() == "anon_inode:kvm-vm";
        if link.as_os_str() == "/dev/net/tun" {
            found.taps.extend(tap_of(&process.join(format!("fdinfo/{number}"))));
        }
        if let Some(major) = macvtap.filter(|_| link.is_absolute())
            && let Some(opened) = macvtap_at(&file, major)
        {
            found.opens(opened);
        }
    }
    found.taps.sort();
    found.taps.dedup();
    found
}

/// The kernel's number for the files of macvtaps; `None` where it has none.
fn macvtap_major(devices: &str) -> Option<u32> {
    devices.lines().find_map(|line| line.trim().strip_suffix(" macvtap")?.parse().ok())
}

/// Name and index of the macvtap of an open file, by the number of its device: the file may have any path.
/// Its status is that which the kernel has at hand; the server of a file system is not asked.
fn macvtap_at(file: &Path, major: u32) -> Option<(String, u32)> {
    let status = rustix::fs::statx(rustix::fs::CWD, file, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    let is_device = FileType::from_raw_mode(status.stx_mode.into()) == FileType::CharacterDevice;
    if !is_device || status.stx_rdev_major != major {
        return None;
    }
    named_macvtap(&fs::read_link(format!("/sys/dev/char/{major}:{}", status.stx_rdev_minor)).ok()?)
}

/// A device is called `…/NAME/tapIFINDEX`, or `…/NAME/macvtap/tapIFINDEX`.
/// <https://github.com/torvalds/linux/blob/v6.12/drivers/net/macvtap.c> (`macvtap_device_event`)
fn named_macvtap(device: &Path) -> Option<(String, u32)> {
    let ifindex = device.file_name()?.to_str()?.strip_prefix("tap")?.parse().ok()?;
    let mut above = device.parent()?;
    if above.file_name()? == "macvtap" && above.parent()?.parent()?.file_name()? == "net" {
        above = above.parent()?;
    }
    Some((above.file_name()?.to_str()?.to_owned(), ifindex))
}

fn tap_of(fdinfo: &Path) -> Option<String> {
    tap_in(&fs::read_to_string(fdinfo).ok()?)
}

/// The interface in an fdinfo text: the line `iff:`.
fn tap_in(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.strip_prefix("iff:"))?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Which of `processes` hold one of the sockets with these inodes.
pub(super) fn holders_of_sockets(processes: &[u32], inodes: &HashSet<u64>) -> Vec<u32> {
    let holds = |tgid: &u32| {
        let files = PathBuf::from(format!("/proc/{tgid}/fd"));
        numbered(&files).any(|number| is_one_of(&files.join(number.to_string()), inodes))
    };
    if inodes.is_empty() { Vec::new() } else { processes.iter().copied().filter(holds).collect() }
}

fn is_one_of(file: &Path, inodes: &HashSet<u64>) -> bool {
    let link = fs::read_link(file).ok();
    let socket = link.as_deref().filter(|link| link.to_str().is_some_and(|text| text.starts_with("socket:")));
    socket.and_then(inode_of_link).is_some_and(|inode| inodes.contains(&inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_is_named_by_its_fdinfo() {
        assert_eq!(tap_in("pos:\t0\nflags:\t0104002\nmnt_id:\t27\niff:\tvltap0\n").as_deref(), Some("vltap0"));
        assert_eq!(tap_in("pos:\t0\niff:\t\n"), None);
        assert_eq!(tap_in("pos:\t0\n"), None);
    }

    #[test]
    fn a_macvtap_is_named_by_its_device() {
        let named = |device: &str| named_macvtap(Path::new(device));
        let expected = Some(("vm0".to_owned(), 17));
        assert_eq!(named("../../devices/virtual/net/vm0/tap17"), expected);
        assert_eq!(named("../../devices/virtual/net/vm0/macvtap/tap17"), expected);
        assert_eq!(named("../../devices/virtual/net/macvtap/tap17"), Some(("macvtap".to_owned(), 17)));
        assert_eq!(named("../../devices/virtual/net/vm0/tap"), None);
        let devices = "Character devices:\n 10 misc\n246 macvtap\n\nBlock devices:\n  7 loop\n";
        assert_eq!((macvtap_major(devices), macvtap_major("246 vtap\n")), (Some(246), None));
    }

    #[test]
    fn cgroup_v2_wins_unless_it_is_only_the_root_of_a_hybrid_layout() {
        assert_eq!(cgroup_of("0::/system.slice/a.service\n"), "/system.slice/a.service");
        let hybrid = "4:memory:/m\n3:cpu,cpuacct:/machine/vm1\n1:name=systemd:/s\n0::/\n";
        assert_eq!(cgroup_of(hybrid), "/machine/vm1");
        assert_eq!(cgroup_of("3:cpu,cpuacct:/docker/abc\n0::/unified\n"), "/unified");
        assert_eq!(cgroup_of("9:memory:/only:here\n3:cpu:/\n"), "/only:here");
        assert_eq!(cgroup_of("0::/\n"), "/");
        assert_eq!(cgroup_of(""), "");
    }

    #[test]
    fn a_namespace_link_holds_its_inode() {
        assert_eq!(inode_of_link(Path::new("net:[4026531840]")), Some(4_026_531_840));
        assert_eq!(inode_of_link(Path::new("/dev/null")), None);
    }

    #[test]
    fn this_process_is_found() {
        let (processes, _) = scan();
        let own = processes.iter().find(|process| process.tgid == std::process::id()).expect("this process");
        assert!(own.netns.is_some());
    }
}
