//! Live runs against a server of our own, in namespaces made for the purpose. Needs root.

use crate::whylag::whylag;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

pub(crate) const SIGNATURE: &str = "udp:port=4000,at=0,bytes=\"WLAG\",nonce=4+4";
/// The check that the server sleeps over, and for how long.
const SLEPT_OVER: u32 = 7;
const SLEEP: Duration = Duration::from_millis(300);
/// How long it may take to say something.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host and its peer outside, joined by a veth. Removed on drop.
pub(crate) struct World {
    pub(crate) host: String,
    pub(crate) peer: String,
}

impl World {
    /// `None` with a printed reason if this host does not let us.
    pub(crate) fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root to create network namespaces");
            return None;
        }
        let tag = format!("wlc{}x{}", std::process::id() % 100_000, NEXT.fetch_add(1, Ordering::Relaxed));
        let world = Self { host: format!("{tag}h"), peer: format!("{tag}p") };
        let Self { host, peer } = &world;
        ip(&format!("netns add {host}"));
        ip(&format!("netns add {peer}"));
        ip(&format!("link add v0 netns {host} type veth peer name v0 netns {peer}"));
        for (namespace, address) in [(host, "10.79.0.1/24"), (peer, "10.79.0.2/24")] {
            ip(&format!("-n {namespace} addr add {address} dev v0"));
            ip(&format!("-n {namespace} link set v0 up"));
        }
        Some(world)
    }

    /// Answers `checks` checks, and sleeps over one of them.
    pub(crate) fn serve(&self, checks: u32) -> JoinHandle<()> {
        let socket = inside(&self.host, || UdpSocket::bind("10.79.0.1:4000").unwrap());
        thread::spawn(move || {
            let mut buffer = [0; 64];
            for check in 0..checks {
                let (len, from) = socket.recv_from(&mut buffer).unwrap();
                if check == SLEPT_OVER {
                    thread::sleep(SLEEP);
                }
                socket.send_to(&buffer[..len], from).unwrap();
            }
        })
    }

    /// Sends checks as fast as they are answered.
    fn flood(&self, checks: u32) {
        let socket = inside(&self.peer, || UdpSocket::bind("10.79.0.2:0").unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        for check in 0..checks {
            socket.send_to(&[b"WLAG".as_slice(), &check.to_be_bytes()].concat(), "10.79.0.1:4000").unwrap();
            socket.recv(&mut [0; 64]).unwrap();
        }
    }

    /// Sends checks one after the other.
    pub(crate) fn check(&self, checks: u32) {
        let socket = inside(&self.peer, || UdpSocket::bind("10.79.0.2:0").unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        for check in 0..checks {
            let payload = [b"WLAG".as_slice(), &check.to_be_bytes()].concat();
            socket.send_to(&payload, "10.79.0.1:4000").unwrap();
            socket.recv(&mut [0; 64]).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A server in a pod of a world's host, and a client outside that checks it 200 times a second.
pub(crate) struct Pod<'a> {
    world: &'a World,
    pub(crate) namespace: String,
    /// Checks that have been sent.
    pub(crate) sent: Arc<AtomicU32>,
    /// Answers that have come.
    pub(crate) answered: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl<'a> Pod<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        let pod = Self::apart(world);
        pod.link("");
        pod
    }

    /// One that no link joins to the host yet.
    pub(crate) fn apart(world: &'a World) -> Self {
        let World { host, peer } = world;
        let namespace = format!("{host}d");
        ip(&format!("netns add {namespace}"));
        ip(&format!("-n {peer} route add default via 10.79.0.1"));
        inside(host, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
        let server = inside(&namespace, || UdpSocket::bind("0.0.0.0:4000").unwrap());
        let client = inside(peer, || UdpSocket::bind("10.79.0.2:0").unwrap());
        let over = Arc::<AtomicBool>::default();
        let sent = Arc::<AtomicU32>::default();
        let answered = Arc::<AtomicU32>::default();
        let (serving, checking, counting) = (over.clone(), over.clone(), [sent.clone(), answered.clone()]);
        let threads = vec![
            thread::spawn(move || echo(&server, &serving)),
            thread::spawn(move || ask(&client, &checking, &counting)),
        ];
        Self { world, namespace, sent, answered, over, threads }
    }

    /// Joins it to the host by a veth, `p0` there. The host's end comes up last.
    pub(crate) fn link(&self, index: &str) {
        let (host, namespace) = (&self.world.host, &self.namespace);
        ip(&format!("-n {host} link add p0 {index}type veth peer name v0 netns {namespace}"));
        ip(&format!("-n {namespace} addr add 10.80.0.2/24 dev v0"));
        ip(&format!("-n {namespace} link set v0 up"));
        ip(&format!("-n {namespace} route add default via 10.80.0.1"));
        self.address("p0");
    }

    /// Gives the host its address on the pod's side, on this device of its own.
    pub(crate) fn address(&self, device: &str) {
        ip(&format!("-n {} addr add 10.80.0.1/24 dev {device}", self.world.host));
        ip(&format!("-n {} link set {device} up", self.world.host));
    }

    /// A bounded run at the NIC and at the pod's.
    fn attach(&self, more: &[&str]) -> (String, i32) {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.world.host, env!("CARGO_BIN_EXE_whylag"), "attach"]);
        command.args(["--pnic", "v0", "--vnic", "p0", "-s", SIGNATURE, "-t", "1s", "--format", "json", "--check"]);
        let output = command.args(more).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
        ip(&format!("netns del {}", self.namespace));
    }
}

fn echo(socket: &UdpSocket, over: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut buffer = [0; 64];
    while !over.load(Ordering::Relaxed) {
        if let Ok((len, from)) = socket.recv_from(&mut buffer) {
            // The way back may be gone by now.
            let _ = socket.send_to(&buffer[..len], from);
        }
    }
}

fn ask(socket: &UdpSocket, over: &AtomicBool, [sent, answered]: &[Arc<AtomicU32>; 2]) {
    socket.set_nonblocking(true).unwrap();
    for check in 0_u32.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        socket.send_to(&[b"WLAG".as_slice(), &check.to_be_bytes()].concat(), "10.80.0.2:4000").unwrap();
        sent.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(5));
        while socket.recv(&mut [0; 64]).is_ok() {
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for namespace in [&self.host, &self.peer] {
            // A test may have removed it.
            if Path::new("/run/netns").join(namespace).exists() {
                ip(&format!("netns del {namespace}"));
            }
        }
    }
}

pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Does `work` in a thread that has entered a namespace.
pub(crate) fn inside<T: Send + 'static>(namespace: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    let enter = move || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    };
    thread::spawn(enter).join().unwrap()
}

/// `whylag attach`, when all its hooks are live.
pub(crate) struct Attached {
    child: Child,
    stdout: ChildStdout,
    /// What it says on standard error from then on.
    said: Receiver<String>,
}

impl Attached {
    pub(crate) fn new(world: &World, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whylag"));
        command.args(["attach", "--netns", &world.host, "-s", SIGNATURE, "-t", "50ms", "--format", "json"]);
        Self::wait(command.args(more))
    }

    pub(crate) fn wait(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let live = lines.any(|line| line.unwrap().starts_with("whylag: attached"));
        assert!(live, "it never attached");
        let (say, said) = channel();
        // Its standard error is read to the end even if nobody listens.
        thread::spawn(move || lines.for_each(|line| drop(say.send(line.unwrap()))));
        Self { child, stdout, said }
    }

    /// Waits until it says this.
    pub(crate) fn says(&self, what: &str) {
        self.says_all(&[what]);
    }

    /// Waits until it has said all of these, in any order.
    pub(crate) fn says_all(&self, what: &[&str]) {
        let (mut unsaid, mut heard) = (what.to_vec(), Vec::new());
        while !unsaid.is_empty() {
            let line = self.said.recv_timeout(PATIENCE);
            let line =
                line.unwrap_or_else(|_| panic!("it says within {PATIENCE:?}: {unsaid:?}, and not only {heard:#?}"));
            unsaid.retain(|what| !line.contains(what));
            heard.push(line);
        }
    }

    /// Standard output and exit status.
    pub(crate) fn end(mut self) -> (String, i32) {
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        (text, self.child.wait().unwrap().code().unwrap())
    }

    /// Reads standard output as it comes; all of it, at its end.
    pub(crate) fn read_on(&mut self) -> JoinHandle<String> {
        let from = self.stdout.as_fd().try_clone_to_owned().unwrap();
        thread::spawn(move || std::io::read_to_string(File::from(from)).unwrap())
    }

    /// The exit status, with standard output open and never read.
    fn wait_unread(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap()
    }

    pub(crate) fn interrupt(&self) {
        self.send(Signal::INT);
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

pub(crate) fn of_type(text: &str, record: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["type"] == record).collect()
}

#[test]
fn a_live_run_finds_the_sleep_and_its_replay_tells_the_same() {
    let Some(world) = World::new() else { return };
    let recording = NamedTempFile::new().unwrap();
    let path = recording.path().to_str().unwrap();
    let server = world.serve(20);
    let attached = Attached::new(&world, &["--record", path, "--count", "20", "--check"]);
    world.check(20);
    let (text, status) = attached.end();
    server.join().unwrap();
    assert_eq!(status, 3, "{text}");
    let journeys = of_type(&text, "journey");
    let slept = journeys.iter().find(|line| line["verdict"]["cause"] == "app.self_wait");
    let slept = slept.unwrap_or_else(|| panic!("no check is blamed on the sleep: {text}"));
    assert!(slept["elapsed_ns"].as_u64().unwrap() >= 300_000_000, "{slept}");
    assert!(slept["verdict"]["share"].as_f64().unwrap() > 0.9, "{slept}");
    let loss = &of_type(&text, "loss")[0];
    let count = |name: &str| loss[name].as_u64().unwrap();
    assert_eq!(count("emitted"), count("received") + count("lost"), "{loss}");
    assert_eq!(of_type(&text, "summary")[0]["checks"], 20);
    assert_eq!(whylag(["replay", "--format", "json", path]).stdout, text);
}

#[test]
fn a_bounded_run_amid_traffic_invents_no_open_check_and_no_target() {
    let Some(world) = World::new() else { return };
    let pod = Pod::new(&world);
    for bound in [["--duration", "1s"], ["--count", "40"]] {
        let recording = NamedTempFile::new().unwrap();
        let path = recording.path().to_str().unwrap();
        let (text, status) = pod.attach(&[&bound[..], &["--record", path]].concat());
        let journeys = of_type(&text, "journey");
        let whole = |line: &&Value| line["outcome"] == "replied" && line["stages"][0]["stage"] == "pnic_rx";
        let odd: Vec<_> = journeys.iter().filter(|line| !whole(line)).collect();
        assert!(odd.is_empty(), "{bound:?}: {odd:#?}");
        let summary = &of_type(&text, "summary")[0];
        assert_eq!(
            (status, of_type(&text, "episode").len(), &summary["targets"]),
            (0, 1, &Value::from(1)),
            "{summary}"
        );
        assert!(bound[0] == "--duration" || summary["checks"] == 40, "{summary}");
        assert!(journeys.len() >= 40, "{summary}");
        assert_eq!(whylag(["replay", "--format", "json", path]).stdout, text);
    }
}

#[test]
fn an_interrupt_while_the_run_starts_ends_it_in_time() {
    let Some(world) = World::new() else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_whylag"));
    command.args(["attach", "--netns", &world.host, "-s", SIGNATURE, "-t", "50ms", "--format", "json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    said.next().unwrap().unwrap();
    let starting = Attached { child, stdout, said: channel().1 };
    let interrupted = Instant::now();
    starting.interrupt();
    let said = thread::spawn(move || said.map(Result::unwrap).collect::<Vec<_>>());
    let (text, status) = starting.end();
    assert!(interrupted.elapsed() < Duration::from_secs(2), "{:?}", interrupted.elapsed());
    assert_eq!((status, &of_type(&text, "summary")[0]["checks"]), (0, &Value::from(0)));
    let said = said.join().unwrap();
    assert!(!said.iter().any(|line| line.contains("hooks are live")), "{said:?}");
}

#[test]
fn an_interrupt_ends_a_run_in_time_and_with_its_summary() {
    let Some(world) = World::new() else { return };
    let server = world.serve(3);
    let attached = Attached::new(&world, &[]);
    world.check(3);
    let interrupted = Instant::now();
    attached.interrupt();
    let (text, status) = attached.end();
    server.join().unwrap();
    assert!(interrupted.elapsed() < Duration::from_secs(2), "{:?}", interrupted.elapsed());
    assert_eq!(status, 0);
    assert_eq!(of_type(&text, "summary")[0]["checks"], 3);
}

#[test]
fn a_reader_that_goes_away_ends_a_live_run_as_a_success() {
    let Some(world) = World::new() else { return };
    let server = world.serve(10);
    let mut attached = Attached::new(&world, &["--duration", "20s"]);
    drop(attached.stdout);
    world.check(10);
    server.join().unwrap();
    assert_eq!(attached.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_lost_terminal_ends_a_run_with_its_summary_unless_nohup_says_otherwise() {
    let Some(world) = World::new() else { return };
    let attached = Attached::new(&world, &[]);
    attached.send(Signal::HUP);
    let (text, status) = attached.end();
    assert_eq!((status, of_type(&text, "summary").len()), (0, 1));

    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_whylag")).args(["attach", "--netns", &world.host, "--format", "json"]);
    let attached = Attached::wait(command.args(["-s", SIGNATURE]));
    attached.send(Signal::HUP);
    let server = world.serve(2);
    world.check(2);
    server.join().unwrap();
    attached.interrupt();
    let (text, status) = attached.end();
    assert_eq!(
        (status, of_type(&text, "summary")[0]["checks"].clone()),
        (0, 2.into()),
        "it saw what came behind: {text}"
    );
}

#[test]
fn an_interface_that_goes_is_told_and_the_last_ends_the_run() {
    let Some(world) = World::new() else { return };
    let recording = NamedTempFile::new().unwrap();
    let path = recording.path().to_str().unwrap();
    let attached = Attached::new(&world, &["--pnic", "v0", "--strict", "--duration", "30s", "--record", path]);
    let server = world.serve(3);
    world.check(3);
    server.join().unwrap();
    ip(&format!("-n {} link set v0 down", world.host));
    ip(&format!("-n {} link set v0 name v9", world.host));
    ip(&format!("-n {} link set v9 up", world.host));
    attached.says("v0 is called v9 now");
    ip(&format!("-n {} link del v9", world.host));
    let gone = Instant::now();
    let (text, status) = attached.end();
    assert!(gone.elapsed() < Duration::from_secs(5), "{:?}", gone.elapsed());
    let notice = &of_type(&text, "notice")[0];
    assert_eq!(
        (status, &notice["notice"], &notice["interface"]),
        (4, &"interface_gone".into(), &"v9".into()),
        "{text}"
    );
    assert_eq!(of_type(&text, "summary")[0]["checks"], 3);
    let replayed = whylag(["replay", "--format", "json", "--strict", path]);
    assert_eq!((replayed.stdout, replayed.status), (text, 4));
}

#[test]
fn a_namespace_that_goes_ends_the_run_that_watched_it() {
    let Some(world) = World::new() else { return };
    let attached = Attached::new(&world, &["--duration", "30s"]);
    ip(&format!("netns del {}", world.host));
    let gone = Instant::now();
    let (text, status) = attached.end();
    assert!(gone.elapsed() < Duration::from_secs(5), "{:?}", gone.elapsed());
    assert_eq!(status, 1, "{text}");
    assert!(of_type(&text, "notice")[0]["reason"].as_str().unwrap().contains("namespace was removed"), "{text}");
}

#[test]
fn a_reader_that_stalls_holds_nothing_up() {
    let Some(world) = World::new() else { return };
    let attached = Attached::new(&world, &["--duration", "20s"]);
    let server = world.serve(1_200);
    world.flood(1_200);
    server.join().unwrap();
    let asked = Instant::now();
    attached.interrupt();
    let status = attached.wait_unread();
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
    assert_eq!(status, 0);
}

#[test]
fn a_recording_tells_what_the_host_was_like_and_what_the_run_has_cost() {
    let Some(world) = World::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [recording, bundle] = ["recording", "bundle"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let bound = ["-t", "1s", "--duration", "300ms", "--record", &recording];
    let run = whylag(["attach", "--netns", &world.host, "-s", SIGNATURE].iter().chain(&bound));
    assert_eq!(run.status, 0, "{}", run.stderr);
    let run = whylag(["incident", "export", "--from", &recording, "-o", &bundle]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let shown = whylag(["incident", "show", &bundle, "--format", "json"]);
    let facts = &shown.of_type("host")[0]["facts"];
    let about = |kind: &str| facts.as_array().unwrap().iter().filter(|fact| fact["about"] == kind).collect::<Vec<_>>();
    let release = rustix::system::uname().release().to_str().unwrap().to_owned();
    assert_eq!(about("system")[0]["kernel"], Value::from(release));
    assert!(about("nic").iter().any(|nic| nic["watched"] == true), "{facts}");
    assert!(about("settings")[0]["settings"].as_array().unwrap().len() > 30, "{facts}");
    assert_eq!(about("counters").len(), 2, "at its begin and at its end");
    let cost = &shown.of_type("cost")[0];
    assert!(cost["peak_memory_bytes"].as_u64() > Some(1 << 20), "{cost}");
    assert!(cost["elapsed_ns"].as_u64() >= Some(300_000_000), "{cost}");
}
