//! A private package index, made from the machine's own sources or from sources of our own.
//!
//! The machine's lists may be missing or years old, and only root may refresh them. So apt keeps
//! lists and caches in our directory, and everything else (keys, proxies) stays the machine's own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{Error, Growth, Steps};

/// Where the index lies in the cache.
pub const DIRECTORY: &str = "apt";

/// A file that the index offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// The package's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The file's name, as `apt-get download` writes it.
    pub file: String,
    /// Its size.
    pub bytes: u64,
}

/// The index, refreshed on first use.
#[derive(Debug)]
pub struct Index<'a> {
    directory: PathBuf,
    steps: &'a Steps<'a>,
    fresh: bool,
    sources: Option<String>,
}

impl<'a> Index<'a> {
    /// An index that will lie in `cache`.
    #[must_use]
    pub fn new(cache: &Path, steps: &'a Steps<'a>) -> Self {
        Self { directory: cache.join(DIRECTORY), steps, fresh: false, sources: None }
    }

    /// An index of `sources`, in the format of `sources.list`, instead of the machine's, that will
    /// be `directory`. What is installed counts as installed.
    #[must_use]
    pub const fn of_sources(directory: PathBuf, sources: String, steps: &'a Steps<'a>) -> Self {
        Self { directory, steps, fresh: false, sources: Some(sources) }
    }

    /// Those who do its work.
    #[must_use]
    pub const fn steps(&self) -> &'a Steps<'a> {
        self.steps
    }

    /// Refreshes the index once per run.
    ///
    /// # Errors
    /// This machine has no apt, or the directory cannot be written.
    pub fn refresh(&mut self) -> Result<()> {
        if self.fresh {
            return Ok(());
        }
        supported()?;
        self.configure()?;
        // A third-party source that is down must not stop us: what we need is asked for by name.
        let update = self.steps.run(self.title(), self.apt("apt-get").arg("update"), None);
        if update.is_err() {
            self.steps.note("the lists are not complete: going on with what is there");
        }
        for line in self.steps.said().lines() {
            if ["W:", "E:"].iter().any(|mark| line.starts_with(mark)) {
                self.steps.note(&format!("apt: {line}"));
            }
        }
        self.fresh = true;
        Ok(())
    }

    const fn title(&self) -> &'static str {
        match self.sources {
            None => "package lists of this machine's sources",
            Some(_) => "package lists",
        }
    }

    /// Names of the packages that `package` needs at once (`deep`: in the end), itself included.
    ///
    /// # Errors
    /// The package is not offered.
    pub fn dependencies(&self, package: &str, deep: bool) -> Result<Vec<String>> {
        let mut command = self.apt("apt-cache");
        command.args(["depends", "--important", package]);
        if deep {
            command.arg("--recurse");
        }
        let output = command.output().context("cannot start apt-cache")?;
        if !output.status.success() {
            return Err(self.no_package(package.to_owned()));
        }
        Ok(dependency_names(&String::from_utf8_lossy(&output.stdout)))
    }

    /// The files that `names` stand for.
    ///
    /// # Errors
    /// One of them is not offered.
    pub fn resolve(&self, names: &[String]) -> Result<Vec<Package>> {
        let output = self
            .apt("apt-get")
            .args(["download", "--print-uris"])
            .args(names)
            .output()
            .context("cannot start apt-get")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let packages: Vec<_> = text.lines().filter_map(parse_uri_line).collect();
        let offered = |name: &String| packages.iter().any(|package| package.name == *name);
        match names.iter().find(|name| !offered(name)) {
            Some(absent) => Err(self.absence(absent, &output.stderr)),
            None => Ok(packages),
        }
    }

    /// The files that this machine lacks to install `package` from `suite`; nothing is installed.
    ///
    /// # Errors
    /// The suite does not offer it.
    pub fn lacking(&self, package: &str, suite: &str) -> Result<Vec<Package>> {
        let output = self
            .apt("apt-get")
            .args(["install", "--print-uris", "--yes", "--no-install-recommends", "--target-release", suite, package])
            // It only prints, so nobody's lock is needed.
            .args(["--option", "Debug::NoLocking=true"])
            .output()
            .context("cannot start apt-get")?;
        if !output.status.success() {
            return Err(self.absence(package, &output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(parse_uri_line).collect())
    }

    /// One absent package makes apt name none: its message says which.
    fn absence(&self, first: &str, stderr: &[u8]) -> anyhow::Error {
        let said = String::from_utf8_lossy(stderr);
        let named = said.lines().find_map(|line| {
            let rest = line.split_once("package ")?.1;
            rest.split_whitespace().next().map(String::from)
        });
        self.no_package(named.unwrap_or_else(|| first.to_owned()))
    }

    fn no_package(&self, name: String) -> anyhow::Error {
        match self.sources {
            None => Error::NoPackage(name).into(),
            Some(_) => Error::NotInLists(name).into(),
        }
    }

    /// Downloads `packages` into `directory`; complete files are kept, after apt checked them.
    ///
    /// # Errors
    /// The source does not answer, or what it sends is damaged.
    pub fn download(&self, what: &str, packages: &[Package], into: &Path) -> Result<()> {
        fs::create_dir_all(into)?;
        let growth = Growth { directory: into, bytes: packages.iter().map(|p| p.bytes).sum() };
        let names = packages.iter().map(|p| format!("{}={}", p.name, p.version));
        self.steps.run(
            &format!("download {} packages of {what}", packages.len()),
            self.apt("apt-get").arg("download").args(names).current_dir(into),
            Some(growth),
        )
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // Our settings are read after the machine's, so that they win.
        command.arg("--config-file").arg(self.directory.join("apt.conf"));
        command.env("LC_ALL", "C");
        command
    }

    fn configure(&self) -> Result<()> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(self.directory.join(part))?;
        }
        let write = |name, text: &str| {
            let path = self.directory.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        let mut configuration = configuration(&self.directory);
        if let Some(sources) = &self.sources {
            write("sources.list", sources)?;
            configuration.push_str(&own_sources(&self.directory));
        }
        // What is installed is no reason to prefer it: Debian's own packages go first.
        write("status", "")?;
        write("preferences", PREFERENCES)?;
        write("apt.conf", &configuration)
    }
}

fn own_sources(directory: &Path) -> String {
    format!(
        r#"Dir::Etc::SourceList "{}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::State::status "/var/lib/dpkg/status";
"#,
        directory.display()
    )
}

const PREFERENCES: &str = "Package: *\nPin: release o=Debian\nPin-Priority: 990\n";

fn configuration(directory: &Path) -> String {
    let directory = directory.display();
    format!(
        r#"Dir::State::Lists "{directory}/lists";
Dir::State::status "{directory}/status";
Dir::Etc::preferences "{directory}/preferences";
Dir::Cache "{directory}/cache";
# The unprivileged user that apt would switch to cannot enter a home directory.
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
# A machine's hooks may clean its own caches: not on our account.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"#
    )
}

fn supported() -> Result<(), Error> {
    if !matches!(std::env::consts::ARCH, "x86_64" | "aarch64") {
        return Err(Error::Architecture(std::env::consts::ARCH));
    }
    for tool in ["apt-get", "apt-cache", "dpkg-deb", "tar"] {
        let runs = Command::new(tool).arg("--version").output().is_ok();
        if !runs {
            return Err(Error::NoTool(tool));
        }
    }
    Ok(())
}

/// Reads `apt-cache depends`: package names at the margin, `Depends:` lines indented.
fn dependency_names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in text.lines() {
        let name =
            line.trim_start_matches([' ', '|']).trim_start_matches("PreDepends: ").trim_start_matches("Depends: ");
        if !name.contains(['<', ' ']) && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Reads `'URI' FILE BYTES HASH`.
fn parse_uri_line(line: &str) -> Option<Package> {
    let mut words = line.strip_prefix('\'')?.split_once("' ")?.1.split(' ');
    let file = words.next()?;
    let bytes = words.next()?.parse().ok()?;
    let mut parts = file.strip_suffix(".deb")?.split('_');
    Some(Package {
        name: parts.next()?.to_owned(),
        // A colon after the epoch is escaped in file names.
        version: parts.next()?.replace("%3a", ":"),
        file: file.to_owned(),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_line_gives_name_version_and_size() {
        let line = "'http://example.org/l/libllvm22_22.1.8-1_amd64.deb' \
                    libllvm22_1%3a22.1.8-1~deb12u1_amd64.deb 29378692 SHA256:72";
        let package = parse_uri_line(line).unwrap();
        assert_eq!(package.name, "libllvm22");
        assert_eq!(package.version, "1:22.1.8-1~deb12u1");
        assert_eq!(package.bytes, 29_378_692);
        assert_eq!(package.file, "libllvm22_1%3a22.1.8-1~deb12u1_amd64.deb");
    }

    #[test]
    fn other_lines_of_apt_are_not_packages() {
        for line in ["", "Reading package lists...", "'x' y z", "'x' y.txt 1 h"] {
            assert_eq!(parse_uri_line(line), None, "{line}");
        }
    }

    #[test]
    fn dependencies_are_named_once_and_virtual_packages_left_out() {
        let text = "libxml2\n  Depends: libc6\n |Depends: libicu72\n  Depends: <virtual>\n\
                    libc6\n  PreDepends: libcrypt1\n";
        let names = dependency_names(text);
        assert_eq!(names, ["libxml2", "libc6", "libicu72", "libcrypt1"]);
    }
}
