//! One TCX classifier that lets every packet pass and counts it: proof that the toolchain works.

use aya_ebpf::{
    bindings::TC_ACT_UNSPEC,
    macros::{classifier, map},
    maps::PerCpuArray,
    programs::TcContext,
};

/// Packets seen, by CPU. Key: always 0. Written here, read by the collector.
#[map]
static PACKETS: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Counts a packet that entered an interface.
#[classifier]
pub fn net_ingress(_ctx: TcContext) -> i32 {
    if let Some(count) = PACKETS.get_ptr_mut(0) {
        // SAFETY: the slot belongs to this CPU and a classifier is not re-entered on it.
        unsafe { *count += 1 };
    }
    TC_ACT_UNSPEC
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The kernel lends GPL-only helpers to programs that declare a compatible licence.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
