//! Threads of a process, as facts for the event stream.

use super::process::{cgroup, numbered, text};
use crate::event::{TaskFact, TaskId};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;

/// Every thread of a process, as it is now; empty if the process is gone or hidden. A thread that
/// ends meanwhile is left out.
///
/// `start_time_ns` has the precision of `/proc`: one clock tick, 10 ms on every common kernel. It
/// is counted on `CLOCK_BOOTTIME` there and moved to `CLOCK_MONOTONIC` by the two clocks'
/// difference now, so that threads older than a suspend come out too early by its length.
#[must_use]
pub fn task_facts(tgid: u32) -> Vec<TaskFact> {
    let directory = format!("/proc/{tgid}/task");
    let clock = StartClock::now();
    let mut tids: Vec<_> = numbered(Path::new(&directory)).collect();
    tids.sort_unstable();
    tids.iter()
        .filter_map(|tid| fact(&Path::new(&directory).join(tid.to_string()), TaskId { tgid, tid: *tid }, clock))
        .collect()
}

/// One thread, as it is now; `None` if it is gone or hidden. Times as in [`task_facts`].
#[must_use]
pub fn task_fact(id: TaskId) -> Option<TaskFact> {
    fact(Path::new(&format!("/proc/{}/task/{}", id.tgid, id.tid)), id, StartClock::now())
}

fn fact(thread: &Path, id: TaskId, clock: StartClock) -> Option<TaskFact> {
    let stat = Stat::parse(&text(&thread.join("stat"))?)?;
    Some(TaskFact {
        id,
        start_time_ns: clock.monotonic_ns(stat.start_ticks),
        comm: stat.comm,
        cgroup: cgroup(thread),
        state: stat.state,
        wchan: text(&thread.join("wchan")).and_then(|text| wchan_of(&text)),
    })
}

/// `0` or nothing: it runs, or the kernel does not tell.
fn wchan_of(text: &str) -> Option<String> {
    let name = text.trim();
    (!name.is_empty() && name != "0").then(|| name.to_owned())
}

/// The columns of `/proc/PID/stat` that are wanted.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    comm: String,
    state: char,
    start_ticks: u64,
}

impl Stat {
    /// The name is in parentheses and may hold any byte, parentheses and spaces included.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once('(')?;
        let (comm, rest) = rest.rsplit_once(") ")?;
        let mut columns = rest.split_ascii_whitespace();
        let state = columns.next()?.chars().next()?;
        Some(Self { comm: comm.to_owned(), state, start_ticks: columns.nth(18)?.parse().ok()? })
    }
}

/// From ticks since boot to `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy)]
struct StartClock {
    ns_per_tick: u64,
    /// Time spent in suspend: `CLOCK_BOOTTIME` minus `CLOCK_MONOTONIC`, in whole ticks, so that
    /// the time between the two readings does not give one thread two start times.
    suspended_ns: u64,
}

impl StartClock {
    fn now() -> Self {
        let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let monotonic = clock_ns(ClockId::Monotonic);
        let suspended_ns = clock_ns(ClockId::Boottime).saturating_sub(monotonic);
        Self { ns_per_tick, suspended_ns: whole_ticks(suspended_ns, ns_per_tick) }
    }

    const fn monotonic_ns(self, ticks: u64) -> u64 {
        ticks.saturating_mul(self.ns_per_tick).saturating_sub(self.suspended_ns)
    }
}

/// The nearest multiple of a tick.
const fn whole_ticks(ns: u64, ns_per_tick: u64) -> u64 {
    ns.saturating_add(ns_per_tick / 2) / ns_per_tick * ns_per_tick
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanoseconds.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_name_may_hold_parentheses_and_spaces() {
        let text = "77 (a) R (b c) S 1 77 77 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 3 0 123456 1 1\n";
        assert_eq!(Stat::parse(text), Some(Stat { comm: "a) R (b c".to_owned(), state: 'S', start_ticks: 123_456 }));
        assert_eq!(Stat::parse("77 (cut"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn suspended_time_is_taken_off() {
        let clock = StartClock { ns_per_tick: 10_000_000, suspended_ns: 1_000_000_000 };
        assert_eq!(clock.monotonic_ns(300), 2_000_000_000);
        assert_eq!(clock.monotonic_ns(1), 0);
        assert_eq!([whole_ticks(90_000, 10_000_000), whole_ticks(19_990_000, 10_000_000)], [0, 20_000_000]);
    }

    #[test]
    fn a_running_thread_has_no_wait_channel() {
        assert_eq!(wchan_of("0"), None);
        assert_eq!(wchan_of("futex_do_wait").as_deref(), Some("futex_do_wait"));
    }

    #[test]
    fn a_thread_shows_its_name_and_when_it_started() {
        let (release, wait) = mpsc::channel::<()>();
        let (started, named) = mpsc::channel();
        let before = clock_ns(ClockId::Monotonic);
        let run = move || started.send(()).is_ok() && wait.recv().is_err();
        let thread = std::thread::Builder::new().name("whylag-fact".to_owned()).spawn(run).expect("a thread");
        // A thread names itself.
        named.recv().expect("the thread's word");
        let facts = task_facts(std::process::id());
        let fact = facts.iter().find(|fact| fact.comm == "whylag-fact").expect("the thread");
        let tick = StartClock::now().ns_per_tick;
        assert!(fact.start_time_ns.abs_diff(before) <= 10 * tick, "{} against {before}", fact.start_time_ns);
        let again = task_facts(std::process::id());
        let again = again.iter().find(|again| again.id == fact.id).expect("the thread");
        assert_eq!(again.start_time_ns, fact.start_time_ns, "one life, one start");
        drop(release);
        assert!(thread.join().expect("no panic"));
        assert_eq!(task_facts(0), []);
    }
}
