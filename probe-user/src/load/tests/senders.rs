//! Senders that are counted, on the running kernel.

use super::*;
use crate::load::SentRound;
use probe_wire::{SentCount, SentKey};
use std::net::{Ipv4Addr, SocketAddr};

fn counting(lo: &Attachment) -> Request {
    Request { rules: vec![rule()], interfaces: vec![lo.clone()], senders: true, ..Request::default() }
}

/// Of each flow: its two ports, packets, bytes.
fn flows(round: &SentRound, of: impl Fn(&SentKey) -> bool) -> Vec<(u16, u16, u64, u64)> {
    let sum = |counts: &[SentCount], field: fn(&SentCount) -> u64| counts.iter().map(field).sum::<u64>();
    let flow = |(_, counts): &(SentKey, Vec<SentCount>)| {
        let ends = counts.iter().find(|count| count.protocol != 0).unwrap();
        assert_eq!(ends.source, Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets());
        let (packets, bytes) = (sum(counts, |count| count.packets), sum(counts, |count| count.bytes));
        (ends.source_port, ends.destination_port, packets, bytes)
    };
    let mut flows: Vec<_> = round.counts.iter().filter(|(key, _)| of(key)).map(flow).collect();
    flows.sort_unstable();
    flows
}

fn port(address: SocketAddr) -> u16 {
    address.port()
}

#[test]
fn packets_are_counted_by_socket_and_flow_and_their_sender_is_known() {
    need_root!();
    in_new_netns(|lo| {
        let mut attached = load(&counting(lo)).unwrap();
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (one, two, connected, free) = (bind(), bind(), bind(), bind());
        let [to_one, to_two] = [&one, &two].map(|socket| socket.local_addr().unwrap());
        let [from_connected, from_free] = [&connected, &free].map(|socket| port(socket.local_addr().unwrap()));
        connected.connect(to_one).unwrap();
        for _ in 0..5 {
            connected.send(&[0; 100]).unwrap();
            free.send_to(&[0; 58], to_one).unwrap();
        }
        free.send_to(&[0; 58], to_two).unwrap();
        attached.turn_senders(1).unwrap();
        // This one is of the next turn.
        free.send_to(&[0; 58], to_two).unwrap();
        let round = attached.sent(1).unwrap();
        assert_eq!((round.uncounted.packets, round.counts.iter().all(|(key, _)| key.ifindex == 1)), (0, true));
        let mine = |flow: u64| move |key: &SentKey| key.socket != 0 && (key.flow == 0) == (flow == 0);
        assert_eq!(flows(&round, mine(0)), [(from_connected, port(to_one), 5, 5 * 142)]);
        let mut expected = [(from_free, port(to_one), 5, 500), (from_free, port(to_two), 1, 100)];
        expected.sort_unstable();
        assert_eq!(flows(&round, mine(1)), expected);
        for (key, _) in &round.counts {
            let sender = attached.sender(key.socket).unwrap().expect("the socket was used after attach");
            let thread = gettid().as_raw_nonzero().get().unsigned_abs();
            assert_eq!((sender.tgid, sender.tid, sender.shared), (process::id(), thread, 0));
            assert!(sender.start_time_ns > 0 && sender.comm[0] != 0);
        }
        attached.turn_senders(2).unwrap();
        let round = attached.sent(2).unwrap();
        assert_eq!(flows(&round, |_| true), [(from_free, port(to_two), 1, 100)]);
        assert_eq!(attached.sent(2).unwrap(), SentRound::default());
    });
}

#[test]
fn an_interface_that_is_no_longer_watched_is_not_counted() {
    need_root!();
    in_new_netns(|lo| {
        let mut attached = load(&counting(lo)).unwrap();
        assert!(attached.detach_interface(lo));
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        from.send_to(&[0; 58], to.local_addr().unwrap()).unwrap();
        attached.turn_senders(1).unwrap();
        assert_eq!(attached.sent(1).unwrap(), SentRound::default());
    });
}

#[test]
fn what_finds_no_room_is_counted() {
    need_root!();
    in_new_netns(|lo| {
        let mut attached = load(&counting(lo)).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // Each address is a flow; nobody answers there, and the kernel says so by packets of its own.
        let most = u32::try_from(probe_wire::MOST_SENT).unwrap();
        for number in 0..most + 100 {
            let to = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + number);
            // An error is the answer to an earlier one.
            let _ = socket.send_to(&[0; 58], (to, 9));
        }
        attached.turn_senders(1).unwrap();
        let round = attached.sent(1).unwrap();
        let counted: u64 = round.counts.iter().flat_map(|(_, counts)| counts).map(|count| count.packets).sum();
        assert!(round.uncounted.packets >= 50, "{:?}", round.uncounted);
        assert!(counted + round.uncounted.packets >= u64::from(most) + 100);
    });
}
