//! From `key=value` items to a checked [`Rule`], and back to text.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::RangeInclusive;

use probe_packet::SNAP;
use probe_wire::{FIELDS_PER_RULE, FieldMatch, Pattern, RULE_BYTES, Rule};

use super::bytes;
use super::error::{Fault, SignatureError};
use super::flags;
use super::text::Item;

/// What a rule can be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Icmp,
    Tcp,
    Udp,
}

impl Protocol {
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "icmp" => Some(Protocol::Icmp),
            "tcp" => Some(Protocol::Tcp),
            "udp" => Some(Protocol::Udp),
            _ => None,
        }
    }

    fn of(rule: &Rule) -> Self {
        match rule.protocol {
            1 => Protocol::Icmp,
            6 => Protocol::Tcp,
            _ => Protocol::Udp,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Protocol::Icmp => "icmp",
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        }
    }

    fn number(self) -> u8 {
        match self {
            Protocol::Icmp => 1,
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
        }
    }

    /// Message bytes that are looked at behind the smallest headers: Ethernet 14, IPv4 20, and
    /// UDP 8 or TCP 20. Larger headers and tunnels leave less.
    fn visible(self) -> u32 {
        let headers = match self {
            Protocol::Icmp => 34,
            Protocol::Tcp => 54,
            Protocol::Udp => 42,
        };
        u32::try_from(SNAP).map_or(0, |snap| snap - headers)
    }
}

/// One direction while its items come in.
#[derive(Debug, Default)]
struct Side {
    given: bool,
    fields: Vec<FieldMatch>,
    /// `at` that waits for its `bytes`.
    at: Option<u16>,
    masked: bool,
    len: Option<(u16, u16)>,
    flags: Option<(u8, u8)>,
    nonce: Option<(u16, u8)>,
}

/// A rule while its items come in.
#[derive(Debug)]
struct Draft {
    protocol: Protocol,
    port: Option<u16>,
    request: Side,
    reply: Side,
}

/// Builds a rule from its items; `column` is where it stands, for faults of the whole.
pub(super) fn build(protocol: Protocol, items: &[Item<'_>], column: Option<usize>) -> Result<Rule, SignatureError> {
    let mut draft = Draft { protocol, port: None, request: Side::default(), reply: Side::default() };
    for item in items {
        draft.take(item)?;
    }
    draft.finish().map_err(|fault| SignatureError::new(column, fault))
}

impl Draft {
    fn take(&mut self, item: &Item<'_>) -> Result<(), SignatureError> {
        if item.key == "port" {
            return self.take_port(item);
        }
        let (side, key) = match item.key.strip_prefix("reply-") {
            Some(key) => (&mut self.reply, key),
            None => (&mut self.request, item.key.as_ref()),
        };
        side.given = true;
        match key {
            "at" => side.take_at(item, self.protocol),
            "bytes" => side.take_bytes(item, self.protocol),
            "mask" => side.take_mask(item),
            "nonce" => side.take_nonce(item, self.protocol),
            "len" => side.take_len(item),
            "flags" => side.take_flags(item, self.protocol),
            _ => Err(item.key_fault(Fault::UnknownKey(item.key.to_string()))),
        }
    }

    fn take_port(&mut self, item: &Item<'_>) -> Result<(), SignatureError> {
        if self.protocol == Protocol::Icmp {
            return Err(wrong_protocol(item, self.protocol));
        }
        let port = number(item, 1..=u16::MAX)?;
        set_once(&mut self.port, port, item)
    }

    fn finish(self) -> Result<Rule, Fault> {
        self.request.complete("at")?;
        self.reply.complete("reply-at")?;
        let nonce = self.request.nonce;
        let nonce_len = nonce.map_or(0, |(_, len)| len);
        let reply_nonce = self.reply.nonce.or(nonce);
        if let Some((_, reply)) = self.reply.nonce
            && reply != nonce_len
        {
            let request = nonce_len;
            return Err(Fault::NonceLength { request, reply });
        }
        let symmetric = !self.reply.given;
        let request = self.request.pattern(nonce)?;
        let reply = match symmetric {
            true => request,
            false => self.reply.pattern(reply_nonce)?,
        };
        let rule = Rule {
            request,
            reply,
            port: self.port.unwrap_or(0),
            protocol: self.protocol.number(),
            nonce_len,
            symmetric: u8::from(request == reply),
            reserved: [0; 3],
        };
        check_selective(&rule)?;
        Ok(rule)
    }
}

/// A rule without a port must say something about each direction, or it takes every packet.
fn check_selective(rule: &Rule) -> Result<(), Fault> {
    let says_nothing = |pattern: &Pattern| {
        let anything = Pattern { nonce_offset: pattern.nonce_offset, ..ANYTHING };
        *pattern == anything
    };
    if rule.port != 0 {
        Ok(())
    } else if says_nothing(&rule.request) {
        Err(Fault::MatchesAll("request"))
    } else if says_nothing(&rule.reply) {
        Err(Fault::MatchesAll("reply"))
    } else {
        Ok(())
    }
}

const NO_FIELD: FieldMatch = FieldMatch { bytes: [0; RULE_BYTES], mask: [0; RULE_BYTES], offset: 0, len: 0 };

const ANYTHING: Pattern = Pattern {
    fields: [NO_FIELD; FIELDS_PER_RULE],
    min_len: 0,
    max_len: u16::MAX,
    tcp_flags_mask: 0,
    tcp_flags: 0,
    nonce_offset: 0,
};

impl Side {
    fn take_at(&mut self, item: &Item<'_>, protocol: Protocol) -> Result<(), SignatureError> {
        if self.at.is_some() {
            return Err(item.key_fault(Fault::AtWithoutBytes(item.key.to_string())));
        }
        if self.fields.len() == FIELDS_PER_RULE {
            return Err(item.key_fault(Fault::TooManyFields));
        }
        let last = u16::try_from(protocol.visible() - 1).unwrap_or(u16::MAX);
        self.at = Some(number(item, 0..=last)?);
        Ok(())
    }

    fn take_bytes(&mut self, item: &Item<'_>, protocol: Protocol) -> Result<(), SignatureError> {
        let offset = match self.at.take() {
            Some(at) => at,
            None if self.fields.is_empty() => 0,
            None => return Err(item.key_fault(Fault::BytesWithoutAt(item.key.to_string()))),
        };
        let given = bytes::parse(&item.value).map_err(|fault| item.value_fault(fault))?;
        let field = field(offset, &given).map_err(|fault| item.value_fault(fault))?;
        check_visible(item, protocol, offset, field.len)?;
        self.fields.push(field);
        self.masked = false;
        Ok(())
    }

    fn take_mask(&mut self, item: &Item<'_>) -> Result<(), SignatureError> {
        let misplaced = || item.key_fault(Fault::MaskWithoutBytes(item.key.to_string()));
        if self.at.is_some() || self.masked {
            return Err(misplaced());
        }
        let field = self.fields.last_mut().ok_or_else(misplaced)?;
        let mask = bytes::parse(&item.value).map_err(|fault| item.value_fault(fault))?;
        apply_mask(field, &mask).map_err(|fault| item.value_fault(fault))?;
        self.masked = true;
        Ok(())
    }

    fn take_nonce(&mut self, item: &Item<'_>, protocol: Protocol) -> Result<(), SignatureError> {
        let nonce = parse_nonce(&item.value).ok_or_else(|| item.value_fault(Fault::Nonce(item.value.to_string())))?;
        check_visible(item, protocol, nonce.0, u16::from(nonce.1))?;
        set_once(&mut self.nonce, nonce, item)
    }

    fn take_len(&mut self, item: &Item<'_>) -> Result<(), SignatureError> {
        let len = parse_len(&item.value).ok_or_else(|| item.value_fault(Fault::Length(item.value.to_string())))?;
        set_once(&mut self.len, len, item)
    }

    fn take_flags(&mut self, item: &Item<'_>, protocol: Protocol) -> Result<(), SignatureError> {
        if protocol != Protocol::Tcp {
            return Err(wrong_protocol(item, protocol));
        }
        let flags = flags::parse(&item.value).ok_or_else(|| item.value_fault(Fault::Flags(item.value.to_string())))?;
        set_once(&mut self.flags, flags, item)
    }

    fn complete(&self, at: &str) -> Result<(), Fault> {
        match self.at {
            Some(_) => Err(Fault::AtWithoutBytes(at.to_owned())),
            None => Ok(()),
        }
    }

    fn pattern(&self, nonce: Option<(u16, u8)>) -> Result<Pattern, Fault> {
        let (min_len, max_len) = self.len.unwrap_or((0, u16::MAX));
        let (tcp_flags_mask, tcp_flags) = self.flags.unwrap_or((0, 0));
        let ends = self.fields.iter().map(|field| end(field.offset, field.len));
        let nonce_end = nonce.map(|(offset, len)| end(offset, u16::from(len)));
        let wanted = ends.chain(nonce_end).max().unwrap_or(0);
        if max_len != u16::MAX && wanted > u32::from(max_len) {
            let (end, longest) = (wanted, max_len);
            return Err(Fault::BehindLength { end, longest });
        }
        check_agreement(&self.fields)?;
        let mut pattern = Pattern {
            min_len,
            max_len,
            tcp_flags_mask,
            tcp_flags,
            nonce_offset: nonce.map_or(0, |(offset, _)| offset),
            ..ANYTHING
        };
        for (slot, field) in pattern.fields.iter_mut().zip(&self.fields) {
            *slot = *field;
        }
        Ok(pattern)
    }
}

/// No bit may be wanted set by one comparison and clear by another.
fn check_agreement(fields: &[FieldMatch]) -> Result<(), Fault> {
    let mut wanted: HashMap<usize, (u8, u8)> = HashMap::new();
    for (field, at) in fields.iter().flat_map(|field| (0..usize::from(field.len)).map(move |at| (field, at))) {
        let place = usize::from(field.offset) + at;
        let (bits, mask) = (field.bytes[at], field.mask[at]);
        let (known_bits, known_mask) = wanted.entry(place).or_default();
        if (bits ^ *known_bits) & mask & *known_mask != 0 {
            return Err(Fault::Contradiction(place));
        }
        (*known_bits, *known_mask) = (*known_bits | bits, *known_mask | mask);
    }
    Ok(())
}

fn end(offset: u16, len: u16) -> u32 {
    u32::from(offset) + u32::from(len)
}

fn check_visible(item: &Item<'_>, protocol: Protocol, offset: u16, len: u16) -> Result<(), SignatureError> {
    let (end, visible) = (end(offset, len), protocol.visible());
    if end <= visible {
        return Ok(());
    }
    Err(item.value_fault(Fault::Invisible { key: item.key.to_string(), end, protocol: protocol.name(), visible }))
}

fn wrong_protocol(item: &Item<'_>, protocol: Protocol) -> SignatureError {
    item.key_fault(Fault::WrongProtocol { key: item.key.to_string(), protocol: protocol.name() })
}

fn set_once<T>(slot: &mut Option<T>, value: T, item: &Item<'_>) -> Result<(), SignatureError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(item.key_fault(Fault::Duplicate(item.key.to_string()))),
    }
}

/// Reads a decimal number that lies in `range`.
pub(super) fn number(item: &Item<'_>, range: RangeInclusive<u16>) -> Result<u16, SignatureError> {
    decimal(&item.value).filter(|number| range.contains(number)).ok_or_else(|| {
        item.value_fault(Fault::Number {
            key: item.key.to_string(),
            value: item.value.to_string(),
            least: u32::from(*range.start()),
            greatest: u32::from(*range.end()),
        })
    })
}

/// Digits only: `str::parse` would also take a sign.
fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn field(offset: u16, given: &[u8]) -> Result<FieldMatch, Fault> {
    let mut field = FieldMatch { offset, len: u16::try_from(given.len()).unwrap_or(u16::MAX), ..NO_FIELD };
    if given.is_empty() || given.len() > RULE_BYTES {
        return Err(Fault::ByteCount(given.len()));
    }
    let slots = field.bytes.iter_mut().zip(&mut field.mask);
    for ((byte, mask), wanted) in slots.zip(given) {
        (*byte, *mask) = (*wanted, 0xff);
    }
    Ok(field)
}

fn apply_mask(field: &mut FieldMatch, mask: &[u8]) -> Result<(), Fault> {
    let bytes = usize::from(field.len);
    if mask.len() != bytes {
        let mask = mask.len();
        return Err(Fault::MaskLength { mask, bytes });
    }
    if mask.iter().all(|bits| *bits == 0) {
        return Err(Fault::ZeroMask);
    }
    let outside = field.bytes.iter().zip(mask).position(|(b, m)| b & !m != 0);
    if let Some(at) = outside {
        return Err(Fault::BitsOutsideMask(usize::from(field.offset) + at));
    }
    for (slot, bits) in field.mask.iter_mut().zip(mask) {
        *slot = *bits;
    }
    Ok(())
}

fn parse_nonce(value: &str) -> Option<(u16, u8)> {
    let (offset, len) = value.split_once('+')?;
    let len: u8 = decimal(len)?;
    Some((decimal(offset)?, len)).filter(|_| (1..=16).contains(&len))
}

fn parse_len(value: &str) -> Option<(u16, u16)> {
    let Some((least, greatest)) = value.split_once("..") else {
        let exact = decimal(value)?;
        return Some((exact, exact)).filter(|_| exact != u16::MAX);
    };
    let least = if least.is_empty() { 0 } else { decimal(least)? };
    let greatest = if greatest.is_empty() { u16::MAX } else { decimal(greatest)? };
    Some((least, greatest)).filter(|_| least <= greatest)
}

/// Writes a rule in text form; [`build`] reads the same rule from it.
pub(super) fn to_text(rule: &Rule) -> String {
    let mut items = Vec::new();
    if rule.port != 0 {
        items.push(format!("port={}", rule.port));
    }
    write_pattern(&rule.request, "", &mut items);
    if rule.nonce_len != 0 {
        items.push(nonce_text("nonce", &rule.request, rule.nonce_len));
    }
    if rule.symmetric == 0 {
        write_reply(rule, &mut items);
    }
    format!("{}:{}", Protocol::of(rule).name(), items.join(","))
}

fn write_reply(rule: &Rule, items: &mut Vec<String>) {
    let before = items.len();
    write_pattern(&rule.reply, "reply-", items);
    if rule.nonce_len != 0 && rule.reply.nonce_offset != rule.request.nonce_offset {
        items.push(nonce_text("reply-nonce", &rule.reply, rule.nonce_len));
    }
    // something must say that the reply is not like the request
    if items.len() == before {
        items.push("reply-len=0..".to_owned());
    }
}

fn nonce_text(key: &str, pattern: &Pattern, len: u8) -> String {
    format!("{key}={}+{len}", pattern.nonce_offset)
}

fn write_pattern(pattern: &Pattern, prefix: &str, items: &mut Vec<String>) {
    match (pattern.min_len, pattern.max_len) {
        (0, u16::MAX) => {}
        (least, u16::MAX) => items.push(format!("{prefix}len={least}..")),
        (least, greatest) if least == greatest => items.push(format!("{prefix}len={least}")),
        (least, greatest) => items.push(format!("{prefix}len={least}..{greatest}")),
    }
    if pattern.tcp_flags_mask != 0 {
        items.push(format!("{prefix}flags={}", flags::to_text(pattern.tcp_flags)));
    }
    for field in pattern.fields.iter().filter(|field| field.len != 0) {
        items.push(field_text(field, prefix));
    }
}

fn field_text(field: &FieldMatch, prefix: &str) -> String {
    let len = usize::from(field.len).min(RULE_BYTES);
    let (wanted, mask) = (&field.bytes[..len], &field.mask[..len]);
    let mut text = format!("{prefix}at={},{prefix}bytes={}", field.offset, bytes::to_hex(wanted));
    if mask.iter().any(|bits| *bits != 0xff) {
        let _ = write!(text, ",{prefix}mask={}", bytes::to_hex(mask));
    }
    text
}
