//! Virtual machines: which processes run one, and what their threads do.

use super::model::{Disk, Interface, Machine, VmThread, VmThreadRole, Vmm};
use super::process::{Process, numbered, text};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// VMs among the processes: known programs that hold a KVM machine or run guests by emulation,
/// and whoever else holds a tap.
pub(super) fn find(processes: &[Process], interfaces: &[Interface]) -> Vec<Machine> {
    let kernel_workers: Vec<_> =
        processes.iter().filter_map(|process| Some((process, vhost_owner(&process.comm)?))).collect();
    let machine = |process: &Process| {
        let taps =
            interfaces.iter().filter(|interface| interface.is_tap() && interface.holders.contains(&process.tgid));
        let taps: Vec<_> = taps.map(|interface| interface.id).collect();
        let vmm = vmm_of(&process.comm, process.kvm, !taps.is_empty())?;
        let workers: Vec<_> =
            kernel_workers.iter().filter(|(_, owner)| *owner == process.tgid).map(|(worker, _)| *worker).collect();
        Some(Machine {
            tgid: process.tgid,
            comm: process.comm.clone(),
            vmm,
            name: name_of(process),
            taps,
            threads: threads(process.tgid).chain(workers.iter().flat_map(|worker| threads(worker.tgid))).collect(),
            vhost_tgids: workers.iter().map(|worker| worker.tgid).collect(),
            disks: disks(process.tgid),
            cgroup: process.cgroup.clone(),
        })
    };
    let helpers: HashSet<u32> = kernel_workers.iter().map(|(worker, _)| worker.tgid).collect();
    processes.iter().filter(|process| !helpers.contains(&process.tgid)).filter_map(machine).collect()
}

/// Smaller files that a VMM can write are its logs, sockets' locks and such.
const LEAST_DISK_BYTES: u64 = 1 << 20;
/// `O_ACCMODE`, and what is no write in it.
const ACCESS: u32 = 3;
const READ_ONLY: u32 = 0;

/// What a VMM has open as disks: block devices, and large files that it can write.
fn disks(tgid: u32) -> Vec<Disk> {
    let process = PathBuf::from(format!("/proc/{tgid}"));
    let mut disks: Vec<_> = numbered(&process.join("fd")).filter_map(|number| disk(&process, number)).collect();
    disks.sort();
    disks.dedup();
    disks
}

fn disk(process: &Path, number: u32) -> Option<Disk> {
    let file = process.join(format!("fd/{number}"));
    let path = fs::read_link(&file).ok().filter(|path| path.is_absolute() && !path.starts_with("/dev/shm"))?;
    let meta = fs::metadata(&file).ok()?;
    let kind = meta.file_type();
    if kind.is_block_device() {
        return Some(Disk { path, device: device(meta.rdev()) });
    }
    let large = kind.is_file() && meta.len() >= LEAST_DISK_BYTES;
    let writes = || text(&process.join(format!("fdinfo/{number}"))).is_some_and(|info| can_write(&info));
    (large && writes()).then(|| Disk { path, device: device(meta.dev()) })
}

/// By the line `flags:`, which is octal.
fn can_write(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & ACCESS != READ_ONLY)
}

fn device(number: u64) -> String {
    let numbers = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let name = fs::read_link(format!("/sys/dev/block/{numbers}")).ok();
    let name = name.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    name.unwrap_or(numbers)
}

/// Names are cut to 15 characters by the kernel. `kvm` is QEMU's name on Proxmox.
fn vmm_of(comm: &str, kvm: bool, has_tap: bool) -> Option<Vmm> {
    match comm {
        _ if comm.starts_with("qemu-") => Some(Vmm::Qemu),
        "kvm" if kvm || has_tap => Some(Vmm::Qemu),
        _ if comm.starts_with("cloud-hyperviso") => Some(Vmm::CloudHypervisor),
        "firecracker" => Some(Vmm::Firecracker),
        "crosvm" => Some(Vmm::Crosvm),
        _ => (kvm || has_tap).then_some(Vmm::TapHolder),
    }
    .filter(|_| kvm || has_tap || !comm.ends_with("-img") && !comm.ends_with("-nbd"))
}

/// Kernel vhost workers are called after the process they work for.
fn vhost_owner(comm: &str) -> Option<u32> {
    comm.strip_prefix("vhost-")?.parse().ok()
}

fn threads(tgid: u32) -> impl Iterator<Item = VmThread> {
    let directory = PathBuf::from(format!("/proc/{tgid}/task"));
    let mut tids: Vec<_> = numbered(&directory).collect();
    tids.sort_unstable();
    tids.into_iter().filter_map(move |tid| {
        let comm = text(&directory.join(format!("{tid}/comm")))?.trim_end().to_owned();
        let role = match VmThreadRole::by_name(&comm) {
            // It has the registers of the vCPU's thread that began it (Linux 6.14).
            VmThreadRole::Main if comm.starts_with("kvm-nx-lpage") => VmThreadRole::Main,
            VmThreadRole::Main
                if text(&directory.join(format!("{tid}/syscall"))).is_some_and(|call| is_kvm_run(&call)) =>
            {
                VmThreadRole::Vcpu
            }
            role => role,
        };
        Some(VmThread { tid, role, comm })
    })
}

/// `ioctl(_, KVM_RUN)`: the request is the second argument. Names the vCPUs of a QEMU without
/// `debug-threads=on`, while they wait in it.
fn is_kvm_run(call: &str) -> bool {
    call.split(' ').nth(2) == Some("0xae80")
}

fn name_of(process: &Process) -> String {
    name_in_cgroup(&process.cgroup).unwrap_or_else(|| format!("{}-{}", process.comm, process.tgid))
}

/// The name that libvirt, systemd and Firecracker's jailer put into the path:
/// `…/machine-qemu\x2d3\x2dweb01.scope/libvirt/emulator`, `/machine/qemu-3-web01.libvirt-qemu`,
/// `/firecracker/web01`.
fn name_in_cgroup(path: &str) -> Option<String> {
    path.split('/').zip(path.split('/').skip(1).chain([""])).find_map(|(part, next)| {
        let part = part.replace("\\x2d", "-");
        let scope = part.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope"));
        let scope = scope.or_else(|| part.strip_suffix(".libvirt-qemu"));
        let numbered = scope.and_then(|rest| rest.strip_prefix("qemu-")).and_then(|rest| rest.split_once('-'));
        let jailed = (part == "firecracker" && !next.is_empty()).then_some(next);
        numbered.filter(|(number, _)| number.parse::<u32>().is_ok()).map(|(_, name)| name).or(jailed).map(str::to_owned)
    })
}

/// Whether the operator's `name` is the guest name that QEMU was started with. The arguments are
/// compared only, never kept or shown.
pub(super) fn was_started_as(tgid: u32, name: &str) -> bool {
    let arguments = fs::read(format!("/proc/{tgid}/cmdline")).unwrap_or_default();
    is_named_in(&arguments, name)
}

fn is_named_in(arguments: &[u8], name: &str) -> bool {
    let mut arguments = arguments.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let value = arguments.find(|argument| argument == "-name" || argument == "--id").and_then(|_| arguments.next());
    let first = value.as_deref().and_then(|value| value.split(',').next());
    first.is_some_and(|first| first.strip_prefix("guest=").unwrap_or(first) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_the_cgroup() {
        let name = |path| name_in_cgroup(path);
        assert_eq!(
            name(r"/machine.slice/machine-qemu\x2d3\x2dweb\x2d01.scope/libvirt/emulator").as_deref(),
            Some("web-01")
        );
        assert_eq!(name("/machine/qemu-12-db.libvirt-qemu").as_deref(), Some("db"));
        assert_eq!(name("/firecracker/vm7").as_deref(), Some("vm7"));
        assert_eq!(name("/system.slice/ssh.service"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn threads_are_known_by_their_names() {
        let roles = ["CPU 0/KVM", "fc_vcpu 1", "vcpu3", "vhost-4711", "IO iothread1", "_net1_qp0", "qemu-system-x86"]
            .map(VmThreadRole::by_name);
        use VmThreadRole::{Io, Main, Vcpu, Vhost};
        assert_eq!(roles, [Vcpu, Vcpu, Vcpu, Vhost, Io, Io, Main]);
        let vcpus = ["CPU 1/TCG", "ALL CPUs/TCG", "vcpu0", "crosvm_vcpu0", "kvm-vcpu-0", "EMT-0", "db_vcpu0"];
        assert!(vcpus.iter().all(|name| VmThreadRole::by_name(name) == Vcpu));
        assert_eq!(VmThreadRole::by_name("IO mon_iothread"), Io);
        assert!(is_kvm_run("16 0x1c 0xae80 0x0 0x7f3 0x0 0x0 0x7ffc 0x7f21\n"));
        assert!(!is_kvm_run("running\n"));
        assert_eq!((vhost_owner("vhost-4711"), vhost_owner("vhost")), (Some(4711), None));
    }

    #[test]
    fn what_can_be_written_and_is_large_is_a_disk() {
        assert!(can_write("pos:\t0\nflags:\t0100002\n") && can_write("flags:\t0140001\n"));
        assert!(!can_write("flags:\t0100000\n") && !can_write("flags:\t\n") && !can_write(""));
        let path = std::env::temp_dir().join(format!("whylag-disk-{}", std::process::id()));
        let file = fs::File::create(&path).expect("a file");
        let found = || disks(std::process::id()).into_iter().any(|disk| disk.path == path);
        assert!(!found());
        file.set_len(LEAST_DISK_BYTES).expect("room");
        assert!(found());
        fs::remove_file(&path).expect("the file");
    }

    #[test]
    fn a_holder_of_a_tap_counts_and_a_disk_tool_does_not() {
        assert_eq!(vmm_of("qemu-system-x86", false, false), Some(Vmm::Qemu));
        assert_eq!(vmm_of("qemu-img", false, false), None);
        assert_eq!(vmm_of("my-vmm", false, true), Some(Vmm::TapHolder));
        assert_eq!(vmm_of("bash", false, false), None);
        assert_eq!(vmm_of("kvm", true, false), Some(Vmm::Qemu));
    }

    #[test]
    fn the_name_given_to_qemu_is_compared() {
        let arguments = b"qemu-system-x86_64\0-name\0guest=vm1,debug-threads=on\0-m\x00256\0";
        assert!(is_named_in(arguments, "vm1"));
        assert!(!is_named_in(arguments, "256"));
        assert!(is_named_in(b"qemu\0-name\0plain\0", "plain"));
        assert!(!is_named_in(b"", ""));
    }
}
