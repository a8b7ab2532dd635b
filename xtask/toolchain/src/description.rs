//! The description file: written by the set-up task, read by whoever builds kernel programs.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// Names a compiler to use instead of the one in the description.
pub const RUSTC_OVERRIDE: &str = "WHYLAG_BPF_RUSTC";
/// Names a `bpf-linker` to use instead of the one in the description.
pub const LINKER_OVERRIDE: &str = "WHYLAG_BPF_LINKER";

/// Raised when the cache's layout or a pinned version changes, so that clones of different
/// age can share one cache directory.
const REVISION: u32 = 1;

/// Why there is no usable toolchain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was set up for this user yet.
    #[error("the toolchain of the kernel programs is not set up: run `cargo xtask setup`")]
    Missing,
    /// A part was removed after the set-up, or an override names no file.
    #[error(
        "{} is not there, but the kernel programs need it: run `cargo xtask setup`", path.display()
    )]
    Gone {
        /// The absent file.
        path: PathBuf,
    },
    /// The description exists, but cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The description file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The description was edited or damaged.
    #[error("{} is damaged: delete it and run `cargo xtask setup`", path.display())]
    Damaged {
        /// The description file.
        path: PathBuf,
        /// What the parser said.
        source: toml::de::Error,
    },
    /// The user has no cache directory.
    #[error("set XDG_CACHE_HOME or HOME: whylag keeps the kernel programs' toolchain under it")]
    NoCache,
}

/// A compiler with its source, the linker, and the libraries they load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toolchain {
    /// Compiler whose sysroot holds the source of `core`.
    pub rustc: PathBuf,
    /// The `bpf-linker` executable.
    pub linker: PathBuf,
    /// Directories the dynamic loader must search for either, most specific first.
    pub library_path: Vec<PathBuf>,
}

impl Toolchain {
    /// Finds the toolchain: overrides from the environment first, then the description.
    pub fn find() -> Result<Self, Error> {
        let toolchain = match (overridden(RUSTC_OVERRIDE), overridden(LINKER_OVERRIDE)) {
            (Some(rustc), Some(linker)) => Self { rustc, linker, library_path: Vec::new() },
            (rustc, linker) => Self::described(&description_path()?)?.with(rustc, linker),
        };
        toolchain.present()
    }

    /// Writes the description so that a reader sees all of it or nothing.
    pub fn describe(&self, path: &Path) -> io::Result<()> {
        let text = toml::to_string(self).map_err(io::Error::other)?;
        let staged = path.with_extension("partial");
        fs::write(&staged, format!("# Written by `cargo xtask setup`.\n{text}"))?;
        fs::rename(staged, path)
    }

    fn described(path: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::Missing,
            _ => Error::Read { path: path.to_owned(), source },
        })?;
        toml::from_str(&text).map_err(|source| Error::Damaged { path: path.to_owned(), source })
    }

    fn with(self, rustc: Option<PathBuf>, linker: Option<PathBuf>) -> Self {
        Self { rustc: rustc.unwrap_or(self.rustc), linker: linker.unwrap_or(self.linker), ..self }
    }

    fn present(self) -> Result<Self, Error> {
        for path in [&self.rustc, &self.linker] {
            if !path.is_file() {
                return Err(Error::Gone { path: path.clone() });
            }
        }
        Ok(self)
    }
}

/// What the user put in an override variable; an empty value counts as unset.
pub fn overridden(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The directory that holds the toolchain, shared by all clones of one user.
pub fn cache_dir() -> Result<PathBuf, Error> {
    Ok(user_cache()?.join(format!("toolchain-{REVISION}")))
}

/// The directory for all that whylag's source fetches, shared by all clones of one user.
pub fn user_cache() -> Result<PathBuf, Error> {
    // The XDG specification tells programs to ignore a relative path.
    let xdg = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let base = match xdg {
        Some(path) => path,
        None => env::home_dir().ok_or(Error::NoCache)?.join(".cache"),
    };
    Ok(base.join("whylag"))
}

/// The file that says the toolchain is complete and where its parts are.
pub fn description_path() -> Result<PathBuf, Error> {
    Ok(cache_dir()?.join("toolchain.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toolchain(dir: &Path) -> Toolchain {
        Toolchain { rustc: dir.join("rustc"), linker: dir.join("bpf-linker"), library_path: vec![dir.join("lib")] }
    }

    #[test]
    fn a_description_reads_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("toolchain.toml");
        let written = toolchain(dir.path());
        written.describe(&path).unwrap();
        assert_eq!(Toolchain::described(&path).unwrap(), written);
    }

    #[test]
    fn an_absent_description_says_what_to_run() {
        let error = Toolchain::described(Path::new("/nonexistent/toolchain.toml")).unwrap_err();
        assert!(error.to_string().contains("run `cargo xtask setup`"));
    }

    #[test]
    fn a_damaged_description_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("toolchain.toml");
        fs::write(&path, "rustc = 1").unwrap();
        let error = Toolchain::described(&path).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }));
    }

    #[test]
    fn a_removed_part_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = toolchain(dir.path()).present().unwrap_err();
        assert!(error.to_string().contains("/rustc is not there"));
    }
}
