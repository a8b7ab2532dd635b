//! Virtual machines with Debian's kernels, emulated in software, without touching the system.
//!
//! In: Debian's package sources, and programs of this machine. Out: an [`Image`] that a kernel
//! starts with, and the [`command`] that boots it. The task `vm` runs whole labs in such machines;
//! the lab has such machines as guests. It starts nothing by itself.

use anyhow::{Result, ensure};

mod archive;
mod boot;
mod image;
mod modules;
mod store;

pub use boot::{Processor, Size, command, last_words};
pub use image::{Contents, Guests, Image};
pub use store::{Kernel, Qemu, Release, Store};

/// Set to `0`, it keeps tests and the lab from starting virtual machines.
const SWITCH: &str = "WHYLAG_TEST_VM";

/// Whether tests may start virtual machines.
///
/// # Errors
/// The user does not want it.
pub fn permitted() -> Result<()> {
    ensure!(std::env::var_os(SWITCH).is_none_or(|value| value != "0"), "{SWITCH} is 0");
    Ok(())
}
