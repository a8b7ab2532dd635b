//! Captures: made ones, cut ones, and real ones where they are at hand.

use crate::whylag::{Run, whylag};
use etherparse::PacketBuilder;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

const SIGNATURE: &str = "udp:port=4000,at=0,bytes=\"WLAG\",nonce=4+4";
const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 2], 30_000);
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 1], 4000);

/// A pcap with microseconds, Ethernet.
struct Pcap(Vec<u8>);

impl Pcap {
    fn new() -> Self {
        let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
        bytes.extend([2, 0, 4, 0]);
        bytes.extend([0; 8]);
        bytes.extend(65_535_u32.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        Self(bytes)
    }

    fn packet(mut self, micros: u32, from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Self {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).udp(from.1, to.1);
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        let len = u32::try_from(frame.len()).unwrap();
        for word in [1_600_000_000 + micros / 1_000_000, micros % 1_000_000, len, len] {
            self.0.extend(word.to_le_bytes());
        }
        self.0.extend(frame);
        self
    }

    fn request(self, micros: u32, check: u32) -> Self {
        self.packet(micros, CLIENT, SERVER, &payload(check))
    }

    fn reply(self, micros: u32, check: u32) -> Self {
        self.packet(micros, SERVER, CLIENT, &payload(check))
    }

    /// A packet that is no check, so that the capture runs on.
    fn other(self, micros: u32) -> Self {
        self.packet(micros, CLIENT, ([10, 0, 0, 9], 9), b"something else")
    }

    fn file(&self) -> NamedTempFile {
        let mut file = NamedTempFile::with_suffix(".pcap").unwrap();
        file.write_all(&self.0).unwrap();
        file
    }
}

fn payload(check: u32) -> Vec<u8> {
    [b"WLAG".as_slice(), &check.to_be_bytes(), b"data"].concat()
}

fn replay(nics: &[(&str, &Path)], more: &[&str]) -> Run {
    let mut arguments = vec!["replay".to_owned(), "--signature".to_owned(), SIGNATURE.to_owned()];
    arguments.extend(nics.iter().flat_map(|(nic, path)| [(*nic).to_owned(), path.display().to_string()]));
    arguments.extend(more.iter().map(|&argument| argument.to_owned()));
    whylag(arguments)
}

fn outcomes(run: &Run) -> Vec<String> {
    let journeys = run.of_type("journey");
    let ends = journeys
        .iter()
        .enumerate()
        .filter(|(index, line)| !journeys[index + 1..].iter().any(|later| later["id"] == line["id"]));
    ends.map(|(_, line)| line["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn one_capture_shows_the_time_between_its_nic_and_its_nic() {
    let pcap = Pcap::new().request(0, 1).reply(300, 1).request(20_000, 2).reply(420_000, 2).file();
    let run = replay(&[("--pnic", pcap.path())], &["--format", "json", "--threshold", "20ms", "--check"]);
    assert_eq!(run.status, 3, "{}", run.stderr);
    let journeys = run.of_type("journey");
    assert_eq!(journeys[0]["elapsed_ns"], 300_000);
    assert_eq!((&journeys[0]["slow"], &journeys[1]["slow"]), (&false.into(), &true.into()));
    assert_eq!(journeys[1]["started_at"], "2020-09-13T12:26:40.020000000Z");
}

#[test]
fn two_captures_are_merged_into_one_path() {
    let outside = Pcap::new().request(0, 1).reply(50_300, 1).file();
    let inside = Pcap::new().request(100, 1).reply(50_200, 1).file();
    let nics = [("--pnic", outside.path()), ("--vnic", inside.path())];
    let run = replay(&nics, &["--format", "json", "--threshold", "20ms"]);
    let journey = &run.of_type("journey")[0];
    let stages = journey["stages"].as_array().unwrap();
    let names: Vec<_> = stages.iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
    assert_eq!(names, ["pnic_rx", "vnic_tx", "vnic_rx", "pnic_queue"], "{journey}");
    assert_eq!(journey["elapsed_ns"], 50_300_000);
    assert_eq!(journey["verdict"]["cause"], "vm.guest_internal", "{journey}");
}

#[test]
fn a_check_without_answer_is_lost_only_when_the_capture_runs_on() {
    let short = Pcap::new().request(0, 1).other(2_000_000).file();
    assert_eq!(outcomes(&replay(&[("--pnic", short.path())], &["--format", "json"])), ["open"]);
    let long = Pcap::new().request(0, 1).other(5_500_000).file();
    assert_eq!(outcomes(&replay(&[("--pnic", long.path())], &["--format", "json"])), ["lost"]);
    let late = Pcap::new().request(0, 1).reply(60_000_000, 1).other(70_000_000).file();
    assert_eq!(outcomes(&replay(&[("--pnic", late.path())], &["--format", "json"])), ["replied"]);
}

#[test]
fn a_periodic_request_that_came_late_is_told_by_how_much() {
    let pcap = Pcap::new().request(0, 1).reply(300, 1).request(320_000, 2).reply(320_300, 2).file();
    let signature = format!("{SIGNATURE},interval=20ms");
    let path = pcap.path().to_str().unwrap();
    let run = whylag(["replay", "--pnic", path, "--signature", &signature, "--format", "json"]);
    let lapses = run.of_type("lapse");
    assert_eq!(lapses.len(), 1, "{}", run.stdout);
    assert_eq!((&lapses[0]["id"], &lapses[0]["late_ns"]), (&"2".into(), &300_000_000.into()));
}

#[test]
fn a_clock_that_was_set_back_costs_checks_that_are_counted_and_nothing_else() {
    let pcap = Pcap::new().request(10_000_000, 1).reply(10_000_300, 1).other(13_000_000);
    let pcap = pcap.request(1_000_000, 2).reply(1_000_300, 2).request(14_000_000, 3).reply(14_000_300, 3).file();
    let run = replay(&[("--pnic", pcap.path())], &["--format", "json"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert_eq!(outcomes(&run), ["replied", "replied"], "{}", run.stdout);
    assert_eq!(run.of_type("loss")[0]["late"], 2, "{}", run.stdout);
    assert!(run.stderr.contains("2 packets were not used"), "{}", run.stderr);
}

#[test]
fn a_cut_capture_gives_what_is_whole_and_says_so() {
    let whole = Pcap::new().request(0, 1).reply(300, 1).request(20_000, 2).reply(20_300, 2);
    let mut cut = NamedTempFile::with_suffix(".pcap").unwrap();
    cut.write_all(&whole.0[..whole.0.len() - 20]).unwrap();
    let run = replay(&[("--pnic", cut.path())], &["--format", "json"]);
    run.fails_with(1, &["is cut off behind byte", cut.path().to_str().unwrap()]);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert_eq!(outcomes(&run), ["replied", "open"]);
    let trial = whylag(["signature", "test", SIGNATURE, cut.path().to_str().unwrap()]);
    trial.fails_with(1, &["is cut off behind byte"]);
    assert!(trial.stdout.contains("2 requests"), "{}", trial.stdout);
}

#[test]
fn a_trial_needs_no_signature_and_says_what_answers_take() {
    let pcap = Pcap::new().packet(0, CLIENT, ([10, 0, 0, 1], 53), &dns(false));
    let pcap = pcap.packet(1_500, ([10, 0, 0, 1], 53), CLIENT, &dns(true)).request(9_000, 1).reply(9_300, 1).file();
    let path = pcap.path().display().to_string();
    let trial = whylag(["signature", "test", &path]).stdout;
    assert!(trial.contains("\ndns\n") && trial.contains("1 answered"), "{trial}");
    assert!(trial.contains("answers took 1.50 ms at least, 1.50 ms median, 1.50 ms at most"), "{trial}");
    for arguments in [&["signature", "test", SIGNATURE, &path][..], &["signature", "test", "-s", SIGNATURE, &path]] {
        let trial = whylag(arguments).stdout;
        assert!(trial.contains("answers took 300 µs") && trial.contains("bytes=\"WLAG\""), "{trial}");
    }
}

fn dns(answer: bool) -> Vec<u8> {
    let mut message = vec![0_u8; 20];
    message[..3].copy_from_slice(&[1, 2, if answer { 0x80 } else { 0 }]);
    message
}

#[test]
fn a_capture_without_any_check_says_what_to_try() {
    let pcap = Pcap::new().other(0).other(10).file();
    let run = replay(&[("--pnic", pcap.path())], &[]);
    assert_eq!(run.status, 0);
    assert!(run.stderr.contains("none of 2 packets matched"), "{}", run.stderr);
}

#[test]
fn something_else_is_not_taken_for_a_capture() {
    let mut other = NamedTempFile::new().unwrap();
    other.write_all(&[0x42; 100]).unwrap();
    let run = replay(&[("--pnic", other.path())], &["--format", "text"]);
    run.fails_with(1, &["whylag: error:", "neither a pcap nor a pcapng"]);
    assert_eq!(run.stdout, "", "the error says all");
}

/// Where captures of real traffic are: beside the checkout, or where the environment says.
fn real_captures() -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/captures"));
    let folder = std::env::var_os("WHYLAG_CAPTURES").map_or_else(beside, PathBuf::from);
    folder.is_dir().then_some(folder)
}

#[test]
fn real_captures_hold_as_many_checks_as_a_trial_of_their_signature_finds() {
    let Some(folder) = real_captures() else {
        println!("skipped: no captures beside the checkout, and WHYLAG_CAPTURES is not set");
        return;
    };
    for (signature, name) in [("discord-voice", "ndpi-discord.pcap"), ("stun", "ndpi-stun.pcap")] {
        let path = folder.join(name).display().to_string();
        let run = whylag(["replay", "--pnic", &path, "--signature", signature, "--format", "json"]);
        assert_eq!(run.status, 0, "{name}: {}", run.stderr);
        let trial = whylag(["signature", "test", signature, &path]).stdout;
        let checks = run.of_type("summary")[0]["checks"].as_u64().unwrap();
        assert!(checks > 0 && trial.contains(&format!("{checks} requests")), "{name}: {checks} checks, but\n{trial}");
    }
}
