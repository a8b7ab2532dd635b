//! Why a machine cannot be set up, each with what to do instead.

use std::path::PathBuf;

use bpf_toolchain::LLVM_MAJOR;

/// How to get the toolchain by hand.
const BY_HAND: &str = "Get the two parts by hand instead:
  1. a rustc of at least 1.95 with its source and an LLVM of at most 22, for instance
     `rustup component add rust-src` for the project's own toolchain
     (found by itself; otherwise set WHYLAG_BPF_RUSTC to it);
  2. with LLVM 22's development files installed,
     `cargo install bpf-linker --version 0.13.0 --no-default-features --features llvm-22`
     with LLVM_PREFIX set to where LLVM lies, then set WHYLAG_BPF_LINKER to the linker;
then run `cargo xtask setup` again.";

/// What stops the set-up.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetupError {
    /// Debian's packages cannot be had.
    #[error("{reason}. {BY_HAND}")]
    NoPackages {
        /// Why not.
        reason: debian_packages::Error,
    },
    /// The compiler and its source differ, so `core` would not compile.
    #[error(
        "the package sources offer rustc {rustc}, but its source as {source_version}: \
         wait for the sources to be in step, or set WHYLAG_BPF_RUSTC"
    )]
    SourceDiffers {
        /// Version of the compiler's package.
        rustc: String,
        /// Version of the source's package.
        source_version: String,
    },
    /// The compiler writes bitcode that the linker cannot read.
    #[error(
        "{} has LLVM {llvm}, but bpf-linker reads at most LLVM {LLVM_MAJOR}: \
         set WHYLAG_BPF_RUSTC to an older rustc with its source", rustc.display()
    )]
    LlvmTooNew {
        /// The compiler.
        rustc: PathBuf,
        /// Its LLVM.
        llvm: String,
    },
    /// The compiler came without the library's source.
    #[error(
        "{} has no source of the standard library ({} is absent): install it (with rustup: \
         `rustup component add rust-src`) or choose another with WHYLAG_BPF_RUSTC",
        rustc.display(), path.display()
    )]
    NoSource {
        /// The compiler.
        rustc: PathBuf,
        /// The absent file.
        path: PathBuf,
    },
}

/// With what to do instead, where packages are the trouble.
pub(super) fn with_way_out(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<debian_packages::Error>() {
        Ok(failed @ debian_packages::Error::Step { .. }) => failed.into(),
        Ok(reason) => SetupError::NoPackages { reason }.into(),
        Err(other) => other,
    }
}
