//! From a thread that sleeps to the functions that it sleeps in: kernel programs and unwinder on
//! the running kernel, against a program built as distributions build theirs. Needs root.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use object::{Object as _, ObjectSymbol as _};
use probe_user::event::Fact;
use probe_user::load::{HookState, Outcome, Request, UserStacks, load};
use probe_user::stack::unwind::{RawStack, Unwinder};
use probe_user::stack::{StackEnd, StackTable};
use probe_wire::{DumpBody, DumpKind, EventHeader};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

/// Sleeps and computes in turn, in functions of known names.
const SOURCE: &str = r#"
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#define KEPT __attribute__((noinline))
static volatile unsigned long total;
KEPT void innermost(long ms) {
    struct timespec wait = {0, ms * 1000000};
    char room[300];
    room[total % 300] = 1;
    nanosleep(&wait, 0);
    total += room[total % 300];
}
KEPT void middle(long ms) { innermost(ms + 1); total += 3; }
KEPT void outer(long ms) { middle(ms + 1); total += 5; }
KEPT void busy(void) { for (int i = 0; i < 30000000; i++) total += i; }
int main(void) {
    puts("ready");
    fflush(stdout);
    for (;;) { outer(20); busy(); total += 7; }
}
"#;

/// The program, until the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn built() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stacks");
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("sleeper.c"), folder.join("sleeper"));
    std::fs::write(&source, SOURCE).unwrap();
    let kind = ["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-o"];
    let built = Command::new("cc").args(kind).args([&program, &source]).status().unwrap();
    assert!(built.success());
    program
}

fn started(program: &Path) -> Running {
    let mut running = Running(Command::new(program).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    running
}

/// The names of a stack's frames that lie in functions of the program, outermost first.
fn functions(table: &StackTable, stack: u32, program: &Path) -> Vec<String> {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let function = |address: u64| {
        let mut symbols = file.symbols().filter(|symbol| symbol.is_definition() && symbol.size() > 0);
        let found = symbols.find(|symbol| (symbol.address()..symbol.address() + symbol.size()).contains(&address))?;
        Some(found.name().unwrap().to_owned())
    };
    let name = program.file_name().unwrap().to_str().unwrap();
    let own = table.frames(stack).filter(|(_, module)| module.is_some_and(|module| module.name == name));
    own.filter_map(|(frame, _)| function(frame.address)).collect::<Vec<_>>().into_iter().rev().collect()
}

#[test]
fn a_sleeping_and_a_computing_thread_show_the_functions_they_are_in() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: attaching programs needs root");
        return;
    }
    let program = built();
    let running = started(&program);
    let tgid = running.0.id();
    let request = Request { watched_tgids: vec![tgid], user_stacks: Some(UserStacks::default()), ..Request::default() };
    let mut attached = load(&request).unwrap();
    let is_clock = |state: &&HookState| state.hook.name == "cpu_clock";
    let clock = attached.hooks().iter().find(is_clock).unwrap();
    assert!(matches!(clock.outcome, Outcome::Attached(_)), "{clock:?}");
    let mut rings = attached.take_dumps().unwrap();
    let (mut unwinder, mut table) = (Unwinder::new(), StackTable::default());
    let (mut slept, mut computed) = (None, None);
    let deadline = Instant::now() + Duration::from_secs(20);
    while slept.is_none() || computed.is_none() {
        assert!(Instant::now() < deadline, "slept {slept:?}, computed {computed:?}");
        rings
            .poll(Duration::from_millis(20), usize::MAX, |_, record| {
                let (header, rest) = EventHeader::read_from_prefix(record).unwrap();
                let (body, memory) = DumpBody::read_from_prefix(rest).unwrap();
                let copied = &memory[..usize::try_from(body.copied).unwrap()];
                let chain = &body.chain[..usize::try_from(body.chain_len).unwrap()];
                let EventHeader { tgid, tid, .. } = header;
                let raw = RawStack { tgid, tid, ip: body.ip, sp: body.sp, bp: body.bp, copied, chain };
                let unwound = unwinder.unwind(&raw, &mut |fact: &Fact| table.learn(fact));
                let Some(stack) = unwound.stack.filter(|_| unwound.end == StackEnd::Entry) else { return };
                let functions = functions(&table, stack, &program);
                let kind = header.kind;
                if kind == DumpKind::Wait as u16 && functions.ends_with(&["innermost".to_owned()]) {
                    slept = Some((functions, header.time_ns - body.since_ns));
                } else if kind == DumpKind::Sample as u16 && functions.ends_with(&["busy".to_owned()]) {
                    computed = Some((functions, body.period_ns));
                }
            })
            .unwrap();
    }
    let (slept, computed) = (slept.unwrap(), computed.unwrap());
    assert_eq!(slept.0, ["_start", "main", "outer", "middle", "innermost"]);
    assert!(slept.1 >= 22_000_000, "it asked for 22 ms: {}", slept.1);
    assert_eq!(computed.0, ["_start", "main", "busy"]);
    assert_eq!(computed.1, 1_000_000_000 / 99);
}
