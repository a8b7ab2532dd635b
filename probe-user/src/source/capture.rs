//! Captures as a stream of records: what the kernel programs would have said at the same NICs.
//!
//! One or two capture files come in, records in the order of their time go out, with the facts
//! that a live run would have added, so that the same collector judges both. Packet times are
//! kept as they are: the stream's clock starts in 1970.

use super::pcap::{CapturedFrame, PcapError, PcapReader, Step};
use crate::clock::{ClockAnchor, DurNs, MonoNs};
use crate::event::{
    Body, CounterRow, EncodeError, Event, Fact, InterfaceFact, InterfaceId, InterfaceRole, RunFact, SignatureFact,
    TaskId, Threshold, encode, fact_record, tick_record,
};
use crate::signature::{RuleTable, Signature};
use probe_wire::{EventKind, Interrupt, PacketBody, ROLE_EITHER, ROLE_REQUEST, Sighting, WIRE_VERSION};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

/// Longest stretch of the stream without a tick.
const TICK_EVERY: DurNs = DurNs::from_secs(1);
/// A pause in a capture is ticked through for this long; then time jumps to its end.
const LONGEST_PAUSE: DurNs = DurNs::from_secs(300);
/// How long an answer must be missing from the end of a capture for the check to count as lost.
pub const SILENCE_AT_END: DurNs = DurNs::from_secs(5);
/// Flows whose asking side is remembered, where request and reply look the same.
const FLOWS: usize = 1 << 16;

/// A capture and the NIC where it was taken.
#[derive(Debug)]
pub struct Capture {
    /// The file.
    pub path: PathBuf,
    /// Which part of the path the NIC is.
    pub role: InterfaceRole,
}

/// How checks are judged; the rest of the run's facts comes from the captures.
#[derive(Debug)]
pub struct Judgement<'a> {
    /// Signatures to look for.
    pub signatures: &'a [Signature],
    /// Their rules.
    pub table: &'a RuleTable,
    /// When a check is slow.
    pub threshold: Threshold,
    /// When it is lost.
    pub lost_after: DurNs,
}

/// Captures that cannot be replayed, or no further.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A file cannot be read.
    #[error("capture {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: PcapError,
    },
    /// A fact has no record.
    #[error("cannot put what is known of the captures into a record")]
    Encode(#[from] EncodeError),
}

/// What reading came to.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Packets in the files.
    pub packets: u64,
    /// Of these, recognised.
    pub matched: u64,
    /// Files that end inside a packet, with the number of bytes that were whole.
    pub cut: Vec<(PathBuf, u64)>,
}

/// Replays `captures` as records, each given to `out`.
///
/// # Errors
/// When a file cannot be read; everything before the bad place has been given to `out`.
pub fn replay(
    captures: &[Capture],
    judgement: &Judgement<'_>,
    out: &mut dyn FnMut(&[u8]),
) -> Result<CaptureCounts, CaptureError> {
    let mut files = Vec::new();
    for (index, capture) in captures.iter().enumerate() {
        files.push(File::open(capture, index)?);
    }
    let mut stream = Stream::new(judgement, out);
    let result = stream.run(&mut files);
    stream.finish(&files)?;
    result.map(|()| CaptureCounts::of(&files))
}

/// A file, its next frame at hand.
struct File {
    path: PathBuf,
    reader: PcapReader,
    next: Option<CapturedFrame>,
    interface: InterfaceFact,
    cpu: u32,
    packets: u64,
    /// Records made of ingress, then of egress.
    emitted: [u64; 2],
    cut: Option<u64>,
    failed: Option<PcapError>,
}

impl File {
    fn open(capture: &Capture, index: usize) -> Result<Self, CaptureError> {
        let reader = PcapReader::open(&capture.path);
        let reader = reader.map_err(|source| CaptureError::Read { path: capture.path.clone(), source })?;
        let number = u32::try_from(index).unwrap_or(u32::MAX - 1);
        let mut file = Self {
            path: capture.path.clone(),
            reader,
            next: None,
            interface: interface(&capture.path, capture.role, number + 1),
            cpu: number,
            packets: 0,
            emitted: [0; 2],
            cut: None,
            failed: None,
        };
        file.advance();
        Ok(file)
    }

    /// Goes to the next frame that can be looked into; at a bad place the file ends.
    fn advance(&mut self) {
        self.next = None;
        while self.next.is_none() {
            match self.reader.step() {
                Ok(Step::Frame(frame)) => self.next = Some(frame),
                Ok(Step::Unparsable(_)) => {}
                Ok(Step::Truncated { at }) => return self.cut = Some(at),
                Ok(Step::End) => return,
                Err(error) => return self.failed = Some(error),
            }
            self.packets += 1;
        }
    }

    fn take(&mut self) -> Option<CapturedFrame> {
        let frame = self.next;
        self.advance();
        frame
    }
}

fn interface(path: &Path, role: InterfaceRole, ifindex: u32) -> InterfaceFact {
    let name = path.file_stem().map_or_else(|| "capture".to_owned(), |stem| stem.to_string_lossy().into_owned());
    InterfaceFact {
        id: InterfaceId { netns: 1, ifindex },
        label: name.clone(),
        name,
        role,
        kind: "capture".to_owned(),
        tx_queues: 0,
        rx_queues: 0,
    }
}

/// The records being made.
struct Stream<'a> {
    judgement: &'a Judgement<'a>,
    out: &'a mut dyn FnMut(&[u8]),
    askers: Askers,
    /// Latest tick.
    ticked: Option<MonoNs>,
    /// Latest packet.
    now: MonoNs,
    started: bool,
}

impl<'a> Stream<'a> {
    fn new(judgement: &'a Judgement<'a>, out: &'a mut dyn FnMut(&[u8])) -> Self {
        Self { judgement, out, askers: Askers::default(), ticked: None, now: MonoNs(0), started: false }
    }

    fn run(&mut self, files: &mut [File]) -> Result<(), CaptureError> {
        let first = files.iter().filter_map(|file| Some(file.next.as_ref()?.time_ns)).min();
        self.now = MonoNs(first.unwrap_or(0));
        self.facts(files)?;
        while let Some(file) = earliest(files) {
            if let Some(frame) = file.take() {
                self.frame(file, &frame)?;
            }
        }
        match files.iter_mut().find_map(|file| Some((file.path.clone(), file.failed.take()?))) {
            Some((path, source)) => Err(CaptureError::Read { path, source }),
            None => Ok(()),
        }
    }

    /// What a live run says before its first event.
    fn facts(&mut self, files: &[File]) -> Result<(), CaptureError> {
        self.fact(&Fact::Run(self.run_fact(self.judgement.lost_after)))?;
        self.fact(&Fact::Clock(ClockAnchor { mono: MonoNs(0), unix_ns: 0 }))?;
        self.fact(&Fact::Hooks { active: vec!["packet_ingress".to_owned(), "packet_egress".to_owned()] })?;
        files.iter().try_for_each(|file| self.fact(&Fact::Interface(file.interface.clone())))?;
        self.started = true;
        Ok(())
    }

    fn run_fact(&self, lost_after: DurNs) -> RunFact {
        RunFact {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            wire_version: WIRE_VERSION,
            signatures: signature_facts(self.judgement.signatures),
            threshold: self.judgement.threshold,
            lost_after,
            open_report_every: DurNs::from_secs(1),
            max_open: 100_000,
        }
    }

    fn frame(&mut self, file: &mut File, frame: &CapturedFrame) -> Result<(), CaptureError> {
        self.pass_time(MonoNs(frame.time_ns));
        if let Some(sighting) = self.judgement.table.sight(&frame.head()) {
            let event = self.event(file, frame, sighting);
            (self.out)(&encode(&event)?);
        }
        Ok(())
    }

    /// Ticks up to `at`, which is not earlier than anything given out.
    fn pass_time(&mut self, at: MonoNs) {
        self.now = self.now.max(at);
        let last = *self.ticked.get_or_insert(self.now);
        let mut next = last.after(TICK_EVERY);
        while next < self.now && next.since(last) < LONGEST_PAUSE {
            self.tick(next);
            next = next.after(TICK_EVERY);
        }
        if self.ticked.is_some_and(|ticked| self.now.since(ticked) >= TICK_EVERY) {
            self.tick(self.now);
        }
    }

    fn tick(&mut self, at: MonoNs) {
        self.ticked = Some(at);
        (self.out)(&tick_record(at));
    }

    fn fact(&mut self, fact: &Fact) -> Result<(), CaptureError> {
        (self.out)(&fact_record(self.now, fact)?);
        Ok(())
    }

    fn event(&mut self, file: &mut File, frame: &CapturedFrame, sighting: Sighting) -> Event {
        let request = self.askers.asks(&sighting);
        // Requests come in at the physical NIC and go out to the VM; replies the other way.
        let ingress = request == (file.interface.role == InterfaceRole::PhysicalNic);
        file.emitted[usize::from(!ingress)] += 1;
        let packet = PacketBody {
            skb: 0,
            netns: file.interface.id.netns,
            ifindex: file.interface.id.ifindex,
            queue: 0,
            sighting,
            frame_len: frame.wire_len,
            softirq_ns: 0,
        };
        Event {
            at: MonoNs(frame.time_ns),
            seq: file.emitted.iter().sum(),
            cpu: file.cpu,
            task: TaskId::default(),
            softirq: 0,
            interrupt: Interrupt::Unknown,
            body: if ingress { Body::PacketIngress(packet) } else { Body::PacketEgress(packet) },
        }
    }

    /// Says what was counted, and that time has come to the end of the captures; a check that
    /// has been silent for long enough by then is lost.
    fn finish(&mut self, files: &[File]) -> Result<(), CaptureError> {
        if !self.started {
            return Ok(());
        }
        let rows = files.iter().flat_map(counter_rows).collect();
        self.fact(&Fact::Counters { rows, skipped_runs: Vec::new() })?;
        self.fact(&Fact::Run(self.run_fact(self.judgement.lost_after.min(SILENCE_AT_END))))?;
        self.tick(self.now.after(DurNs(1)));
        Ok(())
    }
}

fn earliest(files: &mut [File]) -> Option<&mut File> {
    let waiting = files.iter_mut().filter_map(|file| Some((file.next.as_ref()?.time_ns, file)));
    waiting.min_by_key(|(time_ns, _)| *time_ns).map(|(_, file)| file)
}

fn counter_rows(file: &File) -> impl Iterator<Item = CounterRow> {
    let kinds = [EventKind::PacketIngress, EventKind::PacketEgress];
    let cpu = file.cpu;
    let rows = kinds.into_iter().zip(file.emitted);
    rows.map(move |(kind, emitted)| CounterRow { cpu, kind: kind as u16, emitted, lost: 0, undrained: 0 })
}

/// Signatures as a run's facts have them.
#[must_use]
pub fn signature_facts(signatures: &[Signature]) -> Vec<SignatureFact> {
    let mut first = 0_u8;
    let mut facts = Vec::new();
    for signature in signatures {
        let count = u8::try_from(signature.rules.len()).unwrap_or(u8::MAX);
        facts.push(SignatureFact {
            name: signature.name.clone(),
            first,
            count,
            rules: signature.rules.clone(),
            interval: signature.interval.map(|interval| DurNs(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX))),
        });
        first = first.saturating_add(count);
    }
    facts
}

/// One end of a flow.
type End = ([u8; 16], u16);

/// Who asks on each flow, for signatures whose requests and replies look the same: who spoke first.
#[derive(Default)]
struct Askers {
    by_flow: HashMap<(End, End, [u8; 16]), End>,
    order: VecDeque<(End, End, [u8; 16])>,
}

impl Askers {
    /// Whether the packet is a request.
    fn asks(&mut self, sighting: &Sighting) -> bool {
        if sighting.role != ROLE_EITHER {
            return sighting.role == ROLE_REQUEST;
        }
        let from = (sighting.source, sighting.source_port);
        let to = (sighting.destination, sighting.destination_port);
        let flow = (from.min(to), from.max(to), sighting.nonce);
        if let Some(asker) = self.by_flow.get(&flow) {
            return *asker == from;
        }
        if self.order.len() == FLOWS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_flow.remove(&oldest);
        }
        self.order.push_back(flow);
        self.by_flow.insert(flow, from);
        true
    }
}

impl CaptureCounts {
    fn of(files: &[File]) -> Self {
        let cut = files.iter().filter_map(|file| Some((file.path.clone(), file.cut?)));
        Self {
            packets: files.iter().map(|file| file.packets).sum(),
            matched: files.iter().flat_map(|file| file.emitted).sum(),
            cut: cut.collect(),
        }
    }
}
