//! Softirqs that are due and wait.

use super::{Request, collect, find, in_new_netns, load, own_tid};
use crate::symbols::KernelSymbols;
use probe_wire::{EventKind, NET_RX, SoftirqWaitBody, WAIT_SAME_SLICE};
use std::net::UdpSocket;

/// Who sends on the loopback raises the softirq that receives, with softirqs held off until the packet
/// is with the device.
#[test]
fn a_softirq_that_waits_tells_since_when_and_who_held_it_off() {
    need_root!();
    let symbols = KernelSymbols::load().unwrap();
    in_new_netns(|_| {
        let mut attached = load(&Request { softirq_min_ns: 1, stacks: true, ..Request::default() }).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tid = own_tid();
        let waited = |kept: &[super::Kept]| {
            socket.send_to(&[0; 32], socket.local_addr().unwrap()).unwrap();
            let waits = find(kept, EventKind::SoftirqWait).into_iter().filter(|record| record.header.tid == tid);
            waits.map(|record| (record.header, record.body::<SoftirqWaitBody>())).find(|(_, body)| {
                let frames = body.stack.iter().take(body.stack_len as usize);
                frames.filter_map(|frame| symbols.name(*frame)).any(|name| name.starts_with("__local_bh_enable_ip"))
            })
        };
        let (header, body) = waited(&collect(&mut attached, |kept| waited(kept).is_some())).unwrap();
        assert_eq!(header.softirq, NET_RX + 1);
        assert!(body.raised_ns < header.time_ns && header.time_ns - body.raised_ns < 1_000_000_000, "{body:?}");
        assert_eq!(body.flags & WAIT_SAME_SLICE, WAIT_SAME_SLICE, "{body:?}");
    });
}
