//! One check as a compact block: what happened, the verdict, who took the time, where it was.

use super::line::{Line, Look};
use super::path;
use super::tally::{Likeness, cause_name};
use crate::attribution::{Absence, Cause, Entry, EpisodeCause, Judged, Lapse, LostAt, Offender, Sent, Verdict};
use crate::clock::{DurNs, MonoNs};
use crate::event::InterfaceId;
use crate::join::{GuestHalf, Pairing, Residence};
use crate::journey::{Journey, Loss, Outcome, Span};
use crate::signature::readable;
use crate::sink::Names;
use crate::sink::json::{endpoint, outcome_reason};

/// Parts of the ledger that are shown.
const PARTS: usize = 3;
/// Column under which everything stands but the times.
pub(super) const INDENT: usize = 13;

/// The whole block.
pub(super) fn block(judged: &Judged, names: &Names, width: usize) -> Vec<Line> {
    let mut lines = vec![headline(judged, names), place(judged, names)];
    lines.extend(part_lines(judged));
    lines.extend(judged.lost.as_ref().map(|lost| labelled("lost at", &lost_sentence(lost, names), Look::Plain)));
    lines.extend(judged.guest.as_deref().map(guest_line));
    lines.extend(judged.service.map(|service| labelled("service", &service.of_check(), Look::Plain)));
    lines.extend(path::bar(&judged.journey, width));
    lines
}

/// What the half inside the guest added, or why it added nothing.
fn guest_line(half: &GuestHalf) -> Line {
    let text = match (half.pairing.reason(), &half.residence) {
        (Some(reason), _) => format!("not joined: {reason}"),
        (None, Some(Residence { host, guest })) if guest <= host => {
            format!("{guest} of {host} with the VM; {} beyond that", host.minus(*guest))
        }
        (None, Some(Residence { host, guest })) => {
            format!("{guest} by its own clock, {} more than by the host's", guest.minus(*host))
        }
        (None, None) => "joined".to_owned(),
    };
    labelled("guest", &text, if half.pairing == Pairing::Joined { Look::Plain } else { Look::Warn })
}

/// When, what, how long, where, why and who: the one thing to read.
fn headline(judged: &Judged, names: &Names) -> Line {
    let journey = &judged.journey;
    let (word, look) = word(judged);
    let line = Line::hanging(INDENT)
        .dim(clock_time(names, journey.started_at()))
        .add(look, format!(" {word:<4}"))
        .add(Look::Bold, format!(" {:>7}", journey.elapsed().to_string()))
        .plain(format!("  {}", names.target(journey.target)));
    let line = conclusion(line, judged);
    match outcome_reason(&journey.outcome, names) {
        Some(reason) => line.add(look, format!("  {reason}")),
        None => line,
    }
}

/// The verdict's cause and whom it names.
fn conclusion(line: Line, judged: &Judged) -> Line {
    let line = match &judged.verdict {
        Verdict::Healthy => line,
        // A drop takes no time worth a share.
        Verdict::Cause { cause, .. } if is_dropped(judged) => line.add(Look::Bold, format!("  {}", cause.name())),
        Verdict::Cause { cause, share } => line.add(Look::Bold, format!("  {} {}", cause.name(), percent(*share))),
        Verdict::Split { cause, share } => {
            line.plain("  several causes, most").add(Look::Bold, format!(" {} {}", cause.name(), percent(*share)))
        }
        Verdict::Unresolved(reason) => line.add(Look::Warn, "  unresolved:").flow(Look::Plain, format!(" {reason}")),
    };
    match main_offender(judged) {
        Some(by) => line.plain(format!("  {}", by.said())),
        None => line,
    }
}

/// The place, the device, the last stage, what the sender was told, and why nobody is named who filled it.
pub(crate) fn lost_sentence(lost: &LostAt, names: &Names) -> String {
    let device = names.interface(lost.interface).map_or(String::new(), |interface| format!(" at {}", interface.name));
    let sent = match lost.sent {
        Some(Sent::Success) => "; the send call returned success all the same".to_owned(),
        Some(failed @ Sent::Failed(_)) => format!("; the send call failed with {failed}"),
        None => String::new(),
    };
    let unknown = match lost.filled {
        Some(Err(reason)) => format!("; who filled it is not known: {reason}"),
        Some(Ok(_)) | None => String::new(),
    };
    let (place, stage) = (lost.place.row(), lost.stage.name());
    format!("{}{device}, last stage {stage}: {}{sent}{unknown}", place.name, place.meaning)
}

/// What makes a check the same as another to a reader.
pub(super) fn likeness(judged: &Judged) -> Likeness {
    Likeness {
        word: word(judged).0,
        target: judged.journey.target,
        signature: judged.journey.signature,
        cause: cause_name(&judged.verdict).unwrap_or("unresolved"),
        offender: main_offender(judged).map(|by| by.offender.key()),
    }
}

const fn is_dropped(judged: &Judged) -> bool {
    matches!(judged.journey.outcome, Outcome::Lost(Loss::Dropped(_)))
}

/// From where to where, which signature if there are several, and the group of the offender.
fn place(judged: &Judged, names: &Names) -> Line {
    let line = Line::hanging(INDENT).dim(format!("{:INDENT$}{}", "", flow(&judged.journey)));
    let several = names.run().is_none_or(|run| run.signatures.len() > 1);
    let line = if several { line.dim(format!("  {}", signature(judged.journey.signature, names))) } else { line };
    match main_offender(judged) {
        Some(By { offender, .. }) if !offender.cgroup.is_empty() => line.dim(format!("  cgroup {}", offender.cgroup)),
        _ => line,
    }
}

/// A signature's name, its bytes as text where they are text.
fn signature(index: usize, names: &Names) -> String {
    readable(names.signature(index))
}

/// A request that came late, in one line.
pub(super) fn lapse_line(lapse: &Lapse, target: InterfaceId, signature: usize, names: &Names) -> Line {
    Line::hanging(INDENT)
        .dim(clock_time(names, lapse.due_at))
        .add(Look::Warn, " LATE")
        .add(Look::Bold, format!(" {:>7}", lapse.late_by.to_string()))
        .plain(format!("  {}", names.target(target)))
        .add(Look::Bold, format!("  {}", Lapse::CAUSE.name()))
        .flow(Look::Plain, "  the request came late")
        .dim(format!("  {}", readable(names.signature(signature))))
}

/// Requests that did not come, in one line.
pub(super) fn absence_line(absence: &Absence, names: &Names) -> Line {
    let Absence { signature, interface, due_at, until, requests, .. } = *absence;
    let plural = if requests == 1 { "" } else { "s" };
    let remark = absence.remark(&names.target(interface)).map_or_else(String::new, |remark| format!("; {remark}"));
    let verdict = match (absence.cause(), absence.suspect()) {
        (Some(cause), _) => cause.name().to_owned(),
        (None, Some(suspect)) => format!("perhaps {}", suspect.name()),
        (None, None) => "unresolved".to_owned(),
    };
    Line::hanging(INDENT)
        .dim(clock_time(names, due_at))
        .add(Look::Bad, " LOST")
        .add(Look::Bold, format!(" {:>7}", until.since(due_at).to_string()))
        .plain(format!("  {}", names.target(interface)))
        .add(Look::Bold, format!("  {verdict}"))
        .flow(Look::Plain, format!("  {requests} request{plural} never arrived{remark}"))
        .dim(format!("  {}", readable(names.signature(signature))))
}

/// An interface that is no longer watched, in one line.
pub(super) fn gone_line(at: MonoNs, interface: InterfaceId, reason: &str, names: &Names) -> Line {
    Line::new().dim(clock_time(names, at)).add(Look::Bad, format!(" {:<9} ", "GONE")).plain(format!(
        "{:>8}  {}  no longer watched: {reason}",
        "",
        names.target(interface)
    ))
}

/// Time of day, UTC, in milliseconds.
fn clock_time(names: &Names, at: MonoNs) -> String {
    let full = names.rfc3339(at);
    full.get(11..23).unwrap_or(&full).to_owned()
}

fn flow(journey: &Journey) -> String {
    let request = &journey.request;
    format!(
        "{} → {}",
        endpoint(request, request.source, request.source_port),
        endpoint(request, request.destination, request.destination_port)
    )
}

const fn word(judged: &Judged) -> (&'static str, Look) {
    match (&judged.journey.outcome, judged.slow) {
        (Outcome::Replied, false) => ("ok", Look::Good),
        (Outcome::Replied, true) => ("SLOW", Look::Warn),
        (Outcome::Lost(_), _) => ("LOST", Look::Bad),
        (Outcome::Open, _) => ("OPEN", Look::Bad),
        (Outcome::Ambiguous, _) => ("ambiguous", Look::Warn),
        (Outcome::Broken(_), _) => ("broken", Look::Warn),
    }
}

/// `text`, with `label` before it.
pub(super) fn labelled(label: &str, text: &str, look: Look) -> Line {
    Line::hanging(INDENT).dim(format!("{label:>11}  ")).flow(look, text)
}

/// The conclusion in a sentence; `meaning` tells what is true here of all that its cause may mean.
pub(crate) fn verdict_sentence(verdict: &Verdict, by: Option<By<'_>>, meaning: Option<&str>) -> String {
    let by = by.map_or(String::new(), |by| format!(", {}", by.in_sentence()));
    match verdict {
        Verdict::Healthy => "healthy".to_owned(),
        Verdict::Cause { cause, share } => {
            let meaning = meaning.unwrap_or(cause.row().must_be_true);
            format!("{} took {} of the delay{by}: {meaning}", cause.name(), percent(*share))
        }
        Verdict::Split { cause, share } => {
            format!("no cause owns half of the delay; the largest is {} with {}{by}", cause.name(), percent(*share))
        }
        Verdict::Unresolved(reason) => format!("unresolved: {reason}"),
    }
}

/// Who took a cause's time, or most of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct By<'a> {
    pub(crate) offender: &'a Offender,
    /// What it took.
    pub(crate) time: DurNs,
    /// What the cause took in all.
    pub(crate) of: DurNs,
}

impl<'a> By<'a> {
    /// Whom a cause of an episode names.
    pub(crate) fn of(cause: &'a EpisodeCause) -> Option<Self> {
        let offender = cause.offender.as_ref()?;
        Some(Self { offender, time: cause.offender_time, of: cause.time })
    }

    /// Others took some of it too. What rounds to all of it is all.
    pub(crate) fn is_part(self) -> bool {
        self.time.to_string() != self.of.to_string() && self.time < self.of
    }

    /// `NAME`, or `most by NAME: 30 ms of 80 ms`.
    pub(super) fn said(self) -> String {
        if self.is_part() { self.in_sentence() } else { who(self.offender) }
    }

    /// `by NAME`, or `most by NAME: 30 ms of 80 ms`.
    pub(crate) fn in_sentence(self) -> String {
        let Self { offender, time, of } = self;
        let who = who(offender);
        if self.is_part() { format!("most by {who}: {time} of {of}") } else { format!("by {who}") }
    }
}

/// Who took most of the time of the verdict's cause.
pub(crate) fn main_offender(judged: &Judged) -> Option<By<'_>> {
    let (Verdict::Cause { cause, .. } | Verdict::Split { cause, .. }) = judged.verdict else {
        return None;
    };
    let entries = || judged.ledger.entries.iter().filter(|entry| entry.cause == cause);
    let mut sums: Vec<(&Offender, DurNs)> = Vec::new();
    for entry in entries() {
        let Some(offender) = &entry.offender else { continue };
        match sums.iter_mut().find(|(known, _)| known.is(offender)) {
            Some((known, sum)) => {
                *known = if known.cgroup.is_empty() { offender } else { known };
                *sum = sum.plus(entry.time());
            }
            None => sums.push((offender, entry.time())),
        }
    }
    // Of equal ones the first.
    let (offender, time) = sums.into_iter().rev().max_by_key(|(_, time)| *time)?;
    Some(By { offender, time, of: entries().fold(DurNs::ZERO, |sum, entry| sum.plus(entry.time())) })
}

/// A thread with the numbers of process and thread, as evidence writes them, or a device.
pub(crate) fn who(offender: &Offender) -> String {
    let Offender { comm, task, device, own, guest, .. } = offender;
    let thread = match (comm.as_str(), task.tid) {
        (comm, 0) => comm.to_owned(),
        ("", tid) if tid == task.tgid => format!("pid {tid}"),
        ("", tid) => format!("pid {}/{tid}", task.tgid),
        (comm, tid) if tid == task.tgid => format!("{comm} (pid {tid})"),
        (comm, tid) => format!("{comm} (pid {}/{tid})", task.tgid),
    };
    let own = if *own { "whylag itself" } else { "" };
    let words = [thread.as_str(), device.as_str(), own];
    let words = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
    if *guest && !words.is_empty() { words + " in the guest" } else { words }
}

/// Adds whom a part names, and its cgroup.
pub(super) fn with_offender(line: Line, offender: Option<&Offender>) -> Line {
    match offender {
        Some(offender) => with_who(line, &who(offender), &offender.cgroup),
        None => line,
    }
}

/// Adds who took how much of a cause, and its cgroup.
pub(super) fn with_by(line: Line, by: Option<By<'_>>) -> Line {
    match by {
        Some(by) => with_who(line, &by.said(), &by.offender.cgroup),
        None => line,
    }
}

fn with_who(line: Line, who: &str, cgroup: &str) -> Line {
    let line = line.plain(format!("  {who}"));
    if cgroup.is_empty() { line } else { line.plain(format!("  cgroup {cgroup}")) }
}

/// Entries with the same cause, span and offender, summed.
struct Part<'a> {
    cause: Cause,
    span: Span,
    offender: Option<&'a Offender>,
    time: DurNs,
    longest: &'a Entry,
    entries: usize,
}

/// The parts of a ledger, largest first; equal ones in the order of their time.
fn parts(entries: &[Entry]) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    for entry in entries {
        let same = |part: &&mut Part<'_>| {
            (part.cause, part.span) == (entry.cause, entry.span)
                && same_offender(part.offender, entry.offender.as_ref())
        };
        match parts.iter_mut().find(same) {
            Some(part) => part.take(entry),
            None => parts.push(Part::of(entry)),
        }
    }
    parts.sort_by_key(|part| std::cmp::Reverse(part.time));
    parts
}

fn same_offender(one: Option<&Offender>, other: Option<&Offender>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.is(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl<'a> Part<'a> {
    fn of(entry: &'a Entry) -> Self {
        let offender = entry.offender.as_ref();
        Self { cause: entry.cause, span: entry.span, offender, time: entry.time(), longest: entry, entries: 1 }
    }

    fn take(&mut self, entry: &'a Entry) {
        self.entries += 1;
        self.time = self.time.plus(entry.time());
        if self.offender.is_some_and(|known| known.cgroup.is_empty()) {
            self.offender = entry.offender.as_ref();
        }
        if entry.time() > self.longest.time() {
            self.longest = entry;
        }
    }

    fn start(&self) -> Line {
        Line::hanging(INDENT)
            .plain(format!("{:>11}  ", self.time.to_string()))
            .add(Look::Bold, self.cause.name())
            .dim(format!(" in {}", self.span.name()))
    }

    /// The part that decides, with what decides it.
    fn proof(&self, facts: usize) -> Line {
        let facts: Vec<&str> = self.longest.evidence.iter().take(facts).map(String::as_str).collect();
        if facts.is_empty() {
            self.start()
        } else {
            let most =
                if self.entries > 1 { format!(", most in one of {} parts:", self.entries) } else { ":".to_owned() };
            self.start().dim(most).flow(Look::Plain, format!(" {}", facts.join("; ")))
        }
    }

    /// Another part, with whom it names.
    fn line(&self) -> Line {
        with_offender(self.start(), self.offender).flow(Look::Dim, self.way())
    }

    /// The waits that lead to the cause, when there is more than the cause itself.
    fn way(&self) -> String {
        let names: Vec<&str> = self.longest.path.iter().map(|cause| cause.name()).collect();
        if names.len() > 1 { format!("  via {}", names.join(" → ")) } else { String::new() }
    }
}

fn part_lines(judged: &Judged) -> Vec<Line> {
    let whole = judged.ledger.to.since(judged.ledger.from);
    let mut parts = parts(&judged.ledger.entries);
    if let Verdict::Cause { cause, .. } | Verdict::Split { cause, .. } = judged.verdict {
        parts.sort_by_key(|part| part.cause != cause);
    }
    let facts = if judged.journey.outcome == Outcome::Replied { 1 } else { 2 };
    let shown = parts.iter().take(PARTS).enumerate().filter(|(_, part)| worth_a_line(part.time, whole));
    let mut lines: Vec<Line> =
        shown.map(|(rank, part)| if rank == 0 { part.proof(facts) } else { part.line() }).collect();
    lines.extend(unexplained_line(judged, whole));
    lines
}

fn unexplained_line(judged: &Judged, whole: DurNs) -> Option<Line> {
    let ledger = &judged.ledger;
    if !worth_a_line(ledger.unexplained, whole) {
        return None;
    }
    let line =
        Line::hanging(INDENT).plain(format!("{:>11}  ", ledger.unexplained.to_string())).add(Look::Warn, "unexplained");
    // The headline has told the reason of an unresolved check.
    let told = matches!(judged.verdict, Verdict::Unresolved(_)) || ledger.unexplained_reasons.is_empty();
    Some(if told { line } else { line.flow(Look::Dim, format!(": {}", ledger.unexplained_reasons.join("; "))) })
}

/// At least one per cent of the whole.
const fn worth_a_line(part: DurNs, whole: DurNs) -> bool {
    part.0 > 0 && part.0.saturating_mul(100) >= whole.0
}

/// A share as whole per cent; nothing but all is `100 %`, and nothing but nothing `0 %`.
pub(crate) fn percent(share: f64) -> String {
    let rounded = (share * 100.0).round();
    if rounded >= 100.0 && share < 1.0 {
        ">99 %".to_owned()
    } else if rounded < 1.0 && share > 0.0 {
        "<1 %".to_owned()
    } else {
        format!("{rounded:.0} %")
    }
}

#[cfg(test)]
mod tests {
    use super::{By, percent, who};
    use crate::attribution::Offender;
    use crate::clock::DurNs;
    use crate::event::TaskId;

    #[test]
    fn a_thread_without_a_name_and_whylag_itself_are_told_as_such() {
        let nameless = Offender { task: TaskId { tgid: 5, tid: 6 }, ..Offender::default() };
        assert_eq!((who(&nameless), nameless.name()), ("pid 5/6".to_owned(), "pid 5/6".to_owned()));
        let own = Offender { comm: "whylag".to_owned(), own: true, ..nameless };
        assert_eq!(who(&own), "whylag (pid 5/6), whylag itself");
    }

    #[test]
    fn who_took_a_part_is_told_with_that_part() {
        let offender = &Offender { comm: "hog".to_owned(), ..Offender::default() };
        let [part, whole] = [300, 800].map(DurNs::from_millis);
        let said = |time| By { offender, time, of: whole }.in_sentence();
        assert_eq!(said(part), "most by hog: 300 ms of 800 ms");
        assert_eq!(said(whole), "by hog");
        assert_eq!(said(DurNs(799_999_999)), "by hog", "what rounds to all is all");
    }

    #[test]
    fn a_part_is_never_rounded_to_the_whole_or_to_nothing() {
        let shares = [0.0, 0.001, 0.984, 0.9951, 1.0];
        assert_eq!(shares.map(percent), ["0 %", "<1 %", "98 %", ">99 %", "100 %"]);
    }
}
