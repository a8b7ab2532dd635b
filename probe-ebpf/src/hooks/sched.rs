//! Threads of watched processes: switches, wake-ups, births and deaths.

use aya_ebpf::{EbpfContext, helpers::bpf_get_stack, programs::BtfTracePointContext};
use probe_wire::{
    CpuAccount, EventKind, MOST_RUNS, RAN_LEAST_NS, RUNS_STRETCH_NS, RanBody, STACK_DEPTH, SwitchInBody, SwitchOutBody,
    TaskExitBody, TaskForkBody, WakingBody,
};

use super::lock;
use crate::{
    emit::{emit, emit_at, emit_in, now, zero},
    hooks::{block, stack, storage},
    maps::{SETTINGS, cpu_state},
    read::{self, Typed, offsets},
    scope,
};

/// Task groups looked at, from a thread's own upwards.
const MAX_GROUPS: usize = 5;

/// A `task_struct`.
#[derive(Clone, Copy)]
pub(super) struct Task(Typed);

impl Task {
    /// The one that has this CPU.
    #[inline(always)]
    pub(super) fn current() -> Self {
        Self(read::current_task())
    }

    #[inline(always)]
    fn tid(self) -> u32 {
        read::typed(self.0, offsets().task_pid, 0)
    }

    #[inline(always)]
    fn tgid(self) -> u32 {
        read::typed(self.0, offsets().task_tgid, 0)
    }

    #[inline(always)]
    fn is_watched(self) -> bool {
        scope::is_watched(read::needed(self.0, offsets().task_tgid))
    }

    #[inline(always)]
    pub(super) fn comm(self) -> [u8; 16] {
        read::name(self.0, offsets().task_comm)
    }

    #[inline(always)]
    pub(super) fn start_time_ns(self) -> u64 {
        read::typed(self.0, offsets().task_start_time, 0)
    }

    /// Whether it was the last of its process, in a program that runs at its exit.
    #[inline(always)]
    fn is_last_of_process(self) -> bool {
        let signal = read::typed_pointer(self.0, offsets().task_signal);
        read::typed::<u32>(signal, offsets().signal_live, 0) == 0
    }

    /// The run queue it stands in.
    #[inline(always)]
    fn run_queue(self) -> Typed {
        read::typed_pointer(read::typed_pointer(self.0, offsets().task_se_cfs_rq), offsets().cfs_rq_rq)
    }

    /// When it got the CPU that it has, by the run queue's clock.
    #[inline(always)]
    pub(super) fn arrival_ns(self) -> u64 {
        read::typed(self.0, offsets().task_sched_info_last_arrival, 0)
    }

    /// What the hypervisor has taken of the CPU that it has, as far as that is accounted.
    #[inline(always)]
    pub(super) fn steal_ns(self) -> u64 {
        read::typed(self.run_queue(), offsets().rq_prev_steal_time_rq, 0)
    }

    /// Since it got the CPU, for one that leaves: the kernel forgets that only after it has told.
    #[inline(always)]
    fn ran_ns(self) -> u64 {
        let arrived = self.arrival_ns();
        let now: u64 = read::typed(self.run_queue(), offsets().rq_clock, 0);
        if arrived == 0 || now < arrived { u64::MAX } else { now - arrived }
    }

    /// Its CPU time, and what the run queue it stands in kept out of it: that of this CPU, for one
    /// that leaves or gets it.
    #[inline(always)]
    fn account(self) -> CpuAccount {
        let (at, queue) = (offsets(), self.run_queue());
        let CpuAccount { exec_ns, steal_ns, irq_ns } = CpuAccount::UNKNOWN;
        CpuAccount {
            exec_ns: read::typed(self.0, at.task_se_sum_exec_runtime, exec_ns),
            steal_ns: read::typed(queue, at.rq_prev_steal_time_rq, steal_ns),
            irq_ns: read::typed(queue, at.rq_prev_irq_time, irq_ns),
        }
    }

    #[inline(always)]
    fn throttling(self) -> Throttling {
        let mut group = read::typed_pointer(self.0, offsets().task_sched_task_group);
        let mut sum = Throttling::default();
        let mut level = 0;
        while level < MAX_GROUPS && !group.is_null() {
            sum.add(group);
            group = read::typed_pointer(group, offsets().task_group_parent);
            level += 1;
        }
        sum
    }
}

/// What bandwidth control has done to a thread's groups so far.
#[derive(Clone, Copy, Default)]
struct Throttling {
    ns: u64,
    count: u64,
}

impl Throttling {
    #[inline(always)]
    fn add(&mut self, group: Typed) {
        let at = offsets();
        let bandwidth = at.task_group_cfs_bandwidth;
        let time = bandwidth.saturating_add(at.cfs_bandwidth_throttled_time);
        let count = bandwidth.saturating_add(at.cfs_bandwidth_nr_throttled);
        self.ns += read::typed::<u64>(group, time, 0);
        self.count += u64::from(read::typed::<u32>(group, count, 0));
    }
}

/// `sched_switch` as the kernel passes it from 5.18 on, with the state of the thread that leaves.
/// <https://github.com/torvalds/linux/commit/fa2c3254d7cfff5f7a916ab928a562d1165f17bb>
#[inline(always)]
pub(crate) fn switch(ctx: &BtfTracePointContext) {
    if switched(ctx, |_| ctx.arg(3)) {
        storage::file_wait_begins(ctx);
    }
}

/// `sched_switch` before that: the state is read, and a wake-up may have changed it already.
#[inline(always)]
pub(crate) fn switch_old(ctx: &BtfTracePointContext) {
    switched(ctx, |prev| read::typed(prev.0, offsets().task_state, 0));
}

/// Whether the thread that leaves is watched. Of threads that nobody watches, it takes no more than
/// to see that: this runs at every switch of the host.
#[inline(always)]
fn switched(ctx: &BtfTracePointContext, state: impl FnOnce(Task) -> u32) -> bool {
    let (prev, next) = (Task(ctx.arg(1)), Task(ctx.arg(2)));
    let leaves = prev.is_watched();
    if leaves {
        let state = state(prev);
        if let Some(cpu) = cpu_state() {
            lock::slice_ends(cpu);
        }
        switch_out(ctx, prev, next, state);
        if state == 0 || is_preempted(ctx) {
            scope::waits_for(prev.tid(), read::cpu())
        } else {
            scope::waits_no_more(prev.tid())
        }
    } else if scope::is_awaited(read::cpu()) {
        ran(prev);
    }
    if next.is_watched() {
        switch_in(prev, next);
        scope::waits_no_more(next.tid());
    }
    leaves
}

/// Whether the thread that leaves was taken off the CPU inside the kernel.
#[inline(always)]
fn is_preempted(ctx: &BtfTracePointContext) -> bool {
    ctx.arg::<u64>(0) & 1 != 0
}

/// Tells who had the CPU, unless that was for moments, or too much has been told.
#[inline(always)]
fn ran(prev: Task) {
    let ran_ns = prev.ran_ns();
    if prev.tid() == 0 || ran_ns < RAN_LEAST_NS {
        return;
    }
    let time_ns = now();
    if !has_room(time_ns) {
        return;
    }
    tell_run(time_ns, prev, ran_ns);
}

/// Tells for how long a thread has had the CPU so far, by the run queue's clock, which can be behind.
#[inline(always)]
pub(super) fn has_run(current: Task, time_ns: u64) {
    let ran_ns = current.ran_ns();
    if current.tid() != 0 && ran_ns != u64::MAX {
        tell_run(time_ns, current, ran_ns);
    }
}

#[inline(always)]
fn tell_run(time_ns: u64, who: Task, ran_ns: u64) {
    emit_at(time_ns, EventKind::Ran, |body: &mut RanBody| {
        *body = RanBody { start_time_ns: who.start_time_ns(), ran_ns, comm: who.comm() };
    });
}

/// Whether another run may be told of this CPU.
#[inline(always)]
fn has_room(time_ns: u64) -> bool {
    let Some(state) = cpu_state() else { return false };
    let stretch = time_ns / RUNS_STRETCH_NS;
    let told = if state.runs_at.get() == stretch { state.runs.get() } else { 0 };
    state.runs_at.set(stretch);
    state.runs.set(told + 1);
    told < MOST_RUNS
}

#[inline(always)]
fn switch_out(ctx: &BtfTracePointContext, prev: Task, next: Task, state: u32) {
    let preempted = u32::from(is_preempted(ctx));
    let (throttling, account) = (prev.throttling(), prev.account());
    let at = now();
    emit_at(at, EventKind::SwitchOut, |body: &mut SwitchOutBody| {
        *body = SwitchOutBody {
            start_time_ns: prev.start_time_ns(),
            softirq_ns: softirq_ns(),
            throttled_ns: throttling.ns,
            throttled_count: throttling.count,
            state,
            preempted,
            next_tid: next.tid(),
            next_tgid: next.tgid(),
            comm: prev.comm(),
            next_comm: next.comm(),
            stack_len: 0,
            reserved: 0,
            stack: [zero(); STACK_DEPTH],
            account,
            ran_ns: prev.ran_ns(),
        };
        if SETTINGS.get().stacks != 0 && preempted == 0 && state != 0 {
            body.stack_len = kernel_stack(ctx, &mut body.stack);
        }
    });
    stack::leaves(prev.0, prev.tid(), at);
}

/// Kernel stack of the current thread; the number of frames.
#[inline(always)]
pub(super) fn kernel_stack(ctx: &BtfTracePointContext, to: &mut [u64; STACK_DEPTH]) -> u32 {
    // SAFETY: the helper writes at most the given size, and zeros behind what it found.
    let bytes = unsafe { bpf_get_stack(ctx.as_ptr(), to.as_mut_ptr().cast(), size_of_val(to) as u32, 0) };
    if bytes < 0 { 0 } else { bytes as u32 / size_of::<u64>() as u32 }
}

#[inline(always)]
fn switch_in(prev: Task, next: Task) {
    let (throttling, account) = (next.throttling(), next.account());
    let at = now();
    emit_at(at, EventKind::SwitchIn, |body: &mut SwitchInBody| {
        *body = SwitchInBody {
            start_time_ns: next.start_time_ns(),
            softirq_ns: softirq_ns(),
            throttled_ns: throttling.ns,
            throttled_count: throttling.count,
            tid: next.tid(),
            tgid: next.tgid(),
            comm: next.comm(),
            prev_comm: prev.comm(),
            account,
        };
    });
    stack::returns(next.tid(), at);
}

#[inline(always)]
fn softirq_ns() -> u64 {
    cpu_state().map_or(0, |state| state.softirq_ns.get())
}

/// `sched_waking`: runs on the waker's CPU, in its context.
#[inline(always)]
pub(crate) fn waking(ctx: &BtfTracePointContext) {
    let task = Task(ctx.arg(0));
    if !task.is_watched() {
        return;
    }
    let cpu: u32 = read::typed(task.0, offsets().task_cpu, 0);
    scope::waits_for(task.tid(), cpu);
    let waker = Task(read::current_task());
    let interrupt = read::interrupt(waker.0 as u64);
    emit_in(interrupt, EventKind::Waking, |body: &mut WakingBody| {
        *body = WakingBody {
            tid: task.tid(),
            tgid: task.tgid(),
            cpu,
            waker_watched: u32::from(scope::is_watched(waker.tgid())),
            waker_comm: waker.comm(),
            comm: task.comm(),
        };
    });
    block::wakes(task.tid(), task.tgid(), waker.0, interrupt);
}

/// `sched_process_fork`: a thread or child of a watched process is watched.
#[inline(always)]
pub(crate) fn fork(ctx: &BtfTracePointContext) {
    let (parent, child) = (Task(ctx.arg(0)), Task(ctx.arg(1)));
    if !scope::is_watched(parent.tgid()) {
        return;
    }
    scope::watch(child.tgid());
    emit(EventKind::TaskFork, |body: &mut TaskForkBody| {
        *body = TaskForkBody { start_time_ns: child.start_time_ns(), tid: child.tid(), tgid: child.tgid() };
    });
}

/// `sched_process_exit`: with the last thread the process is forgotten, so that the next bearer
/// of its number is not watched.
#[inline(always)]
pub(crate) fn exit(ctx: &BtfTracePointContext) {
    let task = Task(ctx.arg(0));
    let tgid = task.tgid();
    if !scope::is_watched(tgid) {
        return;
    }
    if task.is_last_of_process() {
        scope::unwatch(tgid);
    }
    emit(EventKind::TaskExit, |body: &mut TaskExitBody| {
        *body = TaskExitBody { start_time_ns: task.start_time_ns() };
    });
}
