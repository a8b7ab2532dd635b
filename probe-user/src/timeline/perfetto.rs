//! Perfetto's trace format: tracks, and slices that begin and end on them.
//! <https://github.com/google/perfetto/blob/main/protos/perfetto/trace/trace_packet.proto>

use super::{Group, Slice};
use crate::clock::{ClockAnchor, MonoNs};
use crate::event::TaskId;
use crate::sink::printable;
use prost::Message;
use std::collections::HashSet;

/// All packets come from one writer.
const SEQUENCE: u32 = 1;
/// `CLOCK_MONOTONIC` and `CLOCK_REALTIME` in `builtin_clock.proto`.
const MONOTONIC: u32 = 3;
const REALTIME: u32 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED`: the sequence begins here.
const STATE_CLEARED: u32 = 1;
const BEGIN: i32 = 1;
const END: i32 = 2;
const COUNTER: i32 = 4;

#[derive(Clone, PartialEq, Message)]
pub(super) struct File {
    #[prost(message, repeated, tag = "1")]
    pub(super) packet: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Packet {
    #[prost(message, optional, tag = "6")]
    pub(super) clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    sequence: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(super) event: Option<Event>,
    #[prost(uint32, optional, tag = "13")]
    sequence_flags: Option<u32>,
    #[prost(uint32, optional, tag = "58")]
    clock: Option<u32>,
    #[prost(message, optional, tag = "60")]
    pub(super) track: Option<Descriptor>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    clocks: Vec<Clock>,
    #[prost(uint32, optional, tag = "2")]
    primary: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Clock {
    #[prost(uint32, optional, tag = "1")]
    id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Descriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(super) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    process: Option<Process>,
    #[prost(message, optional, tag = "4")]
    pub(super) thread: Option<Thread>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) parent: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<CounterTrack>,
}

/// Says that a track has values, and no slices.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct CounterTrack {}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Thread {
    #[prost(int32, optional, tag = "1")]
    pid: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    tid: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub(super) name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(message, repeated, tag = "4")]
    facts: Vec<Annotation>,
    #[prost(int32, optional, tag = "9")]
    pub(super) kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub(super) track: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub(super) name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub(super) value: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(string, optional, tag = "6")]
    text: Option<String>,
    #[prost(string, optional, tag = "10")]
    name: Option<String>,
}

/// What slices stand on.
#[derive(Debug)]
pub(super) struct Track<'a> {
    pub(super) group: Group,
    pub(super) name: &'a str,
    /// Among tracks of the same name.
    pub(super) number: usize,
}

/// A trace in the making.
#[derive(Debug)]
pub(super) struct Trace {
    file: File,
    groups: HashSet<Group>,
    processes: HashSet<u32>,
    tracks: u64,
}

impl Trace {
    pub(super) fn new(clock: Option<ClockAnchor>) -> Self {
        let mut trace =
            Self { file: File::default(), groups: HashSet::new(), processes: HashSet::new(), tracks: 1 << 40 };
        let first = Packet { sequence_flags: Some(STATE_CLEARED), ..trace.packet() };
        let snapshot = clock.map(|clock| ClockSnapshot {
            clocks: vec![
                Clock { id: Some(MONOTONIC), timestamp: Some(clock.mono.0) },
                Clock { id: Some(REALTIME), timestamp: Some(clock.unix_ns) },
            ],
            primary: Some(MONOTONIC),
        });
        trace.file.packet.push(Packet { clock_snapshot: snapshot, ..first });
        trace
    }

    /// Adds a track and its slices, which must not overlap.
    pub(super) fn track(&mut self, track: &Track<'_>, slices: &[Slice]) {
        let uuid = match track.group {
            Group::Thread { task } => self.thread(task, track.name),
            group => self.lane(group, track),
        };
        slices.iter().for_each(|slice| self.slice(uuid, slice));
    }

    /// Adds values over time, in the order of their times.
    pub(super) fn counter(&mut self, name: &str, values: &[(MonoNs, u64)]) {
        let parent = self.group(Group::Queues);
        self.tracks += 1;
        let (uuid, name) = (Some(self.tracks), Some(printable(name).into_owned()));
        let (parent, counter) = (Some(parent), Some(CounterTrack {}));
        self.describe(Descriptor { uuid, name, parent, counter, ..Descriptor::default() });
        for (at, value) in values {
            let value = Some(i64::try_from(*value).unwrap_or(i64::MAX));
            self.event(at.0, Event { kind: Some(COUNTER), track: uuid, value, ..Event::default() });
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        self.file.encode_to_vec()
    }

    fn packet(&self) -> Packet {
        Packet { sequence: Some(SEQUENCE), ..Packet::default() }
    }

    fn describe(&mut self, descriptor: Descriptor) {
        let packet = Packet { track: Some(descriptor), ..self.packet() };
        self.file.packet.push(packet);
    }

    fn lane(&mut self, group: Group, track: &Track<'_>) -> u64 {
        let parent = self.group(group);
        self.tracks += 1;
        let number = if track.number == 0 { String::new() } else { format!(" {}", track.number + 1) };
        let name = Some(format!("{}{number}", track.name));
        let uuid = self.tracks;
        self.describe(Descriptor { uuid: Some(uuid), name, parent: Some(parent), ..Descriptor::default() });
        uuid
    }

    /// The track that those of a group stand under.
    fn group(&mut self, group: Group) -> u64 {
        let uuid = group_number(group);
        if self.groups.insert(group) {
            let name = Some(group.name().to_owned());
            self.describe(Descriptor { uuid: Some(uuid), name, ..Descriptor::default() });
        }
        uuid
    }

    fn thread(&mut self, task: TaskId, comm: &str) -> u64 {
        let (pid, tid) = (i32::try_from(task.tgid).ok(), i32::try_from(task.tid).ok());
        if self.processes.insert(task.tgid) {
            let (uuid, process) = (Some(u64::from(task.tgid) << 20), Some(Process { pid }));
            self.describe(Descriptor { uuid, process, ..Descriptor::default() });
        }
        self.tracks += 1;
        let uuid = self.tracks;
        let thread = Some(Thread { pid, tid, name: Some(comm.to_owned()) });
        self.describe(Descriptor { uuid: Some(uuid), thread, ..Descriptor::default() });
        uuid
    }

    fn slice(&mut self, track: u64, slice: &Slice) {
        let facts = slice
            .facts
            .iter()
            .map(|(name, text)| Annotation { name: Some((*name).to_owned()), text: Some(text.clone()) });
        let begin = Event {
            kind: Some(BEGIN),
            track: Some(track),
            name: Some(printable(&slice.name).into_owned()),
            facts: facts.collect(),
            value: None,
        };
        self.event(slice.from.0, begin);
        slice.inner.iter().for_each(|inner| self.slice(track, inner));
        self.event(slice.to.0, Event { kind: Some(END), track: Some(track), ..Event::default() });
    }

    fn event(&mut self, at: u64, event: Event) {
        let packet = Packet { timestamp: Some(at), clock: Some(MONOTONIC), event: Some(event), ..self.packet() };
        self.file.packet.push(packet);
    }
}

/// Numbers of groups of tracks; processes have theirs above, by their own number.
const fn group_number(group: Group) -> u64 {
    match group {
        Group::Checks => 1,
        Group::Queues => 2,
        Group::Disks => 3,
        Group::Softirqs => 4,
        Group::Thread { .. } => 5,
    }
}
