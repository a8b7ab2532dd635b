//! The only reads of kernel memory, at the offsets that the loader took from the kernel's BTF.
//!
//! A field that the kernel does not have reads as zero, and so does one whose page is gone.

use core::{arch::asm, ffi::c_void, ptr};

use aya_ebpf::helpers::{
    bpf_get_current_task_btf, bpf_get_smp_processor_id, bpf_get_socket_cookie,
    generated::{bpf_probe_read_kernel, bpf_probe_read_kernel_str, bpf_probe_read_user, bpf_task_pt_regs},
};
use probe_packet::SNAP;
use probe_wire::{Interrupt, Offsets, UNKNOWN_OFFSET};

use crate::{emit::zero, maps::SETTINGS};

/// Address of a kernel object whose type the verifier knows: an argument of a `tp_btf` program,
/// or a pointer read out of one. The verifier checks every read of it against the kernel's BTF,
/// and the JIT turns a fault into a zero.
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/bpf/verifier.c#L6550> (`check_ptr_to_btf_access`)
pub(crate) type Typed = *const c_void;

/// Offsets of this kernel's fields.
#[inline(always)]
pub(crate) fn offsets() -> &'static Offsets {
    &SETTINGS.get().offsets
}

/// Field of an object whose type the verifier knows: one load.
#[inline(always)]
pub(crate) fn typed<T: Copy>(object: Typed, offset: u32, otherwise: T) -> T {
    if offset == UNKNOWN_OFFSET || object.is_null() {
        return otherwise;
    }
    // SAFETY: the verifier accepts the load only where the kernel's type information has a field
    // of this size, and the kernel turns a fault into a zero.
    unsafe { ptr::read_volatile(object.byte_add(offset as usize).cast::<T>()) }
}

/// Field that the program's hook needs, of an argument that is never null: nothing but the load, for
/// what runs at every event of the host. Where the kernel lacks the field, the program is not loaded.
#[inline(always)]
pub(crate) fn needed<T: Copy>(object: Typed, offset: u32) -> T {
    // SAFETY: as in `typed`.
    unsafe { ptr::read_volatile(object.byte_add(offset as usize).cast::<T>()) }
}

/// Pointer field of an object whose type the verifier knows.
#[inline(always)]
pub(crate) fn typed_pointer(object: Typed, offset: u32) -> Typed {
    typed(object, offset, ptr::null())
}

/// Integer field of an object known by its address only: a helper call.
#[inline(always)]
pub(crate) fn untyped<T: Copy + Default>(object: u64, offset: u32) -> T {
    let mut value = T::default();
    if offset == UNKNOWN_OFFSET || object == 0 {
        return value;
    }
    let from = object.wrapping_add(u64::from(offset)) as *const c_void;
    // SAFETY: `value` has room for its own size; a fault leaves it zero.
    unsafe { bpf_probe_read_kernel((&raw mut value).cast(), size_of::<T>() as u32, from) };
    value
}

/// Copies bytes from a kernel address behind an Ethernet header with nothing but a type, as many
/// as there are and fit. Returns the length of the whole, 0 on a fault.
#[inline(always)]
pub(crate) fn datagram(from: u64, len: u32, ethertype: u16, to: &mut [u8; SNAP]) -> u32 {
    if len == 0 {
        return 0;
    }
    let len = within::<DATAGRAM>(len);
    let behind = link_header(ethertype, to);
    // SAFETY: `len` is at most what is left behind the header; a fault is reported.
    let error = unsafe { bpf_probe_read_kernel(behind.cast(), len, from as *const c_void) };
    if error == 0 { ETHERNET + len } else { 0 }
}

/// Bytes of an Ethernet header, and of what fits behind it.
pub(crate) const ETHERNET: u32 = 14;
pub(crate) const DATAGRAM: u32 = SNAP as u32 - ETHERNET;

/// Writes the type, in packet order, into an Ethernet header. Where the datagram goes.
///
/// With it, one parser and one walk of the verifier do for frames and for bare datagrams.
#[inline(always)]
pub(crate) fn link_header(ethertype: u16, to: &mut [u8; SNAP]) -> *mut u8 {
    [to[12], to[13]] = ethertype.to_ne_bytes();
    // SAFETY: 14 is within the array.
    unsafe { to.as_mut_ptr().add(ETHERNET as usize) }
}

/// A 16-byte name inside an object whose type the verifier knows.
#[inline(always)]
pub(crate) fn name(object: Typed, offset: u32) -> [u8; 16] {
    let low: u64 = typed(object, offset, 0);
    let high: u64 = typed(object, offset.saturating_add(8), 0);
    zerocopy::transmute!([low, high])
}

/// Copies a string from a kernel address, as far as it fits; zeros behind it, or on a fault.
#[inline(always)]
pub(crate) fn string(from: u64, to: &mut [u8; 16]) {
    *to = zerocopy::transmute!([zero(), zero()]);
    // SAFETY: `to` has room for 16 bytes; a fault is zeroed.
    unsafe { bpf_probe_read_kernel_str(to.as_mut_ptr().cast(), 16, from as *const c_void) };
}

/// The task that runs, or that the interrupt interrupted.
#[inline(always)]
pub(crate) fn current_task() -> Typed {
    // SAFETY: the helper takes no argument and returns a task that is alive.
    unsafe { bpf_get_current_task_btf() }.cast_const().cast()
}

/// The CPU that this program runs on.
#[inline(always)]
pub(crate) fn cpu() -> u32 {
    // SAFETY: the helper takes no argument.
    unsafe { bpf_get_smp_processor_id() }
}

/// What this program interrupted; `current` is the address of the current task.
#[inline(always)]
pub(crate) fn interrupt(current: u64) -> Interrupt {
    preempt_count(current).map_or(Interrupt::Unknown, Interrupt::of)
}

/// Whether the current task itself runs, and no interrupt or softirq on top of it; false where that
/// cannot be told. Softirqs that are only held off count as none.
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/preempt.h#L32>
#[inline(always)]
pub(crate) fn is_task(current: u64) -> bool {
    preempt_count(current).is_some_and(|count| count & 0x00ff_0100 == 0)
}

/// The preempt count of this CPU, where it is known.
///
/// Most architectures keep it in the task. x86 keeps it beside the CPU's other
/// variables, and the current task's run queue is one of them: the type information tells how far
/// one is from the other, so no address has to be known.
#[inline(always)]
fn preempt_count(current: u64) -> Option<u32> {
    let at = offsets();
    if at.task_preempt_count != UNKNOWN_OFFSET {
        return Some(untyped(current, at.task_preempt_count));
    }
    let group_queue: u64 = untyped(current, at.task_se_cfs_rq);
    let queue: u64 = untyped(group_queue, at.cfs_rq_rq);
    let is_known = at.percpu_runqueues != UNKNOWN_OFFSET && at.percpu_preempt_count != UNKNOWN_OFFSET;
    if queue == 0 || !is_known {
        return None;
    }
    let variables = queue.wrapping_sub(u64::from(at.percpu_runqueues));
    Some(untyped(variables, at.percpu_preempt_count))
}

/// Cookie of a socket whose type the verifier knows; the kernel makes one if there was none.
#[inline(always)]
pub(crate) fn socket_cookie(sock: Typed) -> u64 {
    // SAFETY: the verifier checks that the argument is a socket or null.
    unsafe { bpf_get_socket_cookie(sock.cast_mut()) }
}

/// Registers of the current thread in user mode, as it entered the kernel. Meaningless for a
/// thread without memory of its own.
#[inline(always)]
pub(crate) fn user_registers() -> Typed {
    // SAFETY: the current task is alive, and the helper only computes an address.
    unsafe { bpf_task_pt_regs(current_task().cast_mut().cast()) as Typed }
}

/// Bytes of a page, the step in which memory of a process can be there or not.
const PAGE: u32 = 4096;

/// Copies memory of the current process upwards from an address, as much as is wanted and fits, in
/// pages' lengths; up to the first page that is not there. Returns how much.
#[inline(always)]
pub(crate) fn user_memory<const BYTES: usize>(from: u64, to: &mut [u8; BYTES], wanted: u32) -> u32 {
    let mut done = 0;
    while done + PAGE as usize <= BYTES && done < wanted as usize {
        let at = from.wrapping_add(done as u64);
        // SAFETY: `done` and a page are within the array.
        let behind: *mut c_void = unsafe { to.as_mut_ptr().add(done) }.cast();
        // SAFETY: as said; a fault is reported.
        if unsafe { bpf_probe_read_user(behind, PAGE, at as *const c_void) } != 0 {
            let rest = within::<PAGE>(PAGE - (at as u32 % PAGE));
            // SAFETY: the rest is less than a page.
            let failed = unsafe { bpf_probe_read_user(behind, rest, at as *const c_void) } != 0;
            return done as u32 + if failed { 0 } else { rest };
        }
        done += PAGE as usize;
    }
    done as u32
}

/// `at + LEN`, of which the compiler knows nothing more.
#[inline(always)]
pub(crate) fn past<const LEN: usize>(mut at: usize) -> usize {
    // SAFETY: the instruction only adds.
    unsafe {
        asm!("{at} += {len}", at = inout(reg) at, len = const LEN, options(pure, nomem, nostack));
    }
    at
}

/// `len`, but at least 1 and at most `MOST`.
///
/// Both bounds are on one register, and neither is a comparison for equality: the verifier of
/// kernels before 6.8 learns a range from nothing else, and the compiler would write it otherwise.
#[inline(always)]
pub(crate) fn within<const MOST: u32>(len: u32) -> u32 {
    let mut len = u64::from(len);
    // SAFETY: the instructions only change the register.
    unsafe {
        asm!(
            "if {len} > 0 goto +1",
            "{len} = 1",
            "if {len} < {most} goto +1",
            "{len} = {most}",
            len = inout(reg) len,
            most = const MOST,
            options(pure, nomem, nostack)
        );
    }
    len as u32
}
