//! Stacks in user code, from the kernel's dumps to facts.
//!
//! A dump holds memory of a process, so it goes no further than this: it is unwound at once, and
//! only numbers and names of places in code leave. Bounded in time: what there is no time for is
//! left out and counted.

use super::annotate::Annotator;
use crate::clock::{DurNs, MonoNs};
use crate::event::{Fact, TaskId};
use crate::load::{Attached, LoadError, SAMPLE_HZ_MOST};
use crate::source::ring::Rings;
use crate::stack::unwind::{RawStack, Unwinder};
use crate::stack::wanted::Wanted;
use crate::stack::{FrameFact, StackCounts, StackEnd, Taken, TakenCount, TakenFact};
use crate::symbolize::{Named, Symbolizer};
use probe_wire::{DumpBody, DumpKind, EventHeader, STACK_BYTES, STACK_BYTES_MOST, WAITING};
use std::collections::{HashMap, HashSet};
use std::thread;
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

/// Of a stretch of time, this part may go into unwinding.
const PART: u32 = 4;
/// Most of it that can be saved up.
const MOST_SAVED: Duration = Duration::from_millis(200);
/// A dump that came so long after everything before a later time was read cannot be told any more.
const TOO_LATE: DurNs = DurNs::from_millis(1);
/// Frames handed over for naming at a time.
const NAMES_AT_ONCE: usize = 256;
/// How long the end of a run waits for names.
const LAST_NAMES: Duration = Duration::from_secs(1);
/// Samples are so many times as frequent in slow windows.
const FASTER: u32 = 5;
/// A wait that has lasted so long is told before its end.
const LASTING: DurNs = DurNs::from_millis(100);
/// How often it is looked at who waits.
const LOOK_EVERY: DurNs = DurNs::from_millis(500);
/// How long a window is slow after its last slow check.
const SLOW_WINDOW: DurNs = DurNs::from_secs(2);

/// Says a fact as of a time.
pub(super) type Say<'a> = &'a mut dyn FnMut(MonoNs, &Fact);

/// Takes dumps in and says stacks.
#[derive(Debug)]
pub(super) struct Stacks {
    dumps: Rings,
    /// Samples of a CPU in a second outside slow windows; `None` without samples.
    sample_hz: Option<u32>,
    slow_until: MonoNs,
    slow_checks: u64,
    /// The same when it was last looked at who waits.
    slow_looked_at: u64,
    looked_at: MonoNs,
    /// Waits that last and were told.
    lasting: HashSet<(TaskId, u64)>,
    unwinding: Unwinding,
    names: Names,
    told: StackCounts,
}

impl Stacks {
    /// For programs that take stacks; `None` for others.
    pub(super) fn new(attached: &mut Attached, symbolizer: Option<Symbolizer>) -> Option<Self> {
        Some(Self {
            dumps: attached.take_dumps()?,
            sample_hz: attached.sample_hz(),
            slow_until: MonoNs(0),
            slow_checks: 0,
            slow_looked_at: 0,
            looked_at: MonoNs(0),
            lasting: HashSet::new(),
            unwinding: Unwinding::new(),
            names: Names { symbolizer, nameless: HashMap::new() },
            told: StackCounts::default(),
        })
    }

    /// Takes out what is in the rings and says it; everything before `read_until` has been read.
    pub(super) fn drain(&mut self, read_until: MonoNs, annotator: &mut Annotator, say: Say<'_>) {
        let Self { dumps, unwinding, names, .. } = self;
        unwinding.read_until = read_until;
        unwinding.budget.refill();
        let turn = dumps.round();
        // So many that what was there at first has been read.
        for _ in 0..ROUNDS {
            let drained = dumps.drain(turn, |_, record| {
                if let Some(dump) = Dump::of(record) {
                    unwinding.tell(&dump, names, annotator, say);
                }
            });
            if !drained.more {
                break;
            }
        }
    }

    /// Says the stacks of threads that are waiting as of `now`, if checks that were slow were told of
    /// since: theirs may wait for one that never comes back. Each wait is told once.
    ///
    /// # Errors
    /// When the kernel refuses to read them.
    pub(super) fn say_waiting(
        &mut self,
        (now, slow_checks): (MonoNs, u64),
        attached: &Attached,
        (annotator, say): (&mut Annotator, Say<'_>),
    ) -> Result<(), LoadError> {
        if slow_checks == self.slow_looked_at || now.since(self.looked_at) < LOOK_EVERY {
            return Ok(());
        }
        (self.slow_looked_at, self.looked_at) = (slow_checks, now);
        let Self { unwinding, names, lasting, .. } = self;
        let mut still = HashSet::new();
        for record in attached.waiting_dumps(now.before(LASTING))? {
            let Some(dump) = Dump::lasting(&record, now) else { continue };
            let wait = (dump.task(), dump.body.since_ns);
            if !lasting.contains(&wait) {
                unwinding.tell(&dump, names, annotator, say);
            }
            still.insert(wait);
        }
        *lasting = still;
        Ok(())
    }

    /// Asks for names, and says those that have come as of `now`.
    pub(super) fn say_names(&mut self, now: MonoNs, say: Say<'_>) {
        self.names.ask(self.unwinding.unwinder.take_nameless(NAMES_AT_ONCE));
        self.names.say(now, say);
    }

    /// Waits a moment for the last names, and longer for a debug file from elsewhere.
    pub(super) fn say_last_names(&mut self, now: MonoNs, say: Say<'_>) {
        let hurry_at = Instant::now() + self.names.fetch_time();
        let deadline = hurry_at + LAST_NAMES;
        loop {
            self.say_names(now, say);
            if self.names.waiting() == 0 || Instant::now() >= deadline {
                return;
            }
            if Instant::now() >= hurry_at {
                self.names.hurry();
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Has deeper stacks copied where they were too short, and samples taken as often as it is due.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn adapt(&mut self, attached: &mut Attached, now: MonoNs, slow_checks: u64) -> Result<(), LoadError> {
        for (tid, bytes) in self.unwinding.too_short.drain(..) {
            attached.copy_stack(tid, bytes)?;
        }
        if slow_checks > self.slow_checks {
            self.slow_checks = slow_checks;
            self.slow_until = now.after(SLOW_WINDOW);
        }
        let Some(hz) = self.sample_hz else { return Ok(()) };
        attached.set_sample_hz(if now < self.slow_until { faster(hz) } else { hz })
    }

    /// What was left out, if more than last time.
    pub(super) fn counts(&mut self, attached: &Attached) -> Result<Option<StackCounts>, LoadError> {
        let of = |kind| -> Result<TakenCount, LoadError> {
            let counts = attached.dump_counts(kind)?;
            Ok(TakenCount { due: counts.due, lost: counts.lost, spared: counts.spared, displaced: counts.displaced })
        };
        let Unwinding { late, no_time, .. } = self.unwinding;
        let counts = StackCounts { samples: of(DumpKind::Sample)?, waits: of(DumpKind::Wait)?, late, no_time };
        let is_news = counts != self.told;
        self.told = counts;
        Ok(is_news.then_some(counts))
    }
}

/// Rounds of one drain.
const ROUNDS: usize = 4;

/// The rate in slow windows.
fn faster(hz: u32) -> u32 {
    hz.saturating_mul(FASTER).min(SAMPLE_HZ_MOST).max(hz)
}

/// A record of the rings, taken apart.
#[derive(Debug, Clone, Copy)]
struct Dump<'a> {
    header: EventHeader,
    body: DumpBody,
    memory: &'a [u8],
}

impl<'a> Dump<'a> {
    fn of(record: &'a [u8]) -> Option<Self> {
        let (header, rest) = EventHeader::read_from_prefix(record).ok()?;
        let (body, memory) = DumpBody::read_from_prefix(rest).ok()?;
        Some(Self { header, body, memory: memory.get(..body.copied as usize)? })
    }

    /// One of a wait that lasts, as of now.
    fn lasting(record: &'a [u8], now: MonoNs) -> Option<Self> {
        let mut dump = Self::of(record)?;
        (dump.header.time_ns, dump.header.kind) = (now.0, DumpKind::Wait as u16);
        Some(dump)
    }

    const fn at(&self) -> MonoNs {
        MonoNs(self.header.time_ns)
    }

    const fn task(&self) -> TaskId {
        TaskId { tgid: self.header.tgid, tid: self.header.tid }
    }

    fn why(&self) -> Option<Taken> {
        match self.header.kind {
            kind if kind == DumpKind::Sample as u16 => Some(Taken::Sample { period: DurNs(self.body.period_ns) }),
            kind if kind == DumpKind::Wait as u16 => Some(Taken::Wait { since: MonoNs(self.body.since_ns) }),
            _ => None,
        }
    }

    fn chain(&self) -> &[u64] {
        self.body.chain.get(..self.body.chain_len as usize).unwrap_or_default()
    }

    fn kernel(&self) -> &[u64] {
        self.body.kernel.get(..self.body.kernel_len as usize).unwrap_or_default()
    }
}

/// Dumps to facts.
#[derive(Debug)]
struct Unwinding {
    unwinder: Unwinder,
    budget: Budget,
    /// Everything before this has been read, and was concluded from.
    read_until: MonoNs,
    /// Threads of whose stacks too little was copied, and how much is to be.
    too_short: Vec<(u32, u32)>,
    /// By their places, how much was asked for.
    deep: HashMap<u32, u32>,
    late: u64,
    no_time: u64,
}

impl Unwinding {
    fn new() -> Self {
        Self {
            unwinder: Unwinder::new(),
            budget: Budget::new(),
            read_until: MonoNs(0),
            too_short: Vec::new(),
            deep: HashMap::new(),
            late: 0,
            no_time: 0,
        }
    }

    fn tell(&mut self, dump: &Dump<'_>, names: &mut Names, annotator: &mut Annotator, say: Say<'_>) {
        let Some(why) = dump.why() else { return };
        if self.read_until.since(dump.at()) > TOO_LATE {
            self.late += 1;
            return;
        }
        if !self.budget.is_left() {
            self.no_time += 1;
            return;
        }
        let begun = Instant::now();
        let at = dump.at();
        let user = self.unwind(dump, &mut |fact| {
            names.note(fact);
            say(at, fact);
        });
        let kernel = dump.kernel().to_vec();
        annotator.stack(dump.task(), &kernel, &mut |fact| say(at, fact));
        say(at, &Fact::Taken(TakenFact { task: dump.task(), why, user, kernel }));
        self.budget.spend(begun.elapsed());
    }

    fn unwind(&mut self, dump: &Dump<'_>, say: &mut dyn FnMut(&Fact)) -> Option<u32> {
        let Dump { header: EventHeader { tgid, tid, .. }, body: DumpBody { ip, sp, bp, .. }, memory } = *dump;
        let raw = RawStack { tgid, tid, ip, sp, bp, copied: memory, chain: dump.chain() };
        let unwound = self.unwinder.unwind(&raw, say);
        if unwound.end == StackEnd::CopyTooShort {
            self.want(tid, memory.len(), unwound.want_bytes);
        }
        unwound.stack
    }

    /// Twice as much, if that is what there is too little of: more than needed costs each switch.
    fn want(&mut self, tid: u32, copied: usize, needed: u32) {
        let asked = self.deep.entry(tid % WAITING).or_insert(STACK_BYTES);
        // A copy may end where the stack does, or be older than what was asked for.
        if needed as usize > copied && copied >= *asked as usize && *asked < STACK_BYTES_MOST {
            *asked = (*asked * 2).max(needed.next_multiple_of(STACK_BYTES)).min(STACK_BYTES_MOST);
            self.too_short.push((tid, *asked));
        }
    }
}

/// Time that may be spent: a part of what passes.
#[derive(Debug)]
struct Budget {
    left: Duration,
    /// More was spent than there was.
    owed: Duration,
    filled_at: Instant,
}

impl Budget {
    fn new() -> Self {
        Self { left: MOST_SAVED, owed: Duration::ZERO, filled_at: Instant::now() }
    }

    fn refill(&mut self) {
        let now = Instant::now();
        self.earn(now.duration_since(self.filled_at) / PART);
        self.filled_at = now;
    }

    fn earn(&mut self, earned: Duration) {
        let paid = self.owed.min(earned);
        self.owed -= paid;
        self.left = (self.left + (earned - paid)).min(MOST_SAVED);
    }

    fn spend(&mut self, spent: Duration) {
        // One slow stack must not stop the others for long.
        self.owed = (self.owed + spent.saturating_sub(self.left)).min(MOST_SAVED);
        self.left = self.left.saturating_sub(spent);
    }

    fn is_left(&self) -> bool {
        !self.left.is_zero()
    }
}

/// Frames and the names that come for them.
#[derive(Debug)]
struct Names {
    symbolizer: Option<Symbolizer>,
    /// Frames that were said without names.
    nameless: HashMap<u32, FrameFact>,
}

impl Names {
    fn note(&mut self, fact: &Fact) {
        if let Fact::Frame(frame) = fact
            && frame.functions.is_empty()
            && self.symbolizer.is_some()
        {
            self.nameless.insert(frame.id, frame.clone());
        }
    }

    fn ask(&mut self, wanted: Vec<Wanted>) {
        if let Some(symbolizer) = self.symbolizer.as_mut().filter(|_| !wanted.is_empty()) {
            symbolizer.ask(wanted);
        }
    }

    fn say(&mut self, now: MonoNs, say: Say<'_>) {
        let named = self.symbolizer.as_mut().map_or_else(Vec::new, Symbolizer::take);
        for Named { frame, functions, unknown } in named {
            if let Some(known) = self.nameless.remove(&frame) {
                say(now, &Fact::Frame(FrameFact { functions, unknown, ..known }));
            }
        }
    }

    fn fetch_time(&self) -> Duration {
        self.symbolizer.as_ref().map_or(Duration::ZERO, Symbolizer::fetch_time)
    }

    fn hurry(&self) {
        self.symbolizer.iter().for_each(Symbolizer::hurry);
    }

    fn waiting(&self) -> usize {
        self.symbolizer.as_ref().map_or(0, Symbolizer::waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwinding_gets_a_part_of_the_time_and_pays_back_what_it_overdrew() {
        let mut budget = Budget::new();
        budget.spend(MOST_SAVED + Duration::from_millis(30));
        assert!(!budget.is_left());
        budget.earn(Duration::from_millis(30));
        assert!(!budget.is_left(), "it was owed");
        budget.earn(Duration::from_millis(5));
        assert!(budget.is_left());
        budget.earn(Duration::from_secs(10));
        assert_eq!(budget.left, MOST_SAVED);
    }

    #[test]
    fn a_record_that_holds_less_than_it_says_is_no_dump() {
        use zerocopy::{FromZeros, IntoBytes};
        let mut body = DumpBody::new_zeroed();
        body.copied = 8;
        body.kernel_len = 99;
        let header = EventHeader::new_zeroed();
        let record = |memory: &[u8]| [header.as_bytes(), body.as_bytes(), memory].concat();
        assert!(Dump::of(&record(&[1; 7])).is_none());
        assert!(Dump::of(&[0; 40]).is_none());
        let record = record(&[1; 9]);
        let dump = Dump::of(&record).unwrap();
        assert_eq!((dump.memory, dump.kernel(), dump.why()), (&[1; 8][..], &[][..], None));
    }

    #[test]
    fn a_copy_that_is_too_short_doubles_up_to_a_limit() {
        let mut unwinding = Unwinding::new();
        unwinding.want(7, 4096, 4100);
        unwinding.want(7, 4096, 4100);
        unwinding.want(7, 8192, 20_000);
        unwinding.want(7, 3000, 20_000);
        unwinding.want(7, 20_480, 90_000);
        unwinding.want(7, 32_768, 90_000);
        assert_eq!(unwinding.too_short, [(7, 8192), (7, 20_480), (7, STACK_BYTES_MOST)]);
    }

    #[test]
    fn samples_are_never_more_frequent_than_may_be_asked_for() {
        assert_eq!((faster(99), faster(300), faster(SAMPLE_HZ_MOST)), (495, SAMPLE_HZ_MOST, SAMPLE_HZ_MOST));
    }
}
