//! Senders that are counted, on the running kernel.

use super::*;
use crate::load::SentRound;
use probe_wire::{SentCount, SentKey};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

fn counting(lo: &Attachment) -> Request {
    Request { rules: vec![rule()], interfaces: vec![lo.clone()], senders: true, ..Request::default() }
}

/// Interfaces of all namespaces have one index here, and while one is watched all are counted: what
/// would fill the other tests' maps runs when they do not.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn in_turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was counted in a namespace.
fn sent_in(netns: u64, attached: &mut Attached, turn: u32) -> SentRound {
    let mut round = attached.sent(turn).unwrap();
    round.counts.retain(|(key, _)| key.netns == netns);
    round
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
    let _turn = in_turn();
    in_new_netns(|lo| {
        let mut attached = load(&counting(lo)).unwrap();
        let netns = attached.interfaces()[0].netns_cookie;
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
        let round = sent_in(netns, &mut attached, 1);
        assert_eq!((round.uncounted.packets, round.counts.iter().all(|(key, _)| key.ifindex == 1)), (0, true));
        let mine = |flow: u64| move |key: &SentKey| key.socket != 0 && (key.flow == 0) == (flow == 0);
        let mut whole = [(from_connected, port(to_one), 5, 5 * 142), (from_free, port(to_one), 6, 600)];
        whole.sort_unstable();
        assert_eq!(flows(&round, mine(0)), whole);
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
        let round = sent_in(netns, &mut attached, 2);
        assert_eq!(flows(&round, |_| true), [(from_free, port(to_two), 1, 100); 2]);
        assert_eq!(sent_in(netns, &mut attached, 2), SentRound::default());
    });
}

#[test]
fn an_interface_that_is_no_longer_watched_is_not_counted() {
    need_root!();
    let _turn = in_turn();
    in_new_netns(|lo| {
        let mut attached = load(&counting(lo)).unwrap();
        let netns = attached.interfaces()[0].netns_cookie;
        assert!(attached.detach_interface(lo));
        let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        from.send_to(&[0; 58], to.local_addr().unwrap()).unwrap();
        attached.turn_senders(1).unwrap();
        assert_eq!(sent_in(netns, &mut attached, 1), SentRound::default());
    });
}

/// Sum of what is told of the keys.
fn told(round: &SentRound, of: impl Fn(&SentKey) -> bool) -> SentCount {
    let counts = round.counts.iter().filter(|(key, _)| of(key)).flat_map(|(_, counts)| counts);
    counts.fold(SentCount::default(), |sum, count| SentCount {
        packets: sum.packets + count.packets,
        bytes: sum.bytes + count.bytes,
        squares: sum.squares + count.squares,
        ..sum
    })
}

#[test]
fn of_many_packets_the_senders_are_counted_and_the_flows_estimated() {
    const SENT: u64 = 8_000;
    need_root!();
    let _turn = in_turn();
    in_new_netns(|lo| {
        let mut attached = load(&counting(lo)).unwrap();
        let netns = attached.interfaces()[0].netns_cookie;
        let to = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
        let workers = [(); 4].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for to in to.iter().cycle().take(usize::try_from(SENT).unwrap()) {
            for worker in &workers {
                // An error is the answer to an earlier one.
                while worker.send_to(&[0; 58], to).is_err() {}
            }
        }
        attached.turn_senders(1).unwrap();
        let round = sent_in(netns, &mut attached, 1);
        assert_eq!(round.uncounted.packets, 0);
        let ports = workers.map(|worker| worker.local_addr().unwrap().port());
        let mut exact = 0;
        for (key, counts) in &round.counts {
            let ends = counts.iter().find(|count| count.protocol != 0).unwrap();
            if !ports.contains(&ends.source_port) {
                continue;
            }
            let sent = if key.flow == 0 { SENT } else { SENT / 2 };
            let told = told(&round, |other| other == key);
            // Twice as far as 95 of 100 estimates are off.
            let most = 4 * told.squares.isqrt();
            assert!(told.bytes.abs_diff(sent * 100) <= most, "{told:?}");
            assert!(key.flow == 0 || told.squares > 0, "{told:?}");
            exact += u32::from(key.flow == 0 && told.squares == 0);
        }
        // Two may have the same place by chance.
        assert!(exact >= 2, "{exact}");
    });
}

#[test]
fn senders_that_find_no_room_are_counted_together() {
    const SOCKETS: usize = 2 * probe_wire::MOST_SENT;
    const EACH: u64 = 30;
    need_root!();
    let _turn = in_turn();
    in_new_netns(|lo| {
        let mut attached = load(&counting(lo)).unwrap();
        let netns = attached.interfaces()[0].netns_cookie;
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let wanted = rustix::process::Rlimit { current: files.maximum, ..files };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted).unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sockets: Vec<_> = (0..SOCKETS).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        for socket in &sockets {
            socket.connect(to.local_addr().unwrap()).unwrap();
        }
        for _ in 0..EACH {
            for socket in &sockets {
                socket.send(&[0; 58]).unwrap();
            }
        }
        attached.turn_senders(1).unwrap();
        let round = sent_in(netns, &mut attached, 1);
        let sent = SOCKETS as u64 * EACH;
        assert!(round.uncounted.packets > sent / 10, "{:?}", round.uncounted);
        let counted = told(&round, |key| key.flow == 0).packets + round.uncounted.packets;
        assert!(counted.abs_diff(sent) < sent / 50, "{counted} of {sent}");
    });
}
