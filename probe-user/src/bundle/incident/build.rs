//! From outputs of the pipeline to the record.

use super::moment::{Moments, percent, stall};
use super::{
    CauseRecord, Component, CountsRecord, EvidenceRecord, IncidentRecord, MomentRecord, OffenderRecord, VerdictRecord,
    clipped,
};
use crate::attribution::{Cause, Episode, EpisodeCause, Judged, Offender, Unresolved, Verdict, counted};
use crate::clock::{DurNs, MonoNs};
use crate::event::{Fact, InterfaceId, RunFact, TaskId};
use crate::journey::Outcome;
use crate::pipeline::Output;
use crate::receive::ReceiveShare;
use crate::rx_ring::RxRingShare;
use crate::sender::{Advice, QueueShare};
use crate::sink::{By, Names};
use crate::summary::RunSummary;
use std::collections::HashMap;

/// Most different facts that are remembered, and that are told.
const FACTS: (usize, usize) = (4_096, 20);
/// Least share of a cause that says something of the incident as a whole.
pub(in crate::bundle) const NOTABLE: f64 = 0.1;
/// Most targets and causes told.
const MOST: usize = 64;
/// Most sentences on what else played a part.
const MOST_FACTORS: usize = 24;

/// Gathers what the record says.
#[derive(Debug, Default)]
pub(in crate::bundle) struct Incident {
    moments: Moments,
    /// By cause and text without numbers.
    facts: HashMap<(Cause, String), Facts>,
    episodes: Vec<Episode>,
    signatures: Vec<String>,
    summary: RunSummary,
    worst: DurNs,
    lost_events: u64,
    retransmitted: u64,
    late_requests: u64,
    /// Who filled queues, and what would relieve them, a sentence each.
    queues: Vec<String>,
}

/// Facts that differ in numbers only.
#[derive(Debug, Default)]
struct Facts {
    /// The one of the longest part.
    text: String,
    longest: DurNs,
    /// Of all parts.
    time: DurNs,
    checks: u64,
}

impl Incident {
    /// Takes an output in; `names` have learnt all facts before it.
    pub(in crate::bundle) fn push(&mut self, output: &Output, names: &Names) {
        match output {
            Output::Journey(judged) => self.check(judged, names),
            Output::Lapse { target, lapse, .. } => {
                self.late_requests += 1;
                let text = format!("a periodic request came {} late", lapse.late_by);
                let cause = Some(crate::attribution::Lapse::CAUSE);
                self.add(lapse.due_at, "late", names.target(*target), (lapse.late_by, cause, text), names);
            }
            Output::Absence(absence) => {
                let target = names.target(absence.interface);
                let remark = absence.remark(&target).map_or_else(String::new, |remark| format!("; {remark}"));
                let text = format!("{} periodic requests never arrived{remark}", absence.requests);
                let time = absence.until.since(absence.due_at);
                self.add(absence.due_at, "absent", target, (time, absence.cause(), text), names);
            }
            Output::Gone { at, interface, reason } => {
                let target = names.target(*interface);
                let text = format!("{target} is no longer watched: {reason}");
                self.add(*at, "gone", target, (DurNs::ZERO, None, text), names);
            }
            Output::Episode(episode) => self.episodes.push(episode.clone()),
            Output::Loss(report) => self.lost_events = report.lost.saturating_add(report.unreadable),
            Output::Summary(summary) => self.summary = *summary,
            Output::Fact(Fact::Run(run)) => self.signatures = signatures(run),
            Output::Queue(share) if self.queues.len() < MOST => self.queue(share, names),
            Output::Receive(share) if self.queues.len() < MOST => self.receive(share),
            Output::RxRing(share) if self.queues.len() < MOST => self.rx_ring(share, names),
            Output::Fact(_) | Output::Activity(_) | Output::Softirq { .. } => {}
            Output::Queue(_) | Output::Receive(_) | Output::RxRing(_) | Output::Join(_) => {}
        }
    }

    /// Who filled the queue, and what would relieve it.
    fn queue(&mut self, share: &QueueShare, names: &Names) {
        let device = names.target(share.interface);
        let index = |ifindex| names.target(InterfaceId { ifindex, ..share.interface });
        self.queues.push(share.sentence(&device, &index));
        let name = names.interface(share.interface).map_or(device, |interface| interface.name.clone());
        self.advise(share.advice(&name));
    }

    /// What was lost to a CPU that receives, and what would relieve it.
    fn receive(&mut self, share: &ReceiveShare) {
        self.queues.push(share.sentence());
        self.advise(share.advice());
    }

    /// What a NIC itself lost, and what would have it lose fewer.
    fn rx_ring(&mut self, share: &RxRingShare, names: &Names) {
        let device = names.device(share.interface);
        self.queues.push(share.sentence(&device));
        self.advise(share.advice(&device));
    }

    fn advise(&mut self, advice: Vec<Advice>) {
        self.queues.extend(advice.into_iter().map(|Advice { step, fact }| format!("{fact}: {step}")));
    }

    fn add(
        &mut self,
        at: MonoNs,
        what: &str,
        target: String,
        (time, cause, text): (DurNs, Option<Cause>, String),
        names: &Names,
    ) {
        let cause = cause.map(|cause| cause.name().to_owned());
        let (target, text) = (clipped(&target), clipped(&text));
        let (happened_at, what) = (names.rfc3339(at), what.to_owned());
        let moment = MomentRecord { happened_at, what, target, ns: time.0, cause, text };
        self.moments.add(at, moment);
    }

    /// An open check is told again and again, so no fact is taken of it; and none of one under which events
    /// were lost, whose ledger is not believed.
    fn check(&mut self, judged: &Judged, names: &Names) {
        self.moments.check(judged, names);
        if !judged.slow {
            return;
        }
        self.worst = self.worst.max(judged.journey.elapsed());
        if judged.journey.outcome == Outcome::Open {
            return;
        }
        self.retransmitted += u64::from(judged.journey.retransmissions > 0);
        if matches!(judged.verdict, Verdict::Unresolved(Unresolved::EventsLost { .. })) {
            return;
        }
        for entry in &judged.ledger.entries {
            entry.evidence.iter().for_each(|fact| self.fact(entry.cause, fact, entry.time()));
        }
    }

    /// Facts that differ in numbers only are one, told as the longest of them was.
    fn fact(&mut self, cause: Cause, text: &str, time: DurNs) {
        let key = (cause, without_numbers(&clipped(text)));
        if self.facts.len() >= FACTS.0 && !self.facts.contains_key(&key) {
            return;
        }
        let fact = self.facts.entry(key).or_default();
        if time > fact.longest || fact.checks == 0 {
            (fact.longest, fact.text) = (time, clipped(text));
        }
        (fact.time, fact.checks) = (fact.time.plus(time), fact.checks + 1);
    }

    /// The record; `id` is its own.
    pub(in crate::bundle) fn finish(mut self, id: String, names: &Names) -> IncidentRecord {
        for (episode, told) in
            self.episodes.iter().flat_map(|episode| episode.stalls.iter().map(move |it| (episode, it)))
        {
            self.moments.add(told.from, stall(told, clipped(&names.target(episode.target)), names));
        }
        self.episodes.sort_by_key(|episode| std::cmp::Reverse(episode.slow + episode.lost));
        let causes = self.causes(names);
        let (symptom, counts, verdicts) = (self.symptom(names), self.counts(), self.verdicts(names));
        let (contributing_factors, evidence) = (self.factors(&causes, names), self.evidence());
        let (timeline, left_out) = self.moments.finish();
        let trigger = timeline.iter().find(|moment| ["slow", "lost", "open"].contains(&moment.what.as_str())).cloned();
        let time = |at| (self.summary.checks > 0).then(|| names.rfc3339(at));
        let mut contributing_factors = contributing_factors;
        if left_out > 0 {
            contributing_factors.push(format!("{left_out} shorter ones are not in the timeline"));
        }
        IncidentRecord {
            kind: "incident".to_owned(),
            id,
            started_at: time(self.summary.started_at),
            ended_at: time(self.summary.ended_at),
            symptom,
            counts,
            signatures: self.signatures,
            targets: self.episodes.iter().take(MOST).map(|it| clipped(&names.target(it.target))).collect(),
            components: components(&causes),
            verdicts,
            causes,
            trigger,
            contributing_factors,
            timeline,
            evidence,
            actions: Vec::new(),
        }
    }

    fn counts(&self) -> CountsRecord {
        let RunSummary { checks, slow, lost, open, unresolved, .. } = self.summary;
        let unexplained = self.episodes.iter().fold(DurNs::ZERO, |sum, episode| sum.plus(episode.unexplained));
        CountsRecord {
            checks,
            slow,
            lost,
            open,
            unresolved,
            unexplained_ns: unexplained.0,
            worst_ns: self.worst.0,
            lost_events: self.lost_events,
        }
    }

    fn symptom(&self, names: &Names) -> String {
        let RunSummary { checks, slow, lost, .. } = self.summary;
        if checks == 0 {
            return "no check was seen".to_owned();
        }
        let Some(worst) = self.episodes.first().filter(|episode| episode.slow + episode.lost > 0) else {
            return match checks {
                1 => "the only check was healthy".to_owned(),
                checks => format!("all of {checks} checks were healthy"),
            };
        };
        let usual = worst.baseline_p50.map_or_else(String::new, |usual| format!(", usually {usual}"));
        let others = self.episodes.iter().skip(1).filter(|episode| episode.slow + episode.lost > 0).count();
        let others =
            if others == 0 { String::new() } else { format!(" and {}", counted(others as u64, "more target")) };
        let target = names.target(worst.target);
        let worst = self.worst;
        let all = counted(checks, "check");
        let what = match (slow, lost) {
            (0, lost) => format!("{lost} of {all} lost"),
            (slow, 0) => format!("{slow} of {all} slow"),
            (slow, lost) => format!("{slow} of {all} slow and {lost} lost"),
        };
        clipped(&format!("{what} at {target}{others}: up to {worst}{usual}"))
    }

    fn verdicts(&self, names: &Names) -> Vec<VerdictRecord> {
        let affected = self.episodes.iter().filter(|episode| episode.slow + episode.lost > 0);
        affected.take(MOST).map(|episode| verdict(episode, names)).collect()
    }

    fn causes(&self, names: &Names) -> Vec<CauseRecord> {
        let parts = self.episodes.iter().flat_map(|episode| episode.causes.iter().map(move |part| (episode, part)));
        let mut causes: Vec<_> = parts.map(|(episode, part)| cause(part, names.target(episode.target))).collect();
        causes.sort_by(|one, two| two.share.total_cmp(&one.share).then(two.ns.cmp(&one.ns)));
        causes.truncate(MOST);
        causes
    }

    /// The verdict's own cause is no factor; the others are, if they are more than a trifle.
    fn factors(&self, causes: &[CauseRecord], names: &Names) -> Vec<String> {
        let mut factors = Vec::new();
        for (index, part) in causes.iter().enumerate().filter(|(_, part)| part.share >= NOTABLE / 2.0) {
            if index > 0 {
                let who = part.by().map_or(String::new(), |by| format!(", {by}"));
                factors.push(format!("{} of the delay at {}{who}", percent(&part.cause, part.share), part.target));
            }
        }
        for episode in &self.episodes {
            let service = episode.service.as_ref().map(|service| service.of_episode(episode.slow + episode.lost));
            factors.extend(service.map(|said| format!("at {}, {said}", names.target(episode.target))));
        }
        factors.extend(self.queues.iter().cloned());
        if self.retransmitted > 0 {
            factors.push(format!("{} sent more than once", counted(self.retransmitted, "slow or lost check")));
        }
        if self.late_requests > 0 {
            factors.push(format!("{} came late from outside", counted(self.late_requests, "periodic request")));
        }
        if self.lost_events > 0 {
            factors.push(format!("{} lost: what happened meanwhile is not judged", counted(self.lost_events, "event")));
        }
        factors.truncate(MOST_FACTORS);
        factors.iter().map(|factor| clipped(factor)).collect()
    }

    fn evidence(&self) -> Vec<EvidenceRecord> {
        let mut facts: Vec<_> = self.facts.iter().collect();
        facts.sort_by(|one, two| two.1.time.cmp(&one.1.time).then_with(|| one.0.cmp(two.0)));
        let told = facts.into_iter().take(FACTS.1).map(|((cause, _), fact)| EvidenceRecord {
            cause: cause.name().to_owned(),
            text: fact.text.clone(),
            ns: fact.time.0,
            checks: fact.checks,
        });
        told.collect()
    }
}

fn signatures(run: &RunFact) -> Vec<String> {
    run.signatures.iter().map(|signature| clipped(&signature.name)).collect()
}

fn verdict(episode: &Episode, names: &Names) -> VerdictRecord {
    let (status, cause, share, reason) = match &episode.verdict {
        Verdict::Healthy => ("healthy", None, None, None),
        Verdict::Cause { cause, share } => ("cause", Some(*cause), Some(*share), None),
        Verdict::Split { cause, share } => ("split", Some(*cause), Some(*share), None),
        Verdict::Unresolved(reason) => ("unresolved", None, None, Some(clipped(&reason.to_string()))),
    };
    VerdictRecord {
        target: clipped(&names.target(episode.target)),
        status: status.to_owned(),
        cause: cause.map(|cause| cause.name().to_owned()),
        share: share.map(rounded),
        reason,
        usual_ns: episode.baseline_p50.map(|usual| usual.0),
        affected: episode.slow + episode.lost,
    }
}

fn cause(part: &EpisodeCause, target: String) -> CauseRecord {
    CauseRecord {
        cause: part.cause.name().to_owned(),
        component: Component::of(part.cause),
        target: clipped(&target),
        ns: part.time.0,
        share: rounded(part.share),
        checks: part.checks,
        lost: part.lost,
        offender: part.offender.as_ref().map(OffenderRecord::new),
        offender_ns: part.offender.as_ref().map(|_| part.offender_time.0),
        meaning: part.meaning.map(str::to_owned),
        remedy: part.cause.row().remedy.to_owned(),
    }
}

impl CauseRecord {
    /// `by NAME (pid 1/2)`, or `most by` it, as outputs for people have it.
    #[must_use]
    pub fn by(&self) -> Option<String> {
        let offender = self.offender.as_ref()?.as_offender();
        // Older bundles do not tell how much it was.
        let time = self.offender_ns.map_or(DurNs(self.ns), DurNs);
        Some(By { offender: &offender, time, of: DurNs(self.ns) }.in_sentence())
    }
}

impl OffenderRecord {
    fn new(offender: &Offender) -> Self {
        let Offender { comm, task, cgroup, device, own, .. } = offender;
        let (comm, cgroup, device) = (clipped(comm), clipped(cgroup), clipped(device));
        Self { comm, tgid: task.tgid, tid: task.tid, cgroup, device, own: *own }
    }

    fn as_offender(&self) -> Offender {
        let Self { comm, tgid, tid, cgroup, device, own } = self.clone();
        Offender { comm, task: TaskId { tgid, tid }, cgroup, device, own, guest: false }
    }
}

fn components(causes: &[CauseRecord]) -> Vec<Component> {
    let mut components = Vec::new();
    for cause in causes.iter().filter(|cause| cause.share >= NOTABLE) {
        if !components.contains(&cause.component) {
            components.push(cause.component);
        }
    }
    components
}

/// What facts have in common that differ in times, counts and threads only.
fn without_numbers(text: &str) -> String {
    let is_number = |word: &&str| word.contains(|c: char| c.is_ascii_digit()) || ["ns", "µs", "ms", "s"].contains(word);
    text.split(' ').filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ")
}

/// Four decimals are as much as a share can mean.
fn rounded(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}
