//! The threads of a VMM, by the names that QEMU gives them.

use super::super::truth::descendants;
use super::Part;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;

/// The threads of one VMM. Those that QEMU starts for a while, to read a file, are not here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::lab) struct Threads {
    /// The process, and its first thread, which is its main loop.
    pub(in crate::lab) process: u32,
    /// The virtual CPUs.
    pub(in crate::lab) vcpus: Vec<u32>,
    /// The kernel's, which move packets: of the process, or before Linux 6.4 each one of its own.
    pub(in crate::lab) vhost: Vec<u32>,
}

impl Threads {
    /// Those of the guest that a keeper has.
    pub(in crate::lab) fn of(keeper: u32) -> Result<Self> {
        let found = descendants(keeper).into_iter().map(|process| Self {
            process,
            vcpus: vcpus(process),
            vhost: vhost(process),
        });
        found.into_iter().find(|threads| !threads.vcpus.is_empty()).context("the guest's VMM is gone")
    }

    /// Those of a part.
    pub(in crate::lab) fn part(&self, part: Part) -> Vec<u32> {
        match part {
            Part::Vcpus => self.vcpus.clone(),
            Part::MainLoop => vec![self.process],
            Part::Vhost => self.vhost.clone(),
        }
    }

    /// Has a part run on CPU 1, and all other threads on CPU 0.
    pub(super) fn set_apart(&self, part: Part) -> Result<()> {
        let apart = self.part(part);
        ensure!(!apart.is_empty(), "the VMM has no threads for {part:?}");
        for thread in tasks(self.process).into_iter().chain(self.vhost.iter().copied()) {
            let mut cpu = CpuSet::new();
            cpu.set(usize::from(apart.contains(&thread)));
            let set = sched_setaffinity(pid(thread).ok(), &cpu);
            // A thread that reads a file for QEMU may have ended.
            ensure!(set.is_ok() || !apart.contains(&thread), "set the CPU of {part:?}: {set:?}");
        }
        Ok(())
    }

    /// Sends the process a signal.
    pub(in crate::lab) fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(pid(self.process)?, signal).with_context(|| format!("send {signal:?} to the VMM"))
    }

    /// Sum of a field of `schedstat` over a part, ns.
    pub(in crate::lab) fn schedstat(&self, part: Part, field: usize) -> Result<u64> {
        let read = |thread| {
            let path = format!("/proc/{thread}/schedstat");
            let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
            text.split_whitespace().nth(field).and_then(|word| word.parse::<u64>().ok()).context("a count")
        };
        self.part(part).into_iter().map(read).sum()
    }
}

fn tasks(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// QEMU calls them `CPU 0/TCG` and `CPU 0/KVM`.
fn vcpus(process: u32) -> Vec<u32> {
    tasks(process).into_iter().filter(|thread| comm(*thread).starts_with("CPU ")).collect()
}

/// The kernel calls them after the process that they work for.
fn vhost(process: u32) -> Vec<u32> {
    let name = format!("vhost-{process}");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tasks(process).into_iter().chain(processes).filter(|thread| comm(*thread).trim_end() == name).collect()
}

fn comm(thread: u32) -> String {
    fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default()
}

fn pid(thread: u32) -> Result<Pid> {
    i32::try_from(thread).ok().and_then(Pid::from_raw).context("a thread's number")
}
