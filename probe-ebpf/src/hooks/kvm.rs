//! Exits of guests on watched vCPU threads: for how long the host handles them.
//!
//! A guest exits up to some hundred thousand times a second. What is not long is summed up in a slot
//! of its thread.

use core::cell::Cell;

use aya_ebpf::{EbpfContext, helpers::bpf_get_current_pid_tgid, programs::TracePointContext};
use probe_wire::{EXIT_TOLD_NS, EXITS_TOLD_NS, EventKind, GuestExitsBody, HALTS};

use crate::{
    emit::{emit_at, now, zero},
    maps::{GUEST_EXITS, GuestExits},
    read::{self, offsets},
    scope,
};

/// `kvm_exit` as its format tells it; the loader has looked. On arm64 the third is the program counter.
/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/kvm/trace.h> (`TRACE_EVENT_KVM_EXIT`)
#[repr(C)]
struct Exit {
    common: u64,
    reason: u32,
    reserved: u32,
    rip: u64,
    processor: u32,
}

/// `kvm_exit`: the guest has left its CPU to the host.
#[inline(always)]
pub(crate) fn exit(ctx: &TracePointContext) {
    let thread = this_thread();
    if !scope::is_watched((thread >> 32) as u32) {
        return;
    }
    // SAFETY: the kernel hands out the record, which the loader found to begin so.
    let exit = unsafe { &*ctx.as_ptr().cast::<Exit>() };
    let (reason, processor, slice) = (exit.reason, exit.processor, slice());
    let exits = match GUEST_EXITS.get_ptr(thread) {
        // SAFETY: only this thread's programs use the slot, and they do not interrupt each other.
        Some(known) => unsafe { &*known },
        None => {
            let nothing = Cell::new(zero());
            let fresh = GuestExits {
                exit_ns: nothing.clone(),
                slice: nothing.clone(),
                since_ns: nothing.clone(),
                sum_ns: nothing.clone(),
                longest_ns: nothing.clone(),
                count: nothing.clone(),
                longest: nothing.clone(),
                now: nothing,
            };
            let _ = GUEST_EXITS.insert(thread, fresh, 0);
            return;
        }
    };
    exits.now.set(told_as(processor, reason));
    exits.slice.set(slice);
    exits.exit_ns.set(now());
}

/// `kvm_entry`: the host gives the guest its CPU again.
#[inline(always)]
pub(crate) fn entry(_: &TracePointContext) {
    let thread = this_thread();
    if !scope::is_watched((thread >> 32) as u32) {
        return;
    }
    let Some(known) = GUEST_EXITS.get_ptr(thread) else { return };
    // SAFETY: as in `exit`.
    let exits = unsafe { &*known };
    let exit_ns = exits.exit_ns.replace(0);
    if exit_ns == 0 || is_halt(exits.now.get()) || exits.slice.get() != slice() {
        return;
    }
    let at = now();
    let took_ns = at.saturating_sub(exit_ns);
    add(exits, exit_ns, took_ns);
    if took_ns >= EXIT_TOLD_NS || exits.sum_ns.get() >= EXITS_TOLD_NS {
        tell(exits, at);
    }
}

#[inline(always)]
fn add(exits: &GuestExits, exit_ns: u64, took_ns: u64) {
    if exits.count.get() == 0 {
        exits.since_ns.set(exit_ns);
    }
    exits.count.set(exits.count.get() + 1);
    exits.sum_ns.set(exits.sum_ns.get() + took_ns);
    if took_ns >= exits.longest_ns.get() {
        exits.longest_ns.set(took_ns);
        exits.longest.set(exits.now.get());
    }
}

#[inline(always)]
fn tell(exits: &GuestExits, at: u64) {
    let longest = exits.longest.get();
    emit_at(at, EventKind::GuestExits, |body: &mut GuestExitsBody| {
        *body = GuestExitsBody {
            since_ns: exits.since_ns.get(),
            handled_ns: exits.sum_ns.get(),
            longest_ns: exits.longest_ns.get(),
            exits: exits.count.get() as u32,
            reason: longest as u32,
            processor: (longest >> 32) as u32,
            reserved: zero() as u32,
        };
    });
    // Plain zeros in a row would become a byte-wise loop.
    exits.count.set(zero());
    exits.sum_ns.set(zero());
    exits.longest_ns.set(zero());
}

#[inline(always)]
const fn told_as(processor: u32, reason: u32) -> u64 {
    (processor as u64) << 32 | reason as u64
}

const fn halt(index: usize) -> u64 {
    let (processor, reason) = HALTS[index];
    told_as(processor, reason)
}

#[inline(always)]
fn is_halt(exit: u64) -> bool {
    let [intel, amd, amd_idle] = const { [halt(0), halt(1), halt(2)] };
    exit == intel || exit == amd || exit == amd_idle
}

#[inline(always)]
fn this_thread() -> u64 {
    // SAFETY: the helper takes no argument.
    unsafe { bpf_get_current_pid_tgid() }
}

/// When the thread got its CPU.
#[inline(always)]
fn slice() -> u64 {
    read::typed(read::current_task(), offsets().task_sched_info_last_arrival, 0)
}
