//! `whylag incident show`: what a bundle is about, on one screen or two.

use super::{ShowArgs, whole};
use crate::bundle::{Addresses, Bundle, BundleError, IncidentRecord, Manifest, MomentRecord};
use crate::cli::args::Format;
use crate::cli::{Outcome, terminal};
use crate::clock::DurNs;
use crate::host::{CostFact, HostFact};
use crate::sink::printable;
use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};

/// Most bytes of a member that is shown.
const LARGEST: u64 = 64 << 20;
/// Most lines of a list for people; JSON has all.
const MOST_LINES: usize = 12;

/// What of a bundle is shown.
struct Shown {
    incident: IncidentRecord,
    manifest: Manifest,
    /// A line of JSON.
    losses: Option<String>,
    host: Vec<HostFact>,
    cost: Option<CostFact>,
    signer: Option<String>,
}

/// Runs the command.
pub(super) fn run(args: &ShowArgs) -> anyhow::Result<Outcome> {
    let mut bundle = whole(&args.bundle)?;
    let shown = Shown::read(&mut bundle).with_context(|| format!("{}", args.bundle.display()))?;
    let text = match args.format {
        Format::Json => shown.json()?,
        Format::Text => terminal::wrapped(&shown.text()),
    };
    io::stdout().lock().write_all(text.as_bytes()).context("cannot write the incident")?;
    Ok(Outcome::Healthy)
}

impl Shown {
    fn read(bundle: &mut Bundle<File>) -> Result<Self, BundleError> {
        Ok(Self {
            incident: bundle.incident()?,
            losses: line(bundle, "losses.json")?,
            host: member(bundle, "host.json")?.unwrap_or_default(),
            cost: member(bundle, "cost.json")?,
            signer: bundle.signer().map(|key| key.fingerprint()),
            manifest: bundle.manifest().clone(),
        })
    }

    fn json(&self) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Host<'a> {
            r#type: &'static str,
            facts: &'a [HostFact],
        }
        #[derive(Serialize)]
        struct Cost<'a> {
            r#type: &'static str,
            #[serde(flatten)]
            cost: &'a CostFact,
        }
        let mut lines = vec![serde_json::to_string(&self.incident)?, serde_json::to_string(&self.manifest)?];
        if !self.host.is_empty() {
            lines.push(serde_json::to_string(&Host { r#type: "host", facts: &self.host })?);
        }
        if let Some(cost) = &self.cost {
            lines.push(serde_json::to_string(&Cost { r#type: "cost", cost })?);
        }
        if let Some(losses) = &self.losses {
            lines.push(losses.clone());
        }
        Ok(lines.join("\n") + "\n")
    }

    fn text(&self) -> String {
        let mut page = Page(String::new());
        self.about(&mut page);
        self.why(&mut page);
        page.list("host", self.host.iter().filter_map(fact).chain(changed(&self.host)));
        self.ending(&mut page);
        page.0
    }

    fn about(&self, page: &mut Page) {
        let IncidentRecord { id, symptom, started_at, ended_at, signatures, targets, components, .. } = &self.incident;
        page.line("incident", id);
        page.line("symptom", symptom);
        let time = |at: &Option<String>| at.as_deref().and_then(|at| at.get(..23)).unwrap_or("-").to_owned();
        page.line("time", &format!("{} to {} UTC", time(started_at), time(ended_at)));
        page.line("checks", &signatures.join(", "));
        page.line("targets", &targets.join(", "));
        page.line("component", &components.iter().map(|it| it.name()).collect::<Vec<_>>().join(", "));
        page.list(
            "verdict",
            self.incident.verdicts.iter().map(|verdict| {
                let share = verdict.share.map_or_else(String::new, |share| format!(" {:.0} %", share * 100.0));
                let reason = verdict.reason.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
                let cause = verdict.cause.as_deref().map_or_else(String::new, |cause| format!(" {cause}"));
                format!("{}: {}{cause}{share}{reason}", verdict.target, verdict.status)
            }),
        );
    }

    fn why(&self, page: &mut Page) {
        let incident = &self.incident;
        page.list(
            "causes",
            incident.causes.iter().map(|part| {
                let who = part.offender.as_ref().map(|offender| match offender.comm.as_str() {
                    "" => format!(", {}", offender.device),
                    comm => format!(", {comm} (pid {}/{}) {}", offender.tgid, offender.tid, offender.cgroup),
                });
                let (time, share) = (DurNs(part.ns), part.share * 100.0);
                format!("{} {share:.0} %, {time} of {} checks{}", part.cause, part.checks, who.unwrap_or_default())
            }),
        );
        if let Some(part) = incident.causes.first() {
            page.line("what helps", &part.remedy);
        }
        if let Some(moment) = &incident.trigger {
            page.line("trigger", &format!("{} {}", clock(&moment.happened_at), moment.text));
        }
        page.list("factors", incident.contributing_factors.iter().cloned());
        page.list("timeline", incident.timeline.chunk_by(are_alike).map(moments));
        page.list("evidence", incident.evidence.iter().map(|fact| format!("{}: {}", fact.cause, fact.text)));
        page.list("actions", incident.actions.iter().cloned());
    }

    fn ending(&self, page: &mut Page) {
        let losses: Option<Value> = self.losses.as_deref().and_then(|losses| serde_json::from_str(losses).ok());
        let count = |name: &str| losses.as_ref().and_then(|losses| losses.get(name)).and_then(Value::as_u64);
        let [emitted, lost, late] = ["emitted", "lost", "late"].map(|name| count(name).unwrap_or(0));
        page.line("losses", &format!("{lost} of {emitted} events lost, {late} late"));
        if let Some(cost) = &self.cost {
            page.list("own cost", spent(cost));
        }
        let manifest = &self.manifest;
        page.list("left out", manifest.left_out.iter().map(|left| format!("{}: {}", left.what, left.why)));
        page.list("kept", manifest.kept.iter().cloned());
        page.list(
            "members",
            manifest.members.iter().map(|member| format!("{} ({} bytes): {}", member.name, member.bytes, member.about)),
        );
        let addresses = match manifest.addresses {
            Addresses::Pseudonyms => "addresses are pseudonyms",
            Addresses::Plain => "addresses are as they were seen",
        };
        page.line("made", &format!("{} by whylag {}; {addresses}", manifest.created_at, manifest.whylag));
        page.line(
            "signed",
            &match &self.signer {
                Some(key) => format!("by key {key}; `whylag incident verify --key` checks whose that is"),
                None => "no".to_owned(),
            },
        );
    }
}

/// Checks one after another at the same target, with the same end and cause.
fn are_alike(one: &MomentRecord, next: &MomentRecord) -> bool {
    let key = |moment: &MomentRecord| (moment.what.clone(), moment.target.clone(), moment.cause.clone());
    ["slow", "lost", "open"].contains(&one.what.as_str()) && key(one) == key(next)
}

/// Moments that are alike, in a line: what they have in common, and the worst of them.
fn moments(alike: &[MomentRecord]) -> String {
    let (Some(first), Some(last)) = (alike.first(), alike.last()) else { return String::new() };
    let begin = clock(&first.happened_at);
    let Some(worst) = alike.iter().max_by_key(|moment| moment.ns).filter(|_| alike.len() > 1) else {
        return format!("{begin} {}", first.text);
    };
    format!("{begin} to {} {} {} checks; the worst: {}", clock(&last.happened_at), alike.len(), first.what, worst.text)
}

/// A member as JSON; `None` if the bundle has none of that name.
fn member<T: DeserializeOwned>(bundle: &mut Bundle<File>, name: &str) -> Result<Option<T>, BundleError> {
    let damaged = |error| BundleError::Damaged { what: format!("{name} makes no sense: {error}") };
    text(bundle, name)?.map(|text| serde_json::from_str(&text).map_err(damaged)).transpose()
}

/// A member that is one object of JSON, in one line.
fn line(bundle: &mut Bundle<File>, name: &str) -> Result<Option<String>, BundleError> {
    let object: Option<serde_json::Map<String, Value>> = member(bundle, name)?;
    let text = text(bundle, name)?.filter(|_| object.is_some());
    // Line breaks can only stand between its parts.
    Ok(text.map(|text| text.trim().replace(['\r', '\n'], " ")))
}

fn text(bundle: &mut Bundle<File>, name: &str) -> Result<Option<String>, BundleError> {
    if bundle.manifest().member(name).is_none() {
        return Ok(None);
    }
    let damaged = |_| BundleError::Damaged { what: format!("{name} is no text") };
    String::from_utf8(bundle.content(name, LARGEST)?).map(Some).map_err(damaged)
}

/// Lines with what they are about in front.
struct Page(String);

impl Page {
    fn line(&mut self, about: &str, text: &str) {
        if !text.is_empty() {
            let _ = writeln!(self.0, "{about:<11} {}", printable(text));
        }
    }

    /// The first of them, and how many more there are.
    fn list(&mut self, about: &str, lines: impl IntoIterator<Item = String>) {
        let lines: Vec<_> = lines.into_iter().collect();
        for (index, text) in lines.iter().take(MOST_LINES).enumerate() {
            self.line(if index == 0 { about } else { "" }, text);
        }
        if lines.len() > MOST_LINES {
            self.line("", &format!("… and {} more, with --format json", lines.len() - MOST_LINES));
        }
    }
}

/// `03:04:05.678` of RFC 3339.
fn clock(at: &str) -> &str {
    at.get(11..23).unwrap_or(at)
}

fn gib(bytes: u64) -> String {
    let tenths = bytes / (1 << 30) * 10 + bytes % (1 << 30) * 10 / (1 << 30);
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

/// A fact in a line; settings and counters are too many.
fn fact(fact: &HostFact) -> Option<String> {
    Some(match fact {
        HostFact::System(system) => {
            let on = if system.virtualised { " (itself a VM)" } else { "" };
            let (kernel, architecture, memory) = (&system.kernel, &system.architecture, gib(system.memory_bytes));
            let (cpus, clock) = (&system.online_cpus, &system.clock_source);
            format!("kernel {kernel} {architecture}{on}, CPUs {cpus}, memory {memory}, clock {clock}")
        }
        HostFact::Nic(nic) => {
            let driver = if nic.driver.is_empty() { &nic.kind } else { &nic.driver };
            let (watched, up) = (if nic.watched { ", watched" } else { "" }, if nic.up { "" } else { ", down" });
            let most = nic.most_queues.map_or_else(String::new, |most| format!(" of {most}"));
            let cpus: Vec<_> = nic.interrupts.iter().map(|irq| irq.effective_cpus.as_str()).collect();
            let interrupts =
                if cpus.is_empty() { String::new() } else { format!(", interrupts on CPU {}", cpus.join(" ")) };
            let spread =
                nic.rps_cpus.iter().any(|mask| mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0'));
            let rps = if spread { ", RPS on" } else { "" };
            let rings = nic.rings.map_or_else(String::new, |rings| {
                format!(", rings of {} (of {}) and {} (of {})", rings.rx, rings.most_rx, rings.tx, rings.most_tx)
            });
            let (name, rx, tx) = (&nic.name, nic.rx_queues, nic.tx_queues);
            format!("{name} ({driver}): {rx} rx and {tx} tx queues{most}{rings}{interrupts}{rps}{watched}{up}")
        }
        HostFact::Disk(disk) => {
            let turns = if disk.rotational { "rotational" } else { "not rotational" };
            let depth = disk.queue_depth.map_or_else(String::new, |depth| format!(", queue of {depth}"));
            let wbt = disk.wbt_latency_us.map_or_else(String::new, |us| format!(", writeback throttled at {us} µs"));
            format!("{} ({}): {turns}, scheduler {}{depth}{wbt}", disk.name, gib(disk.size_bytes), disk.scheduler)
        }
        HostFact::Guest(guest) => {
            let cpu = if guest.cpu_max.is_empty() { String::new() } else { format!(", cpu.max {}", guest.cpu_max) };
            let memory =
                if guest.memory_max.is_empty() { String::new() } else { format!(", memory.max {}", guest.memory_max) };
            format!("{} {} ({}, pid {}){cpu}{memory}", guest.kind, guest.name, guest.runtime, guest.tgid)
        }
        HostFact::Gap { what, reason } => format!("not looked at: {what}, {reason}"),
        HostFact::Settings { settings } => format!("{} settings, with --format json", settings.len()),
        HostFact::Counters { .. } => return None,
    })
}

/// What the kernel's counters of losses grew by over the run.
fn changed(host: &[HostFact]) -> Option<String> {
    let mut counters = host.iter().filter_map(|fact| match fact {
        HostFact::Counters { counters } => Some(counters),
        _ => None,
    });
    let (first, last) = (counters.next()?, counters.next_back()?);
    let before = |name: &str| first.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value);
    let grown = last.iter().map(|counter| (counter.name.as_str(), counter.value.saturating_sub(before(&counter.name))));
    let grown: Vec<_> = grown.filter(|(_, more)| *more > 0).map(|(name, more)| format!("{name} +{more}")).collect();
    Some(match grown.as_slice() {
        [] => "none of the kernel's counters of losses grew".to_owned(),
        grown => format!("grew meanwhile: {}", grown.join(", ")),
    })
}

fn spent(cost: &CostFact) -> Vec<String> {
    let memory =
        cost.peak_memory_bytes.map_or_else(String::new, |bytes| format!(", at most {} MiB of memory", bytes >> 20));
    let cpu = DurNs(cost.user_ns.saturating_add(cost.system_ns));
    let mut lines = vec![format!("{cpu} of CPU in {}{memory}", DurNs(cost.elapsed_ns))];
    let total = cost.programs.iter().fold(DurNs::ZERO, |sum, program| sum.plus(DurNs(program.run_ns)));
    let runs = cost.programs.iter().fold(0_u64, |sum, program| sum.saturating_add(program.runs));
    lines.push(match cost.programs.as_slice() {
        [] => "kernel programs: not counted, as kernel.bpf_stats_enabled was 0".to_owned(),
        _ => format!("kernel programs: {total} in {runs} runs, the counting included"),
    });
    lines
}
