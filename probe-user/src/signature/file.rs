//! Signatures in TOML.
//!
//! ```toml
//! [[signature]]
//! name = "voice"
//! protocol = "udp"
//! port = 4000
//! at = 0
//! bytes = "4841"
//! nonce = "4+8"
//! interval = "20ms"
//!
//! [[signature]]
//! name = "two-forms"
//! rules = ["udp:port=53,len=12..", "tcp:port=53,len=14.."]
//! ```

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Deserialize;

use super::error::{Fault, SignatureError, TomlError};
use super::rule::{self, Protocol};
use super::text::Item;
use super::{Signature, check_count, parse_interval};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    signature: Vec<Entry>,
}

/// One `[[signature]]`: either `protocol` and the keys of the inline form, or `rules`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    name: String,
    interval: Option<String>,
    rules: Vec<String>,
    protocol: Option<String>,
    port: Option<u64>,
    at: Option<u64>,
    bytes: Option<String>,
    mask: Option<String>,
    also: Vec<Group>,
    nonce: Option<String>,
    len: Option<Length>,
    flags: Option<String>,
    reply_at: Option<u64>,
    reply_bytes: Option<String>,
    reply_mask: Option<String>,
    reply_also: Vec<Group>,
    reply_nonce: Option<String>,
    reply_len: Option<Length>,
    reply_flags: Option<String>,
}

/// A further comparison.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    at: u64,
    bytes: String,
    mask: Option<String>,
}

/// `8`, or `"8..64"`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Length {
    Exact(u64),
    Range(String),
}

impl Length {
    fn text(&self) -> String {
        match self {
            Length::Exact(len) => len.to_string(),
            Length::Range(range) => range.clone(),
        }
    }
}

/// Reads every `[[signature]]` of a TOML text.
pub fn from_toml(text: &str) -> Result<Vec<Signature>, TomlError> {
    let file: File = toml::from_str(text)?;
    if file.signature.is_empty() {
        return Err(TomlError::Empty);
    }
    let mut names = HashSet::new();
    let mut signatures = Vec::new();
    for entry in &file.signature {
        if !names.insert(&entry.name) {
            return Err(TomlError::DuplicateName(entry.name.clone()));
        }
        let signature =
            entry.signature().map_err(|source| TomlError::Signature { name: entry.name.clone(), source })?;
        signatures.push(signature);
    }
    Ok(signatures)
}

impl Entry {
    fn signature(&self) -> Result<Signature, SignatureError> {
        let without_column = |fault| SignatureError::new(None, fault);
        if self.name.is_empty() {
            return Err(without_column(Fault::NoValue("name".to_owned())));
        }
        let items = self.items();
        let (rules, mut interval) = match &self.protocol {
            Some(name) if self.rules.is_empty() => (vec![flat_rule(name, &items)?], None),
            None if items.is_empty() && !self.rules.is_empty() => {
                let joined = Signature::parse(&self.rules.join(";"))?;
                (joined.rules, joined.interval)
            }
            _ => return Err(without_column(Fault::TomlForm)),
        };
        check_count(&rules).map_err(without_column)?;
        if let Some(text) = &self.interval {
            let own = parse_interval(&item("interval", text.clone()))?;
            if interval.replace(own).is_some() {
                return Err(without_column(Fault::Duplicate("interval".to_owned())));
            }
        }
        Ok(Signature::of(Some(self.name.clone()), rules, interval))
    }

    /// The keys as the inline form has them, in its order.
    fn items(&self) -> Vec<Item<'static>> {
        let mut items = Vec::new();
        push(&mut items, "port", self.port.map(|port| port.to_string()));
        push(&mut items, "len", self.len.as_ref().map(Length::text));
        push(&mut items, "flags", self.flags.clone());
        push(&mut items, "at", self.at.map(|at| at.to_string()));
        push(&mut items, "bytes", self.bytes.clone());
        push(&mut items, "mask", self.mask.clone());
        push_groups(&mut items, &self.also, ["at", "bytes", "mask"]);
        push(&mut items, "nonce", self.nonce.clone());
        push(&mut items, "reply-len", self.reply_len.as_ref().map(Length::text));
        push(&mut items, "reply-flags", self.reply_flags.clone());
        push(&mut items, "reply-at", self.reply_at.map(|at| at.to_string()));
        push(&mut items, "reply-bytes", self.reply_bytes.clone());
        push(&mut items, "reply-mask", self.reply_mask.clone());
        push_groups(&mut items, &self.reply_also, ["reply-at", "reply-bytes", "reply-mask"]);
        push(&mut items, "reply-nonce", self.reply_nonce.clone());
        items
    }
}

fn flat_rule(protocol: &str, items: &[Item<'_>]) -> Result<probe_wire::Rule, SignatureError> {
    let unknown = || SignatureError::new(None, Fault::UnknownProtocol(protocol.to_owned()));
    let protocol = Protocol::parse(protocol).ok_or_else(unknown)?;
    rule::build(protocol, items, None)
}

fn push(items: &mut Vec<Item<'static>>, key: &'static str, value: Option<String>) {
    items.extend(value.map(|value| item(key, value)));
}

fn push_groups(items: &mut Vec<Item<'static>>, groups: &[Group], keys: [&'static str; 3]) {
    let [at, bytes, mask] = keys;
    for group in groups {
        items.push(item(at, group.at.to_string()));
        items.push(item(bytes, group.bytes.clone()));
        push(items, mask, group.mask.clone());
    }
}

fn item(key: &'static str, value: String) -> Item<'static> {
    Item { key: Cow::Borrowed(key), value: Cow::Owned(value), key_column: None, value_column: None }
}
