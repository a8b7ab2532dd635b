//! Bundles: made, looked into, found, replayed, and refused.

use crate::made::{HOSTILE, Made};
use crate::whylag::{Run, whylag, whylag_in};
use probe_user::clock::DurNs;
use probe_user::event::{Body, Fact, TaskFact, TaskId, decode, fact_record};
use probe_user::source::recording::{Compression, Reader, Writer};
use probe_user::stack::{FrameFact, Function, ModuleFact, Nameless, StackEnd, StackFact, Taken, TakenFact};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Made by openssl for these tests.
const SECRET_KEY: &str = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIHa6dFLQTzf3PdBHzTDiNxwsfyjtBHNu0yBvQRsqo8tJ\n-----END PRIVATE KEY-----\n";
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAgVhEbaRVXOOf9TmEmjKLRJbK8OpsPu9HGZ1LNYKxVHU=\n-----END PUBLIC KEY-----\n";
const OTHER_KEY: &str = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEATh50zQs2gAiZvoezrE2823Y/QGvJkTzyfq2goMU4xj8=\n-----END PUBLIC KEY-----\n";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn exported(from: &Path, to: &Path, more: &[&str]) -> Run {
    let run = whylag(["incident", "export", "--from", text(from), "-o", text(to)].iter().chain(more));
    assert_eq!(run.status, 0, "{}", run.stderr);
    run
}

fn replayed(file: &Path) -> Run {
    let run = whylag(["replay", text(file), "--format", "json"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    run
}

fn extracted(bundle: &Path, folder: &Path) {
    let tar = Command::new("tar").arg("-xf").arg(bundle).arg("-C").arg(folder).status();
    assert!(tar.unwrap().success());
}

/// Every address in it replaced by a word.
fn without_addresses(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let known = |key: &str| matches!(key, "source" | "destination");
            let hide = |(key, value): (&String, &Value)| match known(key) {
                true => (key.clone(), Value::from("address")),
                false => (key.clone(), without_addresses(value)),
            };
            fields.iter().map(hide).collect()
        }
        Value::Array(elements) => elements.iter().map(without_addresses).collect(),
        Value::String(text) => {
            let is_address = |word: &str| {
                let word = word.trim_end_matches([',', '.']);
                word.parse::<std::net::SocketAddr>().is_ok() || word.parse::<std::net::IpAddr>().is_ok()
            };
            let words = text.split(' ').map(|word| if is_address(word) { "address" } else { word });
            Value::from(words.collect::<Vec<_>>().join(" "))
        }
        other => other.clone(),
    }
}

#[test]
fn a_bundle_replays_to_its_ledgers_bit_for_bit_and_to_those_of_the_recording_but_for_addresses() {
    let folder = TempDir::new().unwrap();
    let mut recordings = 0;
    for entry in fs::read_dir(data("")).unwrap() {
        let from = entry.unwrap().path();
        if from.extension().is_none_or(|extension| extension != "whylag") {
            continue;
        }
        recordings += 1;
        let inside = TempDir::new().unwrap();
        let bundle = folder.path().join(from.file_stem().unwrap());
        exported(&from, &bundle, &[]);
        let (of_bundle, of_recording) = (replayed(&bundle), replayed(&from));
        extracted(&bundle, inside.path());
        let ledgers = zstd::decode_all(&fs::read(inside.path().join("ledgers.jsonl.zst")).unwrap()[..]).unwrap();
        assert_eq!(of_bundle.stdout, String::from_utf8(ledgers).unwrap(), "{}", from.display());
        assert_ne!(of_bundle.stdout, of_recording.stdout, "there are addresses in {}", from.display());
        let plain: Vec<_> = of_recording.lines().iter().map(without_addresses).collect();
        assert_eq!(of_bundle.lines().iter().map(without_addresses).collect::<Vec<_>>(), plain, "{}", from.display());
    }
    assert!(recordings > 10);
}

#[test]
fn with_addresses_the_ledgers_are_those_of_the_recording() {
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("bundle");
    exported(&data("shaper.whylag"), &bundle, &["--addresses"]);
    assert_eq!(replayed(&bundle).stdout, replayed(&data("shaper.whylag")).stdout);
}

#[test]
fn its_flame_graphs_are_those_that_are_drawn_from_it() {
    let (folder, inside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let bundle = folder.path().join("bundle");
    exported(&data("lock-holder-computes.whylag"), &bundle, &[]);
    extracted(&bundle, inside.path());
    for kind in ["delay", "diff", "offcpu"] {
        for format in ["svg", "folded"] {
            let drawn = whylag(["flame", text(&bundle), "--kind", kind, "--format", format]).stdout;
            assert_eq!(drawn, fs::read_to_string(inside.path().join(format!("{kind}.{format}"))).unwrap());
        }
    }
    let sums = Command::new("sha256sum").args(["-c", "whylag-bundle.sha256"]).current_dir(inside.path()).output();
    assert!(sums.unwrap().status.success(), "sha256sum reads the digest");
}

#[test]
fn an_incident_is_shown_with_cause_offender_and_what_was_left_out() {
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("bundle");
    let said = exported(&data("lock-holder-computes.whylag"), &bundle, &[]).stderr;
    assert!(said.contains("38 of 101 checks slow at pnic0"), "{said}");
    let shown = whylag(["incident", "show", text(&bundle)]);
    assert_eq!((shown.status, shown.stderr.as_str()), (0, ""));
    for words in ["app.futex >99 %", "stats-rollup", "trigger", "what helps", "payload of packets", "signed      no"] {
        assert!(shown.stdout.contains(words), "{words} is missing in {}", shown.stdout);
    }
    let json = whylag(["incident", "show", text(&bundle), "--format", "json"]);
    let incident = &json.of_type("incident")[0];
    assert_eq!(incident["causes"][0]["component"], "lock");
    assert_eq!(incident["actions"], Value::Array(Vec::new()));
    assert_eq!(incident["timeline"].as_array().unwrap().len(), 38);
    assert_eq!(json.of_type("bundle")[0]["members"].as_array().unwrap().len(), 10);
    assert_eq!(json.of_type("loss").len(), 1);
}

#[test]
fn bundles_are_found_by_what_they_are_about() {
    let folder = TempDir::new().unwrap();
    let below = folder.path().join("2026/11");
    fs::create_dir_all(&below).unwrap();
    for name in ["flush-stalls-pool", "lock-holder-computes", "healthy"] {
        exported(&data(&format!("{name}.whylag")), &below.join(name), &[]);
    }
    fs::write(folder.path().join("notes.txt"), "no bundle").unwrap();
    fs::write(folder.path().join(".hidden"), "whylag-bundle.sha256\0").unwrap();
    let found = |more: &[&str]| {
        let list = ["incident", "list", text(folder.path()), "--format", "json"];
        let run = whylag(list.iter().chain(more));
        assert_eq!((run.status, run.stderr.as_str()), (0, ""));
        let name = |line: &Value| line["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        run.of_type("incident").iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(found(&[]), ["flush-stalls-pool", "healthy", "lock-holder-computes"]);
    assert_eq!(found(&["--cause", "storage.writeback", "--component", "disk"]), ["flush-stalls-pool"]);
    assert_eq!(found(&["--cause", "storage"]), ["flush-stalls-pool"]);
    assert_eq!(found(&["--cause", "storage", "--cause", "app.futex"]), ["flush-stalls-pool", "lock-holder-computes"]);
    assert_eq!(found(&["--component", "lock", "--target", "pnic0"]), ["lock-holder-computes"]);
    assert_eq!(found(&["--component", "lock", "--target", "tap7"]), [""; 0]);
    let list = whylag(["incident", "list", text(folder.path()), "--component", "lock"]);
    assert!(list.stdout.contains("app.futex >99 %") && list.stdout.contains("lock-holder-computes"), "{}", list.stdout);
    let none = whylag(["incident", "list", text(folder.path()), "--cause", "nic"]);
    assert_eq!((none.status, none.stdout.as_str()), (0, ""));
    assert!(none.stderr.contains("no bundle in"), "{}", none.stderr);
}

#[test]
fn a_search_that_could_find_nothing_is_wrong_usage() {
    whylag(["incident", "list", ".", "--cause", "storage.writebak"]).fails_with(2, &["no cause is called so"]);
    whylag(["incident", "list", ".", "--component", "printer"]).fails_with(2, &["disk", "nic"]);
    whylag(["incident", "list", "/no/such/place"]).fails_with(1, &["/no/such/place", "No such file"]);
    whylag(["incident", "list"]).fails_with(2, &["PATH"]);
}

#[test]
fn damage_is_said_by_every_command_and_nothing_else_is() {
    let folder = TempDir::new().unwrap();
    let (bundle, damaged) = (folder.path().join("good"), folder.path().join("damaged"));
    exported(&data("shaper.whylag"), &bundle, &[]);
    let mut bytes = fs::read(&bundle).unwrap();
    whylag(["incident", "verify", text(&bundle)]).fails_with(0, &[]);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&damaged, &bytes).unwrap();
    for command in [&["incident", "verify"][..], &["incident", "show"], &["replay"], &["flame"]] {
        let run = whylag(command.iter().copied().chain([text(&damaged)]));
        run.fails_with(1, &[text(&damaged), "the bundle is damaged", "does not match its SHA-256"]);
        assert_eq!(run.stdout, "");
    }
    bytes.truncate(middle);
    fs::write(&damaged, &bytes).unwrap();
    whylag(["replay", text(&damaged)]).fails_with(1, &["cut off behind byte", "copy it again"]);
    let list = whylag(["incident", "list", text(folder.path())]);
    list.fails_with(1, &[text(&damaged), "cut off"]);
    assert!(list.stdout.contains(text(&bundle)), "the good one is told all the same");
    whylag(["incident", "verify", text(&data("shaper.whylag"))]).fails_with(1, &["not a whylag bundle"]);
}

#[test]
fn a_signature_proves_who_made_it() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (name, key) in [("key", SECRET_KEY), ("public", PUBLIC_KEY), ("other", OTHER_KEY)] {
        fs::write(path(name), key).unwrap();
    }
    exported(&data("shaper.whylag"), &path("signed"), &["--sign-key", text(&path("key"))]);
    exported(&data("shaper.whylag"), &path("unsigned"), &[]);
    let verify =
        |bundle: &str, key: &str| whylag(["incident", "verify", text(&path(bundle)), "--key", text(&path(key))]);
    let good = verify("signed", "public");
    good.fails_with(0, &[]);
    assert!(good.stdout.contains("signed by the key that was asked for"), "{}", good.stdout);
    verify("signed", "other").fails_with(1, &["is signed by key", "not by"]);
    verify("unsigned", "public").fails_with(1, &["not signed"]);
    verify("signed", "key").fails_with(1, &["no ed25519 public key", "openssl"]);
    let (from, to, key) = (data("shaper.whylag"), path("x"), path("public"));
    let wrong = ["incident", "export", "--from", text(&from), "-o", text(&to), "--sign-key", text(&key)];
    let wrong = whylag(wrong);
    wrong.fails_with(1, &["no ed25519 secret key", "openssl"]);
    assert!(!path("x").exists());
    assert!(!good.stdout.contains("PRIVATE"));
}

#[test]
fn nothing_is_written_over_and_no_bundle_is_bundled() {
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("bundle");
    exported(&data("shaper.whylag"), &bundle, &[]);
    let before = fs::read(&bundle).unwrap();
    let again = |from: &Path, to: &Path| whylag(["incident", "export", "--from", text(from), "-o", text(to)]);
    again(&data("shaper.whylag"), &bundle).fails_with(2, &["--output", "choose another name"]);
    assert_eq!(fs::read(&bundle).unwrap(), before);
    again(&bundle, &folder.path().join("two")).fails_with(1, &["a bundle already"]);
    again(&data("no-such"), &folder.path().join("two")).fails_with(1, &["no-such"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn of_a_cut_recording_all_that_can_be_read_is_bundled_then_it_says_so() {
    let folder = TempDir::new().unwrap();
    let (cut, bundle) = (folder.path().join("cut"), folder.path().join("bundle"));
    let whole = Made::story().file(0);
    fs::write(&cut, &whole[..whole.len() - 700]).unwrap();
    let run = whylag(["incident", "export", "--from", text(&cut), "-o", text(&bundle)]);
    run.fails_with(1, &["cut off", "is in the bundle"]);
    let shown = whylag(["incident", "show", text(&bundle)]);
    assert!(shown.stdout.contains("the rest of the recording"), "{}", shown.stdout);
    assert!(shown.stdout.contains("only a part of the recording could be read: "), "{}", shown.stdout);
    let replay = whylag(["replay", text(&bundle), "--format", "json"]);
    replay.fails_with(1, &["only a part of", "cut off"]);
    assert_eq!(replay.of_type("summary").len(), 1);
    let list = whylag(["incident", "list", text(&bundle)]);
    assert!(list.stdout.contains("only a part of the recording"), "{}", list.stdout);
    let page = folder.path().join("page.html");
    whylag(["report", text(&bundle), "-o", text(&page)]).fails_with(1, &["only a part of"]);
}

#[test]
fn where_no_check_was_seen_nothing_is_called_healthy() {
    let folder = TempDir::new().unwrap();
    let (start, bundle) = (folder.path().join("start"), folder.path().join("bundle"));
    fs::write(&start, &Made::story().file(0)[..64]).unwrap();
    whylag(["incident", "export", "--from", text(&start), "-o", text(&bundle)]).fails_with(1, &["cut off"]);
    let list = whylag(["incident", "list", text(&bundle)]);
    assert!(list.stdout.contains("nothing seen") && !list.stdout.contains("healthy"), "{}", list.stdout);
}

#[test]
fn no_name_of_a_file_makes_a_line_of_its_own_in_the_list() {
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("in\nvented  healthy");
    exported(&data("lock-holder-computes.whylag"), &bundle, &[]);
    let list = |columns| whylag_in(columns, ["incident", "list", text(folder.path())]).stdout;
    assert_eq!(list("300").lines().count(), 2, "{}", list("300"));
    let narrow = list("60");
    let mut rows = narrow.lines().collect::<Vec<_>>();
    rows.pop();
    assert!(rows.len() >= 2 && rows.iter().all(|row| row.chars().count() <= 60), "{narrow}");
    assert!(rows[1..].iter().all(|row| row.starts_with("    ")), "{narrow}");
}

#[test]
fn a_signature_is_found_however_its_bytes_are_typed() {
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("bundle");
    exported(&data("lock-holder-computes.whylag"), &bundle, &[]);
    let json = whylag(["incident", "show", text(&bundle), "--format", "json"]);
    let typed = json.of_type("incident")[0]["signatures"][0].as_str().unwrap().to_owned();
    let bytes = typed.split("bytes=").nth(1).unwrap().split(',').next().unwrap().to_owned();
    let readable: String = match bytes.strip_prefix('"') {
        Some(quoted) => quoted.trim_end_matches('"').bytes().map(|byte| format!("{byte:02x}")).collect(),
        None => {
            let bytes = (0..bytes.len()).step_by(2).map(|at| u8::from_str_radix(&bytes[at..at + 2], 16).unwrap());
            format!("\"{}\"", bytes.map(char::from).collect::<String>())
        }
    };
    for (signature, count) in [(typed.clone(), 1), (typed.replace(&bytes, &readable), 1), ("stun".to_owned(), 0)] {
        let list = whylag(["incident", "list", text(&bundle), "--signature", &signature, "--format", "json"]);
        assert_eq!(list.of_type("incident").len(), count, "{signature}");
    }
}

#[test]
fn evidence_stands_under_its_cause_and_rows_hang_alike() {
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("bundle");
    exported(&data("flush-stalls-pool.whylag"), &bundle, &[]);
    let json = whylag(["incident", "show", text(&bundle), "--format", "json"]);
    let incident = &json.of_type("incident")[0];
    let shown = whylag_in("70", ["incident", "show", text(&bundle)]).stdout;
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 70 || !line.trim().contains(' ')), "{shown}");
    let at = lines.iter().position(|line| line.starts_with("evidence")).unwrap();
    let first = incident["causes"][0]["cause"].as_str().unwrap();
    assert_eq!(lines[at], format!("evidence    of {first}:"));
    assert!(lines[at + 1].starts_with("              "), "{shown}");
    let unexplained = incident["counts"]["unexplained_ns"].as_u64().unwrap();
    assert_eq!(shown.contains("unexplained: "), unexplained > 0 || incident["counts"]["unresolved"] != 0, "{shown}");
}

#[test]
fn addresses_of_a_bundle_are_said_to_be_pseudonyms() {
    let (folder, inside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = |name: &str| folder.path().join(name);
    exported(&data("shaper.whylag"), &path("bundle"), &[]);
    extracted(&path("bundle"), inside.path());
    let taken_out = inside.path().join("recording.whylag");
    for file in [&path("bundle"), &taken_out] {
        assert!(replayed(file).stderr.contains("addresses here are pseudonyms"), "{}", file.display());
    }
    assert_eq!(replayed(&data("shaper.whylag")).stderr, "");
    let again = exported(&taken_out, &path("again"), &["--addresses"]).stderr;
    assert!(again.contains("addresses in the recording are pseudonyms"), "{again}");
    assert!(whylag(["incident", "show", text(&path("again"))]).stdout.contains("addresses are pseudonyms"));
    let page = whylag(["report", text(&taken_out), "-o", "-"]).stdout;
    assert!(page.contains("pseudonyms: no real host has them"));
    let to_dash = ["incident", "export", "--from", text(&taken_out), "-o", "-"];
    whylag(to_dash).fails_with(2, &["--output -", "it needs a file"]);
}

/// What a tenant may call its things.
const NAMES: [&str; 5] = [
    HOSTILE,
    "\"quoted\" \\ 'twice'",
    "</script><script>alert(1)</script>&amp;<!--",
    "two\r\nlines\u{0}and\u{7f}\u{9b}31m\u{202e}desrever",
    "; rm -rf / $(id) `id` %s %n ../../etc/passwd",
];

/// The recording of a lock's holder, with all names replaced.
fn renamed(name: &str) -> Vec<u8> {
    let file = fs::read(data("lock-holder-computes.whylag")).unwrap();
    let mut writer = Writer::new(Vec::new(), Compression::Zstd).unwrap();
    for record in Reader::new(&file[..]).unwrap() {
        let record = record.unwrap();
        let event = decode(&record).unwrap();
        let Body::Fact(mut fact) = event.body else {
            writer.write(&record).unwrap();
            continue;
        };
        match &mut *fact {
            Fact::Interface(interface) => (interface.name, interface.label) = (name.to_owned(), name.to_owned()),
            Fact::Task(task) => (task.comm, task.cgroup) = (name.to_owned(), name.to_owned()),
            Fact::Symbol { name: symbol, .. } if symbol.len() > 200 => name.clone_into(symbol),
            _ => {}
        }
        writer.write(&fact_record(event.at, &fact).unwrap()).unwrap();
        if matches!(*fact, Fact::Clock(_)) {
            code(name).iter().for_each(|fact| writer.write(&fact_record(event.at, fact).unwrap()).unwrap());
        }
    }
    writer.finish().unwrap()
}

/// A thread of that name, sampled once in a function of that name, inlined in another of a file of that
/// name, called from a place without a name in a module of that name.
fn code(name: &str) -> Vec<Fact> {
    let id = TaskId { tgid: 77, tid: 77 };
    let function = || Function { name: name.to_owned(), file: name.to_owned(), line: 7 };
    let frame = |id, functions, unknown| FrameFact { id, module: Some(1), address: 64, functions, unknown };
    let sample = Taken::Sample { period: DurNs(10_000_000) };
    let comm = name.to_owned();
    let task = TaskFact { id, start_time_ns: 0, comm, cgroup: String::new(), state: 'R', wchan: None };
    vec![
        Fact::Task(task),
        Fact::Module(ModuleFact { id: 1, name: name.to_owned(), build_id: name.to_owned() }),
        Fact::Frame(frame(1, vec![function()], None)),
        Fact::Frame(frame(2, vec![function()], None)),
        Fact::Frame(frame(3, Vec::new(), Some(Nameless::NoSymbol))),
        Fact::Stack(StackFact { id: 1, frames: vec![1, 2, 3], end: StackEnd::Entry }),
        Fact::Taken(TakenFact { task: id, why: sample, user: Some(1), kernel: Vec::new() }),
    ]
}

fn hostile_names() -> Vec<String> {
    let long = ["<\"&\u{1b}[31m;", &"x".repeat(30_000)].concat();
    NAMES.iter().map(|name| (*name).to_owned()).chain([long]).collect()
}

#[test]
fn hostile_names_go_through_every_output_and_come_back() {
    for name in hostile_names() {
        let folder = TempDir::new().unwrap();
        let (from, bundle) = (folder.path().join("from"), folder.path().join("bundle"));
        fs::write(&from, renamed(&name)).unwrap();
        exported(&from, &bundle, &[]);
        let episode = &replayed(&bundle).of_type("episode")[0];
        assert_eq!(episode["target"], name.as_str(), "it comes back as it was");
        let shown = whylag(["incident", "show", text(&bundle), "--format", "json"]);
        let target = shown.of_type("incident")[0]["targets"][0].as_str().unwrap().to_owned();
        assert!(name.starts_with(target.trim_end_matches('…')), "{target}");
        assert!(target.chars().count() <= 401, "{}", target.len());
        let list = ["incident", "list", text(folder.path()), "--format", "json"];
        assert_eq!(whylag(list).of_type("incident").len(), 1);
        for command in [&["incident", "show"][..], &["incident", "list"], &["replay"], &["incident", "verify"]] {
            let run = whylag(command.iter().copied().chain([text(&bundle)]));
            assert_eq!(run.status, 0, "{}", run.stderr);
            let obeyed = |c: char| c.is_control() && c != '\n' || ('\u{202a}'..='\u{202e}').contains(&c);
            assert!(!run.stdout.contains(obeyed), "{command:?} of {name:?}");
        }
        let scripts = ["delay", "cpu", "offcpu"].map(|kind| scripts(&drawn(&bundle, kind, "svg")));
        assert!(scripts.iter().all(|scripts| *scripts <= 1), "only the graph's own");
        in_other_formats(&bundle);
    }
}

fn drawn(bundle: &Path, kind: &str, format: &str) -> Vec<u8> {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out");
    let run = whylag(["flame", text(bundle), "--kind", kind, "--format", format, "-o", text(&out)]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    fs::read(out).unwrap()
}

fn scripts(svg: &[u8]) -> usize {
    let mut xml = quick_xml::Reader::from_reader(svg);
    let (mut scripts, mut buffer) = (0, Vec::new());
    loop {
        match xml.read_event_into(&mut buffer).unwrap() {
            quick_xml::events::Event::Start(tag) if tag.name().as_ref() == b"script" => scripts += 1,
            quick_xml::events::Event::Eof => return scripts,
            _ => {}
        }
    }
}

/// The function's name is one name in each of them, and the same.
fn in_other_formats(bundle: &Path) {
    let folded = String::from_utf8(drawn(bundle, "cpu", "folded")).unwrap();
    let (tower, time) = folded.trim_end_matches('\n').rsplit_once(' ').unwrap();
    let levels: Vec<_> = tower.split(';').collect();
    assert_eq!((levels.len(), time), (4, "10000000"), "a thread and three frames: {folded:.200}");
    assert!(!folded.contains('…') && levels[2] == levels[3], "only drawings cut names: {folded:.200}");
    let frames = |value: &Value| value.to_string().contains(&serde_json::to_string(levels[3]).unwrap());
    for format in ["speedscope", "firefox"] {
        assert!(frames(&serde_json::from_slice(&drawn(bundle, "cpu", format)).unwrap()), "{format}: {folded:.200}");
    }
    let mut pprof = Vec::new();
    flate2::read::GzDecoder::new(&drawn(bundle, "cpu", "pprof")[..]).read_to_end(&mut pprof).unwrap();
    let count = pprof.windows(levels[3].len()).filter(|bytes| *bytes == levels[3].as_bytes()).count();
    assert!(count >= 1, "{folded:.200}");
    assert!(!drawn(bundle, "timeline", "perfetto").is_empty());
}

/// The names of the tags and attributes of a page.
fn markup(page: &str) -> std::collections::BTreeSet<String> {
    let mut names = std::collections::BTreeSet::new();
    for token in html5gum::Tokenizer::new(page) {
        if let html5gum::Token::StartTag(tag) = token.unwrap() {
            names.extend(tag.attributes.keys().map(|name| format!("@{}", String::from_utf8_lossy(name))));
            names.insert(String::from_utf8_lossy(&tag.name).into_owned());
        }
    }
    names
}

#[test]
fn the_report_of_a_bundle_says_what_it_came_in_and_no_name_breaks_out_of_it() {
    let page = |name: &str, more: &[&str]| {
        let folder = TempDir::new().unwrap();
        let [from, bundle, out] = ["from", "bundle", "out.html"].map(|file| folder.path().join(file));
        fs::write(&from, renamed(name)).unwrap();
        exported(&from, &bundle, more);
        let run = whylag(["report", text(&bundle), "-o", text(&out)]);
        assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
        fs::read_to_string(out).unwrap()
    };
    let usual = page("server", &[]);
    for told in ["From a bundle made ", "network addresses in it are pseudonyms", "flame-cpu", "flame-offcpu"] {
        assert!(usual.contains(told), "{told}");
    }
    assert!(page("server", &["--addresses"]).contains("network addresses in it are as they were seen"));
    for name in hostile_names() {
        assert_eq!(markup(&page(&name, &[])), markup(&usual), "{name:.80}");
    }
}
