//! Block requests whose end woke a thread, and what each part of their way took of its wait.
//!
//! Only what was seen is told: a part whose begin or end is not known belongs to no part.

use super::symbol::Fast;
use crate::clock::{DurNs, MonoNs};
use crate::event::{Event, TaskId};
use probe_wire::BlockRequestBody;
use std::collections::{HashMap, VecDeque};

/// Most threads of which requests are kept.
const MAX_THREADS: usize = 8_192;
/// Most requests kept of one.
const MAX_PER_THREAD: usize = 4_096;
/// The record is made by the program that tells of the wake-up, right behind that.
const SAME_WAKE_UP: DurNs = DurNs(100_000);

/// A request that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// When its end was told.
    at: MonoNs,
    /// Major number << 20 | minor number.
    pub(super) device: u32,
    /// A throttle had held it back until it was queued.
    throttled: bool,
    /// Who queued it.
    by: TaskId,
    queued: MonoNs,
    /// `None` where the kernel does not tell.
    granted: Option<MonoNs>,
    issued: MonoNs,
    done: MonoNs,
}

/// What the parts of a request's way took of a wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// Until the device's throttle let it go.
    pub(super) throttle: DurNs,
    /// Until there was room among the device's requests: a tag, or its limit of writes.
    pub(super) room: DurNs,
    /// From there until the scheduler handed it to the driver.
    pub(super) scheduler: DurNs,
    /// Both, where they cannot be told apart.
    pub(super) queue: DurNs,
    /// Until the driver was done.
    pub(super) device: DurNs,
}

impl Request {
    /// `None` unless it was seen on its whole way, in order.
    fn of(at: MonoNs, body: &BlockRequestBody) -> Option<Self> {
        let BlockRequestBody { queued_ns, granted_ns, issued_ns, done_ns, .. } = *body;
        let in_order = 0 < queued_ns && queued_ns <= issued_ns && issued_ns <= done_ns && done_ns <= at.0;
        in_order.then(|| Self {
            at,
            device: body.device,
            throttled: body.throttled != 0,
            by: TaskId { tgid: body.by_tgid, tid: body.by_tid },
            queued: MonoNs(queued_ns),
            // One that joined another request has that one's time, which may be any.
            granted: (granted_ns > 0).then(|| MonoNs(granted_ns.clamp(queued_ns, issued_ns))),
            issued: MonoNs(issued_ns),
            done: MonoNs(done_ns),
        })
    }

    /// What it took of `from` to `to`. Of the time before it was queued, only a throttle is known.
    pub(super) fn parts(&self, from: MonoNs, to: MonoNs) -> Parts {
        let within = |begin: MonoNs, end: MonoNs| end.min(to).since(begin.max(from));
        let throttle = if self.throttled { within(from, self.queued) } else { DurNs(0) };
        let parts = Parts { throttle, device: within(self.issued, self.done), ..Parts::default() };
        match self.granted {
            None => Parts { queue: within(self.queued, self.issued), ..parts },
            Some(granted) => {
                Parts { room: within(self.queued, granted), scheduler: within(granted, self.issued), ..parts }
            }
        }
    }
}

impl Parts {
    /// For people; `None` if nothing of the wait is known.
    pub(super) fn told(&self, device: &str) -> Option<String> {
        let all = [
            (self.throttle, "held back by a throttle"),
            (self.room, "for room among the device's requests"),
            (self.scheduler, "in the scheduler"),
            (self.queue, "for room among the device's requests or in the scheduler"),
            (self.device, "at the device"),
        ];
        let known = all.iter().filter(|(time, _)| time.0 > 0).map(|(time, part)| format!("{time} {part}"));
        let known: Vec<String> = known.collect();
        (!known.is_empty()).then(|| format!("of its request to {device}: {}", known.join(", ")))
    }
}

/// Requests by the thread that their end woke.
#[derive(Debug, Default)]
pub(super) struct Requests(HashMap<TaskId, VecDeque<Request>, Fast>);

impl Requests {
    pub(super) fn add(&mut self, event: &Event, body: &BlockRequestBody) {
        let woken = TaskId { tgid: body.tgid, tid: body.tid };
        let Some(request) = Request::of(event.at, body) else { return };
        if self.0.len() >= MAX_THREADS && !self.0.contains_key(&woken) {
            return;
        }
        let requests = self.0.entry(woken).or_default();
        if requests.len() >= MAX_PER_THREAD {
            requests.pop_front();
        }
        requests.push_back(request);
    }

    /// Forgets what ended before `before`.
    pub(super) fn trim(&mut self, before: MonoNs) {
        self.0.retain(|_, requests| {
            requests.drain(..requests.partition_point(|request| request.at < before));
            !requests.is_empty()
        });
    }

    /// The request whose end woke `task` at `woken`.
    pub(super) fn ended(&self, task: TaskId, woken: MonoNs) -> Option<&Request> {
        let requests = self.0.get(&task)?;
        let found = requests.get(requests.partition_point(|request| request.at < woken))?;
        (found.at.since(woken) <= SAME_WAKE_UP && found.done <= woken).then_some(found)
    }

    /// The request for which `task` itself waited for room from `left` to `woken`: it had queued that
    /// before, and got the room later.
    pub(super) fn wanted(&self, task: TaskId, left: MonoNs, woken: MonoNs) -> Option<&Request> {
        let requests = self.0.get(&task)?;
        let later = requests.range(requests.partition_point(|request| request.at < woken)..);
        let mut own = later.filter(|request| request.by == task);
        own.find(|request| request.queued <= left && request.granted.is_some_and(|granted| granted >= woken))
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_PER_THREAD, Parts, Requests};
    use crate::attribution::Cause;
    use crate::attribution::story::{KWORKER, MS, RECEIVE, SERVER, Story, at, concluded, longest};
    use crate::clock::DurNs;
    use crate::event::Fact;

    const LOOP: u32 = 7 << 20 | 1;
    const DIRECT: &str = "io_schedule __iomap_dio_rw iomap_dio_rw ext4_file_read_iter vfs_read";
    const TAGS: &str = "io_schedule blk_mq_get_tag blk_mq_submit_bio submit_bio_wait";

    /// The server sleeps in `frames` for 98 ms, until a completion wakes it.
    fn asleep(frames: &str) -> Story {
        let mut story = Story::served(100 * MS);
        story
            .hooks(&["softirq_entry", "softirq_exit", "sched_switch", "file_wait"])
            .fact(0, Fact::Device { number: LOOP, name: "loop1".to_owned(), below: Vec::new() });
        story.sleeps(MS, SERVER, 2, frames).wakes(99 * MS, KWORKER, SERVER).runs(99 * MS + 5, SERVER);
        story.sleeps(101 * MS, SERVER, 1, RECEIVE);
        story
    }

    /// Device and facts of the longest block wait.
    fn told(story: &mut Story) -> (String, String) {
        let judged = story.judge();
        assert_eq!(concluded(&judged), Some(Cause::StorageBlockQueue), "{judged:#?}");
        let entry = longest(&judged, Cause::StorageBlockQueue);
        (entry.offender.clone().unwrap().device, entry.evidence.join("; "))
    }

    #[test]
    fn a_wait_is_split_between_throttle_room_scheduler_and_device() {
        let mut story = asleep(DIRECT);
        story.request_ends(99 * MS, KWORKER, SERVER, (LOOP, true), [51 * MS, 61 * MS, 64 * MS, 99 * MS]);
        let (device, facts) = told(&mut story);
        assert_eq!(device, "loop1 7:1");
        let parts = "of its request to loop1 7:1: 50.0 ms held back by a throttle, 10.0 ms for room among the \
                     device's requests, 3.00 ms in the scheduler, 35.0 ms at the device";
        assert!(facts.contains(parts), "{facts}");
    }

    #[test]
    fn time_before_the_queue_is_a_throttle_s_only_where_that_was_seen() {
        let mut story = asleep(DIRECT);
        story.request_ends(99 * MS, KWORKER, SERVER, (LOOP, false), [51 * MS, 0, 57 * MS, 99 * MS]);
        let (_, facts) = told(&mut story);
        let parts = "of its request to loop1 7:1: 6.00 ms for room among the device's requests or in the scheduler, \
                     42.0 ms at the device";
        assert!(facts.contains(parts), "{facts}");
    }

    #[test]
    fn of_a_request_that_was_not_seen_whole_or_woke_otherwise_nothing_is_told() {
        let stories = [
            None,
            // not issued; done before it was; for another thread; long behind the wake-up; before it
            Some((99 * MS, SERVER, [MS, 0, 0, 99 * MS])),
            Some((99 * MS, SERVER, [MS, 0, 60 * MS, 50 * MS])),
            Some((99 * MS, KWORKER, [MS, 0, MS, 99 * MS])),
            Some((99 * MS + 200, SERVER, [MS, 0, MS, 99 * MS])),
            Some((98 * MS, SERVER, [MS, 0, MS, 98 * MS])),
        ];
        for request in stories {
            let mut story = asleep(DIRECT);
            if let Some((us, woken, times)) = request {
                story.request_ends(us, KWORKER, woken, (LOOP, false), times);
            }
            let (device, facts) = told(&mut story);
            assert_eq!(device, "", "{request:?}");
            assert!(!facts.contains("of its request"), "{request:?} {facts}");
        }
    }

    #[test]
    fn a_thread_that_waits_for_a_tag_itself_is_said_to() {
        let (device, facts) = told(&mut asleep(TAGS));
        assert_eq!(device, "", "no request of it was seen");
        assert!(facts.contains("all of it for a free tag of the device's queue"), "{facts}");
        // The request that it queued before and had room for later tells the device; no other does.
        let requests = [([900, 99 * MS + 1], "loop1 7:1"), ([900, 90 * MS], ""), ([2 * MS, 99 * MS + 1], "")];
        for ([queued, granted], named) in requests {
            let mut story = asleep(TAGS);
            let (done, times) = (99 * MS + 900, [queued, granted, 99 * MS + 2, 99 * MS + 900]);
            story.request_ends(done, KWORKER, SERVER, (LOOP, false), times);
            assert_eq!(told(&mut story).0, named, "{queued} {granted}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_is_forgotten() {
        let mut story = Story::new();
        for us in 1..10_000 {
            story.request_ends(us, KWORKER, SERVER, (LOOP, false), [us, us, us, us]);
        }
        story.tell();
        assert_eq!(story.evidence.requests().0[&SERVER.id()].len(), MAX_PER_THREAD);
        story.evidence.trim(at(20_000));
        assert!(story.evidence.requests().0.is_empty());
    }

    #[test]
    fn parts_are_cut_to_the_stretch_that_is_asked_for() {
        let mut story = Story::new();
        story.request_ends(90, KWORKER, SERVER, (LOOP, true), [20, 30, 50, 90]).tell();
        let requests: &Requests = story.evidence.requests();
        let parts = requests.ended(SERVER.id(), at(90)).unwrap().parts(at(40), at(80));
        let us = |us: u64| DurNs(us * 1_000);
        assert_eq!(parts, Parts { scheduler: us(10), device: us(30), ..Parts::default() });
    }
}
