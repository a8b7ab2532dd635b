//! In steady state the hot path allocates nothing, and 100,000 open checks stay small.

mod synthetic;

use probe_user::clock::{DurNs, MonoNs};
use probe_user::event::{Event, Orderer, decode, encode};
use probe_user::journey::{Correlator, Outcome, Update};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grew(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    let now = BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
// SAFETY: every call goes unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grew(layout.size());
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grew(size);
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Decodes, orders and correlates; gives journeys back to be used again.
struct Core {
    orderer: Orderer,
    correlator: Correlator,
    ended: Vec<probe_user::journey::Journey>,
    replied: u64,
}

impl Core {
    fn push(&mut self, event: Event) {
        let Self { orderer, correlator, ended, replied } = self;
        orderer.push(event, &mut |event| {
            correlator.push(&event, &mut |update| {
                if let Update::Ended(journey) = update {
                    *replied += u64::from(journey.outcome == Outcome::Replied);
                    ended.push(journey);
                }
            });
            ended.drain(..).for_each(|journey| correlator.recycle(journey));
        });
    }
}

fn allocations_in_steady_state() {
    let records: Vec<Vec<u8>> = synthetic::load(20_000).iter().map(|event| encode(event).expect("a record")).collect();
    let mut core = Core {
        orderer: Orderer::new(DurNs::from_millis(2)),
        correlator: Correlator::new(),
        ended: Vec::with_capacity(16),
        replied: 0,
    };
    synthetic::facts(100_000).into_iter().for_each(|fact| core.push(fact));
    let (warm_up, rest) = records.split_at(records.len() / 2);
    let push = |core: &mut Core, record: &Vec<u8>| core.push(decode(record).expect("an event"));
    warm_up.iter().for_each(|record| push(&mut core, record));
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    rest.iter().for_each(|record| push(&mut core, record));
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert!(core.replied > 19_000, "{} replied", core.replied);
    assert_eq!(allocated, 0, "allocations for {} records", rest.len());
}

fn memory_of_100_000_open_checks() {
    let mut correlator = Correlator::new();
    let before = BYTES.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    synthetic::facts(100_000).iter().for_each(|fact| correlator.push(fact, &mut drop));
    for n in 0..150_000 {
        correlator.push(&synthetic::arrival(n, n * 1_000), &mut drop);
    }
    assert_eq!(correlator.open(), 100_000);
    let held = BYTES.load(Ordering::Relaxed) - before;
    let peak = PEAK.load(Ordering::Relaxed) - before;
    println!("100,000 open checks: {} KiB held, {} KiB at most", held >> 10, peak >> 10);
    assert!(peak <= 64 << 20, "{peak} bytes");
    correlator.finish(MonoNs(1), &mut drop);
    assert_eq!(correlator.counts().ended, 150_000);
}

/// One test, because the counters are the process's.
#[test]
fn the_hot_path_allocates_nothing_and_open_checks_stay_small() {
    allocations_in_steady_state();
    memory_of_100_000_open_checks();
}
