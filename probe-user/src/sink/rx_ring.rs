//! What a NIC itself lost, as a line of JSON.

use super::Names;
use super::queue::AdviceField;
use crate::rx_ring::{RxRingShare, Squeezed};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct RxRingLine {
    r#type: &'static str,
    ifindex: u32,
    interface: Option<String>,
    target: String,
    lost: u64,
    counter: String,
    after_at: String,
    until_at: String,
    absent: u64,
    perhaps: u64,
    entries: Option<u32>,
    most_entries: Option<u32>,
    rx_queues: Option<u32>,
    most_queues: Option<u32>,
    squeezed: Vec<SqueezedField>,
    advice: Vec<AdviceField>,
}

#[derive(Serialize)]
struct SqueezedField {
    cpu: u32,
    times: u64,
}

impl RxRingLine {
    pub(super) fn new(share: &RxRingShare, names: &Names) -> Self {
        let RxRingShare { interface, loss, absent, nic, squeezed } = share;
        let rings = nic.as_ref().and_then(|nic| nic.rings.as_ref());
        Self {
            r#type: "rx_ring",
            ifindex: interface.ifindex,
            interface: names.interface(*interface).map(|interface| interface.name.clone()),
            target: names.target(*interface),
            lost: loss.packets,
            counter: loss.counter.clone(),
            after_at: names.rfc3339(loss.after),
            until_at: names.rfc3339(loss.until),
            absent: absent.requests,
            perhaps: absent.perhaps,
            entries: rings.map(|rings| rings.rx),
            most_entries: rings.map(|rings| rings.most_rx),
            rx_queues: nic.as_ref().map(|nic| nic.rx_queues),
            most_queues: nic.as_ref().and_then(|nic| nic.most_queues),
            squeezed: squeezed
                .iter()
                .map(|Squeezed { cpu, times }| SqueezedField { cpu: *cpu, times: *times })
                .collect(),
            advice: AdviceField::all(share.advice(&names.device(*interface))),
        }
    }
}
