//! Where the toolchain of the kernel programs lies, and how it is called.
//!
//! In: the environment, and the description that `cargo xtask setup` wrote into the cache.
//! Out: a [`Toolchain`], and the command that builds `probe-ebpf` with it.
//! It never downloads or installs anything. The set-up task and `probe-user`'s build script
//! both use it, so that there is one opinion about paths, overrides and flags.

mod description;
mod object;

pub use description::{
    Error, LINKER_OVERRIDE, RUSTC_OVERRIDE, Toolchain, cache_dir, description_path, overridden, user_cache,
};
pub use object::{ObjectBuild, forget_outer_cargo, search_libraries};

/// The LLVM release that the linker is built on; it reads bitcode of this and older releases,
/// so the compiler's own LLVM must not be newer.
pub const LLVM_MAJOR: u32 = 22;

/// The variable by which the dynamic loader finds the unpacked libraries.
pub const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
