//! CPUs that were behind with receiving: what that cost a check.

use super::cause::Cause;
use super::evidence::Evidence;
use super::ledger::{Entry, Judged, Offender};
use super::rules::thread::softirq_offender;
use crate::clock::DurNs;
use crate::event::{InterfaceId, TaskId};
use crate::journey::{Journey, Stage};
use probe_wire::NET_RX;

/// What a CPU cost a check that was behind with receiving.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ReceiveWait {
    /// The CPU.
    pub(crate) cpu: u32,
    /// For how long the check waited to be taken in there.
    pub(crate) late: DurNs,
    /// What softirqs for received packets took there of the time of the thread that served it.
    pub(crate) taken: DurNs,
    /// Interfaces at which the CPU took it in.
    pub(crate) interfaces: Vec<InterfaceId>,
    /// Threads that served it there.
    pub(crate) workers: Vec<(TaskId, String)>,
    /// Who kept it from receiving, and for how long.
    pub(crate) kept: Vec<(Offender, DurNs)>,
}

/// What CPUs cost a slow check that were behind with receiving, one for each.
pub(crate) fn receive_waits(evidence: &Evidence, judged: &Judged) -> Vec<ReceiveWait> {
    let journey = &judged.journey;
    let mut waits: Vec<ReceiveWait> = Vec::new();
    for entry in judged.ledger.entries.iter().filter(|_| judged.slow) {
        let Some(cpu) = cpu_of(journey, entry) else { continue };
        let index = waits.iter().position(|wait| wait.cpu == cpu).unwrap_or_else(|| {
            waits.push(on_cpu(evidence, journey, cpu));
            waits.len() - 1
        });
        if let Some(wait) = waits.get_mut(index) {
            wait.add(entry);
        }
    }
    waits
}

/// The CPU of an entry, if it is about one that receives.
fn cpu_of(journey: &Journey, entry: &Entry) -> Option<u32> {
    match entry.cause {
        Cause::NicRxSoftirq => journey.stamps.iter().find(|stamp| stamp.at >= entry.to).map(|stamp| stamp.cpu),
        Cause::HostCpuGap => {
            let device = &entry.offender.as_ref()?.device;
            let mut cpus = journey.stamps.iter().map(|stamp| stamp.cpu);
            cpus.find(|cpu| softirq_offender(Some(NET_RX), *cpu).device == *device)
        }
        _ => None,
    }
}

fn on_cpu(evidence: &Evidence, journey: &Journey, cpu: u32) -> ReceiveWait {
    let here = || journey.stamps.iter().filter(move |stamp| stamp.cpu == cpu);
    let came_in = here().filter(|stamp| matches!(stamp.stage, Stage::PnicRx | Stage::VnicRx | Stage::GuestRx));
    let served = here().filter(|stamp| matches!(stamp.stage, Stage::SockRead | Stage::AppSend) && stamp.task.tid != 0);
    let mut workers: Vec<_> = served.map(|stamp| (stamp.task, evidence.offender(stamp.task, stamp.at).comm)).collect();
    workers.dedup();
    ReceiveWait { cpu, interfaces: came_in.map(|stamp| stamp.interface).collect(), workers, ..ReceiveWait::default() }
}

impl ReceiveWait {
    fn add(&mut self, entry: &Entry) {
        let time = entry.time();
        if entry.cause == Cause::HostCpuGap {
            self.taken = self.taken.plus(time);
            return;
        }
        self.late = self.late.plus(time);
        if let Some(who) = entry.offender.as_ref().filter(|who| who.task.tid != 0) {
            self.kept.push((who.clone(), time));
        }
    }
}
