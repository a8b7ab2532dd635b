//! The format before blocks: the records in a row, then a length of 0. With its flag all behind the
//! header is one zstd frame. Nothing behind damage can be read.

use super::{RecordingError, read_up_to};
use crate::event::MAX_RECORD_LEN;
use std::io::{self, BufRead, BufReader, Read};

/// Largest window of zstd that was written.
const WINDOW_LOG: u32 = 17;

/// The records of such a file.
pub(super) struct FirstFormat<R: Read> {
    from: Stream<R>,
    record: Vec<u8>,
    /// Bytes of whole records so far.
    offset: u64,
}

enum Stream<R: Read> {
    Plain(BufReader<R>),
    Zstd(zstd::Decoder<'static, BufReader<R>>),
}

impl<R: Read> FirstFormat<R> {
    /// What stands behind the header.
    pub(super) fn new(from: BufReader<R>, zstd: bool) -> io::Result<Self> {
        let from = if zstd {
            let mut decoder = zstd::Decoder::with_buffer(from)?.single_frame();
            decoder.window_log_max(WINDOW_LOG)?;
            Stream::Zstd(decoder)
        } else {
            Stream::Plain(from)
        };
        Ok(Self { from, record: Vec::new(), offset: 0 })
    }

    pub(super) fn record(&self) -> &[u8] {
        &self.record
    }

    /// Goes to the next record; `false` at the end mark.
    pub(super) fn advance(&mut self) -> Result<bool, RecordingError> {
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
