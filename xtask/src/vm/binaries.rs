//! The programs to be tried.

use std::{env, path::PathBuf};

use crate::workspace;

/// The programs of one build.
#[derive(Debug)]
pub(super) struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// Those of one profile's build.
    pub(super) fn of_build(profile: &str) -> Self {
        let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        Self { directory: target.unwrap_or_else(|| workspace::root().join("target")).join(profile) }
    }

    /// The lab.
    pub(super) fn lab(&self) -> PathBuf {
        self.directory.join("lab")
    }

    /// The lab, and whylag.
    pub(super) fn all(&self) -> [PathBuf; 2] {
        [self.lab(), self.directory.join("whylag")]
    }
}
