//! From registers and a copy of a thread's stack to its frames, for binaries as distributions
//! build them: by their unwind information, and by frame pointers where there is none.
//!
//! An edge: it reads what `/proc` shows of a process, and the files that it has mapped, each by
//! the mapping itself, so that no path of a container is followed. What it reads may be made to
//! mislead: sizes are checked and limited, and so is the work for a frame.

mod frames;
mod golang;
mod image;
mod maps;
mod memory;
mod modules;
mod mount;
mod numbers;
mod place;
mod process;
mod recent;
mod registers;
mod rule;
mod walk;

use super::wanted::{MappedFile, Source, Wanted};
use super::{Nameless, StackEnd};
use crate::event::Fact;
use memory::Memory;
use modules::Modules;
use numbers::{FrameKey, ModuleKey, Numbered, Numbers};
use place::{Place, Places};
use process::Process;
use recent::Recent;
use registers::Registers;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// Most processes that are known at once.
const MOST_PROCESSES: usize = 128;
/// Most frames that wait to be named; of those beyond, the oldest stays nameless.
const MOST_WANTED: usize = 1 << 14;

/// A thread's registers and stack, as they were at one instant.
#[derive(Debug, Clone, Copy)]
pub struct RawStack<'a> {
    /// Its process.
    pub tgid: u32,
    /// The thread.
    pub tid: u32,
    /// Instruction pointer in user code.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer register, whatever it holds.
    pub bp: u64,
    /// Memory from the stack pointer upwards.
    pub copied: &'a [u8],
    /// The instruction pointer and the return addresses above it as the kernel finds them by
    /// frame pointers (`bpf_get_stack` of user code), innermost first; may be empty. Only used
    /// where Go's runtime has changed to its own stack and the goroutine waits on another.
    pub chain: &'a [u64],
}

/// What came of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unwound {
    /// Its number; `None` if there is no user code to tell of (a kernel thread, a process that
    /// was gone before it was first looked at), or no number is left.
    pub stack: Option<u32>,
    /// How far it reaches.
    pub end: StackEnd,
    /// How many bytes from the stack pointer up were needed, or would have been at the least to
    /// get further: of a [`StackEnd::CopyTooShort`] more than were given, and never beyond the
    /// end of the stack.
    pub want_bytes: u32,
}

/// Turns stacks into frames. It is one thread's, and its tables are bounded.
#[derive(Debug)]
pub struct Unwinder {
    processes: Recent<u32, Process>,
    /// How many processes were begun to be known.
    lives: u32,
    modules: Modules,
    numbers: Numbers,
    vdso: Option<Weak<Source>>,
    wanted: VecDeque<Wanted>,
}

impl Default for Unwinder {
    fn default() -> Self {
        Self::new()
    }
}

impl Unwinder {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            processes: Recent::new(MOST_PROCESSES),
            lives: 0,
            modules: Modules::new(),
            numbers: Numbers::default(),
            vdso: None,
            wanted: VecDeque::new(),
        }
    }

    /// The frames of a stack, as the number of a stack fact. Facts that are new are said before
    /// those that refer to them. A frame's address is that of the instruction for the innermost
    /// one and for one that a signal interrupted, of every other that of its call's last byte:
    /// the return address less one.
    pub fn unwind(&mut self, raw: &RawStack<'_>, say: &mut dyn FnMut(&Fact)) -> Unwound {
        let now = Instant::now();
        let nothing = Unwound { stack: None, end: StackEnd::NoCaller, want_bytes: 0 };
        if raw.ip == 0 || !self.look_at(raw.tgid, now) {
            return nothing;
        }
        let Some(process) = self.processes.get(&raw.tgid) else { return nothing };
        let end = process.end_of_memory(raw.sp, now).unwrap_or(0);
        let mut memory = Memory::new(raw.sp, raw.copied, end);
        let mut places = Places { process, modules: &mut self.modules, now };
        let (places, end) = places.walk(Registers::new(raw.ip, raw.sp, raw.bp), &mut memory, raw.chain);
        let want_bytes = u32::try_from(memory.needed()).unwrap_or(u32::MAX);
        let frames: Option<Vec<u32>> = places.iter().map(|place| self.frame(raw.tgid, place, say)).collect();
        Unwound { stack: frames.and_then(|frames| self.numbers.stack(&frames, end, say)), end, want_bytes }
    }

    /// Frames to be named, the oldest first, each once: at most so many of those that were found
    /// since the last call.
    pub fn take_nameless(&mut self, most: usize) -> Vec<Wanted> {
        self.wanted.drain(..most.min(self.wanted.len())).collect()
    }

    /// Knows a process as it is now; whether there is one with code of its own.
    fn look_at(&mut self, tgid: u32, now: Instant) -> bool {
        if let Some(process) = self.processes.get(&tgid) {
            if !process.has_changed(now) {
                process.refresh(now);
                return true;
            }
            self.processes.remove(&tgid);
        }
        let Some(process) = Process::read(tgid, self.lives, now) else { return false };
        self.lives = self.lives.wrapping_add(1);
        self.processes.insert(tgid, process);
        true
    }

    fn frame(&mut self, tgid: u32, place: &Place, say: &mut dyn FnMut(&Fact)) -> Option<u32> {
        let Some(key) = place.module else {
            let key = FrameKey { module: None, address: place.address };
            return self.numbers.frame(key, Nameless::NotMapped, say).map(Numbered::id);
        };
        let module = self.numbers.module(key, || (place.name.to_string(), place.build_id()), say)?;
        let key = FrameKey { module: Some(module), address: place.address };
        let numbered = self.numbers.frame(key, place.unknown, say)?;
        if let (Numbered::New(frame), Nameless::NotLookedUp) = (numbered, place.unknown) {
            self.want(tgid, frame, place);
        }
        Some(numbered.id())
    }

    /// Asks for a frame's name, if there is anything to look into.
    fn want(&mut self, tgid: u32, frame: u32, place: &Place) {
        let Some(source) = self.source(tgid, place) else { return };
        if self.wanted.len() >= MOST_WANTED {
            self.wanted.pop_front();
        }
        self.wanted.push_back(Wanted { frame, source, address: place.address });
    }

    fn source(&mut self, tgid: u32, place: &Place) -> Option<Arc<Source>> {
        let process = self.processes.get(&tgid)?;
        match place.module? {
            ModuleKey::Made(_) => process.names_made(),
            ModuleKey::Vdso => {
                if let Some(source) = self.vdso.as_ref().and_then(Weak::upgrade) {
                    return Some(source);
                }
                let source = Arc::new(Source::Vdso(process::vdso()?));
                self.vdso = Some(Arc::downgrade(&source));
                Some(source)
            }
            ModuleKey::Closed { .. } => None,
            key @ ModuleKey::File(file) => {
                let known = self.modules.get(key)?;
                if let Some(source) = known.source.upgrade() {
                    return Some(source);
                }
                let (found, opened) = process.open(&place.range).ok()?;
                let (name, build_id, process) = (place.name.to_string(), place.build_id(), process.root());
                let mapped = MappedFile { file: opened.into(), name, build_id, process };
                let source = Arc::new(Source::File(mapped));
                known.source = Arc::downgrade(&source);
                Some(source).filter(|_| found == file)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::StackTable;
    use proptest::prelude::*;
    use std::sync::{LazyLock, Mutex};

    /// To read this test's own file once.
    static SHARED: LazyLock<Mutex<Unwinder>> = LazyLock::new(|| Mutex::new(Unwinder::new()));

    /// A place in this test's own code.
    fn here() -> u64 {
        here as *const () as u64
    }

    fn unwind(unwinder: &mut Unwinder, tgid: u32, ip: u64, copied: &[u8]) -> Unwound {
        let raw = RawStack { tgid, tid: tgid, ip, sp: 0x7000, bp: 0x7008, copied, chain: &[] };
        unwinder.unwind(&raw, &mut |_| {})
    }

    #[test]
    fn what_has_no_code_has_no_stack() {
        let nothing = Unwound { stack: None, end: StackEnd::NoCaller, want_bytes: 0 };
        let mut unwinder = Unwinder::new();
        if std::fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm == "kthreadd\n") {
            assert_eq!(unwind(&mut unwinder, 2, 0x40_1000, &[]), nothing, "a kernel thread");
        }
        assert_eq!(unwind(&mut unwinder, u32::MAX, 0x40_1000, &[]), nothing, "no process");
        assert_eq!(unwind(&mut unwinder, std::process::id(), 0, &[]), nothing, "no user code");
    }

    #[test]
    fn a_place_without_code_is_a_frame_with_that_reason() {
        let (mut unwinder, mut table) = (Unwinder::new(), StackTable::default());
        let tgid = std::process::id();
        let raw = RawStack { tgid, tid: tgid, ip: 16, sp: 0x7000, bp: 0, copied: &[], chain: &[] };
        let stack = unwinder.unwind(&raw, &mut |fact| table.learn(fact)).stack.unwrap();
        let frames: Vec<_> = table.frames(stack).collect();
        assert!(matches!(frames[..], [(frame, None)] if frame.unknown == Some(Nameless::NotMapped)), "{frames:?}");
        assert!(unwinder.take_nameless(9).is_empty());
    }

    #[test]
    fn a_frame_is_asked_for_once() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: files that are mapped are opened by root alone");
            return;
        }
        let mut unwinder = Unwinder::new();
        for _ in 0..2 {
            unwind(&mut unwinder, std::process::id(), here(), &[0; 64]);
        }
        let wanted = unwinder.take_nameless(9);
        let [Wanted { source, .. }] = &wanted[..] else { panic!("{wanted:?}") };
        assert!(matches!(&**source, Source::File(file) if file.build_id.len() == 40), "{source:?}");
        assert!(unwinder.take_nameless(9).is_empty());
    }

    proptest! {
        #[test]
        fn any_stack_gives_a_result(
            code in 0u64..1 << 20, near: bool, ip: u64, sp: u64, bp: u64, at: bool,
            copied in prop::collection::vec(any::<u8>(), 0..512), chain in prop::collection::vec(any::<u64>(), 0..4),
        ) {
            let tgid = std::process::id();
            let ip = if near { here().wrapping_add(code) } else { ip };
            let bp = if at { sp.wrapping_add(bp % 512) } else { bp };
            let raw = RawStack { tgid, tid: tgid, ip, sp, bp, copied: &copied, chain: &chain };
            let mut unwinder = SHARED.lock().unwrap();
            let unwound = unwinder.unwind(&raw, &mut |_| {});
            prop_assert_eq!(unwound.stack.is_some(), ip != 0);
        }
    }
}
