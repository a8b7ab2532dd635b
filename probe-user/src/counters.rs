//! What watched threads counted: time on a CPU, switches, migrations, page faults, and cycles and
//! instructions where the machine counts them.
//!
//! Windows of single threads come in ([`ThreadCounters`]), their sums over slow and over usual
//! time go out ([`Counted`]). Pure; who opens and reads counters stands at the edge.

use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;

/// Most threads of a run whose sums are kept.
const MOST_THREADS: usize = 4_096;

/// What a thread counted over a while. The windows of a thread follow each other without overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCounters {
    /// Which.
    pub task: TaskId,
    /// Start of the window.
    pub from: MonoNs,
    /// Its end.
    pub to: MonoNs,
    /// A check that was slow was told of meanwhile.
    pub slow: bool,
    /// What.
    pub counts: Counts,
}

/// Counts of a thread, in user mode and in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Time on a CPU.
    pub task_clock: DurNs,
    /// How often it left a CPU.
    pub context_switches: u64,
    /// How often it came to another CPU.
    pub migrations: u64,
    /// Page faults, those that read no disk included.
    pub page_faults: u64,
    /// What the CPU itself counts.
    pub hardware: Hardware,
}

/// What the CPU itself counts; where it had to share its counters among threads, estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hardware {
    /// It did.
    Counted {
        /// Cycles, at whatever frequency the CPU had.
        cycles: u64,
        /// Retired instructions.
        instructions: u64,
    },
    /// It did not.
    Unavailable(Unavailable),
}

/// Why something is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unavailable {
    /// The machine has no such counter.
    NoCounter,
    /// The kernel has no counters at all.
    NotBuilt,
    /// The kernel does not allow it.
    NotAllowed,
    /// The thread has ended.
    Ended,
    /// There are too many open files.
    NoFiles,
    /// Others have all of the machine's counters.
    Busy,
    /// Something else.
    Failed,
}

impl Unavailable {
    /// From what opening a counter came to.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EOPNOTSUPP) => Self::NoCounter,
            Some(libc::ENOSYS) => Self::NotBuilt,
            Some(libc::EACCES | libc::EPERM) => Self::NotAllowed,
            Some(libc::ESRCH) => Self::Ended,
            Some(libc::EMFILE | libc::ENFILE) => Self::NoFiles,
            Some(libc::EBUSY) => Self::Busy,
            _ => Self::Failed,
        }
    }

    /// The reason, for people.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NoCounter => "this machine has no hardware counters",
            Self::NotBuilt => "the kernel has no counters",
            Self::NotAllowed => "the kernel does not allow it",
            Self::Ended => "the thread has ended",
            Self::NoFiles => "too many files are open",
            Self::Busy => "others have all hardware counters",
            Self::Failed => "the kernel refuses it",
        }
    }

    /// What would help.
    #[must_use]
    pub const fn fix(self) -> &'static str {
        match self {
            Self::NoCounter => "for a VM, switch its virtual PMU on (QEMU: -cpu host,pmu=on)",
            Self::NotBuilt => "boot a kernel built with CONFIG_PERF_EVENTS=y",
            Self::NotAllowed => "run as root or with CAP_PERFMON, or sudo sysctl kernel.perf_event_paranoid=1",
            Self::Ended => "nothing",
            Self::NoFiles => "let the process have more files open: ulimit -n 4096",
            Self::Busy => "stop other profilers, or sudo sysctl kernel.nmi_watchdog=0",
            Self::Failed => "report this kernel's version to whylag's developers",
        }
    }
}

/// Watched threads that nothing was counted of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncounted {
    /// There was no room: too many threads, or too many open files.
    pub no_room: u64,
    /// They ended before counters could be opened.
    pub ended: u64,
    /// The kernel refused their counters.
    pub refused: u64,
}

impl Uncounted {
    /// All of them.
    #[must_use]
    pub const fn threads(&self) -> u64 {
        let Self { no_room, ended, refused } = *self;
        no_room.saturating_add(ended).saturating_add(refused)
    }
}

impl Hardware {
    fn with(self, other: Self, both: fn(u64, u64) -> u64) -> Self {
        match (self, other) {
            (Self::Counted { cycles, instructions }, Self::Counted { cycles: others, instructions: too }) => {
                Self::Counted { cycles: both(cycles, others), instructions: both(instructions, too) }
            }
            (Self::Unavailable(why), _) | (_, Self::Unavailable(why)) => Self::Unavailable(why),
        }
    }
}

impl Counts {
    fn with(self, other: Self, both: fn(u64, u64) -> u64) -> Self {
        Self {
            task_clock: DurNs(both(self.task_clock.0, other.task_clock.0)),
            context_switches: both(self.context_switches, other.context_switches),
            migrations: both(self.migrations, other.migrations),
            page_faults: both(self.page_faults, other.page_faults),
            hardware: self.hardware.with(other.hardware, both),
        }
    }

    /// What came to these since they were `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }
}

/// Counts over some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    /// How long was counted.
    pub time: DurNs,
    /// What.
    pub counts: Counts,
}

impl Sum {
    fn plus(self, other: Self) -> Self {
        Self { time: self.time.plus(other.time), counts: self.counts.with(other.counts, u64::saturating_add) }
    }

    /// Part of a CPU, 0 to 1; never more, whatever the clocks say.
    #[must_use]
    pub fn cpu_share(&self) -> f64 {
        ratio(self.counts.task_clock.0, self.time.0).min(1.0)
    }

    /// How often in a second, of something that was counted so often.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        ratio(count, self.time.0) * 1e9
    }
}

#[expect(clippy::cast_precision_loss, reason = "two or three digits are shown")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What a thread counted while checks were slow, and otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// While checks were slow.
    pub slow: Sum,
    /// Otherwise; `None` if that was never counted.
    pub usual: Option<Sum>,
}

impl Counted {
    /// For people, such as `98 % of a CPU (usually 3 %), 12 switches/s, 3 migrations`.
    #[must_use]
    pub(crate) fn said(&self) -> String {
        use crate::sink::percent;
        let Self { slow, usual } = self;
        let Counts { context_switches, migrations, page_faults, hardware, .. } = slow.counts;
        let usual = usual.map_or_else(String::new, |usual| format!(" (usually {})", percent(usual.cpu_share())));
        let mut said = format!("{} of a CPU{usual}", percent(slow.cpu_share()));
        said += &format!(", {} switches/s", rate(slow.per_second(context_switches)));
        if migrations > 0 {
            said += &format!(", {migrations} migration{}", if migrations == 1 { "" } else { "s" });
        }
        if slow.per_second(page_faults) >= 1.0 {
            said += &format!(", {} page faults/s", rate(slow.per_second(page_faults)));
        }
        if let Hardware::Counted { cycles: cycles @ 1.., instructions } = hardware {
            said += &format!(", {:.1} instructions per cycle", ratio(instructions, cycles));
        }
        said
    }
}

/// Whole ones where that is enough.
fn rate(per_second: f64) -> String {
    if per_second > 0.0 && per_second < 10.0 { format!("{per_second:.1}") } else { format!("{per_second:.0}") }
}

/// Sums by thread.
#[derive(Debug, Default)]
pub(crate) struct CounterTable {
    threads: HashMap<TaskId, Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    slow: Option<Sum>,
    usual: Option<Sum>,
}

impl CounterTable {
    /// Takes a window in; one that has no length says nothing.
    pub(crate) fn push(&mut self, window: &ThreadCounters) {
        let ThreadCounters { task, from, to, slow, counts } = *window;
        let room = self.threads.len() < MOST_THREADS || self.threads.contains_key(&task);
        let sum = Sum { time: to.since(from), counts };
        if !room || sum.time == DurNs::ZERO {
            return;
        }
        let sums = self.threads.entry(task).or_default();
        let into = if slow { &mut sums.slow } else { &mut sums.usual };
        *into = Some(into.map_or(sum, |known| known.plus(sum)));
    }

    /// What a thread counted; `None` if it was not counted while checks were slow.
    pub(crate) fn of(&self, task: TaskId) -> Option<Counted> {
        let Sums { slow, usual } = self.threads.get(&task)?;
        Some(Counted { slow: (*slow)?, usual: *usual })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOG: TaskId = TaskId { tgid: 10, tid: 12 };
    const NO_HARDWARE: Hardware = Hardware::Unavailable(Unavailable::NoCounter);

    fn counts(task_clock_ms: u64, context_switches: u64) -> Counts {
        let task_clock = DurNs::from_millis(task_clock_ms);
        Counts { task_clock, context_switches, migrations: 1, page_faults: 0, hardware: NO_HARDWARE }
    }

    fn window(from_ms: u64, to_ms: u64, slow: bool, counts: Counts) -> ThreadCounters {
        let at = |ms| MonoNs(0).after(DurNs::from_millis(ms));
        ThreadCounters { task: HOG, from: at(from_ms), to: at(to_ms), slow, counts }
    }

    fn table(windows: &[ThreadCounters]) -> CounterTable {
        let mut table = CounterTable::default();
        windows.iter().for_each(|window| table.push(window));
        table
    }

    #[test]
    fn slow_windows_are_summed_apart_from_the_usual() {
        let windows = [
            window(0, 10_000, false, counts(300, 100)),
            window(10_000, 11_000, true, counts(990, 10)),
            window(11_000, 12_000, true, counts(970, 14)),
        ];
        let counted = table(&windows).of(HOG).unwrap();
        assert_eq!(counted.slow.time, DurNs::from_secs(2));
        assert_eq!(counted.slow.counts, Counts { migrations: 2, ..counts(1_960, 24) });
        assert_eq!(counted.usual.unwrap().counts.context_switches, 100);
        assert_eq!(counted.said(), "98 % of a CPU (usually 3 %), 12 switches/s, 2 migrations");
    }

    #[test]
    fn a_thread_that_was_not_counted_while_checks_were_slow_is_not_told_of() {
        assert_eq!(table(&[window(0, 10_000, false, counts(300, 100))]).of(HOG), None);
        assert_eq!(table(&[window(5, 5, true, counts(1, 1)), window(9, 4, true, counts(1, 1))]).of(HOG), None);
        assert_eq!(table(&[]).of(TaskId::default()), None);
    }

    #[test]
    fn no_part_of_a_cpu_is_made_up_from_numbers_that_cannot_be() {
        let impossible = Counts { task_clock: DurNs(u64::MAX), ..counts(0, u64::MAX) };
        let counted = table(&[window(0, 1, true, impossible), window(1, 2, true, impossible)]).of(HOG).unwrap();
        assert!(counted.said().starts_with("100 % of a CPU, "), "{}", counted.said());
    }

    #[test]
    fn hardware_that_was_refused_once_is_told_as_refused_with_its_reason() {
        let counted = Counts { hardware: Hardware::Counted { cycles: 1_000, instructions: 1_500 }, ..counts(500, 0) };
        let all = table(&[window(0, 1_000, true, counted), window(1_000, 2_000, true, counted)]).of(HOG).unwrap();
        assert_eq!(all.slow.counts.hardware, Hardware::Counted { cycles: 2_000, instructions: 3_000 });
        assert!(all.said().ends_with("1.5 instructions per cycle"), "{}", all.said());
        let some = table(&[window(0, 1_000, true, counted), window(1_000, 2_000, true, counts(1, 0))]).of(HOG).unwrap();
        assert_eq!(some.slow.counts.hardware, NO_HARDWARE);
        assert!(!some.said().contains("instructions"));
    }

    #[test]
    fn what_the_kernel_answers_becomes_a_reason() {
        let why = |errno| Unavailable::of(&io::Error::from_raw_os_error(errno));
        assert_eq!(why(libc::ENOENT), Unavailable::NoCounter);
        assert_eq!(why(libc::EACCES), Unavailable::NotAllowed);
        assert_eq!(why(libc::EMFILE), Unavailable::NoFiles);
        assert_eq!(why(libc::EINVAL), Unavailable::Failed);
    }

    #[test]
    fn a_window_is_the_same_after_a_recording() {
        use crate::event::{Body, Fact, decode, fact_record};
        for hardware in [NO_HARDWARE, Hardware::Counted { cycles: 1, instructions: 2 }] {
            let fact = Fact::ThreadCounters(window(0, 1_000, true, Counts { hardware, ..counts(5, 6) }));
            let record = fact_record(MonoNs(7), &fact).unwrap();
            assert_eq!(decode(&record).unwrap().body, Body::Fact(Box::new(fact)));
        }
    }
}
