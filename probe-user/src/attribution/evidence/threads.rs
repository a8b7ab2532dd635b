//! Lives of threads: what their records add to them, and what they did.

use super::{Evidence, SOFTIRQ_THREAD, Usage};
use crate::attribution::frame::Frame;
use crate::attribution::futex::FutexWord;
use crate::attribution::symbol::StackRef;
use crate::attribution::thread::{Account, Interval, Leave, Life, Mark, Named, Switch, Throttled, Wake};
use crate::clock::{DurNs, MonoNs};
use crate::event::{Body, Event, TaskFact, TaskId};
use probe_wire::{
    CpuAccount, FutexWaitBody, MAX_CPUS, SoftirqWaitBody, SwitchInBody, SwitchOutBody, TaskForkBody, WakingBody,
};
use std::collections::HashSet;

/// Most lives of threads kept.
pub(super) const MAX_LIVES: usize = 32_768;
/// Most records kept of one life.
pub(super) const MAX_MARKS: usize = 65_536;
/// Most records kept of all lives, about 140 bytes each.
const MAX_MARKS_TOTAL: usize = 524_288;
/// `/proc` rounds a thread's start time to a clock tick; a number is not reused that fast.
const START_TOLERANCE_NS: u64 = 20_000_000;
/// Longest time from data entering a socket to the wake-up of who waits for it: the kernel does
/// both in one function.
const DATA_TO_WAKE_UP: DurNs = DurNs(50_000);

/// The thread that was last known to have a CPU.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Current {
    task: TaskId,
    seen: MonoNs,
    /// Only the one that left said that it comes.
    announced: bool,
}

impl Evidence {
    /// Every record names the thread that was current on its CPU. Where that contradicts what the
    /// switches say, one of them is missing, whether or not its loss was counted.
    pub(super) fn witness(&mut self, event: &Event) {
        let cpu = event.cpu as usize;
        // What a wait is for is told beside the switch itself, a moment behind it.
        let beside_a_switch = matches!(event.body, Body::FileWait(_) | Body::FutexWait(_));
        if event.body.kind().is_none() || beside_a_switch || cpu >= MAX_CPUS {
            return;
        }
        if self.current.len() <= cpu {
            self.current.resize(cpu + 1, Current::default());
        }
        let (left, now) = match &event.body {
            Body::SwitchIn(body) => (None, TaskId { tgid: body.tgid, tid: body.tid }),
            Body::SwitchOut(body) => (Some(event.task), TaskId { tgid: body.next_tgid, tid: body.next_tid }),
            _ => (None, event.task),
        };
        let current = Current { task: now, seen: event.at, announced: left.is_some() };
        let before = std::mem::replace(&mut self.current[cpu], current);
        if before.task != now && left != Some(before.task) {
            self.contradict(before.task, Mark::Gone(event.at), |life| life.is_on(event.cpu));
        }
        let switches = matches!(event.body, Body::SwitchIn(_) | Body::SwitchOut(_));
        if !switches && (before.task != now || before.announced) {
            self.contradict(now, Mark::Present(event.at), |life| life.denies_presence(event.cpu));
        }
    }

    fn contradict(&mut self, task: TaskId, mark: Mark, is_news: impl FnOnce(&Life) -> bool) {
        if self.lives.get(&task).and_then(|lives| lives.last()).is_some_and(is_news) {
            self.mark(task, 0, None, mark);
        }
    }

    pub(super) fn recount(&mut self) {
        self.life_count = self.lives.values().map(Vec::len).sum();
        self.mark_count = self.lives.values().flatten().map(|life| life.marks.len()).sum();
    }

    pub(super) fn stacks_in_use(&self) -> HashSet<StackRef> {
        let marks = self.lives.values().flatten().flat_map(|life| &life.marks);
        marks
            .filter_map(|mark| match mark {
                Mark::Out(_, leave) => Some(leave.stack),
                _ => None,
            })
            .collect()
    }

    pub(super) fn switch_out(&mut self, event: &Event, body: &SwitchOutBody) {
        let stack = self.stacks.keep(&body.stack, body.stack_len);
        let next = Named { task: TaskId { tgid: body.next_tgid, tid: body.next_tid }, comm: body.next_comm };
        let throttled = (body.throttled_ns, body.throttled_count);
        let switch = switch(event, next, body.softirq_ns, throttled, body.account);
        self.ran(event, body.ran_ns, (body.comm, body.start_time_ns));
        let ran = (body.ran_ns != u64::MAX).then_some(DurNs(body.ran_ns));
        let leave = Leave { state: body.state, preempted: body.preempted != 0, stack, ran, futex: None };
        self.mark(event.task, body.start_time_ns, Some(&body.comm), Mark::Out(switch, leave));
    }

    /// Names of its functions come before a stack.
    pub(super) fn softirq_waited(&mut self, event: &Event, body: &SoftirqWaitBody) {
        let stack = body.stack.get(..body.stack_len as usize).unwrap_or_default();
        let frames = stack.iter().filter_map(|address| self.symbols.at(*address));
        self.softirq_waits.add(event, body, frames);
    }

    /// Where the kernel does not tell for how long, it is not known.
    pub(super) fn ran(&mut self, event: &Event, ran_ns: u64, (comm, start_ns): ([u8; 16], u64)) {
        if ran_ns != u64::MAX {
            let who = (Named { task: event.task, comm }, start_ns);
            self.runs.add(event.cpu, who, event.at, DurNs(ran_ns));
        }
    }

    pub(super) fn switch_in(&mut self, event: &Event, body: &SwitchInBody) {
        let prev = Named { task: event.task, comm: body.prev_comm };
        let throttled = (body.throttled_ns, body.throttled_count);
        let switch = switch(event, prev, body.softirq_ns, throttled, body.account);
        let task = TaskId { tgid: body.tgid, tid: body.tid };
        self.mark(task, body.start_time_ns, Some(&body.comm), Mark::In(switch));
    }

    pub(super) fn waking(&mut self, event: &Event, body: &WakingBody) {
        let waker = Named { task: event.task, comm: body.waker_comm };
        let arrived = self.arrived.get(&event.cpu).filter(|(at, _)| event.at.since(*at) <= DATA_TO_WAKE_UP);
        let wake = Wake {
            at: event.at,
            waker,
            softirq: event.softirq,
            softirqs_told: !self.blind.softirqs,
            interrupt: event.interrupt,
            cpu: body.cpu,
            data: arrived.map(|(_, data)| *data),
        };
        let task = TaskId { tgid: body.tgid, tid: body.tid };
        let word = self.lives.get(&task).and_then(|lives| lives.last()?.waits_for_futex());
        if let Some(word) = word {
            self.futexes.wakes(task, word, wake);
        }
        self.mark(task, 0, Some(&body.comm), Mark::Waking(wake));
    }

    /// Which futex the wait is for that has just begun; 0 if that is hidden.
    pub(super) fn futex_wait(&mut self, event: &Event, body: &FutexWaitBody) {
        let life = self.lives.get_mut(&event.task).and_then(|lives| lives.last_mut());
        if let Some(life) = life.filter(|_| body.word != 0) {
            life.learn_futex(event.at, FutexWord::of_word(body.word));
            self.futexes.learn();
        }
    }

    pub(super) fn fork(&mut self, at: MonoNs, body: &TaskForkBody) {
        let task = TaskId { tgid: body.tgid, tid: body.tid };
        self.mark(task, body.start_time_ns, None, Mark::Born(at));
    }

    pub(super) fn task(&mut self, at: MonoNs, fact: &TaskFact) {
        if let Some(cpu) = fact.comm.strip_prefix(SOFTIRQ_THREAD).and_then(|cpu| cpu.parse().ok()) {
            self.softirq_threads.insert(cpu, fact.id);
        }
        let asleep = matches!(fact.state, 'S' | 'D' | 'I' | 'T' | 't').then_some(fact.wchan.as_deref()).flatten();
        let asleep_in = asleep.filter(|name| !name.is_empty() && *name != "0");
        let asleep_in = asleep_in.map(|name| Box::new(Frame::new(name)));
        self.mark(fact.id, fact.start_time_ns, Some(&padded(&fact.comm)), Mark::Seen { at, asleep_in });
        if let Some(life) = self.lives.get_mut(&fact.id).and_then(|lives| lives.last_mut()) {
            life.cgroup.clone_from(&fact.cgroup);
        }
    }

    /// Adds to the life of `task` that started at `start_ns` (0: the one that is running).
    pub(super) fn mark(&mut self, task: TaskId, start_ns: u64, comm: Option<&[u8; 16]>, mark: Mark) {
        let full = self.mark_count >= MAX_MARKS_TOTAL;
        let exact = !matches!(mark, Mark::Seen { .. });
        let Some(life) = self.life(task, start_ns, exact, mark.at()) else {
            return;
        };
        if let Some(comm) = comm {
            life.comm = *comm;
        }
        if life.add(mark) {
            let over = full || life.marks.len() > MAX_MARKS;
            let forgotten = if over { life.marks.pop_front() } else { None };
            self.mark_count += usize::from(forgotten.is_none());
        }
    }

    fn life(&mut self, task: TaskId, start_ns: u64, exact: bool, at: MonoNs) -> Option<&mut Life> {
        let full = self.life_count >= MAX_LIVES;
        if task.tid == 0 || (full && !self.lives.contains_key(&task)) {
            return None;
        }
        let lives = self.lives.entry(task).or_default();
        let known = lives.last_mut().is_some_and(|life| life.is(start_ns, exact));
        if !known && full {
            return None;
        }
        if !known {
            if lives.is_empty() {
                self.processes.entry(task.tgid).or_default().push(task.tid);
            }
            self.life_count += 1;
            lives.push(Life::new(start_ns, exact && start_ns != 0, at));
        }
        lives.last_mut()
    }

    /// What `task` did; a single unknown interval when nothing is known of it.
    pub(in crate::attribution) fn intervals(&self, task: TaskId, from: MonoNs, to: MonoNs) -> Vec<Interval<'_>> {
        let Some(life) = self.life_at(task, to) else { return Vec::new() };
        let current = life.cpu().and_then(|cpu| self.current.get(cpu as usize)).filter(|current| current.task == task);
        let seen = current.map_or(MonoNs(0), |current| current.seen);
        let walked = life.intervals(from, to, seen, &self.softirqs);
        let Usage { steps, oldest } = self.usage.get();
        let oldest = [oldest, walked.open_since].into_iter().flatten().min();
        self.usage.set(Usage { steps: steps.saturating_add(walked.steps), oldest });
        walked.intervals
    }

    /// Looks at evidence without counting what that takes.
    pub(in crate::attribution) fn apart(&self, look: impl FnOnce(&Self)) {
        let usage = self.usage.get();
        look(self);
        self.usage.set(usage);
    }

    /// Stretches of threads' lives that have not been told: up to the latest record of each, or up
    /// to `until`. They count as told from here on.
    pub(in crate::attribution) fn take_untold(&mut self, until: Option<MonoNs>) -> Vec<(TaskId, MonoNs, MonoNs)> {
        let mut untold = Vec::new();
        for (task, lives) in &mut self.lives {
            for life in lives {
                let latest = life.marks.back().map_or(life.since, Mark::at);
                let (from, to) = (life.told_until.max(life.since), until.unwrap_or(latest));
                if from < to {
                    untold.push((*task, from, to));
                    life.told_until = to;
                }
            }
        }
        untold
    }

    /// What was used since this was asked last.
    pub(in crate::attribution) fn take_usage(&self) -> Usage {
        self.usage.take()
    }

    /// The life that a thread number stood for at `at`.
    pub(in crate::attribution) fn life_at(&self, task: TaskId, at: MonoNs) -> Option<&Life> {
        let lives = self.lives.get(&task)?;
        lives.iter().rev().find(|life| life.since <= at).or(lives.first())
    }

    /// The threads of these processes that are known.
    pub(in crate::attribution) fn threads_of(&self, tgids: &[u32]) -> Vec<TaskId> {
        let mut threads = Vec::new();
        for tgid in tgids {
            let tids = self.processes.get(tgid).into_iter().flatten();
            threads.extend(tids.map(|tid| TaskId { tgid: *tgid, tid: *tid }));
        }
        threads.sort_unstable();
        threads.dedup();
        threads
    }
}

impl Life {
    /// Whether a record with this start time is of this life; learns the start time if so.
    fn is(&mut self, start_ns: u64, exact: bool) -> bool {
        let tolerance = if exact && self.exact { 0 } else { START_TOLERANCE_NS };
        let same = start_ns == 0 || self.start_ns == 0 || self.start_ns.abs_diff(start_ns) <= tolerance;
        if same && start_ns != 0 && !self.exact {
            self.start_ns = start_ns;
            self.exact = exact;
        }
        same
    }
}

/// What the records of both ends of a slice tell alike.
fn switch(event: &Event, other: Named, softirq_ns: u64, throttled: (u64, u64), account: CpuAccount) -> Switch {
    let (throttled_ns, count) = throttled;
    Switch {
        at: event.at,
        cpu: event.cpu,
        softirq: DurNs(softirq_ns),
        throttled: Throttled { time: DurNs(throttled_ns), count },
        account: Account::from(account),
        other,
    }
}

fn padded(comm: &str) -> [u8; 16] {
    let mut padded = [0; 16];
    padded.iter_mut().zip(comm.bytes()).for_each(|(to, from)| *to = from);
    padded
}
