//! What must hold for any evidence and any journey.

use super::piece::exact;
use super::story::{
    Actor, EPOLL, FUTEX, HOG, IDLE, MS, NANOSLEEP, PIPE, RECEIVE, SECOND, SERVER, Story, TCP_RECEIVE, THIRD, WORKER,
    at, run,
};
use super::{Attributor, Cause, Judged, Unresolved, Verdict};
use crate::clock::{DurNs, MonoNs};
use crate::event::Threshold;
use crate::flame::Flame;
use crate::journey::{Loss, Outcome, PacketDrop, Perspective, STAGES, Stage};
use crate::pipeline::Output;
use crate::summary::Summary;
use proptest::collection::vec;
use proptest::prelude::{Just, ProptestConfig, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};

const ACTORS: [Actor; 4] = [SERVER, WORKER, THIRD, HOG];
const FRAMES: [&str; 7] = [RECEIVE, TCP_RECEIVE, FUTEX, EPOLL, NANOSLEEP, PIPE, "some_driver_wait"];
/// The stretch that stories are about, microseconds.
const LENGTH: u64 = 100_000;

#[derive(Debug, Clone, Copy)]
enum Step {
    Run(usize, usize),
    Sleep(usize, usize, u32),
    Preempt(usize, usize),
    Wake(usize, usize, u32),
    Read(usize),
    Call(usize, bool, u32),
    Softirq(u64),
    Exit(usize),
    Grow(u64, u64),
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let who = || 0..ACTORS.len();
    let state = prop_oneof![Just(0), Just(1), Just(2), Just(4), Just(256), Just(0x80), Just(0x8000)];
    let step = prop_oneof![
        4 => (who(), who()).prop_map(|(who, before)| Step::Run(who, before)),
        4 => (who(), 0..FRAMES.len(), state).prop_map(|(who, frames, state)| Step::Sleep(who, frames, state)),
        1 => (who(), who()).prop_map(|(who, by)| Step::Preempt(who, by)),
        4 => (who(), who(), 0..6_u32).prop_map(|(waker, who, softirq)| Step::Wake(waker, who, softirq)),
        1 => who().prop_map(Step::Read),
        1 => (who(), proptest::bool::ANY, 52..54_u32).prop_map(|(who, got, port)| Step::Call(who, got, port)),
        1 => (1..5_000_u64).prop_map(Step::Softirq),
        1 => who().prop_map(Step::Exit),
        1 => (0..9_000_u64, 0..9_000_u64).prop_map(|(throttled, softirq)| Step::Grow(throttled, softirq)),
    ];
    (6_000..LENGTH, step)
}

fn tell(story: &mut Story, mut steps: Vec<(u64, Step)>) {
    steps.sort_by_key(|(us, _)| *us);
    let (mut throttled, mut softirq) = (0, 0);
    for (us, step) in steps {
        match step {
            Step::Run(who, before) => story.runs_after(us, ACTORS[who], ACTORS[before]),
            Step::Sleep(who, frames, state) => story.sleeps(us, ACTORS[who], state, FRAMES[frames]),
            Step::Preempt(who, by) => story.preempted(us, ACTORS[who], ACTORS[by]),
            Step::Wake(waker, who, softirq) => story.wakes_in(us, ACTORS[waker], ACTORS[who], softirq),
            Step::Read(who) => story.reads(us, ACTORS[who]),
            Step::Call(who, received, port) => story.calls(us, ACTORS[who], received, port),
            Step::Softirq(long) => story.softirq(us - long, us, 3),
            Step::Exit(who) => story.exits(us, ACTORS[who]),
            Step::Grow(more_throttled, more_softirq) => {
                throttled += more_throttled;
                softirq += more_softirq;
                story.throttled(throttled).softirq_total(softirq)
            }
        };
    }
}

fn outcome() -> impl Strategy<Value = u8> {
    0..6_u8
}

fn finish(story: &mut Story, outcome: u8, end: u64) {
    let drop =
        PacketDrop { at: at(end), reason: 3, location: 1, interface: super::story::ETH, ..PacketDrop::default() };
    let outcome = match outcome {
        0 => return,
        1 => Outcome::Open,
        2 => Outcome::Lost(Loss::TimedOut),
        3 => Outcome::Lost(Loss::Dropped(drop.clone())),
        4 => Outcome::Ambiguous,
        _ => Outcome::Broken("stages contradict each other"),
    };
    story.journey.drops.push(drop);
    story.ends(end, outcome);
}

fn told(steps: Vec<(u64, Step)>, stages: Vec<(usize, u64, usize)>, sent: bool, outcome: u8) -> Story {
    let mut story = Story::new();
    tell(&mut story, steps);
    story.journey.perspective = if sent { Perspective::Sent } else { Perspective::Served };
    let mut times: Vec<u64> = stages.iter().map(|(_, us, _)| *us).collect();
    times.sort_unstable();
    let mut order: Vec<usize> = stages.iter().map(|(stage, ..)| *stage).collect();
    order.sort_unstable_by_key(|stage| (stage + if sent { 6 } else { 0 }) % STAGES.len());
    for ((us, stage), (.., who)) in times.iter().zip(order).zip(stages) {
        story.stamp(*us, STAGES[stage].stage, Some(ACTORS[who]));
    }
    let last = times.last().copied().unwrap_or_default();
    story.qdisc(last / 2, last / 2 + 900, "tbf", |left| left.overlimits += 1);
    finish(&mut story, outcome, last + 5_000);
    story
}

fn stage() -> impl Strategy<Value = (usize, u64, usize)> {
    (0..STAGES.len(), 0..LENGTH, 0..ACTORS.len())
}

fn shares_fit(judged: &Judged) -> bool {
    match judged.verdict {
        Verdict::Cause { share, .. } => (0.5..=1.0).contains(&share),
        Verdict::Split { share, .. } => (0.0..0.5).contains(&share),
        Verdict::Healthy | Verdict::Unresolved(_) => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_ledger_is_exact(
        steps in vec(step(), 0..80),
        stages in vec(stage(), 1..9),
        sent in proptest::bool::ANY,
        outcome in outcome(),
    ) {
        let mut story = told(steps, stages, sent, outcome);
        let mut summary = Summary::new(&run(Threshold::Fixed(DurNs::from_millis(20))));
        let judged = story.judge();
        prop_assert!(exact(&judged.ledger), "{:#?}", judged.ledger);
        prop_assert_eq!(judged.ledger.to.since(judged.ledger.from), judged.journey.elapsed());
        prop_assert!(judged.ledger.entries.iter().all(|entry| entry.path.last() == Some(&entry.cause)));
        prop_assert!(judged.ledger.entries.iter().all(|entry| entry.path.len() <= 9 && !entry.evidence.is_empty()));
        prop_assert!(shares_fit(&judged), "{:?}", judged.verdict);
        summary.push(&judged);
        let episode = summary.episode(judged.journey.target).unwrap();
        prop_assert!(episode.causes.iter().map(|cause| cause.share).sum::<f64>() <= 1.000_001);
    }

    /// To say by whom an entry was reached changes nothing that is charged, and adds no time.
    #[test]
    fn the_towers_of_slow_checks_sum_to_their_time(
        steps in vec(step(), 0..80),
        stages in vec(stage(), 1..9),
        sent in proptest::bool::ANY,
        outcome in outcome(),
    ) {
        let plain = told(steps.clone(), stages.clone(), sent, outcome).judge();
        let mut story = told(steps, stages, sent, outcome);
        story.evidence.tell_hops();
        let mut judged = story.judge();
        let mut flame = Flame::new();
        flame.push(&Output::Journey(Box::new(judged.clone())));
        let folded = flame.delay().map(|graph| graph.folded()).unwrap_or_default();
        let times = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
        prop_assert_eq!(times.sum::<u64>(), if judged.slow { judged.journey.elapsed().0 } else { 0 }, "{}", folded);
        judged.ledger.entries.iter_mut().for_each(|entry| entry.hops.clear());
        prop_assert_eq!(judged, plain);
    }

    #[test]
    fn a_ledger_is_exact_whatever_the_order_of_stages(
        steps in vec(step(), 0..30),
        stages in vec(stage(), 0..9),
        sent in proptest::bool::ANY,
        end in 0..LENGTH,
    ) {
        let mut story = Story::new();
        tell(&mut story, steps);
        story.journey.perspective = if sent { Perspective::Sent } else { Perspective::Served };
        for (stage, us, who) in stages {
            story.stamp(us, STAGES[stage].stage, Some(ACTORS[who]));
        }
        story.ends(end, Outcome::Open);
        let judged = story.judge();
        prop_assert!(exact(&judged.ledger), "{:#?}", judged.ledger);
    }

    #[test]
    fn intervals_fill_the_stretch(steps in vec(step(), 0..60), from in 0..LENGTH, length in 1..LENGTH) {
        let mut story = Story::new();
        story.runs(1, SERVER);
        tell(&mut story, steps);
        let rows = story.did(SERVER, from, from + length);
        prop_assert_eq!(rows.first().map(|row| row.0), Some(from));
        prop_assert_eq!(rows.last().map(|row| row.1), Some(from + length));
        prop_assert!(rows.windows(2).all(|pair| pair[0].1 == pair[1].0));
    }

    #[test]
    fn trimming_changes_nothing_behind_it(steps in vec(step(), 0..60), before in 0..LENGTH) {
        let mut story = Story::new();
        story.runs(1, SERVER);
        tell(&mut story, steps);
        let whole = story.did(SERVER, before, LENGTH);
        story.evidence.trim(at(before));
        let after = story.did(SERVER, before, LENGTH);
        prop_assert!(after.is_empty() || after == whole, "{whole:?} {after:?}");
    }

    #[test]
    fn loss_never_leaves_a_confident_verdict(steps in vec(step(), 0..40), stages in vec(stage(), 2..9)) {
        let mut story = told(steps, stages, false, 0);
        story.lost_events = 1;
        let judged = story.judge();
        let fits = matches!(
            judged.verdict,
            Verdict::Healthy | Verdict::Unresolved(Unresolved::EventsLost { count: 1 })
        );
        prop_assert!(fits, "{:?}", judged.verdict);
    }
}

#[test]
fn a_span_with_thousands_of_switches_has_a_short_ledger() {
    let mut story = Story::served(100_000);
    for turn in 0..4_000 {
        let us = 1_000 + turn * 20;
        story.preempted(us, SERVER, HOG).runs_after(us + 5, SERVER, HOG);
    }
    let judged = story.judge();
    assert!(judged.ledger.entries.len() < 20, "{}", judged.ledger.entries.len());
    assert!(exact(&judged.ledger));
    let queued = super::story::taken(&judged, Cause::AppRunqueue);
    let worked = super::story::taken(&judged, Cause::AppOnCpu);
    assert!(queued.0.abs_diff(20_000_000) < 100_000, "5 µs 4,000 times, not {queued}");
    assert!(worked.0.abs_diff(80_000_000) < 200_000, "the rest of 100 ms, not {worked}");
}

#[test]
fn a_multiple_counts_from_the_median_of_healthy_checks() {
    let mut attributor = Attributor::new(&run(Threshold::Multiple(5.0)));
    let mut took = |us: u64| Story::served(us).judge_with(&mut attributor).slow;
    assert!(!took(90_000), "nothing is known yet, so 100 ms count");
    for _ in 0..60 {
        took(1_000);
    }
    assert!(took(6_000) && !took(4_000));
}

#[test]
fn judging_needs_no_evidence() {
    let story = Story::served(100_000);
    let bare = story.journey;
    let judged = Attributor::new(&run(Threshold::Fixed(DurNs::from_millis(20)))).judge(
        bare,
        &super::Evidence::default(),
        &|_: MonoNs, _: MonoNs| 0,
    );
    assert!(matches!(judged.verdict, Verdict::Unresolved(Unresolved::Unexplained { .. })), "{:?}", judged.verdict);
}

/// A thread that switches 20,000 times, and a check that it has read and not answered after 1 s.
fn unanswered() -> Story {
    let mut story = Story::served(SECOND);
    for turn in 0..10_000 {
        let us = 1_000 + turn * 90;
        story.preempted(us, SERVER, HOG).runs_after(us + 5, SERVER, HOG);
    }
    story.open_after(Stage::SockRead, SECOND);
    story.tell();
    story
}

#[test]
fn a_burst_of_open_checks_is_judged_within_a_bound_of_work_and_the_rest_is_counted() {
    const CHECKS: u64 = 50_000;
    let story = unanswered();
    let mut attributor = Attributor::new(&run(Threshold::Fixed(DurNs::from_millis(20))));
    let mut brief = 0;
    for _ in 0..CHECKS {
        let judged = attributor.judge(story.journey.clone(), &story.evidence, &|_, _| 0);
        assert!(exact(&judged.ledger) && judged.slow);
        let doubted = matches!(judged.verdict, Verdict::Unresolved(_));
        assert!(!judged.brief || doubted, "{:?}", judged.verdict);
        brief += u64::from(judged.brief);
    }
    assert!(brief > 0 && brief < CHECKS, "some are looked into, {brief} are not");
    assert!(attributor.steps() < 2_000_000, "{} records looked at", attributor.steps());
    attributor.advance(story.journey.known_until);
    let later = attributor.judge(story.journey.clone(), &story.evidence, &|_, _| 0);
    assert!(!later.brief, "later there is room again");
}

/// The check comes while its reader waits for a name server that it asks again after a second.
fn behind_a_question() -> Story {
    let mut story = Story::queued(SECOND + 100 * MS);
    story.calls_on(20, SERVER, false, (1, 50_000, 53)).sleeps(50, SERVER, 1, EPOLL);
    story.wakes_in(SECOND, IDLE, SERVER, 0).runs(SECOND + 5, SERVER);
    story.calls_on(SECOND + 9, SERVER, false, (2, 50_001, 53)).sleeps(SECOND + 20, SERVER, 1, EPOLL);
    story.packet_wakes(SECOND + 99 * MS, SERVER).runs(SECOND + 99 * MS + 5, SERVER);
    story.calls_on(SECOND + 99 * MS + 9, SERVER, true, (2, 50_001, 53));
    story.tell();
    story
}

#[test]
fn a_question_counts_though_all_that_was_before_the_wait_is_forgotten() {
    for forgets in [false, true] {
        let mut story = behind_a_question();
        if forgets {
            story.evidence.trim(story.journey.started_at());
        }
        let mut attributor = Attributor::new(&run(Threshold::Fixed(DurNs::from_millis(20))));
        let judged = attributor.judge(story.journey.clone(), &story.evidence, &|_, _| 0);
        let dns = matches!(judged.verdict, Verdict::Cause { cause: Cause::DependencyDns, .. });
        assert!(dns, "{forgets}: {:?}", judged.verdict);
    }
}

#[test]
fn a_verdict_that_rests_on_a_state_from_before_a_gap_is_not_believed() {
    let mut story = Story::queued(SECOND);
    story.preempted(50, SERVER, HOG).open_after(Stage::SockEnqueue, SECOND);
    story.reads(20, SERVER).tell();
    let lost_at = at(80);
    let lost = |from: MonoNs, to: MonoNs| u64::from(from <= lost_at && lost_at <= to);
    assert!(story.journey.started_at() > lost_at, "the gap is over when the check begins");
    let judged = Attributor::new(&run(Threshold::Fixed(DurNs::from_millis(20)))).judge(
        story.journey.clone(),
        &story.evidence,
        &lost,
    );
    assert_eq!(judged.verdict, Verdict::Unresolved(Unresolved::EventsLost { count: 1 }));
}

#[test]
fn of_very_many_offenders_the_longest_keep_their_names_and_the_sum_stays_exact() {
    let mut story = Story::served(200_000);
    for turn in 0..500 {
        let us = 1_000 + turn * 100;
        let other = Actor(7, 7_000 + u32::try_from(turn).unwrap(), "many");
        story.preempted(us, SERVER, other).runs_after(us + 50, SERVER, other);
    }
    let judged = story.judge();
    assert!(exact(&judged.ledger));
    assert!(judged.ledger.entries.len() < 40, "{}", judged.ledger.entries.len());
    let queued = super::story::taken(&judged, Cause::AppRunqueue);
    assert!(queued.0.abs_diff(25_000_000) < 100_000, "50 µs 500 times, not {queued}");
}
