//! The two halves of a VM's checks: made by hand, sent over sockets, and made by two live runs.

use crate::live::{Attached, SIGNATURE, World, inside, ip, of_type};
use crate::made::Made;
use crate::whylag::{Run, whylag};
use probe_tests::lab::workload::open_tap;
use rustix::process::setpriority_process;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use vsock::{VMADDR_CID_LOCAL, VsockListener};

const MS: u64 = 1_000_000;
const HOLD: [u64; 6] = [MS, MS, 2 * MS, 400 * MS, MS, MS];

/// Files of two halves.
struct Halves {
    folder: TempDir,
    host: PathBuf,
    guest: PathBuf,
}

impl Halves {
    fn new(host: &[u8], guest: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let (host, guest) = (file("host.whylag", host), file("guest.whylag", guest));
        Self { folder, host, guest }
    }

    fn made(offset: u64) -> Self {
        Self::new(&Made::outside(&HOLD).file(0), &Made::inside(&HOLD, offset).file(0))
    }

    fn join(&self, more: &[&str]) -> Run {
        let files = ["join", text(&self.host), text(&self.guest)];
        whylag(files.iter().chain(more))
    }

    fn bundle(&self, of: &Path, more: &[&str]) -> PathBuf {
        let bundle = of.with_extension("bundle");
        let export = ["incident", "export", "--from", text(of), "-o", text(&bundle)];
        assert_eq!(whylag(export.iter().chain(more)).status, 0);
        bundle
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn counts(run: &Run, side: &str) -> Value {
    run.of_type("join")[0][side].clone()
}

fn sums(line: &Value) -> bool {
    let entries = line["ledger"].as_array().unwrap().iter();
    let explained: u64 = entries.map(|entry| entry["ns"].as_u64().unwrap()).sum();
    explained + line["unexplained_ns"].as_u64().unwrap() == line["elapsed_ns"].as_u64().unwrap()
}

#[test]
fn halves_are_joined_whatever_the_guest_s_clock_says() {
    let same = Halves::made(0).join(&["--format", "json"]);
    assert_eq!(same.status, 0, "{}", same.stderr);
    let types: Vec<_> = same.lines().iter().rev().take(4).map(|line| line["type"].clone()).collect();
    assert_eq!(types, ["summary", "loss", "join", "episode"]);
    let journeys = same.of_type("journey");
    assert!(journeys.len() == HOLD.len() && journeys.iter().all(sums));
    for (line, hold) in journeys.iter().zip(HOLD) {
        let guest = &line["guest"];
        assert_eq!((&guest["pairing"], &guest["reason"]), (&Value::from("joined"), &Value::Null), "{line}");
        assert_eq!(guest["with_vm_ns"], hold + 60_000);
        assert_eq!((&guest["inside_ns"], &guest["overhead_ns"]), (&Value::from(hold), &Value::from(60_000)), "{line}");
        let stages: Vec<_> =
            line["stages"].as_array().unwrap().iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
        assert!(stages.windows(2).any(|pair| pair == ["vnic_tx", "guest_rx"]), "{stages:?}");
        assert!(stages.windows(2).any(|pair| pair == ["guest_tx", "vnic_rx"]), "{stages:?}");
    }
    for offset in [1, 77_777_777_777, 1 << 60] {
        assert_eq!(Halves::made(offset).join(&["--format", "json"]).stdout, same.stdout, "{offset}");
    }
}

#[test]
fn a_half_on_standard_input_is_read_like_a_file() {
    let halves = Halves::made(5);
    let from_files = halves.join(&["--format", "json"]);
    for (input, arguments) in
        [(&halves.host, ["join", "-", text(&halves.guest)]), (&halves.guest, ["join", text(&halves.host), "-"])]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whylag"));
        let command = command.args(arguments).args(["--format", "json"]).stdin(File::open(input).unwrap());
        assert_eq!(String::from_utf8(command.output().unwrap().stdout).unwrap(), from_files.stdout);
    }
}

#[test]
fn bundles_are_joined_by_what_they_keep() {
    let halves = Halves::made(5);
    let (host, guest) = (halves.bundle(&halves.host, &[]), halves.bundle(&halves.guest, &[]));
    for (host, guest) in [(&host, &guest), (&halves.host, &guest), (&host, &halves.guest)] {
        let run = whylag(["join", text(host), text(guest), "--format", "json"]);
        assert_eq!(counts(&run, "host")["joined"], HOLD.len(), "{}", run.stdout);
    }
}

#[test]
fn what_is_missing_of_a_half_is_counted_and_told() {
    let guest = Made::inside(&HOLD[..4], 9).file(0);
    let run = Halves::new(&Made::outside(&HOLD).file(0), &guest).join(&["--format", "json"]);
    assert_eq!((counts(&run, "host")["joined"].clone(), counts(&run, "host")["alone"].clone()), (4.into(), 2.into()));
    let cut = Halves::new(&Made::outside(&HOLD).file(0), &guest[..guest.len() - 3]).join(&["--format", "json"]);
    cut.fails_with(1, &["only a part of", "guest.whylag", "cut off"]);
    assert_eq!(counts(&cut, "host")["halves"], HOLD.len());
    let said = Halves::new(&Made::outside(&HOLD).file(0), &guest).join(&[]).stdout;
    assert!(said.contains("4 joined") && said.contains("2 alone"), "{said}");
}

#[test]
fn a_guest_that_lost_events_makes_the_join_incomplete_and_gives_no_leaf() {
    let halves = Halves::new(&Made::outside(&HOLD).file(0), &Made::inside(&HOLD, 9).file(2));
    let run = halves.join(&["--format", "json", "--strict"]);
    assert_eq!(run.status, 4);
    let line = &run.of_type("join")[0];
    assert_eq!(line["guest_lost"], 2, "{line}");
    for line in run.of_type("journey").iter().filter(|line| line["guest"]["pairing"] == "doubted") {
        assert!(line["ledger"].as_array().unwrap().iter().all(|entry| entry["offender"]["guest"] != true), "{line}");
    }
}

#[test]
fn a_guest_that_had_a_check_for_longer_than_the_host_gave_it_away_is_not_believed() {
    let longer = HOLD.map(|hold| hold + MS);
    let halves = Halves::new(&Made::outside(&HOLD).file(0), &Made::inside(&longer, 9).file(0));
    let run = halves.join(&["--format", "json"]);
    assert_eq!(counts(&run, "host")["negative"], HOLD.len());
    assert!(run.of_type("journey").iter().all(|line| line["guest"]["overhead_ns"].as_i64().unwrap() < 0));
}

#[test]
fn mistakes_are_told() {
    let halves = Halves::made(0);
    whylag(["join", text(&halves.host), text(&halves.host)]).fails_with(2, &["cannot be joined to itself"]);
    whylag(["join", "-", "-"]).fails_with(2, &["standard input"]);
    whylag(["join", text(&halves.host), "tcp:nowhere"]).fails_with(2, &["tcp:HOST:PORT"]);
    whylag(["join", text(&halves.host), "/nowhere"]).fails_with(1, &["cannot read /nowhere"]);
    let junk = halves.folder.path().join("junk");
    std::fs::write(&junk, "junk").unwrap();
    whylag(["join", text(&halves.host), text(&junk)]).fails_with(1, &["not a whylag recording"]);
}

/// `whylag join` that listens for both halves.
struct Listening {
    child: Child,
    addresses: [String; 2],
    folder: TempDir,
}

/// The halves, in the order of [`Listening::addresses`].
const HALVES: [&str; 2] = ["host", "guest"];

impl Listening {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let addresses = HALVES.map(|name| format!("unix:{}", text(&folder.path().join(name))));
        Self::at(addresses, folder)
    }

    /// At ports of this machine that its own processes reach, as if they were in a VM; `None` with a printed
    /// reason where that cannot be.
    fn over_vsock() -> Option<Self> {
        let port = 10_000 + 2 * std::process::id();
        let listening = VsockListener::bind_with_cid_port(VMADDR_CID_LOCAL, port);
        if let Err(error) = listening {
            println!("skipped: over vsock a kernel reaches itself with its module vsock_loopback ({error})");
            return None;
        }
        Some(Self::at(
            [port, port + 1].map(|port| format!("vsock:{VMADDR_CID_LOCAL}:{port}")),
            tempfile::tempdir().unwrap(),
        ))
    }

    fn at(addresses: [String; 2], folder: TempDir) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whylag"));
        command.arg("join").args(&addresses).args(["--format", "json"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { child, addresses, folder }
    }

    fn address(&self, name: &str) -> &str {
        let [host, guest] = &self.addresses;
        if name == HALVES[0] { host } else { guest }
    }

    fn connect(&self, name: &str) -> UnixStream {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match UnixStream::connect(self.folder.path().join(name)) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            thread::yield_now();
        }
    }

    fn end(mut self) -> Run {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        Run { status: self.child.wait().unwrap().code().unwrap(), stdout, stderr }
    }
}

#[test]
fn halves_come_over_sockets_and_who_sends_something_else_is_sent_away() {
    let listening = Listening::new();
    let mut stranger = listening.connect("guest");
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: whylag\r\n\r\n").unwrap();
    stranger.shutdown(Shutdown::Write).unwrap();
    let mut host = listening.connect("host");
    host.write_all(&Made::outside(&HOLD).file(0)).unwrap();
    let mut guest = listening.connect("guest");
    guest.write_all(&Made::inside(&HOLD, 77).file(0)).unwrap();
    drop((host, guest));
    let run = listening.end();
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("who connected sent no half"), "{}", run.stderr);
    let (joined, halves) = (counts(&run, "host")["joined"].clone(), counts(&run, "guest")["halves"].clone());
    assert_eq!((joined, halves), (HOLD.len().into(), HOLD.len().into()));
}

#[test]
fn a_sender_that_goes_away_in_the_middle_ends_its_half_and_that_is_told() {
    let listening = Listening::new();
    let file = Made::inside(&HOLD, 77).file(0);
    let mut guest = listening.connect("guest");
    guest.write_all(&file[..file.len() / 2]).unwrap();
    drop(guest);
    let mut host = listening.connect("host");
    host.write_all(&Made::outside(&HOLD).file(0)).unwrap();
    drop(host);
    let run = listening.end();
    run.fails_with(1, &["only a part of", "guest", "cut off"]);
    assert_eq!(counts(&run, "host")["halves"], HOLD.len());
}

/// A virtual machine's stand-in: frames go between a tap of the host and one that is a NIC in a
/// namespace of its own, which is the guest. A process of its own carries them and answers: threads of
/// other tests are none of a VM's.
struct Machine<'a> {
    world: &'a World,
    guest: String,
    process: Child,
    says: Lines<BufReader<ChildStdout>>,
}

impl<'a> Machine<'a> {
    fn new(world: &'a World) -> Self {
        let World { host, peer } = world;
        let guest = format!("{host}g");
        ip(&format!("netns add {guest}"));
        for (namespace, device, address) in [(host, "tap0", "10.81.0.1/24"), (&guest, "eth0", "10.81.0.2/24")] {
            ip(&format!("-n {namespace} tuntap add dev {device} mode tap"));
            ip(&format!("-n {namespace} addr add {address} dev {device}"));
            ip(&format!("-n {namespace} link set {device} up"));
        }
        ip(&format!("-n {guest} route add default via 10.81.0.1"));
        ip(&format!("-n {peer} route add default via 10.79.0.1"));
        inside(host, || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--ignored", "--exact", "join::is_a_machine", "--nocapture"]);
        process.env(MACHINE_OF, host).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = process.spawn().unwrap();
        let mut says = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(says.any(|line| line.unwrap().ends_with(READY)), "the machine did not start");
        Self { world, guest, process, says }
    }

    /// How long it held the checks with a fault, once all have been answered.
    fn held(&mut self) -> Vec<(u32, u64)> {
        let lines = self.says.by_ref().map(Result::unwrap);
        let numbers = lines.filter_map(|line| line.strip_prefix(HELD).map(str::to_owned)).take(FAULTS.len());
        numbers
            .map(|line| {
                let (check, ns) = line.split_once(' ').unwrap();
                (check.parse().unwrap(), ns.parse().unwrap())
            })
            .collect()
    }

    fn attach(&self, half: &str, more: &[&str]) -> Attached {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whylag"));
        command.args(["attach", "-s", SIGNATURE, "-t", "50ms", "--format", "json", "--stacks", "off", "--netns"]);
        match half {
            "host" => command.args([self.world.host.as_str(), "--pnic", "v0", "--vnic", "tap0=vm1"]),
            _ => command.args([self.guest.as_str(), "--pnic", "eth0"]),
        };
        Attached::wait(command.args(more))
    }

    /// Checks one after the other, and a moment between.
    fn check(&self) {
        let socket = inside(&self.world.peer, || UdpSocket::bind("10.79.0.2:0").unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        for check in 0..CHECKS {
            socket.send_to(&[b"WLAG".as_slice(), &check.to_be_bytes()].concat(), "10.81.0.2:4000").unwrap();
            socket.recv(&mut [0; 64]).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
        ip(&format!("netns del {}", self.guest));
    }
}

/// Ends when the device goes.
fn carry(mut from: File, mut to: File) {
    thread::spawn(move || {
        let mut frame = [0; 2048];
        while let Ok(len) = from.read(&mut frame) {
            if to.write_all(&frame[..len]).is_err() {
                return;
            }
        }
    });
}

const CHECKS: u32 = 60;
/// Both halves have one kernel here: of the first check the host may see the socket too, and then it
/// was in no VM.
const IN_A_VM: u64 = CHECKS as u64 - 1;
const LONG: Duration = Duration::from_millis(200);
const LONG_NS: u64 = 200 * MS;

/// The checks with a fault, and the leaf that it is.
const FAULTS: [(u32, &str); 3] = [(20, "app.self_wait"), (35, "app.on_cpu"), (50, "app.futex")];

/// The host of the machine that this process is to be.
const MACHINE_OF: &str = "WHYLAG_TEST_MACHINE_OF";
/// What the machine says when it carries and answers.
const READY: &str = "ready";
/// Before the number of a check that it held, and for how many nanoseconds.
const HELD: &str = "held ";

/// No test: the process of [`Machine`].
#[test]
#[ignore = "a machine that another test starts"]
fn is_a_machine() {
    let Ok(host) = std::env::var(MACHINE_OF) else { return };
    let guest = format!("{host}g");
    // Ahead of others, and so are all its threads: a VM kept from its CPU is another case.
    setpriority_process(None, -20).unwrap();
    let outer = inside(&host, || open_tap("tap0").unwrap());
    let inner = inside(&guest, || open_tap("eth0").unwrap());
    carry(outer.try_clone().unwrap(), inner.try_clone().unwrap());
    carry(inner, outer);
    let socket = inside(&guest, || UdpSocket::bind("10.81.0.2:4000").unwrap());
    println!("\n{READY}");
    for (check, ns) in serve(&socket) {
        println!("\n{HELD}{check} {ns}");
    }
    // The last answers are on their way: it goes with whoever started it.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

/// Answers checks; of three it sleeps over one, computes over one, and waits for a lock over one. How
/// long it held those, by its own clock.
fn serve(socket: &UdpSocket) -> Vec<(u32, u64)> {
    let (mut buffer, mut held) = ([0; 64], Vec::new());
    for check in 0..CHECKS {
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        let start = Instant::now();
        match FAULTS.iter().find(|(faulty, _)| *faulty == check) {
            Some((_, "app.self_wait")) => thread::sleep(LONG),
            Some((_, "app.on_cpu")) => compute(LONG),
            Some(_) => wait_for_a_lock(),
            None => {}
        }
        if FAULTS.iter().any(|(faulty, _)| *faulty == check) {
            held.push((check, u64::try_from(start.elapsed().as_nanos()).unwrap()));
        }
        socket.send_to(&buffer[..len], from).unwrap();
    }
    held
}

/// Uses CPU time for so long.
fn compute(time: Duration) {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let until = used() + time;
    while used() < until {}
}

fn wait_for_a_lock() {
    let lock = Arc::new(Mutex::new(()));
    let (taken, told) = std::sync::mpsc::channel();
    let holder = Arc::clone(&lock);
    let holder = thread::spawn(move || {
        let held = holder.lock().unwrap();
        taken.send(()).unwrap();
        compute(LONG);
        drop(held);
    });
    told.recv().unwrap();
    drop(lock.lock().unwrap());
    holder.join().unwrap();
}

/// Of one check, the time that a cause took.
fn taken(line: &Value, cause: &str) -> u64 {
    let entries = line["ledger"].as_array().unwrap().iter().filter(|entry| entry["cause"] == cause);
    entries.map(|entry| entry["ns"].as_u64().unwrap()).sum()
}

#[test]
fn two_live_runs_tell_what_a_check_waited_for_inside_and_how_long_it_was_there() {
    two_live_runs(|| Some(Listening::new()));
}

#[test]
fn two_live_runs_are_joined_over_vsock_too() {
    two_live_runs(Listening::over_vsock);
}

fn two_live_runs(listen: impl FnOnce() -> Option<Listening>) {
    let Some(world) = World::new() else { return };
    let Some(listening) = listen() else { return };
    let mut machine = Machine::new(&world);
    let folder = tempfile::tempdir().unwrap();
    let (host_file, guest_file) = (folder.path().join("host"), folder.path().join("guest"));
    let run = |half: &str, file: &Path| {
        let count = CHECKS.to_string();
        machine.attach(half, &["--count", &count, "--record", text(file), "--send", listening.address(half)])
    };
    let (host, guest) = (run("host", &host_file), run("guest", &guest_file));
    machine.check();
    let (alone, _) = host.end();
    guest.end();
    let held = machine.held();
    assert_eq!(held.len(), FAULTS.len());
    assert!(of_type(&alone, "journey").iter().all(|line| line["verdict"]["cause"] != "app.self_wait"));
    let live = listening.end();
    assert_eq!(live.status, 0, "{}", live.stderr);
    // Where the machine is busy, the guest's half of a check may come later than the host waits for it.
    assert!(counts(&live, "host")["halves"].as_u64().unwrap() >= IN_A_VM, "{}", live.stdout);
    assert!(counts(&live, "host")["joined"].as_u64().unwrap() > 0, "{}", live.stdout);
    hold_true(&whylag(["join", text(&host_file), text(&guest_file), "--format", "json"]), &held);
}

fn hold_true(run: &Run, held: &[(u32, u64)]) {
    let journeys: Vec<_> = run.of_type("journey").into_iter().filter(|line| line["outcome"] != "open").collect();
    assert!(counts(run, "host")["joined"].as_u64().unwrap() >= IN_A_VM, "{}", counts(run, "host"));
    assert!(journeys.iter().all(sums));
    let id = |line: &Value| line["id"].as_str().unwrap().parse::<u32>().unwrap();
    let mut ordered = journeys.clone();
    ordered.sort_by_key(id);
    for ((check, held), (_, leaf)) in held.iter().zip(FAULTS) {
        let line = &ordered[*check as usize];
        let guest = &line["guest"];
        let (with_vm, inside) = (guest["with_vm_ns"].as_u64().unwrap(), guest["inside_ns"].as_u64().unwrap());
        assert!(*held <= inside && inside <= with_vm + with_vm / 5_000, "{held} {guest}");
        assert_eq!(taken(line, "vm.guest_internal"), 0, "{line}");
        // Others on this machine may have had a part of the time; none of the fault's is theirs.
        assert!(taken(line, leaf) > LONG_NS * 9 / 10, "{leaf}: {line}");
        let blamed = line["ledger"].as_array().unwrap().iter().find(|entry| entry["cause"] == leaf).unwrap();
        assert_eq!(blamed["offender"]["guest"], true, "{blamed}");
    }
    let mut added: Vec<i64> = journeys.iter().filter_map(|line| line["guest"]["overhead_ns"].as_i64()).collect();
    added.sort_unstable();
    // What the machine's other work added to the rest is no less true.
    assert!(added[added.len() / 4].unsigned_abs() < LONG_NS * 2 / 100, "{added:?}");
}
