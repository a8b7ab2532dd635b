//! Cgroups of our own: a CPU quota, in version 1 or 2, whichever holds the cpu controller, and in
//! version 1 a limit of memory and a freezer, in version 2 a limit and a price of requests.
//!
//! Its name says who made it, so that the next run can remove what a killed lab left.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PREFIX: &str = "whylag-lab-";
/// Period of the quota, µs.
const PERIOD_US: u32 = 100_000;
/// What the lab reads at a time.
const PAGE_BYTES: u128 = 4_096;
/// Has `io.stat` tell more.
const TELL_OF_WAITS: &str = "/sys/module/blk_cgroup/parameters/blkcg_debug_stats";
/// Until a freezer's threads stand still.
const FREEZE_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A cgroup.
#[derive(Debug)]
struct Group {
    version: Version,
    dir: PathBuf,
}

/// A cgroup with a quota that can be set and lifted.
#[derive(Debug)]
pub struct CpuGroup(Group);

/// A cgroup with little memory.
#[derive(Debug)]
pub struct MemoryGroup(Group);

/// A cgroup whose requests to a device can be held back.
#[derive(Debug)]
pub struct IoGroup(Group);

/// A cgroup that can be frozen.
#[derive(Debug)]
pub struct FreezerGroup(Group);

/// How often and how long a group was out of quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Periods that ended throttled.
    pub periods: u64,
    /// Total time, ns.
    pub ns: u64,
}

impl Group {
    /// Makes one, and removes those of labs that are dead.
    fn create(name: &str) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/mounts").context("read /proc/mounts")?;
        let found = controller(&mounts, name);
        let (version, base) = found.with_context(|| format!("no cgroup with the {name} controller is mounted"))?;
        sweep(&base);
        if version == Version::V2 {
            let enable = fs::write(base.join("cgroup.subtree_control"), format!("+{name}"));
            enable.with_context(|| format!("enable the {name} controller"))?;
        }
        let own = std::process::id();
        let dir = base.join(format!("{PREFIX}{own}-{}", started_at(own).context("read /proc/self/stat")?));
        fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        Ok(Self { version, dir })
    }

    fn add(&self, process: u32) -> Result<()> {
        self.write("cgroup.procs", &process.to_string())
    }

    /// Version 2 takes threads one by one into a group of threads, below the group of their process.
    /// <https://github.com/torvalds/linux/blob/v6.12/Documentation/admin-guide/cgroup-v2.rst> ("Threads")
    fn add_thread(&self, thread: u32) -> Result<()> {
        match self.version {
            Version::V1 => self.write("tasks", &thread.to_string()),
            Version::V2 => {
                self.write("cgroup.type", "threaded")?;
                self.write("cgroup.threads", &thread.to_string())
            }
        }
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, value).with_context(|| format!("write {value} to {}", path.display()))
    }
}

/// Whether this host has a controller in version 1.
fn exists_in_version_1(name: &str) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    matches!(controller(&mounts, name), Some((Version::V1, _)))
}

impl FreezerGroup {
    /// Whether this host has one that takes single threads.
    #[must_use]
    pub fn exists() -> bool {
        exists_in_version_1("freezer")
    }

    /// Makes one.
    ///
    /// # Errors
    /// This host has no freezer, or it is not ours to use.
    pub fn create() -> Result<Self> {
        Group::create("freezer").map(Self)
    }

    /// Moves a thread into it.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn add_thread(&self, thread: u32) -> Result<()> {
        self.0.add_thread(thread)
    }

    /// Freezes its threads, runs `meanwhile` when they stand still, and thaws them.
    ///
    /// # Errors
    /// They do not stand still in time.
    pub fn freeze(&self, meanwhile: impl FnOnce()) -> Result<()> {
        let frozen = self.0.write(FREEZER, "FROZEN").and_then(|()| self.await_frozen());
        if frozen.is_ok() {
            meanwhile();
        }
        frozen.and(self.0.write(FREEZER, THAWED))
    }

    fn await_frozen(&self) -> Result<()> {
        let path = self.0.dir.join(FREEZER);
        let deadline = Instant::now() + FREEZE_PATIENCE;
        while fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?.trim() != "FROZEN" {
            ensure!(Instant::now() < deadline, "threads are not frozen within {FREEZE_PATIENCE:?}");
            sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

const FREEZER: &str = "freezer.state";
const THAWED: &str = "THAWED";

impl MemoryGroup {
    /// Whether this host counts memory in version 1.
    #[must_use]
    pub fn exists() -> bool {
        exists_in_version_1("memory")
    }

    /// Makes one in which what a process newly uses may be this much.
    ///
    /// # Errors
    /// This host has no memory controller, or it is not ours to use.
    pub fn create(bytes: u64) -> Result<Self> {
        let group = Group::create("memory")?;
        group.write("memory.limit_in_bytes", &bytes.to_string())?;
        Ok(Self(group))
    }

    /// Moves a process into it.
    ///
    /// # Errors
    /// The process is gone.
    pub fn add(&self, process: u32) -> Result<()> {
        self.0.add(process)
    }

    /// How often it was at its limit.
    ///
    /// # Errors
    /// The group is gone.
    pub fn failures(&self) -> Result<u64> {
        let text = fs::read_to_string(self.0.dir.join("memory.failcnt")).context("read memory.failcnt")?;
        text.trim().parse().context("parse memory.failcnt")
    }
}

impl IoGroup {
    /// Whether this host has one.
    #[must_use]
    pub fn exists() -> bool {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        matches!(controller(&mounts, "io"), Some((Version::V2, _)))
    }

    /// Makes one.
    ///
    /// # Errors
    /// This host has no io controller, or it is not ours to use.
    pub fn create() -> Result<Self> {
        Group::create("io").map(Self)
    }

    /// Moves a process into it.
    ///
    /// # Errors
    /// The process is gone.
    pub fn add(&self, process: u32) -> Result<()> {
        self.0.add(process)
    }

    /// Of a device, with this number, one page may be read in `time`.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn limit(&self, device: &str, time: Duration) -> Result<()> {
        let bytes = (PAGE_BYTES * 1_000).div_ceil(time.as_millis().max(1));
        self.0.write("io.max", &format!("{device} rbps={bytes}"))
    }

    /// A read costs about `time` of a device that all groups share.
    ///
    /// # Errors
    /// The kernel refuses it, or does not tell of waits.
    pub fn price(&self, device: &str, time: Duration) -> Result<()> {
        let reads = (1_000 / time.as_millis().max(1)).max(1);
        let model = format!("ctrl=user model=linear rbps=1000000000 rseqiops={reads} rrandiops={reads}");
        let write = |file: &Path, text: &str| {
            fs::write(file, text).with_context(|| format!("write {text} to {}", file.display()))
        };
        let root = self.0.dir.parent().context("a group has a parent")?;
        write(&root.join("io.cost.model"), &format!("{device} {model} wbps=1000000000 wseqiops=1000 wrandiops=1000"))?;
        // It may neither be faster nor slower than that, and its periods are short.
        let quality = "enable=1 ctrl=user rpct=0.00 rlat=10000 wpct=0.00 wlat=10000 min=100.00 max=100.00";
        write(&root.join("io.cost.qos"), &format!("{device} {quality}"))?;
        write(Path::new(TELL_OF_WAITS), "Y")
    }

    /// How long requests to a device waited for budget.
    ///
    /// # Errors
    /// The group is gone.
    pub fn cost_wait_ns(&self, device: &str) -> Result<u64> {
        let stat = fs::read_to_string(self.0.dir.join("io.stat")).context("read io.stat")?;
        let line = stat.lines().find_map(|line| line.strip_prefix(device)?.strip_prefix(' '));
        let mut words = line.unwrap_or_default().split(' ');
        let wait = words.find_map(|word| word.strip_prefix("cost.wait=")?.parse::<u64>().ok());
        Ok(wait.unwrap_or(0) * 1_000)
    }
}

impl CpuGroup {
    /// Whether this host has one that takes single threads of what the lab starts. In version 2, they
    /// must be of a process in the group above, and there only the root has other groups below it.
    #[must_use]
    pub fn takes_threads() -> bool {
        exists_in_version_1("cpu") || fs::read_to_string("/proc/self/cgroup").is_ok_and(|own| own == "0::/\n")
    }

    /// Moves a thread into it.
    ///
    /// # Errors
    /// The thread is gone, or the controller takes no threads.
    pub fn add_thread(&self, thread: u32) -> Result<()> {
        self.0.add_thread(thread)
    }

    /// Makes one, and removes those of labs that are dead.
    ///
    /// # Errors
    /// This host has no cpu controller, or it is not ours to use.
    pub fn create() -> Result<Self> {
        Group::create("cpu").map(Self)
    }

    /// Moves a process into it.
    ///
    /// # Errors
    /// The process is gone.
    pub fn add(&self, process: u32) -> Result<()> {
        self.0.add(process)
    }

    /// Sets the quota, in percent of one CPU; `None` lifts it.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn limit(&self, percent: Option<u32>) -> Result<()> {
        let quota = percent.map(|percent| PERIOD_US / 100 * percent);
        match (self.0.version, quota) {
            (Version::V1, quota) => {
                self.0.write("cpu.cfs_quota_us", &quota.map_or("-1".to_owned(), |quota| quota.to_string()))
            }
            (Version::V2, Some(quota)) => self.0.write("cpu.max", &format!("{quota} {PERIOD_US}")),
            (Version::V2, None) => self.0.write("cpu.max", &format!("max {PERIOD_US}")),
        }
    }

    /// What the kernel counted.
    ///
    /// # Errors
    /// The group is gone.
    pub fn throttled(&self) -> Result<Throttled> {
        let stat = fs::read_to_string(self.0.dir.join("cpu.stat")).context("read cpu.stat")?;
        let field = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let ns = field("throttled_time ").or_else(|| field("throttled_usec ").map(|us| us * 1_000));
        Ok(Throttled { periods: field("nr_throttled ").unwrap_or(0), ns: ns.unwrap_or(0) })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // If a process is still in it, the next run removes it.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Finds a mounted controller in the text of `/proc/mounts`.
fn controller(mounts: &str, name: &str) -> Option<(Version, PathBuf)> {
    let has_it = |dir: &Path| {
        let controllers = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
        controllers.split_whitespace().any(|controller| controller == name)
    };
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (dir, kind, options) = (PathBuf::from(fields.next()?), fields.next()?, fields.next()?);
        match kind {
            "cgroup" if options.split(',').any(|option| option == name) => Some((Version::V1, dir)),
            "cgroup2" if has_it(&dir) => Some((Version::V2, dir)),
            _ => None,
        }
    })
}

fn sweep(base: &Path) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_orphan)) {
        // What is frozen does not die.
        let _ = fs::write(entry.path().join(FREEZER), THAWED);
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
    use super::{Version, controller, is_orphan, started_at};

    #[test]
    fn the_version_1_controller_is_found_among_others() {
        let mounts = "cgroup /cg/cpuset cgroup rw,cpuset 0 0\ncgroup /cg/cpu cgroup rw,relatime,cpu,cpuacct 0 0\n";
        assert_eq!(controller(mounts, "cpu"), Some((Version::V1, "/cg/cpu".into())));
        assert_eq!(controller("tmpfs /tmp tmpfs rw 0 0\n", "cpu"), None);
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
