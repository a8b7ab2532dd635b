//! One open check: the compact form of a [`Journey`] while its stages are being joined.

use super::expiry::Link;
use super::slab::NONE;
use super::{Journey, JourneyId, Outcome, PacketDrop, Perspective, QdiscStay, Refusal, Stage, Stamp};
use crate::clock::MonoNs;
use crate::event::{InterfaceId, TaskId};
use probe_wire::Sighting;

/// Which half of a check a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The request and all that happens to it.
    Request = 0,
    /// The reply.
    Reply = 1,
}

/// A stage that was passed; the numbers are narrowed so that 100,000 open checks stay small.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Mark {
    pub(super) at: MonoNs,
    pub(super) cpu: u16,
    pub(super) queue: u16,
    /// Number of the interface in the correlator's list plus 1, 0 for none.
    pub(super) interface: u16,
}

/// The packet that carries a phase now.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Carrier {
    /// `sk_buff` address, 0 if unknown.
    pub(super) skb: u64,
    /// When it was seen last.
    pub(super) seen_at: MonoNs,
    /// TCP sequence number of its first sighting.
    pub(super) tcp_seq: u32,
    /// IPv4 identification of its first sighting, 0 if unknown.
    pub(super) ip_id: u16,
    /// Some packet of the phase has been seen.
    pub(super) seen: bool,
}

impl Carrier {
    /// A packet of the phase was seen; the first one tells the phase's numbers.
    pub(super) const fn note(&mut self, packet: &Sighting) {
        if !self.seen {
            (self.seen, self.tcp_seq, self.ip_id) = (true, packet.tcp_seq, packet.ip_id);
        }
    }
}

/// What a check that waits for its answer has none of.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Stages of the reply.
    marks: [Mark; HALF],
    pub(super) drops: Vec<PacketDrop>,
    pub(super) refusals: Vec<Refusal>,
    pub(super) qdisc: Vec<QdiscStay>,
}

/// Stages of each half.
const HALF: usize = 6;

/// An open check.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) id: u64,
    pub(super) request: Sighting,
    /// Stages of the request.
    marks: [Mark; HALF],
    /// Made when first needed.
    pub(super) rest: Option<Box<Rest>>,
    passed: u16,
    pub(super) signature: u8,
    pub(super) perspective: Perspective,
    pub(super) ambiguous: bool,
    /// A copy of the request was dropped; it is lost unless another copy moves on.
    pub(super) doubtful: bool,
    /// It began before all that would see it through was attached, or when the run was about to
    /// end; nothing is told of it.
    pub(super) untold: bool,
    /// Its packet was seen to be for another host; it is this host's only if more of it is seen.
    pub(super) foreign: bool,
    /// Its packet was handed to a device that hands it on to one below it.
    pub(super) handed_on: bool,
    /// In its socket's queue, not yet read.
    pub(super) queued: bool,
    /// Read, not yet answered.
    pub(super) held: bool,
    /// Its packet was not seen leaving its queueing discipline, and is no longer in it.
    pub(super) overtaken: bool,
    /// It is one of those of its target that are reported while they are open.
    pub(super) reported: bool,
    pub(super) target: u16,
    pub(super) reader: TaskId,
    pub(super) sender: TaskId,
    /// Took it out of the tap's ring.
    pub(super) backend: TaskId,
    pub(super) socket: u64,
    pub(super) retransmissions: u32,
    pub(super) carriers: [Carrier; 2],
    /// Memberships in the index: its key, its nonce, and keys after address translation.
    pub(super) members: [u32; 4],
    pub(super) links: [Link; 4],
    /// When it was opened.
    pub(super) began_at: MonoNs,
    /// When it is next reported as open.
    pub(super) report_at: MonoNs,
    /// When its grace, or its wait for the hand-over, began.
    pub(super) waits_since: MonoNs,
}

impl Check {
    /// Its target, of these interfaces.
    pub(super) fn target_of(&self, interfaces: &[InterfaceId]) -> InterfaceId {
        interface(interfaces, self.target)
    }

    pub(super) fn new(id: u64, request: &Sighting, signature: u8, perspective: Perspective) -> Self {
        Self {
            id,
            request: *request,
            marks: [Mark::default(); HALF],
            rest: None,
            passed: 0,
            signature,
            perspective,
            ambiguous: false,
            doubtful: false,
            untold: false,
            foreign: false,
            handed_on: false,
            queued: false,
            held: false,
            overtaken: false,
            reported: false,
            target: 0,
            reader: TaskId::default(),
            sender: TaskId::default(),
            backend: TaskId::default(),
            socket: 0,
            retransmissions: 0,
            carriers: [Carrier::default(); 2],
            members: [NONE; 4],
            links: [Link::OUT; 4],
            began_at: MonoNs(0),
            report_at: MonoNs(0),
            waits_since: MonoNs(0),
        }
    }

    pub(super) const fn passed(&self, stage: Stage) -> bool {
        self.passed & (1 << stage as u16) != 0
    }

    pub(super) const fn mark(&self, stage: Stage) -> Option<&Mark> {
        if !self.passed(stage) {
            return None;
        }
        let place = (stage as usize - 1) % HALF;
        match (phase(self.perspective, stage), &self.rest) {
            (Phase::Request, _) => Some(&self.marks[place]),
            (Phase::Reply, Some(rest)) => Some(&rest.marks[place]),
            (Phase::Reply, None) => None,
        }
    }

    /// Notes a stage; the first time counts.
    pub(super) fn pass(&mut self, stage: Stage, mark: Mark) {
        if !self.passed(stage) {
            self.passed |= 1 << stage as u16;
            let marks = match phase(self.perspective, stage) {
                Phase::Request => &mut self.marks,
                Phase::Reply => &mut self.rest().marks,
            };
            marks[(stage as usize - 1) % HALF] = mark;
        }
    }

    pub(super) fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }

    pub(super) fn drops(&self) -> &[PacketDrop] {
        self.rest.as_ref().map_or(&[], |rest| &rest.drops)
    }

    pub(super) fn refusals(&self) -> &[Refusal] {
        self.rest.as_ref().map_or(&[], |rest| &rest.refusals)
    }

    /// Its stays in queueing disciplines, without one whose end was not seen and is past.
    pub(super) fn qdisc(&self) -> &[QdiscStay] {
        match self.rest.as_ref().map_or(&[][..], |rest| &rest.qdisc) {
            [before @ .., last] if self.overtaken && last.left_at.is_none() => before,
            stays => stays,
        }
    }

    pub(super) fn answered(&self) -> bool {
        self.carriers[Phase::Reply as usize].seen
    }

    /// Whether its packet is known to be in a queueing discipline.
    pub(super) fn in_qdisc(&self) -> bool {
        self.qdisc().last().is_some_and(|stay| stay.left_at.is_none())
    }

    /// The stage passed last in path order.
    pub(super) fn furthest(&self) -> Option<Stage> {
        self.path().rev().find(|stage| self.passed(*stage))
    }

    /// The first interface stage in path order.
    pub(super) fn entry(&self) -> Option<Stage> {
        self.path().find(|stage| self.passed(*stage) && *stage != Stage::AppSend)
    }

    /// Whether it can pass `stage` next: not passed, nor any later one of the same phase.
    pub(super) fn expects(&self, stage: Stage) -> bool {
        let phase = phase(self.perspective, stage);
        self.path()
            .skip_while(|other| *other != stage)
            .all(|later| !self.passed(later) || phase_differs(self, later, phase))
    }

    /// All stages in the order of its path.
    fn path(&self) -> impl DoubleEndedIterator<Item = Stage> + use<> {
        let first = match self.perspective {
            Perspective::Served => 0,
            Perspective::Sent => 6,
        };
        (0..12).map(move |step| super::STAGES[(step + first) % 12].stage)
    }

    /// Whether its stages contradict each other: a later one of its path was passed earlier.
    fn contradicts(&self) -> bool {
        let mut latest = MonoNs(0);
        self.path().filter_map(|stage| self.mark(stage)).any(|mark| {
            let backwards = mark.at < latest;
            latest = mark.at;
            backwards
        })
    }

    /// When its last stage was passed.
    pub(super) fn last_at(&self) -> MonoNs {
        self.path().filter_map(|stage| self.mark(stage)).map(|mark| mark.at).max().unwrap_or_default()
    }

    /// Fills `stamps` in the order of time.
    fn stamps(&self, interfaces: &[InterfaceId], stamps: &mut Vec<Stamp>) {
        stamps.clear();
        stamps.extend(self.path().filter_map(|stage| {
            self.mark(stage).map(|mark| Stamp {
                stage,
                at: mark.at,
                cpu: mark.cpu.into(),
                queue: mark.queue.into(),
                interface: interface(interfaces, mark.interface),
                task: match stage {
                    Stage::SockRead => self.reader,
                    Stage::AppSend => self.sender,
                    Stage::BackendRx => self.backend,
                    _ => TaskId::default(),
                },
            })
        }));
        stamps.sort_by_key(|stamp| stamp.at);
    }

    /// The journey as known now, with `stamps` as its buffer.
    pub(super) fn journey(
        &self,
        outcome: Outcome,
        known_until: MonoNs,
        interfaces: &[InterfaceId],
        mut stamps: Vec<Stamp>,
    ) -> Journey {
        self.stamps(interfaces, &mut stamps);
        Journey {
            id: JourneyId(self.id),
            signature: self.signature.into(),
            perspective: self.perspective,
            target: interface(interfaces, self.target),
            request: self.request,
            outcome: self.judged(outcome),
            stamps,
            socket: self.socket,
            drops: Vec::new(),
            refusals: Vec::new(),
            qdisc: Vec::new(),
            retransmissions: self.retransmissions,
            known_until,
        }
    }

    fn judged(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Broken(reason) => Outcome::Broken(reason),
            _ if self.contradicts() => Outcome::Broken("a stage was passed after a later one of the path"),
            _ if self.ambiguous => Outcome::Ambiguous,
            outcome => outcome,
        }
    }
}

fn phase_differs(check: &Check, stage: Stage, from: Phase) -> bool {
    phase(check.perspective, stage) != from
}

fn interface(interfaces: &[InterfaceId], number: u16) -> InterfaceId {
    usize::from(number).checked_sub(1).and_then(|index| interfaces.get(index)).copied().unwrap_or_default()
}

/// The half of a check whose packet comes up to a socket or a VM of this host.
pub(super) const fn received(perspective: Perspective) -> Phase {
    match perspective {
        Perspective::Served => Phase::Request,
        Perspective::Sent => Phase::Reply,
    }
}

/// The half of a check that a stage belongs to.
pub(super) const fn phase(perspective: Perspective, stage: Stage) -> Phase {
    match (perspective, stage as u8 <= Stage::SockRead as u8) {
        (Perspective::Served, true) | (Perspective::Sent, false) => Phase::Request,
        (Perspective::Served, false) | (Perspective::Sent, true) => Phase::Reply,
    }
}
