//! What this host can tell, from its hooks.

use super::{HookRow, Problem, Severity};
use crate::attribution::CAUSES;
use crate::journey::STAGES;
use serde::Serialize;

/// What this host can and cannot tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// `attach` can run.
    pub can_run: bool,
    /// Stages that some hook informs here.
    pub stages: Vec<&'static str>,
    /// All other stages: their hooks are refused, or this version has none for them.
    pub missing_stages: Vec<&'static str>,
    /// Causes that some hook informs here.
    pub causes: Vec<&'static str>,
    /// All other causes: no verdict will name them here.
    pub missing_causes: Vec<&'static str>,
}

impl Verdict {
    pub(super) fn of(hooks: &[HookRow], problems: &[Problem]) -> Self {
        let stages = || STAGES.iter().map(|row| row.name);
        let causes = || CAUSES.iter().map(|row| row.name);
        Self {
            can_run: problems.iter().all(|problem| problem.severity != Severity::Blocks),
            stages: informed(hooks, stages(), true),
            missing_stages: informed(hooks, stages(), false),
            causes: informed(hooks, causes(), true),
            missing_causes: informed(hooks, causes(), false),
        }
    }
}

/// Of `names`, those that an attached hook informs (`here`), or the others: a refused hook would
/// inform them, or this version has none that does.
fn informed(hooks: &[HookRow], names: impl Iterator<Item = &'static str>, here: bool) -> Vec<&'static str> {
    let attached = |name: &str| {
        hooks.iter().any(|hook| hook.choice.is_some() && hook.informs.iter().any(|informed| informed == name))
    };
    names.filter(|name| attached(name) == here).collect()
}
