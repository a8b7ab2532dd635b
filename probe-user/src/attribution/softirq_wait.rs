//! Stretches in which received packets waited on a CPU for the softirq that takes them in.
//!
//! Records go in; the waits of a CPU over a stretch of time come out. Bounded by age and by count, as
//! all evidence.

use super::frame::Frame;
use super::symbol::Fast;
use super::thread::Named;
use crate::clock::{DurNs, MonoNs};
use crate::event::{Event, TaskId};
use probe_wire::{SoftirqWaitBody, WAIT_LEFT_OVER, WAIT_SAME_SLICE};
use std::collections::{HashMap, VecDeque};

/// Most waits kept of one CPU.
const MAX_WAITS: usize = 4_096;

/// Functions that let softirqs run again, and run those that are due.
/// <https://github.com/torvalds/linux/blob/v6.12/kernel/softirq.c> (`__local_bh_enable_ip`)
const LET_RUN: &[&str] =
    &["__local_bh_enable_ip", "_raw_spin_unlock_bh", "_raw_read_unlock_bh", "_raw_write_unlock_bh"];
/// Functions that end an interrupt, and run what is due then.
const END_INTERRUPT: &[&str] = &["irq_exit_rcu", "__irq_exit_rcu", "irq_exit"];

/// On top of what the softirq ran when it ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Top {
    /// The thread let softirqs run again in this function, which had held them off.
    HeldOff(Box<str>),
    /// An interrupt had interrupted the thread, and ended.
    Interrupt,
    /// Something else, or it is not known: no stack was taken, or its names are not known.
    Other,
}

impl Top {
    /// From a stack, innermost first.
    fn of<'a>(frames: impl Iterator<Item = &'a Frame>) -> Self {
        let is = |names: &[&str], frame: &Frame| names.contains(&frame.name());
        let mut frames = frames.skip_while(|frame| !is(LET_RUN, frame) && !is(END_INTERRUPT, frame)).peekable();
        match frames.peek() {
            Some(frame) if is(LET_RUN, frame) => {
                let holder = frames.find(|frame| !is(LET_RUN, frame));
                holder.map_or(Self::Other, |holder| Self::HeldOff(holder.name().into()))
            }
            Some(_) => Self::Interrupt,
            None => Self::Other,
        }
    }
}

/// The softirq for received packets was due on a CPU, and did not run.
#[derive(Debug, Clone)]
pub(super) struct SoftirqWait {
    /// When it was raised.
    pub(super) from: MonoNs,
    /// When it began.
    pub(super) to: MonoNs,
    /// The thread that had the CPU when it began.
    pub(super) thread: Named,
    /// Start time of that thread.
    pub(super) start_ns: u64,
    /// Whether the thread had had the CPU all the while.
    pub(super) same_slice: bool,
    /// Whether it was what a softirq before it had left.
    pub(super) left_over: bool,
    /// What the hypervisor took of it.
    pub(super) steal: DurNs,
    /// On top of what it ran.
    pub(super) top: Top,
}

/// The waits of all CPUs.
#[derive(Debug, Default)]
pub(super) struct SoftirqWaits {
    by_cpu: HashMap<u32, VecDeque<SoftirqWait>, Fast>,
}

impl SoftirqWaits {
    /// Takes in a record, whose stack has these frames.
    pub(super) fn add<'a>(&mut self, event: &Event, body: &SoftirqWaitBody, frames: impl Iterator<Item = &'a Frame>) {
        let TaskId { tgid, tid } = event.task;
        let wait = SoftirqWait {
            from: MonoNs(body.raised_ns).min(event.at),
            to: event.at,
            thread: Named { task: TaskId { tgid, tid }, comm: body.comm },
            start_ns: body.start_time_ns,
            same_slice: body.flags & WAIT_SAME_SLICE != 0,
            left_over: body.flags & WAIT_LEFT_OVER != 0,
            steal: DurNs(body.steal_ns),
            top: Top::of(frames),
        };
        let waits = self.by_cpu.entry(event.cpu).or_default();
        if waits.len() >= MAX_WAITS {
            waits.pop_front();
        }
        waits.push_back(wait);
    }

    /// Forgets what ended before `before`.
    pub(super) fn trim(&mut self, before: MonoNs) {
        self.by_cpu.retain(|_, waits| {
            waits.drain(..waits.partition_point(|wait| wait.to < before));
            !waits.is_empty()
        });
    }

    /// The waits of a CPU that overlap a stretch of time, in their order.
    pub(super) fn overlapping(&self, cpu: u32, from: MonoNs, to: MonoNs) -> impl Iterator<Item = &SoftirqWait> {
        let waits = self.by_cpu.get(&cpu).into_iter();
        let waits = waits.flat_map(move |waits| waits.range(waits.partition_point(|wait| wait.to <= from)..));
        waits.take_while(move |wait| wait.from < to)
    }

    #[cfg(test)]
    pub(super) fn count(&self, cpu: u32) -> usize {
        self.by_cpu.get(&cpu).map_or(0, VecDeque::len)
    }

    #[cfg(test)]
    pub(super) const MOST: usize = MAX_WAITS;
}

#[cfg(test)]
mod tests {
    use super::{Frame, SoftirqWaits, Top};
    use crate::attribution::story::{Actor, HOG, IDLE, MS, SERVER, Story, at, concluded, longest, taken};
    use crate::attribution::{Cause, Judged, Verdict};
    use crate::clock::DurNs;
    use crate::event::{Fact, InterfaceId};
    use crate::journey::{Perspective, Stage};
    use probe_wire::{WAIT_LEFT_OVER, WAIT_SAME_SLICE};

    const VETH: InterfaceId = InterfaceId { netns: 3, ifindex: 2 };
    const KSOFTIRQD: Actor = Actor(16, 16, "ksoftirqd/0");
    const BATCH: Actor = Actor(950, 951, "batch");
    const READ: &str =
        "__traceiter_softirq_entry handle_softirqs do_softirq __local_bh_enable_ip neigh_seq_stop traverse";
    const TICK: &str = "handle_softirqs irq_exit_rcu sysvec_apic_timer_interrupt";
    const THREAD: &str = "handle_softirqs run_ksoftirqd smpboot_thread_fn kthread";
    const HOOKS: [&str; 4] = ["softirq_entry", "softirq_exit", "softirq_raise", "sched_switch"];

    /// A check is handed to a pod, and taken in there on CPU 0 after 100 ms.
    fn crosses() -> Story {
        let mut story = Story::new();
        story.interface(VETH, "veth0", "veth").hooks(&HOOKS);
        story.stamp(100, Stage::PnicRx, None).stamp(110, Stage::VnicTx, None).stamp(100 * MS, Stage::GuestRx, None);
        story.journey.stamps[2].interface = VETH;
        story.stamp(100 * MS + 5, Stage::SockEnqueue, None);
        story.stamp(100 * MS + 9, Stage::SockRead, Some(SERVER)).stamp(100 * MS + 15, Stage::AppSend, Some(SERVER));
        story
    }

    fn received(judged: &Judged) -> (Option<Cause>, DurNs) {
        (concluded(judged), taken(judged, Cause::NicRxSoftirq))
    }

    #[test]
    fn a_thread_that_holds_softirqs_off_is_the_offender() {
        let mut story = crosses();
        story.softirq_waits((120, 99 * MS), HOG, (WAIT_SAME_SLICE, 0), READ);
        let judged = story.judge();
        assert_eq!(received(&judged), (Some(Cause::NicRxSoftirq), DurNs(98_880_000)), "{judged:#?}");
        let entry = longest(&judged, Cause::NicRxSoftirq);
        assert_eq!(entry.offender.as_ref().map(|who| who.comm.as_str()), Some("hog"));
        let facts = entry.evidence.join("; ");
        assert!(facts.contains("hog held softirqs off there meanwhile; neigh_seq_stop let them run again"), "{facts}");
    }

    #[test]
    fn what_softirqs_left_over_is_the_doing_of_who_had_the_cpu() {
        let mut story = crosses();
        for turn in 0..12 {
            let begin = MS + turn * 8 * MS;
            story.softirq(begin, begin + 3 * MS, 3);
            let flags = WAIT_SAME_SLICE | WAIT_LEFT_OVER;
            story.softirq_waits((begin + 2 * MS, begin + 8 * MS), HOG, (flags, 0), TICK);
        }
        let judged = story.judge();
        assert_eq!(concluded(&judged), Some(Cause::NicRxSoftirq), "{judged:#?}");
        let entries = judged.ledger.entries.iter().filter(|entry| entry.cause == Cause::NicRxSoftirq);
        let by_hog = entries.filter(|entry| entry.offender.as_ref().is_some_and(|who| who.comm == "hog"));
        let time = by_hog.fold(DurNs::ZERO, |sum, entry| sum.plus(entry.time()));
        assert_eq!(time, DurNs::from_millis(60));
    }

    /// What a softirq left waits until a tick, and others than the one that it interrupts had the CPU, too.
    fn others_had_the_cpu(runs: &[(u64, Actor, u64)], flags: u32) -> Judged {
        let mut story = crosses();
        let id = BATCH.id();
        story.fact(0, Fact::Runner { id, start_time_ns: 951_000_000_000, cgroup: "/batch.slice".to_owned() });
        story.task(0, KSOFTIRQD, 'S', Some("smpboot_thread_fn")).wakes_in(2 * MS, HOG, KSOFTIRQD, 4);
        for (end, who, ran) in runs {
            story.ran_there(*end, *who, *ran);
        }
        story.softirq_waits((2 * MS, 99 * MS), HOG, (flags, 0), TICK).runs_after(99 * MS + 5, KSOFTIRQD, HOG);
        story.judge()
    }

    #[test]
    fn of_several_that_had_the_cpu_the_one_that_had_it_longest_is_the_offender() {
        let runs = [(12 * MS, HOG, 15 * MS), (80 * MS, BATCH, 68 * MS), (99 * MS, HOG, 19 * MS)];
        for flags in [WAIT_LEFT_OVER, 0] {
            let judged = others_had_the_cpu(&runs, flags);
            assert_eq!(received(&judged), (Some(Cause::NicRxSoftirq), DurNs::from_millis(97)), "{judged:#?}");
            let entry = longest(&judged, Cause::NicRxSoftirq);
            let who = entry.offender.clone().unwrap_or_default();
            assert_eq!((who.comm.as_str(), who.cgroup.as_str()), ("batch", "/batch.slice"), "{entry:#?}");
            let facts = entry.evidence.join("; ");
            assert!(facts.contains("CPU 0 ran instead: pid 950/951 batch 68.0 ms, pid 900/900 hog 29.0 ms"), "{facts}");
        }
    }

    #[test]
    fn where_records_of_the_cpu_cover_little_nobody_is_named() {
        let judged = others_had_the_cpu(&[(30 * MS, BATCH, 20 * MS)], WAIT_LEFT_OVER);
        assert_eq!(concluded(&judged), Some(Cause::NicRxSoftirq), "{judged:#?}");
        assert_eq!(longest(&judged, Cause::NicRxSoftirq).offender, None);
    }

    #[test]
    fn what_was_not_left_to_the_thread_is_not_the_doing_of_who_had_the_cpu() {
        let mut story = crosses();
        story.task(0, KSOFTIRQD, 'S', Some("smpboot_thread_fn")).wakes_in(60 * MS, HOG, KSOFTIRQD, 4);
        story.ran_there(99 * MS, HOG, 99 * MS).softirq_waits((2 * MS, 99 * MS), HOG, (WAIT_SAME_SLICE, 0), TICK);
        let judged = story.judge();
        assert!(matches!(judged.verdict, Verdict::Unresolved { .. }), "{judged:#?}");
    }

    #[test]
    fn left_to_a_thread_who_had_its_cpu_is_the_offender() {
        let mut story = crosses();
        story.task(0, KSOFTIRQD, 'S', Some("smpboot_thread_fn")).wakes_in(2 * MS, HOG, KSOFTIRQD, 4);
        story.softirq_waits((2 * MS - 10, 99 * MS + 2), KSOFTIRQD, (WAIT_LEFT_OVER, 0), THREAD);
        story.runs_after(99 * MS, KSOFTIRQD, HOG);
        let judged = story.judge();
        assert_eq!(concluded(&judged), Some(Cause::NicRxSoftirq), "{judged:#?}");
        let entry = longest(&judged, Cause::NicRxSoftirq);
        assert_eq!(entry.offender.as_ref().map(|who| who.comm.as_str()), Some("hog"), "{entry:#?}");
    }

    #[test]
    fn without_proof_of_what_kept_it_nothing_is_blamed() {
        let tell = |who: Actor, marks: (u32, u64), stack: &str| {
            let mut story = crosses();
            story.softirq_waits((120, 99 * MS), who, marks, stack);
            story.judge()
        };
        for (who, marks, stack) in [
            (HOG, (WAIT_SAME_SLICE, 0), TICK),
            (HOG, (0, 0), READ),
            (HOG, (WAIT_SAME_SLICE, 90 * MS), READ),
            (HOG, (WAIT_SAME_SLICE, 0), ""),
            (IDLE, (WAIT_SAME_SLICE, 0), READ),
        ] {
            let judged = tell(who, marks, stack);
            assert!(matches!(judged.verdict, Verdict::Unresolved { .. }), "{who:?} {marks:?} {stack}: {judged:#?}");
        }
    }

    #[test]
    fn a_thread_that_waits_for_its_cpu_explains_nothing_where_no_softirq_was_due() {
        let mut story = crosses();
        story.task(0, KSOFTIRQD, 'S', Some("smpboot_thread_fn")).wakes_in(2 * MS, HOG, KSOFTIRQD, 4);
        story.runs_after(99 * MS, KSOFTIRQD, HOG);
        assert!(matches!(story.judge().verdict, Verdict::Unresolved { .. }));
    }

    /// The host asks a server elsewhere, whose answer is taken in after 100 ms.
    fn asks() -> Story {
        let mut story = Story::new();
        story.hooks(&[HOOKS.as_slice(), &["qdisc_enqueue", "qdisc_dequeue"]].concat());
        story.journey.perspective = Perspective::Sent;
        story.stamp(10, Stage::AppSend, Some(SERVER)).stamp(20, Stage::PnicQueue, None);
        story.stamp(30, Stage::PnicXmit, None).stamp(100 * MS, Stage::PnicRx, None);
        story
    }

    #[test]
    fn what_may_have_been_here_already_is_not_blamed_on_outside() {
        assert_eq!(concluded(&asks().judge()), Some(Cause::ExternalOutsideHost));
        let mut behind = asks();
        behind.softirq_waits((20 * MS, 100 * MS - 10), HOG, (WAIT_SAME_SLICE, 0), READ);
        let judged = behind.judge();
        assert!(matches!(judged.verdict, Verdict::Unresolved { .. }), "{judged:#?}");
        assert_eq!(taken(&judged, Cause::ExternalOutsideHost), DurNs(19_970_000));
        let mut earlier = asks();
        earlier.softirq_waits((20 * MS, 90 * MS), HOG, (WAIT_SAME_SLICE, 0), READ);
        assert_eq!(concluded(&earlier.judge()), Some(Cause::ExternalOutsideHost), "it was over by then");
    }

    /// First the softirq thread waits, then a thread holds softirqs off.
    fn starved_then_held_off() -> Story {
        let mut story = crosses();
        story.task(0, KSOFTIRQD, 'S', Some("smpboot_thread_fn")).wakes_in(2 * MS, HOG, KSOFTIRQD, 4);
        story.softirq(MS, 2 * MS, 3).softirq_waits((2 * MS - 10, 50 * MS), KSOFTIRQD, (WAIT_LEFT_OVER, 0), THREAD);
        story.runs_after(50 * MS - 2, KSOFTIRQD, HOG).softirq(50 * MS, 60 * MS, 3);
        story.softirq_waits((60 * MS, 99 * MS), HOG, (WAIT_SAME_SLICE, 0), READ);
        story
    }

    #[test]
    fn no_missing_record_makes_another_cause_of_it() {
        for record in 0..starved_then_held_off().records() {
            let mut story = starved_then_held_off();
            let lost = story.loses(record);
            let cause = concluded(&story.judge());
            assert!([None, Some(Cause::NicRxSoftirq)].contains(&cause), "without {lost}: {cause:?}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut story = Story::new();
        for ms in 0..SoftirqWaits::MOST as u64 + 10 {
            story.softirq_waits((ms * MS, (ms + 1) * MS), HOG, (WAIT_SAME_SLICE, 0), READ);
        }
        let evidence = &mut story.tell().evidence;
        assert_eq!(evidence.softirq_wait_count(0), SoftirqWaits::MOST);
        evidence.trim(at(60_000 * MS));
        assert_eq!(evidence.softirq_wait_count(0), 0);
    }

    fn top(names: &str) -> Top {
        let frames: Vec<_> = names.split_whitespace().map(Frame::new).collect();
        Top::of(frames.iter())
    }

    #[test]
    fn who_held_softirqs_off_is_the_caller_of_what_lets_them_run() {
        let read = "bpf_trace_run1 __traceiter_softirq_entry handle_softirqs do_softirq.part.0 __local_bh_enable_ip \
                    neigh_seq_stop traverse seq_read_iter vfs_read";
        assert_eq!(top(read), Top::HeldOff("neigh_seq_stop".into()));
        let unlock = "handle_softirqs do_softirq __local_bh_enable_ip _raw_spin_unlock_bh udp_seq_stop seq_read";
        assert_eq!(top(unlock), Top::HeldOff("udp_seq_stop".into()));
        assert_eq!(top("handle_softirqs __local_bh_enable_ip"), Top::Other, "the stack ends there");
    }

    #[test]
    fn an_interrupt_on_top_of_a_thread_that_holds_softirqs_off_is_an_interrupt() {
        let tick = "handle_softirqs __irq_exit_rcu sysvec_apic_timer_interrupt asm_sysvec_apic_timer_interrupt \
                    __local_bh_enable_ip neigh_seq_stop";
        assert_eq!(top(tick), Top::Interrupt);
        assert_eq!(top("handle_softirqs run_ksoftirqd smpboot_thread_fn kthread"), Top::Other);
        assert_eq!(top(""), Top::Other);
    }
}
