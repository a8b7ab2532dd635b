//! Events to journeys.
//!
//! Events come in, in the order of their time; what they say of a health check is joined to its
//! open [`Check`], and a [`Journey`] goes out when the check has ended, and again and again while
//! it stays open. Time is that of the events; nothing here asks a clock, and no output depends on
//! the order of a hash table, so the same events give the same journeys.
//!
//! A check that began while programs were still being attached is followed like any other, so that
//! its later packets begin no check of their own, but nothing is told of it: hooks that would have
//! seen its answer may have come too late. The same goes for one that begins when the run is about
//! to end: its answer may come when nobody looks any more.
//!
//! A loopback interface sees each packet twice, leaving and coming back. There the request's
//! coming back is `pnic_rx` and the reply's leaving is `pnic_queue` and `pnic_xmit`: the check as
//! the server's side of the host sees it. The other two sightings are counted and left out.

use super::carrier::{Carriers, Recent};
use super::check::{Check, Rest};
use super::discipline::{Disciplines, HAND_OVER_UNSEEN};
use super::expiry::{Deadlines, Wait};
use super::key::Index;
use super::slab::{NONE, Slab};
use super::socket::{CheckRef, Sockets};
use super::{Arrival, Journey, JourneyId, Loss, Outcome, Perspective, QdiscStay, Stage, Stamp};
use crate::clock::{DurNs, MonoNs};
use crate::event::{Body, Departed, Event, Fact, InterfaceFact, InterfaceId, InterfaceRole, RunFact};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use probe_wire::{DROP_OF_PORT, DROP_OF_PORT_LAST, MAX_CPUS, MAX_RULES};
use std::hash::BuildHasher;

/// A last stage that may still follow is waited for this long.
pub(super) const GRACE: DurNs = DurNs::from_millis(20);
/// The hand-over to a driver follows at once where no discipline holds the packet, unless the device
/// itself refuses it; it is waited for this long, so that a missing record delays no more.
pub(super) const HAND_OVER: DurNs = DurNs::from_secs(1);
/// Ingress records remembered per CPU, for the sockets that take the packets up.
pub(super) const INGRESS_KEPT: usize = 64;
/// Bytes of a nonce that two checks do not have in common by chance.
const LONG_NONCE: u8 = 4;
/// Drop reasons kept that do not mean a loss.
const MAX_REASONS: usize = 32;
/// Reports of one open check that a leap in time gives at most.
const MOST_REPORTS_AT_ONCE: u64 = 64;
/// Open checks of one target that are reported again and again; each keeps its place until it ends.
const MOST_REPORTED: u32 = 32;
/// Longest limit for an answer.
const MOST_LOST_AFTER: DurNs = DurNs::from_secs(86_400);
/// Buffers kept for reuse.
const SPARE_BUFFERS: usize = 64;
/// Interfaces remembered.
const MAX_INTERFACES: usize = 65_000;

/// Drop reasons of packets that were not for this host, or not for the device or the listener
/// that got a copy: a frame for another station, seen by a promiscuous or mirrored NIC; a datagram
/// for one host in a frame for many; a frame that a bridge flooded to a tap which has not asked
/// for it; a packet socket's own copy.
/// <https://github.com/torvalds/linux/blob/v6.12/include/net/dropreason-core.h>
const NOT_OURS: [&str; 5] = ["OTHERHOST", "UNICAST_IN_L2_MULTICAST", "TAP_FILTER", "TAP_TXFILTER", "PACKET_SOCK_ERROR"];

/// Reasons with which the kernel drops what a NIC has received before a program of ours sees it: no
/// room in the backlog of the CPU that was to receive it, and programs at the driver.
/// <https://github.com/torvalds/linux/blob/v6.12/net/core/dev.c> (`enqueue_to_backlog`)
const BEFORE_ENTRY: [&str; 2] = ["CPU_BACKLOG", "XDP"];

/// What the correlator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// A check has ended, or the run has while it was open. Said once per check.
    Ended(Journey),
    /// A check of a signature with an interval began, at the server's end.
    Arrived(Arrival),
    /// A check is still open. Said again and again while it is.
    Open(Journey),
    /// A check is still open, but too many older ones of its target are reported already.
    Unreported {
        /// The check.
        id: JourneyId,
        /// Its target.
        target: InterfaceId,
        /// When it began.
        started_at: MonoNs,
        /// Until when it is known to be open.
        at: MonoNs,
    },
}

/// Where the events went. For the kernel's records: pushed == joined + evidence + unmatched.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Records that belong to a check.
    pub joined: u64,
    /// Records about threads and interrupts: none of the correlator's business.
    pub evidence: u64,
    /// Records about packets and sockets that belong to no open check.
    pub unmatched: u64,
    /// Of the unmatched: packets that fitted more than one open check.
    pub ambiguous: u64,
    /// Of the unmatched: packets at an interface that no fact has described.
    pub unknown_interface: u64,
    /// Of the joined: packets seen where their check's path has no stage.
    pub off_path: u64,
    /// Of the joined: packets seen a second time at the same stage.
    pub duplicates: u64,
    /// Checks that began.
    pub opened: u64,
    /// Checks that ended, those open at the end of the run included.
    pub ended: u64,
    /// Of the ended: those that made room for newer ones.
    pub evicted: u64,
    /// Of the ended: those of which nothing is told. They began while programs were still being
    /// attached or when the run was about to end, so that their answer may have passed unseen, or
    /// they ended when as many had ended as the run was to tell of.
    pub untold: u64,
    /// Copies of requests beyond the first, over all checks.
    pub retransmissions: u64,
}

/// An interface that facts have described.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interface {
    pub(super) role: InterfaceRole,
    pub(super) loopback: bool,
    /// A VM's backend takes packets out of its ring.
    pub(super) tap: bool,
    /// What is for the VM comes in through it, and what the VM sends leaves through it.
    pub(super) inverted: bool,
    /// Its transmit queues.
    pub(super) tx_queues: u32,
    /// Number in the list plus 1.
    pub(super) number: u16,
    /// Both directions are watched from then on.
    pub(super) live_since: MonoNs,
}

/// What the run's facts say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) lost_after: DurNs,
    pub(super) open_report_every: DurNs,
    pub(super) max_open: u32,
    /// Signature of each rule of the kernel's table.
    pub(super) signature: [u8; MAX_RULES],
    /// Which of them have a nonce.
    pub(super) nonce: [bool; MAX_RULES],
    /// Which have one so long that two checks do not have the same by chance.
    pub(super) long_nonce: [bool; MAX_RULES],
    /// Signatures whose requests are expected at intervals, by their index.
    periodic: [bool; MAX_RULES],
    /// `net_dev_start_xmit` is attached.
    pub(super) sees_xmit: bool,
    /// `qdisc_enqueue` is attached.
    pub(super) sees_qdisc: bool,
    /// Something tells of reads.
    pub(super) sees_reads: bool,
    /// A packet is seen to leave a tap's ring.
    pub(super) sees_backend: bool,
    /// Most checks told to have ended.
    pub(super) limit: u64,
}

impl Rules {
    const BEFORE_ANY_FACT: Self = Self {
        lost_after: DurNs::from_secs(10),
        open_report_every: DurNs::from_secs(1),
        max_open: 100_000,
        signature: [0, 1, 2, 3, 4, 5, 6, 7],
        nonce: [true; MAX_RULES],
        long_nonce: [false; MAX_RULES],
        periodic: [false; MAX_RULES],
        sees_xmit: false,
        sees_qdisc: false,
        sees_reads: false,
        sees_backend: false,
        limit: u64::MAX,
    };

    fn learn_run(&mut self, run: &RunFact) {
        self.lost_after = run.lost_after.min(MOST_LOST_AFTER);
        self.open_report_every = run.open_report_every.max(DurNs::from_millis(1));
        self.max_open = run.max_open.max(1);
        for (number, signature) in (0..=u8::MAX).zip(&run.signatures) {
            if let Some(periodic) = self.periodic.get_mut(usize::from(number)) {
                *periodic = signature.interval.is_some();
            }
            let first = usize::from(signature.first);
            for index in (first..MAX_RULES).take(signature.count.into()) {
                self.signature[index] = number;
                let nonce_len = signature.rules.get(index - first).map(|rule| rule.nonce_len);
                self.nonce[index] = nonce_len.is_none_or(|len| len > 0);
                self.long_nonce[index] = nonce_len.is_some_and(|len| len >= LONG_NONCE);
            }
        }
    }

    fn learn_hooks(&mut self, active: &[String]) {
        let attached = |name: &str| active.iter().any(|hook| hook.rsplit(':').next() == Some(name));
        self.sees_xmit = attached("net_dev_start_xmit");
        self.sees_qdisc = attached("qdisc_enqueue");
        self.sees_backend = attached("consume_skb") && self.sees_xmit;
        self.sees_reads = attached("sock_recv_length") || attached("sock_read");
    }
}

/// The last ingress records of one CPU, by sequence number.
pub(super) type IngressRing = [(u64, CheckRef); INGRESS_KEPT];

/// Joins events into journeys.
#[derive(Debug)]
pub struct Correlator {
    pub(super) rules: Rules,
    pub(super) checks: Slab<Check>,
    pub(super) index: Index,
    pub(super) carriers: Carriers,
    pub(super) deadlines: Deadlines,
    pub(super) disciplines: Disciplines,
    pub(super) sockets: Sockets,
    pub(super) ingress: Vec<Option<Box<IngressRing>>>,
    pub(super) recent: Recent,
    interfaces: Vec<InterfaceId>,
    departed: Departed,
    /// Checks that are reported while open, by the number of their target.
    reported: Vec<u32>,
    interface_table: HashTable<(InterfaceId, Interface)>,
    hasher: RandomState,
    pub(super) counts: Counts,
    /// Reasons with which the kernel drops what is not for this host or not for a listener's copy.
    pub(super) not_ours: Vec<u32>,
    /// Reasons of drops before a program of ours can see the packet come in.
    pub(super) before_entry: Vec<u32>,
    /// The reason with which the kernel drops a packet that no socket wants.
    pub(super) no_socket: Option<u32>,
    /// No check begins any more.
    closing: bool,
    /// Checks told to have ended.
    told: u64,
    /// Open checks of which nothing is told.
    untold_open: u32,
    now: MonoNs,
    /// Buffer of the checks that one read took.
    pub(super) taken: Vec<CheckRef>,
    spare_stamps: Vec<Vec<Stamp>>,
    spare_stays: Vec<Vec<QdiscStay>>,
    #[expect(clippy::vec_box, reason = "the boxes go to checks and come back")]
    spare_rests: Vec<Box<Rest>>,
}

impl Default for Correlator {
    fn default() -> Self {
        Self::new()
    }
}

impl Correlator {
    /// One that has seen nothing. Until a [`Fact::Run`] comes, checks are lost after 10 s.
    #[must_use]
    pub fn new() -> Self {
        Self {
            rules: Rules::BEFORE_ANY_FACT,
            checks: Slab::new(),
            index: Index::new(),
            carriers: Carriers::new(),
            deadlines: Deadlines::new(),
            disciplines: Disciplines::default(),
            sockets: Sockets::new(),
            ingress: Vec::new(),
            recent: Recent::new(),
            interfaces: Vec::new(),
            departed: Departed::default(),
            reported: Vec::new(),
            interface_table: HashTable::new(),
            hasher: RandomState::default(),
            counts: Counts::default(),
            not_ours: Vec::new(),
            before_entry: Vec::new(),
            no_socket: None,
            closing: false,
            told: 0,
            untold_open: 0,
            now: MonoNs(0),
            taken: Vec::new(),
            spare_stamps: Vec::with_capacity(SPARE_BUFFERS),
            spare_stays: Vec::with_capacity(SPARE_BUFFERS),
            spare_rests: Vec::with_capacity(SPARE_BUFFERS),
        }
    }

    /// Takes one event; an event earlier than one before it counts as of that one's time.
    pub fn push(&mut self, event: &Event, out: &mut dyn FnMut(Update)) {
        self.advance(event.at, out);
        match &event.body {
            Body::Fact(fact) => self.learn(fact),
            Body::Tick => {}
            body => {
                let joined = self.join(event, body, out);
                match joined {
                    Joined::Check => self.counts.joined += 1,
                    Joined::Evidence => self.counts.evidence += 1,
                    Joined::Nothing => self.counts.unmatched += 1,
                }
            }
        }
    }

    /// The run is over at `at`. Every check that is still open is given as ended: as replied, if
    /// only a last stage was still waited for, else with the outcome [`Outcome::Open`].
    pub fn finish(&mut self, at: MonoNs, out: &mut dyn FnMut(Update)) {
        self.advance(at, out);
        while let Some(slot) = self.deadlines.first(Wait::Grace).or_else(|| self.deadlines.first(Wait::HandOver)) {
            self.grace_is_over(slot, out);
        }
        while let Some(slot) = self.deadlines.first(Wait::Answer) {
            self.end(slot, Outcome::Open, self.now, out);
        }
    }

    /// Where the events went so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Checks that are open now.
    #[must_use]
    pub const fn open(&self) -> u32 {
        self.checks.len()
    }

    /// No check begins any more, and none of which anything is told is open.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.is_closing() && self.checks.len() == self.untold_open
    }

    /// No check begins any more of which anything is told.
    pub(crate) const fn is_closing(&self) -> bool {
        self.closing || self.told >= self.rules.limit
    }

    /// When the oldest open check began; what happened before it concerns none of them.
    #[must_use]
    pub fn oldest_open(&self) -> Option<MonoNs> {
        self.deadlines.first(Wait::Answer).map(|slot| self.checks[slot].began_at)
    }

    /// Takes a journey's buffers back for the next ones: with it, joining allocates nothing.
    pub fn recycle(&mut self, journey: Journey) {
        if self.spare_stamps.len() < SPARE_BUFFERS && journey.stamps.capacity() > 0 {
            self.spare_stamps.push(journey.stamps);
        }
        let mut stays = journey.qdisc;
        if self.spare_stays.len() < SPARE_BUFFERS && stays.capacity() > 0 {
            stays.clear();
            self.spare_stays.push(stays);
        }
    }

    fn join(&mut self, event: &Event, body: &Body, out: &mut dyn FnMut(Update)) -> Joined {
        match body {
            Body::PacketIngress(packet) => self.packet(event, packet, true, out),
            Body::PacketEgress(packet) => self.packet(event, packet, false, out),
            Body::SockEnqueue(body) => self.sock_enqueue(event, body, out),
            Body::SockRead(body) => self.sock_read(event, body, out),
            Body::SockSend(body) => self.sock_send(event, body),
            Body::QdiscEnqueue(body) => self.qdisc_enqueue(event, body),
            Body::QdiscDequeue(body) => self.qdisc_dequeue(event, body),
            Body::Xmit(body) => self.xmit(event, body, out),
            Body::Drop(body) if matches!(body.signature_known, DROP_OF_PORT | DROP_OF_PORT_LAST) => Joined::Evidence,
            Body::Drop(body) => self.dropped(event, body, out),
            Body::BackendRx(body) => self.backend_rx(event, body, out),
            Body::AcceptFull(body) => self.accept_full(event, body),
            Body::SwitchOut(_)
            | Body::SwitchIn(_)
            | Body::Waking(_)
            | Body::Softirq(_)
            | Body::Neighbour(_)
            | Body::TaskExit(_)
            | Body::TaskFork(_)
            | Body::OtherRead(_)
            | Body::OtherSend(_)
            | Body::OtherPeer(_)
            | Body::SendHeld(_)
            | Body::FileWait(_)
            | Body::Dirtied(_)
            | Body::Reclaim(_)
            | Body::BlockRequest(_)
            | Body::LockSpin(_)
            | Body::FutexWait(_)
            | Body::GuestExits(_)
            | Body::SoftirqWait(_)
            | Body::Ran(_)
            | Body::Fact(_)
            | Body::Tick => Joined::Evidence,
        }
    }

    fn learn(&mut self, fact: &Fact) {
        match fact {
            Fact::Run(run) => self.rules.learn_run(run),
            Fact::Hooks { active } => self.rules.learn_hooks(active),
            Fact::Interface(fact) => self.learn_interface(fact),
            Fact::Live { interface, since } => self.learn_live(*interface, *since),
            Fact::Gone { interface, .. } => self.departed.leave(*interface, self.now),
            Fact::DropReason { number, name } => self.learn_reason(*number, name),
            Fact::Limit { checks } => self.rules.limit = *checks,
            Fact::Closing => self.closing = true,
            _ => debug_assert!(!fact.learners().joining),
        }
    }

    fn learn_interface(&mut self, fact: &InterfaceFact) {
        let (role, loopback, tx_queues) = (fact.role, fact.kind == "loopback", fact.tx_queues);
        let (tap, inverted) = (fact.has_ring(), fact.is_macvtap());
        let hash = self.hasher.hash_one(fact.id);
        self.departed.come(fact.id);
        if let Some((_, known)) = self.interface_table.find_mut(hash, |(id, _)| *id == fact.id) {
            *known = Interface { role, loopback, tap, inverted, tx_queues, ..*known };
        } else if let Some(number) = self.number_for(fact.id) {
            let hasher = &self.hasher;
            self.interface_table.insert_unique(
                hash,
                (fact.id, Interface { role, loopback, tap, inverted, tx_queues, number, live_since: MonoNs(0) }),
                |(id, _)| hasher.hash_one(id),
            );
        }
    }

    /// A number for an interface. When all are given away, that of one is taken which went so long
    /// ago that no check is open that passed it.
    fn number_for(&mut self, id: InterfaceId) -> Option<u16> {
        if self.interfaces.len() < MAX_INTERFACES {
            self.interfaces.push(id);
            return u16::try_from(self.interfaces.len()).ok();
        }
        let old = self.departed.older_than(self.now.before(self.rules.lost_after))?;
        let hash = self.hasher.hash_one(old);
        let entry = self.interface_table.find_entry(hash, |(known, _)| *known == old).ok()?;
        let ((_, Interface { number, .. }), _) = entry.remove();
        *self.interfaces.get_mut(usize::from(number).checked_sub(1)?)? = id;
        Some(number)
    }

    fn learn_reason(&mut self, number: u32, name: &str) {
        if name == "NO_SOCKET" {
            self.no_socket = Some(number);
        }
        if NOT_OURS.contains(&name) && !self.not_ours.contains(&number) && self.not_ours.len() < MAX_REASONS {
            self.not_ours.push(number);
        }
        if BEFORE_ENTRY.contains(&name) && !self.before_entry.contains(&number) {
            self.before_entry.push(number);
        }
    }

    fn learn_live(&mut self, id: InterfaceId, since: MonoNs) {
        let hash = self.hasher.hash_one(id);
        if let Some((_, known)) = self.interface_table.find_mut(hash, |(known, _)| *known == id) {
            known.live_since = since;
        }
    }

    pub(super) fn interface(&self, id: InterfaceId) -> Option<Interface> {
        self.interface_table.find(self.hasher.hash_one(id), |(known, _)| *known == id).map(|(_, interface)| *interface)
    }

    /// Lets time pass: everything that is due until `to` happens, in the order of its deadline.
    fn advance(&mut self, to: MonoNs, out: &mut dyn FnMut(Update)) {
        self.now = self.now.max(to);
        while let Some((due, wait, slot)) = self.next_due().filter(|(due, ..)| *due <= self.now) {
            match wait {
                Wait::Grace | Wait::HandOver => self.grace_is_over(slot, out),
                Wait::Answer => self.answer_is_overdue(slot, due, out),
                Wait::Report => self.report(slot, due, out),
            }
        }
    }

    fn next_due(&self) -> Option<(MonoNs, Wait, u32)> {
        Wait::ALL
            .into_iter()
            .filter_map(|wait| self.deadlines.first(wait).map(|slot| (self.due(slot, wait), wait, slot)))
            .min_by_key(|(due, ..)| *due)
    }

    fn due(&self, slot: u32, wait: Wait) -> MonoNs {
        let check = &self.checks[slot];
        match wait {
            Wait::Answer => check.began_at.after(self.rules.lost_after),
            Wait::Report => check.report_at,
            Wait::Grace => check.waits_since.after(GRACE),
            Wait::HandOver => check.waits_since.after(HAND_OVER),
        }
    }

    fn report(&mut self, slot: u32, due: MonoNs, out: &mut dyn FnMut(Update)) {
        self.checks[slot].report_at = self.next_report(due);
        self.deadlines.arm(&mut self.checks, slot, Wait::Report);
        let check = &self.checks[slot];
        if check.untold || check.foreign {
            return;
        }
        if !self.take_place(slot) {
            let check = &self.checks[slot];
            let target = check.target_of(&self.interfaces);
            out(Update::Unreported { id: JourneyId(check.id), target, started_at: check.began_at, at: due });
            return;
        }
        let check = &self.checks[slot];
        let mut journey = check.journey(Outcome::Open, due, &self.interfaces, Vec::new());
        journey.drops.extend_from_slice(check.drops());
        journey.refusals.extend_from_slice(check.refusals());
        journey.qdisc.extend_from_slice(check.qdisc());
        out(Update::Open(journey));
    }

    /// Gives a check a place among the reported ones of its target, if one is free.
    fn take_place(&mut self, slot: u32) -> bool {
        let check = &mut self.checks[slot];
        if !check.reported {
            let target = usize::from(check.target);
            if self.reported.len() <= target {
                self.reported.resize(target + 1, 0);
            }
            if self.reported[target] >= MOST_REPORTED {
                return false;
            }
            self.reported[target] += 1;
            check.reported = true;
        }
        true
    }

    /// When a check is reported again. After a leap in time the reports in between are left out.
    fn next_report(&self, due: MonoNs) -> MonoNs {
        let every = self.rules.open_report_every;
        let missed = self.now.since(due).0 / every.0.max(1);
        let skipped = if missed > MOST_REPORTS_AT_ONCE { missed } else { 0 };
        due.after(DurNs(every.0.saturating_mul(skipped + 1)))
    }

    /// No answer within the run's limit; but a reply that was only not seen to leave the queue of
    /// a discipline that is not known to hold it is no loss.
    fn answer_is_overdue(&mut self, slot: u32, due: MonoNs, out: &mut dyn FnMut(Update)) {
        let check = &self.checks[slot];
        let outcome = if check.furthest() == Some(Stage::PnicQueue) && check.answered() && !check.in_qdisc() {
            Outcome::Broken(HAND_OVER_UNSEEN)
        } else {
            Outcome::Lost(Loss::TimedOut)
        };
        self.end(slot, outcome, due, out);
    }

    fn grace_is_over(&mut self, slot: u32, out: &mut dyn FnMut(Update)) {
        let check = &self.checks[slot];
        match check.drops().last().filter(|_| check.doubtful) {
            Some(drop) => {
                let drop = drop.clone();
                let at = drop.at;
                self.end(slot, Outcome::Lost(Loss::Dropped(drop)), at, out);
            }
            None => match check.unless_overtaken() {
                Some(outcome) => self.end(slot, outcome, self.checks[slot].last_at(), out),
                None => self.replied(slot, out),
            },
        }
    }

    /// Tells of a request that begins a check here, if its signature is one that is expected at intervals.
    pub(super) fn arrived(&self, slot: u32, at: MonoNs, out: &mut dyn FnMut(Update)) {
        let check = &self.checks[slot];
        let periodic = self.rules.periodic.get(usize::from(check.signature)).copied().unwrap_or(false);
        if periodic && check.perspective == Perspective::Served && !check.untold {
            let (id, interface) = (JourneyId(check.id), check.target_of(&self.interfaces));
            let (signature, request) = (usize::from(check.signature), check.request);
            out(Update::Arrived(Arrival { id, signature, interface, request, at }));
        }
    }

    pub(super) fn replied(&mut self, slot: u32, out: &mut dyn FnMut(Update)) {
        let at = self.checks[slot].last_at();
        self.end(slot, Outcome::Replied, at, out);
    }

    /// Opens a check, making room if there is none.
    pub(super) fn open_check(&mut self, mut check: Check, out: &mut dyn FnMut(Update)) -> u32 {
        while self.checks.len() >= self.rules.max_open {
            let Some(oldest) = self.deadlines.first(Wait::Answer) else { break };
            self.counts.evicted += 1;
            self.end(oldest, Outcome::Broken("evicted: too many checks were open"), self.now, out);
        }
        self.counts.opened += 1;
        check.id = self.counts.opened;
        self.untold_open += u32::from(check.untold);
        check.began_at = self.now;
        check.report_at = self.now.after(self.rules.open_report_every);
        let slot = self.checks.take(check);
        self.deadlines.arm(&mut self.checks, slot, Wait::Answer);
        self.deadlines.arm(&mut self.checks, slot, Wait::Report);
        slot
    }

    /// Ends a check: takes it out of everything that points to it and gives its journey away.
    pub(super) fn end(&mut self, slot: u32, outcome: Outcome, at: MonoNs, out: &mut dyn FnMut(Update)) {
        for wait in Wait::ALL {
            self.deadlines.disarm(&mut self.checks, slot, wait);
        }
        for member in self.checks[slot].members {
            if member != NONE {
                self.index.remove(member);
            }
        }
        self.carriers.forget(&self.checks, slot);
        self.let_go(slot);
        let stamps = self.spare_stamps.pop().unwrap_or_else(|| Vec::with_capacity(12));
        let check = &mut self.checks[slot];
        let outcome = match outcome {
            Outcome::Open | Outcome::Lost(Loss::TimedOut) if check.foreign => {
                Outcome::Broken("its packet was for another host, and no more of it was seen")
            }
            outcome => outcome,
        };
        let known_until = at.max(check.last_at());
        let mut journey = check.journey(outcome, known_until, &self.interfaces, stamps);
        check.id = 0;
        if std::mem::take(&mut check.reported)
            && let Some(count) = self.reported.get_mut(usize::from(check.target))
        {
            *count = count.saturating_sub(1);
        }
        let stays = check.qdisc().len();
        let untold = check.untold;
        if let Some(mut rest) = check.rest.take() {
            journey.drops = std::mem::take(&mut rest.drops);
            journey.refusals = std::mem::take(&mut rest.refusals);
            journey.qdisc = std::mem::take(&mut rest.qdisc);
            journey.qdisc.truncate(stays);
            if self.spare_rests.len() < SPARE_BUFFERS {
                self.spare_rests.push(rest);
            }
        }
        self.checks.release(slot);
        self.counts.ended += 1;
        self.untold_open -= u32::from(untold);
        let ended = journey.outcome != Outcome::Open;
        if untold || ended && self.told >= self.rules.limit {
            self.counts.untold += 1;
            return self.recycle(journey);
        }
        self.told += u64::from(ended);
        out(Update::Ended(journey));
    }

    /// The open check that a reference means, unless it has ended.
    pub(super) fn still_open(&self, check: CheckRef) -> Option<u32> {
        self.checks.get(check.slot).filter(|open| open.id == check.id && check.id != 0).map(|_| check.slot)
    }

    pub(super) fn reference(&self, slot: u32) -> CheckRef {
        CheckRef { slot, id: self.checks[slot].id }
    }

    /// Its thread holds the check no longer.
    pub(super) fn let_go(&mut self, slot: u32) {
        let check = &mut self.checks[slot];
        if std::mem::take(&mut check.held) {
            self.sockets.let_go(check.socket);
        }
    }

    pub(super) fn wait_grace(&mut self, slot: u32) {
        self.no_grace(slot);
        self.checks[slot].waits_since = self.now;
        self.deadlines.arm(&mut self.checks, slot, Wait::Grace);
    }

    pub(super) fn wait_hand_over(&mut self, slot: u32) {
        self.no_grace(slot);
        self.checks[slot].waits_since = self.now;
        self.deadlines.arm(&mut self.checks, slot, Wait::HandOver);
    }

    pub(super) fn no_grace(&mut self, slot: u32) {
        self.deadlines.disarm(&mut self.checks, slot, Wait::Grace);
        self.deadlines.disarm(&mut self.checks, slot, Wait::HandOver);
    }

    /// Gives a check room for its reply, drops and stays, where it can without an allocation.
    pub(super) fn make_room(&mut self, slot: u32) {
        let rest = &mut self.checks[slot].rest;
        if rest.is_none() {
            *rest = self.spare_rests.pop();
        }
    }

    pub(super) fn spare_stays(&mut self) -> Vec<QdiscStay> {
        self.spare_stays.pop().unwrap_or_else(|| Vec::with_capacity(1))
    }

    pub(super) fn ingress_ring(&mut self, cpu: u32) -> Option<&mut IngressRing> {
        let cpu = usize::try_from(cpu).ok().filter(|cpu| *cpu < MAX_CPUS)?;
        if self.ingress.len() <= cpu {
            self.ingress.resize_with(cpu + 1, || None);
        }
        let empty = || Box::new([(0, CheckRef { slot: NONE, id: 0 }); INGRESS_KEPT]);
        Some(self.ingress[cpu].get_or_insert_with(empty))
    }
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joined {
    /// It belongs to a check.
    Check,
    /// It is about something else.
    Evidence,
    /// It belongs to no open check.
    Nothing,
}
