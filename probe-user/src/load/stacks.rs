//! Stacks in user code: the rings of their dumps, the clock that takes samples, and the kernels on
//! which none are taken.

use std::fs;

use aya::{
    Ebpf,
    maps::{Array, PerCpuArray},
    programs::{
        PerfEvent, ProgramError,
        perf_event::{PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent},
    },
    util::online_cpus,
};
use probe_wire::{DumpBody, DumpKind, DumpRow, EventHeader, PLACE_HEAD, STACK_BYTES, STACK_BYTES_MOST, WAITING};
use zerocopy::{FromBytes, transmute};

use super::{Attached, LoadError, object};
use crate::clock::{DurNs, MonoNs};
use crate::source::ring::Rings;

/// Samples of a CPU in a second.
pub const SAMPLE_HZ: u32 = 99;
/// The most that may be asked for.
pub const SAMPLE_HZ_MOST: u32 = 999;
/// Shortest time off the CPU of which the stack is told.
pub const WAIT_MIN: DurNs = DurNs::from_millis(1);
/// Waits of which the stack is told in a stretch of time, all CPUs together.
const WAITS_PER_STRETCH: usize = 1024;
/// And of one CPU, however many there are.
const WAITS_PER_CPU: usize = 16;

/// What is taken of stacks in user code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserStacks {
    /// Samples of each CPU in a second.
    pub sample_hz: u32,
    /// Shortest time off the CPU of which the stack is told.
    pub wait_min: DurNs,
    /// Bytes of each CPU's ring of dumps, a power of two.
    pub ring_bytes: u32,
}

impl Default for UserStacks {
    fn default() -> Self {
        Self { sample_hz: SAMPLE_HZ, wait_min: WAIT_MIN, ring_bytes: 1 << 20 }
    }
}

/// A CPU's budget of waits.
pub(super) fn waits_per_stretch(cpus: usize) -> u32 {
    u32::try_from((WAITS_PER_STRETCH / cpus.max(1)).max(WAITS_PER_CPU)).unwrap_or(u32::MAX)
}

/// Maps that are as good as empty without stacks.
pub(super) const LARGE_MAPS: [&str; 3] = ["KEPT_STACKS", "DEEP_STACKS", "DEEP"];
/// The map that has an entry for each CPU with stacks, and none to speak of without.
pub(super) const SAMPLES: &str = "SAMPLES";

/// What has become of dumps of one kind, on all CPUs since attach.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DumpCounts {
    /// Those that were due.
    pub due: u64,
    /// Of these, those for which the ring had no room.
    pub lost: u64,
    /// Of these, those beyond the budget.
    pub spared: u64,
    /// Stacks that made room for another thread's while their wait lasted.
    pub displaced: u64,
}

/// The sampling clock of each CPU.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    links: Vec<(u32, PerfEventLinkId)>,
    hz: u32,
}

impl Clocks {
    /// Samples every CPU that is online, so many times a second, and no more as before.
    pub(super) fn set(&mut self, ebpf: &mut Ebpf, program: &str, hz: u32) -> Result<(), ProgramError> {
        let program: &mut PerfEvent = ebpf.program_mut(program).ok_or(ProgramError::NotLoaded)?.try_into()?;
        match program.load() {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
            Err(error) => return Err(error),
        }
        let mut before = std::mem::take(&mut self.links);
        let config = PerfEventConfig::Software(SoftwareEvent::CpuClock);
        let period = SamplePolicy::Period(1_000_000_000 / u64::from(hz.clamp(1, SAMPLE_HZ_MOST)));
        for cpu in online_cpus().map_err(|(_, error)| ProgramError::IOError(error))? {
            let old = before.iter().position(|(of, _)| *of == cpu).map(|at| before.swap_remove(at).1);
            old.map_or(Ok(()), |link| program.detach(link))?;
            let link = program.attach(config, PerfEventScope::AllProcessesOneCpu { cpu }, period, false)?;
            self.links.push((cpu, link));
        }
        self.hz = hz;
        before.into_iter().try_for_each(|(_, link)| program.detach(link))
    }
}

impl Attached {
    /// The reading ends of the rings of dumps, if stacks are taken. The first call gets them.
    pub fn take_dumps(&mut self) -> Option<Rings> {
        self.dumps.take()
    }

    /// Whether stacks in user code are taken.
    #[must_use]
    pub const fn takes_user_stacks(&self) -> bool {
        self.user_stacks.is_some()
    }

    /// Whether samples are taken, and how many of each CPU in a second.
    #[must_use]
    pub fn sample_hz(&self) -> Option<u32> {
        (!self.clocks.links.is_empty()).then_some(self.clocks.hz)
    }

    /// Takes so many samples of each CPU in a second from now on, if any are taken.
    ///
    /// # Errors
    ///
    /// When the kernel refuses; then there may be no samples of some CPUs any more.
    pub fn set_sample_hz(&mut self, hz: u32) -> Result<(), LoadError> {
        if self.sample_hz().is_none_or(|now| now == hz) {
            return Ok(());
        }
        self.clocks.set(&mut self.ebpf, CLOCK, hz).map_err(|source| object::run_error(CLOCK, source))
    }

    /// Copies so many bytes of a thread's stack from now on, at most
    /// [`STACK_BYTES_MOST`].
    ///
    /// # Errors
    ///
    /// When the kernel refuses to write the map.
    pub fn copy_stack(&mut self, tid: u32, bytes: u32) -> Result<(), LoadError> {
        let name = "DEEP";
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map_mut(name).ok_or(LoadError::Incomplete { name })?;
        let mut deep = Array::<_, u32>::try_from(map).map_err(failed)?;
        deep.set(tid % WAITING, bytes.min(STACK_BYTES_MOST), 0).map_err(failed)
    }

    /// The stacks of threads that are off the CPU at this moment, as records of waits that have not
    /// ended; one that was left since before `before` only.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to read a map.
    pub fn waiting_dumps(&self, before: MonoNs) -> Result<Vec<Vec<u8>>, LoadError> {
        let mut dumps = self.dumps_of::<{ PLACE + STACK_BYTES as usize }>("KEPT_STACKS", before)?;
        dumps.extend(self.dumps_of::<{ PLACE + STACK_BYTES_MOST as usize }>("DEEP_STACKS", before)?);
        Ok(dumps)
    }

    fn dumps_of<const BYTES: usize>(&self, name: &'static str, before: MonoNs) -> Result<Vec<Vec<u8>>, LoadError> {
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map(name).ok_or(LoadError::Incomplete { name })?;
        let places = Array::<_, [u8; BYTES]>::try_from(map).map_err(failed)?;
        let mut dumps = Vec::new();
        for place in 0..places.len() {
            let bytes = places.get(&place, 0).map_err(failed)?;
            // A program may have written it meanwhile; its start would be another then.
            if let Some(dump) = occupied(&bytes, before)
                && occupied(&places.get(&place, 0).map_err(failed)?, before).is_some_and(|again| again == dump)
            {
                dumps.push(dump.to_vec());
            }
        }
        Ok(dumps)
    }

    /// What has become of dumps of a kind.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to read the counters.
    pub fn dump_counts(&self, kind: DumpKind) -> Result<DumpCounts, LoadError> {
        let name = "DUMPS";
        let failed = |source| object::map_error(name, source);
        let map = self.ebpf.map(name).ok_or(LoadError::Incomplete { name })?;
        let rows = PerCpuArray::<_, [u64; size_of::<DumpRow>() / 8]>::try_from(map).map_err(failed)?;
        let mut sum = DumpCounts::default();
        for row in rows.get(&kind.index(), 0).map_err(failed)?.iter() {
            let DumpRow { due, lost, spared, displaced, .. } = transmute!(*row);
            sum.due += due;
            sum.lost += lost;
            sum.spared += spared;
            sum.displaced += displaced;
        }
        Ok(sum)
    }
}

const CLOCK: &str = "cpu_clock";
/// Bytes of a place before the memory.
const PLACE: usize = PLACE_HEAD + size_of::<EventHeader>() + size_of::<DumpBody>();

/// The dump in a place whose thread left before that time, and that no program uses.
fn occupied(place: &[u8], before: MonoNs) -> Option<&[u8]> {
    let ([busy, owner], dump) = <[u64; 2]>::read_from_prefix(place).ok()?;
    let (_, rest) = EventHeader::read_from_prefix(dump).ok()?;
    let (body, _) = DumpBody::read_from_prefix(rest).ok()?;
    (busy == 0 && owner != 0 && body.since_ns < before.0).then_some(dump)
}

/// Why no memory of processes may be read on the running kernel, if there is a reason.
#[must_use]
pub fn unsafe_kernel() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let build = fs::read_to_string("/proc/sys/kernel/version").unwrap_or_default();
    let signature = fs::read_to_string("/proc/version_signature").unwrap_or_default();
    let version = real_version(&release, &build, &signature)?;
    may_lock_up(version).then(|| {
        let (major, minor, patch) = version;
        format!(
            "kernel {major}.{minor}.{patch} can lock up when memory of a process is read in an interrupt \
             (copy_from_user_nofault() takes a lock); use 6.1.40, 6.4 or newer"
        )
    })
}

type Version = (u32, u32, u32);

/// The kernel's own version: Debian and Ubuntu name another in the release.
fn real_version(release: &str, build: &str, signature: &str) -> Option<Version> {
    let debian = build.split_once("Debian ").map(|(_, version)| version);
    let ubuntu = signature.split_whitespace().nth(2);
    debian.or(ubuntu).and_then(version).or_else(|| version(release))
}

fn version(text: &str) -> Option<Version> {
    let mut numbers = text.trim().split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    Some((numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)))
}

/// From 5.18 on the copy looks for its destination among the kernel's mappings, under a lock that
/// the interrupted code may hold; not any more with 6.4, 6.3.13 and 6.1.40, if not earlier.
/// <https://github.com/torvalds/linux/commit/d319f344561de23e810515d109c7278919bff7b0>
const fn may_lock_up((major, minor, patch): Version) -> bool {
    match (major, minor) {
        (5, 18..) | (6, 0 | 2) => true,
        (6, 1) => patch < 40,
        (6, 3) => patch < 13,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{may_lock_up, real_version, waits_per_stretch};

    #[test]
    fn the_version_behind_a_distribution_s_name_counts() {
        assert_eq!(real_version("6.1.0-57-amd64\n", "#1 SMP Debian 6.1.192-1 (2026-01-01)", ""), Some((6, 1, 192)));
        assert_eq!(
            real_version("5.19.0-50-generic", "#50-Ubuntu", "Ubuntu 5.19.0-50.50-generic 5.19.17"),
            Some((5, 19, 17))
        );
        assert_eq!(real_version("6.18.44-fc-v669", "#1 SMP", ""), Some((6, 18, 44)));
        assert_eq!(real_version("", "", ""), None);
    }

    #[test]
    fn kernels_that_can_lock_up_are_told_from_those_that_cannot() {
        for bad in [(5, 18, 0), (5, 19, 17), (6, 0, 19), (6, 1, 25), (6, 2, 16), (6, 3, 1)] {
            assert!(may_lock_up(bad), "{bad:?}");
        }
        for good in [(5, 15, 100), (5, 10, 262), (6, 1, 192), (6, 4, 0), (6, 12, 118), (7, 3, 4)] {
            assert!(!may_lock_up(good), "{good:?}");
        }
    }

    #[test]
    fn every_cpu_has_a_budget() {
        assert_eq!(waits_per_stretch(2), 512);
        assert_eq!(waits_per_stretch(0), 1024);
        assert_eq!(waits_per_stretch(1024), 16);
    }
}
