//! The bundle: an incident in one file, to be sent to someone who was not there.
//!
//! A recording comes in ([`export()`]), one file goes out, and comes back as a [`Bundle`] of which no
//! byte is missing or changed. Nothing of a payload is in it, and addresses are pseudonyms unless asked
//! for ([`Pseudonyms`]).
//!
//! The file is a tar of plain files, so that it can be looked into where there is no whylag:
//!
//! ```text
//! whylag-bundle.sha256   of manifest.json, as sha256sum writes it
//! manifest.json          name, length and SHA-256 of all that follows, and what was left out
//! manifest.sig           64 bytes, ed25519 over manifest.json; only if it is signed
//! …                      the members, in the order of the manifest
//! ```
//!
//! Every byte has only one value that is accepted: of the tar's headers and padding the one that follows
//! from the manifest, of the members the one with that hash.

mod content;
mod error;
mod export;
mod identity;
mod incident;
mod key;
mod layout;
mod manifest;
mod pseudonym;
mod read;
mod rewrite;
mod search;
mod sense;
#[cfg(test)]
mod tests;
mod write;

pub use error::{BundleError, KeyError};
pub use export::{Export, Exported, export};
pub use incident::{CauseRecord, Component, IncidentRecord, MomentRecord};
pub use key::{PublicKey, SecretKey, public_key, secret_key};
pub use layout::looks_like_a_bundle;
pub use manifest::{Addresses, FORMAT_VERSION, LeftOut, Manifest, Member};
pub use pseudonym::{Pseudonyms, TooManyAddresses};
pub use read::{Bundle, Recording};
pub use rewrite::{Hide, rewrite};
pub use search::{Facets, Found, Skipped, search};
