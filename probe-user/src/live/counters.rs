//! Counters of watched threads, from the kernel's to facts.
//!
//! They are read all the time and told while checks are slow and at the end, each thread's windows
//! without a gap. Bounded: so many threads and open files, those that were seen first; the others
//! wait for room, and are counted.

use super::OPEN_REPORT_EVERY;
use super::clock;
use super::stacks::Say;
use crate::clock::{DurNs, MonoNs};
use crate::counters::{Counts, Hardware, ThreadCounters, Unavailable, Uncounted};
use crate::event::{Fact, TaskId};
use perf_event::events::{Event, Hardware as HardwareEvent, Software};
use perf_event::{Builder, Counter};
use rustix::process::{Resource, getrlimit};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::Path;
use std::{fs, io};

/// Most threads that are counted at a time.
const MOST_THREADS: usize = 256;
/// Most that wait for room.
const MOST_WAITING: usize = 4_096;
/// Threads whose counters are opened in one turn, after the first.
const OPENED_AT_ONCE: usize = 64;
/// Open files that are left for everything else.
const SPARE_FILES: usize = 256;
/// Open files of a thread's software counters, and of the hardware's.
const SOFTWARE_FILES: usize = 4;
const HARDWARE_FILES: usize = 2;
/// How often counters are read: less often than an open check is reported, so that each window
/// within a slow check holds a report of it.
const READ_EVERY: DurNs = OPEN_REPORT_EVERY.plus(DurNs::from_millis(250));
/// Threads of the kernel, one a CPU, that are watched for other reasons and would take the room.
const SOFTIRQ_THREADS: &str = "ksoftirqd/";

/// Opens counters, reads them, and says what they counted.
#[derive(Debug)]
pub(super) struct Counters {
    threads: BTreeMap<TaskId, Thread>,
    /// In the order in which they were seen.
    waiting: VecDeque<TaskId>,
    known: HashSet<TaskId>,
    /// Open files that are still allowed.
    files: usize,
    /// Why the machine itself counts nothing.
    no_hardware: Option<Unavailable>,
    uncounted: Uncounted,
    slow_checks: u64,
    read_at: MonoNs,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            threads: BTreeMap::new(),
            waiting: VecDeque::new(),
            known: HashSet::new(),
            files: files_left(),
            no_hardware: look().hardware,
            uncounted: Uncounted::default(),
            slow_checks: 0,
            read_at: MonoNs(0),
        }
    }

    /// Takes the thread that a fact is about in; its counters are opened at the next turn.
    pub(super) fn note(&mut self, fact: &Fact) {
        let Fact::Task(task) = fact else { return };
        if task.comm.starts_with(SOFTIRQ_THREADS) || self.known.contains(&task.id) {
            return;
        }
        if self.waiting.len() >= MOST_WAITING {
            self.uncounted.no_room += 1;
            return;
        }
        self.known.insert(task.id);
        self.waiting.push_back(task.id);
    }

    /// Opens counters of the threads that are known at the start.
    pub(super) fn begin(&mut self, now: MonoNs) {
        self.read_at = now;
        self.open(MOST_THREADS);
    }

    /// Reads, if it is due, and says what is to be told; `slow_checks` were told of so far.
    pub(super) fn turn(&mut self, now: MonoNs, slow_checks: u64, say: Say<'_>) {
        if now.since(self.read_at) < READ_EVERY {
            return;
        }
        self.read(now, slow_checks, false, say);
        self.open(OPENED_AT_ONCE);
    }

    /// Says the rest, and of which threads nothing was counted.
    pub(super) fn finish(&mut self, now: MonoNs, slow_checks: u64, say: Say<'_>) {
        self.read(now, slow_checks, true, say);
        self.uncounted.no_room += self.waiting.len() as u64;
        if self.uncounted.threads() > 0 {
            say(now, &Fact::Uncounted(self.uncounted));
        }
    }

    /// Threads that nothing was counted of, for people; `None` if there are none.
    pub(super) fn left_out(&self) -> Option<String> {
        let Uncounted { no_room, ended, refused } = self.uncounted;
        let parts = [(no_room, "for want of room"), (ended, "ended too soon"), (refused, "were refused")];
        let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} {why}"));
        let parts = parts.collect::<Vec<_>>().join(", ");
        (!parts.is_empty()).then(|| format!("threads without counters: {parts}"))
    }

    fn read(&mut self, now: MonoNs, slow_checks: u64, at_end: bool, say: Say<'_>) {
        let slow = slow_checks > self.slow_checks;
        (self.slow_checks, self.read_at) = (slow_checks, now);
        let Self { threads, known, files, .. } = self;
        threads.retain(|task, thread| {
            let ended = has_ended(*task);
            thread.tell(*task, slow, at_end || ended, &mut |fact| say(now, fact));
            if ended {
                known.remove(task);
                *files += thread.counters.files();
            }
            !ended
        });
    }

    fn open(&mut self, most: usize) {
        for _ in 0..most {
            let needed = SOFTWARE_FILES + if self.no_hardware.is_none() { HARDWARE_FILES } else { 0 };
            if self.threads.len() >= MOST_THREADS || self.files < needed {
                return;
            }
            let Some(task) = self.waiting.pop_front() else { return };
            match Thread::open(task, self.no_hardware) {
                Ok(thread) => {
                    self.files -= thread.counters.files();
                    self.threads.insert(task, thread);
                }
                Err(why) => self.leave_out(task, why),
            }
        }
    }

    fn leave_out(&mut self, task: TaskId, why: Unavailable) {
        let count = match why {
            Unavailable::Ended => {
                self.known.remove(&task);
                &mut self.uncounted.ended
            }
            Unavailable::NoFiles => &mut self.uncounted.no_room,
            _ => &mut self.uncounted.refused,
        };
        *count += 1;
    }
}

/// Open files that counters may have.
fn files_left() -> usize {
    let open = fs::read_dir("/proc/self/fd").map_or(SPARE_FILES, Iterator::count);
    let limit =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    limit.saturating_sub(open).saturating_sub(SPARE_FILES)
}

fn has_ended(task: TaskId) -> bool {
    !Path::new(&format!("/proc/{}/task/{}", task.tgid, task.tid)).exists()
}

/// What can be counted of threads here: for each kind why not, `None` where it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Countable {
    pub(crate) software: Option<Unavailable>,
    pub(crate) hardware: Option<Unavailable>,
}

/// Tries on this thread.
pub(crate) fn look() -> Countable {
    let why = |event: Event| open(0, event).err();
    Countable { software: why(Software::TASK_CLOCK.into()), hardware: why(HardwareEvent::CPU_CYCLES.into()) }
}

/// A thread that is counted.
#[derive(Debug)]
struct Thread {
    counters: ThreadSet,
    /// What was last read.
    last: Reading,
    /// All until then has been told.
    told: Reading,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: MonoNs,
    counts: Counts,
}

impl Thread {
    fn open(task: TaskId, no_hardware: Option<Unavailable>) -> Result<Self, Unavailable> {
        let mut counters = ThreadSet::open(task.tid, no_hardware)?;
        let last = counters.read().map_err(|error| Unavailable::of(&error))?;
        Ok(Self { counters, last, told: last })
    }

    /// While checks are slow, says what was not told yet until the last reading, and what came since,
    /// in windows of their own. The last time, says all.
    fn tell(&mut self, task: TaskId, slow: bool, is_last: bool, say: &mut dyn FnMut(&Fact)) {
        // An error is that of this reading; the next may succeed.
        let Ok(latest) = self.counters.read() else { return };
        if slow {
            say_window(task, self.told, self.last, false, say);
            say_window(task, self.last, latest, true, say);
        } else if is_last {
            say_window(task, self.told, latest, false, say);
        }
        if slow || is_last {
            self.told = latest;
        }
        self.last = latest;
    }
}

fn say_window(task: TaskId, from: Reading, to: Reading, slow: bool, say: &mut dyn FnMut(&Fact)) {
    if to.at > from.at {
        let counts = to.counts.since(from.counts);
        say(&Fact::ThreadCounters(ThreadCounters { task, from: from.at, to: to.at, slow, counts }));
    }
}

/// The counters of a thread.
#[derive(Debug)]
struct ThreadSet {
    task_clock: Counter,
    context_switches: Counter,
    migrations: Counter,
    page_faults: Counter,
    hardware: Result<(Counter, Counter), Unavailable>,
}

impl ThreadSet {
    fn open(tid: u32, no_hardware: Option<Unavailable>) -> Result<Self, Unavailable> {
        let tid = i32::try_from(tid).map_err(|_| Unavailable::Ended)?;
        let hardware = |event: HardwareEvent| open(tid, event.into());
        let both = || Ok((hardware(HardwareEvent::CPU_CYCLES)?, hardware(HardwareEvent::INSTRUCTIONS)?));
        Ok(Self {
            context_switches: open(tid, Software::CONTEXT_SWITCHES.into())?,
            migrations: open(tid, Software::CPU_MIGRATIONS.into())?,
            page_faults: open(tid, Software::PAGE_FAULTS.into())?,
            task_clock: open(tid, Software::TASK_CLOCK.into())?,
            hardware: no_hardware.map_or_else(both, Err),
        })
    }

    const fn files(&self) -> usize {
        SOFTWARE_FILES + if self.hardware.is_ok() { HARDWARE_FILES } else { 0 }
    }

    fn read(&mut self) -> io::Result<Reading> {
        let hardware = match &mut self.hardware {
            Ok(counters) => of_hardware(counters)?,
            Err(why) => Hardware::Unavailable(*why),
        };
        let (context_switches, migrations) = (self.context_switches.read()?, self.migrations.read()?);
        let (page_faults, task_clock) = (self.page_faults.read()?, DurNs(self.task_clock.read()?));
        let counts = Counts { task_clock, context_switches, migrations, page_faults, hardware };
        Ok(Reading { at: clock::now(), counts })
    }
}

fn of_hardware((cycles, instructions): &mut (Counter, Counter)) -> io::Result<Hardware> {
    Ok(match (whole(cycles)?, whole(instructions)?) {
        (Some(cycles), Some(instructions)) => Hardware::Counted { cycles, instructions },
        _ => Hardware::Unavailable(Unavailable::Busy),
    })
}

/// What a counter would have counted if it had had the hardware all the time; `None` if never.
fn whole(counter: &mut Counter) -> io::Result<Option<u64>> {
    let read = counter.read_count_and_time()?;
    let scaled = u128::from(read.count) * u128::from(read.time_enabled);
    Ok(match (read.time_running, read.time_enabled) {
        (_, 0) => Some(0),
        (0, _) => None,
        (running, _) => Some(u64::try_from(scaled / u128::from(running)).unwrap_or(u64::MAX)),
    })
}

/// A running counter of a thread, in user mode and in the kernel; 0 for the caller.
fn open(tid: i32, event: Event) -> Result<Counter, Unavailable> {
    let mut builder = Builder::new().kind(event).observe_pid(tid).any_cpu();
    builder.include_kernel().enabled(true);
    builder.build().map_err(|error| Unavailable::of(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::TaskFact;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    const ENOUGH: DurNs = DurNs::from_millis(20);
    const DEADLINE: Duration = Duration::from_secs(20);

    fn own(tid: u32) -> TaskId {
        TaskId { tgid: std::process::id(), tid }
    }

    fn seen(id: TaskId, comm: &str) -> Fact {
        let (comm, cgroup) = (comm.to_owned(), String::new());
        Fact::Task(TaskFact { id, start_time_ns: 0, comm, cgroup, state: 'R', wchan: None })
    }

    fn tid() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
    }

    /// Runs `test` beside a thread that computes and one that sleeps, if counters may be opened.
    fn beside_two_threads(test: impl FnOnce(TaskId, TaskId)) {
        if let Some(why) = look().software {
            eprintln!("skipped: {}", why.reason());
            return;
        }
        let stop = AtomicBool::new(false);
        let (tell, told) = mpsc::channel();
        let (wake, woken) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let (tell_too, stopped) = (tell.clone(), &stop);
            scope.spawn(move || {
                tell_too.send((true, tid())).unwrap();
                while !stopped.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            scope.spawn(move || {
                tell.send((false, tid())).unwrap();
                assert!(woken.recv().is_err(), "nothing is sent");
            });
            let (first, second) = (told.recv().unwrap(), told.recv().unwrap());
            let (busy, asleep) = if first.0 { (first.1, second.1) } else { (second.1, first.1) };
            let tested = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(own(busy), own(asleep))));
            stop.store(true, Ordering::Relaxed);
            drop(wake);
            tested.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }

    #[test]
    fn a_computing_thread_s_clock_runs_and_a_sleeping_one_s_does_not() {
        beside_two_threads(|busy, asleep| {
            let mut counters = [busy, asleep].map(|task| Thread::open(task, look().hardware).unwrap());
            let begun = Instant::now();
            let mut ran = || {
                let [busy, asleep] = &mut counters;
                [busy, asleep].map(|thread| thread.counters.read().unwrap().counts.since(thread.last.counts))
            };
            let [busy, asleep] = loop {
                let counts = ran();
                assert!(begun.elapsed() < DEADLINE, "{counts:?}");
                if counts[0].task_clock >= ENOUGH {
                    break counts;
                }
            };
            assert!(asleep.task_clock.0 * 10 < busy.task_clock.0, "{asleep:?} {busy:?}");
            match look().hardware {
                Some(why) => assert_eq!(busy.hardware, Hardware::Unavailable(why)),
                None => assert!(matches!(busy.hardware, Hardware::Counted { cycles: 1.., instructions: 1.. })),
            }
        });
    }

    #[test]
    fn windows_are_told_while_checks_are_slow_and_at_the_end_and_leave_no_gap() {
        beside_two_threads(|busy, _| {
            let mut counters = Counters::new();
            counters.note(&seen(busy, "busy"));
            counters.note(&seen(busy, "busy"));
            counters.note(&seen(own(1), "ksoftirqd/0"));
            counters.begin(clock::now());
            assert_eq!((counters.threads.len(), counters.waiting.len()), (1, 0));
            let (mut windows, mut now) = (Vec::new(), counters.read_at);
            let mut say = |_, fact: &Fact| {
                let Fact::ThreadCounters(window) = fact else { panic!("{fact:?}") };
                windows.push(*window);
            };
            for slow_checks in [0, 0, 1, 3, 3] {
                counters.turn(now.after(DurNs(1)), slow_checks + 9, &mut say);
                now = now.after(READ_EVERY);
                counters.turn(now, slow_checks, &mut say);
            }
            counters.finish(now, 3, &mut say);
            let slow: Vec<_> = windows.iter().map(|window| window.slow).collect();
            assert_eq!(slow, [false, true, true, false]);
            assert!(windows.is_sorted_by(|before, next| before.to == next.from), "{windows:?}");
            assert!(windows.iter().all(|window| window.task == busy && window.to > window.from));
            assert_eq!(counters.left_out(), None);
        });
    }

    #[test]
    fn what_there_is_no_room_for_waits_and_is_counted() {
        beside_two_threads(|busy, asleep| {
            let mut counters = Counters::new();
            counters.files = SOFTWARE_FILES + HARDWARE_FILES;
            for task in [busy, asleep, own(1 << 29)] {
                counters.note(&seen(task, "thread"));
            }
            counters.begin(clock::now());
            assert_eq!(counters.threads.keys().collect::<Vec<_>>(), [&busy], "the first that was seen");
            let mut told = Vec::new();
            counters.finish(clock::now(), 0, &mut |_, fact| told.push(fact.clone()));
            assert_eq!(told.last(), Some(&Fact::Uncounted(Uncounted { no_room: 2, ..Uncounted::default() })));
            assert_eq!(counters.left_out().as_deref(), Some("threads without counters: 2 for want of room"));
        });
    }

    #[test]
    fn a_thread_that_ends_makes_room_and_one_that_never_was_is_counted() {
        beside_two_threads(|busy, _| {
            let mut counters = Counters::new();
            counters.threads.insert(own(1 << 29), Thread::open(busy, Some(Unavailable::NoCounter)).unwrap());
            counters.note(&seen(own(1 << 29), "gone"));
            let files = counters.files;
            counters.read(clock::now(), 0, false, &mut |_, _| ());
            assert_eq!((counters.threads.len(), counters.files), (0, files + SOFTWARE_FILES));
            counters.begin(clock::now());
            assert_eq!(counters.left_out().as_deref(), Some("threads without counters: 1 ended too soon"));
        });
    }
}
