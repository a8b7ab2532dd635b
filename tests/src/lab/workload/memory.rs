//! What a handler does with its address space.

use super::file::{COLD, COLD_BYTES};
use anyhow::{Context, Result};
use rustix::fs::{Advice as FileAdvice, fadvise};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fs::File;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

/// Size of the mapping that makes the page table large: two million entries, all of them of the
/// one page of zeros.
const LARGE_BYTES: usize = 8 << 30;
const PAGE_BYTES: usize = 4096;

/// A mapping, until it is dropped.
struct Mapping {
    start: *mut c_void,
    bytes: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped here, and nothing keeps a reference into it.
        let _ = unsafe { munmap(self.start, self.bytes) };
    }
}

/// Memory whose page table takes long to walk.
pub(super) struct Large(#[expect(dead_code, reason = "kept for its page table")] Mapping);

impl Large {
    pub(super) fn map() -> Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, of no address of ours.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), LARGE_BYTES, ProtFlags::READ, flags) };
        let mapping = Mapping { start: start.context("map much memory")?, bytes: LARGE_BYTES };
        for advice in [Advice::LinuxNoHugepage, Advice::LinuxPopulateRead] {
            // SAFETY: the advice changes no content of the mapping.
            unsafe { madvise(mapping.start, LARGE_BYTES, advice) }.context("fill the page table")?;
        }
        Ok(Self(mapping))
    }
}

/// Needs the lock of the address space, again and again for half of `time`: whoever looks at the
/// memory lets go of it for a moment between two looks.
pub(super) fn map_and_unmap(time: Duration) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < time / 2 {
        map_once()?;
    }
    Ok(())
}

fn map_once() -> Result<()> {
    // SAFETY: a new mapping, of no address of ours.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), PAGE_BYTES, ProtFlags::READ, MapFlags::PRIVATE) };
    drop(Mapping { start: start.context("map memory")?, bytes: PAGE_BYTES });
    Ok(())
}

/// Faults a page in that has to come from the disk.
pub(super) fn touch_file(path: &Path) -> Result<()> {
    let file = File::open(path.with_file_name(COLD)).context("open the cold file")?;
    fadvise(&file, 0, None, FileAdvice::DontNeed).context("take the file out of the cache")?;
    // SAFETY: a new mapping, of no address of ours.
    let start = unsafe { mmap(ptr::null_mut(), COLD_BYTES, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
    let mapping = Mapping { start: start.context("map the file")?, bytes: COLD_BYTES };
    // SAFETY: the mapping begins at this address and can be read.
    let _ = unsafe { mapping.start.cast::<u8>().read_volatile() };
    Ok(())
}
