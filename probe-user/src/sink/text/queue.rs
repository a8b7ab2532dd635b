//! Who filled a transmit queue, for people.

use super::check::{INDENT, labelled};
use super::line::{Line, Look};
use crate::attribution::{counted, named_sender};
use crate::event::InterfaceId;
use crate::sender::QueueShare;
use crate::sink::Names;

/// Senders shown of a queue.
const SENDERS: usize = 8;

/// The senders, the largest first, and what would help.
pub(super) fn queue(share: &QueueShare, names: &Names) -> Vec<Line> {
    let device = names.device(share.interface);
    let mut lines = vec![Line::new(), headline(share, &device)];
    let index = |ifindex| names.target(InterfaceId { ifindex, ..share.interface });
    let shown = || share.senders.iter().take(SENDERS).map(|sender| (sender, sender.sent.share_of(share.sent)));
    let width = shown().map(|(_, part)| part.chars().count()).max().unwrap_or(0);
    for (sender, part) in shown() {
        let line = Line::hanging(INDENT)
            .plain(format!("{:>11}  ", sender.wait.to_string()))
            .plain(format!("{part:>width$}"))
            .add(Look::Bold, format!("  {}", named_sender(&sender.who, &index)))
            .dim(format!(
                "  {}, {}, {}{}",
                counted(sender.sent.packets, "packet"),
                counted(sender.sent.bytes, "byte"),
                if sender.flows_sampled { "at least " } else { "" },
                counted(sender.flow_count, "flow")
            ));
        lines.push(line);
    }
    let more = share.sender_count.saturating_sub(SENDERS.min(share.senders.len()) as u64);
    if more > 0 {
        lines.push(labelled("more", &counted(more, "sender"), Look::Dim));
    }
    if share.uncounted.packets > 0 {
        let said = format!("{} found no room to be counted", counted(share.uncounted.packets, "packet"));
        lines.push(labelled("missing", &said, Look::Warn));
    }
    let advice = share.advice(&device).into_iter();
    lines.extend(advice.map(|advice| labelled("relief", &format!("{} ({})", advice.step, advice.fact), Look::Plain)));
    lines
}

fn headline(share: &QueueShare, device: &str) -> Line {
    let of = share.tx_queues.map(|queues| format!(" of {queues}")).unwrap_or_default();
    let mut line = Line::hanging(INDENT).add(Look::Bold, format!("{device} transmit queue {}{of}", share.queue));
    line = line.plain(format!("  {} waited {} in all", counted(share.checks, "check"), share.wait));
    let cpus: Vec<_> = share.cpus.iter().take(4).map(|(cpu, _)| cpu.to_string()).collect();
    line = line.dim(format!("  served by CPU {}", cpus.join(", ")));
    let idle: Vec<_> = share.idle_queues().iter().map(u32::to_string).collect();
    if idle.is_empty() { line } else { line.dim(format!("  idle beside it: {}", idle.join(", "))) }
}
