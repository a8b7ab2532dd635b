//! What is said of a check's packet between and behind the interfaces: sockets, queueing
//! disciplines, drivers, drops.

use super::check::{self, Check, Phase};
use super::correlator::{Correlator, Joined, Update};
use super::key::Key;
use super::packet::{MOMENT, mark, place_of};
use super::socket::CheckRef;
use super::{Loss, Outcome, PacketDrop, Perspective, QdiscStay, Refusal, Stage};
use crate::clock::MonoNs;
use crate::event::{Event, InterfaceId, InterfaceRole, TaskId};
use probe_wire::{
    AcceptFullBody, BackendRxBody, DROP_UNPARSED, DropBody, MAX_RULES, PacketBody, QdiscBody, ROLE_REPLY, ROLE_REQUEST,
    SockCallBody, SockEnqueueBody, XMIT_HANDS_ON, XmitBody,
};

/// Stays in queueing disciplines kept per check.
const MAX_STAYS: usize = 8;
/// Drops, and requests that found no room at their listener, kept per check.
const MAX_DROPS: usize = 16;

const TCP: u8 = 6;
const UDP: u8 = 17;

impl Correlator {
    /// Data entered a socket: that of a check if a check's packet was taken in just before.
    pub(super) fn sock_enqueue(
        &mut self,
        event: &Event,
        body: &SockEnqueueBody,
        out: &mut dyn FnMut(Update),
    ) -> Joined {
        let slot = self.enqueued_check(event, body);
        // With a second socket that got a copy, or a segment that came again, nothing of the check
        // waits here.
        let first = slot.filter(|slot| !self.checks[*slot].passed(Stage::SockEnqueue));
        let reference = first.map(|slot| self.reference(slot));
        let queued = self.sockets.enqueue(event.at, body, reference);
        self.take_missed();
        if let Some(slot) = first {
            let check = &mut self.checks[slot];
            check.pass(Stage::SockEnqueue, mark(event, 0, 0));
            (check.socket, check.queued) = (body.socket, queued);
            self.socket_has_it(slot, out);
        }
        if slot.is_some() { Joined::Check } else { Joined::Nothing }
    }

    /// Checks that were read without its being known when: one sent from here has its answer.
    pub(super) fn take_missed(&mut self) {
        while let Some(reference) = self.sockets.missed.pop() {
            let Some(slot) = self.still_open(reference) else { continue };
            self.checks[slot].queued = false;
            if self.checks[slot].perspective == Perspective::Sent {
                self.wait_grace(slot);
            }
        }
    }

    /// A packet in a socket is no longer on its way: neither a drop of a copy nor a further stage
    /// is waited for.
    fn socket_has_it(&mut self, slot: u32, out: &mut dyn FnMut(Update)) {
        let check = &mut self.checks[slot];
        let doubtful = std::mem::take(&mut check.doubtful);
        check.foreign = false;
        match check.perspective {
            Perspective::Served if doubtful => self.no_grace(slot),
            Perspective::Served => {}
            Perspective::Sent if self.rules.sees_reads && check.queued => self.no_grace(slot),
            Perspective::Sent if self.rules.sees_reads => self.wait_grace(slot),
            Perspective::Sent => self.replied(slot, out),
        }
    }

    fn enqueued_check(&mut self, event: &Event, body: &SockEnqueueBody) -> Option<u32> {
        let by_seq = self.ingress_ring(event.cpu).map(|ring| ring[place_of(body.packet_seq)]);
        let by_seq = by_seq.filter(|(seq, _)| *seq == body.packet_seq && body.packet_seq != 0);
        let slot = match by_seq.and_then(|(_, check)| self.still_open(check)) {
            Some(slot) => slot,
            None => self.received_by_skb(body.skb)?,
        };
        // The kernel itself answers an echo; a socket that listens in is not on its path.
        let check = &self.checks[slot];
        let has_socket = check.perspective == Perspective::Sent || matches!(check.request.protocol, TCP | UDP);
        has_socket.then_some(slot)
    }

    fn received_by_skb(&self, skb: u64) -> Option<u32> {
        let (slot, half) = self.carriers.find(&self.checks, skb)?;
        (half == check::received(self.checks[slot].perspective) as usize).then_some(slot)
    }

    /// A receive call returned: the checks it took are read.
    pub(super) fn sock_read(&mut self, event: &Event, body: &SockCallBody, out: &mut dyn FnMut(Update)) -> Joined {
        self.rules.sees_reads = true;
        let mut taken = std::mem::take(&mut self.taken);
        self.sockets.read(event.at, body, &mut |check| taken.push(check));
        self.take_missed();
        let mut joined = Joined::Nothing;
        for check in taken.drain(..) {
            if let Some(slot) = self.still_open(check) {
                joined = Joined::Check;
                self.read_by(slot, check, event, out);
            }
        }
        self.taken = taken;
        joined
    }

    fn read_by(&mut self, slot: u32, reference: CheckRef, event: &Event, out: &mut dyn FnMut(Update)) {
        let check = &mut self.checks[slot];
        check.queued = false;
        check.pass(Stage::SockRead, mark(event, 0, 0));
        check.reader = event.task;
        match check.perspective {
            Perspective::Served => {
                check.held = true;
                let socket = check.socket;
                self.let_go_of_sent(socket, event.task);
                self.sockets.hold(socket, reference);
            }
            Perspective::Sent => self.replied(slot, out),
        }
    }

    /// A thread that takes its next check from a stream is done with the one that it has answered,
    /// though the socket may still hold that answer back.
    fn let_go_of_sent(&mut self, socket: u64, task: TaskId) {
        let held = self.sockets.only_held(socket).and_then(|check| self.still_open(check));
        let sent = |slot: &u32| self.checks[*slot].passed(Stage::AppSend) && self.checks[*slot].sender == task;
        if let Some(slot) = held.filter(sent) {
            self.let_go(slot);
        }
    }

    /// A send call returned. A datagram was seen leaving before, by its own record; a stream may
    /// hold what it was given, so the call itself counts, if one check alone can be meant.
    pub(super) fn sock_send(&mut self, event: &Event, body: &SockCallBody) -> Joined {
        if self.recent.take_sender(event.task) {
            return Joined::Check;
        }
        if body.protocol != u32::from(TCP) || body.result <= 0 {
            return Joined::Nothing;
        }
        let held = self.sockets.only_held(body.socket).and_then(|check| self.still_open(check));
        let Some(slot) = held.filter(|slot| self.checks[*slot].held) else { return Joined::Nothing };
        self.make_room(slot);
        let check = &mut self.checks[slot];
        if !check.passed(Stage::AppSend) {
            check.pass(Stage::AppSend, mark(event, 0, 0));
            check.sender = event.task;
        }
        Joined::Check
    }

    /// A packet was handed to a driver.
    pub(super) fn xmit(&mut self, event: &Event, body: &XmitBody, out: &mut dyn FnMut(Update)) -> Joined {
        let Some((slot, half)) = self.carriers.find(&self.checks, body.skb) else { return Joined::Nothing };
        let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        if !self.leaves_by(slot, half, id) || self.checks[slot].passed(Stage::PnicXmit) {
            self.leaves_tap_qdisc(slot, event, id);
            return Joined::Check;
        }
        let check = &mut self.checks[slot];
        if body.queue & XMIT_HANDS_ON != 0 {
            check.handed_on = true;
            return Joined::Check;
        }
        let interface = check.mark(Stage::PnicQueue).map_or(0, |mark| mark.interface);
        check.pass(Stage::PnicXmit, mark(event, body.queue.saturating_add(1), interface));
        if check.perspective == Perspective::Served {
            self.replied(slot, out);
        }
        Joined::Check
    }

    /// A VM's backend took a packet out of its tap's ring. The packet is freed with that, so its
    /// address means nothing any more. A softirq takes none out: it used up one of several segments, of
    /// which a macvtap has made packets of their own.
    pub(super) fn backend_rx(&mut self, event: &Event, body: &BackendRxBody, out: &mut dyn FnMut(Update)) -> Joined {
        let Some((slot, half)) = self.carriers.find(&self.checks, body.skb) else { return Joined::Nothing };
        let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        let check = &self.checks[slot];
        let tap = check.mark(Stage::VnicTx).map_or(0, |mark| mark.interface);
        if event.softirq != 0 || !self.enters_by(slot, half, id) {
            return Joined::Check;
        }
        self.carriers.set(&mut self.checks, slot, half, 0);
        let check = &mut self.checks[slot];
        check.pass(Stage::BackendRx, mark(event, 0, tap));
        check.backend = event.task;
        if check.perspective == Perspective::Sent && check.is_back(Stage::BackendRx) {
            self.replied(slot, out);
        }
        Joined::Check
    }

    /// A connection request came in, and its listener has no room for it. The record stands right
    /// behind that of the request.
    pub(super) fn accept_full(&mut self, event: &Event, body: &AcceptFullBody) -> Joined {
        let seen = self.ingress_ring(event.cpu).map(|ring| ring[place_of(body.packet_seq)]);
        let seen = seen.filter(|(seq, _)| *seq == body.packet_seq && *seq != 0);
        let Some(slot) = seen.and_then(|(_, check)| self.still_open(check)) else { return Joined::Nothing };
        self.make_room(slot);
        let refusals = &mut self.checks[slot].rest().refusals;
        if refusals.len() < MAX_DROPS {
            let AcceptFullBody { skb, waiting, limit, half_open, .. } = *body;
            refusals.push(Refusal { at: event.at, skb, waiting, limit, half_open });
        }
        Joined::Check
    }

    /// Whether a check's outgoing packet is at this physical NIC, or at a device below it.
    fn leaves_by(&self, slot: u32, half: usize, id: InterfaceId) -> bool {
        let check = &self.checks[slot];
        let outgoing = half != check::received(check.perspective) as usize;
        let at = check.mark(Stage::PnicQueue).map(|mark| mark.interface);
        let here = || at == self.interface(id).map(|interface| interface.number);
        outgoing && at.is_some() && (check.handed_on || here())
    }

    /// Whether a check's packet is on its way to a VM through this interface.
    fn enters_by(&self, slot: u32, half: usize, id: InterfaceId) -> bool {
        let check = &self.checks[slot];
        let at = check.mark(Stage::VnicTx).map(|mark| mark.interface);
        half == check::received(check.perspective) as usize
            && check.expects(Stage::BackendRx)
            && at.is_some()
            && at == self.interface(id).map(|interface| interface.number)
    }

    /// Whether a check's packet, which a VM gave back, leaves through this macvtap of its own.
    fn leaves_vm_by(&self, slot: u32, half: usize, id: InterfaceId) -> bool {
        let check = &self.checks[slot];
        let at = check.mark(Stage::VnicRx).map(|mark| mark.interface);
        let macvtap = self.interface(id).filter(|interface| interface.inverted);
        half != check::received(check.perspective) as usize
            && !check.passed(Stage::PnicQueue)
            && at.is_some()
            && at == macvtap.map(|interface| interface.number)
    }

    /// What is handed to a device has left its discipline; of a bulk only the first is seen leaving.
    fn leaves_tap_qdisc(&mut self, slot: u32, event: &Event, id: InterfaceId) {
        let stay = self.checks[slot].rest.as_mut().and_then(|rest| rest.qdisc.last_mut());
        let here = |stay: &&mut QdiscStay| {
            stay.left_at.is_none() && (stay.entered.netns, stay.entered.ifindex) == (id.netns, id.ifindex)
        };
        if let Some(stay) = stay.filter(here) {
            stay.left_at = Some(event.at);
        }
    }

    /// A packet entered a queueing discipline: it may wait there for as long as it takes.
    pub(super) fn qdisc_enqueue(&mut self, event: &Event, body: &QdiscBody) -> Joined {
        let Some((slot, half)) = self.carriers.find(&self.checks, body.skb) else { return Joined::Nothing };
        let id = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        let check = &self.checks[slot];
        let leaves = self.leaves_by(slot, half, id) && !check.passed(Stage::PnicXmit);
        let passes = leaves || self.enters_by(slot, half, id) || self.leaves_vm_by(slot, half, id);
        if !passes || check.qdisc().len() >= MAX_STAYS {
            return Joined::Check;
        }
        self.make_room(slot);
        if self.checks[slot].rest().qdisc.capacity() == 0 {
            self.checks[slot].rest().qdisc = self.spare_stays();
        }
        let stay = QdiscStay { entered_at: event.at, entered: *body, left_at: None, left: None };
        self.checks[slot].rest().qdisc.push(stay);
        self.checks[slot].overtaken = false;
        self.came_in(slot, body);
        if leaves && self.checks[slot].perspective == Perspective::Served {
            self.no_grace(slot);
        }
        Joined::Check
    }

    /// A packet left a queueing discipline.
    pub(super) fn qdisc_dequeue(&mut self, event: &Event, body: &QdiscBody) -> Joined {
        let Some((slot, _)) = self.carriers.find(&self.checks, body.skb) else { return Joined::Nothing };
        let stay = self.checks[slot].rest.as_mut().and_then(|rest| rest.qdisc.last_mut());
        let here = |stay: &&mut QdiscStay| stay.left_at.is_none() && stay.entered.ifindex == body.ifindex;
        if let Some(stay) = stay.filter(here) {
            (stay.left_at, stay.left) = (Some(event.at), Some(*body));
            if std::mem::take(&mut self.checks[slot].overtaken) {
                self.no_grace(slot);
            }
            self.went_out(slot, body);
        }
        Joined::Check
    }

    /// The kernel dropped a packet. A datagram's check is lost with it, unless what was dropped is
    /// a copy, which shows when more of the check is seen; a stream sends again. What was not for
    /// this host or for the socket that has the packet is no drop of the check's.
    pub(super) fn dropped(&mut self, event: &Event, body: &DropBody, out: &mut dyn FnMut(Update)) -> Joined {
        let found = self
            .dropped_check(event, body)
            .or_else(|| self.dropped_at_entry(event, body, out))
            .or_else(|| self.dropped_unsent(event, body, out));
        let Some((slot, half, mut carries)) = found else { return Joined::Nothing };
        if self.is_of_no_concern(slot, half, body.reason) {
            self.counts.off_path += 1;
            return Joined::Check;
        }
        let interface = InterfaceId { netns: body.netns, ifindex: body.ifindex };
        let drop = PacketDrop {
            at: event.at,
            reason: body.reason,
            location: body.location,
            interface,
            reply: half == Phase::Reply,
            task: if event.softirq == 0 { event.task } else { TaskId::default() },
            queue: body.queue_mapping.into(),
        };
        let check = &mut self.checks[slot];
        if check.drops().len() < MAX_DROPS {
            check.rest().drops.push(drop.clone());
        }
        // It did not come as far as the listener.
        let here = |refusal: &Refusal| refusal.skb == body.skb && event.at.since(refusal.at) <= MOMENT;
        check.rest().refusals.retain(|refusal| !here(refusal));
        if !check.dies_with(half) {
            return Joined::Check;
        }
        if half == Phase::Reply && check.perspective == Perspective::Served && !check.answered() {
            carries = true;
            check.sent_in_vain(event);
        }
        // By a nonce, what comes later is known to be the same check's.
        let can_go_on = half == Phase::Request && self.rules.nonce[usize::from(check.request.rule) % MAX_RULES];
        if carries && !can_go_on {
            self.end(slot, Outcome::Lost(Loss::Dropped(drop)), event.at, out);
        } else if carries || half == Phase::Request && check.is_at_its_entry() {
            check.doubtful = true;
            self.wait_grace(slot);
        }
        Joined::Check
    }

    /// Whether what was dropped was not for this host, or a copy that no socket took while one did.
    fn is_of_no_concern(&mut self, slot: u32, half: Phase, reason: u32) -> bool {
        let check = &mut self.checks[slot];
        let received = check::received(check.perspective) == half;
        if self.no_socket == Some(reason) {
            return received && check.passed(Stage::SockEnqueue);
        }
        let not_ours = self.not_ours.contains(&reason);
        check.foreign |= not_ours && half == Phase::Request && !check.answered() && check.is_at_its_entry();
        not_ours
    }

    /// A request that came to a NIC of this host and was dropped before it was seen to come in: its
    /// check begins with that.
    fn dropped_at_entry(
        &mut self,
        event: &Event,
        body: &DropBody,
        out: &mut dyn FnMut(Update),
    ) -> Option<(u32, Phase, bool)> {
        let DropBody { skb, netns, ifindex, sighting, .. } = *body;
        let entry = self.interface(InterfaceId { netns, ifindex })?.role == InterfaceRole::PhysicalNic;
        let unseen = self.before_entry.contains(&body.reason) && body.signature_known != DROP_UNPARSED;
        if !(entry && unseen && sighting.role == ROLE_REQUEST) {
            return None;
        }
        let packet = PacketBody { skb, netns, ifindex, queue: 0, sighting, frame_len: 0, softirq_ns: 0 };
        self.packet(event, &packet, true, out);
        self.dropped_check(event, body)
    }

    /// A request of a thread of this host that was dropped in its own call, before any program of ours saw it
    /// leave: its check begins with that.
    fn dropped_unsent(
        &mut self,
        event: &Event,
        body: &DropBody,
        out: &mut dyn FnMut(Update),
    ) -> Option<(u32, Phase, bool)> {
        let DropBody { skb, netns, ifindex, sighting, .. } = body;
        let interface = self.interface(InterfaceId { netns: *netns, ifindex: *ifindex })?;
        let by_a_thread = event.softirq == 0 && event.task.tid != 0;
        let known = body.signature_known != DROP_UNPARSED;
        if !(body.own != 0 && known && by_a_thread && sighting.role == ROLE_REQUEST) {
            return None;
        }
        let slot = self.open_request(sighting, Perspective::Sent, &interface, event.at, out);
        let check = &mut self.checks[slot];
        check.pass(Stage::AppSend, mark(event, 0, 0));
        check.sender = event.task;
        let carrier = &mut check.carriers[Phase::Request as usize];
        carrier.note(sighting);
        carrier.seen_at = event.at;
        self.carriers.set(&mut self.checks, slot, Phase::Request as usize, *skb);
        Some((slot, Phase::Request, true))
    }

    /// The check whose packet was dropped, which half, and whether it is the packet seen last.
    fn dropped_check(&self, event: &Event, body: &DropBody) -> Option<(u32, Phase, bool)> {
        let known = body.signature_known != DROP_UNPARSED;
        let signature = self.signature_of(&body.sighting);
        if let Some((slot, half)) = self.carriers.find(&self.checks, body.skb) {
            let check = &self.checks[slot];
            let same = check.signature == signature && check.request.nonce == body.sighting.nonce;
            // A reply's packet can lie where the request's was, which has been freed.
            let other_half = match body.sighting.role {
                ROLE_REPLY => half != Phase::Reply as usize,
                ROLE_REQUEST => half != Phase::Request as usize,
                _ => false,
            };
            let same = same && !(known && other_half);
            let sure = known && same && self.has_nonce(&body.sighting);
            if sure || (!known || same) && check.has_its_packet(half, event.at) {
                let half = if half == 0 { Phase::Request } else { Phase::Reply };
                return Some((slot, half, true));
            }
        }
        if !known {
            return None;
        }
        let half = if body.sighting.role == ROLE_REPLY { Phase::Reply } else { Phase::Request };
        let chain = self.index.chain(&self.checks, &Key::of(&body.sighting, signature, half == Phase::Request))?;
        let is_it = |slot: &u32| {
            let check = &self.checks[*slot];
            let carrier = &check.carriers[half as usize];
            let by_reader = check.held && check.reader == event.task && event.softirq == 0;
            // What this host sends again is another packet.
            let sent_again = body.own != 0 && body.sighting.protocol == TCP && carrier.seen;
            (sent_again || carrier.ip_id == body.sighting.ip_id) && carrier.tcp_seq == body.sighting.tcp_seq
                || half == Phase::Reply && !carrier.seen && by_reader
        };
        let slot = match self.has_nonce(&body.sighting) {
            true => self.index.oldest(chain),
            false => self.index.checks(chain).find(is_it)?,
        };
        Some((slot, half, false))
    }
}

impl Check {
    /// Whether the loss of this packet is the loss of the check.
    fn dies_with(&self, half: Phase) -> bool {
        match (self.perspective, half) {
            _ if self.request.protocol == TCP => false,
            (Perspective::Served, Phase::Request) => !self.answered() && !self.passed(Stage::SockRead),
            (Perspective::Sent, Phase::Request) => !self.answered(),
            // An echo reply is freed like this once the sockets that wait for it have their copies.
            (Perspective::Sent, Phase::Reply) => self.request.protocol == UDP,
            // So is one for this host itself, from its own VM.
            (Perspective::Served, Phase::Reply) => self.request.protocol == UDP || !self.is_back_from_own_vm(),
        }
    }

    /// Its reply was dropped before any device had it. What a thread dropped in its own call was sent
    /// by it just now.
    fn sent_in_vain(&mut self, event: &Event) {
        if event.softirq == 0 && event.task.tid != 0 && self.request.protocol == UDP && !self.passed(Stage::AppSend) {
            self.pass(Stage::AppSend, mark(event, 0, 0));
            self.sender = event.task;
        }
    }

    /// Whether the address of its packet still means that packet: a freed one is soon another's.
    fn has_its_packet(&self, half: usize, at: MonoNs) -> bool {
        at.since(self.carriers[half].seen_at) <= MOMENT || self.in_qdisc() || self.queued
    }

    /// Whether this host, which asked a VM of its own, has the reply.
    fn is_back_from_own_vm(&self) -> bool {
        self.entry() == Some(Stage::VnicTx) && self.passed(Stage::VnicRx)
    }

    /// Whether its request was seen at one interface and nowhere behind it.
    fn is_at_its_entry(&self) -> bool {
        self.entry() == self.furthest()
    }
}
