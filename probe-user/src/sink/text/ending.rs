//! The end of a run: what happened at each target, what was lost, and what to do next.

use super::check::{By, INDENT, labelled, percent, verdict_sentence, with_by, with_offender};
use super::line::{Line, Look};
use crate::attribution::{Episode, EpisodeCause, Stall, Verdict, counted};
use crate::clock::DurNs;
use crate::event::TaskId;
use crate::join::{HalfCounts, JoinReport};
use crate::loss::LossReport;
use crate::sink::Names;
use crate::summary::{LossRate, Losses, RunSummary};

/// What to do where the halves have nothing in common.
const NONE_JOINED: &str = "no check has both halves: were both made at the same time, with the same --signature, the host's \
                           with --vnic and the other inside that VM?";
/// Causes shown of an episode.
const CAUSES: usize = 5;
/// Stalls shown of an episode.
const STALLS: usize = 3;
/// Victims, and VMs, named of a stall.
const VICTIMS: usize = 4;

/// What happened at one target.
pub(super) fn episode(episode: &Episode, names: &Names) -> Vec<Line> {
    let mut lines = vec![Line::new(), headline(episode, names)];
    if let Verdict::Healthy = episode.verdict {
        return lines;
    }
    let main = main_cause(episode);
    let meaning = main.and_then(|cause| cause.meaning);
    let sentence = verdict_sentence(&episode.verdict, main.and_then(By::of), meaning);
    lines.push(labelled("verdict", &sentence, Look::Bold));
    let service = episode.service.map(|service| service.of_episode(episode.slow + episode.lost));
    lines.extend(service.map(|said| labelled("service", &said, Look::Bold)));
    let shown = episode.causes.iter().take(CAUSES).filter(|cause| worth_a_line(cause));
    let said = main.filter(|_| matches!(episode.verdict, Verdict::Cause { .. })).map(|main| main.cause);
    let mut counted = Vec::new();
    for cause in shown {
        lines.push(cause_line(cause, said != Some(cause.cause)));
        lines.extend(counted_line(cause, &mut counted));
    }
    lines.extend(unexplained_line(episode));
    lines.extend(loss_lines(&episode.losses));
    let stalls = episode.stalls.iter().filter(|stall| stall.is_of_several()).take(STALLS);
    lines.extend(stalls.map(|stall| stall_line(stall, names)));
    lines.push(labelled("next", &next_step(episode), Look::Plain));
    lines
}

/// The cause of the verdict.
fn main_cause(episode: &Episode) -> Option<&EpisodeCause> {
    let (Verdict::Cause { cause, .. } | Verdict::Split { cause, .. }) = episode.verdict else {
        return None;
    };
    episode.causes.iter().find(|part| part.cause == cause)
}

/// What is true here of a cause that can mean more than that.
fn special(cause: &EpisodeCause) -> Option<&'static str> {
    cause.meaning.filter(|meaning| *meaning != cause.cause.row().must_be_true)
}

/// Beside what an incident took, a thousandth is noise; the first cause is always shown.
fn worth_a_line(cause: &EpisodeCause) -> bool {
    cause.share >= 0.001
}

fn headline(episode: &Episode, names: &Names) -> Line {
    let mut line = Line::hanging(INDENT).add(Look::Bold, names.target(episode.target));
    line = line.plain(format!("  {}", counted(episode.checks, "check")));
    for (count, what, look) in
        [(episode.slow, "slow", Look::Warn), (episode.lost, "lost", Look::Bad), (episode.open, "open", Look::Bad)]
    {
        line = if count == 0 { line.dim(format!("  0 {what}")) } else { line.add(look, format!("  {count} {what}")) };
    }
    let usual = episode.baseline_p50.map_or("no usual time yet".to_owned(), |usual| format!("usually {usual}"));
    let from = names.rfc3339(episode.started_at).get(..19).unwrap_or_default().replace('T', " ");
    let length = length(episode.ended_at.since(episode.started_at));
    line.dim(format!("  {usual}")).dim(format!("  from {from} UTC for {length}"))
}

/// The time is a sum over checks, which overlap, so it can be longer than the run. What the verdict has
/// said of its own cause is not said again.
fn cause_line(cause: &EpisodeCause, with_meaning: bool) -> Line {
    let lost = if cause.lost == 0 { String::new() } else { format!(", {} lost", cause.lost) };
    let line = Line::hanging(INDENT)
        .plain(format!("{:>11}  ", cause.time.to_string()))
        .dim(format!("over {:<12}", counted(cause.checks, "check") + &lost))
        .plain(format!("{:>6}", percent(cause.share)))
        .add(Look::Bold, format!("  {}", cause.cause.name()));
    let special = special(cause).filter(|_| with_meaning).map(|meaning| format!(": {meaning}"));
    with_by(line, By::of(cause)).flow(Look::Dim, special.unwrap_or_default())
}

/// What the thread that took the time counted meanwhile; told once of each.
fn counted_line(cause: &EpisodeCause, told: &mut Vec<TaskId>) -> Option<Line> {
    let (offender, counted) = (cause.offender.as_ref()?, cause.counted?);
    if told.contains(&offender.task) {
        return None;
    }
    told.push(offender.task);
    Some(labelled("counted", &format!("{}: {}", offender.name(), counted.said()), Look::Dim))
}

/// A device that held several threads up at once, or a VM.
fn stall_line(stall: &Stall, names: &Names) -> Line {
    let threads = enumerated(stall.victims.iter().map(|victim| victim.comm.clone()));
    let vms = enumerated(stall.vms.iter().map(|vm| names.target(vm.tap)));
    let vms = if vms.is_empty() { vms } else { format!(" of the VM at {vms}") };
    let line = Line::hanging(INDENT).plain(format!("{:>11}  ", stall.to.since(stall.from).to_string()));
    let line = line.add(Look::Warn, format!("{} held up {threads}{vms}", stall.device));
    let line = line.dim(format!("  {}", counted(stall.checks, "check")));
    with_offender(line, stall.offender.as_ref())
}

/// The first names, and how many more there are.
fn enumerated(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(VICTIMS);
    let said = names.take(VICTIMS).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{said} and {more} more") } else { said }
}

/// A length as people say it: three figures up to two minutes, then the two largest units.
fn length(time: DurNs) -> String {
    let seconds = time.0 / 1_000_000_000;
    let units = [("d", seconds / 86_400), ("h", seconds / 3_600 % 24), ("min", seconds / 60 % 60), ("s", seconds % 60)];
    if seconds < 120 {
        return time.to_string();
    }
    let said = units.iter().skip_while(|(_, count)| *count == 0).take(2).filter(|(_, count)| *count > 0);
    said.map(|(unit, count)| format!("{count} {unit}")).collect::<Vec<_>>().join(" ")
}

fn unexplained_line(episode: &Episode) -> Option<Line> {
    let all = episode.causes.iter().fold(episode.unexplained, |sum, cause| sum.plus(cause.time));
    (episode.unexplained.0 > 0 && episode.unexplained.0.saturating_mul(1_000) >= all.0).then(|| {
        let line = Line::hanging(INDENT).plain(format!("{:>11}  ", episode.unexplained.to_string()));
        let line = line.add(Look::Warn, "unexplained");
        match episode.unresolved {
            0 => line,
            unresolved => line.dim(format!("  {} without a verdict", counted(unresolved, "check"))),
        }
    })
}

/// The rate with its interval, and where they were lost.
fn loss_lines(losses: &Losses) -> Vec<Line> {
    let LossRate { lost, checks } = losses.total();
    if lost == 0 {
        return Vec::new();
    }
    let all = format!("{lost} of {}, {}", counted(checks, "check"), rate(losses.total()));
    let places = losses.by_place().into_iter().map(|(place, rate)| format!("{} at {}", rate.lost, place.name()));
    let spans = losses.by_span().filter(|(_, part)| part.lost > 0);
    let spans = spans.map(|(span, part)| format!("{} of {} in {}", part.lost, part.checks, span.name()));
    let text = format!("{all}: {}; {}", listed(places), listed(spans));
    vec![labelled("lost", &text, Look::Plain)]
}

fn listed(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

/// `1.3 % (0.8 to 2.3 % with 95 % confidence)`.
pub(crate) fn rate(rate: LossRate) -> String {
    let (low, high) = rate.interval();
    let said = [rate.share(), low, high].map(|share| format!("{:.1}", share * 100.0));
    format!("{} % ({} to {} % with 95 % confidence)", said[0], said[1], said[2])
}

/// One thing to do that the verdict suggests.
fn next_step(episode: &Episode) -> String {
    match &episode.verdict {
        Verdict::Cause { cause, .. } | Verdict::Split { cause, .. } => {
            format!("whylag explain {} tells what it is and what proves it", cause.name())
        }
        Verdict::Unresolved(_) => "whylag doctor tells which proof this host could give and does not".to_owned(),
        Verdict::Healthy => "nothing".to_owned(),
    }
}

/// Where the halves of joined checks went, those of the host before those of the guest.
pub(super) fn join(report: &JoinReport) -> Vec<Line> {
    let mut lines = vec![Line::new(), halves("host", &report.host), halves("guest", &report.guest)];
    if let (Some(usual), Some(most)) = (report.overhead_p50, report.overhead_max) {
        let text = format!("the hypervisor added {usual} to a check, {most} at most");
        lines.push(labelled("overhead", &text, Look::Plain));
    }
    if report.guest_lost > 0 {
        let text =
            format!("its run lost {}: give whylag a larger --ring-size there", counted(report.guest_lost, "event"));
        lines.push(labelled("guest", &text, Look::Warn));
    }
    if report.host.joined == 0 {
        lines.push(labelled("next", NONE_JOINED, Look::Warn));
    }
    lines
}

fn halves(side: &str, counts: &HalfCounts) -> Line {
    let line = Line::hanging(INDENT).dim(format!("{side:>11}  {}", counted(counts.halves, "half check")));
    let line = line.plain(format!("  {} joined", counts.joined));
    let rest = [
        (counts.alone, "alone"),
        (counts.doubted, "doubted"),
        (counts.ambiguous, "ambiguous"),
        (counts.mismatched, "mismatched"),
        (counts.negative, "longer inside than outside"),
    ];
    rest.into_iter()
        .filter(|(count, _)| *count > 0)
        .fold(line, |line, (count, what)| line.add(Look::Warn, format!("  {count} {what}")))
}

/// What was not seen.
pub(super) fn loss(report: &LossReport, dropped: u64) -> Vec<Line> {
    let mut line = Line::hanging(INDENT).dim(format!("{:>11}  {} received", "events", report.received));
    for (count, what) in
        [(report.lost, "lost"), (report.late, "late"), (report.unmatched, "unmatched"), (dropped, "lines dropped")]
    {
        line = if count == 0 {
            line.dim(format!("  0 {what}"))
        } else {
            line.add(Look::Warn, format!("  {count} {what}"))
        };
    }
    let mut lines = vec![Line::new(), line];
    if report.unreadable > 0 {
        let said = format!("{} of the recording could not be read", counted(report.unreadable, "record"));
        lines.push(labelled("damaged", &said, Look::Warn));
    }
    lines.extend(stacks_line(report));
    if report.lost > 0 {
        lines.push(labelled("next", "the rings were full: give --ring-size a larger value", Look::Warn));
    }
    if let Some(text) = left_out(report.brief, report.unreported) {
        lines.push(Line::hanging(INDENT).flow(Look::Warn, text));
    }
    lines
}

/// Stacks that are missing; they change no verdict.
fn stacks_line(report: &LossReport) -> Option<Line> {
    let parts = [(report.stacks_lost, "lost"), (report.stacks_spared, "spared")];
    let parts: Vec<_> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let look = if report.stacks_lost > 0 { Look::Warn } else { Look::Dim };
    (!parts.is_empty()).then(|| labelled("stacks", &format!("{} of those that were due", parts.join(", ")), look))
}

/// What was not told of checks, of which there were too many at once.
fn left_out(brief: u64, unreported: u64) -> Option<String> {
    let parts = [(brief, "checks were counted and not shown"), (unreported, "reports of open ones were left out")];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    (!parts.is_empty()).then(|| format!("{:INDENT$}too many checks at once: {}", "", parts.join(", and ")))
}

/// The run in a line.
pub(super) fn summary(summary: &RunSummary) -> Option<Line> {
    let text = "no health check was seen: is the signature right (whylag signature test), and does the traffic \
                pass the interfaces that were chosen?";
    (summary.checks == 0).then(|| labelled("next", text, Look::Plain))
}

#[cfg(test)]
mod tests {
    use super::length;
    use crate::clock::DurNs;

    #[test]
    fn long_times_are_said_in_days_hours_and_minutes() {
        let said =
            [DurNs::from_millis(1_410), DurNs::from_secs(125), DurNs::from_secs(3_600), DurNs::from_secs(290_949)];
        assert_eq!(said.map(length), ["1.41 s", "2 min 5 s", "1 h", "3 d 8 h"]);
    }
}
