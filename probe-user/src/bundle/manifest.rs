//! What a bundle holds, and what it does not.

use super::BundleError;
use super::layout::{self, LARGEST_MEMBER};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Raised when what an older whylag would understand wrongly changes; what is only added does not.
pub const FORMAT_VERSION: u64 = 1;
/// Most members.
const MOST_MEMBERS: usize = 64;
/// Most bytes of a manifest.
pub(super) const LARGEST_MANIFEST: u64 = 1 << 20;

/// What became of network addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// Each is replaced by another, always the same in this bundle.
    Pseudonyms,
    /// They are as they were seen.
    Plain,
}

/// Something that is not in the bundle, or only in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

impl LeftOut {
    pub(super) fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name; one that ends in `.zst` is compressed with zstd.
    pub name: String,
    /// What it is.
    pub about: String,
    /// Its length as it stands in the bundle.
    pub bytes: u64,
    /// Its length without compression.
    pub content_bytes: u64,
    /// SHA-256 of it as it stands in the bundle, hexadecimal.
    pub sha256: String,
}

/// The list of all that is in a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// `bundle`, as every JSON object of whylag says what it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// [`FORMAT_VERSION`] of the whylag that wrote it.
    pub format: u64,
    /// Version of that whylag.
    pub whylag: String,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// What became of addresses.
    pub addresses: Addresses,
    /// Public key of who signed it, 32 bytes in hexadecimal.
    pub signer: Option<String>,
    /// What was left out on purpose, or could not be had.
    pub left_out: Vec<LeftOut>,
    /// What identifies people or machines and is in it all the same.
    pub kept: Vec<String>,
    /// The members, in the order in which they stand.
    pub members: Vec<Member>,
}

impl Manifest {
    /// Reads one, and checks all that it claims against the limits.
    pub(super) fn parse(text: &[u8]) -> Result<Self, BundleError> {
        #[derive(Deserialize)]
        struct Version {
            format: u64,
        }
        let unreadable =
            |error: serde_json::Error| BundleError::damaged(format!("its manifest makes no sense: {error}"));
        let version: Version = serde_json::from_slice(text).map_err(unreadable)?;
        if version.format == 0 || version.format > FORMAT_VERSION {
            return Err(BundleError::UnknownVersion { found: version.format });
        }
        let manifest: Self = serde_json::from_slice(text).map_err(unreadable)?;
        manifest.check().map(|()| manifest)
    }

    fn check(&self) -> Result<(), BundleError> {
        if self.members.len() > MOST_MEMBERS {
            return Err(BundleError::TooLarge { what: format!("{} members", self.members.len()) });
        }
        let mut names = BTreeSet::new();
        for member in &self.members {
            let Member { name, bytes, .. } = member;
            if !layout::is_name(name) {
                return Err(BundleError::damaged("the manifest names a member as none is named"));
            }
            if !names.insert(name) {
                return Err(BundleError::damaged(format!("the manifest names {name} twice")));
            }
            if *bytes > LARGEST_MEMBER {
                return Err(BundleError::TooLarge { what: format!("{name} of {bytes} bytes") });
            }
        }
        Ok(())
    }

    /// A member, if it is there.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}
