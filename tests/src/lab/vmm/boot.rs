//! What a guest starts with, and its boot, to the moment when its server answers.

use super::super::leash::Leash;
use super::super::message::Announcement;
use super::super::process::Process;
use super::super::world::{GUEST_MAC, GUEST_NIC};
use super::role::VmmArgs;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use virtual_machine::{Contents, Image, Kernel, Processor, Qemu, Size, Store, last_words};

/// Until a guest is up. Nearly all boots take less than 10 s; one in some dozens hangs.
const BOOT: Duration = Duration::from_secs(60);
/// Until whylag watches inside a guest that is up.
const WATCH: Duration = Duration::from_secs(60);
/// The same by KVM, on a host that may be emulated itself, beside other work.
const KVM_BOOT: Duration = Duration::from_secs(150);
/// Boots until a guest is given up.
const ATTEMPTS: usize = 2;
/// Lines of the kernel's console that an error repeats.
const CONSOLE_LINES: usize = 6;
/// What the guest's network and disk need.
pub const MODULES: &[&str] = &["virtio_pci", "virtio_net", "virtio_blk"];
/// Programs that the guest's job runs.
const COMMANDS: &[&str] = &["ip", "ln", "tc"];
/// The lab, a kernel and a server fit in this, MiB.
const MEMORY_MIB: usize = 256;
/// The same with whylag, as large as debug builds are, packed and unpacked.
const WATCHED_MEMORY_MIB: usize = 1_536;
/// What attaching to packets needs on kernels without TCX, and what filters do.
pub const PACKET_MODULES: &[&str] = &["sch_ingress", "cls_bpf", "cls_u32"];
/// Size of the guest's disk, bytes.
const DISK_BYTES: u64 = 8 << 20;

/// The guest's disk, as QEMU knows it.
pub(super) const DISK: &str = "disk0";
/// The file of the guest whose server uses the disk: its neighbour is the disk.
const SERVED: &str = "/dev/served";
/// The guest's disk, and the name by which its server knows it.
const DISK_NAMES: [&str; 2] = ["/dev/vda", "/dev/cold"];

/// Makes what the guest starts with.
pub(super) fn image(args: &VmmArgs, store: &Store, kernel: &Kernel) -> Result<Image> {
    let programs: Vec<PathBuf> = std::iter::once(own_binary()?).chain(args.whylag.clone()).collect();
    let looked_at = args.whylag.is_some() || args.packet_us > 0;
    let modules = [MODULES, if looked_at { PACKET_MODULES } else { &[] }].concat();
    let job = job(args);
    let contents =
        Contents { programs: &programs, commands: COMMANDS, packages: &[], modules: &modules, job: &job, guests: None };
    let file = store.directory().join(format!("guest-{}", args.name));
    Image::build(file, kernel, &contents).context("make what the guest starts with")
}

/// What the guest does: its network, its disk, then its server.
fn job(args: &VmmArgs) -> Vec<Vec<String>> {
    let mut commands: Vec<String> = args.ip.iter().map(|setting| format!("ip {setting}")).collect();
    if args.has_disk() {
        commands.push(format!("ln -s {}", DISK_NAMES.join(" ")));
    }
    if args.packet_us > 0 {
        commands.push(format!("lab role filter --device={GUEST_NIC} --packet-us={}", args.packet_us));
    }
    let server = match args.fault {
        None => "stop".to_owned(),
        Some(fault) => {
            let file = if args.has_disk() { format!(" --file={SERVED}") } else { String::new() };
            let cpu = args.cpu.map_or(String::new(), |cpu| format!(" --guest-cpu={cpu}"));
            let work = match args.work_ms {
                0 => format!("--work-rounds={}", args.work_rounds),
                ms => format!("--work-ms={ms}"),
            };
            format!("serve --fault={} {work}{cpu}{file}", fault.name())
        }
    };
    let with: String = args.inside.iter().map(|argument| format!(" --with={argument}")).collect();
    commands.push(match args.whylag {
        None => format!("lab role {server}"),
        Some(_) => format!("lab role watched{with} -- {server}"),
    });
    commands.iter().map(|command| command.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Boots it, a second time if need be, and waits until its server is ready; the name of its
/// monitor's socket.
pub(super) fn boot(args: &VmmArgs, qemu: &Qemu, kernel: &Kernel, image: &Image) -> Result<(Process, String)> {
    let monitor = format!("whylag-lab-{}-{}", std::process::id(), args.name);
    let console = image.path().with_added_extension("console");
    let memory_mib = if args.whylag.is_some() { WATCHED_MEMORY_MIB } else { MEMORY_MIB };
    let size = Size { cpus: args.vcpus, memory_mib };
    let processor = if args.kvm { Processor::Kvm } else { Processor::Emulated };
    let mut machine = virtual_machine::command(qemu, kernel, image, processor, size, &console);
    machine.args(["-name", &format!("{},debug-threads=on", args.name)]);
    machine.args(["-chardev", &format!("socket,id=monitor,path={monitor},abstract=on,server=on,wait=off")]);
    machine.args(["-mon", "chardev=monitor,mode=control"]);
    machine.args(args.tap.iter().flat_map(|tap| network(tap, args.queues, args.kvm)));
    let disk_file = image.path().with_added_extension("disk");
    if args.has_disk() {
        machine.args(disk(&disk_file)?);
    }
    let boot = if args.kvm { KVM_BOOT } else { BOOT };
    let patience = if args.whylag.is_some() { boot + WATCH } else { boot };
    let mut booted = boot_once(&machine, patience);
    for _ in 1..ATTEMPTS {
        booted = booted.or_else(|_| boot_once(&machine, patience));
    }
    // QEMU has it open, or there is none.
    let _ = fs::remove_file(&disk_file);
    Ok((booted.with_context(|| said(&console))?, monitor))
}

fn boot_once(machine: &Command, patience: Duration) -> Result<Process> {
    let qemu = Process::start("QEMU", on_leash(machine)?, Stdio::piped())?;
    let deadline = Instant::now() + patience;
    while hear(&qemu, deadline)? != Announcement::Ready {}
    Ok(qemu)
}

/// A NIC behind the tap, whose queues the kernel serves, or the main loop.
fn network(tap: &str, queues: u32, vhost: bool) -> [String; 4] {
    let vhost = if vhost { "on" } else { "off" };
    let mac = GUEST_MAC.map(|octet| format!("{octet:02x}")).join(":");
    let (of_tap, of_nic) = match queues {
        1 => (String::new(), String::new()),
        // A vector for each direction of each queue, one for settings, and one for the control queue.
        many => (format!(",queues={many}"), format!(",mq=on,vectors={}", 2 * many + 2)),
    };
    [
        "-netdev".to_owned(),
        format!("tap,id={GUEST_NIC},ifname={tap},script=no,downscript=no,vhost={vhost}{of_tap}"),
        "-device".to_owned(),
        format!("virtio-net-pci,netdev={GUEST_NIC},romfile=,mac={mac}{of_nic}"),
    ]
}

/// An empty disk. A limit that never applies makes another possible later.
fn disk(file: &Path) -> Result<[String; 4]> {
    let empty = File::create(file).and_then(|disk| disk.set_len(DISK_BYTES));
    empty.with_context(|| format!("make {}", file.display()))?;
    let limit = "throttling.iops-total=100000";
    Ok([
        "-drive".to_owned(),
        format!("file={},format=raw,if=none,id={DISK},cache=none,{limit}", file.display()),
        "-device".to_owned(),
        format!("virtio-blk-pci,drive={DISK}"),
    ])
}

fn own_binary() -> Result<PathBuf> {
    std::env::current_exe().context("find the lab's own binary")
}

fn on_leash(machine: &Command) -> Result<Command> {
    let mut command = Leash::default().command(&own_binary()?, &PathBuf::from(machine.get_program()));
    command.args(machine.get_args());
    command.envs(machine.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Ok(command)
}

/// What the guest's server announces next. What goes wrong in the guest is said on the line too, and
/// QEMU itself writes there.
pub(super) fn hear(qemu: &Process, deadline: Instant) -> Result<Announcement> {
    loop {
        let line = qemu.next_line(deadline)?;
        if line.starts_with('{') {
            return serde_json::from_str(line.trim_end()).with_context(|| format!("the guest said {line}"));
        }
        let usual = ["guest: run", "guest: exit status: 0"].iter().any(|usual| line.starts_with(usual));
        if !usual && ["guest: ", "lab: "].iter().any(|log| line.starts_with(log)) {
            eprintln!("lab: in the guest: {}", line.trim_end());
        }
    }
}

/// The end of what the kernel said.
fn said(console: &Path) -> String {
    format!("the guest is not up; its console ends: {}", last_words(console, CONSOLE_LINES).join(" | "))
}
