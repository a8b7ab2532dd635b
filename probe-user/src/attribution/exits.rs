//! What is known of the exits of KVM's guests that the host handled on their vCPUs' threads.
//!
//! Records go in; what of a stretch of time went to that comes out. Bounded by age and by count.

use super::storage::{forget, keep};
use super::symbol::Fast;
use super::thread::spread;
use crate::clock::{DurNs, MonoNs};
use crate::event::{Event, TaskId};
use probe_wire::GuestExitsBody;
use std::collections::{HashMap, VecDeque};

/// Most threads whose exits are kept.
const MAX_THREADS: usize = 8_192;
/// Most records kept of one.
const MAX_PER_THREAD: usize = 8_192;
/// `processor` of records, and names of exits that are often long, as the kernel prints them.
/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/uapi/asm/vmx.h>,
/// <https://github.com/torvalds/linux/blob/v6.12/arch/x86/include/uapi/asm/svm.h>
const REASONS: &[(u32, u32, &str)] = &[
    (1, 0, "EXCEPTION_NMI"),
    (1, 1, "EXTERNAL_INTERRUPT"),
    (1, 7, "INTERRUPT_WINDOW"),
    (1, 10, "CPUID"),
    (1, 12, "HLT"),
    (1, 18, "VMCALL"),
    (1, 28, "CR_ACCESS"),
    (1, 30, "IO_INSTRUCTION"),
    (1, 31, "MSR_READ"),
    (1, 32, "MSR_WRITE"),
    (1, 40, "PAUSE_INSTRUCTION"),
    (1, 48, "EPT_VIOLATION"),
    (1, 49, "EPT_MISCONFIG"),
    (1, 52, "PREEMPTION_TIMER"),
    (1, 56, "APIC_WRITE"),
    (2, 0x60, "interrupt"),
    (2, 0x64, "vintr"),
    (2, 0x72, "cpuid"),
    (2, 0x77, "pause"),
    (2, 0x78, "hlt"),
    (2, 0x7b, "io"),
    (2, 0x7c, "msr"),
    (2, 0x81, "hypercall"),
    (2, 0x400, "npf"),
    (2, 0x401, "avic_incomplete_ipi"),
];

/// Exits that were handled one after the other, the thread's CPU its own all the while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exits {
    from: MonoNs,
    to: MonoNs,
    handled: DurNs,
    longest: DurNs,
    count: u32,
    reason: u32,
    processor: u32,
}

impl Exits {
    fn of(at: MonoNs, body: &GuestExitsBody) -> Self {
        let from = MonoNs(body.since_ns).min(at);
        let handled = DurNs(body.handled_ns.min(at.since(from).0));
        let GuestExitsBody { longest_ns, exits, reason, processor, .. } = *body;
        Self { from, to: at, handled, longest: DurNs(longest_ns).min(handled), count: exits, reason, processor }
    }

    fn reason(&self) -> String {
        let known =
            REASONS.iter().find(|(processor, reason, _)| (*processor, *reason) == (self.processor, self.reason));
        known.map_or_else(|| format!("reason {:#x}", self.reason), |(_, _, name)| (*name).to_owned())
    }
}

/// What the exits of a stretch of time came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Handled {
    pub(super) time: DurNs,
    /// How often the guest exited, or a little more often.
    pub(super) count: u64,
    pub(super) longest: DurNs,
    /// Why it exited that time.
    pub(super) reason: String,
}

/// Everything known of such exits.
#[derive(Debug, Default)]
pub(super) struct GuestExits {
    exits: HashMap<TaskId, VecDeque<Exits>, Fast>,
}

impl GuestExits {
    pub(super) fn add(&mut self, event: &Event, body: &GuestExitsBody) {
        keep(&mut self.exits, event.task, Exits::of(event.at, body), (MAX_THREADS, MAX_PER_THREAD));
    }

    /// Forgets what ended before `before`.
    pub(super) fn trim(&mut self, before: MonoNs) {
        forget(&mut self.exits, |exits| exits.to < before);
    }

    /// Whether an exit of a thread's guest is kept: it is a vCPU of KVM's.
    pub(super) fn any(&self, task: TaskId) -> bool {
        self.exits.get(&task).is_some_and(|exits| !exits.is_empty())
    }

    /// The exits of `task`'s guest between `from` and `to`; where those of one record lie is not told.
    pub(super) fn handled(&self, task: TaskId, from: MonoNs, to: MonoNs) -> Option<Handled> {
        let known = self.exits.get(&task)?;
        let begin = known.partition_point(|exits| exits.to <= from);
        let within: Vec<&Exits> = known.range(begin..).take_while(|exits| exits.from < to).collect();
        let longest = within.iter().max_by_key(|exits| exits.longest)?;
        let part = |exits: &&Exits| {
            let inside = exits.to.min(to).since(exits.from.max(from));
            spread(exits.handled, inside, exits.to.since(exits.from))
        };
        Some(Handled {
            time: within.iter().map(part).fold(DurNs::ZERO, DurNs::plus),
            count: within.iter().map(|exits| u64::from(exits.count)).sum(),
            longest: longest.longest,
            reason: longest.reason(),
        })
    }
}
