//! Recordings made by hand.

use probe_user::clock::{ClockAnchor, DurNs, MonoNs};
use probe_user::event::{
    Body, CounterRow, Event, Fact, InterfaceFact, InterfaceId, InterfaceRole, RunFact, SignatureFact, TaskId,
    Threshold, encode, fact_record, tick_record,
};
use probe_user::signature::Signature;
use probe_user::source::recording::{Compression, Writer};
use probe_wire::{
    DropBody, EventKind, Interrupt, PacketBody, ROLE_REPLY, ROLE_REQUEST, Sighting, SockCallBody, SockEnqueueBody,
    WIRE_VERSION, XmitBody,
};

const NIC: InterfaceId = InterfaceId { netns: 1, ifindex: 2 };
const TAP: InterfaceId = InterfaceId { netns: 1, ifindex: 3 };
const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// A name that tries to take over the terminal.
pub(crate) const HOSTILE: &str = "eth0\u{1b}[2J\u{7}";

/// Records in the making.
pub(crate) struct Made {
    records: Vec<Vec<u8>>,
    seq: u64,
    counts: [u64; EventKind::SLOTS],
}

impl Made {
    /// Three healthy checks, a slow one, one whose request the socket dropped, one without answer
    /// and one still open at the end.
    pub(crate) fn story() -> Self {
        let mut made = Self::begin();
        for check in 0..3 {
            made.check(check, SECOND + check * 10 * MS, MS);
        }
        made.check(3, 2 * SECOND, 400 * MS);
        made.dropped(4, 3 * SECOND);
        made.packet(5, 4 * SECOND, true);
        made.tick(30 * SECOND);
        made.packet(6, 31 * SECOND, true);
        made.tick(33 * SECOND);
        made
    }

    /// Checks of a VM, as its host sees them: each takes `hold` inside, and 60 µs more.
    pub(crate) fn outside(hold: &[u64]) -> Self {
        let mut made = Self::begin();
        made.fact(&Fact::Interface(InterfaceFact {
            id: TAP,
            name: "tap0".to_owned(),
            role: InterfaceRole::VirtualNic,
            label: "vm1".to_owned(),
            kind: "tap".to_owned(),
            tx_queues: 1,
            rx_queues: 1,
        }));
        for (check, (at, hold)) in (0..).zip(starts(hold)) {
            let back = at + 60_000 + hold;
            made.packet(check, at - 20_000, true);
            made.packet_at(TAP, check, at, (true, false));
            made.packet_at(TAP, check, back, (false, true));
            made.packet(check, back + 10_000, false);
            let skb = 0x1000 + check * 2;
            let body = XmitBody { skb, netns: NIC.netns, ifindex: NIC.ifindex, queue: 0 };
            made.event(back + 12_000, Body::Xmit(body));
        }
        made.tick(60 * SECOND);
        made
    }

    /// The same inside the VM, by a clock that is `offset` ahead.
    pub(crate) fn inside(hold: &[u64], offset: u64) -> Self {
        let mut made = Self::begin();
        for (check, (at, hold)) in (0..).zip(starts(hold)) {
            // From the NIC to the driver it takes 25 µs more than it is held.
            made.check(check, offset + at, hold - 25_000);
        }
        made.tick(offset + 60 * SECOND);
        made
    }

    fn begin() -> Self {
        let mut made = Self { records: Vec::new(), seq: 0, counts: [0; EventKind::SLOTS] };
        made.fact(&Fact::Run(run()));
        made.fact(&Fact::Clock(ClockAnchor { mono: MonoNs(0), unix_ns: 1_600_000_000 * SECOND }));
        let hooks = ["packet_ingress", "packet_egress", "sk_data_ready", "sock_recv_length", "net_dev_start_xmit"];
        made.fact(&Fact::Hooks { active: hooks.map(str::to_owned).to_vec() });
        made.fact(&Fact::DropReason { number: 6, name: "SOCKET_RCVBUFF".to_owned() });
        made.fact(&Fact::Symbol { address: 0xffff_8000, name: "udp_queue_rcv_one_skb".to_owned() });
        made.fact(&Fact::Interface(InterfaceFact {
            id: NIC,
            name: HOSTILE.to_owned(),
            role: InterfaceRole::PhysicalNic,
            label: HOSTILE.to_owned(),
            kind: "ether".to_owned(),
            tx_queues: 1,
            rx_queues: 1,
        }));
        made
    }

    fn fact(&mut self, fact: &Fact) {
        self.records.push(fact_record(MonoNs(1), fact).unwrap());
    }

    fn tick(&mut self, at: u64) {
        self.records.push(tick_record(MonoNs(at)).to_vec());
    }

    fn event(&mut self, at: u64, body: Body) {
        self.seq += 1;
        self.counts[body.kind().unwrap() as usize] += 1;
        let task = TaskId { tgid: 100, tid: 100 };
        let event =
            Event { at: MonoNs(at), seq: self.seq, cpu: 0, task, softirq: 0, interrupt: Interrupt::Unknown, body };
        self.records.push(encode(&event).unwrap());
    }

    fn packet(&mut self, check: u64, at: u64, request: bool) {
        self.packet_at(NIC, check, at, (request, request));
    }

    fn packet_at(&mut self, interface: InterfaceId, check: u64, at: u64, (request, ingress): (bool, bool)) {
        let packet = PacketBody {
            skb: 0x1000 + check * 2 + u64::from(request),
            netns: interface.netns,
            ifindex: interface.ifindex,
            queue: 1,
            sighting: sighting(check, request),
            frame_len: 60,
            softirq_ns: 0,
        };
        self.event(at, if ingress { Body::PacketIngress(packet) } else { Body::PacketEgress(packet) });
    }

    /// A check that the reading thread holds for `hold`.
    fn check(&mut self, check: u64, at: u64, hold: u64) {
        self.packet(check, at, true);
        let packet_seq = self.seq;
        self.event(
            at + 10_000,
            Body::SockEnqueue(SockEnqueueBody {
                socket: 9,
                skb: 0x1000 + check * 2 + 1,
                packet_seq,
                receive_bytes: 768,
                receive_limit_bytes: 212_992,
                local_port: 4000,
                protocol: 17,
            }),
        );
        self.event(at + 20_000, Body::SockRead(call()));
        self.packet(check, at + 20_000 + hold, false);
        let skb = 0x1000 + check * 2;
        self.event(at + 25_000 + hold, Body::Xmit(XmitBody { skb, netns: NIC.netns, ifindex: NIC.ifindex, queue: 0 }));
        self.event(at + 30_000 + hold, Body::SockSend(call()));
    }

    /// A check whose request the socket's full buffer drops.
    fn dropped(&mut self, check: u64, at: u64) {
        self.packet(check, at, true);
        self.event(
            at + 5_000,
            Body::Drop(DropBody {
                skb: 0x1000 + check * 2 + 1,
                netns: NIC.netns,
                location: 0xffff_8000,
                ifindex: NIC.ifindex,
                reason: 6,
                sighting: sighting(check, true),
                signature_known: 1,
                own: 0,
                queue_mapping: 0,
                reserved: [0; 4],
            }),
        );
    }

    /// When the latest record was made.
    fn ended_at(&self) -> MonoNs {
        let latest = self.records.last().and_then(|record| record.first_chunk());
        MonoNs(latest.map_or(0, |time| u64::from_le_bytes(*time)))
    }

    /// The file, saying that `lost` records found the ring full.
    pub(crate) fn file(mut self, lost: u64) -> Vec<u8> {
        let rows = EventKind::ALL.into_iter().map(|kind| {
            let missing = if kind == EventKind::Softirq { lost } else { 0 };
            CounterRow {
                cpu: 0,
                kind: kind as u16,
                emitted: self.counts[kind as usize] + missing,
                lost: missing,
                undrained: 0,
            }
        });
        let counters = Fact::Counters { rows: rows.collect(), skipped_runs: vec![("sched_switch".to_owned(), 1)] };
        self.records.push(fact_record(self.ended_at(), &counters).unwrap());
        let mut writer = Writer::new(Vec::new(), Compression::None).unwrap();
        self.records.iter().for_each(|record| writer.write(record).unwrap());
        writer.finish().unwrap()
    }
}

/// When checks of these times begin.
fn starts(hold: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    (0..).map(|check| 2 * SECOND + check * 450 * MS).zip(hold.iter().copied())
}

fn run() -> RunFact {
    let signature = Signature::parse("udp:port=4000,nonce=0+8,len=8..").unwrap();
    RunFact {
        version: "0".to_owned(),
        wire_version: WIRE_VERSION,
        signatures: vec![SignatureFact {
            name: "made".to_owned(),
            first: 0,
            count: 1,
            rules: signature.rules,
            interval: None,
        }],
        threshold: Threshold::Fixed(DurNs::from_millis(20)),
        lost_after: DurNs::from_secs(10),
        open_report_every: DurNs::from_secs(1),
        max_open: 100,
    }
}

fn sighting(check: u64, request: bool) -> Sighting {
    let (mut client, mut server, mut nonce) = ([0; 16], [0; 16], [0; 16]);
    client[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 2]);
    server[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
    nonce[..8].copy_from_slice(&check.to_be_bytes());
    let (source, destination) = if request { (client, server) } else { (server, client) };
    let (source_port, destination_port) = if request { (30_000, 4000) } else { (4000, 30_000) };
    let role = if request { ROLE_REQUEST } else { ROLE_REPLY };
    Sighting {
        source,
        destination,
        nonce,
        source_port,
        destination_port,
        role,
        protocol: 17,
        payload_len: 8,
        ip_id: u16::try_from(check + 1).unwrap(),
        ..Sighting::default()
    }
}

fn call() -> SockCallBody {
    let mut comm = [0; 16];
    comm[..6].copy_from_slice(b"server");
    SockCallBody { socket: 9, cgroup: 0, result: 8, flags: 0, local_port: 4000, protocol: 17, comm }
}
