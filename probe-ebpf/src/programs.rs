//! Every program, by the name the loader knows it by (`probe-user/src/hooks.rs`).
//!
//! Packet programs answer [`NEXT`] on every path: any other verdict would hide the packet from
//! the programs behind this one.

use aya_ebpf::{
    bindings::__sk_buff,
    macros::{btf_tracepoint, classifier, perf_event, raw_tracepoint, tracepoint},
    programs::{BtfTracePointContext, PerfEventContext, RawTracePointContext, TcContext, TracePointContext},
};
use probe_packet::Start;

use crate::{
    hooks::{
        backend, block, drop, kvm, lock, neighbour,
        packet::{self, Direction},
        qdisc, sched, self_test, sender, sock, softirq, stack, storage,
    },
    scope,
};

/// `TC_ACT_UNSPEC`, `TCX_NEXT`: as if this program were not there.
const NEXT: i32 = -1;

/// Makes the entry point of a packet program. What few packets need is a function of its own, so
/// that the others neither save registers nor clear a stack for it.
macro_rules! packet_program {
    ($name:ident, $direction:ident, $start:ident) => {
        #[classifier]
        fn $name(ctx: TcContext) -> i32 {
            #[inline(never)]
            fn closely(skb: *mut __sk_buff) {
                packet::stamp(&TcContext::new(skb), Direction::$direction, Start::$start);
            }
            if matches!(Direction::$direction, Direction::Egress) {
                sender::learn(&ctx);
            }
            if !packet::is_foreign(&ctx, Start::$start) {
                closely(ctx.skb.skb);
            }
            NEXT
        }
    };
}

/// Makes the entry point of a tracepoint program.
macro_rules! tracepoint_program {
    ($name:ident, $tracepoint:literal, $hook:path) => {
        #[btf_tracepoint(function = $tracepoint)]
        fn $name(ctx: BtfTracePointContext) -> i32 {
            $hook(&ctx);
            0
        }
    };
}

packet_program!(stamp_ingress, Ingress, Ethernet);
packet_program!(stamp_egress, Egress, Ethernet);
// for devices without an Ethernet header
packet_program!(stamp_in_ip, Ingress, Network);
packet_program!(stamp_out_ip, Egress, Network);

tracepoint_program!(sk_data_ready, "sk_data_ready", sock::data_ready);
tracepoint_program!(sock_recv, "sock_recv_length", sock::received);
tracepoint_program!(sock_send, "sock_send_length", sock::sent);
tracepoint_program!(sched_switch, "sched_switch", sched::switch);
tracepoint_program!(switch_old, "sched_switch", sched::switch_old);
tracepoint_program!(sched_waking, "sched_waking", sched::waking);
tracepoint_program!(sched_fork, "sched_process_fork", sched::fork);
tracepoint_program!(sched_exit, "sched_process_exit", sched::exit);
tracepoint_program!(qdisc_enqueue, "qdisc_enqueue", qdisc::enqueue);
tracepoint_program!(qdisc_dequeue, "qdisc_dequeue", qdisc::dequeue);
tracepoint_program!(start_xmit, "net_dev_start_xmit", qdisc::xmit);
tracepoint_program!(kfree_skb, "kfree_skb", drop::with_reason);
tracepoint_program!(kfree_skb_old, "kfree_skb", drop::without_reason);
tracepoint_program!(consume_skb, "consume_skb", backend::taken);
tracepoint_program!(consume_skb_old, "consume_skb", backend::taken_old);
tracepoint_program!(neigh_update, "neigh_update", neighbour::updated);
tracepoint_program!(softirq_entry, "softirq_entry", softirq::entry);
tracepoint_program!(softirq_raise, "softirq_raise", softirq::raise);
tracepoint_program!(softirq_exit, "softirq_exit", softirq::exit);
tracepoint_program!(file_wait, "sched_switch", storage::file_wait);
tracepoint_program!(filemap_fault, "mm_filemap_fault", storage::fault);
tracepoint_program!(dirty_folio, "writeback_dirty_folio", storage::dirtied);
tracepoint_program!(dirty_page, "writeback_dirty_page", storage::dirtied);
tracepoint_program!(reclaim_begin, "mm_vmscan_direct_reclaim_begin", storage::reclaim_begin);
tracepoint_program!(reclaim_end, "mm_vmscan_direct_reclaim_end", storage::reclaim_end);
tracepoint_program!(memcg_begin, "mm_vmscan_memcg_reclaim_begin", storage::reclaim_begin);
tracepoint_program!(lock_begin, "contention_begin", lock::begin);
tracepoint_program!(lock_end, "contention_end", lock::end);
tracepoint_program!(memcg_end, "mm_vmscan_memcg_reclaim_end", storage::group_reclaim_end);
tracepoint_program!(rq_complete, "block_rq_complete", block::completed);
tracepoint_program!(rq_issue, "block_rq_issue", block::issued);
tracepoint_program!(bio_queue, "block_bio_queue", block::queued);

/// Of a module, whose types are not the kernel's.
#[tracepoint]
fn kvm_exit(ctx: TracePointContext) -> u32 {
    kvm::exit(&ctx);
    0
}

/// Likewise.
#[tracepoint]
fn kvm_entry(ctx: TracePointContext) -> u32 {
    kvm::entry(&ctx);
    0
}

/// Runs on each CPU so many times a second.
#[perf_event]
fn cpu_clock(ctx: PerfEventContext) -> u32 {
    stack::sample(&ctx);
    0
}

/// Makes the entry point of a program that the loader runs by `BPF_PROG_TEST_RUN` only.
macro_rules! loader_program {
    ($name:ident, |$ctx:ident| $run:expr) => {
        #[raw_tracepoint]
        fn $name(context: RawTracePointContext) -> i32 {
            let $ctx = &context;
            $run;
            0
        }
    };
}

// The argument is a tgid. Only a program can change the bitmap atomically.
loader_program!(watch_process, |ctx| scope::watch(ctx.arg(0)));
loader_program!(forget_process, |ctx| scope::unwatch(ctx.arg(0)));
loader_program!(test_task, |_ctx| self_test::task());

#[classifier]
fn test_packet(ctx: TcContext) -> i32 {
    self_test::packet(&ctx);
    NEXT
}

/// What the other packet programs' cost is compared with.
#[classifier]
fn test_empty(_: TcContext) -> i32 {
    NEXT
}

/// Lets the programs call the helpers that the kernel keeps for GPL-compatible ones.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
