//! What lies unread in each watched socket, oldest first.
//!
//! Reads carry no packet, so they are matched by order: the n-th read of a datagram socket takes
//! the n-th datagram, whether it is a check or not. The order can be lost (records lost, a socket
//! that was full before it was watched); then nothing is matched until the socket is known to be
//! empty again: a read that found nothing, or a queue that holds little more than what just came.

use super::slab::{NONE, Slab};
use crate::clock::{DurNs, MonoNs};
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use probe_wire::{SockCallBody, SockEnqueueBody};
use std::hash::BuildHasher;

/// Sockets remembered; beyond it the one unused for longest is forgotten.
const MAX_SOCKETS: u32 = 16_384;
/// Unread items remembered over all sockets.
const MAX_ITEMS: u32 = 1 << 18;
/// Receive memory of a socket that holds one small packet and nothing else: `truesize` of a
/// datagram below 1 KiB is 768 to 2,304 bytes, with a page-backed buffer 4,352.
const ONE_PACKET_BYTES: u32 = 4_608;
/// Least receive memory that a datagram takes: `SKB_TRUESIZE(0)` on a 64-bit kernel.
const LEAST_PACKET_BYTES: u32 = 576;
/// A read that found nothing may have looked this long before its record was made.
const RESYNC_GUARD: DurNs = DurNs(100_000);

const MSG_PEEK: u32 = 2;
const EAGAIN: i32 = -11;
const TCP: u32 = 6;

/// A check, by its slot and the id it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckRef {
    pub(super) slot: u32,
    pub(super) id: u64,
}

/// Something unread: a check, or data of no check.
#[derive(Debug, Clone, Copy)]
struct Item {
    check: Option<CheckRef>,
    at: MonoNs,
    next: u32,
}

#[derive(Debug)]
struct Socket {
    cookie: u64,
    first: u32,
    last: u32,
    len: u32,
    /// The order is known.
    in_step: bool,
    /// Checks read and not answered, and the latest of them.
    held: u32,
    latest: Option<CheckRef>,
    newer: u32,
    older: u32,
}

/// All watched sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    hasher: RandomState,
    table: HashTable<u32>,
    sockets: Slab<Socket>,
    items: Slab<Item>,
    newest: u32,
    oldest: u32,
    /// Checks that left their queue without a read that can be told to be theirs.
    pub(super) missed: Vec<CheckRef>,
}

impl Sockets {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            table: HashTable::new(),
            sockets: Slab::new(),
            items: Slab::new(),
            newest: NONE,
            oldest: NONE,
            missed: Vec::new(),
        }
    }

    /// Data entered a socket. Says whether the data will be matched when it is read.
    pub(super) fn enqueue(&mut self, at: MonoNs, body: &SockEnqueueBody, check: Option<CheckRef>) -> bool {
        let socket = self.touch(body.socket, body.receive_bytes);
        if body.protocol != TCP {
            self.shrink_to(socket, body.receive_bytes);
        }
        let alone = body.receive_bytes != 0 && body.receive_bytes < LEAST_PACKET_BYTES * 2;
        self.sockets[socket].in_step |= alone;
        if !self.sockets[socket].in_step {
            return false;
        }
        if self.items.len() >= MAX_ITEMS {
            self.lose_step(socket);
            return false;
        }
        self.append(socket, Item { check, at, next: NONE });
        true
    }

    /// A receive call returned. The checks it took go to `taken`.
    pub(super) fn read(&mut self, at: MonoNs, body: &SockCallBody, taken: &mut dyn FnMut(CheckRef)) {
        let Some(socket) = self.find(body.socket) else { return };
        if body.result == EAGAIN {
            return self.resync(socket, at);
        }
        let nothing = body.result < 0 || (body.protocol == TCP && body.result == 0);
        if nothing || body.flags & MSG_PEEK != 0 {
            return;
        }
        // A stream's read takes what is there; only a datagram's takes exactly one.
        while let Some(item) = self.pop(socket) {
            if let Some(check) = item.check {
                taken(check);
            }
            if body.protocol != TCP {
                break;
            }
        }
    }

    /// The answer to `check` was seen, so it and all before it have been read.
    pub(super) fn must_have_read(&mut self, cookie: u64, check: CheckRef) {
        let Some(socket) = self.find(cookie) else { return };
        while let Some(item) = self.pop(socket) {
            if item.check == Some(check) {
                return;
            }
            self.missed.extend(item.check);
        }
    }

    /// A thread took `check` and has not answered it.
    pub(super) fn hold(&mut self, cookie: u64, check: CheckRef) {
        if let Some(socket) = self.find(cookie) {
            self.sockets[socket].held += 1;
            self.sockets[socket].latest = Some(check);
        }
    }

    /// A check that was held is no longer.
    pub(super) fn let_go(&mut self, cookie: u64) {
        if let Some(socket) = self.find(cookie) {
            let held = &mut self.sockets[socket].held;
            *held = held.saturating_sub(1);
        }
    }

    /// The one check that threads hold from this socket, if it is one.
    pub(super) fn only_held(&self, cookie: u64) -> Option<CheckRef> {
        let socket = &self.sockets[self.find(cookie)?];
        socket.latest.filter(|_| socket.held == 1)
    }

    fn find(&self, cookie: u64) -> Option<u32> {
        self.table.find(self.hasher.hash_one(cookie), |&socket| self.sockets[socket].cookie == cookie).copied()
    }

    /// Finds or makes a socket and moves it to the front.
    fn touch(&mut self, cookie: u64, receive_bytes: u32) -> u32 {
        if let Some(socket) = self.find(cookie) {
            self.unlink(socket);
            self.link(socket);
            return socket;
        }
        if self.sockets.len() >= MAX_SOCKETS {
            self.forget(self.oldest);
        }
        let fresh = Socket {
            cookie,
            first: NONE,
            last: NONE,
            len: 0,
            in_step: receive_bytes <= ONE_PACKET_BYTES,
            held: 0,
            latest: None,
            newer: NONE,
            older: NONE,
        };
        let socket = self.sockets.take(fresh);
        let (sockets, hasher) = (&self.sockets, &self.hasher);
        let hash = hasher.hash_one(cookie);
        self.table.insert_unique(hash, socket, |&socket| hasher.hash_one(sockets[socket].cookie));
        self.link(socket);
        socket
    }

    fn link(&mut self, socket: u32) {
        let older = std::mem::replace(&mut self.newest, socket);
        (self.sockets[socket].newer, self.sockets[socket].older) = (NONE, older);
        match older {
            NONE => self.oldest = socket,
            older => self.sockets[older].newer = socket,
        }
    }

    fn unlink(&mut self, socket: u32) {
        let (newer, older) = (self.sockets[socket].newer, self.sockets[socket].older);
        match newer {
            NONE => self.newest = older,
            newer => self.sockets[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.sockets[older].newer = newer,
        }
    }

    fn forget(&mut self, socket: u32) {
        while self.miss(socket) {}
        self.unlink(socket);
        let hash = self.hasher.hash_one(self.sockets[socket].cookie);
        if let Ok(entry) = self.table.find_entry(hash, |&other| other == socket) {
            entry.remove();
        }
        self.sockets.release(socket);
    }

    fn append(&mut self, socket: u32, item: Item) {
        let item = self.items.take(item);
        let socket = &mut self.sockets[socket];
        socket.len += 1;
        match std::mem::replace(&mut socket.last, item) {
            NONE => socket.first = item,
            last => self.items[last].next = item,
        }
    }

    fn pop(&mut self, socket: u32) -> Option<Item> {
        let socket = &mut self.sockets[socket];
        let item = *self.items.get(socket.first)?;
        self.items.release(socket.first);
        socket.first = item.next;
        socket.len -= 1;
        if item.next == NONE {
            socket.last = NONE;
        }
        Some(item)
    }

    /// Takes the oldest item out without a read.
    fn miss(&mut self, socket: u32) -> bool {
        let item = self.pop(socket);
        self.missed.extend(item.and_then(|item| item.check));
        item.is_some()
    }

    /// The kernel's queue was empty: what came before is gone, and the order is known again.
    fn resync(&mut self, socket: u32, at: MonoNs) {
        let before = at.before(RESYNC_GUARD);
        while self.items.get(self.sockets[socket].first).is_some_and(|item| item.at < before) {
            self.miss(socket);
        }
        self.sockets[socket].in_step = true;
    }

    /// The queue cannot hold more packets than fit into its receive memory (0 is unknown), the one
    /// that is being added included.
    fn shrink_to(&mut self, socket: u32, receive_bytes: u32) {
        let most = (receive_bytes / LEAST_PACKET_BYTES).max(1);
        while receive_bytes != 0 && self.sockets[socket].len >= most && self.miss(socket) {}
    }

    fn lose_step(&mut self, socket: u32) {
        while self.miss(socket) {}
        self.sockets[socket].in_step = false;
    }
}
