//! A CPU that was behind with receiving, as a line of JSON.

use super::Names;
use super::queue::AdviceField;
use crate::receive::{Keeper, ReceiveShare};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct ReceiveLine {
    r#type: &'static str,
    cpu: u32,
    checks: u64,
    late_ns: u64,
    taken_ns: u64,
    interfaces: Vec<String>,
    workers: Vec<WorkerField>,
    keepers: Vec<KeeperField>,
    advice: Vec<AdviceField>,
}

#[derive(Serialize)]
struct WorkerField {
    comm: String,
    tgid: u32,
    tid: u32,
}

#[derive(Serialize)]
struct KeeperField {
    comm: String,
    tgid: u32,
    tid: u32,
    cgroup: String,
    ns: u64,
}

impl ReceiveLine {
    pub(super) fn new(share: &ReceiveShare, names: &Names) -> Self {
        let ReceiveShare { cpu, checks, late, taken, interfaces, workers, keepers, .. } = share;
        let workers = workers.iter().map(|(task, comm)| (task, comm.clone()));
        Self {
            r#type: "receive",
            cpu: *cpu,
            checks: *checks,
            late_ns: late.0,
            taken_ns: taken.0,
            interfaces: interfaces.iter().map(|id| names.target(*id)).collect(),
            workers: workers.map(|(task, comm)| WorkerField { comm, tgid: task.tgid, tid: task.tid }).collect(),
            keepers: keepers.iter().map(KeeperField::new).collect(),
            advice: AdviceField::all(share.advice()),
        }
    }
}

impl KeeperField {
    fn new(keeper: &Keeper) -> Self {
        let Keeper { task, comm, cgroup, time } = keeper;
        Self { comm: comm.clone(), tgid: task.tgid, tid: task.tid, cgroup: cgroup.clone(), ns: time.0 }
    }
}
