//! Loads the programs and attaches them.
//!
//! In: a [`Request`]. Out: [`Attached`], which owns every map, program and link and says for each
//! hook what was chosen or why it was refused. Nothing stays behind when it is dropped, foreign
//! programs, filters and queueing disciplines are never touched, and no packet is sent.

mod error;
mod ethtool;
mod format;
mod interface;
mod netlink;
mod netns;
mod object;
mod self_test;
mod senders;
mod stacks;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::FileExt,
    },
    time::Duration,
};

use aya::{
    Btf, Ebpf,
    maps::{Array, PerCpuArray},
    programs::Program,
};
use aya_log::EbpfLogger;
use probe_wire::{EventKind, LossRow, Rule};

pub use self::{
    error::LoadError,
    ethtool::{Drivers, Told},
    interface::{AttachedInterface, Attachment, InterfaceLevels, Mark, Presence, levels_of, presence, presences},
    netlink::QueueLevels,
    netns::Netns,
    object::DryRun,
    senders::SentRound,
    stacks::{DumpCounts, SAMPLE_HZ, SAMPLE_HZ_MOST, UserStacks, WAIT_MIN, unsafe_kernel},
};
use crate::{
    capability::Refusal,
    hooks::{Attach, Choice, HOOKS, Hook},
    kernel::{btf::KernelBtf, offsets},
    source::ring::Rings,
};

/// What to load and where to attach it.
#[derive(Debug, Clone)]
pub struct Request {
    /// Signatures of the checks, at most [`MAX_RULES`](probe_wire::MAX_RULES).
    pub rules: Vec<Rule>,
    /// Interfaces to stamp packets at, in and out.
    pub interfaces: Vec<Attachment>,
    /// Processes to watch from the start.
    pub watched_tgids: Vec<u32>,
    /// Whether to take kernel stacks of watched threads that go to sleep.
    pub stacks: bool,
    /// What to take of their stacks in user code; `None` for nothing.
    pub user_stacks: Option<UserStacks>,
    /// Whether to count who sends through the transmit queues of the interfaces.
    pub senders: bool,
    /// Shortest softirq that is worth an event, nanoseconds.
    pub softirq_min_ns: u64,
    /// Bytes of each CPU's ring, a power of two of at least a page.
    pub ring_bytes: u32,
    /// Names of hooks that must attach, besides those that the table requires.
    pub required: Vec<String>,
    /// Names of hooks to leave off.
    pub excluded: Vec<String>,
    /// Ways to attach not to use, by their public names; for tests of the fallbacks.
    pub avoided: Vec<String>,
    /// Whether the programs report unreadable memory through aya's log.
    pub diagnostics: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            interfaces: Vec::new(),
            watched_tgids: Vec::new(),
            stacks: true,
            user_stacks: None,
            senders: false,
            softirq_min_ns: 1_000_000,
            ring_bytes: 1 << 20,
            required: Vec::new(),
            excluded: Vec::new(),
            avoided: Vec::new(),
            diagnostics: false,
        }
    }
}

/// What became of a hook.
#[derive(Debug)]
pub enum Outcome {
    /// It runs.
    Attached(Choice),
    /// It is loaded, and is attached with the first tap.
    Waiting(Choice),
    /// It does not, and why.
    Refused(Refusal),
    /// It was not wanted.
    Excluded,
}

/// A hook and what became of it.
#[derive(Debug)]
pub struct HookState {
    /// The row of the table.
    pub hook: &'static Hook,
    /// What became of it.
    pub outcome: Outcome,
}

/// What one CPU has emitted and lost of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The CPU.
    pub cpu: usize,
    /// The kind.
    pub kind: EventKind,
    /// The counters.
    pub row: LossRow,
}

/// Loaded and attached programs. Dropping it detaches and unloads them.
#[derive(Debug)]
pub struct Attached {
    ebpf: Ebpf,
    hooks: Vec<HookState>,
    interfaces: Vec<AttachedInterface>,
    next_handle: u32,
    avoided: Vec<String>,
    rings: Option<Rings>,
    /// Rings of dumps.
    dumps: Option<Rings>,
    clocks: stacks::Clocks,
    user_stacks: Option<UserStacks>,
    senders: bool,
    /// The last turn of counting them before which all has been read.
    sent_turn: u32,
    drop_reasons: Vec<(u32, String)>,
    missing_fields: Vec<&'static str>,
    /// As of when the programs were detached.
    skipped_runs: Option<Vec<(String, u64)>>,
}

/// Loads the programs and attaches every hook that this kernel takes.
///
/// # Errors
///
/// When the kernel cannot be understood, refuses the object, or refuses a hook or an interface
/// that is required. Other hooks that it refuses are listed in [`Attached::hooks`].
pub fn load(request: &Request) -> Result<Attached, LoadError> {
    load_unless(request, &|| false)
}

/// As [`load`], but asks before each step whether it is `called_off`.
///
/// # Errors
///
/// As [`load`], and [`LoadError::CalledOff`]; nothing stays attached then.
pub fn load_unless(request: &Request, called_off: CalledOff<'_>) -> Result<Attached, LoadError> {
    go_on(called_off)?;
    let btf = KernelBtf::of_running_kernel()?;
    let mut fields = offsets::resolve(&btf);
    let kernel_types = Btf::from_sys_fs().map_err(|error| LoadError::Types(Box::new(error)))?;
    go_on(called_off)?;
    let (mut ebpf, doubts) = load_tested(request, &mut fields, &kernel_types)?;
    go_on(called_off)?;
    let rings = object::make_rings(&mut ebpf, object::RINGS, request.ring_bytes)?;
    let dumps = request.user_stacks.map(|stacks| object::make_rings(&mut ebpf, object::STACK_RINGS, stacks.ring_bytes));
    let dumps = dumps.transpose()?;
    let mut attached = Attached {
        ebpf,
        hooks: Vec::new(),
        interfaces: Vec::new(),
        next_handle: 0,
        avoided: request.avoided.clone(),
        rings: Some(rings),
        dumps,
        clocks: stacks::Clocks::default(),
        user_stacks: request.user_stacks,
        senders: request.senders,
        sent_turn: 0,
        drop_reasons: drop_reasons(&btf),
        missing_fields: fields.missing,
        skipped_runs: None,
    };
    for tgid in &request.watched_tgids {
        attached.watch_tgid(*tgid)?;
    }
    attached.attach_hooks(request, &btf, &kernel_types, &doubts, called_off)?;
    for interface in &request.interfaces {
        go_on(called_off)?;
        attached.attach_interface(interface)?;
    }
    Ok(attached)
}

/// Whether a load is no longer wanted.
type CalledOff<'a> = &'a dyn Fn() -> bool;

fn go_on(called_off: CalledOff<'_>) -> Result<(), LoadError> {
    if called_off() { Err(LoadError::CalledOff) } else { Ok(()) }
}

/// Loads the object and lets it test itself. Where the preempt count is not what it should be, it
/// is loaded again to do without.
fn load_tested(
    request: &Request,
    fields: &mut offsets::Resolved,
    types: &Btf,
) -> Result<(Ebpf, Vec<&'static str>), LoadError> {
    let mut ebpf = object::load(request, &fields.offsets, types)?;
    let doubts = self_test::run(&mut ebpf)?;
    if !doubts.contains(&self_test::PREEMPT_COUNT) {
        return Ok((ebpf, doubts));
    }
    fields.offsets.forget_preempt_count();
    let mut ebpf = object::load(request, &fields.offsets, types)?;
    let doubts = self_test::run(&mut ebpf)?;
    Ok((ebpf, doubts))
}

/// Names of the running kernel's drop reasons, without the prefix that they share.
fn drop_reasons(btf: &KernelBtf) -> Vec<(u32, String)> {
    let short = |name: String| name.strip_prefix("SKB_DROP_REASON_").map_or(name.clone(), str::to_owned);
    btf.enum_names("skb_drop_reason").into_iter().map(|(number, name)| (number, short(name))).collect()
}

impl Attached {
    /// Every hook of the table, and what became of it.
    #[must_use]
    pub fn hooks(&self) -> &[HookState] {
        &self.hooks
    }

    /// The interfaces whose packets are stamped.
    #[must_use]
    pub fn interfaces(&self) -> &[AttachedInterface] {
        &self.interfaces
    }

    /// Names of `enum skb_drop_reason` of the running kernel, without their prefix.
    #[must_use]
    pub fn drop_reasons(&self) -> &[(u32, String)] {
        &self.drop_reasons
    }

    /// Fields that this kernel does not have; the programs report zeros for them.
    #[must_use]
    pub fn missing_fields(&self) -> &[&'static str] {
        &self.missing_fields
    }

    /// The reading ends of the rings. The first call gets them.
    pub fn take_rings(&mut self) -> Option<Rings> {
        self.rings.take()
    }

    /// Ends the run at one moment for all programs: what they see from here on they do not emit.
    /// Taking them off the host takes tens of milliseconds, and what half of them saw meanwhile
    /// would tell of checks without replies and of threads without reasons.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to write the switch.
    pub fn silence(&mut self) -> Result<(), LoadError> {
        let name = "SILENT";
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map_mut(name).ok_or(LoadError::Incomplete { name })?;
        let mut switch = Array::<_, u32>::try_from(map).map_err(failed)?;
        switch.set(0, 1, 0).map_err(failed)
    }

    /// Emitted and lost records, for each CPU and kind, as of now.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to read the counters.
    pub fn losses(&self) -> Result<Vec<Loss>, LoadError> {
        let name = "LOSS";
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map(name).ok_or(LoadError::Incomplete { name })?;
        let rows = PerCpuArray::<_, [u64; 2]>::try_from(map).map_err(failed)?;
        let mut losses = Vec::new();
        for kind in EventKind::ALL {
            let values = rows.get(&u32::from(kind as u16), 0).map_err(failed)?;
            losses.extend(values.iter().enumerate().map(|(cpu, &[emitted, lost])| Loss {
                cpu,
                kind,
                row: LossRow { emitted, lost },
            }));
        }
        Ok(losses)
    }

    /// Runs that the kernel skipped because the same program was already running on that CPU,
    /// for each program. What those runs would have emitted is in no other counter.
    #[must_use]
    pub fn skipped_runs(&self) -> Vec<(String, u64)> {
        if let Some(counts) = &self.skipped_runs {
            return counts.clone();
        }
        let told = self.ebpf.programs().filter(|(name, _)| is_missed(name));
        told.filter_map(|(name, program)| Some((name.to_owned(), skipped_by(program)?))).collect()
    }

    /// What tells [`skipped_runs`](Self::skipped_runs) in sum, at a few microseconds a program: to
    /// be asked before anything is concluded.
    pub fn skip_watch(&self) -> SkipWatch {
        let told = self.ebpf.programs().filter(|(name, _)| is_missed(name));
        let files = told.filter_map(|(_, program)| File::open(told_of(program)?).ok());
        SkipWatch { files: files.collect() }
    }

    /// The programs' own diagnostics, when [`Request::diagnostics`] asked for them. Whoever takes
    /// the logger flushes it when it is readable; what it reads goes to the `log` crate.
    ///
    /// # Errors
    ///
    /// When the log's ring cannot be read.
    pub fn take_diagnostics(&mut self) -> Result<EbpfLogger<&'static dyn log::Log>, LoadError> {
        EbpfLogger::init(&mut self.ebpf).map_err(|error| LoadError::Diagnostics(Box::new(error)))
    }

    /// Instructions that the verifier walked, for each loaded program.
    #[must_use]
    pub fn verified_instructions(&self) -> Vec<(String, u32)> {
        let count = |(name, program): (&str, &Program)| {
            Some((name.to_owned(), program.info().ok()?.verified_instruction_count()?))
        };
        self.ebpf.programs().filter_map(count).collect()
    }

    /// How often each program ran and how long, if the kernel counts that (`kernel.bpf_stats_enabled`).
    #[must_use]
    pub fn runs(&self) -> Vec<(String, u64, Duration)> {
        let told = |(name, program): (&str, &Program)| {
            let info = program.info().ok()?;
            Some((name.to_owned(), info.run_count(), info.run_time()))
        };
        self.ebpf.programs().filter_map(told).collect()
    }

    /// Watches a process.
    ///
    /// # Errors
    ///
    /// When no process can have this number, or the kernel refuses to run the program.
    pub fn watch_tgid(&mut self, tgid: u32) -> Result<(), LoadError> {
        object::tell(&mut self.ebpf, "watch_process", tgid)
    }

    /// Forgets a process.
    ///
    /// # Errors
    ///
    /// As [`watch_tgid`](Self::watch_tgid).
    pub fn unwatch_tgid(&mut self, tgid: u32) -> Result<(), LoadError> {
        object::tell(&mut self.ebpf, "forget_process", tgid)
    }

    /// Runs a packet program `repeat` times on a frame that goes nowhere: for tests and benches.
    ///
    /// # Errors
    ///
    /// When there is no such program or the kernel refuses to run it.
    pub fn dry_run(&mut self, program: &'static str, frame: &[u8], repeat: u32) -> Result<DryRun, LoadError> {
        object::dry_run(&mut self.ebpf, program, frame, repeat).map_err(|source| object::run_error(program, source))
    }

    fn attach_hooks(
        &mut self,
        request: &Request,
        btf: &KernelBtf,
        types: &Btf,
        doubts: &[&'static str],
        called_off: CalledOff<'_>,
    ) -> Result<(), LoadError> {
        for hook in HOOKS {
            go_on(called_off)?;
            let unwanted =
                request.user_stacks.is_none() && hook.choices.iter().any(|choice| choice.attach == Attach::CpuClock);
            let outcome = if unwanted || request.excluded.iter().any(|name| name == hook.name) {
                Outcome::Excluded
            } else {
                match self.lacks(hook).map_or_else(|| self.attach_hook(hook, btf, types, doubts), Err) {
                    Ok(choice) if hook.only_with_tap => Outcome::Waiting(choice),
                    Ok(choice) => Outcome::Attached(choice),
                    Err(refusal) if is_required(hook, request) => return Err(refusal.into()),
                    Err(refusal) => Outcome::Refused(refusal),
                }
            };
            self.hooks.push(HookState { hook, outcome });
        }
        Ok(())
    }

    /// Why a hook must not run, if one that it needs does not.
    fn lacks(&self, hook: &'static Hook) -> Option<Refusal> {
        let runs = |needed: &&str| {
            let state = self.hooks.iter().find(|state| state.hook.name == *needed);
            state.is_some_and(|state| matches!(state.outcome, Outcome::Attached(_) | Outcome::Waiting(_)))
        };
        hook.needs.iter().find(|needed| !runs(needed)).map(|needed| Refusal::alone(hook, needed))
    }

    /// Attaches a hook in the first way that works. Packet programs are only loaded: they are
    /// attached to each interface.
    fn attach_hook(
        &mut self,
        hook: &'static Hook,
        btf: &KernelBtf,
        types: &Btf,
        doubts: &[&'static str],
    ) -> Result<Choice, Refusal> {
        let doubtful = |field: &&str| self.missing_fields.contains(field) || doubts.contains(field);
        if let Some(field) = hook.fields.iter().find(|field| doubtful(field)) {
            return Err(Refusal::doubtful_field(hook, field));
        }
        let mut refusal = Refusal::nothing_to_try(hook);
        for choice in hook.choices {
            match self.try_choice(hook, choice, btf, types) {
                Ok(()) => return Ok(*choice),
                Err(reason) => refusal = reason,
            }
        }
        Err(refusal)
    }

    fn try_choice(
        &mut self,
        hook: &'static Hook,
        choice: &Choice,
        btf: &KernelBtf,
        types: &Btf,
    ) -> Result<(), Refusal> {
        if self.avoided.iter().any(|name| name == choice.attach.name()) {
            return Err(Refusal::avoided(hook, choice));
        }
        match choice.attach {
            Attach::BtfTracepoint { tracepoint, arguments } | Attach::TailCall { tracepoint, arguments, .. } => {
                match btf.tracepoint_arguments(tracepoint) {
                    None => Err(Refusal::no_tracepoint(hook, tracepoint)),
                    Some(passed) if passed < arguments => Err(Refusal::old_tracepoint(hook, tracepoint, passed)),
                    Some(_) => object::load_tracepoint(&mut self.ebpf, choice, tracepoint, types)
                        .and_then(|()| {
                            if hook.only_with_tap { Ok(()) } else { object::attach_tracepoint(&mut self.ebpf, choice) }
                        })
                        .map_err(|error| Refusal::by_kernel(hook, choice, &error)),
                }
            }
            Attach::Tracepoint { category, tracepoint, first } => match format::read(category, tracepoint) {
                None => Err(Refusal::no_tracepoint(hook, tracepoint)),
                Some(text) if !format::begins_with(&text, first) => Err(Refusal::strange_format(hook, tracepoint)),
                Some(_) => object::load_formatted(&mut self.ebpf, choice)
                    .and_then(|()| {
                        if hook.only_with_tap { Ok(()) } else { object::attach_tracepoint(&mut self.ebpf, choice) }
                    })
                    .map_err(|error| Refusal::by_kernel(hook, choice, &error)),
            },
            Attach::CpuClock => {
                let hz = self.user_stacks.unwrap_or_default().sample_hz;
                let set = self.clocks.set(&mut self.ebpf, choice.program, hz);
                set.map_err(|error| Refusal::by_kernel(hook, choice, &error))
            }
            Attach::Tcx(_) if !btf.has_tcx_function("tcx_link_attach") => Err(Refusal::no_tcx(hook)),
            Attach::Tcx(_) | Attach::Clsact(_) => object::load_classifier(&mut self.ebpf, choice.program)
                .map_err(|error| Refusal::by_kernel(hook, choice, &error)),
        }
    }
}

/// Attaches the hooks that have waited for a tap.
fn attach_waiting(ebpf: &mut Ebpf, hooks: &mut [HookState]) {
    for state in hooks {
        let Outcome::Waiting(choice) = state.outcome else { continue };
        state.outcome = match object::attach_tracepoint(ebpf, &choice) {
            Ok(()) => Outcome::Attached(choice),
            Err(error) => Outcome::Refused(Refusal::by_kernel(state.hook, &choice, &error)),
        };
    }
}

fn is_required(hook: &Hook, request: &Request) -> bool {
    hook.required || request.required.iter().any(|name| name == hook.name)
}

/// What the kernel tells of each program, open to be read again and again.
#[derive(Debug)]
pub struct SkipWatch {
    files: Vec<File>,
}

impl SkipWatch {
    /// Runs that the kernel skipped so far, of all programs.
    #[must_use]
    pub fn count(&self) -> u64 {
        let mut info = [0; 1024];
        let mut sum = 0_u64;
        for file in &self.files {
            let len = file.read_at(&mut info, 0).unwrap_or(0);
            let text = info.get(..len).and_then(|bytes| str::from_utf8(bytes).ok());
            sum = sum.saturating_add(text.and_then(skipped_in).unwrap_or(0));
        }
        sum
    }
}

/// Whether something is missed when the kernel skips a run of a program. The programs of lock
/// contention tell of threads alone, and a run inside another of theirs on the same CPU is that of
/// an interrupt, or of a lock that this other run takes.
fn is_missed(program: &str) -> bool {
    !matches!(program, "lock_begin" | "lock_end")
}

fn skipped_by(program: &Program) -> Option<u64> {
    skipped_in(&fs::read_to_string(told_of(program)?).ok()?)
}

/// <https://github.com/torvalds/linux/blob/v6.12/kernel/bpf/syscall.c#L2352> (`bpf_prog_show_fdinfo`)
fn told_of(program: &Program) -> Option<String> {
    Some(format!("/proc/self/fdinfo/{}", program.fd().ok()?.as_fd().as_raw_fd()))
}

fn skipped_in(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("recursion_misses:"))?.trim().parse().ok()
}
