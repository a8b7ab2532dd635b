//! Chromium's headless shell, from Debian's packages.

use anyhow::{Context, Result};
use debian_packages::{Index, Lock, Package, Steps, library_dirs};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Raised when the packages or what is kept of them change.
const REVISION: u32 = 1;

/// The browser. What it needs itself changes with its version, and is looked up.
const SHELL: &str = "chromium-headless-shell";
/// Not unpacked: it must be the one of the loader that is there.
const LOADER: &str = "libc6";
/// A font, and what the libraries that it needs do need.
const FURTHER: &[&str] = &[
    "fonts-dejavu-core",
    "libasyncns0",
    "libbrotli1",
    "libbsd0",
    "libdrm2",
    "libgraphite2-3",
    "libmd0",
    "libmp3lame0",
    "libmpg123-0",
    "libogg0",
    "libpng16-16",
    "libsndfile1",
    "libvorbis0a",
    "libvorbisenc2",
    "libwayland-server0",
    "libx11-xcb1",
    "libxau6",
    "libxdmcp6",
    "libxi6",
    "libxrender1",
];

/// Parts that the tests have no use for.
const UNREAD: &[&str] = &[
    "--exclude=./usr/share/locale",
    "--exclude=./usr/lib/chromium/locales",
    "--exclude=./usr/lib/chromium/libVk*",
    "--exclude=./usr/lib/chromium/libvk*",
];

/// An unpacked browser.
pub(crate) struct Chromium {
    pub(crate) program: PathBuf,
    /// What the dynamic loader must search for it.
    pub(crate) libraries: String,
    /// Where its fonts are.
    pub(crate) fonts: PathBuf,
}

/// The browser; its packages are downloaded if they are not there.
///
/// # Errors
/// There is no cache, or the packages cannot be had.
pub(crate) fn unpacked() -> Result<Chromium> {
    let cache = bpf_toolchain::user_cache()?.join(format!("browser-{REVISION}"));
    let mut root = cache.join("chromium");
    if !root.exists() {
        fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
        let lock = Lock::take(&cache)?;
        let steps = Steps::new(&cache, &lock);
        let mut index = Index::new(&cache, &steps);
        root = debian_packages::install("chromium", &cache, &mut index, UNREAD, packages)?;
    }
    let directories = library_dirs().map(|directory| root.join(directory));
    let directories = directories.iter().flat_map(|directory| [directory.clone(), directory.join("pulseaudio")]);
    Ok(Chromium {
        program: root.join("usr/lib/chromium/chromium-headless-shell"),
        libraries: directories.map(|directory| directory.display().to_string()).collect::<Vec<_>>().join(":"),
        fonts: root.join("usr/share/fonts"),
    })
}

fn packages(index: &Index<'_>) -> Result<Vec<Package>> {
    let needed = index.dependencies(SHELL, false)?.into_iter().filter(|name| name != LOADER);
    let names: BTreeSet<_> = needed.chain(FURTHER.iter().map(|name| (*name).to_owned())).collect();
    index.resolve(&names.into_iter().collect::<Vec<_>>())
}
