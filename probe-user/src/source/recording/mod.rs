//! Recordings: the records exactly as they were received, ticks and facts included.
//!
//! A file is a header of 16 bytes (magic, format version, flags, wire version, checksum, all
//! little-endian), then blocks of records ([`block`]), then a block without records: the end mark. A
//! block has a checksum and needs no other block, so damage is found where it is, and all around it is
//! read. A file without its end mark was cut; what could be read of it has been given by then. Nothing
//! that a file says makes the reader allocate more than one block.
//!
//! Files of the [format before](first_format) are read too.

mod block;
mod first_format;
mod read;
#[cfg(test)]
mod tests;
mod write;

use super::foreign::{Foreign, hint};
use crate::attribution::counted;
use probe_wire::{OLDEST_WIRE_VERSION, WIRE_VERSION};
use std::io::{self, Read};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use read::Reader;
pub use write::Writer;

const MAGIC: [u8; 8] = *b"\x89whylag\n";
/// Raised when the layout of the file changes.
pub const FORMAT_VERSION: u16 = 2;
/// The format without blocks.
const FIRST_VERSION: u16 = 1;
/// In the first format: all behind the header is compressed.
const FLAG_ZSTD: u16 = 1;
const FILE_HEADER_LEN: usize = size_of::<FileHeader>();
/// Most bytes that [`read_all`] gives.
const MOST_READ_AT_ONCE: usize = 64 << 20;

/// Why a recording cannot be read (further).
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// Not a recording at all.
    #[error("this is not a whylag recording{}", hint(.looks_like))]
    NotARecording {
        /// What its first bytes are those of, if that is known.
        looks_like: Option<Foreign>,
    },
    /// Made by a version whose format this one does not know.
    #[error(
        "the recording has format version {found}, this whylag reads versions {FIRST_VERSION} to {FORMAT_VERSION}: \
         read it with the whylag that made it, or a newer one"
    )]
    UnknownVersion {
        /// Version in the file.
        found: u16,
    },
    /// Its records have another layout.
    #[error(
        "the recording has records of version {found}, this whylag reads versions {OLDEST_WIRE_VERSION} to {WIRE_VERSION}"
    )]
    UnknownWireVersion {
        /// Version in the file.
        found: u16,
    },
    /// It ends in the middle, as after a crash of the recorder; everything before was given.
    #[error("the recording is cut off behind byte {offset}")]
    Cut {
        /// Where what is missing begins.
        offset: u64,
    },
    /// Some of its bytes are not as they were written; everything around them is given.
    #[error("{}", damaged(*.from, *.to, *.records, *.more))]
    Damaged {
        /// Where the damaged block begins in the file.
        from: u64,
        /// Where what can be read again begins.
        to: u64,
        /// Records that cannot be read; `None` if nothing behind tells.
        records: Option<u64>,
        /// Further places with damage.
        more: u64,
    },
    /// In the first format: it ends in the middle; everything before was given.
    #[error("the recording is cut off behind byte {offset} of its records")]
    Truncated {
        /// Bytes of records, uncompressed and with their lengths, that were whole.
        offset: u64,
    },
    /// Its header, or in the first format what follows, makes no sense; everything before was given.
    #[error("the recording is damaged behind byte {offset} of its records")]
    Corrupt {
        /// Bytes of records, uncompressed and with their lengths, that were whole.
        offset: u64,
    },
    /// A record that no recording can hold.
    #[error("a record of {got} bytes cannot be recorded")]
    BadRecord {
        /// Its length.
        got: usize,
    },
    /// Larger than what is read at once.
    #[error("the recording is too large to be read into memory")]
    TooLarge,
    /// The file cannot be read.
    #[error("cannot read the recording")]
    Io(#[from] io::Error),
    /// The file cannot be written.
    #[error("cannot write the recording")]
    Write(#[source] io::Error),
}

impl RecordingError {
    /// Records may be missing at its end.
    #[must_use]
    pub const fn hides_the_end(&self) -> bool {
        !matches!(self, Self::Damaged { records: Some(_), .. })
    }

    /// Whether a sound file could be taken so if its header is damaged.
    const fn may_be_damage(&self) -> bool {
        matches!(self, Self::NotARecording { .. } | Self::Corrupt { .. })
    }
}

fn damaged(from: u64, to: u64, records: Option<u64>, more: u64) -> String {
    let records = match records {
        None => "an unknown number of records".to_owned(),
        Some(records) => counted(records, "record"),
    };
    let more = if more > 0 { format!("; and so it is at {}", counted(more, "other place")) } else { String::new() };
    format!("the recording is damaged at bytes {from} to {to}, where {records} cannot be read{more}")
}

/// Whether a recording is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// zstd, each block by itself.
    Zstd,
    /// The same, smaller and slower, in large blocks only: for a file that is written once and sent around.
    Small,
}

/// What a file begins with, little-endian.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FileHeader {
    magic: [u8; 8],
    version: U16,
    /// None in this format.
    flags: U16,
    wire_version: U16,
    /// Lower half of the CRC-32 of what is before it; 0 in the first format.
    crc: U16,
}

/// How what follows is to be read.
enum Found {
    FirstFormat { zstd: bool },
    Blocks,
}

impl FileHeader {
    fn new() -> Self {
        let [version, wire_version] = [FORMAT_VERSION, WIRE_VERSION].map(U16::new);
        let mut header = Self { magic: MAGIC, version, flags: U16::ZERO, wire_version, crc: U16::ZERO };
        header.crc = header.right_crc();
        header
    }

    fn right_crc(&self) -> U16 {
        let bytes = self.as_bytes();
        let [low, next, ..] = crc32fast::hash(&bytes[..bytes.len() - size_of::<U16>()]).to_le_bytes();
        U16::from_bytes([low, next])
    }

    fn check(start: &[u8]) -> Result<Found, RecordingError> {
        if !start.starts_with(&MAGIC) {
            return Err(RecordingError::NotARecording { looks_like: Foreign::of(start) });
        }
        let Ok(header) = Self::read_from_bytes(start) else {
            return Err(RecordingError::Cut { offset: 0 });
        };
        let first = header.version.get() == FIRST_VERSION && header.crc == U16::ZERO;
        if !first && header.crc != header.right_crc() {
            return Err(RecordingError::Corrupt { offset: 0 });
        }
        if !first && header.version.get() != FORMAT_VERSION {
            return Err(RecordingError::UnknownVersion { found: header.version.get() });
        }
        check_wire_version(header.wire_version.get())?;
        match header.flags.get() {
            0 if !first => Ok(Found::Blocks),
            flags @ (0 | FLAG_ZSTD) if first => Ok(Found::FirstFormat { zstd: flags == FLAG_ZSTD }),
            _ => Err(RecordingError::Corrupt { offset: 0 }),
        }
    }
}

fn check_wire_version(found: u16) -> Result<(), RecordingError> {
    match (OLDEST_WIRE_VERSION..=WIRE_VERSION).contains(&found) {
        true => Ok(()),
        false => Err(RecordingError::UnknownWireVersion { found }),
    }
}

/// Reads until the buffer is full or nothing follows.
fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match from.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// The time that a record carries.
fn time_ns(record: &[u8]) -> u64 {
    record.first_chunk().map_or(0, |time| u64::from_le_bytes(*time))
}

/// Reads a whole recording: the records, and what was wrong with it first.
#[must_use]
pub fn read_all(file: &[u8]) -> (Vec<Vec<u8>>, Option<RecordingError>) {
    let mut records = Vec::new();
    let mut room = MOST_READ_AT_ONCE;
    let reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (records, Some(error)),
    };
    let mut damage = None;
    for record in reader {
        match record {
            Ok(record) if record.len() + size_of::<Vec<u8>>() <= room => {
                room -= record.len() + size_of::<Vec<u8>>();
                records.push(record);
            }
            Ok(_) => return (records, Some(RecordingError::TooLarge)),
            Err(error) => damage = damage.or(Some(error)),
        }
    }
    (records, damage)
}
