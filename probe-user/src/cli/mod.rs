//! The command line: flags as typed ([`args`]), their meaning, one file for each command.
//!
//! Results go to standard output, everything said about the run to standard error. An error is
//! one sentence, its chain printed once; nobody reading any more is a success.

pub mod args;
mod attach;
mod config;
mod destination;
mod doctor;
mod explain;
mod flame;
mod incident;
mod input;
mod join;
mod outcome;
mod replay;
mod report;
mod signature;
mod tally;
mod terminal;
mod value;

use args::{Cli, Command};
use clap::Parser;
use std::io;
use std::process::ExitCode;

pub use outcome::{Outcome, UsageError};

/// Runs the command that the arguments ask for, and says how it went. With its standard output
/// `closed` it could only lose what it finds.
#[must_use]
pub fn main(closed: bool) -> ExitCode {
    let command = Cli::parse().command;
    match if closed { Err(no_output()) } else { run(command) } {
        Ok(outcome) => outcome.into(),
        Err(error) if nobody_reads(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let sentence = terminal::sentence(&error);
            let sentence = if is_out_of_files(&sentence) { more_files() } else { sentence };
            terminal::say(&format!("error: {sentence}"));
            outcome::of_error(&error)
        }
    }
}

fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Attach(args) => attach::run(*args),
        Command::Replay(args) => replay::run(&args),
        Command::Join(args) => join::run(&args),
        Command::Flame(args) => flame::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Signature { command } => signature::run(&command, &mut io::stdout().lock()),
        Command::Explain(args) => explain::run(args.cause.as_deref(), &mut io::stdout().lock()),
        Command::Incident { command } => incident::run(&command),
    }
}

fn no_output() -> anyhow::Error {
    anyhow::anyhow!("standard output is closed: all results would be lost; direct it to a file, or to /dev/null")
}

/// The limit of open files was reached. Not every library keeps the error itself.
fn is_out_of_files(sentence: &str) -> bool {
    sentence.contains(&format!("os error {}", libc::EMFILE)) || sentence.contains("Too many open files")
}

fn more_files() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or_else(String::new, |files| format!(" {files}"));
    format!(
        "this process may have{limit} files open (ulimit -n), and whylag needs more: run `ulimit -n 1024`, then whylag \
         again"
    )
}

fn nobody_reads(error: &anyhow::Error) -> bool {
    let is_broken_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().filter_map(|cause| cause.downcast_ref()).any(is_broken_pipe)
}
