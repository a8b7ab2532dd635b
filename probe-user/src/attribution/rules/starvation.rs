//! An event loop that receives and receives, and never sends: a part of `app.on_cpu`.

use super::counted;
use super::thread::{Role, Seat};
use crate::attribution::evidence::Evidence;
use crate::attribution::traffic::{Backlog, User};
use crate::clock::{DurNs, MonoNs};

/// What is then true of `app.on_cpu`.
pub(super) const MEANING: &str = "the thread receives again and again and does not send, though replies are due";
/// A loop that gathers its replies may well send nothing for less.
pub(in crate::attribution) const LONG_SILENCE: DurNs = DurNs::from_millis(20);
/// Nor for so many times as long as it usually holds a check.
const LONGER: u64 = 4;
/// So many datagrams are not what one check is made of.
const MANY: u64 = 16;

/// What the thread that owes the reply to a datagram did, if it went on receiving all along and sent
/// nothing for at least half of the time, and for longer than it gathers replies. A thread that leaves the sending to another does not owe it.
pub(super) fn starved(evidence: &Evidence, seat: &Seat, on_cpu: DurNs, from: MonoNs, to: MonoNs) -> Option<String> {
    let whole = to.since(from);
    if seat.role != Role::Server || seat.own.stream || whole < LONG_SILENCE || on_cpu < whole.part(2) {
        return None;
    }
    let traffic = evidence.traffic();
    let did = traffic.over(User::Thread(seat.task), from, to)?;
    let silent = did.sends.longest_pause(from, to);
    let gathers = seat.own.usual_hold.map_or(LONG_SILENCE, |usual| DurNs(usual.0.saturating_mul(LONGER)));
    let receives_on = did.receives.count >= MANY && did.receives.longest_pause(from, to) <= whole.part(4);
    let sends = traffic.sends(seat.task) || !traffic.others_send(seat.task, from, to);
    if !receives_on || !sends || silent < whole.part(2).max(gathers).max(LONG_SILENCE) {
        return None;
    }
    let received = format!("it received {} times and sent", did.receives.count);
    let calls = match did.sends.count {
        0 => format!("{received} nothing, though replies were due"),
        sent => format!("{received} {}, nothing for {silent} on end, though replies were due", counted(sent, "time")),
    };
    let socket = traffic.over(User::Socket(seat.own.socket), from, to);
    let backlog = socket.and_then(|slice| slice.backlog).map(|backlog| filled(evidence, seat, backlog));
    Some(calls + &backlog.unwrap_or_default())
}

fn filled(evidence: &Evidence, seat: &Seat, backlog: Backlog) -> String {
    let Backlog { first, peak, last } = backlog;
    let limit = evidence.socket_of(seat.own.socket, 0, 0).map_or(0, |socket| socket.receive_limit_bytes);
    let [first, peak, last, limit] = [first, peak, last, limit].map(kibibytes);
    format!("; its socket held {first}, then at most {peak}, and {last} at the end, of {limit}")
}

fn kibibytes(bytes: u32) -> String {
    format!("{} KiB", bytes.div_ceil(1_024))
}

#[cfg(test)]
mod tests {
    use super::MEANING;
    use crate::attribution::story::{Actor, MS, RECEIVE, SERVER, Story, WORKER, concluded, longest, run};
    use crate::attribution::{Attributor, Cause};
    use crate::clock::DurNs;
    use crate::event::Threshold;
    use crate::journey::Stage;

    /// The server has a check for 400 ms, all of them on CPU, and receives every `pause` ms.
    fn receives(pause: u64) -> Story {
        receives_for(pause * 10, 400)
    }

    /// The same for so many ms, with a receive every `tenths` of one.
    fn receives_for(tenths: u64, ms: u64) -> Story {
        let mut story = Story::served(ms * MS);
        story.sleeps(ms * MS + 10, SERVER, 1, RECEIVE);
        (1..ms * 10 / tenths).for_each(|turn| {
            let at = turn * tenths * MS / 10;
            story.fills(at, 1_000 + u32::try_from(turn).unwrap()).reads(at + 10, SERVER);
        });
        story
    }

    fn is_said(story: &mut Story) -> bool {
        let judged = story.judge();
        assert_eq!(concluded(&judged), Some(Cause::AppOnCpu), "{judged:#?}");
        longest(&judged, Cause::AppOnCpu).meaning == MEANING
    }

    fn sends(story: &mut Story, who: Actor, times: impl IntoIterator<Item = u64>) {
        times.into_iter().for_each(|ms| {
            story.sends(ms * MS, who);
        });
    }

    #[test]
    fn a_loop_that_receives_and_sends_too_late_is_told_with_its_calls_and_its_backlog() {
        let mut story = receives(1);
        assert!(is_said(&mut story));
        let judged = story.judge();
        let evidence = &longest(&judged, Cause::AppOnCpu).evidence;
        let calls = "it received 400 times and sent 1 time, nothing for 400 ms on end, though replies were due";
        assert!(evidence[0].contains(calls), "{evidence:?}");
        assert!(
            evidence[0].ends_with("held 1 KiB, then at most 2 KiB, and 2 KiB at the end, of 196 KiB"),
            "{evidence:?}"
        );
    }

    #[test]
    fn replies_sent_at_the_very_end_or_before_do_not_hide_it() {
        let mut story = receives(1);
        sends(&mut story, SERVER, [0, 398, 399]);
        assert!(is_said(&mut story));
    }

    #[test]
    fn a_loop_that_sends_now_and_then_is_only_busy() {
        let mut story = receives(1);
        sends(&mut story, SERVER, (0..400).step_by(50));
        assert!(!is_said(&mut story));
    }

    #[test]
    fn a_loop_that_always_gathers_its_replies_for_so_long_does_not_starve_them() {
        let mut attributor = Attributor::new(&run(Threshold::Fixed(DurNs::from_millis(150))));
        for _ in 0..30 {
            Story::served(120 * MS).judge_with(&mut attributor);
        }
        let judged = receives(1).judge_with(&mut attributor);
        assert!(longest(&judged, Cause::AppOnCpu).meaning != MEANING);
        assert!(!receives_for(5, 15).judge().ledger.entries.iter().any(|entry| entry.meaning == MEANING));
    }

    #[test]
    fn a_handler_that_computes_does_not_receive() {
        assert!(!is_said(&mut receives(400)));
        assert!(!is_said(&mut receives(150)));
    }

    #[test]
    fn a_thread_that_leaves_sending_to_another_owes_nothing() {
        let open = |sender: Option<Actor>| {
            let mut story = receives(1);
            sender.into_iter().for_each(|sender| sends(&mut story, sender, (0..400).step_by(10)));
            is_said(story.open_after(Stage::SockRead, 400 * MS))
        };
        assert!(open(None));
        assert!(!open(Some(WORKER)));
    }
}
