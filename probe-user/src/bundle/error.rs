//! What can be wrong with a bundle, and what to do about it.

use super::manifest::FORMAT_VERSION;
use super::pseudonym::TooManyAddresses;
use crate::event::EncodeError;
use crate::source::foreign::{Foreign, hint};
use crate::source::recording::RecordingError;
use std::io;

/// Why a bundle cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Something else.
    #[error("this is not a whylag bundle{}", hint(.looks_like))]
    NotABundle {
        /// What its first bytes are those of, if that is known.
        looks_like: Option<Foreign>,
    },
    /// Made by a whylag that writes another format.
    #[error(
        "the bundle has format version {found}, this whylag reads versions up to {FORMAT_VERSION}: read it with the \
         whylag that made it, or a newer one"
    )]
    UnknownVersion {
        /// Version in the file.
        found: u64,
    },
    /// Something is missing at its end.
    #[error("the bundle is cut off behind byte {got}: copy it again")]
    Cut {
        /// Bytes that are there.
        got: u64,
    },
    /// Some byte is not as it was written.
    #[error("the bundle is damaged: {what}; copy it again")]
    Damaged {
        /// What is not as it should be.
        what: String,
    },
    /// More than is ever written.
    #[error("the bundle claims more than a bundle may hold: {what}")]
    TooLarge {
        /// What.
        what: String,
    },
    /// A member that this command needs.
    #[error("the bundle has no {name}")]
    NoMember {
        /// Its name.
        name: String,
    },
    /// It is whole, but nobody has signed it.
    #[error("the bundle is not signed, so --key proves nothing about it")]
    NotSigned,
    /// Signed by somebody else.
    #[error("the bundle is signed by key {found}, not by {wanted}")]
    OtherSigner {
        /// Fingerprint of the key that signed it.
        found: String,
        /// Fingerprint of the key that was asked for.
        wanted: String,
    },
    /// Nothing random to be had.
    #[error("the kernel gives no random numbers for pseudonyms")]
    NoRandom(#[from] getrandom::Error),
    /// More addresses than pseudonyms are kept for.
    #[error(transparent)]
    Addresses(#[from] TooManyAddresses),
    /// A record cannot be written back.
    #[error("a record cannot be put into the bundle")]
    Record(#[from] EncodeError),
    /// The recording of the bundle cannot be written or read.
    #[error("the recording in the bundle")]
    Recording(#[from] RecordingError),
    /// The file cannot be read.
    #[error("cannot read the bundle")]
    Io(#[from] io::Error),
    /// The file, or what is gathered beside it, cannot be written.
    #[error("cannot write the bundle")]
    Write(#[source] io::Error),
}

impl BundleError {
    /// The same of something that was being written.
    pub(super) fn in_writing(self) -> Self {
        match self {
            Self::Io(error) | Self::Recording(RecordingError::Io(error) | RecordingError::Write(error)) => {
                Self::Write(error)
            }
            error => error,
        }
    }

    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }
}

/// Why a file is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key")]
    Io(#[from] io::Error),
    /// Not the secret half of an ed25519 key.
    #[error(
        "this is no ed25519 secret key in PEM (PKCS#8) without a passphrase; `openssl genpkey -algorithm ed25519 -out \
         key.pem` makes one"
    )]
    NoSecretKey,
    /// Not the public half of an ed25519 key.
    #[error("this is no ed25519 public key in PEM; `openssl pkey -in key.pem -pubout -out public.pem` makes one")]
    NoPublicKey,
}
