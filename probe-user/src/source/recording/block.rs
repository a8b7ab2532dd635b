//! A block: some records in a row, which can be read, or be found damaged, without any other.

use crate::event::MAX_RECORD_LEN;
use probe_wire::WIRE_VERSION;
use std::io;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What every block begins with, and is found by behind damage.
const MARKER: [u8; 8] = *b"\x8bblock\r\n";
/// A block is closed when its records have so many bytes.
pub(super) const FULL: usize = 64 << 10;
/// Most bytes of its records, with their lengths.
const MOST_CONTENT: usize = FULL + 4 + MAX_RECORD_LEN;
/// Bytes of a block's header.
pub(super) const HEADER_LEN: usize = size_of::<BlockHeader>();

/// What stands before the records of a block, little-endian.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct BlockHeader {
    marker: [u8; 8],
    /// Records in all blocks before this one.
    first: U64,
    /// Records in this one; a block without any is the end mark.
    records: U32,
    /// Bytes of the records, each behind its length in 4 bytes.
    content_len: U32,
    /// Bytes that follow: the content, or if they are fewer, a zstd frame of it.
    stored_len: U32,
    wire_version: U16,
    zero: U16,
    /// CRC-32 of what follows.
    stored_crc: U32,
    /// CRC-32 of the header before this field.
    header_crc: U32,
}

impl BlockHeader {
    /// Of `records` records behind `first` others.
    pub(super) fn new(first: u64, records: u32, content: &[u8], stored: &[u8]) -> Self {
        let len = |bytes: &[u8]| U32::new(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        let mut header = Self {
            marker: MARKER,
            first: U64::new(first),
            records: U32::new(records),
            content_len: len(content),
            stored_len: len(stored),
            wire_version: U16::new(WIRE_VERSION),
            zero: U16::ZERO,
            stored_crc: U32::new(crc32fast::hash(stored)),
            header_crc: U32::ZERO,
        };
        header.header_crc = U32::new(header.crc());
        header
    }

    /// `None` if these bytes are no header, or not as one was written.
    pub(super) fn parse(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        if !bytes.starts_with(&MARKER) {
            return None;
        }
        let header = Self::read_from_bytes(bytes).ok()?;
        let (content, stored) = (header.content_len.get() as usize, header.stored_len.get() as usize);
        let fits = content <= MOST_CONTENT && stored <= content && (header.is_end() == (content == 0));
        (header.header_crc.get() == header.crc() && fits).then_some(header)
    }

    fn crc(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32fast::hash(&bytes[..bytes.len() - size_of::<U32>()])
    }

    /// Records before it.
    pub(super) const fn first(&self) -> u64 {
        self.first.get()
    }

    /// Records in it.
    pub(super) const fn records(&self) -> u32 {
        self.records.get()
    }

    /// Version of its records.
    pub(super) const fn wire_version(&self) -> u16 {
        self.wire_version.get()
    }

    /// Nothing follows.
    pub(super) const fn is_end(&self) -> bool {
        self.records.get() == 0
    }

    /// Bytes behind it that belong to it.
    pub(super) const fn stored_len(&self) -> usize {
        self.stored_len.get() as usize
    }

    /// The records in `stored`, with their lengths, into `content`; `false` if they are not what was
    /// written.
    pub(super) fn unpack(
        &self,
        stored: &[u8],
        with: &mut zstd::bulk::Decompressor<'_>,
        content: &mut Vec<u8>,
    ) -> io::Result<bool> {
        content.clear();
        if crc32fast::hash(stored) != self.stored_crc.get() {
            return Ok(false);
        }
        let len = self.content_len.get() as usize;
        if stored.len() == len {
            content.extend_from_slice(stored);
        } else {
            content.reserve(len);
            if with.decompress_to_buffer(stored, content).is_err() {
                content.clear();
            }
        }
        Ok(content.len() == len && records_in(content) == Some(self.records()))
    }
}

/// The length that stands before a record, and how far the record reaches; `None` if it makes no sense.
pub(super) fn record_at(content: &[u8], at: usize) -> Option<std::ops::Range<usize>> {
    let from = at + size_of::<u32>();
    let len = u32::from_le_bytes(*content.get(at..from)?.first_chunk()?) as usize;
    let is_one = len > 0 && len <= MAX_RECORD_LEN && len <= content.len() - from;
    is_one.then_some(from..from + len)
}

/// How many records there are, if they fill it.
fn records_in(content: &[u8]) -> Option<u32> {
    let (mut at, mut count) = (0, 0);
    while at < content.len() {
        at = record_at(content, at)?.end;
        count += 1;
    }
    Some(count)
}
