//! Runs the programs that fetch and unpack, and shows how far they are.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::{Error, Lock};

/// How often a running program is looked at.
const TICK: Duration = Duration::from_millis(100);

/// Lines of a failed program's output that the error repeats.
const TAIL_LINES: usize = 15;

/// A directory that grows to a known size while a step runs.
#[derive(Debug, Clone, Copy)]
pub struct Growth<'a> {
    /// The directory.
    pub directory: &'a Path,
    /// Its size at the end.
    pub bytes: u64,
}

/// The steps of a set-up.
#[derive(Debug)]
pub struct Steps<'a> {
    log: PathBuf,
    lock: &'a Lock,
}

impl<'a> Steps<'a> {
    /// Steps whose output is logged in `cache`.
    #[must_use]
    pub fn new(cache: &Path, lock: &'a Lock) -> Self {
        Self { log: cache.join("setup.log"), lock }
    }

    /// Says one line.
    pub fn note(&self, line: &str) {
        eprintln!("  {line}");
    }

    /// Runs one program as the step `what` and says how long it took.
    ///
    /// # Errors
    /// It does not start, or fails: then with the end of what it said.
    pub fn run(&self, what: &str, command: &mut Command, growth: Option<Growth<'_>>) -> Result<()> {
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
    ///
    /// # Errors
    /// `status` is that of a failure.
    pub fn check(&self, what: &str, status: ExitStatus) -> Result<()> {
        if status.success() {
            return Ok(());
        }
        let text = self.said();
        let lines: Vec<_> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
        Err(Error::Step { what: what.to_owned(), log: self.log.clone(), tail }.into())
    }

    /// All that the last program said.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read(&self.log).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A new log for the next program.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn log_file(&self) -> Result<File> {
        File::create(&self.log).with_context(|| format!("cannot write {}", self.log.display()))
    }

    /// The lock that keeps others out of the cache.
    #[must_use]
    pub fn lock(&self) -> &Lock {
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
fn size(directory: &Path) -> u64 {
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
