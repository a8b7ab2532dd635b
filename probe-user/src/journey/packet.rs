//! Packets at interfaces: to which open check one belongs, and what it does to that check.
//!
//! In this order, the first that fits: the `sk_buff` that carried the check a moment ago; the key;
//! the nonce alone, if it fits one open check and no other (addresses were translated). What fits
//! several is counted and joined to none.

use super::Stage;
use super::check::{Check, Mark, Phase, phase};
use super::correlator::{Correlator, INGRESS_KEPT, Interface, Joined, Update};
use super::key::{Key, REACH};
use super::slab::NONE;
use super::{Perspective, check};
use crate::clock::{DurNs, MonoNs};
use crate::event::{Event, InterfaceId, InterfaceRole};
use probe_wire::{PacketBody, ROLE_REPLY, ROLE_REQUEST, Sighting};

/// An `sk_buff` address means the same packet for this long.
pub(super) const MOMENT: DurNs = DurNs::from_millis(100);
/// Two sightings of the same packet at one stage lie no further apart.
const AGAIN: DurNs = DurNs::from_millis(1);
/// A packet whose both ends were translated is at its next stage within this long.
const FORWARDED: DurNs = DurNs::from_secs(1);
/// Newest checks of a flow looked at for a second sighting of the same packet.
const NEWEST: usize = 8;

const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_FIN: u8 = 1;
const TCP_SYN: u8 = 2;

/// A packet as it was seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) event: &'a Event,
    pub(super) skb: u64,
    pub(super) sighting: &'a Sighting,
    pub(super) signature: u8,
    /// Its rule has a nonce.
    nonce: bool,
    stage: Stage,
    ingress: bool,
    interface: Interface,
    queue: u32,
}

/// What became of a packet's addresses on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// One end was translated at most.
    OneInCommon,
    /// Source and destination were.
    BothTranslated,
}

/// What a packet fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// A half of an open check.
    Check(u32, Phase),
    /// None; it begins a check.
    Begins,
    /// More than one open check.
    Several,
    /// None, and it cannot begin one.
    Nothing,
}

impl Correlator {
    /// A packet came in or left through a hooked interface.
    pub(super) fn packet(
        &mut self,
        event: &Event,
        packet: &PacketBody,
        ingress: bool,
        out: &mut dyn FnMut(Update),
    ) -> Joined {
        let id = InterfaceId { netns: packet.netns, ifindex: packet.ifindex };
        let Some(interface) = self.interface(id) else {
            self.counts.unknown_interface += 1;
            return Joined::Nothing;
        };
        let seen = Seen {
            event,
            skb: packet.skb,
            sighting: &packet.sighting,
            signature: self.signature_of(&packet.sighting),
            nonce: self.has_nonce(&packet.sighting),
            stage: stage_at(interface, ingress),
            ingress,
            interface,
            queue: packet.queue,
        };
        if interface.loopback && self.is_mirror(&seen) {
            self.counts.off_path += 1;
            return Joined::Check;
        }
        match self.fit(&seen) {
            Fit::Check(slot, half) => self.sighted(slot, half, &seen, out),
            Fit::Begins => self.begin(&seen, out),
            Fit::Nothing => return Joined::Nothing,
            Fit::Several => {
                self.counts.ambiguous += 1;
                return Joined::Nothing;
            }
        }
        Joined::Check
    }

    pub(super) fn signature_of(&self, sighting: &Sighting) -> u8 {
        self.rules.signature.get(usize::from(sighting.rule)).copied().unwrap_or(u8::MAX)
    }

    pub(super) fn has_nonce(&self, sighting: &Sighting) -> bool {
        self.rules.nonce.get(usize::from(sighting.rule)).copied().unwrap_or(true)
    }

    /// Whether a packet on a loopback interface is the half of a pair of sightings that is left out.
    fn is_mirror(&mut self, seen: &Seen<'_>) -> bool {
        if seen.ingress {
            return self.recent.take_looped(seen.skb, seen.event.at) || seen.sighting.role == ROLE_REPLY;
        }
        match seen.sighting.role {
            ROLE_REQUEST => true,
            ROLE_REPLY => false,
            _ => self.index.chain(&self.checks, &Key::of(seen.sighting, seen.signature, false)).is_none(),
        }
    }

    fn fit(&mut self, seen: &Seen<'_>) -> Fit {
        if let Some((slot, half)) = self.fit_by_skb(seen) {
            return Fit::Check(slot, half);
        }
        let halves = halves(seen.sighting.role);
        for half in halves {
            let key = Key::of(seen.sighting, seen.signature, *half == Phase::Request);
            if let Some(chain) = self.index.chain(&self.checks, &key)
                && let Some(slot) = self.fit_in_chain(chain, *half, seen)
            {
                return Fit::Check(slot, *half);
            }
        }
        match self.fit_by_nonce(seen) {
            Fit::Nothing if halves.contains(&Phase::Request) => Fit::Begins,
            fit => fit,
        }
    }

    /// The check whose packet was at this `sk_buff` a moment ago, at an earlier stage.
    fn fit_by_skb(&self, seen: &Seen<'_>) -> Option<(u32, Phase)> {
        let (slot, half) = self.carriers.find(&self.checks, seen.skb)?;
        let check = &self.checks[slot];
        let carrier = &check.carriers[half];
        let half = if half == 0 { Phase::Request } else { Phase::Reply };
        let same = check.signature == seen.signature
            && check.request.nonce == seen.sighting.nonce
            && check.request.protocol == seen.sighting.protocol
            && carrier.tcp_seq == seen.sighting.tcp_seq
            && carrier.ip_id == seen.sighting.ip_id
            && seen.event.at.since(carrier.seen_at) <= MOMENT;
        let fits = same
            && halves(seen.sighting.role).contains(&half)
            && phase(check.perspective, seen.stage) == half
            && check.expects(seen.stage);
        fits.then_some((slot, half))
    }

    fn fit_in_chain(&mut self, chain: u32, half: Phase, seen: &Seen<'_>) -> Option<u32> {
        if seen.nonce {
            return Some(self.index.oldest(chain));
        }
        match (seen.sighting.protocol, half) {
            (TCP, Phase::Request) => self.fit_by_sequence(chain, seen),
            (TCP, Phase::Reply) => self.fit_by_acknowledgement(chain, seen),
            _ => self.fit_by_order(chain, half, seen),
        }
    }

    fn fit_by_sequence(&self, chain: u32, seen: &Seen<'_>) -> Option<u32> {
        self.index.checks(chain).find(|slot| {
            let request = &self.checks[*slot].request;
            let into = seen.sighting.tcp_seq.wrapping_sub(request.tcp_seq);
            into < request.payload_len.max(1)
        })
    }

    fn fit_by_acknowledgement(&self, chain: u32, seen: &Seen<'_>) -> Option<u32> {
        let again = |slot: &u32| {
            let reply = &self.checks[*slot].carriers[Phase::Reply as usize];
            reply.seen && reply.tcp_seq == seen.sighting.tcp_seq
        };
        let covered = |slot: &u32| {
            let check = &self.checks[*slot];
            !check.answered()
                && covers(seen.sighting.tcp_ack, &check.request)
                && follows(seen.sighting.tcp_seq, &check.request)
        };
        self.index.checks(chain).find(again).or_else(|| self.index.checks(chain).find(covered))
    }

    /// Packets of a flow pass each stage in the order in which they passed the one before. A packet
    /// that is seen twice at one stage is told from the next one of its flow by its IPv4
    /// identification; its address proves it only as long as it has not moved on, since a freed
    /// `sk_buff` is soon another packet's.
    fn fit_by_order(&mut self, chain: u32, half: Phase, seen: &Seen<'_>) -> Option<u32> {
        let checks = &self.checks;
        let again = |slot: &u32| {
            let check = &checks[*slot];
            let stays = seen.sighting.ip_id != 0 || check.furthest() == Some(seen.stage);
            check.passed(seen.stage) && stays && is_same_packet(check, half, seen) && is_again(check, half, seen)
        };
        if let Some(slot) = self.index.newest(chain).take(NEWEST).find(again) {
            return Some(slot);
        }
        let next = |slot: &u32| {
            let check = &checks[*slot];
            phase(check.perspective, seen.stage) == half
                && check.expects(seen.stage)
                && !is_other_packet(check, half, seen)
        };
        let place = seen.stage as usize - 1;
        self.index.not_passed(chain, place, |slot| checks[slot].passed(seen.stage)).find(next)
    }

    /// The one open check with this nonce that has one end in common and can pass this stage next;
    /// if there is none, the one that has no end in common and passed the stage before a moment ago.
    fn fit_by_nonce(&mut self, seen: &Seen<'_>) -> Fit {
        let key = Key::of(seen.sighting, seen.signature, true);
        let Some(chain) = self.index.chain(&self.checks, &key.anywhere()).filter(|_| seen.nonce) else {
            return Fit::Nothing;
        };
        match self.only_fit(chain, seen, Ends::OneInCommon) {
            Fit::Nothing => self.only_fit(chain, seen, Ends::BothTranslated),
            fit => fit,
        }
    }

    fn only_fit(&mut self, chain: u32, seen: &Seen<'_>, ends: Ends) -> Fit {
        let mut fit = Fit::Nothing;
        let mut looked_at = 0;
        for slot in self.index.checks(chain) {
            looked_at += 1;
            fit = match (self.translated(slot, seen, ends), fit) {
                (None, fit) => fit,
                (Some(half), Fit::Nothing) => Fit::Check(slot, half),
                (Some(_), _) => Fit::Several,
            };
        }
        if looked_at == REACH && fit != Fit::Nothing {
            fit = Fit::Several;
        }
        if fit == Fit::Several {
            self.mark_ambiguous(chain, seen, ends);
        }
        fit
    }

    /// Whether a packet can be a check's own after a translation of addresses.
    fn translated(&self, slot: u32, seen: &Seen<'_>, ends: Ends) -> Option<Phase> {
        let check = &self.checks[slot];
        let half = phase(check.perspective, seen.stage);
        let fits = halves(seen.sighting.role).contains(&half)
            && check.expects(seen.stage)
            && check.request.protocol == seen.sighting.protocol
            && !is_other_packet(check, half, seen)
            && match ends {
                Ends::OneInCommon => self.shares_an_end(slot, half, seen),
                Ends::BothTranslated => self.was_forwarded(slot, half, seen),
            };
        fits.then_some(half)
    }

    fn shares_an_end(&self, slot: u32, half: Phase, seen: &Seen<'_>) -> bool {
        let members = self.checks[slot].members;
        let key = Key::of(seen.sighting, seen.signature, half == Phase::Request);
        let near = |member: &u32| *member != NONE && self.index.key(&self.checks, *member).shares_an_end(&key);
        [members[0], members[2], members[3]].iter().any(near)
    }

    /// Whether nothing but the addresses speaks against its being the packet that was seen a moment
    /// ago. In captures alone: where a packet's address in the kernel is known, it has not fitted.
    fn was_forwarded(&self, slot: u32, half: Phase, seen: &Seen<'_>) -> bool {
        let carrier = &self.checks[slot].carriers[half as usize];
        self.rules.long_nonce.get(usize::from(seen.sighting.rule)).copied().unwrap_or(false)
            && carrier.seen
            && seen.skb == 0
            && seen.event.at.since(carrier.seen_at) <= FORWARDED
            && (half == Phase::Reply || self.checks[slot].request.payload_len == seen.sighting.payload_len)
    }

    fn mark_ambiguous(&mut self, chain: u32, seen: &Seen<'_>, ends: Ends) {
        let mut fitting = [NONE; REACH];
        for (place, slot) in fitting.iter_mut().zip(self.index.checks(chain)) {
            *place = slot;
        }
        for slot in fitting.into_iter().take_while(|slot| *slot != NONE) {
            if self.translated(slot, seen, ends).is_some() {
                self.checks[slot].ambiguous = true;
            }
        }
    }

    fn begin(&mut self, seen: &Seen<'_>, out: &mut dyn FnMut(Update)) {
        let perspective = match phase(Perspective::Served, seen.stage) {
            Phase::Request => Perspective::Served,
            Phase::Reply => Perspective::Sent,
        };
        let slot = self.open_request(seen.sighting, perspective, &seen.interface, seen.event.at, out);
        self.arrived(slot, seen.event.at, out);
        self.pass(slot, Phase::Request, seen, out);
    }

    /// Begins the check of a request at an interface, with no stage yet.
    pub(super) fn open_request(
        &mut self,
        request: &Sighting,
        perspective: Perspective,
        interface: &Interface,
        at: MonoNs,
        out: &mut dyn FnMut(Update),
    ) -> u32 {
        let mut check = Check::new(0, request, self.signature_of(request), perspective);
        check.untold = self.is_closing() || at < interface.live_since;
        let slot = self.open_check(check, out);
        self.checks[slot].members[0] = self.index.add_request(&self.checks, slot);
        if self.has_nonce(request) {
            self.checks[slot].members[1] = self.index.add_nonce(&self.checks, slot);
        }
        self.checks[slot].target = interface.number;
        slot
    }

    /// A packet of an open check was seen.
    fn sighted(&mut self, slot: u32, half: Phase, seen: &Seen<'_>, out: &mut dyn FnMut(Update)) {
        let check = &self.checks[slot];
        if phase(check.perspective, seen.stage) != half {
            self.counts.off_path += 1;
        } else if check.passed(seen.stage) {
            self.seen_again(slot, half, seen);
        } else if is_other_packet(check, half, seen) && (check.answered() || !check.expects(seen.stage)) {
            // A copy passes where the record of the first is missing: its time is not the first's.
            self.counts.duplicates += 1;
        } else {
            self.pass(slot, half, seen, out);
        }
    }

    /// A packet at a stage that its check has passed: the same packet, or a copy sent again.
    fn seen_again(&mut self, slot: u32, half: Phase, seen: &Seen<'_>) {
        let check = &mut self.checks[slot];
        if is_same_packet(check, half, seen) {
            self.counts.duplicates += 1;
            return;
        }
        if half == Phase::Request && check.entry() == Some(seen.stage) {
            check.retransmissions = check.retransmissions.saturating_add(1);
            self.counts.retransmissions += 1;
            // Another chance, whatever became of the first copy.
            if std::mem::take(&mut check.doubtful) {
                self.no_grace(slot);
            }
        } else {
            self.counts.duplicates += 1;
        }
        let check = &mut self.checks[slot];
        check.carriers[half as usize].ip_id = seen.sighting.ip_id;
        self.carry(slot, half, seen);
    }

    fn pass(&mut self, slot: u32, half: Phase, seen: &Seen<'_>, out: &mut dyn FnMut(Update)) {
        if half == Phase::Reply && !self.checks[slot].answered() {
            self.make_room(slot);
            self.answer(slot);
        }
        self.stamp_sender(slot, half, seen);
        let check = &mut self.checks[slot];
        check.pass(seen.stage, mark(seen.event, seen.queue, seen.interface.number));
        if seen.interface.role == InterfaceRole::VirtualNic {
            check.target = seen.interface.number;
        }
        check.carriers[half as usize].note(seen.sighting);
        check.foreign = false;
        if std::mem::take(&mut check.doubtful) {
            self.no_grace(slot);
        }
        self.carry(slot, half, seen);
        self.add_translated_key(slot, half, seen);
        if half == Phase::Reply {
            self.reply_passed(slot, seen, out);
        }
    }

    /// Notes the `sk_buff`, for what is said of it later.
    fn carry(&mut self, slot: u32, half: Phase, seen: &Seen<'_>) {
        self.checks[slot].carriers[half as usize].seen_at = seen.event.at;
        self.carriers.set(&mut self.checks, slot, half as usize, seen.skb);
        if seen.ingress && half == check::received(self.checks[slot].perspective) {
            let reference = self.reference(slot);
            if let Some(ring) = self.ingress_ring(seen.event.cpu) {
                ring[place_of(seen.event.seq)] = (seen.event.seq, reference);
            }
        }
        if seen.interface.loopback && !seen.ingress {
            self.recent.note_looped(seen.skb, seen.event.at);
        }
    }

    /// The first sighting of the reply: nobody holds the check any more, nor can it be unread.
    fn answer(&mut self, slot: u32) {
        self.let_go(slot);
        let reference = self.reference(slot);
        let check = &mut self.checks[slot];
        if check.perspective == Perspective::Served && std::mem::take(&mut check.queued) {
            self.sockets.must_have_read(check.socket, reference);
            self.take_missed();
        }
    }

    /// A packet that leaves in the context of a thread was sent by it just now.
    fn stamp_sender(&mut self, slot: u32, half: Phase, seen: &Seen<'_>) {
        let check = &self.checks[slot];
        let leaves_a_stack = !seen.ingress && seen.interface.role != InterfaceRole::VirtualNic;
        let by_a_thread = seen.event.softirq == 0 && seen.event.task.tid != 0;
        let first = ![Stage::GuestTx, Stage::VnicRx, Stage::PnicQueue].iter().any(|stage| check.passed(*stage));
        if half == check::received(check.perspective)
            || !(leaves_a_stack && by_a_thread && first)
            || check.is_in_a_vm()
            || (check.perspective == Perspective::Served && !matches!(seen.sighting.protocol, TCP | UDP))
        {
            return;
        }
        self.recent.note_sender(seen.event.task);
        let check = &mut self.checks[slot];
        if !check.passed(Stage::AppSend) {
            check.pass(Stage::AppSend, mark(seen.event, 0, 0));
            check.sender = seen.event.task;
        }
    }

    /// Remembers a key that the check has behind a translation of addresses.
    fn add_translated_key(&mut self, slot: u32, half: Phase, seen: &Seen<'_>) {
        let key = Key::of(seen.sighting, seen.signature, half == Phase::Request);
        let members = self.checks[slot].members;
        let known = [members[0], members[2], members[3]]
            .into_iter()
            .any(|member| member != NONE && self.index.key(&self.checks, member) == key);
        if known {
            return;
        }
        if let Some(place) = (2..4).find(|place| members[*place] == NONE) {
            self.checks[slot].members[place] = self.index.add_translated(&self.checks, key, slot);
        }
    }

    /// The reply passed a stage: is it the last that this host can see?
    fn reply_passed(&mut self, slot: u32, seen: &Seen<'_>, out: &mut dyn FnMut(Update)) {
        let check = &self.checks[slot];
        if seen.stage == Stage::PnicQueue && !self.rules.sees_xmit {
            self.replied(slot, out);
        } else if seen.stage == Stage::PnicQueue {
            self.no_grace(slot);
            if self.rules.sees_qdisc {
                self.wait_hand_over(slot);
            }
        } else if self.rules.sees_backend && check.waits_in_ring(seen) {
            self.wait_hand_over(slot);
        } else if check.is_back(seen.stage) && !check.passed(Stage::SockEnqueue)
            || check.perspective == Perspective::Served && check.is_back(seen.stage)
        {
            self.wait_grace(slot);
        }
    }
}

impl Check {
    /// Handed to a VM and not seen inside, nor in a socket of this host.
    fn is_in_a_vm(&self) -> bool {
        self.passed(Stage::VnicTx) && !self.passed(Stage::GuestRx) && !self.passed(Stage::SockEnqueue)
            || self.passed(Stage::VnicRx) && !self.passed(Stage::GuestTx)
    }

    /// Whether its reply is in the ring of the VM that asked, from which it will be seen taken.
    fn waits_in_ring(&self, seen: &Seen<'_>) -> bool {
        self.perspective == Perspective::Sent
            && seen.stage == Stage::VnicTx
            && seen.interface.tap
            && self.is_back(seen.stage)
    }

    /// Whether a reply at `stage` is where the request was first seen, or beyond.
    pub(super) fn is_back(&self, stage: Stage) -> bool {
        let mirror = match self.entry() {
            Some(Stage::PnicRx) => Stage::PnicQueue,
            Some(Stage::VnicTx) => Stage::VnicRx,
            Some(Stage::GuestRx) => Stage::GuestTx,
            Some(Stage::VnicRx) => Stage::VnicTx,
            Some(Stage::GuestTx) => Stage::GuestRx,
            _ => Stage::PnicRx,
        };
        stage >= mirror
    }
}

/// The stage that an interface stands for.
fn stage_at(interface: Interface, ingress: bool) -> Stage {
    let role = if interface.loopback { InterfaceRole::PhysicalNic } else { interface.role };
    match (role, ingress) {
        (InterfaceRole::PhysicalNic, true) => Stage::PnicRx,
        (InterfaceRole::PhysicalNic, false) => Stage::PnicQueue,
        (InterfaceRole::VirtualNic, ingress) if ingress == interface.inverted => Stage::VnicTx,
        (InterfaceRole::VirtualNic, _) => Stage::VnicRx,
        (InterfaceRole::Inner, true) => Stage::GuestRx,
        (InterfaceRole::Inner, false) => Stage::GuestTx,
    }
}

/// What a packet can be; if both, a reply first: a request that has no answer yet asks for one.
const fn halves(role: u8) -> &'static [Phase] {
    match role {
        ROLE_REQUEST => &[Phase::Request],
        ROLE_REPLY => &[Phase::Reply],
        _ => &[Phase::Reply, Phase::Request],
    }
}

/// Whether an acknowledgement covers all of a request.
const fn covers(ack: u32, request: &Sighting) -> bool {
    let flags = request.tcp_flags;
    let extra = (flags & TCP_SYN != 0) as u32 + (flags & TCP_FIN != 0) as u32;
    let end = request.tcp_seq.wrapping_add(request.payload_len).wrapping_add(extra);
    ack.wrapping_sub(end) < 1 << 31
}

/// Whether a reply lies behind all that its client had when it asked. The copy of an earlier reply
/// does not, though it acknowledges whatever has come since.
const fn follows(seq: u32, request: &Sighting) -> bool {
    let had = request.tcp_ack;
    had == 0 || seq.wrapping_sub(had) < 1 << 31
}

fn is_same_packet(check: &Check, half: Phase, seen: &Seen<'_>) -> bool {
    let carrier = &check.carriers[half as usize];
    let (skb, ip_id) = (seen.skb, seen.sighting.ip_id);
    carrier.seen && (ip_id == carrier.ip_id) && (ip_id != 0 || (skb != 0 && skb == carrier.skb))
}

/// Whether a packet cannot be the one that was seen before. Without an IPv4 identification that is
/// unknown: a forwarded packet can be a clone.
fn is_other_packet(check: &Check, half: Phase, seen: &Seen<'_>) -> bool {
    let carrier = &check.carriers[half as usize];
    let ip_id = seen.sighting.ip_id;
    carrier.seen && ip_id != 0 && carrier.ip_id != 0 && ip_id != carrier.ip_id
}

fn is_again(check: &Check, half: Phase, seen: &Seen<'_>) -> bool {
    seen.event.at.since(check.carriers[half as usize].seen_at) <= AGAIN
}

pub(super) fn mark(event: &Event, queue: u32, interface: u16) -> Mark {
    let cpu = u16::try_from(event.cpu).unwrap_or(u16::MAX);
    Mark { at: event.at, cpu, queue: u16::try_from(queue).unwrap_or(0), interface }
}

#[expect(clippy::cast_possible_truncation, reason = "the remainder is small")]
pub(super) const fn place_of(seq: u64) -> usize {
    (seq % INGRESS_KEPT as u64) as usize
}
