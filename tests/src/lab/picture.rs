//! Two faults, one after the other, must be told as one picture: first workers fill a transmit queue that
//! drops what their calls were told is sent, then a CPU that receives takes the time of a serving thread.

use super::case::Case;
use super::contract::{Journey, Queue};
use super::message::Check;
use super::run::Observed;
use super::whylag::Said;
use super::world::PNIC;
use std::collections::BTreeMap;

/// The first fault's causes.
const FIRST: [&str; 2] = ["nic.qdisc", "nic.drop"];
/// The second's.
const SECOND: &str = "host.cpu_gap";
/// The CPU that receives, and runs the serving thread.
const CPU: u32 = 1;
/// The serving thread.
const WORKER: &str = "echo-worker-0";

/// What is missing or wrong, a sentence each.
pub(super) fn missing(
    case: &Case,
    observed: &Observed,
    said: &Said,
    journeys: &BTreeMap<u64, &Journey>,
) -> Vec<String> {
    let workers: Vec<u32> = observed.sent.iter().map(|sent| sent.tid).collect();
    let blamed = |cause: &str| journeys.values().filter(|journey| journey.blamed() == Some(cause)).count();
    let few = [FIRST[0], FIRST[1], SECOND].into_iter().filter(|cause| blamed(cause) < case.expect.at_least);
    let few = few.map(|cause| format!("{} checks are blamed on {cause}", blamed(cause)));
    let checks = observed.checks.iter();
    let misplaced = checks.filter_map(|check| out_of_time(check, journeys.get(&check.nonce)?, observed));
    let told = [
        (is_queue_told(said, &workers), format!("the queue of {workers:?} is not told as it is: {:?}", said.queues)),
        (is_cpu_told(said), format!("CPU {CPU} is not told as it is: {:?}", said.receiving)),
    ];
    let told = told.into_iter().filter(|(is_told, _)| !is_told).map(|(_, what)| what);
    few.chain(misplaced.take(1)).chain(told).collect()
}

/// A check that is blamed on the fault that was not there.
fn out_of_time(check: &Check, journey: &Journey, observed: &Observed) -> Option<String> {
    let cause = journey.blamed()?;
    let began_ns = observed.second_began_ns;
    let was_over = check.answered_at_ns.is_some_and(|at_ns| at_ns < began_ns);
    let is_wrong = (FIRST.contains(&cause) && check.sent_at_ns >= began_ns) || (cause == SECOND && was_over);
    is_wrong.then(|| format!("journey {} is blamed on {cause} at the wrong time", journey.id))
}

/// One queue of the NIC, which all workers share while the other is idle, with advice.
fn is_queue_told(said: &Said, workers: &[u32]) -> bool {
    let of_nic = said.queues.iter().filter(|queue| queue.interface.as_deref() == Some(PNIC));
    let is_it = |queue: &&Queue| {
        let named = |tid: &u32| queue.senders.iter().any(|sender| sender.tid == *tid);
        queue.queue == 0 && queue.idle_queues == [1] && workers.iter().all(named) && !queue.advice.is_empty()
    };
    !workers.is_empty() && of_nic.filter(is_it).count() == 1
}

/// Receiving took the serving thread's time on its CPU, and another CPU is advised for that.
fn is_cpu_told(said: &Said) -> bool {
    let line = said.receiving.iter().find(|line| line.cpu == CPU && line.taken_ns > 0);
    line.is_some_and(|line| {
        let advised = line.advice.iter().any(|advice| advice.step.contains(WORKER));
        advised && line.workers.iter().any(|worker| worker.comm == WORKER)
    })
}
