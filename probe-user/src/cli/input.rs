//! The recording that a command reads: a file of its own, or the one in a bundle.

use crate::bundle::{Bundle, Manifest, looks_like_a_bundle};
use crate::file;
use crate::source::recording::{Reader, RecordingError};
use anyhow::Context;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes by which a bundle is told from a recording.
const START: usize = 32;
/// Largest bundle that is taken from a stream.
const LARGEST_STREAM: u64 = 8 << 30;

/// A recording, and what it came in.
pub(super) struct Input {
    pub(super) reader: Reader<Box<dyn Read + Send>>,
    pub(super) bundle: Option<Manifest>,
}

impl Input {
    /// Opens a recording; of a bundle every byte is checked.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::sniff(path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn sniff(path: &Path) -> anyhow::Result<Self> {
        let mut file = file::open(path).map_err(RecordingError::from)?;
        let start = start_of(&mut file)?;
        file.seek(SeekFrom::Start(0))?;
        if looks_like_a_bundle(&start) { Self::bundled(file) } else { Self::bare(Box::new(file)) }
    }

    /// The same of what can be read only once. A bundle's manifest tells of what comes behind it, so a
    /// bundle goes through a file without a name.
    pub(super) fn open_stream(mut stream: impl Read + Send + 'static) -> anyhow::Result<Self> {
        let start = start_of(&mut stream)?;
        let is_bundle = looks_like_a_bundle(&start);
        let mut whole = Cursor::new(start).chain(stream);
        if !is_bundle {
            return Self::bare(Box::new(whole));
        }
        let mut file = tempfile::tempfile()?;
        io::copy(&mut whole.by_ref().take(LARGEST_STREAM), &mut file)?;
        let is_whole = whole.read(&mut [0])? == 0;
        anyhow::ensure!(is_whole, "the bundle is larger than {} GiB: give its file", LARGEST_STREAM >> 30);
        Self::bundled(file)
    }

    fn bare(from: Box<dyn Read + Send>) -> anyhow::Result<Self> {
        Ok(Self { reader: Reader::new(from)?, bundle: None })
    }

    fn bundled(file: File) -> anyhow::Result<Self> {
        let mut bundle = Bundle::open(file)?;
        bundle.check()?;
        let manifest = bundle.manifest().clone();
        let recording: Box<dyn Read + Send> = Box::new(bundle.into_recording()?);
        Ok(Self { reader: Reader::new(recording)?, bundle: Some(manifest) })
    }

    /// Gives all records to `take`, which cannot fail; what was wrong with the recording comes back.
    pub(super) fn drain(&mut self, take: &mut impl FnMut(&[u8])) -> Option<RecordingError> {
        let taken = self.reader.drain(&mut |record| {
            take(record);
            Ok::<_, std::convert::Infallible>(())
        });
        match taken {
            Ok(damage) => damage,
            Err(never) => match never {},
        }
    }
}

fn start_of(from: &mut impl Read) -> Result<Vec<u8>, RecordingError> {
    let mut start = Vec::with_capacity(START);
    from.take(START as u64).read_to_end(&mut start)?;
    Ok(start)
}

/// The error of a command that could use only a part of `path`.
pub(super) fn in_part(damage: RecordingError, path: &Path, what: &str) -> anyhow::Error {
    anyhow::Error::new(damage).context(format!("only a part of {} could be {what}", path.display()))
}
