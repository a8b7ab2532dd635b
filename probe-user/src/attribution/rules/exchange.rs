//! `dependency.*`, and the rest of a request: waits for what others send over the network.
//!
//! A packet of the exchange that this host dropped beats the wait for whoever sent it.

use super::drops;
use super::thread::Role;
use super::transmit::{self, NOTICEABLE};
use super::wait::Sleep;
use crate::attribution::cause::Cause;
use crate::attribution::evidence::OtherSocket;
use crate::attribution::flow::{Flow, FlowDrop};
use crate::attribution::held::HeldBy;
use crate::attribution::ledger::Offender;
use crate::attribution::piece::{Charge, Piece};
use crate::attribution::thread::{Call, NextCall, Wake};
use crate::clock::{DurNs, MonoNs};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Port of DNS servers.
const DNS: u32 = 53;
const UDP: u32 = 17;

/// Kernel functions in which event loops wait.
const LOOPS: [&str; 3] = ["ep_poll", "do_epoll", "io_cqring"];

/// How long the window that a send call met counts for a later one.
const SENDS_KEPT: DurNs = DurNs::from_secs(1);

/// More data on the check's own connection ended the wait.
const REST_LATE: &str = "it had read a part of what the connection brought, and waited until more came: whether the \
                         sender, the network or a queue of this host made that late is not known";
/// The same on a socket where anyone may send.
const ANOTHER_DATAGRAM: &str =
    "asleep until another datagram came to the check's socket: whether the check needed it is not known";

impl<'a> Sleep<'a> {
    /// What the wait is, if it was for more of the request, or for another service that did not
    /// answer in time.
    pub(super) fn exchange(&self) -> Option<Vec<Piece>> {
        if self.more() {
            return Some(if self.seat.own.stream { self.rest() } else { self.unknown(ANOTHER_DATAGRAM) });
        }
        self.given_up().or_else(|| self.unanswered()).or_else(|| self.rest_dropped())
    }

    /// The rest of a request came late. It was late outside if nothing on this host lies before the
    /// socket that could have kept it, and the thread answered as soon as it had it.
    fn rest(&self) -> Vec<Piece> {
        let own = self.seat.own;
        let needed = own.answered_after.is_some() && own.answered_after == self.blocked.wake.map(|wake| wake.at);
        let dropped = self.evidence.flow_drop(&own.flow, own.since, self.at.to).filter(|drop| drop.incoming);
        match dropped {
            Some(drop) => self.dropped(drop, "a packet of the check's connection", |to| self.late_outside(to)),
            None if needed && own.direct && !self.evidence.drops_untold(own.since, self.at.to) => {
                self.late_outside(self.at.to)
            }
            None => self.unknown(REST_LATE),
        }
    }

    /// The wait up to `to` is the sender's or the network's.
    fn late_outside(&self, to: MonoNs) -> Vec<Piece> {
        let fact = "a part of the request had been read, and the rest came late; no drop of it was seen before";
        let charge = Charge::new(Cause::ExternalOutsideHost, None, fact).with(Some(self.fact()));
        vec![Piece::charged(self.at.from, to, self.seat.span, charge)]
    }

    /// Back in its receive call, after a packet of the check's connection was dropped and nothing
    /// more has come.
    fn rest_dropped(&self) -> Option<Vec<Piece>> {
        let own = self.seat.own;
        if self.seat.role != Role::Server || !own.stream || !self.back_to_work() || self.works_elsewhere() {
            return None;
        }
        let drop = self.evidence.flow_drop(&own.flow, own.since, self.at.to).filter(|drop| drop.incoming)?;
        Some(self.dropped(drop, "a packet of the check's connection", |to| {
            vec![Piece::unexplained(self.at.from, to, self.seat.span, REST_LATE)]
        }))
    }

    /// From a drop on is the drop's, and what was before it is `before`'s.
    fn dropped(&self, drop: &FlowDrop, packet: &str, before: impl FnOnce(MonoNs) -> Vec<Piece>) -> Vec<Piece> {
        let (evidence, at, span) = (self.evidence, self.at, self.seat.span);
        let from = drop.at.max(at.from);
        let mut pieces = if at.from < from { before(from) } else { Vec::new() };
        let what = drops::sentence(evidence, packet, drop.reason, drop.location);
        pieces.push(match drops::told(evidence, drop.reason, drop.location) {
            Some(cause) => {
                let known = drop.interface.ifindex != 0;
                let device = if known { evidence.interface(drop.interface) } else { String::new() };
                let offender = known.then(|| Offender { device, ..Offender::default() });
                let charge = self.seat.leaf(cause, offender, what).with(Some(self.fact()));
                Piece::charged(from, at.to, span, charge)
            }
            None => Piece::unexplained(from, at.to, span, format!("{what}, which proves no cause")),
        });
        pieces
    }

    /// The socket whose data ended the wait, if the thread had asked there: its last call on it was
    /// to send, and its first call after the wait received from it. A resolver sends two questions
    /// on one socket, and waits for two answers.
    pub(super) fn answer(&self) -> Option<&'a OtherSocket> {
        let life = self.evidence.life_at(self.seat.task, self.at.to)?;
        let call = match self.next_call()? {
            NextCall::Other(call) if call.received => call,
            _ => return None,
        };
        let socket = self.evidence.asking(call.socket)?;
        let again = || socket.remote_port == DNS && self.last_call().is_some_and(|last| last.socket == call.socket);
        (life.asked(call.socket, self.blocked.from) || again()).then_some(socket)
    }

    /// Another service answered. A datagram socket that is not connected may ask anyone, name
    /// servers too.
    pub(super) fn dependency(&self) -> Vec<Piece> {
        match self.answer() {
            Some(OtherSocket { remote_port: 0, protocol: UDP, .. }) => self.unknown(format!(
                "asleep in {} for an answer on a socket that is not connected: whose is not known",
                self.frame
            )),
            Some(socket) => self.asked(socket, format!("it had asked {}, and read the answer there", peer(socket))),
            None => self.unknown(format!("asleep in {}, on a socket that is not known", self.frame)),
        }
    }

    /// A wait that its own timeout ended, between two questions to the same service.
    fn given_up(&self) -> Option<Vec<Piece>> {
        self.blocked.wake.filter(|wake| Wake::by_timer(wake))?;
        let NextCall::Other(again) = self.next_call()? else { return None };
        let before = self.evidence.asking(self.last_call()?.socket)?;
        let after = self.evidence.asking(again.socket)?;
        if again.received || !same_service(before, after) || before.remote_port == 0 {
            return None;
        }
        let fact = format!("no answer from {} in {}; it asked again", peer(before), self.at.time());
        Some(self.asked(before, fact))
    }

    /// Questions that are still open. Who sends and never reads may not wait for an answer, unless
    /// answers have come there before; name servers are always waited for.
    fn unanswered(&self) -> Option<Vec<Piece>> {
        // An event loop may have asked for another check.
        if self.blocked.wake.is_some() || LOOPS.iter().any(|name| self.frame.contains(name)) {
            return None;
        }
        let last = self.last_call().filter(|call| !call.received && call.last >= self.asked_since());
        let last = last.and_then(|call| self.evidence.asking(call.socket)).filter(|socket| socket.remote_port != 0);
        if let Some(socket) = last.filter(|socket| !is_awaited(socket)) {
            let who = peer(socket);
            return Some(self.unknown(format!(
                "it has sent to {who}, from where nothing has come yet: whether it waits for that is not known"
            )));
        }
        let open = self.open_questions();
        match open.as_slice() {
            [] => None,
            [socket] => Some(self.asked(socket, format!("it has asked {}, and has had no answer yet", peer(socket)))),
            several => Some(self.asked_several(several)),
        }
    }

    /// The services that the thread has asked and that have not answered, the last asked first.
    fn open_questions(&self) -> Vec<&'a OtherSocket> {
        let Some(life) = self.evidence.life_at(self.seat.task, self.at.to) else { return Vec::new() };
        let sockets = life.open_questions(self.asked_since(), self.blocked.from);
        let mut open: Vec<&OtherSocket> = Vec::new();
        for socket in sockets.into_iter().filter_map(|socket| self.evidence.asking(socket)) {
            if is_awaited(socket) && !open.iter().any(|other| same_service(other, socket)) {
                open.push(socket);
            }
        }
        open
    }

    /// A wait for one of several services, or all: which is not known, and whose fault it is only
    /// if they are of one kind and no packet of theirs was dropped here.
    fn asked_several(&self, several: &[&OtherSocket]) -> Vec<Piece> {
        let names: Vec<String> = several.iter().map(|socket| peer(socket)).collect();
        let fact = format!("it has asked {}, and has had no answer of them yet", names.join(" and "));
        let since = self.asked_since();
        let dropped = several.iter().any(|socket| self.evidence.flow_drop(&flow(socket), since, self.at.to).is_some());
        let cause = of_service(several.first().map_or(0, |socket| socket.remote_port));
        let alike = several.iter().all(|socket| of_service(socket.remote_port) == cause);
        if dropped || !alike || self.evidence.drops_crowded(since, self.at.to) {
            return self.unknown(format!("{fact}; for which of them it waits is not known"));
        }
        let thread = self.evidence.offender(self.seat.task, self.at.to);
        let offender = Offender { device: names.join(" or "), ..thread };
        let charge = self.seat.leaf(cause, Some(offender), fact).with(Some(self.fact()));
        vec![Piece::charged(self.at.from, self.at.to, self.seat.span, charge)]
    }

    /// From when on a question counts as the wait's. Who serves the check asked for it after it had
    /// come; of others, only a question right before the wait is known to be what it is for.
    fn asked_since(&self) -> MonoNs {
        match self.seat.role {
            Role::Server => self.seat.own.since,
            Role::Reader | Role::Peer => self.blocked.from.before(NOTICEABLE),
        }
    }

    /// Whether the thread sent on the check's own connection before the wait.
    pub(super) fn has_sent(&self) -> bool {
        let own = self.seat.own;
        let last = self.last_call().filter(|call| call.last >= own.since);
        own.stream && last.is_some_and(|call| !call.received && call.socket == own.socket)
    }

    /// A send queue is full. The next call tells on which socket; of the check's own, what the last
    /// send call left tells why.
    pub(super) fn send_buffer(&self) -> Vec<Piece> {
        if let Some(NextCall::Other(call)) = self.next_call()
            && !call.received
            && let Some(socket) = self.evidence.asking(call.socket)
        {
            return self.asked(socket, format!("it sends to {}, which takes no more", peer(socket)));
        }
        // Of a datagram socket, this host holds the packets that fill its buffer.
        if !self.frame.starts_with("sk_stream_wait") {
            return self.meant(Cause::AppSocketQueue, None, "a send queue is full");
        }
        let earlier = self.blocked.from.before(SENDS_KEPT);
        let held = self.evidence.held_send(self.seat.task, earlier, self.blocked.from);
        match held.filter(|held| held.by() == HeldBy::Window) {
            Some(held) => {
                let charge = self.seat.leaf(Cause::ExternalOutsideHost, None, self.fact());
                let charge = charge.with(Some(transmit::window(held))).meaning(transmit::NOT_READ);
                vec![Piece::charged(self.at.from, self.at.to, self.seat.span, charge)]
            }
            None => self.unknown(format!(
                "asleep in {}, for room in a send queue: whether the peer does not read or the network is slow \
                 is not known",
                self.frame
            )),
        }
    }

    /// The wait for an answer, up to a drop of question or answer on this host.
    fn asked(&self, socket: &OtherSocket, fact: String) -> Vec<Piece> {
        let flow = flow(socket);
        let charge = |to| {
            let cause = of_service(socket.remote_port);
            let thread = self.evidence.offender(self.seat.task, self.at.to);
            let offender = Offender { device: peer(socket), ..thread };
            let charge = self.seat.leaf(cause, Some(offender), fact.clone()).with(Some(self.fact()));
            vec![Piece::charged(self.at.from, to, self.seat.span, charge)]
        };
        let since = self.blocked.from.before(NOTICEABLE);
        match self.evidence.flow_drop(&flow, since, self.at.to) {
            Some(drop) if drop.incoming => self.dropped(drop, &format!("the answer of {}", peer(socket)), charge),
            Some(drop) => self.dropped(drop, &format!("the question to {}", peer(socket)), charge),
            None if self.evidence.drops_crowded(since, self.at.to) => self.unknown(format!(
                "{fact}; more packets were dropped on this host then than were told, which may have been these"
            )),
            None => charge(self.at.to),
        }
    }

    /// The thread's last call before the wait on a socket without checks.
    fn last_call(&self) -> Option<&'a Call> {
        self.evidence.life_at(self.seat.task, self.at.to)?.last_call_before(self.blocked.from)
    }
}

/// Whether a question there is surely waited for.
const fn is_awaited(socket: &OtherSocket) -> bool {
    socket.remote_port == DNS || (socket.answered && socket.remote_port != 0)
}

const fn of_service(remote_port: u32) -> Cause {
    if remote_port == DNS { Cause::DependencyDns } else { Cause::DependencyRemote }
}

fn same_service(one: &OtherSocket, other: &OtherSocket) -> bool {
    (one.remote_port, one.protocol, one.peer) == (other.remote_port, other.protocol, other.peer)
}

fn flow(socket: &OtherSocket) -> Flow {
    Flow {
        peer: socket.peer,
        peer_port: u16::try_from(socket.remote_port).unwrap_or(0),
        local_port: u16::try_from(socket.local_port).unwrap_or(0),
        protocol: u8::try_from(socket.protocol).unwrap_or(0),
    }
}

/// `10.0.0.53:53`, or the port alone where the address is not known.
fn peer(socket: &OtherSocket) -> String {
    let address = Ipv6Addr::from(socket.peer);
    if address.is_unspecified() {
        return format!("port {}", socket.remote_port);
    }
    let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
    SocketAddr::new(address, u16::try_from(socket.remote_port).unwrap_or(0)).to_string()
}
