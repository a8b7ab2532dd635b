//! Who filled a transmit queue, as a line of JSON.

use super::Names;
use crate::attribution::QueueWait;
use crate::event::InterfaceId;
use crate::sender::{Advice, FlowFact, QueueShare, SenderShare, Who};
use serde::Serialize;
use std::net::{Ipv6Addr, SocketAddr};

#[derive(Serialize)]
pub(super) struct QueueLine {
    r#type: &'static str,
    ifindex: u32,
    interface: Option<String>,
    queue: u32,
    started_at: String,
    ended_at: String,
    checks: u64,
    wait_ns: u64,
    packets: u64,
    bytes: u64,
    uncounted_packets: u64,
    sender_count: u64,
    senders: Vec<SenderField>,
    cpus: Vec<CpuField>,
    tx_queues: Option<u32>,
    busy_queues: Vec<u32>,
    idle_queues: Vec<u32>,
    xps_cpus: Option<String>,
    advice: Vec<AdviceField>,
}

#[derive(Serialize)]
struct SenderField {
    kind: &'static str,
    comm: String,
    tgid: u32,
    tid: u32,
    cgroup: String,
    shared: bool,
    came_in: Option<String>,
    packets: u64,
    bytes: u64,
    share: f64,
    share_error: f64,
    wait_ns: u64,
    wait_share: f64,
    flow_count: u64,
    flows_sampled: bool,
    flows: Vec<FlowField>,
}

#[derive(Serialize)]
struct FlowField {
    source: String,
    destination: String,
    protocol: u8,
    packets: u64,
    bytes: u64,
    bytes_error: u64,
}

#[derive(Serialize)]
struct CpuField {
    cpu: u32,
    packets: u64,
}

#[derive(Serialize)]
pub(super) struct AdviceField {
    step: String,
    fact: String,
}

impl AdviceField {
    pub(super) fn all(advice: Vec<Advice>) -> Vec<Self> {
        advice.into_iter().map(|Advice { step, fact }| Self { step, fact }).collect()
    }
}

impl QueueLine {
    pub(super) fn new(share: &QueueShare, names: &Names) -> Self {
        let interface = names.interface(share.interface).map(|interface| interface.name.clone());
        let device = interface.clone().unwrap_or_else(|| format!("ifindex {}", share.interface.ifindex));
        let senders = share.senders.iter().map(|sender| SenderField::new(sender, share, names));
        let cpus = share.cpus.iter().map(|&(cpu, packets)| CpuField { cpu, packets });
        Self {
            r#type: "queue",
            ifindex: share.interface.ifindex,
            interface,
            queue: share.queue,
            started_at: names.rfc3339(share.from),
            ended_at: names.rfc3339(share.to),
            checks: share.checks,
            wait_ns: share.wait.0,
            packets: share.sent.packets,
            bytes: share.sent.bytes,
            uncounted_packets: share.uncounted.packets,
            sender_count: share.sender_count,
            senders: senders.collect(),
            cpus: cpus.collect(),
            tx_queues: share.tx_queues,
            busy_queues: share.busy_queues.clone(),
            idle_queues: share.idle_queues(),
            xps_cpus: share.xps_cpus.clone(),
            advice: AdviceField::all(share.advice(&device)),
        }
    }
}

impl SenderField {
    fn new(sender: &SenderShare, share: &QueueShare, names: &Names) -> Self {
        let SenderShare { who, sent, wait, flows, flow_count, flows_sampled } = sender;
        let plain = |kind| Self {
            kind,
            comm: String::new(),
            tgid: 0,
            tid: 0,
            cgroup: String::new(),
            shared: false,
            came_in: None,
            packets: sent.packets,
            bytes: sent.bytes,
            share: ratio(sent.bytes, share.sent.bytes),
            share_error: ratio(sent.share_error(share.sent), share.sent.bytes),
            wait_ns: wait.0,
            wait_share: ratio(wait.0, share.wait.0),
            flow_count: *flow_count,
            flows_sampled: *flows_sampled,
            flows: flows.iter().map(FlowField::new).collect(),
        };
        match who {
            Who::Task { id, comm, cgroup, shared, .. } => Self {
                comm: comm.clone(),
                tgid: id.tgid,
                tid: id.tid,
                cgroup: cgroup.clone(),
                shared: *shared,
                ..plain("task")
            },
            Who::Interface { ifindex } => {
                let id = InterfaceId { ifindex: *ifindex, ..share.interface };
                Self { came_in: Some(names.target(id)), ..plain("interface") }
            }
            Who::Unknown => plain("unknown"),
        }
    }
}

/// One of those that filled the queue in which a check was lost.
#[derive(Serialize)]
pub(super) struct FillerField {
    kind: &'static str,
    comm: String,
    tgid: u32,
    tid: u32,
    cgroup: String,
    came_in: Option<String>,
    share: f64,
    share_error: f64,
    source: Option<String>,
    destination: Option<String>,
}

impl FillerField {
    /// Who filled a queue, the one with the most bytes first; at most 16.
    pub(super) fn all(wait: &QueueWait, names: &Names) -> Vec<Self> {
        let share = QueueShare::of(wait);
        let fields = |share: &QueueShare| {
            let senders = share.senders.iter().map(|sender| SenderField::new(sender, share, names));
            senders.map(Self::of).collect()
        };
        share.as_ref().map(fields).unwrap_or_default()
    }

    fn of(sender: SenderField) -> Self {
        let SenderField { kind, comm, tgid, tid, cgroup, came_in, share, share_error, flows, .. } = sender;
        let flow = flows.into_iter().next();
        let (source, destination) = flow.map(|flow| (flow.source, flow.destination)).unzip();
        Self { kind, comm, tgid, tid, cgroup, came_in, share, share_error, source, destination }
    }
}

impl FlowField {
    fn new(flow: &FlowFact) -> Self {
        let end = |address: [u8; 16], port| {
            let address = Ipv6Addr::from(address).to_canonical();
            if port == 0 { address.to_string() } else { SocketAddr::new(address, port).to_string() }
        };
        Self {
            source: end(flow.source, flow.source_port),
            destination: end(flow.destination, flow.destination_port),
            protocol: flow.protocol,
            packets: flow.sent.packets,
            bytes: flow.sent.bytes,
            bytes_error: flow.sent.error_bytes,
        }
    }
}

/// Four decimals; 0 of nothing.
fn ratio(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { (part as f64 / of as f64 * 10_000.0).round() / 10_000.0 }
}
