//! Reads of a known task and a known packet, which the loader compares with what it knows.
//!
//! These run by `BPF_PROG_TEST_RUN` only and are never attached.

use aya_ebpf::{helpers::bpf_get_current_task, programs::TcContext};

use crate::{
    hooks::packet,
    maps::SELF_TEST,
    read::{self, offsets},
};

/// The thread that runs the test.
#[inline(always)]
pub(crate) fn task() {
    let Some(seen) = SELF_TEST.get_ptr_mut(0) else {
        return;
    };
    // SAFETY: the helper takes no argument.
    let task = unsafe { bpf_get_current_task() };
    let at = offsets();
    // SAFETY: the slot lives as long as the program, and only one test runs at a time.
    let seen = unsafe { &mut *seen };
    seen.tid = read::untyped(task, at.task_pid);
    seen.tgid = read::untyped(task, at.task_tgid);
    seen.start_time_ns = read::untyped(task, at.task_start_time);
    seen.interrupt = read::interrupt(task) as u32;
    let comm: [u64; 2] = [read::untyped(task, at.task_comm), read::untyped(task, at.task_comm.saturating_add(8))];
    seen.comm = zerocopy::transmute!(comm);
}

/// The packet that the test hands in.
#[inline(always)]
pub(crate) fn packet(ctx: &TcContext) {
    let Some(seen) = SELF_TEST.get_ptr_mut(0) else {
        return;
    };
    let skb = ctx.skb.skb as u64;
    let at = offsets();
    let head: u64 = read::untyped(skb, at.sk_buff_head);
    let start = read::untyped::<u64>(skb, at.sk_buff_data).wrapping_sub(head) as u32;
    let network = u32::from(read::untyped::<u16>(skb, at.sk_buff_network_header));
    let mac = u32::from(read::untyped::<u16>(skb, at.sk_buff_mac_header));
    // SAFETY: as in `task`.
    let seen = unsafe { &mut *seen };
    seen.netns = packet::netns(skb);
    seen.ifindex = packet::ifindex_of(packet::device(skb));
    seen.len = read::untyped(skb, at.sk_buff_len);
    seen.linear_len = read::untyped::<u32>(skb, at.sk_buff_tail).wrapping_sub(start);
    seen.network_offset = network.wrapping_sub(start);
    seen.mac_offset = mac.wrapping_sub(start);
    seen.protocol = u32::from(read::untyped::<u16>(skb, at.sk_buff_protocol));
    let bytes: u64 = read::untyped(head.wrapping_add(u64::from(network)), 0);
    seen.network = bytes.to_ne_bytes();
}
