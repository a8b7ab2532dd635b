//! Writing a recording.

use super::block::{BlockHeader, FULL};
use super::{Compression, FileHeader, RecordingError};
use crate::event::MAX_RECORD_LEN;
use std::io::{self, Write};
use zerocopy::IntoBytes;

/// Written out at least this often, in the time of the records, nanoseconds.
const FLUSH_EVERY_NS: u64 = 500_000_000;
/// zstd's level: recording must not cost what it measures.
const LEVEL: i32 = 1;
/// Its level where nobody waits.
const SMALL_LEVEL: i32 = 9;

/// Writes a recording.
pub struct Writer<W: Write> {
    to: W,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    /// Records that are not written yet, each behind its length.
    content: Vec<u8>,
    records: u32,
    /// Records in blocks that are written.
    before: u64,
    flush_every_ns: u64,
    flushed_at_ns: u64,
}

impl<W: Write> std::fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("flushed_at_ns", &self.flushed_at_ns).finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn new(mut to: W, compression: Compression) -> Result<Self, RecordingError> {
        to.write_all(FileHeader::new().as_bytes()).map_err(RecordingError::Write)?;
        let level = match compression {
            Compression::None => None,
            Compression::Zstd => Some(LEVEL),
            Compression::Small => Some(SMALL_LEVEL),
        };
        let compressor = level.map(zstd::bulk::Compressor::new).transpose().map_err(RecordingError::Write)?;
        let flush_every_ns = if compression == Compression::Small { u64::MAX } else { FLUSH_EVERY_NS };
        Ok(Self { to, compressor, content: Vec::new(), records: 0, before: 0, flush_every_ns, flushed_at_ns: 0 })
    }

    /// Appends one record. What is older than half a second, in the time of the records, is
    /// written out unless it is to be [small](Compression::Small): a kill loses at most that.
    ///
    /// # Errors
    /// When the record is empty or too long, or cannot be written.
    pub fn write(&mut self, record: &[u8]) -> Result<(), RecordingError> {
        let bad = RecordingError::BadRecord { got: record.len() };
        let len = match u32::try_from(record.len()) {
            Ok(len) if len > 0 && record.len() <= MAX_RECORD_LEN => len,
            _ => return Err(bad),
        };
        self.content.extend_from_slice(&len.to_le_bytes());
        self.content.extend_from_slice(record);
        self.records += 1;
        let at_ns = super::time_ns(record);
        let old = at_ns.saturating_sub(self.flushed_at_ns) >= self.flush_every_ns;
        if old {
            self.flushed_at_ns = at_ns;
        }
        if old || self.content.len() >= FULL { self.flush() } else { Ok(()) }
    }

    /// Writes out all records so far.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        if self.records > 0 {
            self.write_block().map_err(RecordingError::Write)?;
        }
        self.to.flush().map_err(RecordingError::Write)
    }

    fn write_block(&mut self) -> io::Result<()> {
        let Self { compressor, content, .. } = self;
        let packed = compressor.as_mut().map(|compressor| compressor.compress(content)).transpose()?;
        let stored = packed.as_deref().filter(|packed| packed.len() < content.len()).unwrap_or(content);
        let header = BlockHeader::new(self.before, self.records, content, stored);
        self.to.write_all(header.as_bytes())?;
        self.to.write_all(stored)?;
        self.before += u64::from(self.records);
        self.records = 0;
        self.content.clear();
        Ok(())
    }

    /// Writes the end mark and gives the file back.
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub fn finish(mut self) -> Result<W, RecordingError> {
        self.flush()?;
        self.write_block().map_err(RecordingError::Write)?;
        self.finish_cut()
    }

    /// Gives the file back without an end mark: of a run of which not all is known.
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub fn finish_cut(mut self) -> Result<W, RecordingError> {
        self.flush()?;
        Ok(self.to)
    }
}
