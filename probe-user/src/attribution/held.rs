//! Data that a TCP socket holds back after a send call, and why.

use crate::clock::MonoNs;
use crate::event::{Event, TaskId};
use probe_wire::SendHeldBody;
use std::collections::VecDeque;

/// Most of them kept; the oldest go.
const MAX_HELD: usize = 16_384;
/// Most of them looked through for one answer.
const MAX_LOOKED_AT: usize = 1_024;

/// What a send call left.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldSend {
    pub(super) at: MonoNs,
    pub(super) task: TaskId,
    pub(super) body: SendHeldBody,
}

/// Why data is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldBy {
    /// The peer has no room for the next segment.
    Window,
    /// Too much is under way by the congestion control.
    Congestion,
    /// Less than a segment waits for an acknowledgement of what is under way.
    Nagle,
    /// None of these.
    Other,
}

impl HeldSend {
    /// The first limit that is reached, in the order in which the kernel looks at them.
    pub(super) fn by(&self) -> HeldBy {
        let SendHeldBody { unsent, in_flight, window, packets_out, congestion_window, segment, .. } = self.body;
        if packets_out > 0 && packets_out >= congestion_window {
            HeldBy::Congestion
        } else if window.saturating_sub(in_flight) < unsent.min(segment) {
            HeldBy::Window
        } else if packets_out > 0 && unsent < segment {
            HeldBy::Nagle
        } else {
            HeldBy::Other
        }
    }
}

/// The latest of them, in the order of their time.
#[derive(Debug, Default)]
pub(super) struct HeldSends {
    sends: VecDeque<HeldSend>,
}

impl HeldSends {
    pub(super) fn add(&mut self, event: &Event, body: &SendHeldBody) {
        if self.sends.len() >= MAX_HELD {
            self.sends.pop_front();
        }
        self.sends.push_back(HeldSend { at: event.at, task: event.task, body: *body });
    }

    /// Forgets what happened before `before`.
    pub(super) fn trim(&mut self, before: MonoNs) {
        let old = self.sends.partition_point(|send| send.at < before);
        self.sends.drain(..old);
    }

    /// Whether something was held back in the same socket before, from `from` on.
    pub(super) fn has_earlier(&self, held: &HeldSend, from: MonoNs) -> bool {
        let end = self.sends.partition_point(|send| send.at < held.at);
        let recent = self.sends.range(..end).rev().take(MAX_LOOKED_AT);
        recent.take_while(|send| send.at >= from).any(|send| send.body.socket == held.body.socket)
    }

    /// The last of a thread between `from` and `to`.
    pub(super) fn last(&self, task: TaskId, from: MonoNs, to: MonoNs) -> Option<&HeldSend> {
        let end = self.sends.partition_point(|send| send.at <= to);
        let recent = self.sends.range(..end).rev().take(MAX_LOOKED_AT);
        recent.take_while(|send| send.at >= from).find(|send| send.task == task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_one_counts_for_its_own_socket_and_not_forever() {
        let held = |at, socket| {
            let body = SendHeldBody {
                socket,
                unsent: 32,
                in_flight: 0,
                window: 0,
                packets_out: 0,
                congestion_window: 10,
                segment: 1_448,
            };
            HeldSend { at: MonoNs(at), task: TaskId::default(), body }
        };
        let sends = HeldSends { sends: [held(10, 1), held(20, 2), held(30, 1)].into() };
        assert!(sends.has_earlier(&held(30, 1), MonoNs(10)));
        assert!(!sends.has_earlier(&held(30, 1), MonoNs(11)), "too old");
        assert!(!sends.has_earlier(&held(10, 1), MonoNs(0)), "not itself");
        assert!(!sends.has_earlier(&held(20, 2), MonoNs(0)), "of another socket");
    }

    #[test]
    fn the_limit_that_is_reached_holds_the_data() {
        let by = |unsent, in_flight, window, packets_out, congestion_window| {
            let body =
                SendHeldBody { socket: 1, unsent, in_flight, window, packets_out, congestion_window, segment: 1_448 };
            HeldSend { at: MonoNs(0), task: TaskId::default(), body }.by()
        };
        assert_eq!(by(32, 4, 60_000, 1, 10), HeldBy::Nagle);
        assert_eq!(by(32, 0, 0, 0, 10), HeldBy::Window);
        assert_eq!(by(20_000, 64_000, 65_000, 5, 10), HeldBy::Window);
        assert_eq!(by(20_000, 14_480, 65_000, 10, 10), HeldBy::Congestion);
        assert_eq!(by(20_000, 14_480, 65_000, 9, 10), HeldBy::Other);
        assert_eq!(by(32, 0, 60_000, 0, 10), HeldBy::Other);
    }
}
