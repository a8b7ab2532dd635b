//! Keys that sign bundles: files as openssl makes them.

use super::error::KeyError;
use crate::file;
use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::Path;

/// Most bytes of a key's file.
const LARGEST: u64 = 16 << 10;

/// Bytes of a signature.
pub(super) const SIGNATURE_LEN: usize = 64;

/// Signs. It is not shown, also not by `{:?}`.
pub struct SecretKey(SigningKey);

/// Says who signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SecretKey").field(&self.public().fingerprint()).finish()
    }
}

/// Reads the secret half: PEM (PKCS#8), without a passphrase.
///
/// # Errors
/// When the file cannot be read, or is something else.
pub fn secret_key(path: &Path) -> Result<SecretKey, KeyError> {
    let text = file::read_text(path, LARGEST)?;
    SigningKey::from_pkcs8_pem(&text).map(SecretKey).map_err(|_| KeyError::NoSecretKey)
}

/// Reads the public half: PEM (SubjectPublicKeyInfo).
///
/// # Errors
/// When the file cannot be read, or is something else.
pub fn public_key(path: &Path) -> Result<PublicKey, KeyError> {
    let text = file::read_text(path, LARGEST)?;
    VerifyingKey::from_public_key_pem(&text).map(PublicKey).map_err(|_| KeyError::NoPublicKey)
}

impl SecretKey {
    /// Its public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub(super) fn sign(&self, text: &[u8]) -> [u8; SIGNATURE_LEN] {
        self.0.sign(text).to_bytes()
    }

    #[cfg(test)]
    pub(super) fn of(bytes: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(bytes))
    }
}

impl PublicKey {
    /// From its 32 bytes in hexadecimal.
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        VerifyingKey::from_bytes(&bytes).ok().map(Self)
    }

    pub(super) fn to_hex(self) -> String {
        hex::encode(self.0.as_bytes())
    }

    /// The first 16 digits of its SHA-256, for people.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        hex::encode(Sha256::digest(self.0.as_bytes())).chars().take(16).collect()
    }

    pub(super) fn has_signed(&self, text: &[u8], signature: &[u8; SIGNATURE_LEN]) -> bool {
        self.0.verify_strict(text, &Signature::from_bytes(signature)).is_ok()
    }
}
