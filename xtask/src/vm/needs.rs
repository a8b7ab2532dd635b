//! What cases need of a machine, as the lab says it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use virtual_machine::Release;

/// What a machine needs to run some cases.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Names of kernel modules.
    pub(super) modules: Vec<String>,
    /// Directories of unpacked packages in the user's cache.
    pub(super) packages: Vec<PathBuf>,
    /// What guests of the machine's own start with, if it has any.
    pub(super) guests: Option<GuestNeeds>,
}

/// What guests of a machine start with.
#[derive(Debug)]
pub(super) struct GuestNeeds {
    /// Their kernel.
    pub(super) release: Release,
    /// Names of its modules.
    pub(super) modules: Vec<String>,
}

impl Needs {
    /// Asks the lab, which fetches what it lacks.
    pub(super) fn of(lab: &Path, cases: &[String]) -> Result<Self> {
        let said = ask(Command::new(lab).arg("needs").args(cases))?;
        let said: Value = serde_json::from_str(&said).context("parse what the lab says")?;
        let packages = words(&said["packages"]).into_iter().map(PathBuf::from).collect();
        Ok(Self { modules: words(&said["modules"]), packages, guests: GuestNeeds::of(&said["guests"])? })
    }
}

impl GuestNeeds {
    fn of(said: &Value) -> Result<Option<Self>> {
        let Some(name) = said["kernel"].as_str() else { return Ok(None) };
        let release = Release::ALL.into_iter().find(|release| release.name == name);
        let release = release.with_context(|| format!("guests of the lab have no kernel {name}"))?;
        Ok(Some(Self { release, modules: words(&said["modules"]) }))
    }
}

fn words(said: &Value) -> Vec<String> {
    said.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Names of the cases of one kind, by the option of `lab list` that tells them.
pub(super) fn cases_of(lab: &Path, kind: &str) -> Result<Vec<String>> {
    let said = ask(Command::new(lab).args(["list", "--names", kind]))?;
    Ok(said.lines().map(str::to_owned).collect())
}

fn ask(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().context("cannot start the lab")?;
    ensure!(output.status.success(), "{command:?} fails");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
