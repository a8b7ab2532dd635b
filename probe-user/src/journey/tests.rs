//! Claims about journeys, each made of a few hand-made events.

use super::*;
use crate::event::{Body, Event, Fact, InterfaceFact, InterfaceRole, Orderer, RunFact, SignatureFact, Threshold};
use probe_wire::{
    AcceptFullBody, BackendRxBody, DROP_UNPARSED, DropBody, Interrupt, PacketBody, QdiscBody, ROLE_EITHER, ROLE_REPLY,
    ROLE_REQUEST, Rule, SockCallBody, SockEnqueueBody, SwitchInBody, XMIT_HANDS_ON, XmitBody,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use zerocopy::FromZeros;

const LO: u32 = 1;
const PNIC: u32 = 2;
const TAP: u32 = 3;
const POD: u32 = 4;
const OTHER_TAP: u32 = 5;
const MS: u64 = 1_000_000;
const UDP: u8 = 17;
const TCP: u8 = 6;
const SOFTIRQ: TaskId = TaskId { tgid: 0, tid: 0 };
const WORKER: TaskId = TaskId { tgid: 100, tid: 101 };
const OTHER_WORKER: TaskId = TaskId { tgid: 100, tid: 102 };
const SOCKET: u64 = 77;

fn address(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]
}

/// Rule 0 is UDP with a nonce, 1 UDP without, 2 TCP without, 3 ICMP with one.
fn request(rule: u8, nonce: u32) -> Sighting {
    let protocol = [UDP, UDP, TCP, 1][usize::from(rule)];
    let mut sighting = Sighting {
        source: address(1),
        destination: address(2),
        source_port: 50_000,
        destination_port: 4_000,
        payload_len: 20,
        rule,
        role: ROLE_REQUEST,
        protocol,
        ..Sighting::default()
    };
    if matches!(rule, 0 | 3) {
        sighting.nonce[..4].copy_from_slice(&nonce.to_be_bytes());
    }
    if rule == 2 {
        sighting.tcp_seq = nonce;
    }
    sighting
}

fn reply_to(request: &Sighting) -> Sighting {
    let tcp = request.protocol == TCP;
    Sighting {
        source: request.destination,
        destination: request.source,
        source_port: request.destination_port,
        destination_port: request.source_port,
        tcp_seq: if tcp { request.tcp_seq.wrapping_add(0x8000) } else { 0 },
        tcp_ack: if tcp { request.tcp_seq.wrapping_add(request.payload_len) } else { 0 },
        role: if request.role == ROLE_EITHER { ROLE_EITHER } else { ROLE_REPLY },
        ..*request
    }
}

/// A run under construction; every call appends an event.
#[derive(Clone)]
struct Scene {
    events: Vec<Event>,
    seq: u64,
}

impl Scene {
    fn new() -> Self {
        Self::with_hooks(&["net_dev_start_xmit", "sock_recv_length"])
    }

    fn with_hooks(hooks: &[&str]) -> Self {
        let mut scene = Self { events: Vec::new(), seq: 0 };
        scene.fact(Fact::Run(run_fact(10_000, 1_000, 1_000)));
        scene.fact(Fact::Hooks { active: hooks.iter().map(|hook| (*hook).to_owned()).collect() });
        for (ifindex, role, kind) in [
            (LO, InterfaceRole::PhysicalNic, "loopback"),
            (PNIC, InterfaceRole::PhysicalNic, "ether"),
            (TAP, InterfaceRole::VirtualNic, "tap"),
            (OTHER_TAP, InterfaceRole::VirtualNic, "tap"),
            (POD, InterfaceRole::Inner, "veth"),
        ] {
            scene.fact(interface_fact(ifindex, role, kind));
        }
        scene
    }

    fn add(&mut self, at: u64, task: TaskId, softirq: u32, body: Body) -> &mut Self {
        self.seq += 1;
        self.events.push(Event {
            at: MonoNs(at),
            seq: self.seq,
            cpu: 1,
            task,
            softirq,
            interrupt: Interrupt::Unknown,
            body,
        });
        self
    }

    fn fact(&mut self, fact: Fact) -> &mut Self {
        let event = Event {
            at: MonoNs(0),
            seq: 0,
            cpu: 0,
            task: TaskId::default(),
            softirq: 0,
            interrupt: Interrupt::Unknown,
            body: Body::Fact(Box::new(fact)),
        };
        self.events.push(event);
        self
    }

    fn tick(&mut self, at: u64) -> &mut Self {
        self.add(at, SOFTIRQ, 0, Body::Tick)
    }

    fn ingress(&mut self, at: u64, ifindex: u32, skb: u64, sighting: &Sighting) -> &mut Self {
        self.add(at, SOFTIRQ, 4, Body::PacketIngress(packet(ifindex, skb, sighting)))
    }

    fn egress(&mut self, at: u64, ifindex: u32, skb: u64, sighting: &Sighting) -> &mut Self {
        self.add(at, SOFTIRQ, 4, Body::PacketEgress(packet(ifindex, skb, sighting)))
    }

    fn egress_by(&mut self, at: u64, task: TaskId, ifindex: u32, skb: u64, sighting: &Sighting) -> &mut Self {
        self.add(at, task, 0, Body::PacketEgress(packet(ifindex, skb, sighting)))
    }

    /// Data enters the socket, right after the record before.
    fn enqueue(&mut self, at: u64, protocol: u8, packet_seq: u64) -> &mut Self {
        let body = SockEnqueueBody {
            socket: SOCKET,
            skb: 0,
            packet_seq,
            receive_bytes: 0,
            receive_limit_bytes: 0,
            local_port: 4000,
            protocol: protocol.into(),
        };
        self.add(at, SOFTIRQ, 4, Body::SockEnqueue(body))
    }

    fn enqueue_last(&mut self, at: u64, protocol: u8) -> &mut Self {
        let seq = self.seq;
        self.enqueue(at, protocol, seq)
    }

    fn read(&mut self, at: u64, task: TaskId, protocol: u8, result: i32, flags: u32) -> &mut Self {
        self.add(at, task, 0, Body::SockRead(call(protocol, result, flags)))
    }

    fn send(&mut self, at: u64, task: TaskId, protocol: u8) -> &mut Self {
        self.add(at, task, 0, Body::SockSend(call(protocol, 20, 0)))
    }

    fn xmit(&mut self, at: u64, ifindex: u32, skb: u64) -> &mut Self {
        self.add(at, SOFTIRQ, 4, Body::Xmit(XmitBody { skb, netns: 1, ifindex, queue: 2 }))
    }

    /// As [`xmit`](Self::xmit), by a bond or a VLAN.
    fn hand_on(&mut self, at: u64, ifindex: u32, skb: u64) -> &mut Self {
        self.add(at, SOFTIRQ, 4, Body::Xmit(XmitBody { skb, netns: 1, ifindex, queue: XMIT_HANDS_ON }))
    }

    fn taken(&mut self, at: u64, task: TaskId, ifindex: u32, skb: u64) -> &mut Self {
        self.add(at, task, 0, Body::BackendRx(backend_rx(ifindex, skb)))
    }

    fn qdisc(&mut self, at: u64, skb: u64, enters: bool) -> &mut Self {
        self.qdisc_of(at, PNIC, skb, enters)
    }

    fn qdisc_of(&mut self, at: u64, ifindex: u32, skb: u64, enters: bool) -> &mut Self {
        self.qdisc_with(at, skb, enters, QdiscBody { ifindex, ..QdiscBody::new_zeroed() })
    }

    /// A discipline with a handle of its own, and so many packets in it.
    fn shaper(&mut self, at: u64, skb: u64, enters: bool, queue_len: u32) -> &mut Self {
        let body = QdiscBody { ifindex: PNIC, handle: 7 << 16, queue_len, ..QdiscBody::new_zeroed() };
        self.qdisc_with(at, skb, enters, body)
    }

    fn qdisc_with(&mut self, at: u64, skb: u64, enters: bool, body: QdiscBody) -> &mut Self {
        let body = QdiscBody { skb, netns: 1, ..body };
        self.add(at, SOFTIRQ, 4, if enters { Body::QdiscEnqueue(body) } else { Body::QdiscDequeue(body) })
    }

    fn drop_of(&mut self, at: u64, skb: u64, sighting: Option<&Sighting>) -> &mut Self {
        let body = DropBody {
            skb,
            netns: 1,
            location: 0xabc,
            ifindex: PNIC,
            reason: 6,
            sighting: sighting.copied().unwrap_or_default(),
            signature_known: sighting.map_or(DROP_UNPARSED, |_| 1),
            own: 0,
            queue_mapping: 0,
            reserved: [0; 4],
        };
        self.add(at, SOFTIRQ, 4, Body::Drop(body))
    }

    /// A thread did what was told last.
    fn by(&mut self, task: TaskId) -> &mut Self {
        let Some(event) = self.events.last_mut() else { panic!("an event") };
        (event.task, event.softirq) = (task, 0);
        self
    }

    /// What was dropped last was made on this host.
    fn own(&mut self) -> &mut Self {
        let Some(Event { body: Body::Drop(body), .. }) = self.events.last_mut() else { panic!("a drop") };
        body.own = 1;
        self
    }

    /// As [`drop_of`](Self::drop_of), with a reason by its name.
    fn drop_because(&mut self, at: u64, skb: u64, sighting: &Sighting, name: &str) -> &mut Self {
        let number = u32::from(name.as_bytes()[0]);
        self.fact(Fact::DropReason { number, name: name.to_owned() }).drop_of(at, skb, Some(sighting));
        let Some(Event { body: Body::Drop(body), .. }) = self.events.last_mut() else { panic!("a drop") };
        body.reason = number;
        self
    }

    /// A datagram served by a thread of this host: 1 ms from the NIC and back.
    fn served(&mut self, at: u64, skb: u64, request: &Sighting) -> &mut Self {
        let reply = reply_to(request);
        self.ingress(at, PNIC, skb, request)
            .enqueue_last(at + 10, request.protocol)
            .read(at + 500, WORKER, request.protocol, 20, 0)
            .egress_by(at + 900, WORKER, PNIC, skb + 0x100, &reply)
            .xmit(at + MS, PNIC, skb + 0x100)
            .send(at + MS + 1, WORKER, request.protocol)
    }

    fn run(&self) -> Run {
        let end = self.events.iter().map(|event| event.at).max().unwrap_or_default();
        run(&self.events, end)
    }
}

fn run_fact(lost_after_ms: u64, report_ms: u64, max_open: u32) -> RunFact {
    let signature = |name: &str, first, nonce_len| SignatureFact {
        name: name.to_owned(),
        first,
        count: 1,
        rules: vec![Rule { nonce_len, ..Rule::default() }],
        interval: None,
    };
    RunFact {
        version: "test".to_owned(),
        wire_version: probe_wire::WIRE_VERSION,
        signatures: vec![signature("a", 0, 4), signature("b", 1, 0), signature("c", 2, 0), signature("d", 3, 4)],
        threshold: Threshold::Multiple(5.0),
        lost_after: DurNs::from_millis(lost_after_ms),
        open_report_every: DurNs::from_millis(report_ms),
        max_open,
    }
}

fn interface_fact(ifindex: u32, role: InterfaceRole, kind: &str) -> Fact {
    Fact::Interface(InterfaceFact {
        id: InterfaceId { netns: 1, ifindex },
        name: format!("if{ifindex}"),
        role,
        label: String::new(),
        kind: kind.to_owned(),
        tx_queues: 1,
        rx_queues: 1,
    })
}

fn packet(ifindex: u32, skb: u64, sighting: &Sighting) -> PacketBody {
    PacketBody { skb, netns: 1, ifindex, queue: 0, sighting: *sighting, frame_len: 64, softirq_ns: 0 }
}

fn backend_rx(ifindex: u32, skb: u64) -> BackendRxBody {
    BackendRxBody { skb, netns: 1, location: 0xdef, ifindex, reserved: 0 }
}

fn call(protocol: u8, result: i32, flags: u32) -> SockCallBody {
    SockCallBody {
        socket: SOCKET,
        cgroup: 0,
        result,
        flags,
        local_port: 4000,
        protocol: protocol.into(),
        comm: [0; 16],
    }
}

/// What a scene gave.
#[derive(Debug, PartialEq)]
struct Run {
    ended: Vec<Journey>,
    reports: Vec<Journey>,
    counts: Counts,
}

fn run(events: &[Event], end: MonoNs) -> Run {
    let mut correlator = Correlator::new();
    let (mut ended, mut reports) = (Vec::new(), Vec::new());
    let mut out = |update| match update {
        Update::Ended(journey) => ended.push(journey),
        Update::Open(journey) => reports.push(journey),
        Update::Unreported { .. } | Update::Arrived(_) => {}
    };
    events.iter().for_each(|event| correlator.push(event, &mut out));
    correlator.finish(end, &mut out);
    assert_eq!(correlator.open(), 0);
    Run { counts: correlator.counts(), ended, reports }
}

#[test]
fn of_very_many_open_checks_the_same_few_are_reported_and_each_of_the_rest_is_counted() {
    let mut scene = Scene::new();
    (0..100).for_each(|nonce| {
        scene.ingress(u64::from(nonce) * 1_000, PNIC, 0x1000 + u64::from(nonce) * 64, &request(0, nonce));
    });
    let mut correlator = Correlator::new();
    let (mut reported, mut left) = (Vec::new(), 0);
    let mut out = |update| match update {
        Update::Open(journey) => reported.push(journey.id.0),
        Update::Unreported { .. } => left += 1,
        Update::Ended(_) | Update::Arrived(_) => {}
    };
    scene.tick(3_500 * MS);
    scene.events.iter().for_each(|event| correlator.push(event, &mut out));
    assert_eq!((reported.len(), left), (3 * 32, 3 * 68));
    assert!(reported.iter().all(|id| *id <= 32), "the oldest: {reported:?}");
}

impl Run {
    fn only(&self) -> &Journey {
        assert_eq!(self.ended.len(), 1, "{:#?}", self.ended);
        &self.ended[0]
    }
}

fn stages(journey: &Journey) -> Vec<Stage> {
    journey.stamps.iter().map(|stamp| stamp.stage).collect()
}

mod attach {
    use super::*;

    fn live_since(scene: &mut Scene, ifindex: u32, since: u64) {
        let interface = InterfaceId { netns: 1, ifindex };
        scene.fact(Fact::Live { interface, since: MonoNs(since) });
    }

    /// What leaves is seen before what comes in is: the answer to a check sent from here passes
    /// unseen.
    #[test]
    fn a_check_sent_while_programs_were_being_attached_is_not_told_to_be_open() {
        let mut scene = Scene::new();
        live_since(&mut scene, PNIC, 20 * MS);
        scene.egress_by(10 * MS, WORKER, PNIC, 0x1000, &request(0, 1)).xmit(10 * MS + 1, PNIC, 0x1000);
        scene.egress_by(20 * MS, WORKER, PNIC, 0x2000, &request(0, 2)).tick(12_000 * MS);
        let run = scene.run();
        assert_eq!(run.only().request.nonce[..4], [0, 0, 0, 2], "the later one is told");
        assert!(run.reports.iter().all(|report| report.request.nonce[3] == 2));
        assert_eq!((run.counts.opened, run.counts.ended, run.counts.untold), (2, 2, 1));
        assert_eq!(run.counts.joined, 3);
    }

    #[test]
    fn an_answer_to_a_check_from_before_is_not_taken_for_a_check() {
        let early = Sighting { role: ROLE_EITHER, ..request(0, 1) };
        let mut scene = Scene::new();
        live_since(&mut scene, PNIC, 20 * MS);
        scene.ingress(10 * MS, PNIC, 0x1000, &early);
        scene.egress_by(30 * MS, WORKER, PNIC, 0x2000, &reply_to(&early)).xmit(31 * MS, PNIC, 0x2000);
        let run = scene.run();
        assert_eq!((run.ended.len(), run.counts.untold, run.counts.unmatched), (0, 1, 0));
    }

    #[test]
    fn an_interface_that_comes_later_holds_nothing_up_elsewhere() {
        let mut scene = Scene::new();
        live_since(&mut scene, TAP, 20 * MS);
        let run = scene.served(10 * MS, 0x1000, &request(0, 1)).run();
        assert_eq!((run.only().outcome.clone(), run.counts.untold), (Outcome::Replied, 0));
    }
}

mod end {
    use super::*;

    #[test]
    fn at_the_end_no_check_begins_and_those_that_are_open_are_still_answered() {
        let (one, two, mut scene) = (request(0, 1), request(0, 2), Scene::new());
        scene.ingress(MS, PNIC, 0x1000, &one).fact(Fact::Closing).ingress(2 * MS, PNIC, 0x2000, &two);
        scene.ingress(3 * MS, TAP, 0x3000, &reply_to(&one)).egress(3 * MS + 1, PNIC, 0x3000, &reply_to(&one));
        scene.xmit(3 * MS + 2, PNIC, 0x3000).tick(10 * MS);
        let run = scene.run();
        assert_eq!((&run.only().outcome, run.only().id), (&Outcome::Replied, JourneyId(1)));
        assert_eq!((run.counts.opened, run.counts.untold, run.counts.unmatched), (2, 1, 0));
    }

    #[test]
    fn a_part_of_a_check_from_after_the_end_is_not_another_target() {
        let mut scene = Scene::new();
        scene.fact(Fact::Closing).ingress(MS, POD, 0x1000, &request(0, 1)).tick(2_000 * MS);
        let run = scene.run();
        assert_eq!((run.ended.len(), run.reports.len()), (0, 0));
    }

    #[test]
    fn the_end_has_come_when_no_check_is_open_that_began_before() {
        let mut correlator = Correlator::new();
        let mut scene = Scene::new();
        scene.ingress(MS, PNIC, 0x1000, &request(0, 1)).fact(Fact::Closing);
        scene.ingress(2 * MS, PNIC, 0x2000, &request(0, 2));
        let open = scene.events.len();
        scene.egress(3 * MS, PNIC, 0x3000, &reply_to(&request(0, 1))).xmit(3 * MS + 1, PNIC, 0x3000);
        for (place, event) in scene.events.iter().enumerate() {
            assert!(!correlator.is_settled());
            correlator.push(event, &mut |_| {});
            assert!(place >= open || !correlator.is_settled());
        }
        assert!(correlator.is_settled());
    }

    #[test]
    fn as_many_checks_are_told_to_have_ended_as_were_asked_for() {
        let mut scene = Scene::new();
        scene.fact(Fact::Limit { checks: 2 }).ingress(MS, PNIC, 0x9000, &request(0, 9));
        for n in 0..4 {
            scene.served(2 * MS + u64::from(n) * 3 * MS, 0x1000, &request(0, n));
        }
        let run = scene.tick(30 * MS).run();
        let outcomes: Vec<_> = run.ended.iter().map(|journey| (journey.id.0, &journey.outcome)).collect();
        assert_eq!(outcomes, [(2, &Outcome::Replied), (3, &Outcome::Replied), (1, &Outcome::Open)]);
        assert_eq!((run.counts.opened, run.counts.ended, run.counts.untold), (5, 5, 2));
    }
}

mod path {
    use super::*;

    #[test]
    fn a_datagram_served_here_passes_every_stage_of_a_plain_host() {
        let run = Scene::new().served(MS, 0x1000, &request(0, 1)).run();
        let journey = run.only();
        assert_eq!(journey.outcome, Outcome::Replied);
        assert_eq!(journey.perspective, Perspective::Served);
        let path =
            [Stage::PnicRx, Stage::SockEnqueue, Stage::SockRead, Stage::AppSend, Stage::PnicQueue, Stage::PnicXmit];
        assert_eq!(stages(journey), path);
        assert_eq!(journey.elapsed(), DurNs(MS));
        assert_eq!(journey.socket, SOCKET);
        let task = |stage| journey.stamp(stage).unwrap().task;
        assert_eq!((task(Stage::SockRead), task(Stage::AppSend), task(Stage::PnicRx)), (WORKER, WORKER, SOFTIRQ));
        assert_eq!(journey.stamp(Stage::AppSend).unwrap().at, journey.stamp(Stage::PnicQueue).unwrap().at);
        assert_eq!(journey.stamp(Stage::PnicXmit).unwrap().queue, 3);
        assert_eq!((run.counts.joined, run.counts.unmatched), (6, 0));
    }

    #[test]
    fn a_vm_seen_from_the_host_has_the_stages_of_its_nics() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        let reply = reply_to(&request);
        scene.ingress(MS, PNIC, 0x1000, &request).egress(2 * MS, TAP, 0x1000, &request);
        // The vhost worker feeds the reply in, in its own context: it is not the sender.
        scene
            .add(5 * MS, WORKER, 0, Body::PacketIngress(packet(TAP, 0x2000, &reply)))
            .egress_by(6 * MS, WORKER, PNIC, 0x2000, &reply)
            .xmit(7 * MS, PNIC, 0x2000);
        let run = scene.run();
        let journey = run.only();
        assert_eq!(stages(journey), [Stage::PnicRx, Stage::VnicTx, Stage::VnicRx, Stage::PnicQueue, Stage::PnicXmit]);
        assert_eq!(journey.target.ifindex, TAP);
        assert_eq!(journey.outcome, Outcome::Replied);
    }

    #[test]
    fn a_vhost_worker_is_not_the_sender_even_if_the_vms_nic_was_not_seen() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .egress(2 * MS, TAP, 0x1000, &request)
            .egress_by(6 * MS, WORKER, PNIC, 0x2000, &reply_to(&request))
            .xmit(7 * MS, PNIC, 0x2000);
        assert_eq!(stages(scene.run().only()), [Stage::PnicRx, Stage::VnicTx, Stage::PnicQueue, Stage::PnicXmit]);
    }

    #[test]
    fn a_pod_is_seen_at_both_ends_of_its_veth() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        let reply = reply_to(&request);
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .egress(2 * MS, TAP, 0x1000, &request)
            .ingress(3 * MS, POD, 0x1000, &request)
            .enqueue_last(3 * MS + 1, UDP)
            .read(4 * MS, WORKER, UDP, 20, 0)
            .egress_by(5 * MS, WORKER, POD, 0x2000, &reply)
            .ingress(5 * MS + 1, TAP, 0x2000, &reply)
            .egress(5 * MS + 2, PNIC, 0x2000, &reply)
            .xmit(5 * MS + 3, PNIC, 0x2000);
        let run = scene.run();
        let journey = run.only();
        assert_eq!(journey.stamps.len(), 10);
        assert_eq!(journey.stamp(Stage::AppSend).unwrap().task, WORKER);
        assert_eq!(journey.outcome, Outcome::Replied);
    }

    #[test]
    fn an_echo_answered_by_the_kernel_has_no_thread() {
        let (request, mut scene) = (request(3, 1), Scene::new());
        scene.ingress(MS, PNIC, 0x1000, &request).egress(MS + 10, PNIC, 0x1000, &reply_to(&request)).xmit(
            MS + 20,
            PNIC,
            0x1000,
        );
        assert_eq!(stages(scene.run().only()), [Stage::PnicRx, Stage::PnicQueue, Stage::PnicXmit]);
    }

    #[test]
    fn a_check_sent_from_here_runs_from_the_send_to_the_read() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene
            .egress_by(MS, WORKER, PNIC, 0x1000, &request)
            .xmit(MS + 10, PNIC, 0x1000)
            .ingress(9 * MS, PNIC, 0x2000, &reply_to(&request))
            .enqueue_last(9 * MS + 10, UDP)
            .read(600 * MS, OTHER_WORKER, UDP, 20, 0);
        let run = scene.run();
        let journey = run.only();
        assert_eq!(journey.perspective, Perspective::Sent);
        let path =
            [Stage::AppSend, Stage::PnicQueue, Stage::PnicXmit, Stage::PnicRx, Stage::SockEnqueue, Stage::SockRead];
        assert_eq!(stages(journey), path);
        assert_eq!(journey.elapsed(), DurNs(599 * MS));
        assert_eq!(journey.outcome, Outcome::Replied);
    }

    #[test]
    fn a_check_sent_from_here_without_socket_events_ends_at_the_nic_after_a_grace() {
        let (request, mut scene) = (request(0, 1), Scene::with_hooks(&[]));
        scene
            .egress_by(MS, WORKER, PNIC, 0x1000, &request)
            .ingress(9 * MS, PNIC, 0x2000, &reply_to(&request))
            .tick(9 * MS + 19_999_999)
            .tick(9 * MS + 20 * MS);
        let mut correlator = Correlator::new();
        let mut ended_at = None;
        for event in &scene.events {
            correlator.push(event, &mut |_| ended_at = Some(event.at));
        }
        assert_eq!(ended_at, Some(MonoNs(29 * MS)));
        let run = scene.run();
        assert_eq!(run.only().elapsed(), DurNs(8 * MS));
        assert_eq!(run.only().outcome, Outcome::Replied);
    }

    #[test]
    fn a_vm_that_asks_is_sent_as_seen_from_the_host() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        let reply = reply_to(&request);
        scene
            .add(MS, WORKER, 0, Body::PacketIngress(packet(TAP, 0x1000, &request)))
            .egress_by(MS + 1, WORKER, PNIC, 0x1000, &request)
            .ingress(5 * MS, PNIC, 0x2000, &reply)
            .egress(6 * MS, TAP, 0x2000, &reply)
            .tick(40 * MS);
        let run = scene.run();
        let journey = run.only();
        assert_eq!(journey.perspective, Perspective::Sent);
        assert_eq!(stages(journey), [Stage::VnicRx, Stage::PnicQueue, Stage::PnicRx, Stage::VnicTx]);
        assert_eq!(journey.elapsed(), DurNs(5 * MS));
    }

    #[test]
    fn an_echo_reply_of_a_vm_that_the_host_asked_is_not_lost_when_it_is_freed() {
        let (request, mut scene) = (request(3, 1), Scene::new());
        let reply = reply_to(&request);
        scene.egress_by(MS, WORKER, TAP, 0x1000, &request).ingress(4 * MS, TAP, 0x2000, &reply);
        scene.drop_of(4 * MS + 2, 0x2000, Some(&reply)).tick(30 * MS);
        assert_eq!(scene.run().only().outcome, Outcome::Replied);
    }

    const RING_HOOKS: [&str; 2] = ["net_dev_start_xmit", "consume_skb"];

    #[test]
    fn a_packet_taken_off_the_tap_is_stamped_with_the_thread_that_took_it() {
        let (request, mut scene) = (request(0, 1), Scene::with_hooks(&RING_HOOKS));
        let reply = reply_to(&request);
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .egress(2 * MS, TAP, 0x1000, &request)
            .xmit(2 * MS + 1, TAP, 0x1000)
            .taken(3 * MS, OTHER_WORKER, OTHER_TAP, 0x1000)
            .taken(4 * MS, WORKER, TAP, 0x1000)
            // The address is free: another packet's.
            .taken(5 * MS, OTHER_WORKER, TAP, 0x1000)
            .ingress(6 * MS, TAP, 0x1000, &reply)
            .egress(7 * MS, PNIC, 0x1000, &reply)
            .xmit(8 * MS, PNIC, 0x1000);
        let run = scene.run();
        let journey = run.only();
        let path = [Stage::PnicRx, Stage::VnicTx, Stage::BackendRx, Stage::VnicRx, Stage::PnicQueue, Stage::PnicXmit];
        assert_eq!(stages(journey), path);
        let stamp = journey.stamp(Stage::BackendRx).unwrap();
        assert_eq!((stamp.at, stamp.task, stamp.interface.ifindex), (MonoNs(4 * MS), WORKER, TAP));
        assert_eq!((journey.outcome.clone(), run.counts.unmatched), (Outcome::Replied, 1));
    }

    /// What a macvtap hands to its VM comes in through it, and the other way round.
    #[test]
    fn a_macvtap_is_passed_the_other_way_round() {
        let (request, mut scene) = (request(0, 1), Scene::with_hooks(&RING_HOOKS));
        let reply = reply_to(&request);
        let macvtap = TAP + 100;
        let shaper = QdiscBody { skb: 0x2000, netns: 1, ifindex: macvtap, ..QdiscBody::new_zeroed() };
        scene.fact(interface_fact(macvtap, InterfaceRole::VirtualNic, "macvtap"));
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .ingress(MS + 1, macvtap, 0x1000, &request)
            // Of one that is cut into several the kernel makes others at once, and frees it.
            .add(MS + 2, OTHER_WORKER, 4, Body::BackendRx(backend_rx(macvtap, 0x1000)))
            .taken(4 * MS, WORKER, macvtap, 0x1000)
            .egress_by(6 * MS, WORKER, macvtap, 0x2000, &reply)
            .add(6 * MS + 1, WORKER, 0, Body::QdiscEnqueue(shaper))
            .hand_on(7 * MS - 1, macvtap, 0x2000)
            .egress_by(7 * MS, WORKER, PNIC, 0x2000, &reply)
            .xmit(8 * MS, PNIC, 0x2000);
        let run = scene.run();
        let path = [Stage::PnicRx, Stage::VnicTx, Stage::BackendRx, Stage::VnicRx, Stage::PnicQueue, Stage::PnicXmit];
        assert_eq!(stages(run.only()), path);
        assert_eq!(
            run.only().stamp(Stage::BackendRx).map(|stamp| (stamp.at, stamp.task)),
            Some((MonoNs(4 * MS), WORKER))
        );
        assert_eq!((run.only().outcome.clone(), run.counts.off_path), (Outcome::Replied, 0));
        let [stay] = &run.only().qdisc[..] else { panic!("{:#?}", run.only()) };
        assert_eq!((stay.entered_at, stay.left_at), (MonoNs(6 * MS + 1), Some(MonoNs(7 * MS - 1))));
    }

    #[test]
    fn a_stay_in_the_discipline_of_a_tap_ends_with_the_hand_over() {
        let (request, mut scene) = (request(0, 1), Scene::with_hooks(&RING_HOOKS));
        let body = QdiscBody { skb: 0x1000, netns: 1, ifindex: TAP, ..QdiscBody::new_zeroed() };
        scene.ingress(MS, PNIC, 0x1000, &request).egress(2 * MS, TAP, 0x1000, &request);
        scene.add(2 * MS + 5, SOFTIRQ, 4, Body::QdiscEnqueue(body));
        scene.xmit(30 * MS, TAP, 0x1000).taken(31 * MS, WORKER, TAP, 0x1000);
        let run = scene.run();
        let [stay] = &run.only().qdisc[..] else { panic!("{:#?}", run.only()) };
        assert_eq!((stay.entered_at, stay.left_at), (MonoNs(2 * MS + 5), Some(MonoNs(30 * MS))));
    }

    /// A VM's check whose answer is handed to the tap at 6 ms.
    fn asked_by_vm(hooks: &[&str]) -> Scene {
        let (request, mut scene) = (request(0, 1), Scene::with_hooks(hooks));
        let reply = reply_to(&request);
        scene
            .add(MS, WORKER, 0, Body::PacketIngress(packet(TAP, 0x1000, &request)))
            .egress_by(MS + 1, WORKER, PNIC, 0x1000, &request)
            .ingress(5 * MS, PNIC, 0x2000, &reply)
            .egress(6 * MS, TAP, 0x2000, &reply);
        scene
    }

    #[test]
    fn an_answer_waits_in_its_vms_ring_for_as_long_as_it_takes() {
        let mut scene = asked_by_vm(&RING_HOOKS);
        scene.tick(400 * MS).taken(506 * MS, WORKER, TAP, 0x2000);
        let run = scene.run();
        assert_eq!(stages(run.only()).last(), Some(&Stage::BackendRx));
        assert_eq!((run.only().outcome.clone(), run.only().elapsed()), (Outcome::Replied, DurNs(505 * MS)));
    }

    #[test]
    fn an_answer_whose_taking_was_not_seen_is_no_loss() {
        for hooks in [RING_HOOKS.as_slice(), &["net_dev_start_xmit"]] {
            let mut scene = asked_by_vm(hooks);
            scene.tick(1_100 * MS);
            let run = scene.run();
            assert_eq!(stages(run.only()).last(), Some(&Stage::VnicTx));
            assert_eq!((run.only().outcome.clone(), run.only().elapsed()), (Outcome::Replied, DurNs(5 * MS)));
        }
    }

    #[test]
    fn a_vm_without_a_hooked_nic_ends_where_it_gives_the_reply_back() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene.egress_by(MS, WORKER, TAP, 0x1000, &request).ingress(4 * MS, TAP, 0x2000, &reply_to(&request));
        scene.tick(30 * MS);
        let run = scene.run();
        assert_eq!(stages(run.only()), [Stage::VnicTx, Stage::VnicRx]);
        assert_eq!(run.only().perspective, Perspective::Served);
        assert_eq!(run.only().outcome, Outcome::Replied);
    }

    #[test]
    fn loopback_is_served_once_although_it_sees_each_packet_twice() {
        for role in [ROLE_REQUEST, ROLE_EITHER] {
            let request = Sighting { role, ..request(0, 1) };
            let (reply, mut scene) = (reply_to(&request), Scene::new());
            scene
                .egress_by(MS, OTHER_WORKER, LO, 0x1000, &request)
                .xmit(MS + 1, LO, 0x1000)
                .ingress(MS + 10, LO, 0x1000, &request)
                .enqueue_last(MS + 20, UDP)
                .read(2 * MS, WORKER, UDP, 20, 0)
                .egress_by(3 * MS, WORKER, LO, 0x2000, &reply)
                .xmit(3 * MS + 10, LO, 0x2000)
                .ingress(3 * MS + 20, LO, 0x2000, &reply);
            let run = scene.run();
            let journey = run.only();
            assert_eq!(journey.perspective, Perspective::Served);
            let path =
                [Stage::PnicRx, Stage::SockEnqueue, Stage::SockRead, Stage::AppSend, Stage::PnicQueue, Stage::PnicXmit];
            assert_eq!(stages(journey), path);
            assert_eq!(run.counts.off_path, 2);
        }
    }

    #[test]
    fn a_symmetric_rule_takes_the_first_of_a_pair_for_the_request() {
        for rule in [0, 1] {
            let request = Sighting { role: ROLE_EITHER, ..request(rule, 1) };
            let mut scene = Scene::new();
            scene.served(MS, 0x1000, &request).served(10 * MS, 0x3000, &request);
            let run = scene.run();
            assert_eq!(run.ended.len(), 2);
            assert!(run.ended.iter().all(|journey| journey.outcome == Outcome::Replied && journey.stamps.len() == 6));
        }
    }

    #[test]
    fn with_packets_alone_a_check_ends_at_the_last_sighting() {
        let (request, mut scene) = (request(0, 1), Scene::with_hooks(&[]));
        scene.ingress(MS, PNIC, 0, &request).egress(2 * MS, TAP, 0, &request);
        scene.ingress(3 * MS, TAP, 0, &reply_to(&request)).egress(4 * MS, PNIC, 0, &reply_to(&request));
        let run = scene.run();
        assert_eq!(run.only().stamps.len(), 4);
        assert_eq!(run.only().outcome, Outcome::Replied);
    }

    #[test]
    fn a_reply_without_a_request_and_an_unknown_interface_are_unmatched() {
        let mut scene = Scene::new();
        scene.egress(MS, PNIC, 1, &reply_to(&request(0, 1))).ingress(2 * MS, 99, 2, &request(0, 2));
        let run = scene.run();
        assert!(run.ended.is_empty());
        assert_eq!((run.counts.unmatched, run.counts.unknown_interface), (2, 1));
    }

    #[test]
    fn what_threads_do_is_evidence() {
        let mut scene = Scene::new();
        scene.add(1, WORKER, 0, Body::SwitchIn(SwitchInBody::new_zeroed()));
        assert_eq!(scene.run().counts.evidence, 1);
    }
}

mod identity {
    use super::*;

    #[test]
    fn a_nonce_used_again_after_the_end_is_a_new_journey() {
        let mut scene = Scene::new();
        scene.served(MS, 0x1000, &request(0, u32::MAX)).served(50 * MS, 0x1000, &request(0, u32::MAX));
        let run = scene.run();
        assert_eq!(run.ended.iter().map(|journey| journey.id.0).collect::<Vec<_>>(), [1, 2]);
        assert!(run.ended.iter().all(|journey| journey.outcome == Outcome::Replied && journey.retransmissions == 0));
    }

    #[test]
    fn a_copy_with_another_skb_at_the_same_stage_is_a_retransmission() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene.ingress(MS, PNIC, 0x1000, &request).ingress(2 * MS, PNIC, 0x1500, &request);
        scene.served(3 * MS, 0x2000, &request);
        let run = scene.run();
        assert_eq!(run.only().retransmissions, 2);
        assert_eq!(run.only().started_at(), MonoNs(MS));
        assert_eq!(run.only().outcome, Outcome::Replied);
    }

    #[test]
    fn the_same_packet_twice_at_one_stage_is_a_duplicate() {
        let request = Sighting { ip_id: 9, ..request(0, 1) };
        let mut scene = Scene::new();
        scene.ingress(MS, PNIC, 0x1000, &request).ingress(MS + 5, PNIC, 0x1500, &request);
        let run = scene.run();
        assert_eq!((run.only().retransmissions, run.counts.duplicates), (0, 1));
    }

    #[test]
    fn servers_that_get_the_same_nonce_at_once_are_kept_apart() {
        let mut scene = Scene::new();
        let to = |last| Sighting { destination: address(last), ..request(0, 1) };
        for last in 2..6 {
            scene.ingress(MS + u64::from(last), PNIC, 0x1000 * u64::from(last), &to(last));
        }
        for last in (2..6).rev() {
            let skb = 0x100_000 * u64::from(last);
            scene.egress(3 * MS, PNIC, skb, &reply_to(&to(last))).xmit(3 * MS + u64::from(last), PNIC, skb);
        }
        let run = scene.run();
        assert_eq!(run.ended.len(), 4);
        for journey in &run.ended {
            assert_eq!(journey.outcome, Outcome::Replied);
            let last = u64::from(journey.request.destination[15]);
            assert_eq!(journey.elapsed(), DurNs(2 * MS));
            assert_eq!(journey.started_at(), MonoNs(MS + last));
        }
    }

    fn behind_nat(outside: &Sighting) -> Sighting {
        Sighting { destination: address(200), destination_port: 8080, ..*outside }
    }

    #[test]
    fn nat_between_the_nics_is_followed_by_skb_with_and_without_a_nonce() {
        for rule in [0, 1, 2] {
            let (outside, mut scene) = (request(rule, 7), Scene::new());
            let inside = behind_nat(&outside);
            scene
                .ingress(MS, PNIC, 0x1000, &outside)
                .egress(MS + 9, TAP, 0x1000, &inside)
                .ingress(4 * MS, TAP, 0x2000, &reply_to(&inside))
                .egress(5 * MS, PNIC, 0x2000, &reply_to(&outside))
                .xmit(6 * MS, PNIC, 0x2000);
            let run = scene.run();
            assert_eq!(run.only().stamps.len(), 5, "rule {rule}");
            assert_eq!(run.only().outcome, Outcome::Replied);
        }
    }

    #[test]
    fn nat_is_followed_by_the_nonce_where_no_skb_is_known() {
        let (outside, mut scene) = (request(0, 7), Scene::with_hooks(&[]));
        let inside = behind_nat(&outside);
        scene
            .ingress(MS, PNIC, 0, &outside)
            .egress(2 * MS, TAP, 0, &inside)
            .ingress(4 * MS, TAP, 0, &reply_to(&inside))
            .egress(5 * MS, PNIC, 0, &reply_to(&outside));
        assert_eq!(scene.run().only().stamps.len(), 4);
    }

    #[test]
    fn an_skb_address_older_than_a_moment_proves_nothing() {
        let (outside, mut scene) = (request(1, 0), Scene::new());
        scene.ingress(MS, PNIC, 0x1000, &outside).egress(102 * MS, TAP, 0x1000, &behind_nat(&outside));
        assert_eq!(scene.run().ended.len(), 2);
    }

    #[test]
    fn a_packet_that_fits_two_checks_is_counted_and_joined_to_none() {
        let mut scene = Scene::with_hooks(&[]);
        let to = |last| Sighting { destination: address(last), ..request(0, 1) };
        let inside = Sighting { destination: address(200), ..request(0, 1) };
        scene.ingress(MS, PNIC, 0, &to(2)).ingress(2 * MS, PNIC, 0, &to(3)).egress(3 * MS, TAP, 0, &inside).egress(
            4 * MS,
            PNIC,
            0,
            &reply_to(&to(2)),
        );
        let run = scene.run();
        assert_eq!(run.counts.ambiguous, 1);
        assert_eq!(run.ended.len(), 2);
        assert!(run.ended.iter().all(|journey| journey.outcome == Outcome::Ambiguous));
        assert!(run.ended.iter().all(|journey| journey.stamp(Stage::VnicTx).is_none()));
    }

    /// As one looks behind a translation of both ends.
    fn twice_translated(outside: &Sighting) -> Sighting {
        Sighting { source: address(50), source_port: 1234, destination: address(51), ..*outside }
    }

    #[test]
    fn a_translation_of_both_ends_is_followed_by_a_long_nonce() {
        let (outside, mut scene) = (request(0, 1), Scene::with_hooks(&[]));
        let inside = twice_translated(&outside);
        scene
            .ingress(MS, PNIC, 0, &outside)
            .egress(2 * MS, TAP, 0, &inside)
            .ingress(4 * MS, TAP, 0, &reply_to(&inside))
            .egress(5 * MS, PNIC, 0, &reply_to(&outside));
        let run = scene.run();
        assert_eq!(stages(run.only()), [Stage::PnicRx, Stage::VnicTx, Stage::VnicRx, Stage::PnicQueue]);
        assert_eq!((run.counts.ambiguous, run.counts.unmatched), (0, 0));
    }

    #[test]
    fn a_translation_of_both_ends_is_not_guessed_between_two_clients_with_the_same_nonce() {
        let one = request(0, 1);
        let two = Sighting { source: address(9), ..one };
        let mut scene = Scene::with_hooks(&[]);
        scene.ingress(MS, PNIC, 0, &one).ingress(MS + 1, PNIC, 0, &two).egress(2 * MS, TAP, 0, &twice_translated(&one));
        for request in [&one, &two] {
            scene.egress(5 * MS, PNIC, 0, &reply_to(request));
        }
        let run = scene.run();
        assert_eq!((run.ended.len(), run.counts.ambiguous), (2, 1));
        assert!(run.ended.iter().all(|journey| stages(journey) == [Stage::PnicRx, Stage::PnicQueue]));
        assert!(run.ended.iter().all(|journey| journey.outcome == Outcome::Ambiguous));
    }

    #[test]
    fn two_clients_with_the_same_nonce_one_after_the_other_are_kept_apart() {
        let one = request(0, 1);
        let two = Sighting { source: address(9), ..one };
        let mut scene = Scene::with_hooks(&[]);
        for (at, request) in [(MS, &one), (2 * MS, &two)] {
            let inside = Sighting { source_port: request.source[15].into(), ..twice_translated(request) };
            scene.ingress(at, PNIC, 0, request).egress(at + 1000, TAP, 0, &inside);
        }
        for (at, request) in [(5 * MS, &two), (6 * MS, &one)] {
            let inside = Sighting { source_port: request.source[15].into(), ..twice_translated(request) };
            scene.ingress(at, TAP, 0, &reply_to(&inside)).egress(at + 1000, PNIC, 0, &reply_to(request));
        }
        let run = scene.run();
        let ended = run.ended.iter().map(|journey| (journey.id.0, journey.elapsed().0, journey.stamps.len()));
        assert_eq!(ended.collect::<Vec<_>>(), [(2, 3 * MS + 1000, 4), (1, 5 * MS + 1000, 4)]);
    }

    #[test]
    fn a_nonce_with_no_end_in_common_is_another_check_unless_it_can_be_the_same_packet() {
        let outside = request(0, 1);
        let foreign = twice_translated(&outside);
        let longer = Sighting { payload_len: 21, ..foreign };
        for (skb, at, foreign) in [(0x2000, 2 * MS, &foreign), (0, 1_002 * MS, &foreign), (0, 2 * MS, &longer)] {
            let mut scene = Scene::with_hooks(&[]);
            let outer_skb = if skb == 0 { 0 } else { 0x1000 };
            scene.ingress(MS, PNIC, outer_skb, &outside).egress(at, TAP, skb, foreign);
            assert_eq!(scene.run().ended.len(), 2);
        }
    }

    #[test]
    fn requests_of_a_flow_without_nonce_are_counted_each_although_their_addresses_recur() {
        for ip_id in [0, 7] {
            let request = Sighting { ip_id, ..request(1, 0) };
            let mut scene = Scene::with_hooks(&[]);
            for n in 0..3 {
                scene.ingress(MS + n * 20 * MS, PNIC, 0x1000, &request);
            }
            for n in 0..3 {
                scene.egress(100 * MS + n * 20 * MS, PNIC, 0x2000, &reply_to(&request));
            }
            let run = scene.run();
            assert_eq!(run.ended.len(), 3, "{ip_id}");
            assert!(run.ended.iter().all(|journey| journey.elapsed() == DurNs(99 * MS)));
            assert_eq!((run.counts.unmatched, run.counts.duplicates), (0, 0));
        }
    }

    #[test]
    fn requests_taken_up_at_once_free_their_address_for_the_next() {
        let (request, mut scene) = (request(1, 0), Scene::new());
        for n in 0..3 {
            scene.ingress(MS + n * 1000, PNIC, 0x1000, &request).enqueue_last(MS + n * 1000 + 100, UDP);
            scene.read(MS + n * 1000 + 200, WORKER, UDP, 20, 0);
        }
        assert_eq!(scene.run().ended.len(), 3);
    }

    #[test]
    fn a_datagram_seen_twice_at_once_is_one_check() {
        for (ip_id, skb) in [(7, 0x2000), (0, 0x1000)] {
            let request = Sighting { ip_id, ..request(1, 0) };
            let mut scene = Scene::with_hooks(&[]);
            scene.ingress(MS, PNIC, 0x1000, &request).ingress(MS + 20_000, PNIC, skb, &request);
            assert_eq!(scene.run().counts.duplicates, 1);
        }
    }

    #[test]
    fn datagrams_without_a_nonce_keep_the_order_of_their_flow() {
        let (request, mut scene) = (request(1, 0), Scene::with_hooks(&[]));
        for n in 0..5 {
            scene.ingress(MS + n, PNIC, 0, &request).egress(2 * MS + n, TAP, 0, &request);
        }
        for n in 0..5 {
            scene.ingress(3 * MS + 2 * n, TAP, 0, &reply_to(&request));
        }
        for n in 0..5 {
            scene.egress(4 * MS + 3 * n, PNIC, 0, &reply_to(&request));
        }
        let run = scene.run();
        assert_eq!(run.ended.len(), 5);
        for (n, journey) in (0..).zip(&run.ended) {
            let at: Vec<u64> = journey.stamps.iter().map(|stamp| stamp.at.0).collect();
            assert_eq!(at, [MS + n, 2 * MS + n, 3 * MS + 2 * n, 4 * MS + 3 * n]);
        }
    }

    #[test]
    fn ip_identification_beats_order_when_a_packet_is_missing() {
        let with_id = |ip_id| Sighting { ip_id, ..request(1, 0) };
        let mut scene = Scene::with_hooks(&[]);
        scene.ingress(MS, PNIC, 0, &with_id(10)).ingress(2 * MS, PNIC, 0, &with_id(11));
        scene.egress(3 * MS, TAP, 0, &with_id(11));
        let run = scene.run();
        let reached: Vec<bool> = run.ended.iter().map(|journey| journey.stamp(Stage::VnicTx).is_some()).collect();
        assert_eq!(reached, [false, true]);
    }

    #[test]
    fn a_stream_tells_requests_and_replies_by_sequence_numbers() {
        let near_wrap = u32::MAX - 30;
        let requests = [request(2, near_wrap), request(2, near_wrap.wrapping_add(20)), request(2, 9)];
        let mut scene = Scene::with_hooks(&[]);
        for (at, request) in (1..).zip(&requests) {
            scene.ingress(at * MS, PNIC, 0, request);
        }
        // The second one again: a retransmission, not a request.
        scene.ingress(4 * MS, PNIC, 0, &Sighting { ip_id: 5, ..requests[1] });
        for (at, request) in (10..).zip(&requests) {
            scene.egress(at * MS, PNIC, 0, &reply_to(request));
        }
        let run = scene.run();
        assert_eq!(run.ended.len(), 3);
        assert!(run.ended.iter().all(|journey| journey.elapsed() == DurNs(9 * MS)));
        assert_eq!(run.ended[1].retransmissions, 1);
    }

    #[test]
    fn pipelined_requests_are_answered_in_order_though_each_reply_acknowledges_them_all() {
        let requests = [1, 21, 41].map(|seq| Sighting { tcp_ack: 0x8001, ..request(2, seq) });
        let mut scene = Scene::with_hooks(&[]);
        scene.ingress(MS, PNIC, 0, &requests[0]).ingress(2 * MS, PNIC, 0, &requests[1]);
        scene.ingress(3 * MS, PNIC, 0, &requests[2]);
        for (at, request) in [(10, &requests[0]), (30, &requests[1]), (60, &requests[2])] {
            scene.egress(at * MS, PNIC, 0, &Sighting { tcp_ack: 61, ..reply_to(request) });
        }
        let took: Vec<u64> = scene.run().ended.iter().map(|journey| journey.elapsed().0 / MS).collect();
        assert_eq!(took, [9, 28, 57]);
    }

    #[test]
    fn a_reply_that_is_sent_again_does_not_answer_the_next_request_of_its_connection() {
        let first = Sighting { tcp_ack: 0x8001, ..request(2, 1) };
        let reply = reply_to(&first);
        let second = Sighting { tcp_ack: reply.tcp_seq + 20, ..request(2, 21) };
        let mut scene = Scene::with_hooks(&[]);
        scene.ingress(MS, PNIC, 0, &first).egress(2 * MS, PNIC, 0, &reply).tick(100 * MS);
        scene.ingress(200 * MS, PNIC, 0, &second);
        scene.egress(201 * MS, PNIC, 0, &Sighting { tcp_ack: 41, ip_id: 9, ..reply });
        scene.egress(900 * MS, PNIC, 0, &Sighting { tcp_seq: second.tcp_ack, ..reply_to(&second) });
        let run = scene.run();
        let took: Vec<u64> = run.ended.iter().map(|journey| journey.elapsed().0 / MS).collect();
        assert_eq!((took, run.counts.unmatched), (vec![1, 700], 1));
    }

    #[test]
    fn a_connection_attempt_is_answered_by_the_segment_that_acknowledges_its_syn() {
        let syn = Sighting { tcp_flags: 2, payload_len: 0, ..request(2, u32::MAX) };
        let stale = Sighting { tcp_ack: u32::MAX, ..reply_to(&syn) };
        let syn_ack = Sighting { tcp_ack: 0, ..reply_to(&syn) };
        let mut scene = Scene::with_hooks(&[]);
        scene.ingress(MS, PNIC, 0, &syn).ingress(1001 * MS, PNIC, 0, &Sighting { ip_id: 3, ..syn });
        scene.egress(1002 * MS, PNIC, 0, &stale).egress(1003 * MS, PNIC, 0, &syn_ack);
        let run = scene.run();
        assert_eq!(run.only().retransmissions, 1);
        assert_eq!(run.only().elapsed(), DurNs(1002 * MS));
        assert_eq!(run.counts.unmatched, 1);
    }
}

mod socket {
    use super::*;

    /// `n` requests enter the socket, 1 µs apart, from 1 ms on.
    fn queued(n: u32) -> Scene {
        let mut scene = Scene::new();
        for i in 0..n {
            let at = MS + u64::from(i) * 1000;
            scene.ingress(at, PNIC, 0x1000 * u64::from(i + 1), &request(0, i)).enqueue_last(at + 10, UDP);
        }
        scene
    }

    fn read_times(scene: &Scene) -> Vec<Option<u64>> {
        let mut ended = scene.run().ended;
        ended.sort_by_key(|journey| journey.id);
        ended.iter().map(|journey| journey.stamp(Stage::SockRead).map(|stamp| stamp.at.0)).collect()
    }

    #[test]
    fn reads_take_datagrams_in_order() {
        let mut scene = queued(3);
        scene.read(10 * MS, WORKER, UDP, 20, 0).read(11 * MS, OTHER_WORKER, UDP, 20, 0);
        assert_eq!(read_times(&scene), [Some(10 * MS), Some(11 * MS), None]);
    }

    #[test]
    fn data_of_no_check_takes_its_turn() {
        let mut scene = Scene::new();
        scene.enqueue(MS, UDP, 0).ingress(2 * MS, PNIC, 0x1000, &request(0, 0)).enqueue_last(2 * MS + 1, UDP);
        scene.read(10 * MS, WORKER, UDP, 20, 0).read(11 * MS, WORKER, UDP, 20, 0);
        assert_eq!(read_times(&scene), [Some(11 * MS)]);
    }

    #[test]
    fn peeks_and_failed_reads_take_nothing() {
        let mut scene = queued(1);
        scene.read(10 * MS, WORKER, UDP, 20, 2).read(11 * MS, WORKER, UDP, -4, 0).read(12 * MS, WORKER, UDP, 20, 0);
        assert_eq!(read_times(&scene), [Some(12 * MS)]);
    }

    #[test]
    fn a_read_that_finds_nothing_puts_the_order_right() {
        let mut scene = queued(1);
        // The read of the first was lost.
        scene.read(10 * MS, WORKER, UDP, -11, 0);
        scene.ingress(20 * MS, PNIC, 0x9000, &request(0, 9)).enqueue_last(20 * MS + 1, UDP);
        scene.read(21 * MS, WORKER, UDP, 20, 0);
        assert_eq!(read_times(&scene), [None, Some(21 * MS)]);
    }

    #[test]
    fn a_reply_proves_that_its_request_was_read() {
        let mut scene = queued(2);
        scene.egress_by(5 * MS, WORKER, PNIC, 0x8000, &reply_to(&request(0, 0))).xmit(5 * MS + 1, PNIC, 0x8000);
        scene.read(6 * MS, WORKER, UDP, 20, 0);
        assert_eq!(read_times(&scene), [None, Some(6 * MS)]);
    }

    #[test]
    fn a_socket_that_was_full_before_it_was_watched_is_not_matched_until_it_was_empty() {
        let mut scene = Scene::new();
        let full = |scene: &mut Scene, receive_bytes| {
            let Some(Event { body: Body::SockEnqueue(body), .. }) = scene.events.last_mut() else { panic!("enqueue") };
            body.receive_bytes = receive_bytes;
        };
        scene.ingress(MS, PNIC, 0x1000, &request(0, 0)).enqueue_last(MS + 1, UDP);
        full(&mut scene, 200_000);
        scene.read(2 * MS, WORKER, UDP, 20, 0);
        scene.ingress(3 * MS, PNIC, 0x2000, &request(0, 1)).enqueue_last(3 * MS + 1, UDP);
        full(&mut scene, 768);
        scene.read(4 * MS, WORKER, UDP, 20, 0);
        assert_eq!(read_times(&scene), [None, Some(4 * MS)]);
    }

    #[test]
    fn an_answer_whose_read_was_missed_ends_in_the_socket() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene
            .egress_by(MS, WORKER, PNIC, 0x1000, &request)
            .ingress(9 * MS, PNIC, 0x2000, &reply_to(&request))
            .enqueue_last(9 * MS + 10, UDP)
            .read(50 * MS, WORKER, UDP, -11, 0)
            .tick(80 * MS);
        let run = scene.run();
        assert_eq!(run.only().outcome, Outcome::Replied);
        assert_eq!(run.only().stamps.last().unwrap().stage, Stage::SockEnqueue);
    }

    #[test]
    fn an_answer_that_nobody_reads_is_not_given() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene
            .egress_by(MS, WORKER, PNIC, 0x1000, &request)
            .ingress(9 * MS, PNIC, 0x2000, &reply_to(&request))
            .enqueue_last(9 * MS + 10, UDP)
            .tick(20_000 * MS);
        assert_eq!(scene.run().only().outcome, Outcome::Lost(Loss::TimedOut));
    }

    #[test]
    fn a_read_of_a_stream_takes_all_that_came_before() {
        let mut scene = Scene::new();
        for i in 0..2 {
            let request = request(2, i * 20);
            scene.ingress(MS + u64::from(i), PNIC, 0x1000 * u64::from(i + 1), &request).enqueue_last(2 * MS, TCP);
        }
        scene.read(5 * MS, WORKER, TCP, 40, 0);
        assert_eq!(read_times(&scene), [Some(5 * MS), Some(5 * MS)]);
    }

    #[test]
    fn a_reply_held_in_the_send_queue_was_sent_when_the_call_returned() {
        let (request, mut scene) = (request(2, 100), Scene::new());
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .enqueue_last(MS + 1, TCP)
            .read(2 * MS, WORKER, TCP, 20, 0)
            .send(3 * MS, OTHER_WORKER, TCP)
            .egress(43 * MS, PNIC, 0x2000, &reply_to(&request))
            .xmit(43 * MS + 1, PNIC, 0x2000);
        let run = scene.run();
        let sent = run.only().stamp(Stage::AppSend).unwrap();
        assert_eq!((sent.at, sent.task), (MonoNs(3 * MS), OTHER_WORKER));
    }

    /// Two checks on a connection whose window is closed, each answered before the next is read.
    fn answered_one_by_one(reader: TaskId) -> Run {
        let (one, two) = (request(2, 100), request(2, 120));
        let mut scene = Scene::new();
        scene.ingress(MS, PNIC, 0x1000, &one).enqueue_last(MS + 1, TCP);
        scene.read(2 * MS, WORKER, TCP, 20, 0).send(3 * MS, WORKER, TCP);
        scene.ingress(4 * MS, PNIC, 0x3000, &two).enqueue_last(4 * MS + 1, TCP);
        scene.read(5 * MS, reader, TCP, 20, 0).send(6 * MS, reader, TCP);
        scene.egress(43 * MS, PNIC, 0x2000, &reply_to(&one)).xmit(43 * MS + 1, PNIC, 0x2000);
        scene.egress(44 * MS, PNIC, 0x4000, &reply_to(&two)).xmit(44 * MS + 1, PNIC, 0x4000);
        scene.run()
    }

    #[test]
    fn a_thread_that_reads_its_next_check_has_answered_the_one_before() {
        let run = answered_one_by_one(WORKER);
        let sent = |index: usize| run.ended[index].stamp(Stage::AppSend).map(|stamp| stamp.at);
        assert_eq!((sent(0), sent(1)), (Some(MonoNs(3 * MS)), Some(MonoNs(6 * MS))));
        let run = answered_one_by_one(OTHER_WORKER);
        assert!(run.ended[1].stamp(Stage::AppSend).is_none(), "whose answer the call was is not known");
    }

    #[test]
    fn a_packet_of_the_send_call_itself_is_earlier_than_the_end_of_the_call() {
        let (one, two) = (request(2, 100), request(2, 120));
        let mut scene = Scene::new();
        scene
            .ingress(MS, PNIC, 0x1000, &one)
            .enqueue_last(MS + 1, TCP)
            .read(2 * MS, WORKER, TCP, 20, 0)
            .egress_by(3 * MS, WORKER, PNIC, 0x2000, &reply_to(&one))
            .xmit(3 * MS + 1, PNIC, 0x2000)
            .ingress(3 * MS + 2, PNIC, 0x3000, &two)
            .enqueue_last(3 * MS + 3, TCP)
            .read(3 * MS + 4, OTHER_WORKER, TCP, 20, 0)
            .send(3 * MS + 5, WORKER, TCP);
        let run = scene.run();
        assert_eq!(run.ended[0].stamp(Stage::AppSend).unwrap().at, MonoNs(3 * MS));
        assert!(run.ended[1].stamp(Stage::AppSend).is_none(), "the call was the first check's");
    }
}

mod loss {
    use super::*;

    #[test]
    fn a_dropped_datagram_is_lost_at_once_with_the_kernels_reason() {
        let mut scene = Scene::new();
        scene.ingress(MS, PNIC, 0x1000, &request(0, 1)).drop_of(2 * MS, 0x1000, Some(&request(0, 1)));
        let run = scene.run();
        let Outcome::Lost(Loss::Dropped(drop)) = &run.only().outcome else { panic!("{:?}", run.only().outcome) };
        assert_eq!((drop.reason, drop.location, drop.reply), (6, 0xabc, false));
        assert_eq!(run.only().known_until, MonoNs(2 * MS));
    }

    #[test]
    fn a_dropped_clone_does_not_kill_a_check_that_moves_on() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .drop_of(MS + 10, 0x5000, Some(&request))
            .egress(MS + 20, TAP, 0x1000, &request)
            .drop_of(MS + 30, 0x6000, Some(&request))
            .ingress(30 * MS, TAP, 0x2000, &reply_to(&request))
            .egress(31 * MS, PNIC, 0x2000, &reply_to(&request))
            .xmit(32 * MS, PNIC, 0x2000);
        let run = scene.run();
        assert_eq!(run.only().outcome, Outcome::Replied);
        assert_eq!(run.only().drops.len(), 2);
    }

    #[test]
    fn a_dropped_copy_kills_a_check_that_does_not_move_on() {
        let mut scene = Scene::new();
        scene.ingress(MS, PNIC, 0x1000, &request(0, 1)).drop_of(2 * MS, 0x5000, Some(&request(0, 1))).tick(30 * MS);
        let run = scene.run();
        assert!(matches!(&run.only().outcome, Outcome::Lost(Loss::Dropped(drop)) if drop.at == MonoNs(2 * MS)));
    }

    #[test]
    fn a_drop_of_the_frame_itself_does_not_beat_a_reply_that_is_seen() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .drop_of(MS + 10, 0x1000, Some(&request))
            .egress(3 * MS, PNIC, 0x2000, &reply_to(&request))
            .xmit(3 * MS + 1, PNIC, 0x2000);
        let run = scene.run();
        assert_eq!((&run.only().outcome, run.counts.unmatched), (&Outcome::Replied, 0));
    }

    #[test]
    fn a_frame_for_another_host_ends_no_check_and_is_none_of_its_drops() {
        for reason in ["OTHERHOST", "UNICAST_IN_L2_MULTICAST", "TAP_FILTER"] {
            let (request, mut scene) = (request(1, 0), Scene::new());
            scene
                .ingress(MS, PNIC, 0x1000, &request)
                .drop_because(MS + 10, 0x1000, &request, reason)
                .egress(300 * MS, PNIC, 0x2000, &reply_to(&request))
                .xmit(300 * MS + 1, PNIC, 0x2000);
            let run = scene.run();
            assert_eq!((&run.only().outcome, run.only().drops.len()), (&Outcome::Replied, 0), "{reason}");
        }
    }

    #[test]
    fn a_frame_for_another_host_that_nobody_here_answers_is_no_loss() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene.ingress(MS, PNIC, 0x1000, &request).drop_because(MS + 10, 0x1000, &request, "OTHERHOST");
        let broken = |run: &Run| matches!(run.only().outcome, Outcome::Broken(_)) && run.reports.is_empty();
        assert!(broken(&scene.run()));
        assert!(broken(&scene.tick(20_000 * MS).run()));
    }

    #[test]
    fn a_copy_that_no_socket_took_is_no_loss_once_the_check_is_in_one() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .enqueue_last(MS + 10, UDP)
            .drop_because(MS + 20, 0x1000, &request, "NO_SOCKET")
            .tick(60 * MS);
        assert_eq!((&scene.run().only().outcome, scene.run().only().drops.len()), (&Outcome::Open, 0));
        let mut scene = Scene::new();
        scene.ingress(MS, PNIC, 0x1000, &request).drop_because(MS + 20, 0x1000, &request, "NO_SOCKET").tick(60 * MS);
        assert!(matches!(scene.run().only().outcome, Outcome::Lost(Loss::Dropped(_))));
    }

    #[test]
    fn a_dropped_segment_is_noted_and_the_stream_goes_on() {
        let (request, mut scene) = (request(2, 1), Scene::new());
        let again = Sighting { ip_id: 8, ..request };
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .drop_of(2 * MS, 0x1000, Some(&request))
            .ingress(203 * MS, PNIC, 0x3000, &again)
            .egress(204 * MS, PNIC, 0x4000, &reply_to(&request))
            .xmit(205 * MS, PNIC, 0x4000);
        let run = scene.run();
        assert_eq!(run.only().outcome, Outcome::Replied);
        assert_eq!((run.only().drops.len(), run.only().retransmissions), (1, 1));
    }

    /// The record of a full accept queue stands behind that of the request.
    fn finds_no_room(scene: &mut Scene, at: u64, skb: u64) {
        let packet_seq = scene.seq;
        let body = AcceptFullBody { socket: 9, skb, packet_seq, waiting: 3, limit: 2, half_open: 0, local_port: 4000 };
        scene.add(at, SOFTIRQ, 4, Body::AcceptFull(body));
    }

    #[test]
    fn a_request_without_room_at_its_listener_is_noted_unless_it_was_dropped_before() {
        let (request, mut scene) = (request(2, 1), Scene::new());
        let again = Sighting { ip_id: 8, ..request };
        scene.ingress(MS, PNIC, 0x1000, &request);
        finds_no_room(&mut scene, MS + 5, 0x1000);
        scene.ingress(1_001 * MS, PNIC, 0x3000, &again);
        finds_no_room(&mut scene, 1_001 * MS + 5, 0x3000);
        let mut dropped = scene.clone();
        let run = scene.egress(2_004 * MS, PNIC, 0x4000, &reply_to(&request)).xmit(2_005 * MS, PNIC, 0x4000).run();
        let times = |run: &Run| run.only().refusals.iter().map(|refusal| refusal.at.0).collect::<Vec<_>>();
        assert_eq!((times(&run), run.only().retransmissions), (vec![MS + 5, 1_001 * MS + 5], 1));
        let run = dropped.drop_of(1_001 * MS + 9, 0x3000, Some(&again)).run();
        assert_eq!((times(&run), run.only().drops.len()), (vec![MS + 5], 1));
    }

    #[test]
    fn a_full_accept_queue_of_no_check_is_counted_as_unmatched() {
        let mut scene = Scene::new();
        finds_no_room(&mut scene, MS, 0x1000);
        assert_eq!(scene.run().counts.unmatched, 1);
    }

    #[test]
    fn a_reply_waits_in_its_qdisc_for_as_long_as_it_takes() {
        let (request, mut scene) =
            (request(0, 1), Scene::with_hooks(&["net_dev_start_xmit", "qdisc_enqueue", "qdisc_dequeue"]));
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .egress(2 * MS, PNIC, 0x2000, &reply_to(&request))
            .qdisc(2 * MS + 1, 0x2000, true)
            .qdisc(152 * MS, 0x2000, false)
            .xmit(152 * MS + 1, PNIC, 0x2000);
        let run = scene.run();
        assert_eq!(run.only().stamp(Stage::PnicXmit).unwrap().at, MonoNs(152 * MS + 1));
        assert_eq!(run.only().qdisc[0].left_at, Some(MonoNs(152 * MS)));
    }

    /// Two replies that come into a shaper, the second of `flow`; the first is not seen leaving.
    fn shaped(flow: u16) -> Scene {
        let mut scene = Scene::with_hooks(&["net_dev_start_xmit", "qdisc_enqueue", "qdisc_dequeue"]);
        let (first, second) = (request(0, 1), Sighting { source_port: flow, ..request(0, 2) });
        scene
            .ingress(MS, PNIC, 0x1000, &first)
            .egress(2 * MS, PNIC, 0x2000, &reply_to(&first))
            .shaper(2 * MS + 1, 0x2000, true, 30)
            .ingress(3 * MS, PNIC, 0x1100, &second)
            .egress(4 * MS, PNIC, 0x2100, &reply_to(&second))
            .shaper(4 * MS + 1, 0x2100, true, 31);
        scene
    }

    fn first_of(scene: &Scene) -> Journey {
        let run = scene.run();
        run.ended.into_iter().find(|journey| journey.id == JourneyId(1)).unwrap()
    }

    #[test]
    fn a_reply_that_a_later_one_of_its_flow_has_passed_is_not_still_in_the_qdisc() {
        let mut scene = shaped(50_000);
        scene.shaper(50 * MS, 0x2100, false, 20).xmit(50 * MS + 1, PNIC, 0x2100).tick(60_000 * MS);
        let first = first_of(&scene);
        assert!(matches!(first.outcome, Outcome::Broken(_)) && first.qdisc.is_empty(), "{first:?}");
        assert!(first.known_until < MonoNs(3 * MS), "{first:?}");
    }

    #[test]
    fn a_reply_that_one_of_another_flow_has_passed_may_still_be_in_the_qdisc() {
        let mut scene = shaped(50_001);
        scene.shaper(50 * MS, 0x2100, false, 20).xmit(50 * MS + 1, PNIC, 0x2100).tick(60_000 * MS);
        let first = first_of(&scene);
        assert_eq!((first.outcome, first.qdisc.len()), (Outcome::Lost(Loss::TimedOut), 1));
    }

    #[test]
    fn a_reply_is_not_in_a_qdisc_in_which_another_is_alone() {
        let mut scene = shaped(50_001);
        let third = request(0, 3);
        scene
            .ingress(60 * MS, PNIC, 0x1200, &third)
            .egress(61 * MS, PNIC, 0x2200, &reply_to(&third))
            .shaper(61 * MS + 1, 0x2200, true, 1)
            .tick(60_000 * MS);
        assert!(matches!(first_of(&scene).outcome, Outcome::Broken(_)));
    }

    #[test]
    fn a_reply_that_left_as_one_of_many_may_be_handed_over_after_a_later_one() {
        let mut scene = shaped(50_000);
        scene
            .shaper(50 * MS, 0x2100, false, 20)
            .xmit(50 * MS + 1, PNIC, 0x2100)
            .xmit(55 * MS, PNIC, 0x2000)
            .tick(60_000 * MS);
        let first = first_of(&scene);
        assert_eq!((first.outcome.clone(), first.known_until), (Outcome::Replied, MonoNs(55 * MS)), "{first:?}");
    }

    #[test]
    fn queues_without_a_handle_are_not_taken_for_one() {
        let mut scene = Scene::with_hooks(&["net_dev_start_xmit", "qdisc_enqueue", "qdisc_dequeue"]);
        let Fact::Interface(pnic) = interface_fact(PNIC, InterfaceRole::PhysicalNic, "ether") else { unreachable!() };
        scene.fact(Fact::Interface(InterfaceFact { tx_queues: 4, ..pnic }));
        let (first, second) = (request(0, 1), request(0, 2));
        scene
            .ingress(MS, PNIC, 0x1000, &first)
            .egress(2 * MS, PNIC, 0x2000, &reply_to(&first))
            .qdisc(2 * MS + 1, 0x2000, true)
            .ingress(3 * MS, PNIC, 0x1100, &second)
            .egress(4 * MS, PNIC, 0x2100, &reply_to(&second))
            .qdisc(4 * MS + 1, 0x2100, true)
            .qdisc(50 * MS, 0x2100, false)
            .xmit(50 * MS + 1, PNIC, 0x2100)
            .tick(60_000 * MS);
        assert_eq!(first_of(&scene).outcome, Outcome::Lost(Loss::TimedOut));
    }

    #[test]
    fn a_reply_waits_in_the_qdisc_of_the_device_that_it_was_handed_on_to() {
        let (request, mut scene) =
            (request(0, 1), Scene::with_hooks(&["net_dev_start_xmit", "qdisc_enqueue", "qdisc_dequeue"]));
        let (bond, port) = (PNIC + 20, PNIC + 21);
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .egress(2 * MS, PNIC, 0x2000, &reply_to(&request))
            .hand_on(2 * MS + 1, PNIC, 0x2000)
            .hand_on(2 * MS + 2, bond, 0x2000)
            .qdisc_of(2 * MS + 3, port, 0x2000, true)
            .qdisc_of(152 * MS, port, 0x2000, false)
            .xmit(152 * MS + 1, port, 0x2000);
        let run = scene.run();
        assert_eq!(run.only().stamp(Stage::PnicXmit).unwrap().at, MonoNs(152 * MS + 1));
        let [stay] = run.only().qdisc.as_slice() else { panic!("one stay") };
        assert_eq!((stay.entered.ifindex, stay.left_at), (port, Some(MonoNs(152 * MS))));
    }

    #[test]
    fn a_request_dropped_before_it_is_seen_to_come_in_is_a_lost_check() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene.drop_because(MS, 0x1000, &request, "CPU_BACKLOG").tick(60_000 * MS);
        let run = scene.run();
        assert!(matches!(&run.only().outcome, Outcome::Lost(Loss::Dropped(drop)) if !drop.reply));
        assert_eq!(stages(run.only()), [Stage::PnicRx]);
        let mut later = Scene::new();
        later.drop_because(MS, 0x1000, &request, "IP_NOPROTO").tick(60_000 * MS);
        later.drop_because(MS, 0x1000, &reply_to(&request), "CPU_BACKLOG").tick(60_000 * MS);
        assert!(later.run().ended.is_empty());
    }

    #[test]
    fn an_answer_dropped_elsewhere_at_the_address_of_its_request_is_no_drop_of_the_request() {
        let (request, mut scene) = (request(0, 1), Scene::new());
        scene
            .egress_by(MS, WORKER, PNIC, 0x1000, &request)
            .xmit(MS + 10, PNIC, 0x1000)
            .drop_of(2 * MS, 0x1000, Some(&reply_to(&request)))
            .tick(60_000 * MS);
        assert_eq!(scene.run().only().outcome, Outcome::Lost(Loss::TimedOut));
    }

    #[test]
    fn a_reply_dropped_in_its_qdisc_is_lost() {
        let (request, mut scene) = (request(0, 1), Scene::with_hooks(&["net_dev_start_xmit", "qdisc_enqueue"]));
        scene
            .ingress(MS, PNIC, 0x1000, &request)
            .egress(2 * MS, PNIC, 0x2000, &reply_to(&request))
            .qdisc(2 * MS + 1, 0x2000, true)
            .drop_of(60 * MS, 0x2000, None);
        let run = scene.run();
        assert!(matches!(&run.only().outcome, Outcome::Lost(Loss::Dropped(drop)) if drop.reply));
        assert_eq!(run.only().qdisc[0].left_at, None);
    }

    #[test]
    fn a_reply_dropped_before_any_device_is_lost_where_it_was_sent() {
        let request = request(0, 1);
        let read = |scene: &mut Scene| {
            scene.ingress(MS, PNIC, 0x1000, &request).enqueue_last(MS + 10, 17).read(MS + 500, WORKER, 17, 20, 0);
        };
        // Its packet lies where the request's was, or elsewhere.
        for skb in [0x1000, 0x2000] {
            let mut scene = Scene::with_hooks(&["net_dev_start_xmit", "qdisc_enqueue"]);
            read(&mut scene);
            scene.drop_of(2 * MS, skb, Some(&reply_to(&request))).by(WORKER).tick(3 * MS);
            let run = scene.run();
            let Outcome::Lost(Loss::Dropped(drop)) = &run.only().outcome else { panic!("{:?}", run.only().outcome) };
            assert_eq!((drop.reply, drop.task), (true, WORKER));
            assert_eq!(run.only().stamps.last().map(|stamp| (stamp.stage, stamp.task)), Some((Stage::AppSend, WORKER)));
        }
        let mut scene = Scene::new();
        read(&mut scene);
        scene.drop_of(2 * MS, 0x2000, Some(&reply_to(&request))).tick(3 * MS);
        let run = scene.run();
        assert!(matches!(run.only().outcome, Outcome::Lost(Loss::Dropped(_))));
        assert_eq!(run.only().stamp(Stage::AppSend), None, "a softirq dropped it");
    }

    #[test]
    fn a_request_dropped_in_its_senders_call_before_any_device_is_a_lost_check() {
        // With a nonce a copy could still be seen, without one not.
        for rule in [0, 1] {
            let mut scene = Scene::new();
            scene.drop_of(MS, 0x1000, Some(&request(rule, 1))).by(WORKER).own().tick(60_000 * MS);
            let run = scene.run();
            let journey = run.only();
            let Outcome::Lost(Loss::Dropped(drop)) = &journey.outcome else { panic!("{:?}", journey.outcome) };
            assert_eq!((drop.reply, drop.task, drop.at), (false, WORKER, MonoNs(MS)));
            assert_eq!((journey.perspective, journey.target.ifindex), (Perspective::Sent, PNIC));
            let stamps: Vec<_> = journey.stamps.iter().map(|stamp| (stamp.stage, stamp.task, stamp.at)).collect();
            assert_eq!(stamps, [(Stage::AppSend, WORKER, MonoNs(MS))]);
        }
    }

    #[test]
    fn only_a_request_of_a_thread_of_this_host_begins_with_its_drop() {
        let request = request(0, 1);
        let mut scene = Scene::new();
        scene.drop_of(MS, 0x1000, Some(&request)).by(WORKER);
        scene.drop_of(MS, 0x1000, Some(&request)).own();
        scene.drop_of(MS, 0x1000, Some(&reply_to(&request))).by(WORKER).own();
        scene.drop_of(MS, 0x1000, None).by(WORKER).own();
        scene.drop_of(MS, 0x1000, Some(&request)).by(WORKER).own();
        let Some(Event { body: Body::Drop(body), .. }) = scene.events.last_mut() else { panic!("a drop") };
        body.ifindex = 77;
        let run = scene.tick(60_000 * MS).run();
        assert!(run.ended.is_empty(), "{:?}", run.ended);
    }

    #[test]
    fn a_segment_dropped_before_any_device_is_sent_again_by_the_same_check() {
        let request = Sighting { protocol: 6, ..request(0, 1) };
        let mut scene = Scene::new();
        scene.drop_of(MS, 0x1000, Some(&request)).by(WORKER).own();
        scene.drop_of(200 * MS, 0x2000, Some(&Sighting { ip_id: 77, ..request })).own();
        scene.egress(600 * MS, PNIC, 0x3000, &request).xmit(600 * MS + 10, PNIC, 0x3000);
        scene.ingress(601 * MS, PNIC, 0x4000, &reply_to(&request)).tick(60_000 * MS);
        let run = scene.run();
        assert_eq!((run.only().outcome.clone(), run.only().drops.len()), (Outcome::Replied, 2));
        assert_eq!(stages(run.only()), [Stage::AppSend, Stage::PnicQueue, Stage::PnicXmit, Stage::PnicRx]);
    }

    #[test]
    fn a_hand_over_whose_record_is_missing_does_not_make_a_loss() {
        let (request, mut scene) = (request(0, 1), Scene::with_hooks(&["net_dev_start_xmit", "qdisc_enqueue"]));
        scene.ingress(MS, PNIC, 0x1000, &request).egress(2 * MS, PNIC, 0x2000, &reply_to(&request)).tick(1002 * MS);
        assert_eq!(scene.run().only().outcome, Outcome::Replied);
        assert_eq!(scene.run().only().elapsed(), DurNs(MS));
        let mut scene = Scene::new();
        scene.ingress(MS, PNIC, 0x1000, &request).egress(2 * MS, PNIC, 0x2000, &reply_to(&request)).tick(60_000 * MS);
        assert!(matches!(scene.run().only().outcome, Outcome::Broken(_)));
    }

    #[test]
    fn an_skb_address_belongs_to_the_check_that_was_seen_with_it_last() {
        let mut scene = Scene::new();
        scene
            .ingress(MS, PNIC, 0x1000, &request(0, 1))
            .ingress(2 * MS, PNIC, 0x1000, &request(0, 2))
            .egress(3 * MS, TAP, 0x1000, &request(0, 1))
            .drop_of(4 * MS, 0x1000, None);
        let run = scene.run();
        assert_eq!(run.ended[0].id, JourneyId(1));
        assert!(matches!(run.ended[0].outcome, Outcome::Lost(Loss::Dropped(_))));
        assert_eq!(run.ended[1].outcome, Outcome::Open);
    }

    #[test]
    fn an_old_skb_address_of_an_unknown_packet_kills_nothing() {
        let mut scene = Scene::new();
        scene
            .ingress(MS, PNIC, 0x1000, &request(0, 1))
            .egress(MS + 9, TAP, 0x1000, &request(0, 1))
            .drop_of(400 * MS, 0x1000, None)
            .tick(500 * MS);
        let run = scene.run();
        assert_eq!((&run.only().outcome, run.counts.unmatched), (&Outcome::Open, 1));
    }

    #[test]
    fn a_device_that_refuses_a_packet_for_long_is_waited_for() {
        let (request, mut scene) = (request(0, 1), Scene::with_hooks(&["net_dev_start_xmit", "qdisc_enqueue"]));
        scene.ingress(MS, PNIC, 0x1000, &request).egress(2 * MS, PNIC, 0x2000, &reply_to(&request)).xmit(
            402 * MS,
            PNIC,
            0x2000,
        );
        assert_eq!(scene.run().only().elapsed(), DurNs(401 * MS));
    }

    #[test]
    fn an_echo_reply_freed_after_its_copies_were_taken_is_not_lost() {
        let (request, mut scene) = (request(3, 1), Scene::with_hooks(&[]));
        scene
            .egress_by(MS, WORKER, PNIC, 0x1000, &request)
            .ingress(5 * MS, PNIC, 0x2000, &reply_to(&request))
            .drop_of(5 * MS + 1, 0x2000, Some(&reply_to(&request)))
            .tick(40 * MS);
        assert_eq!(scene.run().only().outcome, Outcome::Replied);
    }
}

mod age {
    use super::*;

    #[test]
    fn an_open_check_is_reported_by_age_and_then_lost() {
        let mut scene = Scene::new();
        scene.ingress(MS, PNIC, 0x1000, &request(0, 1)).tick(2500 * MS).tick(30_000 * MS);
        let run = scene.run();
        assert_eq!(run.only().outcome, Outcome::Lost(Loss::TimedOut));
        assert_eq!(run.only().elapsed(), DurNs::from_secs(10));
        let ages: Vec<u64> = run.reports.iter().map(|journey| journey.elapsed().0 / MS).collect();
        assert_eq!(ages, (1..10).map(|age| age * 1000).collect::<Vec<_>>());
        assert!(run.reports.iter().all(|journey| journey.outcome == Outcome::Open));
    }

    #[test]
    fn reports_do_not_depend_on_where_ticks_stand() {
        let mut one = Scene::new();
        one.ingress(MS, PNIC, 0x1000, &request(0, 1));
        let mut other = one.clone();
        for n in 1..70 {
            other.tick(n * 57 * MS);
        }
        let end = MonoNs(4000 * MS);
        assert_eq!(run(&one.events, end), run(&other.events, end));
    }

    #[test]
    fn what_is_open_at_the_end_says_so() {
        let mut scene = Scene::new();
        scene.ingress(MS, PNIC, 0x1000, &request(0, 1)).tick(500 * MS);
        assert_eq!(scene.run().only().outcome, Outcome::Open);
        assert_eq!(scene.run().only().known_until, MonoNs(500 * MS));
    }

    #[test]
    fn the_oldest_check_makes_room() {
        let mut scene = Scene::new();
        scene.fact(Fact::Run(run_fact(10_000, 1_000, 3)));
        for n in 1..6_u32 {
            let at = u64::from(n);
            scene.ingress(at * MS, PNIC, 0x1000 * at, &request(0, n));
        }
        let run = scene.run();
        let broken: Vec<bool> = run.ended.iter().map(|journey| matches!(journey.outcome, Outcome::Broken(_))).collect();
        assert_eq!(broken, [true, true, false, false, false]);
        assert_eq!(run.counts.evicted, 2);
    }

    #[test]
    fn stages_against_the_path_break_a_journey() {
        let request = Sighting { ip_id: 4, ..request(0, 1) };
        let mut scene = Scene::with_hooks(&[]);
        scene.egress(MS, TAP, 0x1000, &request).ingress(2 * MS, PNIC, 0x1000, &request);
        let run = scene.run();
        assert!(matches!(run.only().outcome, Outcome::Broken(_)));
        assert_eq!(stages(run.only()), [Stage::VnicTx, Stage::PnicRx]);
    }

    #[test]
    fn a_leap_in_time_ends_what_is_open_and_nothing_hangs() {
        let mut scene = Scene::new();
        scene.fact(Fact::Run(RunFact {
            lost_after: DurNs(u64::MAX),
            open_report_every: DurNs(0),
            ..run_fact(1, 1, 10)
        }));
        scene.ingress(MS, PNIC, 0x1000, &request(0, 1)).tick(u64::MAX);
        assert_eq!(scene.run().only().outcome, Outcome::Lost(Loss::TimedOut));
    }
}

mod property {
    use super::*;

    /// Checks of all sorts at random, overlapping in time, some records missing.
    fn traffic() -> impl Strategy<Value = Vec<Event>> {
        let check = (0_u8..4, 0_u32..6, 0_u64..40, 0_u8..4, any::<u16>());
        prop::collection::vec(check, 1..25).prop_map(|checks| {
            let mut events = Vec::new();
            for (n, (rule, nonce, at, shape, missing)) in (1..).zip(checks) {
                let mut scene = Scene { events: Vec::new(), seq: n * 100 };
                one_check(&mut scene, shape, MS * (1 + at) + n, n * 0x10_000, &request(rule, nonce * 20));
                let kept = (0..).zip(scene.events).filter(|(i, _)| missing & 3 != 0 || *i != missing >> 2 & 7);
                events.extend(kept.map(|(_, event)| event));
            }
            for (n, event) in (1..).zip(&mut events) {
                event.seq = n;
                event.cpu = (n % 3) as u32;
            }
            events
        })
    }

    fn one_check(scene: &mut Scene, shape: u8, at: u64, skb: u64, request: &Sighting) {
        let reply = reply_to(request);
        match shape {
            0 => {
                scene.served(at, skb, request);
            }
            1 => {
                scene.ingress(at, PNIC, skb, request).egress(at + 1000, TAP, skb, request);
                scene.taken(at + 2000, OTHER_WORKER, TAP, skb);
                scene.ingress(at + 30 * MS, TAP, skb + 1, &reply).egress(at + 30 * MS + 1, PNIC, skb + 1, &reply);
                scene.xmit(at + 30 * MS + 2, PNIC, skb + 1);
            }
            2 => {
                scene.egress_by(at, WORKER, PNIC, skb, request).xmit(at + 10, PNIC, skb);
                scene.ingress(at + 5 * MS, PNIC, skb + 1, &reply).enqueue_last(at + 5 * MS + 1, request.protocol);
                scene.read(at + 6 * MS, WORKER, request.protocol, 20, 0);
            }
            _ => {
                scene.ingress(at, PNIC, skb, request).enqueue_last(at + 5, request.protocol);
                scene.drop_of(at + 2 * MS, skb, Some(request));
            }
        }
    }

    fn ordered(events: Vec<Event>) -> (Vec<Event>, u64) {
        let mut orderer = Orderer::new(DurNs::from_millis(5));
        let mut ordered = Scene::new().events;
        let mut newest = 0;
        for event in events {
            newest = newest.max(event.at.0);
            orderer.push(event, &mut |event| ordered.push(event));
            orderer.push(tick(newest), &mut |event| ordered.push(event));
        }
        orderer.finish(&mut |event| ordered.push(event));
        (ordered, orderer.late())
    }

    fn tick(at: u64) -> Event {
        Event {
            at: MonoNs(at),
            seq: 0,
            cpu: 0,
            task: SOFTIRQ,
            softirq: 0,
            interrupt: Interrupt::Unknown,
            body: Body::Tick,
        }
    }

    fn end() -> MonoNs {
        MonoNs(20_000 * MS)
    }

    fn invariants(events: &[Event], run: &Run) {
        let records = events.iter().filter(|event| event.body.kind().is_some()).count() as u64;
        let Counts { joined, evidence, unmatched, opened, ended, .. } = run.counts;
        assert_eq!(joined + evidence + unmatched, records);
        assert_eq!((opened, ended - run.counts.untold), (ended, run.ended.len() as u64));
        let ids: BTreeMap<_, _> = run.ended.iter().map(|journey| (journey.id, ())).collect();
        assert_eq!(ids.len(), run.ended.len(), "a journey ended twice");
        for journey in run.ended.iter().chain(&run.reports) {
            assert!(journey.stamps.is_sorted_by_key(|stamp| stamp.at));
            assert!(!journey.stamps.is_empty());
            assert!(journey.stamps.last().unwrap().at <= journey.known_until);
            let path = |stage: Stage| match journey.perspective {
                Perspective::Served => stage as u32,
                Perspective::Sent => (stage as u32 + 5) % 12,
            };
            let in_path_order = journey.stamps.is_sorted_by_key(|stamp| path(stamp.stage));
            assert!(in_path_order || matches!(journey.outcome, Outcome::Broken(_)), "{journey:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(192))]

        #[test]
        fn any_shuffle_within_the_window_gives_the_same_journeys(
            events in traffic(), delays in prop::collection::vec(0..4 * MS, 200)
        ) {
            let mut in_order = events.clone();
            in_order.sort_by_key(|event| (event.at, event.cpu, event.seq));
            let (in_order, _) = ordered(in_order);
            let mut shuffled: Vec<_> = events.into_iter().zip(delays.iter().cycle()).collect();
            shuffled.sort_by_key(|(event, delay)| event.at.0 + **delay);
            let (shuffled, late) = ordered(shuffled.into_iter().map(|(event, _)| event).collect());
            prop_assert_eq!(late, 0);
            prop_assert_eq!(run(&in_order, end()), run(&shuffled, end()));
        }

        #[test]
        fn traffic_with_missing_records_keeps_the_invariants(mut events in traffic()) {
            events.sort_by_key(|event| (event.at, event.cpu, event.seq));
            let (events, _) = ordered(events);
            let run = run(&events, end());
            invariants(&events, &run);
        }

        #[test]
        fn random_events_never_panic_and_keep_the_invariants(events in prop::collection::vec(soup(), 0..300)) {
            let mut all = Scene::new().events;
            let mut at = 0;
            for (step, mut event) in events {
                at += step;
                event.at = MonoNs(at);
                all.push(event);
            }
            let run = run(&all, MonoNs(at + 1));
            invariants(&all, &run);
        }
    }

    /// Records whose parts come from small sets, so that they meet.
    fn soup() -> impl Strategy<Value = (u64, Event)> {
        let task = prop_oneof![Just(SOFTIRQ), Just(WORKER), Just(OTHER_WORKER)];
        (0..3 * MS, 0_u64..40, 0_u32..3, task, 0_u32..2, soup_body()).prop_map(
            |(step, seq, cpu, task, softirq, body)| {
                (
                    step,
                    Event { at: MonoNs(0), seq, cpu, task, softirq: softirq * 4, interrupt: Interrupt::Unknown, body },
                )
            },
        )
    }

    fn soup_sighting() -> impl Strategy<Value = Sighting> {
        let parts = (0_u8..4, 0_u32..3, 0_u8..3, 1_u8..4, any::<bool>(), 0_u16..3);
        parts.prop_map(|(rule, nonce, last, role, flip, ip_id)| {
            let request = Sighting { source: address(last), ip_id, ..request(rule, nonce * 10) };
            let mut sighting = if flip { reply_to(&request) } else { request };
            sighting.role = role;
            sighting
        })
    }

    fn soup_body() -> impl Strategy<Value = Body> {
        let skb = || (0_u64..6).prop_map(|skb| skb * 0x100);
        let ifindex = || 0_u32..6;
        prop_oneof![
            6 => (ifindex(), skb(), soup_sighting(), any::<bool>()).prop_map(|(ifindex, skb, sighting, ingress)| {
                let packet = packet(ifindex, skb, &sighting);
                if ingress { Body::PacketIngress(packet) } else { Body::PacketEgress(packet) }
            }),
            2 => (skb(), 0_u64..40, 0_u64..3, 0_u32..3000, any::<bool>()).prop_map(
                |(skb, packet_seq, socket, receive_bytes, tcp)| Body::SockEnqueue(SockEnqueueBody {
                    socket, skb, packet_seq, receive_bytes, receive_limit_bytes: 0, local_port: 1,
                    protocol: if tcp { 6 } else { 17 },
                })
            ),
            2 => (0_u64..3, -12_i32..3, 0_u32..3, any::<bool>(), any::<bool>()).prop_map(
                |(socket, result, flags, tcp, send)| {
                    let body = SockCallBody { socket, ..call(if tcp { TCP } else { UDP }, result, flags) };
                    if send { Body::SockSend(body) } else { Body::SockRead(body) }
                }
            ),
            1 => (skb(), any::<bool>()).prop_map(|(skb, enters)| {
                let body = QdiscBody { skb, netns: 1, ifindex: PNIC, ..QdiscBody::new_zeroed() };
                if enters { Body::QdiscEnqueue(body) } else { Body::QdiscDequeue(body) }
            }),
            1 => (skb(), ifindex()).prop_map(|(skb, ifindex)| {
                Body::Xmit(XmitBody { skb, netns: 1, ifindex, queue: 0 })
            }),
            1 => (skb(), soup_sighting(), any::<(bool, bool)>()).prop_map(|(skb, sighting, (known, own))| {
                let (signature_known, own, ifindex) = (known.into(), own.into(), PNIC);
                Body::Drop(DropBody { skb, netns: 1, ifindex, sighting, signature_known, own, ..DropBody::new_zeroed() })
            }),
            1 => (skb(), ifindex()).prop_map(|(skb, ifindex)| Body::BackendRx(backend_rx(ifindex, skb))),
            1 => Just(Body::Tick),
        ]
    }
}
