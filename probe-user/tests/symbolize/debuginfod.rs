//! Debug information from servers, which the tests are: good ones and bad ones.

use super::asking::{ask, children, handed, symbolizer};
use super::children::status;
use super::files::{build_id, root};
use super::programs::{C, addresses, build, run};
use probe_user::stack::wanted::Source;
use probe_user::stack::{Function, Nameless};
use probe_user::symbolize::{Debuginfod, Named, Symbolizer};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A server on loopback, until the tests are over; each connection is one request.
struct Server {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// `answer` has the connection after the request was read.
    fn start(answer: impl Fn(&mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // By name, so that the child looks one up.
        let address = format!("http://localhost:{}", listener.local_addr().unwrap().port());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                log.lock().unwrap().push(request(&connection));
                answer(&mut connection);
            }
        });
        Self { address, requests }
    }

    /// Answers that are the same for all.
    fn saying(head: &str, body: Vec<u8>) -> Self {
        let head = format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n");
        Self::start(move |connection| {
            // A client may have heard enough.
            let _ = connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(&body));
        })
    }

    fn serving(file: &Path) -> Self {
        let body = fs::read(file).unwrap();
        Self::saying(&format!("200 OK\r\nContent-Length: {}", body.len()), body)
    }

    /// Promises much and sends a byte at a time; tells when its client has gone.
    fn trickling() -> (Self, Receiver<()>) {
        let (gone, is_gone) = channel();
        let server = Self::start(move |connection| {
            let mut sent = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            while sent.is_ok() {
                std::thread::sleep(Duration::from_millis(20));
                sent = connection.write_all(b"x");
            }
            let _ = gone.send(());
        });
        (server, is_gone)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// What a client says before its empty line.
fn request(connection: &TcpStream) -> String {
    let lines = BufReader::new(connection).lines().map_while(Result::ok);
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// A stripped program, its debug information, and a folder for caches.
struct Stripped {
    dir: tempfile::TempDir,
    debug: PathBuf,
    build_id: String,
    outer: Range<u64>,
    source: Arc<Source>,
}

impl Stripped {
    fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = build(dir.path(), ("far.c", C), &["cc", "-O2", "-g"]);
        let (outer, build_id) = (addresses(&program, "outer"), build_id(&program));
        run(dir.path(), &["objcopy", "--only-keep-debug", "far.c.out", "far.debug"]);
        run(dir.path(), &["strip", "far.c.out"]);
        let source = handed(File::open(&program).unwrap(), &build_id, Some(root(dir.path())));
        let debug = dir.path().join("far.debug");
        Self { dir, debug, build_id, outer, source }
    }

    fn symbolizer(&self, servers: &str) -> Symbolizer {
        let cache = self.dir.path().join("cache");
        let debuginfod = Debuginfod::from_environment(|name| match name {
            "DEBUGINFOD_URLS" => Some(servers.into()),
            "XDG_CACHE_HOME" => Some(cache.clone().into()),
            _ => None,
        });
        let debuginfod = Some(Arc::new(debuginfod.unwrap()));
        Symbolizer::start_with(Path::new(env!("CARGO_BIN_EXE_whylag")), debuginfod).unwrap()
    }

    /// Every address of `outer`.
    fn ask(&self, symbolizer: &mut Symbolizer) -> Vec<Named> {
        ask(symbolizer, &self.source, &self.outer.clone().collect::<Vec<_>>())
    }

    fn kept(&self) -> Vec<String> {
        let files = fs::read_dir(self.dir.path().join("cache/whylag/debuginfod")).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Servers that have nothing good leave no trace.
    fn assert_unchanged(&self, servers: &str, reason: Nameless) {
        let named = self.ask(&mut self.symbolizer(servers));
        assert!(named.iter().all(|named| named.unknown == Some(reason)), "{named:?}");
        assert_eq!(self.kept(), [""; 0]);
    }
}

fn told(function: &Function) -> (&str, &str, u32) {
    let file = function.file.rsplit('/').next().unwrap_or_default();
    (function.name.as_str(), file, function.line)
}

fn assert_inlined(named: &[Named]) {
    let inlined = named.iter().filter(|named| named.functions.len() == 2);
    let told: Vec<_> = inlined.map(|named| named.functions.iter().map(told).collect::<Vec<_>>()).collect();
    assert!(told.contains(&vec![("inner", "far.c", 3), ("outer", "far.c", 6)]), "{named:?}");
}

#[test]
fn a_server_tells_inlined_functions_and_is_told_a_build_id_alone() {
    let stripped = Stripped::make();
    let server = Server::serving(&stripped.debug);
    let empty = Server::saying("404 Not Found\r\nContent-Length: 0", Vec::new());
    let both = format!("{}/ {}", empty.address, server.address);
    let mut symbolizer = stripped.symbolizer(&both);
    assert_inlined(&stripped.ask(&mut symbolizer));
    assert_inlined(&stripped.ask(&mut symbolizer));
    let host = server.address.trim_start_matches("http://");
    let request = format!("get /buildid/{}/debuginfo http/1.1\nhost: {host}", stripped.build_id);
    let said: Vec<String> = server.requests().iter().map(|request| request.to_lowercase()).collect();
    assert_eq!(said, [request]);
    assert_eq!(empty.requests().len(), 1);
    assert_eq!(stripped.kept(), [format!("{}.debug", stripped.build_id)]);
    // What is kept serves later runs.
    assert_inlined(&stripped.ask(&mut stripped.symbolizer(&empty.address)));
    assert_eq!(empty.requests().len(), 1);
}

/// Says to a started copy of this program that it is one.
const IS_COPY: &str = "WHYLAG_TEST_COPY";

/// A copy looks names up with the variable set, as it is in the profiles of some distributions.
#[test]
fn nobody_is_asked_unless_that_was_asked_for() {
    if std::env::var_os(IS_COPY).is_some() {
        let named = Stripped::make().ask(&mut symbolizer());
        return assert!(named.iter().all(|named| named.unknown == Some(Nameless::NoSymbol)), "{named:?}");
    }
    let server = Server::saying("404 Not Found\r\nContent-Length: 0", Vec::new());
    let mut copy = Command::new(std::env::current_exe().unwrap());
    copy.args(["--exact", "debuginfod::nobody_is_asked_unless_that_was_asked_for"]);
    let done = copy.env(IS_COPY, "1").env("DEBUGINFOD_URLS", &server.address).output().unwrap();
    assert!(done.status.success() && String::from_utf8_lossy(&done.stdout).contains("1 passed"), "{done:?}");
    assert_eq!(server.requests(), [""; 0]);
}

#[test]
fn a_server_that_has_none_is_asked_once() {
    let stripped = Stripped::make();
    let server = Server::saying("404 Not Found\r\nContent-Length: 0", Vec::new());
    stripped.assert_unchanged(&server.address, Nameless::NoSymbol);
    let mut symbolizer = stripped.symbolizer(&server.address);
    stripped.ask(&mut symbolizer);
    stripped.ask(&mut symbolizer);
    assert_eq!(server.requests().len(), 2, "once a run");
}

#[test]
fn a_file_of_another_build_is_told_and_not_kept() {
    let stripped = Stripped::make();
    let other = build(stripped.dir.path(), ("other.c", "int main(void) { return 7; }"), &["cc", "-g"]);
    let server = Server::serving(&other);
    stripped.assert_unchanged(&server.address, Nameless::OtherBuildId);
}

#[test]
fn an_answer_that_is_no_elf_file_or_breaks_off_is_not_kept() {
    let stripped = Stripped::make();
    let page = Server::saying("200 OK\r\nContent-Length: 6", b"<html>".to_vec());
    stripped.assert_unchanged(&page.address, Nameless::Damaged);
    let half = fs::read(&stripped.debug).unwrap()[..1000].to_vec();
    let broken = Server::saying("200 OK\r\nContent-Length: 9999", half);
    stripped.assert_unchanged(&broken.address, Nameless::NoSymbol);
}

#[test]
fn a_promise_of_ten_gibibytes_is_not_waited_for() {
    let stripped = Stripped::make();
    let server = Server::saying("200 OK\r\nContent-Length: 10737418240", vec![0; 1 << 20]);
    stripped.assert_unchanged(&server.address, Nameless::NoSymbol);
}

#[test]
fn redirections_that_never_end_are_left() {
    let stripped = Stripped::make();
    let server = Server::saying("302 Found\r\nLocation: /again\r\nContent-Length: 0", Vec::new());
    stripped.assert_unchanged(&server.address, Nameless::NoSymbol);
    let requests = server.requests().len();
    assert!((1..=4).contains(&requests), "{requests}");
}

#[test]
fn servers_that_fail_are_not_asked_again() {
    let programs: Vec<Stripped> = (0..4).map(|_| Stripped::make()).collect();
    let server = Server::saying("500 Broken\r\nContent-Length: 0", Vec::new());
    let mut symbolizer = programs[0].symbolizer(&server.address);
    for stripped in &programs {
        stripped.ask(&mut symbolizer);
    }
    let asked: std::collections::BTreeSet<_> = server.requests().into_iter().collect();
    assert_eq!((asked.len(), server.requests().len()), (3, 3), "each file once, and not the fourth");
}

#[test]
fn a_closed_port_changes_nothing() {
    let stripped = Stripped::make();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    stripped.assert_unchanged(&format!("http://{closed}"), Nameless::NoSymbol);
}

#[test]
fn an_answer_that_trickles_is_left_at_its_deadline_by_a_child_without_privileges() {
    let stripped = Stripped::make();
    let (server, is_gone) = Server::trickling();
    let mut symbolizer = stripped.symbolizer(&server.address);
    let named = std::thread::scope(|scope| {
        let asking = scope.spawn(|| stripped.ask(&mut symbolizer));
        let seen = std::iter::from_fn(|| (!asking.is_finished()).then(fetchers_are_held)).any(|seen| seen);
        assert!(seen, "a child fetched");
        asking.join().unwrap()
    });
    assert!(named.iter().all(|named| named.unknown == Some(Nameless::NoSymbol)), "{named:?}");
    is_gone.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(stripped.kept(), [""; 0]);
}

/// Whether there is a child that hears a server. It has given up all before.
fn fetchers_are_held() -> bool {
    std::thread::sleep(Duration::from_millis(10));
    let held = |child: &PathBuf| {
        if status(child, "Seccomp").as_deref() != Some("2") {
            return false;
        }
        assert_ne!(status(child, "NoNewPrivs").as_deref(), Some("0"));
        assert_ne!(status(child, "Uid").as_deref(), Some("0 0 0 0"));
        status(child, "CapEff").is_some_and(|capabilities| capabilities == "0000000000000000")
    };
    children("whylag-fetch").iter().any(held)
}

#[test]
fn at_the_end_of_a_run_nothing_is_waited_for() {
    let stripped = Stripped::make();
    let (server, is_gone) = Server::trickling();
    let mut symbolizer = stripped.symbolizer(&server.address);
    symbolizer.hurry();
    let named = stripped.ask(&mut symbolizer);
    assert!(named.iter().all(|named| named.unknown == Some(Nameless::NoSymbol)), "{named:?}");
    drop((server, is_gone));
}
