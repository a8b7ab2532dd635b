use super::perfetto::{File, Packet};
use super::*;
use crate::attribution::story::{FUTEX, HOG, MS, SERVER, Story, WORKER};
use crate::journey::JourneyId;
use prost::Message;

fn judged(id: u64) -> Output {
    let mut story = Story::served(862 * MS);
    story.sleeps(MS, SERVER, 1, FUTEX).wakes(861 * MS, WORKER, SERVER).runs(861 * MS + 5, SERVER);
    story.runs(500, WORKER).sleeps(900 * MS, WORKER, 1, FUTEX);
    let mut judged = story.judge();
    judged.journey.id = JourneyId(id);
    Output::Journey(Box::new(judged))
}

fn activities() -> Vec<Output> {
    let mut story = Story::new();
    story.runs(0, SERVER).sleeps(2 * MS, SERVER, 1, FUTEX);
    story.runs(500, WORKER).wakes(5 * MS, WORKER, SERVER).runs_after(6 * MS, SERVER, HOG);
    story.tell().evidence.activities(None).into_iter().map(Output::Activity).collect()
}

fn trace(outputs: &[Output]) -> File {
    let mut timeline = Timeline::new();
    outputs.iter().for_each(|output| timeline.push(output));
    let (bytes, left_out) = timeline.perfetto().unwrap();
    assert_eq!(left_out, 0);
    File::decode(bytes.as_slice()).unwrap()
}

/// Slices of the track with this name, as begin, end, depth and name.
fn slices(trace: &File, track: &str) -> Vec<(u64, u64, usize, String)> {
    let named = |packet: &&Packet| {
        let descriptor = packet.track.as_ref()?;
        let thread = descriptor.thread.as_ref().and_then(|thread| thread.name.as_deref());
        (descriptor.name.as_deref().or(thread) == Some(track)).then_some(descriptor.uuid?)
    };
    let uuid = trace.packet.iter().find_map(|packet| named(&packet)).unwrap_or_else(|| panic!("no track {track}"));
    let events =
        trace.packet.iter().filter(|packet| packet.event.as_ref().is_some_and(|event| event.track == Some(uuid)));
    let (mut open, mut done) = (Vec::new(), Vec::new());
    for packet in events {
        let (at, event) = (packet.timestamp.unwrap(), packet.event.as_ref().unwrap());
        match event.kind {
            Some(1) => open.push((at, event.name.clone().unwrap())),
            Some(2) => {
                let (from, name): (u64, String) = open.pop().expect("an end has its begin");
                assert!(from <= at, "{name} ends before it begins");
                done.push((from, at, open.len(), name));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(open.is_empty(), "every slice ends: {open:?}");
    done
}

#[test]
fn a_check_holds_the_parts_of_its_ledger() {
    let trace = trace(&[judged(1)]);
    let slices = slices(&trace, "ifindex 2 unknown");
    let whole = slices.iter().find(|slice| slice.2 == 0).unwrap();
    assert_eq!((whole.1 - whole.0, whole.3.as_str()), (861_904_000, "slow check 862 ms"));
    assert!(slices.iter().any(|slice| slice.2 == 1 && slice.3 == "app.futex in hold"), "{slices:?}");
    assert!(slices.iter().all(|slice| whole.0 <= slice.0 && slice.1 <= whole.1));
}

#[test]
fn checks_that_overlap_stand_on_tracks_of_their_own() {
    let trace = trace(&[judged(1), judged(2)]);
    assert_eq!(slices(&trace, "ifindex 2 unknown").iter().filter(|slice| slice.2 == 0).count(), 1);
    assert_eq!(slices(&trace, "ifindex 2 unknown 2").iter().filter(|slice| slice.2 == 0).count(), 1);
}

#[test]
fn a_thread_has_its_states_one_after_the_other() {
    let trace = trace(&activities());
    let slices = slices(&trace, "server");
    let names: Vec<_> = slices.iter().map(|slice| slice.3.as_str()).collect();
    assert_eq!(names, ["on CPU 0", "asleep in futex_do_wait", "waits for a CPU"]);
    assert!(slices.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}

#[test]
fn softirqs_and_the_disks_that_threads_wait_for_have_tracks() {
    let asleep = Doing::Asleep {
        since: MonoNs(5_000),
        frames: vec!["io_schedule".to_owned()],
        waker: None,
        device: "sda1 8:1 ext4".to_owned(),
    };
    let (task, comm) = (SERVER.id(), "server".to_owned());
    let wait = Activity { task, comm, from: MonoNs(5_000), to: MonoNs(9_000), doing: asleep };
    let softirq = Output::Softirq { cpu: 1, from: MonoNs(5_000), to: MonoNs(7_000), vector: 3 };
    let trace = trace(&[Output::Activity(wait), softirq]);
    assert_eq!(slices(&trace, "sda1 8:1 ext4")[0].3, "server waits");
    assert_eq!(slices(&trace, "softirqs of CPU 1")[0], (5_000, 7_000, 0, "NET_RX".to_owned()));
}

#[test]
fn an_open_check_is_drawn_once_as_it_was_told_last() {
    let Output::Journey(mut open) = judged(7) else { panic!() };
    open.journey.outcome = Outcome::Open;
    let told = Output::Journey(open);
    let trace = trace(&[told.clone(), told]);
    assert_eq!(slices(&trace, "ifindex 2 unknown").iter().filter(|slice| slice.2 == 0).count(), 1);
}
