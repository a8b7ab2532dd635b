//! What would relieve a queue, and the measured fact that says so.

use super::{QueueShare, Who};

/// A change, and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// What to do.
    pub step: String,
    /// What was measured.
    pub fact: String,
}

/// What would help; nothing where nothing measured points to it.
pub(super) fn advice(share: &QueueShare, device: &str) -> Vec<Advice> {
    let one = largest(share, device).or_else(|| single_queue(share, device)).or_else(|| idle_queues(share, device));
    one.into_iter().collect()
}

/// Threads that were seen to send.
fn workers(share: &QueueShare) -> usize {
    share.senders.iter().filter(|sender| matches!(sender.who, Who::Task { .. })).count()
}

fn single_queue(share: &QueueShare, device: &str) -> Option<Advice> {
    let shared_by = workers(share);
    if share.tx_queues != Some(1) || shared_by < 2 {
        return None;
    }
    let most = share.most_queues.filter(|most| *most > 1);
    let step = match most {
        Some(most) => format!("give {device} more queues: ethtool -L {device} combined N, up to {most}"),
        None => format!("give {device} more transmit queues, or let fewer workers send through it"),
    };
    Some(Advice { step, fact: format!("{shared_by} senders share the one transmit queue of {device}") })
}

fn idle_queues(share: &QueueShare, device: &str) -> Option<Advice> {
    let (idle, shared_by) = (share.idle_queues(), workers(share));
    if idle.is_empty() || shared_by < 2 {
        return None;
    }
    let list = idle.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let queues = format!("/sys/class/net/{device}/queues");
    let step = format!("spread the senders over the queues of {device}: one CPU mask each in {queues}/tx-*/xps_cpus");
    let mask = share.xps_cpus.as_ref().map(|mask| format!("; xps_cpus of this queue is {mask}")).unwrap_or_default();
    let fact = format!("{shared_by} senders share queue {}, while nothing was sent on {list}{mask}", share.queue);
    Some(Advice { step, fact })
}

fn largest(share: &QueueShare, device: &str) -> Option<Advice> {
    let sender = share.senders.first()?;
    let part = sender.sent.share_of(share.sent);
    let Who::Task { id, comm, .. } = &sender.who else { return None };
    sender.sent.is_most_of(share.sent).then(|| Advice {
        step: format!("pace {comm}, lower its SO_SNDBUF, or give it a queue of its own"),
        fact: format!("{comm} (pid {}) sent {part} of the bytes on queue {} of {device}", id.tgid, share.queue),
    })
}
