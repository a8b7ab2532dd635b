//! How the app dealt with a check: it had too much to do, or it did not do it.
//!
//! A saturated app leaves checks in its socket while its threads work off what came before, and then
//! holds each as usual. A broken one holds them, or does not come back to its socket. Only what the
//! app does of its own accord counts: where the host does not let it run, or it waits for another
//! service, a disk or memory, it is neither, and the cause tells all. Nor is it either where it goes on
//! answering others while it holds a check: that one may wait in a queue of the app's own.

use super::baseline::Baseline;
use super::cause::Cause;
use super::evidence::Evidence;
use super::ledger::{Ledger, Verdict};
use super::traffic::{Calls, Slice, User};
use crate::clock::{DurNs, MonoNs};
use crate::event::TaskId;
use crate::journey::{Journey, Loss, Outcome, Perspective, Span, Stage};

/// What is as usual may differ from the usual by so much, beside being twice as long.
const TOLERANCE: DurNs = DurNs(100_000);

/// What is true of an app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Checks wait in its socket, and are then held as usual.
    Saturated,
    /// It holds checks for longer than usual, or does not come back for them.
    Broken,
}

impl Condition {
    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Saturated => "saturated",
            Self::Broken => "broken",
        }
    }
}

/// How long a check was with the app.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// From its socket's queue to the read.
    pub waited: DurNs,
    /// From the read to the reply; zero if it was not read.
    pub held: DurNs,
}

/// How the app dealt with a check, or with those of an episode on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// What is true of it.
    pub condition: Condition,
    /// How many checks say so.
    pub checks: u64,
    /// How long they were with it.
    pub stay: Stay,
    /// How long healthy checks are, the median of the latest.
    pub usual: Stay,
}

impl Stay {
    /// That of a check that came in here, waited in a socket and was read; until now if it is open.
    pub(crate) fn of(journey: &Journey) -> Option<Self> {
        let read = journey.stamp(Stage::SockRead)?.at;
        let waited = read.since(enqueued(journey)?);
        let replied = journey.stamps.iter().find(|stamp| stamp.stage > Stage::SockRead);
        let until = replied.map_or(journey.known_until, |stamp| stamp.at);
        Some(Self { waited, held: until.since(read) })
    }
}

fn enqueued(journey: &Journey) -> Option<MonoNs> {
    let served = journey.perspective == Perspective::Served;
    journey.stamp(Stage::SockEnqueue).filter(|_| served).map(|stamp| stamp.at)
}

/// A check, and what is usual at its target.
struct Look<'a> {
    journey: &'a Journey,
    ledger: &'a Ledger,
    evidence: &'a Evidence,
    usual: Stay,
    /// Half of its time above the usual.
    half: DurNs,
}

/// What a check proves of the app; `None` where it proves neither.
pub(super) fn service(
    journey: &Journey,
    ledger: &Ledger,
    verdict: &Verdict,
    baseline: &Baseline,
    evidence: &Evidence,
) -> Option<Service> {
    let dropped = matches!(journey.outcome, Outcome::Lost(Loss::Dropped(_)));
    if dropped || !matches!(verdict, Verdict::Cause { .. } | Verdict::Split { .. }) {
        return None;
    }
    let usual = baseline.usual_stay()?;
    let half = Some(journey.elapsed().minus(baseline.p50()).part(2)).filter(|half| *half > DurNs::ZERO)?;
    let look = Look { journey, ledger, evidence, usual, half };
    let (condition, stay) = look.saturated().or_else(|| look.holds()).or_else(|| look.stays_away())?;
    Some(Service { condition, checks: 1, stay, usual })
}

impl Look<'_> {
    /// It waited for the thread that read it, which took other work all the while, and was then held
    /// as usual.
    fn saturated(&self) -> Option<(Condition, Stay)> {
        let stay = Stay::of(self.journey).filter(|_| self.journey.outcome == Outcome::Replied)?;
        let reader = self.journey.stamp(Stage::SockRead)?.task;
        let worked = self.taken(Span::Queue, works) >= self.half && self.is_usual(stay.held);
        let pause = self.pause(reader, stay.waited, |did| did.receives)?;
        let went_on = pause <= stay.waited.part(4) || self.is_usual(pause);
        (worked && went_on).then_some((Condition::Saturated, stay))
    }

    /// Its threads held it, and answered nothing else meanwhile.
    fn holds(&self) -> Option<(Condition, Stay)> {
        let stay = Stay::of(self.journey)?;
        let own = self.taken(Span::Hold, of_its_own).minus(self.usual.held);
        let held = own >= self.half && !self.is_usual(stay.held);
        (held && self.silence(stay.held)? >= self.half).then_some((Condition::Broken, stay))
    }

    /// The longest time for which the thread that owes the reply sent nothing, while the check was held.
    fn silence(&self, held: DurNs) -> Option<DurNs> {
        let read = self.journey.stamp(Stage::SockRead)?;
        let (from, to) = (read.at, read.at.after(held));
        let traffic = self.evidence.traffic();
        let sender = self.journey.stamp(Stage::AppSend).map(|stamp| stamp.task).filter(|task| task.tid != 0);
        let holder = sender.or_else(|| Some(read.task).filter(|reader| traffic.sends(*reader)));
        match holder {
            Some(holder) => Some(traffic.over(User::Thread(holder), from, to)?.sends.longest_pause(from, to)),
            None => (!traffic.others_send(read.task, from, to)).then_some(held),
        }
    }

    /// The thread that reads its socket did not come back for it.
    fn stays_away(&self) -> Option<(Condition, Stay)> {
        let read = self.journey.stamp(Stage::SockRead);
        let waited = read.map_or(self.journey.known_until, |stamp| stamp.at).since(enqueued(self.journey)?);
        let reader = read.map_or_else(|| self.last_reader(), |stamp| Some(stamp.task))?;
        let pause = self.pause(reader, waited, |did| did.takes)?;
        let away = pause >= self.half && !self.is_usual(pause) && self.taken(Span::Queue, of_its_own) >= self.half;
        let stay = Stay::of(self.journey).unwrap_or(Stay { waited, held: DurNs::ZERO });
        away.then_some((Condition::Broken, stay))
    }

    fn last_reader(&self) -> Option<TaskId> {
        let request = &self.journey.request;
        let socket = self.evidence.socket_of(self.journey.socket, request.protocol, request.destination_port)?;
        Some(socket.reader).filter(|reader| reader.tid != 0)
    }

    /// The longest time for which a thread took nothing, while the check waited.
    fn pause(&self, reader: TaskId, waited: DurNs, calls: fn(&Slice) -> Calls) -> Option<DurNs> {
        let from = enqueued(self.journey)?;
        let to = from.after(waited);
        let did = self.evidence.traffic().over(User::Thread(reader), from, to)?;
        Some(calls(&did).longest_pause(from, to))
    }

    fn is_usual(&self, held: DurNs) -> bool {
        held <= self.usual.held.plus(self.usual.held).plus(TOLERANCE)
    }

    fn taken(&self, span: Span, counts: fn(Cause) -> bool) -> DurNs {
        let entries = self.ledger.entries.iter().filter(|entry| entry.span == span && counts(entry.cause));
        entries.fold(DurNs::ZERO, |sum, entry| sum.plus(entry.time()))
    }
}

/// What a thread does, or waits for, as it works: not that others keep it from running.
const fn works(cause: Cause) -> bool {
    !matches!(cause, Cause::AppRunqueue | Cause::AppQuotaThrottle | Cause::HostCpuGap)
}

/// What an app does by itself.
const fn of_its_own(cause: Cause) -> bool {
    matches!(cause, Cause::AppOnCpu | Cause::AppFutex | Cause::AppBlockedIo | Cause::AppSelfWait)
}

impl Service {
    /// What a check shows, in a sentence.
    #[must_use]
    pub fn of_check(&self) -> String {
        let Self { stay: Stay { waited, held }, usual, .. } = self;
        match self.condition {
            Condition::Saturated => format!(
                "the app is saturated: the check waited in its socket {waited} and was then held {held}, as usual"
            ),
            Condition::Broken if *held > *waited => {
                format!("the app is broken: it held the check {held}, usually {}", usual.held)
            }
            Condition::Broken => {
                format!("the app is broken: it left the check waiting in its socket {waited}, usually {}", usual.waited)
            }
        }
    }

    /// What the checks of an episode show, in a sentence; `all` are its slow and lost ones.
    #[must_use]
    pub fn of_episode(&self, all: u64) -> String {
        let Self { checks, stay, usual, .. } = self;
        let Stay { waited, held } = stay;
        let said = match self.condition {
            Condition::Saturated => {
                format!("the app is saturated: checks wait in its socket {waited} and are then held {held}, as usual")
            }
            Condition::Broken => format!(
                "the app is broken: it leaves checks waiting {waited} and holds them {held}, usually {} and {}",
                usual.waited, usual.held
            ),
        };
        format!("{said} (on average, {checks} of {all} slow or lost checks)")
    }

    /// The same of many checks: sums, to be divided by [`Self::checks`].
    pub(crate) fn plus(self, other: &Self) -> Self {
        let stay =
            Stay { waited: self.stay.waited.plus(other.stay.waited), held: self.stay.held.plus(other.stay.held) };
        Self { checks: self.checks + other.checks, stay, usual: other.usual, ..self }
    }

    pub(crate) fn average(self) -> Self {
        let checks = self.checks.max(1);
        Self { stay: Stay { waited: self.stay.waited.part(checks), held: self.stay.held.part(checks) }, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::{Condition, Service};
    use crate::attribution::Attributor;
    use crate::attribution::story::{FUTEX, HOG, IDLE, MS, NANOSLEEP, RECEIVE, SECOND, SERVER, Story, WORKER, run};
    use crate::clock::DurNs;
    use crate::event::Threshold;
    use crate::journey::{Loss, Outcome, Stage};

    /// What is said after so many healthy checks of a millisecond.
    fn after(healthy: usize, mut story: Story) -> Option<Service> {
        let mut attributor = Attributor::new(&run(Threshold::Fixed(DurNs::from_millis(20))));
        for _ in 0..healthy {
            Story::served(MS).judge_with(&mut attributor);
        }
        story.judge_with(&mut attributor).service
    }

    fn condition(story: Story) -> Option<Condition> {
        after(30, story).map(|service| service.condition)
    }

    /// The server computes from before the check comes until after it has read it at 200 ms, and reads
    /// at these times, milliseconds, too.
    fn waits(reads: impl IntoIterator<Item = u64>) -> Story {
        let mut story = Story::queued(200 * MS);
        story.runs(50, SERVER).sleeps(200 * MS + 10, SERVER, 1, RECEIVE);
        reads.into_iter().for_each(|ms| {
            story.reads(ms * MS, SERVER);
        });
        story
    }

    fn held(frames: &str) -> Story {
        let mut story = Story::served(200 * MS);
        story.sleeps(MS, SERVER, 1, frames).wakes(199 * MS, IDLE, SERVER).runs(199 * MS + 5, SERVER);
        story
    }

    #[test]
    fn a_check_that_waits_behind_others_and_is_held_as_usual_shows_a_saturated_app() {
        let service = after(30, waits(1..200)).unwrap();
        assert_eq!(service.condition, Condition::Saturated);
        assert_eq!(service.stay.waited, DurNs(199_896_000));
        assert_eq!((service.stay.held, service.usual.held), (DurNs(5_000), DurNs(888_000)));
        let said = service.of_check();
        assert_eq!(
            said,
            "the app is saturated: the check waited in its socket 200 ms and was then held 5.00 µs, as usual"
        );
    }

    #[test]
    fn a_thread_that_does_not_come_back_to_its_socket_is_not_one_with_much_to_do() {
        assert_eq!(condition(waits([])), Some(Condition::Broken));
        assert_eq!(condition(waits(150..200)), Some(Condition::Broken));
        assert_eq!(condition(waits((1..50).chain(130..200))), None, "some of each");
    }

    #[test]
    fn a_check_that_is_held_shows_a_broken_app() {
        let mut computes = Story::served(200 * MS);
        computes.sleeps(200 * MS + 10, SERVER, 1, RECEIVE);
        let service = after(30, computes).unwrap();
        assert_eq!(service.of_check(), "the app is broken: it held the check 200 ms, usually 888 µs");
        assert_eq!(condition(held(FUTEX)), Some(Condition::Broken));
        assert_eq!(condition(held(NANOSLEEP)), Some(Condition::Broken));
    }

    /// The reader hands checks over to a worker, which answers others every 10 ms before this one.
    fn queued_within(answers: bool) -> Story {
        let mut story = Story::new();
        story.sleeps(0, SERVER, 1, RECEIVE).packet_wakes(105, SERVER).runs(110, SERVER).runs(50, WORKER);
        story.stamp(100, Stage::PnicRx, None).stamp(104, Stage::SockEnqueue, None);
        story.stamp(112, Stage::SockRead, Some(SERVER)).reads(112, SERVER).sends(90, WORKER);
        story.stamp(200 * MS, Stage::AppSend, Some(WORKER)).stamp(200 * MS + 2, Stage::PnicQueue, None);
        (1..20).filter(|_| answers).for_each(|turn| {
            story.sends(turn * 10 * MS, WORKER);
        });
        story
    }

    #[test]
    fn a_check_that_may_wait_in_a_queue_of_the_app_s_own_shows_nothing() {
        assert_eq!(condition(queued_within(true)), None);
        assert_eq!(condition(queued_within(false)), Some(Condition::Broken));
    }

    #[test]
    fn a_thread_that_works_for_other_sockets_is_not_known_to_be_broken() {
        let mut story = waits([]);
        (1..200).for_each(|ms| {
            story.calls(ms * MS, SERVER, true, 443);
        });
        assert_eq!(condition(story), None);
    }

    #[test]
    fn what_is_not_the_app_s_own_is_neither() {
        assert_eq!(condition(held("io_schedule folio_wait_bit_common folio_wait_writeback")), None);
        let mut neighbours = Story::queued(200 * MS);
        neighbours.sleeps(0, SERVER, 1, RECEIVE).packet_wakes(106, SERVER).runs_after(199 * MS, SERVER, HOG);
        assert_eq!(condition(neighbours), None);
        let mut dropped = waits([]);
        dropped.dropped(150 * MS, "SOCKET_RCVBUFF", "udp_queue_rcv_skb");
        assert_eq!(condition(dropped), None);
    }

    #[test]
    fn without_proof_nothing_is_said() {
        assert_eq!(after(19, waits(1..200)), None, "what is usual is not known");
        let mut lost = waits(1..200);
        lost.lost_events = 1;
        assert_eq!(condition(lost), None);
        let mut unread = waits(1..200);
        unread.journey.stamps.retain(|stamp| stamp.stage != Stage::SockRead);
        assert_eq!(condition(unread), None);
    }

    #[test]
    fn a_server_that_never_answers_is_broken_while_it_is_so() {
        let mut open = Story::served(10 * SECOND);
        open.sleeps(SECOND * 10, SERVER, 1, RECEIVE).open_after(Stage::SockRead, SECOND);
        assert_eq!(condition(open), Some(Condition::Broken));
        let mut silent = Story::served(2 * SECOND);
        silent.sleeps(MS, SERVER, 1, RECEIVE).open_after(Stage::SockRead, 2 * SECOND);
        silent.ends(2 * SECOND, Outcome::Lost(Loss::TimedOut));
        assert_eq!(condition(silent), Some(Condition::Broken));
    }
}
