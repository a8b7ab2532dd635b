//! The only door to the rings.
//!
//! Every attempt counts in [`LOSS`], and gets the CPU's next sequence number, before the ring is
//! asked for room. A gap in the numbers is therefore exactly the records that found no room.

use core::{arch::asm, ptr};

use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_ringbuf_query};
use probe_wire::{EventHeader, EventKind, Interrupt, LossRow};
use zerocopy::FromBytes;

use crate::atomic;
use crate::maps::{CpuState, LOSS, RINGS, Ring, SILENT, cpu_state};
use crate::read::{self, offsets};

/// `bpf_ringbuf_query`: bytes not yet consumed, and bytes of the ring.
const AVAILABLE: u64 = 0;
const SIZE: u64 = 1;
/// `bpf_ringbuf_submit`: leave the collector asleep, or wake it.
pub(crate) const NO_WAKEUP: u64 = 1;
const FORCE_WAKEUP: u64 = 2;
/// Bytes that the kernel puts before each record.
const RECORD_HEADER: u64 = 8;

/// A record as it lies in a ring.
#[repr(C)]
struct Record<B> {
    header: EventHeader,
    body: B,
}

/// The current time, nanoseconds of `CLOCK_MONOTONIC`.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: the helper takes no argument and every program type may call it.
    unsafe { bpf_ktime_get_ns() }
}

/// A zero that the compiler does not recognise. Of zeros side by side it would make a call of a
/// byte-wise `memset`, 12 ns, and no less for sixteen bytes.
#[inline(always)]
pub(crate) fn zero() -> u64 {
    let zero;
    // SAFETY: the instruction only sets the register.
    unsafe { asm!("{zero} = 0", zero = out(reg) zero, options(pure, nomem, nostack)) };
    zero
}

/// Emits a record of now; `fill` writes the whole body. Returns the record's sequence number.
#[inline(always)]
pub(crate) fn emit<B: FromBytes + 'static>(kind: EventKind, fill: impl FnOnce(&mut B)) -> u64 {
    emit_at(now(), kind, fill)
}

/// As [`emit`], for a record that tells what the program interrupted.
#[inline(always)]
pub(crate) fn emit_in<B: FromBytes + 'static>(interrupt: Interrupt, kind: EventKind, fill: impl FnOnce(&mut B)) -> u64 {
    attempt_and_write(now(), interrupt, kind, fill)
}

/// As [`emit`], for a record of the moment `time_ns`.
#[inline(always)]
pub(crate) fn emit_at<B: FromBytes + 'static>(time_ns: u64, kind: EventKind, fill: impl FnOnce(&mut B)) -> u64 {
    attempt_and_write(time_ns, Interrupt::Unknown, kind, fill)
}

#[inline(always)]
fn attempt_and_write<B: FromBytes + 'static>(
    time_ns: u64,
    interrupt: Interrupt,
    kind: EventKind,
    fill: impl FnOnce(&mut B),
) -> u64 {
    let Some(state) = cpu_state() else { return 0 };
    if is_over() {
        return 0;
    }
    let seq = attempt(state, kind);
    let mut header = header::<B>(state, time_ns, seq, kind);
    header.interrupt = interrupt as u32;
    if !write(header, fill) {
        count(kind, |row| &row.lost);
    }
    seq
}

/// Counts a record of `kind` that could not even be tried, so that its loss is known.
#[inline(always)]
pub(crate) fn lose(kind: EventKind) {
    if let Some(state) = cpu_state()
        && !is_over()
    {
        attempt(state, kind);
        count(kind, |row| &row.lost);
    }
}

/// Whether the run is over.
#[inline(always)]
pub(crate) fn is_over() -> bool {
    // SAFETY: the loader may write the word meanwhile, so it is read once, as it then is.
    SILENT.get_ptr(0).is_some_and(|silent| unsafe { silent.read_volatile() } != 0)
}

/// Counts an attempt and numbers it.
#[inline(always)]
fn attempt(state: &CpuState, kind: EventKind) -> u64 {
    count(kind, |row| &row.emitted);
    // SAFETY: the counter lies in this CPU's map slot.
    unsafe { atomic::fetch_add(state.seq.get(), 1) + 1 }
}

/// Adds one to a counter of this CPU's row for `kind`.
#[inline(always)]
fn count(kind: EventKind, counter: impl FnOnce(&LossRow) -> &u64) {
    if let Some(row) = LOSS.get(kind as u32) {
        let counter = ptr::from_ref(counter(row)).cast_mut();
        // SAFETY: the counter lies in this CPU's map slot and is only ever written atomically.
        unsafe { atomic::add(counter, 1) };
    }
}

#[inline(always)]
fn header<B>(state: &CpuState, time_ns: u64, seq: u64, kind: EventKind) -> EventHeader {
    const { assert!(size_of::<Record<B>>() == size_of::<EventHeader>() + size_of::<B>()) };
    let cpu = read::cpu();
    let task = read::current_task();
    EventHeader {
        time_ns,
        seq,
        kind: kind as u16,
        body_len: size_of::<B>() as u16,
        cpu,
        // Before 6.10 classifiers may not call the helper that gives both.
        tgid: read::typed(task, offsets().task_tgid, 0),
        tid: read::typed(task, offsets().task_pid, 0),
        softirq: state.softirq.get(),
        interrupt: Interrupt::Unknown as u32,
    }
}

/// Puts a record into the ring of its CPU; false when there was no room.
#[inline(always)]
fn write<B: FromBytes + 'static>(header: EventHeader, fill: impl FnOnce(&mut B)) -> bool {
    let Some(ring) = RINGS.get(header.cpu) else {
        return false;
    };
    let Some(mut entry) = ring.reserve_untyped::<Record<B>>(0) else {
        return false;
    };
    // SAFETY: the kernel hands out memory of this size, aligned to 8, that no one else writes
    // until submit, and any bytes are a value of header and body.
    let record = unsafe { &mut *entry.as_mut_ptr() };
    record.header = header;
    fill(&mut record.body);
    entry.submit(wakeup(ring, size_of::<Record<B>>() as u64));
    true
}

/// Wakes the collector with the one record that makes the ring half full. It drains on a timer
/// otherwise: a wake-up costs 10 µs, a record 60 ns.
#[inline(always)]
fn wakeup(ring: &Ring, len: u64) -> u64 {
    let ring = ptr::from_ref(ring).cast_mut().cast();
    // SAFETY: `ring` is the ring that the lookup gave; the helper only reads its positions.
    let (available, size) = unsafe { (bpf_ringbuf_query(ring, AVAILABLE), bpf_ringbuf_query(ring, SIZE)) };
    let half = size / 2;
    if available >= half && available - len - RECORD_HEADER < half { FORCE_WAKEUP } else { NO_WAKEUP }
}
