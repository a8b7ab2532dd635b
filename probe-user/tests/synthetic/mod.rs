//! A made-up load: many health checks of a plain host, as the records that the kernel would give.

use probe_user::clock::{DurNs, MonoNs};
use probe_user::event::{
    Body, Event, Fact, InterfaceFact, InterfaceId, InterfaceRole, RunFact, SignatureFact, TaskId, Threshold,
};
use probe_wire::{
    Interrupt, PacketBody, QdiscBody, ROLE_REPLY, ROLE_REQUEST, Rule, Sighting, SockCallBody, SockEnqueueBody,
    SwitchInBody, XmitBody,
};
use zerocopy::FromZeros;

const PNIC: u32 = 2;
/// One check begins every 5 µs, and takes 2 ms: 400 are in flight.
const INTERVAL_NS: u64 = 5_000;
const CPUS: usize = 4;

/// What a recording begins with.
pub(crate) fn facts(max_open: u32) -> Vec<Event> {
    let signature = SignatureFact {
        name: "synthetic".to_owned(),
        first: 0,
        count: 1,
        rules: vec![Rule { nonce_len: 8, ..Rule::default() }],
        interval: None,
    };
    let run = RunFact {
        version: "synthetic".to_owned(),
        wire_version: probe_wire::WIRE_VERSION,
        signatures: vec![signature],
        threshold: Threshold::Multiple(5.0),
        lost_after: DurNs::from_secs(10),
        open_report_every: DurNs::from_secs(1),
        max_open,
    };
    let interface = InterfaceFact {
        id: InterfaceId { netns: 1, ifindex: PNIC },
        name: "eth0".to_owned(),
        role: InterfaceRole::PhysicalNic,
        label: String::new(),
        kind: "ether".to_owned(),
        tx_queues: 1,
        rx_queues: 1,
    };
    let active = ["net_dev_start_xmit", "qdisc_enqueue", "sock_recv_length"].map(str::to_owned).to_vec();
    [Fact::Run(run), Fact::Hooks { active }, Fact::Interface(interface)].into_iter().map(fact).collect()
}

fn fact(fact: Fact) -> Event {
    Event { at: MonoNs(0), body: Body::Fact(Box::new(fact)), ..tick(0) }
}

/// A tick.
pub(crate) fn tick(at: u64) -> Event {
    let (task, interrupt) = (TaskId::default(), Interrupt::Unknown);
    Event { at: MonoNs(at), seq: 0, cpu: 0, task, softirq: 0, interrupt, body: Body::Tick }
}

/// The request of check `n`: 50 clients, a nonce that counts.
pub(crate) fn request(n: u64) -> Sighting {
    let client = u8::try_from(n % 50).unwrap_or(0);
    let mut sighting = Sighting {
        source: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, client],
        destination: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2],
        source_port: 40_000,
        destination_port: 4_000,
        payload_len: 20,
        ip_id: u16::try_from(n % 65_535).unwrap_or(0) + 1,
        role: ROLE_REQUEST,
        protocol: 17,
        ..Sighting::default()
    };
    sighting.nonce[..8].copy_from_slice(&n.to_be_bytes());
    sighting
}

fn reply_to(request: &Sighting) -> Sighting {
    Sighting {
        source: request.destination,
        destination: request.source,
        source_port: request.destination_port,
        destination_port: request.source_port,
        role: ROLE_REPLY,
        ..*request
    }
}

/// Where a check's packet is seen first.
pub(crate) fn arrival(n: u64, at: u64) -> Event {
    let skb = 0xffff_0000_0000_0000 + (n % 4096) * 0x100;
    event(at, n, 4, Body::PacketIngress(packet(skb, &request(n))))
}

fn packet(skb: u64, sighting: &Sighting) -> PacketBody {
    PacketBody { skb, netns: 1, ifindex: PNIC, queue: 1, sighting: *sighting, frame_len: 64, softirq_ns: 0 }
}

fn event(at: u64, n: u64, softirq: u32, body: Body) -> Event {
    let worker = u32::try_from(n % 4).unwrap_or(0);
    let cpu = u32::try_from(n % CPUS as u64).unwrap_or(0);
    let task = TaskId { tgid: 100, tid: 100 + worker };
    Event { at: MonoNs(at), seq: 0, cpu, task, softirq, interrupt: Interrupt::Unknown, body }
}

fn one_check(n: u64, events: &mut Vec<Event>) {
    let (at, reply_skb) = (1_000_000 + n * INTERVAL_NS, 0xffff_8000_0000_0000 + (n % 4096) * 0x100);
    let skb = 0xffff_0000_0000_0000 + (n % 4096) * 0x100;
    let enqueue = SockEnqueueBody {
        socket: 1 + n % CPUS as u64,
        skb,
        packet_seq: 0,
        receive_bytes: 0,
        receive_limit_bytes: 212_992,
        local_port: 4_000,
        protocol: 17,
    };
    let call = SockCallBody { socket: 1 + n % CPUS as u64, result: 20, protocol: 17, ..SockCallBody::new_zeroed() };
    let qdisc = QdiscBody { skb: reply_skb, netns: 1, ifindex: PNIC, ..QdiscBody::new_zeroed() };
    let xmit = XmitBody { skb: reply_skb, netns: 1, ifindex: PNIC, queue: 0 };
    events.extend([
        arrival(n, at),
        event(at + 2_000, n, 4, Body::SockEnqueue(enqueue)),
        event(at + 50_000, n, 0, Body::SwitchIn(SwitchInBody::new_zeroed())),
        event(at + 60_000, n, 0, Body::SockRead(call)),
        event(at + 70_000, n, 0, Body::SwitchIn(SwitchInBody::new_zeroed())),
        event(at + 1_900_000, n, 0, Body::PacketEgress(packet(reply_skb, &reply_to(&request(n))))),
        event(at + 1_900_500, n, 0, Body::QdiscEnqueue(qdisc)),
        event(at + 1_901_000, n, 0, Body::SockSend(call)),
        event(at + 1_999_000, n, 4, Body::QdiscDequeue(qdisc)),
        event(at + 2_000_000, n, 4, Body::Xmit(xmit)),
    ]);
}

/// The load of `checks` checks: in order per CPU, a tick every millisecond.
pub(crate) fn load(checks: u64) -> Vec<Event> {
    let mut events = Vec::new();
    (0..checks).for_each(|n| one_check(n, &mut events));
    events.sort_by_key(|event| (event.at, event.cpu));
    number(&mut events);
    let mut with_ticks = Vec::with_capacity(events.len() + 1000);
    let mut next_tick = 1_000_000;
    for event in events {
        while event.at.0 >= next_tick {
            with_ticks.push(tick(next_tick));
            next_tick += 1_000_000;
        }
        with_ticks.push(event);
    }
    with_ticks.push(tick(next_tick + 10_000_000));
    with_ticks
}

/// Numbers the events of each CPU, and tells the enqueues which packet they mean.
fn number(events: &mut [Event]) {
    let mut seqs = [0_u64; CPUS];
    let mut last_packet = [(0_u64, 0_u64); CPUS];
    for event in events {
        let cpu = event.cpu as usize;
        seqs[cpu] += 1;
        event.seq = seqs[cpu];
        match &mut event.body {
            Body::PacketIngress(packet) => last_packet[cpu] = (packet.skb, event.seq),
            Body::SockEnqueue(body) if body.skb == last_packet[cpu].0 => body.packet_seq = last_packet[cpu].1,
            _ => {}
        }
    }
}
