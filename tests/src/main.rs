//! The `lab` command.

use clap::Parser;
use probe_tests::lab::cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run(cli::Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
