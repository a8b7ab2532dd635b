//! A part of a ledger as levels, one on the other.

use crate::attribution::{Cause, Entry, Gap, Sampled};
use crate::clock::DurNs;
use crate::sink::printable;
use crate::stack::{FrameFact, Function, ModuleFact, StackTable};
use foldhash::fast::RandomState;
use std::collections::HashSet;
use std::rc::Rc;

/// Most characters of a level in a drawing; other formats have all.
const LONGEST: usize = 120;
/// The base of time for which no cause is proven.
const UNEXPLAINED: &str = "unexplained";
/// What stands on a custody when there are too many towers to keep apart.
const MANY: &str = "of many different towers";

/// What a level is. Every level below the causes begins with the word of its kind, so that no
/// thread can pass for a cause by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// Who held the check.
    Custody,
    /// Where on the path.
    Span,
    /// A wait that was followed, or the cause at its end.
    Cause,
    /// The thread that the check depended on.
    Thread,
    /// A function of the program that the thread below was in.
    User,
    /// A kernel function that the thread below was in.
    Kernel,
    /// It could run, and had no CPU.
    Ready,
    /// Whom the thread below waited for.
    Waker,
    /// Who had the CPU meanwhile.
    Instead,
    /// A group of threads.
    Cgroup,
    /// A device or queueing discipline.
    Device,
    /// No cause is proven.
    Unexplained,
}

/// One level: its kind, and what is written on it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Level {
    pub(super) kind: Kind,
    pub(super) text: String,
    /// Where in its source a function was; levels that differ in nothing else are drawn as one.
    pub(super) place: Option<Place>,
}

/// A line of source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) file: String,
    /// From 1; 0 if unknown.
    pub(super) line: u32,
}

impl Place {
    /// The file's last two names and the line, such as `src/server.rs:120`.
    pub(super) fn short(&self) -> String {
        let names: Vec<_> = self.file.rsplit('/').take(2).collect();
        let file: Vec<_> = names.into_iter().rev().collect();
        if self.line == 0 { file.join("/") } else { format!("{}:{}", file.join("/"), self.line) }
    }
}

/// Levels from below; one that stands in many towers is kept once.
pub(super) type Tower = Vec<Rc<Level>>;

impl Level {
    pub(super) fn new(kind: Kind, name: &str) -> Self {
        let text = match kind {
            Kind::Custody | Kind::Span | Kind::Cause | Kind::Unexplained | Kind::User | Kind::Ready => name.to_owned(),
            // How flame graphs mark kernel functions.
            Kind::Kernel => format!("{name}_[k]"),
            Kind::Thread => format!("thread {name}"),
            Kind::Waker => format!("waker {name}"),
            Kind::Instead => format!("instead {name}"),
            Kind::Cgroup => format!("cgroup {name}"),
            Kind::Device => format!("device {name}"),
        };
        Self { kind, text: plain(&text), place: None }
    }

    /// What a drawing has of its text; colours mark kernel functions there.
    pub(super) fn label(&self) -> String {
        let kernel = self.text.strip_suffix("_[k]").filter(|_| self.kind == Kind::Kernel);
        let text = kernel.unwrap_or(&self.text);
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
            None => text.to_owned(),
        }
    }

    /// What it is drawn by.
    pub(super) fn drawn(&self) -> (Kind, &str) {
        (self.kind, &self.text)
    }

    /// Whether the two are drawn as one where they stand side by side.
    pub(super) fn is_drawn_as(self: &Rc<Self>, other: &Rc<Self>) -> bool {
        Rc::ptr_eq(self, other) || self.drawn() == other.drawn()
    }
}

/// Levels that were built, each once. The frames of a hundred thousand stacks are few.
#[derive(Debug, Default)]
pub(super) struct Levels {
    built: HashSet<Rc<Level>, RandomState>,
    /// By the number of the frame: its functions, outermost first.
    frames: hashbrown::HashMap<u32, Box<[Rc<Level>]>, RandomState>,
}

impl Levels {
    pub(super) fn one(&mut self, level: Level) -> Rc<Level> {
        if let Some(built) = self.built.get(&level) {
            return Rc::clone(built);
        }
        let level = Rc::new(level);
        self.built.insert(Rc::clone(&level));
        level
    }

    /// Puts the functions of a program that a stack stands in on a tower, outermost first.
    pub(super) fn put_stack(&mut self, tower: &mut Tower, stacks: &StackTable, stack: u32) {
        for number in stacks.frame_numbers(stack).iter().rev() {
            if let Some(functions) = self.frames.get(number) {
                tower.extend_from_slice(functions);
                continue;
            }
            let functions = self.of_frame(stacks, *number);
            tower.extend_from_slice(&functions);
            self.frames.insert(*number, functions);
        }
    }

    fn of_frame(&mut self, stacks: &StackTable, number: u32) -> Box<[Rc<Level>]> {
        let Some((frame, module)) = stacks.frame(number) else { return Box::default() };
        if frame.functions.is_empty() {
            return Box::new([self.one(Level::new(Kind::User, &nameless(frame, module)))]);
        }
        frame.functions.iter().rev().map(|function| self.one(of_function(function))).collect()
    }
}

fn of_function(function: &Function) -> Level {
    let place = (!function.file.is_empty()).then(|| Place { file: plain(&function.file), line: function.line });
    Level { place, ..Level::new(Kind::User, &function.name) }
}

/// `libc.so.6+0x9f5c2 (no symbol)`.
fn nameless(frame: &FrameFact, module: Option<&ModuleFact>) -> String {
    let module = module.map_or(String::new(), |module| format!("{}+", module.name));
    let reason = frame.unknown.map_or(String::new(), |unknown| format!(" ({})", unknown.reason()));
    format!("{module}{:#x}{reason}", frame.address)
}

/// A level, or a stack of user code whose functions may get their names later.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Step {
    Level(Level),
    Stack(u32),
}

/// A tower that is not built yet.
pub(super) type Plan = Vec<Step>;

/// Builds a tower with the names that are known by now.
pub(super) fn built(plan: &[Step], stacks: &StackTable, levels: &mut Levels) -> Tower {
    let mut tower = Tower::with_capacity(plan.len());
    for step in plan {
        match step {
            Step::Level(level) => tower.push(levels.one(level.clone())),
            Step::Stack(stack) => levels.put_stack(&mut tower, stacks, *stack),
        }
    }
    tower
}

/// The towers of a part that is charged to a cause, and what each takes of it, exactly: one, or
/// of a thread on a CPU one for each stack that was sampled.
pub(super) fn of_entry(entry: &Entry) -> Vec<(Plan, DurNs)> {
    let below = below(entry);
    let top = offender(entry).map(Step::Level);
    let samples: &[Sampled] = entry.hops.last().map_or(&[], |hop| &hop.samples);
    if samples.is_empty() {
        return vec![(below.into_iter().chain(top).collect(), entry.time())];
    }
    let on = |sample: &Sampled| {
        let kernel = sample.kernel.iter().map(|function| Step::Level(Level::new(Kind::Kernel, function)));
        below.iter().cloned().chain(sample.user.map(Step::Stack)).chain(kernel).chain(top.clone()).collect()
    };
    samples.iter().map(on).zip(parts(entry.time(), samples)).collect()
}

/// Custody, span, waits, and threads with their stacks.
fn below(entry: &Entry) -> Plan {
    let (custody, span) = (entry.span.custody().name(), entry.span.name());
    let mut plan = vec![Step::Level(Level::new(Kind::Custody, custody)), Step::Level(Level::new(Kind::Span, span))];
    plan.extend(entry.path.iter().map(|cause| Step::Level(Level::new(Kind::Cause, cause.row().name))));
    for (number, hop) in entry.hops.iter().enumerate() {
        let kind = if number == 0 { Kind::Thread } else { Kind::Waker };
        plan.push(Step::Level(Level::new(kind, named(&hop.comm))));
        plan.extend(hop.user.map(Step::Stack));
        plan.extend(hop.frames.iter().map(|function| Step::Level(Level::new(Kind::Kernel, function))));
    }
    plan
}

/// A time in proportion to samples; the parts sum to it. What whole nanoseconds leave over goes to
/// the first.
fn parts(time: DurNs, samples: &[Sampled]) -> Vec<DurNs> {
    let whole = samples.iter().fold(0, |sum, sample| sum + u128::from(sample.time.0)).max(1);
    let part = |sample: &Sampled| {
        let part = u128::from(time.0) * u128::from(sample.time.0) / whole;
        DurNs(u64::try_from(part).unwrap_or(u64::MAX))
    };
    let mut parts: Vec<_> = samples.iter().map(part).collect();
    let given = parts.iter().fold(DurNs::ZERO, |sum, part| sum.plus(*part));
    if let Some(first) = parts.first_mut() {
        *first = first.plus(time.minus(given));
    }
    parts
}

/// The tower of time for which no cause is proven.
pub(super) fn of_gap(gap: &Gap) -> Plan {
    unexplained(&gap.reason)
}

fn unexplained(reason: &str) -> Plan {
    [UNEXPLAINED, reason].map(|text| Step::Level(Level::new(Kind::Unexplained, text))).to_vec()
}

/// The tower of a check under which events were lost.
pub(super) fn of_loss() -> Plan {
    unexplained("events were lost while the check was under way")
}

/// What is left of a tower when there are too many to keep it apart; one of few.
pub(super) fn base(plan: &[Step]) -> Option<Plan> {
    let Some(Step::Level(lowest)) = plan.first() else { return None };
    let many = Level { kind: lowest.kind, text: MANY.to_owned(), place: None };
    Some(vec![Step::Level(lowest.clone()), Step::Level(many)])
}

/// Who is behind the cause, if that is not the last thread on the way to it.
fn offender(entry: &Entry) -> Option<Level> {
    let offender = entry.offender.as_ref()?;
    let is_thread = offender.task.tid != 0 || !offender.comm.is_empty();
    match entry.hops.last() {
        Some(hop) if is_thread && hop.task == offender.task => None,
        _ if is_thread && entry.cause == Cause::AppRunqueue => Some(Level::new(Kind::Instead, named(&offender.comm))),
        Some(_) if is_thread => Some(Level::new(Kind::Waker, named(&offender.comm))),
        None if is_thread => Some(Level::new(Kind::Thread, named(&offender.comm))),
        _ if !offender.device.is_empty() => Some(Level::new(Kind::Device, &offender.device)),
        _ if !offender.cgroup.is_empty() => Some(Level::new(Kind::Cgroup, &offender.cgroup)),
        _ => None,
    }
}

pub(super) fn named(comm: &str) -> &str {
    if comm.trim().is_empty() { "without a name" } else { comm }
}

/// Text that can neither end its level nor its line, nor leave the document it stands in.
fn plain(text: &str) -> String {
    let shown = printable(text);
    let chars = shown.trim().chars().map(|c| match c {
        ';' => ',',
        // XML knows no such characters.
        '\u{fffe}' | '\u{ffff}' => '·',
        c if c.is_whitespace() => ' ',
        c => c,
    });
    let plain: String = chars.collect();
    // A last word that is a number would be taken for a count.
    match plain.rsplit_once(' ') {
        Some((start, last)) if last.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') => {
            format!("{start}_{last}")
        }
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, LONGEST, Level, plain};

    #[test]
    fn no_name_ends_its_level_or_its_line() {
        assert_eq!(plain("a;b\nc\u{2028}d\te"), "a,b·c·d·e");
        assert_eq!(plain("worker\u{a0}7"), "worker_7", "or it would be a count");
        assert_eq!(plain("worker 7b"), "worker 7b");
        assert_eq!(plain("softirq CPU 0"), "softirq CPU_0");
        assert_eq!(plain("\u{fffe}<"), "·<");
    }

    #[test]
    fn a_very_long_name_is_cut_in_drawings_only() {
        let level = Level::new(Kind::Kernel, &"ä".repeat(64 << 10));
        assert_eq!(level.text.chars().count(), (64 << 10) + 4);
        assert_eq!(level.label().chars().count(), LONGEST + 1);
        assert!(level.label().ends_with("ä…"));
        assert_eq!(Level::new(Kind::Kernel, "futex_wait").label(), "futex_wait");
    }

    #[test]
    fn a_thread_cannot_pass_for_a_cause() {
        assert_eq!(Level::new(Kind::Thread, "storage.writeback").text, "thread storage.writeback");
        assert_eq!(Level::new(Kind::Kernel, "futex_wait").text, "futex_wait_[k]");
    }
}
