//! Seven hundred hostile files, made from small real ones: none ends this process or makes it
//! grow, each place asked for comes back, and a good file is named as before.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "symbolize/asking.rs"]
mod asking;
#[path = "symbolize/programs.rs"]
mod programs;
#[path = "hostile_files/corpus.rs"]
mod corpus;

use asking::{ask, children, handed, symbolizer};
use corpus::Corpus;
use probe_user::symbolize::Symbolizer;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const FILES: usize = 700;
/// How long one file may take at most.
const LIMIT: Duration = Duration::from_secs(5);
/// After so many files this process has all that it needs.
const WARM: usize = 50;
/// How much it may grow from then on, bytes: what the allocator leaves lying about.
const GROWTH: u64 = 4 << 20;

#[test]
fn seven_hundred_hostile_files_cost_only_their_own_names() {
    let dir = tempfile::tempdir().unwrap();
    let corpus = Corpus::build(dir.path());
    let (good, place) = corpus.good();
    let mut symbolizer = symbolizer();
    let (mut files, mut slowest, mut named, mut resident) = (0, (Duration::ZERO, String::new()), 0, 0);
    for hostile in corpus.files() {
        let mut file = tempfile::tempfile_in(dir.path()).unwrap();
        file.write_all(&hostile.bytes).unwrap();
        let began = Instant::now();
        let places = ask(&mut symbolizer, &handed(file, "", None), &hostile.places);
        let took = began.elapsed();
        if took > slowest.0 {
            slowest = (took, hostile.kind.clone());
        }
        assert!(places.iter().all(|place| place.functions.is_empty() == place.unknown.is_some()), "{}", hostile.kind);
        named += places.iter().filter(|place| place.unknown.is_none()).count();
        files += 1;
        if files == WARM {
            resident = resident_bytes();
        }
        if files % WARM == 0 {
            let told = ask(&mut symbolizer, &handed(std::fs::File::open(&good).unwrap(), "", None), &[place]);
            assert_eq!(told[0].functions.last().map(|function| function.name.as_str()), Some("opaque"));
        }
    }
    lines_are_left_out_when_the_child_stops(&mut symbolizer, &good, place);
    assert!(!children("whylag-names").is_empty());
    drop(symbolizer);
    assert_eq!(children("whylag-names"), [] as [std::path::PathBuf; 0], "it leaves no child");
    let grown = resident_bytes().saturating_sub(resident);
    println!("{files} files, {named} places still named, slowest {slowest:?}, grown by {grown} bytes");
    assert_eq!(files, FILES);
    assert!(slowest.0 <= LIMIT, "{slowest:?}");
    assert!(grown <= GROWTH, "{grown}");
}

/// A child that answers nothing is replaced, and its successor asked for less.
fn lines_are_left_out_when_the_child_stops(symbolizer: &mut Symbolizer, program: &Path, place: u64) {
    let source = handed(std::fs::File::open(program).unwrap(), "", None);
    let mut line = || {
        let named = ask(symbolizer, &source, &[place]).remove(0);
        assert_eq!(named.functions.last().map(|function| function.name.as_str()), Some("opaque"), "{named:?}");
        named.functions[0].line
    };
    assert!(line() > 0);
    let before = children("whylag-names");
    for child in &before {
        let pid = child.file_name().and_then(|pid| pid.to_str()).unwrap().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    }
    assert_eq!(line(), 0, "symbols only");
    assert!(!children("whylag-names").iter().any(|child| before.contains(child)), "it was replaced");
    assert!(line() > 0);
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}
