//! Block requests whose end ends a watched thread's wait: when they were queued, and issued.
//!
//! A request is followed by its first `bio`, if a watched thread queued that, or a throttle held it
//! back. Nothing is told of one that wakes no watched thread.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, programs::BtfTracePointContext};
use probe_wire::{BlockRequestBody, EventKind, Interrupt, Settings};

use crate::{
    emit::{emit, now},
    maps::{BIOS, Bio, SETTINGS, cpu_state},
    read::{self, Typed, offsets},
    scope,
};

/// Bit of a task's `flags`: it works off a workqueue (`PF_WQ_WORKER`).
const WORKER: u32 = 0x20;
/// A wake-up that comes later is not one of the completion's.
const COMPLETES_WITHIN_NS: u64 = 100_000;

/// `block_bio_queue`: a `bio` has passed the throttle.
#[inline(always)]
pub(crate) fn queued(ctx: &BtfTracePointContext) {
    let bio: Typed = ctx.arg(0);
    let task = read::current_task();
    let throttled = is_throttle(task);
    if !throttled && !scope::is_watched(read::typed(task, offsets().task_tgid, 0)) {
        forget(bio as u64);
        return;
    }
    let device = read::typed_pointer(bio, offsets().bio_bi_bdev);
    let device = read::typed(device, offsets().block_device_bd_dev, 0);
    // SAFETY: the helper takes no argument.
    let by = unsafe { bpf_get_current_pid_tgid() };
    let known = Bio { queued_ns: now(), issued_ns: 0, device, throttled: throttled.into(), by };
    let _ = BIOS.insert(bio as u64, known, 0);
}

/// Whether a kernel thread is about to queue what a throttle held back.
#[inline(always)]
fn is_throttle(task: Typed) -> bool {
    let Settings { throttle_work, .. } = SETTINGS.get();
    if *throttle_work == 0 || read::typed::<u32>(task, offsets().task_flags, 0) & WORKER == 0 {
        return false;
    }
    let thread: u64 = read::untyped(task as u64, offsets().task_worker_private);
    let worker: u64 = read::untyped(thread, offsets().kthread_data);
    read::untyped::<u64>(worker, offsets().worker_current_func) == *throttle_work
}

/// A `bio` at the address of one whose end was not seen.
#[inline(always)]
fn forget(bio: u64) {
    if BIOS.get_ptr(bio).is_some() {
        let _ = BIOS.remove(bio);
    }
}

/// `block_rq_issue`: a request is handed to the driver, perhaps not for the first time.
#[inline(always)]
pub(crate) fn issued(ctx: &BtfTracePointContext) {
    let Some(bio) = BIOS.get_ptr_mut(first_bio(ctx.arg(0))) else { return };
    // SAFETY: the entry is not freed while the program runs; if the LRU reuses it meanwhile, a time
    // of now is written into another's, whose request is issued later than it is.
    unsafe {
        if (*bio).issued_ns == 0 {
            (*bio).issued_ns = now();
        }
    }
}

#[inline(always)]
fn first_bio(request: Typed) -> u64 {
    read::typed_pointer(request, offsets().request_bio) as u64
}

/// `block_rq_complete`: the driver is done with a request, and whoever waits is woken next.
#[inline(always)]
pub(crate) fn completed(ctx: &BtfTracePointContext) {
    let Some(state) = cpu_state() else { return };
    let slot = &state.completed;
    slot.done_ns.set(0);
    let request: Typed = ctx.arg(0);
    let address = first_bio(request);
    let Some(bio) = BIOS.get_ptr(address) else { return };
    // SAFETY: as in `issued`.
    let bio = unsafe { *bio };
    let _ = BIOS.remove(address);
    let task = read::current_task();
    slot.queued_ns.set(bio.queued_ns);
    slot.granted_ns.set(read::typed(request, offsets().request_start_time_ns, 0));
    slot.issued_ns.set(bio.issued_ns);
    slot.by.set(bio.by);
    slot.device.set(bio.device);
    slot.throttled.set(bio.throttled);
    slot.tid.set(read::typed(task, offsets().task_pid, 0));
    slot.softirq.set(state.softirq.get());
    slot.interrupt.set(read::interrupt(task as u64) as u32);
    slot.done_ns.set(now());
}

/// A watched thread is woken: if by the completion of a request, which it was. `waker` and
/// `interrupt` tell who wakes it.
#[inline(always)]
pub(crate) fn wakes(tid: u32, tgid: u32, waker: Typed, interrupt: Interrupt) {
    let Some(state) = cpu_state() else { return };
    let slot = &state.completed;
    let done_ns = slot.done_ns.get();
    // An interrupt that completes another request, and that other's waker, are not this one's.
    if done_ns == 0
        || interrupt == Interrupt::Unknown
        || slot.interrupt.get() != interrupt as u32
        || slot.softirq.get() != state.softirq.get()
        || slot.tid.get() != read::typed(waker, offsets().task_pid, 0)
        || now().saturating_sub(done_ns) > COMPLETES_WITHIN_NS
    {
        return;
    }
    emit(EventKind::BlockRequest, |body: &mut BlockRequestBody| {
        *body = BlockRequestBody {
            queued_ns: slot.queued_ns.get(),
            granted_ns: slot.granted_ns.get(),
            issued_ns: slot.issued_ns.get(),
            done_ns,
            tid,
            tgid,
            by_tid: slot.by.get() as u32,
            by_tgid: (slot.by.get() >> 32) as u32,
            device: slot.device.get(),
            throttled: slot.throttled.get(),
        };
    });
}
