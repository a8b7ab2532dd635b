//! Files that watched threads wait for, who makes pages dirty, and memory that threads reclaim.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, generated::bpf_task_pt_regs},
    programs::BtfTracePointContext,
};
use probe_wire::{
    CALL_FAULT, DIRTIED_EVERY_NS, DIRTIED_FOLIOS, DirtiedBody, EventKind, FileWaitBody, FutexWaitBody, ReclaimBody,
};

use crate::{
    emit::{emit, emit_at, now},
    maps::{FAULTS, FILE_WAITS, RECLAIMS, cpu_state},
    read::{self, Typed, offsets},
    scope,
};

/// Bits of `prev_state`: signals can wake it, or only what it waits for.
const INTERRUPTIBLE: u32 = 1;
const UNINTERRUPTIBLE: u32 = 2;
/// Number of the system call on x86_64, where [`registers`] are known.
const FUTEX: u64 = 202;
/// `SB_NOUSER`: sockets, pipes and the like, which are no files of anyone.
const NO_USER: u64 = 1 << 31;

/// The program on `sched_switch` goes on in [`file_wait`], if the loader has put that there, for a
/// watched thread that begins to wait.
///
/// A second program on the tracepoint would have the kernel walk a list at every switch of the host,
/// with an indirect call for each entry, where one is called directly.
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/tracepoint.c#L284> (`tracepoint_update_call`)
#[inline(always)]
pub(crate) fn file_wait_begins(ctx: &BtfTracePointContext) {
    let preempted = ctx.arg::<u64>(0) & 1 != 0;
    if !preempted && ctx.arg::<u32>(3) & (INTERRUPTIBLE | UNINTERRUPTIBLE) != 0 {
        // SAFETY: nothing is left to do here, and no value of this program needs to be dropped.
        unsafe { FILE_WAITS.tail_call(ctx, 0) };
    }
}

/// `sched_switch` from 5.18 on, for such a thread: which futex its system call is about, or, where it
/// waits uninterruptibly, as one does for storage, which file that or its page fault is about.
#[inline(always)]
pub(crate) fn file_wait(ctx: &BtfTracePointContext) {
    let thread: Typed = ctx.arg(1);
    let (call, first) = registers();
    if call == FUTEX {
        emit(EventKind::FutexWait, |body: &mut FutexWaitBody| body.word = first >> 3);
        return;
    }
    if ctx.arg::<u32>(3) & UNINTERRUPTIBLE == 0 {
        return;
    }
    // A fault has no number. In 32 bits it is the number that stands for one.
    let inode = if call as i64 >= 0 { of_descriptor(thread, first) } else { of_fault() };
    tell(inode, call as u32);
}

/// Number and first argument of the system call that the current thread is in.
#[inline(always)]
fn registers() -> (u64, u64) {
    // SAFETY: the current task is alive, and the helper only computes an address.
    let registers = unsafe { bpf_task_pt_regs(read::current_task().cast_mut().cast()) } as u64;
    (read::untyped(registers, offsets().pt_regs_call), read::untyped(registers, offsets().pt_regs_first))
}

/// Address of the inode of an open file; 0 if there is none.
#[inline(always)]
fn of_descriptor(thread: Typed, descriptor: u64) -> u64 {
    let at = offsets();
    let table: u64 = read::untyped(read::typed_pointer(thread, at.task_files) as u64, at.files_fdt);
    if descriptor >= read::untyped::<u32>(table, at.fdtable_max_fds).into() {
        return 0;
    }
    let files: u64 = read::untyped(table, at.fdtable_fd);
    let file: u64 = read::untyped(files.wrapping_add(descriptor * 8), 0);
    read::untyped(file, at.file_f_inode)
}

/// Address of the inode of the mapping in which the current thread faulted last.
#[inline(always)]
fn of_fault() -> u64 {
    // SAFETY: the value is a word of the map, written as a whole.
    FAULTS.get_ptr(this_thread()).map_or(0, |inode| unsafe { *inode })
}

#[inline(always)]
fn tell(inode: u64, call: u32) {
    let at = offsets();
    let super_block: u64 = read::untyped(inode, at.inode_i_sb);
    let flags: u64 = read::untyped(super_block, at.super_block_s_flags);
    if super_block == 0 || flags & NO_USER != 0 {
        return;
    }
    let kind: u64 = read::untyped(super_block, at.super_block_s_type);
    let name: u64 = read::untyped(kind, at.file_system_type_name);
    emit(EventKind::FileWait, |body: &mut FileWaitBody| {
        body.inode = read::untyped(inode, at.inode_i_ino);
        let its_own = is_device(read::untyped(inode, at.inode_i_mode));
        body.device = if its_own {
            read::untyped(inode, at.inode_i_rdev)
        } else {
            read::untyped(super_block, at.super_block_s_dev)
        };
        body.call = call;
        read::string(name, &mut body.file_system);
    });
}

/// Whether an inode of this mode is a block device. A file system writes what it knows of files to
/// pages of the device itself.
#[inline(always)]
fn is_device(mode: u16) -> bool {
    mode & 0xf000 == 0x6000
}

/// `mm_filemap_fault`: a page of a mapped file is looked for.
#[inline(always)]
pub(crate) fn fault(ctx: &BtfTracePointContext) {
    if !scope::is_watched(this_process()) {
        return;
    }
    let inode = read::typed_pointer(ctx.arg(0), offsets().address_space_host) as u64;
    let _ = FAULTS.insert(this_thread(), inode, 0);
}

/// `writeback_dirty_folio`, or before 5.18 `writeback_dirty_page`: a clean one got dirty.
#[inline(always)]
pub(crate) fn dirtied(ctx: &BtfTracePointContext) {
    let Some(state) = cpu_state() else { return };
    let folios = state.dirtied.get() + 1;
    state.dirtied.set(folios);
    if folios < DIRTIED_FOLIOS {
        return;
    }
    let time_ns = now();
    if time_ns.saturating_sub(state.dirtied_told_ns.get()) < DIRTIED_EVERY_NS {
        return;
    }
    state.dirtied.set(0);
    state.dirtied_told_ns.set(time_ns);
    let at = offsets();
    let inode = read::typed_pointer(ctx.arg(1), at.address_space_host);
    let super_block = read::typed_pointer(inode, at.inode_i_sb);
    emit_at(time_ns, EventKind::Dirtied, |body: &mut DirtiedBody| {
        *body = DirtiedBody {
            device: if is_device(read::typed(inode, at.inode_i_mode, 0)) {
                read::typed(inode, at.inode_i_rdev, 0)
            } else {
                read::typed(super_block, at.super_block_s_dev, 0)
            },
            folios,
            comm: read::name(read::current_task(), at.task_comm),
        };
    });
}

/// `mm_vmscan_direct_reclaim_begin`, `mm_vmscan_memcg_reclaim_begin`. One does not happen in
/// another.
#[inline(always)]
pub(crate) fn reclaim_begin(_: &BtfTracePointContext) {
    if scope::is_watched(this_process()) {
        let _ = RECLAIMS.insert(this_thread(), now(), 0);
    }
}

/// `mm_vmscan_direct_reclaim_end`.
#[inline(always)]
pub(crate) fn reclaim_end(ctx: &BtfTracePointContext) {
    reclaimed(ctx.arg(0), 0);
}

/// `mm_vmscan_memcg_reclaim_end`.
#[inline(always)]
pub(crate) fn group_reclaim_end(ctx: &BtfTracePointContext) {
    reclaimed(ctx.arg(0), 1);
}

#[inline(always)]
fn reclaimed(pages: u64, cgroup: u32) {
    if !scope::is_watched(this_process()) {
        return;
    }
    let thread = this_thread();
    // SAFETY: the value is a word of the map, written as a whole.
    let Some(began_ns) = RECLAIMS.get_ptr(thread).map(|began| unsafe { *began }) else { return };
    let _ = RECLAIMS.remove(thread);
    emit(EventKind::Reclaim, |body: &mut ReclaimBody| {
        *body = ReclaimBody { began_ns, pages, cgroup, reserved: 0 };
    });
}

#[inline(always)]
fn this_process() -> u32 {
    (this_thread() >> 32) as u32
}

/// Process and thread number of the current thread.
#[inline(always)]
fn this_thread() -> u64 {
    // SAFETY: the helper takes no argument.
    unsafe { bpf_get_current_pid_tgid() }
}

const _: () = assert!(CALL_FAULT == -1_i64 as u32);
