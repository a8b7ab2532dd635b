//! The project's tasks: `cargo xtask <task>`. One module per task.

mod bench;
mod check_object;
mod ci;
mod demo;
mod docs;
mod lab;
mod links;
mod packages;
mod setup;
mod test;
mod vm;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Fetch and build what the kernel programs are compiled with, into the user's cache
    Setup,
    /// The gate: format, lints, the kernel object's properties, documentation, its links
    Ci,
    /// Set up, build, and measure what whylag costs beside what it replaces (needs root)
    Bench {
        /// One JSON object a line instead of a table.
        #[arg(long)]
        json: bool,
        /// What to measure; all if nothing.
        names: Vec<String>,
    },
    /// Write `docs/reference` from the tables in the code
    Docs,
    /// Set up, build, and show whylag find the cause of slow health checks (needs root)
    Demo,
    /// Set up, build, and run the lab: list, run CASE, score (needs root)
    Lab {
        /// What the lab is told; `list` if nothing.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, default_value = "list")]
        arguments: Vec<String>,
    },
    /// Set up, build, and run lab cases on other kernels in virtual machines
    Vm {
        #[command(subcommand)]
        verb: vm::Verb,
    },
    /// Set up, install what the tests need, run them, then the gate
    Test,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Setup => setup::run(),
        Task::Ci => ci::run(),
        Task::Bench { json, names } => bench::run(json, &names),
        Task::Docs => docs::run(),
        Task::Demo => demo::run(),
        Task::Lab { arguments } => lab::run(&arguments),
        Task::Vm { verb } => vm::run(&verb),
        Task::Test => test::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
