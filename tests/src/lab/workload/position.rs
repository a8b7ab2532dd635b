//! A file whose position has a mutex in the kernel: a long read holds that, on the CPU.

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What one call reads: tens of milliseconds of copying.
const BYTES: usize = 512 << 20;

/// The file, and memory that it is read into.
#[derive(Debug)]
pub(super) struct Position {
    file: File,
    memory: Mutex<Vec<u8>>,
}

impl Position {
    /// A file in memory that is one hole.
    pub(super) fn open() -> Result<Self> {
        let hole = File::from(memfd_create("hole", MemfdFlags::CLOEXEC).context("make a file in memory")?);
        hole.set_len(BYTES as u64).context("make the file large")?;
        // Only what was opened by a name has the mutex.
        let file = File::open(format!("/proc/self/fd/{}", hole.as_raw_fd())).context("open the file")?;
        let position = Self { file, memory: Mutex::new(vec![0; BYTES]) };
        // The memory is there from now on.
        position.read_for(Duration::ZERO)?;
        Ok(position)
    }

    /// Reads it again and again.
    pub(super) fn read_for(&self, time: Duration) -> Result<()> {
        let began = Instant::now();
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut file = &self.file;
            file.rewind().context("go back to the begin of the file")?;
            file.read_exact(&mut memory).context("read the file")?;
            if began.elapsed() >= time {
                return Ok(());
            }
        }
    }

    /// Needs the mutex.
    pub(super) fn ask(&self) -> Result<()> {
        let mut file = &self.file;
        file.stream_position().map(drop).context("ask for the file's position")
    }
}
