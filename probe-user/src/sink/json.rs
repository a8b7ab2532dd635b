//! JSON lines: one object a line, `type` first, names with units, integers in nanoseconds.
//!
//! Every field written here has a row in [`FIELDS`](crate::catalog::FIELDS), and the other way
//! round; none is ever renamed.

use super::counters::CountersField;
use super::losses::LossesField;
use super::queue::{FillerField, QueueLine};
use super::receive::ReceiveLine;
use super::rx_ring::RxRingLine;
use super::{Context, Names, Sink};
use crate::attribution::{
    Absence, Cause, Entry, Episode, EpisodeCause, Judged, Lapse, LossPlaceRow, LostAt, Offender, Service, Stall,
    StalledVm, Verdict, Victim,
};
use crate::clock::MonoNs;
use crate::event::{InterfaceId, TaskId};
use crate::join::{GuestHalf, HalfCounts, JoinReport};
use crate::journey::{Journey, JourneyId, Loss, Outcome, PacketDrop, Perspective, Stamp};
use crate::loss::LossReport;
use crate::pipeline::Output;
use crate::summary::RunSummary;
use probe_wire::Sighting;
use serde::Serialize;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Writes every output as a line of JSON.
#[derive(Debug)]
pub struct JsonSink<W> {
    to: W,
}

impl<W: Write> JsonSink<W> {
    /// Writes to `to`, one `write` call a line, flushed.
    pub const fn new(to: W) -> Self {
        Self { to }
    }

    /// What it wrote to.
    pub(crate) fn into_inner(self) -> W {
        self.to
    }

    fn line(&mut self, object: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(object)?;
        line.push(b'\n');
        self.to.write_all(&line)?;
        self.to.flush()
    }
}

impl<W: Write + Send + std::fmt::Debug> Sink for JsonSink<W> {
    fn write(&mut self, output: &Output, context: Context<'_>) -> io::Result<()> {
        let names = context.names;
        match output {
            Output::Journey(judged) => self.line(&JourneyLine::new(judged, names)),
            Output::Lapse { id, signature, target, lapse } => {
                self.line(&LapseLine::new(*id, names.signature(*signature), names.target(*target), lapse, names))
            }
            Output::Absence(absence) => self.line(&AbsenceLine::new(absence, names)),
            Output::Gone { at, interface, reason } => self.line(&NoticeLine::gone(*at, *interface, reason, names)),
            Output::Episode(episode) => self.line(&EpisodeLine::new(episode, names)),
            Output::Join(report) => self.line(&JoinLine::new(report)),
            Output::Queue(share) => self.line(&QueueLine::new(share, names)),
            Output::Receive(share) => self.line(&ReceiveLine::new(share, names)),
            Output::RxRing(share) => self.line(&RxRingLine::new(share, names)),
            Output::Loss(report) => self.line(&loss_line(report, context.dropped)),
            Output::Summary(summary) => self.line(&SummaryLine::new(summary, names)),
            Output::Fact(_) | Output::Activity(_) | Output::Softirq { .. } => Ok(()),
        }
    }

    fn refresh(&mut self, _: Context<'_>) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Serialize)]
struct JourneyLine<'a> {
    r#type: &'static str,
    id: String,
    signature: &'a str,
    target: String,
    perspective: &'static str,
    source: String,
    destination: String,
    outcome: &'static str,
    outcome_reason: Option<String>,
    started_at: String,
    elapsed_ns: u64,
    slow: bool,
    retransmissions: u32,
    stages: Vec<StageField>,
    drops: Vec<DropField>,
    loss: Option<LostAtField>,
    ledger: Vec<EntryField<'a>>,
    unexplained_ns: u64,
    unexplained_reasons: &'a [String],
    verdict: VerdictField,
    guest: Option<GuestField<'a>>,
}

impl<'a> JourneyLine<'a> {
    fn new(judged: &'a Judged, names: &'a Names) -> Self {
        let Judged { journey, ledger, slow, verdict, .. } = judged;
        let start = journey.started_at();
        Self {
            r#type: "journey",
            id: journey.id.0.to_string(),
            signature: names.signature(journey.signature),
            target: names.target(journey.target),
            perspective: perspective_name(journey.perspective),
            source: endpoint(&journey.request, journey.request.source, journey.request.source_port),
            destination: endpoint(&journey.request, journey.request.destination, journey.request.destination_port),
            outcome: outcome_name(&journey.outcome),
            outcome_reason: outcome_reason(&journey.outcome, names),
            started_at: names.rfc3339(start),
            elapsed_ns: journey.elapsed().0,
            slow: *slow,
            retransmissions: journey.retransmissions,
            stages: journey.stamps.iter().map(|stamp| StageField::new(stamp, start, names)).collect(),
            drops: drops(journey, start, names),
            loss: judged.lost.as_ref().map(|lost| LostAtField::new(lost, names)),
            ledger: ledger.entries.iter().map(|entry| EntryField::new(entry, ledger.from)).collect(),
            unexplained_ns: ledger.unexplained.0,
            unexplained_reasons: &ledger.unexplained_reasons,
            verdict: VerdictField::new(verdict).of(judged.service.as_ref(), Service::of_check),
            guest: judged.guest.as_deref().map(GuestField::new),
        }
    }
}

/// What is known of the half inside the guest.
#[derive(Serialize)]
struct GuestField<'a> {
    pairing: &'static str,
    reason: Option<&'a str>,
    id: Option<String>,
    with_vm_ns: Option<u64>,
    inside_ns: Option<u64>,
    overhead_ns: Option<i64>,
}

impl<'a> GuestField<'a> {
    fn new(half: &'a GuestHalf) -> Self {
        let GuestHalf { pairing, id, residence } = half;
        Self {
            pairing: pairing.name(),
            reason: pairing.reason(),
            id: id.map(|id| id.0.to_string()),
            with_vm_ns: residence.map(|residence| residence.host.0),
            inside_ns: residence.map(|residence| residence.guest.0),
            overhead_ns: residence.map(|residence| residence.overhead()),
        }
    }
}

fn drops(journey: &Journey, start: MonoNs, names: &Names) -> Vec<DropField> {
    journey.drops.iter().map(|drop| DropField::new(drop, start, names)).collect()
}

#[derive(Serialize)]
struct StageField {
    stage: &'static str,
    at_ns: u64,
    cpu: u32,
    queue: u32,
    ifindex: u32,
    interface: Option<String>,
    tgid: u32,
    tid: u32,
}

impl StageField {
    fn new(stamp: &Stamp, start: MonoNs, names: &Names) -> Self {
        Self {
            stage: stamp.stage.name(),
            at_ns: stamp.at.since(start).0,
            cpu: stamp.cpu,
            queue: stamp.queue,
            ifindex: stamp.interface.ifindex,
            interface: names.interface(stamp.interface).map(|interface| interface.name.clone()),
            tgid: stamp.task.tgid,
            tid: stamp.task.tid,
        }
    }
}

#[derive(Serialize)]
struct DropField {
    at_ns: u64,
    reason: String,
    location: String,
    ifindex: u32,
    interface: Option<String>,
    reply: bool,
}

impl DropField {
    fn new(drop: &PacketDrop, start: MonoNs, names: &Names) -> Self {
        Self {
            at_ns: drop.at.since(start).0,
            reason: names.drop_reason(drop.reason),
            location: names.symbol(drop.location),
            ifindex: drop.interface.ifindex,
            interface: names.interface(drop.interface).map(|interface| interface.name.clone()),
            reply: drop.reply,
        }
    }
}

#[derive(Serialize)]
struct LostAtField {
    place: &'static str,
    meaning: &'static str,
    stage: &'static str,
    span: &'static str,
    reply: bool,
    reason: Option<String>,
    location: Option<String>,
    ifindex: u32,
    interface: Option<String>,
    counter: Option<&'static str>,
    send_result: Option<String>,
    send_tid: u32,
    queue: Option<u32>,
    senders: Vec<FillerField>,
    senders_unknown: Option<&'static str>,
}

impl LostAtField {
    fn new(lost: &LostAt, names: &Names) -> Self {
        let LossPlaceRow { name, meaning, counter, .. } = lost.place.row();
        let drop = lost.drop.as_ref();
        let (filled, unknown) = match &lost.filled {
            Some(Ok(wait)) => (Some(wait), None),
            Some(Err(reason)) => (None, Some(*reason)),
            None => (None, None),
        };
        Self {
            place: name,
            meaning,
            stage: lost.stage.name(),
            span: lost.span.name(),
            reply: lost.reply,
            reason: drop.map(|drop| names.drop_reason(drop.reason)),
            location: drop.map(|drop| names.symbol(drop.location)),
            ifindex: lost.interface.ifindex,
            interface: names.interface(lost.interface).map(|interface| interface.name.clone()),
            counter: Some(*counter).filter(|counter| !counter.is_empty()),
            send_result: lost.sent.map(|sent| sent.to_string()),
            send_tid: lost.sender.tid,
            queue: filled.map(|wait| wait.queue()),
            senders: filled.map(|wait| FillerField::all(wait, names)).unwrap_or_default(),
            senders_unknown: unknown,
        }
    }
}

#[derive(Serialize)]
struct EntryField<'a> {
    cause: &'static str,
    at_ns: u64,
    ns: u64,
    span: &'static str,
    offender: Option<OffenderField<'a>>,
    path: Vec<&'static str>,
    evidence: &'a [String],
}

impl<'a> EntryField<'a> {
    fn new(entry: &'a Entry, start: MonoNs) -> Self {
        Self {
            cause: entry.cause.name(),
            at_ns: entry.from.since(start).0,
            ns: entry.time().0,
            span: entry.span.name(),
            offender: entry.offender.as_ref().map(OffenderField::new),
            path: entry.path.iter().map(|cause| cause.name()).collect(),
            evidence: &entry.evidence,
        }
    }
}

#[derive(Serialize)]
struct OffenderField<'a> {
    comm: &'a str,
    tgid: u32,
    tid: u32,
    cgroup: &'a str,
    device: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    guest: bool,
    own: bool,
}

impl<'a> OffenderField<'a> {
    fn new(offender: &'a Offender) -> Self {
        let Offender { comm, task, cgroup, device, guest, own } = offender;
        Self { comm, tgid: task.tgid, tid: task.tid, cgroup, device, guest: *guest, own: *own }
    }
}

#[derive(Serialize)]
struct VerdictField {
    status: &'static str,
    cause: Option<&'static str>,
    share: Option<f64>,
    reason: Option<String>,
    service: Option<&'static str>,
    service_reason: Option<String>,
}

impl VerdictField {
    fn new(verdict: &Verdict) -> Self {
        let plain =
            |status| Self { status, cause: None, share: None, reason: None, service: None, service_reason: None };
        let owned = |status, cause: Cause, share| Self {
            cause: Some(cause.name()),
            share: Some(rounded(share)),
            ..plain(status)
        };
        match verdict {
            Verdict::Healthy => plain("healthy"),
            Verdict::Cause { cause, share } => owned("cause", *cause, *share),
            Verdict::Split { cause, share } => owned("split", *cause, *share),
            Verdict::Unresolved(reason) => Self { reason: Some(reason.to_string()), ..plain("unresolved") },
        }
    }

    fn of(self, service: Option<&Service>, said: impl FnOnce(&Service) -> String) -> Self {
        Self { service: service.map(|service| service.condition.name()), service_reason: service.map(said), ..self }
    }
}

#[derive(Serialize)]
struct LapseLine<'a> {
    r#type: &'static str,
    id: String,
    signature: &'a str,
    target: String,
    due_at: String,
    late_ns: u64,
    cause: &'static str,
}

impl<'a> LapseLine<'a> {
    fn new(id: JourneyId, signature: &'a str, target: String, lapse: &Lapse, names: &Names) -> Self {
        Self {
            r#type: "lapse",
            id: id.0.to_string(),
            signature,
            target,
            due_at: names.rfc3339(lapse.due_at),
            late_ns: lapse.late_by.0,
            cause: Lapse::CAUSE.name(),
        }
    }
}

#[derive(Serialize)]
struct AbsenceLine<'a> {
    r#type: &'static str,
    signature: &'a str,
    target: String,
    due_at: String,
    until_at: String,
    requests: u64,
    place: &'static str,
    cause: Option<&'static str>,
    suspect: Option<&'static str>,
    nic_lost: Option<u64>,
    nic_counter: Option<String>,
    perhaps: u64,
    reason: Option<String>,
}

impl<'a> AbsenceLine<'a> {
    fn new(absence: &Absence, names: &'a Names) -> Self {
        Self {
            r#type: "absence",
            signature: names.signature(absence.signature),
            target: names.target(absence.interface),
            due_at: names.rfc3339(absence.due_at),
            until_at: names.rfc3339(absence.until),
            requests: absence.requests,
            place: Absence::PLACE.name(),
            cause: absence.cause().map(Cause::name),
            suspect: absence.suspect().map(Cause::name),
            nic_lost: absence.unseen.as_ref().map(|loss| loss.packets),
            nic_counter: absence.unseen.as_ref().map(|loss| loss.counter.clone()),
            perhaps: absence.perhaps_by_nic(),
            reason: absence.remark(&names.target(absence.interface)),
        }
    }
}

#[derive(Serialize)]
struct NoticeLine<'a> {
    r#type: &'static str,
    notice: &'static str,
    noticed_at: String,
    ifindex: u32,
    interface: Option<String>,
    target: String,
    reason: &'a str,
}

impl<'a> NoticeLine<'a> {
    fn gone(at: MonoNs, interface: InterfaceId, reason: &'a str, names: &Names) -> Self {
        Self {
            r#type: "notice",
            notice: "interface_gone",
            noticed_at: names.rfc3339(at),
            ifindex: interface.ifindex,
            interface: names.interface(interface).map(|interface| interface.name.clone()),
            target: names.target(interface),
            reason,
        }
    }
}

#[derive(Serialize)]
struct EpisodeLine<'a> {
    r#type: &'static str,
    target: String,
    started_at: String,
    ended_at: String,
    checks: u64,
    slow: u64,
    lost: u64,
    open: u64,
    unresolved: u64,
    baseline_p50_ns: Option<u64>,
    causes: Vec<EpisodeCauseField<'a>>,
    stalls: Vec<StallField<'a>>,
    unexplained_ns: u64,
    verdict: VerdictField,
    losses: LossesField,
}

impl<'a> EpisodeLine<'a> {
    fn new(episode: &'a Episode, names: &Names) -> Self {
        Self {
            r#type: "episode",
            target: names.target(episode.target),
            started_at: names.rfc3339(episode.started_at),
            ended_at: names.rfc3339(episode.ended_at),
            checks: episode.checks,
            slow: episode.slow,
            lost: episode.lost,
            open: episode.open,
            unresolved: episode.unresolved,
            baseline_p50_ns: episode.baseline_p50.map(|usual| usual.0),
            causes: episode.causes.iter().map(EpisodeCauseField::new).collect(),
            stalls: episode.stalls.iter().map(|stall| StallField::new(stall, names)).collect(),
            unexplained_ns: episode.unexplained.0,
            verdict: VerdictField::new(&episode.verdict)
                .of(episode.service.as_ref(), |service| service.of_episode(episode.slow + episode.lost)),
            losses: LossesField::new(&episode.losses),
        }
    }
}

#[derive(Serialize)]
struct StallField<'a> {
    device: &'a str,
    started_at: String,
    ended_at: String,
    causes: Vec<&'static str>,
    checks: u64,
    held: Vec<String>,
    vms: Vec<StalledVmField>,
    offender: Option<OffenderField<'a>>,
    victims: Vec<VictimField<'a>>,
}

#[derive(Serialize)]
struct StalledVmField {
    vm: String,
    checks: u64,
}

#[derive(Serialize)]
struct VictimField<'a> {
    comm: &'a str,
    tgid: u32,
    tid: u32,
}

impl<'a> StallField<'a> {
    fn new(stall: &'a Stall, names: &Names) -> Self {
        let victim = |victim: &'a Victim| {
            let TaskId { tgid, tid } = victim.task;
            VictimField { comm: &victim.comm, tgid, tid }
        };
        let vm = |vm: &StalledVm| StalledVmField { vm: names.target(vm.tap), checks: vm.checks };
        Self {
            device: &stall.device,
            started_at: names.rfc3339(stall.from),
            ended_at: names.rfc3339(stall.to),
            causes: stall.causes.iter().map(|cause| cause.name()).collect(),
            checks: stall.checks,
            held: stall.held.iter().map(|check| check.0.to_string()).collect(),
            vms: stall.vms.iter().map(vm).collect(),
            offender: stall.offender.as_ref().map(OffenderField::new),
            victims: stall.victims.iter().map(victim).collect(),
        }
    }
}

#[derive(Serialize)]
struct EpisodeCauseField<'a> {
    cause: &'static str,
    ns: u64,
    share: f64,
    checks: u64,
    lost: u64,
    offender: Option<OffenderField<'a>>,
    offender_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<CountersField>,
}

impl<'a> EpisodeCauseField<'a> {
    fn new(part: &'a EpisodeCause) -> Self {
        Self {
            cause: part.cause.name(),
            ns: part.time.0,
            share: rounded(part.share),
            checks: part.checks,
            lost: part.lost,
            offender: part.offender.as_ref().map(OffenderField::new),
            offender_ns: part.offender_time.0,
            counters: part.counted.as_ref().map(CountersField::new),
        }
    }
}

/// From which end a check is seen, as published.
pub(super) const fn perspective_name(perspective: Perspective) -> &'static str {
    match perspective {
        Perspective::Served => "served",
        Perspective::Sent => "sent",
    }
}

/// How a check ended, as published.
pub(super) const fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Replied => "replied",
        Outcome::Lost(_) => "lost",
        Outcome::Open => "open",
        Outcome::Ambiguous => "ambiguous",
        Outcome::Broken(_) => "broken",
    }
}

/// Why it ended so, where there is something to say.
pub(crate) fn outcome_reason(outcome: &Outcome, names: &Names) -> Option<String> {
    match outcome {
        Outcome::Lost(Loss::Dropped(drop)) => {
            let what = if drop.reply { "reply" } else { "request" };
            Some(format!("{what} dropped: {}", names.drop_reason(drop.reason)))
        }
        Outcome::Lost(Loss::TimedOut) => Some(match names.run() {
            Some(run) => format!("no answer within {}", run.lost_after),
            None => "no answer".to_owned(),
        }),
        Outcome::Broken(reason) => Some((*reason).to_owned()),
        Outcome::Replied | Outcome::Open | Outcome::Ambiguous => None,
    }
}

/// An address with its port, without one for protocols that have none.
pub(crate) fn endpoint(sighting: &Sighting, address: [u8; 16], port: u16) -> String {
    let ip: IpAddr = Ipv6Addr::from(address).to_canonical();
    if matches!(sighting.protocol, 6 | 17) { SocketAddr::new(ip, port).to_string() } else { ip.to_string() }
}

/// Four decimals are as much as a share can mean.
fn rounded(share: f64) -> f64 {
    (share * 1e4).round() / 1e4
}
/// The ledger of losses, with what this sink's outlet has dropped.
fn loss_line(report: &LossReport, dropped: u64) -> LossReport {
    LossReport { dropped: report.dropped + dropped, ..report.clone() }
}

#[derive(Serialize)]
struct JoinLine {
    r#type: &'static str,
    host: HalvesField,
    guest: HalvesField,
    overhead_p50_ns: Option<u64>,
    overhead_max_ns: Option<u64>,
    guest_lost: u64,
}

#[derive(Serialize)]
struct HalvesField {
    halves: u64,
    joined: u64,
    doubted: u64,
    negative: u64,
    mismatched: u64,
    ambiguous: u64,
    alone: u64,
}

impl JoinLine {
    fn new(report: &JoinReport) -> Self {
        Self {
            r#type: "join",
            host: HalvesField::new(&report.host),
            guest: HalvesField::new(&report.guest),
            overhead_p50_ns: report.overhead_p50.map(|overhead| overhead.0),
            overhead_max_ns: report.overhead_max.map(|overhead| overhead.0),
            guest_lost: report.guest_lost,
        }
    }
}

impl HalvesField {
    const fn new(counts: &HalfCounts) -> Self {
        let HalfCounts { halves, joined, doubted, negative, mismatched, ambiguous, alone } = *counts;
        Self { halves, joined, doubted, negative, mismatched, ambiguous, alone }
    }
}

#[derive(Serialize)]
struct SummaryLine {
    r#type: &'static str,
    started_at: Option<String>,
    ended_at: Option<String>,
    elapsed_ns: u64,
    targets: u64,
    checks: u64,
    slow: u64,
    lost: u64,
    open: u64,
    ambiguous: u64,
    broken: u64,
    unresolved: u64,
    losses: LossesField,
    never_arrived: u64,
}

impl SummaryLine {
    fn new(summary: &RunSummary, names: &Names) -> Self {
        let time = |at| (summary.checks > 0).then(|| names.rfc3339(at));
        Self {
            r#type: "summary",
            started_at: time(summary.started_at),
            ended_at: time(summary.ended_at),
            elapsed_ns: summary.ended_at.since(summary.started_at).0,
            targets: summary.targets,
            checks: summary.checks,
            slow: summary.slow,
            lost: summary.lost,
            open: summary.open,
            ambiguous: summary.ambiguous,
            broken: summary.broken,
            unresolved: summary.unresolved,
            losses: LossesField::new(&summary.losses),
            never_arrived: summary.never_arrived,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::{Context, JsonSink, Sink};
    use crate::catalog::{FIELDS, Field, Shape};
    use crate::pipeline::Output;
    use serde_json::Value;
    use std::collections::BTreeMap;

    fn written(outputs: &[Output]) -> Vec<Value> {
        let names = sample::names();
        let mut sink = JsonSink::new(Vec::new());
        for output in outputs {
            sink.write(output, Context { names: &names, dropped: 2 }).unwrap();
        }
        sink.to
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    fn every_kind() -> Vec<Value> {
        let outputs =
            [sample::slow(), sample::held(), sample::lost(), sample::vanished(), sample::open(5), sample::healthy()];
        let outputs = outputs.into_iter().chain([sample::joined()]);
        let mut outputs: Vec<Output> = outputs.map(|judged| Output::Journey(Box::new(judged))).collect();
        outputs.push(sample::lapse());
        outputs.push(sample::absence());
        outputs.push(sample::absence_by_ring());
        outputs.push(sample::gone());
        outputs.push(Output::Episode(sample::episode()));
        outputs.push(Output::Join(sample::join()));
        outputs.extend(sample::queues().into_iter().map(|share| Output::Queue(Box::new(share))));
        outputs.push(Output::Receive(Box::new(sample::receive())));
        outputs.push(Output::RxRing(Box::new(sample::rx_ring())));
        outputs.push(Output::Loss(sample::loss()));
        outputs.push(Output::Summary(sample::summary(4)));
        outputs.push(Output::Summary(sample::summary(0)));
        written(&outputs)
    }

    /// Names and values of everything in `value`, as the catalogue spells names.
    fn flatten<'a>(name: &str, value: &'a Value, into: &mut BTreeMap<String, Vec<&'a Value>>) {
        into.entry(name.to_owned()).or_default().push(value);
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                    flatten(&name, value, into);
                }
            }
            Value::Array(elements) => {
                for element in elements.iter().filter(|element| element.is_object()) {
                    flatten(&format!("{name}[]"), element, into);
                }
            }
            _ => {}
        }
    }

    fn fits(field: &Field, value: &Value) -> bool {
        match value {
            Value::Null => field.nullable,
            Value::Bool(_) => field.shape == Shape::Boolean,
            Value::Number(number) if number.is_u64() => field.shape == Shape::Integer,
            Value::Number(_) => field.shape == Shape::Float,
            Value::String(_) => field.shape == Shape::String,
            Value::Array(_) => field.shape == Shape::List,
            Value::Object(_) => field.shape == Shape::Object,
        }
    }

    #[test]
    fn the_catalogue_lists_what_is_written_and_nothing_else() {
        for record in [
            "journey", "lapse", "absence", "notice", "episode", "join", "queue", "receive", "rx_ring", "loss",
            "summary",
        ] {
            let lines = every_kind();
            let mut found = BTreeMap::new();
            lines.iter().filter(|line| line["type"] == record).for_each(|line| flatten("", line, &mut found));
            found.retain(|name, _| !name.is_empty() && !name.ends_with("[]"));
            let listed: Vec<&Field> = FIELDS.iter().filter(|field| field.record == record).collect();
            let mut names: Vec<&str> = listed.iter().map(|field| field.name).collect();
            names.sort_unstable();
            assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), names, "{record}");
            for field in listed {
                for value in &found[field.name] {
                    assert!(fits(field, value), "{record} {}: {value}", field.name);
                }
            }
        }
    }

    #[test]
    fn a_journey_reads_as_the_contract_says() {
        let line = &written(&[Output::Journey(Box::new(sample::slow()))])[0];
        assert_eq!(line["id"], "7");
        assert_eq!(line["started_at"], "2020-09-13T12:26:40.000000001Z");
        assert_eq!(line["elapsed_ns"], 860_000_000);
        assert_eq!(line["stages"][1]["at_ns"], 1_000);
        assert_eq!(line["ledger"][1]["cause"], "app.futex");
        assert_eq!(line["ledger"][1]["offender"]["tid"], 12);
        assert_eq!(line["verdict"]["share"], 0.9988);
        assert_eq!(line["source"], "10.0.0.1:4000");
    }

    #[test]
    fn what_the_outlet_dropped_is_in_the_loss_line() {
        assert_eq!(written(&[Output::Loss(sample::loss())])[0]["dropped"], 2);
    }

    #[test]
    fn type_comes_first() {
        let names = sample::names();
        let mut sink = JsonSink::new(Vec::new());
        for output in [Output::Episode(sample::episode()), Output::Loss(sample::loss())] {
            sink.write(&output, Context { names: &names, dropped: 0 }).unwrap();
        }
        let text = String::from_utf8(sink.to).unwrap();
        assert!(text.lines().all(|line| line.starts_with("{\"type\":\"")), "{text}");
    }
}
