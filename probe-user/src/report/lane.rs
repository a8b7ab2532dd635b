//! What each thread, queue and disk did while checks waited, as far as ledgers tell.

use super::kept::is_believed;
use super::words::{named, shown};
use crate::attribution::{Cause, Entry, Hop, Judged, Offender};
use crate::clock::{DurNs, MonoNs};
use crate::event::{InterfaceId, TaskId};
use crate::journey::{Perspective, Stage};
use crate::sink::Names;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Whose lane it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Thread { task: TaskId, comm: String },
    Queue(String),
    Device(String),
}

impl Owner {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Thread { task, comm } => {
                let thread = Offender { comm: comm.clone(), task: *task, ..Offender::default() };
                format!("thread {}", named(&thread))
            }
            Self::Queue(name) => shown(name),
            Self::Device(name) => format!("device {}", shown(name)),
        }
    }
}

/// What it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    OnCpu,
    Runnable,
    Blocked,
    /// It held the CPU by name while an interrupt or the host had it.
    Interrupted,
    /// A queue with a check in it, or a device that was waited for.
    Busy,
}

impl State {
    pub(super) const ALL: [Self; 5] = [Self::OnCpu, Self::Runnable, Self::Blocked, Self::Interrupted, Self::Busy];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OnCpu => "on CPU",
            Self::Runnable => "runnable, no CPU",
            Self::Blocked => "blocked",
            Self::Interrupted => "its CPU taken",
            Self::Busy => "waited in or for",
        }
    }

    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::OnCpu => "s-cpu",
            Self::Runnable => "s-runnable",
            Self::Blocked => "s-blocked",
            Self::Interrupted => "s-taken",
            Self::Busy => "s-busy",
        }
    }
}

/// A stretch of a lane.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Segment {
    pub(super) from: MonoNs,
    pub(super) to: MonoNs,
    pub(super) state: State,
    /// In what, or why.
    pub(super) what: String,
}

impl Segment {
    /// What its owner did, in words.
    pub(super) fn told(&self) -> String {
        match self.state {
            State::Busy => shown(&self.what),
            state => format!("{} {}", state.name(), shown(&self.what)),
        }
    }
}

/// One owner's stretches, in order, not overlapping.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) owner: Owner,
    pub(super) segments: Vec<Segment>,
}

/// Lanes, and how many were left out.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) lanes: Vec<Lane>,
    pub(super) left_out: usize,
}

/// The lanes with the most time under these checks: at most so many, each with at least a thousandth of
/// this time, the first in any case.
pub(super) fn lanes(checks: &[&Judged], names: &Names, (most, whole): (usize, DurNs)) -> Lanes {
    let mut told: BTreeMap<Owner, Vec<Segment>> = BTreeMap::new();
    let mut tell = |owner: Owner, segment: Segment| {
        if segment.to > segment.from {
            told.entry(owner).or_default().push(segment);
        }
    };
    for judged in checks {
        let entries = judged.ledger.entries.iter().filter(|_| is_believed(judged));
        entries.for_each(|entry| of_entry(entry, &mut tell));
        queues(judged, names, &mut tell);
    }
    let lanes = told.into_iter().map(|(owner, segments)| Lane { owner, segments: in_order(segments) });
    let mut lanes: Vec<Lane> = lanes.collect();
    lanes.sort_by_key(|lane| Reverse(time(lane)));
    let all = lanes.len();
    let long = lanes.iter().take_while(|lane| time(lane) >= whole.part(1_000).0).count();
    lanes.truncate(long.clamp(1, most));
    let left_out = all - lanes.len();
    Lanes { lanes, left_out }
}

fn time(lane: &Lane) -> u64 {
    lane.segments.iter().map(|segment| segment.to.since(segment.from).0).sum()
}

/// Equal stretches that touch are one; where two overlap, the one that began first counts.
fn in_order(mut segments: Vec<Segment>) -> Vec<Segment> {
    segments.sort_by(|one, two| {
        (one.from, Reverse(one.to), one.state, &one.what).cmp(&(two.from, Reverse(two.to), two.state, &two.what))
    });
    let mut all: Vec<Segment> = Vec::new();
    for mut segment in segments {
        match all.last_mut() {
            Some(last) if segment.from <= last.to && (last.state, &last.what) == (segment.state, &segment.what) => {
                last.to = last.to.max(segment.to);
                continue;
            }
            Some(last) => segment.from = segment.from.max(last.to),
            None => {}
        }
        if segment.to > segment.from {
            all.push(segment);
        }
    }
    all
}

fn of_entry(entry: &Entry, tell: &mut impl FnMut(Owner, Segment)) {
    let segment = |state, what| Segment { from: entry.from, to: entry.to, state, what };
    let last = entry.hops.len().saturating_sub(1);
    for (number, hop) in entry.hops.iter().enumerate() {
        let cause = if number < last { None } else { Some(entry.cause) };
        let (state, what) = state(hop, cause);
        tell(Owner::Thread { task: hop.task, comm: hop.comm.clone() }, segment(state, what));
    }
    let Some(offender) = &entry.offender else { return };
    let is_thread = offender.task.tid != 0;
    let is_hop = entry.hops.iter().any(|hop| hop.task == offender.task);
    if is_thread && !is_hop && entry.cause == Cause::AppRunqueue {
        let ran = segment(State::OnCpu, "ran instead".to_owned());
        tell(Owner::Thread { task: offender.task, comm: offender.comm.clone() }, ran);
    }
    if !offender.device.is_empty() {
        let busy = segment(State::Busy, format!("waited for: {}", entry.cause.name()));
        tell(Owner::Device(offender.device.clone()), busy);
    }
    if is_thread && entry.hops.is_empty() && entry.cause != Cause::AppRunqueue && offender.device.is_empty() {
        let (state, what) = last_state(entry.cause);
        tell(Owner::Thread { task: offender.task, comm: offender.comm.clone() }, segment(state, what));
    }
}

/// A thread on the way to the cause; `cause` is told for the last one only.
fn state(hop: &Hop, cause: Option<Cause>) -> (State, String) {
    match (innermost(hop), cause) {
        (Some(function), _) => (State::Blocked, format!("in {function}")),
        (None, Some(cause)) => last_state(cause),
        (None, None) => (State::Blocked, "for the next thread".to_owned()),
    }
}

/// Where it slept, without the scheduler's own functions.
fn innermost(hop: &Hop) -> Option<&str> {
    let mut frames = hop.frames.iter().rev().map(String::as_str);
    frames.find(|name| !name.contains("schedule")).or_else(|| hop.frames.last().map(String::as_str))
}

fn last_state(cause: Cause) -> (State, String) {
    let state = match cause {
        Cause::AppOnCpu | Cause::AppFutex | Cause::MemoryReclaim | Cause::NicRxSoftirq => State::OnCpu,
        Cause::AppRunqueue | Cause::AppQuotaThrottle | Cause::VmVcpuSteal => State::Runnable,
        Cause::HostCpuGap => State::Interrupted,
        _ => State::Blocked,
    };
    (state, cause.name().to_owned())
}

/// The queues that a check itself stayed in.
fn queues(judged: &Judged, names: &Names, tell: &mut impl FnMut(Owner, Segment)) {
    let journey = &judged.journey;
    let at = |stage| journey.stamp(stage).map(|stamp| stamp.at);
    let holds = |from, to| Segment { from, to, state: State::Busy, what: "holds a check".to_owned() };
    let served = journey.perspective == Perspective::Served;
    if let Some(entered) = at(Stage::SockEnqueue) {
        let port = if served { journey.request.destination_port } else { journey.request.source_port };
        let left = at(Stage::SockRead).unwrap_or(journey.known_until);
        tell(Owner::Queue(format!("socket queue, port {port}")), holds(entered, left));
    }
    if let (Some(entered), Some(taken)) = (at(Stage::VnicTx), at(Stage::BackendRx)) {
        tell(Owner::Queue(format!("ring of {}", names.target(journey.target))), holds(entered, taken));
    }
    for stay in &journey.qdisc {
        let device = InterfaceId { netns: stay.entered.netns, ifindex: stay.entered.ifindex };
        let device =
            names.interface(device).map_or_else(|| format!("ifindex {}", device.ifindex), |known| known.name.clone());
        let left = stay.left_at.unwrap_or(journey.known_until);
        tell(Owner::Queue(format!("qdisc of {device}")), holds(stay.entered_at, left));
    }
}

#[cfg(test)]
mod tests {
    use super::{Segment, State, in_order};
    use crate::clock::MonoNs;

    fn segment(from: u64, to: u64, state: State) -> Segment {
        Segment { from: MonoNs(from), to: MonoNs(to), state, what: String::new() }
    }

    #[test]
    fn a_lane_never_overlaps_itself() {
        let lane = in_order(vec![
            segment(5, 9, State::Blocked),
            segment(0, 6, State::Blocked),
            segment(7, 12, State::OnCpu),
            segment(8, 9, State::Runnable),
        ]);
        assert_eq!(lane, [segment(0, 9, State::Blocked), segment(9, 12, State::OnCpu)]);
    }
}
