//! Bounded reads, and the position of the parser in a frame.

use crate::{SNAP, Start};
use core::hint::black_box;
use probe_wire::Sighting;

pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Transparent Ethernet bridging: an Ethernet header follows (RFC 1701, also in Geneve).
pub(crate) const ETHERTYPE_BRIDGED: u16 = 0x6558;

/// [`SNAP`] as lengths in packets are.
const SNAP_LEN: u32 = 256;
const _: () = assert!(SNAP_LEN as usize == SNAP && SNAP.is_power_of_two());

/// The bytes at hand. Offsets are `u32`, as the kernel's are.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    buf: &'a [u8; SNAP],
    len: u32,
    zero: u32,
}

impl<'a> Frame<'a> {
    #[inline(always)]
    pub(crate) fn new(buf: &'a [u8; SNAP], len: u32, scratch: &mut Sighting) -> Self {
        let len = if len > SNAP_LEN { SNAP_LEN } else { len };
        let zero = unknown_zero(scratch);
        Frame { buf, len, zero }
    }

    /// Valid bytes.
    #[inline(always)]
    pub(crate) fn len(self) -> u32 {
        self.len
    }

    /// Whether `count` bytes from `at` are valid.
    #[inline(always)]
    pub(crate) fn holds(self, at: u32, count: u32) -> bool {
        at.wrapping_add(count) <= self.len
    }

    /// The same number, of which the verifier knows nothing any more.
    ///
    /// It compares what it knows of every number that a pointer depends on before it takes two
    /// paths for one. Each way through tags, options and extensions ends at another offset, so
    /// that without this it walks all combinations and gives up after a million instructions.
    #[inline(always)]
    pub(crate) fn forget(self, number: u32) -> u32 {
        number.wrapping_add(self.zero)
    }

    /// A byte; of an offset that [`holds`](Self::holds) refuses, any byte.
    #[inline(always)]
    pub(crate) fn byte(self, at: u32) -> u8 {
        self.buf[(at as usize) & (SNAP - 1)]
    }

    #[inline(always)]
    pub(crate) fn be16(self, at: u32) -> u16 {
        (self.byte(at) as u16) << 8 | self.byte(at.wrapping_add(1)) as u16
    }

    #[inline(always)]
    pub(crate) fn be32(self, at: u32) -> u32 {
        (self.be16(at) as u32) << 16 | self.be16(at.wrapping_add(2)) as u32
    }
}

/// A zero that neither the compiler nor the verifier can see through: the one must load it again
/// behind the black box, the other does not track the content of map memory, where `scratch` lies
/// in a program.
#[inline(always)]
fn unknown_zero(scratch: &mut Sighting) -> u32 {
    scratch.tcp_seq = 0;
    black_box(scratch).tcp_seq
}

/// A header that is about to be read.
#[derive(Clone, Copy)]
pub(crate) struct Layer {
    /// Its first byte.
    pub(crate) at: u32,
    /// End of what the headers so far claim, from the start of the frame.
    pub(crate) end: u32,
    /// Its kind, an `ETHERTYPE_*`.
    pub(crate) ethertype: u16,
}

impl Layer {
    #[inline(always)]
    pub(crate) fn outermost(frame: Frame<'_>, start: Start, frame_len: u32) -> Option<Self> {
        let ethertype = match start {
            Start::Ethernet => ETHERTYPE_BRIDGED,
            Start::Network if !frame.holds(0, 1) => return None,
            Start::Network if frame.byte(0) >> 4 == 4 => ETHERTYPE_IPV4,
            Start::Network => ETHERTYPE_IPV6,
        };
        Some(Layer { at: 0, end: frame_len, ethertype })
    }
}
