//! Who filled transmit queues in which checks waited, which CPUs were behind with receiving them, and which
//! NICs lost packets themselves.

use super::Report;
use super::words::{counted, sentence, shown};
use crate::attribution::{named_sender, percent};
use crate::event::InterfaceId;
use crate::rx_ring::RxRingShare;
use crate::sender::{Advice, QueueShare, SenderShare, Who};
use maud::{Markup, html};

/// Most queues shown.
const SHOWN: usize = 16;

/// Nothing, where no check waited in a queue whose senders are known.
pub(super) fn section(report: &Report) -> Markup {
    html! {
        @if !report.queues.is_empty() {
            h3 { "Transmit queues" }
            p class="note" {
                "Who sent through the queues in which slow checks waited, or that dropped checks, counted where packets "
                "are handed to the driver. A sender's share of the wait is its share of the bytes around each wait."
            }
            @for share in report.queues.iter().take(SHOWN) { (queue(report, share)) }
        }
        @if !report.receiving.is_empty() {
            h3 { "CPUs that receive" }
            @for share in report.receiving.iter().take(SHOWN) {
                p { (sentence(&share.sentence())) "." }
                (advised(share.advice()))
            }
        }
        @if !report.rx_rings.is_empty() {
            h3 { "NICs that lost packets themselves" }
            p class="note" { "Before the kernel had them, so nothing tells whose they were." }
            @for share in report.rx_rings.iter().take(SHOWN) { (rx_ring(share, &report.names.device(share.interface))) }
        }
    }
}

fn rx_ring(share: &RxRingShare, device: &str) -> Markup {
    html! {
        p { (sentence(&share.sentence(device))) "." }
        (advised(share.advice(device)))
    }
}

fn advised(advice: Vec<Advice>) -> Markup {
    html! {
        @for advice in advice {
            p { strong { (sentence(&super::words::capital(&advice.step))) } ": " (sentence(&advice.fact)) "." }
        }
    }
}

fn queue(report: &Report, share: &QueueShare) -> Markup {
    let device = report.names.target(share.interface);
    let name = report.names.interface(share.interface).map_or(device.as_str(), |interface| interface.name.as_str());
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Table of senders" {
            table {
                caption { (sentence(&title(share, name))) }
                thead { tr { th scope="col" { "Sender" } th scope="col" class="number" { "Share of the wait" }
                    th scope="col" class="number" { "Of the bytes" } th scope="col" class="number" { "Packets" }
                        th scope="col" class="number" { "Flows" } } }
                tbody { @for sender in &share.senders { (row(report, share, sender)) } }
            }
        }
        @if share.uncounted.packets > 0 {
            p class="warn" { (counted(share.uncounted.packets, "packet")) " of all queues found no room to be counted." }
        }
        (advised(share.advice(name)))
    }
}

fn title(share: &QueueShare, name: &str) -> String {
    let of = share.tx_queues.map(|queues| format!(" of {queues}")).unwrap_or_default();
    let list = |numbers: Vec<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let cpus = list(share.cpus.iter().map(|(cpu, _)| *cpu).collect());
    let idle = match share.idle_queues() {
        idle if idle.is_empty() => String::new(),
        idle => format!("; idle beside it: {}", list(idle)),
    };
    let checks = counted(share.checks, "check");
    format!("{name}, queue {}{of}: {checks} waited {} in all; served by CPU {cpus}{idle}", share.queue, share.wait)
}

fn row(report: &Report, share: &QueueShare, sender: &SenderShare) -> Markup {
    let index = |ifindex| report.names.target(InterfaceId { ifindex, ..share.interface });
    let cgroup = match &sender.who {
        Who::Task { cgroup, .. } if !cgroup.is_empty() => format!(", cgroup {}", shown(cgroup)),
        _ => String::new(),
    };
    html! {
        tr {
            th scope="row" { (shown(&named_sender(&sender.who, &index))) (cgroup) }
            td class="number" data-head="Share of the wait" { (percent(sender.wait.0, share.wait.0)) " %" }
            td class="number" data-head="Of the bytes" { (sender.sent.share_of(share.sent)) }
            td class="number" data-head="Packets" { (sender.sent.packets) }
            td class="number" data-head="Flows" { @if sender.flows_sampled { "≥ " } (sender.flow_count) }
        }
    }
}
