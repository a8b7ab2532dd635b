//! Neighbours whose link address becomes known.

use aya_ebpf::programs::BtfTracePointContext;
use probe_wire::{EventKind, NeighbourBody};

use crate::{
    emit::emit,
    hooks::packet::Device,
    read::{self, Typed, offsets},
};

/// `NUD_INCOMPLETE`: it is being asked for, and packets wait.
const INCOMPLETE: u8 = 0x01;
/// `NUD_VALID`: its link address is known.
const VALID: u32 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

/// `neigh_update`, before the state changes and before the packets go on.
#[inline(always)]
pub(crate) fn updated(ctx: &BtfTracePointContext) {
    let neighbour: Typed = ctx.arg(0);
    let state = ctx.arg::<u32>(2) & 0xff;
    let before: u8 = read::typed(neighbour, offsets().neighbour_nud_state, 0);
    if before & INCOMPLETE == 0 || state & VALID == 0 {
        return;
    }
    let device = Device(read::typed_pointer(neighbour, offsets().neighbour_dev));
    emit(EventKind::Neighbour, |body: &mut NeighbourBody| {
        *body = NeighbourBody { netns: device.netns(), ifindex: device.ifindex(), state };
    });
}
