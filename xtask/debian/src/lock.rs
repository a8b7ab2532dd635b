//! Keeps two set-ups of one cache apart.

use std::{
    fs::{File, TryLockError},
    path::Path,
    process::Stdio,
};

use anyhow::{Context, Result};

/// The held lock; the system releases it when the last process that has it open ends.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes the lock, waiting for another set-up if there is one.
    ///
    /// # Errors
    /// The lock file cannot be made.
    pub fn take(cache: &Path) -> Result<Self> {
        let path = cache.join("lock");
        let file = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => return Ok(Self(file)),
            Err(TryLockError::WouldBlock) => {
                eprintln!("another set-up uses this cache: waiting for it");
                file.lock()
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
        .with_context(|| format!("cannot lock {}", path.display()))?;
        Ok(Self(file))
    }

    /// An empty input that carries the lock.
    ///
    /// A child whose parent was killed goes on for a while; as it holds the lock too, the next
    /// set-up waits for it instead of working in the same directory.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn as_input(&self) -> Result<Stdio> {
        Ok(self.0.try_clone().context("cannot share the lock")?.into())
    }
}
