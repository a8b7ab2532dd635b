//! Claims about the ledger of losses.

use super::*;
use crate::event::{CounterRow, TaskId};
use probe_wire::{Interrupt, TaskExitBody};
use proptest::prelude::*;

const EXIT: u16 = EventKind::TaskExit as u16;

fn record(at: u64, cpu: u32, seq: u64) -> Event {
    let body = Body::TaskExit(TaskExitBody { start_time_ns: 0 });
    Event { at: MonoNs(at), seq, cpu, task: TaskId::default(), softirq: 0, interrupt: Interrupt::Unknown, body }
}

fn counters(rows: Vec<CounterRow>) -> Event {
    skipped(0, rows, &[])
}

fn skipped(at: u64, rows: Vec<CounterRow>, runs: &[u64]) -> Event {
    let skipped_runs = runs.iter().map(|runs| ("sched_switch".to_owned(), *runs)).collect();
    Event { body: Body::Fact(Box::new(Fact::Counters { rows, skipped_runs })), ..record(at, 0, 0) }
}

fn tick(at: u64) -> Event {
    Event { body: Body::Tick, ..record(at, 0, 0) }
}

/// Records at 1 ms each, of CPU 0, with these numbers.
fn ledger(seqs: impl IntoIterator<Item = u64>) -> LossLedger {
    let mut ledger = LossLedger::new();
    (1..).zip(seqs).for_each(|(at, seq)| ledger.received(&record(at * 1_000_000, 0, seq)));
    ledger
}

fn lost(ledger: &mut LossLedger) -> u64 {
    ledger.finish();
    ledger.lost_between(MonoNs(0), MonoNs(u64::MAX))
}

#[test]
fn a_gap_is_that_many_lost_records_in_the_time_between_its_neighbours() {
    let mut ledger = ledger([1, 2, 6, 7]);
    assert_eq!(lost(&mut ledger), 3);
    assert_eq!(ledger.lost_between(MonoNs(2_500_000), MonoNs(2_600_000)), 3);
    assert_eq!(ledger.lost_between(MonoNs(0), MonoNs(1_999_999)), 0);
    assert_eq!(ledger.lost_between(MonoNs(3_000_001), MonoNs(9_000_000)), 0);
}

#[test]
fn records_lost_before_the_first_one_count() {
    assert_eq!(lost(&mut ledger([4])), 3);
}

#[test]
fn duplicates_and_small_disorder_are_no_loss() {
    assert_eq!(lost(&mut ledger([1, 3, 2, 2, 5, 4, 1, 6])), 0);
}

#[test]
fn a_record_beyond_all_disorder_leaves_a_gap_of_any_size() {
    let mut ledger = ledger([1, u64::MAX - 1, u64::MAX]);
    assert_eq!(lost(&mut ledger), u64::MAX - 3);
}

#[test]
fn a_tick_decides_what_is_missing_and_leaves_what_may_come() {
    let mut ledger = ledger([1, 3]);
    ledger.received(&tick(2_500_000));
    assert_eq!(ledger.lost_between(MonoNs(0), MonoNs(u64::MAX)), 0);
    ledger.received(&tick(3_000_000));
    assert_eq!(ledger.lost_between(MonoNs(0), MonoNs(u64::MAX)), 1);
}

#[test]
fn many_gaps_become_few_and_hide_nothing() {
    let mut ledger = ledger((0..20_000).map(|n| n * 2 + 1));
    assert_eq!(lost(&mut ledger), 19_999);
    assert_eq!(ledger.lost_between(MonoNs(0), MonoNs(2_000_000)), 20_000 - 4096);
}

#[test]
fn the_identity_holds_with_the_kernels_word_and_names_what_does_not_add_up() {
    let mut ledger = ledger([1, 2, 4]);
    assert_eq!(ledger.identity(), Ok(()), "without counters there is nothing to check");
    ledger.received(&counters(vec![CounterRow { cpu: 0, kind: EXIT, emitted: 4, lost: 1, undrained: 0 }]));
    assert_eq!(ledger.identity(), Ok(()));
    ledger.received(&counters(vec![CounterRow { cpu: 2, kind: EXIT, emitted: 5, lost: 1, undrained: 0 }]));
    let wrong = Violation::Emitted { kind: EventKind::TaskExit, cpu: 2, received: 0, lost: 1, emitted: 5, others: 0 };
    assert_eq!(ledger.identity(), Err(wrong));
}

#[test]
fn counters_read_in_parts_and_out_of_order_keep_their_greatest_value() {
    let mut ledger = ledger([1, 2]);
    for emitted in [1, 2, 1] {
        ledger.received(&counters(vec![CounterRow { cpu: 0, kind: EXIT, emitted, lost: 0, undrained: 0 }]));
    }
    assert_eq!(ledger.identity(), Ok(()));
}

#[test]
fn every_decoded_record_has_one_of_four_fates() {
    let mut ledger = ledger(1..=10);
    ledger.set_late(1);
    ledger.set_counts(Counts { joined: 4, evidence: 3, unmatched: 2, ..Counts::default() });
    assert_eq!(ledger.decoded_identity(), Ok(()));
    ledger.set_late(2);
    assert!(matches!(ledger.decoded_identity(), Err(Violation::Decoded { decoded: 10, late: 2, .. })));
}

#[test]
fn a_sink_writes_or_drops_what_it_is_offered() {
    assert_eq!(check_sink(5, 3, 2), Ok(()));
    assert!(check_sink(5, 3, 1).is_err());
}

#[test]
fn the_report_has_the_words_of_the_output() {
    let mut ledger = ledger([1, 2, 4]);
    ledger.received(&skipped(0, vec![CounterRow { cpu: 0, kind: EXIT, emitted: 4, lost: 1, undrained: 0 }], &[3]));
    ledger.dropped(7);
    ledger.undecodable();
    ledger.finish();
    let json = serde_json::to_string(&ledger.report()).unwrap();
    let start =
        r#"{"type":"loss","emitted":4,"received":3,"lost":1,"late":0,"unmatched":0,"dropped":7,"undecodable":1,"#;
    assert!(json.starts_with(start), "{json}");
    assert!(json.contains(r#""by_kind":[{"kind":"task_exit","emitted":4,"received":3,"lost":1}]"#), "{json}");
    assert!(json.contains(r#""skipped_runs":[{"program":"sched_switch","count":3}]"#), "{json}");
}

#[test]
fn hostile_numbers_do_no_harm() {
    let mut ledger = LossLedger::new();
    ledger.received(&record(u64::MAX, u32::MAX, u64::MAX));
    ledger.received(&record(0, u32::MAX, 0));
    let row = CounterRow { cpu: u32::MAX, kind: 999, emitted: u64::MAX, lost: u64::MAX, undrained: 0 };
    ledger.received(&counters(vec![row, CounterRow { kind: EXIT, ..row }]));
    ledger.finish();
    assert!(ledger.identity().is_err());
    assert!(ledger.report().lost > 0);
}

proptest! {
    #[test]
    fn what_is_left_out_is_counted_exactly_whatever_the_order(
        kept in prop::collection::vec(any::<bool>(), 1..400), jitter in prop::collection::vec(0_usize..30, 400)
    ) {
        let mut seqs: Vec<(usize, u64)> = Vec::new();
        for (place, seq) in (1..=kept.len()).zip(1_u64..) {
            if kept[place - 1] {
                seqs.push((place + jitter[place - 1], seq));
            }
        }
        let greatest = seqs.iter().map(|(_, seq)| *seq).max().unwrap_or(0);
        let received = seqs.len() as u64;
        seqs.sort_by_key(|(place, _)| *place);
        let mut ledger = ledger(seqs.into_iter().map(|(_, seq)| seq));
        prop_assert_eq!(lost(&mut ledger), greatest - received);
    }
}

#[test]
fn what_the_counters_tell_of_before_any_gap_shows_is_missing_from_the_last_record_on() {
    let row = |lost| CounterRow { cpu: 0, kind: EXIT, emitted: 2 + lost, lost, undrained: 0 };
    let mut ledger = ledger([1, 2]);
    let ms = |ms: u64| MonoNs(ms * 1_000_000);
    ledger.received(&counters(vec![row(5)]));
    ledger.received(&tick(9_000_000));
    assert_eq!(ledger.lost_between(ms(4), ms(6)), 5, "nothing was read behind it, so it has no end");
    assert_eq!(ledger.lost_between(ms(0), ms(1)), 0);
    ledger.received(&record(8_000_000, 0, 8));
    ledger.received(&tick(9_500_000));
    assert_eq!(ledger.lost_between(ms(9), ms(10)), 0, "now the gap has an end");
    assert_eq!(ledger.lost_between(ms(4), ms(6)), 5);
    ledger.received(&counters(vec![row(5)]));
    assert_eq!(ledger.lost_between(ms(9), ms(10)), 0);
}

#[test]
fn a_cpu_of_which_nothing_was_read_may_have_lost_anything() {
    let mut ledger = LossLedger::new();
    ledger.received(&counters(vec![CounterRow { cpu: 3, kind: EXIT, emitted: 4, lost: 4, undrained: 0 }]));
    assert_eq!(ledger.lost_between(MonoNs(1), MonoNs(2)), 4);
}

#[test]
fn records_left_in_the_rings_keep_the_identity_and_count_as_lost() {
    let mut ledger = ledger([1, 2, 4]);
    ledger.received(&counters(vec![CounterRow { cpu: 0, kind: EXIT, emitted: 9, lost: 1, undrained: 5 }]));
    ledger.finish();
    assert_eq!(ledger.identity(), Ok(()));
    assert_eq!(ledger.report().lost, 6);
}

#[test]
fn a_record_that_came_too_late_is_missing_and_not_lost() {
    let mut ledger = ledger([1, 2, 3]);
    ledger.came_late(MonoNs(2_500_000));
    assert_eq!(ledger.lost_between(MonoNs(2_000_000), MonoNs(3_000_000)), 1);
    assert_eq!(ledger.lost_between(MonoNs(2_600_000), MonoNs(3_000_000)), 0);
    assert_eq!(lost(&mut ledger), 1);
    assert_eq!(ledger.report().lost, 0);
}

#[test]
fn a_run_that_the_kernel_skipped_is_missing_since_the_counters_before() {
    let second = |s: u64| s * 1_000_000_000;
    let mut ledger = LossLedger::new();
    ledger.received(&skipped(second(1), Vec::new(), &[2]));
    ledger.received(&skipped(second(2), Vec::new(), &[2]));
    ledger.received(&skipped(second(3), Vec::new(), &[]));
    ledger.received(&skipped(second(3), Vec::new(), &[5]));
    assert_eq!(ledger.lost_between(MonoNs(0), MonoNs(1)), 2, "some time since attach");
    assert_eq!(ledger.lost_between(MonoNs(second(1) + 500_000_000), MonoNs(second(1) + 600_000_000)), 0);
    assert_eq!(ledger.lost_between(MonoNs(second(2) + 500_000_000), MonoNs(second(2) + 600_000_000)), 3);
    assert_eq!(ledger.report().lost, 0, "no ring was full");
}

/// Part of a recording that could not be read.
fn hole(at: u64, records: Option<u64>) -> Event {
    Event { body: Body::Fact(Box::new(Fact::Unreadable { bytes: 9, records })), ..record(at, 0, 0) }
}

#[test]
fn what_could_not_be_read_is_missing_between_the_ticks_around_it_and_was_not_lost() {
    let mut ledger = LossLedger::new();
    ledger.received(&record(1, 0, 1));
    ledger.received(&tick(10));
    ledger.received(&record(11, 0, 2));
    ledger.received(&hole(11, Some(4)));
    assert_eq!(ledger.lost_between(MonoNs(20), MonoNs(90)), 4, "as long as no tick ends it");
    assert_eq!(ledger.lost_between(MonoNs(0), MonoNs(9)), 0);
    ledger.received(&record(50, 0, 5));
    ledger.received(&tick(60));
    let between = |from, to| ledger.lost_between(MonoNs(from), MonoNs(to));
    assert!(between(0, 9) == 0 && between(12, 13) >= 4 && between(61, 90) == 0);
    ledger.received(&counters(vec![CounterRow { cpu: 0, kind: EXIT, emitted: 5, lost: 0, undrained: 0 }]));
    ledger.received(&hole(61, None));
    ledger.finish();
    let report = ledger.report();
    assert_eq!((report.unreadable, report.lost, report.by_cpu[0].lost), (5, 0, 0));
}

#[test]
fn lost_stacks_are_counted_apart_from_those_that_were_spared() {
    let counts = StackCounts { late: 2, no_time: 3, ..StackCounts::default() };
    let samples = crate::stack::TakenCount { due: 90, lost: 5, spared: 7, displaced: 1 };
    let counts = StackCounts { samples, ..counts };
    let mut ledger = LossLedger::new();
    ledger.received(&Event { body: Body::Fact(Box::new(Fact::StackCounts(counts))), ..record(1, 0, 0) });
    let report = ledger.report();
    assert_eq!((report.stacks_lost, report.stacks_spared, report.lost), (10, 7, 0));
}
