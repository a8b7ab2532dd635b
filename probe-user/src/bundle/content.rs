//! What goes into a bundle, before its hashes are known.

use super::manifest::Member;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};

/// zstd's level for members: what they hold is written once and sent around.
const LEVEL: i32 = 9;

/// A member with its content.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    content: Content,
    content_bytes: u64,
}

#[derive(Debug)]
enum Content {
    Bytes(Vec<u8>),
    File(File),
}

impl Draft {
    /// Small enough to be in memory, and stored as it is.
    pub(super) fn new(name: &'static str, about: &'static str, bytes: Vec<u8>) -> Self {
        let content_bytes = bytes.len() as u64;
        Self { name, about, content: Content::Bytes(bytes), content_bytes }
    }

    /// In a file that nobody else has.
    pub(super) const fn in_file(name: &'static str, about: &'static str, file: File, content_bytes: u64) -> Self {
        Self { name, about, content: Content::File(file), content_bytes }
    }

    /// Its row in the manifest.
    pub(super) fn member(&mut self) -> io::Result<Member> {
        let (bytes, sha256) = match &mut self.content {
            Content::Bytes(bytes) => (bytes.len() as u64, Sha256::digest(bytes)),
            Content::File(file) => {
                file.seek(SeekFrom::Start(0))?;
                let mut hash = Sha256::new();
                (io::copy(&mut BufReader::new(file), &mut hash)?, hash.finalize())
            }
        };
        Ok(Member {
            name: self.name.to_owned(),
            about: self.about.to_owned(),
            bytes,
            content_bytes: self.content_bytes,
            sha256: hex::encode(sha256),
        })
    }

    /// Gives its content to `to`.
    pub(super) fn copy(self, to: &mut impl Write) -> io::Result<u64> {
        match self.content {
            Content::Bytes(bytes) => to.write_all(&bytes).map(|()| bytes.len() as u64),
            Content::File(mut file) => {
                file.seek(SeekFrom::Start(0))?;
                io::copy(&mut file, to)
            }
        }
    }
}

/// Compresses what is written into a file. Flushing is for whoever watches; here nobody does, and every
/// flush would cost compression.
pub(super) struct Packed {
    to: zstd::Encoder<'static, File>,
    bytes: u64,
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packed").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Packed {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let mut to = zstd::Encoder::new(file, LEVEL)?;
        to.include_checksum(true)?;
        Ok(Self { to, bytes: 0 })
    }

    pub(super) fn finish(self, name: &'static str, about: &'static str) -> io::Result<Draft> {
        Ok(Draft::in_file(name, about, self.to.finish()?, self.bytes))
    }
}

impl Write for Packed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads at most `most` bytes of what may be compressed; more is an error.
pub(super) fn unpacked(packed: &[u8], is_packed: bool, most: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    match is_packed {
        true => zstd::Decoder::with_buffer(packed)?.single_frame().take(most + 1).read_to_end(&mut content)?,
        false => packed.take(most + 1).read_to_end(&mut content)?,
    };
    if content.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than it says"));
    }
    Ok(content)
}
