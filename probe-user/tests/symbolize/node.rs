//! Node.js tells its functions in a perf map.

use super::asking::{ask, symbolizer};
use super::files::root;
use probe_tests::lab::software::Software;
use probe_tests::lab::software::fetch::{library_path, unpacked};
use probe_user::stack::wanted::{PerfMap, ProcessRoot, Source};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Says that it is compiled by then, and stays until its input ends.
const PROGRAM: &str = "\
function handleHealthCheck(n) { let sum = 0; for (let i = 0; i < n; i++) sum += i % 7; return sum; }
let total = 0;
for (let i = 0; i < 20000; i++) total += handleHealthCheck(200);
console.log('ready', process.pid, total);
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
";

/// A started one, and the map that it leaves behind.
struct Node {
    process: Child,
    pid: u32,
}

impl Node {
    fn start(packages: &Path, dir: &Path) -> Self {
        fs::write(dir.join("server.js"), PROGRAM).unwrap();
        let mut words = Software::Node.wrapper(packages);
        words.push(packages.join("usr/bin/node").display().to_string());
        words.extend(["--perf-basic-prof".to_owned(), dir.join("server.js").display().to_string()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("LD_LIBRARY_PATH", library_path(packages)).current_dir(dir);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let pid = ready.split_ascii_whitespace().nth(1).and_then(|pid| pid.parse().ok());
        Self { pid: pid.unwrap_or_else(|| panic!("node said {ready:?}")), process }
    }

    fn map(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/perf-{}.map", self.pid))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        let _ = fs::remove_file(self.map());
    }
}

#[test]
fn a_function_of_node_is_named_by_its_perf_map() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: Debian's Node.js takes a mount to run where it was unpacked");
    }
    let packages = match unpacked(Software::Node) {
        Ok(packages) => packages,
        Err(why) => return println!("skipped: Node.js cannot be had from Debian: {why:#}"),
    };
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(&packages, dir.path());
    let text = fs::read_to_string(node.map()).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("handleHealthCheck")).collect();
    let starts: Vec<u64> =
        lines.iter().map(|line| u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()).collect();
    assert!(!starts.is_empty(), "{text}");
    let process = Arc::new(ProcessRoot { root: Some(root(&PathBuf::from(format!("/proc/{}/root", node.pid)))) });
    let map = PerfMap { tgid: node.pid, own_tgid: node.pid, uid: 0, process };
    let named = ask(&mut symbolizer(), &Arc::new(Source::PerfMap(map)), &starts);
    let said = named.iter().filter(|place| place.functions.iter().any(|f| f.name.contains("handleHealthCheck")));
    // Code that was thrown away may have given its place to another function.
    assert!(said.count() > 0, "{named:?}");
    assert!(named.iter().all(|place| place.unknown.is_none()), "{named:?}");
}
