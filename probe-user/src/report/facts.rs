//! What the recording says of the run and its host, as rows.

use super::words::{counted, shown};
use crate::event::{Fact, InterfaceFact, InterfaceRole, RunFact, Threshold};
use crate::hooks::HOOKS;
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

/// Rows of one group at most.
const MAX_ROWS: usize = 64;

/// Rows of facts, by group.
#[derive(Debug, Default)]
pub(super) struct Facts {
    groups: BTreeMap<Group, Vec<(String, String)>>,
    active: Option<BTreeSet<String>>,
}

/// What a row is about, in the order in which they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Run,
    Interfaces,
    Disks,
}

impl Group {
    const fn name(self) -> &'static str {
        match self {
            Self::Run => "Run",
            Self::Interfaces => "Interfaces",
            Self::Disks => "Disks",
        }
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
            Fact::Device { number, name } => {
                self.add(Group::Disks, name, &format!("{}:{}", number >> 20, number & 0xf_ffff));
            }
            Fact::Uncounted(uncounted) => {
                self.add(Group::Run, "threads without counters", &uncounted.threads().to_string());
            }
            _ => {}
        }
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
        if rows.len() < MAX_ROWS && !rows.contains(&row) {
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
        html! {
            div class="facts-grid" {
                @for (group, rows) in &self.groups {
                    div {
                        h3 { (group.name()) }
                        dl { @for (name, value) in rows { dt { (name) } dd { (value) } } }
                        @if rows.len() == MAX_ROWS {
                            p class="note" { "No more than " (counted(MAX_ROWS as u64, "row")) " are told." }
                        }
                    }
                }
            }
        }
    }
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
