//! The kernel modules that a machine needs, in the order in which they load.
//!
//! Debian's packages have no list of dependencies, which is made when they are installed; each
//! module names what it needs in its section `.modinfo`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use object::{Object, ObjectSection};

/// A module, ready to load.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

/// The modules called `names` under `directory` and what they need, each after what it needs. A
/// kernel that has one built in has no file of it. `xz` unpacks them.
pub(crate) fn wanted(directory: &Path, names: &[&str], xz: &dyn Fn() -> Command) -> Result<Vec<Module>> {
    let mut files = BTreeMap::new();
    collect(directory, &mut files)?;
    ensure!(!files.is_empty(), "no modules in {}", directory.display());
    let mut found = Vec::new();
    for name in names {
        add(name, &files, xz, &mut found)?;
    }
    Ok(found)
}

fn add(name: &str, files: &BTreeMap<String, PathBuf>, xz: &dyn Fn() -> Command, found: &mut Vec<Module>) -> Result<()> {
    let Some(path) = files.get(name) else { return Ok(()) };
    if found.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let content = read(path, xz)?;
    for needed in dependencies(&content).with_context(|| format!("read {}", path.display()))? {
        add(&needed, files, xz, found)?;
    }
    found.push(Module { name: name.to_owned(), content });
    Ok(())
}

fn read(path: &Path, xz: &dyn Fn() -> Command) -> Result<Vec<u8>> {
    if path.extension().is_some_and(|extension| extension == "ko") {
        return fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    }
    let output = xz().args(["--decompress", "--stdout"]).arg(path).output().context("cannot start xz")?;
    ensure!(output.status.success(), "xz: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

/// Names of the modules that a module needs.
fn dependencies(content: &[u8]) -> Result<Vec<String>> {
    let file = object::File::parse(content)?;
    let section = file.section_by_name(".modinfo").context("it has no section .modinfo")?;
    let data = section.data()?;
    let fields = data.split(|byte| *byte == 0);
    let needed =
        fields.filter_map(|field| field.strip_prefix(b"depends=")).flat_map(|names| names.split(|b| *b == b','));
    Ok(needed.filter(|name| !name.is_empty()).map(|name| String::from_utf8_lossy(name).replace('-', "_")).collect())
}

/// Files of modules by the name that others know them by.
fn collect(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if let Some(name) = name_of(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

fn name_of(path: &Path) -> Option<String> {
    let (name, kind) = path.file_name()?.to_str()?.split_once('.')?;
    matches!(kind, "ko" | "ko.xz").then(|| name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_known_by_their_names_not_by_their_files() {
        assert_eq!(name_of(Path::new("/m/sch_tbf.ko")).as_deref(), Some("sch_tbf"));
        assert_eq!(name_of(Path::new("/m/kvm-amd.ko.xz")).as_deref(), Some("kvm_amd"));
        assert_eq!(name_of(Path::new("/m/modules.builtin.modinfo")), None);
    }
}
