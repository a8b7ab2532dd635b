//! Stalls of storage: waits of many threads for one device at one time, told as one event.
//!
//! Judged checks come in, [`Stall`]s go out. Only slow checks and waits of some length tell of
//! one: every sync waits a little.

use super::cause::Cause;
use super::ledger::{Entry, Judged, Offender};
use crate::clock::{DurNs, MonoNs};
use crate::event::{InterfaceId, TaskId};
use crate::journey::{JourneyId, Outcome};
use std::collections::BTreeSet;

/// A shorter wait is no stall.
const LEAST: DurNs = DurNs(10_000_000);
/// Waits that are no further apart are of one stall: a writer at the dirty limit sleeps at most
/// 200 ms at a time (`MAX_PAUSE`), and runs in between.
const APART: DurNs = DurNs(200_000_000);
/// Most stalls kept; beyond it the oldest goes.
const MAX_STALLS: usize = 64;
/// Most victims, and offenders, kept of one.
const MAX_THREADS: usize = 64;
/// Most VMs, and most checks by their identity.
const MAX_VMS: usize = 64;
const MAX_HELD: usize = 64;

/// A thread that a wait for storage held up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    /// Its name.
    pub comm: String,
    /// Which.
    pub task: TaskId,
    /// Of a thread of a VM: the tap that this has, the first of several.
    pub vm: Option<InterfaceId>,
}

/// A VM that a stall held up, through a thread of its VMM or backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalledVm {
    /// Its tap, the first of several.
    pub tap: InterfaceId,
    /// Checks that this made slow and that have ended.
    pub checks: u64,
}

/// A stretch of time in which a device held threads up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// The device and the type of its file system.
    pub device: String,
    /// Start of the first wait.
    pub from: MonoNs,
    /// End of the last.
    pub to: MonoNs,
    /// Causes of the waits, in the order in which they were met.
    pub causes: Vec<Cause>,
    /// Checks that it made slow and that have ended.
    pub checks: u64,
    /// The checks that it made slow, those that are open too; at most 64.
    pub held: Vec<JourneyId>,
    /// The VMs that it held up, those of other targets too.
    pub vms: Vec<StalledVm>,
    /// Who is behind most of the waits.
    pub offender: Option<Offender>,
    /// Who waited: for the device, or for a thread that did.
    pub victims: Vec<Victim>,
}

impl Stall {
    /// Whether it is more than one thread's wait: several waited, or a VM did.
    #[must_use]
    pub const fn is_of_several(&self) -> bool {
        self.victims.len() > 1 || !self.vms.is_empty()
    }
}

/// The stalls of one target.
#[derive(Debug, Default)]
pub(crate) struct Stalls(Vec<Growing>);

#[derive(Debug)]
struct Growing {
    stall: Stall,
    offenders: Vec<(Offender, DurNs)>,
}

impl Stalls {
    /// Takes in a judged check.
    pub(crate) fn push(&mut self, judged: &Judged) {
        if !judged.slow {
            return;
        }
        let ended = judged.journey.outcome != Outcome::Open;
        let mut touched: Vec<(&str, MonoNs, MonoNs, DurNs)> = Vec::new();
        for entry in judged.ledger.entries.iter().filter(|entry| !entry.stalled.is_empty()) {
            let Some(Offender { device, .. }) = &entry.offender else { continue };
            match touched.iter_mut().find(|(known, ..)| known == device) {
                Some((_, _, to, sum)) => (*to, *sum) = (entry.to, sum.plus(entry.time())),
                None => touched.push((device, entry.from, entry.to, entry.time())),
            }
        }
        for (device, from, to, _) in touched.into_iter().filter(|(.., sum)| *sum >= LEAST) {
            let mut growing = self.take(device, from, to);
            growing.stall.checks += u64::from(ended);
            growing.hold(judged.journey.id);
            growing.learn(judged);
            growing.count_vms(judged, ended);
            self.keep(growing);
        }
    }

    /// Takes the stall of this device that is not further apart out, or a new one.
    fn take(&mut self, device: &str, from: MonoNs, to: MonoNs) -> Growing {
        let near = |stall: &Stall| from.before(APART) <= stall.to && stall.from <= to.after(APART);
        let known = self.0.iter().rposition(|known| known.stall.device == device && near(&known.stall));
        let Some(index) = known else { return Growing::new(device, from, to) };
        let mut growing = self.0.remove(index);
        growing.stall.from = growing.stall.from.min(from);
        growing.stall.to = growing.stall.to.max(to);
        growing
    }

    fn keep(&mut self, growing: Growing) {
        if self.0.len() >= MAX_STALLS {
            self.0.remove(0);
        }
        self.0.push(growing);
    }

    /// Adds to a stall of another target the VMs that the same one held up here.
    pub(crate) fn add_vms(&self, to: &mut Stall) {
        let same = self.0.iter().map(|own| &own.stall).filter(|own| own.device == to.device);
        for own in same.filter(|own| own.from <= to.to && to.from <= own.to) {
            own.vms.iter().for_each(|vm| add_vm(&mut to.vms, vm.tap, vm.checks));
        }
    }

    /// All of them, in the order of their begin.
    pub(crate) fn told(&self) -> Vec<Stall> {
        let mut told: Vec<Stall> = self.0.iter().map(Growing::told).collect();
        told.sort_by_key(|stall| stall.from);
        told
    }
}

impl Growing {
    fn new(device: &str, from: MonoNs, to: MonoNs) -> Self {
        let (device, causes, victims) = (device.to_owned(), Vec::new(), Vec::new());
        let (held, vms) = (Vec::new(), Vec::new());
        let stall = Stall { device, from, to, causes, checks: 0, held, vms, offender: None, victims };
        Self { stall, offenders: Vec::new() }
    }

    /// An open check is told again and again.
    fn hold(&mut self, check: JourneyId) {
        let held = &mut self.stall.held;
        if held.len() < MAX_HELD && !held.contains(&check) {
            held.push(check);
        }
    }

    /// Each VM counts a check once.
    fn count_vms(&mut self, judged: &Judged, ended: bool) {
        let Self { stall: Stall { device, vms, .. }, .. } = self;
        let of_device = |entry: &&Entry| entry.offender.as_ref().is_some_and(|offender| offender.device == *device);
        let stalled = judged.ledger.entries.iter().filter(of_device).flat_map(|entry| &entry.stalled);
        let taps: BTreeSet<_> = stalled.filter_map(|victim| victim.vm).collect();
        taps.into_iter().for_each(|tap| add_vm(vms, tap, u64::from(ended)));
    }

    fn learn(&mut self, judged: &Judged) {
        for entry in &judged.ledger.entries {
            let Some(offender) = entry.offender.as_ref().filter(|offender| offender.device == self.stall.device) else {
                continue;
            };
            if entry.stalled.is_empty() {
                continue;
            }
            if !self.stall.causes.contains(&entry.cause) {
                self.stall.causes.push(entry.cause);
            }
            for victim in &entry.stalled {
                let new = self.stall.victims.iter().all(|known| known.task != victim.task);
                if new && self.stall.victims.len() < MAX_THREADS {
                    self.stall.victims.push(victim.clone());
                }
            }
            self.blame(offender, entry.time());
        }
    }

    fn blame(&mut self, offender: &Offender, time: DurNs) {
        if let Some((_, sum)) = self.offenders.iter_mut().find(|(known, _)| known == offender) {
            *sum = sum.plus(time);
        } else if self.offenders.len() < MAX_THREADS {
            self.offenders.push((offender.clone(), time));
        }
    }

    fn told(&self) -> Stall {
        let most = self.offenders.iter().max_by_key(|(_, time)| *time);
        Stall { offender: most.map(|(offender, _)| offender.clone()), ..self.stall.clone() }
    }
}

fn add_vm(vms: &mut Vec<StalledVm>, tap: InterfaceId, checks: u64) {
    if let Some(known) = vms.iter_mut().find(|known| known.tap == tap) {
        known.checks += checks;
    } else if vms.len() < MAX_VMS {
        vms.push(StalledVm { tap, checks });
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_STALLS, StalledVm, Stalls, Victim};
    use crate::attribution::story::{Actor, MS, RECEIVE, SERVER, Story, WORKER};
    use crate::attribution::{Cause, Judged};
    use crate::event::{Fact, InterfaceId};
    use crate::journey::JourneyId;

    const DISK: u32 = 8 << 20 | 1;
    const BULK: Actor = Actor(950, 951, "bulk");
    const THROTTLED: &str = "io_schedule_timeout balance_dirty_pages vfs_write";

    /// A check that comes at 100 µs + `us`, while the worker that has the lock is held back from
    /// 1 ms to 90 ms.
    fn behind_worker(id: u64) -> Judged {
        let mut story = Story::served(92 * MS);
        story.journey.id = JourneyId(id);
        story
            .hooks(&["softirq_entry", "softirq_exit", "sched_switch", "file_wait"])
            .fact(0, Fact::Device { number: DISK, name: "sda1".to_owned(), below: Vec::new() });
        story.sleeps(500, SERVER, 1, "futex_do_wait futex_wait").wakes(91 * MS, WORKER, SERVER);
        story.runs(91 * MS + 5, SERVER).sleeps(93 * MS, SERVER, 1, RECEIVE);
        story.runs(300, WORKER).sleeps(MS, WORKER, 2, THROTTLED).waits_for_file(MS, WORKER, DISK, 1);
        story.wakes(90 * MS, BULK, WORKER).runs(90 * MS + 5, WORKER);
        (10..20).for_each(|us| {
            story.dirties(us, BULK, DISK, 64);
        });
        story.judge()
    }

    #[test]
    fn checks_behind_one_device_are_one_stall_with_all_who_waited() {
        let mut stalls = Stalls::default();
        (1..=3).for_each(|id| stalls.push(&behind_worker(id)));
        let told = stalls.told();
        let [stall] = told.as_slice() else { panic!("{told:#?}") };
        assert_eq!((stall.device.as_str(), stall.checks), ("sda1 8:1 ext4", 3));
        assert_eq!(stall.causes, [Cause::StorageWriteback]);
        assert_eq!(stall.offender.as_ref().unwrap().comm, "bulk");
        let victim = |actor: Actor| Victim { comm: actor.2.to_owned(), task: actor.id(), vm: None };
        assert_eq!(stall.victims, [victim(SERVER), victim(WORKER)]);
    }

    #[test]
    fn a_device_that_holds_up_the_vms_of_two_targets_is_told_with_both() {
        let (one, two) = (InterfaceId { netns: 1, ifindex: 7 }, InterfaceId { netns: 1, ifindex: 8 });
        let held_up = |vm: InterfaceId, checks: u64, late: u64| {
            let mut stalls = Stalls::default();
            for id in 0..checks {
                let mut judged = behind_worker(id);
                for entry in &mut judged.ledger.entries {
                    entry.from = entry.from.after(super::DurNs(late));
                    entry.to = entry.to.after(super::DurNs(late));
                    entry.stalled.iter_mut().for_each(|victim| victim.vm = Some(vm));
                }
                stalls.push(&judged);
            }
            stalls
        };
        let told = |others: &[Stalls]| {
            let mut told = held_up(one, 2, 0).told();
            others.iter().for_each(|other| other.add_vms(&mut told[0]));
            (told[0].checks, told.remove(0).vms)
        };
        let vm = |tap: InterfaceId, checks: u64| StalledVm { tap, checks };
        assert_eq!(told(&[held_up(two, 3, 40_000_000)]), (2, vec![vm(one, 2), vm(two, 3)]));
        assert_eq!(told(&[held_up(two, 3, 400_000_000)]), (2, vec![vm(one, 2)]), "that was later");
    }

    #[test]
    fn short_waits_and_those_of_fast_checks_are_none() {
        let mut judged = behind_worker(1);
        judged.slow = false;
        let mut stalls = Stalls::default();
        stalls.push(&judged);
        let mut judged = behind_worker(2);
        for entry in &mut judged.ledger.entries {
            entry.to = entry.to.min(entry.from.after(super::DurNs(1_000_000)));
        }
        stalls.push(&judged);
        assert_eq!(stalls.told(), []);
    }

    #[test]
    fn other_devices_and_later_times_are_other_stalls_and_their_number_is_bounded() {
        let mut stalls = Stalls::default();
        for second in 0..100 {
            let mut judged = behind_worker(second);
            for entry in &mut judged.ledger.entries {
                entry.from = entry.from.after(super::DurNs(second * 1_000_000_000));
                entry.to = entry.to.after(super::DurNs(second * 1_000_000_000));
            }
            stalls.push(&judged);
        }
        assert_eq!(stalls.told().len(), MAX_STALLS);
        assert!(stalls.told().iter().all(|stall| stall.checks == 1));
    }
}
