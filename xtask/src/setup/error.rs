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
    /// The system has no apt or dpkg.
    #[error("`{0}` is not here, so Debian's packages cannot be fetched. {BY_HAND}")]
    NoTool(&'static str),
    /// Debian's packages of the toolchain exist for two architectures.
    #[error("the set-up knows x86_64 and aarch64, not {0}. {BY_HAND}")]
    Architecture(&'static str),
    /// The machine's package sources do not offer a package.
    #[error(
        "the package sources of this machine offer no `{0}`; on Debian 12, bookworm and \
         bookworm-security must be among them. {BY_HAND}"
    )]
    NoPackage(String),
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
    /// A program of a step failed.
    #[error("{what} failed; the whole output is in {}:\n{tail}", log.display())]
    Step {
        /// What was being done.
        what: String,
        /// File with everything it said.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
}
