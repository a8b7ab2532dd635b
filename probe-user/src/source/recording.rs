//! Recordings: the records exactly as they were received, ticks and facts included.
//!
//! A file is a header of 16 bytes (magic, format version, flags, wire version, all little-endian),
//! then the records, each behind its length in 4 bytes, then a length of 0: the end mark. With the
//! flag all behind the header is one zstd frame. A file without its end mark was cut; what could
//! be read of it has been given by then. Nothing that a file says makes the reader allocate more
//! than one record and a zstd window of 128 KiB.

use crate::event::MAX_RECORD_LEN;
use probe_wire::{OLDEST_WIRE_VERSION, WIRE_VERSION};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};

const MAGIC: [u8; 8] = *b"\x89whylag\n";
/// Raised when the layout of the file changes.
pub const FORMAT_VERSION: u16 = 1;
const FLAG_ZSTD: u16 = 1;
const HEADER_LEN: usize = 16;
const WINDOW_LOG: u32 = 17;
/// Written out at least this often, in the time of the records, nanoseconds.
const FLUSH_EVERY_NS: u64 = 500_000_000;
/// Most bytes that [`read_all`] gives.
const MOST_READ_AT_ONCE: usize = 64 << 20;

/// Why a recording cannot be read (further).
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// Not a recording at all.
    #[error("this is not a whylag recording")]
    NotARecording,
    /// Made by a version whose format this one does not know.
    #[error("the recording has format version {found}, this whylag reads version {FORMAT_VERSION}")]
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
    #[error("the recording is cut off behind byte {offset} of its records")]
    Truncated {
        /// Bytes of records, uncompressed and with their lengths, that were whole.
        offset: u64,
    },
    /// What follows makes no sense; everything before was given.
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
    /// The file cannot be read or written.
    #[error("cannot access the recording")]
    Io(#[from] io::Error),
}

/// Whether a recording is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// zstd, level 1.
    Zstd,
}

/// Writes a recording.
pub struct Writer<W: Write> {
    to: Sink<W>,
    flushed_at_ns: u64,
}

enum Sink<W: Write> {
    Plain(BufWriter<W>),
    Zstd(zstd::Encoder<'static, W>),
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
        to.write_all(&header(compression))?;
        let to = match compression {
            Compression::None => Sink::Plain(BufWriter::new(to)),
            Compression::Zstd => {
                let mut encoder = zstd::Encoder::new(to, 1)?;
                encoder.window_log(WINDOW_LOG)?;
                encoder.include_checksum(true)?;
                Sink::Zstd(encoder)
            }
        };
        Ok(Self { to, flushed_at_ns: 0 })
    }

    /// Appends one record. What is older than half a second, in the time of the records, is
    /// written out: a kill loses at most that.
    ///
    /// # Errors
    /// When the record is empty or too long, or cannot be written.
    pub fn write(&mut self, record: &[u8]) -> Result<(), RecordingError> {
        let bad = RecordingError::BadRecord { got: record.len() };
        let len = match u32::try_from(record.len()) {
            Ok(len) if len > 0 && record.len() <= MAX_RECORD_LEN => len,
            _ => return Err(bad),
        };
        let to = self.to.as_write();
        to.write_all(&len.to_le_bytes())?;
        to.write_all(record)?;
        let at_ns = record.first_chunk().map_or(0, |time| u64::from_le_bytes(*time));
        if at_ns.saturating_sub(self.flushed_at_ns) >= FLUSH_EVERY_NS {
            self.flushed_at_ns = at_ns;
            self.flush()?;
        }
        Ok(())
    }

    /// Writes out all records so far.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn flush(&mut self) -> Result<(), RecordingError> {
        Ok(self.to.as_write().flush()?)
    }

    /// Writes the end mark and gives the file back.
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub fn finish(mut self) -> Result<W, RecordingError> {
        self.to.as_write().write_all(&0_u32.to_le_bytes())?;
        self.finish_cut()
    }

    /// Gives the file back without an end mark: of a run of which not all is known.
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub fn finish_cut(self) -> Result<W, RecordingError> {
        let mut file = match self.to {
            Sink::Plain(buffer) => buffer.into_inner().map_err(io::IntoInnerError::into_error)?,
            Sink::Zstd(encoder) => encoder.finish()?,
        };
        file.flush()?;
        Ok(file)
    }
}

impl<W: Write> Sink<W> {
    fn as_write(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(buffer) => buffer,
            Self::Zstd(encoder) => encoder,
        }
    }
}

fn header(compression: Compression) -> [u8; HEADER_LEN] {
    let flags = match compression {
        Compression::None => 0,
        Compression::Zstd => FLAG_ZSTD,
    };
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    header[10..12].copy_from_slice(&flags.to_le_bytes());
    header[12..14].copy_from_slice(&WIRE_VERSION.to_le_bytes());
    header
}

/// Reads a recording, one record after the other.
pub struct Reader<R: Read> {
    from: Stream<R>,
    record: Vec<u8>,
    /// Bytes of whole records so far.
    offset: u64,
    over: bool,
}

enum Stream<R: Read> {
    Plain(BufReader<R>),
    Zstd(zstd::Decoder<'static, BufReader<R>>),
}

impl<R: Read> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("offset", &self.offset).field("over", &self.over).finish_non_exhaustive()
    }
}

impl<R: Read> Reader<R> {
    /// Opens a recording.
    ///
    /// # Errors
    /// When it is none, or of a version that cannot be read.
    pub fn new(from: R) -> Result<Self, RecordingError> {
        let mut from = BufReader::new(from);
        let mut header = [0; HEADER_LEN];
        let got = read_up_to(&mut from, &mut header)?;
        let zstd = check_header(&header[..got])?;
        let from = if zstd {
            let mut decoder = zstd::Decoder::with_buffer(from)?.single_frame();
            decoder.window_log_max(WINDOW_LOG)?;
            Stream::Zstd(decoder)
        } else {
            Stream::Plain(from)
        };
        Ok(Self { from, record: Vec::new(), offset: 0, over: false })
    }

    /// The next record; after the last one, and after an error, `None`.
    pub fn next_record(&mut self) -> Option<Result<&[u8], RecordingError>> {
        if self.over {
            return None;
        }
        match self.read_record() {
            Ok(true) => Some(Ok(&self.record)),
            Ok(false) => {
                self.over = true;
                None
            }
            Err(error) => {
                self.over = true;
                Some(Err(error))
            }
        }
    }

    /// Reads a record into the buffer; `false` at the end mark.
    fn read_record(&mut self) -> Result<bool, RecordingError> {
        let mut len = [0; 4];
        self.fill(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len == 0 {
            return self.check_nothing_follows().map(|()| false);
        }
        if len > MAX_RECORD_LEN {
            return Err(RecordingError::Corrupt { offset: self.offset });
        }
        let mut record = std::mem::take(&mut self.record);
        record.resize(len, 0);
        let filled = self.fill(&mut record);
        self.record = record;
        filled?;
        self.offset += 4 + len as u64;
        Ok(true)
    }

    fn check_nothing_follows(&mut self) -> Result<(), RecordingError> {
        let corrupt = RecordingError::Corrupt { offset: self.offset };
        let mut more = [0];
        let more = match &mut self.from {
            Stream::Plain(file) => read_up_to(file, &mut more)?,
            Stream::Zstd(decoder) => match read_up_to(decoder, &mut more) {
                Ok(0) => decoder.get_mut().fill_buf()?.len(),
                Ok(more) => more,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(RecordingError::Truncated { offset: self.offset });
                }
                Err(_) => return Err(corrupt),
            },
        };
        if more == 0 { Ok(()) } else { Err(corrupt) }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), RecordingError> {
        let offset = self.offset;
        let (got, from_zstd) = match &mut self.from {
            Stream::Plain(file) => (read_up_to(file, buffer), false),
            Stream::Zstd(decoder) => (read_up_to(decoder, buffer), true),
        };
        match got {
            Ok(got) if got == buffer.len() => Ok(()),
            Ok(_) => Err(RecordingError::Truncated { offset }),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(RecordingError::Truncated { offset }),
            // An error of the file itself has an errno; one of the decoder has none.
            Err(error) if from_zstd && error.raw_os_error().is_none() => Err(RecordingError::Corrupt { offset }),
            Err(error) => Err(error.into()),
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Vec<u8>, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_record()?.map(<[u8]>::to_vec))
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

/// Says whether the records are compressed.
fn check_header(header: &[u8]) -> Result<bool, RecordingError> {
    if header.len() < MAGIC.len() || header[..8] != MAGIC {
        return Err(RecordingError::NotARecording);
    }
    if header.len() < HEADER_LEN {
        return Err(RecordingError::Truncated { offset: 0 });
    }
    let field = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let (version, flags, wire) = (field(8), field(10), field(12));
    if version != FORMAT_VERSION {
        return Err(RecordingError::UnknownVersion { found: version });
    }
    if !(OLDEST_WIRE_VERSION..=WIRE_VERSION).contains(&wire) {
        return Err(RecordingError::UnknownWireVersion { found: wire });
    }
    match flags {
        0 => Ok(false),
        FLAG_ZSTD => Ok(true),
        _ => Err(RecordingError::Corrupt { offset: 0 }),
    }
}

/// Reads a whole recording: the records, and what stopped the reading, if not its end.
#[must_use]
pub fn read_all(file: &[u8]) -> (Vec<Vec<u8>>, Option<RecordingError>) {
    let mut records = Vec::new();
    let mut room = MOST_READ_AT_ONCE;
    let reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (records, Some(error)),
    };
    for record in reader {
        match record {
            Ok(record) if record.len() + size_of::<Vec<u8>>() <= room => {
                room -= record.len() + size_of::<Vec<u8>>();
                records.push(record);
            }
            Ok(_) => return (records, Some(RecordingError::TooLarge)),
            Err(error) => return (records, Some(error)),
        }
    }
    (records, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MonoNs;
    use crate::event::{Fact, fact_record, tick_record};
    use proptest::prelude::*;

    const BOTH: [Compression; 2] = [Compression::None, Compression::Zstd];

    fn records() -> Vec<Vec<u8>> {
        let fact = Fact::Hooks { active: vec!["packet_ingress".to_owned()] };
        let ticks = (1..40).map(|n| tick_record(MonoNs(n * 100_000_000)).to_vec());
        std::iter::once(fact_record(MonoNs(0), &fact).unwrap()).chain(ticks).collect()
    }

    fn recorded(records: &[Vec<u8>], compression: Compression) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), compression).unwrap();
        records.iter().for_each(|record| writer.write(record).unwrap());
        writer.finish().unwrap()
    }

    /// A file that has what was written to it, as the disk has after a kill.
    #[derive(Clone, Default)]
    struct Disk(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn records_come_back_byte_for_byte() {
        for compression in BOTH {
            let (read, error) = read_all(&recorded(&records(), compression));
            assert!(error.is_none(), "{error:?}");
            assert_eq!(read, records());
        }
    }

    #[test]
    fn a_recording_cut_at_any_byte_gives_what_is_whole_and_one_error() {
        for compression in BOTH {
            let file = recorded(&records(), compression);
            for len in 0..file.len() {
                let (read, error) = read_all(&file[..len]);
                assert!(read.len() <= records().len() && read[..] == records()[..read.len()], "{len}");
                match error {
                    Some(RecordingError::NotARecording) => assert!(len < 8),
                    Some(RecordingError::Truncated { offset }) => {
                        let whole: usize = read.iter().map(|record| record.len() + 4).sum();
                        assert_eq!(offset, whole as u64, "{len}");
                    }
                    other => panic!("{compression:?} cut at {len}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_plain_recording_loses_only_the_record_that_was_cut() {
        let file = recorded(&records(), Compression::None);
        let (read, _) = read_all(&file[..file.len() - 5]);
        assert_eq!(read.len(), records().len() - 1);
    }

    #[test]
    fn a_kill_loses_at_most_the_last_second() {
        for compression in BOTH {
            let disk = Disk::default();
            let mut writer = Writer::new(disk.clone(), compression).unwrap();
            records().iter().for_each(|record| writer.write(record).unwrap());
            let file = disk.0.borrow().clone();
            std::mem::forget(writer);
            let (read, error) = read_all(&file);
            assert!(matches!(error, Some(RecordingError::Truncated { .. })), "{error:?}");
            assert!(records().len() - read.len() <= 10, "{compression:?} lost {}", records().len() - read.len());
        }
    }

    #[test]
    fn other_versions_and_other_files_are_named() {
        let mut file = recorded(&records(), Compression::None);
        file[12] = 9;
        assert!(matches!(read_all(&file).1, Some(RecordingError::UnknownWireVersion { found: 9 })));
        file[8] = 7;
        assert!(matches!(read_all(&file).1, Some(RecordingError::UnknownVersion { found: 7 })));
        file[0] = b'x';
        assert!(matches!(read_all(&file).1, Some(RecordingError::NotARecording)));
        assert!(matches!(read_all(b"").1, Some(RecordingError::NotARecording)));
    }

    #[test]
    fn a_hostile_length_is_refused_before_anything_is_allocated() {
        let mut file = header(Compression::None).to_vec();
        file.extend_from_slice(&u32::MAX.to_le_bytes());
        let mut reader = Reader::new(&file[..]).unwrap();
        assert!(matches!(reader.next_record(), Some(Err(RecordingError::Corrupt { offset: 0 }))));
        assert!(reader.record.capacity() == 0);
        assert!(reader.next_record().is_none(), "an error is said once");
    }

    #[test]
    fn bytes_behind_the_end_mark_are_damage() {
        for compression in BOTH {
            let mut file = recorded(&records(), compression);
            file.push(1);
            let (read, error) = read_all(&file);
            assert_eq!(read.len(), records().len());
            assert!(matches!(error, Some(RecordingError::Corrupt { .. })), "{error:?}");
        }
    }

    #[test]
    fn an_empty_or_too_long_record_cannot_be_written() {
        let mut writer = Writer::new(Vec::new(), Compression::None).unwrap();
        assert!(matches!(writer.write(&[]), Err(RecordingError::BadRecord { got: 0 })));
        assert!(writer.write(&vec![0; MAX_RECORD_LEN]).is_ok());
        assert!(writer.write(&vec![0; MAX_RECORD_LEN + 1]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(zstd in any::<bool>(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut file = header(if zstd { Compression::Zstd } else { Compression::None }).to_vec();
            file.extend_from_slice(&bytes);
            let _ = read_all(&file);
            let _ = read_all(&bytes);
        }

        #[test]
        fn a_damaged_recording_gives_no_record_that_was_not_written_before_the_damage(
            at in 16_usize..400, flip in 1_u8.., compressed in any::<bool>()
        ) {
            let mut file = recorded(&records(), if compressed { Compression::Zstd } else { Compression::None });
            let at = at.min(file.len() - 1);
            file[at] ^= flip;
            let (read, _) = read_all(&file);
            prop_assert!(read.len() <= records().len() + 400);
        }
    }
}
