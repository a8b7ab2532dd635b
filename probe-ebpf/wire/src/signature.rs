//! Signature rules as the kernel sees them.
//!
//! Offsets count from the start of the UDP or TCP payload, for ICMP from the ICMP header.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Rules that can be active at once.
pub const MAX_RULES: usize = 8;
/// Byte comparisons in one pattern.
pub const FIELDS_PER_RULE: usize = 4;
/// Longest byte string of one comparison.
pub const RULE_BYTES: usize = 16;

/// Bytes that must stand at an offset: `payload[offset + i] & mask[i] == bytes[i]`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FieldMatch {
    /// Wanted bytes, already masked.
    pub bytes: [u8; RULE_BYTES],
    /// Which bits count; 0 behind `len`.
    pub mask: [u8; RULE_BYTES],
    /// First byte.
    pub offset: u16,
    /// Bytes compared, 0 to [`RULE_BYTES`]; 0 means the slot is unused.
    pub len: u16,
}

/// What one direction of a check looks like.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Pattern {
    /// Comparisons that must all hold.
    pub fields: [FieldMatch; FIELDS_PER_RULE],
    /// Least payload length, bytes.
    pub min_len: u16,
    /// Greatest payload length, bytes; `u16::MAX` for any.
    pub max_len: u16,
    /// TCP flags that count.
    pub tcp_flags_mask: u8,
    /// What they must be.
    pub tcp_flags: u8,
    /// Where the nonce stands.
    pub nonce_offset: u16,
}

/// One signature.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rule {
    /// What a request looks like.
    pub request: Pattern,
    /// What a reply looks like; the same as `request` for an echo.
    pub reply: Pattern,
    /// Server port: destination of requests, source of replies; 0 for any.
    pub port: u16,
    /// 6, 17, or 1 for ICMP of either family.
    pub protocol: u8,
    /// Bytes of nonce, 0 (none) to 16.
    pub nonce_len: u8,
    /// 1 when request and reply have the same pattern, so that only ports or order tell.
    pub symmetric: u8,
    /// Always 0.
    pub reserved: [u8; 3],
}
