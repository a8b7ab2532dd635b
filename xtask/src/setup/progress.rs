//! Runs the programs of the set-up and shows how far they are.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use super::{error::SetupError, lock::Lock};

/// How often a running program is looked at.
const TICK: Duration = Duration::from_millis(100);

/// Lines of a failed program's output that the error repeats.
const TAIL_LINES: usize = 15;

/// A directory that grows to a known size while a step runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) bytes: u64,
}

/// The set-up's steps.
#[derive(Debug)]
pub(crate) struct Steps<'a> {
    log: PathBuf,
    lock: &'a Lock,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(cache: &Path, lock: &'a Lock) -> Self {
        Self { log: cache.join("setup.log"), lock }
    }

    /// Says one line.
    pub(crate) fn note(&self, line: &str) {
        eprintln!("  {line}");
    }

    /// Runs one program as the step `what` and says how long it took.
    pub(crate) fn run(&self, what: &str, command: &mut Command, growth: Option<Growth<'_>>) -> Result<()> {
        let started = Instant::now();
        let bar = bar(what, growth);
        let log = self.log_file()?;
        let child = command
            .stdin(self.lock.as_input()?)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let status = wait(child, &bar, growth);
        bar.finish_and_clear();
        self.check(what, status?)?;
        self.note(&done(what, started.elapsed(), growth));
        Ok(())
    }

    /// The error of a step that failed, with the end of what it said.
    pub(crate) fn check(&self, what: &str, status: ExitStatus) -> Result<()> {
        if status.success() {
            return Ok(());
        }
        let text = self.said();
        let lines: Vec<_> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        Err(SetupError::Step { what: what.to_owned(), log: self.log.clone(), tail }.into())
    }

    /// All that the last program said.
    pub(crate) fn said(&self) -> String {
        fs::read(&self.log).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A new log for the next program.
    pub(crate) fn log_file(&self) -> Result<File> {
        File::create(&self.log).with_context(|| format!("cannot write {}", self.log.display()))
    }

    pub(crate) fn lock(&self) -> &Lock {
        self.lock
    }
}

fn bar(what: &str, growth: Option<Growth<'_>>) -> ProgressBar {
    let (bar, template) = match growth {
        Some(growth) => (ProgressBar::new(growth.bytes), "  {msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}"),
        None => (ProgressBar::new_spinner(), "  {spinner} {msg} {elapsed}"),
    };
    let style = ProgressStyle::with_template(template).expect("the template is a constant");
    bar.set_style(style);
    bar.set_message(what.to_owned());
    bar
}

fn wait(mut child: Child, bar: &ProgressBar, growth: Option<Growth<'_>>) -> Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match growth {
            Some(growth) => bar.set_position(size(growth.directory)),
            None => bar.tick(),
        }
        thread::sleep(TICK);
    }
}

/// Bytes in the files of `directory`, not counting directories below it.
pub(crate) fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok());
    files.filter(fs::Metadata::is_file).map(|m| m.len()).sum()
}

fn done(what: &str, took: Duration, growth: Option<Growth<'_>>) -> String {
    let took = took.as_secs_f64();
    match growth {
        Some(growth) => format!("{what}: {} in {took:.1} s", HumanBytes(growth.bytes)),
        None => format!("{what}: {took:.1} s"),
    }
}
