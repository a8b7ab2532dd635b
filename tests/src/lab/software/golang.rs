//! Go, by Debian's compiler, with nothing of whoever runs it.

use super::fetch;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: [&str; 2] = ["golang-1.19-go", "golang-1.19-src"];

/// The compiler.
#[derive(Debug)]
pub struct Go {
    root: PathBuf,
}

impl Go {
    /// The unpacked packages, downloaded if they are not there.
    ///
    /// # Errors
    /// There is no cache, or the packages cannot be had.
    pub fn fetched() -> Result<Self> {
        Ok(Self { root: fetch::compiler("go", &PACKAGES)? })
    }

    /// `go build` of a program of one file; what it keeps goes into `folder`.
    #[must_use]
    pub fn build(&self, folder: &Path) -> Command {
        let root = self.root.join("usr/lib/go-1.19");
        let mut go = Command::new(root.join("bin/go"));
        go.args(["build", "-trimpath"]);
        go.env("GOROOT", root).env("GOCACHE", folder.join("go-cache")).env("GOPATH", folder.join("go"));
        go.env("GO111MODULE", "off");
        go
    }
}
