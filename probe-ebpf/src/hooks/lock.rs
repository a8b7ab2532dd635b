//! Kernel locks that watched threads wait for on the CPU.
//!
//! These programs run while any lock of the kernel may be held, so they take none: what they
//! remember lies in the CPU's own slot, and is true of one slice of one thread.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, programs::BtfTracePointContext};
use probe_wire::{
    EventKind, Interrupt, LOCK_MUTEX, LOCK_PERCPU, LOCK_READ, LOCK_RT, LOCK_SPIN, LOCK_WRITE, LockSpinBody,
    SPIN_LEAST_NS, SPIN_TOLD_NS,
};

use crate::{
    emit::{emit_at, now},
    maps::{CpuState, LockWait, Spinning, cpu_state},
    read::{self, offsets},
    scope,
};

/// Low bits of an owner, which are flags: three of a mutex, of a semaphore the lowest tells that
/// readers have it.
const OWNER_FLAGS: u64 = 7;
const READERS: u64 = 1;

/// `contention_begin`: a lock is not free. The kernel says it again when a wait for the same lock
/// goes on in another way.
#[inline(always)]
pub(crate) fn begin(ctx: &BtfTracePointContext) {
    let Some((state, slice)) = thread() else { return };
    let (lock, flags) = (ctx.arg::<u64>(0), ctx.arg::<u32>(1));
    let before = state.spinning.wait.get();
    let goes_on = before.began_ns != 0 && state.spinning.is_of(slice);
    // To queue for one that one can sleep for, another is taken.
    if goes_on && before.lock != lock && is_slept_for(before.flags) {
        return;
    }
    let began_ns = now();
    if !state.spinning.is_of(slice) {
        state.spinning.start(slice);
    } else if goes_on && before.lock == lock {
        add(state, &before, began_ns);
    }
    state.spinning.wait.set(LockWait { began_ns, lock, flags, reserved: 0 });
    note_owner(&state.spinning, lock, flags);
}

/// `contention_end`: it has the lock, or gave up.
#[inline(always)]
pub(crate) fn end(ctx: &BtfTracePointContext) {
    let Some((state, slice)) = thread() else { return };
    let wait = state.spinning.wait.get();
    if wait.began_ns == 0 || wait.lock != ctx.arg::<u64>(0) {
        return;
    }
    if state.spinning.is_of(slice) {
        add(state, &wait, now());
    }
    state.spinning.wait.set(LockWait::none());
}

/// A watched thread leaves the CPU: what has not been told yet is.
#[inline(always)]
pub(crate) fn slice_ends(state: &CpuState) {
    let spinning = &state.spinning;
    let wait = spinning.wait.get();
    let is_open = wait.began_ns != 0;
    if (is_open || spinning.sum_ns.get() != 0) && spinning.is_of(slice(this_thread())) {
        let now_ns = now();
        // Who spins for a mutex gives its CPU away when another needs that, before the kernel tells that
        // it will sleep for the mutex from then on.
        // <https://github.com/torvalds/linux/blob/v6.12/kernel/locking/mutex.c>
        if is_open {
            spinning.add(&wait, now_ns.saturating_sub(wait.began_ns));
        }
        if spinning.sum_ns.get() >= SPIN_LEAST_NS {
            tell(spinning, now_ns);
        }
    }
    spinning.forget();
}

/// What a wait has come to that lasts, seen from an interrupt on top of it.
#[inline(always)]
pub(crate) fn so_far(state: &CpuState) {
    let spinning = &state.spinning;
    let wait = spinning.wait.get();
    if wait.began_ns == 0 || !spinning.is_of(slice(this_thread())) {
        return;
    }
    let now_ns = now();
    add(state, &wait, now_ns);
    spinning.wait.set(LockWait { began_ns: now_ns, ..wait });
}

/// The watched thread that runs, and not an interrupt on top of it.
#[inline(always)]
fn thread() -> Option<(&'static CpuState, Slice)> {
    let thread = this_thread();
    if !scope::is_watched((thread >> 32) as u32) {
        return None;
    }
    let state = cpu_state()?;
    let interrupt = read::interrupt(read::current_task() as u64);
    let on_top = state.softirq.get() != 0 || matches!(interrupt, Interrupt::Hard | Interrupt::Nmi);
    (!on_top).then(|| (state, slice(thread)))
}

/// A thread, and when it got its CPU.
type Slice = (u64, u64);

#[inline(always)]
fn slice(thread: u64) -> Slice {
    (thread, read::typed(read::current_task(), offsets().task_sched_info_last_arrival, 0))
}

#[inline(always)]
fn this_thread() -> u64 {
    // SAFETY: the helper takes no argument.
    unsafe { bpf_get_current_pid_tgid() }
}

#[inline(always)]
const fn is_slept_for(flags: u32) -> bool {
    flags & (LOCK_MUTEX | LOCK_PERCPU | LOCK_RT) != 0 || flags & LOCK_SPIN == 0
}

/// Adds a wait that ended. A long one is a record of its own.
#[inline(always)]
fn add(state: &CpuState, wait: &LockWait, end_ns: u64) {
    let spinning = &state.spinning;
    let took_ns = end_ns.saturating_sub(wait.began_ns);
    if took_ns >= SPIN_TOLD_NS && spinning.sum_ns.get() >= SPIN_LEAST_NS {
        tell(spinning, end_ns);
    }
    spinning.add(wait, took_ns);
    if spinning.sum_ns.get() >= SPIN_TOLD_NS {
        tell(spinning, end_ns);
    }
}

/// Who has the lock, where it tells: one that is spun for alone does not.
#[inline(always)]
fn note_owner(spinning: &Spinning, lock: u64, flags: u32) {
    spinning.owner.set(0);
    let at = offsets();
    let owner = if flags & LOCK_MUTEX != 0 {
        read::untyped::<u64>(lock, at.mutex_owner)
    } else if flags == LOCK_READ || flags == LOCK_WRITE {
        let owner: u64 = read::untyped(lock, at.rw_semaphore_owner);
        if owner & READERS == 0 { owner } else { 0 }
    } else {
        0
    } & !OWNER_FLAGS;
    if owner != 0 {
        let (tgid, tid): (u32, u32) = (read::untyped(owner, at.task_tgid), read::untyped(owner, at.task_pid));
        spinning.owner.set(u64::from(tgid) << 32 | u64::from(tid));
        spinning.owner_name[0].set(read::untyped(owner, at.task_comm));
        spinning.owner_name[1].set(read::untyped(owner, at.task_comm.saturating_add(8)));
    }
}

#[inline(always)]
fn tell(spinning: &Spinning, end_ns: u64) {
    let longest = spinning.longest.get();
    let owner = spinning.longest_owner.get();
    let name = [spinning.longest_owner_name[0].get(), spinning.longest_owner_name[1].get()];
    emit_at(end_ns, EventKind::LockSpin, |body: &mut LockSpinBody| {
        *body = LockSpinBody {
            since_ns: spinning.since_ns.get(),
            spun_ns: spinning.sum_ns.get(),
            lock: longest.lock,
            flags: longest.flags,
            waits: spinning.waits.get(),
            owner_tid: owner as u32,
            owner_tgid: (owner >> 32) as u32,
            owner_comm: zerocopy::transmute!(name),
        };
    });
    spinning.clear();
}
