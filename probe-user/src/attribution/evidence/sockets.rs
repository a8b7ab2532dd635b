//! Sockets: those that carry checks, and those on which watched processes ask others.

use super::Evidence;
use crate::attribution::thread::{Call, Data, Mark};
use crate::clock::MonoNs;
use crate::event::{Event, TaskId};
use probe_wire::{OtherCallBody, OtherPeerBody, SockCallBody, SockEnqueueBody};

/// Most sockets kept.
const MAX_SOCKETS: usize = 65_536;
const TCP: u32 = 6;
const MSG_PEEK: u32 = 2;

/// What is known of a watched socket.
#[derive(Debug, Clone, Copy)]
pub(in crate::attribution) struct Socket {
    /// Who read from it last; zeros if nobody was seen.
    pub(in crate::attribution) reader: TaskId,
    /// More than one thread has read from it.
    pub(in crate::attribution) shared: bool,
    /// When it was used last.
    pub(in crate::attribution) used: MonoNs,
    /// Bytes of receive memory charged to it when data last came.
    pub(in crate::attribution) receive_bytes: u32,
    /// Its receive limit, bytes.
    pub(in crate::attribution) receive_limit_bytes: u32,
}

/// What is known of a socket of a watched process that carries no checks.
#[derive(Debug, Clone, Copy)]
pub(in crate::attribution) struct OtherSocket {
    /// The first that was seen of it is that data came: the peer asks there, and not this host.
    pub(in crate::attribution) serves: bool,
    pub(in crate::attribution) protocol: u32,
    pub(in crate::attribution) local_port: u32,
    /// 0 if it is not connected.
    pub(in crate::attribution) remote_port: u32,
    /// Address of whom it is connected to; zeros if that is not known.
    pub(in crate::attribution) peer: [u8; 16],
    /// An answer has come there.
    pub(in crate::attribution) answered: bool,
    used: MonoNs,
}

impl Evidence {
    /// Of too many sockets, those used longest ago go.
    pub(super) fn trim_sockets(&mut self) {
        if self.others.len() > MAX_SOCKETS / 2 {
            let cut = median(self.others.values().map(|socket| socket.used));
            self.others.retain(|_, socket| socket.used > cut);
            let others = &self.others;
            self.peers.retain(|cookie, _| others.contains_key(cookie));
        }
        if self.sockets.len() <= MAX_SOCKETS / 2 {
            return;
        }
        let cut = median(self.sockets.values().map(|socket| socket.used));
        self.sockets.retain(|_, socket| socket.used > cut);
        let sockets = &self.sockets;
        self.ports.retain(|_, cookie| sockets.contains_key(cookie));
    }

    pub(super) fn read(&mut self, event: &Event, body: &SockCallBody) {
        let socket = self.socket(body.socket, event.at, (body.protocol, body.local_port));
        if body.result < 0 {
            return;
        }
        if let Some(socket) = socket {
            socket.shared |= socket.reader.tid != 0 && socket.reader != event.task;
            socket.reader = event.task;
        }
        self.send_calls.read(event);
        let ended = body.result == 0 && body.protocol == TCP;
        if !ended && body.flags & MSG_PEEK == 0 {
            self.traffic.received(event.task, event.at);
        }
        let read = Mark::Read { first: event.at, last: event.at, socket: body.socket, ended };
        self.mark(event.task, 0, Some(&body.comm), read);
    }

    /// A call that moved no data tells nothing of who waits for whom.
    pub(super) fn other(&mut self, event: &Event, body: &OtherCallBody, received: bool) {
        match received {
            true if body.result > 0 => self.traffic.took(event.task, event.at),
            true => {}
            false => self.sent(event, false, body.result),
        }
        let full = self.others.len() >= MAX_SOCKETS && !self.others.contains_key(&body.socket);
        if body.result <= 0 || full {
            return;
        }
        let OtherCallBody { protocol, local_port, remote_port, .. } = *body;
        let peer = self.peers.get(&body.socket).copied().unwrap_or_default();
        let fresh =
            OtherSocket { serves: received, protocol, local_port, remote_port, peer, answered: false, used: event.at };
        let socket = self.others.entry(body.socket).or_insert(fresh);
        socket.used = event.at;
        socket.answered |= received;
        let call = Call { first: event.at, last: event.at, socket: body.socket, received };
        self.mark(event.task, 0, None, Mark::Call(call));
    }

    fn sent(&mut self, event: &Event, carries_checks: bool, result: i32) {
        self.send_calls.returned(event, carries_checks, result);
        if result >= 0 {
            self.traffic.sent(event.task, event.at);
        }
    }

    /// A call that sent an answer, or a part of one.
    pub(super) fn answered(&mut self, event: &Event, body: &SockCallBody) {
        self.sent(event, true, body.result);
        if body.result > 0 && body.protocol == TCP {
            let call = Call { first: event.at, last: event.at, socket: body.socket, received: false };
            self.mark(event.task, 0, Some(&body.comm), Mark::Call(call));
        }
    }

    pub(super) fn peer(&mut self, body: &OtherPeerBody) {
        if self.peers.len() < MAX_SOCKETS {
            self.peers.insert(body.socket, body.peer);
        }
        if let Some(socket) = self.others.get_mut(&body.socket) {
            socket.peer = body.peer;
        }
    }

    pub(super) fn enqueue(&mut self, event: &Event, body: &SockEnqueueBody) {
        self.traffic.queued(body.socket, event.at, body.receive_bytes);
        let data = Data { socket: body.socket, of_check: body.packet_seq != 0 };
        self.arrived.insert(event.cpu, (event.at, data));
        if let Some(socket) = self.socket(body.socket, event.at, (body.protocol, body.local_port)) {
            socket.receive_bytes = body.receive_bytes;
            socket.receive_limit_bytes = body.receive_limit_bytes;
        }
    }

    fn socket(&mut self, cookie: u64, at: MonoNs, port: (u32, u32)) -> Option<&mut Socket> {
        if self.sockets.len() >= MAX_SOCKETS && !self.sockets.contains_key(&cookie) {
            return None;
        }
        self.ports.insert(port, cookie);
        let fresh =
            Socket { reader: TaskId::default(), shared: false, used: at, receive_bytes: 0, receive_limit_bytes: 0 };
        let socket = self.sockets.entry(cookie).or_insert(fresh);
        socket.used = at;
        Some(socket)
    }

    /// The socket with this cookie, else the one last used at this port.
    pub(in crate::attribution) fn socket_of(&self, cookie: u64, protocol: u8, port: u16) -> Option<&Socket> {
        let by_port = || self.ports.get(&(u32::from(protocol), u32::from(port)));
        let cookie = if cookie == 0 { by_port()? } else { &cookie };
        self.sockets.get(cookie)
    }

    /// A socket without checks on which this host asks a peer. `None` for one where peers ask: it
    /// also has the port of the checks, or was seen to be read before anything was sent.
    pub(in crate::attribution) fn asking(&self, cookie: u64) -> Option<&OtherSocket> {
        let socket = self.others.get(&cookie)?;
        let at_check_port = self.ports.contains_key(&(socket.protocol, socket.local_port));
        (!socket.serves && !at_check_port && !self.sockets.contains_key(&cookie)).then_some(socket)
    }
}

fn median(times: impl Iterator<Item = MonoNs>) -> MonoNs {
    let mut times: Vec<MonoNs> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
