//! Hand-made results for the tests of sinks: every list filled, every option set.

use super::Names;
use crate::attribution::{
    Absence, Cause, Condition, Entry, Episode, EpisodeCause, Gap, Judged, Lapse, Ledger, LossPlace, LostAt, Offender,
    QueueWait, Sent, Service, Stall, StalledVm, Stay, UnseenLoss, Verdict, Victim,
};
use crate::clock::{ClockAnchor, DurNs, MonoNs};
use crate::counters::{Counted, Counts, Hardware, Sum, Unavailable};
use crate::event::{Fact, InterfaceFact, InterfaceId, InterfaceRole, TaskId};
use crate::host::RingsFact;
use crate::join::{GuestHalf, HalfCounts, JoinReport, Pairing, Residence};
use crate::journey::{Journey, JourneyId, Loss, Outcome, PacketDrop, Perspective, Span, Stage, Stamp};
use crate::loss::{CpuLoss, KindLoss, LossReport, SkippedRuns};
use crate::pipeline::Output;
use crate::receive::{Keeper, ReceiveShare};
use crate::rx_ring::{Absent, RxNic, RxRingShare, Squeezed};
use crate::sender::{FlowFact, QueueFact, QueueShare, Rest, SenderFact, SenderShare, Sent as SentBytes, Who};
use crate::summary::{Losses, RunSummary};
use probe_wire::Sighting;
use std::sync::Arc;

const START: u64 = 1_000_000_000;
const TAP: InterfaceId = InterfaceId { netns: 1, ifindex: 3 };

pub(crate) fn names() -> Names {
    let mut names = Names::default();
    names.learn(&Fact::Clock(ClockAnchor { mono: MonoNs(START), unix_ns: 1_600_000_000_000_000_001 }));
    names.learn(&Fact::DropReason { number: 6, name: "SOCKET_RCVBUFF".to_owned() });
    names.learn(&Fact::Interface(InterfaceFact {
        id: TAP,
        name: "tap0".to_owned(),
        role: InterfaceRole::VirtualNic,
        label: "vm \u{1b}[31m1".to_owned(),
        kind: "tap".to_owned(),
        tx_queues: 1,
        rx_queues: 1,
    }));
    names
}

fn stamp(stage: Stage, at: u64) -> Stamp {
    let task = if stage == Stage::SockRead { TaskId { tgid: 10, tid: 11 } } else { TaskId::default() };
    Stamp { stage, at: MonoNs(START + at), cpu: 1, queue: 0, interface: TAP, task }
}

fn journey(outcome: Outcome, elapsed: u64) -> Journey {
    let mut source = [0; 16];
    source[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
    Journey {
        id: JourneyId(7),
        signature: 0,
        perspective: Perspective::Served,
        target: TAP,
        request: Sighting {
            source,
            destination: source,
            source_port: 4000,
            destination_port: 53,
            protocol: 17,
            ..Sighting::default()
        },
        outcome,
        stamps: vec![
            stamp(Stage::PnicRx, 0),
            stamp(Stage::SockEnqueue, 1_000),
            stamp(Stage::SockRead, 2_000),
            stamp(Stage::PnicQueue, elapsed),
        ],
        socket: 9,
        drops: Vec::new(),
        refusals: Vec::new(),
        qdisc: Vec::new(),
        retransmissions: 0,
        known_until: MonoNs(START + elapsed),
    }
}

fn entry(cause: Cause, from: u64, to: u64) -> Entry {
    Entry {
        cause,
        from: MonoNs(START + from),
        to: MonoNs(START + to),
        span: Span::Hold,
        offender: Some(offender()),
        path: vec![Cause::AppFutex, cause],
        hops: Vec::new(),
        evidence: vec!["woken by \u{1b}]0;owned\u{7}".to_owned()],
        meaning: cause.row().must_be_true,
        stalled: Vec::new(),
    }
}

fn offender() -> Offender {
    Offender {
        comm: "evil\u{1b}[2J".to_owned(),
        task: TaskId { tgid: 10, tid: 12 },
        cgroup: "/pod".to_owned(),
        ..Offender::default()
    }
}

fn judged(journey: Journey, entries: Vec<Entry>, unexplained: u64, verdict: Verdict) -> Judged {
    let (from, to) = (journey.started_at(), journey.known_until);
    let gap = Gap { time: DurNs(unexplained), reason: "no record of the thread".to_owned() };
    let unexplained_reasons = vec![gap.reason.clone()];
    let ledger = Ledger { from, to, entries, unexplained: gap.time, gaps: vec![gap], unexplained_reasons };
    Judged {
        journey,
        ledger,
        slow: verdict != Verdict::Healthy,
        verdict,
        lost: None,
        service: None,
        brief: false,
        lost_events: 0,
        guest: None,
    }
}

/// Answered after 860 ms, most of which a futex took.
pub(crate) fn slow() -> Judged {
    let entries = vec![entry(Cause::AppOnCpu, 2_000, 1_000_000), entry(Cause::AppFutex, 1_000_000, 860_000_000)];
    let verdict = Verdict::Cause { cause: Cause::AppFutex, share: 0.998_84 };
    judged(journey(Outcome::Replied, 860_000_000), entries, 2_000, verdict)
}

/// Slow by a thread inside the guest.
pub(crate) fn joined() -> Judged {
    let mut judged = slow();
    judged.ledger.entries.iter_mut().filter_map(|entry| entry.offender.as_mut()).for_each(|one| one.guest = true);
    let residence = Residence { host: DurNs(859_000_000), guest: DurNs(858_900_000) };
    let id = Some(JourneyId(70));
    judged.guest = Some(Box::new(GuestHalf { pairing: Pairing::Joined, id, residence: Some(residence) }));
    judged
}

/// What became of the halves of a join.
pub(crate) fn join() -> JoinReport {
    let counts = HalfCounts { halves: 3, joined: 2, alone: 1, ..HalfCounts::default() };
    let overhead = Some(DurNs(100_000));
    JoinReport { host: counts, guest: counts, overhead_p50: overhead, overhead_max: overhead, guest_lost: 0 }
}

/// Dropped in the receive buffer.
pub(crate) fn lost() -> Judged {
    let at = MonoNs(START + 3_000);
    let drop = PacketDrop { at, reason: 6, location: 0xffff, interface: TAP, ..PacketDrop::default() };
    let mut journey = journey(Outcome::Lost(Loss::Dropped(drop.clone())), 5_000);
    journey.drops.push(drop);
    let entries = vec![entry(Cause::AppSocketQueue, 3_000, 5_000)];
    let verdict = Verdict::Cause { cause: Cause::AppSocketQueue, share: 1.0 };
    Judged { lost: Some(lost_at(journey.drops.clone())), ..judged(journey, entries, 3_000, verdict) }
}

/// Its end, with all that can be known of one.
fn lost_at(drops: Vec<PacketDrop>) -> LostAt {
    LostAt {
        place: LossPlace::SocketBuffer,
        stage: Stage::SockEnqueue,
        span: Span::Queue,
        reply: false,
        drop: drops.into_iter().next(),
        interface: TAP,
        sent: Some(Sent::Success),
        sender: TaskId { tgid: 10, tid: 12 },
        filled: Some(Ok(full_queue())),
    }
}

/// A queue that one worker had filled.
fn full_queue() -> QueueWait {
    let sent = SentBytes { packets: 4, bytes: 4_000, error_bytes: 0 };
    let flow = FlowFact { source_port: 5_000, protocol: 17, sent, ..FlowFact::default() };
    let (id, comm, cgroup) = (TaskId { tgid: 10, tid: 11 }, "worker\u{1b}[2J".to_owned(), "/pod".to_owned());
    let window = QueueFact {
        interface: TAP,
        queue: 0,
        from: MonoNs(START),
        to: MonoNs(START + 3_000),
        cpus: vec![(1, 4)],
        senders: vec![SenderFact {
            who: Who::Task { id, start_time_ns: 1, comm, cgroup, shared: false },
            sent,
            flows: vec![flow],
            flow_count: 1,
            flows_sampled: false,
        }],
        rest: Rest::default(),
        uncounted: SentBytes::default(),
    };
    QueueWait { id: (TAP, 0), time: DurNs(3_000), windows: vec![Arc::new(window)], busy: vec![0] }
}

/// Lost, and nothing is known of how.
pub(crate) fn vanished() -> Judged {
    let unseen = LostAt { place: LossPlace::Unseen, drop: None, sent: None, ..lost_at(Vec::new()) };
    let judged = judged(journey(Outcome::Lost(Loss::TimedOut), 5_000), Vec::new(), 5_000, Verdict::Healthy);
    Judged { lost: Some(unseen), ..judged }
}

/// Open for `elapsed` nanoseconds.
pub(crate) fn open(elapsed: u64) -> Judged {
    let journey = journey(Outcome::Open, elapsed);
    judged(journey, Vec::new(), elapsed, Verdict::Split { cause: Cause::AppFutex, share: 0.4 })
}

/// Answered in a millisecond.
pub(crate) fn healthy() -> Judged {
    judged(journey(Outcome::Replied, 1_000_000), Vec::new(), 1_000_000, Verdict::Healthy)
}

pub(crate) fn episode() -> Episode {
    Episode {
        target: TAP,
        started_at: MonoNs(START),
        ended_at: MonoNs(START + 9_000_000_000),
        checks: 900,
        slow: 3,
        lost: 1,
        open: 0,
        unresolved: 0,
        baseline_p50: Some(DurNs(60_000)),
        causes: vec![EpisodeCause {
            cause: Cause::AppFutex,
            time: DurNs(2_400_000_000),
            share: 0.92,
            checks: 3,
            lost: 0,
            offender: Some(Offender { guest: true, ..offender() }),
            offender_time: DurNs(1_800_000_000),
            counted: Some(counted()),
            meaning: None,
        }],
        stalls: vec![Stall {
            device: "sda1 8:1 ext4".to_owned(),
            from: MonoNs(START),
            to: MonoNs(START + 800_000_000),
            causes: vec![Cause::StorageWriteback],
            checks: 40,
            held: vec![JourneyId(7)],
            vms: vec![StalledVm { tap: InterfaceId { netns: 1, ifindex: 2 }, checks: 40 }],
            offender: Some(Offender { guest: true, ..offender() }),
            victims: vec![Victim { comm: "evil\u{1b}[2J".to_owned(), task: TaskId { tgid: 10, tid: 12 }, vm: None }],
        }],
        unexplained: DurNs(2_000_000),
        verdict: Verdict::Cause { cause: Cause::AppFutex, share: 0.92 },
        service: Some(service(3)),
        losses: losses(),
    }
}

/// A machine without hardware counters.
fn counted() -> Counted {
    let counts = Counts {
        task_clock: DurNs(2_940_000_000),
        context_switches: 36,
        migrations: 3,
        page_faults: 0,
        hardware: Hardware::Unavailable(Unavailable::NoCounter),
    };
    let usual = Counts { task_clock: DurNs(180_000_000), ..counts };
    let sum = |time, counts| Sum { time, counts };
    Counted { slow: sum(DurNs::from_secs(3), counts), usual: Some(sum(DurNs::from_secs(6), usual)) }
}

fn service(checks: u64) -> Service {
    let stay = Stay { waited: DurNs(1_000), held: DurNs(860_000_000) };
    let usual = Stay { waited: DurNs(1_000), held: DurNs(998_000) };
    Service { condition: Condition::Broken, checks, stay, usual }
}

/// Answered after 860 ms, which the app is known to have held it.
pub(crate) fn held() -> Judged {
    Judged { service: Some(service(1)), ..slow() }
}

pub(crate) fn lapse() -> Output {
    let lapse = Lapse { due_at: MonoNs(START), late_by: DurNs(300_000_000) };
    Output::Lapse { id: JourneyId(8), signature: 0, target: TAP, lapse }
}

pub(crate) fn absence() -> Output {
    let (due_at, until) = (MonoNs(START), MonoNs(START + 300_000_000));
    Output::Absence(Absence { signature: 0, interface: TAP, due_at, until, requests: 15, unseen: None, unread: false })
}

/// Of some of which its NIC may be to blame.
pub(crate) fn absence_by_ring() -> Output {
    let (due_at, until) = (MonoNs(START), MonoNs(START + 300_000_000));
    let unseen = Some(UnseenLoss { packets: 12, ..rx_ring().loss });
    Output::Absence(Absence { signature: 0, interface: TAP, due_at, until, requests: 15, unseen, unread: false })
}

/// A NIC whose small ring had no room.
pub(crate) fn rx_ring() -> RxRingShare {
    let (after, until) = (MonoNs(START), MonoNs(START + 1_200_000_000));
    let rings = RingsFact { rx: 64, tx: 512, most_rx: 4_096, most_tx: 4_096 };
    RxRingShare {
        interface: TAP,
        loss: UnseenLoss { packets: 1_240, counter: "driver pkts rx OOB".to_owned(), after, until },
        absent: Absent { requests: 38, perhaps: 38 },
        nic: Some(RxNic { name: "tap0".to_owned(), rings: Some(rings), rx_queues: 1, most_queues: Some(2) }),
        squeezed: vec![Squeezed { cpu: 1, times: 2 }],
    }
}

pub(crate) fn gone() -> Output {
    Output::Gone { at: MonoNs(START), interface: TAP, reason: "it was removed".to_owned() }
}

/// A CPU on which a worker ran that was to receive, and another thread held softirqs off.
pub(crate) fn receive() -> ReceiveShare {
    let task = |tid| TaskId { tgid: 10, tid };
    ReceiveShare {
        cpu: 1,
        checks: 3,
        late: DurNs(80_000_000),
        taken: DurNs(20_000_000),
        interfaces: vec![TAP],
        nics: Vec::new(),
        workers: vec![(task(11), "worker".to_owned())],
        keepers: vec![Keeper {
            task: task(20),
            comm: "inven\u{1b}[2Jtory".to_owned(),
            cgroup: "/batch".to_owned(),
            time: DurNs(70_000_000),
        }],
    }
}

/// A queue that four workers, a VM and somebody unknown share, and one of which little is known.
pub(crate) fn queues() -> [QueueShare; 2] {
    let sent = |bytes| SentBytes { packets: bytes / 1_000, bytes, error_bytes: 0 };
    let flow = FlowFact {
        source: address(10, 0, 0, 1),
        destination: address(10, 0, 0, 9),
        source_port: 5_000,
        destination_port: 0,
        protocol: 17,
        sent: sent(40_000),
    };
    let sender = |who, bytes| SenderShare {
        who,
        sent: sent(bytes),
        wait: DurNs(bytes * 1_000),
        flows: vec![flow],
        flow_count: 1,
        flows_sampled: false,
    };
    let worker = |tid| Who::Task {
        id: TaskId { tgid: 10, tid },
        start_time_ns: 1,
        comm: "worker\u{1b}[2J".to_owned(),
        cgroup: "/pod".to_owned(),
        shared: tid == 12,
    };
    let full = QueueShare {
        interface: TAP,
        queue: 0,
        from: MonoNs(START),
        to: MonoNs(START + 1_000_000_000),
        checks: 3,
        wait: DurNs(100_000_000),
        sent: sent(100_000),
        uncounted: sent(1_000),
        senders: vec![
            sender(worker(11), 40_000),
            sender(worker(12), 30_000),
            sender(Who::Interface { ifindex: TAP.ifindex }, 20_000),
            SenderShare {
                sent: SentBytes { error_bytes: 2_000, ..sent(10_000) },
                flows_sampled: true,
                ..sender(Who::Unknown, 10_000)
            },
        ],
        sender_count: 20,
        cpus: vec![(1, 90), (0, 10)],
        busy_queues: vec![0],
        tx_queues: Some(2),
        most_queues: Some(8),
        xps_cpus: Some("3".to_owned()),
    };
    let bare = QueueShare {
        tx_queues: None,
        most_queues: None,
        xps_cpus: None,
        interface: InterfaceId { netns: 9, ifindex: 9 },
        ..full.clone()
    };
    [full, bare]
}

fn address(a: u8, b: u8, c: u8, d: u8) -> [u8; 16] {
    std::net::Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets()
}

pub(crate) fn loss() -> LossReport {
    LossReport {
        kind: "loss",
        emitted: 100,
        received: 97,
        lost: 3,
        unreadable: 0,
        stacks_lost: 0,
        stacks_spared: 0,
        late: 0,
        unmatched: 5,
        dropped: 0,
        undecodable: 0,
        ambiguous: 0,
        evicted: 0,
        brief: 0,
        unreported: 0,
        joined: 80,
        evidence: 12,
        by_kind: vec![KindLoss { kind: "packet_ingress", emitted: 100, received: 97, lost: 3 }],
        by_cpu: vec![CpuLoss { cpu: 1, emitted: 100, received: 97, lost: 3 }],
        skipped_runs: vec![SkippedRuns { program: "sched_switch".to_owned(), count: 2 }],
    }
}

fn losses() -> Losses {
    let mut losses = Losses::default();
    [healthy(), lost()].iter().for_each(|judged| losses.push(judged));
    losses
}

pub(crate) fn summary(checks: u64) -> RunSummary {
    RunSummary {
        started_at: MonoNs(START),
        ended_at: MonoNs(START + 9_000_000_000),
        targets: 1,
        checks,
        losses: losses(),
        ..RunSummary::default()
    }
}
