//! Interfaces that come and go by the hundred while whylag watches. Needs root.

use crate::following::{STAGES, Stretch, on, stages};
use crate::live::{Attached, Pod, World, ip, of_type};
use std::fs;
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// Pairs that are there at once, and how often so many come and go.
const PAIRS: u32 = 100;
const ROUNDS: u32 = 10;
/// Two programs at each end.
const LINKS_OF_A_PAIR: usize = 4;
/// What whylag may grow by meanwhile, kB: a tenth of what one leaked program a pair would take.
const GROWTH_KB: u64 = 24_576;
/// Until whylag has noticed and followed a change; with another load on the machine, four hundred programs
/// take long.
const NOTICED: Duration = Duration::from_secs(60);
/// How often it is asked whether something is so.
const ASKED_EVERY: Duration = Duration::from_millis(20);

/// A process in a namespace: what leads to one is a guest's NIC.
struct Inhabitant(Child);

impl Inhabitant {
    fn of(namespace: &str) -> Self {
        Self(Command::new("ip").args(["netns", "exec", namespace, "sleep", "1000"]).spawn().unwrap())
    }
}

impl Drop for Inhabitant {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// What a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    links: usize,
    descriptors: usize,
}

impl Held {
    fn by(process: u32) -> Self {
        let entries = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
        let targets: Vec<_> = entries.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
        let links = targets.iter().filter(|target| target.to_string_lossy().contains("bpf_link")).count();
        Self { links, descriptors: targets.len() }
    }
}

/// Its own memory; rings are the kernel's.
fn memory_kb(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// All pairs of a round are a group of devices, which the kernel switches on and removes at once.
const GROUP: u32 = 77;

/// Makes a round's pairs, each with an end in the pod.
fn make(world: &World, pod: &str, round: u32) {
    let file = NamedTempFile::new().unwrap();
    let add = |pair| {
        let (name, group) = (format!("c{round}x{pair}"), format!("group {GROUP}"));
        format!("link add {name} up {group} type veth peer name {name}e {group} netns {pod}\n")
    };
    fs::write(file.path(), (0..PAIRS).map(add).collect::<String>()).unwrap();
    let status = Command::new("ip").args(["-n", &world.host, "-batch"]).arg(file.path()).status().unwrap();
    assert!(status.success(), "ip -batch");
    ip(&format!("-n {pod} link set group {GROUP} up"));
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let asked = Instant::now();
    while !is_so() {
        assert!(asked.elapsed() < NOTICED, "{what} within {NOTICED:?}");
        sleep(ASKED_EVERY);
    }
}

/// In two rounds all of them are watched, at both ends, before they go: the kernel takes some ten
/// milliseconds for each program. In the others they go while whylag looks and attaches.
#[test]
fn a_thousand_pairs_that_come_and_go_leave_no_trace_and_hide_no_check() {
    let Some(world) = World::new() else { return };
    on(&world, "route add default via 10.79.0.2");
    let pod = Pod::new(&world);
    let _inhabitant = Inhabitant::of(&pod.namespace);
    // 400,000 records come in bursts, and a debug build reads them slowly.
    let mut attached = Attached::new(&world, &["--duration", "120s", "--ring-size", "16M"]);
    // A reader that stalls would cost lines.
    let reading = attached.read_on();
    let process = attached.id();
    let settled = Stretch::of("before any comes", &pod);
    let (before, memory) = (Held::by(process), memory_kb(process));
    let sent_before = pod.sent.load(Ordering::Relaxed);
    for round in 0..ROUNDS {
        make(&world, &pod.namespace, round);
        if round % 5 == 0 {
            let all = before.links + PAIRS as usize * LINKS_OF_A_PAIR;
            wait_for("all that came is watched", || Held::by(process).links >= all);
        }
        ip(&format!("-n {} link del group {GROUP}", world.host));
    }
    wait_for("all that came is let go", || Held::by(process) == before);
    let grown = memory_kb(process).saturating_sub(memory);
    println!("{} links before; {grown} kB more", before.links);
    assert!(grown < GROWTH_KB, "{grown} kB more");
    let sent = pod.sent.load(Ordering::Relaxed) - sent_before;
    attached.interrupt();
    let text = reading.join().unwrap();
    assert_eq!(attached.end().1, 0);
    let loss = &of_type(&text, "loss")[0];
    assert_eq!((&loss["lost"], &loss["late"]), (&0.into(), &0.into()), "{loss}");
    settled.holds(&text);
    let journeys = of_type(&text, "journey");
    for journey in &journeys {
        assert_eq!((stages(journey).as_slice(), &journey["outcome"]), (&STAGES[..], &"replied".into()), "{journey}");
    }
    assert!(journeys.len() >= sent as usize, "{} checks of {sent} sent meanwhile", journeys.len());
    assert!(sent > 500, "{sent} checks in the whole time");
}
