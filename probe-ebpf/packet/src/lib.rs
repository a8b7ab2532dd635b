//! The packet parser and signature matcher that kernel and host share.
//!
//! In: the first [`SNAP`] bytes of a frame and the rules. Out: one [`Sighting`], or nothing.
//! [`Glance::is_foreign`] and then [`may_match`] say cheaply that a packet cannot match, [`sight`]
//! decides. None allocates, panics, recurses or trusts a length it has read: every access is masked
//! into the buffer, which is also what lets the kernel's verifier follow it. Bytes behind [`SNAP`]
//! are never looked at, so a rule that needs them does not match. Reassembly is not done: of a
//! fragmented datagram only the first fragment can match.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod frame;
mod glance;
mod network;
mod prefilter;
mod rule;
mod transport;
mod tunnel;

#[cfg(test)]
mod tests;

pub use glance::{Glance, Head};
pub use prefilter::{Load, Prefilter, PrefilterRow, may_match};

use frame::{Frame, Layer};
use probe_wire::{FLAG_TUNNEL, MAX_RULES, Rule, Sighting};

/// Bytes of a frame that are looked at.
pub const SNAP: usize = 256;

/// Headers within headers: the packet itself and two tunnels inside it.
const LEVELS: u32 = 3;

/// What the first byte of a frame belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header.
    Network,
}

/// Recognises a health check in a packet.
///
/// `len` bytes of `buf` are valid, of a frame that has `frame_len` bytes. `flags_in` are `FLAG_*`
/// bits that only the caller can know, such as a VLAN tag in the packet's metadata. The outermost
/// header that matches wins, and within it the first of the `rule_count` rules. True means that
/// every byte of `out` was written; on false its content is unspecified.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "BPF scratch memory must come from the caller, piece by piece")]
pub fn sight(
    buf: &[u8; SNAP],
    len: u32,
    frame_len: u32,
    start: Start,
    rules: &[Rule; MAX_RULES],
    rule_count: u32,
    flags_in: u16,
    out: &mut Sighting,
) -> bool {
    let frame = Frame::new(buf, len, out);
    let Some(mut layer) = Layer::outermost(frame, start, frame_len) else {
        return false;
    };
    let mut flags = flags_in;
    let mut level = 0;
    while level < LEVELS {
        let Some(datagram) = network::datagram(frame, layer, &mut flags, out) else {
            return false;
        };
        if let Some(message) = transport::message(frame, datagram, out)
            && rule::matches(frame, message, rules, rule_count, out)
        {
            out.flags = flags;
            return true;
        }
        let Some(inner) = tunnel::inner(frame, datagram) else {
            return false;
        };
        layer = inner;
        flags |= FLAG_TUNNEL;
        level += 1;
    }
    false
}
