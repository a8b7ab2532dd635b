//! Softirq service: what a CPU is in, and for how long it was.

use aya_ebpf::programs::BtfTracePointContext;
use probe_wire::{EventKind, SoftirqBody};

use crate::{
    emit::{emit_at, now},
    maps::{SETTINGS, cpu_state},
};

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
        report(ctx.arg(0), end_ns, duration_ns);
    }
    state.softirq.set(0);
}

#[inline(always)]
fn report(vector: u32, end_ns: u64, duration_ns: u64) {
    if duration_ns >= SETTINGS.get().softirq_min_ns {
        emit_at(end_ns, EventKind::Softirq, |body: &mut SoftirqBody| {
            *body = SoftirqBody { duration_ns, vector, reserved: 0 };
        });
    }
}
