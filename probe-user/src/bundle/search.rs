//! Finding bundles by what they are about.

use super::export::INCIDENT;
use super::incident::NOTABLE;
use super::layout::looks_like_a_bundle;
use super::{Bundle, BundleError, Component, IncidentRecord};
use crate::file;
use crate::signature::Signature;
use crate::source::foreign::Foreign;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Most bytes of a record that are read.
pub(super) const LARGEST_RECORD: u64 = 4 << 20;
/// Most folders below one that is searched.
const DEEPEST: usize = 16;
/// Most files that are looked at.
const MOST_FILES: usize = 1 << 20;

/// What a bundle must be about; what is empty does not matter.
#[derive(Debug, Default, Clone)]
pub struct Facets {
    /// Names of causes, or families of them; one of these.
    pub causes: Vec<String>,
    /// One of these.
    pub components: Vec<Component>,
    /// One of these labels.
    pub targets: Vec<String>,
    /// One of these signatures, however typed.
    pub signatures: Vec<String>,
}

/// A bundle that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Where.
    pub path: PathBuf,
    /// What it is about.
    pub incident: IncidentRecord,
}

/// A bundle, or a folder, that could not be looked at.
#[derive(Debug)]
pub struct Skipped {
    /// Where.
    pub path: PathBuf,
    /// Why.
    pub reason: BundleError,
}

impl Facets {
    /// Whether an incident is about all of these. A cause or component counts from a tenth of the delay
    /// of a target on.
    #[must_use]
    pub fn fit(&self, incident: &IncidentRecord) -> bool {
        let Self { causes, components, targets, signatures } = self;
        let notable: Vec<_> = incident.causes.iter().filter(|part| part.share >= NOTABLE).collect();
        let named = |wanted: &String| notable.iter().any(|part| is_named(&part.cause, wanted));
        let about = |wanted: &Component| notable.iter().any(|part| part.component == *wanted);
        (causes.is_empty() || causes.iter().any(named))
            && (components.is_empty() || components.iter().any(about))
            && (targets.is_empty() || targets.iter().any(|wanted| incident.targets.contains(wanted)))
            && (signatures.is_empty() || signatures.iter().any(|wanted| looks_for(&incident.signatures, wanted)))
    }
}

/// Whether one of these is the wanted signature, however its bytes were typed.
fn looks_for(signatures: &[String], wanted: &str) -> bool {
    let meant = |text: &str| Signature::parse(text).ok().map(|signature| (signature.rules, signature.interval));
    let wanted_rules = meant(wanted);
    let is_meant = |text: &String| text == wanted || (wanted_rules.is_some() && meant(text) == wanted_rules);
    signatures.iter().any(is_meant)
}

/// `storage` means all of `storage.…`.
fn is_named(cause: &str, wanted: &str) -> bool {
    cause.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Looks through files and folders, and gives each bundle that fits to `found`, in the order of paths. A
/// file that was named must be a bundle; in folders, others are passed over. Bundles that cannot be read
/// are given back, and so are paths that cannot be looked at.
pub fn search(paths: &[PathBuf], facets: &Facets, found: &mut dyn FnMut(Found)) -> Vec<Skipped> {
    let mut skipped = Vec::new();
    for path in paths {
        let is_folder = match fs::metadata(path) {
            Ok(metadata) => metadata.is_dir(),
            Err(error) => {
                skipped.push(Skipped { path: path.clone(), reason: error.into() });
                continue;
            }
        };
        let mut files = if is_folder { files_below(path, &mut skipped) } else { vec![path.clone()] };
        files.sort();
        for path in files {
            match look(&path) {
                Ok(incident) if facets.fit(&incident) => found(Found { path, incident }),
                Ok(_) => {}
                Err(BundleError::NotABundle { .. }) if is_folder => {}
                Err(reason) => skipped.push(Skipped { path, reason }),
            }
        }
    }
    skipped
}

/// The head and the record only: no more of a bundle is read.
fn look(path: &Path) -> Result<IncidentRecord, BundleError> {
    let mut file = file::open(path)?;
    let mut start = [0; 32];
    let got = file.read(&mut start)?;
    let start = start.get(..got).unwrap_or_default();
    if !looks_like_a_bundle(start) {
        return Err(BundleError::NotABundle { looks_like: Foreign::of(start) });
    }
    file.seek(SeekFrom::Start(0))?;
    Bundle::open(file)?.incident()
}

impl<F: Read + Seek> Bundle<F> {
    /// Its record of the incident.
    ///
    /// # Errors
    /// When it is not there, or makes no sense.
    pub fn incident(&mut self) -> Result<IncidentRecord, BundleError> {
        let text = self.content(INCIDENT, LARGEST_RECORD)?;
        serde_json::from_slice(&text)
            .map_err(|error| BundleError::damaged(format!("{INCIDENT} makes no sense: {error}")))
    }
}

/// Regular files in a folder and below, hidden ones not. Links are not followed. Folders that cannot be
/// read are told.
fn files_below(folder: &Path, skipped: &mut Vec<Skipped>) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) => {
                skipped.push(Skipped { path: folder, reason: error.into() });
                continue;
            }
        };
        for entry in entries.flatten() {
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match entry.file_type() {
                _ if hidden || files.len() >= MOST_FILES => {}
                Ok(kind) if kind.is_dir() && depth < DEEPEST => folders.push((entry.path(), depth + 1)),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files
}
