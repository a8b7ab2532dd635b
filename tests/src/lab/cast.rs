//! The processes of a case: server, client, and whoever makes trouble.

use super::case::{Case, Connections, Fault, Process as ServerOptions, Server};
use super::device::{self, Feature};
use super::halves::Inside;
use super::leash::Leash;
use super::netns::Netns;
use super::path;
use super::process::{Launcher, Process};
use super::receive::{STORM_FILTERS, start_storm};
use super::software::{Real, fetch, server_dir};
use super::vmm;
use super::workload::{COLD, PORT, SERVED_FILE, device_number};
use super::world::{PNIC, POD_NIC, Shape, VNIC, World};
use anyhow::{Context, Result};
use rustix::pipe::fcntl_setpipe_size;
use std::io::{PipeWriter, pipe};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Until the disk is unmounted and removed.
const TIDY_PATIENCE: Duration = Duration::from_secs(15);
/// Until a real server is ready, some of which make a database first, or a disk, which the kernel
/// looks at first.
const START_PATIENCE: Duration = Duration::from_secs(40);
/// Room of a transmit queue that drops, packets, and the rate at which it is emptied, Mbit/s: what has
/// found room waits for 48 ms.
const SHARED_QUEUE_PACKETS: u32 = 60;
const SHARED_QUEUE_MBIT: u32 = 10;
/// Places of a short ring of a tap.
const SHORT_RING: u32 = 4;

/// Starts the reader of the access log, behind the smallest pipe there is.
pub(super) fn start_shipper(launcher: &Launcher, case: &Case) -> Result<(Option<PipeWriter>, Option<Process>)> {
    if case.fault != Fault::Shipper {
        return Ok((None, None));
    }
    let (reader, writer) = pipe().context("make a pipe")?;
    fcntl_setpipe_size(&writer, 4096).context("shrink the pipe")?;
    let command = launcher.role_command(&Leash::default(), "ship", [""; 0]);
    let shipper = Process::start("ship", command, Stdio::from(reader))?.ready()?;
    Ok((Some(writer), Some(shipper)))
}

/// After so long without an answer the client takes a check for lost; times the case's slowdown.
const CLIENT_TIMEOUT_MS: u64 = 2_000;
/// The same where each check is a connection: time for a request of it to be sent three times.
const CONNECT_TIMEOUT_MS: u64 = 3_500;

/// A disk or file system for the server, and the process that takes it away again.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) guardian: Process,
    dir: PathBuf,
}

impl Disk {
    pub(super) fn start(launcher: &Launcher, case: &Case) -> Result<Option<Self>> {
        let role: &[&str] = match case.fault {
            Fault::FrozenData => &["disk", "--write-data"],
            Fault::DirtyLimit => &["disk", "--limit-dirty"],
            Fault::NeighbourWrites => &["disk", "--limit-dirty", "--write-much"],
            Fault::FullQueue => &["disk", "--fill-queue"],
            Fault::LateFile => &["fuse"],
            Fault::LateFileServer => &["nfs"],
            Fault::SlowDevice(_) => &["slow-device"],
            fault if fault.freezes_disk() => &["disk"],
            _ => return Ok(None),
        };
        let dir = std::env::temp_dir().join(format!("whylag-lab-disk-{}", std::process::id()));
        // Not on the leash: it has to outlive a lab that is killed.
        let mut command = Command::new(&launcher.lab);
        command.arg("role").args(role).arg("--dir").arg(&dir);
        if let Fault::SlowDevice(hold) = case.fault {
            command.args([format!("--delay-ms={}", case.fault_ms), format!("--hold={}", hold.name())]);
        }
        if case.fault.freezes_disk() {
            command.arg(format!("--medium={}", case.disk.name()));
        }
        Ok(Some(Self { guardian: Process::start("disk", command, Stdio::piped())?.ready_within(START_PATIENCE)?, dir }))
    }
}

impl Disk {
    /// The device itself, where the server uses that: its number as sysfs has it.
    pub(super) fn number(&self) -> Result<String> {
        let device = self.dir.join("mount").join(COLD);
        device_number(&device)
    }

    /// A file on it.
    fn file(&self) -> PathBuf {
        self.dir.join("mount").join(SERVED_FILE)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.guardian.dismiss(TIDY_PATIENCE);
    }
}

pub(super) fn start_server(
    launcher: &Launcher,
    case: &Case,
    world: &World,
    log: Option<&PipeWriter>,
    disk: Option<&Disk>,
    inside: Option<&Inside>,
) -> Result<Process> {
    let options = match case.server {
        Server::Vm(fault) => {
            if case.fault == Fault::ShortRing {
                world.host.run("ip", &format!("link set {VNIC} txqueuelen {SHORT_RING}"))?;
            }
            let macvtap = (world.shape == Shape::Macvtap).then(|| "--macvtap".to_owned());
            let args = [format!("--tap={VNIC}"), format!("--fault={}", fault.name())].into_iter().chain(macvtap);
            let leash = Leash { nice: Some(-10), ..world.host.leash() };
            return launcher.role(&leash, "vm", args);
        }
        Server::Guest(guest) => {
            return vmm::start(launcher, world, guest, case.fault, disk.map(Disk::file).as_deref(), inside);
        }
        Server::Real(real) => return start_host(launcher, real, world, disk),
        Server::Process(options) => options,
    };
    if options.answer_bytes.is_some() {
        // Answers that wait for room are then not merged, and each is recognised.
        world.host.run("ip", &format!("link set {PNIC} gso_max_segs 1"))?;
    }
    let resolver = options.resolve.map(|_| world.client_address());
    let leash = Leash { cpu: options.cpu, nice: Some(options.nice), resolver, ..world.server_netns().leash() };
    let mut command = launcher.role_command(&leash, "serve", options.args());
    command.arg(format!("--dependency={}", dependency(world)));
    command.args(disk.map(|disk| format!("--file={}", disk.file().display())));
    if let Some(log) = log {
        command.stderr(log.try_clone().context("share the pipe")?);
    }
    Process::start("serve", command, Stdio::piped())?.ready()
}

/// Starts the host of a real server.
fn start_host(launcher: &Launcher, real: Real, world: &World, disk: Option<&Disk>) -> Result<Process> {
    let root = fetch::unpacked(real.software)?;
    let dir = server_dir(std::process::id());
    // Not on the leash: it has to outlive a lab that is killed.
    let mut command = Command::new(&launcher.lab);
    command.args(["role", "host", "--software", real.software.name()]).arg("--root").arg(root);
    command.arg("--dir").arg(dir).arg("--netns").arg(world.server_netns().path());
    if let Some(disk) = disk {
        command.arg("--data").arg(disk.dir.join("mount"));
    }
    Process::start("host", command, Stdio::piped())?.tidying(TIDY_PATIENCE).ready_within(START_PATIENCE)
}

/// A role that speaks to a real server, in the client's namespace.
fn start_dialogue(
    launcher: &Launcher,
    role: &str,
    real: Real,
    leash: &Leash,
    world: &World,
    how: Vec<String>,
) -> Result<Process> {
    let to = SocketAddrV4::new(world.server(), real.software.port());
    let mut args = vec![format!("--to={to}"), format!("--language={}", real.software.language().name())];
    args.extend(how);
    launcher.role(leash, role, args)
}

/// The other client, which asks a real server for `words`.
fn start_provoker(launcher: &Launcher, case: &Case, world: &World, words: &[&str]) -> Result<Option<Process>> {
    let Server::Real(real) = case.server else { return Ok(None) };
    let words = std::iter::once("--").chain(words.iter().copied()).map(str::to_owned).collect();
    start_dialogue(launcher, "provoke", real, &world.client.leash(), world, words).map(Some)
}

/// Where the other service listens.
fn dependency(world: &World) -> SocketAddrV4 {
    SocketAddrV4::new(world.client_address(), 5000)
}

impl ServerOptions {
    /// As `lab role serve` takes them.
    fn args(&self) -> Vec<String> {
        let mut args = vec![
            format!("--fault={}", self.fault.name()),
            format!("--workers={}", self.workers),
            format!("--work-us={}", self.work_us),
        ];
        args.extend((self.idle_threads > 0).then(|| format!("--idle-threads={}", self.idle_threads)));
        args.extend(self.churn.then(|| "--churn".to_owned()));
        args.extend(self.tcp.then(|| "--tcp".to_owned()));
        args.extend((self.connections != Connections::One).then(|| "--serial".to_owned()));
        args.extend(self.answer_bytes.map(|bytes| format!("--answer-bytes={bytes}")));
        args.extend(self.resolve.map(|habit| format!("--resolve={habit}")));
        args.extend(self.backlog.map(|connections| format!("--backlog={connections}")));
        args.extend(self.hand_over.then(|| "--hand-over".to_owned()));
        args.extend(self.event_loop.map(|kind| format!("--event-loop={}", kind.name())));
        args.extend(self.receive_buffer.map(|bytes| format!("--receive-buffer={bytes}")));
        args.extend(self.send_buffer.map(|bytes| format!("--send-buffer={bytes}")));
        args.extend(self.send_at_once.then(|| "--send-at-once".to_owned()));
        args.extend(self.told_errors.then(|| "--told-errors".to_owned()));
        args.extend(self.access_log_bytes.map(|bytes| format!("--access-log-bytes={bytes}")));
        args
    }
}

pub(super) fn start_client(launcher: &Launcher, case: &Case, world: &World) -> Result<Process> {
    // Ahead of everyone, and away from the CPU that some cases fill: its clock is the truth.
    let leash = Leash { realtime: true, nice: Some(-15), cpu: Some(0), ..world.client_netns().leash() };
    if let Server::Real(real) = case.server
        && !real.handshake
    {
        let mut how = vec![format!("--interval-us={}", case.interval_ms * 1_000), "--".to_owned()];
        how.extend(real.check.iter().map(|word| (*word).to_owned()));
        return start_dialogue(launcher, "ask", real, &leash, world, how);
    }
    let mut args = vec![format!("--to={}", world.server()), format!("--interval-us={}", case.interval_ms * 1_000)];
    args.extend(case.tcp().then(|| "--tcp".to_owned()));
    let (each, timeout_ms) = match case.connections() {
        Connections::One => (None, CLIENT_TIMEOUT_MS),
        Connections::EachHandshake => (Some("handshake"), CONNECT_TIMEOUT_MS),
        Connections::EachRequest => (Some("request"), CONNECT_TIMEOUT_MS),
    };
    args.extend(each.map(|each| format!("--each={each}")));
    if let Server::Process(ServerOptions { answer_bytes: Some(bytes), .. }) = case.server {
        args.push(format!("--receive-buffer={}", 4 * bytes));
    }
    args.extend(case.http().then(|| "--http".to_owned()));
    args.push(format!("--timeout-ms={}", timeout_ms * case.slowdown));
    launcher.role(&leash, "client", args)
}

pub(super) fn start_troublemaker(
    launcher: &Launcher,
    case: &Case,
    world: &World,
    server: &Process,
) -> Result<Option<Process>> {
    if case.resolves() {
        let listen = SocketAddrV4::new(world.client_address(), 53);
        // As the client: what it adds by itself is none of the case.
        let leash = Leash { realtime: true, nice: Some(-15), ..world.client.leash() };
        return launcher.role(&leash, "resolver", [format!("--listen={listen}")]).map(Some);
    }
    match case.fault {
        Fault::Hogs { threads } => {
            let leash = Leash { cpu: Some(1), nice: Some(-19), ..Leash::default() };
            launcher.role(&leash, "hog", [format!("--threads={threads}")]).map(Some)
        }
        Fault::StarvedConsumer | Fault::RealtimeHog => {
            if case.fault == Fault::StarvedConsumer {
                receive_by_thread(world)?;
            }
            let leash = Leash { cpu: Some(1), realtime: true, ..Leash::default() };
            launcher.role(&leash, "hog", [""; 0]).map(Some)
        }
        Fault::NeighbourGuest => vmm::start_neighbour(launcher).map(Some),
        Fault::ReceiveStorm { sockets, burst, mbit } => {
            let rate = [format!("--sockets={sockets}"), format!("--burst={burst}"), format!("--mbit={mbit}")];
            start_storm(launcher, world, rate).map(Some)
        }
        Fault::SlowConsumer { sockets, queue } => start_bulk(launcher, world, sockets, queue).map(Some),
        Fault::Dependency => {
            let late = dependency(world);
            let listen = [late.port(), late.port() + 1].map(|port| format!("--listen={}:{port}", late.ip()));
            launcher.role(&world.client.leash(), "backend", listen).map(Some)
        }
        Fault::Asked(words) | Fault::AskedOnFrozenDisk(words) => start_provoker(launcher, case, world, words),
        Fault::Inspector => {
            let leash = Leash { cpu: Some(1), ..Leash::default() };
            launcher.role(&leash, "inspect", [format!("--process={}", server.id())]).map(Some)
        }
        Fault::Flood { sockets, shaper_mbit, queue_packets } => {
            let queue = format!("pfifo limit {queue_packets}");
            path::start_behind_shaper(launcher, world, PNIC, sockets, shaper_mbit, &queue).map(Some)
        }
        Fault::QueueFlood { sockets, shaper_mbit, apart } => {
            let args = ["--mixed".to_owned()];
            start_queue_flood(launcher, world, (sockets, shaper_mbit, apart), (None, 1), args).map(Some)
        }
        Fault::QueueThenStorm => {
            let room = Some(SHARED_QUEUE_PACKETS);
            start_queue_flood(launcher, world, (4, SHARED_QUEUE_MBIT, false), (room, 0), [""; 0]).map(Some)
        }
        Fault::Path(fault) => fault.prepare(launcher, world),
        Fault::Receive(fault) => fault.start(launcher, world).map(Some),
        Fault::Rush { datagrams_per_ms } => start_rush(launcher, world, datagrams_per_ms).map(Some),
        Fault::Echoes { outstanding, busy_ms, idle_ms } => {
            let how = [("outstanding", outstanding), ("busy-ms", busy_ms), ("idle-ms", idle_ms)];
            start_asking(launcher, world, how).map(Some)
        }
        _ => Ok(None),
    }
}

/// Other datagrams to the server's port.
fn start_rush(launcher: &Launcher, world: &World, datagrams_per_ms: u32) -> Result<Process> {
    let args = [format!("--to={}:{PORT}", world.server()), format!("--mbit={datagrams_per_ms}")];
    // Of this size, so many a millisecond are as many Mbit/s.
    let args = args.into_iter().chain(["--bytes=125".to_owned()]);
    let leash = Leash { cpu: Some(0), nice: Some(-10), ..world.client.leash() };
    launcher.role(&leash, "flood", args)
}

/// Echo requests to the server's host.
fn start_asking(launcher: &Launcher, world: &World, how: [(&str, u64); 3]) -> Result<Process> {
    let to = format!("--to={}", world.server());
    let args = how.map(|(name, value)| format!("--{name}={value}")).into_iter().chain([to]);
    let leash = Leash { cpu: Some(0), nice: Some(-10), ..world.client.leash() };
    launcher.role(&leash, "ping", args)
}

/// Whoever makes trouble as well.
pub(super) fn start_accomplice(launcher: &Launcher, case: &Case, world: &World) -> Result<Option<Process>> {
    match case.fault {
        Fault::Receive(fault) => fault.start_accomplice(launcher),
        Fault::QueueThenStorm => {
            let rate = ["--sockets=1", "--burst=24", "--mbit=10"].map(str::to_owned);
            start_storm(launcher, world, rate).map(Some)
        }
        _ => Ok(None),
    }
}

/// Bulk traffic from one CPU, through a queue of its own or that of the checks, which come from CPU 0 or
/// have no queue of their own. A shaper has room for so many packets, or for all.
fn start_queue_flood(
    launcher: &Launcher,
    world: &World,
    (sockets, shaper_mbit, apart): (usize, u32, bool),
    (room, cpu): (Option<u32>, usize),
    more: impl IntoIterator<Item = impl Into<String>>,
) -> Result<Process> {
    world.host.run("tc", &format!("qdisc add dev {PNIC} root handle 1: mq"))?;
    for queue in 1..=2 {
        let limit = if room.is_some() { 3_000 } else { 1_000_000 };
        let rate = format!("rate {shaper_mbit}mbit burst 3000 limit {limit}");
        world.host.run("tc", &format!("qdisc add dev {PNIC} parent 1:{queue} handle 1{queue}: tbf {rate}"))?;
        if let Some(packets) = room {
            let inner = format!("parent 1{queue}:1 handle 11{queue}: pfifo limit {packets}");
            world.host.run("tc", &format!("qdisc add dev {PNIC} {inner}"))?;
        }
    }
    device::send_by(&world.host, PNIC, 0, if apart { 1 } else { 3 })?;
    device::send_by(&world.host, PNIC, 1, if apart { 2 } else { 0 })?;
    let args = [
        format!("--to={}:9", world.client_address()),
        format!("--sockets={sockets}"),
        format!("--mbit={}", 2 * shaper_mbit),
    ];
    let leash = Leash { cpu: Some(cpu), nice: Some(-10), ..world.host.leash() };
    launcher.role(&leash, "flood", args.into_iter().chain(more.into_iter().map(Into::into)))
}

/// More for the pod than its kernel thread can receive.
fn start_bulk(launcher: &Launcher, world: &World, sockets: usize, queue: bool) -> Result<Process> {
    let pod = receive_by_thread(world)?;
    device::slow_down(pod, POD_NIC, STORM_FILTERS)?;
    if queue {
        world.host.run("tc", &format!("qdisc add dev {VNIC} root pfifo limit 2000"))?;
    }
    let args =
        [format!("--to={}:9", world.server()), format!("--sockets={sockets}"), "--mbit=400".into(), "--burst=8".into()];
    let leash = Leash { cpu: Some(0), nice: Some(-10), ..world.host.leash() };
    launcher.role(&leash, "flood", args)
}

/// Has a kernel thread on CPU 1 receive what is for the pod.
fn receive_by_thread(world: &World) -> Result<&Netns> {
    let pod = world.pod.as_ref().context("the case has a pod")?;
    device::receive_by_thread(pod, POD_NIC, 1)?;
    device::set_feature(&world.host, VNIC, Feature::Tso, false)?;
    Ok(pod)
}
