//! Events per second that one core decodes, orders and correlates, from records in memory.
//!
//! `cargo run --release -p probe-user --example throughput [CHECKS [ROUNDS]]`; prints one line of
//! JSON with the best and the median of the rounds.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use probe_user::clock::{DurNs, MonoNs};
use probe_user::event::{Event, Orderer, decode, encode};
use probe_user::journey::{Correlator, Outcome, Update};
use probe_user::loss::LossLedger;
use std::time::{Duration, Instant};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().unwrap_or(0));
    let checks = arguments.next().filter(|checks| *checks > 0).unwrap_or(100_000);
    let rounds = arguments.next().filter(|rounds| *rounds > 0).unwrap_or(9);
    let facts = synthetic::facts(1_000_000);
    let events = facts.into_iter().chain(synthetic::load(checks));
    let records: Vec<Vec<u8>> = events.filter_map(|event| encode(&event).ok()).collect();
    let mut times: Vec<Duration> = (0..rounds).map(|_| round(&records, checks)).collect();
    times.sort();
    let count = records.len() as f64;
    let per_second = |time: Duration| (count / time.as_secs_f64()).round();
    let (best, median) = (times[0], times[times.len() / 2]);
    print(&format!(
        r#"{{"bench":"decode+order+correlate","events":{},"checks":{checks},"best_events_per_s":{},"median_events_per_s":{},"best_ns_per_event":{:.1}}}"#,
        records.len(),
        per_second(best),
        per_second(median),
        best.as_secs_f64() * 1e9 / count,
    ));
}

#[expect(clippy::print_stdout, reason = "the result of the example")]
fn print(line: &str) {
    println!("{line}");
}

/// One pass over all records.
fn round(records: &[Vec<u8>], checks: u64) -> Duration {
    let mut orderer = Orderer::new(DurNs::from_millis(2));
    let mut correlator = Correlator::new();
    let mut loss = LossLedger::new();
    let mut ended = Vec::new();
    let mut replied = 0;
    let start = Instant::now();
    for record in records {
        let Ok(event) = decode(record) else { continue };
        loss.received(&event);
        orderer.push(event, &mut |event| correlate(&mut correlator, &event, &mut ended, &mut replied));
    }
    orderer.finish(&mut |event| correlate(&mut correlator, &event, &mut ended, &mut replied));
    let time = start.elapsed();
    correlator.finish(MonoNs(0), &mut drop);
    assert_eq!(replied, checks, "every check is answered");
    assert_eq!(loss.decoded(), correlator.counts().joined + correlator.counts().evidence);
    time
}

fn correlate(
    correlator: &mut Correlator,
    event: &Event,
    ended: &mut Vec<probe_user::journey::Journey>,
    replied: &mut u64,
) {
    correlator.push(event, &mut |update| {
        if let Update::Ended(journey) = update {
            *replied += u64::from(journey.outcome == Outcome::Replied && journey.stamps.len() == 6);
            ended.push(journey);
        }
    });
    ended.drain(..).for_each(|journey| correlator.recycle(journey));
}
