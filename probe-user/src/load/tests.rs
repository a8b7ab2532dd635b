//! The programs on the running kernel. They need root, and send packets only on the loopback of
//! network namespaces that they make.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    io::{self, Read as _, Seek as _, Write as _},
    net::UdpSocket,
    os::fd::AsRawFd as _,
    path::PathBuf,
    process,
    sync::atomic::AtomicU32,
    sync::mpsc,
    time::{Duration, Instant},
};

use aya::programs::{SchedClassifier, TcAttachType, tc};
use probe_wire::{
    BackendRxBody, BlockRequestBody, CALL_FAULT, DIRTIED_FOLIOS, DirtiedBody, DropBody, EventHeader, EventKind,
    FileWaitBody, FutexWaitBody, Interrupt, LOCK_MUTEX, LockSpinBody, NeighbourBody, OtherCallBody, PacketBody,
    Pattern, QdiscBody, ROLE_REPLY, ROLE_REQUEST, RanBody, ReclaimBody, Rule, SockCallBody, SockEnqueueBody,
    SwitchInBody, SwitchOutBody, WakingBody, XmitBody,
};
use rustix::ioctl::{Setter, ioctl};
use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};
use zerocopy::FromBytes;

use super::{Attached, Attachment, LoadError, Netns, Outcome, Request, load, netlink, object};
use crate::{
    hooks::{Attach, HOOKS},
    kernel::btf::KernelBtf,
};

const PORT: u16 = 4000;
const PACKET_PROGRAMS: [&str; 4] = ["stamp_ingress", "stamp_egress", "stamp_in_ip", "stamp_out_ip"];

/// Says why and ends the test when it cannot run here.
macro_rules! need_root {
    () => {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: attaching programs needs root");
            return;
        }
    };
}

mod senders;
mod softirq;
mod stacks;

/// A UDP signature: four bytes and a nonce of eight.
fn rule() -> Rule {
    let mut pattern = Pattern { min_len: 12, max_len: u16::MAX, nonce_offset: 4, ..Pattern::default() };
    pattern.fields[0].bytes[..4].copy_from_slice(b"HCHK");
    pattern.fields[0].mask[..4].fill(0xff);
    pattern.fields[0].len = 4;
    Rule { request: pattern, reply: pattern, port: PORT, protocol: 17, nonce_len: 8, symmetric: 1, ..Rule::default() }
}

/// Only the packet hooks, so that nothing else on this host emits.
fn packets_only() -> Request {
    let excluded = HOOKS.iter().map(|hook| hook.name).filter(|name| !name.starts_with("packet_"));
    Request { rules: vec![rule()], excluded: excluded.map(str::to_owned).collect(), ..Request::default() }
}

/// A frame with a check in it.
fn check() -> Vec<u8> {
    let payload = b"HCHK\x01\x02\x03\x04\x05\x06\x07\x08and more";
    let udp_len = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
    let len = u16::try_from(28 + payload.len()).unwrap().to_be_bytes();
    let ip = [0x45, 0, len[0], len[1], 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let port = PORT.to_be_bytes();
    let udp = [0x30, 0x39, port[0], port[1], udp_len[0], udp_len[1], 0, 0];
    [[2; 12].as_slice(), &[8, 0], &ip, &udp, payload].concat()
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [[2; 12].as_slice(), &[0x86, 0xdd, 0x60, 0, 0, 0, len[0], len[1], next, 64], &[9; 32], payload].concat()
}

fn tagged(tag: [u8; 2], frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &tag, &[0, 5], &frame[12..]].concat()
}

/// A frame inside UDP to this port, behind a tunnel header.
fn tunnelled(port: u16, header: [u8; 8], inner: &[u8]) -> Vec<u8> {
    let mut outer = check();
    outer.truncate(14 + 28);
    outer[36..38].copy_from_slice(&port.to_be_bytes());
    [outer.as_slice(), &header, inner].concat()
}

/// What a host sees, and what it should never see.
fn frames() -> Vec<Vec<u8>> {
    let check = check();
    let vxlan = tunnelled(4789, [8, 0, 0, 0, 0, 0, 1, 0], &check);
    let geneve = tunnelled(6081, [0, 0, 0x65, 0x58, 0, 0, 1, 0], &check);
    let mut frames = vec![
        vec![0xff; 15],
        [[0xff; 12].as_slice(), &[8, 6], &[1; 46]].concat(),
        tagged([0x81, 0], &check),
        tagged([0x88, 0xa8], &tagged([0x81, 0], &check)),
        ipv6(17, &check[34..]),
        ipv6(0, &[[17, 0, 1, 4, 0, 0, 0, 0].as_slice(), &check[34..]].concat()),
        ipv6(58, &[128, 0, 0, 0, 0, 1, 0, 1, 7]),
        vxlan,
        geneve,
        [check.as_slice(), &[0; 2000]].concat(),
    ];
    frames.extend((15..check.len()).map(|len| check[..len].to_vec()));
    frames.push(check);
    frames
}

/// Changes some bytes, the same ones each time; none for seed 0.
fn mutated(frame: &[u8], seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut frame = frame.to_vec();
    for _ in 0..seed.min(next() % 5) {
        let at = usize::try_from(next()).unwrap() % frame.len();
        frame[at] = next().to_le_bytes()[0];
    }
    frame
}

/// Newer kernels refuse to test-run frames whose IP header is cut; every other must run.
#[test]
fn packet_programs_pass_every_frame_on_unchanged() {
    need_root!();
    let mut attached = load(&packets_only()).unwrap();
    let (mut runs, mut refused) = (0, 0);
    for frame in frames() {
        for seed in 0..20 {
            let frame = mutated(&frame, seed);
            for program in PACKET_PROGRAMS {
                let Ok(run) = attached.dry_run(program, &frame, 1) else {
                    refused += 1;
                    continue;
                };
                assert_eq!(run.verdict, -1, "{program} on {frame:02x?}");
                assert_eq!(run.frame, frame, "{program} changed the frame");
                runs += 1;
            }
        }
    }
    println!("{runs} runs, {refused} refused");
    assert!(runs > 2 * refused);
}

/// Every record, by kind, and the sequence numbers of each CPU.
#[derive(Default)]
struct Received {
    kinds: BTreeMap<u16, u64>,
    seqs: BTreeMap<usize, Vec<u64>>,
}

impl Received {
    fn take(&mut self, cpu: usize, record: &[u8]) {
        let (header, body) = EventHeader::read_from_prefix(record).unwrap();
        assert_eq!(usize::from(header.body_len), body.len());
        assert_eq!(usize::try_from(header.cpu).unwrap(), cpu);
        *self.kinds.entry(header.kind).or_default() += 1;
        self.seqs.entry(cpu).or_default().push(header.seq);
    }

    /// Numbers that are missing below the highest of each CPU.
    fn gaps(&self) -> u64 {
        let missing = |seqs: &Vec<u64>| {
            let distinct: HashSet<u64> = seqs.iter().copied().collect();
            assert_eq!(distinct.len(), seqs.len(), "a number came twice");
            seqs.iter().max().unwrap() - seqs.len() as u64
        };
        self.seqs.values().map(missing).sum()
    }
}

#[test]
fn what_a_full_ring_loses_is_counted_and_shows_as_gaps() {
    need_root!();
    let mut attached = load(&Request { ring_bytes: 4096, ..packets_only() }).unwrap();
    let mut rings = attached.take_rings().unwrap();
    let mut received = Received::default();
    for round in 1..200 {
        attached.dry_run("stamp_ingress", &check(), round).unwrap();
        attached.dry_run("stamp_egress", &check(), 3).unwrap();
        rings.drain(20, |cpu, record| received.take(cpu, record));
    }
    while rings.drain(usize::MAX, |cpu, record| received.take(cpu, record)).records > 0 {}
    // Room again: one last record on each CPU closes the last gap, unless the CPU emitted none.
    let (mut emitted, mut lost) = (0, 0);
    for loss in attached.losses().unwrap() {
        emitted += loss.row.emitted;
        lost += loss.row.lost;
    }
    let total: u64 = received.kinds.values().sum();
    println!("emitted {emitted}, received {total}, lost {lost}");
    assert!(lost > 1000 && total > 100);
    assert_eq!(total + lost, emitted);
    let tail: u64 = emitted - received.seqs.values().filter_map(|seqs| seqs.iter().max()).sum::<u64>();
    assert_eq!(received.gaps() + tail, lost);
}

/// Runs a test in a network namespace of its own, with its loopback up.
fn in_new_netns(test: impl FnOnce(&Attachment) + Send) {
    std::thread::scope(|scope| {
        let run = || {
            // SAFETY: the thread has no file descriptors or memory that depend on the namespace.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            // SAFETY: a request to the kernel about an interface that exists.
            unsafe { aya::netlink_set_link_up(1) }.unwrap();
            let path = format!("/proc/{}/task/{}/ns/net", process::id(), gettid());
            let netns = Some(Netns::Path(PathBuf::from(path)));
            test(&Attachment { netns, ifindex: 1, name: "lo".into() });
        };
        scope.spawn(run).join().unwrap();
    });
}

fn tcx_programs() -> usize {
    [TcAttachType::Ingress, TcAttachType::Egress]
        .map(|side| SchedClassifier::query_tcx("lo", side).unwrap().1.len())
        .iter()
        .sum()
}

fn has_clsact() -> bool {
    let added = tc::qdisc_add_clsact("lo");
    if added.is_ok() {
        netlink::remove_clsact(1).unwrap();
    }
    added.is_err()
}

fn clsact_request(lo: &Attachment) -> Request {
    let interfaces = vec![lo.clone()];
    Request { interfaces, avoided: vec!["tcx".into()], ..packets_only() }
}

#[test]
fn tcx_links_are_there_and_then_gone() {
    need_root!();
    in_new_netns(|lo| {
        let begun = Instant::now();
        let mut attached = load(&Request { interfaces: vec![lo.clone()], ..packets_only() }).unwrap();
        println!("attached in {:?}", begun.elapsed());
        assert_eq!(tcx_programs(), 2);
        assert!(attached.detach_interface(lo));
        assert_eq!(tcx_programs(), 0);
        assert!(!attached.detach_interface(lo));
        attached.attach_interface(lo).unwrap();
        assert_eq!(tcx_programs(), 2);
        let begun = Instant::now();
        drop(attached);
        println!("detached in {:?}", begun.elapsed());
        assert_eq!(tcx_programs(), 0);
    });
}

#[test]
fn clsact_is_removed_only_by_who_added_it_and_only_when_empty() {
    need_root!();
    in_new_netns(|lo| {
        assert!(!has_clsact());
        let attached = load(&clsact_request(lo)).unwrap();
        assert_eq!(attached.interfaces()[0].attach, "clsact");
        assert!(netlink::has_filters(1).unwrap());
        drop(attached);
        assert!(!has_clsact(), "the one that was added is gone");

        tc::qdisc_add_clsact("lo").unwrap();
        drop(load(&clsact_request(lo)).unwrap());
        assert!(has_clsact(), "a foreign one stays");
        assert!(!netlink::has_filters(1).unwrap());
        netlink::remove_clsact(1).unwrap();

        let first = load(&clsact_request(lo)).unwrap();
        let second = load(&clsact_request(lo)).unwrap();
        drop(first);
        assert!(netlink::has_filters(1).unwrap(), "another's filters stay");
        drop(second);
        assert!(!netlink::has_filters(1).unwrap());
    });
}

#[test]
fn interfaces_of_one_index_in_two_namespaces_have_filters_of_their_own() {
    need_root!();
    in_new_netns(|one| {
        in_new_netns(|other| {
            let interfaces = vec![one.clone(), other.clone()];
            let mut attached = load(&Request { interfaces, ..clsact_request(one) }).unwrap();
            assert!(netlink::has_filters(1).unwrap());
            assert!(attached.detach_interface(one));
            assert!(netlink::has_filters(1).unwrap(), "the other's filters stay");
            assert!(attached.detach_interface(other));
            assert!(!has_clsact());
        });
    });
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    need_root!();
    in_new_netns(|lo| {
        let missing = Attachment { ifindex: 4711, name: "eth9".into(), ..lo.clone() };
        let error = load(&Request { interfaces: vec![missing], ..packets_only() }).unwrap_err();
        assert!(matches!(&error, LoadError::Interface { name, .. } if name == "eth9"), "{error}");
        let gone = Netns::Path("/nonexistent".into());
        let missing = Attachment { netns: Some(gone), ..lo.clone() };
        let error = load(&Request { interfaces: vec![missing], ..packets_only() }).unwrap_err();
        assert!(matches!(error, LoadError::Netns { .. }), "{error}");
    });
}

#[test]
fn a_required_hook_that_is_ruled_out_is_an_error_with_a_fix() {
    need_root!();
    let avoided = vec!["tcx".into(), "clsact".into()];
    let error = load(&Request { avoided, ..packets_only() }).unwrap_err();
    let LoadError::Refused(refusal) = error else { panic!("{error}") };
    assert_eq!(refusal.hook, "packet_ingress");
    assert!(!refusal.fix.is_empty());
}

#[test]
fn every_hook_attaches_to_a_kernel_that_has_its_tracepoint() {
    need_root!();
    let attached = load(&Request { rules: vec![rule()], ..Request::default() }).unwrap();
    assert_eq!(attached.hooks().len(), HOOKS.len());
    for state in attached.hooks() {
        println!("{}: {:?}", state.hook.name, state.outcome);
        if let Outcome::Refused(refusal) = &state.outcome {
            assert!(refusal.reason.contains("has no tracepoint"), "{refusal}");
        }
    }
    // Where the count is kept with the CPU's variables it is not in the task, and the reverse.
    let beside = if cfg!(target_arch = "x86_64") { "task_preempt_count" } else { "percpu_preempt_count" };
    // Whether the run queue accounts steal and interrupts is the kernel's configuration.
    let accounts = |field: &&&str| field.starts_with("rq_prev_");
    let missing: Vec<_> = attached.missing_fields().iter().filter(|field| !accounts(field)).copied().collect();
    assert_eq!(missing, [beside]);
    assert!(attached.skipped_runs().iter().all(|(_, runs)| *runs == 0));
    for (program, instructions) in attached.verified_instructions() {
        assert!(instructions < 500_000, "{program} needs {instructions} verified instructions");
    }
}

#[test]
fn every_program_of_the_table_is_in_the_object() {
    need_root!();
    let attached = load(&packets_only()).unwrap();
    for choice in HOOKS.iter().flat_map(|hook| hook.choices) {
        assert!(attached.ebpf.program(choice.program).is_some(), "{}", choice.program);
        assert!(choice.program.len() <= 15, "the kernel cuts the name {}", choice.program);
    }
}

#[test]
fn a_process_number_that_cannot_be_is_refused() {
    need_root!();
    let mut attached = load(&packets_only()).unwrap();
    for tgid in [0, 4 << 20, u32::MAX] {
        assert!(matches!(attached.watch_tgid(tgid), Err(LoadError::NoSuchProcess { .. })));
    }
    attached.watch_tgid(1).unwrap();
    attached.unwatch_tgid(1).unwrap();
}

/// A record, kept.
#[derive(Debug, Clone)]
struct Kept {
    kind: EventKind,
    header: EventHeader,
    body: Vec<u8>,
}

impl Kept {
    fn body<B: FromBytes>(&self) -> B {
        B::read_from_bytes(&self.body).unwrap()
    }
}

/// Drains until the records satisfy `enough`.
fn collect(attached: &mut Attached, enough: impl Fn(&[Kept]) -> bool) -> Vec<Kept> {
    let mut rings = attached.take_rings().unwrap();
    let mut kept = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !enough(&kept) {
        assert!(Instant::now() < deadline, "not all came: {kept:#?}");
        let keep = |_, record: &[u8]| {
            let (header, body) = EventHeader::read_from_prefix(record).unwrap();
            let kind = EventKind::try_from(header.kind).unwrap();
            kept.push(Kept { kind, header, body: body.to_vec() });
        };
        rings.poll(Duration::from_millis(10), usize::MAX, keep).unwrap();
    }
    kept.sort_by_key(|record| (record.header.time_ns, record.header.seq));
    kept
}

/// A check over the namespace's loopback: sent, answered, answer read.
fn exchange() -> io::Result<()> {
    let server = UdpSocket::bind(("127.0.0.1", PORT))?;
    let client = UdpSocket::bind(("127.0.0.1", 0))?;
    client.send_to(b"HCHK\x01\x02\x03\x04\x05\x06\x07\x08", ("127.0.0.1", PORT))?;
    let mut buffer = [0; 64];
    let (len, from) = server.recv_from(&mut buffer)?;
    server.send_to(&buffer[..len], from)?;
    client.recv_from(&mut buffer).map(drop)
}

fn find(kept: &[Kept], kind: EventKind) -> Vec<&Kept> {
    kept.iter().filter(|record| record.kind == kind).collect()
}

fn bodies<B: FromBytes>(kept: &[Kept], kind: EventKind) -> impl Iterator<Item = B> {
    find(kept, kind).into_iter().map(Kept::body)
}

fn assert_one_exchange(kept: &[Kept], lo: &Attached) {
    let netns = lo.interfaces()[0].netns_cookie;
    let [out, back] = find(kept, EventKind::PacketEgress)[..] else { panic!("{kept:#?}") };
    let [arrived, returned] = find(kept, EventKind::PacketIngress)[..] else { panic!("{kept:#?}") };
    for (record, role) in [(out, ROLE_REQUEST), (arrived, ROLE_REQUEST), (back, ROLE_REPLY), (returned, ROLE_REPLY)] {
        let packet: PacketBody = record.body();
        assert_eq!((packet.netns, packet.ifindex), (netns, 1));
        assert_eq!(packet.sighting.role, role);
        assert_eq!(packet.sighting.nonce[..9], [1, 2, 3, 4, 5, 6, 7, 8, 0]);
        assert_eq!((packet.frame_len, packet.sighting.payload_len), (54, 12));
    }
    let skb = arrived.body::<PacketBody>().skb;
    assert_eq!(out.body::<PacketBody>().skb, skb, "loopback keeps the packet");
    let xmits = find(kept, EventKind::Xmit);
    assert!(xmits.iter().any(|xmit| xmit.body::<XmitBody>().skb == skb));
    let enqueue: SockEnqueueBody = find(kept, EventKind::SockEnqueue)[0].body();
    assert_eq!((enqueue.skb, enqueue.packet_seq), (skb, arrived.header.seq));
    assert_eq!((enqueue.local_port, enqueue.protocol), (u32::from(PORT), 17));
    assert!(enqueue.receive_bytes > 0 && enqueue.receive_bytes < enqueue.receive_limit_bytes);
    let read = find(kept, EventKind::SockRead)[0];
    assert_eq!(read.body::<SockCallBody>().socket, enqueue.socket);
    assert_eq!(read.body::<SockCallBody>().result, 12);
    assert_eq!((read.header.tgid, read.header.tid), (process::id(), gettid().as_raw_nonzero().get().unsigned_abs()));
    assert_eq!(find(kept, EventKind::SockSend).len(), 2, "the client's first call is known too");
}

fn exchange_is_seen(request: Request, lo: &Attachment) {
    let interfaces = vec![lo.clone()];
    let mut attached = load(&Request { interfaces, rules: vec![rule()], ..request }).unwrap();
    let has = |name: &str| {
        let state = attached.hooks().iter().find(|state| state.hook.name == name);
        matches!(state.unwrap().outcome, Outcome::Attached(_))
    };
    if !has("sk_data_ready") {
        println!("skipped: this kernel has no socket tracepoints");
        return;
    }
    exchange().unwrap();
    let mine = |kept: &[Kept]| find(kept, EventKind::SockRead).len() >= 2;
    let kept = collect(&mut attached, mine);
    assert_one_exchange(&kept, &attached);
}

#[test]
fn programs_of_others_before_and_after_ours_see_their_packets_and_stay() {
    need_root!();
    in_new_netns(|lo| {
        let request = || Request { interfaces: vec![lo.clone()], rules: vec![rule()], ..packets_only() };
        let packets = |attached: &mut Attached| {
            let both_ways =
                |kept: &[Kept]| kept.iter().filter(|record| record.kind == EventKind::PacketIngress).count();
            collect(attached, |kept| both_ways(kept) >= 2).len()
        };
        let mut behind = load(&request()).unwrap();
        let mut ours = load(&request()).unwrap();
        let mut before = load(&request()).unwrap();
        assert_eq!(tcx_programs(), 6);
        exchange().unwrap();
        assert_eq!([&mut behind, &mut ours, &mut before].map(packets), [4; 3]);
        drop(ours);
        assert_eq!(tcx_programs(), 4);
        exchange().unwrap();
    });
}

#[test]
fn an_exchange_is_seen_from_end_to_end() {
    need_root!();
    in_new_netns(|lo| exchange_is_seen(Request::default(), lo));
}

#[test]
fn an_exchange_is_seen_through_clsact_too() {
    need_root!();
    in_new_netns(|lo| {
        exchange_is_seen(Request { avoided: vec!["tcx".into()], ..Request::default() }, lo);
    });
}

/// Sends a check over the namespace's loopback.
fn send_check() {
    let client = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let check = b"HCHK\x01\x02\x03\x04\x05\x06\x07\x08";
    client.send_to(check, ("127.0.0.1", PORT)).unwrap();
}

#[test]
fn a_check_for_a_closed_port_is_a_drop_with_its_reason() {
    need_root!();
    in_new_netns(|lo| {
        let interfaces = vec![lo.clone()];
        let rules = vec![rule()];
        let mut attached = load(&Request { interfaces, rules, ..Request::default() }).unwrap();
        let netns = attached.interfaces()[0].netns_cookie;
        let drop = |kept: &[Kept]| {
            // Drops are reported of every namespace, and other tests run meanwhile.
            let mut drops = find(kept, EventKind::Drop).into_iter().map(Kept::body::<DropBody>);
            drops.find(|drop| drop.netns == netns)
        };
        send_check();
        let kept = collect(&mut attached, |kept| drop(kept).is_some());
        let drop = drop(&kept).unwrap();
        let arrived: PacketBody = find(&kept, EventKind::PacketIngress)[0].body();
        assert_eq!((drop.skb, drop.netns, drop.ifindex), (arrived.skb, arrived.netns, 1));
        assert_eq!((drop.signature_known, drop.sighting), (1, arrived.sighting));
        let reason = attached.drop_reasons().iter().find(|(value, _)| *value == drop.reason);
        // Kernels before 5.17 give none.
        assert!(reason.is_none_or(|(_, name)| name == "NO_SOCKET"), "{reason:?}");
    });
}

#[test]
fn a_check_that_passes_a_shaper_is_seen_entering_and_leaving_it() {
    need_root!();
    in_new_netns(|lo| {
        let shaper = "qdisc add dev lo root handle 7: tbf rate 1mbit burst 2000 limit 6000";
        match process::Command::new("tc").args(shaper.split(' ')).status() {
            Ok(status) if status.success() => {}
            other => return println!("skipped: tc has no tbf here: {other:?}"),
        }
        let interfaces = vec![lo.clone()];
        let rules = vec![rule()];
        let mut attached = load(&Request { interfaces, rules, ..Request::default() }).unwrap();
        send_check();
        let kept = collect(&mut attached, |kept| !find(kept, EventKind::Xmit).is_empty());
        let skb = find(&kept, EventKind::PacketEgress)[0].body::<PacketBody>().skb;
        let entered: QdiscBody = find(&kept, EventKind::QdiscEnqueue)[0].body();
        let left: QdiscBody = find(&kept, EventKind::QdiscDequeue)[0].body();
        for seen in [entered, left] {
            assert_eq!((seen.skb, seen.ifindex, seen.handle), (skb, 1, 7 << 16));
            assert_eq!(seen.kind, *b"tbf\0\0\0\0\0\0\0\0\0\0\0\0\0");
        }
        assert_eq!((entered.queue_len, entered.backlog_bytes), (1, 54));
        assert_eq!((left.queue_len, left.backlog_bytes), (0, 0));
    });
}

/// As when the kernel hands a packet on by a way on which no program runs: nobody takes back that it is
/// followed, and the next packet lies where it was.
#[test]
fn a_packet_at_the_address_of_one_that_was_followed_is_not_taken_for_it() {
    need_root!();
    in_new_netns(|lo| {
        let shaper = "qdisc add dev lo root handle 7: tbf rate 1gbit burst 100000 limit 1000000";
        match process::Command::new("tc").args(shaper.split(' ')).status() {
            Ok(status) if status.success() => {}
            other => return println!("skipped: tc has no tbf here: {other:?}"),
        }
        let interfaces = vec![lo.clone()];
        let excluded = ["net_dev_start_xmit", "qdisc_dequeue", "kfree_skb"].map(str::to_owned).to_vec();
        let mut attached = load(&Request { interfaces, rules: vec![rule()], excluded, ..Request::default() }).unwrap();
        let receiver = UdpSocket::bind(("127.0.0.1", PORT)).unwrap();
        let stranger = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let client = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let mut buffer = [0; 64];
        send_check();
        receiver.recv(&mut buffer).unwrap();
        for _ in 0..1_000 {
            client.send_to(&[0; 12], stranger.local_addr().unwrap()).unwrap();
            stranger.recv(&mut buffer).unwrap();
        }
        send_check();
        let kept = collect(&mut attached, |kept| find(kept, EventKind::QdiscEnqueue).len() >= 2);
        let left: Vec<u64> = bodies(&kept, EventKind::PacketEgress).map(|body: PacketBody| body.skb).collect();
        let entered: Vec<u64> = bodies(&kept, EventKind::QdiscEnqueue).map(|body: QdiscBody| body.skb).collect();
        assert_eq!(left, entered, "one of the strangers was taken for a check");
    });
}

/// `struct ifreq` as `TUNSETIFF` reads it.
#[repr(C)]
struct TunRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// A tap in the current namespace that is up, has 10.9.9.1, and knows 10.9.9.2.
fn make_tap() -> Option<(fs::File, Attachment)> {
    const TUNSETIFF: u32 = 0x4004_54ca;
    const IFF_TAP_NO_PI: u16 = 0x1002;
    let tun = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").ok()?;
    let mut request = TunRequest { name: [0; 16], flags: IFF_TAP_NO_PI, rest: [0; 22] };
    request.name[..4].copy_from_slice(b"tap0");
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which `TunRequest` has the size and layout of.
    unsafe { ioctl(&tun, Setter::<TUNSETIFF, TunRequest>::new(request)) }.ok()?;
    for command in [
        "link set tap0 up",
        "addr add 10.9.9.1/24 dev tap0",
        "neigh add 10.9.9.2 dev tap0 lladdr 02:00:00:00:00:02 nud permanent",
    ] {
        ip(command);
    }
    let socket = UdpSocket::bind(("10.9.9.1", 0)).unwrap();
    let ifindex = rustix::net::netdevice::name_to_index(&socket, "tap0").unwrap();
    Some((tun, Attachment { netns: None, ifindex, name: "tap0".into() }))
}

fn hook_of_the_ring(attached: &Attached) -> &Outcome {
    &attached.hooks().iter().find(|state| state.hook.name == "consume_skb").unwrap().outcome
}

/// A check that lies in the ring of a tap until this thread reads it.
fn taken_off_a_tap(lo: &Attachment) {
    let Some((mut tun, tap)) = make_tap() else {
        return println!("skipped: there are no taps here");
    };
    let interfaces = vec![lo.clone()];
    let mut attached = load(&Request { interfaces, rules: vec![rule()], ..Request::default() }).unwrap();
    assert!(matches!(hook_of_the_ring(&attached), Outcome::Waiting(_)), "no tap, no cost");
    attached.attach_interface(&tap).unwrap();
    assert!(matches!(hook_of_the_ring(&attached), Outcome::Attached(_)));
    let client = UdpSocket::bind(("10.9.9.1", 0)).unwrap();
    client.send_to(b"HCHK\x01\x02\x03\x04\x05\x06\x07\x08", ("10.9.9.2", PORT)).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    let mut frame = [0; 2048];
    // What the kernel itself says through a new interface comes first.
    while !frame.starts_with(&[2, 0, 0, 0, 0, 2]) {
        assert!(tun.read(&mut frame).unwrap() > 0);
    }
    let kept = collect(&mut attached, |kept| !find(kept, EventKind::BackendRx).is_empty());
    let out = find(&kept, EventKind::PacketEgress)[0];
    let [taken] = find(&kept, EventKind::BackendRx)[..] else { panic!("{kept:#?}") };
    let (packet, body): (PacketBody, BackendRxBody) = (out.body(), taken.body());
    assert_eq!((body.skb, body.netns, body.ifindex), (packet.skb, packet.netns, tap.ifindex));
    assert!(body.location >> 63 == 1, "this kernel tells the place");
    assert!(taken.header.time_ns - out.header.time_ns >= 30_000_000);
    assert_eq!((taken.header.tgid, taken.header.tid), (process::id(), gettid().as_raw_nonzero().get().unsigned_abs()));
}

/// A check that comes in through a macvtap and lies in its ring until this thread reads it.
fn taken_off_a_macvtap(lo: &Attachment) {
    let index = process::id();
    ip("link add v0 type veth peer name v1");
    let add = format!("link add link v0 name vm0 index {index} address 02:00:00:00:00:02 type macvtap");
    if !process::Command::new("ip").args(add.split(' ')).status().unwrap().success() {
        return println!("skipped: there are no macvtaps here");
    }
    let mut file = fs::OpenOptions::new().read(true).write(true).open(format!("/dev/tap{index}")).unwrap();
    ["v0", "v1", "vm0"].iter().for_each(|name| ip(&format!("link set {name} up")));
    ip("addr add 10.9.9.1/24 dev v1");
    ip("neigh add 10.9.9.2 dev v1 lladdr 02:00:00:00:00:02 nud permanent");
    let interfaces = vec![lo.clone()];
    let mut attached = load(&Request { interfaces, rules: vec![rule()], ..Request::default() }).unwrap();
    attached.attach_interface(&Attachment { netns: None, ifindex: index, name: "vm0".into() }).unwrap();
    assert!(matches!(hook_of_the_ring(&attached), Outcome::Attached(_)));
    let client = UdpSocket::bind(("10.9.9.1", 0)).unwrap();
    client.send_to(b"HCHK\x01\x02\x03\x04\x05\x06\x07\x08", ("10.9.9.2", PORT)).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    let mut frame = [0; 2048];
    // Behind a header for virtio; other frames may come first.
    while !frame[10..].starts_with(&[2, 0, 0, 0, 0, 2]) {
        assert!(file.read(&mut frame).unwrap() > 0);
    }
    let kept = collect(&mut attached, |kept| !find(kept, EventKind::BackendRx).is_empty());
    let came = find(&kept, EventKind::PacketIngress)[0];
    let [taken] = find(&kept, EventKind::BackendRx)[..] else { panic!("{kept:#?}") };
    let (packet, body): (PacketBody, BackendRxBody) = (came.body(), taken.body());
    assert_eq!((body.skb, body.netns, body.ifindex, packet.ifindex), (packet.skb, packet.netns, index, index));
    assert!(taken.header.time_ns - came.header.time_ns >= 30_000_000);
    assert_eq!((taken.header.softirq, taken.header.tgid), (0, process::id()));
}

#[test]
fn a_check_is_seen_leaving_the_ring_of_a_macvtap() {
    need_root!();
    in_new_netns(taken_off_a_macvtap);
}

fn ip(command: &str) {
    assert!(process::Command::new("ip").args(command.split(' ')).status().unwrap().success(), "{command}");
}

/// A check that waits for its neighbour, and a neighbour for which nothing waits.
fn waits_for_a_neighbour(_lo: &Attachment) {
    let Some((_tun, tap)) = make_tap() else {
        return println!("skipped: there are no taps here");
    };
    let interfaces = vec![tap.clone()];
    let mut attached = load(&Request { interfaces, rules: vec![rule()], ..Request::default() }).unwrap();
    let client = UdpSocket::bind(("10.9.9.1", 0)).unwrap();
    ip("neigh del 10.9.9.2 dev tap0");
    client.send_to(b"HCHK\x01\x02\x03\x04\x05\x06\x07\x08", ("10.9.9.2", PORT)).unwrap();
    ip("neigh add 10.9.9.3 dev tap0 lladdr 02:00:00:00:00:03 nud permanent");
    ip("neigh replace 10.9.9.2 dev tap0 lladdr 02:00:00:00:00:02 nud permanent");
    let kept = collect(&mut attached, |kept| !find(kept, EventKind::PacketEgress).is_empty());
    let out = find(&kept, EventKind::PacketEgress)[0];
    let here = |record: &&Kept| record.body::<NeighbourBody>().netns == out.body::<PacketBody>().netns;
    let known: Vec<_> = find(&kept, EventKind::Neighbour).into_iter().filter(here).collect();
    let [known] = known[..] else { panic!("{kept:#?}") };
    assert_eq!((known.body::<NeighbourBody>().ifindex, known.body::<NeighbourBody>().state), (tap.ifindex, 0x80));
    assert!(known.header.time_ns <= out.header.time_ns, "the packet goes on when the neighbour is known");
}

#[test]
fn a_neighbour_is_told_when_packets_waited_for_it() {
    need_root!();
    in_new_netns(waits_for_a_neighbour);
}

#[test]
fn a_check_is_seen_leaving_the_ring_of_a_tap_that_came_later() {
    need_root!();
    in_new_netns(taken_off_a_tap);
}

#[test]
fn programs_for_older_kernels_load_too() {
    need_root!();
    let mut attached = load(&packets_only()).unwrap();
    let kernel = KernelBtf::of_running_kernel().unwrap();
    let types = aya::Btf::from_sys_fs().unwrap();
    for choice in HOOKS.iter().flat_map(|hook| hook.choices) {
        if let Attach::BtfTracepoint { tracepoint, .. } | Attach::TailCall { tracepoint, .. } = choice.attach
            && kernel.tracepoint_arguments(tracepoint).is_some()
        {
            object::load_tracepoint(&mut attached.ebpf, choice, tracepoint, &types).unwrap();
            object::attach_tracepoint(&mut attached.ebpf, choice).unwrap();
        }
    }
}

/// The kernel makes an Ethernet frame of whatever a test hands in. A datagram from 8.0.0.1 has
/// IPv4's type where that frame would have it.
#[test]
fn a_check_without_a_link_header_is_recognised() {
    need_root!();
    let mut datagram = check().split_off(14);
    datagram[12..16].copy_from_slice(&[8, 0, 0, 1]);
    let mut attached = load(&packets_only()).unwrap();
    attached.dry_run("stamp_in_ip", &datagram, 1).unwrap();
    attached.dry_run("stamp_out_ip", &datagram, 1).unwrap();
    let kept = collect(&mut attached, |kept| kept.len() == 2);
    for (record, kind) in kept.iter().zip([EventKind::PacketIngress, EventKind::PacketEgress]) {
        let packet: PacketBody = record.body();
        assert_eq!(record.kind, kind);
        assert_eq!(packet.sighting.nonce[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(packet.frame_len as usize, datagram.len());
    }
}

#[test]
fn a_watched_thread_that_sleeps_leaves_with_its_stack_and_comes_back() {
    need_root!();
    let watched_tgids = vec![process::id()];
    let mut attached = load(&Request { watched_tgids, ..Request::default() }).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let tid = gettid().as_raw_nonzero().get().unsigned_abs();
    let left = |kept: &[Kept]| {
        let mut switches = find(kept, EventKind::SwitchOut).into_iter();
        switches.find(|record| record.header.tid == tid && record.body::<SwitchOutBody>().state & 1 == 1).cloned()
    };
    let came_back =
        |kept: &[Kept]| find(kept, EventKind::SwitchIn).iter().any(|record| record.body::<SwitchInBody>().tid == tid);
    let kept = collect(&mut attached, |kept| left(kept).is_some() && came_back(kept));
    let out: SwitchOutBody = left(&kept).unwrap().body();
    let frames = usize::try_from(out.stack_len).unwrap();
    assert!(frames >= 3, "{out:?}");
    assert!(out.stack[..frames].iter().all(|frame| *frame >> 63 == 1));
    assert!(out.stack[frames..].iter().all(|frame| *frame == 0));
    assert_eq!(out.preempted, 0);
}

/// A file's position has a mutex, which a long read holds on the CPU. Whoever asks for the position
/// meanwhile on another CPU spins for it.
#[test]
fn a_watched_thread_that_spins_for_a_mutex_tells_for_how_long_and_who_has_it() {
    need_root!();
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return println!("skipped: nobody spins on one CPU");
    }
    let mut attached = load(&Request { watched_tgids: vec![process::id()], ..Request::default() }).unwrap();
    let hook = attached.hooks().iter().find(|state| state.hook.name == "contention_begin").unwrap();
    if !matches!(hook.outcome, Outcome::Attached(_)) {
        return println!("skipped: {:?}", hook.outcome);
    }
    let hole = rustix::fs::memfd_create("hole", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    // Only what was opened by a name has the mutex.
    let file = fs::File::open(format!("/proc/self/fd/{}", hole.as_raw_fd())).unwrap();
    rustix::fs::ftruncate(&hole, 64 << 20).unwrap();
    let file = &file;
    let (tell, told) = mpsc::channel();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (mut reader, done) = (file, &done);
        scope.spawn(move || {
            tell.send(own_tid()).unwrap();
            let mut bytes = vec![0; 64 << 20];
            let deadline = Instant::now() + Duration::from_secs(12);
            while !done.load(std::sync::atomic::Ordering::Relaxed) && Instant::now() < deadline {
                reader.rewind().unwrap();
                reader.read_exact(&mut bytes).unwrap();
            }
        });
        let owner = told.recv().unwrap();
        let tid = own_tid();
        let spun = |kept: &[Kept]| {
            (&*file).stream_position().unwrap();
            let mut spins = find(kept, EventKind::LockSpin).into_iter();
            spins.find(|record| record.header.tid == tid && record.body::<LockSpinBody>().owner_tid == owner).cloned()
        };
        let record = spun(&collect(&mut attached, |kept| spun(kept).is_some())).unwrap();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let spin: LockSpinBody = record.body();
        assert!(spin.flags & LOCK_MUTEX != 0, "{spin:?}");
        assert_eq!(spin.owner_tgid, process::id());
        assert!(spin.spun_ns > 0 && spin.since_ns + spin.spun_ns <= record.header.time_ns, "{record:?}");
    });
}

/// While a watched thread waits for a CPU, whoever leaves that CPU is told, with how long it ran.
#[test]
fn whoever_runs_while_a_watched_thread_waits_for_its_cpu_is_told() {
    need_root!();
    let mut watched = process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut other = process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let cpu = pin_together([watched.id(), other.id()]);
    let (watched_tgid, other_tgid) = (watched.id(), other.id());
    let mut attached = load(&Request { watched_tgids: vec![watched_tgid], ..Request::default() }).unwrap();
    let ran = |kept: &[Kept]| {
        let runs = find(kept, EventKind::Ran).into_iter();
        runs.filter(|record| record.header.tid == other_tgid).cloned().collect::<Vec<_>>()
    };
    let kept = collect(&mut attached, |kept| ran(kept).len() >= 3);
    [&mut watched, &mut other].into_iter().for_each(|child| {
        child.kill().unwrap();
        child.wait().unwrap();
    });
    for record in ran(&kept) {
        let body: RanBody = record.body();
        assert_eq!((record.header.cpu, body.comm[..3].to_vec()), (cpu, b"sh\0".to_vec()));
        assert!(body.ran_ns < 10_000_000_000, "{body:?}");
    }
    let watched_runs = find(&kept, EventKind::Ran).into_iter().filter(|record| record.header.tid == watched_tgid);
    assert_eq!(watched_runs.count(), 0, "its own switches tell of it");
}

/// Leaves these processes one CPU.
fn pin_together(processes: [u32; 2]) -> u32 {
    let own = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|cpu| own.is_set(*cpu)).unwrap();
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    for id in processes {
        let id = rustix::process::Pid::from_raw(i32::try_from(id).unwrap());
        rustix::thread::sched_setaffinity(id, &set).unwrap();
    }
    u32::try_from(cpu).unwrap()
}

fn own_tid() -> u32 {
    gettid().as_raw_nonzero().get().unsigned_abs()
}

#[test]
fn a_wake_up_by_a_thread_is_told_from_one_by_a_timer() {
    need_root!();
    let mut attached = load(&Request { watched_tgids: vec![process::id()], ..Request::default() }).unwrap();
    let (go, wait) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        tell.send(own_tid()).unwrap();
        wait.recv().unwrap();
    });
    let (sleeper, waiting) = (own_tid(), told.recv().unwrap());
    std::thread::sleep(Duration::from_millis(20));
    go.send(()).unwrap();
    waiter.join().unwrap();
    let woken = |kept: &[Kept], tid| {
        let mut wakes = find(kept, EventKind::Waking).into_iter().cloned();
        wakes.rfind(|record| record.body::<WakingBody>().tid == tid)
    };
    let kept = collect(&mut attached, |kept| woken(kept, sleeper).is_some() && woken(kept, waiting).is_some());
    let by_thread = woken(&kept, waiting).unwrap().header;
    let interrupts: Vec<Interrupt> = find(&kept, EventKind::Waking)
        .into_iter()
        .filter(|record| record.body::<WakingBody>().tid == sleeper)
        .map(|record| Interrupt::new(record.header.interrupt))
        .collect();
    if interrupts.contains(&Interrupt::Unknown) {
        println!("skipped: the preempt count of this kernel cannot be read");
        return;
    }
    assert!(interrupts.contains(&Interrupt::Hard), "{kept:#?}");
    assert_eq!(Interrupt::new(by_thread.interrupt), Interrupt::None);
    assert_eq!(by_thread.tid, sleeper);
}

#[test]
fn a_watched_process_that_asks_another_service_is_seen() {
    need_root!();
    in_new_netns(|_| {
        let mut attached = load(&Request { watched_tgids: vec![process::id()], ..Request::default() }).unwrap();
        let service = UdpSocket::bind(("127.0.0.1", 53)).unwrap();
        let client = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        client.connect(service.local_addr().unwrap()).unwrap();
        client.send(b"who?").unwrap();
        let mut buffer = [0; 64];
        let (_, from) = service.recv_from(&mut buffer).unwrap();
        service.send_to(b"answer", from).unwrap();
        client.recv(&mut buffer).unwrap();
        let port = u32::from(from.port());
        let calls = |kept: &[Kept], kind| {
            let calls = find(kept, kind).into_iter().map(Kept::body::<OtherCallBody>);
            calls.filter(|call| call.local_port == port).collect::<Vec<_>>()
        };
        let kept = collect(&mut attached, |kept| !calls(kept, EventKind::OtherRead).is_empty());
        let (asked, heard) = (calls(&kept, EventKind::OtherSend)[0], calls(&kept, EventKind::OtherRead)[0]);
        assert_eq!((asked.socket, asked.result, heard.result), (heard.socket, 4, 6));
        assert_eq!((asked.remote_port, asked.protocol, asked.family), (53, 17, 2));
        assert!(find(&kept, EventKind::SockRead).is_empty());
    });
}

/// A file beside the test's program, on a disk. Goes with the value.
struct Scrap(PathBuf);

impl Scrap {
    fn new(name: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        Self(program.with_file_name(format!("{name}-{}", process::id())))
    }
}

impl Drop for Scrap {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_watched_thread_that_syncs_names_its_file_and_who_wrote_it() {
    need_root!();
    let mut attached = load(&Request { watched_tgids: vec![process::id()], ..Request::default() }).unwrap();
    let scrap = Scrap::new("synced");
    let mut file = fs::File::create(&scrap.0).unwrap();
    (0..1024).for_each(|_| file.write_all(&[1; 4096]).unwrap());
    file.sync_all().unwrap();
    let about = rustix::fs::stat(&scrap.0).unwrap();
    let device = rustix::fs::major(about.st_dev) << 20 | rustix::fs::minor(about.st_dev);
    let own = |kept: &[Kept], kind| {
        let found = find(kept, kind).into_iter().cloned();
        found.filter(|record| record.header.tid == own_tid()).collect::<Vec<_>>()
    };
    let both = [EventKind::FileWait, EventKind::Dirtied];
    let kept = collect(&mut attached, |kept| both.iter().all(|kind| !own(kept, *kind).is_empty()));
    let wait: FileWaitBody = own(&kept, EventKind::FileWait).last().unwrap().body();
    assert_eq!((wait.device, wait.inode), (device, about.st_ino), "{wait:?}");
    assert!(wait.file_system[0].is_ascii_lowercase() && wait.call != CALL_FAULT, "{wait:?}");
    // What the file system knows of the file counts for the same device.
    for record in own(&kept, EventKind::Dirtied) {
        let dirtied: DirtiedBody = record.body();
        assert_eq!(dirtied.device, device, "{dirtied:?}");
        assert!(dirtied.folios >= DIRTIED_FOLIOS, "{dirtied:?}");
    }
}

#[test]
fn a_watched_thread_that_waits_for_a_futex_names_it() {
    need_root!();
    let mut attached = load(&Request { watched_tgids: vec![process::id()], ..Request::default() }).unwrap();
    let futex = Box::new(AtomicU32::new(7));
    let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    for _ in 0..3 {
        let waited = rustix::thread::futex::wait(&futex, rustix::thread::futex::Flags::PRIVATE, 7, Some(&timeout));
        assert_eq!(waited, Err(rustix::io::Errno::TIMEDOUT));
    }
    let word = std::ptr::from_ref(&*futex) as u64 / 8;
    let own = |kept: &[Kept]| {
        let found = find(kept, EventKind::FutexWait).into_iter().filter(|record| record.header.tid == own_tid());
        found.filter(|record| record.body::<FutexWaitBody>().word == word).count()
    };
    let kept = collect(&mut attached, |kept| own(kept) >= 3);
    assert_eq!(own(&kept), 3);
    let left = find(&kept, EventKind::SwitchOut).into_iter().filter(|record| record.header.tid == own_tid());
    assert!(left.count() >= 3, "each follows its switch");
}

#[test]
fn a_watched_thread_that_a_block_request_wakes_is_told_its_way() {
    need_root!();
    let mut attached = load(&Request { watched_tgids: vec![process::id()], ..Request::default() }).unwrap();
    let before = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let scrap = Scrap::new("direct");
    fs::write(&scrap.0, [1; 4096]).unwrap();
    let device = rustix::fs::stat(&scrap.0).unwrap().st_dev;
    let device = rustix::fs::major(device) << 20 | rustix::fs::minor(device);
    // Its pages are the thread's own to write, so that what wakes it is its own request.
    let turns = 20;
    for turn in 0..turns {
        let file = fs::OpenOptions::new().write(true).open(&scrap.0).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[turn; 4096], 0).unwrap();
        file.sync_data().unwrap();
    }
    let own = |kept: &[Kept]| {
        let bodies = find(kept, EventKind::BlockRequest).into_iter().map(Kept::body::<BlockRequestBody>);
        bodies.filter(|body| body.tid == own_tid()).collect::<Vec<_>>()
    };
    let kept = collect(&mut attached, |kept| !own(kept).is_empty());
    let body = own(&kept)[0];
    assert_eq!((body.device, body.tgid, body.throttled), (device, process::id(), 0), "{body:?}");
    assert_eq!((body.by_tgid, body.by_tid), (process::id(), own_tid()), "{body:?}");
    let before = before.tv_sec.unsigned_abs() * 1_000_000_000 + before.tv_nsec.unsigned_abs();
    assert!(before < body.queued_ns && body.queued_ns <= body.issued_ns, "{body:?}");
    assert!(body.issued_ns < body.done_ns && body.granted_ns <= body.issued_ns, "{body:?}");
    let woken = find(&kept, EventKind::Waking).into_iter().filter(|record| record.header.time_ns >= body.done_ns);
    assert!(woken.clone().any(|record| record.body::<WakingBody>().tid == own_tid()), "{body:?}");
}

#[test]
fn a_watched_thread_at_its_cgroup_s_limit_is_seen_reclaiming() {
    need_root!();
    let group = PathBuf::from(format!("/sys/fs/cgroup/memory/whylag-test-{}", process::id()));
    if fs::create_dir(&group).and_then(|()| fs::write(group.join("memory.limit_in_bytes"), "4M")).is_err() {
        return println!("skipped: there is no memory controller of version 1");
    }
    let mut attached = load(&Request { watched_tgids: vec![process::id()], ..Request::default() }).unwrap();
    let scrap = Scrap::new("reclaimed");
    let script = "echo $$ > $0/cgroup.procs; exec dd if=/dev/zero of=$1 bs=64k count=256 conv=fsync status=none";
    let mut child = process::Command::new("sh").args(["-c", script]).arg(&group).arg(&scrap.0).spawn().unwrap();
    child.wait().unwrap();
    let kept = collect(&mut attached, |kept| !find(kept, EventKind::Reclaim).is_empty());
    // Pages of the file may still be charged to it; the kernel lets it go all the same.
    fs::remove_dir(&group).unwrap();
    let reclaim = find(&kept, EventKind::Reclaim)[0];
    let body: ReclaimBody = reclaim.body();
    assert_eq!((reclaim.header.tgid, body.cgroup), (child.id(), 1), "{body:?}");
    assert!(body.began_ns > 0 && body.began_ns <= reclaim.header.time_ns, "{body:?}");
}

#[test]
fn a_run_that_is_over_says_nothing_more_though_its_programs_still_run() {
    need_root!();
    in_new_netns(|lo| {
        let mut attached =
            load(&Request { rules: vec![rule()], interfaces: vec![lo.clone()], ..Request::default() }).unwrap();
        let emitted = |attached: &Attached| {
            let losses = attached.losses().unwrap();
            losses.iter().map(|loss| loss.row.emitted).sum::<u64>()
        };
        exchange().unwrap();
        attached.silence().unwrap();
        let before = emitted(&attached);
        exchange().unwrap();
        assert!(before >= 6);
        assert_eq!(emitted(&attached), before);
    });
}

#[test]
fn the_table_names_hooks_and_tracepoints_once() {
    let names: HashSet<&str> = HOOKS.iter().map(|hook| hook.name).collect();
    assert_eq!(names.len(), HOOKS.len());
    for hook in HOOKS {
        assert!(!hook.choices.is_empty() && !hook.tells.is_empty() && !hook.informs.is_empty());
        let packet = |attach| matches!(attach, Attach::Tcx(_) | Attach::Clsact(_));
        assert_eq!(hook.required, hook.choices.iter().any(|choice| packet(choice.attach)));
    }
}

/// With two, the kernel walks a list at every event of the host, with an indirect call for each.
#[test]
fn no_tracepoint_has_programs_of_two_hooks() {
    let mut taken = HashSet::new();
    for hook in HOOKS {
        let own = hook.choices.iter().filter_map(|choice| match choice.attach {
            Attach::BtfTracepoint { tracepoint, .. } => Some(tracepoint),
            Attach::Tracepoint { tracepoint, .. } => Some(tracepoint),
            Attach::TailCall { .. } | Attach::Tcx(_) | Attach::Clsact(_) | Attach::CpuClock => None,
        });
        for tracepoint in own.collect::<HashSet<_>>() {
            assert!(taken.insert(tracepoint), "{tracepoint}");
        }
    }
}
