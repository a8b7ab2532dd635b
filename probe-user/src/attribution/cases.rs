//! One incident per leaf beside the one that looks like it.

mod vm;

use super::story::{
    Actor, EPOLL, ETH, FUTEX, HOG, IDLE, KWORKER, MS, NANOSLEEP, PIPE, POLL, RECEIVE, SECOND, SERVER, Story, TAP,
    TCP_RECEIVE, THIRD, WORKER, at, concluded, longest, taken,
};
use super::{Cause, Judged, Offender, Unresolved, Verdict};
use crate::clock::DurNs;
use crate::event::{Fact, InterfaceId};
use crate::journey::{Loss, Outcome, Perspective, Span, Stage};
use probe_wire::Interrupt;

/// An incident, and who must be found.
struct Case {
    name: &'static str,
    story: fn() -> Story,
    /// `None`: no verdict may be given.
    cause: Option<Cause>,
    /// Name of the thread, group or device behind it; empty if none can be known.
    offender: &'static str,
    path: &'static [Cause],
    /// Least time that must be found, milliseconds.
    ms: u64,
}

const fn case(
    name: &'static str,
    story: fn() -> Story,
    path: &'static [Cause],
    offender: &'static str,
    ms: u64,
) -> Case {
    Case { name, story, cause: path.last().copied(), offender, path, ms }
}

const fn unresolved(name: &'static str, story: fn() -> Story) -> Case {
    Case { name, story, cause: None, offender: "", path: &[], ms: 0 }
}

const CASES: &[Case] = &[
    case("the server computes", computes, &[Cause::AppOnCpu], "server", 99),
    case("softirqs run inside the server's slice", softirq_in_slice, &[Cause::HostCpuGap], "softirq NET_RX CPU 0", 70),
    case(
        "long softirqs hold the CPU the woken server waits for",
        softirq_before_slice,
        &[Cause::HostCpuGap],
        "softirq NET_RX CPU 0",
        57,
    ),
    case(
        "short softirqs take the CPU of a server that keeps it",
        short_softirqs,
        &[Cause::HostCpuGap],
        "softirq NET_RX CPU 0",
        75,
    ),
    case("the server computes, and short softirqs take little", few_softirqs, &[Cause::AppOnCpu], "server", 90),
    case(
        "the server is taken off its CPU, which runs softirqs",
        off_for_softirqs,
        &[Cause::HostCpuGap],
        "softirq CPU 0",
        80,
    ),
    case(
        "the woken server waits behind short softirqs",
        woken_behind_softirqs,
        &[Cause::HostCpuGap],
        "softirq NET_RX CPU 0",
        75,
    ),
    case("the server waits for a CPU", waits_for_cpu, &[Cause::AppRunqueue], "hog", 80),
    case("the server is preempted", is_preempted, &[Cause::AppRunqueue], "hog", 90),
    case("the server's group is out of quota", out_of_quota, &[Cause::AppQuotaThrottle], "/server.slice", 80),
    case("a throttled server looks like it yielded", throttled_state, &[Cause::AppQuotaThrottle], "server", 80),
    case("the lock holder computes", holder_busy, &[Cause::AppFutex], "worker", 850),
    case("the lock holder sleeps", holder_asleep, &[Cause::AppFutex, Cause::AppSelfWait], "worker", 850),
    case(
        "the lock holder waits for writeback",
        holder_in_writeback,
        &[Cause::AppFutex, Cause::StorageWriteback],
        "worker",
        850,
    ),
    case("the lock holder waits for a CPU", holder_runnable, &[Cause::AppFutex, Cause::AppRunqueue], "hog", 850),
    case(
        "a chain of locks ends at a disk",
        chain_to_disk,
        &[Cause::AppFutex, Cause::AppFutex, Cause::StorageBlockQueue],
        "third",
        850,
    ),
    unresolved("a thread wakes another while it is said to sleep", cycle),
    unresolved("a thread sends the reply while it is said to wait for a CPU", sends_runnable),
    unresolved("a thread sends the reply while it is said to be stopped", sends_stopped),
    unresolved("the kernel charged a thread that is said to have waited for a CPU", charged_while_runnable),
    unresolved("the kernel charged a thread that is said to have slept", charged_while_asleep),
    unresolved("the kernel did not charge a thread that is said to have had the CPU", uncharged_slice),
    case(
        "the kernel tells when a slice began of which the record is missing",
        told_slice,
        &[Cause::AppOnCpu],
        "server",
        340,
    ),
    case("the same, and the wait before it was the longer", told_wait, &[Cause::AppRunqueue], "hog", 330),
    unresolved("the same, while the group was throttled", told_throttled),
    unresolved("a slice that the kernel says began later than recorded", told_shorter),
    case("the hypervisor took the CPU", stolen, &[Cause::HostCpuGap], "hypervisor CPU 0", 70),
    case("a thread that never leaves its CPU is seen there now and then", spins, &[Cause::AppOnCpu], "server", 940),
    unresolved("whether a thread still has the CPU that it got is not known", maybe_spins),
    unresolved("another thread has the CPU of one that left unseen", replaced),
    case(
        "the lock holder polls, until a thread wakes it that computes",
        holder_polls,
        &[Cause::AppFutex, Cause::AppBlockedIo],
        "third",
        850,
    ),
    case("the lock holder is not known while the wait lasts", open_futex, &[Cause::AppFutex], "", 850),
    case("a futex wait ends by its own timeout", futex_timeout, &[Cause::AppSelfWait], "server", 850),
    case("a futex wait times out on a busy CPU", futex_timeout_on_busy_cpu, &[Cause::AppSelfWait], "server", 850),
    case(
        "a futex wait times out in the softirq of a real-time kernel",
        futex_timeout_in_softirq,
        &[Cause::AppSelfWait],
        "server",
        850,
    ),
    case("a lock is asked for in rounds with a timeout", futex_in_rounds, &[Cause::AppFutex], "worker", 850),
    case("a wait that times out, then a longer one for a lock", futex_after_timeout, &[Cause::AppFutex], "worker", 435),
    case(
        "a lock becomes free just when a wait for it times out",
        || futex_freed(7, false),
        &[Cause::AppFutex],
        "worker",
        780,
    ),
    case(
        "whoever freed a lock had asked for it later",
        || holder_asked(7, 7),
        &[Cause::AppFutex, Cause::AppFutex],
        "third",
        800,
    ),
    case("whoever freed a lock asked for another later", || holder_asked(7, 9), &[Cause::AppFutex], "worker", 590),
    unresolved("whoever freed a lock asked for one later that is not told", || holder_asked(7, 0)),
    case("whoever freed a lock had freed it before, too", holder_again, &[Cause::AppFutex], "worker", 590),
    unresolved("another futex becomes free just when a wait in rounds times out", || futex_freed(8, false)),
    unresolved("a lock becomes free, and who was woken for it may have had it", || futex_freed(7, true)),
    case(
        "a wait that times out, then a shorter one for the same",
        futex_asked_again,
        &[Cause::AppFutex],
        "worker",
        140,
    ),
    case("rounds with the lock's own lock between them", futex_behind_its_own_lock, &[Cause::AppFutex], "worker", 780),
    unresolved("futex waits in rounds that all time out", futex_rounds_without_end),
    unresolved("a futex wait that times out, then a shorter one", futex_timeout_and_lock),
    unresolved("a futex wait that a timer or the thread it interrupted ended", futex_unsure),
    unresolved("a futex wait whose wake-up was not seen", futex_unseen),
    unresolved("epoll times out while an innocent thread is on CPU", epoll_timeout_on_busy_cpu),
    unresolved("a hand-over that may have been a timer", hand_over_unsure),
    case("a pipe is full and its reader unknown", full_pipe, &[Cause::AppBlockedIo], "hog", 90),
    case(
        "a pipe is full and its reader waits for a disk",
        pipe_to_disk,
        &[Cause::AppBlockedIo, Cause::StorageBlockQueue],
        "worker",
        90,
    ),
    case("the server sleeps before it answers", sleeps, &[Cause::AppSelfWait], "server", 95),
    case("the server sleeps while the check waits in its socket", sleeps_in_queue, &[Cause::AppSelfWait], "server", 95),
    case("the server polls other files while the check waits", polls_others, &[Cause::AppSelfWait], "server", 95),
    unresolved("one of several readers polls while the check waits", polls_shared),
    unresolved("one of several readers receives while the check waits", receives_shared),
    case(
        "the server receives from another service while the check waits",
        receives_other,
        &[Cause::DependencyRemote],
        "server",
        95,
    ),
    case("the server is stopped", stopped, &[Cause::AppSelfWait], "server", 95),
    case("the server is frozen", frozen, &[Cause::AppSelfWait], "server", 95),
    case("the server computes for an earlier check", busy_with_earlier, &[Cause::AppOnCpu], "server", 95),
    case("the server waits for another service", waits_for_service, &[Cause::DependencyRemote], "server", 95),
    case("the server polls for another service", polls_for_service, &[Cause::DependencyRemote], "server", 95),
    case("the server waits for a name server", waits_for_dns, &[Cause::DependencyDns], "server", 95),
    case("the server polls for a name server", polls_for_dns, &[Cause::DependencyDns], "server", 95),
    case("the name server does not answer at first", dns_asked_again, &[Cause::DependencyDns], "server", 1_090),
    case("of two questions for a name one is answered late", dns_second_answer, &[Cause::DependencyDns], "server", 95),
    case("the name server has not answered yet", dns_open, &[Cause::DependencyDns], "server", 900),
    unresolved("the name server does not answer amid more drops than are told", dns_amid_drops),
    case("the name server's answer is dropped here", dns_dropped, &[Cause::HostForwarding], "eth0", 950),
    case(
        "of two services the one asked first has not answered yet",
        one_service_open,
        &[Cause::DependencyRemote],
        "server",
        900,
    ),
    case("two services have not answered yet", two_services_open, &[Cause::DependencyRemote], "server", 900),
    case("a service that has answered before has not yet", service_open, &[Cause::DependencyRemote], "server", 900),
    unresolved("the server has sent a metric, and gives no answer", sends_metric),
    unresolved("the server waits for a connection", waits_for_connection),
    unresolved("the server waits for a socket that nothing tells", waits_for_unknown),
    unresolved("the server waits for a service that has not answered yet", waits_for_open_service),
    unresolved("the server waits for whoever answers a socket that is not connected", waits_for_anyone),
    unresolved("a client of the server sends more meanwhile", client_sends_more),
    unresolved("a client asks again on a connection that the server answered", client_asks_again),
    unresolved("a client of the checks' own port asks again", client_of_the_port),
    unresolved("the reader waits in its own receive call, before others are seen to share it", receives_own),
    unresolved("the reader polls its own socket, before others are seen to share it", polls_own),
    unresolved("other packets wake an event loop that answers after a timer", loop_with_timer),
    case("a slow wake-up to new work is no wait for another service", late_work, &[Cause::AppSelfWait], "server", 50),
    case("without socket events, the sender waits for a CPU", no_socket_events, &[Cause::AppRunqueue], "hog", 95),
    case(
        "without socket events, the sender waits for a lock",
        no_socket_events_futex,
        &[Cause::AppFutex],
        "worker",
        80,
    ),
    case("the server connects", connects, &[Cause::DependencyRemote], "server", 95),
    case("an event loop hands the check to a worker that computes", loop_and_worker, &[Cause::AppOnCpu], "worker", 90),
    case("an event loop waits for a peer that it did not call", loop_and_peer, &[Cause::AppBlockedIo], "worker", 90),
    case("a reader hands the check to another thread that computes", hand_over, &[Cause::AppOnCpu], "worker", 90),
    case("a reader hands over late", late_hand_over, &[Cause::AppOnCpu], "server", 90),
    case("a hand-over of two hops", two_hops, &[Cause::AppOnCpu], "worker", 60),
    case("dirty pages are over the limit", dirty_limit, &[Cause::StorageWriteback], "server", 95),
    case("fsync waits for the journal", journal, &[Cause::StorageJournal], "server", 95),
    case("a read waits for the disk", disk, &[Cause::StorageBlockQueue], "server", 95),
    case("memory is reclaimed", reclaim, &[Cause::MemoryReclaim], "server", 95),
    case("a kernel lock is held by a busy thread", kernel_lock, &[Cause::KernelLock], "worker", 95),
    case(
        "a kernel lock is held by a thread that waits for a disk",
        kernel_lock_to_disk,
        &[Cause::KernelLock, Cause::StorageBlockQueue],
        "worker",
        95,
    ),
    case("a datagram's send buffer is full", datagram_send_buffer, &[Cause::AppSocketQueue], "server", 90),
    case("the client leaves no room, and the send buffer is full", send_buffer, &[Cause::ExternalOutsideHost], "", 90),
    unresolved("the send buffer is full, and why is not known", send_buffer_somehow),
    case("another service takes no more", send_buffer_of_service, &[Cause::DependencyRemote], "server", 90),
    case("the client leaves no room for the reply", window_closed, &[Cause::ExternalOutsideHost], "", 39),
    case("the client has left no room yet", window_closed_open, &[Cause::ExternalOutsideHost], "", 900),
    unresolved("the congestion control holds the reply", congested),
    unresolved("an answer was sent, and none was recognised", answered_unrecognised),
    unresolved("a stream's server went back after it had sent", sent_and_back),
    unresolved("the reply is appended to one that is held back, and is not seen to leave", appended),
    case("Nagle holds the reply", nagle, &[Cause::AppSocketQueue], "server", 39),
    case("a shaper holds the reply", shaper, &[Cause::NicQdisc], "eth0 tbf 8001:", 99),
    case("the device refuses packets", requeues, &[Cause::NicTxQueue], "eth0", 99),
    case("the driver stopped the queue", stopped_queue, &[Cause::NicTxQueue], "eth0", 99),
    unresolved("a discipline whose counters are per CPU", per_cpu_counters),
    case(
        "a long softirq delays the packet on its way in",
        rx_softirq,
        &[Cause::NicRxSoftirq],
        "softirq NET_RX CPU 0",
        58,
    ),
    case(
        "the softirq that takes the packet in has not ended",
        rx_softirq_runs,
        &[Cause::NicRxSoftirq],
        "softirq NET_RX CPU 0",
        95,
    ),
    case("softirqs are left to a thread that waits for a CPU", softirq_deferred, &[Cause::NicRxSoftirq], "hog", 90),
    unresolved(
        "the packet is late on its way in, and no softirq was left to the thread for them",
        softirq_not_deferred,
    ),
    unresolved("the packet is late on its way in, and nothing tells why", slow_receive),
    case("the thread that empties a veth's ring is busy", consumer_busy, &[Cause::NicTxQueue], "napi/veth0-9", 95),
    case("the thread that empties a veth's ring waits for a CPU", consumer_waits, &[Cause::NicRxSoftirq], "hog", 95),
    case(
        "who kept the CPU from the thread that empties a ring is not known",
        consumer_behind_worker,
        &[Cause::NicRxSoftirq],
        "",
        95,
    ),
    case(
        "a stopped queue waits for a thread that waits for a CPU",
        stopped_and_starved,
        &[Cause::NicRxSoftirq],
        "hog",
        95,
    ),
    case("a stopped queue waits for a busy thread", stopped_and_busy, &[Cause::NicTxQueue], "napi/veth0-9", 95),
    unresolved("the thread that empties a veth's ring sleeps", consumer_sleeps),
    unresolved("what the thread did that empties a veth's ring is not known", consumer_unwatched),
    unresolved("a thread that is not the kernel's took the packet in", consumer_foreign),
    case("the check is slow inside the VM", in_vm, &[Cause::VmGuestInternal], "tap0", 99),
    case("the tap's worker sleeps", backend_asleep, &[Cause::VmBackend], "worker", 99),
    case("the tap's worker took it at once", backend_prompt, &[Cause::VmGuestInternal], "tap0", 99),
    case("the tap's worker polls until a packet wakes it", backend_polls, &[Cause::VmBackend], "worker", 95),
    case("the thread that took it is not watched", backend_unwatched, &[Cause::VmBackend], "", 99),
    case("nobody takes it off the tap", ring_open, &[Cause::VmBackend], "worker", 1_999),
    case("nobody ever took anything off the tap", ring_never_read, &[Cause::VmBackend], "server", 1_999),
    case("it was taken off the tap and never answered", taken_open, &[Cause::VmGuestInternal], "tap0", 1_990),
    case("it was not seen to be taken, and its holders slept", holders_asleep, &[Cause::VmBackend], "server", 90),
    case("it was not seen to be taken, and a holder ran", holder_ran, &[Cause::VmGuestInternal], "tap0", 99),
    unresolved("it was not seen to be taken, and nothing tells when its holders ran", holders_unseen),
    case("a shaper on the tap holds it", tap_shaper, &[Cause::NicQdisc], "tap0 tbf 8001:", 98),
    case("the tap's ring is full", drop_full_ring, &[Cause::NicDrop], "eth0", 0),
    case("the tap's worker waits for a CPU", backend_starved, &[Cause::VmBackend], "hog", 99),
    case(
        "the tap's worker waits for a disk",
        backend_on_disk,
        &[Cause::VmBackend, Cause::StorageBlockQueue],
        "worker",
        95,
    ),
    case("the packet is slow between two devices", forwarding, &[Cause::HostForwarding], "", 99),
    case("the packet waits for a neighbour", forwarding_to_neighbour, &[Cause::HostForwarding], "", 99),
    case(
        "a datagram waits for a neighbour behind the send call",
        sending_to_neighbour,
        &[Cause::HostForwarding],
        "",
        39,
    ),
    unresolved("a datagram is late, and its neighbour had answered before", neighbour_answered_before),
    unresolved("the kernel answers a SYN only when it is sent again", syn_again),
    case("a router forwards slowly", routed, &[Cause::HostForwarding], "", 99),
    case("the server was stopped before anyone looked", stopped_before, &[Cause::AppSelfWait], "server", 90),
    case("the other side answers late", outside, &[Cause::ExternalOutsideHost], "", 99),
    case("the other side never answers", never_answered, &[Cause::ExternalOutsideHost], "", 1_999),
    case("the accept queue is full", accept_queue_full, &[Cause::AppSocketQueue], "port 4000", 1_000),
    case(
        "the accept queue is full, and the check is open",
        accept_queue_full_open,
        &[Cause::AppSocketQueue],
        "port 4000",
        1_000,
    ),
    unresolved("a copy had no answer though the accept queue had room", accept_queue_not_always_full),
    case("the receive buffer is full", drop_receive_buffer, &[Cause::AppSocketQueue], "server", 0),
    case("the accept queue is full", drop_accept_queue, &[Cause::AppSocketQueue], "server", 0),
    case("the queueing discipline is full", drop_qdisc, &[Cause::NicDrop], "eth0", 0),
    case("the backlog is full", drop_backlog, &[Cause::NicDrop], "eth0", 0),
    case("a firewall drops it", drop_firewall, &[Cause::HostForwarding], "eth0", 0),
    case("the neighbour is unknown", drop_neighbour, &[Cause::HostForwarding], "eth0", 0),
    unresolved("a drop whose reason proves nothing", drop_unknown),
    unresolved("a wrong segment is refused where connections are accepted", drop_wrong_segment),
    unresolved("a datagram is late between the send call and the device", late_datagram),
    case("a dropped segment is sent again", drop_and_again, &[Cause::NicDrop], "eth0", 199),
    case("a silent server goes back to waiting for work", silent, &[Cause::AppSelfWait], "server", 1_900),
    unresolved("a silent server sits in epoll", silent_in_epoll),
    case("the rest of a request comes late on its connection", in_two_parts, &[Cause::ExternalOutsideHost], "", 99),
    case("an event loop gets the rest late", in_two_parts_by_epoll, &[Cause::ExternalOutsideHost], "", 99),
    case("the rest of a request is dropped and sent again", rest_dropped, &[Cause::HostForwarding], "eth0", 90),
    case(
        "the rest of a request is dropped, and the check is open",
        rest_dropped_open,
        &[Cause::HostForwarding],
        "eth0",
        900,
    ),
    unresolved("the rest of a request is dropped for a reason that proves nothing", rest_dropped_somehow),
    unresolved("the rest of a request came through the host's own queues", in_two_parts_forwarded),
    unresolved("the answer came some time after more data had come", in_two_parts_by_chance),
    unresolved("the rest of a request comes late, and drops are not watched", in_two_parts_without_drops),
    case("a request comes behind a dropped packet of its stream", behind_a_drop, &[Cause::HostForwarding], "", 90),
    unresolved("a request comes behind a missing packet of its stream", behind_a_gap),
    unresolved("a check needs another datagram, which comes late", in_two_datagrams),
    unresolved("the rest of a request does not come before the client gives up", in_part),
    unresolved("the rest of a request has not come", in_part_open),
    case(
        "a server leaves a check for the next one of its connection",
        silent_on_stream,
        &[Cause::AppSelfWait],
        "server",
        95,
    ),
    case("after the rest of a late request the server computes", computes_on_whole, &[Cause::AppOnCpu], "server", 90),
    case(
        "a stream's server waits for another service",
        stream_and_service,
        &[Cause::DependencyRemote],
        "port 6379",
        95,
    ),
    unresolved("a capture at one NIC sees the request and the answer", captured),
    unresolved("a capture at one NIC sees no answer", captured_open),
    case(
        "the woken server waits behind what a kernel worker left",
        behind_worker_and_hog,
        &[Cause::AppRunqueue],
        "hog",
        90,
    ),
    unresolved("nothing is seen after the NIC", no_trace),
    unresolved("nobody reads the socket", no_reader),
    unresolved("the thread sleeps in a driver", unknown_frame),
    unresolved("events were lost meanwhile", events_lost),
    unresolved("two checks could not be told apart", ambiguous),
    unresolved("whether for quota or other threads shows when it runs", open_runnable),
];

#[test]
fn every_incident_is_told_from_the_one_that_looks_like_it() {
    let failed: Vec<String> = CASES.iter().chain(vm::CASES).filter_map(failure).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn failure(case: &Case) -> Option<String> {
    let judged = (case.story)().judge();
    let wrong = match case.cause {
        None if matches!(judged.verdict, Verdict::Unresolved(_)) => None,
        None => Some("a verdict without proof".to_owned()),
        Some(cause) if concluded(&judged) != Some(cause) => Some(format!("not {}", cause.name())),
        Some(cause) => wrong_entry(case, &judged, cause),
    };
    wrong.map(|wrong| format!("{}: {wrong}: {:?} {:#?}", case.name, judged.verdict, judged.ledger))
}

fn wrong_entry(case: &Case, judged: &Judged, cause: Cause) -> Option<String> {
    let entry = longest(judged, cause);
    let offender = entry.offender.as_ref().map(named).unwrap_or_default();
    if entry.path != case.path {
        return Some(format!("path {:?}", entry.path));
    }
    if offender != case.offender {
        return Some(format!("offender {offender:?}"));
    }
    (taken(judged, cause) < DurNs::from_millis(case.ms)).then(|| format!("only {}", taken(judged, cause)))
}

fn named(offender: &Offender) -> String {
    let Offender { comm, cgroup, device, .. } = offender;
    [comm, cgroup, device].into_iter().find(|name| !name.is_empty()).cloned().unwrap_or_default()
}

fn computes() -> Story {
    let mut story = Story::served(100 * MS);
    story.sleeps(100 * MS + 10, SERVER, 1, RECEIVE);
    story
}

fn softirq_in_slice() -> Story {
    let mut story = Story::served(100 * MS);
    story.softirq_total(75 * MS).sleeps(100 * MS + 10, SERVER, 1, RECEIVE);
    story.softirq(20 * MS, 50 * MS, 3);
    story
}

fn softirq_before_slice() -> Story {
    let mut story = Story::queued(70 * MS);
    story.sleeps(0, SERVER, 1, RECEIVE).packet_wakes(106, SERVER);
    story.softirq(0, 58 * MS, 3).runs_after(69 * MS, SERVER, HOG);
    story
}

/// Sums come while the server still runs, so they are known when the check ends.
fn short_softirqs() -> Story {
    let mut story = Story::served(100 * MS);
    for ms in 1..=99 {
        story.softirqs(ms * MS, (ms + 1) * MS - 50, 800, 3);
    }
    story
}

fn few_softirqs() -> Story {
    let mut story = Story::served(100 * MS);
    story.softirqs(10 * MS, 60 * MS, MS, 3);
    story
}

/// What softirqs took in all is known from the switches, but not which.
fn off_for_softirqs() -> Story {
    let mut story = Story::served(100 * MS);
    story.preempted(MS, SERVER, KWORKER).softirq_total(90 * MS).runs_after(98 * MS, SERVER, KWORKER);
    story.sleeps(101 * MS, SERVER, 1, RECEIVE);
    story
}

fn woken_behind_softirqs() -> Story {
    let mut story = waits_for_cpu();
    for ms in 1..=88 {
        story.softirqs(ms * MS, (ms + 1) * MS - 50, 900, 3);
    }
    story
}

fn waits_for_cpu() -> Story {
    let mut story = Story::queued(90 * MS);
    story.sleeps(0, SERVER, 1, RECEIVE).packet_wakes(106, SERVER).runs_after(89 * MS, SERVER, HOG);
    story
}

fn is_preempted() -> Story {
    let mut story = Story::served(100 * MS);
    story.preempted(MS, SERVER, HOG).runs(98 * MS, SERVER).sleeps(101 * MS, SERVER, 1, RECEIVE);
    story
}

fn out_of_quota() -> Story {
    let mut story = Story::served(100 * MS);
    story.task(0, SERVER, 'S', None).preempted(MS, SERVER, HOG);
    story.throttled(85 * MS).runs_after(98 * MS, SERVER, HOG).sleeps(101 * MS, SERVER, 1, RECEIVE);
    story
}

/// Linux 6.18 says 256 for a throttled thread.
fn throttled_state() -> Story {
    let mut story = Story::served(100 * MS);
    let none = ([0; probe_wire::STACK_DEPTH], 0);
    story.leaves(MS, SERVER, (256, 0), none, IDLE);
    story.throttled(95 * MS).runs(98 * MS, SERVER).sleeps(101 * MS, SERVER, 1, RECEIVE);
    story
}

/// The server waits for a futex from 1 ms to 861 ms, and the worker wakes it.
fn behind_worker() -> Story {
    let mut story = Story::served(862 * MS);
    story.sleeps(MS, SERVER, 1, FUTEX).wakes(861 * MS, WORKER, SERVER);
    story.runs(861 * MS + 5, SERVER).sleeps(863 * MS, SERVER, 1, RECEIVE);
    story
}

fn holder_busy() -> Story {
    let mut story = behind_worker();
    story.runs(500, WORKER).sleeps(SECOND, WORKER, 1, FUTEX);
    story
}

fn holder_asleep() -> Story {
    let mut story = behind_worker();
    story.runs(500, WORKER).sleeps(900, WORKER, 1, NANOSLEEP);
    story.wakes(860 * MS, IDLE, WORKER).runs(860 * MS + 9, WORKER);
    story
}

fn holder_in_writeback() -> Story {
    let mut story = behind_worker();
    story.runs(500, WORKER).sleeps(900, WORKER, 2, "io_schedule folio_wait_bit_common folio_wait_writeback");
    story.wakes_in(860 * MS, IDLE, WORKER, 5).runs(860 * MS + 9, WORKER);
    story
}

fn holder_runnable() -> Story {
    let mut story = behind_worker();
    story.runs(500, WORKER).preempted(900, WORKER, HOG).runs_after(860 * MS, WORKER, HOG);
    story
}

fn chain_to_disk() -> Story {
    let mut story = behind_worker();
    story.runs(300, WORKER).sleeps(600, WORKER, 1, FUTEX);
    story.wakes(860 * MS, THIRD, WORKER).runs(860 * MS + 5, WORKER);
    story.runs(100, THIRD).sleeps(400, THIRD, 2, "io_schedule blk_mq_get_tag");
    story.wakes_in(859 * MS, IDLE, THIRD, 5).runs(859 * MS + 5, THIRD);
    story
}

fn holder_polls() -> Story {
    let mut story = behind_worker();
    story.runs(300, WORKER).sleeps(600, WORKER, 1, EPOLL);
    story.wakes(860 * MS, THIRD, WORKER).runs(860 * MS + 5, WORKER);
    story.runs(100, THIRD).sleeps(SECOND, THIRD, 1, FUTEX);
    story
}

fn cycle() -> Story {
    let mut story = behind_worker();
    story.runs(300, WORKER).sleeps(600, WORKER, 1, FUTEX).wakes(860 * MS + 900, SERVER, WORKER);
    story
}

/// The record of its way back to the CPU is missing, and no loss was counted.
fn sends_runnable() -> Story {
    let mut story = Story::served(400 * MS);
    story.preempted(52 * MS, SERVER, HOG);
    story
}

fn sends_stopped() -> Story {
    let mut story = Story::served(400 * MS);
    story.leaves(MS, SERVER, (4, 0), ([0; probe_wire::STACK_DEPTH], 0), IDLE);
    story
}

/// The reply is sent in a slice that ends right behind it.
fn told_after(wait: u64) -> Story {
    let mut story = Story::served(400 * MS);
    story.account(1_000, 0).preempted(52 * MS, SERVER, HOG).account(349 * MS + 1_000 - wait, 0);
    story.ran(349 * MS - wait).sleeps(401 * MS, SERVER, 1, RECEIVE);
    story
}

fn told_slice() -> Story {
    told_after(40)
}

fn told_wait() -> Story {
    told_after(340 * MS)
}

fn told_throttled() -> Story {
    let mut story = Story::served(400 * MS);
    story.preempted(52 * MS, SERVER, HOG).throttled(300 * MS).ran(20 * MS).sleeps(401 * MS, SERVER, 1, RECEIVE);
    story
}

/// It slept from 5 ms to 95 ms, and neither switch is recorded.
fn told_shorter() -> Story {
    let mut story = Story::served(100 * MS);
    story.ran(5 * MS).sleeps(100 * MS + 10, SERVER, 1, RECEIVE);
    story
}

/// Between the two switches of which there are records it ran for 300 ms, on another CPU.
fn charged_while_runnable() -> Story {
    let mut story = Story::served(400 * MS);
    story.account(1_000, 0).preempted(52 * MS, SERVER, HOG);
    story.account(301_000, 0).runs_after(390 * MS, SERVER, HOG).account(311_000, 0).sleeps(
        401 * MS,
        SERVER,
        1,
        RECEIVE,
    );
    story
}

fn charged_while_asleep() -> Story {
    let mut story = Story::served(400 * MS);
    story.account(1_000, 0).sleeps(MS, SERVER, 1, NANOSLEEP).wakes(380 * MS, IDLE, SERVER);
    story.account(301_000, 0).runs(390 * MS, SERVER);
    story
}

/// It ran for 60 ms in all: the records of its sleep in between are missing.
fn uncharged_slice() -> Story {
    let mut story = Story::served(100 * MS);
    story.preempted(200, SERVER, HOG).account(5_000, 0).runs(250, SERVER);
    story.account(65_000, 0).sleeps(100 * MS + 10, SERVER, 1, RECEIVE);
    story
}

fn stolen() -> Story {
    let mut story = Story::served(100 * MS);
    story.preempted(200, SERVER, HOG).account(5_000, 7_000).runs(250, SERVER);
    story.account(5_000 + 29_000, 7_000 + 70_800).sleeps(100 * MS + 50, SERVER, 1, RECEIVE);
    story
}

/// Whoever has the CPU at 96 ms, the server had left it before, and what it was charged is unknown.
fn replaced() -> Story {
    let mut story = Story::served(100 * MS);
    story.packet_wakes_on(95 * MS, SERVER, WORKER).packet_wakes_on(96 * MS, HOG, WORKER);
    story
}

fn maybe_spins() -> Story {
    let mut story = Story::served(SECOND);
    story.open_after(Stage::SockRead, SECOND);
    story
}

fn spins() -> Story {
    let mut story = maybe_spins();
    (1..10).for_each(|turn| {
        story.softirq(turn * 95 * MS + 90 * MS, turn * 95 * MS + 90 * MS + 3, 1);
    });
    story
}

fn open_futex() -> Story {
    let mut story = Story::served(862 * MS);
    story.sleeps(MS, SERVER, 1, FUTEX).open_after(Stage::SockRead, 862 * MS);
    story
}

fn futex_timeout() -> Story {
    let mut story = Story::served(862 * MS);
    story.sleeps(MS, SERVER, 1, FUTEX).wakes(861 * MS, IDLE, SERVER).runs(861 * MS + 5, SERVER);
    story
}

/// The server waits for a lock in rounds of 100 ms, then `end` follows, and the answer at `answer` ms.
fn in_rounds(rounds: u64, answer: u64, end: impl FnOnce(&mut Story, u64)) -> Story {
    let mut story = Story::served(answer * MS);
    for round in 0..rounds {
        let from = MS + round * 100 * MS;
        story.sleeps(from, SERVER, 1, FUTEX).wakes(from + 100 * MS - 20, IDLE, SERVER);
        story.runs(from + 100 * MS - 10, SERVER);
    }
    end(&mut story, MS + rounds * 100 * MS);
    story.sleeps((answer + 1) * MS, SERVER, 1, RECEIVE);
    story
}

fn futex_in_rounds() -> Story {
    let mut story = in_rounds(8, 862, |story, from| {
        story.sleeps(from, SERVER, 1, FUTEX).wakes(861 * MS, WORKER, SERVER).runs(861 * MS + 5, SERVER);
    });
    story.runs(500, WORKER).sleeps(SECOND, WORKER, 1, FUTEX);
    story
}

fn futex_rounds_without_end() -> Story {
    in_rounds(8, 802, |_, _| ())
}

/// All rounds time out, the last one just when the worker wakes another thread, which waits for the futex
/// `word` and may run before the server does.
fn futex_freed(word: u64, runs: bool) -> Story {
    let mut story = futex_rounds_without_end();
    (0..8).for_each(|round| {
        story.waits_for_futex(MS + round * 100 * MS, SERVER, 7);
    });
    story.runs(500, WORKER).runs(600, THIRD).sleeps(2 * MS, THIRD, 1, FUTEX).waits_for_futex(2 * MS, THIRD, word);
    story.wakes(801 * MS - 100, WORKER, THIRD);
    if runs {
        story.runs(801 * MS - 90, THIRD).sleeps(801 * MS - 50, THIRD, 1, FUTEX);
    }
    story.sleeps(SECOND, WORKER, 1, FUTEX);
    story
}

/// The server waits for the futex `word`. The worker that frees it is in a poll until 600 ms, and then waits
/// for the futex `other`, which is not told if that is 0, until the third frees that.
fn holder_asked(word: u64, other: u64) -> Story {
    let mut story = behind_worker();
    story.waits_for_futex(MS, SERVER, word);
    story.runs(500, WORKER).sleeps(900, WORKER, 1, POLL).wakes(600 * MS, IDLE, WORKER).runs(600 * MS + 9, WORKER);
    story.sleeps(600 * MS + 50, WORKER, 1, FUTEX);
    if other != 0 {
        story.waits_for_futex(600 * MS + 50, WORKER, other);
    }
    story.wakes(860 * MS, THIRD, WORKER).runs(860 * MS + 9, WORKER).sleeps(SECOND, WORKER, 1, EPOLL);
    story.runs(600, THIRD).sleeps(SECOND, THIRD, 1, FUTEX);
    story
}

/// Before it asks for it again, the worker hands the lock to the client, which waits for it as well.
fn holder_again() -> Story {
    const FOURTH: Actor = Actor(800, 803, "fourth");
    let mut story = holder_asked(7, 7);
    story.runs(300, FOURTH).sleeps(700, FOURTH, 1, FUTEX).waits_for_futex(700, FOURTH, 7);
    story.wakes(600 * MS + 30, WORKER, FOURTH);
    story
}

fn futex_asked_again() -> Story {
    let mut story = futex_timeout_and_lock();
    story.waits_for_futex(MS, SERVER, 7).waits_for_futex(101 * MS, SERVER, 7);
    story.runs(500, WORKER).sleeps(SECOND, WORKER, 1, FUTEX);
    story
}

/// After each round it waits a moment for another futex, which the third thread frees.
fn futex_behind_its_own_lock() -> Story {
    let mut story = Story::served(862 * MS);
    for round in 0..8 {
        let from = MS + round * 100 * MS;
        story.sleeps(from, SERVER, 1, FUTEX).waits_for_futex(from, SERVER, 7).wakes(from + 99 * MS, IDLE, SERVER);
        story.runs(from + 99 * MS + 10, SERVER).sleeps(from + 99 * MS + 20, SERVER, 1, FUTEX);
        story.waits_for_futex(from + 99 * MS + 20, SERVER, 9).wakes(from + 99 * MS + 50, THIRD, SERVER);
        story.runs(from + 99 * MS + 60, SERVER);
    }
    story.sleeps(801 * MS, SERVER, 1, FUTEX).waits_for_futex(801 * MS, SERVER, 7);
    story.wakes(861 * MS, WORKER, SERVER).runs(861 * MS + 5, SERVER).sleeps(863 * MS, SERVER, 1, RECEIVE);
    story.runs(500, WORKER).sleeps(SECOND, WORKER, 1, FUTEX);
    story
}

/// A wait of 420 ms, and then a lock that the worker has for 440 ms.
fn futex_after_timeout() -> Story {
    let mut story = Story::served(862 * MS);
    story.sleeps(MS, SERVER, 1, FUTEX).wakes(421 * MS, IDLE, SERVER).runs(421 * MS + 5, SERVER);
    story.sleeps(422 * MS, SERVER, 1, FUTEX).wakes(861 * MS, WORKER, SERVER).runs(861 * MS + 5, SERVER);
    story.sleeps(863 * MS, SERVER, 1, RECEIVE);
    story
}

fn futex_timeout_and_lock() -> Story {
    in_rounds(1, 152, |story, from| {
        story.sleeps(from, SERVER, 1, FUTEX).wakes(from + 50 * MS, WORKER, SERVER).runs(from + 50 * MS + 5, SERVER);
    })
}

/// The server's futex wait ends on top of what the worker, busy for long, does.
fn futex_ended_amid(amid: (u32, Interrupt)) -> Story {
    let mut story = Story::served(862 * MS);
    story.sleeps(MS, SERVER, 1, FUTEX).wakes_amid(861 * MS, WORKER, SERVER, amid);
    story.runs(861 * MS + 5, SERVER).sleeps(863 * MS, SERVER, 1, RECEIVE);
    story.runs(500, WORKER).sleeps(SECOND, WORKER, 1, FUTEX);
    story
}

fn futex_timeout_on_busy_cpu() -> Story {
    futex_ended_amid((0, Interrupt::Hard))
}

/// The vector HRTIMER.
fn futex_timeout_in_softirq() -> Story {
    futex_ended_amid((9, Interrupt::None))
}

fn futex_unsure() -> Story {
    futex_ended_amid((0, Interrupt::Unknown))
}

fn futex_unseen() -> Story {
    let mut story = Story::served(862 * MS);
    story.sleeps(MS, SERVER, 1, FUTEX).runs(861 * MS + 5, SERVER).sleeps(863 * MS, SERVER, 1, RECEIVE);
    story
}

/// The server sleeps in `frames` from 1 ms to 99 ms after reading the check.
fn holds_in(state: u32, frames: &str, waker: Actor, softirq: u32) -> Story {
    let mut story = Story::served(100 * MS);
    story.sleeps(MS, SERVER, state, frames).wakes_in(99 * MS, waker, SERVER, softirq);
    story.runs(99 * MS + 5, SERVER).sleeps(100 * MS + 5, SERVER, 1, RECEIVE);
    story
}

fn full_pipe() -> Story {
    holds_in(1, PIPE, HOG, 0)
}

fn pipe_to_disk() -> Story {
    let mut story = holds_in(1, PIPE, WORKER, 0);
    story.runs(200, WORKER).sleeps(900, WORKER, 2, "io_schedule folio_wait_bit_common filemap_read");
    story.wakes_in(98 * MS, IDLE, WORKER, 5).runs(98 * MS + 5, WORKER);
    story
}

fn sleeps() -> Story {
    holds_in(1, NANOSLEEP, IDLE, 0)
}

/// The check waits in the socket while the server sleeps in `frames`, until 99 ms.
fn queues_in(state: u32, frames: &str, waker: Actor, softirq: u32) -> Story {
    let mut story = Story::queued(100 * MS);
    story.sleeps(0, SERVER, state, frames).wakes_in(99 * MS, waker, SERVER, softirq).runs(99 * MS + 5, SERVER);
    story
}

fn sleeps_in_queue() -> Story {
    queues_in(1, NANOSLEEP, IDLE, 0)
}

fn polls_others() -> Story {
    queues_in(1, EPOLL, IDLE, 2)
}

fn polls_shared() -> Story {
    let mut story = queues_in(1, EPOLL, HOG, 4);
    story.reads(50, WORKER);
    story
}

fn receives_shared() -> Story {
    let mut story = queues_in(1, RECEIVE, HOG, 4);
    story.reads(50, WORKER);
    story
}

/// It had asked for an earlier check.
fn receives_other() -> Story {
    let mut story = Story::new();
    story.stamp(100, Stage::PnicRx, None).stamp(104, Stage::SockEnqueue, None);
    story.reads(10, SERVER).calls(20, SERVER, false, 6379).sleeps(30, SERVER, 1, TCP_RECEIVE);
    story.packet_wakes(99 * MS, SERVER).runs(99 * MS + 5, SERVER).calls(99 * MS + 8, SERVER, true, 6379);
    story.stamp(100 * MS, Stage::SockRead, Some(SERVER)).reads(100 * MS, SERVER);
    story.stamp(100 * MS + 5, Stage::AppSend, Some(SERVER)).stamp(100 * MS + 7, Stage::PnicQueue, None);
    story
}

/// Right after attach: another thread, which was woken for the check, got no CPU.
fn receives_own() -> Story {
    queues_in(1, RECEIVE, HOG, 4)
}

fn polls_own() -> Story {
    queues_in(1, EPOLL, HOG, 4)
}

fn stopped() -> Story {
    queues_in(0x104, "do_signal_stop get_signal", HOG, 0)
}

fn frozen() -> Story {
    queues_in(2, "__refrigerator get_signal", HOG, 0)
}

fn busy_with_earlier() -> Story {
    let mut story = Story::queued(100 * MS);
    story.runs(50, SERVER).sleeps(101 * MS, SERVER, 1, RECEIVE);
    story
}

/// Asks a port and sleeps in `frames` until the answer comes, which it reads.
fn asks(frames: &str, port: u32) -> Story {
    let mut story = holds_in(1, frames, HOG, 4);
    story.calls(900, SERVER, false, port).calls(99 * MS + 8, SERVER, true, port);
    story
}

fn waits_for_service() -> Story {
    asks(TCP_RECEIVE, 6379)
}

fn polls_for_service() -> Story {
    asks(EPOLL, 6379)
}

/// The server asks for a name, asks again after a second, and hears after 100 ms more.
fn dns_asked_again() -> Story {
    let mut story = Story::served(1_100 * MS);
    story.calls_on(900, SERVER, false, (1, 50_000, 53)).sleeps(1_000, SERVER, 1, POLL);
    story.wakes_in(SECOND, IDLE, SERVER, 0).runs(SECOND + 5, SERVER);
    story.calls_on(SECOND + 9, SERVER, false, (2, 50_001, 53)).sleeps(SECOND + 20, SERVER, 1, POLL);
    story.packet_wakes(1_100 * MS - 20, SERVER).runs(1_100 * MS - 15, SERVER);
    story.calls_on(1_100 * MS - 10, SERVER, true, (2, 50_001, 53));
    story
}

/// The server asks for two addresses, and the second answer is late.
fn dns_second_answer() -> Story {
    let mut story = Story::served(100 * MS);
    story.calls(900, SERVER, false, 53).sleeps(1_000, SERVER, 1, POLL).packet_wakes(1_500, SERVER);
    story.runs(1_505, SERVER).calls(1_510, SERVER, true, 53).sleeps(1_600, SERVER, 1, POLL);
    story.packet_wakes(99 * MS, SERVER).runs(99 * MS + 5, SERVER).calls(99 * MS + 8, SERVER, true, 53);
    story
}

/// The server sends to `port`, and sleeps on.
fn has_sent(port: u32, frames: &str) -> Story {
    let mut story = Story::served(SECOND);
    story.calls(900, SERVER, false, port).sleeps(1_000, SERVER, 1, frames);
    story.open_after(Stage::SockRead, SECOND);
    story
}

fn dns_open() -> Story {
    has_sent(53, POLL)
}

/// Twin of a name server that does not answer: its answer comes, and this host drops it.
fn dns_dropped() -> Story {
    let mut story = dns_asked_again();
    story.drops_packet(20 * MS, (53, 50_000), "IP_OUTNOROUTES", "ip_forward");
    story
}

/// Twin of a name server that does not answer: what was dropped is not all known.
fn dns_amid_drops() -> Story {
    let mut story = dns_asked_again();
    story.drops_packet(20 * MS, (9, 4001), "IP_OUTNOROUTES", "ip_forward").and_more();
    story
}

fn service_open() -> Story {
    let mut story = has_sent(6379, TCP_RECEIVE);
    story.calls(10, SERVER, false, 6379).calls(20, SERVER, true, 6379);
    story
}

/// Two services that have answered before are asked, and the second answers.
fn one_service_open() -> Story {
    let mut story = service_open();
    story.calls(12, SERVER, false, 3306).calls(22, SERVER, true, 3306);
    story.calls(950, SERVER, false, 3306).calls(960, SERVER, true, 3306);
    story
}

/// The same, and neither answers.
fn two_services_open() -> Story {
    let mut story = service_open();
    story.calls(12, SERVER, false, 3306).calls(22, SERVER, true, 3306).calls(950, SERVER, false, 3306);
    story
}

/// Twin of a service that has not answered: nobody waits for an answer to a metric.
fn sends_metric() -> Story {
    has_sent(8125, RECEIVE)
}

fn waits_for_dns() -> Story {
    asks(RECEIVE, 53)
}

fn polls_for_dns() -> Story {
    asks(EPOLL, 53)
}

fn waits_for_anyone() -> Story {
    asks(RECEIVE, 0)
}

fn waits_for_connection() -> Story {
    holds_in(1, "schedule_timeout inet_csk_accept inet_accept", HOG, 4)
}

fn waits_for_unknown() -> Story {
    holds_in(1, TCP_RECEIVE, HOG, 4)
}

/// Twin of a service: nothing was read when it woke up.
fn waits_for_open_service() -> Story {
    let mut story = Story::served(100 * MS);
    story.calls(900, SERVER, false, 6379).sleeps(MS, SERVER, 1, TCP_RECEIVE);
    story.open_after(Stage::SockRead, 100 * MS);
    story
}

/// Twin of a service: the data came unasked.
fn client_sends_more() -> Story {
    let mut story = holds_in(1, EPOLL, HOG, 4);
    story.calls(99 * MS + 8, SERVER, true, 40_000);
    story
}

/// Twin of a service: what was sent there was an answer.
fn client_asks_again() -> Story {
    let mut story = asks(EPOLL, 40_000);
    story.calls(50, SERVER, true, 40_000);
    story
}

/// Twin of a service: a connection from before whylag attached.
fn client_of_the_port() -> Story {
    let mut story = holds_in(1, EPOLL, HOG, 4);
    story.calls_on(900, SERVER, false, (5, 4_000, 40_000)).calls_on(99 * MS + 8, SERVER, true, (5, 4_000, 40_000));
    story
}

fn epoll_timeout_on_busy_cpu() -> Story {
    let mut story = Story::served(100 * MS);
    story.sleeps(MS, SERVER, 1, EPOLL).wakes_amid(99 * MS, WORKER, SERVER, (0, Interrupt::Hard));
    story.runs(99 * MS + 5, SERVER).sleeps(100 * MS + 5, SERVER, 1, EPOLL);
    story.runs(50, WORKER).sleeps(99 * MS + 20, WORKER, 1, FUTEX);
    story
}

fn loop_with_timer() -> Story {
    let mut story = Story::served(100 * MS);
    story.sleeps(MS, SERVER, 1, EPOLL).packet_wakes(40 * MS, SERVER).runs(40 * MS + 5, SERVER);
    story.sleeps(40 * MS + 50, SERVER, 1, EPOLL).wakes(99 * MS, IDLE, SERVER).runs(99 * MS + 5, SERVER);
    story
}

/// Back to the receive call, where the next check comes at 60 ms while the CPU is busy.
fn late_work() -> Story {
    let mut story = Story::served(100 * MS);
    story.sleeps(MS, SERVER, 1, RECEIVE).packet_wakes(60 * MS, SERVER).runs_after(90 * MS, SERVER, HOG);
    story.reads(90 * MS + 5, SERVER);
    story
}

fn no_socket_events() -> Story {
    let mut story = Story::new();
    story.sleeps(0, SERVER, 1, RECEIVE).packet_wakes(105, SERVER).runs_after(99 * MS, SERVER, HOG);
    story.stamp(100, Stage::PnicRx, None).stamp(99 * MS + 20, Stage::AppSend, Some(SERVER));
    story
}

fn no_socket_events_futex() -> Story {
    let mut story = Story::new();
    story.sleeps(0, SERVER, 1, RECEIVE).packet_wakes(105, SERVER).runs(110, SERVER).runs(90, WORKER);
    story.sleeps(MS, SERVER, 1, FUTEX).wakes(99 * MS, WORKER, SERVER).runs(99 * MS + 9, SERVER);
    story.stamp(100, Stage::PnicRx, None).stamp(99 * MS + 20, Stage::AppSend, Some(SERVER));
    story
}

fn connects() -> Story {
    holds_in(1, "wait_woken inet_wait_for_connect __inet_stream_connect", HOG, 4)
}

fn loop_and_worker() -> Story {
    let mut story = holds_in(1, EPOLL, WORKER, 0);
    story.sleeps(0, WORKER, 1, FUTEX).wakes(900, SERVER, WORKER).runs(920, WORKER);
    story.sleeps(99 * MS + 20, WORKER, 1, FUTEX);
    story
}

fn loop_and_peer() -> Story {
    let mut story = holds_in(1, EPOLL, WORKER, 0);
    story.runs(50, WORKER).sleeps(99 * MS + 20, WORKER, 1, FUTEX);
    story
}

/// The server reads, the worker replies at 100 ms. The server wakes it at `us`.
fn worker_replies(us: u64) -> Story {
    let mut story = Story::served(100 * MS);
    story.journey.stamps.iter_mut().filter(|stamp| stamp.stage == Stage::AppSend).for_each(|stamp| {
        stamp.task = WORKER.id();
    });
    story.sleeps(0, WORKER, 1, FUTEX).wakes(us, SERVER, WORKER).runs(us + 10, WORKER);
    story.sleeps(us + 20, SERVER, 1, RECEIVE).sleeps(101 * MS, WORKER, 1, FUTEX);
    story
}

fn hand_over() -> Story {
    worker_replies(200)
}

/// Nothing but the reader being on that CPU speaks for the worker having got the check then.
fn hand_over_unsure() -> Story {
    let mut story = Story::served(100 * MS);
    story.journey.stamps.iter_mut().filter(|stamp| stamp.stage == Stage::AppSend).for_each(|stamp| {
        stamp.task = WORKER.id();
    });
    story.sleeps(0, WORKER, 1, FUTEX).wakes_amid(98 * MS, SERVER, WORKER, (0, Interrupt::Unknown));
    story.runs(98 * MS + 10, WORKER).sleeps(99 * MS, SERVER, 1, RECEIVE).sleeps(101 * MS, WORKER, 1, FUTEX);
    story
}

fn late_hand_over() -> Story {
    worker_replies(98 * MS)
}

fn two_hops() -> Story {
    let mut story = Story::served(100 * MS);
    story.journey.stamps.iter_mut().filter(|stamp| stamp.stage == Stage::AppSend).for_each(|stamp| {
        stamp.task = THIRD.id();
    });
    story.sleeps(0, WORKER, 1, FUTEX).wakes(200, SERVER, WORKER).runs(210, WORKER);
    story.sleeps(0, THIRD, 1, FUTEX).wakes(70 * MS, WORKER, THIRD).runs(70 * MS + 10, THIRD);
    story.sleeps(220, SERVER, 1, RECEIVE).sleeps(70 * MS + 50, WORKER, 1, FUTEX);
    story
}

fn dirty_limit() -> Story {
    holds_in(
        2,
        "schedule_timeout io_schedule_timeout balance_dirty_pages balance_dirty_pages_ratelimited_flags",
        IDLE,
        2,
    )
}

fn journal() -> Story {
    holds_in(2, "schedule jbd2_log_wait_commit jbd2_complete_transaction ext4_sync_file", HOG, 0)
}

fn disk() -> Story {
    holds_in(2, "io_schedule folio_wait_bit_common filemap_get_pages filemap_read", IDLE, 5)
}

fn reclaim() -> Story {
    holds_in(2, "io_schedule rq_qos_wait shrink_folio_list shrink_node try_to_free_mem_cgroup_pages", IDLE, 5)
}

fn kernel_lock() -> Story {
    let mut story = holds_in(2, "rwsem_down_read_slowpath down_read do_user_addr_fault", WORKER, 0);
    story.runs(50, WORKER).sleeps(101 * MS, WORKER, 1, FUTEX);
    story
}

fn kernel_lock_to_disk() -> Story {
    let mut story = holds_in(2, "rwsem_down_read_slowpath down_read do_user_addr_fault", WORKER, 0);
    story.runs(50, WORKER).sleeps(200, WORKER, 2, "io_schedule folio_wait_bit_common filemap_fault");
    story.wakes_in(98 * MS + 900, IDLE, WORKER, 5).runs(98 * MS + 905, WORKER);
    story
}

fn datagram_send_buffer() -> Story {
    holds_in(1, "schedule_timeout sock_alloc_send_pskb __ip_append_data udp_sendmsg", HOG, 4)
}

fn send_buffer_somehow() -> Story {
    holds_in(1, "schedule_timeout wait_woken sk_stream_wait_memory tcp_sendmsg_locked", HOG, 4)
}

/// The send call before met a closed window.
fn send_buffer() -> Story {
    let mut story = send_buffer_somehow();
    story.held(500, SERVER, 4_096, (8_192, 8_192));
    story
}

fn send_buffer_of_service() -> Story {
    let mut story = send_buffer_somehow();
    story.calls(10, SERVER, false, 6379).calls(99 * MS + 8, SERVER, false, 6379);
    story
}

/// Twin of Nagle: the client does not read.
fn window_closed() -> Story {
    let mut story = late_reply();
    story.held(206, SERVER, 2_048, (3_000, 3_000));
    story
}

fn window_closed_open() -> Story {
    let mut story = window_closed();
    story.open_after(Stage::AppSend, SECOND);
    story
}

/// Twin of a closed window: as much is under way as may be.
fn congested() -> Story {
    let mut story = late_reply();
    story.held(206, SERVER, 2_048, (1_448, 60_000)).congestion_window(1);
    story
}

/// Twin of a closed window: the socket held nothing back.
fn answered_unrecognised() -> Story {
    let mut story = late_reply();
    story.open_after(Stage::AppSend, SECOND);
    story
}

/// Twin of a server that leaves a check for the next one of its connection.
fn sent_and_back() -> Story {
    let mut story = silent_on_stream();
    story.sends(125, SERVER);
    story
}

/// Held by Nagle's algorithm.
fn nagle() -> Story {
    let mut story = late_reply();
    story.held(206, SERVER, 32, (4, 60_000));
    story
}

/// Twin of a window that is closed: an earlier reply waits for room too, so this one may have left
/// behind it unrecognised.
fn appended() -> Story {
    let mut story = late_reply();
    story.held(20, SERVER, 32, (60_000, 60_000)).held(206, SERVER, 64, (60_000, 60_000));
    story.open_after(Stage::AppSend, 40 * MS);
    story
}

/// A reply on a stream that leaves 40 ms after it was sent.
fn late_reply() -> Story {
    let mut story = Story::queued(200);
    story.runs(50, SERVER).sleeps(210, SERVER, 1, RECEIVE);
    story.journey.request.protocol = 6;
    story.journey.stamps.pop();
    story.stamp(40 * MS, Stage::PnicQueue, None);
    story
}

fn queues_reply(kind: &str, change: fn(&mut probe_wire::QdiscBody)) -> Story {
    let mut story = Story::queued(200);
    story.runs(50, SERVER).sleeps(210, SERVER, 1, RECEIVE);
    story.stamp(100 * MS, Stage::PnicXmit, None).qdisc(208, 100 * MS - 5, kind, change);
    story
}

fn shaper() -> Story {
    queues_reply("tbf", |left| left.overlimits += 90)
}

fn requeues() -> Story {
    queues_reply("tbf", |left| (left.requeues, left.overlimits) = (9, 90))
}

fn stopped_queue() -> Story {
    queues_reply("pfifo", |left| left.queue_state = 1)
}

fn per_cpu_counters() -> Story {
    queues_reply("pfifo_fast", |left| (left.requeues, left.overlimits) = (u32::MAX, u32::MAX))
}

fn receives_late() -> Story {
    let mut story = Story::new();
    story.stamp(100, Stage::PnicRx, None).stamp(60 * MS, Stage::SockEnqueue, None);
    story.stamp(60 * MS + 9, Stage::SockRead, Some(SERVER)).stamp(60 * MS + 15, Stage::AppSend, Some(SERVER));
    story
}

fn rx_softirq() -> Story {
    let mut story = receives_late();
    story.softirq(500, 59 * MS, 3);
    story
}

const VETH: InterfaceId = InterfaceId { netns: 1, ifindex: 9 };
const NAPI: Actor = Actor(70, 70, "napi/veth0-9");

/// A check crosses a veth into a pod in 100 ms.
fn crosses() -> Story {
    let mut story = Story::new();
    story.interface(VETH, "veth0", "veth").hooks(&["softirq_entry", "softirq_exit", "sched_switch"]);
    story.stamp(100, Stage::PnicRx, None).stamp(110, Stage::VnicTx, None).stamp(100 * MS, Stage::GuestRx, None);
    story.journey.stamps[2].interface = VETH;
    story.stamp(100 * MS + 5, Stage::SockEnqueue, None);
    story.stamp(100 * MS + 9, Stage::SockRead, Some(SERVER)).stamp(100 * MS + 15, Stage::AppSend, Some(SERVER));
    story
}

fn rx_softirq_runs() -> Story {
    let mut story = crosses();
    story.comes_in(100 * MS, VETH, None, 98 * MS);
    story
}

const KSOFTIRQD: Actor = Actor(16, 16, "ksoftirqd/0");

fn softirq_deferred() -> Story {
    let mut story = crosses();
    story.task(0, KSOFTIRQD, 'S', Some("smpboot_thread_fn")).softirq(110, 2 * MS, 3);
    story.wakes_in(2 * MS, HOG, KSOFTIRQD, 4).runs_after(99 * MS, KSOFTIRQD, HOG);
    story.comes_in(100 * MS, VETH, None, 900);
    story
}

fn softirq_not_deferred() -> Story {
    let mut story = crosses();
    story.task(0, KSOFTIRQD, 'S', Some("smpboot_thread_fn")).comes_in(100 * MS, VETH, None, 1);
    story
}

fn consumer_busy() -> Story {
    let mut story = crosses();
    story.runs(0, NAPI).comes_in(100 * MS, VETH, Some(NAPI), 0);
    story
}

fn consumer_waits() -> Story {
    let mut story = crosses();
    story.sleeps(50, NAPI, 1, "napi_threaded_poll").wakes(112, HOG, NAPI);
    story.runs_after(100 * MS - 10, NAPI, HOG).comes_in(100 * MS, VETH, Some(NAPI), 0);
    story
}

fn consumer_behind_worker() -> Story {
    let mut story = crosses();
    story.sleeps(50, NAPI, 1, "napi_threaded_poll").wakes(112, HOG, NAPI);
    story.runs_after(100 * MS - 10, NAPI, KWORKER).comes_in(100 * MS, VETH, Some(NAPI), 0);
    story
}

fn stopped_and_starved() -> Story {
    let mut story = consumer_waits();
    story.qdisc_at(TAP, 112, 60 * MS, "pfifo", |left| left.queue_state = 1);
    story
}

fn stopped_and_busy() -> Story {
    let mut story = consumer_busy();
    story.qdisc_at(TAP, 112, 60 * MS, "pfifo", |left| left.queue_state = 1);
    story
}

fn consumer_sleeps() -> Story {
    let mut story = crosses();
    story.sleeps(50, NAPI, 1, "napi_threaded_poll").wakes(99 * MS, HOG, NAPI);
    story.runs_after(100 * MS - 10, NAPI, HOG).comes_in(100 * MS, VETH, Some(NAPI), 0);
    story
}

fn consumer_unwatched() -> Story {
    let mut story = crosses();
    story.comes_in(100 * MS, VETH, Some(NAPI), 0);
    story
}

fn consumer_foreign() -> Story {
    let mut story = crosses();
    story.runs(0, HOG).comes_in(100 * MS, VETH, Some(HOG), 0);
    story
}

fn slow_receive() -> Story {
    receives_late()
}

fn in_vm() -> Story {
    let mut story = Story::new();
    story.stamp(100, Stage::PnicRx, None).stamp(110, Stage::VnicTx, None);
    story.stamp(100 * MS, Stage::VnicRx, None).stamp(100 * MS + 8, Stage::PnicQueue, None);
    story
}

fn backend(late: u64) -> Story {
    let mut story = Story::new();
    story.stamp(100, Stage::PnicRx, None).stamp(110, Stage::VnicTx, None);
    story.stamp(late, Stage::BackendRx, Some(WORKER)).stamp(late + 90, Stage::VnicRx, None);
    story
}

fn backend_starved() -> Story {
    let mut story = backend(100 * MS);
    story.sleeps(0, WORKER, 1, EPOLL).packet_wakes(112, WORKER).runs_after(100 * MS - 5, WORKER, HOG);
    story
}

const RING_HOOKS: [&str; 4] = ["consume_skb", "net_dev_start_xmit", "sched_switch", "kfree_skb"];

fn backend_asleep() -> Story {
    let mut story = backend(100 * MS);
    story.sleeps(0, WORKER, 1, NANOSLEEP).wakes(99 * MS + 900, IDLE, WORKER).runs(99 * MS + 910, WORKER);
    story
}

fn backend_prompt() -> Story {
    let mut story = Story::new();
    story.hooks(&RING_HOOKS).stamp(100, Stage::PnicRx, None).stamp(110, Stage::VnicTx, None);
    story.stamp(130, Stage::BackendRx, Some(WORKER)).stamp(100 * MS, Stage::VnicRx, None);
    story.sleeps(0, WORKER, 1, EPOLL).packet_wakes(112, WORKER).runs(114, WORKER).sleeps(140, WORKER, 1, NANOSLEEP);
    story
}

fn backend_polls() -> Story {
    let mut story = backend(100 * MS);
    story.sleeps(0, WORKER, 1, EPOLL).packet_wakes(99 * MS, WORKER).runs(100 * MS - 5, WORKER);
    story
}

fn backend_unwatched() -> Story {
    backend(100 * MS)
}

/// Handed to a tap, and open for two seconds.
fn handed_to_tap() -> Story {
    let mut story = Story::new();
    story.holds_tap(SERVER).stamp(100, Stage::PnicRx, None).stamp(110, Stage::VnicTx, None);
    story.ends(2 * SECOND + 200, Outcome::Open);
    story
}

fn ring_open() -> Story {
    let mut story = handed_to_tap();
    story.hooks(&RING_HOOKS).takes(50, WORKER).sleeps(60, WORKER, 1, NANOSLEEP);
    story
}

fn ring_never_read() -> Story {
    let mut story = handed_to_tap();
    story.hooks(&RING_HOOKS).task(0, SERVER, 'S', Some("do_poll"));
    story
}

fn taken_open() -> Story {
    let mut story = handed_to_tap();
    story.hooks(&RING_HOOKS).stamp(130, Stage::BackendRx, Some(WORKER)).ends(2 * SECOND, Outcome::Open);
    story.runs(120, WORKER).sleeps(140, WORKER, 1, NANOSLEEP);
    story
}

/// A VM of two threads that sleep until 95 ms, on a kernel without the hook on the ring.
fn holders_asleep() -> Story {
    let mut story = in_vm();
    story.hooks(&["net_dev_start_xmit", "sched_switch"]).holds_tap(SERVER);
    story.sleeps(0, SERVER, 1, EPOLL).sleeps(10, WORKER, 1, NANOSLEEP);
    story.wakes(95 * MS, IDLE, WORKER).runs(95 * MS + 5, WORKER);
    story
}

fn holder_ran() -> Story {
    let mut story = holders_asleep();
    story.packet_wakes(120, SERVER).runs(125, SERVER).sleeps(300, SERVER, 1, EPOLL);
    story
}

fn holders_unseen() -> Story {
    let mut story = in_vm();
    story.hooks(&["net_dev_start_xmit"]).holds_tap(SERVER).task(0, SERVER, 'S', Some("do_poll"));
    story
}

fn tap_shaper() -> Story {
    let mut story = backend(100 * MS);
    story.hooks(&RING_HOOKS).qdisc_at(TAP, 115, 99 * MS, "tbf", |left| left.overlimits += 9);
    story.sleeps(0, WORKER, 1, EPOLL).packet_wakes(99 * MS, WORKER).runs(100 * MS - 5, WORKER);
    story
}

fn drop_full_ring() -> Story {
    let mut story = handed_to_tap();
    story.hooks(&RING_HOOKS).dropped(112, "FULL_RING", "tun_net_xmit");
    story
}

fn backend_on_disk() -> Story {
    let mut story = backend(100 * MS);
    story.sleeps(0, WORKER, 2, "io_schedule blk_mq_get_tag").wakes_in(98 * MS, IDLE, WORKER, 5);
    story.runs(98 * MS + 5, WORKER);
    story
}

fn forwarding_to_neighbour() -> Story {
    let mut story = forwarding();
    story.neighbour(100 * MS - 20, TAP);
    story
}

/// As [`late_datagram`], and the wait ends with the neighbour's answer.
fn sending_to_neighbour() -> Story {
    let mut story = late_datagram();
    let queued = story.journey.stamp(Stage::PnicQueue).unwrap().at;
    story.neighbour((queued.0 - at(0).0) / 1_000 - 20, ETH);
    story
}

fn neighbour_answered_before() -> Story {
    let mut story = late_datagram();
    let queued = story.journey.stamp(Stage::PnicQueue).unwrap().at;
    story.neighbour((queued.0 - at(0).0) / 1_000 - 20 * MS, ETH);
    story
}

#[test]
fn a_wait_for_a_neighbour_says_so() {
    let judged = forwarding_to_neighbour().judge();
    let entry = longest(&judged, Cause::HostForwarding);
    assert!(entry.evidence.iter().any(|fact| fact.contains("link address was known on tap0")), "{entry:?}");
    assert!(entry.meaning.contains("neighbour"), "{entry:?}");
}

fn forwarding() -> Story {
    let mut story = Story::new();
    story.stamp(100, Stage::PnicRx, None).stamp(100 * MS, Stage::VnicTx, None);
    story.stamp(100 * MS + 300, Stage::VnicRx, None);
    story
}

/// A full accept queue drops nothing that can be seen.
fn syn_again() -> Story {
    let mut story = Story::new();
    story.journey.request.protocol = 6;
    story.journey.retransmissions = 1;
    story.stamp(100, Stage::PnicRx, None).stamp(1_040 * MS, Stage::PnicQueue, None);
    story
}

fn routed() -> Story {
    let mut story = Story::new();
    story.stamp(100, Stage::PnicRx, None).stamp(100 * MS, Stage::PnicQueue, None);
    story.journey.stamps[1].interface.ifindex = 3;
    story
}

fn stopped_before() -> Story {
    let mut story = Story::queued(100 * MS);
    story.task(50, SERVER, 'T', Some("do_signal_stop")).wakes(99 * MS, HOG, SERVER).runs(99 * MS + 5, SERVER);
    story
}

fn sent() -> Story {
    let mut story = Story::new();
    story.journey.perspective = Perspective::Sent;
    story.stamp(10, Stage::AppSend, Some(SERVER)).stamp(14, Stage::PnicQueue, None);
    story.stamp(16, Stage::PnicXmit, None);
    story
}

fn outside() -> Story {
    let mut story = sent();
    story.stamp(100 * MS, Stage::PnicRx, None).stamp(100 * MS + 9, Stage::SockEnqueue, None);
    story
}

fn never_answered() -> Story {
    let mut story = sent();
    story.ends(2 * SECOND, Outcome::Lost(Loss::TimedOut));
    story
}

fn arrives() -> Story {
    let mut story = Story::new();
    story.stamp(50 * MS, Stage::PnicRx, None);
    story
}

fn drop_receive_buffer() -> Story {
    let mut story = arrives();
    story.reads(MS, SERVER).runs(500, SERVER).sleeps(2 * MS, SERVER, 1, NANOSLEEP);
    story.dropped(50 * MS + 9, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb");
    story
}

/// A connection request that is answered when it has come `copies` times, a second apart.
fn comes_again(copies: u32) -> Story {
    let mut story = Story::new();
    story.journey.request.protocol = 6;
    story.journey.retransmissions = copies - 1;
    let answered = 100 + u64::from(copies - 1) * SECOND;
    story.stamp(100, Stage::PnicRx, None).stamp(answered + 20, Stage::PnicQueue, None);
    story.stamp(answered + 22, Stage::PnicXmit, None);
    story
}

fn accept_queue_full() -> Story {
    let mut story = comes_again(2);
    story.refused(101);
    story
}

fn accept_queue_full_open() -> Story {
    let mut story = comes_again(2);
    story.refused(101).refused(SECOND + 101).open_after(Stage::PnicRx, SECOND + 500 * MS);
    story
}

/// Twin of a full accept queue: of three copies only the first met one.
fn accept_queue_not_always_full() -> Story {
    let mut story = comes_again(3);
    story.refused(101);
    story
}

fn drop_accept_queue() -> Story {
    let mut story = arrives();
    story.reads(MS, SERVER).dropped(50 * MS + 9, "NOT_SPECIFIED", "tcp_conn_request");
    story
}

/// Twin of a full accept queue.
fn drop_wrong_segment() -> Story {
    let mut story = arrives();
    story.reads(MS, SERVER).dropped(50 * MS + 9, "TCP_OVERWINDOW", "tcp_check_req");
    story
}

/// Twin of Nagle: no socket holds a datagram.
fn late_datagram() -> Story {
    let mut story = nagle();
    story.journey.request.protocol = 17;
    story
}

fn drop_qdisc() -> Story {
    let mut story = arrives();
    story.dropped(50 * MS + 9, "QDISC_DROP", "__dev_queue_xmit");
    story
}

fn drop_backlog() -> Story {
    let mut story = arrives();
    story.dropped(50 * MS + 9, "CPU_BACKLOG", "enqueue_to_backlog");
    story
}

fn drop_firewall() -> Story {
    let mut story = arrives();
    story.dropped(50 * MS + 9, "NETFILTER_DROP", "nf_hook_slow");
    story
}

fn drop_neighbour() -> Story {
    let mut story = arrives();
    story.dropped(50 * MS + 9, "NEIGH_FAILED", "neigh_invalidate");
    story
}

fn drop_unknown() -> Story {
    let mut story = arrives();
    story.dropped(50 * MS + 9, "NOT_SPECIFIED", "some_module");
    story
}

/// The first SYN is dropped at the NIC's queue; its retransmission is served 200 ms later.
fn drop_and_again() -> Story {
    let mut story = arrives();
    story.dropped(50 * MS + 9, "QDISC_DROP", "__dev_queue_xmit");
    story.journey.request.protocol = 6;
    story.journey.retransmissions = 1;
    story.stamp(250 * MS, Stage::SockEnqueue, None).ends(250 * MS + 1, Outcome::Replied);
    story
}

/// The server goes back to where it waited before.
fn silent() -> Story {
    let mut story = Story::served(2 * SECOND);
    story.sleeps(MS, SERVER, 1, RECEIVE).open_after(Stage::SockRead, 2 * SECOND);
    story.ends(2 * SECOND, Outcome::Lost(Loss::TimedOut));
    story
}

/// The server reads the first segment at once, and waits in `frames` for the second.
fn parts(frames: &str, protocol: u8) -> Story {
    let mut story = Story::new();
    story.journey.request.protocol = protocol;
    story.sleeps(0, SERVER, 1, frames).data_wakes(105, SERVER, true).runs(110, SERVER);
    story.stamp(100, Stage::PnicRx, None).stamp(104, Stage::SockEnqueue, None);
    story.stamp(112, Stage::SockRead, Some(SERVER)).reads(112, SERVER).sleeps(130, SERVER, 1, frames);
    story
}

/// The second comes after 100 ms, and `us` later the answer.
fn completed(mut story: Story, us: u64) -> Story {
    let until = 100 * MS + 20 + us;
    story.data_wakes(100 * MS, SERVER, false).runs(100 * MS + 5, SERVER).reads(100 * MS + 9, SERVER);
    story.stamp(until, Stage::AppSend, Some(SERVER)).stamp(until + 2, Stage::PnicQueue, None);
    story.sleeps(until + 9, SERVER, 1, TCP_RECEIVE);
    story
}

fn in_two_parts() -> Story {
    completed(parts(TCP_RECEIVE, 6), 0)
}

fn in_two_parts_by_epoll() -> Story {
    completed(parts(EPOLL, 6), 0)
}

/// Twin of a late rest: it came through a queue of this host, to a pod.
fn in_two_parts_forwarded() -> Story {
    let mut story = in_two_parts();
    story.stamp(101, Stage::VnicTx, None).ends(100 * MS + 22, Outcome::Replied);
    story.journey.stamps.sort_by_key(|stamp| stamp.at);
    story
}

/// Twin of a late rest: the thread slept again before it answered.
fn in_two_parts_by_chance() -> Story {
    let mut story = completed(parts(TCP_RECEIVE, 6), 20 * MS);
    story.sleeps(100 * MS + 12, SERVER, 1, NANOSLEEP).wakes_in(120 * MS, IDLE, SERVER, 0).runs(120 * MS + 5, SERVER);
    story
}

fn in_two_parts_without_drops() -> Story {
    let mut story = in_two_parts();
    let active = ["sched_switch", "sk_data_ready", "softirq_entry", "softirq_exit"];
    story.hooks(&active);
    story
}

fn rest_dropped() -> Story {
    let mut story = in_two_parts();
    story.drops_packet(5 * MS, (5000, 4000), "IP_OUTNOROUTES", "ip_forward");
    story
}

fn rest_dropped_open() -> Story {
    let mut story = in_part_open();
    story.drops_packet(5 * MS, (5000, 4000), "IP_OUTNOROUTES", "ip_forward");
    story
}

fn rest_dropped_somehow() -> Story {
    let mut story = in_two_parts();
    story.drops_packet(5 * MS, (5000, 4000), "NOT_SPECIFIED", "some_module");
    story
}

/// The server sleeps on, and 100 ms later has all at once.
fn behind_a_gap() -> Story {
    let mut story = Story::new();
    story.journey.request.protocol = 6;
    story.sleeps(0, SERVER, 1, TCP_RECEIVE).data_wakes(100 * MS, SERVER, false).runs(100 * MS + 5, SERVER);
    story.reads(100 * MS + 9, SERVER);
    story.stamp(100, Stage::PnicRx, None).stamp(100 * MS + 20, Stage::AppSend, Some(SERVER));
    story.stamp(100 * MS + 22, Stage::PnicQueue, None);
    story
}

fn behind_a_drop() -> Story {
    let mut story = behind_a_gap();
    story.drops_packet(50, (5000, 4000), "IP_OUTNOROUTES", "ip_forward");
    story
}

fn in_two_datagrams() -> Story {
    completed(parts(RECEIVE, 17), 0)
}

fn in_part() -> Story {
    let mut story = parts(TCP_RECEIVE, 6);
    story.data_wakes(SECOND, SERVER, false).runs(SECOND + 5, SERVER).reads_bytes(SECOND + 9, SERVER, 0);
    story.ends(SECOND + 20, Outcome::Lost(Loss::TimedOut));
    story
}

fn in_part_open() -> Story {
    let mut story = parts(TCP_RECEIVE, 6);
    story.ends(SECOND, Outcome::Open);
    story
}

/// Twin of a request in parts: what comes is the next check.
fn silent_on_stream() -> Story {
    let mut story = parts(TCP_RECEIVE, 6);
    story.data_wakes(100 * MS, SERVER, true).runs(100 * MS + 5, SERVER).reads(100 * MS + 9, SERVER);
    story.ends(100 * MS + 20, Outcome::Lost(Loss::TimedOut));
    story
}

/// Twin of a request in parts: the rest took 100 ms, the work 200 ms.
fn computes_on_whole() -> Story {
    completed(parts(TCP_RECEIVE, 6), 900 * MS)
}

/// Twin of a request in parts: the data came on another connection.
fn stream_and_service() -> Story {
    let mut story = parts(TCP_RECEIVE, 6);
    story.calls(120, SERVER, false, 6379).packet_wakes(100 * MS, SERVER).runs(100 * MS + 5, SERVER);
    story.calls(100 * MS + 9, SERVER, true, 6379);
    story.stamp(100 * MS + 20, Stage::AppSend, Some(SERVER)).stamp(100 * MS + 22, Stage::PnicQueue, None);
    story
}

fn captured() -> Story {
    let mut story = Story::new();
    story.fact(0, Fact::Hooks { active: vec!["packet_ingress".to_owned(), "packet_egress".to_owned()] });
    story.stamp(100, Stage::PnicRx, None).stamp(100 * MS, Stage::PnicQueue, None);
    story
}

fn captured_open() -> Story {
    let mut story = captured();
    story.open_after(Stage::PnicRx, 90 * SECOND);
    story
}

/// A thread of the kernel's had the CPU for a moment at the end.
fn behind_worker_and_hog() -> Story {
    let mut story = Story::served(100 * MS);
    story.preempted(MS, SERVER, HOG).runs_after(98 * MS, SERVER, KWORKER).sleeps(101 * MS, SERVER, 1, RECEIVE);
    story
}

fn silent_in_epoll() -> Story {
    let mut story = Story::served(2 * SECOND);
    story.sleeps(MS, SERVER, 1, EPOLL).open_after(Stage::SockRead, 2 * SECOND);
    story
}

fn no_trace() -> Story {
    let mut story = arrives();
    story.ends(3 * SECOND, Outcome::Lost(Loss::TimedOut));
    story
}

fn no_reader() -> Story {
    let mut story = arrives();
    story.stamp(51 * MS, Stage::SockEnqueue, None).ends(3 * SECOND, Outcome::Open);
    story
}

fn unknown_frame() -> Story {
    holds_in(2, "schedule some_driver_wait vfs_ioctl", HOG, 0)
}

fn events_lost() -> Story {
    let mut story = computes();
    story.lost_events = 3;
    story
}

fn ambiguous() -> Story {
    let mut story = computes();
    story.journey.outcome = Outcome::Ambiguous;
    story
}

fn open_runnable() -> Story {
    let mut story = Story::served(SECOND);
    story.throttled(5 * MS).preempted(MS, SERVER, HOG).open_after(Stage::SockRead, SECOND);
    story
}

#[test]
fn a_healthy_check_has_no_verdict_but_a_ledger() {
    let mut story = Story::served(5 * MS);
    story.sleeps(6 * MS, SERVER, 1, RECEIVE);
    let judged = story.judge();
    assert_eq!((judged.slow, &judged.verdict), (false, &Verdict::Healthy));
    assert!(taken(&judged, Cause::AppOnCpu) > DurNs::from_millis(4), "{judged:#?}");
}

#[test]
fn the_holder_is_named_with_its_time_on_cpu() {
    let judged = holder_busy().judge();
    let entry = longest(&judged, Cause::AppFutex);
    assert_eq!(entry.span, Span::Hold);
    assert_eq!(entry.evidence[0], "holder (pid 800/801 worker) was on CPU 860 ms of the 860 ms wait");
    assert!(entry.evidence[1].starts_with("pid 800/800 server was asleep in futex_do_wait for 860 ms"));
}

fn reasons(judged: &Judged) -> String {
    judged.ledger.unexplained_reasons.join("; ")
}

#[test]
fn a_late_rest_of_a_request_is_said_to_be_late() {
    for story in [in_two_parts_forwarded(), in_two_parts_by_chance()] {
        let judged = { story }.judge();
        assert!(reasons(&judged).contains("99.9 ms: it had read a part"), "{judged:#?}");
    }
    let told = longest(&rest_dropped().judge(), Cause::HostForwarding).evidence.join("\n");
    assert!(told.contains("a packet of the check's connection in ip_forward: IP_OUTNOROUTES"), "{told}");
    assert!(reasons(&in_part_open().judge()).contains("not come whole"));
    assert!(reasons(&in_part().judge()).contains("not come whole"));
}

#[test]
fn the_steps_of_a_question_for_a_name_are_told() {
    let told = longest(&dns_asked_again().judge(), Cause::DependencyDns).evidence.join("\n");
    assert!(told.contains("no answer from port 53 in 999 ms; it asked again"), "{told}");
    let judged = dns_asked_again().judge();
    let all: Vec<&str> = judged.ledger.entries.iter().flat_map(|entry| &entry.evidence).map(String::as_str).collect();
    assert!(all.iter().any(|fact| fact.contains("had asked port 53, and read the answer there")), "{all:?}");
    let dropped = longest(&dns_dropped().judge(), Cause::HostForwarding).evidence.join("\n");
    assert!(dropped.contains("dropped the answer of port 53"), "{dropped}");
    let why = reasons(&sends_metric().judge());
    assert!(why.contains("has sent to port 8125, from where nothing has come yet"), "{why}");
}

#[test]
fn what_was_not_watched_is_not_said_to_be_unseen() {
    let told = reasons(&captured().judge());
    assert!(told.contains("no socket is watched, so what held it between pnic_rx and pnic_queue"), "{told}");
    let told = reasons(&captured_open().judge());
    assert!(told.contains("neither sockets nor drops are watched"), "{told}");
    assert!(reasons(&no_trace().judge()).contains("nothing was seen of it after pnic_rx, and no drop"));
    let told = reasons(&slow_receive().judge());
    assert!(told.contains("no softirq ran long then") && told.contains("With interrupts off there"), "{told}");
    let mut unraised = slow_receive();
    unraised.hooks(&["softirq_entry", "softirq_exit", "sched_switch", "sk_data_ready", "kfree_skb"]);
    assert!(reasons(&unraised.judge()).contains("no long softirq was seen"));
}

#[test]
fn who_got_the_cpu_when_a_thread_fell_asleep_did_not_keep_it_from_running() {
    let mut story = Story::queued(90 * MS);
    let none = ([0; probe_wire::STACK_DEPTH], 0);
    story.leaves(0, SERVER, (1, 0), none, HOG).packet_wakes(106, SERVER).runs(89 * MS, SERVER);
    let judged = story.judge();
    let entry = longest(&judged, Cause::AppRunqueue);
    assert_eq!((entry.offender.as_ref(), entry.evidence[1].as_str()), (None, "the CPU it got had been idle"));
}

#[test]
fn two_kinds_of_one_cause_are_said_differently() {
    let meaning = |story: Story, cause| longest(&{ story }.judge(), cause).meaning;
    assert!(meaning(silent(), Cause::AppSelfWait).contains("without an answer"));
    assert!(meaning(sleeps_in_queue(), Cause::AppSelfWait).contains("data is ready"));
    assert!(meaning(stopped(), Cause::AppSelfWait).contains("stopped"));
    assert!(meaning(drop_receive_buffer(), Cause::AppSocketQueue).contains("was full"));
    assert!(meaning(nagle(), Cause::AppSocketQueue).contains("holds the reply in the send queue"));
}

#[test]
fn a_wait_in_the_ring_is_told_with_numbers_or_said_to_be_unknown() {
    let told = |story: fn() -> Story, cause| longest(&story().judge(), cause).evidence.join("\n");
    let asleep = told(backend_asleep, Cause::VmBackend);
    assert!(asleep.contains("in tap0's ring for 99.9 ms, then pid 800/801 worker took it"), "{asleep}");
    assert!(asleep.contains("asleep in do_nanosleep"), "{asleep}");
    let open = told(ring_open, Cause::VmBackend);
    assert!(open.contains("not taken out; pid 800/801 worker took the one before"), "{open}");
    let holders = told(holders_asleep, Cause::VmBackend);
    assert!(holders.contains("of the 2 threads that could take it, none ran meanwhile"), "{holders}");
    let unknown = "the wait in tap0's ring is part of it";
    assert!(told(holder_ran, Cause::VmGuestInternal).contains(unknown));
    assert!(told(in_vm, Cause::VmGuestInternal).contains(unknown));
    assert!(!told(backend_prompt, Cause::VmGuestInternal).contains(unknown));
}

#[test]
fn lost_events_are_said_to_be_the_reason() {
    assert_eq!(events_lost().judge().verdict, Verdict::Unresolved(Unresolved::EventsLost { count: 3 }));
}

#[test]
fn an_unknown_frame_is_named() {
    let Verdict::Unresolved(Unresolved::Unexplained { percent, reason }) = unknown_frame().judge().verdict else {
        panic!("a verdict without proof");
    };
    assert!(percent > 90 && reason.contains("some_driver_wait"), "{percent} {reason}");
}

#[test]
fn a_full_socket_tells_what_its_reader_did() {
    let judged = drop_receive_buffer().judge();
    let evidence = longest(&judged, Cause::AppSocketQueue).evidence.join("\n");
    assert!(evidence.contains("had been asleep in do_nanosleep for 48.0 ms"), "{evidence}");
}

#[test]
fn a_full_accept_queue_is_told_with_its_numbers() {
    let judged = accept_queue_full().judge();
    let evidence = longest(&judged, Cause::AppSocketQueue).evidence.join("\n");
    assert!(evidence.contains("accept queue full (backlog 3 of 2), with 1 half-open connection"), "{evidence}");
    assert!(evidence.contains("came 2 times and was ignored 1 time"), "{evidence}");
    let why = reasons(&accept_queue_not_always_full().judge());
    assert!(why.contains("came 3 times and found a full accept queue 1 time"), "{why}");
}

#[test]
fn a_chain_of_waits_is_followed_for_eight_hops() {
    const NAMES: [&str; 12] = ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11"];
    let actor = |number: u32| Actor(800, 810 + number, NAMES[number as usize]);
    let mut story = behind_worker();
    story.sleeps(100, WORKER, 1, FUTEX).wakes(860 * MS, actor(0), WORKER);
    for number in 0..11 {
        story.sleeps(90 - u64::from(number), actor(number), 1, FUTEX);
        story.wakes(859 * MS - u64::from(number), actor(number + 1), actor(number));
    }
    story.runs(50, actor(11));
    let judged = story.judge();
    let entry = longest(&judged, Cause::AppFutex);
    assert_eq!(entry.path.len(), 9, "the check's own wait and eight that were followed");
    assert!(entry.evidence.iter().any(|fact| fact.contains("too many to follow")), "{:?}", entry.evidence);
    assert!(entry.time() > DurNs::from_millis(850), "{judged:#?}");
}
