//! Rules against one message.

use crate::frame::Frame;
use crate::transport::Message;
use probe_wire::{
    FIELDS_PER_RULE, FieldMatch, MAX_RULES, Pattern, ROLE_EITHER, ROLE_REPLY, ROLE_REQUEST, RULE_BYTES, Rule, Sighting,
};

const NONCE_BYTES: u32 = 16;
// a message that can be both is either
const _: () = assert!(ROLE_REQUEST | ROLE_REPLY == ROLE_EITHER);

/// Finds the first rule that matches and writes its number, role and nonce.
#[inline(always)]
pub(crate) fn matches(
    frame: Frame<'_>,
    message: Message,
    rules: &[Rule; MAX_RULES],
    rule_count: u32,
    out: &mut Sighting,
) -> bool {
    let mut i = 0;
    while i < MAX_RULES && i < rule_count as usize {
        let rule = &rules[i];
        let role = role(frame, message, rule);
        if role != 0 {
            #[expect(clippy::cast_possible_truncation, reason = "at most MAX_RULES")]
            {
                out.rule = i as u8;
            }
            out.role = role;
            let pattern = if role == ROLE_REPLY { &rule.reply } else { &rule.request };
            copy_nonce(frame, message, pattern, rule.nonce_len, out);
            return true;
        }
        i += 1;
    }
    false
}

/// `ROLE_*`, or 0 for no match: what the ports allow and the pattern confirms.
#[inline(always)]
fn role(frame: Frame<'_>, message: Message, rule: &Rule) -> u8 {
    if rule.protocol != message.protocol {
        return 0;
    }
    let mut role = 0;
    if (rule.port == 0 || rule.port == message.destination_port) && holds(frame, message, &rule.request, rule.nonce_len)
    {
        role |= ROLE_REQUEST;
    }
    if (rule.port == 0 || rule.port == message.source_port) && holds(frame, message, &rule.reply, rule.nonce_len) {
        role |= ROLE_REPLY;
    }
    role
}

#[inline(always)]
fn holds(frame: Frame<'_>, message: Message, pattern: &Pattern, nonce_len: u8) -> bool {
    let too_long = pattern.max_len != u16::MAX && message.len > pattern.max_len as u32;
    if message.len < pattern.min_len as u32
        || too_long
        || message.tcp_flags & pattern.tcp_flags_mask != pattern.tcp_flags
        || nonce_len as u32 > NONCE_BYTES
        || !is_seen(message, pattern.nonce_offset, nonce_len as u16)
    {
        return false;
    }
    let mut i = 0;
    while i < FIELDS_PER_RULE {
        if !field_holds(frame, message, &pattern.fields[i]) {
            return false;
        }
        i += 1;
    }
    true
}

/// Whether these bytes of the message are at hand.
#[inline(always)]
fn is_seen(message: Message, offset: u16, len: u16) -> bool {
    len == 0 || message.at + offset as u32 + len as u32 <= message.seen_end
}

/// Compares all [`RULE_BYTES`] without a branch: behind `len` the mask is 0, and the verifier
/// walks one path instead of sixteen.
#[inline(always)]
fn field_holds(frame: Frame<'_>, message: Message, field: &FieldMatch) -> bool {
    if field.len == 0 {
        return true;
    }
    if !is_seen(message, field.offset, field.len) {
        return false;
    }
    let from = message.at + field.offset as u32;
    let mut difference = 0;
    let mut i = 0;
    while (i as usize) < RULE_BYTES {
        let byte = frame.byte(from + i);
        difference |= (byte & field.mask[i as usize]) ^ field.bytes[i as usize];
        i += 1;
    }
    difference == 0
}

#[inline(always)]
fn copy_nonce(frame: Frame<'_>, message: Message, pattern: &Pattern, nonce_len: u8, out: &mut Sighting) {
    let from = message.at + pattern.nonce_offset as u32;
    let mut i = 0;
    while i < NONCE_BYTES {
        let byte = frame.byte(from + i);
        out.nonce[i as usize] = if i < nonce_len as u32 { byte } else { 0 };
        i += 1;
    }
}
