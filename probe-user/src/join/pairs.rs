//! Which halves are of one check.
//!
//! A check is known by its nonce if its signature has one, else by the TCP sequence number or the IPv4
//! identification of its request, which stay what they are on the way into a guest, together with its
//! flow. Only a request without any of these is known by its flow alone. Where another check may have
//! the same by chance, as an identification of 16 bits or a flow, a half waits until no more is waited
//! for, and must then be the only one. A half of which there are two is joined to nothing.

use super::stay::Stay;
use super::{Pairing, Side};
use crate::attribution::Judged;
use crate::clock::{DurNs, MonoNs};
use crate::event::RunFact;
use probe_wire::Sighting;
use std::collections::{BTreeMap, HashMap};

/// Halves of a side that may wait; of more, the oldest is given up.
const MOST_WAITING: usize = 1 << 16;
/// Halves with one identity that are told apart by their flow; more fit none.
const REACH: usize = 64;
/// Bytes of a nonce that two checks do not have in common by chance.
const LONG_NONCE: u8 = 4;
const TCP: u8 = 6;

/// What of two recordings can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparable {
    /// Nonces: in a bundle each is replaced by a hash of its own.
    pub nonces: bool,
    /// Addresses: in a bundle each has a pseudonym of its own.
    pub addresses: bool,
}

impl Comparable {
    /// Everything, as of two recordings.
    pub const ALL: Self = Self { nonces: true, addresses: true };
}

/// An address and its port.
type End = ([u8; 16], u16);

/// Whose check it is: client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Flow {
    client: End,
    server: End,
}

/// What tells a check from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Mark {
    /// A nonce; a long one stands for itself, whatever became of one of the addresses.
    Nonce([u8; 16], bool),
    /// Sequence number and length of a segment.
    Tcp(u32, u32),
    /// IPv4 identification.
    Packet(u16),
    /// Its flow, and nothing else.
    Flow(Flow),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    /// Index in the host's list.
    signature: usize,
    protocol: u8,
    mark: Mark,
}

/// A half that waits for the other one.
#[derive(Debug)]
struct Waiting {
    ticket: u64,
    flow: Flow,
    /// IPv4 identification of its request; 0 if it has none.
    ip_id: u16,
    /// Another has the same identity.
    ambiguous: bool,
    half: Box<Judged>,
}

/// Halves with one key, of each side, in the order in which they came.
type Bucket = [Vec<Waiting>; 2];

/// What became of a half.
#[derive(Debug)]
pub(super) enum Resolved {
    /// Host's and guest's are of one check.
    Pair(Box<Judged>, Box<Judged>),
    /// It stays alone.
    Single(Side, Box<Judged>, Pairing),
}

/// What a side's run says of its signatures: name, and bytes of nonce.
type Signatures = Vec<(String, u8)>;

/// Halves on their way to each other.
#[derive(Debug)]
pub(super) struct Pairs {
    comparable: Comparable,
    patience: Option<DurNs>,
    signatures: [Signatures; 2],
    buckets: HashMap<Key, Bucket>,
    /// Keys by ticket, which is the order in which they came, and until when each is known.
    queue: [BTreeMap<u64, (Key, MonoNs)>; 2],
    next: u64,
}

impl Pairs {
    pub(super) fn new(comparable: Comparable, patience: Option<DurNs>) -> Self {
        Self {
            comparable,
            patience,
            signatures: [Vec::new(), Vec::new()],
            buckets: HashMap::new(),
            queue: [BTreeMap::new(), BTreeMap::new()],
            next: 0,
        }
    }

    pub(super) fn learn(&mut self, side: Side, run: &RunFact) {
        let nonce_len = |rules: &[probe_wire::Rule]| rules.iter().map(|rule| rule.nonce_len).min().unwrap_or(0);
        let signatures = run.signatures.iter().map(|signature| (signature.name.clone(), nonce_len(&signature.rules)));
        self.signatures[side as usize] = signatures.collect();
    }

    pub(super) fn waiting(&self, side: Side) -> usize {
        self.queue[side as usize].len()
    }

    /// Takes a judged check in, or gives it back if it is no half.
    pub(super) fn push(
        &mut self,
        side: Side,
        half: Box<Judged>,
        out: &mut impl FnMut(Resolved),
    ) -> Option<Box<Judged>> {
        let stay = match side {
            Side::Host => Stay::with_vm(&half.journey),
            Side::Guest => Stay::in_guest(&half.journey),
        };
        let Some((key, flow)) = stay.and_then(|_| self.identity(side, &half)) else { return Some(half) };
        let at = half.journey.known_until;
        self.enter(side, key, flow, half, out);
        if side == Side::Host {
            self.lose_patience(at, out);
        }
        if self.waiting(side) > MOST_WAITING {
            self.settle_oldest(side, out);
        }
        None
    }

    fn identity(&self, side: Side, half: &Judged) -> Option<(Key, Flow)> {
        let request = &half.journey.request;
        let (name, nonce_len) = self.signatures[side as usize].get(half.journey.signature)?;
        let signature = self.signatures[Side::Host as usize].iter().position(|(known, _)| known == name)?;
        let flow = self.flow(request);
        let mark = self.mark(request, *nonce_len, flow);
        Some((Key { signature, protocol: request.protocol, mark }, flow))
    }

    fn flow(&self, request: &Sighting) -> Flow {
        let end = |address, port| (if self.comparable.addresses { address } else { [0; 16] }, port);
        Flow {
            client: end(request.source, request.source_port),
            server: end(request.destination, request.destination_port),
        }
    }

    const fn mark(&self, request: &Sighting, nonce_len: u8, flow: Flow) -> Mark {
        if nonce_len > 0 && self.comparable.nonces {
            return Mark::Nonce(request.nonce, nonce_len >= LONG_NONCE);
        }
        match request {
            Sighting { protocol: TCP, tcp_seq, payload_len, .. } => Mark::Tcp(*tcp_seq, *payload_len),
            Sighting { ip_id: 0, .. } => Mark::Flow(flow),
            Sighting { ip_id, .. } => Mark::Packet(*ip_id),
        }
    }

    /// Joins a half to the one that waits for it, or has it wait.
    fn enter(&mut self, side: Side, key: Key, flow: Flow, half: Box<Judged>, out: &mut impl FnMut(Resolved)) {
        let (own, other) = (side as usize, 1 - side as usize);
        let bucket = self.buckets.entry(key).or_default();
        let same = |waiting: &Waiting| waiting.flow == flow;
        let twice = bucket[own].iter().any(same);
        if twice {
            bucket.iter_mut().flatten().filter(|waiting| same(waiting)).for_each(|waiting| waiting.ambiguous = true);
        }
        if bucket[own].len() >= REACH {
            return out(Resolved::Single(side, half, Pairing::Ambiguous));
        }
        let ambiguous = twice || bucket[other].iter().any(|waiting| same(waiting) && waiting.ambiguous);
        let at_once = key.mark.is_rare() && !ambiguous;
        let partner = bucket[other].iter().find(|waiting| at_once && same(waiting));
        let partner = partner.map(|waiting| waiting.ticket);
        match partner.and_then(|ticket| self.leave(other, ticket, &key)) {
            Some(partner) => out(pair(side, half, partner.half)),
            None => {
                let ip_id = half.journey.request.ip_id;
                self.wait(side, key, Waiting { ticket: self.next, flow, ip_id, ambiguous, half });
            }
        }
    }

    fn wait(&mut self, side: Side, key: Key, waiting: Waiting) {
        self.next += 1;
        self.queue[side as usize].insert(waiting.ticket, (key, waiting.half.journey.known_until));
        self.buckets.entry(key).or_default()[side as usize].push(waiting);
    }

    /// Takes a half out, if it is still there.
    fn leave(&mut self, side: usize, ticket: u64, key: &Key) -> Option<Waiting> {
        self.queue[side].remove(&ticket);
        let bucket = self.buckets.get_mut(key)?;
        let place = bucket[side].iter().position(|waiting| waiting.ticket == ticket)?;
        let waiting = bucket[side].remove(place);
        if bucket.iter().all(Vec::is_empty) {
            self.buckets.remove(key);
        }
        Some(waiting)
    }

    /// Gives up on halves of the host that have waited for long.
    fn lose_patience(&mut self, now: MonoNs, out: &mut impl FnMut(Resolved)) {
        let Some(patience) = self.patience else { return };
        let waited = |(_, (_, at)): &(&u64, &(Key, MonoNs))| now.since(*at) >= patience;
        while self.queue[Side::Host as usize].first_key_value().is_some_and(|first| waited(&first)) {
            self.settle_oldest(Side::Host, out);
        }
    }

    fn settle_oldest(&mut self, side: Side, out: &mut impl FnMut(Resolved)) {
        if let Some((ticket, (key, _))) = self.queue[side as usize].pop_first() {
            self.settle(side, ticket, &key, out);
        }
    }

    /// A half that waits no longer: the only one that can be meant is its other half, though a
    /// translation of addresses lies between, or though nothing but its flow tells it.
    fn settle(&mut self, side: Side, ticket: u64, key: &Key, out: &mut impl FnMut(Resolved)) {
        let Some(waiting) = self.leave(side as usize, ticket, key) else { return };
        match self.fitting(side, &waiting, key) {
            _ if waiting.ambiguous => out(Resolved::Single(side, waiting.half, Pairing::Ambiguous)),
            Fitting::One(partner) => out(pair(side, waiting.half, partner.half)),
            Fitting::None => out(Resolved::Single(side, waiting.half, Pairing::Alone)),
            Fitting::Several => out(Resolved::Single(side, waiting.half, Pairing::Ambiguous)),
        }
    }

    /// What of the other side fits, when no more is waited for. What fits several is ambiguous.
    fn fitting(&mut self, side: Side, waiting: &Waiting, key: &Key) -> Fitting {
        let (own, other) = (side as usize, 1 - side as usize);
        let Some(bucket) = self.buckets.get_mut(key) else { return Fitting::None };
        let fits = |one: &Waiting| key.mark.fits(waiting, one);
        let candidates: Vec<&Waiting> = bucket[other].iter().filter(|one| fits(one)).collect();
        let is_rival = |rival: &Waiting| candidates.iter().any(|one| key.mark.fits(rival, one));
        let rivals: Vec<u64> = bucket[own].iter().filter(|one| is_rival(one)).map(|one| one.ticket).collect();
        match candidates.as_slice() {
            [] => return Fitting::None,
            [only] if rivals.is_empty() && !only.ambiguous && !waiting.ambiguous => {
                let ticket = only.ticket;
                return self.leave(other, ticket, key).map_or(Fitting::None, Fitting::One);
            }
            _ => {}
        }
        bucket[own].iter_mut().filter(|one| rivals.contains(&one.ticket)).for_each(|one| one.ambiguous = true);
        bucket[other].iter_mut().filter(|one| fits(one)).for_each(|one| one.ambiguous = true);
        Fitting::Several
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self, out: &mut impl FnMut(Resolved)) {
        for side in [Side::Host, Side::Guest] {
            while !self.queue[side as usize].is_empty() {
                self.settle_oldest(side, out);
            }
        }
    }
}

impl Mark {
    /// Whether no other check has it by chance. What comes again, a small number or a flow, is joined
    /// only when it is known that neither half has it twice.
    const fn is_rare(&self) -> bool {
        matches!(self, Self::Nonce(_, true) | Self::Tcp(..))
    }

    /// Whether two halves can be of one check. With a long nonce, one translation of addresses may lie
    /// between; two clients that count from 1 look like that too, but for the number of the packet.
    fn fits(&self, one: &Waiting, other: &Waiting) -> bool {
        let same_packet = one.ip_id != 0 && one.ip_id == other.ip_id;
        let translated = one.flow.client == other.flow.client || one.flow.server == other.flow.server && same_packet;
        one.flow == other.flow || matches!(self, Self::Nonce(_, true)) && translated
    }
}

/// What of the other side fits a half.
enum Fitting {
    None,
    One(Waiting),
    Several,
}

const fn pair(side: Side, half: Box<Judged>, other: Box<Judged>) -> Resolved {
    match side {
        Side::Host => Resolved::Pair(half, other),
        Side::Guest => Resolved::Pair(other, half),
    }
}
