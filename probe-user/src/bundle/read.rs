//! Reading a bundle: nothing of it is believed before it is checked.

use super::BundleError;
use super::content::unpacked;
use super::key::{PublicKey, SIGNATURE_LEN};
use super::layout::{self, BLOCK, END};
use super::manifest::{LARGEST_MANIFEST, Manifest, Member};
use crate::source::foreign::Foreign;
use sha2::{Digest, Sha256};
use std::io::{self, Read, Seek, SeekFrom, Take};

/// The recording of a bundle.
pub(super) const RECORDING: &str = "recording.whylag";

/// A bundle whose manifest is sound and whose length is right; its members are checked when they are
/// read, or all together by [`Bundle::check`].
#[derive(Debug)]
pub struct Bundle<F> {
    file: F,
    manifest: Manifest,
    /// Where the content of each member begins.
    places: Vec<u64>,
    signer: Option<PublicKey>,
}

impl<F: Read + Seek> Bundle<F> {
    /// Reads the head of a bundle.
    ///
    /// # Errors
    /// When it is none, is of a newer format, is cut, or the head is damaged.
    pub fn open(mut file: F) -> Result<Self, BundleError> {
        let len = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let mut head = Head { file: &mut file, len, at: 0 };
        let digest = head.digest()?;
        let text = head.manifest(&digest)?;
        let manifest = Manifest::parse(&text)?;
        let signer = head.signer(&manifest, &text)?;
        let (places, end) = layout::places(&manifest.members, head.at);
        match len {
            len if len < end => Err(BundleError::Cut { got: len }),
            len if len > end => Err(BundleError::damaged(format!("{} bytes stand behind its end", len - end))),
            _ => Ok(Self { file, manifest, places, signer }),
        }
    }

    /// What it holds.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Who signed the manifest; the signature has been checked, but not whether this key is to be
    /// trusted.
    pub const fn signer(&self) -> Option<PublicKey> {
        self.signer
    }

    /// Whether it was signed with this key.
    ///
    /// # Errors
    /// When it was not.
    pub fn check_signer(&self, wanted: &PublicKey) -> Result<(), BundleError> {
        match self.signer {
            None => Err(BundleError::NotSigned),
            Some(found) if found == *wanted => Ok(()),
            Some(found) => Err(BundleError::OtherSigner { found: found.fingerprint(), wanted: wanted.fingerprint() }),
        }
    }

    /// Reads all of it: no byte is missing or changed.
    ///
    /// # Errors
    /// When one is.
    pub fn check(&mut self) -> Result<(), BundleError> {
        let Self { file, manifest, places, .. } = self;
        for (member, at) in manifest.members.iter().zip(places) {
            check_header(file, member, *at)?;
            let mut hash = Sha256::new();
            let got = io::copy(&mut file.by_ref().take(member.bytes), &mut hash)?;
            check_hash(member, got, hash)?;
            check_zeros(file, layout::padding(member.bytes))?;
        }
        check_zeros(file, END as u64)
    }

    /// A member without its compression, of at most `most` bytes.
    ///
    /// # Errors
    /// When it is not there, is damaged or larger.
    pub fn content(&mut self, name: &str, most: u64) -> Result<Vec<u8>, BundleError> {
        let (member, at) = self.member(name)?;
        let (bytes, content_bytes) = (member.bytes, member.content_bytes);
        if bytes > most || content_bytes > most {
            return Err(BundleError::TooLarge { what: format!("{name} of {} bytes", bytes.max(content_bytes)) });
        }
        let member = member.clone();
        check_header(&mut self.file, &member, at)?;
        let mut packed = Vec::new();
        self.file.by_ref().take(bytes).read_to_end(&mut packed)?;
        check_hash(&member, packed.len() as u64, Sha256::new_with_prefix(&packed))?;
        let content = unpacked(&packed, name.ends_with(".zst"), content_bytes);
        let content = content.map_err(|error| BundleError::damaged(format!("{name} cannot be unpacked: {error}")))?;
        match content.len() as u64 == content_bytes {
            true => Ok(content),
            false => Err(BundleError::damaged(format!("{name} is shorter than it says"))),
        }
    }

    /// Its recording, as a file of its own would be read. What has changed since [`Bundle::check`] is
    /// an error at its end.
    ///
    /// # Errors
    /// When it has none.
    pub fn into_recording(mut self) -> Result<Recording<F>, BundleError> {
        let (member, at) = self.member(RECORDING)?;
        let member = member.clone();
        check_header(&mut self.file, &member, at)?;
        Ok(Recording { from: self.file.take(member.bytes), hash: Sha256::new(), member })
    }

    /// A member as it stands in the file, not checked.
    pub(super) fn open_member(&mut self, name: &str) -> Result<Take<&mut F>, BundleError> {
        let (member, at) = self.member(name)?;
        let bytes = member.bytes;
        self.file.seek(SeekFrom::Start(at))?;
        Ok(self.file.by_ref().take(bytes))
    }

    fn member(&self, name: &str) -> Result<(&Member, u64), BundleError> {
        let mut members = self.manifest.members.iter().zip(&self.places);
        let found = members.find(|(member, _)| member.name == name);
        found.map(|(member, at)| (member, *at)).ok_or_else(|| BundleError::NoMember { name: name.to_owned() })
    }
}

/// The recording in a bundle.
#[derive(Debug)]
pub struct Recording<F> {
    from: Take<F>,
    hash: Sha256,
    member: Member,
}

impl<F: Read> Read for Recording<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(buffer)?;
        let read = buffer.get(..got).unwrap_or_default();
        self.hash.update(read);
        if got == 0 && !buffer.is_empty() {
            let read = self.member.bytes - self.from.limit();
            check_hash(&self.member, read, self.hash.clone()).map_err(io::Error::other)?;
        }
        Ok(got)
    }
}

/// The members before those that the manifest lists.
struct Head<'a, F> {
    file: &'a mut F,
    len: u64,
    at: u64,
}

impl<F: Read> Head<'_, F> {
    /// The manifest's SHA-256, hexadecimal.
    fn digest(&mut self) -> Result<String, BundleError> {
        let mut start = [0; BLOCK];
        let got = read_up_to(self.file, &mut start)?;
        if !layout::looks_like_a_bundle(&start) {
            return Err(BundleError::NotABundle { looks_like: Foreign::of(start.get(..got).unwrap_or_default()) });
        }
        let digest_len = layout::digest_len() as u64;
        self.at = BLOCK as u64;
        if got < BLOCK {
            return Err(BundleError::Cut { got: self.len });
        }
        same(&start, &layout::header(layout::DIGEST, digest_len), layout::DIGEST)?;
        let text = self.content(digest_len, layout::DIGEST)?;
        let digest: String = text.iter().take(64).map(|byte| char::from(*byte)).collect();
        same(&text, layout::digest(&digest).as_bytes(), layout::DIGEST)?;
        Ok(digest)
    }

    fn manifest(&mut self, digest: &str) -> Result<Vec<u8>, BundleError> {
        let name = layout::MANIFEST;
        let header = self.block()?;
        let len = tar::Header::from_byte_slice(&header).entry_size();
        let len = len.map_err(|_| BundleError::damaged(format!("the header of {name}")))?;
        if len > LARGEST_MANIFEST {
            return Err(BundleError::TooLarge { what: format!("{name} of {len} bytes") });
        }
        same(&header, &layout::header(name, len), name)?;
        let text = self.content(len, name)?;
        match hex::encode(Sha256::digest(&text)) == digest {
            true => Ok(text),
            false => Err(BundleError::damaged(format!("{name} does not match {}", layout::DIGEST))),
        }
    }

    fn signer(&mut self, manifest: &Manifest, text: &[u8]) -> Result<Option<PublicKey>, BundleError> {
        let Some(signer) = &manifest.signer else { return Ok(None) };
        let name = layout::SIGNATURE;
        let header = self.block()?;
        same(&header, &layout::header(name, SIGNATURE_LEN as u64), name)?;
        let bytes = self.content(SIGNATURE_LEN as u64, name)?;
        let signature = bytes.first_chunk().ok_or(BundleError::Cut { got: self.len })?;
        let key = PublicKey::from_hex(signer).ok_or_else(|| BundleError::damaged("its signer is no ed25519 key"))?;
        match key.has_signed(text, signature) {
            true => Ok(Some(key)),
            false => Err(BundleError::damaged("its signature does not belong to its manifest")),
        }
    }

    fn block(&mut self) -> Result<[u8; BLOCK], BundleError> {
        let mut block = [0; BLOCK];
        let got = read_up_to(self.file, &mut block)?;
        self.at += BLOCK as u64;
        if got == BLOCK { Ok(block) } else { Err(BundleError::Cut { got: self.len }) }
    }

    /// Content and padding; no more is allocated than the file has.
    fn content(&mut self, len: u64, name: &str) -> Result<Vec<u8>, BundleError> {
        let padding = layout::padding(len);
        let mut content = Vec::new();
        self.file.take(len).read_to_end(&mut content)?;
        let mut zeros = Vec::new();
        self.file.take(padding).read_to_end(&mut zeros)?;
        self.at += len + padding;
        match (content.len() as u64, zeros.len() as u64) {
            (got, behind) if got != len || behind != padding => Err(BundleError::Cut { got: self.len }),
            _ if zeros.iter().any(|byte| *byte != 0) => Err(behind(name)),
            _ => Ok(content),
        }
    }
}

fn same(found: &[u8], wanted: &[u8], name: &str) -> Result<(), BundleError> {
    if found == wanted { Ok(()) } else { Err(BundleError::damaged(format!("{name} is not as it is written"))) }
}

fn behind(name: &str) -> BundleError {
    BundleError::damaged(format!("something stands behind {name}"))
}

fn check_header(file: &mut (impl Read + Seek), member: &Member, at: u64) -> Result<(), BundleError> {
    file.seek(SeekFrom::Start(at - BLOCK as u64))?;
    let mut block = [0; BLOCK];
    read_up_to(file, &mut block)?;
    let Member { name, bytes, .. } = member;
    match block == layout::header(name, *bytes) {
        true => Ok(()),
        false => Err(BundleError::damaged(format!("the header of {name} is not as it is written"))),
    }
}

fn check_hash(member: &Member, got: u64, hash: Sha256) -> Result<(), BundleError> {
    let Member { name, bytes, sha256, .. } = member;
    match got == *bytes && hex::encode(hash.finalize()) == *sha256 {
        true => Ok(()),
        false => Err(BundleError::damaged(format!("{name} does not match its SHA-256"))),
    }
}

fn check_zeros(file: &mut impl Read, len: u64) -> Result<(), BundleError> {
    let mut zeros = Vec::new();
    file.take(len).read_to_end(&mut zeros)?;
    match zeros.len() as u64 == len && zeros.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err(BundleError::damaged("something stands between or behind its members")),
    }
}

/// Reads until the buffer is full or nothing follows.
fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = Vec::with_capacity(buffer.len());
    from.take(buffer.len() as u64).read_to_end(&mut got)?;
    buffer.iter_mut().zip(&got).for_each(|(place, byte)| *place = *byte);
    Ok(got.len())
}
