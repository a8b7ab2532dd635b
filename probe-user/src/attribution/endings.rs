//! Where lost checks end: one story a place that is easily taken for another.

use super::story::{Actor, ETH, HOG, MS, NANOSLEEP, RECEIVE, SECOND, SERVER, Story, at, concluded, longest};
use super::{Cause, Judged, LossPlace, Sent};
use crate::event::{Fact, InterfaceId, UnseenFact};
use crate::host::CounterFact;
use crate::journey::{Loss, Outcome, Perspective, Stage};

const POD: InterfaceId = InterfaceId { netns: 3, ifindex: 9 };

/// Place, last stage, what the sender was told, and the verdict.
fn told(judged: &Judged) -> (LossPlace, Stage, Option<Sent>, Option<Cause>) {
    let lost = judged.lost.as_ref().expect("it is lost");
    (lost.place, lost.stage, lost.sent, concluded(judged))
}

fn times_out(story: &mut Story) -> Judged {
    story.ends(2 * SECOND, Outcome::Lost(Loss::TimedOut)).judge()
}

/// Read, and answered by a call that drops the packet.
fn reply_dropped(result: i32) -> Story {
    let mut story = Story::served(2 * SECOND);
    story.open_after(Stage::SockRead, 2 * SECOND);
    story.stamp(400, Stage::AppSend, Some(SERVER)).stamp(401, Stage::PnicQueue, None);
    story.drops_reply(402, SERVER, "QDISC_DROP", "__dev_xmit_skb").sends_bytes(404, SERVER, result);
    story
}

#[test]
fn a_drop_within_the_send_call_tells_what_the_sender_was_told() {
    let drop = |result| told(&reply_dropped(result).judge());
    let (place, stage, cause) = (LossPlace::Qdisc, Stage::PnicQueue, Some(Cause::NicDrop));
    assert_eq!(drop(64), (place, stage, Some(Sent::Success), cause));
    assert_eq!(drop(-105), (place, stage, Some(Sent::Failed(105)), cause));
    let mut later = reply_dropped(64);
    later.journey.outcome = match later.journey.outcome.clone() {
        Outcome::Lost(Loss::Dropped(drop)) => {
            Outcome::Lost(Loss::Dropped(crate::journey::PacketDrop { task: crate::event::TaskId::default(), ..drop }))
        }
        outcome => outcome,
    };
    assert_eq!(told(&later.judge()), (place, stage, None, cause), "a softirq dropped it");
}

/// When it was read, microseconds of the story.
fn read_at(story: &Story) -> u64 {
    story.journey.stamp(Stage::SockRead).map_or(0, |stamp| stamp.at.since(at(0)).0 / 1_000)
}

/// Read by a thread whose send call then returns this.
fn answered_with(result: i32) -> Story {
    let mut story = Story::served(2 * SECOND);
    story.open_after(Stage::SockRead, 2 * SECOND);
    story.journey.outcome = Outcome::Lost(Loss::TimedOut);
    let read = read_at(&story);
    story.sends_bytes(read + 20, SERVER, result).sleeps(read + 30, SERVER, 1, RECEIVE);
    story
}

#[test]
fn a_reply_that_the_socket_refused_ends_in_the_send_buffer() {
    let full = told(&times_out(&mut answered_with(-11)));
    let (stage, failed) = (Stage::SockRead, Some(Sent::Failed(11)));
    assert_eq!(full, (LossPlace::SendBuffer, stage, failed, Some(Cause::AppSocketQueue)));
    let refused = told(&times_out(&mut answered_with(-1)));
    assert_eq!(refused, (LossPlace::SendBuffer, stage, Some(Sent::Failed(1)), None), "for what reason is not known");
}

/// The shares of those who filled what the check was lost in, else why they are not known.
fn fillers(judged: &Judged) -> Result<(u32, Vec<String>), &'static str> {
    let wait = judged.lost.as_ref().and_then(|lost| lost.filled.clone()).expect("something was full")?;
    let (senders, all) = wait.senders();
    Ok((wait.queue(), senders.iter().map(|(who, sent)| format!("{who:?} {}", sent.share_of(all))).collect()))
}

/// The socket has no room, while the NIC's discipline holds others and has carried these.
fn full_behind(held: &[InterfaceId], queues: &[(u32, &[(Actor, u64)])]) -> Judged {
    let mut story = answered_with(-11);
    let read = read_at(&story);
    for (us, device) in (1..).zip(held) {
        story.holds_another(*device, (us, read + 100));
    }
    for (queue, senders) in queues {
        story.carries(*queue, (0, read + 200), senders);
    }
    times_out(&mut story)
}

#[test]
fn behind_a_full_socket_are_those_who_fill_the_queue_in_which_answers_wait() {
    let both: &[(Actor, u64)] = &[(HOG, 900), (SERVER, 100)];
    let judged = full_behind(&[ETH], &[(1, both), (0, &[(HOG, 70)])]);
    let (queue, shares) = fillers(&judged).unwrap();
    assert_eq!((queue, shares.len()), (1, 2), "{shares:?}");
    assert!(shares[0].contains("\"hog\"") && shares[0].ends_with(" 90 %"), "{shares:?}");
    let evidence = longest(&judged, Cause::AppSocketQueue).evidence.join("; ");
    assert!(evidence.contains("on queue 1 of") && evidence.contains("hog (pid 900/900) 90 %"), "{evidence}");
    let reason = |judged: &Judged| fillers(judged).unwrap_err();
    assert!(reason(&full_behind(&[], &[(1, both)])).contains("no answer before it was seen in a queueing discipline"));
    assert!(reason(&full_behind(&[ETH, POD], &[(1, both)])).contains("of several interfaces"));
    assert!(reason(&full_behind(&[ETH], &[(1, both), (0, both)])).contains("by several queues"));
    assert!(reason(&full_behind(&[ETH], &[(1, &[(HOG, 900)])])).contains("was not seen to send"));
    assert!(reason(&full_behind(&[ETH], &[])).contains("no sender"));
}

#[test]
fn the_queue_that_dropped_it_is_that_of_the_drop() {
    let dropped = |queue| {
        let mut story = reply_dropped(64);
        let Outcome::Lost(Loss::Dropped(drop)) = &mut story.journey.outcome else { panic!("a drop") };
        drop.queue = queue;
        story.carries(0, (0, 500), &[(HOG, 9)]).carries(1, (0, 500), &[(SERVER, 5)]);
        fillers(&story.judge()).map(|(queue, _)| queue)
    };
    assert_eq!((dropped(1), dropped(2)), (Ok(0), Ok(1)));
    assert!(dropped(3).unwrap_err().contains("nothing was counted on its queue"));
    assert!(dropped(0).unwrap_err().contains("several queues"), "as in recordings made before");
}

#[test]
fn a_check_that_is_read_and_not_answered_has_another_end() {
    let mut silent = Story::served(2 * SECOND);
    silent.sleeps(MS, SERVER, 1, RECEIVE).open_after(Stage::SockRead, 2 * SECOND);
    assert_eq!(told(&times_out(&mut silent)), (LossPlace::Unanswered, Stage::SockRead, None, Some(Cause::AppSelfWait)));
}

#[test]
fn a_failed_call_after_two_reads_is_charged_to_neither() {
    let mut story = answered_with(-11);
    let read = read_at(&story);
    story.reads(read + 1, SERVER);
    let judged = times_out(&mut story);
    assert_eq!((judged.lost.as_ref().and_then(|lost| lost.sent), concluded(&judged)), (None, None));
}

fn damaged() -> Story {
    let mut story = Story::new();
    story.reads(MS, SERVER).runs(500, SERVER).sleeps(2 * MS, SERVER, 1, NANOSLEEP);
    story.stamp(50 * MS, Stage::PnicRx, None);
    story
}

#[test]
fn a_damaged_packet_is_the_worlds_unless_a_device_of_this_host_had_it() {
    let mut direct = damaged();
    direct.dropped(50 * MS + 9, "UDP_CSUM", "udp_queue_rcv_one_skb");
    let outside = Some(Cause::ExternalOutsideHost);
    assert_eq!(told(&direct.judge()), (LossPlace::Checksum, Stage::PnicRx, None, outside));
    let mut forwarded = damaged();
    forwarded.stamp(50 * MS + 2, Stage::VnicTx, None).stamp(50 * MS + 4, Stage::GuestRx, None);
    forwarded.dropped(50 * MS + 9, "UDP_CSUM", "udp_queue_rcv_one_skb");
    assert_eq!(told(&forwarded.judge()), (LossPlace::Checksum, Stage::GuestRx, None, None));
}

/// Sent by this host.
fn asked() -> Story {
    let mut story = Story::new();
    story.journey.perspective = Perspective::Sent;
    story.stamp(100, Stage::AppSend, Some(SERVER)).stamp(105, Stage::PnicQueue, None);
    story.stamp(110, Stage::PnicXmit, None);
    story
}

#[test]
fn what_left_in_time_is_the_worlds_even_if_the_drop_there_is_seen() {
    let outside = Some(Cause::ExternalOutsideHost);
    let end = (LossPlace::LeftInTime, Stage::PnicXmit, None, outside);
    assert_eq!(told(&times_out(&mut asked())), end);
    let dropped_in = |netns, reason: &str, place: &str| {
        let mut story = asked();
        story.dropped(120, reason, place);
        let Outcome::Lost(Loss::Dropped(drop)) = &mut story.journey.outcome else { panic!("a drop") };
        drop.interface = InterfaceId { netns, ..ETH };
        told(&story.judge())
    };
    assert_eq!(dropped_in(ETH.netns + 1, "NETFILTER_DROP", "nf_hook_slow"), end);
    let ring = dropped_in(ETH.netns + 1, "NOT_SPECIFIED", "veth_xmit");
    assert_eq!((ring.0, ring.3), (LossPlace::NicRing, Some(Cause::NicDrop)), "its NIC's own ring");
}

/// Readings of what the NIC counted as lost: how many by then, at so many microseconds.
fn reads_losses(story: &mut Story, readings: &[(u64, u64)]) {
    for (us, value) in readings {
        let counters = vec![CounterFact { name: "link rx_missed_errors".to_owned(), value: *value }];
        let unseen = vec![UnseenFact { interface: ETH, counters }];
        story.fact(*us, Fact::Levels { at: at(*us), levels: Vec::new(), unseen });
    }
}

#[test]
fn an_answer_that_the_nic_itself_may_have_lost_is_not_proven_to_be_lost_outside() {
    let mut ring = asked();
    reads_losses(&mut ring, &[(0, 5), (SECOND, 8)]);
    let judged = times_out(&mut ring);
    assert_eq!(told(&judged), (LossPlace::LeftInTime, Stage::PnicXmit, None, None));
    let reason = "eth0 itself lost up to 3 packets in the same 1.00 s (link rx_missed_errors), and nothing tells whose";
    assert!(judged.ledger.gaps.iter().any(|gap| gap.reason == reason), "{:?}", judged.ledger.gaps);
    let mut before = asked();
    reads_losses(&mut before, &[(0, 5), (50, 8)]);
    assert_eq!(told(&times_out(&mut before)).3, Some(Cause::ExternalOutsideHost), "before it had left");
}
