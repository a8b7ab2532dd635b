//! Debian packages, unpacked side by side in a directory of the user's, without touching the
//! system.
//!
//! In: the machine's own package sources. Out: a directory with the files of the packages that
//! were asked for. The toolchain's set-up and the lab both use it. It never installs a package,
//! runs nothing of what it unpacks, and writes nowhere but under the directory it is given.

mod apt;
mod lock;
mod progress;
mod unpack;

use std::path::PathBuf;

pub use apt::{DIRECTORY, Index, Package};
pub use lock::Lock;
pub use progress::{Growth, Steps};
pub use unpack::{DOWNLOADS, install, library_dirs};

/// Why packages cannot be had, each for an operator to do something about.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system has no apt or dpkg.
    #[error("`{0}` is not here, so Debian's packages cannot be fetched")]
    NoTool(&'static str),
    /// The packages in question exist for two architectures.
    #[error("Debian's packages are known for x86_64 and aarch64, not {0}")]
    Architecture(&'static str),
    /// The machine's package sources do not offer a package.
    #[error(
        "the package sources of this machine offer no `{0}`; on Debian 12, bookworm and \
         bookworm-security must be among them"
    )]
    NoPackage(String),
    /// Debian does not offer a package, or its lists could not be fetched.
    #[error("Debian's package lists have no `{0}`; a mirror must be reachable, and have its suite")]
    NotInLists(String),
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
