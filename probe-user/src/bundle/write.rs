//! Writing a bundle: whole under its name, or not there at all.

use super::BundleError;
use super::content::Draft;
use super::key::SecretKey;
use super::layout::{self, END};
use super::manifest::Manifest;
use crate::file;
use sha2::{Digest, Sha256};
use std::io::{self, Write};
use std::path::Path;

/// Writes a bundle to `path`, which must be new or empty. The manifest's list of members and its signer
/// are filled in here.
pub(super) fn write(
    path: &Path,
    mut manifest: Manifest,
    mut drafts: Vec<Draft>,
    signer: Option<&SecretKey>,
) -> Result<(), BundleError> {
    manifest.members = drafts.iter_mut().map(Draft::member).collect::<io::Result<_>>()?;
    manifest.signer = signer.map(|key| key.public().to_hex());
    file::write_whole(path, |mut to| {
        write_head(&mut to, &manifest, signer)?;
        for draft in drafts {
            write_member(&mut to, draft, &manifest)?;
        }
        Ok(to.write_all(&[0; END])?)
    })
}

fn write_head(to: &mut impl Write, manifest: &Manifest, signer: Option<&SecretKey>) -> Result<(), BundleError> {
    let mut text = serde_json::to_vec_pretty(manifest).map_err(io::Error::from)?;
    text.push(b'\n');
    let digest = layout::digest(&hex::encode(Sha256::digest(&text)));
    write_bytes(to, layout::DIGEST, digest.as_bytes())?;
    write_bytes(to, layout::MANIFEST, &text)?;
    match signer {
        Some(key) => write_bytes(to, layout::SIGNATURE, &key.sign(&text)),
        None => Ok(()),
    }
}

fn write_bytes(to: &mut impl Write, name: &str, bytes: &[u8]) -> Result<(), BundleError> {
    let len = bytes.len() as u64;
    to.write_all(&layout::header(name, len))?;
    to.write_all(bytes)?;
    pad(to, len)
}

fn write_member(to: &mut impl Write, draft: Draft, manifest: &Manifest) -> Result<(), BundleError> {
    let name = draft.name;
    let planned = manifest.member(name).map_or(0, |member| member.bytes);
    if planned > layout::LARGEST_MEMBER {
        return Err(BundleError::TooLarge { what: format!("{name} of {planned} bytes") });
    }
    to.write_all(&layout::header(name, planned))?;
    match draft.copy(to)? {
        written if written == planned => pad(to, written),
        _ => Err(io::Error::other(format!("{name} changed while it was being copied")).into()),
    }
}

fn pad(to: &mut impl Write, bytes: u64) -> Result<(), BundleError> {
    Ok(io::copy(&mut io::Read::take(io::repeat(0), layout::padding(bytes)), to).map(drop)?)
}
