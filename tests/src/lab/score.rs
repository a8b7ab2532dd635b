//! The mark: what whylag said about each check, against what is known of it.

use super::case::{Case, Expect, Fault, LostAt, Service};
use super::contract::{Absence, Entry, Journey, Queue};
use super::message::{Check, Sent};
use super::residence::{Residence, is_counted};
use super::run::{Observed, Window};
use super::whylag::Said;
use super::{filled, picture, receiving};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

/// Two clocks may disagree about the start of a check by so much; times the case's slowdown.
const CLOCK_SLACK_NS: u64 = 500_000;
/// What whylag says of a thread that starves the replies it owes.
const STARVED: &str = "though replies were due";
/// What whylag says of a block request before the parts of its way.
const REQUEST: &str = "of its request to ";
/// What it says of a thread that the device's queue itself holds back.
const ALL: &str = "all of it for ";
/// So much may a check's time be off, if it is short; times the case's slowdown.
const TIME_SLACK_NS: u64 = 2_000_000;
/// A sender's share may be off by this part of it.
const SHARE_SLACK: f64 = 0.05;
/// The causes that other work on the machine can make right in any case: a thread of the server, or a
/// virtual CPU of its guest, waits for a CPU.
const RUN_QUEUE: [&str; 2] = ["app.runqueue", "vm.vcpu_steal"];
/// The place of requests that did not come.
const NEVER_ARRIVED: &str = "never_arrived";
/// Of a check that nothing was seen of behind its last stage.
const UNSEEN: &str = "unseen";
/// Whose fault that is.
const OUTSIDE: &str = "external.outside_host";
/// At the edges of the fault, so many may be on their way.
const ABSENT_SLACK: u64 = 2;
/// Examples of what went wrong that a report shows.
const REMARKS: usize = 3;

/// How a run is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// All that was to be said was said, and nothing wrong.
    Right,
    /// A verdict was confident and wrong, or named the wrong one, or the time is wrong.
    Wrong,
    /// Too few verdicts, but none wrong.
    Unresolved,
    /// The rig cannot prove that the fault happened.
    Unproven,
}

/// What the checks of one run add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Checks that the fault delayed or lost.
    pub guilty: usize,
    /// Right verdicts about slow checks.
    pub right_slow: usize,
    /// Right verdicts about lost checks.
    pub right_lost: usize,
    /// Verdicts with a wrong cause, or with a cause where there is nothing to blame.
    pub wrong: usize,
    /// Of them, those that say that the thread, or the guest's virtual CPU, waited for a CPU.
    pub behind_others: usize,
    /// No verdict.
    pub unresolved: usize,
    /// Checks of which whylag said nothing.
    pub unseen: usize,
    /// Right cause, wrong or no offender.
    pub misnamed: usize,
    /// Right cause, and of the service what the case asks for.
    pub served: usize,
    /// Something wrong about the service.
    pub misjudged: usize,
    /// Slow checks whose evidence says that a thread received and did not send.
    pub starved: usize,
    /// Right cause, and the part of a request's way that the case asks for took the most.
    pub split: usize,
    /// Right cause, and another part took the most.
    pub missplit: usize,
    /// Senders of a queue whose share is not what they counted themselves.
    pub misshared: usize,
    /// Something wrong about who kept the CPU that receives from doing so.
    pub miskept: usize,
    /// Something that is missing or wrong in what is told of two faults.
    pub mispictured: usize,
    /// Something wrong about who had filled the queue in which checks were lost.
    pub misfilled: usize,
    /// Lost checks that ended where the case says.
    pub placed: usize,
    /// Lost checks that are said to have ended elsewhere.
    pub misplaced: usize,
    /// Lost checks of which nothing is said of where they ended.
    pub unplaced: usize,
    /// Right cause, but the time is off by more than 2 ms and 5 %.
    pub mistimed: usize,
    /// Time in entries of a right cause, all guilty checks that were answered.
    pub attributed_ns: u64,
    /// Time that these checks took by the client's clock.
    pub measured_ns: u64,
    /// Right verdicts about answered checks, by their amounts.
    pub amounts: Vec<Amount>,
    /// Ledgers whose entries and rest do not add up to the check's time.
    pub inexact: usize,
    /// What each sender of a queue sent by its own count, and what share whylag tells.
    pub shares: Vec<String>,
    /// Records that whylag lost.
    pub lost_records: u64,
    /// The first things that went wrong.
    pub remarks: Vec<String>,
    /// The check of the first wrong verdict, else of the first remark.
    pub suspect: Option<String>,
}

/// How a check's time was split, beside how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Amount {
    /// By the client's clock. A quiet check takes far less than the tolerance, so this is what the
    /// fault took.
    pub measured_ns: u64,
    /// In entries of right causes.
    pub attributed_ns: u64,
    /// In no entry.
    pub unexplained_ns: u64,
}

impl Amount {
    /// Whether what is attributed is within 5 % or 2 ms of what was measured.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.attributed_ns.abs_diff(self.measured_ns) <= (self.measured_ns / 20).max(TIME_SLACK_NS)
    }

    /// Part of the check's time that is in no entry, parts in 1,000.
    #[must_use]
    pub fn unexplained_permille(&self) -> u64 {
        self.unexplained_ns.saturating_mul(1_000) / self.measured_ns.max(1)
    }
}

/// What whylag made of a run with both halves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inside {
    /// The mark of that alone.
    pub mark: Mark,
    /// What the checks add up to.
    pub score: Score,
    /// How the halves differ.
    pub residence: Residence,
    /// Slow checks that were told with both halves while both were still being made, if they were joined
    /// so.
    pub told_live: Option<usize>,
}

/// Marks what was said of both halves, if there were two.
///
/// # Errors
/// A time cannot be read, or no halves are counted.
pub fn score_inside(case: &Case, observed: &Observed) -> Result<Option<Inside>> {
    let Some((expect, said)) = case.inside.zip(observed.joined.as_ref()) else { return Ok(None) };
    let (mark, mut score) = score_said(&Case { expect, ..*case }, observed, said)?;
    let join = said.join.as_ref().context("no halves are counted")?;
    let residence = Residence::of(&said.journeys);
    let counted = is_counted(join);
    let agrees = residence.is_right() || case.shares_ring && residence.joined > 0;
    if !counted || !agrees {
        score.remarks.push(format!("{join:?}; {}", residence.line()));
    }
    let mark = match mark {
        Mark::Right if !counted => Mark::Wrong,
        Mark::Right if !agrees || observed.told_live == Some(0) => Mark::Unresolved,
        mark => mark,
    };
    Ok(Some(Inside { mark, score, residence, told_live: observed.told_live }))
}

/// Marks a run by what whylag said on the host alone.
///
/// # Errors
/// whylag was not there, or wrote a time that cannot be read.
pub fn score(case: &Case, observed: &Observed) -> Result<(Mark, Score)> {
    score_said(case, observed, observed.said.as_ref().context("whylag took no part in this run")?)
}

fn score_said(case: &Case, observed: &Observed, said: &Said) -> Result<(Mark, Score)> {
    let journeys = join(case, &observed.checks, &said.journeys, observed.wall_offset_ns)?;
    let mut score = Score { lost_records: said.loss.lost, ..Score::default() };
    score.inexact = said.journeys.iter().filter(|journey| !journey.is_exact()).count();
    for check in &observed.checks {
        let journey = journeys.get(&check.nonce).copied();
        score.starved += usize::from(check.rtt_ns().is_some() && journey.is_some_and(says_starved));
        if is_guilty(case, check, observed.window) {
            score.mark_guilty(case, check, journey);
            score.mark_service(case.service, journey);
        } else if check.rtt_ns().is_some_and(|rtt| rtt < surely_fast_ns(case)) {
            score.mark_innocent(check, journey);
        }
    }
    if case.senders {
        // Until the first check is slow, nothing that is sent is said.
        let untold = case.slow_ns() as f64 / (case.fault_ms as f64 * 1e6);
        score.mark_senders(&observed.sent, &said.queues, untold);
    }
    score.mark_told(case, observed, said, &journeys);
    if case.lost_at.is_some_and(|lost_at| lost_at.place == NEVER_ARRIVED) {
        let Window { began_ns, ended_ns } = observed.window;
        let mut told = 0;
        for absence in &said.absences {
            // The client is silent at the end, too.
            let due_ns = mono_ns(&absence.due_at, observed.wall_offset_ns)?;
            let during = (began_ns..=ended_ns).contains(&(due_ns + CLOCK_SLACK_NS * case.slowdown));
            if during {
                told += absence.requests;
                score.mark_absence(absence);
            }
        }
        score.mark_absent(told);
    }
    let mark = score.conclude(&case.expect, observed.proof.holds());
    Ok((if mark == Mark::Right { score.conclude_words(case) } else { mark }, score))
}

/// Finds each check's journey: the one that began after it was sent and before the next was.
fn join<'a>(
    case: &Case,
    checks: &[Check],
    journeys: &'a [Journey],
    wall_offset_ns: u64,
) -> Result<BTreeMap<u64, &'a Journey>> {
    let sent: BTreeMap<u64, u64> = checks.iter().map(|check| (check.sent_at_ns, check.nonce)).collect();
    let mut joined = BTreeMap::new();
    for journey in journeys {
        let began = mono_ns(&journey.started_at, wall_offset_ns)? + CLOCK_SLACK_NS * case.slowdown;
        if let Some((_, nonce)) = sent.range(..=began).next_back() {
            joined.entry(*nonce).or_insert(journey);
        }
    }
    Ok(joined)
}

/// `CLOCK_MONOTONIC` of a wall time.
fn mono_ns(rfc3339: &str, wall_offset_ns: u64) -> Result<u64> {
    let wall = humantime::parse_rfc3339(rfc3339).with_context(|| format!("read the time {rfc3339}"))?;
    let since = wall.duration_since(UNIX_EPOCH).context("a time after 1970")?;
    Ok(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX).saturating_sub(wall_offset_ns))
}

/// A check that the fault surely delayed, and not only the machine's noise, takes at least this.
fn surely_slow_ns(case: &Case) -> u64 {
    2 * case.slow_ns()
}

/// A check that surely nothing delayed takes less than this.
fn surely_fast_ns(case: &Case) -> u64 {
    case.slow_ns() / 2
}

/// Whether the fault delayed a check: it was slow, and for three quarters of its time the fault
/// lasted. A check that came at the end of the fault waits for the backlog, which is another cause.
fn is_guilty(case: &Case, check: &Check, window: Window) -> bool {
    if case.fault == Fault::Nothing {
        return false;
    }
    let Some(answered_at_ns) = check.answered_at_ns else {
        return (window.began_ns..window.ended_ns).contains(&check.sent_at_ns);
    };
    let during = answered_at_ns.min(window.ended_ns).saturating_sub(check.sent_at_ns.max(window.began_ns));
    let rtt = answered_at_ns.saturating_sub(check.sent_at_ns);
    rtt >= surely_slow_ns(case) && during >= rtt / 4 * 3
}

/// What the machine did to a run, by counters that whylag does not read, if that was another thing than
/// the case: then nothing that whylag said of it counts, neither for nor against it.
#[must_use]
pub fn disturbance(case: &Case, observed: &Observed, score: &Score) -> Option<String> {
    let late = observed.checks.iter().filter(|check| is_guilty(case, check, observed.window));
    let late = late.filter_map(Check::rtt_ns).max().filter(|_| case.none_waits);
    if let Some(late) = late {
        return Some(format!("the machine was busy: a check took {} ms, and none should wait", late / 1_000_000));
    }
    // Less cannot be the half of what any check waited.
    let may_be_right = observed.run_delay_ns >= surely_slow_ns(case) / 2 && !case.fault.takes_cpu();
    (score.behind_others > 0 && score.behind_others == score.wrong && may_be_right).then(|| {
        let waited = observed.run_delay_ns / 1_000_000;
        format!("the machine was busy: by schedstat, the server's threads waited {waited} ms for a CPU")
    })
}

impl Expect {
    /// The causes that are right for a check with this end.
    fn right_causes(&self, lost: bool) -> &'static [&'static str] {
        match (lost, self.slow.is_empty(), self.lost.is_empty()) {
            (true, _, false) | (false, true, _) => self.lost,
            (true, _, true) | (false, false, _) => self.slow,
        }
    }
}

fn says_starved(journey: &Journey) -> bool {
    let evidence = journey.ledger.iter().flat_map(|entry| &entry.evidence);
    evidence.into_iter().any(|fact| fact.contains(STARVED))
}

/// The part that took the most of a block request's way, by the longest entry that tells of one.
fn longest_part(journey: &Journey) -> Option<&str> {
    let tells = |fact: &&String| fact.contains(REQUEST) || fact.starts_with(ALL);
    let told = |entry: &'_ Entry| entry.evidence.iter().any(|fact| tells(&fact));
    let longest = journey.ledger.iter().filter(|entry| told(entry)).max_by_key(|entry| entry.ns)?;
    let all = longest.evidence.iter().find_map(|fact| fact.strip_prefix(ALL));
    let parts = || longest.evidence.iter().find_map(|fact| fact.split_once(REQUEST)?.1.split_once(": "));
    all.or_else(|| most(parts()?.1))
}

/// Of `1.38 s here, 41.6 ms there` the part that is longest, in words.
fn most(parts: &str) -> Option<&str> {
    let parts = parts.split(", ").filter_map(|part| {
        let mut words = part.splitn(3, ' ');
        let (number, unit) = (words.next()?.parse::<f64>().ok()?, words.next()?);
        let scale = [("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)].iter().find(|(name, _)| *name == unit)?.1;
        Some((number * scale, words.next()?))
    });
    parts.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, words)| words)
}

impl Score {
    /// What is told beside the checks: of CPUs that receive, of queues, and of several faults at once.
    fn mark_told(&mut self, case: &Case, observed: &Observed, said: &Said, journeys: &BTreeMap<u64, &Journey>) {
        let guilty = observed.checks.iter().filter(|check| is_guilty(case, check, observed.window));
        let guilty: Vec<&Journey> = guilty.filter_map(|check| journeys.get(&check.nonce).copied()).collect();
        let by_themselves = (observed.ran.as_slice(), observed.window);
        let kept = case.kept.and_then(|kept| receiving::mistake(kept, &said.receiving, &guilty, by_themselves));
        let missing = if case.picture { picture::missing(case, observed, said, journeys) } else { Vec::new() };
        let lost = guilty.iter().filter_map(|journey| journey.lost_at.as_deref());
        let senders: Vec<u32> = observed.sent.iter().map(|sent| sent.tid).collect();
        let filled = case.filled.and_then(|queue| filled::mistake(&senders, queue, lost));
        self.miskept = usize::from(kept.is_some());
        self.mispictured = missing.len();
        self.misfilled = usize::from(filled.is_some());
        self.remarks.extend(kept.into_iter().chain(missing).chain(filled));
    }

    fn mark_guilty(&mut self, case: &Case, check: &Check, journey: Option<&Journey>) {
        let expect = &case.expect;
        self.guilty += 1;
        let Some(journey) = journey else {
            self.unseen += 1;
            return;
        };
        let causes = expect.right_causes(check.rtt_ns().is_none());
        if let Some(lost_at) = case.lost_at.filter(|_| check.rtt_ns().is_none()) {
            self.mark_place(lost_at, journey);
        }
        match journey.blamed() {
            None if causes.is_empty() => self.mark_right(check),
            None => self.mark_unresolved(journey),
            Some(cause) if causes.contains(&cause) => {
                self.mark_right(check);
                self.mark_offender(expect, journey, cause);
                self.mark_part(case.part, journey);
                self.mark_time(expect, check, journey, causes, TIME_SLACK_NS * case.slowdown);
            }
            Some(cause) => {
                self.accuse(journey);
                self.behind_others += usize::from(RUN_QUEUE.contains(&cause));
                self.remark(journey, &format!("blamed on {cause}"));
            }
        }
    }

    /// Without a word for the app it must not be called saturated; with one, it must be called that.
    fn mark_service(&mut self, expect: Option<Service>, journey: Option<&Journey>) {
        let Some((journey, said)) = journey.and_then(|journey| Some((journey, journey.verdict.service.as_deref()?)))
        else {
            return;
        };
        let right = expect.map_or(said != Service::Saturated.name(), |expect| said == expect.name());
        if right {
            self.served += 1;
        } else {
            self.misjudged += 1;
            self.remark(journey, &format!("the app is called {said}"));
        }
    }

    /// The mark of a run that is right otherwise, by what is said of the app. Of some checks it is not proven.
    fn conclude_words(&self, case: &Case) -> Mark {
        match case.service {
            _ if self.misjudged > 0 || (!case.starves && self.starved > 0) => Mark::Wrong,
            _ if self.missplit + self.misshared + self.misplaced > 0 => Mark::Wrong,
            _ if self.miskept + self.mispictured + self.misfilled > 0 => Mark::Wrong,
            _ if self.unplaced > 0 => Mark::Unresolved,
            _ if case.part.is_some() && self.split * 2 < self.right_slow => Mark::Unresolved,
            _ if case.starves && self.starved * 2 < self.right_slow => Mark::Unresolved,
            Some(Service::Saturated | Service::Broken) if self.served * 2 < self.right_slow => Mark::Unresolved,
            Some(_) | None => Mark::Right,
        }
    }

    /// Of all that the senders of a case sent, whylag's windows tell each one's share; the part that is
    /// `untold` may be one sender's.
    fn mark_senders(&mut self, sent: &[Sent], queues: &[Queue], untold: f64) {
        let senders = || queues.iter().flat_map(|queue| &queue.senders);
        let told_of = |tid: u32| senders().filter(|sender| sender.tid == tid).map(|sender| sender.bytes).sum::<u64>();
        let all: u64 = sent.iter().map(|sent| sent.bytes).sum();
        let told_all: u64 = sent.iter().map(|sent| told_of(sent.tid)).sum();
        self.misshared += usize::from(sent.is_empty());
        for Sent { tid, bytes, .. } in sent {
            let told = told_of(*tid);
            let (share, right) = (told as f64 / told_all as f64, *bytes as f64 / all as f64);
            self.shares.push(format!(
                "thread {tid} sent {:.1} % of the bytes, told {:.1} %",
                right * 100.0,
                share * 100.0
            ));
            if told_all == 0 || (share - right).abs() > SHARE_SLACK * right + untold {
                self.misshared += 1;
            }
        }
        if self.misshared > 0 {
            self.remarks.extend(self.shares.iter().cloned());
        }
    }

    /// The world outside must be blamed, and the host's own NIC have lost nothing.
    fn mark_absence(&mut self, absence: &Absence) {
        if absence.cause.as_deref() != Some(OUTSIDE) || absence.nic_lost.is_some() {
            self.misplaced += 1;
            self.remarks.push(format!("requests did not come, and {absence:?} is told"));
        }
    }

    /// No check that did not come has a journey; how many there are must be told.
    fn mark_absent(&mut self, told: u64) {
        let lost = self.unseen as u64;
        if told.abs_diff(lost) <= ABSENT_SLACK {
            self.placed = self.unseen;
        } else {
            self.misplaced += 1;
            self.remarks.push(format!("{lost} requests did not come, and {told} are told"));
        }
    }

    fn mark_place(&mut self, expect: LostAt, journey: &Journey) {
        let said = journey.lost_at.as_ref();
        if said.is_some_and(|said| said.place == expect.place && said.send_result.as_deref() == expect.sent) {
            self.placed += 1;
        } else {
            // That nothing was seen of its end is no place, and claims none.
            let silent = said.is_some_and(|said| said.place == UNSEEN);
            *(if silent { &mut self.unplaced } else { &mut self.misplaced }) += 1;
            self.remark(journey, &format!("ended at {said:?}"));
        }
    }

    fn mark_right(&mut self, check: &Check) {
        *(if check.rtt_ns().is_some() { &mut self.right_slow } else { &mut self.right_lost }) += 1;
    }

    fn mark_unresolved(&mut self, journey: &Journey) {
        self.unresolved += 1;
        let reason = journey.verdict.reason.as_deref().unwrap_or("no reason");
        self.remark(journey, &format!("{}: {reason}", journey.verdict.status));
    }

    fn mark_offender(&mut self, expect: &Expect, journey: &Journey, cause: &str) {
        let Some(expected) = expect.offender else { return };
        let named = journey.offender(cause);
        if !named.is_some_and(|named| named.is_called(expected)) {
            self.misnamed += 1;
            self.remark(journey, &format!("{cause} is right, but named is {named:?}"));
        }
    }

    /// Of requests that were not seen nothing is said, which is not wrong.
    fn mark_part(&mut self, expect: Option<&str>, journey: &Journey) {
        let Some((expect, longest)) = expect.zip(longest_part(journey)) else { return };
        if longest == expect {
            self.split += 1;
        } else {
            self.missplit += 1;
            self.remark(journey, &format!("the most of the wait is said to be {longest}"));
        }
    }

    fn mark_time(&mut self, expect: &Expect, check: &Check, journey: &Journey, causes: &[&str], slack_ns: u64) {
        let Some(rtt) = check.rtt_ns() else { return };
        self.attributed_ns += journey.attributed_ns(causes);
        self.measured_ns += rtt;
        self.amounts.push(Amount {
            measured_ns: rtt,
            attributed_ns: journey.attributed_ns(causes) + journey.attributed_ns(expect.beside),
            unexplained_ns: journey.unexplained_ns,
        });
        if journey.elapsed_ns.abs_diff(rtt) > (rtt / 20).max(slack_ns) {
            self.mistimed += 1;
            self.remark(journey, &format!("took {} µs, the client says {}", journey.elapsed_ns / 1_000, rtt / 1_000));
        }
    }

    /// A check that took no time must not be blamed on anything.
    fn mark_innocent(&mut self, check: &Check, journey: Option<&Journey>) {
        if let Some((journey, cause)) = journey.and_then(|journey| Some((journey, journey.blamed()?))) {
            self.accuse(journey);
            let rtt = check.rtt_ns().unwrap_or(0) / 1_000;
            self.remark(journey, &format!("answered in {rtt} µs and blamed on {cause}"));
        }
    }

    /// A verdict is confident and wrong.
    fn accuse(&mut self, journey: &Journey) {
        self.wrong += 1;
        if self.wrong == 1 {
            self.suspect = Some(journey.id.clone());
        }
    }

    fn remark(&mut self, journey: &Journey, what: &str) {
        self.suspect.get_or_insert_with(|| journey.id.clone());
        if self.remarks.len() < REMARKS {
            let ledger = journey.ledger.iter().map(|entry| format!("{} {} µs", entry.cause, entry.ns / 1_000));
            let ledger = ledger.collect::<Vec<_>>().join(", ");
            self.remarks.push(format!("journey {} ({}): {what}; [{ledger}]", journey.id, journey.outcome));
        }
    }

    fn conclude(&self, expect: &Expect, proven: bool) -> Mark {
        let few = |right: usize, causes: &[&str]| !causes.is_empty() && right < expect.at_least;
        let right = self.right_slow + self.right_lost;
        if !proven {
            Mark::Unproven
        } else if self.wrong > 0 || self.inexact > 0 || self.misnamed * 2 > right || self.mistimed * 10 > right {
            Mark::Wrong
        } else if few(self.right_slow, expect.slow) || few(self.right_lost, expect.lost) {
            Mark::Unresolved
        } else {
            Mark::Right
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Amount, Check, Expect, Journey, Mark, Observed, Score, Window, disturbance, is_guilty, longest_part, mono_ns,
    };
    use crate::lab::case::find;
    use crate::lab::truth::Proof;

    const EXPECT: Expect =
        Expect { slow: &["app.futex"], lost: &["nic.drop"], offender: None, beside: &[], at_least: 2 };

    #[test]
    fn lost_and_slow_checks_have_their_own_right_causes() {
        assert_eq!(EXPECT.right_causes(true), ["nic.drop"]);
        assert_eq!(EXPECT.right_causes(false), ["app.futex"]);
        assert_eq!(Expect { lost: &[], ..EXPECT }.right_causes(true), ["app.futex"]);
    }

    #[test]
    fn one_wrong_verdict_spoils_a_run_and_silence_does_not_pass_it() {
        let mark = |score: Score| score.conclude(&EXPECT, true);
        let good = Score { right_slow: 9, right_lost: 9, ..Score::default() };
        assert_eq!(mark(good.clone()), Mark::Right);
        assert_eq!(mark(Score { wrong: 1, ..good.clone() }), Mark::Wrong);
        assert_eq!(mark(Score { misnamed: 10, ..good.clone() }), Mark::Wrong);
        assert_eq!(mark(Score { inexact: 1, ..good.clone() }), Mark::Wrong);
        assert_eq!(mark(Score { right_lost: 1, unresolved: 8, ..good.clone() }), Mark::Unresolved);
        assert_eq!(good.conclude(&EXPECT, false), Mark::Unproven);
    }

    /// A run with a check that took so long in the middle of the fault.
    fn observed(rtt_ms: u64, run_delay_ms: u64) -> Observed {
        let sent_at_ns = 1_100_000_000;
        let answered_at_ns = Some(sent_at_ns + rtt_ms * 1_000_000);
        Observed {
            checks: vec![Check { nonce: 0, due_at_ns: sent_at_ns, sent_at_ns, answered_at_ns }],
            window: Window { began_ns: 1_000_000_000, ended_ns: 1_600_000_000 },
            control_p95_ns: 0,
            proof: Proof { moved: 1, at_least: 1 },
            guest: None,
            run_delay_ns: run_delay_ms * 1_000_000,
            wall_offset_ns: 0,
            said: None,
            joined: None,
            told_live: None,
            sent: Vec::new(),
            ran: Vec::new(),
            second_began_ns: 0,
            machine: String::new(),
        }
    }

    #[test]
    fn a_run_that_the_machine_made_another_case_counts_for_nothing() {
        let disturbed = |case, rtt_ms, run_delay_ms, score: &Score| {
            disturbance(find(case).unwrap(), &observed(rtt_ms, run_delay_ms), score).is_some()
        };
        let good = Score::default();
        assert!(disturbed("loop-is-fair", 60, 0, &good) && !disturbed("loop-is-fair", 39, 90, &good));
        assert!(!disturbed("handler-sleeps", 400, 400, &good), "nothing is excused that was not said");
        let behind = Score { wrong: 2, behind_others: 2, ..Score::default() };
        assert!(disturbed("server-saturated", 60, 20, &behind) && !disturbed("server-saturated", 60, 19, &behind));
        assert!(disturbed("guest-lock-held", 60, 80, &behind) && !disturbed("guest-lock-held", 60, 79, &behind));
        assert!(!disturbed("cpu-quota", 60, 90, &behind), "the case itself is about that");
        assert!(!disturbed("server-saturated", 60, 90, &Score { wrong: 3, ..behind }), "something else is wrong");
    }

    #[test]
    fn an_amount_is_right_within_5_percent_or_2_ms() {
        let amount = |measured_ns, attributed_ns| Amount { measured_ns, attributed_ns, unexplained_ns: 9_000_000 };
        assert!(amount(400_000_000, 380_000_000).is_right() && !amount(400_000_000, 379_000_000).is_right());
        assert!(amount(30_000_000, 28_000_000).is_right() && !amount(30_000_000, 27_900_000).is_right());
        assert_eq!(amount(30_000_000, 0).unexplained_permille(), 300);
    }

    #[test]
    fn a_wrong_word_for_the_app_spoils_a_run_and_a_missing_one_does_not_pass_it() {
        let mark = |name: &str, score: Score| score.conclude_words(find(name).unwrap());
        let good = Score { right_slow: 9, served: 8, ..Score::default() };
        assert_eq!(mark("server-saturated", good.clone()), Mark::Right);
        assert_eq!(mark("server-saturated", Score { misjudged: 1, ..good.clone() }), Mark::Wrong);
        assert_eq!(mark("server-saturated", Score { served: 4, ..good.clone() }), Mark::Unresolved);
        assert_eq!(mark("workers-saturated", Score { served: 0, ..good.clone() }), Mark::Right);
        assert_eq!(mark("workers-saturated", Score { starved: 1, ..good.clone() }), Mark::Wrong);
        assert_eq!(mark("loop-starves-replies", good), Mark::Unresolved);
    }

    #[test]
    fn an_end_elsewhere_spoils_a_run_and_an_unseen_one_does_not_pass_it() {
        let case = find("neighbour-fails").unwrap();
        let mark = |places: &[&str]| {
            let mut score = Score { right_lost: 9, ..Score::default() };
            for place in places {
                let journey = serde_json::json!({"type": "journey", "id": "1", "signature": "s", "target": "t",
                    "outcome": "lost", "started_at": "1970-01-01T00:00:02Z", "elapsed_ns": 9, "slow": true,
                    "stages": [], "ledger": [], "unexplained_ns": 9,
                    "loss": {"place": place, "stage": "pnic_rx", "send_result": null},
                    "verdict": {"status": "unresolved", "cause": null, "share": null, "reason": "r"}});
                score.mark_place(case.lost_at.unwrap(), &serde_json::from_value(journey).unwrap());
            }
            score.conclude_words(case)
        };
        assert_eq!(mark(&["neighbour", "neighbour"]), Mark::Right);
        assert_eq!(mark(&["neighbour", "unseen"]), Mark::Unresolved);
        assert_eq!(mark(&["neighbour", "unseen", "qdisc"]), Mark::Wrong);
    }

    #[test]
    fn the_part_that_took_most_is_read_from_the_longest_entry_that_tells_parts() {
        let entry = |ns: u64, fact: &str| {
            let facts = ["asleep in __iomap_dio_rw", fact];
            serde_json::json!({"cause": "storage.block_queue", "ns": ns, "span": "hold", "offender": null,
                "path": [], "evidence": facts})
        };
        let longest = |ledger: &[serde_json::Value]| {
            let journey = serde_json::json!({"type": "journey", "id": "1", "signature": "s", "target": "t",
                "outcome": "replied", "started_at": "1970-01-01T00:00:02.000000007Z", "elapsed_ns": 9, "slow": true,
                "stages": [], "ledger": ledger, "unexplained_ns": 0,
                "verdict": {"status": "cause", "cause": "storage.block_queue", "share": 1.0, "reason": null}});
            let journey: Journey = serde_json::from_value(journey).unwrap();
            longest_part(&journey).map(str::to_owned)
        };
        let throttled = entry(9, "of its request to loop0 7:0: 1.38 s held back by a throttle, 41.6 ms at the device");
        let slow = entry(8, "of its request to loop0 7:0: 950 ns for room, 41.6 ms at the device");
        assert_eq!(longest(&[slow.clone(), throttled]).as_deref(), Some("held back by a throttle"));
        assert_eq!(longest(&[entry(9, "for a file"), slow]).as_deref(), Some("at the device"));
        assert_eq!(longest(&[entry(9, "all of it for a free tag")]).as_deref(), Some("a free tag"));
        assert_eq!(longest(&[entry(9, "for a file")]), None);
    }

    #[test]
    fn only_checks_that_the_fault_delayed_are_guilty() {
        let case = find("handler-sleeps").unwrap();
        let window = Window { began_ns: 1_000_000_000, ended_ns: 1_400_000_000 };
        let guilty = |sent: u64, rtt: Option<u64>| {
            let sent_at_ns = sent * 1_000_000;
            let answered_at_ns = rtt.map(|rtt| sent_at_ns + rtt * 1_000_000);
            is_guilty(case, &Check { nonce: 0, due_at_ns: sent_at_ns, sent_at_ns, answered_at_ns }, window)
        };
        assert!(guilty(999, Some(401)) && guilty(1_100, None) && guilty(1_300, Some(120)));
        assert!(
            !guilty(1_390, Some(10))
                && !guilty(1_350, Some(200))
                && !guilty(900, Some(50))
                && !guilty(1_500, Some(100))
        );
    }

    #[test]
    fn wall_times_are_read_to_the_nanosecond() {
        assert_eq!(mono_ns("1970-01-01T00:00:02.000000007Z", 2_000_000_000).unwrap(), 7);
    }
}
