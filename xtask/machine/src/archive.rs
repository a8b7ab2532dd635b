//! The file system that a kernel starts with: a cpio archive in the format that it unpacks.
//! <https://github.com/torvalds/linux/blob/v6.12/Documentation/driver-api/early-userspace/buffer-format.rst>

use std::{
    collections::BTreeSet,
    io::{Result, Write},
    path::{Component, Path},
};

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;
const LINK: u32 = 0o120_777;

/// An archive that is being written.
#[derive(Debug)]
pub(crate) struct Archive<W> {
    to: W,
    entries: u32,
    directories: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, entries: 0, directories: BTreeSet::new() }
    }

    /// Adds a file that everybody may execute, and the directories above it.
    pub(crate) fn file(&mut self, path: &Path, content: &[u8]) -> Result<()> {
        let name = self.parents(path)?;
        self.entry(&name, FILE, (0, 0), content)
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &Path, target: &Path) -> Result<()> {
        let name = self.parents(path)?;
        self.entry(&name, LINK, (0, 0), target.as_os_str().as_encoded_bytes())
    }

    /// Adds a character device.
    pub(crate) fn device(&mut self, path: &Path, major: u32, minor: u32) -> Result<()> {
        let name = self.parents(path)?;
        self.entry(&name, DEVICE, (major, minor), &[])
    }

    /// Writes the end.
    pub(crate) fn finish(mut self) -> Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.to)
    }

    /// Adds the directories above `path`; its name in the archive.
    fn parents(&mut self, path: &Path) -> Result<String> {
        let mut name = String::new();
        for part in path.components() {
            let Component::Normal(part) = part else { continue };
            if !name.is_empty() {
                if self.directories.insert(name.clone()) {
                    self.entry(&name, DIRECTORY, (0, 0), &[])?;
                }
                name.push('/');
            }
            name.push_str(&part.to_string_lossy());
        }
        Ok(name)
    }

    fn entry(&mut self, name: &str, mode: u32, (major, minor): (u32, u32), content: &[u8]) -> Result<()> {
        self.entries += 1;
        let too_long = |_| std::io::Error::other(format!("{name} is too long for the archive"));
        let length = u32::try_from(content.len()).map_err(too_long)?;
        let name_length = u32::try_from(name.len() + 1).map_err(too_long)?;
        let links = 1;
        let fields = [self.entries, mode, 0, 0, links, 0, length, 0, 0, major, minor, name_length, 0]
            .map(|f| format!("{f:08x}"));
        let header = format!("070701{}{name}\0", fields.concat());
        self.to.write_all(header.as_bytes())?;
        self.pad(header.len())?;
        self.to.write_all(content)?;
        self.pad(content.len())
    }

    /// Names and contents end at multiples of four.
    fn pad(&mut self, length: usize) -> Result<()> {
        self.to.write_all(&[0; 3][..length.next_multiple_of(4) - length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_directories_written_once() {
        let mut archive = Archive::new(Vec::new());
        archive.file(Path::new("/a/b"), b"12345").unwrap();
        archive.file(Path::new("a/c"), b"").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        let starts: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        let names = ["a\0", "a/b\0", "a/c\0", "TRAILER!!!\0"];
        assert_eq!(starts.len(), names.len());
        for (start, name) in starts.into_iter().zip(names) {
            assert_eq!(start % 4, 0);
            assert!(text[start + 110..].starts_with(name), "{name}");
        }
        assert!(text.contains("a/b\0\0\0") && text.contains("12345\0\0\0"));
    }
}
