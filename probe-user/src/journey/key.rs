//! Which open check a packet belongs to, as far as its bytes tell.
//!
//! A key is (signature, nonce, client, server); a second kind has the nonce alone, for packets
//! whose addresses were translated on the way. Every key has the chain of the open checks that
//! have it, oldest first. A chain does not keep its key, but only the hash: the key is that of any
//! of its members, and nearly always written in the member's own request.

use super::check::Check;
use super::slab::{NONE, Slab};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use probe_wire::Sighting;
use std::hash::BuildHasher;

/// Chain members looked at for one packet; beyond it a packet counts as fitting none, so that a
/// hostile flow cannot stall the collector.
pub(super) const REACH: usize = 64;

/// Stages that a chain keeps its place for.
const PLACES: usize = 12;

/// Address and port.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Endpoint {
    address: [u8; 16],
    port: u16,
}

/// What packets of one check have in common.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    client: Endpoint,
    server: Endpoint,
    nonce: [u8; 16],
    signature: u8,
    protocol: u8,
    /// The nonce alone: both endpoints are zeros.
    anywhere: bool,
}

impl Key {
    /// The key of a packet, read as going to the server or coming from it.
    pub(super) const fn of(sighting: &Sighting, signature: u8, to_server: bool) -> Self {
        let source = Endpoint { address: sighting.source, port: sighting.source_port };
        let destination = Endpoint { address: sighting.destination, port: sighting.destination_port };
        let (client, server) = if to_server { (source, destination) } else { (destination, source) };
        let (nonce, protocol) = (sighting.nonce, sighting.protocol);
        Self { client, server, nonce, signature, protocol, anywhere: false }
    }

    /// The same without endpoints.
    pub(super) fn anywhere(self) -> Self {
        Self { client: Endpoint::default(), server: Endpoint::default(), anywhere: true, ..self }
    }

    /// Whether one end is the same, so that one translation can lie between the two.
    pub(super) fn shares_an_end(&self, other: &Self) -> bool {
        self.client == other.client || self.server == other.server
    }
}

/// Half of a key's hash, which is as much as the table's places and marks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hash(u32);

impl Hash {
    /// Its halves lie where the table takes places and marks from.
    const fn whole(self) -> u64 {
        (self.0 as u64) << 32 | self.0 as u64
    }
}

/// The open checks of one key.
#[derive(Debug)]
struct Chain {
    hash: Hash,
    first: u32,
    last: u32,
    /// Row of `places`, taken when first asked for.
    places: u32,
}

/// A check's membership in a chain.
#[derive(Debug, Clone, Copy)]
struct Member {
    check: u32,
    chain: u32,
    prev: u32,
    next: u32,
    /// [`REQUEST`], [`NONCE`], or a slot of `translated`.
    key: u32,
}

/// A member whose key is that of its check's request.
const REQUEST: u32 = u32::MAX;
/// A member whose key is the nonce of its check's request.
const NONCE: u32 = u32::MAX - 1;

/// All keys of all open checks.
#[derive(Debug)]
pub(super) struct Index {
    hasher: RandomState,
    table: HashTable<u32>,
    chains: Slab<Chain>,
    members: Slab<Member>,
    /// Keys behind a translation of addresses.
    translated: Slab<Key>,
    /// Per chain and stage: the first member that may not have passed it.
    places: Slab<[u32; PLACES]>,
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            table: HashTable::new(),
            chains: Slab::new(),
            members: Slab::new(),
            translated: Slab::new(),
            places: Slab::new(),
        }
    }

    /// The chain of a key, if any open check has it.
    pub(super) fn chain(&self, checks: &Slab<Check>, key: &Key) -> Option<u32> {
        self.chain_by_hash(checks, key, self.hash(key))
    }

    fn hash(&self, key: &Key) -> Hash {
        Hash((self.hasher.hash_one(key) >> 32) as u32)
    }

    fn chain_by_hash(&self, checks: &Slab<Check>, key: &Key, hash: Hash) -> Option<u32> {
        let is_it = |chain: &u32| {
            let chain = &self.chains[*chain];
            chain.hash == hash && self.key(checks, chain.first) == *key
        };
        self.table.find(hash.whole(), is_it).copied()
    }

    /// The key of a membership.
    pub(super) fn key(&self, checks: &Slab<Check>, member: u32) -> Key {
        let Member { check, key, .. } = self.members[member];
        let request = || Key::of(&checks[check].request, checks[check].signature, true);
        match key {
            REQUEST => request(),
            NONCE => request().anywhere(),
            translated => self.translated[translated],
        }
    }

    /// The oldest check of a chain.
    pub(super) fn oldest(&self, chain: u32) -> u32 {
        self.members[self.chains[chain].first].check
    }

    /// The first checks of a chain, oldest first, at most [`REACH`].
    pub(super) fn checks(&self, chain: u32) -> impl Iterator<Item = u32> {
        self.walk(self.chains[chain].first)
    }

    /// The newest checks of a chain, newest first, at most [`REACH`].
    pub(super) fn newest(&self, chain: u32) -> impl Iterator<Item = u32> {
        let last = self.chains[chain].last;
        std::iter::successors(self.members.get(last), |member| self.members.get(member.prev))
            .take(REACH)
            .map(|member| member.check)
    }

    /// Checks of a chain from the first one on that has not `passed` the stage number `place`, at
    /// most [`REACH`]. All before it have, which is remembered: a stage costs a check one step.
    pub(super) fn not_passed(
        &mut self,
        chain: u32,
        place: usize,
        passed: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = u32> {
        let row = self.places_of(chain);
        let mut member = self.places[row][place];
        while let Some(at) = self.members.get(member).filter(|at| passed(at.check)) {
            member = at.next;
        }
        self.places[row][place] = member;
        self.walk(member)
    }

    fn walk(&self, member: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(self.members.get(member), |member| self.members.get(member.next))
            .take(REACH)
            .map(|member| member.check)
    }

    fn places_of(&mut self, chain: u32) -> u32 {
        let row = self.chains[chain].places;
        if row != NONE {
            return row;
        }
        let row = self.places.take([self.chains[chain].first; PLACES]);
        self.chains[chain].places = row;
        row
    }

    /// Adds a check under the key of its request.
    pub(super) fn add_request(&mut self, checks: &Slab<Check>, check: u32) -> u32 {
        let key = Key::of(&checks[check].request, checks[check].signature, true);
        self.add(checks, &key, check, REQUEST)
    }

    /// Adds a check under its nonce alone.
    pub(super) fn add_nonce(&mut self, checks: &Slab<Check>, check: u32) -> u32 {
        let key = Key::of(&checks[check].request, checks[check].signature, true).anywhere();
        self.add(checks, &key, check, NONCE)
    }

    /// Adds a check under a key that its request does not have.
    pub(super) fn add_translated(&mut self, checks: &Slab<Check>, key: Key, check: u32) -> u32 {
        let place = self.translated.take(key);
        self.add(checks, &key, check, place)
    }

    /// Adds a check to the end of a key's chain and gives the membership.
    fn add(&mut self, checks: &Slab<Check>, key: &Key, check: u32, place: u32) -> u32 {
        let hash = self.hash(key);
        let chain = self.chain_by_hash(checks, key, hash).unwrap_or_else(|| self.new_chain(hash));
        let last = self.chains[chain].last;
        let member = self.members.take(Member { check, chain, prev: last, next: NONE, key: place });
        match last {
            NONE => self.chains[chain].first = member,
            last => self.members[last].next = member,
        }
        self.chains[chain].last = member;
        let row = self.chains[chain].places;
        if row != NONE {
            self.places[row].iter_mut().filter(|place| **place == NONE).for_each(|place| *place = member);
        }
        member
    }

    fn new_chain(&mut self, hash: Hash) -> u32 {
        let chain = self.chains.take(Chain { hash, first: NONE, last: NONE, places: NONE });
        let chains = &self.chains;
        self.table.insert_unique(hash.whole(), chain, |&chain| chains[chain].hash.whole());
        chain
    }

    /// Ends a membership; a chain without members goes away.
    pub(super) fn remove(&mut self, member: u32) {
        let Member { chain, prev, next, key, .. } = self.members[member];
        if !matches!(key, REQUEST | NONCE) {
            self.translated.release(key);
        }
        match prev {
            NONE => self.chains[chain].first = next,
            prev => self.members[prev].next = next,
        }
        match next {
            NONE => self.chains[chain].last = prev,
            next => self.members[next].prev = prev,
        }
        let row = self.chains[chain].places;
        if row != NONE {
            self.places[row].iter_mut().filter(|place| **place == member).for_each(|place| *place = next);
        }
        self.members.release(member);
        if self.chains[chain].first == NONE {
            self.remove_chain(chain);
        }
    }

    fn remove_chain(&mut self, chain: u32) {
        if let Ok(entry) = self.table.find_entry(self.chains[chain].hash.whole(), |&other| other == chain) {
            entry.remove();
        }
        if self.chains[chain].places != NONE {
            self.places.release(self.chains[chain].places);
        }
        self.chains.release(chain);
    }
}
