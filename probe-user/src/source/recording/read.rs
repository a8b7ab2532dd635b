//! Reading a recording: what is damaged is found where it is, and left out.

use super::block::{self, BlockHeader, HEADER_LEN};
use super::first_format::FirstFormat;
use super::{FILE_HEADER_LEN, FileHeader, Found, RecordingError, check_wire_version, read_up_to};
use crate::clock::MonoNs;
use crate::event::{Fact, fact_record};
use std::io::{self, BufReader, Read};
use std::ops::Range;

/// Reads a recording, one record after the other.
pub struct Reader<R: Read> {
    from: Format<R>,
    over: bool,
}

enum Format<R: Read> {
    First(FirstFormat<R>),
    Blocks(Blocks<R>),
}

impl<R: Read> std::fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("over", &self.over).finish_non_exhaustive()
    }
}

impl<R: Read> Reader<R> {
    /// Opens a recording.
    ///
    /// # Errors
    /// When it is none, or of a version that cannot be read.
    pub fn new(from: R) -> Result<Self, RecordingError> {
        let mut from = BufReader::new(from);
        let mut start = [0; FILE_HEADER_LEN];
        let got = read_up_to(&mut from, &mut start)?;
        let from = match FileHeader::check(&start[..got]) {
            Ok(Found::FirstFormat { zstd }) => Format::First(FirstFormat::new(from, zstd)?),
            Ok(Found::Blocks) => Format::Blocks(Blocks::new(from)?),
            Err(error) => Format::Blocks(Blocks::behind_damage(from, error)?),
        };
        Ok(Self { from, over: false })
    }

    /// The next record; after the last one, `None`. Behind what is [damaged](RecordingError::Damaged)
    /// records may follow, behind another error none does.
    pub fn next_record(&mut self) -> Option<Result<&[u8], RecordingError>> {
        if self.over {
            return None;
        }
        let found = match &mut self.from {
            Format::First(records) => records.advance(),
            Format::Blocks(blocks) => blocks.advance(),
        };
        match found {
            Ok(true) => Some(Ok(self.from.record())),
            Ok(false) => {
                self.over = true;
                None
            }
            Err(error) => {
                self.over = !matches!(error, RecordingError::Damaged { .. });
                Some(Err(error))
            }
        }
    }

    /// Gives all records to `take`, until it fails. Where some cannot be read, they are told as
    /// [`Fact::Unreadable`] in their place, so that nothing is concluded from their absence. What was
    /// wrong with the recording comes back.
    ///
    /// # Errors
    /// What `take` says.
    pub fn drain<E>(&mut self, take: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<Option<RecordingError>, E> {
        let mut damage = None;
        let mut latest_ns = 0;
        while let Some(record) = self.next_record() {
            match record {
                Ok(record) => {
                    latest_ns = super::time_ns(record).max(latest_ns);
                    take(record)?;
                }
                Err(error) => {
                    if let Some(fact) = error.as_fact().and_then(|fact| fact_record(MonoNs(latest_ns), &fact).ok()) {
                        take(&fact)?;
                    }
                    damage = Some(RecordingError::and(damage, error));
                }
            }
        }
        Ok(damage)
    }
}

impl RecordingError {
    /// What the stream is told of it.
    const fn as_fact(&self) -> Option<Fact> {
        match self {
            Self::Damaged { from, to, records, .. } => {
                Some(Fact::Unreadable { bytes: to.saturating_sub(*from), records: *records })
            }
            _ => None,
        }
    }

    /// One damage and another behind it.
    fn and(first: Option<Self>, next: Self) -> Self {
        match first {
            Some(Self::Damaged { from, to, records, more }) => {
                let records = if next.hides_the_end() { None } else { records };
                Self::Damaged { from, to, records, more: more + 1 }
            }
            _ => next,
        }
    }
}

impl<R: Read> Format<R> {
    fn record(&self) -> &[u8] {
        match self {
            Self::First(records) => records.record(),
            Self::Blocks(blocks) => &blocks.content[blocks.record.clone()],
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Vec<u8>, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_record()?.map(<[u8]>::to_vec))
    }
}

/// The blocks of a file.
struct Blocks<R: Read> {
    from: Headers<R>,
    decompressor: zstd::bulk::Decompressor<'static>,
    stored: Vec<u8>,
    /// The records of the block that is being given away.
    content: Vec<u8>,
    /// The one that was given last.
    record: Range<usize>,
    /// Records before the next block.
    given: u64,
    /// Where the damage begins that the next good block ends.
    damaged_from: Option<u64>,
    ended: bool,
}

/// What became of a block's content.
enum Content {
    Good,
    Bad,
    Cut,
}

impl<R: Read> Blocks<R> {
    fn new(from: BufReader<R>) -> Result<Self, RecordingError> {
        Ok(Self {
            from: Headers { from, window: Vec::with_capacity(HEADER_LEN), at: FILE_HEADER_LEN as u64 },
            decompressor: zstd::bulk::Decompressor::new()?,
            stored: Vec::new(),
            content: Vec::new(),
            record: 0..0,
            given: 0,
            damaged_from: None,
            ended: false,
        })
    }

    /// A file whose header cannot be read for `reason`: with a block behind it, it is damaged only there.
    fn behind_damage(from: BufReader<R>, reason: RecordingError) -> Result<Self, RecordingError> {
        let mut blocks = Self::new(from)?;
        match blocks.from.peek()? {
            Some(header) if reason.may_be_damage() => check_wire_version(header.wire_version())?,
            _ => return Err(reason),
        }
        blocks.damaged_from = Some(0);
        Ok(blocks)
    }

    /// Goes to the next record; `false` behind the last.
    fn advance(&mut self) -> Result<bool, RecordingError> {
        loop {
            if let Some(record) = block::record_at(&self.content, self.record.end) {
                self.record = record;
                return Ok(true);
            }
            if self.ended {
                return Ok(false);
            }
            self.load()?;
        }
    }

    /// Goes to the next block that is as it was written, or to the end. Of damage before it is told
    /// when it is there.
    fn load(&mut self) -> Result<(), RecordingError> {
        self.content.clear();
        self.record = 0..0;
        loop {
            let at = self.from.at;
            let found = self.from.next()?;
            match found {
                Next::Header(header) if header.first() >= self.given => match self.read_content(&header)? {
                    Content::Good => return self.arrive(&header, at),
                    Content::Bad => {}
                    Content::Cut => return Err(self.cut(at)),
                },
                Next::Header(_) => {}
                Next::Other => self.from.slide(),
                Next::Cut => return Err(self.cut(at)),
            }
            self.damaged_from.get_or_insert(at);
        }
    }

    /// The block at `at` is good.
    fn arrive(&mut self, header: &BlockHeader, at: u64) -> Result<(), RecordingError> {
        let missing = header.first() - self.given;
        self.given = header.first().saturating_add(u64::from(header.records()));
        let (mut from, mut to) = (self.damaged_from.take(), at);
        if header.is_end() {
            self.ended = true;
            let end = self.from.at;
            let behind = self.from.skip_rest()?;
            if behind > 0 {
                (from, to) = (from.or(Some(end)), end + behind);
            }
        }
        match from.or_else(|| (missing > 0).then_some(at)) {
            Some(from) => Err(RecordingError::Damaged { from, to, records: Some(missing), more: 0 }),
            None => Ok(()),
        }
    }

    /// The file ends in the middle of what begins at `at`.
    fn cut(&mut self, at: u64) -> RecordingError {
        self.ended = true;
        self.content.clear();
        match self.damaged_from.take() {
            Some(from) => RecordingError::Damaged { from, to: self.from.end(), records: None, more: 0 },
            None => RecordingError::Cut { offset: at },
        }
    }

    fn read_content(&mut self, header: &BlockHeader) -> Result<Content, RecordingError> {
        self.stored.resize(header.stored_len(), 0);
        let got = read_up_to(&mut self.from.from, &mut self.stored)?;
        self.from.at += got as u64;
        if got < self.stored.len() {
            return Ok(Content::Cut);
        }
        let good = header.unpack(&self.stored, &mut self.decompressor, &mut self.content)?;
        if !good {
            self.content.clear();
        }
        Ok(if good { Content::Good } else { Content::Bad })
    }
}

/// Finds headers of blocks.
struct Headers<R: Read> {
    from: BufReader<R>,
    /// Bytes that were read to find one.
    window: Vec<u8>,
    /// Place in the file of the window's first byte.
    at: u64,
}

/// What stands at a place of the file.
enum Next {
    Header(BlockHeader),
    Other,
    /// Too little for a header.
    Cut,
}

impl<R: Read> Headers<R> {
    /// What the window holds, if it can be filled.
    fn peek(&mut self) -> io::Result<Option<BlockHeader>> {
        let mut more = [0; HEADER_LEN];
        let got = read_up_to(&mut self.from, &mut more[self.window.len()..])?;
        let from = self.window.len();
        self.window.extend_from_slice(&more[from..from + got]);
        Ok(self.window.first_chunk().and_then(BlockHeader::parse))
    }

    /// The header here, which is then behind.
    fn next(&mut self) -> io::Result<Next> {
        match self.peek()? {
            Some(header) => {
                self.window.clear();
                self.at += HEADER_LEN as u64;
                Ok(Next::Header(header))
            }
            None if self.window.len() < HEADER_LEN => Ok(Next::Cut),
            None => Ok(Next::Other),
        }
    }

    /// Goes on by one byte.
    fn slide(&mut self) {
        self.window.remove(0);
        self.at += 1;
    }

    /// Reads all that is left; gives its length.
    fn skip_rest(&mut self) -> io::Result<u64> {
        io::copy(&mut self.from, &mut io::sink())
    }

    /// Where the file ends, once nothing more can be read.
    fn end(&self) -> u64 {
        self.at + self.window.len() as u64
    }
}
