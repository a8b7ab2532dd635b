//! One run at a time on this machine: a fault that takes a CPU must not meet another run.

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;

/// The right to inject faults. Ends with the process, however that ends.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

impl Turn {
    /// Waits for it.
    ///
    /// # Errors
    /// The lock file cannot be made.
    pub fn take() -> Result<Self> {
        let path = std::env::temp_dir().join("whylag-lab.lock");
        let lock = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        flock(&lock, FlockOperation::LockExclusive).with_context(|| format!("lock {}", path.display()))?;
        Ok(Self { _lock: lock })
    }
}
