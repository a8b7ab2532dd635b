//! Signatures: how users say what a health check looks like.
//!
//! In: text, TOML or the name of a preset. Out: [`Signature`]s with checked [`Rule`]s, and a
//! [`RuleTable`] for the programs. Pure, but for [`load`], which reads a file.

mod bytes;
mod error;
mod file;
mod flags;
mod preset;
mod rule;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod trial;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use probe_wire::Rule;

pub use bytes::readable;
pub use error::{Fault, LoadError, SignatureError, TomlError};
pub use file::from_toml;
pub use preset::{PRESETS, Preset, find as find_preset};
pub use table::{FrameHead, RuleTable};
pub use trial::{RuleCounts, SignatureTrial, Trial, TrialError, list, test};

use crate::file::read_text;
use rule::Protocol;
use text::{Item, Part};

/// Largest signature file: eight rules take far less.
const MOST_FILE_BYTES: u64 = 64 << 10;

/// What a health check looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Preset, name from TOML, or the text itself.
    pub name: String,
    /// The packets it consists of; one rule for each form that a check can have.
    pub rules: Vec<Rule>,
    /// How often a check is expected on each flow, if it is periodic.
    pub interval: Option<Duration>,
    /// The text that [`parse`](Self::parse) reads the same rules from.
    pub text: String,
}

impl Signature {
    /// Reads a preset, such as `stun` or `http:port=8080`, or rules, such as
    /// `udp:port=4000,at=0,bytes=4841,nonce=4+8`. Several rules of one signature are joined by
    /// `;`.
    pub fn parse(text: &str) -> Result<Self, SignatureError> {
        let whole = Part::whole(text);
        let (name, options) = match whole.split_once(':') {
            Some((name, options)) => (name, Some(options)),
            None => (whole, None),
        };
        match find_preset(name.text()) {
            Some(preset) => of_preset(preset, options),
            None => of_rules(whole, name),
        }
    }

    /// A signature of these rules; its text is derived.
    fn of(name: Option<String>, rules: Vec<Rule>, interval: Option<Duration>) -> Self {
        let text = rules_text(&rules, interval);
        Signature { name: name.unwrap_or_else(|| text.clone()), rules, interval, text }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Signature {
    type Err = SignatureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Signature::parse(text)
    }
}

/// Reads one argument: what [`Signature::parse`] takes, or the path of a TOML file. A text is a
/// path if it has a `/` or ends in `.toml`, and does not begin as a rule does.
pub fn load(argument: &str) -> Result<Vec<Signature>, LoadError> {
    let is_rule = argument.split_once(':').is_some_and(|(name, _)| Protocol::parse(name.trim()).is_some());
    if is_rule || !(argument.contains('/') || argument.ends_with(".toml")) {
        let signature = Signature::parse(argument).map_err(|source| LoadError::text(argument, source))?;
        return Ok(vec![signature]);
    }
    let path = Path::new(argument).to_owned();
    match read_text(&path, MOST_FILE_BYTES) {
        Err(source) => Err(LoadError::Read { path, source }),
        Ok(text) => from_toml(&text).map_err(|source| LoadError::File { path, source }),
    }
}

fn of_preset(preset: &'static Preset, options: Option<Part<'_>>) -> Result<Signature, SignatureError> {
    let items = options.map_or_else(|| Ok(Vec::new()), Part::items)?;
    let (mut port, mut interval) = (None, None);
    for item in &items {
        match item.key.as_ref() {
            "port" if port.is_none() => port = Some(preset_port(preset, item)?),
            "interval" if interval.is_none() => interval = Some(parse_interval(item)?),
            "port" | "interval" => {
                return Err(item.key_fault(Fault::Duplicate(item.key.to_string())));
            }
            _ => return Err(item.key_fault(Fault::NotForPreset(item.key.to_string()))),
        }
    }
    let mut rules = Vec::new();
    for text in preset.rules {
        let (mut rule, _) = parse_rule(Part::whole(text))?;
        rule.port = port.unwrap_or(rule.port);
        rules.push(rule);
    }
    Ok(Signature { name: preset.name.to_owned(), rules, interval, text: preset_text(preset, port, interval) })
}

fn preset_port(preset: &Preset, item: &Item<'_>) -> Result<u16, SignatureError> {
    if preset.rules.iter().any(|rule| rule.starts_with("icmp:")) {
        return Err(item.key_fault(Fault::WrongProtocol { key: "port".to_owned(), protocol: "icmp" }));
    }
    rule::number(item, 1..=u16::MAX)
}

fn preset_text(preset: &Preset, port: Option<u16>, interval: Option<Duration>) -> String {
    let port = port.map(|port| format!("port={port}"));
    let options: Vec<String> = port.into_iter().chain(interval.map(interval_text)).collect();
    match options.is_empty() {
        true => preset.name.to_owned(),
        false => format!("{}:{}", preset.name, options.join(",")),
    }
}

fn of_rules(whole: Part<'_>, name: Part<'_>) -> Result<Signature, SignatureError> {
    if Protocol::parse(name.text()).is_none() || name.text() == whole.text() {
        return Err(name.fault(Fault::UnknownName(name.text().to_owned())));
    }
    let (mut rules, mut interval) = (Vec::new(), None);
    for part in whole.split(';')? {
        let (rule, own_interval) = parse_rule(part)?;
        if interval.is_some() && own_interval.is_some() {
            return Err(part.fault(Fault::Duplicate("interval".to_owned())));
        }
        interval = interval.or(own_interval);
        rules.push(rule);
    }
    check_count(&rules).map_err(|fault| whole.fault(fault))?;
    Ok(Signature::of(None, rules, interval))
}

fn check_count(rules: &[Rule]) -> Result<(), Fault> {
    match rules.len() {
        count if count > probe_wire::MAX_RULES => Err(Fault::TooManyRules(count)),
        _ => Ok(()),
    }
}

fn parse_rule(part: Part<'_>) -> Result<(Rule, Option<Duration>), SignatureError> {
    let (name, rest) = part.split_once(':').unwrap_or((part, part));
    let protocol =
        Protocol::parse(name.text()).ok_or_else(|| name.fault(Fault::UnknownProtocol(name.text().to_owned())))?;
    let mut items = rest.items()?;
    let interval = take_interval(&mut items)?;
    let rule = rule::build(protocol, &items, Some(part.column()))?;
    Ok((rule, interval))
}

/// Takes `interval` out of the items: it belongs to the signature, not to the rule.
fn take_interval(items: &mut Vec<Item<'_>>) -> Result<Option<Duration>, SignatureError> {
    let mut interval = None;
    for item in items.iter().filter(|item| item.key == "interval") {
        if interval.replace(parse_interval(item)?).is_some() {
            return Err(item.key_fault(Fault::Duplicate("interval".to_owned())));
        }
    }
    items.retain(|item| item.key != "interval");
    Ok(interval)
}

fn parse_interval(item: &Item<'_>) -> Result<Duration, SignatureError> {
    humantime::parse_duration(&item.value)
        .ok()
        .filter(|interval| !interval.is_zero())
        .ok_or_else(|| item.value_fault(Fault::Interval(item.value.to_string())))
}

fn interval_text(interval: Duration) -> String {
    let text = humantime::format_duration(interval).to_string();
    format!("interval={}", text.replace(' ', ""))
}

fn rules_text(rules: &[Rule], interval: Option<Duration>) -> String {
    let mut texts: Vec<String> = rules.iter().map(rule::to_text).collect();
    if let (Some(first), Some(interval)) = (texts.first_mut(), interval) {
        first.push_str(if first.ends_with(':') { "" } else { "," });
        first.push_str(&interval_text(interval));
    }
    texts.join(";")
}
