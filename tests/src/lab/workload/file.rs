//! What a handler does with a file.

use super::slow_device::{ROOM, TURNS};
use anyhow::{Context, Result};
use rustix::fs::{Advice, OFlags, fadvise};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Name of a file on the lab's disk that lies in no cache.
pub(in crate::lab) const COLD: &str = "cold";
/// Its size, bytes.
pub(super) const COLD_BYTES: usize = 1 << 20;
/// More than may be dirty, or fit into the memory of the server's cgroup, where that is limited.
const MUCH_BYTES: usize = 4 << 20;

const CHUNK_BYTES: usize = 65_536;

/// As direct I/O wants it.
#[repr(align(4096))]
struct Block([u8; 4096]);

/// Waits for its pages to be written back. They have their place on the disk, so that no
/// transaction is to be committed.
pub(super) fn write_and_sync(path: &Path) -> Result<()> {
    let mut file = OpenOptions::new().write(true).open(path.with_file_name(COLD)).context("open the file")?;
    file.write_all(&[0; 65_536]).and_then(|()| file.sync_data()).context("write to the file and sync it")
}

/// Waits only if the kernel holds writers back. Its first quarter is on its way to the disk when
/// the rest comes, so that there is something to wait for where memory is short.
pub(super) fn write_much(path: &Path) -> Result<()> {
    let mut file = create(path)?;
    for written in (0..MUCH_BYTES).step_by(CHUNK_BYTES) {
        if written == MUCH_BYTES / 4 {
            fadvise(&file, 0, None, Advice::DontNeed).context("begin to write the file back")?;
        }
        file.write_all(&[1; CHUNK_BYTES]).context("write to the file")?;
    }
    Ok(())
}

/// Pages that lie apart, so that each is a request of its own, and waits for all of them.
pub(super) fn write_scattered(path: &Path) -> Result<()> {
    let file = OpenOptions::new().write(true).open(path.with_file_name(COLD)).context("open the file")?;
    for page in 0..TURNS * ROOM {
        file.write_all_at(&[5; 4096], page as u64 * 8_192).context("write to the file")?;
    }
    file.sync_data().context("sync the file")
}

/// Nothing to write back, and a transaction to commit.
pub(super) fn create_and_commit(path: &Path) -> Result<()> {
    create(&path.with_file_name("empty"))?.sync_all().context("sync the empty file")
}

/// Past the page cache.
pub(super) fn read_directly(path: &Path) -> Result<()> {
    let path = path.with_file_name(COLD);
    let flags = i32::try_from(OFlags::DIRECT.bits()).context("a flag of open()")?;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(&path).context("open past the cache")?;
    let mut block = Box::new(Block([0; 4096]));
    file.read_exact(&mut block.0).context("read past the cache")
}

/// Its first bytes.
pub(super) fn read(path: &Path) -> Result<()> {
    let mut file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    file.read_exact(&mut [0; 64]).context("read the file")
}

fn create(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("create {}", path.display()))
}
