//! CPUs that were behind with receiving while checks waited, and what would relieve them.
//!
//! What each slow check lost to such a CPU comes in; a [`ReceiveShare`] for each CPU goes out, by
//! [`ReceiveTable`]. Pure, and bounded by CPUs and threads.

use crate::attribution::{Offender, ReceiveWait, counted};
use crate::clock::DurNs;
use crate::event::{Fact, InterfaceId, TaskId};
use crate::host::{HostFact, NicFact};
use crate::sender::Advice;
use std::collections::{BTreeMap, BTreeSet};

/// Most CPUs of a run.
const MOST_CPUS: usize = probe_wire::MAX_CPUS;
/// Most threads, and interfaces, that are kept of a CPU.
const MOST_NAMES: usize = 64;
/// Most interfaces whose settings are known.
const MOST_NICS: usize = 4_096;
/// Threads that are told of a CPU.
const TOLD: usize = 8;
/// What a check loses to every CPU is no more.
const LEAST: DurNs = DurNs(1_000_000);
/// Of what was lost to a CPU, what points to one thread that is to go elsewhere, percent: one that kept
/// the CPU from receiving, or one from which receiving took the CPU.
const BY_ONE: u64 = 10;

/// Sums over the CPUs that were behind with receiving.
#[derive(Debug, Default)]
pub struct ReceiveTable {
    cpus: BTreeMap<u32, Sums>,
    nics: BTreeMap<InterfaceId, Nic>,
}

#[derive(Debug, Default)]
struct Sums {
    checks: u64,
    late: DurNs,
    taken: DurNs,
    interfaces: BTreeSet<InterfaceId>,
    workers: BTreeMap<TaskId, String>,
    kept: BTreeMap<TaskId, Keeper>,
}

/// How packets of an interface come to a CPU, as far as it is set and known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Most queues that its hardware has, if it says.
    pub most_queues: Option<u32>,
    /// For each receive queue, the CPUs that software spreads it over (RPS), a mask.
    pub rps_cpus: Vec<String>,
    /// Interrupts, and the CPUs that serve them, a list such as `0-3`.
    pub interrupts: Vec<(u32, String)>,
}

/// A thread and how long it kept a CPU from receiving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keeper {
    /// Which.
    pub task: TaskId,
    /// Its name.
    pub comm: String,
    /// Its cgroup; empty if unknown.
    pub cgroup: String,
    /// For how long, summed over the checks that waited.
    pub time: DurNs,
}

/// What slow checks lost to a CPU that was behind with receiving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveShare {
    /// The CPU.
    pub cpu: u32,
    /// Slow checks that lost time to it.
    pub checks: u64,
    /// How long they waited to be taken in there, summed.
    pub late: DurNs,
    /// What softirqs for received packets took there of the time of threads that served them, summed.
    pub taken: DurNs,
    /// Interfaces at which it took them in.
    pub interfaces: Vec<InterfaceId>,
    /// What is set of these, where that is known.
    pub nics: Vec<Nic>,
    /// Threads that served them there.
    pub workers: Vec<(TaskId, String)>,
    /// Who kept it from receiving, longest first.
    pub keepers: Vec<Keeper>,
}

impl ReceiveTable {
    /// Takes in what is known of an interface.
    pub(crate) fn learn(&mut self, fact: &Fact) {
        let Fact::Host(host) = fact else { return };
        let HostFact::Nic(nic) = &**host else { return };
        let id = InterfaceId { netns: nic.netns, ifindex: nic.ifindex };
        if self.nics.len() < MOST_NICS || self.nics.contains_key(&id) {
            self.nics.insert(id, Nic::of(nic));
        }
    }

    /// Takes in what a check lost.
    pub(crate) fn push(&mut self, waits: &[ReceiveWait]) {
        for wait in waits.iter().filter(|wait| wait.late.plus(wait.taken) >= LEAST) {
            if self.cpus.len() < MOST_CPUS || self.cpus.contains_key(&wait.cpu) {
                self.cpus.entry(wait.cpu).or_default().add(wait);
            }
        }
    }

    /// What is known of each CPU, in their order.
    #[must_use]
    pub fn shares(&self) -> Vec<ReceiveShare> {
        self.cpus.iter().map(|(cpu, sums)| sums.share(*cpu, &self.nics)).collect()
    }
}

impl Nic {
    fn of(nic: &NicFact) -> Self {
        let serving = |all: &str, now: &str| if now.is_empty() { all.to_owned() } else { now.to_owned() };
        let interrupts = nic.interrupts.iter();
        Self {
            name: nic.name.clone(),
            rx_queues: nic.rx_queues,
            most_queues: nic.most_queues,
            rps_cpus: nic.rps_cpus.clone(),
            interrupts: interrupts.map(|irq| (irq.irq, serving(&irq.cpus, &irq.effective_cpus))).collect(),
        }
    }

    /// What has this CPU alone receive for the interface, and what would have others do so.
    fn advice(&self, cpu: u32) -> Option<Advice> {
        let Self { name, .. } = self;
        let masks = format!("/sys/class/net/{name}/queues/rx-*/rps_cpus");
        let set = self.rps_cpus.iter().filter(|mask| mask.contains(|digit| !matches!(digit, '0' | ',')));
        let set: Vec<&String> = set.collect();
        if !set.is_empty() {
            let alone = set.iter().all(|mask| is_alone(mask, cpu));
            let mask = set.first()?;
            return alone.then(|| Advice {
                step: format!("have more CPUs receive for {name}: a wider mask in {masks}"),
                fact: format!("RPS has CPU {cpu} alone receive for {name}: rps_cpus is {mask}"),
            });
        }
        let served = |(_, cpus): &&(u32, String)| *cpus == cpu.to_string();
        let by_cpu: Vec<String> = self.interrupts.iter().filter(served).map(|(irq, _)| irq.to_string()).collect();
        if !by_cpu.is_empty() {
            let more = self.most_queues.filter(|most| *most > self.rx_queues);
            let more = more.map(|most| format!("ethtool -L {name} combined N, up to {most}; or ")).unwrap_or_default();
            let step = format!(
                "have more CPUs receive for {name}: {more}other CPUs in /proc/irq/*/smp_affinity_list, or a mask in {masks}"
            );
            let fact = format!(
                "CPU {cpu} serves {} of the {} of {name} ({}), and RPS is off",
                by_cpu.len(),
                counted(self.interrupts.len() as u64, "interrupt"),
                by_cpu.join(", ")
            );
            return Some(Advice { step, fact });
        }
        (self.rx_queues == 1 && !self.rps_cpus.is_empty()).then(|| Advice {
            step: format!("have more CPUs receive for {name}: a mask in {masks}"),
            fact: format!("{name} has one receive queue, RPS is off, and CPU {cpu} took the checks in"),
        })
    }
}

/// Whether a mask, such as `00000000,00000002`, has this CPU and no other.
fn is_alone(mask: &str, cpu: u32) -> bool {
    let digits: String = mask.chars().filter(char::is_ascii_hexdigit).collect();
    let digits = digits.trim_start_matches('0');
    let value = 1_u32 << (cpu % 4);
    digits.len() == cpu as usize / 4 + 1
        && digits.chars().next().and_then(|digit| digit.to_digit(16)) == Some(value)
        && digits.chars().skip(1).all(|digit| digit == '0')
}

impl Sums {
    fn add(&mut self, wait: &ReceiveWait) {
        self.checks += 1;
        self.late = self.late.plus(wait.late);
        self.taken = self.taken.plus(wait.taken);
        for interface in &wait.interfaces {
            if self.interfaces.len() < MOST_NAMES {
                self.interfaces.insert(*interface);
            }
        }
        for (task, comm) in &wait.workers {
            if self.workers.len() < MOST_NAMES {
                self.workers.insert(*task, comm.clone());
            }
        }
        for (who, time) in &wait.kept {
            if self.kept.len() < MOST_NAMES || self.kept.contains_key(&who.task) {
                self.kept.entry(who.task).or_insert_with(|| Keeper::of(who)).add(who, *time);
            }
        }
    }

    fn share(&self, cpu: u32, nics: &BTreeMap<InterfaceId, Nic>) -> ReceiveShare {
        let mut keepers: Vec<_> = self.kept.values().cloned().collect();
        keepers.sort_by_key(|keeper| std::cmp::Reverse(keeper.time));
        keepers.truncate(TOLD);
        ReceiveShare {
            cpu,
            checks: self.checks,
            late: self.late,
            taken: self.taken,
            interfaces: self.interfaces.iter().copied().collect(),
            nics: self.interfaces.iter().filter_map(|id| nics.get(id)).cloned().collect(),
            workers: self.workers.iter().take(TOLD).map(|(task, comm)| (*task, comm.clone())).collect(),
            keepers,
        }
    }
}

impl Keeper {
    fn of(who: &Offender) -> Self {
        Self { task: who.task, comm: String::new(), cgroup: String::new(), time: DurNs::ZERO }
    }

    /// Its cgroup may not have been known in time before.
    fn add(&mut self, who: &Offender, time: DurNs) {
        self.comm.clone_from(&who.comm);
        if !who.cgroup.is_empty() {
            self.cgroup.clone_from(&who.cgroup);
        }
        self.time = self.time.plus(time);
    }
}

impl ReceiveShare {
    /// In a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { cpu, checks, late, taken, .. } = self;
        let whose = if *taken > DurNs::ZERO {
            format!(", and softirqs took {taken} there of the threads that served them")
        } else {
            String::new()
        };
        format!("{} waited {late} for CPU {cpu} to receive them{whose}", counted(*checks, "check"))
    }

    /// What would relieve the CPU, as far as what was measured points to it.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        let lost = self.late.plus(self.taken);
        let is_much = |time: DurNs| time > DurNs::ZERO && time.0.saturating_mul(100) >= lost.0.saturating_mul(BY_ONE);
        let kept = self.keepers.first().filter(|keeper| is_much(keeper.time)).map(|keeper| self.keep_off(keeper));
        let moved = self.workers.first().filter(|_| is_much(self.taken)).map(|worker| self.move_away(worker));
        let nics = self.nics.iter().filter_map(|nic| nic.advice(self.cpu));
        kept.into_iter().chain(moved).chain(nics).collect()
    }

    fn keep_off(&self, keeper: &Keeper) -> Advice {
        let (Keeper { task, comm, cgroup, time }, cpu) = (keeper, self.cpu);
        let group = if cgroup.is_empty() { String::new() } else { format!(", cgroup {cgroup}") };
        let (tgid, late) = (task.tgid, self.late);
        Advice {
            step: format!("keep {comm} off CPU {cpu}, which receives (taskset, cpuset), or receive elsewhere"),
            fact: format!(
                "{comm} (pid {tgid}{group}) kept CPU {cpu} from receiving for {time} of the {late} that checks waited \
                 there"
            ),
        }
    }

    fn move_away(&self, (task, comm): &(TaskId, String)) -> Advice {
        let (taken, cpu, workers) = (self.taken, self.cpu, self.workers.len());
        let others = if workers > 1 { format!(" and {} more", workers - 1) } else { String::new() };
        Advice {
            step: format!("give {comm} another CPU than {cpu}, or receive elsewhere"),
            fact: format!("{comm} (pid {}){others} ran on CPU {cpu}, of whose time receiving took {taken}", task.tgid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DurNs, InterfaceId, Nic, Offender, ReceiveTable, ReceiveWait, TaskId, is_alone};

    const ETH: InterfaceId = InterfaceId { netns: 1, ifindex: 2 };

    fn nic(rps: &[&str], interrupts: &[(u32, &str)]) -> Nic {
        Nic {
            name: "eth0".into(),
            rx_queues: 1,
            most_queues: Some(4),
            rps_cpus: rps.iter().map(|mask| (*mask).to_owned()).collect(),
            interrupts: interrupts.iter().map(|(irq, cpus)| (*irq, (*cpus).to_owned())).collect(),
        }
    }

    fn wait(late_ms: u64, taken_ms: u64) -> ReceiveWait {
        ReceiveWait {
            cpu: 1,
            late: DurNs::from_millis(late_ms),
            taken: DurNs::from_millis(taken_ms),
            interfaces: vec![ETH],
            workers: vec![(TaskId { tgid: 8, tid: 9 }, "worker".into())],
            kept: Vec::new(),
        }
    }

    fn steps(table: &ReceiveTable) -> Vec<String> {
        table.shares().iter().flat_map(super::ReceiveShare::advice).map(|advice| advice.step).collect()
    }

    #[test]
    fn a_mask_has_one_cpu_or_more() {
        assert!(is_alone("2", 1) && is_alone("00000000,00000010", 4) && is_alone("1,00000000", 32));
        assert!(!is_alone("3", 1) && !is_alone("0", 1) && !is_alone("2", 0) && !is_alone("1,00000001", 32));
    }

    #[test]
    fn advice_rests_on_what_was_measured() {
        let mut table = ReceiveTable::default();
        table.push(&[wait(50, 0)]);
        assert_eq!(steps(&table), [""; 0], "nothing is known of the interface");
        table.nics.insert(ETH, nic(&["3"], &[]));
        assert_eq!(steps(&table), [""; 0], "two CPUs receive already");
        table.nics.insert(ETH, nic(&["2"], &[]));
        assert!(steps(&table).first().is_some_and(|step| step.contains("a wider mask")));
        table.nics.insert(ETH, nic(&["0"], &[(24, "1"), (25, "0")]));
        assert!(steps(&table).first().is_some_and(|step| step.contains("ethtool -L eth0 combined N, up to 4")));
    }

    #[test]
    fn a_worker_and_a_thread_that_holds_softirqs_off_are_to_go_elsewhere() {
        let mut table = ReceiveTable::default();
        table.push(&[wait(10, 40)]);
        assert_eq!(steps(&table), ["give worker another CPU than 1, or receive elsewhere"]);
        let task = TaskId { tgid: 7, tid: 7 };
        let inventory = |cgroup: &str| Offender {
            task,
            comm: "inventory".to_owned(),
            cgroup: cgroup.to_owned(),
            ..Offender::default()
        };
        let kept = vec![(inventory("/batch"), DurNs::from_millis(300)), (inventory(""), DurNs::from_millis(100))];
        table.push(&[ReceiveWait { kept, ..wait(400, 0) }]);
        let share = table.shares().remove(0);
        assert_eq!((share.checks, share.late, share.taken), (2, DurNs::from_millis(410), DurNs::from_millis(40)));
        assert_eq!(steps(&table), ["keep inventory off CPU 1, which receives (taskset, cpuset), or receive elsewhere"]);
        assert_eq!((share.keepers[0].cgroup.as_str(), share.keepers[0].time), ("/batch", DurNs::from_millis(400)));
        let fact = "inventory (pid 7, cgroup /batch) kept CPU 1 from receiving for 400 ms of the 410 ms that checks waited there";
        assert_eq!(share.advice()[0].fact, fact);
    }
}
