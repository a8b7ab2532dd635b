//! Which reply answers which request, in one file that holds both directions.
//!
//! Good enough to try a signature; journeys have their own correlator, which knows interfaces.

use std::collections::{HashMap, HashSet, VecDeque};

use probe_wire::{ROLE_EITHER, ROLE_REQUEST, Sighting};

/// Open requests, and flows, that are remembered at most.
const MAX_REMEMBERED: usize = 1 << 16;
/// Open requests of one key whose times are remembered at most.
const MAX_TIMES: usize = 1 << 10;

/// One direction between two sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Flow {
    from: ([u8; 16], u16),
    to: ([u8; 16], u16),
    protocol: u8,
}

impl Flow {
    fn of(sighting: &Sighting) -> Self {
        Flow {
            from: (sighting.source, sighting.source_port),
            to: (sighting.destination, sighting.destination_port),
            protocol: sighting.protocol,
        }
    }

    fn reversed(self) -> Self {
        Flow { from: self.to, to: self.from, protocol: self.protocol }
    }
}

type Key = (Flow, [u8; 16]);

/// Requests that wait for their reply; of one key more than one if there is no nonce.
#[derive(Debug, Default, Clone)]
struct Open {
    count: u64,
    last_tcp_seq: u32,
    /// When each was seen first, oldest first.
    times_ns: VecDeque<u64>,
}

/// What a packet is to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// A new request.
    Request,
    /// A request that is already open.
    Repeated,
    /// A request that cannot be remembered.
    Untracked,
    /// The reply to an open request, and what it took where that is known.
    Answer { took_ns: Option<u64> },
    /// A reply to none.
    Unasked,
}

/// The open requests of one signature.
#[derive(Debug, Default)]
pub(super) struct Pairing {
    open: HashMap<Key, Open>,
    flows: HashSet<Flow>,
}

impl Pairing {
    pub(super) fn flows(&self) -> u64 {
        self.flows.len() as u64
    }

    pub(super) fn push(&mut self, sighting: &Sighting, has_nonce: bool, at_ns: u64) -> Part {
        let flow = Flow::of(sighting);
        let asked = (flow.reversed(), sighting.nonce);
        let is_request = match sighting.role {
            ROLE_REQUEST => true,
            ROLE_EITHER => !self.open.contains_key(&asked),
            _ => false,
        };
        let asking = if is_request { flow } else { flow.reversed() };
        if self.flows.len() < MAX_REMEMBERED {
            self.flows.insert(asking);
        }
        match is_request {
            true => self.request((flow, sighting.nonce), sighting.tcp_seq, has_nonce, at_ns),
            false => self.reply(asked, at_ns),
        }
    }

    fn request(&mut self, key: Key, tcp_seq: u32, has_nonce: bool, at_ns: u64) -> Part {
        let full = self.open.len() >= MAX_REMEMBERED;
        match self.open.get_mut(&key) {
            // one sequence number twice is a retransmission
            Some(open) if has_nonce || (tcp_seq != 0 && open.last_tcp_seq == tcp_seq) => Part::Repeated,
            Some(open) => {
                open.count += 1;
                open.last_tcp_seq = tcp_seq;
                if open.times_ns.len() < MAX_TIMES {
                    open.times_ns.push_back(at_ns);
                }
                Part::Request
            }
            None if full => Part::Untracked,
            None => {
                let last_tcp_seq = tcp_seq;
                self.open.insert(key, Open { count: 1, last_tcp_seq, times_ns: VecDeque::from([at_ns]) });
                Part::Request
            }
        }
    }

    fn reply(&mut self, asked: Key, at_ns: u64) -> Part {
        let Some(open) = self.open.get_mut(&asked) else {
            return Part::Unasked;
        };
        open.count -= 1;
        // Two captures merged can hold a reply before its request; that has no time.
        let took_ns = open.times_ns.pop_front().and_then(|asked_ns| at_ns.checked_sub(asked_ns));
        if open.count == 0 {
            self.open.remove(&asked);
        }
        Part::Answer { took_ns }
    }
}
