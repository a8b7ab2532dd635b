//! Help, usage errors, and the commands that need no input.

use crate::whylag::{whylag, whylag_in};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::io::Write;
use std::process::Command;

#[test]
fn every_flag_of_join_is_in_its_help() {
    let help = whylag(["join", "--help"]).stdout;
    for flag in ["<HOST>", "<GUEST>", "--follow", "--format", "--check", "--strict", "unix:PATH"] {
        assert!(help.contains(flag), "{flag} is missing in:\n{help}");
    }
}

/// Commands and what their help must tell of.
const DOCUMENTED: &[(&[&str], &[&str])] = &[
    (
        &["attach"],
        &[
            "--signature",
            "--duration",
            "--count",
            "--threshold",
            "--format",
            "--record",
            "--pnic",
            "--vnic",
            "--netns",
            "--pid",
            "--container",
            "--check",
            "--strict",
            "--lost-after",
            "--ring-size",
            "--debuginfod",
            "--send",
            "[TARGET]...",
        ],
    ),
    (&["replay"], &["[FILE]", "--pnic", "--vnic", "--signature", "--threshold", "--format", "--check", "--strict"]),
    (&["doctor"], &["--json"]),
    (
        &["flame"],
        &[
            "<FILE>",
            "--kind",
            "delay",
            "diff",
            "offcpu",
            "timeline",
            "--against",
            "--format",
            "svg",
            "folded",
            "pprof",
            "--output",
        ],
    ),
    (&["incident", "export"], &["--from", "--output", "--addresses", "--sign-key"]),
    (&["incident", "show"], &["<BUNDLE>", "--format"]),
    (&["incident", "list"], &["<PATH>...", "--cause", "--component", "--target", "--signature", "--format"]),
    (&["incident", "verify"], &["<BUNDLE>", "--key"]),
    (&[], &["attach", "replay", "join", "flame", "incident", "doctor", "signature", "explain", "Exit status"]),
];

#[test]
fn every_documented_flag_is_in_the_help() {
    for (command, flags) in DOCUMENTED {
        let run = whylag(command.iter().copied().chain(["--help"]).collect::<Vec<_>>());
        assert_eq!(run.status, 0, "{command:?}");
        flags.iter().for_each(|flag| assert!(run.stdout.contains(flag), "{flag} is missing in:\n{}", run.stdout));
    }
}

#[test]
fn debuginfod_without_a_server_says_how_to_name_one() {
    for urls in [None, Some(" "), Some("ftp://host")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whylag"));
        command.args(["attach", "--debuginfod", "--record", "new"]).env_remove("DEBUGINFOD_URLS");
        let run = command.envs(urls.map(|urls| ("DEBUGINFOD_URLS", urls))).output().expect("the binary runs");
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains("DEBUGINFOD_URLS"), "{said}");
    }
}

#[test]
fn contradictory_flags_are_usage_errors() {
    for arguments in [
        &["attach", "--pnic", "x0", "--vnic", "x0=label"][..],
        &["attach", "--threshold", "90s", "--lost-after", "10s"],
        &["attach", "--threshold", "1x"],
        &["attach", "--count", "0"],
        &["attach", "--duration", "0s"],
        &["attach", "--ring-size", "3M"],
        &["attach", "--pid", "0"],
        &["attach", "--stacks", "on"],
        &["attach", "--stacks", "maybe"],
        &["attach", "--stack-rate", "0"],
        &["attach", "--stack-rate", "1000"],
        &["attach", "--stack-wait", "0s"],
        &["attach", "--debuginfod"],
        &["attach", "--debuginfod", "--stacks", "off", "--record", "new"],
        &["replay"],
        &["replay", "file", "--pnic", "a.pcap", "-s", "dns"],
        &["replay", "file", "-s", "dns"],
        &["replay", "--pnic", "a.pcap"],
        &["attach", "--vnic", "x0="],
        &["attach", "--vnic", &format!("x0={}", "l".repeat(65))],
        &["attach", "--vnic", "x0=a\nb"],
        &["attach", "--record", "/dev/null"],
        &["attach", "--record", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")],
        &["flame"],
        &["flame", "file", "--kind", "warm"],
        &["flame", "file", "--kind", "delay", "--against", "file"],
        &["flame", "file", "--kind", "timeline", "--format", "svg"],
        &["flame", "file", "--kind", "cpu", "--format", "perfetto"],
        &["flame", "file", "--output", "/dev/null"],
        &["flame", "file", "-o", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")],
        &["explain", "no.such_cause"],
        &["explain", ""],
        &["frobnicate"],
        &[],
    ] {
        let run = whylag(arguments);
        assert_eq!(run.status, 2, "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{arguments:?}");
    }
}

#[test]
fn a_negative_time_is_told_as_such() {
    for flag in ["--threshold", "--duration", "--lost-after"] {
        let run = whylag(["attach", flag, "-5ms"]);
        run.fails_with(2, &[flag, "must not be negative"]);
        assert!(!run.stderr.contains("tip:"), "{}", run.stderr);
    }
}

#[test]
fn what_is_piped_keeps_to_columns() {
    for (columns, limit) in [("80", 80), ("60", 60), ("", 100)] {
        for arguments in [&["explain"][..], &["explain", "app.futex"], &["signature", "list"]] {
            let text = whylag_in(columns, arguments).stdout;
            let long: Vec<_> = text.lines().filter(|line| line.chars().count() > limit).collect();
            assert_eq!(long, [""; 0], "{arguments:?} at {columns}");
        }
    }
}

#[test]
fn a_malformed_signature_is_a_usage_error_that_says_what_would_be_right() {
    whylag(["attach", "-s", "udp:prt=4000"]).fails_with(2, &["column 5", "prt", "port"]);
    whylag(["attach", "-s", "nosuchpreset"]).fails_with(2, &["nosuchpreset", "whylag signature list"]);
    let many = (0..9).flat_map(|port| ["-s".to_owned(), format!("udp:port=400{port}")]);
    whylag(["attach".to_owned()].into_iter().chain(many)).fails_with(2, &["at most 8"]);
}

#[test]
fn an_interface_that_is_not_there_is_named_with_those_that_are() {
    whylag(["attach", "--pnic", "nosuch0"]).fails_with(1, &["nosuch0", "no such interface", "lo"]);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    whylag(["replay", "/no/such/file"]).fails_with(1, &["/no/such/file", "No such file"]);
    whylag(["replay", "--pnic", "/no/such.pcap", "-s", "dns"]).fails_with(1, &["/no/such.pcap", "No such file"]);
}

#[test]
fn what_is_no_file_is_refused_without_waiting_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.toml");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let pipe = pipe.to_str().unwrap();
    whylag(["attach", "--record", pipe]).fails_with(2, &["a pipe", "regular file", pipe]);
    whylag(["attach", "-s", pipe]).fails_with(1, &["a pipe", "regular file", pipe]);
    whylag(["attach", "-s", "/dev/zero"]).fails_with(1, &["a device", "/dev/zero"]);
    whylag(["replay", pipe]).fails_with(1, &["a pipe", pipe]);
    whylag(["replay", "--pnic", pipe, "-s", "dns"]).fails_with(1, &["a pipe", pipe]);
    whylag(["signature", "test", "dns", pipe]).fails_with(1, &["a pipe", pipe]);
}

#[test]
fn a_signature_file_must_hold_one_and_be_small() {
    let mut file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    whylag(["attach", "-s", &path]).fails_with(2, &["holds no signature", &path]);
    file.write_all(&[b'#'; (64 << 10) + 1]).unwrap();
    whylag(["attach", "-s", &path]).fails_with(1, &["larger than 64 KiB", &path]);
}

#[test]
fn causes_are_explained_and_presets_listed() {
    let causes = whylag(["explain"]);
    let named = causes.stdout.lines().filter(|line| !line.starts_with(' ')).count();
    assert_eq!((causes.status, named), (0, 25));
    assert!(whylag(["explain", "nic.tx_queue"]).stdout.contains("proof"));
    assert!(whylag(["signature", "list"]).stdout.contains("icmp-echo"));
}

#[test]
fn doctor_gives_one_json_object() {
    let run = whylag(["doctor", "--json"]);
    assert_eq!(run.lines().len(), 1);
    assert_eq!(run.lines()[0]["type"], "doctor");
    assert_eq!(run.status == 0, run.lines()[0]["verdict"]["can_run"] == true);
}

/// Runs a shell line with the binary as `$0`.
fn shell(line: &str) -> (Option<i32>, String) {
    let output = Command::new("sh").args(["-c", line, env!("CARGO_BIN_EXE_whylag")]).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_closed_standard_output_is_an_error_and_a_null_device_is_none() {
    for command in ["attach -s dns -d 1s", "explain", "signature list"] {
        let (status, said) = shell(&format!("\"$0\" {command} >&-"));
        assert_eq!(status, Some(1), "{command}");
        assert!(said.contains("standard output is closed"), "{said}");
    }
    assert_eq!(shell("\"$0\" explain >/dev/null").0, Some(0));
}

#[test]
fn too_few_files_are_told_with_the_way_out() {
    for files in [12, 30] {
        let (status, said) = shell(&format!("ulimit -n {files}; \"$0\" attach --pnic lo -s dns -d 1s"));
        if status == Some(0) {
            continue;
        }
        assert!(said.contains(&format!("{files} files")) && said.contains("ulimit -n 1024"), "{files}: {said}");
    }
}
