//! A virtual machine takes both processors of a small machine, and so do the faults of the lab:
//! they take turns.

use std::{env, fs::File};

use anyhow::{Context, Result};

/// The file that the lab locks while it injects faults.
const LOCK: &str = "whylag-lab.lock";

/// Waits until no lab runs on this machine. The turn ends with the file.
pub(super) fn take() -> Result<File> {
    let path = env::temp_dir().join(LOCK);
    let file = File::create(&path).with_context(|| format!("cannot open {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("    waiting for another lab run on this machine");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}
