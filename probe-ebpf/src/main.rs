//! whylag's kernel programs.
//!
//! In: kernel hooks. Out: one [`EventHeader`](probe_wire::EventHeader) and body per fact, in the
//! ring of the CPU it happened on. They never change a packet, a verdict or a task, and they
//! never judge: scope (which packets, which processes) is all the policy there is.
#![cfg_attr(target_arch = "bpf", no_std, no_main, feature(asm_experimental_arch))]
#![cfg_attr(
    target_arch = "bpf",
    expect(
        clippy::cast_possible_truncation,
        reason = "numbers are cut to what they are known to hold; a check would be one more path"
    )
)]

#[cfg(target_arch = "bpf")]
mod atomic;
#[cfg(target_arch = "bpf")]
mod emit;
#[cfg(target_arch = "bpf")]
mod hooks;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod programs;
#[cfg(target_arch = "bpf")]
mod read;
#[cfg(target_arch = "bpf")]
mod scope;

#[cfg(not(target_arch = "bpf"))]
fn main() {}
