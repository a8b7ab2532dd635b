//! What a wait is, and how threads are called.

use super::Evidence;
use crate::attribution::frame::{self, Frame, Wait};
use crate::attribution::ledger::{Hop, Offender, Sampled};
use crate::attribution::request::Request;
use crate::attribution::run::Share;
use crate::attribution::storage::FileWait;
use crate::attribution::symbol::StackRef;
use crate::attribution::thread::{Blocked, Interval, Named, State};
use crate::clock::MonoNs;
use crate::event::TaskId;
use probe_wire::STACK_DEPTH;
use std::sync::Arc;

impl Evidence {
    /// The kind of a wait and the kernel function that tells it.
    pub(in crate::attribution) fn wait<'a>(&'a self, blocked: &Blocked<'a>) -> Option<(Wait, &'a str)> {
        frame::classify(self.frames(blocked))
    }

    /// Why the kind of a wait is not known.
    pub(in crate::attribution) fn unknown_wait(&self, blocked: &Blocked<'_>) -> String {
        match (frame::innermost(self.frames(blocked)), blocked.stack) {
            (Some(name), _) => format!("asleep in {name}, which names no known kind of wait"),
            (None, StackRef::Kept(_)) => "asleep, and its kernel stack has no known names".to_owned(),
            (None, StackRef::NotKept) => "asleep, and there was no room for its kernel stack".to_owned(),
            (None, StackRef::NotTaken) => "asleep, and no kernel stack was taken".to_owned(),
        }
    }

    /// `task` and, if it sleeps, where, else what its samples are; `None` when hops are not told.
    pub(in crate::attribution) fn hop(
        &self,
        task: TaskId,
        interval: &Interval<'_>,
        samples: &Arc<[Sampled]>,
    ) -> Option<Hop> {
        if !self.tells_hops {
            return None;
        }
        let (frames, samples) = match &interval.state {
            State::Blocked(blocked) => (self.shown(blocked), Arc::default()),
            State::OnCpu(_) => (Vec::new(), Arc::clone(samples)),
            State::Runnable(_) | State::Stopped { .. } | State::Unknown(_) => (Vec::new(), Arc::default()),
        };
        let comm = self.life_at(task, interval.to).map_or(String::new(), |life| text(&life.comm));
        Some(Hop { comm, task, frames, user: self.user_stack(task, interval), samples })
    }

    /// The user code from which a thread left the CPU for this interval.
    pub(in crate::attribution) fn user_stack(&self, task: TaskId, interval: &Interval<'_>) -> Option<u32> {
        let since = match &interval.state {
            State::Blocked(blocked) => blocked.from,
            State::Runnable(runnable) => runnable.out?.at,
            State::OnCpu(_) | State::Stopped { .. } | State::Unknown(_) => return None,
        };
        self.taken.of_wait(task, since)
    }

    /// What a thread did on its CPUs between `from` and `to`, by samples.
    pub(in crate::attribution) fn sampled(&self, task: TaskId, from: MonoNs, to: MonoNs) -> Arc<[Sampled]> {
        self.taken.sampled(task, (from, to), &self.symbols).into()
    }

    pub(in crate::attribution) fn shown(&self, blocked: &Blocked<'_>) -> Vec<String> {
        let stack = self.stacks.frames(blocked.stack).iter().map(|address| self.symbols.at(*address));
        frame::shown(stack.chain(blocked.asleep_in.map(Some)))
    }

    /// The file that a wait was about, or why that is not known.
    pub(in crate::attribution) fn file(&self, task: TaskId, blocked: &Blocked<'_>) -> Result<&FileWait, &'static str> {
        if self.blind.files {
            return Err("whose file system and device are not known: there is no hook for it");
        }
        let found = self.storage.file(task, blocked.from, blocked.wake.map(|wake| wake.at));
        let found = found.ok_or("whose file system and device are not known: the call names no file")?;
        let faults = self.frames(blocked).any(|frame| frame.name() == "filemap_fault");
        let whole = self.stacks.frames(blocked.stack).len() < STACK_DEPTH;
        match (found.is_fault(), faults) {
            (true, true) => Ok(found),
            // A system call can fault on a page of another file than its own.
            (false, false) if whole => Ok(found),
            _ => Err("whose file system and device are not known: a page fault may be of another file"),
        }
    }

    /// The block request whose end ended a wait, if that was seen.
    pub(in crate::attribution) fn request(&self, task: TaskId, blocked: &Blocked<'_>) -> Option<&Request> {
        self.requests.ended(task, blocked.wake?.at)
    }

    /// The block request for which a thread itself was held back before it had one, if that was seen.
    pub(in crate::attribution) fn wanted_request(&self, task: TaskId, blocked: &Blocked<'_>) -> Option<&Request> {
        self.requests.wanted(task, blocked.from, blocked.wake?.at)
    }

    /// Which part of a device's queue a thread itself waits in.
    pub(in crate::attribution) fn queue_part(&self, blocked: &Blocked<'_>) -> Option<&'static str> {
        frame::queue_part(self.frames(blocked))
    }

    fn frames<'a>(&'a self, blocked: &Blocked<'a>) -> impl Iterator<Item = &'a Frame> {
        self.frames_of(blocked.stack).chain(blocked.asleep_in)
    }

    fn frames_of(&self, stack: StackRef) -> impl Iterator<Item = &Frame> {
        self.stacks.frames(stack).iter().filter_map(|address| self.symbols.at(*address))
    }

    /// Whether a thread slept there because its guest had nothing to do: KVM took the guest's halt.
    pub(in crate::attribution) fn is_guest_halt(&self, blocked: &Blocked<'_>) -> bool {
        frame::is_guest_halt(self.frames(blocked))
    }

    /// Whether the last sleep of a thread before `at` was inside the kernel's run of a guest.
    pub(in crate::attribution) fn slept_in_guest_run(&self, task: TaskId, at: MonoNs) -> bool {
        self.last_sleep(task, at).is_some_and(|stack| frame::is_guest_run(self.frames_of(stack)))
    }

    /// Whether the last sleep of a thread before `at` was one of the kernel's workers for a VM's devices.
    pub(in crate::attribution) fn slept_in_vhost(&self, task: TaskId, at: MonoNs) -> bool {
        self.last_sleep(task, at).is_some_and(|stack| frame::is_vhost(self.frames_of(stack)))
    }

    /// The kind of the last sleep of a thread before `at`, if it is known.
    pub(in crate::attribution) fn last_wait(&self, task: TaskId, at: MonoNs) -> Option<Wait> {
        frame::classify(self.frames_of(self.last_sleep(task, at)?)).map(|(wait, _)| wait)
    }

    fn last_sleep(&self, task: TaskId, at: MonoNs) -> Option<StackRef> {
        self.life_at(task, at)?.last_sleep_before(at)
    }

    /// `pid 812/815 worker-2`.
    pub(in crate::attribution) fn name(&self, task: TaskId, at: MonoNs) -> String {
        let comm = self.life_at(task, at).map_or(String::new(), |life| text(&life.comm));
        described(task, &comm)
    }

    /// A thread as an offender.
    pub(in crate::attribution) fn offender(&self, task: TaskId, at: MonoNs) -> Offender {
        let life = self.life_at(task, at);
        let comm = life.map_or(String::new(), |life| text(&life.comm));
        let cgroup = life.map_or(String::new(), |life| life.cgroup.clone());
        let own = task.tgid != 0 && task.tgid == self.own;
        Offender { comm, task, cgroup, own, ..Offender::default() }
    }

    /// A thread that another record names, with its cgroup where that is known.
    pub(in crate::attribution) fn offender_named(&self, named: &Named, at: MonoNs) -> Offender {
        Offender { comm: text(&named.comm), ..self.offender(named.task, at) }
    }

    /// Who had a CPU, with its cgroup where that is known.
    pub(in crate::attribution) fn offender_of(&self, share: &Share, at: MonoNs) -> Offender {
        self.offender_in(&share.who, share.start_ns, at)
    }

    /// A thread that nobody need watch, by its start time.
    pub(in crate::attribution) fn offender_in(&self, who: &Named, start_ns: u64, at: MonoNs) -> Offender {
        let offender = self.offender_named(who, at);
        let cgroup = self.runs.cgroup(who.task, start_ns).map_or(offender.cgroup, str::to_owned);
        Offender { cgroup, ..offender }
    }
}

/// A thread's name as the kernel keeps it, NUL-padded.
pub(in crate::attribution) fn text(comm: &[u8; 16]) -> String {
    let len = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    String::from_utf8_lossy(comm.get(..len).unwrap_or_default()).into_owned()
}

/// `pid 812/815 worker-2`.
pub(in crate::attribution) fn described(task: TaskId, comm: &str) -> String {
    let TaskId { tgid, tid } = task;
    if comm.is_empty() { format!("pid {tgid}/{tid}") } else { format!("pid {tgid}/{tid} {comm}") }
}
