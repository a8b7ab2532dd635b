//! Bytes of a file, read at offsets and never more than a budget.

use crate::stack::Nameless;
use object::read::ReadCacheOps;
use rustix::fs::Stat;
use rustix::io::{Errno, pread};
use std::cell::Cell;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// Most that is read of one file, decompressed parts included, bytes.
const BUDGET: u64 = 320 << 20;

/// Where they are.
enum Place {
    File(OwnedFd),
    Memory(Vec<u8>),
}

/// A file or a part of one. Its owner may change it at any time.
pub(super) struct Bytes {
    place: Place,
    len: u64,
    version: (u64, i64, i64),
    left: Cell<u64>,
}

impl Bytes {
    pub(super) fn of_file(file: OwnedFd) -> Result<Self, Nameless> {
        let stat: Stat = rustix::fs::fstat(&file).map_err(|_| Nameless::FileGone)?;
        let len = u64::try_from(stat.st_size).map_err(|_| Nameless::Damaged)?;
        let version = (len, stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or_default());
        Ok(Self { place: Place::File(file), len, version, left: Cell::new(BUDGET) })
    }

    pub(super) const fn of_memory(bytes: Vec<u8>) -> Self {
        let len = bytes.len() as u64;
        Self { place: Place::Memory(bytes), len, version: (len, 0, 0), left: Cell::new(BUDGET) }
    }

    /// Its length and when it was changed last.
    pub(super) const fn version(&self) -> (u64, i64, i64) {
        self.version
    }

    /// What may still be read.
    pub(super) const fn left(&self) -> u64 {
        self.left.get()
    }

    /// All of it.
    pub(super) fn all(&self) -> Result<Vec<u8>, Nameless> {
        self.range(0..self.len)
    }

    /// A part that must be there as a whole.
    pub(super) fn range(&self, range: Range<u64>) -> Result<Vec<u8>, Nameless> {
        if range.end > self.len || range.start > range.end {
            return Err(Nameless::Damaged);
        }
        let len = range.end - range.start;
        self.spend(len)?;
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| Nameless::TooLarge)?];
        self.fill(&mut bytes, range.start).map_err(|()| Nameless::FileGone)?;
        Ok(bytes)
    }

    /// Takes memory from the budget.
    pub(super) fn spend(&self, bytes: u64) -> Result<(), Nameless> {
        self.left.set(self.left.get().checked_sub(bytes).ok_or(Nameless::TooLarge)?);
        Ok(())
    }

    fn fill(&self, mut bytes: &mut [u8], mut at: u64) -> Result<(), ()> {
        while !bytes.is_empty() {
            let read = self.some(bytes, at)?;
            if read == 0 {
                return Err(());
            }
            bytes = bytes.get_mut(read..).unwrap_or_default();
            at += read as u64;
        }
        Ok(())
    }

    fn some(&self, bytes: &mut [u8], at: u64) -> Result<usize, ()> {
        match &self.place {
            Place::File(file) => loop {
                match pread(file, &mut *bytes, at) {
                    Err(Errno::INTR) => {}
                    read => return read.map_err(drop),
                }
            },
            Place::Memory(memory) => {
                let from = memory.get(usize::try_from(at).map_err(drop)?..).unwrap_or_default();
                let len = from.len().min(bytes.len());
                bytes.get_mut(..len).ok_or(())?.copy_from_slice(from.get(..len).ok_or(())?);
                Ok(len)
            }
        }
    }
}

/// As the ELF reader wants them: with a position.
pub(super) struct Cursor<'a> {
    bytes: &'a Bytes,
    at: u64,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a Bytes) -> Self {
        Self { bytes, at: 0 }
    }
}

impl ReadCacheOps for Cursor<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        Ok(self.bytes.len)
    }

    fn seek(&mut self, position: u64) -> Result<u64, ()> {
        self.at = position;
        Ok(position)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ()> {
        self.bytes.spend(bytes.len() as u64).map_err(drop)?;
        let read = self.bytes.some(bytes, self.at)?;
        self.at += read as u64;
        Ok(read)
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> Result<(), ()> {
        self.bytes.spend(bytes.len() as u64).map_err(drop)?;
        self.bytes.fill(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
