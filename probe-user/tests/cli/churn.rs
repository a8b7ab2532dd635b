//! Interfaces that come and go by the hundred while whylag watches. Needs root.

use crate::live::{Attached, Pod, World, of_type};
use std::fs;
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// Pairs that are there at once, and how often so many come and go.
const PAIRS: u32 = 100;
const ROUNDS: u32 = 10;
/// What whylag may grow by meanwhile, kB: a tenth of what one leaked program a pair would take.
const GROWTH_KB: u64 = 24_576;
/// Until whylag has noticed a change: it asks once a second, and looks for 0.2 s before that.
const NOTICED: Duration = Duration::from_secs(15);

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

/// Runs many `ip` commands in a namespace at once.
fn batch(namespace: &str, lines: impl Iterator<Item = String>) {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), lines.collect::<Vec<_>>().join("\n")).unwrap();
    let status = Command::new("ip").args(["-n", namespace, "-batch"]).arg(file.path()).status().unwrap();
    assert!(status.success(), "ip -batch");
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let asked = Instant::now();
    while !is_so() {
        assert!(asked.elapsed() < NOTICED, "{what} within {NOTICED:?}");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_thousand_pairs_that_come_and_go_leave_no_trace_and_hide_no_check() {
    let Some(world) = World::new() else { return };
    let pod = Pod::new(&world);
    let _inhabitant = Inhabitant::of(&pod.namespace);
    // 400,000 records come in bursts, and a debug build reads them slowly.
    let mut attached = Attached::new(&world, &["--duration", "120s", "--ring-size", "16M"]);
    // A reader that stalls would cost lines.
    let reading = attached.read_on();
    let process = attached.id();
    sleep(Duration::from_millis(500));
    let (before, memory) = (Held::by(process), memory_kb(process));
    let mut most = before.links;
    let sent_before = pod.sent.load(Ordering::Relaxed);
    for round in 0..ROUNDS {
        let name = |pair: u32| format!("c{round}x{pair}");
        let add =
            |pair| format!("link add {} up type veth peer name {}e netns {}", name(pair), name(pair), pod.namespace);
        batch(&world.host, (0..PAIRS).map(add));
        sleep(Duration::from_millis(300));
        most = most.max(Held::by(process).links);
        batch(&world.host, (0..PAIRS).map(|pair| format!("link del {}", name(pair))));
    }
    wait_for("all that came is let go", || Held::by(process) == before);
    let grown = memory_kb(process).saturating_sub(memory);
    println!("at most {most} links, {} before; {grown} kB more", before.links);
    assert!(grown < GROWTH_KB, "{grown} kB more");
    let sent = pod.sent.load(Ordering::Relaxed) - sent_before;
    attached.interrupt();
    let text = reading.join().unwrap();
    assert_eq!(attached.end().1, 0);
    let loss = &of_type(&text, "loss")[0];
    assert_eq!((&loss["lost"], &loss["late"]), (&0.into(), &0.into()), "{loss}");
    let journeys = of_type(&text, "journey");
    let whole = journeys.iter().filter(|journey| journey["outcome"] == "replied").count();
    assert_eq!(whole, journeys.len(), "checks of the pod are told whole");
    assert!(journeys.len() >= sent as usize, "{} checks of {sent} sent meanwhile", journeys.len());
    assert!(sent > 500, "{sent} checks in the whole time");
}
