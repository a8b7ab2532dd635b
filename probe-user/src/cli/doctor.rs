//! `whylag doctor`: what this host can do, what is refused and why, the exact fix.

use super::args::DoctorArgs;
use super::{Outcome, terminal};
use crate::doctor::{HookRow, Refused, Report};
use crate::hooks::{HOOKS, Hook};
use crate::load::{self, HookState, Request, UserStacks};
use anyhow::Context;
use std::io::{self, Write};

/// Runs the command: loads every program for a moment, on no interface, and says what became of it.
pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<Outcome> {
    let report = Report::gather(tried_hooks());
    write(&report, args.json, &mut io::stdout().lock()).context("cannot write the report")?;
    Ok(if report.can_run() { Outcome::Healthy } else { Outcome::Broken })
}

fn write(report: &Report, json: bool, out: &mut impl Write) -> io::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, report)?;
        return writeln!(out);
    }
    let look = terminal::look();
    out.write_all(report.to_text(look.width, look.colour).as_bytes())
}

fn tried_hooks() -> Vec<HookRow> {
    let user_stacks = load::unsafe_kernel().is_none().then(UserStacks::default);
    match load::load(&Request { user_stacks, ..Request::default() }) {
        Ok(attached) => attached.hooks().iter().map(tried).collect(),
        Err(error) => {
            let reason = terminal::sentence(&anyhow::Error::from(error));
            HOOKS.iter().map(|hook| unloadable(hook, &reason)).collect()
        }
    }
}

fn tried(state: &HookState) -> HookRow {
    let row = row(state.hook);
    match &state.outcome {
        load::Outcome::Attached(choice) | load::Outcome::Waiting(choice) => {
            HookRow { choice: Some(choice.attach.name().to_owned()), ..row }
        }
        load::Outcome::Refused(refusal) => {
            let (reason, fix) = (refusal.reason.clone(), refusal.fix.clone());
            HookRow { refused: vec![Refused { attempt: attempt(state.hook), reason, fix }], ..row }
        }
        load::Outcome::Excluded => {
            let reason = load::unsafe_kernel().unwrap_or_else(|| "it is not wanted".to_owned());
            let fix = "update the kernel; whylag works without".to_owned();
            HookRow { refused: vec![Refused { attempt: attempt(state.hook), reason, fix }], ..row }
        }
    }
}

/// Nothing can be tried when the programs do not even load.
fn unloadable(hook: &Hook, reason: &str) -> HookRow {
    let fix = "run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN".to_owned();
    HookRow { refused: vec![Refused { attempt: attempt(hook), reason: reason.to_owned(), fix }], ..row(hook) }
}

fn row(hook: &Hook) -> HookRow {
    HookRow {
        name: hook.name.to_owned(),
        informs: hook.informs.iter().map(|&name| name.to_owned()).collect(),
        choice: None,
        refused: Vec::new(),
    }
}

/// The last way that is tried.
fn attempt(hook: &Hook) -> String {
    hook.choices.last().map_or("none", |choice| choice.attach.name()).to_owned()
}
