//! What an incident is called: the same in every bundle that is made of a recording, whatever became of
//! its addresses, and telling nothing of them.

use super::BundleError;
use super::rewrite::{Hide, rewrite};
use crate::event::{Body, Event, Fact};
use crate::source::recording::{Reader, RecordingError};
use sha2::{Digest, Sha256};
use std::io::Read;

/// Digits of it.
const DIGITS: usize = 12;

/// The SHA-256 of all records, without what a bundle hides of them.
#[derive(Debug, Default)]
pub(super) struct Identity(Sha256);

impl Identity {
    /// Takes a record, as it was recorded or as it stands in a bundle.
    pub(super) fn push(&mut self, record: &[u8]) -> Result<(), BundleError> {
        let mut record = record.to_vec();
        let event = rewrite(&mut record, &mut Hide::Everything)?;
        if !event.is_ok_and(|event| is_of_a_bundle(&event)) {
            self.0.update((record.len() as u64).to_le_bytes());
            self.0.update(&record);
        }
        Ok(())
    }

    /// Its first digits, hexadecimal.
    pub(super) fn id(self) -> String {
        hex::encode(self.0.finalize()).chars().take(DIGITS).collect()
    }

    /// Of a recording, and what was wrong with that.
    pub(super) fn of(reader: &mut Reader<impl Read>) -> Result<(String, Option<RecordingError>), BundleError> {
        let mut identity = Self::default();
        let damage = reader.drain(&mut |record| identity.push(record))?;
        Ok((identity.id(), damage))
    }
}

/// Put in by an export.
fn is_of_a_bundle(event: &Event) -> bool {
    matches!(&event.body, Body::Fact(fact) if matches!(**fact, Fact::Pseudonyms))
}
