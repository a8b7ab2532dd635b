//! Dumps of stacks, on the running kernel.

use super::*;
use crate::clock::DurNs;
use crate::load::UserStacks;
use probe_wire::{DumpBody, DumpKind, STACK_BYTES_MOST};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

/// A dump, kept.
struct Dump {
    header: EventHeader,
    body: DumpBody,
    memory: Vec<u8>,
}

fn with_stacks() -> Request {
    Request { watched_tgids: vec![process::id()], user_stacks: Some(UserStacks::default()), ..Request::default() }
}

/// Drains until one of the dumps is what is looked for.
fn find_dump(attached: &mut Attached, is_it: impl Fn(&Dump) -> bool) -> Dump {
    let mut rings = attached.take_dumps().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut found = None;
    while found.is_none() {
        assert!(Instant::now() < deadline, "it did not come");
        rings
            .poll(Duration::from_millis(10), usize::MAX, |_, record| {
                let (header, rest) = EventHeader::read_from_prefix(record).unwrap();
                let (body, memory) = DumpBody::read_from_prefix(rest).unwrap();
                let copied = usize::try_from(body.copied).unwrap();
                let dump = Dump { header, body, memory: memory[..copied].to_vec() };
                if is_it(&dump) {
                    found.get_or_insert(dump);
                }
            })
            .unwrap();
    }
    found.unwrap()
}

/// Sleeps, with `marks` in its frame; far below its thread's first frame if it is `deep`.
#[inline(never)]
fn sleep_with(marks: [u64; 4], deep: u32) {
    let room = black_box([marks[0]; 64]);
    if deep > 0 {
        sleep_with(marks, deep - 1);
    } else {
        std::thread::sleep(Duration::from_millis(20));
    }
    black_box(room);
}

fn holds(memory: &[u8], mark: u64) -> bool {
    memory.chunks_exact(8).any(|word| word == mark.to_ne_bytes())
}

#[test]
fn the_stack_of_a_wait_is_told_when_it_is_over() {
    need_root!();
    let mut attached = load(&with_stacks()).unwrap();
    const MARK: u64 = 0x5157_ac6b_1122_3344;
    let tid = own_tid();
    sleep_with([MARK; 4], 0);
    // What it leaves on its stack is also in that of a short wait behind it, as for the ring's reader.
    let dump = find_dump(&mut attached, |dump| {
        let sleep = dump.header.tid == tid && dump.header.kind == DumpKind::Wait as u16;
        sleep && dump.header.time_ns - dump.body.since_ns >= 20_000_000 && holds(&dump.memory, MARK)
    });
    assert_eq!(dump.header.tgid, process::id());
    assert!(dump.body.ip != 0 && dump.body.sp % 8 == 0 && dump.body.kernel_len == 0);
    let kept = collect(&mut attached, |kept| {
        find(kept, EventKind::SwitchOut).iter().any(|record| record.header.time_ns == dump.body.since_ns)
            && find(kept, EventKind::SwitchIn).iter().any(|record| record.header.time_ns == dump.header.time_ns)
    });
    let out = find(&kept, EventKind::SwitchOut).into_iter().find(|out| out.header.time_ns == dump.body.since_ns);
    assert_eq!(out.unwrap().header.tid, tid);
}

#[test]
fn a_deep_stack_is_copied_once_asked_for() {
    need_root!();
    let mut attached = load(&with_stacks()).unwrap();
    const MARK: u64 = 0x5157_ac6b_5566_7788;
    let (tell, told) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let sleeper = std::thread::spawn(move || {
        tell.send(own_tid()).unwrap();
        wait.recv().unwrap();
        let top = black_box([MARK; 4]);
        sleep_with([1; 4], 12);
        black_box(top);
    });
    let tid = told.recv().unwrap();
    attached.copy_stack(tid, STACK_BYTES_MOST).unwrap();
    go.send(()).unwrap();
    sleeper.join().unwrap();
    let dump = find_dump(&mut attached, |dump| dump.header.tid == tid && holds(&dump.memory, MARK));
    assert!(dump.body.copied > probe_wire::STACK_BYTES && dump.body.copied <= STACK_BYTES_MOST);
}

#[test]
fn a_busy_thread_is_sampled_at_the_rate_that_is_set() {
    need_root!();
    let mut attached = load(&with_stacks()).unwrap();
    assert_eq!(attached.sample_hz(), Some(99));
    attached.set_sample_hz(499).unwrap();
    let over = AtomicBool::new(false);
    let dump = std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let over = &over;
        scope.spawn(move || {
            tell.send(own_tid()).unwrap();
            while !over.load(Ordering::Relaxed) {
                black_box(0);
            }
        });
        let busy = told.recv().unwrap();
        let dump = find_dump(&mut attached, |dump| {
            dump.header.tid == busy && dump.header.kind == DumpKind::Sample as u16 && dump.body.period_ns == 2_004_008
        });
        over.store(true, Ordering::Relaxed);
        dump
    });
    assert!(dump.body.ip != 0 && dump.body.copied >= 64, "{:?}", dump.body);
}

#[test]
fn waits_below_the_minimum_are_not_told_and_those_beyond_the_budget_are_counted() {
    need_root!();
    let stacks = UserStacks { wait_min: DurNs::from_secs(1), ..UserStacks::default() };
    let mut request = Request { user_stacks: Some(stacks), ..with_stacks() };
    let attached = load(&request).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(attached.dump_counts(DumpKind::Wait).unwrap().due, 0);
    drop(attached);
    request.user_stacks = Some(UserStacks { wait_min: DurNs(1_000), ..stacks });
    let mut attached = load(&request).unwrap();
    (0..3_000).for_each(|_| std::thread::sleep(Duration::from_micros(1)));
    let counts = attached.dump_counts(DumpKind::Wait).unwrap();
    assert!(counts.due >= 3_000 && counts.spared + counts.lost > 0, "{counts:?}");
    attached.silence().unwrap();
    let counts = attached.dump_counts(DumpKind::Wait).unwrap();
    let mut received = 0;
    let mut rings = attached.take_dumps().unwrap();
    rings.drain(usize::MAX, |_, record| {
        let (header, _) = EventHeader::read_from_prefix(record).unwrap();
        received += u64::from(header.kind == DumpKind::Wait as u16);
    });
    assert_eq!(received + counts.lost + counts.spared, counts.due, "{counts:?}");
}
