//! What stacks in user code cost the threads that are watched.

use std::{
    hint::black_box,
    process,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::Result;
use probe_user::load::{Attached, Request, UserStacks, load};

use crate::{
    attach::request,
    pair::{LONGEST, Tries, take_turns},
    report::{Figure, Row},
    samples::cpu_time,
    switch::ping_pong,
};

/// Rounds of computing in one measurement, about half a second.
const ROUNDS: u64 = 150_000_000;

#[derive(Debug, Clone, Copy)]
enum Subject {
    /// Switches of watched threads.
    Switches,
    /// The time of a thread that computes.
    Computing,
}

pub(crate) fn run() -> Result<Vec<Row>> {
    let mut subjects = [Subject::Switches, Subject::Computing].map(Tries::new);
    take_turns(&mut subjects, LONGEST, attempt)?;
    let [switches, computing] = subjects;
    let switches = match switches.finish() {
        Some(added) => Row::new("a stack kept at each switch of a watched thread adds", "ns", added.added)
            .ratio(added.factor, "watched, no stacks")
            .note(added.kept),
        None => Row::missing("a stack kept at each switch of a watched thread", "too noisy: no try was kept"),
    };
    let computing = match computing.finish() {
        Some(added) => Row::new("samples at 99 Hz add to 0.5 s of a watched thread", "ns", added.added)
            .ratio(added.factor, "watched, no stacks")
            .figure(Figure::at_most((added.factor - 1.0) * 100.0, 1.0, "% of its time"))
            .note(added.kept),
        None => Row::missing("samples at 99 Hz", "too noisy: no try was kept"),
    };
    Ok(vec![switches, computing])
}

fn attempt(subject: Subject) -> Result<[f64; 3]> {
    let measure = || match subject {
        Subject::Switches => ping_pong(),
        Subject::Computing => Ok(computing()),
    };
    let with = |user_stacks| -> Result<f64> {
        let attached = load(&Request { watched_tgids: vec![process::id()], user_stacks, ..request() })?;
        while_drained(attached, measure)
    };
    Ok([with(None)?, with(Some(UserStacks::default()))?, with(None)?])
}

/// Measures while another thread empties the rings, as a collector does.
fn while_drained(mut attached: Attached, measure: impl FnOnce() -> Result<f64>) -> Result<f64> {
    let over = AtomicBool::new(false);
    let rings = [attached.take_rings(), attached.take_dumps()];
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rings: Vec<_> = rings.into_iter().flatten().collect();
            while !over.load(Ordering::Relaxed) {
                for ring in &mut rings {
                    ring.drain(usize::MAX, |_, record| {
                        black_box(record.len());
                    });
                }
                thread::sleep(Duration::from_millis(10));
            }
        });
        let measured = measure();
        over.store(true, Ordering::Relaxed);
        measured
    })
}

/// Nanoseconds of CPU time for the same work each time.
fn computing() -> f64 {
    let begun = cpu_time();
    let mut sum = 0_u64;
    for round in 0..ROUNDS {
        sum = black_box(sum.wrapping_mul(31).wrapping_add(round));
    }
    black_box(sum);
    cpu_time().saturating_sub(begun).as_secs_f64() * 1e9
}
