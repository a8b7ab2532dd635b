//! The pipeline: the architecture, read top to bottom.
//!
//! Records come in as bytes, [`Output`] values go out. Pure: no clock, no file, no socket, no
//! channel. Time enters only inside records, so a replay of a recording equals the live run.

use crate::attribution::{
    Absence, Activity, Attributor, Episode, Evidence, Judged, Lapse, Lapses, queue_waits, receive_waits,
};
use crate::clock::{DurNs, MonoNs};
use crate::event::{Body, Event, Fact, InterfaceId, Orderer, RunFact, decode};
use crate::join::JoinReport;
use crate::journey::{Correlator, Journey, JourneyId, Outcome, Update};
use crate::loss::{LeftOut, LossLedger, LossReport};
use crate::receive::{ReceiveShare, ReceiveTable};
use crate::rx_ring::{RxRingShare, RxRingTable};
use crate::sender::{QueueShare, QueueTable};
use crate::summary::{RunSummary, Summary};

/// How long after a tick's time an earlier record may still be read: a program takes its stamp
/// a moment before its record is in the ring.
const LATENESS: DurNs = DurNs::from_millis(2);

/// Checks that are still open at the end of the run and are given away each; of the rest, the
/// episodes tell.
const MOST_LEFT_OPEN: usize = 1024;

/// What a sink is given.
#[derive(Debug, Clone)]
pub enum Output {
    /// Something that the run knows; teaches sinks names and the clock.
    Fact(Fact),
    /// A check that has ended, or one that is still open.
    Journey(Box<Judged>),
    /// The request of a periodic check came late: time before the check, in no ledger.
    Lapse {
        /// The check that came late.
        id: JourneyId,
        /// Its signature's index in the run's list.
        signature: usize,
        /// Its target.
        target: InterfaceId,
        /// How late.
        lapse: Lapse,
    },
    /// Requests of a periodic signature were due and did not come.
    Absence(Absence),
    /// An interface is no longer watched; what happens there from now on is not seen.
    Gone {
        /// When that was noticed.
        at: MonoNs,
        /// The interface.
        interface: InterfaceId,
        /// How it went.
        reason: String,
    },
    /// What a watched thread did for a while; only a run that
    /// [tells activities](Collector::telling_activities) has them.
    Activity(Activity),
    /// A softirq that ran for long; only told beside activities.
    Softirq {
        /// Where.
        cpu: u32,
        /// Start.
        from: MonoNs,
        /// End.
        to: MonoNs,
        /// Number of its vector, as in `/proc/softirqs`.
        vector: u32,
    },
    /// What happened at one target over the run.
    Episode(Episode),
    /// Where the halves of joined checks went; only a [`Join`](crate::join::Join) gives it.
    Join(JoinReport),
    /// Who filled a transmit queue in which checks waited, or that dropped them.
    Queue(Box<QueueShare>),
    /// What checks lost to a CPU that was behind with receiving.
    Receive(Box<ReceiveShare>),
    /// What a NIC itself lost.
    RxRing(Box<RxRingShare>),
    /// Every record accounted for.
    Loss(LossReport),
    /// The run in one object, the last output.
    Summary(RunSummary),
}

/// Records to conclusions.
#[derive(Debug)]
pub struct Collector {
    losses: LossLedger,
    order: Orderer,
    conclude: Conclude,
}

impl Default for Collector {
    fn default() -> Self {
        Self::new()
    }
}

impl Collector {
    /// An empty one; the first record says how to judge.
    #[must_use]
    pub fn new() -> Self {
        Self { losses: LossLedger::new(), order: Orderer::new(LATENESS), conclude: Conclude::default() }
    }

    /// Its ledgers also tell by which threads and kernel stacks each entry was reached, for a flame
    /// graph. A live run does not, and pays nothing for it.
    #[must_use]
    pub fn telling_hops(mut self) -> Self {
        self.conclude.evidence.tell_hops();
        self
    }

    /// It also tells what every watched thread did, for pictures of threads over time.
    #[must_use]
    pub const fn telling_activities(mut self) -> Self {
        self.conclude.tells_activities = true;
        self
    }

    /// Takes one record: bytes, decoded, counted, put in order, concluded from.
    pub fn push(&mut self, record: &[u8], out: &mut impl FnMut(Output)) {
        match decode(record) {
            Ok(event) => {
                let Self { losses, order, conclude } = self;
                losses.received(&event);
                let (at, late) = (event.at, order.late());
                order.push(event, &mut |event| conclude.push(&event, losses, out));
                if order.late() > late {
                    losses.came_late(at);
                }
            }
            Err(_) => self.losses.undecodable(),
        }
    }

    /// No check begins any more, and none of which anything is told is open.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.conclude.correlator.is_settled()
    }

    /// Ends the stream: what is held back is concluded from, then come the episodes, the losses
    /// and the summary.
    pub fn finish(self, out: &mut impl FnMut(Output)) {
        let Self { mut losses, mut order, mut conclude } = self;
        losses.finish();
        order.finish(&mut |event| conclude.push(&event, &losses, out));
        conclude.finish(&losses, out);
        losses.set_late(order.late());
        losses.set_counts(conclude.correlator.counts());
        losses.set_left_out(conclude.left_out);
        debug_assert_eq!(losses.decoded_identity(), Ok(()), "every record has gone somewhere");
        let Verdicts { summary, queues, receiving, rx_rings, .. } = conclude.verdicts.unwrap_or_else(Verdicts::silent);
        summary
            .targets()
            .filter_map(|target| summary.episode(target))
            .for_each(|episode| out(Output::Episode(episode)));
        queues.shares().into_iter().for_each(|share| out(Output::Queue(Box::new(share))));
        receiving.shares().into_iter().for_each(|share| out(Output::Receive(Box::new(share))));
        let losses_of_nics = conclude.evidence.unseen_losses();
        rx_rings.shares(losses_of_nics).into_iter().for_each(|share| out(Output::RxRing(Box::new(share))));
        out(Output::Loss(losses.report()));
        out(Output::Summary(summary.run()));
    }
}

/// Events in order to conclusions.
#[derive(Debug, Default)]
struct Conclude {
    evidence: Evidence,
    correlator: Correlator,
    /// Made when the run says how to judge.
    verdicts: Option<Verdicts>,
    /// What has ended or was left open since the last tick.
    updates: Vec<Update>,
    /// Requests that did not come, until it is known what the NIC itself lost meanwhile.
    absences: Vec<Absence>,
    now: MonoNs,
    left_out: LeftOut,
    tells_activities: bool,
}

impl Conclude {
    /// Evidence first, and nothing is judged before the next tick: what comes right behind a reply,
    /// such as the end of the slice in which it was sent, proves what was before it.
    fn push(&mut self, event: &Event, losses: &LossLedger, out: &mut impl FnMut(Output)) {
        self.now = event.at;
        self.evidence.push(event);
        let Self { correlator, updates, .. } = self;
        correlator.push(event, &mut |update| updates.push(update));
        match &event.body {
            Body::Fact(fact) => self.learn(event.at, fact, out),
            Body::Tick => {
                self.judge(losses, out);
                self.miss(losses, out);
                self.tell_activities(None, out);
                self.evidence.trim(self.correlator.oldest_open().unwrap_or(event.at));
            }
            Body::Softirq(body) if self.tells_activities && body.window_ns == 0 && body.duration_ns > 0 => {
                let from = event.at.before(DurNs(body.duration_ns));
                out(Output::Softirq { cpu: event.cpu, from, to: event.at, vector: body.vector });
            }
            _ => {}
        }
    }

    fn tell_activities(&mut self, until: Option<MonoNs>, out: &mut impl FnMut(Output)) {
        if self.tells_activities {
            self.evidence.activities(until).into_iter().for_each(|activity| out(Output::Activity(activity)));
        }
    }

    fn learn(&mut self, at: MonoNs, fact: &Fact, out: &mut impl FnMut(Output)) {
        if let Fact::Run(run) = fact {
            self.verdicts.get_or_insert_with(|| Verdicts::new(run));
        }
        if let Fact::Gone { interface, reason } = fact {
            self.verdicts.iter_mut().for_each(|verdicts| verdicts.lapses.gone(*interface));
            out(Output::Gone { at, interface: *interface, reason: reason.clone() });
        }
        if let Some(verdicts) = &mut self.verdicts {
            verdicts.queues.learn(fact);
            verdicts.receiving.learn(fact);
            verdicts.rx_rings.learn(fact);
            if let Fact::Levels { at, unseen, .. } = fact
                && unseen.iter().any(|nic| self.evidence.lost_unseen(nic.interface, *at))
            {
                verdicts.rx_rings.lost(*at);
            }
        }
        if let Fact::ThreadCounters(window) = fact {
            self.verdicts.get_or_insert_with(Verdicts::silent).summary.count(window);
        }
        out(Output::Fact(fact.clone()));
    }

    /// Finds which requests have not come, and tells of those for which the counters of the NIC have been
    /// read.
    fn miss(&mut self, losses: &LossLedger, out: &mut impl FnMut(Output)) {
        if let Some(verdicts) = self.verdicts.as_mut().filter(|_| !self.correlator.is_closing()) {
            self.absences.extend(verdicts.lapses.missing(self.now));
        }
        let Self { evidence, now, .. } = self;
        let is_known = |absence: &mut Absence| evidence.knows_unseen(absence.interface, absence.until, *now);
        let known: Vec<_> = self.absences.extract_if(.., is_known).collect();
        self.tell_absences(known, losses, out);
    }

    /// Where records were lost, the request may have been among them.
    fn tell_absences(&mut self, absences: Vec<Absence>, losses: &LossLedger, out: &mut impl FnMut(Output)) {
        let Some(verdicts) = &mut self.verdicts else { return };
        for absence in absences {
            if losses.lost_between(absence.due_at, absence.until) > 0 {
                continue;
            }
            let Absence { interface, due_at, until, .. } = absence;
            let unseen = self.evidence.unseen_loss(interface, due_at, until);
            let unread = self.evidence.is_unread(interface, due_at, until);
            let absence = Absence { unseen, unread, ..absence };
            verdicts.summary.miss(&absence);
            verdicts.rx_rings.miss(&absence);
            out(Output::Absence(absence));
        }
    }

    fn judge(&mut self, losses: &LossLedger, out: &mut impl FnMut(Output)) {
        if self.updates.is_empty() {
            return;
        }
        let verdicts = self.verdicts.get_or_insert_with(Verdicts::silent);
        verdicts.attributor.advance(self.now);
        for update in self.updates.drain(..) {
            let journey = match update {
                Update::Arrived(arrival) => {
                    verdicts.lapses.arrived(&arrival);
                    continue;
                }
                Update::Ended(journey) => {
                    verdicts.lapse(&journey).into_iter().for_each(&mut *out);
                    journey
                }
                Update::Open(journey) if !verdicts.attributor.is_crowded() => journey,
                Update::Open(journey) => {
                    self.left_out.unreported += 1;
                    verdicts.summary.left_open(journey.id, journey.target, journey.started_at(), journey.known_until);
                    continue;
                }
                Update::Unreported { id, target, started_at, at } => {
                    self.left_out.unreported += 1;
                    verdicts.summary.left_open(id, target, started_at, at);
                    continue;
                }
            };
            let judged = verdicts.attributor.judge(journey, &self.evidence, &|from, to| losses.lost_between(from, to));
            self.left_out.brief += u64::from(judged.brief);
            verdicts.summary.push(&judged);
            if judged.journey.outcome != Outcome::Open {
                verdicts.queues.push(&queue_waits(&self.evidence, &judged));
                verdicts.receiving.push(&receive_waits(&self.evidence, &judged));
            }
            out(Output::Journey(Box::new(judged)));
        }
    }

    /// The stream is over: what is still open is given away as open.
    fn finish(&mut self, losses: &LossLedger, out: &mut impl FnMut(Output)) {
        let Self { correlator, updates, now, .. } = self;
        let mut open = 0;
        let mut rest = Vec::new();
        correlator.finish(*now, &mut |update| match update {
            Update::Ended(journey) if journey.outcome == Outcome::Open && open >= MOST_LEFT_OPEN => rest.push(journey),
            Update::Ended(journey) => {
                open += usize::from(journey.outcome == Outcome::Open);
                updates.push(Update::Ended(journey));
            }
            update => updates.push(update),
        });
        self.judge(losses, out);
        let absences = std::mem::take(&mut self.absences);
        self.tell_absences(absences, losses, out);
        self.tell_activities(Some(self.now), out);
        let verdicts = self.verdicts.get_or_insert_with(Verdicts::silent);
        for journey in rest {
            self.left_out.unreported += 1;
            let judged = verdicts.attributor.judge_briefly(journey);
            self.left_out.brief += 1;
            verdicts.summary.push(&judged);
        }
    }
}

/// What judges each check, and what sums up all.
#[derive(Debug)]
struct Verdicts {
    attributor: Attributor,
    lapses: Lapses,
    summary: Summary,
    queues: QueueTable,
    receiving: ReceiveTable,
    rx_rings: RxRingTable,
}

impl Verdicts {
    fn new(run: &RunFact) -> Self {
        let intervals = run.signatures.iter().map(|signature| signature.interval);
        Self {
            attributor: Attributor::new(run),
            lapses: Lapses::new(intervals),
            summary: Summary::new(run),
            queues: QueueTable::default(),
            receiving: ReceiveTable::default(),
            rx_rings: RxRingTable::default(),
        }
    }

    fn lapse(&mut self, journey: &Journey) -> Option<Output> {
        let lapse = self.lapses.ended(journey.id)?;
        Some(Output::Lapse { id: journey.id, signature: journey.signature, target: journey.target, lapse })
    }

    /// For a stream that lost its first record.
    fn silent() -> Self {
        Self::new(&RunFact::silent())
    }
}

#[cfg(test)]
mod tests {
    use super::{Absence, Conclude, Event, Fact, LossLedger, MonoNs, Output, RunFact};
    use crate::attribution::Cause;
    use crate::attribution::story::{ETH, MS, at};
    use crate::event::{UnseenFact, decode, fact_record, tick_record};
    use crate::host::CounterFact;

    /// Five requests did not come in the second second; the NIC is read at so many milliseconds, and has
    /// lost so many by then.
    struct Silence {
        conclude: Conclude,
        told: Vec<Absence>,
    }

    impl Silence {
        fn new(readings: &[(u64, u64)]) -> Self {
            let mut silence = Self { conclude: Conclude::default(), told: Vec::new() };
            silence.push(&fact_record(MonoNs(0), &Fact::Run(RunFact::silent())).unwrap());
            let (due_at, until) = (at(1_000 * MS), at(2_000 * MS));
            let absence =
                Absence { signature: 0, interface: ETH, due_at, until, requests: 5, unseen: None, unread: false };
            silence.conclude.absences.push(absence);
            readings.iter().for_each(|(ms, lost)| silence.read(*ms, *lost));
            silence
        }

        fn push(&mut self, record: &[u8]) {
            let Self { conclude, told } = self;
            let event: Event = decode(record).unwrap();
            conclude.push(&event, &LossLedger::new(), &mut |output| keep(told, output));
        }

        fn read(&mut self, ms: u64, lost: u64) {
            let counters = vec![CounterFact { name: "link rx_missed_errors".to_owned(), value: lost }];
            let unseen = vec![UnseenFact { interface: ETH, counters }];
            let levels = Fact::Levels { at: at(ms * MS), levels: Vec::new(), unseen };
            self.push(&fact_record(at(ms * MS), &levels).unwrap());
        }

        /// What is told by then.
        fn by(mut self, ms: u64) -> Vec<Absence> {
            self.push(&tick_record(at(ms * MS)));
            self.told
        }

        /// What is told when the run ends.
        fn at_end(mut self) -> Vec<Absence> {
            let Self { conclude, told } = &mut self;
            conclude.finish(&LossLedger::new(), &mut |output| keep(told, output));
            self.told
        }
    }

    fn keep(told: &mut Vec<Absence>, output: Output) {
        if let Output::Absence(absence) = output {
            told.push(absence);
        }
    }

    fn causes(told: &[Absence]) -> Vec<(Option<Cause>, Option<Cause>)> {
        told.iter().map(|absence| (absence.cause(), absence.suspect())).collect()
    }

    #[test]
    fn the_world_outside_is_blamed_for_a_silence_only_if_the_nic_s_counters_cover_it() {
        let outside = [(Some(Cause::ExternalOutsideHost), None)];
        let covered: &[(u64, u64)] = &[(500, 7), (4_000, 7)];
        assert_eq!(causes(&Silence::new(covered).by(4_100)), outside);
        assert_eq!(causes(&Silence::new(covered).at_end()), outside);
        let lossy = Silence::new(&[(500, 7), (1_500, 12), (4_000, 12)]);
        assert_eq!(causes(&lossy.by(4_100)), [(None, Some(Cause::NicDrop))]);
        let late: &[(u64, u64)] = &[(500, 7), (1_500, 7)];
        assert_eq!(Silence::new(late).by(5_900), [], "a reading may still come");
        for told in [Silence::new(late).by(6_000), Silence::new(late).at_end()] {
            assert_eq!(causes(&told), [(None, None)]);
            let reason = told[0].remark("eth0").unwrap();
            assert!(reason.contains("were not read for all of that time"), "{reason}");
        }
        assert_eq!(causes(&Silence::new(&[]).at_end()), outside, "of its counters nothing is ever read");
    }
}
