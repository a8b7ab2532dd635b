//! What this host can tell about its checks, what it refuses, and the command that changes that.
//!
//! [`Report::gather`] looks at the host and never fails: what cannot be found out is
//! [`Known::Unknown`] with its reason. Problems and verdict are computed from the facts alone.
//! Nothing on the host is changed, and nothing of a process' arguments or environment is read.

mod host;
mod problem;
mod text;
mod verdict;

use crate::target::{Container, Discovery, Gap, Interface, Machine, Selection, Targets};
use serde::Serialize;

pub use host::{CgroupLayout, CpuAccounts, HostFacts, Privilege, Setting, ThreadCounting, TypeInformation};
pub use problem::{Problem, Severity};
pub use verdict::Verdict;

/// A value, or why it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known<T> {
    /// The value.
    Known(T),
    /// Why it is not known.
    Unknown(String),
}

impl<T> Known<T> {
    /// The value, if it is known.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

/// One hook, and what became of it here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HookRow {
    /// Its public name.
    pub name: String,
    /// Stages and causes that it informs, by their public names.
    pub informs: Vec<String>,
    /// The way of attaching that works here; `None` if none does.
    pub choice: Option<String>,
    /// The ways that were tried before, or that all failed.
    pub refused: Vec<Refused>,
}

/// A way of attaching that does not work here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Which way.
    pub attempt: String,
    /// Why.
    pub reason: String,
    /// What would help.
    pub fix: String,
}

/// An interface with the name of its namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InterfaceRow {
    /// Namespace, for people.
    pub namespace: String,
    /// The interface.
    #[serde(flatten)]
    pub interface: Interface,
}

/// What `attach` would watch with nothing named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Automatic {
    /// Interfaces, by name.
    pub interfaces: Vec<String>,
    /// Why.
    pub reasons: Vec<String>,
}

/// Everything `whylag doctor` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// `doctor`, as every JSON object of whylag says what it is.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Version of whylag.
    pub version: &'static str,
    /// What this host can and cannot tell.
    pub verdict: Verdict,
    /// What is wrong, the worst first, each with its remedy.
    pub problems: Vec<Problem>,
    /// Kernel, privileges and settings.
    pub host: HostFacts,
    /// Every hook.
    pub hooks: Vec<HookRow>,
    /// Interfaces of every reachable namespace.
    pub interfaces: Vec<InterfaceRow>,
    /// Virtual machines.
    pub machines: Vec<Machine>,
    /// Containers.
    pub containers: Vec<Container>,
    /// What `attach` would watch with nothing named.
    pub automatic: Known<Automatic>,
    /// What could not be looked at.
    pub gaps: Vec<Gap>,
}

impl Report {
    /// Looks at the host; `hooks` says what the loader found.
    #[must_use]
    pub fn gather(hooks: Vec<HookRow>) -> Self {
        Self::assemble(HostFacts::gather(), Discovery::scan(), hooks)
    }

    fn assemble(host: HostFacts, discovery: Discovery, hooks: Vec<HookRow>) -> Self {
        let problems = problem::find(&host, &discovery, &hooks);
        Self {
            kind: "doctor",
            version: env!("CARGO_PKG_VERSION"),
            verdict: Verdict::of(&hooks, &problems),
            problems,
            host,
            hooks,
            automatic: automatic(&discovery),
            interfaces: rows(&discovery),
            machines: discovery.machines,
            containers: discovery.containers,
            gaps: discovery.gaps,
        }
    }

    /// Nothing forbids `attach`.
    #[must_use]
    pub fn can_run(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity != Severity::Blocks)
    }

    /// For people: lines of at most `width` columns where the words allow it, in colour for a
    /// terminal. Control characters in names are replaced.
    #[must_use]
    pub fn to_text(&self, width: usize, colour: bool) -> String {
        text::render(self, width, colour)
    }
}

fn automatic(discovery: &Discovery) -> Known<Automatic> {
    match Selection::choose(&Targets::default(), discovery) {
        Ok(selection) => Known::Known(Automatic {
            interfaces: selection.chosen.into_iter().map(|chosen| chosen.interface.name).collect(),
            reasons: selection.reasons,
        }),
        Err(error) => Known::Unknown(error.to_string()),
    }
}

fn rows(discovery: &Discovery) -> Vec<InterfaceRow> {
    let name = |cookie| discovery.namespace(cookie).map_or_else(|| "unknown".to_owned(), |place| place.display_name());
    let row =
        |interface: &Interface| InterfaceRow { namespace: name(interface.id.netns), interface: interface.clone() };
    discovery.interfaces.iter().map(row).collect()
}

#[cfg(test)]
mod tests;
