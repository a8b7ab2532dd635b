//! Golden replays: recordings of the lab's worlds, and what is concluded from them.
//!
//! Each `tests/data/NAME.whylag` is a run of the lab case NAME (`cargo xtask lab run NAME --record
//! FILE`, with the groups of its threads, services of the machine that happened to run, and folders of source files, renamed). `NAME.expected` beside it holds a line per check,
//! then episode, loss and summary as they are printed; `NAME.KIND.folded` and `NAME.KIND.svg` are
//! its flame graphs. `UPDATE=1 cargo test --test golden` writes them anew; review the difference
//! like code.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut recordings: Vec<_> = paths.filter(|path| path.extension().is_some_and(|ext| ext == "whylag")).collect();
    recordings.sort();
    recordings
}

fn whylag(command: &str, recording: &Path, options: &[&str]) -> String {
    let whylag = Command::new(env!("CARGO_BIN_EXE_whylag")).arg(command).arg(recording).args(options).output();
    let output = whylag.unwrap();
    assert!(output.status.success(), "{}: {}", recording.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn replayed(recording: &Path) -> String {
    whylag("replay", recording, &["--format", "json"])
}

/// A check in one line: its end, its time, who took how much of it, and the verdict.
fn check(line: &Value) -> String {
    let parts = line["ledger"].as_array().unwrap().iter();
    let parts: Vec<_> = parts.map(|entry| format!("{} {} {}", entry["span"], entry["cause"], entry["ns"])).collect();
    let Value::Object(verdict) = &line["verdict"] else { panic!("no verdict: {line}") };
    format!(
        "{} {} {} ns [{}] unexplained {}: {} {} {}",
        line["id"],
        line["outcome"],
        line["elapsed_ns"],
        parts.join(", "),
        line["unexplained_ns"],
        verdict["status"],
        verdict["cause"],
        verdict["reason"]
    )
}

fn told(output: &str) -> String {
    let lines = output.lines().map(|text| (text, serde_json::from_str::<Value>(text).unwrap()));
    let told = lines.map(|(text, line)| if line["type"] == "journey" { check(&line) } else { text.to_owned() });
    told.map(|line| line + "\n").collect()
}

/// The first line that differs, and both forms of it.
fn difference(expected: &str, told: &str) -> String {
    let line = expected.lines().zip(told.lines()).position(|(one, two)| one != two);
    let line = line.unwrap_or_else(|| expected.lines().count().min(told.lines().count()));
    let at = |text: &str| text.lines().nth(line).unwrap_or("nothing").to_owned();
    format!("line {}:\n  expected {}\n  told     {}", line + 1, at(expected), at(told))
}

#[test]
fn a_recording_leads_to_the_same_conclusions_as_ever() {
    let recordings = recordings();
    assert!(recordings.len() >= 14, "{recordings:?}");
    for recording in recordings {
        compare(&recording, "expected", &told(&replayed(&recording)));
    }
}

/// Compares with the file of that extension beside the recording, or writes it anew.
fn compare(recording: &Path, extension: &str, told: &str) {
    let beside = recording.with_extension(extension);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&beside, told).unwrap();
    }
    let expected = std::fs::read_to_string(&beside).unwrap();
    assert!(told == expected, "{}, {}", beside.display(), difference(&expected, told));
}

fn flame(recording: &Path, kind: &str, format: &str) -> String {
    whylag("flame", recording, &["--kind", kind, "--format", format])
}

/// Time of the slow checks of a replay, each as it was told last.
fn delay(output: &str) -> u64 {
    let lines = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let checks = lines.filter(|line| line["type"] == "journey");
    let last: BTreeMap<_, _> = checks.map(|check| (check["id"].to_string(), check)).collect();
    let slow = last.values().filter(|check| check["slow"] == true);
    slow.map(|check| check["elapsed_ns"].as_u64().unwrap()).sum()
}

#[test]
fn the_flame_graph_of_a_recording_is_as_ever_and_as_wide_as_its_slow_checks_took() {
    for recording in recordings().into_iter().filter(|path| !path.ends_with("healthy.whylag")) {
        let folded = flame(&recording, "delay", "folded");
        let total: u64 = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        assert_eq!(total, delay(&replayed(&recording)), "{}", recording.display());
        compare(&recording, "delay.folded", &folded);
    }
}

/// A drawing without the script that searches and zooms it, which is inferno's own.
fn drawn(svg: &str) -> String {
    let (before, script) = svg.split_once("<script").expect("a script");
    let (_, after) = script.split_once("</script>").expect("the end of the script");
    assert!(!after.contains("<script"), "one script, and no other");
    format!("{before}<script/>{after}")
}

#[test]
fn the_drawings_of_a_mutex_are_as_ever() {
    let recording = recordings().into_iter().find(|path| path.ends_with("lock-holder-computes.whylag")).unwrap();
    compare(&recording, "delay.svg", &drawn(&flame(&recording, "delay", "svg")));
    compare(&recording, "diff.svg", &drawn(&flame(&recording, "diff", "svg")));
    compare(&recording, "diff.folded", &flame(&recording, "diff", "folded"));
}

/// The one with stacks: the loop's code stands in it with its lines.
#[test]
fn the_drawings_of_a_starved_loop_show_what_it_receives_instead_and_are_as_ever() {
    let recording = recordings().into_iter().find(|path| path.ends_with("loop-starves-replies.whylag")).unwrap();
    let delay = flame(&recording, "delay", "folded");
    let time = |line: &&str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    let held = delay.lines().filter(|line| line.starts_with("thread;hold;app.on_cpu;thread media-loop;"));
    let (whole, receiving) =
        (held.clone().map(|line| time(&line)), held.filter(|line| line.contains("::Media::take;")));
    let (whole, receiving): (u64, u64) = (whole.sum(), receiving.map(|line| time(&line)).sum());
    assert!(receiving * 100 > whole * 80, "{receiving} of {whole} ns");
    let svg = drawn(&flame(&recording, "delay", "svg"));
    assert!(svg.contains("at workload/event_loop.rs:83"), "the line that receives");
    compare(&recording, "delay.svg", &svg);
    compare(&recording, "cpu.svg", &drawn(&flame(&recording, "cpu", "svg")));
    compare(&recording, "cpu.folded", &flame(&recording, "cpu", "folded"));
}

#[test]
fn each_recording_has_the_verdict_of_its_case() {
    let cases = [
        ("asking-behind-shaper", "nic.qdisc"),
        ("backlog-behind-storm", "nic.drop"),
        ("client-window-closed", "external.outside_host"),
        ("connect-firewall", "host.forwarding"),
        ("consumer-behind", "nic.tx_queue"),
        ("consumer-starved", "nic.rx_softirq"),
        ("cpu-neighbours", "app.runqueue"),
        ("cpu-quota", "app.quota_throttle"),
        ("dns-deaf", "dependency.dns"),
        ("flush-stalls-pool", "storage.writeback"),
        ("handler-sleeps", "app.self_wait"),
        ("journal-commit", "storage.journal"),
        ("lock-holder-computes", "app.futex"),
        // Its buffer overflows meanwhile; the checks that it does take wait for it, app.on_cpu.
        ("loop-starves-replies", "app.socket_queue"),
        ("log-pipe-full", "app.blocked_io"),
        ("memory-inspected", "kernel.lock"),
        ("neighbour-writes", "storage.writeback"),
        ("one-of-two-services-late", "dependency.remote"),
        ("read-past-cache", "storage.block_queue"),
        ("receive-buffer-full", "app.socket_queue"),
        ("server-elsewhere-late", "external.outside_host"),
        ("shaper", "nic.qdisc"),
        // Two switches to its worker have no record, and the ends of those slices tell.
        ("tcp-handler-computes", "app.on_cpu"),
        ("short-softirqs-on-worker-cpu", "host.cpu_gap"),
        ("vm-backend-asleep", "vm.backend"),
        ("btrfs-log-commit", "storage.journal"),
        ("disk-queue-full", "storage.block_queue"),
        ("disk-slow", "storage.block_queue"),
        ("mapped-file-faults", "storage.block_queue"),
        ("nginx-accept-queue-full", "app.socket_queue"),
        ("postgres-checkpoint", "storage.writeback"),
        ("xfs-log-commit", "storage.journal"),
        ("write-reclaims", "memory.reclaim"),
    ];
    for recording in recordings() {
        let name = recording.file_stem().unwrap().to_str().unwrap().to_owned();
        let output = replayed(&recording);
        let lines = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let episode = lines.into_iter().find(|line| line["type"] == "episode").unwrap();
        let wanted = cases.iter().find(|(case, _)| *case == name).map(|(_, cause)| *cause);
        assert_eq!(episode["verdict"]["cause"].as_str(), wanted, "{name}: {episode}");
    }
}

/// The facts about block requests in a recording's ledgers, each once.
fn requests(name: &str) -> Vec<String> {
    let recording = recordings().into_iter().find(|path| path.ends_with(format!("{name}.whylag"))).unwrap();
    let output = replayed(&recording);
    let lines = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ledgers = lines.filter(|line| line["type"] == "journey").map(|line| line["ledger"].clone());
    let facts = ledgers.flat_map(|ledger| ledger.as_array().unwrap().clone());
    let facts = facts.flat_map(|entry| entry["evidence"].as_array().unwrap().clone());
    let facts = facts.filter_map(|fact| Some(fact.as_str()?.to_owned()));
    let mut told: Vec<_> = facts.filter(|fact| fact.starts_with("of its request to ")).collect();
    told.sort();
    told.dedup();
    told
}

#[test]
fn a_slow_device_and_a_throttle_are_told_apart_by_the_way_of_the_request() {
    let slow = requests("disk-slow");
    assert!(!slow.is_empty());
    // Nothing but the device took so long that it is told in milliseconds.
    for fact in slow {
        let device = fact.strip_prefix("of its request to loop1 7:1: ").unwrap();
        assert!(device.ends_with(" ms at the device"), "{fact}");
        assert!(!device.contains("throttle") && device.matches(" ms ").count() == 1, "{fact}");
    }
    for name in ["mapped-file-faults", "postgres-checkpoint"] {
        let held = requests(name);
        let throttled = held.iter().filter(|fact| fact.contains(" ms held back by a throttle"));
        assert!(throttled.count() > 5, "{name}: {held:?}");
    }
    // A log is written by others than those who wait for it.
    assert!(requests("xfs-log-commit").is_empty());
}
