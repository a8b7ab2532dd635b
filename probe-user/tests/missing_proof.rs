//! What is concluded where proof is missing: the lab's recordings as a kernel without some of the
//! tracepoints, or without readable or known symbols, would have given them.
//!
//! A check may then have no verdict, or a split one, but never that of another cause.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use probe_user::attribution::{Cause, Verdict};
use probe_user::event::{Body, Event, Fact, decode, encode};
use probe_user::pipeline::{Collector, Output};
use probe_user::source::recording::read_all;
use probe_wire::EventKind;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Hooks of this name are not there, so no records of these kinds are.
type Missing = (&'static [&'static str], &'static [EventKind]);

const MISSING: &[Missing] = &[
    (
        &["sched_switch", "file_wait", "contention_begin", "contention_end"],
        &[
            EventKind::SwitchOut,
            EventKind::SwitchIn,
            EventKind::FileWait,
            EventKind::FutexWait,
            EventKind::LockSpin,
            EventKind::Ran,
        ],
    ),
    (&["sched_waking"], &[EventKind::Waking]),
    (&["sched_process_exit"], &[EventKind::TaskExit]),
    (&["sched_process_fork"], &[EventKind::TaskFork]),
    (&["softirq_entry", "softirq_exit", "softirq_raise"], &[EventKind::Softirq, EventKind::SoftirqWait]),
    (&["softirq_raise"], &[EventKind::SoftirqWait]),
    (&["sk_data_ready"], &[EventKind::SockEnqueue]),
    (&["kfree_skb"], &[EventKind::Drop]),
    (&["qdisc_enqueue", "qdisc_dequeue"], &[EventKind::QdiscEnqueue, EventKind::QdiscDequeue]),
    (&["net_dev_start_xmit"], &[EventKind::Xmit]),
    (&["consume_skb"], &[EventKind::BackendRx]),
    (&["neigh_update"], &[EventKind::Neighbour]),
    (&["file_wait"], &[EventKind::FileWait, EventKind::FutexWait]),
    (&["writeback_dirty_folio"], &[EventKind::Dirtied]),
    (&["mm_vmscan_direct_reclaim_begin", "mm_vmscan_memcg_reclaim_begin"], &[EventKind::Reclaim]),
    (&["contention_begin", "contention_end"], &[EventKind::LockSpin]),
    (&["kvm_entry", "kvm_exit"], &[EventKind::GuestExits]),
];

fn recordings() -> Vec<(String, Vec<Event>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|ext| ext == "whylag"));
    let events = |file: Vec<u8>| read_all(&file).0.iter().filter_map(|record| decode(record).ok()).collect();
    paths.map(|path| (path.display().to_string(), events(std::fs::read(path).unwrap()))).collect()
}

/// The causes of the verdicts, by check.
fn concluded(events: impl IntoIterator<Item = Event>) -> BTreeMap<u64, Option<Cause>> {
    let mut verdicts = BTreeMap::new();
    let mut keep = |output: Output| {
        if let Output::Journey(judged) = output {
            let cause = if let Verdict::Cause { cause, .. } = judged.verdict { Some(cause) } else { None };
            verdicts.insert(judged.journey.id.0, cause);
        }
    };
    let mut collector = Collector::new();
    events.into_iter().for_each(|event| collector.push(&encode(&event).unwrap(), &mut keep));
    collector.finish(&mut keep);
    verdicts
}

/// The same run where no records of these kinds were made, and so none lost.
fn without(events: &[Event], (hooks, kinds): Missing) -> Vec<Event> {
    let mut left = Vec::new();
    let mut numbers: HashMap<u32, u64> = HashMap::new();
    let mut renumbered: HashMap<(u32, u64), u64> = HashMap::new();
    for event in events.iter().filter(|event| event.body.kind().is_none_or(|kind| !kinds.contains(&kind))) {
        let mut event = event.clone();
        if kinds.contains(&EventKind::Softirq) {
            event.softirq = 0;
        }
        if event.body.kind().is_some() {
            let number = numbers.entry(event.cpu).or_default();
            *number += 1;
            renumbered.insert((event.cpu, event.seq), *number);
            event.seq = *number;
        }
        match &mut event.body {
            Body::SockEnqueue(body) if body.packet_seq != 0 => {
                body.packet_seq = renumbered.get(&(event.cpu, body.packet_seq)).copied().unwrap_or(0);
            }
            Body::Fact(fact) => lacking(fact, hooks, kinds),
            _ => {}
        }
        left.push(event);
    }
    left
}

fn lacking(fact: &mut Fact, hooks: &[&str], kinds: &[EventKind]) {
    match fact {
        Fact::Hooks { active } => active.retain(|name| !hooks.contains(&name.as_str())),
        Fact::Counters { rows, .. } => rows.retain(|row| !kinds.iter().any(|kind| *kind as u16 == row.kind)),
        _ => {}
    }
}

/// Fails if a check has another cause than when all was known.
fn never_another_cause(
    name: &str,
    what: &str,
    known: &BTreeMap<u64, Option<Cause>>,
    events: Vec<Event>,
) -> Vec<String> {
    let told = concluded(events);
    let other = known.iter().filter_map(|(id, cause)| {
        let (before, now) = ((*cause)?, (*told.get(id)?)?);
        (before != now).then(|| format!("{name}: check {id} was {before:?}, and without {what} it is {now:?}"))
    });
    other.collect()
}

#[test]
fn a_missing_tracepoint_costs_verdicts_and_gives_no_wrong_ones() {
    let mut wrong = Vec::new();
    for (name, events) in recordings() {
        let known = concluded(events.iter().cloned());
        assert!(known.len() > 20, "{name}");
        for missing in MISSING {
            wrong.extend(never_another_cause(&name, missing.0[0], &known, without(&events, *missing)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unknown_symbols_cost_verdicts_and_give_no_wrong_ones() {
    let mut wrong = Vec::new();
    for (name, events) in recordings() {
        let known = concluded(events.iter().cloned());
        let is_symbol =
            |event: &Event| matches!(&event.body, Body::Fact(fact) if matches!(**fact, Fact::Symbol { .. }));
        let none: Vec<_> = events.iter().filter(|event| !is_symbol(event)).cloned().collect();
        wrong.extend(never_another_cause(&name, "symbols", &known, none));
        let renamed: Vec<_> = events.iter().cloned().map(renamed).collect();
        wrong.extend(never_another_cause(&name, "the names it knows", &known, renamed));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same of a kernel that calls all its functions otherwise.
fn renamed(mut event: Event) -> Event {
    if let Body::Fact(fact) = &mut event.body {
        match &mut **fact {
            Fact::Symbol { name, .. } => name.insert_str(0, "renamed_"),
            Fact::Task(task) => task.wchan.iter_mut().for_each(|name| name.insert_str(0, "renamed_")),
            _ => {}
        }
    }
    event
}
