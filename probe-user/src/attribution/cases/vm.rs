//! What happens to a check inside a VM, told of its threads.

use super::{Case, case, unresolved};
use crate::attribution::Cause;
use crate::attribution::stall::{StalledVm, Stalls, Victim};
use crate::attribution::story::{
    Actor, EPOLL, FUTEX, HOG, IDLE, MS, NANOSLEEP, SECOND, Story, TAP, concluded, longest,
};
use crate::event::Fact;
use crate::journey::{JourneyId, Loss, Outcome, Stage};
use probe_wire::STACK_DEPTH;

const QEMU: Actor = Actor(700, 700, "qemu-system-x86");
const VCPU: Actor = Actor(700, 701, "CPU 0/KVM");
const SECOND_VCPU: Actor = Actor(700, 702, "CPU 1/KVM");
const TCG: Actor = Actor(700, 703, "CPU 0/TCG");
const VHOST: Actor = Actor(700, 704, "vhost-700");
/// The same before Linux 6.4: a kernel thread, of a process of its own.
const KTHREAD: Actor = Actor(740, 740, "vhost-700");
const POOL: Actor = Actor(700, 705, "worker");
/// A vCPU without a name of its own.
const UNNAMED: Actor = Actor(700, 706, "qemu-system-x86");
/// A vCPU of another VM.
const NEIGHBOUR: Actor = Actor(710, 711, "CPU 3/KVM");
const MONITOR: Actor = Actor(720, 720, "virsh");

const HALT: &str = "__schedule schedule kvm_vcpu_block kvm_vcpu_halt vcpu_run kvm_arch_vcpu_ioctl_run kvm_vcpu_ioctl";
const FAULT: &str =
    "__schedule io_schedule folio_wait_bit_common filemap_fault npf_interception kvm_arch_vcpu_ioctl_run";
const PREAD: &str = "__schedule io_schedule bit_wait_io blkdev_read_iter vfs_read __x64_sys_pread64";
const STOP: &str = "__schedule schedule do_signal_stop get_signal";
const PI: [&str; 9] = [
    "kvm_entry",
    "kvm_exit",
    "consume_skb",
    "net_dev_start_xmit",
    "sched_switch",
    "kfree_skb",
    "softirq_entry",
    "softirq_exit",
    "sk_data_ready",
];

pub(super) const CASES: &[Case] = &[
    case("a woken vCPU waits for a CPU", steal, &[Cause::VmVcpuSteal], "hog", 97),
    case("a vCPU is taken off its CPU", preempted, &[Cause::VmVcpuSteal], "CPU 3/KVM", 95),
    case("a vCPU is taken off its CPU very often", often_preempted, &[Cause::VmVcpuSteal], "CPU 3/KVM", 80),
    case("a vCPU's group is out of quota", throttled, &[Cause::VmVcpuSteal], "/CPU 0/KVM.slice", 95),
    case("a vCPU runs its guest", computes, &[Cause::VmGuestInternal], "tap0", 95),
    case("the host handles exits of the guest all the while", exits, &[Cause::VmVcpuSteal], "CPU 0/KVM", 90),
    case("the host handles exits of the guest now and then", few_exits, &[Cause::VmGuestInternal], "tap0", 90),
    unresolved("a vCPU of KVM is on a CPU, and exits are not watched", exits_unwatched),
    case("a guest halts until a timer of its own", idles, &[Cause::VmGuestInternal], "tap0", 95),
    case("a vCPU of an emulator waits for a CPU", emulated_steal, &[Cause::VmVcpuSteal], "hog", 95),
    unresolved("an emulator's VM is paused or halted until its monitor is told something", emulated_told),
    case("a guest halts in an emulator", emulated_idle, &[Cause::VmGuestInternal], "tap0", 95),
    case(
        "the main loop of an emulator has no CPU, and ends the halt",
        emulated_main_starved,
        &[Cause::VmVcpuSteal],
        "hog",
        95,
    ),
    unresolved("the main loop of an emulator works, and then ends a sleep", emulated_main_works),
    case("KVM's vCPU without a name waits for a CPU", unnamed_steal, &[Cause::VmVcpuSteal], "hog", 95),
    case("a thread called a vCPU polls, and waits for a CPU", false_name, &[Cause::VmGuestInternal], "tap0", 95),
    unresolved("that a thread is a vCPU only its name says, and it waits for a CPU", name_alone),
    unresolved("a VM of which no vCPU is known, and a thread of it waits for a CPU", nameless_waits),
    unresolved("nothing tells when a VM's threads ran", unwatched),
    case(
        "a vCPU faults on a page that is on the host's disk",
        faults,
        &[Cause::VmVcpuSteal, Cause::StorageBlockQueue],
        "CPU 0/KVM",
        90,
    ),
    case(
        "a vCPU waits for its VMM's lock, whose holder waits for the host's disk",
        locked_by_disk,
        &[Cause::VmVcpuSteal, Cause::AppFutex, Cause::StorageBlockQueue],
        "qemu-system-x86",
        90,
    ),
    case(
        "a vCPU waits for its VMM's lock, whose holder computes",
        locked_by_main,
        &[Cause::VmVcpuSteal],
        "qemu-system-x86",
        90,
    ),
    case(
        "a guest waits for its disk, which is the host's",
        guest_reads,
        &[Cause::VmGuestInternal, Cause::StorageBlockQueue],
        "worker",
        90,
    ),
    case(
        "a guest naps while its VMM reads from the host's disk for another of its processes",
        guest_naps,
        &[Cause::VmGuestInternal],
        "tap0",
        90,
    ),
    case("the VMM stops all vCPUs and starts them again", paused, &[Cause::VmPaused], "qemu-system-x86", 695),
    case(
        "the VMM takes a packet in vhost's place while its VM is paused, and no answer comes",
        swallowed,
        &[Cause::VmPaused],
        "qemu-system-x86",
        9_999,
    ),
    unresolved("the VMM, which takes all packets, takes one while its VM is paused, and no answer comes", kept),
    unresolved("vhost takes a packet when its VM is paused already, and no answer comes", delivered_in_pause),
    case(
        "vhost gives the guest a packet before its VM is paused for a while, and no answer comes",
        delivered_before_pause,
        &[Cause::VmGuestInternal],
        "tap0",
        9_200,
    ),
    case(
        "the same in an emulator, with the packet in the ring",
        paused_in_ring,
        &[Cause::VmPaused],
        "qemu-system-x86",
        695,
    ),
    case("the threads of all vCPUs are stopped", frozen, &[Cause::VmPaused], "qemu-system-x86", 695),
    case(
        "the only vCPU of an emulator is frozen in its sleep",
        frozen_asleep,
        &[Cause::VmPaused],
        "qemu-system-x86",
        690,
    ),
    unresolved("a vCPU of an emulator is not woken for a packet", not_woken),
    unresolved("a thread of another process ends a halt of an emulator's guest", halt_ended_from_outside),
    case("one of two vCPUs is stopped, and woke the other", one_frozen, &[Cause::VmVcpuSteal], "CPU 1/KVM", 90),
    case("the backend sleeps while the guest is halted", backend_naps, &[Cause::VmBackend], "qemu-system-x86", 90),
    unresolved("the backend polls on, though a packet is there, and the guest is busy", backend_without_room),
    case("the backend waits for a CPU while the guest is halted", backend_waits, &[Cause::VmBackend], "hog", 90),
    case("vhost waits for a CPU while the guest is halted", vhost_waits, &[Cause::VmBackend], "hog", 90),
    case("vhost of a process of its own waits for a CPU", kthread_waits, &[Cause::VmBackend], "hog", 90),
    case("vhost sleeps on, though a packet is there", vhost_sleeps, &[Cause::VmBackend], "vhost-700", 90),
    case("vhost of a process of its own delivers, and the vCPU waits", kthread_steal, &[Cause::VmVcpuSteal], "hog", 97),
    case("another vCPU has to wake the one that answers", other_vcpu, &[Cause::VmVcpuSteal], "hog", 90),
    case("another vCPU waits, and the guest naps", other_vcpu_waits, &[Cause::VmGuestInternal], "tap0", 90),
    unresolved("one vCPU runs and another waits", disagree),
    unresolved("a vCPU has not got a CPU yet", open_steal),
    case("a vCPU runs since the check was delivered", open_busy, &[Cause::VmGuestInternal], "tap0", 90),
    case("vhost, woken for the answer, waits for a CPU", answer_waits, &[Cause::VmBackend], "hog", 940),
    case("the same, and its group is out of quota", answer_throttled, &[Cause::VmBackend], "/vhost-700.slice", 940),
    case("the same, and it is taken off its CPU again at once", answer_waits_twice, &[Cause::VmBackend], "hog", 940),
    case("the same, and a timer of the guest comes meanwhile", answer_and_timer, &[Cause::VmBackend], "hog", 840),
    case("the guest answers late, and vhost is idle until then", answers_late, &[Cause::VmGuestInternal], "tap0", 940),
    case(
        "the guest answers late, and vhost has no CPU for a moment",
        answer_soon,
        &[Cause::VmGuestInternal],
        "tap0",
        940,
    ),
    case(
        "vhost had no CPU for another's packet, and is idle again when the guest answers late",
        answers_late_after_wait,
        &[Cause::VmGuestInternal],
        "tap0",
        940,
    ),
    case(
        "vhost had no CPU for another's packet, and has had one for long when the guest answers late",
        answers_late_to_awake,
        &[Cause::VmGuestInternal],
        "tap0",
        940,
    ),
    unresolved("vhost has no CPU, and a packet had woken it", answer_or_packet),
    unresolved("vhost has no CPU since it delivered the check", answer_waits_preempted),
    unresolved("a vCPU runs on when it has woken vhost, which has no CPU", answers_while_it_runs),
    unresolved("no vCPU is known of a VM whose vhost has no CPU", answer_of_nameless),
    unresolved("vhost, woken by a vCPU, has no CPU yet, and there is no answer yet", answer_open),
];

fn vm() -> Story {
    let mut story = Story::new();
    story.hooks(&PI).holds_tap(QEMU).stamp(100, Stage::PnicRx, None).stamp(110, Stage::VnicTx, None);
    story
}

/// Taken at once by `backend`, which gives the answer back at `us`.
fn delivered(backend: Actor, us: u64) -> Story {
    let mut story = vm();
    story.stamp(130, Stage::BackendRx, Some(backend)).stamp(us, Stage::VnicRx, Some(backend));
    story.stamp(us + 8, Stage::PnicQueue, None).runs(125, backend);
    story
}

/// A vCPU that the delivery wakes, and that makes the backend send at 99.9 ms.
fn woken(sleeps_in: &str, backend: Actor, vcpu: Actor) -> Story {
    let mut story = delivered(backend, 100 * MS);
    story.sleeps(0, vcpu, 1, sleeps_in).wakes(135, backend, vcpu).sleeps(140, backend, 1, EPOLL);
    story.wakes(99 * MS + 900, vcpu, backend).runs(99 * MS + 910, backend);
    story
}

fn steal() -> Story {
    let mut story = woken(HALT, VHOST, VCPU);
    story.runs_after(98 * MS, VCPU, HOG);
    story
}

fn preempted() -> Story {
    let mut story = woken(HALT, VHOST, VCPU);
    story.runs(140, VCPU).preempted(MS, VCPU, NEIGHBOUR).runs_after(98 * MS, VCPU, NEIGHBOUR);
    story
}

/// More often than each time is looked at; softirqs have a little of every wait, at its beginning.
fn often_preempted() -> Story {
    let mut story = woken(HALT, VHOST, VCPU);
    story.runs(140, VCPU);
    for turn in 1..=600 {
        let from = turn * 160;
        story.softirq_total(turn).preempted(from, VCPU, NEIGHBOUR);
        story.softirq_total(turn + 1).runs_after(from + 150, VCPU, NEIGHBOUR);
    }
    story
}

fn throttled() -> Story {
    let mut story = woken(HALT, VHOST, VCPU);
    story.task(0, VCPU, 'R', None);
    story.runs(140, VCPU).preempted(MS, VCPU, IDLE).throttled(96 * MS).runs(98 * MS, VCPU);
    story
}

fn computes() -> Story {
    let mut story = woken(HALT, VHOST, VCPU);
    story.runs(140, VCPU).sleeps(101 * MS, VCPU, 1, HALT);
    story
}

fn exits() -> Story {
    let mut story = computes();
    story.guest_exits((2 * MS, 98 * MS), VCPU, (95 * MS, 1, 0x400));
    story
}

fn few_exits() -> Story {
    let mut story = computes();
    story.guest_exits((2 * MS, 98 * MS), VCPU, (4 * MS, 800, 0x7c));
    story
}

fn exits_unwatched() -> Story {
    let mut story = computes();
    story.hooks(&PI[2..]);
    story
}

fn idles() -> Story {
    let mut story = woken(HALT, VHOST, VCPU);
    story.runs(140, VCPU).sleeps(200, VCPU, 1, HALT).wakes(98 * MS, IDLE, VCPU).runs(98 * MS + 5, VCPU);
    story
}

fn emulated_steal() -> Story {
    let mut story = woken(FUTEX, QEMU, TCG);
    story.runs_after(98 * MS, TCG, HOG);
    story
}

fn emulated_idle() -> Story {
    let mut story = woken(FUTEX, QEMU, TCG);
    story.runs(140, TCG).sleeps(200, TCG, 1, FUTEX).wakes(98 * MS, QEMU, TCG).runs(98 * MS + 5, TCG);
    story.wakes(97 * MS, IDLE, QEMU).runs(97 * MS + 5, QEMU).sleeps(98 * MS + 50, QEMU, 1, EPOLL);
    story
}

fn emulated_told() -> Story {
    let mut story = woken(FUTEX, QEMU, TCG);
    story.runs(140, TCG).sleeps(200, TCG, 1, FUTEX).wakes(98 * MS, QEMU, TCG).runs(98 * MS + 5, TCG);
    story.wakes(97 * MS, MONITOR, QEMU).runs(97 * MS + 5, QEMU).sleeps(98 * MS + 50, QEMU, 1, EPOLL);
    story
}

/// The same, but the main loop could not run, so that no timer could end the halt.
fn emulated_main_starved() -> Story {
    let mut story = woken(FUTEX, QEMU, TCG);
    story.runs(140, TCG).sleeps(200, TCG, 1, FUTEX).wakes(98 * MS, QEMU, TCG).runs(98 * MS + 5, TCG);
    story.wakes(300, IDLE, QEMU).runs_after(97 * MS + 995, QEMU, HOG).sleeps(98 * MS + 50, QEMU, 1, EPOLL);
    story
}

fn emulated_main_works() -> Story {
    let mut story = woken(FUTEX, QEMU, TCG);
    story.runs(140, TCG).sleeps(200, TCG, 1, FUTEX).wakes(98 * MS, QEMU, TCG).runs(98 * MS + 5, TCG);
    story.wakes(300, IDLE, QEMU).runs(310, QEMU).sleeps(98 * MS + 50, QEMU, 1, EPOLL);
    story
}

fn unnamed_steal() -> Story {
    let mut story = woken(HALT, VHOST, UNNAMED);
    story.runs_after(98 * MS, UNNAMED, HOG);
    story
}

fn false_name() -> Story {
    let mut story = woken(HALT, VHOST, VCPU);
    story.runs(140, VCPU).sleeps(101 * MS, VCPU, 1, HALT);
    let liar = Actor(700, 707, "CPU 9/KVM");
    story.sleeps(0, liar, 1, EPOLL).packet_wakes(150, liar).runs_after(98 * MS, liar, HOG);
    story
}

fn name_alone() -> Story {
    let mut story = delivered(VHOST, 100 * MS);
    story.runs(0, VCPU).preempted(200, VCPU, HOG).runs_after(98 * MS, VCPU, HOG);
    story
}

fn nameless_waits() -> Story {
    let mut story = delivered(VHOST, 100 * MS);
    story.runs(0, UNNAMED).preempted(200, UNNAMED, HOG).runs_after(98 * MS, UNNAMED, HOG);
    story
}

fn unwatched() -> Story {
    let mut story = delivered(VHOST, 100 * MS);
    story.hooks(&["consume_skb", "net_dev_start_xmit", "kfree_skb"]);
    story
}

fn faults() -> Story {
    let mut story = woken(HALT, VHOST, VCPU);
    story.runs(140, VCPU).sleeps(200, VCPU, 2, FAULT).wakes_in(98 * MS, HOG, VCPU, 5).runs(98 * MS + 5, VCPU);
    story
}

/// The VMM's main loop has its lock from 1 ms on, and gives it to the vCPU at 95 ms.
fn locked() -> Story {
    let mut story = woken(HALT, VHOST, VCPU);
    story.runs(140, VCPU).sleeps(1_200, VCPU, 1, FUTEX).wakes(95 * MS, QEMU, VCPU).runs(95 * MS + 5, VCPU);
    story.runs(1_000, QEMU);
    story
}

fn locked_by_disk() -> Story {
    let mut story = locked();
    story.sleeps(1_100, QEMU, 2, PREAD).wakes_in(94 * MS, HOG, QEMU, 5).runs(94 * MS + 5, QEMU);
    story
}

fn locked_by_main() -> Story {
    let mut story = locked();
    story.sleeps(96 * MS, QEMU, 1, EPOLL);
    story
}

/// A thread of the VMM's pool reads from 1 ms to 94 ms, and its main loop tells the guest.
fn pool_reads(mut story: Story) -> Story {
    story.runs(900, POOL).sleeps(1_000, POOL, 2, PREAD).wakes_in(94 * MS, HOG, POOL, 5).runs(94 * MS + 5, POOL);
    story.sleeps(950, QEMU, 1, EPOLL).wakes(94 * MS + 100, POOL, QEMU).runs(94 * MS + 105, QEMU);
    story
}

fn guest_reads() -> Story {
    let mut story = pool_reads(woken(HALT, VHOST, VCPU));
    story.runs(140, VCPU).sleeps(950, VCPU, 1, HALT).wakes(40 * MS, IDLE, VCPU).runs(40 * MS + 5, VCPU);
    story.sleeps(40 * MS + 50, VCPU, 1, HALT).wakes(94 * MS + 200, QEMU, VCPU).runs(94 * MS + 205, VCPU);
    story
}

fn guest_naps() -> Story {
    let mut story = pool_reads(woken(HALT, VHOST, VCPU));
    story.runs(140, VCPU).sleeps(950, VCPU, 1, HALT).wakes(94 * MS + 200, QEMU, VCPU).runs(94 * MS + 205, VCPU);
    story.sleeps(94 * MS + 250, VCPU, 1, HALT).wakes(98 * MS, IDLE, VCPU).runs(98 * MS + 5, VCPU);
    story
}

/// The monitor tells the main loop to go on at 700 ms.
fn resumes(story: &mut Story) {
    story.sleeps(MS, QEMU, 1, EPOLL).wakes(700 * MS, MONITOR, QEMU).runs(700 * MS + 10, QEMU);
}

fn paused() -> Story {
    let mut story = delivered(VHOST, 701 * MS);
    story.sleeps(0, SECOND_VCPU, 1, HALT).wakes(300, QEMU, SECOND_VCPU).runs(310, SECOND_VCPU);
    story.sleeps(0, VCPU, 1, HALT).wakes(135, VHOST, VCPU).runs(140, VCPU);
    for (us, vcpu) in [(900, VCPU), (950, SECOND_VCPU)] {
        story.sleeps(us, vcpu, 1, FUTEX).wakes(700 * MS + us, QEMU, vcpu).runs(700 * MS + us + 10, vcpu);
    }
    resumes(&mut story);
    story
}

/// Taken by `taker`, and not answered within 10 s. The VM is paused from `pause` µs on to 700 ms; a packet that
/// comes later is taken by `usual`.
fn unanswered(taker: Actor, pause: u64, usual: Actor) -> Story {
    let mut story = vm();
    story.stamp(130, Stage::BackendRx, Some(taker)).ends(10 * SECOND, Outcome::Lost(Loss::TimedOut));
    story.sleeps(0, VCPU, 1, HALT).wakes(20, VHOST, VCPU).runs(30, VCPU).sleeps(pause, VCPU, 1, FUTEX);
    story.wakes(700 * MS + 100, QEMU, VCPU).runs(700 * MS + 110, VCPU).sleeps(701 * MS, VCPU, 1, HALT);
    story.runs(125, taker);
    story.sleeps(200, QEMU, 1, EPOLL).wakes(700 * MS, MONITOR, QEMU).runs(700 * MS + 10, QEMU);
    story.sleeps(200, VHOST, 1, VHOST_IDLE);
    story.packet_wakes(702 * MS, usual).runs(702 * MS + 5, usual).takes(702 * MS + 10, usual);
    story.sleeps(702 * MS + 20, QEMU, 1, EPOLL).sleeps(702 * MS + 30, VHOST, 1, VHOST_IDLE);
    story
}

fn swallowed() -> Story {
    unanswered(QEMU, 60, VHOST)
}

fn kept() -> Story {
    unanswered(QEMU, 60, QEMU)
}

fn delivered_in_pause() -> Story {
    unanswered(VHOST, 60, VHOST)
}

fn delivered_before_pause() -> Story {
    unanswered(VHOST, 20 * MS, VHOST)
}

fn paused_in_ring() -> Story {
    let mut story = vm();
    story.stamp(700 * MS + 500, Stage::BackendRx, Some(QEMU)).stamp(701 * MS, Stage::VnicRx, Some(QEMU));
    story.sleeps(50, TCG, 1, FUTEX).wakes(700 * MS + 100, QEMU, TCG).runs(700 * MS + 110, TCG);
    story.sleeps(60, QEMU, 1, EPOLL).wakes(700 * MS, MONITOR, QEMU).runs(700 * MS + 10, QEMU);
    story
}

fn frozen() -> Story {
    let mut story = delivered(VHOST, 701 * MS);
    story.task(0, QEMU, 'S', Some("do_poll"));
    story.sleeps(0, VCPU, 1, HALT).wakes(135, VHOST, VCPU).sleeps(140, VHOST, 1, EPOLL);
    story.runs(140, VCPU).sleeps(200, VCPU, 4, STOP).wakes(700 * MS, MONITOR, VCPU).runs(700 * MS + 10, VCPU);
    story.wakes(700 * MS + 900, VCPU, VHOST).runs(700 * MS + 910, VHOST);
    story
}

/// Handed over to an emulator's guest, whose vCPU sleeps on.
fn asleep_since_before(until: u64) -> Story {
    let mut story = delivered(QEMU, until);
    story.sleeps(0, TCG, 1, FUTEX).sleeps(140, QEMU, 1, EPOLL);
    story
}

fn frozen_asleep() -> Story {
    let mut story = asleep_since_before(701 * MS);
    story.wakes(700 * MS, MONITOR, TCG).runs(700 * MS + 10, TCG);
    story.wakes(700 * MS + 900, TCG, QEMU).runs(700 * MS + 910, QEMU);
    story
}

fn not_woken() -> Story {
    let mut story = vm();
    story.stamp(130, Stage::BackendRx, Some(QEMU)).ends(700 * MS, Outcome::Open).runs(125, QEMU);
    story.sleeps(0, TCG, 1, FUTEX).sleeps(140, QEMU, 1, EPOLL);
    story
}

fn halt_ended_from_outside() -> Story {
    let mut story = woken(FUTEX, QEMU, TCG);
    story.runs(140, TCG).sleeps(200, TCG, 1, FUTEX).wakes(98 * MS, MONITOR, TCG).runs(98 * MS + 5, TCG);
    story
}

fn one_frozen() -> Story {
    let mut story = woken(HALT, VHOST, VCPU);
    story.runs(140, VCPU).sleeps(200, VCPU, 1, HALT).wakes(98 * MS, SECOND_VCPU, VCPU).runs(98 * MS + 5, VCPU);
    story.sleeps(0, SECOND_VCPU, 1, HALT).wakes(120, VHOST, SECOND_VCPU).runs(130, SECOND_VCPU);
    story.sleeps(200, SECOND_VCPU, 4, STOP).wakes(97 * MS, MONITOR, SECOND_VCPU).runs(97 * MS + 5, SECOND_VCPU);
    story
}

/// In the ring until the main loop takes it at 100 ms, while the guest is halted.
fn late() -> Story {
    let mut story = vm();
    story.stamp(100 * MS, Stage::BackendRx, Some(QEMU)).stamp(100 * MS + 200, Stage::VnicRx, Some(QEMU));
    story.sleeps(50, TCG, 1, FUTEX).wakes(100 * MS + 50, QEMU, TCG).runs(100 * MS + 60, TCG);
    story
}

fn backend_naps() -> Story {
    let mut story = late();
    story.sleeps(60, QEMU, 1, NANOSLEEP).wakes(99 * MS + 900, IDLE, QEMU).runs(99 * MS + 910, QEMU);
    story
}

/// The guest makes room at 99.9 ms.
fn backend_without_room() -> Story {
    let mut story = vm();
    story.stamp(100 * MS, Stage::BackendRx, Some(QEMU)).stamp(100 * MS + 200, Stage::VnicRx, Some(QEMU));
    story.sleeps(20, TCG, 1, FUTEX).wakes(40, QEMU, TCG).runs(50, TCG);
    story.sleeps(60, QEMU, 1, EPOLL).wakes(99 * MS + 900, TCG, QEMU).runs(99 * MS + 910, QEMU);
    story
}

fn backend_waits() -> Story {
    let mut story = late();
    story.sleeps(60, QEMU, 1, EPOLL).packet_wakes(112, QEMU).runs_after(99 * MS + 910, QEMU, HOG);
    story
}

const VHOST_IDLE: &str = "__schedule schedule vhost_task_fn ret_from_fork ret_from_fork_asm";
const KTHREAD_IDLE: &str = "__schedule schedule vhost_worker kthread ret_from_fork";

/// In the ring until vhost, which slept in `idle`, takes it at 100 ms, while the guest is halted.
fn late_by_vhost(vhost: Actor, idle: &str) -> Story {
    let mut story = vm();
    story.fact(0, Fact::Holders { interface: TAP, tgids: vec![QEMU.0, vhost.0] });
    story.stamp(100 * MS, Stage::BackendRx, Some(vhost)).stamp(100 * MS + 200, Stage::VnicRx, Some(vhost));
    story.sleeps(50, VCPU, 1, HALT).wakes(100 * MS + 50, vhost, VCPU).runs(100 * MS + 60, VCPU);
    story.sleeps(60, vhost, 1, idle);
    story
}

fn vhost_waits() -> Story {
    let mut story = late_by_vhost(VHOST, VHOST_IDLE);
    story.packet_wakes(112, VHOST).runs_after(99 * MS + 910, VHOST, HOG);
    story
}

fn kthread_waits() -> Story {
    let mut story = late_by_vhost(KTHREAD, KTHREAD_IDLE);
    story.packet_wakes(112, KTHREAD).runs_after(99 * MS + 910, KTHREAD, HOG);
    story
}

fn vhost_sleeps() -> Story {
    let mut story = late_by_vhost(VHOST, VHOST_IDLE);
    story.packet_wakes(99 * MS + 900, VHOST).runs(99 * MS + 910, VHOST);
    story
}

fn kthread_steal() -> Story {
    let mut story = woken(HALT, KTHREAD, VCPU);
    story.fact(0, Fact::Holders { interface: TAP, tgids: vec![QEMU.0, KTHREAD.0] });
    story.runs_after(98 * MS, VCPU, HOG);
    story
}

/// The delivery wakes one vCPU, which another wakes again, with 95 ms between.
fn two_vcpus(waker: Actor) -> Story {
    let mut story = woken(HALT, VHOST, VCPU);
    story.runs(140, VCPU).sleeps(200, VCPU, 1, HALT).wakes(98 * MS, waker, VCPU).runs(98 * MS + 5, VCPU);
    story.sleeps(0, SECOND_VCPU, 1, HALT).wakes(120, VHOST, SECOND_VCPU).runs(130, SECOND_VCPU);
    story.preempted(190, SECOND_VCPU, HOG).runs_after(97 * MS, SECOND_VCPU, HOG);
    story
}

fn other_vcpu() -> Story {
    two_vcpus(SECOND_VCPU)
}

fn other_vcpu_waits() -> Story {
    two_vcpus(IDLE)
}

fn disagree() -> Story {
    let mut story = computes();
    story.runs(0, SECOND_VCPU).sleeps(10, SECOND_VCPU, 1, HALT).wakes(20, VHOST, SECOND_VCPU).runs(30, SECOND_VCPU);
    story.preempted(190, SECOND_VCPU, HOG).runs_after(97 * MS, SECOND_VCPU, HOG);
    story
}

fn open_steal() -> Story {
    let mut story = vm();
    story.stamp(130, Stage::BackendRx, Some(VHOST)).ends(2 * SECOND, Outcome::Open);
    story.sleeps(0, VCPU, 1, HALT).wakes(135, VHOST, VCPU);
    story
}

fn open_busy() -> Story {
    let mut story = vm();
    story.stamp(130, Stage::BackendRx, Some(VHOST)).ends(100 * MS, Outcome::Open);
    story.sleeps(0, VCPU, 1, HALT).wakes(135, VHOST, VCPU).runs(140, VCPU);
    story.leaves(101 * MS, VCPU, (1, 0), ([0; STACK_DEPTH], 0), IDLE);
    story
}

/// Taken at once by vhost, which gives the answer back at 950 ms. The guest runs from 140 µs on.
fn answered() -> Story {
    let mut story = delivered(VHOST, 950 * MS);
    story.sleeps(0, VCPU, 1, HALT).wakes(135, VHOST, VCPU).runs(140, VCPU).sleeps(160, VHOST, 1, VHOST_IDLE);
    story
}

/// The guest halts when it has woken vhost at 2 ms.
fn answered_soon() -> Story {
    let mut story = answered();
    story.wakes(2 * MS, VCPU, VHOST).sleeps(2 * MS + 50, VCPU, 1, HALT);
    story
}

fn answer_waits() -> Story {
    let mut story = answered_soon();
    story.runs_after(949 * MS + 900, VHOST, HOG).sleeps(950 * MS + 100, VHOST, 1, VHOST_IDLE);
    story
}

fn answer_throttled() -> Story {
    let mut story = answered_soon();
    story.task(0, VHOST, 'R', None).throttled(940 * MS).runs(949 * MS + 900, VHOST);
    story
}

fn answer_waits_twice() -> Story {
    let mut story = answered_soon();
    story.runs_after(500 * MS, VHOST, HOG).preempted(500 * MS + 20, VHOST, HOG);
    story.runs_after(949 * MS + 900, VHOST, HOG);
    story
}

fn answer_and_timer() -> Story {
    let mut story = answer_waits();
    story.wakes(100 * MS, IDLE, VCPU).runs(100 * MS + 10, VCPU).sleeps(100 * MS + 90, VCPU, 1, HALT);
    story
}

/// The guest halts at 1 ms, and a timer of its own ends that before it wakes vhost at `us`.
fn naps_until(us: u64) -> Story {
    let mut story = answered();
    story.sleeps(MS, VCPU, 1, HALT).wakes(us - 100, IDLE, VCPU).runs(us - 95, VCPU);
    story.wakes(us, VCPU, VHOST).sleeps(us + 50, VCPU, 1, HALT);
    story
}

fn answers_late() -> Story {
    let mut story = naps_until(949 * MS + 900);
    story.runs(949 * MS + 910, VHOST);
    story
}

fn answer_soon() -> Story {
    let mut story = naps_until(949 * MS + 100);
    story.runs_after(949 * MS + 910, VHOST, HOG);
    story
}

fn answers_late_after_wait() -> Story {
    let mut story = naps_until(949 * MS + 900);
    story.packet_wakes(10 * MS, VHOST).runs_after(500 * MS, VHOST, HOG).sleeps(500 * MS + 20, VHOST, 1, VHOST_IDLE);
    story.runs(949 * MS + 910, VHOST);
    story
}

fn answers_late_to_awake() -> Story {
    let mut story = naps_until(949 * MS + 900);
    story.packet_wakes(10 * MS, VHOST).runs_after(500 * MS, VHOST, HOG).sleeps(951 * MS, VHOST, 1, VHOST_IDLE);
    story
}

fn answer_or_packet() -> Story {
    let mut story = answered();
    story.sleeps(MS, VCPU, 1, HALT).packet_wakes(2 * MS, VHOST).runs_after(949 * MS + 900, VHOST, HOG);
    story
}

fn answer_waits_preempted() -> Story {
    let mut story = delivered(VHOST, 950 * MS);
    story.sleeps(0, VCPU, 1, HALT).wakes(135, VHOST, VCPU).runs(140, VCPU).sleeps(MS, VCPU, 1, HALT);
    story.preempted(160, VHOST, HOG).runs_after(949 * MS + 900, VHOST, HOG);
    story
}

fn answers_while_it_runs() -> Story {
    let mut story = answered();
    story.wakes(2 * MS, VCPU, VHOST).sleeps(951 * MS, VCPU, 1, HALT).runs_after(949 * MS + 900, VHOST, HOG);
    story
}

fn answer_of_nameless() -> Story {
    let mut story = delivered(VHOST, 950 * MS);
    story.sleeps(160, VHOST, 1, VHOST_IDLE).wakes(2 * MS, UNNAMED, VHOST);
    story.runs_after(949 * MS + 900, VHOST, HOG);
    story
}

fn answer_open() -> Story {
    let mut story = vm();
    story.stamp(130, Stage::BackendRx, Some(VHOST)).ends(950 * MS, Outcome::Open).runs(125, VHOST);
    story.sleeps(0, VCPU, 1, HALT).wakes(135, VHOST, VCPU).runs(140, VCPU).sleeps(160, VHOST, 1, VHOST_IDLE);
    story.wakes(2 * MS, VCPU, VHOST).sleeps(2 * MS + 50, VCPU, 1, HALT);
    story
}

#[test]
fn an_answer_that_waits_tells_for_how_long_and_for_whom() {
    let facts = longest(&answer_and_timer().judge(), Cause::VmBackend).evidence.join("; ");
    assert!(
        facts.contains("the answer was in the ring of the guest behind tap0 for 850 ms: no vCPU ran since"),
        "{facts}"
    );
    assert!(facts.contains("pid 700/704 vhost-700, which one had woken for it, had no CPU"), "{facts}");
}

/// A record less never makes a verdict of the guest's.
#[test]
fn a_starved_backend_of_which_a_record_is_missing_is_not_the_guest() {
    for story in [answer_waits, answer_throttled, answer_waits_twice, answer_and_timer] {
        for record in 0..story().records() {
            let mut story = story();
            let lost = story.loses(record);
            let judged = story.judge();
            let found = concluded(&judged);
            assert!(matches!(found, None | Some(Cause::VmBackend)), "without {lost}: {judged:#?}");
        }
    }
}

#[test]
fn a_busy_guest_and_a_halted_one_are_told_apart() {
    let told = |story: fn() -> Story| {
        let judged = story().judge();
        let entry = longest(&judged, Cause::VmGuestInternal);
        (entry.meaning, entry.evidence.join("; "))
    };
    let (meaning, facts) = told(computes);
    assert!(meaning.ends_with("the guest computes"), "{meaning}");
    assert!(facts.contains("vCPU (pid 700/701 CPU 0/KVM) was on CPU"), "{facts}");
    let (meaning, facts) = told(idles);
    assert!(meaning.ends_with("waits by its own choice"), "{meaning}");
    assert!(facts.contains("of the 1 vCPU of the guest behind tap0 none ran or could run for"), "{facts}");
}

/// The ring of a VM fills up because its vCPU waits for a CPU: the packet is dropped, and told is why.
#[test]
fn a_ring_that_is_full_tells_what_the_vm_did() {
    let mut story = vm();
    story.sleeps(0, TCG, 1, FUTEX).wakes(50, QEMU, TCG).runs_after(98 * MS, TCG, HOG);
    story.dropped(90 * MS, "FULL_RING", "tun_net_xmit").journey.drops.iter_mut().for_each(|drop| drop.interface = TAP);
    if let Outcome::Lost(Loss::Dropped(drop)) = &mut story.journey.outcome {
        drop.interface = TAP;
    }
    let facts = longest(&story.judge(), Cause::NicDrop).evidence.join("; ");
    assert!(facts.contains("its vCPU (pid 700/703 CPU 0/TCG) had waited "), "{facts}");
}

/// A macvtap has rings of its own, and is passed the other way round.
#[test]
fn the_ring_of_a_macvtap_is_the_backend_s_too() {
    let told = |kind| {
        let mut story = super::ring_open();
        story.interface(TAP, "tap0", kind);
        longest(&story.judge(), Cause::VmBackend).evidence.join("; ")
    };
    assert!(told("macvtap").contains("and not taken out; "), "{}", told("macvtap"));
    assert_eq!(told("macvtap"), told("tap"));
}

/// What a VM sends through its macvtap waits for that one's shaper first: a limit of its own, as libvirt sets.
#[test]
fn a_shaper_of_a_macvtap_is_no_forwarding() {
    let mut story = super::in_vm();
    story.interface(TAP, "tap0", "macvtap").journey.stamps.retain(|stamp| stamp.stage < Stage::VnicRx);
    story.stamp(1_000, Stage::VnicRx, None).stamp(100 * MS, Stage::PnicQueue, None);
    story.qdisc_at(TAP, 1_005, 99 * MS, "htb", |left| left.overlimits += 9);
    let judged = story.judge();
    let shaped = longest(&judged, Cause::NicQdisc);
    assert!(shaped.evidence.join("; ").contains("tap0 htb"), "{shaped:?}");
    assert_eq!(shaped.to.since(shaped.from).0, (99 * MS - 1_005) * 1_000);
}

#[test]
fn a_pause_tells_who_ended_it() {
    let facts = longest(&paused().judge(), Cause::VmPaused).evidence.join("; ");
    assert!(facts.contains("all of the 2 vCPUs of the guest behind tap0 were off the CPU for 700 ms"), "{facts}");
    assert!(facts.contains("pid 700/700 qemu-system-x86 then started them together"), "{facts}");
}

#[test]
fn a_vm_that_takes_another_s_cpu_is_named() {
    let mut story = preempted();
    let web = crate::event::InterfaceId { netns: 1, ifindex: 8 };
    story.interface(web, "tap1", "tap");
    story.fact(0, Fact::Holders { interface: web, tgids: vec![NEIGHBOUR.0] });
    let facts = longest(&story.judge(), Cause::VmVcpuSteal).evidence.join("; ");
    assert!(facts.contains("that is a thread of the VM tap1"), "{facts}");
}

/// The main loop is held back at the dirty limit from 1.1 ms to 94 ms while it has its lock, for which the
/// vCPU waits.
fn locked_by_flush() -> Story {
    const DISK: u32 = 8 << 20 | 1;
    let mut story = locked();
    story.hooks(&[PI.as_slice(), &["file_wait"]].concat());
    story.fact(0, Fact::Device { number: DISK, name: "sda1".to_owned(), below: Vec::new() });
    story.sleeps(1_100, QEMU, 2, "io_schedule_timeout balance_dirty_pages vfs_write");
    story.waits_for_file(1_100, QEMU, DISK, 1).wakes(94 * MS, HOG, QEMU).runs(94 * MS + 5, QEMU);
    (10..20).for_each(|us| {
        story.dirties(us, HOG, DISK, 64);
    });
    story
}

#[test]
fn a_flush_that_holds_a_vm_up_is_told_with_the_vm_and_its_checks() {
    let tap = TAP;
    let mut stalls = Stalls::default();
    for id in 1..=3 {
        let mut story = locked_by_flush();
        story.journey.id = JourneyId(id);
        stalls.push(&story.judge());
    }
    let told = stalls.told();
    let [stall] = told.as_slice() else { panic!("{told:#?}") };
    assert_eq!((stall.device.as_str(), stall.checks), ("sda1 8:1 ext4", 3));
    assert_eq!(stall.held, [1, 2, 3].map(JourneyId));
    assert_eq!(stall.vms, [StalledVm { tap, checks: 3 }]);
    let victim = |actor: Actor| Victim { comm: actor.2.to_owned(), task: actor.id(), vm: Some(tap) };
    assert_eq!(stall.victims, [victim(VCPU), victim(QEMU)]);
    assert_eq!(stall.offender.as_ref().map(|offender| offender.comm.as_str()), Some(HOG.2));
}

#[test]
fn a_flush_that_holds_up_an_open_check_is_told_while_it_lasts() {
    let mut story = locked_by_flush();
    story.ends(90 * MS, Outcome::Open).journey.stamps.retain(|stamp| stamp.stage < Stage::VnicRx);
    let mut stalls = Stalls::default();
    (0..2).for_each(|_| stalls.push(&story.judge()));
    let told = stalls.told();
    let [stall] = told.as_slice() else { panic!("{told:#?}") };
    assert_eq!((stall.checks, stall.held.len(), stall.vms.len()), (0, 1, 1), "{stall:?}");
}
