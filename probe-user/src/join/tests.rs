//! Claims about halves: hand-made ones, told as stories, and whole streams of records.

use super::merge::merge;
use super::pairs::Comparable;
use super::{HalfCounts, Join, JoinReport, Pairing, Side};
use crate::attribution::baseline::Baselines;
use crate::attribution::piece::exact;
use crate::attribution::story::{
    Actor, FUTEX, HOG, IDLE, NANOSLEEP, RECEIVE, SERVER, Story, WORKER, at, concluded, longest, run, taken,
};
use crate::attribution::{Cause, Judged, Unresolved, Verdict};
use crate::clock::{DurNs, MonoNs};
use crate::event::{Fact, RunFact, SignatureFact, Threshold};
use crate::journey::{JourneyId, Loss, Outcome, PacketDrop, Stage};
use crate::pipeline::Output;
use probe_wire::Rule;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

/// A check that a VM has from `from` to `to`, µs.
fn outside(from: u64, to: u64) -> Story {
    let mut story = Story::new();
    story.stamp(from - 40, Stage::PnicRx, None).stamp(from, Stage::VnicTx, None);
    story.stamp(to, Stage::VnicRx, None).stamp(to + 8, Stage::PnicQueue, None);
    story
}

/// The same without an end.
fn never_back(from: u64, until: u64, outcome: Outcome) -> Story {
    let mut story = Story::new();
    story.hooks(&["kfree_skb", "sched_switch"]).stamp(from - 40, Stage::PnicRx, None).stamp(from, Stage::VnicTx, None);
    story.ends(until, outcome);
    story
}

/// What the thread inside does while it holds the check.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Computes,
    Sleeps,
    WaitsForLock,
}

impl Fault {
    const fn leaf(self) -> Cause {
        match self {
            Self::Computes => Cause::AppOnCpu,
            Self::Sleeps => Cause::AppSelfWait,
            Self::WaitsForLock => Cause::AppFutex,
        }
    }
}

/// A check inside the guest, from 100 µs on, answered after `us`, held by what is said.
fn inside(fault: Fault, us: u64) -> Story {
    let mut story = Story::served(us);
    match fault {
        Fault::Computes => {}
        Fault::Sleeps => {
            story.sleeps(150, SERVER, 1, NANOSLEEP).wakes_in(us - 30, IDLE, SERVER, 0).runs(us - 20, SERVER);
        }
        Fault::WaitsForLock => {
            story.runs(20, WORKER).sleeps(150, SERVER, 1, FUTEX);
            story.wakes(us - 30, WORKER, SERVER).runs(us - 20, SERVER).sleeps(us + 50, WORKER, 1, RECEIVE);
        }
    }
    story.sleeps(us + 60, SERVER, 1, RECEIVE);
    story
}

fn joined(host: &mut Story, guest: &mut Story) -> Judged {
    merge(host.judge(), &guest.judge(), &mut Baselines::default())
}

fn pairing(judged: &Judged) -> &Pairing {
    &judged.guest.as_deref().expect("a half").pairing
}

#[test]
fn the_guest_s_leaf_takes_the_place_of_guest_internal() {
    for fault in [Fault::Computes, Fault::Sleeps, Fault::WaitsForLock] {
        let mut host = outside(500, 200_500);
        assert_eq!(concluded(&host.judge()), Some(Cause::VmGuestInternal));
        let judged = joined(&mut outside(500, 200_500), &mut inside(fault, 200_000));
        assert_eq!(pairing(&judged), &Pairing::Joined);
        assert_eq!(concluded(&judged), Some(fault.leaf()), "{judged:#?}");
        assert!(exact(&judged.ledger));
        let entry = longest(&judged, fault.leaf());
        assert!(entry.offender.as_ref().is_some_and(|offender| offender.guest), "{entry:#?}");
        assert!(entry.evidence.iter().all(|fact| fact.starts_with("in the guest: ")), "{entry:#?}");
        assert_eq!(taken(&judged, Cause::VmGuestInternal), DurNs::ZERO);
    }
}

#[test]
fn its_stages_stand_between_those_of_the_host_and_what_is_beyond_them_is_the_hypervisor_s() {
    let judged = joined(&mut outside(500, 200_500), &mut inside(Fault::Computes, 200_000));
    let stages: Vec<Stage> = judged.journey.stamps.iter().map(|stamp| stamp.stage).collect();
    assert_eq!(
        stages,
        [
            Stage::PnicRx,
            Stage::VnicTx,
            Stage::GuestRx,
            Stage::SockEnqueue,
            Stage::SockRead,
            Stage::AppSend,
            Stage::GuestTx,
            Stage::VnicRx,
            Stage::PnicQueue
        ]
    );
    assert!(judged.journey.stamps.is_sorted_by_key(|stamp| stamp.at));
    let residence = judged.guest.as_ref().and_then(|half| half.residence).unwrap();
    assert_eq!((residence.host, residence.guest), (DurNs(200_000_000), DurNs(199_904_000)));
    assert_eq!(residence.overhead(), 96_000);
    let added = judged.ledger.gaps.iter().find(|gap| gap.reason.contains("hypervisor")).unwrap();
    assert_eq!(added.time, DurNs(96_000));
}

#[test]
fn a_wait_between_the_two_is_nobody_s_and_no_leaf_of_the_guest_s() {
    let judged = joined(&mut outside(500, 300_500), &mut inside(Fault::Computes, 20_000));
    assert_eq!(pairing(&judged), &Pairing::Joined);
    let Verdict::Unresolved(Unresolved::Unexplained { reason, .. }) = &judged.verdict else {
        panic!("{:?}", judged.verdict)
    };
    assert!(reason.contains("hypervisor"), "{reason}");
}

#[test]
fn longer_inside_than_outside_is_told_and_nothing_is_taken_over() {
    let judged = joined(&mut outside(500, 100_500), &mut inside(Fault::Sleeps, 200_000));
    assert_eq!(pairing(&judged), &Pairing::Negative);
    assert_eq!(concluded(&judged), Some(Cause::VmGuestInternal));
    assert!(judged.guest.as_ref().and_then(|half| half.residence).unwrap().overhead() < -99_000_000);
}

#[test]
fn two_clocks_that_are_right_within_their_bounds_make_no_pair_negative() {
    let mut host = outside(500, 200_500);
    let judged = joined(&mut host, &mut inside(Fault::Computes, 200_110));
    let residence = judged.guest.as_ref().and_then(|half| half.residence).unwrap();
    assert_eq!((pairing(&judged), residence.overhead()), (&Pairing::Joined, -14_000));
    assert!(exact(&judged.ledger));
    assert_eq!(concluded(&judged), Some(Cause::AppOnCpu));
}

#[test]
fn a_half_that_lost_events_gives_no_leaf() {
    let mut guest = inside(Fault::Sleeps, 200_000);
    guest.lost_events = 1;
    let judged = joined(&mut outside(500, 200_500), &mut guest);
    assert!(matches!(pairing(&judged), Pairing::Doubted(reason) if reason.contains("lost 1 events")));
    assert_eq!(concluded(&judged), Some(Cause::VmGuestInternal));
    let mut host = outside(500, 200_500);
    host.lost_events = 1;
    let judged = joined(&mut host, &mut inside(Fault::Sleeps, 200_000));
    assert_eq!(judged.verdict, Verdict::Unresolved(Unresolved::EventsLost { count: 1 }));
}

/// Dropped inside the guest, before the server has read it.
fn dropped_inside() -> Story {
    let mut story = Story::new();
    story.stamp(100, Stage::PnicRx, None).dropped(103, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb");
    story
}

#[test]
fn a_drop_inside_the_guest_costs_all_the_time_that_the_host_waits() {
    let mut host = never_back(500, 2_000_500, Outcome::Lost(Loss::TimedOut));
    let judged = joined(&mut host, &mut dropped_inside());
    assert_eq!(concluded(&judged), Some(Cause::AppSocketQueue), "{judged:#?}");
    assert!(exact(&judged.ledger));
    assert!(taken(&judged, Cause::AppSocketQueue) > DurNs::from_millis(1_999));
}

#[test]
fn a_reply_that_left_the_guest_and_did_not_come_out_is_lost_between() {
    let mut host = never_back(500, 2_000_500, Outcome::Lost(Loss::TimedOut));
    let judged = joined(&mut host, &mut inside(Fault::Sleeps, 30_000));
    let Verdict::Unresolved(Unresolved::NoTrace(reason)) = &judged.verdict else { panic!("{:?}", judged.verdict) };
    assert!(reason.contains("did not come out of the VM") && exact(&judged.ledger), "{reason}");
}

#[test]
fn a_check_that_hangs_inside_is_refined_while_it_is_open() {
    let mut host = never_back(500, 2_000_500, Outcome::Open);
    let mut guest = inside(Fault::Sleeps, 2_500_000);
    guest.open_after(Stage::SockRead, 2_000_000).until(2_000_000);
    let judged = joined(&mut host, &mut guest);
    assert_eq!(pairing(&judged), &Pairing::Joined);
    assert!(taken(&judged, Cause::AppSelfWait) > DurNs::from_millis(1_900), "{judged:#?}");
    assert!(exact(&judged.ledger));
}

#[test]
fn halves_that_ended_differently_are_no_pair() {
    let drop = PacketDrop { at: at(600), reason: 3, location: 1, ..PacketDrop::default() };
    let mut lost = never_back(500, 600, Outcome::Lost(Loss::Dropped(drop)));
    assert!(matches!(pairing(&joined(&mut lost, &mut inside(Fault::Sleeps, 40_000))), Pairing::Mismatched(_)));
    let judged = joined(&mut outside(500, 200_500), &mut dropped_inside());
    assert!(matches!(pairing(&judged), Pairing::Mismatched(_)));
    assert_eq!(concluded(&judged), Some(Cause::VmGuestInternal));
}

#[test]
fn what_the_host_has_proof_for_stays_the_host_s() {
    let vmm = Actor(700, 701, "vmm-io");
    let mut host = Story::new();
    host.stamp(460, Stage::PnicRx, None).stamp(500, Stage::VnicTx, None);
    host.stamp(150_000, Stage::BackendRx, Some(vmm)).stamp(200_500, Stage::VnicRx, None);
    host.stamp(200_508, Stage::PnicQueue, None);
    let alone = host.judge();
    let judged = joined(&mut host, &mut inside(Fault::Sleeps, 50_000));
    assert_eq!(pairing(&judged), &Pairing::Joined);
    assert_eq!(taken(&judged, Cause::VmBackend), taken(&alone, Cause::VmBackend));
    assert_eq!(concluded(&judged), Some(Cause::VmBackend), "{judged:#?}");
    assert!(taken(&judged, Cause::AppSelfWait) > DurNs::from_millis(49) && exact(&judged.ledger));
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![Just(Fault::Computes), Just(Fault::Sleeps), Just(Fault::WaitsForLock)]
}

/// All of a judged check by a clock that is off, and that runs so many millionths faster.
fn by_another_clock(judged: &Judged, offset: u64, ppm: i64) -> Judged {
    let origin = at(0).0;
    let moved = |at: MonoNs| {
        let since = i64::try_from(at.0 - origin).unwrap();
        MonoNs(origin.wrapping_add(offset).wrapping_add_signed(since + since * ppm / 1_000_000))
    };
    let mut judged = judged.clone();
    judged.journey.stamps.iter_mut().for_each(|stamp| stamp.at = moved(stamp.at));
    judged.journey.known_until = moved(judged.journey.known_until);
    for entry in &mut judged.ledger.entries {
        (entry.from, entry.to) = (moved(entry.from), moved(entry.to));
    }
    let ledger = &mut judged.ledger;
    (ledger.from, ledger.to) = (moved(ledger.from), moved(ledger.to));
    let entries = ledger.entries.iter().fold(DurNs::ZERO, |sum, entry| sum.plus(entry.time()));
    let unexplained = ledger.to.since(ledger.from).minus(entries);
    if unexplained != ledger.unexplained {
        ledger.unexplained = unexplained;
        ledger.gaps.truncate(1);
        ledger.gaps.iter_mut().for_each(|gap| gap.time = unexplained);
    }
    judged
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_joined_ledger_sums_exactly_whatever_the_halves(
        fault in fault(), from in 50..5_000_u64, with_vm in 1..400_000_u64, held in 1_000..400_000_u64,
        end in 0..3_u8, guest_end in 0..3_u8,
    ) {
        let mut host = match end {
            0 => outside(from, from + with_vm),
            1 => never_back(from, from + with_vm, Outcome::Open),
            _ => never_back(from, from + with_vm, Outcome::Lost(Loss::TimedOut)),
        };
        let mut guest = match guest_end {
            0 => inside(fault, held),
            1 => dropped_inside(),
            _ => {
                let mut story = inside(fault, held);
                story.open_after(Stage::SockRead, held).until(held);
                story
            }
        };
        let before = host.judge();
        let judged = joined(&mut host, &mut guest);
        prop_assert!(exact(&judged.ledger), "{:#?}", judged.ledger);
        prop_assert_eq!((judged.ledger.from, judged.ledger.to), (before.ledger.from, before.ledger.to));
        prop_assert!(judged.ledger.entries.iter().all(|entry| entry.path.last() == Some(&entry.cause)));
        if *pairing(&judged) != Pairing::Joined {
            prop_assert_eq!((&judged.ledger, &judged.verdict), (&before.ledger, &before.verdict));
        }
    }

    #[test]
    fn the_guest_s_clock_changes_nothing(
        fault in fault(), held in 30_000..900_000_u64, added in 20..2_000_u64, offset in 0..u64::MAX / 4,
        ppm in -100..=100_i64,
    ) {
        let mut guest = inside(fault, held);
        let guest = guest.judge();
        let mut host = outside(500, 500 + held - 96 + added);
        let host = host.judge();
        let plain = merge(host.clone(), &guest, &mut Baselines::default());
        let shifted = merge(host.clone(), &by_another_clock(&guest, offset, 0), &mut Baselines::default());
        prop_assert_eq!(&shifted, &plain);
        let drifted = merge(host, &by_another_clock(&guest, offset, ppm), &mut Baselines::default());
        prop_assert_eq!(pairing(&drifted), &Pairing::Joined);
        prop_assert_eq!(concluded(&drifted), Some(fault.leaf()));
        prop_assert!(exact(&drifted.ledger));
        let (one, other) = (taken(&plain, fault.leaf()), taken(&drifted, fault.leaf()));
        prop_assert!(one.0.abs_diff(other.0) <= one.0 / 9_000 + 1_000, "{} {}", one, other);
    }

    #[test]
    fn whatever_record_of_the_guest_s_is_missing_no_wrong_leaf_is_told(
        fault in fault(), held in 30_000..300_000_u64, record in 0..64_usize, counted in proptest::bool::ANY,
    ) {
        let mut guest = inside(fault, held);
        let record = record % guest.records();
        let what = guest.loses(record);
        guest.lost_events = u64::from(counted);
        let judged = joined(&mut outside(500, 500 + held), &mut guest);
        let allowed = if counted { Cause::VmGuestInternal } else { fault.leaf() };
        prop_assert!(concluded(&judged).is_none_or(|cause| cause == allowed), "{what}: {:?}", judged.verdict);
    }
}

/// How a run judges that looks for one signature, with so many bytes of nonce.
fn run_with(nonce_len: u8) -> Output {
    let signature = SignatureFact {
        name: "checks".to_owned(),
        first: 0,
        count: 1,
        rules: vec![Rule { nonce_len, ..Rule::default() }],
        interval: None,
    };
    let run = RunFact { signatures: vec![signature], ..run(Threshold::Fixed(DurNs::from_millis(20))) };
    Output::Fact(Fact::Run(run))
}

/// What tells the checks of a scene apart.
#[derive(Debug, Clone, Copy)]
struct Identity {
    nonce: u8,
    ip_id: u16,
    client: u8,
    port: u16,
}

const FIRST: Identity = Identity { nonce: 1, ip_id: 0, client: 1, port: 5_000 };

fn with(mut judged: Judged, id: u64, identity: Identity) -> Output {
    let request = &mut judged.journey.request;
    (request.nonce[0], request.ip_id, request.source[15]) = (identity.nonce, identity.ip_id, identity.client);
    request.source_port = identity.port;
    judged.journey.id = JourneyId(id);
    Output::Journey(Box::new(judged))
}

fn host(id: u64, identity: Identity) -> Output {
    with(outside(500, 200_500).judge(), id, identity)
}

fn guest(id: u64, identity: Identity) -> Output {
    with(inside(Fault::Sleeps, 200_000).judge(), id, identity)
}

/// Joins halves, told in this order.
fn join(nonce_len: u8, patience: Option<DurNs>, halves: Vec<(Side, Output)>) -> (Vec<Judged>, JoinReport) {
    let mut outputs = Vec::new();
    let mut join = Join::new(Comparable::ALL, patience);
    for side in [Side::Host, Side::Guest] {
        join.push(side, run_with(nonce_len), &mut |output| outputs.push(output));
    }
    for (side, half) in halves {
        join.push(side, half, &mut |output| outputs.push(output));
    }
    join.finish(&mut |output| outputs.push(output));
    let judged = outputs.iter().filter_map(|output| match output {
        Output::Journey(judged) => Some((**judged).clone()),
        _ => None,
    });
    let report = outputs.iter().find_map(|output| match output {
        Output::Join(report) => Some(*report),
        _ => None,
    });
    let (judged, report) = (judged.collect(), report.expect("a report"));
    [report.host, report.guest].into_iter().for_each(adds_up);
    (judged, report)
}

fn adds_up(counts: HalfCounts) {
    let HalfCounts { halves, joined, doubted, negative, mismatched, ambiguous, alone } = counts;
    assert_eq!(halves, joined + doubted + negative + mismatched + ambiguous + alone);
}

#[test]
fn halves_find_each_other_by_their_nonce_in_any_order() {
    let second = Identity { nonce: 2, ..FIRST };
    let halves = vec![
        (Side::Host, host(1, FIRST)),
        (Side::Host, host(2, second)),
        (Side::Guest, guest(8, second)),
        (Side::Guest, guest(9, FIRST)),
    ];
    let (judged, report) = join(4, None, halves);
    let pairs: Vec<_> =
        judged.iter().map(|one| (one.journey.id.0, one.guest.as_ref().unwrap().id.unwrap().0)).collect();
    assert_eq!(pairs, [(2, 8), (1, 9)]);
    assert_eq!((report.host.joined, report.guest.joined), (2, 2));
    assert_eq!(report.overhead_p50.map(|time| time.0 / 1_000), Some(96));
}

#[test]
fn half_lost_checks_are_counted_on_the_side_that_has_them() {
    let (judged, report) = join(4, None, vec![(Side::Host, host(1, FIRST))]);
    assert_eq!((report.host.alone, report.guest.halves), (1, 0));
    assert_eq!((pairing(&judged[0]), concluded(&judged[0])), (&Pairing::Alone, Some(Cause::VmGuestInternal)));
    let (judged, report) = join(4, None, vec![(Side::Guest, guest(1, FIRST))]);
    assert_eq!((judged.len(), report.guest.alone), (0, 1));
}

#[test]
fn a_nonce_that_two_checks_have_joins_neither() {
    for (twice, once) in [(Side::Host, Side::Guest), (Side::Guest, Side::Host)] {
        let half = |side, id| (side, if side == Side::Host { host(id, FIRST) } else { guest(id, FIRST) });
        let (judged, report) = join(4, None, vec![half(twice, 1), half(twice, 2), half(once, 3)]);
        assert!(judged.iter().all(|one| *pairing(one) == Pairing::Ambiguous), "{twice:?}");
        assert_eq!(report.host.ambiguous + report.guest.ambiguous, 3, "{twice:?}");
    }
}

#[test]
fn without_a_nonce_the_packet_s_own_number_tells_and_else_only_a_flow_with_one_check() {
    let numbered = |ip_id| Identity { nonce: 0, ip_id, ..FIRST };
    let halves = vec![
        (Side::Host, host(1, numbered(7))),
        (Side::Host, host(2, numbered(8))),
        (Side::Guest, guest(3, numbered(8))),
    ];
    let (judged, report) = join(0, None, halves);
    assert_eq!((report.host.joined, report.host.alone), (1, 1));
    assert_eq!((judged[1].journey.id, judged[1].guest.as_ref().unwrap().id), (JourneyId(2), Some(JourneyId(3))));
    let (_, report) = join(0, None, vec![(Side::Host, host(1, numbered(0))), (Side::Guest, guest(2, numbered(0)))]);
    assert_eq!(report.host.joined, 1);
    let other_flow = Identity { port: 5_001, ..numbered(0) };
    let (_, report) = join(0, None, vec![(Side::Host, host(1, numbered(0))), (Side::Guest, guest(2, other_flow))]);
    assert_eq!((report.host.alone, report.guest.alone), (1, 1));
    let mut halves = vec![(Side::Host, host(1, numbered(0))), (Side::Host, host(2, numbered(0)))];
    halves.extend([(Side::Guest, guest(3, numbered(0))), (Side::Guest, guest(4, numbered(0)))]);
    let (_, report) = join(0, None, halves);
    assert_eq!((report.host.ambiguous, report.guest.ambiguous), (2, 2), "their order may be off by one");
}

#[test]
fn a_small_number_that_comes_again_is_joined_to_neither() {
    let numbered = Identity { nonce: 0, ip_id: 7, ..FIRST };
    let halves =
        vec![(Side::Host, host(1, numbered)), (Side::Guest, guest(2, numbered)), (Side::Host, host(3, numbered))];
    let (_, report) = join(0, None, halves);
    assert_eq!((report.host.ambiguous, report.guest.ambiguous), (2, 1), "the first may be from before the guest's run");
}

#[test]
fn a_translation_of_one_address_may_lie_between_if_the_nonce_is_long_and_nothing_else_fits() {
    let asked = |client, ip_id| Identity { client, ip_id, ..FIRST };
    let halves = |ip_id, more: Vec<(Side, Output)>| {
        let two = [(Side::Host, host(1, asked(1, ip_id))), (Side::Guest, guest(2, asked(99, ip_id)))];
        two.into_iter().chain(more).collect::<Vec<_>>()
    };
    assert_eq!(join(4, None, halves(7, Vec::new())).1.host.joined, 1);
    assert_eq!(join(4, None, halves(0, Vec::new())).1.host.joined, 0, "two clients that count from 1 look like that");
    assert_eq!(join(2, None, halves(7, Vec::new())).1.host.joined, 0, "short nonces are alike by chance");
    let (_, report) = join(4, None, halves(7, vec![(Side::Guest, guest(3, asked(98, 7)))]));
    assert_eq!((report.host.ambiguous, report.guest.ambiguous), (1, 2));
}

#[test]
fn while_halves_are_made_one_of_the_host_s_does_not_wait_for_ever() {
    let later = |id, nonce| {
        let identity = Identity { nonce, ..FIRST };
        with(outside(10_000_000, 10_200_500).judge(), id, identity)
    };
    let halves = vec![
        (Side::Host, host(1, FIRST)),
        (Side::Host, later(2, 2)),
        (Side::Guest, guest(3, FIRST)),
        (Side::Guest, guest(4, Identity { nonce: 2, ..FIRST })),
    ];
    let (judged, report) = join(4, Some(DurNs::from_secs(3)), halves);
    assert_eq!(judged.iter().map(|one| one.journey.id.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((report.host.alone, report.host.joined, report.guest.alone), (1, 1, 1));
}

#[test]
fn open_checks_are_joined_at_the_end_and_told_meanwhile_only_of_halves_in_the_making() {
    for (patience, told) in [(None, 1), (Some(DurNs::from_secs(3)), 2)] {
        let mut story = inside(Fault::Sleeps, 2_500_000);
        story.open_after(Stage::SockRead, 2_000_000).until(2_000_000);
        let open = with(never_back(500, 2_000_500, Outcome::Open).judge(), 1, FIRST);
        let halves = vec![(Side::Host, open), (Side::Guest, with(story.judge(), 2, FIRST))];
        let (judged, report) = join(4, patience, halves);
        assert_eq!((judged.len(), report.host.joined), (told, 1));
        assert!(taken(judged.last().unwrap(), Cause::AppSelfWait) > DurNs::from_millis(1_900));
    }
}

#[test]
fn a_host_that_looks_into_its_own_containers_has_no_half_to_join() {
    let mut story = outside(500, 200_500);
    story.stamp(600, Stage::GuestRx, None);
    story.journey.stamps.sort_by_key(|stamp| stamp.at);
    let (judged, report) = join(4, None, vec![(Side::Host, with(story.judge(), 1, FIRST))]);
    assert_eq!((report.host.halves, judged.len()), (0, 1));
    assert!(judged[0].guest.is_none());
}

#[test]
fn a_neighbour_on_the_guest_s_cpu_is_told_as_the_guest_s() {
    let mut guest = inside(Fault::Computes, 200_000);
    guest.preempted(300, SERVER, HOG).runs_after(190_000, SERVER, HOG);
    let judged = joined(&mut outside(500, 200_500), &mut guest);
    assert_eq!(concluded(&judged), Some(Cause::AppRunqueue), "{judged:#?}");
    let offender = longest(&judged, Cause::AppRunqueue).offender.clone().unwrap();
    assert!(offender.comm == "hog" && offender.guest, "{offender:?}");
}
