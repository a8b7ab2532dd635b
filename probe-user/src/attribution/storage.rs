//! What is known of files that threads wait for, of who makes pages dirty, and of memory that
//! threads reclaim.
//!
//! Records go in; questions about a wait or a stretch of time are answered. Bounded by age and by
//! count, as all evidence.

use super::symbol::Fast;
use super::thread::{Named, SAME_SWITCH};
use crate::clock::{DurNs, MonoNs};
use crate::event::{Event, TaskId};
use probe_wire::{CALL_FAULT, DirtiedBody, FileWaitBody, ReclaimBody};
use std::collections::{HashMap, VecDeque};

/// Most threads whose waits, or whose reclaim, are kept.
const MAX_THREADS: usize = 8_192;
/// Most of each kept of one thread.
const MAX_PER_THREAD: usize = 4_096;
/// Most devices whose names, or whose dirty pages, are kept.
const MAX_DEVICES: usize = 4_096;
/// Devices on devices that are told, the outermost included.
const MAX_LAYERS: usize = 4;
/// Most samples kept of one device.
const MAX_SAMPLES: usize = 8_192;
/// After so long the kernel has begun to write a dirty page back (`dirty_expire_centisecs`).
const DIRTY_FOR: DurNs = DurNs(30_000_000_000);
/// A wait that began longer ago is forgotten.
const LONGEST_WAIT: DurNs = DurNs(600_000_000_000);
/// Fewest folios, in how many samples, that tell who dirties most.
const FEWEST_FOLIOS: u64 = 64;
const FEWEST_SAMPLES: usize = 3;

/// Numbers of system calls of x86_64 whose first argument is the open file that they work on.
const ON_A_FILE: &[u32] = &[
    0, 1, 17, 18, 19, 20, // read, write, pread64, pwrite64, readv, writev
    74, 75, 77, 78, // fsync, fdatasync, ftruncate, getdents
    217, 221, 277, 285, // getdents64, fadvise64, sync_file_range, fallocate
    295, 296, 306, 327, 328, // preadv, pwritev, syncfs, preadv2, pwritev2
];

/// A file that a thread waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileWait {
    at: MonoNs,
    body: FileWaitBody,
}

impl FileWait {
    /// Whether the wait was in a page fault.
    pub(super) const fn is_fault(&self) -> bool {
        self.body.call == CALL_FAULT
    }

    pub(super) const fn device(&self) -> u32 {
        self.body.device
    }

    pub(super) const fn inode(&self) -> u64 {
        self.body.inode
    }

    pub(super) fn file_system(&self) -> String {
        super::evidence::text(&self.body.file_system)
    }
}

/// A stretch in which a thread looked for memory itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reclaim {
    pub(super) from: MonoNs,
    pub(super) to: MonoNs,
    pub(super) pages: u64,
    /// For its memory cgroup, not for the machine.
    pub(super) cgroup: bool,
}

/// Who made a device's pages dirty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dirtier {
    pub(super) named: Named,
    /// Its process's part of what was seen, in percent.
    pub(super) percent: u64,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: MonoNs,
    by: Named,
    folios: u32,
}

/// Everything known of storage and reclaim.
#[derive(Debug, Default)]
pub(super) struct Storage {
    names: HashMap<u32, String, Fast>,
    /// What a device is made of.
    below: HashMap<u32, Vec<u32>, Fast>,
    waits: HashMap<TaskId, VecDeque<FileWait>, Fast>,
    reclaims: HashMap<TaskId, VecDeque<Reclaim>, Fast>,
    dirtied: HashMap<u32, VecDeque<Sample>, Fast>,
}

impl Storage {
    pub(super) fn learn_device(&mut self, number: u32, name: &str, below: &[u32]) {
        if self.names.len() >= MAX_DEVICES {
            return;
        }
        self.names.insert(number, name.to_owned());
        if !below.is_empty() {
            self.below.insert(number, below.to_vec());
        }
    }

    pub(super) fn waits(&mut self, event: &Event, body: &FileWaitBody) {
        keep(&mut self.waits, event.task, FileWait { at: event.at, body: *body }, (MAX_THREADS, MAX_PER_THREAD));
    }

    pub(super) fn reclaimed(&mut self, event: &Event, body: &ReclaimBody) {
        let reclaim =
            Reclaim { from: MonoNs(body.began_ns), to: event.at, pages: body.pages, cgroup: body.cgroup != 0 };
        keep(&mut self.reclaims, event.task, reclaim, (MAX_THREADS, MAX_PER_THREAD));
    }

    pub(super) fn dirtied(&mut self, event: &Event, body: &DirtiedBody) {
        let by = Named { task: event.task, comm: body.comm };
        let sample = Sample { at: event.at, by, folios: body.folios };
        keep(&mut self.dirtied, body.device, sample, (MAX_DEVICES, MAX_SAMPLES));
    }

    /// Forgets what ended before `before`, and pages that are surely written back by then.
    pub(super) fn trim(&mut self, before: MonoNs) {
        forget_all_but_last(&mut self.waits, before);
        forget(&mut self.reclaims, |reclaim| reclaim.to < before);
        let expired = before.before(DIRTY_FOR);
        forget(&mut self.dirtied, |sample| sample.at < expired);
    }

    /// The file that `task` used when it left the CPU at `left`, to be woken at `woken` if it was. It tells
    /// that itself, so what comes before its wake-up is of this wait, however late.
    pub(super) fn file(&self, task: TaskId, left: MonoNs, woken: Option<MonoNs>) -> Option<&FileWait> {
        let waits = self.waits.get(&task)?;
        let found = waits.get(waits.partition_point(|wait| wait.at < left))?;
        let known = found.is_fault() || ON_A_FILE.contains(&found.body.call);
        let is_of_it = found.at.since(left) <= SAME_SWITCH || woken.is_some_and(|woken| found.at < woken);
        (known && is_of_it).then_some(found)
    }

    /// `loop0 7:0`, or the number alone where there is no block device.
    pub(super) fn device(&self, number: u32) -> String {
        let (major, minor) = (number >> 20, number & 0xf_ffff);
        self.names.get(&number).map_or(format!("{major}:{minor}"), |name| format!("{name} {major}:{minor}"))
    }

    /// What a device is made of, in words, down to the disks; `None` if it is one itself.
    pub(super) fn layers(&self, number: u32) -> Option<String> {
        let mut upper = vec![number];
        let mut told = Vec::new();
        for _ in 1..MAX_LAYERS {
            let made = upper.iter().filter_map(|number| Some((number, self.below.get(number)?)));
            let made: Vec<(&u32, &Vec<u32>)> = made.collect();
            let lies = |(number, below): &(&u32, &Vec<u32>)| {
                let below: Vec<String> = below.iter().map(|number| self.device(*number)).collect();
                format!("{} lies on {}", self.device(**number), below.join(" and "))
            };
            told.extend(made.iter().map(lies));
            upper = made.into_iter().flat_map(|(_, below)| below.iter().copied()).collect();
        }
        (!told.is_empty()).then(|| told.join(", "))
    }

    /// Whose process made most of a device's pages dirty in the time after which the kernel writes
    /// them back. `None` where too little was seen.
    pub(super) fn dirtier(&self, device: u32, until: MonoNs) -> Option<Dirtier> {
        let samples = self.dirtied.get(&device)?;
        let since = until.before(DIRTY_FOR);
        let recent = samples.iter().skip_while(|sample| sample.at < since).take_while(|sample| sample.at < until);
        let mut by_process: HashMap<u32, (u64, Named)> = HashMap::new();
        let (mut all, mut count) = (0, 0);
        for sample in recent {
            let (folios, named) = by_process.entry(sample.by.task.tgid).or_insert((0, sample.by));
            *folios += u64::from(sample.folios);
            *named = sample.by;
            all += u64::from(sample.folios);
            count += 1;
        }
        let most = by_process.into_values().max_by_key(|(folios, named)| (*folios, named.task));
        let (folios, named) = most.filter(|_| count >= FEWEST_SAMPLES && all >= FEWEST_FOLIOS)?;
        Some(Dirtier { named, percent: folios * 100 / u64::max(all, 1) })
    }

    /// The stretches in which `task` reclaimed memory that overlap `from` to `to`, in their order.
    pub(super) fn reclaims(&self, task: TaskId, from: MonoNs, to: MonoNs) -> impl Iterator<Item = &Reclaim> {
        let known = self.reclaims.get(&task).into_iter();
        known
            .flat_map(move |known| known.range(known.partition_point(|reclaim| reclaim.to <= from)..))
            .take_while(move |reclaim| reclaim.from < to)
    }
}

/// Adds to what is kept under a key: at most so many keys, so much of each.
pub(super) fn keep<K: std::hash::Hash + Eq, V>(
    kept: &mut HashMap<K, VecDeque<V>, Fast>,
    key: K,
    value: V,
    (keys, each): (usize, usize),
) {
    if kept.len() >= keys && !kept.contains_key(&key) {
        return;
    }
    let values = kept.entry(key).or_default();
    if values.len() >= each {
        values.pop_front();
    }
    values.push_back(value);
}

/// The last wait may last still, unless it began very long ago.
fn forget_all_but_last(waits: &mut HashMap<TaskId, VecDeque<FileWait>, Fast>, before: MonoNs) {
    waits.retain(|_, waits| {
        let old = waits.partition_point(|wait| wait.at < before);
        waits.drain(..old.saturating_sub(1));
        waits.back().is_some_and(|wait| wait.at >= before.before(LONGEST_WAIT))
    });
}

pub(super) fn forget<K: std::hash::Hash + Eq, V>(kept: &mut HashMap<K, VecDeque<V>, Fast>, old: impl Fn(&V) -> bool) {
    kept.retain(|_, values| {
        values.drain(..values.partition_point(&old));
        !values.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::{MAX_PER_THREAD, MAX_SAMPLES};
    use crate::attribution::Cause;
    use crate::attribution::story::{Actor, HOG, KWORKER, MS, RECEIVE, SERVER, Story, at, concluded, longest, taken};
    use crate::clock::DurNs;
    use crate::event::Fact;
    use probe_wire::CALL_FAULT;

    const LOOP: u32 = 7 << 20 | 1;
    const WRITE: u32 = 1;
    const FUTEX_CALL: u32 = 202;
    const THROTTLED: &str = "io_schedule_timeout balance_dirty_pages generic_perform_write vfs_write";
    const READS: &str = "io_schedule folio_wait_bit_common filemap_read vfs_read";
    const FAULTS: &str = "io_schedule folio_wait_bit_common filemap_fault __do_fault";
    const BULK: Actor = Actor(950, 951, "bulk");

    /// The server sleeps in `frames` for 98 ms.
    fn asleep(frames: &str) -> Story {
        let mut story = Story::served(100 * MS);
        story
            .hooks(&["softirq_entry", "softirq_exit", "sched_switch", "file_wait"])
            .fact(0, Fact::Device { number: LOOP, name: "loop1".to_owned(), below: Vec::new() });
        story.sleeps(MS, SERVER, 2, frames).wakes(99 * MS, KWORKER, SERVER).runs(99 * MS + 5, SERVER);
        story.sleeps(101 * MS, SERVER, 1, RECEIVE);
        story
    }

    /// Device and name of who is behind the longest part of `cause`, and all facts in one.
    fn told(story: &mut Story, cause: Cause) -> (String, String, String) {
        let judged = story.judge();
        assert_eq!(concluded(&judged), Some(cause), "{judged:#?}");
        let entry = longest(&judged, cause);
        let offender = entry.offender.clone().unwrap();
        (offender.device, offender.comm, entry.evidence.join("; "))
    }

    #[test]
    fn a_wait_names_its_file_system_and_device() {
        let (device, comm, facts) = told(asleep(READS).waits_for_file(MS, SERVER, LOOP, 0), Cause::StorageBlockQueue);
        assert_eq!((device.as_str(), comm.as_str()), ("loop1 7:1 ext4", "server"));
        assert!(facts.contains("for inode 12 on loop1 7:1 ext4"), "{facts}");
        let (device, ..) = told(asleep(FAULTS).waits_for_file(MS, SERVER, LOOP, CALL_FAULT), Cause::StorageBlockQueue);
        assert_eq!(device, "loop1 7:1 ext4");
    }

    #[test]
    fn a_file_that_is_told_late_is_still_that_of_the_wait_that_lasts() {
        let (device, ..) = told(asleep(READS).waits_for_file(4 * MS, SERVER, LOOP, WRITE), Cause::StorageBlockQueue);
        assert_eq!(device, "loop1 7:1 ext4");
        let (device, ..) =
            told(asleep(READS).waits_for_file(99 * MS + 1, SERVER, LOOP, WRITE), Cause::StorageBlockQueue);
        assert_eq!(device, "", "of what came behind the wake-up it is not known");
    }

    #[test]
    fn a_device_on_others_is_told_with_them() {
        let device =
            |number, name: &str, below: &[u32]| Fact::Device { number, name: name.to_owned(), below: below.to_vec() };
        let (raid, disk, other) = (9 << 20, 8 << 20, 8 << 20 | 16);
        let mut story = asleep(READS);
        story.fact(0, device(LOOP, "dm-0 (home)", &[raid])).fact(0, device(raid, "md0", &[disk, other]));
        story.fact(0, device(disk, "sda", &[])).fact(0, device(other, "sdb", &[]));
        let (device, _, facts) = told(story.waits_for_file(MS, SERVER, LOOP, 0), Cause::StorageBlockQueue);
        assert_eq!(device, "dm-0 (home) 7:1 ext4");
        let layers = "dm-0 (home) 7:1 lies on md0 9:0, md0 9:0 lies on sda 8:0 and sdb 8:16";
        assert!(facts.contains(layers), "{facts}");
    }

    #[test]
    fn a_file_that_may_be_another_is_not_named_and_the_loss_is_told() {
        // in a system call that works on no file, in a fault inside one that works on another, in
        // a fault whose file is not on the stack, before the wait, without the record
        let stories: [(&str, Option<(u64, u32)>); 5] = [
            (READS, Some((MS, FUTEX_CALL))),
            (FAULTS, Some((MS, WRITE))),
            (READS, Some((MS, CALL_FAULT))),
            (READS, Some((MS - 10, WRITE))),
            (READS, None),
        ];
        for (frames, record) in stories {
            let mut story = asleep(frames);
            if let Some((us, call)) = record {
                story.waits_for_file(us, SERVER, LOOP, call);
            }
            let (device, comm, facts) = told(&mut story, Cause::StorageBlockQueue);
            assert_eq!((device.as_str(), comm.as_str()), ("", "server"), "{frames} {record:?}");
            assert!(facts.contains("file system and device are not known"), "{facts}");
        }
    }

    #[test]
    fn without_the_hook_the_stack_still_proves_the_wait() {
        let mut story = asleep(THROTTLED);
        story.hooks(&["sched_switch"]);
        let (device, _, facts) = told(&mut story, Cause::StorageWriteback);
        assert_eq!(device, "");
        assert!(facts.contains("there is no hook for it"), "{facts}");
    }

    #[test]
    fn whoever_made_most_pages_dirty_is_behind_a_wait_at_the_limit() {
        let mut story = asleep(THROTTLED);
        story.waits_for_file(MS, SERVER, LOOP, WRITE).dirties(10, SERVER, LOOP, 16);
        (20..30).for_each(|us| {
            story.dirties(us, BULK, LOOP, 16).dirties(us, HOG, LOOP + 1, 900);
        });
        let (device, comm, facts) = told(&mut story, Cause::StorageWriteback);
        assert_eq!((device.as_str(), comm.as_str()), ("loop1 7:1 ext4", "bulk"));
        assert!(facts.contains("pid 950/951 bulk made 90 % of what was seen to get dirty there"), "{facts}");
    }

    #[test]
    fn too_few_pages_or_too_old_ones_tell_nothing_of_who_made_them_dirty() {
        let mut few = asleep(THROTTLED);
        few.waits_for_file(MS, SERVER, LOOP, WRITE).dirties(20, BULK, LOOP, 900);
        let mut old = asleep(THROTTLED);
        old.waits_for_file(MS, SERVER, LOOP, WRITE);
        (0..9).for_each(|us| {
            old.dirties(us, BULK, LOOP, 16);
        });
        old.tell().evidence.trim(at(31_000 * MS));
        few.tell();
        for (story, until) in [(few, 50 * MS), (old, 31_000 * MS)] {
            assert_eq!(story.evidence.storage().dirtier(LOOP, at(until)), None);
        }
    }

    #[test]
    fn memory_looked_for_on_the_cpu_is_not_the_application_s() {
        let mut story = Story::served(100 * MS);
        story.reclaims(10 * MS, 80 * MS, SERVER, 32).sleeps(101 * MS, SERVER, 1, RECEIVE);
        let judged = story.judge();
        assert_eq!(concluded(&judged), Some(Cause::MemoryReclaim), "{judged:#?}");
        assert_eq!(taken(&judged, Cause::MemoryReclaim), DurNs::from_millis(70));
        let facts = longest(&judged, Cause::MemoryReclaim).evidence.join("; ");
        assert!(facts.contains("looked for memory itself for 70.0 ms, because its cgroup's limit"), "{facts}");
    }

    #[test]
    fn reclaim_leaves_softirqs_and_waits_their_own() {
        let mut story = Story::served(100 * MS);
        story.softirq_total(20 * MS).reclaims(200, 99 * MS, SERVER, 0);
        story.sleeps(60 * MS, SERVER, 2, THROTTLED).wakes(90 * MS, KWORKER, SERVER).runs(90 * MS, SERVER);
        story.sleeps(101 * MS, SERVER, 1, RECEIVE);
        let judged = story.judge();
        assert_eq!(taken(&judged, Cause::StorageWriteback), DurNs::from_millis(30), "{judged:#?}");
        assert!(taken(&judged, Cause::HostCpuGap) > DurNs::from_millis(19), "{judged:#?}");
        assert!(taken(&judged, Cause::AppOnCpu) < DurNs::from_millis(2), "{judged:#?}");
    }

    #[test]
    fn what_is_kept_is_bounded_and_a_wait_that_lasts_is_kept() {
        let mut story = Story::new();
        for us in 0..10_000 {
            story.waits_for_file(us, SERVER, LOOP, 0).dirties(us, BULK, LOOP, 16);
        }
        let storage = &story.tell().evidence.storage();
        assert_eq!((storage.waits[&SERVER.id()].len(), storage.dirtied[&LOOP].len()), (MAX_PER_THREAD, MAX_SAMPLES));
        story.evidence.trim(at(60_000 * MS));
        let storage = &story.evidence.storage();
        assert_eq!((storage.waits[&SERVER.id()].len(), storage.dirtied.len()), (1, 0));
        story.evidence.trim(at(700_000 * MS));
        assert!(story.evidence.storage().waits.is_empty());
    }
}
