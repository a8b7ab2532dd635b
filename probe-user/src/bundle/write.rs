//! Writing a bundle: whole under its name, or not there at all.

use super::BundleError;
use super::content::Draft;
use super::key::SecretKey;
use super::layout::{self, END};
use super::manifest::Manifest;
use crate::file;
use sha2::{Digest, Sha256};
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a bundle to `path`, which must be new or empty: into another file of the same folder first,
/// which gets the name when all of it is on the disk. The manifest's list of members and its signer
/// are filled in here.
pub(super) fn write(
    path: &Path,
    mut manifest: Manifest,
    mut drafts: Vec<Draft>,
    signer: Option<&SecretKey>,
) -> Result<(), BundleError> {
    manifest.members = drafts.iter_mut().map(Draft::member).collect::<io::Result<_>>()?;
    manifest.signer = signer.map(|key| key.public().to_hex());
    let folder = folder_of(path);
    let permissions = Permissions::from_mode(0o666);
    let new =
        tempfile::Builder::new().prefix(".whylag-").suffix(".part").permissions(permissions).tempfile_in(folder)?;
    let mut to = BufWriter::new(new);
    write_head(&mut to, &manifest, signer)?;
    for draft in drafts {
        write_member(&mut to, draft, &manifest)?;
    }
    to.write_all(&[0; END])?;
    let new = to.into_inner().map_err(io::IntoInnerError::into_error)?;
    new.as_file().sync_all()?;
    let there = path.exists();
    file::may_be_created(path)?;
    let named = if there { new.persist(path) } else { new.persist_noclobber(path) };
    named.map_err(|error| error.error)?;
    Ok(File::open(folder)?.sync_all()?)
}

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
