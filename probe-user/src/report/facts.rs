//! What the recording says of the run and its host, as rows.

use super::words::{counted, shown};
use crate::clock::DurNs;
use crate::event::{Fact, InterfaceFact, InterfaceRole, RunFact, Threshold};
use crate::hooks::HOOKS;
use crate::host::{self, CostFact, CounterFact, HostFact};
use crate::stack::{StackCounts, TakenCount};
use maud::{Markup, html};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of one group at most.
const MAX_ROWS: usize = 64;
/// Rows of one group at most, of those that are folded away.
const MAX_FOLDED: usize = 256;

/// Rows of facts, by group.
#[derive(Debug, Default)]
pub(super) struct Facts {
    groups: BTreeMap<Group, Vec<(String, String)>>,
    active: Option<BTreeSet<String>>,
    /// The kernel's counters at the first look.
    counters: Option<Vec<CounterFact>>,
    stacks: Option<StackCounts>,
}

/// What a row is about, in the order in which they stand; from `Interrupts` on folded away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Run,
    Stacks,
    Cost,
    Host,
    Interfaces,
    Disks,
    Guests,
    Counters,
    Interrupts,
    Settings,
    Programs,
}

impl Group {
    const fn name(self) -> &'static str {
        match self {
            Self::Run => "Run",
            Self::Stacks => "Stacks of threads",
            Self::Cost => "What whylag itself has cost",
            Self::Host => "Host",
            Self::Interfaces => "Interfaces",
            Self::Disks => "Disks",
            Self::Guests => "Guests",
            Self::Counters => "Losses that the kernel counted meanwhile",
            Self::Interrupts => "Interrupts, RPS and XPS",
            Self::Settings => "Settings",
            Self::Programs => "Cost of each kernel program",
        }
    }

    /// Many rows, and few of them matter.
    fn is_folded(self) -> bool {
        self >= Self::Interrupts
    }

    fn most_rows(self) -> usize {
        if self.is_folded() { MAX_FOLDED } else { MAX_ROWS }
    }
}

impl Facts {
    pub(super) fn push(&mut self, fact: &Fact) {
        match fact {
            Fact::Run(run) => self.run(run),
            Fact::Hooks { active } => {
                let active: BTreeSet<_> = active.iter().cloned().collect();
                self.add(Group::Run, "hooks attached", &format!("{} of {}", active.len(), HOOKS.len()));
                self.active = Some(active);
            }
            Fact::Interface(interface) => self.add(Group::Interfaces, &interface.name, &part(interface)),
            Fact::Device { number, name, .. } => {
                self.add(Group::Disks, name, &format!("{}:{}", number >> 20, number & 0xf_ffff));
            }
            Fact::Uncounted(uncounted) => {
                self.add(Group::Run, "threads without counters", &uncounted.threads().to_string());
            }
            Fact::Pseudonyms => self.add(Group::Run, "network addresses", "pseudonyms: no real host has them"),
            Fact::Host(fact) => self.host(fact),
            Fact::Cost(cost) => self.cost(cost),
            // The last word counts.
            Fact::StackCounts(counts) => self.stacks = Some(*counts),
            _ => {}
        }
    }

    fn host(&mut self, fact: &HostFact) {
        let group = match fact {
            HostFact::Settings { settings } => {
                settings.iter().for_each(|setting| self.add(Group::Settings, &setting.name, &setting.value));
                return;
            }
            HostFact::Counters { counters } => return self.counters(counters),
            HostFact::Nic(nic) => {
                host::queues(nic).iter().for_each(|(name, text)| self.add(Group::Interrupts, name, text));
                Group::Interfaces
            }
            HostFact::Disk(_) => Group::Disks,
            HostFact::Guest(_) => Group::Guests,
            HostFact::System(_) | HostFact::Gap { .. } => Group::Host,
        };
        if let Some((name, text)) = host::told(fact) {
            self.add(group, &name, &text);
        }
    }

    /// What they grew by since the first look.
    fn counters(&mut self, now: &[CounterFact]) {
        let Some(first) = &self.counters else {
            self.counters = Some(now.to_vec());
            return;
        };
        let grown = host::grown(first, now);
        self.groups.remove(&Group::Counters);
        if grown.is_empty() {
            self.add(Group::Counters, "none", "of those that were looked at grew");
        }
        grown.iter().for_each(|(name, more)| self.add(Group::Counters, name, &format!("+{more}")));
    }

    fn cost(&mut self, cost: &CostFact) {
        self.groups.remove(&Group::Cost);
        self.groups.remove(&Group::Programs);
        host::spent(cost).iter().for_each(|(what, text)| self.add(Group::Cost, what, text));
        let mut programs: Vec<_> = cost.programs.iter().collect();
        programs.sort_by_key(|program| Reverse(program.run_ns));
        for program in programs {
            let each = DurNs(program.run_ns / program.runs.max(1));
            let text = format!("{} in {}, {each} each", DurNs(program.run_ns), counted(program.runs, "run"));
            self.add(Group::Programs, &program.name, &text);
        }
    }

    /// Stacks that were due, and are not in the recording.
    pub(super) fn stacks_left_out(&self) -> Vec<(u64, &'static str)> {
        let Some(StackCounts { samples, waits, late, no_time }) = self.stacks else { return Vec::new() };
        let reasons = [
            (samples.lost + waits.lost, "lost: a ring was full"),
            (samples.spared + waits.spared, "spared: beyond what a CPU may spend on them"),
            (late, "copied, but read too late"),
            (no_time, "copied, but there was no time to unwind them"),
        ];
        reasons.into_iter().filter(|(count, _)| *count > 0).collect()
    }

    fn run(&mut self, run: &RunFact) {
        self.add(Group::Run, "whylag", &run.version);
        for signature in &run.signatures {
            self.add(Group::Run, "signature", &crate::signature::readable(&signature.name));
        }
        let threshold = match run.threshold {
            Threshold::Fixed(limit) => format!("above {limit}"),
            Threshold::Multiple(times) => format!("above {times} times the usual"),
        };
        self.add(Group::Run, "slow", &threshold);
        self.add(Group::Run, "lost", &format!("without an answer for {}", run.lost_after));
    }

    /// A row that stands already is not added again.
    fn add(&mut self, group: Group, name: &str, value: &str) {
        let rows = self.groups.entry(group).or_default();
        let row = (shown(name), shown(value));
        if rows.len() < group.most_rows() && !rows.contains(&row) {
            rows.push(row);
        }
    }

    /// Hooks that the run did without, with what they tell.
    pub(super) fn without(&self) -> Vec<(&'static str, &'static str)> {
        let Some(active) = &self.active else { return Vec::new() };
        let absent = HOOKS.iter().filter(|hook| !hook.only_with_tap && !active.contains(hook.name));
        absent.map(|hook| (hook.name, hook.tells)).collect()
    }

    pub(super) fn section(&self) -> Markup {
        let mut groups: BTreeMap<_, _> = self.groups.iter().map(|(group, rows)| (*group, rows.as_slice())).collect();
        let stacks = self.stacks.map_or(Vec::new(), |counts| taken(&counts));
        if !stacks.is_empty() {
            groups.insert(Group::Stacks, &stacks);
        }
        let (folded, open): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(group, _)| group.is_folded());
        html! {
            div class="facts-grid" {
                @for (group, rows) in open { div { h3 { (group.name()) } (list(group, rows)) } }
            }
            @for (group, rows) in folded {
                details { summary { (group.name()) " (" (rows.len()) ")" } (list(group, rows)) }
            }
        }
    }
}

fn list(group: Group, rows: &[(String, String)]) -> Markup {
    html! {
        dl { @for (name, value) in rows { dt { (name) } dd { (value) } } }
        @if rows.len() == group.most_rows() {
            p class="note" { "No more than " (counted(rows.len() as u64, "row")) " are told." }
        }
    }
}

/// How many stacks were due and how many of them there are.
fn taken(counts: &StackCounts) -> Vec<(String, String)> {
    let told = |count: &TakenCount| {
        let copied = count.due.saturating_sub(count.lost + count.spared);
        format!("{copied} copied of {} that were due", count.due)
    };
    let rows = [("of threads on a CPU", told(&counts.samples)), ("of threads that waited", told(&counts.waits))];
    rows.into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
}

fn part(interface: &InterfaceFact) -> String {
    let role = match interface.role {
        InterfaceRole::PhysicalNic => "physical NIC",
        InterfaceRole::VirtualNic => "host end of a VM or pod",
        InterfaceRole::Inner => "inside the guest or pod",
    };
    let label = if interface.label == interface.name || interface.label.is_empty() {
        String::new()
    } else {
        format!(", told as {}", shown(&interface.label))
    };
    let queues = format!(
        "{}, {}",
        counted(interface.rx_queues.into(), "receive queue"),
        counted(interface.tx_queues.into(), "transmit queue")
    );
    format!("{role} ({}), index {}, {queues}{label}", shown(&interface.kind), interface.id.ifindex)
}
