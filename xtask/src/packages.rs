//! Debian packages that tests call on the machine itself.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Installs those of `packages` that are absent; as an ordinary user it says what to install.
pub(crate) fn ensure(packages: &[&str]) -> Result<()> {
    let absent = absent(packages)?;
    if absent.is_empty() {
        return Ok(());
    }
    if !rustix::process::geteuid().is_root() {
        bail!("the tests need more packages; run as root: apt-get install {}", absent.join(" "));
    }
    workspace::run("package lists", apt_get().args(["--quiet", "update"]))?;
    workspace::run(
        "packages for the tests",
        apt_get().args(["install", "--yes", "--quiet", "--no-install-recommends"]).args(&absent),
    )
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn absent<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Abbrev} ${Package}\n"])
        .args(packages)
        .output()
        .context("cannot ask dpkg-query which packages are installed")?;
    let listed = String::from_utf8_lossy(&output.stdout);
    let installed = |name: &str| listed.lines().any(|line| line.strip_prefix("ii ").is_some_and(|n| n.trim() == name));
    Ok(packages.iter().copied().filter(|p| !installed(p)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_does_not_exist_is_absent() {
        let packages = ["dpkg", "whylag-no-such-package"];
        if let Ok(absent) = absent(&packages) {
            assert_eq!(absent, ["whylag-no-such-package"]);
        }
    }
}
