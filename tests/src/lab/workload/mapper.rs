//! A mapped device (device mapper) that hands each request on to the one below it late.

use super::super::software::fetch::{self, library_path};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program that makes one.
const PACKAGES: &[&str] = &["dmsetup", "libdevmapper1.02.1", "libselinux1", "libudev1", "libpcre2-8-0"];

/// The root of that program's packages; they are downloaded if they are not there.
///
/// # Errors
/// They cannot be had.
pub fn mapper_tools() -> Result<PathBuf> {
    fetch::bundle("dmsetup", PACKAGES, &[])
}

/// It is removed with the value.
#[derive(Debug)]
pub(super) struct Mapped {
    name: String,
    root: PathBuf,
}

impl Mapped {
    /// Puts one on `below`, by the target `delay`.
    /// <https://docs.kernel.org/admin-guide/device-mapper/delay.html>
    pub(super) fn delaying(below: &Path, ms: u64) -> Result<Self> {
        let mapped = Self { name: format!("whylag-lab-{}", std::process::id()), root: mapper_tools()? };
        let device = below.file_name().context("a device has a name")?;
        let size = Path::new("/sys/class/block").join(device).join("size");
        let sectors = fs::read_to_string(&size).with_context(|| format!("read {}", size.display()))?;
        let table = format!("0 {} delay {} 0 {ms}", sectors.trim(), below.display());
        mapped.run(&["create", &mapped.name, "--noudevrules", "--noudevsync", "--table", &table])?;
        Ok(mapped)
    }

    /// By the name that the kernel gives it: nobody makes it another.
    pub(super) fn node(&self) -> Result<PathBuf> {
        let minor = self.run(&["info", "--columns", "--noheadings", "-o", "minor", &self.name])?;
        Ok(PathBuf::from(format!("/dev/dm-{}", minor.trim())))
    }

    fn run(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.root.join("sbin/dmsetup"));
        let output = command.args(args).env("LD_LIBRARY_PATH", library_path(&self.root)).output();
        let output = output.context("start dmsetup")?;
        ensure!(output.status.success(), "dmsetup: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // Whatever is left of it ends with the machine.
        let _ = self.run(&["remove", "--noudevrules", "--noudevsync", &self.name]);
    }
}
