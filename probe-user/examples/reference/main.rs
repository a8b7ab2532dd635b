//! Writes `docs/reference` from the tables in the code, or checks that it is up to date.
//!
//! `reference [--check] DIRECTORY`; run by `cargo xtask docs` and `cargo xtask ci`.

mod events;
mod markdown;
mod tables;

use std::{fs, io, path::Path, process::ExitCode};

use anyhow::{Context as _, Result, bail};

/// A page and how it is made.
type Page = (&'static str, fn() -> Result<String>);

const PAGES: [Page; 6] = [
    ("stages.md", || Ok(tables::stages())),
    ("causes.md", || Ok(tables::causes())),
    ("loss-places.md", || Ok(tables::places())),
    ("hooks.md", || Ok(tables::hooks())),
    ("fields.md", || Ok(tables::fields())),
    ("events.md", events::page),
];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reference: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--check", directory] => check(Path::new(directory)),
        [directory] => write(Path::new(directory)),
        _ => bail!("usage: reference [--check] DIRECTORY"),
    }
}

fn write(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    for (name, page) in PAGES {
        let path = directory.join(name);
        fs::write(&path, page()?).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Fails with the names of the pages that differ from what would be written.
fn check(directory: &Path) -> Result<()> {
    let mut stale = Vec::new();
    for (name, page) in PAGES {
        if !is_current(&directory.join(name), &page()?)? {
            stale.push(name);
        }
    }
    if stale.is_empty() { Ok(()) } else { bail!("out of date: {}", stale.join(", ")) }
}

fn is_current(path: &Path, page: &str) -> Result<bool> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text == page),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}
