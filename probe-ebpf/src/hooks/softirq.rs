//! Softirq service: what a CPU is in, and for how long it was.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, programs::BtfTracePointContext};
use probe_wire::{
    EventKind, NET_RX, SOFTIRQ_VECTORS, STACK_DEPTH, SoftirqBody, SoftirqWaitBody, WAIT_LEFT_OVER, WAIT_SAME_SLICE,
};

use super::{
    lock,
    sched::{self, Task},
};
use crate::{
    emit::{emit_at, now, zero},
    maps::{CpuState, SETTINGS, cpu_state},
    read, scope,
};

/// How often it is looked whether a watched thread has this CPU: the tick of a CPU that is not idle
/// ends with a softirq, so a thread that neither leaves nor calls the kernel is seen all the same.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// Short softirqs that do not come to anything in this time are forgotten: less than 2 % of it.
const LONGEST_WINDOW_NS: u64 = 64_000_000;

/// `softirq_raise`: received packets are there, and a softirq is to take them in. Raised again before
/// it has begun, it has waited since the first time.
#[inline(always)]
pub(crate) fn raise(ctx: &BtfTracePointContext) {
    if ctx.arg::<u32>(0) != NET_RX {
        return;
    }
    let Some(state) = cpu_state() else { return };
    let raised = &state.raised;
    if raised.at_ns.get() != 0 {
        return;
    }
    let current = Task::current();
    raised.thread.set(this_thread());
    raised.arrival.set(current.arrival_ns());
    raised.steal_ns.set(current.steal_ns());
    raised.in_softirq.set(u64::from(state.softirq.get() != 0));
    raised.at_ns.set(now());
}

/// `softirq_entry`.
#[inline(always)]
pub(crate) fn entry(ctx: &BtfTracePointContext) {
    let Some(state) = cpu_state() else { return };
    let (vector, at_ns) = (ctx.arg::<u32>(0), now());
    state.softirq.set(vector + 1);
    state.softirq_start_ns.set(at_ns);
    if vector != NET_RX {
        return;
    }
    let raised_ns = state.raised.at_ns.replace(0);
    if raised_ns != 0 && at_ns.saturating_sub(raised_ns) >= SETTINGS.get().softirq_min_ns {
        waited(ctx, state, raised_ns, at_ns);
    }
}

/// Tells how long received packets have waited for a softirq, and on top of what it runs.
#[inline(always)]
fn waited(ctx: &BtfTracePointContext, state: &CpuState, raised_ns: u64, at_ns: u64) {
    let (raised, current) = (&state.raised, Task::current());
    let left_over = if raised.in_softirq.get() != 0 { WAIT_LEFT_OVER } else { 0 };
    let same = raised.thread.get() == this_thread() && raised.arrival.get() == current.arrival_ns();
    let steal_ns = current.steal_ns().saturating_sub(raised.steal_ns.get());
    if !same {
        sched::has_run(current, at_ns);
    }
    emit_at(at_ns, EventKind::SoftirqWait, |body: &mut SoftirqWaitBody| {
        *body = SoftirqWaitBody {
            raised_ns,
            start_time_ns: current.start_time_ns(),
            steal_ns,
            flags: left_over | if same { WAIT_SAME_SLICE } else { 0 },
            stack_len: 0,
            comm: current.comm(),
            stack: [zero(); STACK_DEPTH],
        };
        if SETTINGS.get().stacks != 0 {
            body.stack_len = sched::kernel_stack(ctx, &mut body.stack);
        }
    });
}

/// `softirq_exit`. One whose begin was not seen has no length and is not counted.
#[inline(always)]
pub(crate) fn exit(ctx: &BtfTracePointContext) {
    let Some(state) = cpu_state() else { return };
    let start_ns = state.softirq_start_ns.replace(0);
    if start_ns != 0 {
        let end_ns = now();
        let duration_ns = end_ns.saturating_sub(start_ns);
        state.softirq_ns.set(state.softirq_ns.get() + duration_ns);
        report(state, ctx.arg(0), start_ns, end_ns);
    }
    state.softirq.set(0);
}

/// A long run by itself, short ones once they have come to as much. So the time is known while a
/// thread still holds the CPU, and under load there is at most one record for each such amount.
#[inline(always)]
fn report(state: &CpuState, vector: u32, start_ns: u64, end_ns: u64) {
    let duration_ns = end_ns.saturating_sub(start_ns);
    let enough_ns = SETTINGS.get().softirq_min_ns;
    if duration_ns >= enough_ns {
        tell(vector, end_ns, duration_ns, 0);
        return;
    }
    // Vectors are fewer, as the verifier does not know.
    let index = read::within::<{ SOFTIRQ_VECTORS as u32 }>(vector + 1) - 1;
    // SAFETY: the index is below the length.
    let short = unsafe { state.short_softirqs.get_unchecked(index as usize) };
    if start_ns.saturating_sub(short.since_ns.get()) > LONGEST_WINDOW_NS {
        short.since_ns.set(start_ns);
        short.sum_ns.set(0);
    }
    let sum_ns = short.sum_ns.get() + duration_ns;
    short.sum_ns.set(sum_ns);
    if sum_ns >= enough_ns {
        let window_ns = end_ns.saturating_sub(short.since_ns.replace(0));
        tell(vector, end_ns, sum_ns, window_ns as u32);
    } else if is_due(state, end_ns) {
        // Its time is in the sum.
        tell(vector, end_ns, 0, 0);
        lock::so_far(state);
    }
}

/// Whether a record is due that shows a watched thread on this CPU.
#[inline(always)]
fn is_due(state: &CpuState, now_ns: u64) -> bool {
    if now_ns.saturating_sub(state.looked_ns.get()) < LOOK_EVERY_NS {
        return false;
    }
    state.looked_ns.set(now_ns);
    scope::is_watched((this_thread() >> 32) as u32)
}

#[inline(always)]
fn this_thread() -> u64 {
    // SAFETY: the helper takes no argument.
    unsafe { bpf_get_current_pid_tgid() }
}

#[inline(always)]
fn tell(vector: u32, end_ns: u64, duration_ns: u64, window_ns: u32) {
    emit_at(end_ns, EventKind::Softirq, |body: &mut SoftirqBody| {
        *body = SoftirqBody { duration_ns, vector, window_ns };
    });
}
