//! Stacks of watched threads in user code: samples of those on a CPU, and of each that was off it
//! for long. Only copies; userspace unwinds.
//!
//! The stack of a thread that leaves the CPU is copied at once, because its memory can be read
//! only now, and told when the thread comes back and the wait was long.

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_smp_processor_id, bpf_get_stack, bpf_ringbuf_output},
    programs::PerfEventContext,
};
use probe_wire::{
    DumpBody, DumpKind, DumpRow, EventHeader, LONG_WAIT, STACK_BYTES, STACK_BYTES_MOST, WAITING, WAITING_DEEP,
    WAITS_STRETCH_NS,
};

use crate::{
    emit::{NO_WAKEUP, is_over, now},
    maps::{DEEP, DEEP_STACKS, DUMPS, Dump, KEPT_STACKS, SAMPLES, SETTINGS, STACK_RINGS, Waiter, cpu_state},
    read::{self, Typed, offsets},
    scope,
};

/// `PF_KTHREAD`: a thread of the kernel's, which may borrow the memory of a process.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// `BPF_F_USER_STACK`.
const USER_STACK: u64 = 1 << 8;
/// Bytes of a dump before the memory.
const HEAD: u32 = (size_of::<EventHeader>() + size_of::<DumpBody>()) as u32;

/// A watched thread leaves the CPU at `at`; it is still the current one.
#[inline(always)]
pub(crate) fn leaves(thread: Typed, tid: u32, at: u64) {
    if SETTINGS.get().user_stacks == 0 || !has_memory(thread) {
        return;
    }
    let wanted = wanted_bytes(tid);
    if wanted > STACK_BYTES {
        keep(DEEP_STACKS.get_ptr_mut(tid % WAITING_DEEP), thread, (tid, wanted), at);
    } else {
        keep(KEPT_STACKS.get_ptr_mut(tid % WAITING), thread, (tid, wanted), at);
    }
}

/// A watched thread gets the CPU at `at`; another is still the current one.
#[inline(always)]
pub(crate) fn returns(tid: u32, at: u64) {
    if SETTINGS.get().user_stacks == 0 {
        return;
    }
    tell::<{ STACK_BYTES as usize }, STACK_BYTES>(KEPT_STACKS.get_ptr_mut(tid % WAITING), tid, at);
    tell::<{ STACK_BYTES_MOST as usize }, STACK_BYTES_MOST>(DEEP_STACKS.get_ptr_mut(tid % WAITING_DEEP), tid, at);
}

/// The clock of a CPU: what its thread does. In softirq that is not the thread's doing.
#[inline(always)]
pub(crate) fn sample(ctx: &PerfEventContext) {
    let thread = read::current_task();
    let tgid = read::typed(thread, offsets().task_tgid, 0);
    let in_softirq = cpu_state().is_some_and(|state| state.softirq.get() != 0);
    if !scope::is_watched(tgid) || in_softirq || !has_memory(thread) || is_over() {
        return;
    }
    let tid = read::typed(thread, offsets().task_pid, 0);
    take(ctx, (tgid, tid));
}

/// Whether a thread runs in memory of its own: none of the kernel's, and none that is ending.
#[inline(always)]
fn has_memory(thread: Typed) -> bool {
    let flags: u32 = read::typed(thread, offsets().task_flags, KERNEL_THREAD);
    flags & KERNEL_THREAD == 0 && !read::typed_pointer(thread, offsets().task_mm).is_null()
}

/// Bytes of stack to copy of a thread.
#[inline(always)]
fn wanted_bytes(tid: u32) -> u32 {
    DEEP.get(tid % WAITING).map_or(STACK_BYTES, |bytes| (*bytes).max(STACK_BYTES))
}

#[inline(always)]
fn row(kind: DumpKind) -> Option<&'static mut DumpRow> {
    // SAFETY: the programs that count run with interrupts off, on a slot of their CPU.
    DUMPS.get_ptr_mut(kind.index()).map(|row| unsafe { &mut *row })
}

#[inline(always)]
fn keep<const BYTES: usize>(place: Option<*mut Waiter<BYTES>>, thread: Typed, (tid, wanted): (u32, u32), at: u64) {
    let Some(place) = place else { return };
    let (dump, displaces) = Waiter::occupy(place, tid);
    if displaces && let Some(row) = row(DumpKind::Wait) {
        row.displaced += 1;
    }
    let Some(dump) = dump else { return };
    let tgid = read::typed(thread, offsets().task_tgid, 0);
    dump.header.tgid = tgid;
    dump.header.tid = tid;
    dump.body.since_ns = at;
    dump.body.period_ns = 0;
    dump.body.kernel_len = 0;
    dump.body.chain_len = 0;
    dump.body.reserved = 0;
    registers_and_memory(dump, wanted);
    Waiter::release(place);
}

#[inline(always)]
fn registers_and_memory<const BYTES: usize>(dump: &mut Dump<BYTES>, wanted: u32) {
    let (registers, at) = (read::user_registers(), offsets());
    let sp = read::typed(registers, at.pt_regs_sp, 0);
    dump.body.ip = read::typed(registers, at.pt_regs_ip, 0);
    dump.body.sp = sp;
    dump.body.bp = read::typed(registers, at.pt_regs_bp, 0);
    dump.body.copied = read::user_memory(sp, &mut dump.memory, wanted);
}

#[inline(always)]
fn tell<const BYTES: usize, const MOST: u32>(place: Option<*mut Waiter<BYTES>>, tid: u32, at: u64) {
    let Some(place) = place else { return };
    let Some(dump) = Waiter::vacate(place, tid) else { return };
    let waited = at.saturating_sub(dump.body.since_ns);
    if waited >= SETTINGS.get().wait_min_ns
        && !is_over()
        && let Some(row) = row(DumpKind::Wait)
    {
        row.due += 1;
        if !affords(row, waited, at) {
            row.spared += 1;
        } else if !output::<BYTES, MOST>(dump, DumpKind::Wait, at) {
            row.lost += 1;
        }
    }
    Waiter::release(place);
}

/// Whether the budget of this stretch of time has room for a wait.
#[inline(always)]
fn affords(row: &mut DumpRow, waited: u64, at: u64) -> bool {
    let (stretch, settings) = (at / WAITS_STRETCH_NS, SETTINGS.get());
    if row.stretch != stretch {
        row.stretch = stretch;
        row.spent = 0;
    }
    let is_long = waited / LONG_WAIT >= settings.wait_min_ns;
    let most = if is_long { settings.waits_per_stretch } else { settings.waits_per_stretch / 2 };
    let affords = row.spent < most;
    row.spent += u64::from(affords);
    affords
}

/// Puts a dump into the ring, as far as it goes; false when there was no room.
#[inline(always)]
fn output<const BYTES: usize, const MOST: u32>(dump: &mut Dump<BYTES>, kind: DumpKind, at: u64) -> bool {
    // SAFETY: the helper takes no argument.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let Some(ring) = STACK_RINGS.get(cpu) else { return false };
    let copied = read::within::<MOST>(dump.body.copied);
    dump.header.time_ns = at;
    dump.header.cpu = cpu;
    dump.header.kind = kind as u16;
    dump.header.body_len = (size_of::<DumpBody>() as u32 + copied) as u16;
    let from = core::ptr::from_mut(dump).cast();
    let ring = core::ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: the length is within the dump, which is map memory.
    unsafe { bpf_ringbuf_output(ring, from, u64::from(HEAD + copied), NO_WAKEUP) == 0 }
}

#[inline(always)]
fn take(ctx: &PerfEventContext, (tgid, tid): (u32, u32)) {
    // SAFETY: the helper takes no argument.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let (Some(row), Some(dump)) = (row(DumpKind::Sample), SAMPLES.get_ptr_mut(cpu)) else { return };
    // SAFETY: the slot lives as long as the program, which runs with interrupts off on this CPU.
    let dump = unsafe { &mut *dump };
    row.due += 1;
    dump.header.tgid = tgid;
    dump.header.tid = tid;
    dump.body.since_ns = 0;
    // SAFETY: the context is this run's.
    dump.body.period_ns = unsafe { (*ctx.ctx).sample_period };
    dump.body.kernel_len = frames(ctx, &mut dump.body.kernel, 0);
    dump.body.chain_len = frames(ctx, &mut dump.body.chain, USER_STACK);
    dump.body.reserved = 0;
    registers_and_memory(dump, wanted_bytes(tid));
    if !output::<{ STACK_BYTES_MOST as usize }, STACK_BYTES_MOST>(dump, DumpKind::Sample, now()) {
        row.lost += 1;
    }
}

/// The current thread's frames, in the kernel or in user mode; how many.
#[inline(always)]
fn frames<const DEPTH: usize>(ctx: &PerfEventContext, to: &mut [u64; DEPTH], flags: u64) -> u32 {
    // SAFETY: the helper writes at most the given size, and zeros behind what it found.
    let bytes = unsafe { bpf_get_stack(ctx.as_ptr(), to.as_mut_ptr().cast(), size_of_val(to) as u32, flags) };
    if bytes < 0 { 0 } else { bytes as u32 / size_of::<u64>() as u32 }
}
