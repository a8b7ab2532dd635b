//! Watched packets in queueing disciplines and at the driver.

use aya_ebpf::programs::BtfTracePointContext;
use probe_wire::{EventKind, QdiscBody, XMIT_HANDS_ON, XmitBody};

use crate::{
    emit::emit,
    hooks::{
        packet::{Device, DeviceRole},
        sender,
    },
    read::{self, Typed, offsets},
    scope,
};

/// `TCQ_F_CPUSTATS`: counters are kept per CPU, the ones here stay 0.
/// <https://github.com/torvalds/linux/blob/v6.12/include/net/sch_generic.h#L92>
const PER_CPU_COUNTERS: u32 = 0x20;

/// `qdisc_enqueue`.
#[inline(always)]
pub(crate) fn enqueue(ctx: &BtfTracePointContext) {
    report(EventKind::QdiscEnqueue, ctx.arg(0), ctx.arg(1), ctx.arg(2));
}

/// `qdisc_dequeue`. It also fires with no packet, and of a bulk it shows the first only.
#[inline(always)]
pub(crate) fn dequeue(ctx: &BtfTracePointContext) {
    report(EventKind::QdiscDequeue, ctx.arg(0), ctx.arg(1), ctx.arg(3));
}

#[inline(always)]
fn report(kind: EventKind, qdisc: Typed, queue: Typed, skb: Typed) {
    if skb.is_null() || !scope::is_watched_skb(skb as u64) {
        return;
    }
    let device = Device::of_skb(skb);
    let at = offsets();
    let shared = read::typed::<u32>(qdisc, at.qdisc_flags, 0) & PER_CPU_COUNTERS == 0;
    let counter = |offset| {
        if shared { read::typed(qdisc, offset, 0) } else { u32::MAX }
    };
    emit(kind, |body: &mut QdiscBody| {
        *body = QdiscBody {
            skb: skb as u64,
            netns: device.netns(),
            ifindex: device.ifindex(),
            handle: read::typed(qdisc, at.qdisc_handle, 0),
            queue_len: counter(at.qdisc_q_len),
            backlog_bytes: counter(at.qdisc_qstats_backlog),
            overlimits: counter(at.qdisc_qstats_overlimits),
            requeues: counter(at.qdisc_qstats_requeues),
            drops: counter(at.qdisc_qstats_drops),
            queue_state: read::typed(queue, at.netdev_queue_state, 0),
            kind: read::name(read::typed_pointer(qdisc, at.qdisc_ops), at.qdisc_ops_id),
        };
    });
}

/// `net_dev_start_xmit`: the end of the host's custody of a packet, unless a tap's ring holds it or
/// the device hands it on to another.
#[inline(always)]
pub(crate) fn xmit(ctx: &BtfTracePointContext) {
    let (skb, device): (Typed, _) = (ctx.arg(0), Device(ctx.arg(1)));
    if skb.is_null() {
        return;
    }
    sender::count(skb, device);
    if !scope::is_watched_skb(skb as u64) {
        return;
    }
    let role = device.role();
    emit(EventKind::Xmit, |body: &mut XmitBody| {
        *body = XmitBody {
            skb: skb as u64,
            netns: device.netns(),
            ifindex: device.ifindex(),
            queue: u32::from(read::typed::<u16>(skb, offsets().sk_buff_queue_mapping, 0))
                | if role == DeviceRole::HandsOn { XMIT_HANDS_ON } else { 0 },
        };
    });
    match role {
        DeviceRole::Tun => scope::put_in_ring(skb as u64),
        DeviceRole::Sends => scope::unwatch_skb(skb as u64),
        DeviceRole::HandsOn => {}
    }
}
