//! Sets of Debian packages, unpacked side by side in the cache.

use std::path::{Path, PathBuf};

use anyhow::Result;
use bpf_toolchain::LLVM_MAJOR;
use debian_packages::{Index, Package};

use super::error::SetupError;

/// Parts of packages that no build reads: two thirds of their size.
const UNREAD: [&str; 4] = [
    "--exclude=./usr/lib/llvm-*/lib/*.a",
    "--exclude=./usr/src/rustc-*/src",
    "--exclude=./usr/src/rustc-*/compiler",
    "--exclude=./usr/src/rustc-*/debian",
];

/// Libraries that must be the machine's own: the dynamic loader is bound to its C library.
const SYSTEM_LIBRARIES: [&str; 4] = ["libc6", "libgcc-s1", "libstdc++6", "libcrypt1"];

/// A set of packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bundle {
    /// LLVM with its development files, and the libraries it loads.
    Llvm,
    /// The newest rustc that Debian has (it is packaged for web browsers), and its source.
    /// It loads the libraries of the other bundle.
    Rust,
}

impl Bundle {
    fn name(self) -> &'static str {
        match self {
            Self::Llvm => "llvm",
            Self::Rust => "rust",
        }
    }

    fn packages(self, index: &Index<'_>) -> Result<Vec<Package>> {
        match self {
            Self::Llvm => llvm_packages(index),
            Self::Rust => rust_packages(index),
        }
    }
}

/// Unpacks `bundle` under the cache, unless it is there, and returns its root.
pub(super) fn install(bundle: Bundle, cache: &Path, index: &mut Index<'_>) -> Result<PathBuf> {
    debian_packages::install(bundle.name(), cache, index, &UNREAD, |index| bundle.packages(index))
}

/// Where a package for this machine keeps shared libraries, relative to a bundle's root.
pub(super) fn library_dir() -> String {
    let [directory, _] = debian_packages::library_dirs();
    directory
}

fn llvm_packages(index: &Index<'_>) -> Result<Vec<Package>> {
    let library = format!("libllvm{LLVM_MAJOR}");
    let mut names = index.dependencies(&library, true)?;
    names.retain(|name| is_loaded_library(name));
    names.push(format!("llvm-{LLVM_MAJOR}"));
    names.push(format!("llvm-{LLVM_MAJOR}-dev"));
    index.resolve(&names)
}

fn is_loaded_library(name: &str) -> bool {
    let library = name.starts_with("lib") || name.starts_with("zlib");
    library && !SYSTEM_LIBRARIES.contains(&name)
}

fn rust_packages(index: &Index<'_>) -> Result<Vec<Package>> {
    let mut names = index.dependencies("libstd-rust-web-dev", false)?;
    names.retain(|name| name.starts_with("libstd-rust-web-"));
    expect_our_llvm(index, &names)?;
    names.extend(["rustc-web", "rust-web-src"].map(String::from));
    let packages = index.resolve(&names)?;
    same_version(&packages)?;
    Ok(packages)
}

/// The compiler loads the library that came with the linker's LLVM, so it must want that one.
fn expect_our_llvm(index: &Index<'_>, runtime: &[String]) -> Result<()> {
    let ours = format!("libllvm{LLVM_MAJOR}");
    for name in runtime {
        let needed = index.dependencies(name, false)?;
        if let Some(other) = needed.iter().find(|n| n.starts_with("libllvm") && **n != ours) {
            return Err(SetupError::LlvmTooNew {
                rustc: "Debian's rustc".into(),
                llvm: other.trim_start_matches("libllvm").to_owned(),
            }
            .into());
        }
    }
    Ok(())
}

fn same_version(packages: &[Package]) -> Result<(), SetupError> {
    let version = |name: &str| {
        let package = packages.iter().find(|package| package.name == name);
        package.map(|package| package.version.clone())
    };
    match (version("rustc-web"), version("rust-web-src")) {
        (Some(rustc), Some(source_version)) if rustc != source_version => {
            Err(SetupError::SourceDiffers { rustc, source_version })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str) -> Package {
        Package { name: name.to_owned(), version: version.to_owned(), file: String::new(), bytes: 0 }
    }

    #[test]
    fn a_compiler_without_its_own_source_is_refused() {
        let rustc = package("rustc-web", "1.96.0-1");
        assert!(same_version(&[rustc.clone(), package("rust-web-src", "1.96.0-1")]).is_ok());
        assert!(same_version(&[rustc, package("rust-web-src", "1.85.0-1")]).is_err());
    }

    #[test]
    fn the_c_library_is_never_unpacked() {
        let names = ["libc6", "gcc-12-base", "libz3-4", "zlib1g", "libllvm22"];
        let kept: Vec<_> = names.into_iter().filter(|n| is_loaded_library(n)).collect();
        assert_eq!(kept, ["libz3-4", "zlib1g", "libllvm22"]);
    }
}
