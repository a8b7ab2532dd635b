//! A CPU quota of our own: a cgroup of version 1 or 2, whichever holds the cpu controller.
//!
//! Its name says who made it, so that the next run can remove what a killed lab left.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const PREFIX: &str = "whylag-lab-";
/// Period of the quota, µs.
const PERIOD_US: u32 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A cgroup with a quota that can be set and lifted.
#[derive(Debug)]
pub struct CpuGroup {
    version: Version,
    dir: PathBuf,
}

/// How often and how long a group was out of quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Periods that ended throttled.
    pub periods: u64,
    /// Total time, ns.
    pub ns: u64,
}

impl CpuGroup {
    /// Makes one, and removes those of labs that are dead.
    ///
    /// # Errors
    /// This host has no cpu controller, or it is not ours to use.
    pub fn create() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts").context("read /proc/mounts")?;
        let (version, base) = cpu_controller(&mounts).context("no cgroup with the cpu controller is mounted")?;
        sweep(&base);
        if version == Version::V2 {
            fs::write(base.join("cgroup.subtree_control"), "+cpu").context("enable the cpu controller")?;
        }
        let own = std::process::id();
        let dir = base.join(format!("{PREFIX}{own}-{}", started_at(own).context("read /proc/self/stat")?));
        fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        Ok(Self { version, dir })
    }

    /// Moves a process into it.
    ///
    /// # Errors
    /// The process is gone.
    pub fn add(&self, process: u32) -> Result<()> {
        self.write("cgroup.procs", &process.to_string())
    }

    /// Sets the quota, in percent of one CPU; `None` lifts it.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn limit(&self, percent: Option<u32>) -> Result<()> {
        let quota = percent.map(|percent| PERIOD_US / 100 * percent);
        match (self.version, quota) {
            (Version::V1, quota) => {
                self.write("cpu.cfs_quota_us", &quota.map_or("-1".to_owned(), |quota| quota.to_string()))
            }
            (Version::V2, Some(quota)) => self.write("cpu.max", &format!("{quota} {PERIOD_US}")),
            (Version::V2, None) => self.write("cpu.max", &format!("max {PERIOD_US}")),
        }
    }

    /// What the kernel counted.
    ///
    /// # Errors
    /// The group is gone.
    pub fn throttled(&self) -> Result<Throttled> {
        let stat = fs::read_to_string(self.dir.join("cpu.stat")).context("read cpu.stat")?;
        let field = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let ns = field("throttled_time ").or_else(|| field("throttled_usec ").map(|us| us * 1_000));
        Ok(Throttled { periods: field("nr_throttled ").unwrap_or(0), ns: ns.unwrap_or(0) })
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, value).with_context(|| format!("write {value} to {}", path.display()))
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        // If a process is still in it, the next run removes it.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Finds the mounted cpu controller in the text of `/proc/mounts`.
fn cpu_controller(mounts: &str) -> Option<(Version, PathBuf)> {
    let has_cpu = |dir: &Path| {
        let controllers = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
        controllers.split_whitespace().any(|controller| controller == "cpu")
    };
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (dir, kind, options) = (PathBuf::from(fields.next()?), fields.next()?, fields.next()?);
        match kind {
            "cgroup" if options.split(',').any(|option| option == "cpu") => Some((Version::V1, dir)),
            "cgroup2" if has_cpu(&dir) => Some((Version::V2, dir)),
            _ => None,
        }
    })
}

fn sweep(base: &Path) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_orphan)) {
        let _ = fs::remove_dir(entry.path());
    }
}

/// Whether a group of this name belongs to a lab that is dead.
fn is_orphan(name: &str) -> bool {
    let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    let Some((process, start)) = owner else { return false };
    process.parse().ok().and_then(started_at).is_none_or(|actual| actual != start)
}

/// Start time of a process in clock ticks, as the kernel writes it.
fn started_at(process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The command name, in parentheses, can hold spaces; start time is field 22, 20th after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{Version, cpu_controller, is_orphan, started_at};

    #[test]
    fn the_version_1_controller_is_found_among_others() {
        let mounts = "cgroup /cg/cpuset cgroup rw,cpuset 0 0\ncgroup /cg/cpu cgroup rw,relatime,cpu,cpuacct 0 0\n";
        assert_eq!(cpu_controller(mounts), Some((Version::V1, "/cg/cpu".into())));
        assert_eq!(cpu_controller("tmpfs /tmp tmpfs rw 0 0\n"), None);
    }

    #[test]
    fn only_groups_of_dead_labs_are_orphans() {
        let own = std::process::id();
        let start = started_at(own).expect("this process runs");
        assert!(!is_orphan(&format!("whylag-lab-{own}-{start}")));
        assert!(is_orphan(&format!("whylag-lab-{own}-1")));
        assert!(is_orphan("whylag-lab-4294967295-1"));
        assert!(!is_orphan("system.slice"));
    }
}
