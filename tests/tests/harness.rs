//! The lab about itself.

use anyhow::{Context, Result, ensure};
use probe_tests::lab::cgroup::CpuGroup;
use probe_tests::lab::software::fetch::unpacked;
use probe_tests::lab::software::{Software, server_dir};
use probe_tests::lab::truth::descendants;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Two namespaces, server and client.
const CAST: usize = 4;

/// A lab that is killed when the test ends, if it has not been before.
struct Lab(Child);

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_lab_leaves_nothing_behind() -> Result<()> {
    if !is_root() {
        println!("skipped: namespaces need root");
        return Ok(());
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    let mut lab =
        Lab(command.args(["rehearse", "cpu-quota"]).stdout(Stdio::null()).spawn().context("start the lab")?);
    // It may first wait for its turn.
    await_that("the lab runs", Duration::from_secs(120), || {
        children(lab.0.id()).len() >= CAST && group(&lab).is_some()
    })?;
    let (cast, group) = (children(lab.0.id()), group(&lab).context("the lab has a cgroup")?);
    lab.0.kill().context("kill the lab")?;
    lab.0.wait().context("wait for the lab")?;
    await_that("all that it started is gone", Duration::from_secs(5), || !cast.iter().any(|path| path.exists()))?;
    drop(CpuGroup::create()?);
    ensure!(!group.exists(), "{} is still there", group.display());
    Ok(())
}

#[test]
fn a_killed_lab_ends_the_server_that_it_hosts() -> Result<()> {
    if !is_root() {
        println!("skipped: namespaces need root");
        return Ok(());
    }
    if let Err(why) = unpacked(Software::Nginx) {
        println!("skipped: nginx cannot be had from Debian: {why:#}");
        return Ok(());
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    let mut lab =
        Lab(command.args(["rehearse", "nginx-healthy"]).stdout(Stdio::null()).spawn().context("start the lab")?);
    let servers = |lab: &Lab| descendants(lab.0.id()).into_iter().filter(is_nginx).collect::<Vec<u32>>();
    // It may first wait for its turn.
    await_that("a master and its worker run", Duration::from_secs(120), || servers(&lab).len() == 2)?;
    let (servers, dir) = (servers(&lab), server_dir(lab.0.id()));
    ensure!(dir.exists(), "{} does not exist", dir.display());
    lab.0.kill().context("kill the lab")?;
    lab.0.wait().context("wait for the lab")?;
    await_that("server and directory are gone", Duration::from_secs(5), || {
        !servers.iter().any(is_nginx) && !dir.exists()
    })
}

fn is_nginx(process: &u32) -> bool {
    fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|comm| comm.trim() == "nginx")
}

/// `/proc` entries of a process's children, which name them for as long as they live.
fn children(parent: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|process| parent_of(process) == Some(parent)).collect()
}

fn parent_of(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// The lab's cgroup, wherever the cpu controller is mounted.
fn group(lab: &Lab) -> Option<PathBuf> {
    let server = children(lab.0.id()).into_iter().find_map(|child| {
        let groups = fs::read_to_string(child.join("cgroup")).ok()?;
        groups.lines().find_map(|line| line.rsplit_once("/whylag-lab-").map(|(_, name)| name.to_owned()))
    })?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let dirs = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    dirs.map(|dir| Path::new(dir).join(format!("whylag-lab-{server}"))).find(|dir| dir.exists())
}

fn await_that(what: &str, within: Duration, mut holds: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + within;
    while !holds() {
        ensure!(Instant::now() < deadline, "not so within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}
