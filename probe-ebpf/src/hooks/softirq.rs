//! Softirq service: what a CPU is in, and for how long it was.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, programs::BtfTracePointContext};
use probe_wire::{EventKind, SOFTIRQ_VECTORS, SoftirqBody};

use super::lock;
use crate::{
    emit::{emit_at, now},
    maps::{CpuState, SETTINGS, cpu_state},
    read, scope,
};

/// How often it is looked whether a watched thread has this CPU: the tick of a CPU that is not idle
/// ends with a softirq, so a thread that neither leaves nor calls the kernel is seen all the same.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// Short softirqs that do not come to anything in this time are forgotten: less than 2 % of it.
const LONGEST_WINDOW_NS: u64 = 64_000_000;

/// `softirq_entry`.
#[inline(always)]
pub(crate) fn entry(ctx: &BtfTracePointContext) {
    if let Some(state) = cpu_state() {
        state.softirq.set(ctx.arg::<u32>(0) + 1);
        state.softirq_start_ns.set(now());
    }
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
    // SAFETY: the helper takes no argument.
    let tgid = (unsafe { bpf_get_current_pid_tgid() } >> 32) as u32;
    scope::is_watched(tgid)
}

#[inline(always)]
fn tell(vector: u32, end_ns: u64, duration_ns: u64, window_ns: u32) {
    emit_at(end_ns, EventKind::Softirq, |body: &mut SoftirqBody| {
        *body = SoftirqBody { duration_ns, vector, window_ns };
    });
}
