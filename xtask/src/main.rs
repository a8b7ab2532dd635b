//! The project's tasks: `cargo xtask <task>`. One module per task.

mod check_object;
mod ci;
mod packages;
mod setup;
mod test;
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
    /// The gate: format, lints, the kernel object's properties, documentation
    Ci,
    /// Set up, install what the tests need, run them, then the gate
    Test,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Setup => setup::run(),
        Task::Ci => ci::run(),
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
