//! What cases need of a machine, as the lab says it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// What a machine needs to run some cases.
#[derive(Debug, Default)]
pub(super) struct Needs {
    /// Names of kernel modules.
    pub(super) modules: Vec<String>,
    /// Directories of unpacked packages in the user's cache.
    pub(super) packages: Vec<PathBuf>,
}

impl Needs {
    /// Asks the lab, which fetches what it lacks.
    pub(super) fn of(lab: &Path, cases: &[String]) -> Result<Self> {
        let said = ask(Command::new(lab).arg("needs").args(cases))?;
        let said: Value = serde_json::from_str(&said).context("parse what the lab says")?;
        let words = |name: &str| {
            let words = said[name].as_array().into_iter().flatten().filter_map(Value::as_str);
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        Ok(Self { modules: words("modules"), packages: words("packages").into_iter().map(PathBuf::from).collect() })
    }
}

/// Names of the cases that need kernel modules or a machine of the lab's own.
pub(super) fn special_cases(lab: &Path) -> Result<Vec<String>> {
    let said = ask(Command::new(lab).args(["list", "--special", "--names"]))?;
    Ok(said.lines().map(str::to_owned).collect())
}

fn ask(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().context("cannot start the lab")?;
    ensure!(output.status.success(), "{command:?} fails");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
