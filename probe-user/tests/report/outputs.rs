//! Outputs of the pipeline: of recordings, and made up.

use probe_user::attribution::{Cause, Entry, Gap, Hop, Judged, Ledger, Offender, Verdict};
use probe_user::clock::{ClockAnchor, DurNs, MonoNs};
use probe_user::event::{Fact, InterfaceFact, InterfaceId, InterfaceRole, RunFact, SignatureFact, TaskId, Threshold};
use probe_user::host::{
    CostFact, CounterFact, DiskFact, GuestFact, HostFact, InterruptFact, NicFact, ProgramCost, SettingFact, SystemFact,
};
use probe_user::journey::{Journey, JourneyId, Loss, Outcome, PacketDrop, Perspective, Span, Stage, Stamp};
use probe_user::pipeline::{Collector, Output};
use probe_user::report::Report;
use probe_user::source::recording::Reader;
use probe_user::stack::{
    FrameFact, Function, ModuleFact, Nameless, StackCounts, StackEnd, StackFact, Taken, TakenCount, TakenFact,
};
use probe_user::summary::Summary;
use probe_wire::Sighting;
use std::fs::File;
use std::path::{Path, PathBuf};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const NIC: InterfaceId = InterfaceId { netns: 1, ifindex: 2 };
const SERVER: TaskId = TaskId { tgid: 100, tid: 101 };
const HOLDER: TaskId = TaskId { tgid: 100, tid: 102 };

/// A recording of the lab.
pub(crate) fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(format!("{name}.whylag"))
}

/// What a recording leads to.
pub(crate) fn of_recording(name: &str) -> Vec<Output> {
    let mut reader = Reader::new(File::open(recording(name)).unwrap()).unwrap();
    let mut outputs = Vec::new();
    let mut collector = Collector::new().telling_hops().telling_activities();
    while let Some(record) = reader.next_record() {
        collector.push(record.unwrap(), &mut |output| outputs.push(output));
    }
    collector.finish(&mut |output| outputs.push(output));
    outputs
}

/// The page of these outputs.
pub(crate) fn page(outputs: &[Output]) -> String {
    let mut report = Report::new();
    outputs.iter().for_each(|output| report.push(output));
    report.finish().unwrap().html().to_owned()
}

/// Two healthy checks and a slow one, whose names are all `name`.
pub(crate) fn story(name: &str) -> Vec<Output> {
    let checks = [check(1, SECOND, MS / 10), check(2, 2 * SECOND, MS / 10), slow(3, 3 * SECOND, 400 * MS, name)];
    told(facts(name), checks.to_vec())
}

fn facts(name: &str) -> Vec<Fact> {
    let signature = SignatureFact { name: name.to_owned(), first: 0, count: 1, rules: Vec::new(), interval: None };
    let run = RunFact {
        version: name.to_owned(),
        wire_version: probe_wire::WIRE_VERSION,
        signatures: vec![signature],
        threshold: Threshold::Fixed(DurNs(20 * MS)),
        lost_after: DurNs(10 * SECOND),
        open_report_every: DurNs(SECOND),
        max_open: 100,
    };
    let interface = InterfaceFact {
        id: NIC,
        name: name.to_owned(),
        role: InterfaceRole::PhysicalNic,
        label: name.to_owned(),
        kind: name.to_owned(),
        tx_queues: 1,
        rx_queues: 1,
    };
    let clock = ClockAnchor { mono: MonoNs(0), unix_ns: 1_600_000_000 * SECOND };
    let device = Fact::Device { number: 7 << 20, name: name.to_owned(), below: Vec::new() };
    let active = vec![name.to_owned(), "packet_ingress".to_owned()];
    let mut facts =
        vec![Fact::Run(run), Fact::Clock(clock), Fact::Interface(interface), device, Fact::Hooks { active }];
    facts.extend(code(name));
    facts.extend(host(name).into_iter().map(|fact| Fact::Host(Box::new(fact))));
    let programs = vec![ProgramCost { name: name.to_owned(), runs: 3, run_ns: 9_000 }];
    let cost = CostFact { elapsed_ns: 4 * SECOND, user_ns: 20 * MS, system_ns: 0, peak_memory_bytes: None, programs };
    facts.push(Fact::Cost(Box::new(cost)));
    facts.extend(levels(name));
    facts
}

/// Levels that were read twice a second; those of one queue and one counter have that name.
fn levels(name: &str) -> Vec<Fact> {
    let queue = format!("{name} tbf 8001:");
    let irq = "eth0 virtio2-input.0 (irq 38)";
    // By name: half seconds from the first second on, and values.
    let courses: [(String, &[(u64, u64)]); 13] = [
        (format!("{queue} backlog bytes"), &[(4, 120_000), (5, 366_000), (6, 90_000), (7, 0)]),
        (format!("{queue} drops"), &[(5, 291), (6, 310)]),
        (format!("{queue} overlimits"), &[(5, 1_905)]),
        ("eth0 tx-0 BQL limit".to_owned(), &[(0, 40_000), (5, 100_000)]),
        ("eth0 tx-0 BQL inflight".to_owned(), &[(2, 9_000), (4, 90_000), (6, 12_000)]),
        ("CPU 0 backlog dropped".to_owned(), &[(5, 12)]),
        ("CPU 1 backlog squeezed".to_owned(), &[(1, 3), (5, 40), (6, 44)]),
        ("UDP sockets memory pages".to_owned(), &[(0, 2), (4, 300), (5, 800), (7, 4)]),
        (format!("{irq} CPU 0 interrupts"), &[(0, 70), (2, 90), (4, 160), (5, 200)]),
        (format!("{irq} CPU 1 interrupts"), &[(0, 9_000), (2, 9_400), (4, 12_000), (5, 31_000), (6, 31_200)]),
        ("eth0 link rx_missed_errors".to_owned(), &[(0, 1_000), (5, 1_012)]),
        (format!("eth0 driver rx_drops {name}"), &[(4, 5), (5, 7)]),
        ("eth0 driver rx_flow_control_xoff".to_owned(), &[(6, 3)]),
    ];
    let read = |half: u64| {
        let told = |(name, values): &(String, &[(u64, u64)])| {
            let value = values.iter().find(|(at, _)| *at == half)?.1;
            Some(CounterFact { name: name.clone(), value })
        };
        let levels = courses.iter().filter_map(told).collect();
        Fact::Levels { at: MonoNs(SECOND + half * SECOND / 2), levels, unseen: Vec::new() }
    };
    (0..8).map(read).collect()
}

/// A stack of a function that another is inlined in, sampled once, and how many more there were.
fn code(name: &str) -> Vec<Fact> {
    let function = || Function { name: name.to_owned(), file: name.to_owned(), line: 7 };
    let frame =
        FrameFact { id: 1, module: Some(1), address: 64, functions: vec![function(), function()], unknown: None };
    let nameless = Some(Nameless::NoSymbol);
    let sample = Taken::Sample { period: DurNs(10 * MS) };
    let count = TakenCount { due: 9, lost: 2, spared: 1, displaced: 0 };
    vec![
        Fact::Module(ModuleFact { id: 1, name: name.to_owned(), build_id: name.to_owned() }),
        Fact::Frame(frame),
        Fact::Frame(FrameFact { id: 2, module: Some(1), address: 80, functions: Vec::new(), unknown: nameless }),
        Fact::Stack(StackFact { id: 1, frames: vec![1, 2], end: StackEnd::Entry }),
        Fact::Taken(TakenFact { task: SERVER, why: sample, user: Some(1), kernel: Vec::new() }),
        Fact::StackCounts(StackCounts { samples: count, ..StackCounts::default() }),
    ]
}

/// What the host is like, all that has a name by that name.
fn host(name: &str) -> Vec<HostFact> {
    let named = || name.to_owned();
    let interrupt = InterruptFact { irq: 24, name: named(), cpus: named(), effective_cpus: named() };
    let counters = |value| HostFact::Counters { counters: vec![CounterFact { name: named(), value }] };
    vec![
        HostFact::System(SystemFact { kernel: named(), online_cpus: named(), ..SystemFact::default() }),
        HostFact::Settings { settings: vec![SettingFact { name: named(), value: named() }] },
        HostFact::Nic(NicFact { name: named(), interrupts: vec![interrupt], ..NicFact::default() }),
        HostFact::Disk(DiskFact { name: named(), model: named(), scheduler: named(), ..DiskFact::default() }),
        HostFact::Guest(GuestFact { kind: "vm".to_owned(), name: named(), cpu_max: named(), ..GuestFact::default() }),
        HostFact::Gap { what: named(), reason: named() },
        counters(3),
        counters(5),
    ]
}

/// A healthy check.
fn check(id: u64, at: u64, elapsed: u64) -> Judged {
    let stamp = |stage, after, task| Stamp { stage, at: MonoNs(at + after), cpu: 0, queue: 1, interface: NIC, task };
    let none = TaskId::default();
    let journey = Journey {
        id: JourneyId(id),
        signature: 0,
        perspective: Perspective::Served,
        target: NIC,
        request: Sighting { protocol: 17, source_port: 30_000, destination_port: 4_000, ..Sighting::default() },
        outcome: Outcome::Replied,
        stamps: vec![
            stamp(Stage::PnicRx, 0, none),
            stamp(Stage::SockEnqueue, 10_000, none),
            stamp(Stage::SockRead, 20_000, SERVER),
            stamp(Stage::AppSend, elapsed - 10_000, SERVER),
            stamp(Stage::PnicXmit, elapsed, none),
        ],
        socket: 9,
        drops: Vec::new(),
        refusals: Vec::new(),
        qdisc: Vec::new(),
        retransmissions: 0,
        known_until: MonoNs(at + elapsed),
    };
    let gap = Gap { time: DurNs(elapsed), reason: "nothing was looked at".to_owned() };
    let ledger = Ledger {
        from: MonoNs(at),
        to: MonoNs(at + elapsed),
        entries: Vec::new(),
        unexplained: DurNs(elapsed),
        unexplained_reasons: vec![gap.reason.clone()],
        gaps: vec![gap],
    };
    Judged {
        journey,
        ledger,
        slow: false,
        verdict: Verdict::Healthy,
        lost: None,
        service: None,
        brief: false,
        lost_events: 0,
        guest: None,
    }
}

/// A slow one: a thread waited for another, which waited for a disk.
fn slow(id: u64, at: u64, elapsed: u64, name: &str) -> Judged {
    let healthy = check(id, at, elapsed);
    let hop = |task, frame: &str| Hop {
        comm: name.to_owned(),
        task,
        frames: vec![frame.to_owned()],
        user: Some(1),
        samples: [].into(),
    };
    let entry = Entry {
        cause: Cause::StorageWriteback,
        from: MonoNs(at + 20_000),
        to: MonoNs(at + elapsed - 10_000),
        span: Span::Hold,
        offender: Some(Offender {
            comm: name.to_owned(),
            task: TaskId { tgid: 7, tid: 7 },
            cgroup: name.to_owned(),
            device: name.to_owned(),
            guest: false,
            own: false,
        }),
        path: vec![Cause::AppFutex, Cause::StorageWriteback],
        hops: vec![hop(SERVER, "futex_do_wait"), hop(HOLDER, "balance_dirty_pages")],
        evidence: vec![format!("{name} was asleep in balance_dirty_pages for inode 14 ({name})")],
        meaning: Cause::StorageWriteback.row().must_be_true,
        stalled: Vec::new(),
    };
    let gap = Gap { time: DurNs(30_000), reason: format!("{name} told nothing") };
    let ledger = Ledger {
        entries: vec![entry],
        unexplained: gap.time,
        unexplained_reasons: vec![gap.reason.clone()],
        gaps: vec![gap],
        ..healthy.ledger
    };
    let verdict = Verdict::Cause { cause: Cause::StorageWriteback, share: 0.99 };
    Judged { ledger, slow: true, verdict, ..healthy }
}

/// A check whose request got as far as the NIC, was dropped a tenth of the way into its time, and was never
/// answered.
pub(crate) fn dropped() -> Vec<Output> {
    let mut judged = slow(1, SECOND, 400 * MS, "server");
    judged.journey.stamps.truncate(1);
    let at = MonoNs(SECOND + 40 * MS);
    let drop = PacketDrop { at, reason: 6, interface: NIC, ..PacketDrop::default() };
    judged.journey.drops.push(drop.clone());
    judged.journey.outcome = Outcome::Lost(Loss::Dropped(drop));
    told(facts("server"), vec![judged])
}

/// With what the pipeline would say at the end.
fn told(facts: Vec<Fact>, checks: Vec<Judged>) -> Vec<Output> {
    let Some(Fact::Run(run)) = facts.first() else { panic!("the run comes first") };
    let mut summary = Summary::new(run);
    checks.iter().for_each(|judged| summary.push(judged));
    let episodes: Vec<_> = summary.targets().filter_map(|target| summary.episode(target)).collect();
    let facts = facts.into_iter().map(Output::Fact);
    let checks = checks.into_iter().map(|judged| Output::Journey(Box::new(judged)));
    let end = episodes.into_iter().map(Output::Episode).chain([Output::Summary(summary.run())]);
    facts.chain(checks).chain(end).collect()
}

/// Ten minutes with 30,000 checks, 300 of them slow as in a recording: over and over the same stall.
pub(crate) fn incident() -> Vec<Output> {
    let outputs = of_recording("flush-stalls-pool");
    let facts =
        outputs.iter().filter_map(|output| if let Output::Fact(fact) = output { Some(fact.clone()) } else { None });
    let journeys = outputs
        .iter()
        .filter_map(|output| if let Output::Journey(judged) = output { Some((**judged).clone()) } else { None });
    let (slow, healthy): (Vec<_>, Vec<_>) = journeys.partition(|judged| judged.slow);
    let start = healthy[0].journey.started_at();
    let later = |judged: &Judged, number: u64, at: u64| shifted(judged, number, MonoNs(start.0 + at));
    let mut checks: Vec<_> =
        (0..29_700).zip(healthy.iter().cycle()).map(|(n, judged)| later(judged, n, n * 20 * MS)).collect();
    let first = slow[0].journey.started_at();
    let stalls = slow.len() as u64;
    checks.extend((0..300).zip(slow.iter().cycle()).map(|(n, judged)| {
        let into = judged.journey.started_at().since(first).0;
        later(judged, 30_000 + n, 40 * SECOND + n / stalls * 80 * SECOND + into)
    }));
    checks.sort_by_key(|judged| judged.journey.started_at());
    told(facts.collect(), checks)
}

/// The same check at another time.
fn shifted(judged: &Judged, id: u64, start: MonoNs) -> Judged {
    let old = judged.journey.started_at();
    let at = |instant: MonoNs| start.after(instant.since(old));
    let mut judged = judged.clone();
    judged.journey.id = JourneyId(id);
    judged.journey.stamps.iter_mut().for_each(|stamp| stamp.at = at(stamp.at));
    judged.journey.known_until = at(judged.journey.known_until);
    (judged.ledger.from, judged.ledger.to) = (at(judged.ledger.from), at(judged.ledger.to));
    for entry in &mut judged.ledger.entries {
        (entry.from, entry.to) = (at(entry.from), at(entry.to));
    }
    judged
}
