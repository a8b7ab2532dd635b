//! The command line of `lab`.

use super::case::{CASES, Case, find};
use super::demo::{self, DemoArgs};
use super::figures::{Figures, Shown};
use super::guest;
use super::leash::{self, LeashArgs};
use super::process::Launcher;
use super::report::{Report, Tally, Truth};
use super::run::{Run, run as run_case};
use super::turn::Turn;
use super::vmm;
use super::whylag::Attach;
use super::workload::Role;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// Makes health checks slow on purpose, and marks what whylag says about them.
#[derive(Debug, clap::Parser)]
#[command(name = "lab")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Lists the cases.
    List(ListArgs),
    /// Fetches what cases need of Debian, and says what they need of a machine.
    #[command(hide = true)]
    Needs {
        /// Names of cases.
        cases: Vec<String>,
    },
    /// Runs cases while whylag watches, and marks its verdicts.
    Run(RunArgs),
    /// Runs all cases, and says how many verdicts were right.
    Score(ScoreArgs),
    /// Shows what a case does to the checks, without whylag.
    Rehearse {
        /// Names of cases; all of them if there is none.
        cases: Vec<String>,
    },
    /// Shows whylag at work on a fault of a real kind.
    Demo {
        #[command(flatten)]
        how: DemoArgs,
        /// whylag's binary [default: WHYLAG_BIN, else the one beside the lab's].
        #[arg(long, value_name = "FILE")]
        whylag: Option<PathBuf>,
    },
    /// Runs a command on the leash of the lab.
    #[command(hide = true)]
    Leash(LeashArgs),
    /// Is the first process of a virtual machine.
    #[command(hide = true)]
    Guest,
    /// Plays a role in a case.
    #[command(hide = true)]
    Role {
        #[command(subcommand)]
        role: Role,
    },
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only those that need what not every machine has: kernel modules, or one of the lab's own.
    #[arg(long)]
    special: bool,
    /// Only those with a guest by KVM.
    #[arg(long)]
    kvm: bool,
    /// Their names alone.
    #[arg(long)]
    names: bool,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Names of cases; see `lab list`.
    #[arg(required = true)]
    cases: Vec<String>,
    /// Keep whylag's recording of the last run in FILE.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Write whylag's own lines to FILE.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    how: ScoreArgs,
}

#[derive(Debug, clap::Args)]
struct ScoreArgs {
    /// How often each case is run.
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// One JSON object a run instead of text.
    #[arg(long)]
    json: bool,
    /// whylag's binary [default: WHYLAG_BIN, else the one beside the lab's].
    #[arg(long, value_name = "FILE")]
    whylag: Option<PathBuf>,
    /// Take all times of a case so many times: for a machine that is so much slower.
    #[arg(long, value_name = "FACTOR", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=20))]
    slowdown: u64,
}

/// Runs the command line.
///
/// # Errors
/// The lab itself failed.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::List(args) => list(&args),
        Command::Needs { cases } => return needs(&cases),
        Command::Run(args) => return mark_all(&chosen(&args.cases)?, args.how, args.record, args.keep),
        Command::Score(args) => return mark_all(&chosen(&[])?, args, None, None),
        Command::Rehearse { cases } => return rehearse(&chosen(&cases)?),
        Command::Demo { how, whylag } => {
            let launcher = launcher()?;
            let attach = Attach::find(whylag, &launcher.lab, None)?;
            return demo::demo(&how, &launcher, &attach);
        }
        Command::Leash(args) => leash::exec(args)?,
        Command::Guest => return guest::guest(),
        Command::Role { role } => role.play()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(args: &ListArgs) {
    let wanted = |case: &&Case| (!args.special || case.needs.is_special()) && (!args.kvm || case.has_kvm());
    for case in CASES.iter().filter(wanted) {
        if args.names {
            println!("{}", case.name);
            continue;
        }
        let twin = case.twin_of.map(|twin| format!(" (looks like {twin})")).unwrap_or_default();
        println!("{:22} {}{twin}", case.name, case.claim);
        case.needs.text().iter().for_each(|need| println!("{:22} needs {need}", ""));
        case.gap.iter().for_each(|gap| println!("{:22} known gap: {gap}", ""));
    }
}

/// One JSON object: the kernel modules of all of the cases, the roots of unpacked packages, and what
/// guests by KVM start with, if there are any.
fn needs(names: &[String]) -> Result<ExitCode> {
    let (mut modules, mut packages, mut kvm) = (BTreeSet::new(), BTreeSet::new(), false);
    for name in names {
        let case = find(name).with_context(|| format!("no case is called {name}; see lab list"))?;
        modules.extend(case.needs.modules.iter().map(|module| module.name));
        packages.extend(case.unpacked()?);
        kvm |= case.has_kvm();
    }
    let guest_modules = [vmm::MODULES, vmm::PACKET_MODULES].concat();
    let guests = kvm.then(|| serde_json::json!({ "kernel": vmm::KERNEL.name, "modules": guest_modules }));
    println!("{}", serde_json::json!({ "modules": modules, "packages": packages, "guests": guests }));
    Ok(ExitCode::SUCCESS)
}

fn chosen(names: &[String]) -> Result<Vec<&'static Case>> {
    if names.is_empty() {
        return Ok(CASES.iter().collect());
    }
    names.iter().map(|name| find(name).with_context(|| format!("no case is called {name}; see lab list"))).collect()
}

fn launcher() -> Result<Launcher> {
    Ok(Launcher { lab: std::env::current_exe().context("find the lab's own binary")? })
}

fn mark_all(
    cases: &[&'static Case],
    how: ScoreArgs,
    record: Option<PathBuf>,
    keep: Option<PathBuf>,
) -> Result<ExitCode> {
    let launcher = launcher()?;
    let attach = Attach::find(how.whylag, &launcher.lab, record)?;
    let _turn = Turn::take()?;
    let (mut tally, mut figures) = (Tally::NONE, Figures::default());
    let cases = cases.iter().map(|case| case.slowed(how.slowdown));
    for case in cases.flat_map(|case| std::iter::repeat_n(case, how.runs)) {
        let case = &case;
        let run = run_case(&launcher, case, Some(&attach)).with_context(|| format!("case {}", case.name))?;
        if let (Some(file), Run::Done(observed)) = (&keep, &run) {
            let lines = observed.said.iter().flat_map(|said| &said.lines).map(|line| format!("{line}\n"));
            std::fs::write(file, lines.collect::<String>()).with_context(|| format!("write {}", file.display()))?;
        }
        let report = Report::new(case, &run)?;
        tally.add(report.mark);
        report.score.iter().for_each(|score| figures.add(score));
        println!("{}", if how.json { serde_json::to_string(&report)? } else { report.text() });
    }
    let sum = Sum { tally, figures: figures.shown() };
    println!("{}", if how.json { serde_json::to_string(&sum)? } else { sum.text() });
    Ok(if tally.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All runs in one object.
#[derive(Debug, serde::Serialize)]
struct Sum {
    tally: Tally,
    figures: Shown,
}

impl Sum {
    fn text(&self) -> String {
        format!("{}\n{}", self.tally.line(), self.figures.text())
    }
}

fn rehearse(cases: &[&'static Case]) -> Result<ExitCode> {
    let launcher = launcher()?;
    let _turn = Turn::take()?;
    let mut all_proven = true;
    for case in cases {
        match run_case(&launcher, case, None)? {
            Run::Skipped(reason) => println!("{:22} skipped: {reason}", case.name),
            Run::Done(observed) => {
                all_proven &= observed.proof.holds();
                println!("{:22} {}", case.name, Truth::new(case, &observed).line());
            }
        }
    }
    Ok(if all_proven { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
