//! Checks the offsets before anything depends on them.
//!
//! The verifier checks the tracepoint programs' reads itself, against the same type information.
//! The packet programs' reads it does not check, so two programs read what the loader knows: its
//! own task, and a packet that never leaves `BPF_PROG_TEST_RUN`.

use std::{fs, io, os::unix::fs::MetadataExt};

use aya::{
    Ebpf, TestRun, TestRunOptions,
    maps::Array,
    programs::{ProgramError, SchedClassifier},
};
use probe_wire::{Interrupt, SelfTest};
use rustix::{
    process::getpid,
    thread::gettid,
    time::{ClockId, clock_gettime},
};
use zerocopy::FromBytes;

use super::{LoadError, object};

const TASK: &str = "test_task";
const PACKET: &str = "test_packet";
const SEEN: &str = "SELF_TEST";
/// What the programs tell interrupts by; no hook needs it.
pub(super) const PREEMPT_COUNT: &str = "preempt_count";
/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;
/// `/proc` gives start times in ticks of 10 ms.
const START_TOLERANCE_NS: u64 = 50_000_000;
/// Inode of the first pid namespace.
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/proc_ns.h#L43>
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;
/// Namespaces are numbered from 1; an address in their place is far greater.
const HIGHEST_COOKIE: u64 = 1 << 48;

/// An IPv4 UDP datagram from and to 127.0.0.1, with an Ethernet header as on `lo`.
const FRAME: [u8; 48] = *b"\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\
    E\0\0\x22\0\0\0\0\x40\x11\0\0\x7f\0\0\x01\x7f\0\0\x01\
    \0\x07\0\x07\0\x0e\0\0whylag";

/// Runs both programs; the fields of [`Offsets`](probe_wire::Offsets) that did not read as they
/// should.
pub(super) fn run(ebpf: &mut Ebpf) -> Result<Vec<&'static str>, LoadError> {
    object::load_classifier(ebpf, PACKET).map_err(|source| object::run_error(PACKET, source))?;
    object::run_once(ebpf, TASK, 0).map_err(|source| object::run_error(TASK, source))?;
    run_packet(ebpf)?;
    let seen = seen(ebpf)?;
    let mut doubts = doubtful_packet_fields(&seen);
    doubts.extend(doubtful_task_fields(&seen));
    Ok(doubts)
}

/// Cookie of the calling thread's network namespace.
pub(super) fn netns_cookie(ebpf: &Ebpf) -> Result<u64, LoadError> {
    run_packet(ebpf)?;
    Ok(seen(ebpf)?.netns)
}

fn run_packet(ebpf: &Ebpf) -> Result<(), LoadError> {
    let run = || {
        let program = ebpf.program(PACKET).ok_or(ProgramError::NotLoaded)?;
        let program: &SchedClassifier = program.try_into()?;
        program.test_run(TestRunOptions { data_in: Some(&FRAME), ..TestRunOptions::new() })
    };
    run().map(drop).map_err(|source| object::run_error(PACKET, source))
}

fn seen(ebpf: &Ebpf) -> Result<SelfTest, LoadError> {
    let failed = |source| object::map_error(SEEN, source);
    let map = ebpf.map(SEEN).ok_or(LoadError::Incomplete { name: SEEN })?;
    let array = Array::<_, [u8; size_of::<SelfTest>()]>::try_from(map).map_err(failed)?;
    let bytes = array.get(&0, 0).map_err(failed)?;
    SelfTest::read_from_bytes(&bytes).map_err(|_| LoadError::Incomplete { name: SEEN })
}

/// The tests run in process context; any interrupt there is a count read in the wrong place.
fn is_calm(seen: &SelfTest) -> bool {
    matches!(Interrupt::new(seen.interrupt), Interrupt::None | Interrupt::Unknown)
}

/// Names of the checks that do not hold.
fn doubtful(checks: &[(&'static str, bool)]) -> Vec<&'static str> {
    checks.iter().filter(|(_, holds)| !holds).map(|(field, _)| *field).collect()
}

fn doubtful_packet_fields(seen: &SelfTest) -> Vec<&'static str> {
    let len = FRAME.len() as u64;
    let network = FRAME.get(ETHERNET as usize..).and_then(|rest| rest.first_chunk());
    doubtful(&[
        ("sk_buff_head", network == Some(&seen.network)),
        ("sk_buff_len", u64::from(seen.len) == len),
        ("sk_buff_tail", u64::from(seen.linear_len) == len),
        ("sk_buff_network_header", seen.network_offset == ETHERNET),
        ("sk_buff_mac_header", seen.mac_offset == 0),
        ("sk_buff_protocol", seen.protocol == u32::from(0x0800_u16.to_be())),
        // The kernel gives a test packet the namespace's loopback device, which is always 1.
        ("net_device_ifindex", seen.ifindex == 1),
        ("net_net_cookie", (1..HIGHEST_COOKIE).contains(&seen.netns)),
    ])
}

fn doubtful_task_fields(seen: &SelfTest) -> Vec<&'static str> {
    let comm = fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
    let name = seen.comm.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut checks =
        vec![(PREEMPT_COUNT, is_calm(seen)), ("task_comm", name == comm.trim_end_matches('\n').as_bytes())];
    if let Ok(start_ns) = start_time_ns() {
        let holds = seen.start_time_ns.abs_diff(start_ns) <= START_TOLERANCE_NS;
        checks.push(("task_start_time", holds));
    }
    // Elsewhere the process does not know the numbers that the kernel knows it by.
    if fs::metadata("/proc/self/ns/pid").is_ok_and(|file| file.ino() == FIRST_PID_NAMESPACE) {
        checks.push(("task_pid", seen.tid == gettid().as_raw_nonzero().get().unsigned_abs()));
        checks.push(("task_tgid", seen.tgid == getpid().as_raw_nonzero().get().unsigned_abs()));
    }
    doubtful(&checks)
}

/// Start of the calling thread by `CLOCK_MONOTONIC`, as exactly as `/proc` tells.
fn start_time_ns() -> io::Result<u64> {
    let stat = fs::read_to_string("/proc/thread-self/stat")?;
    // The name stands in parentheses and may hold any of them; the start time is the 20th
    // field behind it.
    let ticks = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19));
    let ticks: u64 = ticks.and_then(|ticks| ticks.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let since_boot = ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second());
    Ok(since_boot.saturating_sub(suspended_ns()))
}

/// How far `CLOCK_BOOTTIME`, which `/proc` uses, is ahead.
fn suspended_ns() -> u64 {
    let now = |id| {
        let time = clock_gettime(id);
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    };
    let monotonic = now(ClockId::Monotonic);
    now(ClockId::Boottime).saturating_sub(monotonic)
}
