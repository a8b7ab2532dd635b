//! `app.futex`, `app.blocked_io`, `app.self_wait`, `dependency.*`, `storage.*`, `memory.reclaim`
//! and `kernel.lock`: what the thread that held a check waited for.

use super::receive::vector;
use super::thread::{Role, Seat, charge, stopped};
use super::transmit::NOTICEABLE;
use crate::attribution::cause::Cause;
use crate::attribution::evidence::{Evidence, described, text};
use crate::attribution::frame::Wait;
use crate::attribution::ledger::Offender;
use crate::attribution::piece::Piece;
use crate::attribution::rounds::Rounds;
use crate::attribution::stall::Victim;
use crate::attribution::storage::Dirtier;
use crate::attribution::symbol::StackRef;
use crate::attribution::thread::{Blocked, By, Data, Interval, NextCall, State, Wake};
use crate::clock::MonoNs;
use crate::event::TaskId;

/// Waits for the process that is a FUSE file system.
const IN_USER_SPACE: &[&str] = &["request_wait_answer", "fuse_simple_request", "__fuse_simple_request"];

/// Another of the threads may have been woken for the check, and lost it to this one.
const SHARED: &str = "several threads read this socket, and which of them was to read it is not known";

/// A request that a stream brought in parts, of which one did not come.
const IN_PART: &str = "back in its receive call, with no more data on the check's connection: \
                       a request that has not come whole and a server that does not answer look the same";

/// It may have answered.
const SENT: &str = "back in its receive call after it had sent on the check's connection: an answer that does not begin \
                    a segment is not recognised";

/// A wait of the thread in `seat`.
pub(super) struct Sleep<'a> {
    pub(super) evidence: &'a Evidence,
    pub(super) seat: &'a Seat,
    pub(super) at: Interval<'a>,
    pub(super) blocked: &'a Blocked<'a>,
    /// The kernel function that tells what it waits for.
    pub(super) frame: &'a str,
}

/// Charges a wait by what it is for.
pub(super) fn blocked(evidence: &Evidence, seat: &Seat, at: Interval<'_>, blocked: &Blocked<'_>) -> Vec<Piece> {
    let Some((wait, frame)) = evidence.wait(blocked) else {
        return vec![seat.unknown(evidence, at, evidence.unknown_wait(blocked))];
    };
    let sleep = Sleep { evidence, seat, at, blocked, frame };
    match wait {
        Wait::Stopped => vec![stopped(evidence, seat, at, frame)],
        Wait::Reclaim => sleep.own(Cause::MemoryReclaim),
        Wait::Writeback => sleep.storage(Cause::StorageWriteback),
        Wait::Log | Wait::Journal => sleep.storage(Cause::StorageJournal),
        Wait::Block if IN_USER_SPACE.contains(&frame) => sleep.served(),
        Wait::Block => sleep.storage(Cause::StorageBlockQueue),
        Wait::Lock => sleep.follow(Cause::KernelLock),
        Wait::Futex => sleep.futex(),
        Wait::Peer => sleep.follow(Cause::AppBlockedIo),
        Wait::Connect => sleep.own(Cause::DependencyRemote),
        Wait::SendBuffer => sleep.send_buffer(),
        Wait::Accept | Wait::Receive => sleep.receive(),
        Wait::Poll => sleep.poll(),
        Wait::Sleep => sleep.meant(Cause::AppSelfWait, None, sleep.by_choice()),
    }
}

impl<'a> Sleep<'a> {
    /// A cause of the thread's own.
    fn own(&self, cause: Cause) -> Vec<Piece> {
        self.charged(cause, None)
    }

    /// A wait for storage: with the file system and device of its file and, for dirty pages, who
    /// made most of that device's.
    fn storage(&self, cause: Cause) -> Vec<Piece> {
        let Self { evidence, seat, at, .. } = self;
        let file = match evidence.file(seat.task, self.blocked) {
            Ok(file) => file,
            Err(why) => return self.on_device(cause, (evidence.sees().switches).then(|| format!("for a file {why}"))),
        };
        let storage = evidence.storage();
        let device = format!("{} {}", storage.device(file.device()), file.file_system());
        let fact = format!("for inode {} on {device}", file.inode());
        let dirtier = (cause == Cause::StorageWriteback).then(|| storage.dirtier(file.device(), at.to)).flatten();
        let who = dirtier.as_ref().map(|Dirtier { named, percent }| {
            format!(
                "{} made {percent} % of what was seen to get dirty there in 30 s",
                described(named.task, &text(&named.comm))
            )
        });
        let most = dirtier.filter(|dirtier| dirtier.percent >= 50 && dirtier.named.task.tgid != seat.task.tgid);
        let thread = || evidence.offender(seat.task, at.to);
        let behind = most.map_or_else(thread, |most| evidence.offender_named(&most.named, at.to));
        let layers = storage.layers(file.device());
        let charge = seat.leaf(cause, Some(Offender { device, ..behind }), self.fact()).with(Some(fact));
        let charge = charge.with(layers).with(who);
        let charge = charge.with(self.request().map(|(_, parts)| parts)).with(self.queue_part());
        let charge = charge.stalling(self.held_up());
        vec![Piece::charged(at.from, at.to, seat.span, charge)]
    }

    /// A wait for storage of which the file is not known: unless the device is, with the reason.
    fn on_device(&self, cause: Cause, why: Option<String>) -> Vec<Piece> {
        let Self { evidence, seat, at, .. } = self;
        let (device, parts) = self.request().unzip();
        let device = device.or_else(|| self.wanted_device()).unwrap_or_default();
        let why = why.filter(|_| device.is_empty());
        let offender = Offender { device, ..evidence.offender(seat.task, at.to) };
        let charge = seat.leaf(cause, Some(offender), self.fact()).with(why).with(parts).with(self.queue_part());
        vec![Piece::charged(at.from, at.to, seat.span, charge)]
    }

    /// The device of the request whose end ended the wait, and what each part of its way took.
    fn request(&self) -> Option<(String, String)> {
        let Self { evidence, seat, at, .. } = self;
        let request = evidence.request(seat.task, self.blocked)?;
        let device = evidence.storage().device(request.device);
        let parts = request.parts(at.from, at.to).told(&device)?;
        Some((device, parts))
    }

    /// The device whose queue held the thread itself back.
    fn wanted_device(&self) -> Option<String> {
        self.queue_part()?;
        let request = self.evidence.wanted_request(self.seat.task, self.blocked)?;
        Some(self.evidence.storage().device(request.device))
    }

    /// Where the thread itself was held back before it had a request.
    fn queue_part(&self) -> Option<String> {
        let part = self.evidence.queue_part(self.blocked)?;
        Some(format!("all of it for {part}"))
    }

    /// This thread and those that wait for it, outermost first.
    fn held_up(&self) -> Vec<Victim> {
        let threads = self.seat.waiters.iter().chain([&self.seat.task]);
        let victim = |task: &TaskId| {
            let comm = self.evidence.offender(*task, self.at.to).comm;
            Victim { comm, task: *task, vm: self.evidence.vm_of(*task) }
        };
        threads.map(victim).collect()
    }

    /// A request to a file system in user space: whoever ended the wait had it.
    fn served(&self) -> Vec<Piece> {
        let Self { evidence, seat, at, .. } = self;
        let cause = Cause::StorageBlockQueue;
        let Ok(wake) = self.waker() else { return self.own(cause) };
        let fact = format!("answered by {}", described(wake.waker.task, &text(&wake.waker.comm)));
        let server = evidence.offender_named(&wake.waker, at.to);
        let charge = seat.leaf(cause, Some(server), self.fact()).with(Some(fact));
        vec![Piece::charged(at.from, at.to, seat.span, charge)]
    }

    fn charged(&self, cause: Cause, why: Option<String>) -> Vec<Piece> {
        let Self { evidence, seat, at, .. } = self;
        let offender = Some(evidence.offender(seat.task, at.to));
        let charge = seat.leaf(cause, offender, self.fact()).with(why);
        vec![Piece::charged(at.from, at.to, seat.span, charge)]
    }

    /// With what is true here of all that `cause` may mean.
    pub(super) fn meant(&self, cause: Cause, why: Option<&str>, meaning: &'static str) -> Vec<Piece> {
        let Self { evidence, seat, at, .. } = self;
        let offender = Some(evidence.offender(seat.task, at.to));
        let charge = seat.leaf(cause, offender, self.fact()).with(why.map(str::to_owned)).meaning(meaning);
        vec![Piece::charged(at.from, at.to, seat.span, charge)]
    }

    const fn by_choice(&self) -> &'static str {
        match self.seat.role {
            Role::Reader => "data is ready, and the thread sleeps by choice",
            Role::Server => "the thread that holds the check sleeps by choice",
            Role::Peer => "the thread that is waited for sleeps by choice",
        }
    }

    pub(super) fn unknown(&self, reason: impl Into<String>) -> Vec<Piece> {
        vec![self.seat.unknown(self.evidence, self.at, reason)]
    }

    /// Not charged, not even as a wait for this thread: records that may lead further are missing.
    fn in_doubt(&self, reason: &str) -> Vec<Piece> {
        let Self { evidence, seat, at, .. } = self;
        vec![Piece::unexplained(at.from, at.to, seat.span, seat.doubt(evidence, at.to, reason))]
    }

    pub(super) fn fact(&self) -> String {
        let name = self.evidence.name(self.seat.task, self.at.to);
        let kind = if self.blocked.state & 2 != 0 { "uninterruptible" } else { "interruptible" };
        format!("{name} was asleep in {} for {} ({kind})", self.frame, self.at.time())
    }

    /// A futex: its waker held it, unless the wait ended by its own timeout.
    fn futex(&self) -> Vec<Piece> {
        match self.blocked.wake {
            Some(wake) if wake.by_timer() => self.timed_out(wake),
            Some(_) if self.waker().is_err() => self.unproven(),
            _ => self.follow(Cause::AppFutex),
        }
    }

    /// A futex wait that its timeout ended: the thread's own choice, if it did not go on with it.
    fn timed_out(&self, wake: &Wake) -> Vec<Piece> {
        let life = self.evidence.life_at(self.seat.task, self.at.to);
        let answer = self.seat.own.answer.filter(|(task, _)| *task == self.seat.task).map(|(_, at)| at);
        let task = self.seat.task;
        let freed = |word, from, to| self.evidence.freed(task, word, from, to);
        match life.map_or(Rounds::Alone, |life| life.rounds(self.blocked, wake, answer, &freed)) {
            Rounds::Alone => {
                let meaning = "the thread waits until a timeout of its own";
                self.meant(Cause::AppSelfWait, Some("the wait ended by its own timeout"), meaning)
            }
            Rounds::Unknown(why) => self.waiting(why),
            Rounds::Untold(why) => self.in_doubt(&format!("asleep in {}; {why}", self.frame)),
            Rounds::Ended(last) => self.ended(last, "it waited in rounds with a timeout, until woken before one"),
            Rounds::Freed(last) => self.ended(
                last,
                "it waited in rounds with a timeout, and one ended just when another that waited for the same \
                 futex was woken",
            ),
        }
    }

    /// As if `last` had ended the wait.
    fn ended(&self, last: &'a Wake, how: &str) -> Vec<Piece> {
        let blocked = Blocked { wake: Some(last), ..*self.blocked };
        let sleep = Sleep { blocked: &blocked, seat: self.seat, evidence: self.evidence, ..*self };
        let mut pieces = if sleep.waker().is_ok() { sleep.follow(Cause::AppFutex) } else { sleep.unproven() };
        pieces.iter_mut().for_each(|piece| piece.learn(how.to_owned()));
        pieces
    }

    /// For what the thread waited is not known; who waited for it waited for the same, of which it is not
    /// the one to be named.
    fn waiting(&self, why: &str) -> Vec<Piece> {
        let Self { evidence, seat, at, .. } = self;
        let fact = format!("{} was asleep in {}; {why}", evidence.name(seat.task, at.to), self.frame);
        let charge = (seat.role == Role::Peer).then(|| seat.terminal(None, fact)).flatten();
        match charge {
            Some(charge) => vec![Piece::charged(at.from, at.to, seat.span, charge)],
            None => self.unknown(format!("asleep in {}; {why}", self.frame)),
        }
    }

    /// Whether someone ended the wait, or it ended by itself, is not known.
    fn unproven(&self) -> Vec<Piece> {
        let why = self.waker().err().unwrap_or_default();
        self.unknown(format!("asleep in {}; who or what ended it is not known: {why}", self.frame))
    }

    /// A wait that another thread ends: what that thread did meanwhile.
    fn follow(&self, cause: Cause) -> Vec<Piece> {
        let Self { evidence, seat, at, .. } = self;
        match self.waker() {
            Ok(wake) if seat.ends_at(wake.waker.task) => {
                self.ends(cause, Some(wake), "its waker waits for this thread, or the waits are too many to follow")
            }
            Ok(wake) if evidence.life_at(wake.waker.task, at.to).is_none() => {
                self.ends(cause, Some(wake), "its waker is outside the watched processes")
            }
            Ok(wake) => {
                let peer = seat.peer(wake.waker.task, cause);
                let mut pieces = self.held_by(&peer);
                pieces.iter_mut().for_each(|piece| piece.learn(self.fact()));
                pieces
            }
            Err(why) => self.ends(cause, None, &why),
        }
    }

    /// What the thread did that ended the wait. Until it asked for the same futex itself, it had not got
    /// that: then what counts is who held it back.
    fn held_by(&self, peer: &Seat) -> Vec<Piece> {
        let Self { evidence, at, .. } = self;
        let Some(asked) = self.asked_later(peer.task) else { return charge(evidence, peer, at.from, at.to) };
        let before = Interval { to: asked.from, ..*at };
        let mut pieces = if asked.futex.is_some() && asked.futex == self.blocked.futex {
            blocked(evidence, peer, before, &asked)
        } else {
            let name = evidence.name(peer.task, asked.from);
            let why = format!("{name} waited for a futex later, and whether it was the same is not known");
            vec![Piece::unexplained(before.from, before.to, self.seat.span, why)]
        };
        pieces.extend(charge(evidence, peer, asked.from, at.to));
        pieces
    }

    /// The first wait of `task` for what may be the same futex, if it had not freed that before.
    fn asked_later(&self, task: TaskId) -> Option<Blocked<'a>> {
        let Self { evidence, at, .. } = self;
        let futexes = evidence.futexes();
        if !futexes.told() {
            return None;
        }
        let word = self.blocked.futex;
        let asked = evidence.intervals(task, at.from, at.to).into_iter().find_map(|interval| match interval.state {
            State::Blocked(wait) if interval.from > at.from => {
                let futex = matches!(evidence.wait(&wait), Some((Wait::Futex, _)));
                (futex && !wait.futex.zip(word).is_some_and(|(one, other)| one != other)).then_some(wait)
            }
            _ => None,
        })?;
        (!word.is_some_and(|word| futexes.freed_by(task, word, at.from, asked.from))).then_some(asked)
    }

    /// The thread that ended the wait, or why there is none to follow.
    fn waker(&self) -> Result<&'a Wake, String> {
        match self.blocked.wake {
            None => Err("holder not known while the wait lasts".to_owned()),
            Some(wake) => match wake.by() {
                By::Thread => Ok(wake),
                By::Softirq(number) => Err(format!("woken by a {} softirq", vector(number))),
                By::Interrupt => Err("woken by an interrupt".to_owned()),
                By::Unsure => Err(unsure(wake)),
            },
        }
    }

    /// The wait itself is the cause. A futex of one process cannot be held by another, so a
    /// foreign waker is at most named as a fact: it may have sent a signal.
    fn ends(&self, cause: Cause, wake: Option<&Wake>, why: &str) -> Vec<Piece> {
        let Self { evidence, seat, at, .. } = self;
        let named = wake.map(|wake| wake.waker);
        let trusted = named.filter(|named| cause != Cause::AppFutex || named.task.tgid == seat.task.tgid);
        let offender = trusted.map(|named| evidence.offender_named(&named, at.to));
        let who = named.map(|named| format!("woken by {}", described(named.task, &text(&named.comm))));
        let charge = seat.leaf(cause, offender, self.fact()).with(who).with(Some(why.to_owned()));
        vec![Piece::charged(at.from, at.to, seat.span, charge)]
    }

    /// In a receive call, on a socket that only the thread's next call tells. Its own check's data
    /// would have woken it at once; after reading the check it may as well wait for new work.
    fn receive(&self) -> Vec<Piece> {
        if let Some(pieces) = self.exchange() {
            return pieces;
        }
        match self.seat.role {
            Role::Reader if self.at.time() < NOTICEABLE => self.unknown("from the data's arrival to the wake-up"),
            Role::Server if self.back_to_work() && self.has_sent() => self.unknown(SENT),
            Role::Server if self.back_to_work() && self.may_be_in_part() => self.unknown(IN_PART),
            Role::Server if self.back_to_work() => {
                let meaning = "the thread read the check and went back to waiting for work without an answer";
                self.meant(Cause::AppSelfWait, Some("it went back to waiting for work without answering"), meaning)
            }
            _ if self.answer().is_some() => self.dependency(),
            Role::Reader if self.seat.shared => self.unknown(SHARED),
            Role::Reader => self.unknown(format!("asleep in {} though the check's data had come", self.frame)),
            Role::Server | Role::Peer => {
                self.unknown(format!("asleep in {}, on a socket that is not known", self.frame))
            }
        }
    }

    /// Waiting for one of several files. While the check's data is ready, that file is not among
    /// them; after reading the check, only the waker tells what it waited for.
    fn poll(&self) -> Vec<Piece> {
        if let Some(pieces) = self.exchange() {
            return pieces;
        }
        match self.seat.role {
            Role::Reader if self.at.time() < NOTICEABLE => self.unknown("from the data's arrival to the wake-up"),
            Role::Reader if self.by_packet() && self.answer().is_some() => self.dependency(),
            Role::Reader if self.maybe_by_packet() && self.answer().is_some() => self.unproven(),
            Role::Reader if self.seat.shared => self.unknown(SHARED),
            Role::Reader if self.maybe_own_socket() => {
                self.unknown(format!("asleep in {} though the check's data had come", self.frame))
            }
            Role::Reader => {
                let meaning = "data is ready, and the thread waits for something else";
                self.meant(Cause::AppSelfWait, Some("the check's socket had data all the time"), meaning)
            }
            Role::Server | Role::Peer if self.seat.answered && self.by_packet() && self.answer().is_some() => {
                self.dependency()
            }
            Role::Server if self.local_waker() => self.follow_work(),
            Role::Peer if self.waited_for_by_a_thread() && self.local_waker() => self.follow(Cause::AppBlockedIo),
            Role::Server | Role::Peer => self.unknown(self.unknown_poll()),
        }
    }

    /// Whether more data on the check's own socket ended the wait.
    pub(super) fn more(&self) -> bool {
        let own = self.seat.own;
        let data = self.blocked.wake.filter(|wake| wake.by_packet()).and_then(|wake| wake.data);
        let read = self.next_call() == Some(NextCall::Read { socket: own.socket, ended: false });
        self.seat.role == Role::Server && read && data == Some(Data { socket: own.socket, of_check: false })
    }

    /// Whether the wait may have been for the rest of a request that came in parts. Work that came
    /// by another socket, or as another check, was not that.
    fn may_be_in_part(&self) -> bool {
        let own = self.seat.own;
        let elsewhere = self.works_elsewhere();
        let data = self.blocked.wake.and_then(|wake| wake.data);
        own.stream && !elsewhere && !data.is_some_and(|data| data.socket == own.socket && data.of_check)
    }

    /// Whether work that came by another socket ended the wait.
    pub(super) fn works_elsewhere(&self) -> bool {
        let own = self.seat.own.socket;
        matches!(self.next_call(), Some(NextCall::Read { socket, .. }) if socket != own)
    }

    /// Whether the check's own socket may have ended the wait late: another thread, not seen to read
    /// there yet, was woken for the check then.
    fn maybe_own_socket(&self) -> bool {
        let other = matches!(self.next_call(), Some(NextCall::Other(_)));
        self.by_packet() && !other
    }

    fn unknown_poll(&self) -> String {
        let why = match self.blocked.wake {
            Some(wake) if wake.by_timer() => "; it ended by its own timeout".to_owned(),
            Some(wake) if wake.by() == By::Unsure => format!("; {}", unsure(wake)),
            _ => String::new(),
        };
        format!("asleep in {}; what it waited for is not known{why}", self.frame)
    }

    /// Woken by a thread. If this one had woken that before, the work was handed over, and the
    /// other held the check; else it waited for a peer.
    fn follow_work(&self) -> Vec<Piece> {
        let Self { evidence, seat, at, .. } = self;
        let Ok(wake) = self.waker() else {
            return self.follow(Cause::AppBlockedIo);
        };
        let task = wake.waker.task;
        let handed_over = evidence.life_at(task, at.to).is_some_and(|life| {
            let mut wakes = life.wakes_before(at.to).take_while(|wake| wake.at >= self.work_since());
            wakes.any(|wake| wake.by_thread() && wake.waker.task == seat.task)
        });
        if !handed_over || seat.ends_at(task) {
            return self.follow(Cause::AppBlockedIo);
        }
        let mut waiters = seat.waiters.clone();
        waiters.push(seat.task);
        let worker = Seat { task, role: Role::Server, home: None, waiters, ..(*seat).clone() };
        charge(evidence, &worker, at.from, at.to)
    }

    /// A hand-over happens in the slice before the wait.
    fn work_since(&self) -> MonoNs {
        self.blocked.from.before(NOTICEABLE)
    }

    /// Whether it stands between the check's thread and whoever woke it: a lock, or a local peer.
    fn waited_for_by_a_thread(&self) -> bool {
        matches!(self.seat.waits.last(), Some(Cause::AppFutex | Cause::AppBlockedIo))
    }

    fn local_waker(&self) -> bool {
        let task = self.waker().map(|wake| wake.waker.task);
        task.is_ok_and(|task| self.evidence.life_at(task, self.at.to).is_some())
    }

    /// Whether receive softirq ended the wait.
    fn by_packet(&self) -> bool {
        self.blocked.wake.is_some_and(Wake::by_packet)
    }

    /// Whether receive softirq may have ended the wait, for all that is known.
    fn maybe_by_packet(&self) -> bool {
        self.blocked.wake.is_some_and(|wake| matches!(wake.by(), By::Unsure))
    }

    /// Whether the wait ended with new work: the next call read from a socket that carries checks.
    fn then_read(&self) -> bool {
        matches!(self.next_call(), Some(NextCall::Read { .. }))
    }

    pub(super) fn next_call(&self) -> Option<NextCall> {
        self.evidence.life_at(self.seat.task, self.at.to)?.next_call(self.blocked.wake?)
    }

    /// Whether it sleeps where it slept before the check came, or woke up to new work.
    pub(super) fn back_to_work(&self) -> bool {
        let home = matches!(self.blocked.stack, StackRef::Kept(_)) && self.seat.home == Some(self.blocked.stack);
        if self.blocked.wake.is_some() { self.then_read() } else { home }
    }
}

fn unsure(wake: &Wake) -> String {
    let who = described(wake.waker.task, &text(&wake.waker.comm));
    format!("{who} was on the CPU, and whether it or an interrupt ended the wait is not known")
}
