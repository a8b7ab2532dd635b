//! `whylag incident show`: what a bundle is about, on one screen or two.

use super::{ShowArgs, whole};
use crate::attribution::counted;
use crate::bundle::{Addresses, Bundle, BundleError, CauseRecord, IncidentRecord, Manifest, MomentRecord};
use crate::cli::args::Format;
use crate::cli::{Outcome, terminal};
use crate::clock::DurNs;
use crate::host::{self, CostFact, HostFact};
use crate::sink::{percent, printable};
use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;
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
        Format::Text => shown.text(),
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
                let share = verdict.share.map_or_else(String::new, |share| format!(" {}", percent(share)));
                let reason = verdict.reason.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
                let cause = verdict.cause.as_deref().map_or_else(String::new, |cause| format!(" {cause}"));
                format!("{}: {}{cause}{share}{reason}", verdict.target, verdict.status)
            }),
        );
    }

    fn why(&self, page: &mut Page) {
        let incident = &self.incident;
        page.list("causes", incident.causes.iter().map(cause).chain(unexplained(incident)));
        self.proof(page);
        if let Some(part) = incident.causes.first() {
            page.line("what helps", &part.remedy);
        }
        if let Some(moment) = &incident.trigger {
            page.line("trigger", &format!("{} {}", clock(&moment.happened_at), moment.text));
        }
        page.list("factors", incident.contributing_factors.iter().cloned());
        page.list("timeline", incident.timeline.chunk_by(are_alike).map(moments));
        page.list("actions", incident.actions.iter().cloned());
    }

    /// The evidence, each under its cause, in the order of the causes.
    fn proof(&self, page: &mut Page) {
        let IncidentRecord { causes, evidence, .. } = &self.incident;
        let mut named: Vec<&str> = causes.iter().map(|part| part.cause.as_str()).collect();
        named.extend(evidence.iter().map(|fact| fact.cause.as_str()));
        let mut told = BTreeSet::new();
        named.retain(|name| told.insert(*name));
        let groups = named.iter().map(|name| (*name, evidence.iter().filter(|fact| fact.cause == **name)));
        let lines = groups.flat_map(|(name, facts)| {
            let facts: Vec<_> = facts.map(|fact| format!("{}{}", Page::UNDER, fact.text)).collect();
            let head = (!facts.is_empty()).then(|| format!("of {name}:"));
            head.into_iter().chain(facts)
        });
        page.list("evidence", lines);
    }

    fn ending(&self, page: &mut Page) {
        let losses: Option<Value> = self.losses.as_deref().and_then(|losses| serde_json::from_str(losses).ok());
        let count = |name: &str| losses.as_ref().and_then(|losses| losses.get(name)).and_then(Value::as_u64);
        let [emitted, lost, late] = ["emitted", "lost", "late"].map(|name| count(name).unwrap_or(0));
        let mut losses = format!("{lost} of {} lost, {late} late", counted(emitted, "event"));
        for (name, what) in [("unreadable", "unreadable"), ("stacks_lost", "stacks lost")] {
            let more = count(name).filter(|count| *count > 0).map(|count| format!(", {count} {what}"));
            losses += &more.unwrap_or_default();
        }
        page.line("losses", &losses);
        if let Some(cost) = &self.cost {
            page.list("own cost", host::spent(cost).into_iter().map(|(what, text)| format!("{what}: {text}")));
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

fn cause(part: &CauseRecord) -> String {
    let who = part.by().map_or(String::new(), |by| format!(", {by}"));
    let cgroup = part.offender.as_ref().map(|offender| offender.cgroup.as_str()).filter(|cgroup| !cgroup.is_empty());
    let cgroup = cgroup.map_or(String::new(), |cgroup| format!(", cgroup {cgroup}"));
    let checks = counted(part.checks, "check");
    format!("{} {}, {} of {checks}{who}{cgroup}", part.cause, percent(part.share), DurNs(part.ns))
}

/// Time without a cause, and checks without a verdict.
fn unexplained(incident: &IncidentRecord) -> Option<String> {
    let counts = &incident.counts;
    let time = (counts.unexplained_ns > 0).then(|| DurNs(counts.unexplained_ns).to_string());
    let checks = (counts.unresolved > 0).then(|| format!("{} without a verdict", counted(counts.unresolved, "check")));
    let parts: Vec<_> = time.into_iter().chain(checks).collect();
    (!parts.is_empty()).then(|| format!("unexplained: {}", parts.join(", ")))
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
    /// Columns before the text.
    const ABOUT: usize = 12;
    /// Before what belongs to the line above.
    const UNDER: &str = "  ";

    fn line(&mut self, about: &str, text: &str) {
        self.hanging(about, text, Self::ABOUT);
    }

    fn hanging(&mut self, about: &str, text: &str, hang: usize) {
        if !text.is_empty() {
            let line = format!("{about:<0$} {1}", Self::ABOUT - 1, printable(text));
            terminal::rows(&line, hang).iter().for_each(|row| self.0 += &format!("{row}\n"));
        }
    }

    /// The first of them, and how many more there are. Further rows of one stand a little to the right.
    fn list(&mut self, about: &str, lines: impl IntoIterator<Item = String>) {
        let lines: Vec<_> = lines.into_iter().collect();
        for (index, text) in lines.iter().take(MOST_LINES).enumerate() {
            let under = if text.starts_with(Self::UNDER) { 2 } else { 1 };
            self.hanging(if index == 0 { about } else { "" }, text, Self::ABOUT + under * Self::UNDER.len());
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

/// A fact in a line; counters are told together.
fn fact(fact: &HostFact) -> Option<String> {
    match fact {
        HostFact::Settings { settings } => Some(format!("{} settings, with --format json", settings.len())),
        fact => host::told(fact).map(|(name, text)| format!("{name}: {text}")),
    }
}

/// What the kernel's counters of losses grew by over the run.
fn changed(host: &[HostFact]) -> Option<String> {
    let mut counters = host.iter().filter_map(|fact| match fact {
        HostFact::Counters { counters } => Some(counters),
        _ => None,
    });
    let (first, last) = (counters.next()?, counters.next_back()?);
    let grown = host::grown(first, last);
    let grown: Vec<_> = grown.iter().map(|(name, more)| format!("{name} +{more}")).collect();
    Some(match grown.as_slice() {
        [] => "none of the kernel's counters of losses grew".to_owned(),
        grown => format!("grew meanwhile: {}", grown.join(", ")),
    })
}
