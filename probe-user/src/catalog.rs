//! Every published field once: name, unit, type and meaning.
//!
//! The JSON sink writes exactly these, and reference documentation and schemas are made from
//! them. Names are stable: fields are added, never renamed.

/// What a number or text counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds; the name is `ns` or ends in `_ns`.
    Nanoseconds,
    /// Wall time, RFC 3339 in UTC with nine decimals; the name ends in `_at`.
    Timestamp,
    /// Things counted.
    Count,
    /// A part of a whole, 0 to 1.
    Ratio,
    /// A number that names something: a CPU, an interface, a thread.
    Number,
    /// A word or a sentence.
    Text,
    /// Yes or no.
    Flag,
    /// Holds other fields.
    Group,
}

/// JSON type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// A whole number below 2^53, except nanoseconds, which may use 64 bits.
    Integer,
    /// A number with decimals.
    Float,
    /// Text.
    String,
    /// `true` or `false`.
    Boolean,
    /// An object.
    Object,
    /// A list; `[]` in the names of what it holds.
    List,
}

/// One published field.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Type of the line it stands in.
    pub record: &'static str,
    /// Name from the line's top, with `.` into objects and `[]` into lists.
    pub name: &'static str,
    /// What it counts in.
    pub unit: Unit,
    /// Its JSON type.
    pub shape: Shape,
    /// It can be `null`.
    pub nullable: bool,
    /// What it says; for a duration, from where to where.
    pub description: &'static str,
}

const fn field(
    record: &'static str,
    name: &'static str,
    unit: Unit,
    shape: Shape,
    nullable: bool,
    description: &'static str,
) -> Field {
    Field { record, name, unit, shape, nullable, description }
}

const fn ns(record: &'static str, name: &'static str, description: &'static str) -> Field {
    field(record, name, Unit::Nanoseconds, Shape::Integer, false, description)
}

const fn count(record: &'static str, name: &'static str, description: &'static str) -> Field {
    field(record, name, Unit::Count, Shape::Integer, false, description)
}

const fn number(record: &'static str, name: &'static str, description: &'static str) -> Field {
    field(record, name, Unit::Number, Shape::Integer, false, description)
}

const fn perhaps(record: &'static str, name: &'static str, description: &'static str) -> Field {
    field(record, name, Unit::Count, Shape::Integer, true, description)
}

const fn text(record: &'static str, name: &'static str, description: &'static str) -> Field {
    field(record, name, Unit::Text, Shape::String, false, description)
}

const fn maybe(record: &'static str, name: &'static str, description: &'static str) -> Field {
    field(record, name, Unit::Text, Shape::String, true, description)
}

const fn time(record: &'static str, name: &'static str, description: &'static str) -> Field {
    field(record, name, Unit::Timestamp, Shape::String, false, description)
}

const fn moment(record: &'static str, name: &'static str, description: &'static str) -> Field {
    field(record, name, Unit::Timestamp, Shape::String, true, description)
}

const fn flag(record: &'static str, name: &'static str, description: &'static str) -> Field {
    field(record, name, Unit::Flag, Shape::Boolean, false, description)
}

const fn ratio(record: &'static str, name: &'static str, nullable: bool, description: &'static str) -> Field {
    field(record, name, Unit::Ratio, Shape::Float, nullable, description)
}

const fn list(record: &'static str, name: &'static str, description: &'static str) -> Field {
    field(record, name, Unit::Group, Shape::List, false, description)
}

const fn perhaps_ns(record: &'static str, name: &'static str, description: &'static str) -> Field {
    field(record, name, Unit::Nanoseconds, Shape::Integer, true, description)
}

const fn object(record: &'static str, name: &'static str, nullable: bool, description: &'static str) -> Field {
    field(record, name, Unit::Group, Shape::Object, nullable, description)
}

const J: &str = "journey";
const P: &str = "lapse";
const A: &str = "absence";
const N: &str = "notice";
const E: &str = "episode";
const K: &str = "join";
const Q: &str = "queue";
const V: &str = "receive";
const X: &str = "rx_ring";
const L: &str = "loss";
const S: &str = "summary";
const I: &str = "incident";
const B: &str = "bundle";
const H: &str = "host";
const C: &str = "cost";

const GUEST: &str = "it is inside the guest, with the names and numbers that it has there; left out if it is not";

/// The table of published fields, in the order in which they are written.
pub const FIELDS: &[Field] = &in_a_row::<{ length(PARTS) }>(PARTS);

/// The table in parts, of which one stands twice.
const PARTS: &[&[Field]] = &[CHECKS_AND_EPISODES, &losses(E), JOINS_TO_SUMMARY, &losses(S), SUMMARY_TO_COST];

const fn length(parts: &[&[Field]]) -> usize {
    let (mut sum, mut part) = (0, 0);
    while part < parts.len() {
        sum += parts[part].len();
        part += 1;
    }
    sum
}

/// The fields of all parts, of which there are `N`.
const fn in_a_row<const N: usize>(parts: &[&[Field]]) -> [Field; N] {
    let mut fields = [parts[0][0]; N];
    let (mut next, mut part) = (0, 0);
    while part < parts.len() {
        let mut field = 0;
        while field < parts[part].len() {
            fields[next] = parts[part][field];
            next += 1;
            field += 1;
        }
        part += 1;
    }
    fields
}

/// How many checks were lost, where on the path, and at which place.
const fn losses(record: &'static str) -> [Field; 19] {
    [
        object(
            record,
            "losses",
            false,
            "answered and lost checks; open ones, and those that cannot be told apart, are not counted",
        ),
        count(record, "losses.checks", "answered and lost checks"),
        count(record, "losses.lost", "lost ones"),
        ratio(record, "losses.share", false, "the part that was lost"),
        ratio(
            record,
            "losses.share_low",
            false,
            "low end of the interval of the true rate, 95 % confidence (Wilson's score)",
        ),
        ratio(record, "losses.share_high", false, "its high end"),
        list(record, "losses.spans", "of the checks that entered each span, in the order of a served check's path"),
        text(record, "losses.spans[].span", "the stretch of the path"),
        count(record, "losses.spans[].checks", "checks that entered it"),
        count(record, "losses.spans[].lost", "those that were lost in it"),
        ratio(record, "losses.spans[].share", false, "the part that was lost"),
        ratio(record, "losses.spans[].share_low", false, "low end of the interval of the true rate"),
        ratio(record, "losses.spans[].share_high", false, "its high end"),
        list(record, "losses.places", "by the place at which they were lost, most first"),
        text(record, "losses.places[].place", "the place, see `loss-places.md`"),
        count(record, "losses.places[].lost", "checks that were lost there"),
        ratio(record, "losses.places[].share", false, "the part of all checks"),
        ratio(record, "losses.places[].share_low", false, "low end of the interval of the true rate"),
        ratio(record, "losses.places[].share_high", false, "its high end"),
    ]
}

const CHECKS_AND_EPISODES: &[Field] = &[
    text(J, "type", "`journey`: one health check; an open one comes again while it stays open"),
    text(J, "id", "identity of the check within the run, a decimal number"),
    text(J, "signature", "name of the signature that recognised it, or the inline rule"),
    text(J, "target", "label of the interface that stands for the target"),
    text(J, "perspective", "`served`: the request came in here; `sent`: this host asks"),
    text(J, "source", "address of the request's sender, with port for UDP and TCP"),
    text(J, "destination", "address that the request was sent to, with port for UDP and TCP"),
    text(J, "outcome", "`replied`, `lost`, `open`, `ambiguous` or `broken`"),
    maybe(J, "outcome_reason", "why it was lost or is broken"),
    time(J, "started_at", "when it passed its first stage"),
    ns(J, "elapsed_ns", "from its first stage to its end; for an open check until now"),
    flag(
        J,
        "slow",
        "slower than the threshold, or lost, or open for longer than the threshold; episode and summary count the lost apart",
    ),
    count(J, "retransmissions", "copies of the request beyond the first"),
    list(J, "stages", "the stages it passed, in the order of time"),
    text(J, "stages[].stage", "name of the stage"),
    ns(J, "stages[].at_ns", "from the check's first stage to this one"),
    number(J, "stages[].cpu", "CPU on which it was seen"),
    number(J, "stages[].queue", "hardware queue plus 1; 0 if none or unknown"),
    number(J, "stages[].ifindex", "index of the interface; 0 inside a socket"),
    maybe(J, "stages[].interface", "name of the interface"),
    number(J, "stages[].tgid", "process for which it was done; 0 if none"),
    number(J, "stages[].tid", "thread for which it was done; 0 if none"),
    list(J, "drops", "every drop of one of its packets by the kernel"),
    ns(J, "drops[].at_ns", "from the check's first stage to the drop"),
    text(J, "drops[].reason", "the kernel's drop reason"),
    text(J, "drops[].location", "kernel function that dropped it, or its address"),
    number(J, "drops[].ifindex", "index of the interface; 0 if none"),
    maybe(J, "drops[].interface", "name of the interface"),
    flag(J, "drops[].reply", "the reply was dropped, not the request"),
    object(J, "loss", true, "where a lost check ended; null if it is not lost"),
    text(J, "loss.place", "the place, of a closed set: see `loss-places.md`"),
    text(J, "loss.meaning", "what is true of a check that was lost there"),
    text(J, "loss.stage", "the last stage that it reached"),
    text(J, "loss.span", "the stretch of the path behind that stage"),
    flag(J, "loss.reply", "the reply was lost, not the request"),
    maybe(J, "loss.reason", "the kernel's drop reason; null without a drop"),
    maybe(J, "loss.location", "kernel function that dropped it, or its address; null without a drop"),
    number(J, "loss.ifindex", "index of the interface; 0 if none"),
    maybe(J, "loss.interface", "name of the interface"),
    maybe(J, "loss.counter", "which counter of the kernel counts it; null if none does"),
    maybe(
        J,
        "loss.send_result",
        "what the sender's own call returned, `success` or an error such as `ENOBUFS`; null if it was not lost in one",
    ),
    number(J, "loss.send_tid", "thread that made that call; 0 if unknown"),
    perhaps(
        J,
        "loss.queue",
        "transmit queue that was full, or behind which the socket was; null if it was lost elsewhere, or unknown",
    ),
    list(
        J,
        "loss.senders",
        "who had sent through that queue in the 0.2 s before, the one with the most bytes first; at most 16",
    ),
    text(J, "loss.senders[].kind", "as in `senders[].kind` of `queue`"),
    text(J, "loss.senders[].comm", "name of the thread; empty if it is not one"),
    number(J, "loss.senders[].tgid", "its process; 0 if it is not a thread"),
    number(J, "loss.senders[].tid", "the thread that was first seen to use the socket; 0 if it is not a thread"),
    text(J, "loss.senders[].cgroup", "its cgroup; empty if unknown"),
    maybe(J, "loss.senders[].came_in", "label of the interface through which the packets came in; else null"),
    ratio(J, "loss.senders[].share", false, "its part of the queue's bytes"),
    ratio(J, "loss.senders[].share_error", false, "as in `senders[].share_error` of `queue`"),
    maybe(J, "loss.senders[].source", "of its largest flow: address, and port if there is one; null if unknown"),
    maybe(J, "loss.senders[].destination", "the same at the other end"),
    maybe(
        J,
        "loss.senders_unknown",
        "why senders are not known of a check that was lost in a queueing discipline or a send buffer; null otherwise",
    ),
    list(J, "ledger", "its time split between causes; never overlapping, in the order of time"),
    text(J, "ledger[].cause", "who took the time"),
    ns(J, "ledger[].at_ns", "from the check's first stage to the start of this part"),
    ns(J, "ledger[].ns", "from the start of this part to its end"),
    text(J, "ledger[].span", "the stretch of the path in which it was taken"),
    object(J, "ledger[].offender", true, "who is behind it"),
    text(J, "ledger[].offender.comm", "name of the thread; empty if it is not a thread"),
    number(J, "ledger[].offender.tgid", "its process; 0 if it is not a thread"),
    number(J, "ledger[].offender.tid", "its number; 0 if it is not a thread"),
    text(J, "ledger[].offender.cgroup", "its cgroup; empty if unknown"),
    text(J, "ledger[].offender.device", "device or queueing discipline; empty if it is none"),
    flag(J, "ledger[].offender.guest", GUEST),
    flag(J, "ledger[].offender.own", "it is a thread of whylag itself"),
    list(J, "ledger[].path", "waits followed from the check's own thread to the cause, as causes"),
    list(J, "ledger[].evidence", "what proves it, one fact an element"),
    ns(J, "unexplained_ns", "what remains of the elapsed time: no cause is proven for it"),
    list(J, "unexplained_reasons", "why no cause is proven for it"),
    object(J, "verdict", false, "what is concluded about the check"),
    text(J, "verdict.status", "`cause`, `split`, `unresolved` or `healthy`"),
    maybe(J, "verdict.cause", "the cause that owns at least half of the delay, or the largest of a split"),
    ratio(J, "verdict.share", true, "the cause's part of the delay above the baseline"),
    maybe(J, "verdict.reason", "why it is unresolved"),
    maybe(
        J,
        "verdict.service",
        "`saturated`: it waited in the app's socket while the thread took other work, and was then held as usual; \
         `broken`: the app held it longer than usual, or did not come back to its socket; null if neither is proven, \
         or the time is not the app's own",
    ),
    maybe(J, "verdict.service_reason", "the same in a sentence, with the times"),
    object(
        J,
        "guest",
        true,
        "what is known of the check's half inside the guest; only of `whylag join`, for checks that a VM had. CPUs, \
         queues and threads of the stages in the guest are its own",
    ),
    text(
        J,
        "guest.pairing",
        "`joined`, or why the guest's half is not used: `doubted`, `negative`, `mismatched`, `ambiguous` or `alone`",
    ),
    maybe(J, "guest.reason", "the same in a sentence; null if they were joined"),
    maybe(J, "guest.id", "identity of the check within the guest's run; null without another half"),
    perhaps_ns(
        J,
        "guest.with_vm_ns",
        "by the host's clock, from its being taken off the tap, else offered to the VM, to its coming back; of \
         one that did not, to its end",
    ),
    perhaps_ns(
        J,
        "guest.inside_ns",
        "by the guest's clock, from its coming in at the guest's NIC to its being handed to the guest's driver; \
         of one without an answer, to its end there",
    ),
    perhaps_ns(
        J,
        "guest.overhead_ns",
        "`with_vm_ns` less `inside_ns`: what the hypervisor added; below zero if the guest's clock counts more",
    ),
    text(P, "type", "`lapse`: the request of a periodic check came late"),
    text(P, "id", "identity of the check that came late"),
    text(P, "signature", "name of the signature, which says how often a check is expected"),
    text(P, "target", "label of the interface that stands for the target"),
    time(P, "due_at", "when it was due: the request before it plus the interval"),
    ns(P, "late_ns", "from when it was due to when it passed its first stage"),
    text(P, "cause", "always `external.outside_host`: this host saw the request late"),
    text(A, "type", "`absence`: requests of a periodic signature were due and did not come"),
    text(A, "signature", "name of the signature, which says how often a check is expected"),
    text(A, "target", "label of the interface where the request before them was first seen"),
    time(A, "due_at", "when the first of them was due"),
    time(A, "until_at", "until when they had not come"),
    count(A, "requests", "how many"),
    text(A, "place", "always `never_arrived`"),
    maybe(
        A,
        "cause",
        "`external.outside_host`: they did not come to this host; null where the interface itself may have lost more than half, or its counters of that time were not read",
    ),
    maybe(
        A,
        "suspect",
        "`nic.drop`, which is possible and not proven, where the interface is known to have lost so many that more than half may be among them; else null",
    ),
    perhaps(
        A,
        "nic_lost",
        "packets at most that the interface itself lost in that time before the kernel had them; null if none is known",
    ),
    maybe(
        A,
        "nic_counter",
        "the counter that tells it and grew most, such as `link rx_missed_errors`; null without it",
    ),
    count(
        A,
        "perhaps",
        "of the requests, how many may be among those that the interface is known to have lost: no more than nic_lost",
    ),
    maybe(A, "reason", "what nic_lost means, or that counters were not read, in a sentence; null without either"),
    text(N, "type", "`notice`: something about the run itself"),
    text(N, "notice", "always `interface_gone`: from here on its checks are not seen, and the run is incomplete"),
    time(N, "noticed_at", "when that was noticed, about a second later at most"),
    number(N, "ifindex", "index of the interface"),
    maybe(N, "interface", "name of the interface"),
    text(N, "target", "label of the interface"),
    text(N, "reason", "how it went"),
    text(E, "type", "`episode`: a stretch of time at one target"),
    text(E, "target", "label of the interface that stands for the target"),
    time(E, "started_at", "start of its first check"),
    time(E, "ended_at", "end of its last check"),
    count(E, "checks", "checks"),
    count(
        E,
        "slow",
        "slow ones, open ones over the threshold included; the lost, whose own line says slow too, not counted",
    ),
    count(E, "lost", "lost ones"),
    count(E, "open", "still open ones at its end"),
    count(E, "unresolved", "slow or lost ones without a verdict"),
    field(
        E,
        "baseline_p50_ns",
        Unit::Nanoseconds,
        Shape::Integer,
        true,
        "median of its healthy checks, from first stage to end; null without any",
    ),
    list(E, "causes", "causes by their share, largest first"),
    text(E, "causes[].cause", "the cause"),
    ns(
        E,
        "causes[].ns",
        "time above the normal that it took from slow and lost checks, summed over their ledgers; that of a dropped \
         check ends at the drop",
    ),
    ratio(
        E,
        "causes[].share",
        false,
        "its part of their delay, where a dropped check counts with the time its client waits: the run's limit for \
         lost checks",
    ),
    count(E, "causes[].checks", "checks that it touched"),
    count(E, "causes[].lost", "lost checks whose verdict it is"),
    object(E, "causes[].offender", true, "who took the most of it"),
    ns(E, "causes[].offender_ns", "how much of `ns` that was"),
    text(E, "causes[].offender.comm", "name of the thread; empty if it is not a thread"),
    number(E, "causes[].offender.tgid", "its process; 0 if it is not a thread"),
    number(E, "causes[].offender.tid", "its number; 0 if it is not a thread"),
    text(E, "causes[].offender.cgroup", "its cgroup; empty if unknown"),
    text(E, "causes[].offender.device", "device or queueing discipline; empty if it is none"),
    flag(E, "causes[].offender.guest", GUEST),
    flag(E, "causes[].offender.own", "it is a thread of whylag itself"),
    object(
        E,
        "causes[].counters",
        false,
        "what that thread counted while checks of any target were slow, in recordings made with `--stacks on`; left out \
         if it is not a thread, or was not counted",
    ),
    ns(E, "causes[].counters.window_ns", "how long that was"),
    ns(E, "causes[].counters.task_clock_ns", "its time on a CPU"),
    count(E, "causes[].counters.context_switches", "how often it left a CPU"),
    count(E, "causes[].counters.migrations", "how often it came to another CPU"),
    count(E, "causes[].counters.page_faults", "its page faults, those that read no disk included"),
    perhaps(E, "causes[].counters.cycles", "CPU cycles, in user mode and in the kernel"),
    perhaps(E, "causes[].counters.instructions", "instructions that were retired"),
    maybe(E, "causes[].counters.hardware_reason", "why the CPU counted no cycles and instructions"),
    ns(E, "causes[].counters.usual_window_ns", "how long it was counted while no check was slow; 0 if never"),
    ns(E, "causes[].counters.usual_task_clock_ns", "its time on a CPU in that"),
    list(E, "stalls", "stretches in which storage held threads up, each once, in the order of their time"),
    text(E, "stalls[].device", "the device and the type of its file system"),
    time(E, "stalls[].started_at", "start of the first wait that a slow check saw of it"),
    time(E, "stalls[].ended_at", "end of the last one"),
    list(E, "stalls[].causes", "causes of the waits"),
    count(E, "stalls[].checks", "checks that it made slow and that have ended"),
    list(E, "stalls[].held", "`id` of the checks that it made slow, those that are open too; at most 64"),
    list(E, "stalls[].vms", "VMs a thread of whose VMM or backend it held up, those of other targets too; at most 64"),
    text(E, "stalls[].vms[].vm", "label of the VM's tap, the first of several"),
    count(E, "stalls[].vms[].checks", "checks to it or from it that were slow for that and have ended"),
    object(E, "stalls[].offender", true, "who is behind most of the waits"),
    text(E, "stalls[].offender.comm", "name of the thread; empty if it is not a thread"),
    number(E, "stalls[].offender.tgid", "its process; 0 if it is not a thread"),
    number(E, "stalls[].offender.tid", "its number; 0 if it is not a thread"),
    text(E, "stalls[].offender.cgroup", "its cgroup; empty if unknown"),
    text(E, "stalls[].offender.device", "the device"),
    flag(E, "stalls[].offender.guest", GUEST),
    flag(E, "stalls[].offender.own", "it is a thread of whylag itself"),
    list(E, "stalls[].victims", "threads that waited, for the device or for a thread that did; at most 64"),
    text(E, "stalls[].victims[].comm", "name of the thread"),
    number(E, "stalls[].victims[].tgid", "its process"),
    number(E, "stalls[].victims[].tid", "its number"),
    ns(
        E,
        "unexplained_ns",
        "time of slow and lost checks for which no cause is proven, summed; that of a dropped check ends at the drop",
    ),
    object(E, "verdict", false, "what is concluded about the episode"),
    text(E, "verdict.status", "`cause`, `split`, `unresolved` or `healthy`"),
    maybe(E, "verdict.cause", "the cause that owns at least half of the delay, or the largest of a split"),
    ratio(E, "verdict.share", true, "the cause's part of the delay above the baseline"),
    maybe(E, "verdict.reason", "why it is unresolved"),
    maybe(
        E,
        "verdict.service",
        "`saturated` or `broken`, by its checks' own with at least half of the delay of all that were not dropped; \
         null if neither is proven",
    ),
    maybe(E, "verdict.service_reason", "the same in a sentence, with the times of those checks on average"),
];

const JOINS_TO_SUMMARY: &[Field] = &[
    text(K, "type", "`join`: where the halves of the checks of `whylag join` went"),
    object(K, "host", false, "checks that the host gave to a VM"),
    count(K, "host.halves", "all of them: the sum of what follows"),
    count(K, "host.joined", "joined with the other half"),
    count(K, "host.doubted", "of a pair of which one half proves too little, as where events were lost"),
    count(K, "host.negative", "of a pair that was longer in the guest than with the VM"),
    count(K, "host.mismatched", "of a pair whose halves tell of different ends"),
    count(K, "host.ambiguous", "with the identity of another"),
    count(K, "host.alone", "without another half"),
    object(K, "guest", false, "checks that came in inside the guest"),
    count(K, "guest.halves", "all of them: the sum of what follows"),
    count(K, "guest.joined", "joined with the other half"),
    count(K, "guest.doubted", "of a pair of which one half proves too little, as where events were lost"),
    count(K, "guest.negative", "of a pair that was longer in the guest than with the VM"),
    count(K, "guest.mismatched", "of a pair whose halves tell of different ends"),
    count(K, "guest.ambiguous", "with the identity of another"),
    count(K, "guest.alone", "without another half"),
    perhaps_ns(K, "overhead_p50_ns", "median of what the hypervisor added to those that were joined and answered"),
    perhaps_ns(K, "overhead_max_ns", "the most that it added to one"),
    count(K, "guest_lost", "records that the guest's run lost"),
    text(Q, "type", "`queue`: who filled a transmit queue in which checks waited, or that dropped them"),
    number(Q, "ifindex", "index of the interface in its network namespace"),
    maybe(Q, "interface", "its name; null if unknown"),
    number(Q, "queue", "the transmit queue, from 0 on"),
    time(Q, "started_at", "start of the first window of counting in which a check waited there"),
    time(Q, "ended_at", "end of the last such window"),
    count(Q, "checks", "slow and lost checks that waited there, or were dropped"),
    ns(Q, "wait_ns", "how long they waited, summed; of a dropped check, until the drop"),
    count(
        Q,
        "packets",
        "packets that the queue handed to the driver in these windows; several segments at once are one",
    ),
    count(Q, "bytes", "their bytes, with link headers"),
    count(Q, "uncounted_packets", "packets of all queues that found no room to be counted meanwhile"),
    count(Q, "sender_count", "senders"),
    list(Q, "senders", "who sent them, the one with the largest share of the wait first; at most 16"),
    text(
        Q,
        "senders[].kind",
        "`task`: a thread of this host; `interface`: it came into the host; `unknown`: nobody was seen",
    ),
    text(Q, "senders[].comm", "name of the thread; empty if it is not one"),
    number(Q, "senders[].tgid", "its process; 0 if it is not a thread"),
    number(Q, "senders[].tid", "the thread that was first seen to use the socket; 0 if it is not a thread"),
    text(Q, "senders[].cgroup", "its cgroup; empty if unknown"),
    flag(Q, "senders[].shared", "several processes have sent through the socket"),
    maybe(
        Q,
        "senders[].came_in",
        "label of the interface through which the packets came in, such as a VM's; else null",
    ),
    count(Q, "senders[].packets", "its packets"),
    count(Q, "senders[].bytes", "its bytes, with link headers"),
    ratio(Q, "senders[].share", false, "its part of the queue's bytes"),
    ratio(
        Q,
        "senders[].share_error",
        false,
        "half of the interval around that in which the true part is with 95 %; 0 where every packet was counted",
    ),
    ns(Q, "senders[].wait_ns", "its part of the waits: of each, as its part of the bytes around it"),
    ratio(Q, "senders[].wait_share", false, "the same, as a part of all of the waits"),
    count(Q, "senders[].flow_count", "most flows that it had in one window; where they were sampled, that were seen"),
    flag(
        Q,
        "senders[].flows_sampled",
        "it sent so many packets through sockets with several flows that only some were looked at for their flow",
    ),
    list(Q, "senders[].flows", "its largest flows; at most 4"),
    text(Q, "senders[].flows[].source", "address, and port if there is one"),
    text(Q, "senders[].flows[].destination", "address, and port if there is one"),
    number(Q, "senders[].flows[].protocol", "IP protocol; 0 if it is no IP"),
    count(Q, "senders[].flows[].packets", "its packets"),
    count(Q, "senders[].flows[].bytes", "its bytes"),
    count(
        Q,
        "senders[].flows[].bytes_error",
        "half of the interval around those in which the true bytes are with 95 %; 0 where all were counted",
    ),
    list(Q, "cpus", "CPUs that handed packets of the queue to the driver, the one with the most first"),
    number(Q, "cpus[].cpu", "the CPU"),
    count(Q, "cpus[].packets", "how many it handed over"),
    perhaps(Q, "tx_queues", "transmit queues of the interface; null if unknown"),
    list(Q, "busy_queues", "queues of the interface that carried something in these windows"),
    list(Q, "idle_queues", "its queues that carried nothing"),
    maybe(Q, "xps_cpus", "CPUs that use this queue, as a mask; null if that is not set or not known"),
    list(Q, "advice", "what would relieve the queue, as far as something measured points to it"),
    text(Q, "advice[].step", "what to do"),
    text(Q, "advice[].fact", "the measured fact that it rests on"),
    text(V, "type", "`receive`: what slow checks lost to a CPU that was behind with receiving"),
    number(V, "cpu", "the CPU"),
    count(V, "checks", "slow checks that lost time to it"),
    ns(V, "late_ns", "how long they waited to be taken in there, summed (`nic.rx_softirq`)"),
    ns(V, "taken_ns", "what receiving took there of the time of threads that served them, summed (`host.cpu_gap`)"),
    list(V, "interfaces", "labels of the interfaces at which it took them in"),
    list(V, "workers", "threads that served them there; at most 8"),
    text(V, "workers[].comm", "name of the thread"),
    number(V, "workers[].tgid", "its process"),
    number(V, "workers[].tid", "the thread"),
    list(V, "keepers", "who kept it from receiving, longest first; at most 8"),
    text(V, "keepers[].comm", "name of the thread"),
    number(V, "keepers[].tgid", "its process"),
    number(V, "keepers[].tid", "the thread"),
    text(V, "keepers[].cgroup", "its cgroup; empty if unknown"),
    ns(V, "keepers[].ns", "for how long, summed over the checks that waited"),
    list(V, "advice", "what would relieve the CPU, as far as something measured points to it"),
    text(V, "advice[].step", "what to do"),
    text(V, "advice[].fact", "the measured fact that it rests on"),
    text(X, "type", "`rx_ring`: packets that a watched interface itself lost before the kernel had them"),
    number(X, "ifindex", "index of the interface"),
    maybe(X, "interface", "name of the interface"),
    text(X, "target", "label of the interface"),
    count(X, "lost", "packets at most, over the run: what the kernel and the driver both count is counted once"),
    text(X, "counter", "the counter that grew most, such as `link rx_missed_errors` or `driver pkts rx OOB`"),
    time(X, "after_at", "reading before the first loss"),
    time(X, "until_at", "reading behind the last one"),
    count(X, "absent", "requests of periodic signatures that did not come through it"),
    count(X, "perhaps", "of them, how many it may have lost itself; no counter tells which"),
    perhaps(X, "entries", "each of its receive rings holds so many; null if its driver does not say"),
    perhaps(X, "most_entries", "most that such a ring could hold; null if its driver does not say"),
    perhaps(X, "rx_queues", "receive queues in use; null if unknown"),
    perhaps(X, "most_queues", "most that its hardware has; null if its driver does not say"),
    list(X, "squeezed", "CPUs that had no budget left for receiving, between readings in which packets were lost"),
    number(X, "squeezed[].cpu", "the CPU"),
    count(X, "squeezed[].times", "how often"),
    list(X, "advice", "what would have it lose fewer, as far as something measured points to it"),
    text(X, "advice[].step", "what to do"),
    text(X, "advice[].fact", "the measured fact that it rests on"),
    text(L, "type", "`loss`: every record of the run accounted for"),
    count(L, "emitted", "attempts of the kernel programs to emit a record"),
    count(L, "received", "records received and decoded"),
    count(L, "lost", "records that found their ring full"),
    count(L, "late", "records that came after the reorder window"),
    count(L, "unmatched", "records about packets and sockets that belong to no check"),
    count(L, "dropped", "lines that were not written because the reader was too slow"),
    count(L, "undecodable", "records that could not be decoded"),
    count(L, "ambiguous", "of the unmatched: packets that fitted several checks"),
    count(L, "evicted", "checks given up to make room for newer ones"),
    count(
        L,
        "brief",
        "checks that came with more others than can be looked into: counted, their time ascribed to nothing",
    ),
    count(L, "unreported", "lines about open checks that were left out because there were too many"),
    count(
        L,
        "unreadable",
        "records that stand in a damaged part of the recording, facts and ticks included; at least this many",
    ),
    count(L, "stacks_lost", "stacks of watched threads that were due, and for which there was no room or no time"),
    count(L, "stacks_spared", "stacks of watched threads that were due, beyond what whylag may spend on them"),
    count(L, "joined", "records that belong to a check"),
    count(L, "evidence", "records about threads and interrupts"),
    list(L, "by_kind", "the same for each kind of record that occurred"),
    text(L, "by_kind[].kind", "kind of record"),
    count(L, "by_kind[].emitted", "attempts to emit"),
    count(L, "by_kind[].received", "records received"),
    count(L, "by_kind[].lost", "attempts that found the ring full"),
    list(L, "by_cpu", "the same for each CPU that emitted anything"),
    number(L, "by_cpu[].cpu", "CPU"),
    count(L, "by_cpu[].emitted", "attempts to emit"),
    count(L, "by_cpu[].received", "records received"),
    count(L, "by_cpu[].lost", "attempts that found the ring full"),
    list(L, "skipped_runs", "runs that the kernel skipped because the program was running on that CPU already"),
    text(L, "skipped_runs[].program", "name of the program"),
    count(L, "skipped_runs[].count", "runs skipped"),
    text(S, "type", "`summary`: the run in one object, the last line"),
    moment(S, "started_at", "start of the first check; null if there was none"),
    moment(S, "ended_at", "the latest instant that any check tells of; null if there was none"),
    ns(S, "elapsed_ns", "from the start of the first check to the latest instant that any tells of"),
    count(S, "targets", "targets"),
    count(S, "checks", "checks, the open ones counted once"),
    count(
        S,
        "slow",
        "slow ones, open ones over the threshold included; the lost, whose own line says slow too, not counted",
    ),
    count(S, "lost", "lost ones"),
    count(S, "open", "still open ones"),
    count(S, "ambiguous", "ones that could not be told apart"),
    count(S, "broken", "ones whose stages contradict each other, or that were given up"),
    count(S, "unresolved", "slow or lost ones without a verdict"),
];

const SUMMARY_TO_COST: &[Field] = &[
    count(S, "never_arrived", "requests of periodic signatures that were due and did not come; no checks of this host"),
    text(I, "type", "`incident`: an incident in a few facts, as a bundle holds it in `incident.json`"),
    text(
        I,
        "id",
        "12 digits of the SHA-256 of the recording without its addresses and nonces: the same in every export of it",
    ),
    moment(I, "started_at", "start of the first check; null if there was none"),
    moment(I, "ended_at", "the latest instant that any check tells of; null if there was none"),
    text(I, "symptom", "what was noticed, in a sentence"),
    object(I, "counts", false, "checks, and what became of them"),
    count(I, "counts.checks", "checks, the open ones counted once"),
    count(I, "counts.slow", "slow ones, the lost not counted"),
    count(I, "counts.lost", "lost ones"),
    count(I, "counts.open", "still open ones"),
    count(I, "counts.unresolved", "slow or lost ones without a verdict"),
    ns(
        I,
        "counts.unexplained_ns",
        "time above the normal of slow and lost checks for which no cause is proven; 0 in older bundles",
    ),
    ns(I, "counts.worst_ns", "the longest time of a slow or lost check, from its first stage to its end"),
    count(I, "counts.lost_events", "events that were lost on the way; with any, what happened meanwhile is not judged"),
    list(I, "signatures", "what was looked for"),
    list(I, "targets", "labels of the interfaces at which checks were seen, the worst first"),
    list(
        I,
        "components",
        "parts of the host with at least a tenth of the delay of a target: `cpu`, `disk`, `nic`, `vm`, `app`, \
         `network`, `dependency`, `memory` or `lock`; the largest first",
    ),
    list(I, "verdicts", "the conclusion at each target with slow or lost checks, the worst first"),
    text(I, "verdicts[].target", "label of the target"),
    text(I, "verdicts[].status", "`cause`, `split` or `unresolved`"),
    maybe(I, "verdicts[].cause", "the cause that owns at least half of the delay, or the largest of a split"),
    ratio(I, "verdicts[].share", true, "its part of the delay above the baseline"),
    maybe(I, "verdicts[].reason", "why it is unresolved"),
    field(
        I,
        "verdicts[].usual_ns",
        Unit::Nanoseconds,
        Shape::Integer,
        true,
        "median of its healthy checks, from first stage to end; null without any",
    ),
    count(I, "verdicts[].affected", "its slow and lost checks"),
    list(I, "causes", "causes of all targets by their time, largest first; at most 64"),
    text(I, "causes[].cause", "the cause"),
    text(I, "causes[].component", "the part of the host that it is about"),
    text(I, "causes[].target", "label of the target"),
    ns(I, "causes[].ns", "time above the normal that it took from slow and lost checks"),
    ratio(I, "causes[].share", false, "its part of their delay, as in `episode`"),
    count(I, "causes[].checks", "checks that it touched"),
    count(I, "causes[].lost", "lost checks whose verdict it is"),
    object(I, "causes[].offender", true, "who took the most of it"),
    ns(I, "causes[].offender_ns", "how much of `ns` that was; left out without an offender, and in older bundles"),
    text(I, "causes[].offender.comm", "name of the thread; empty if it is not a thread"),
    number(I, "causes[].offender.tgid", "its process; 0 if it is not a thread"),
    number(I, "causes[].offender.tid", "its number; 0 if it is not a thread"),
    text(I, "causes[].offender.cgroup", "its cgroup; empty if unknown"),
    text(I, "causes[].offender.device", "device or queueing discipline; empty if it is none"),
    flag(I, "causes[].offender.own", "it is a thread of whylag itself; not in older bundles"),
    maybe(I, "causes[].meaning", "what is true, for most of it, of all that the cause may mean"),
    text(I, "causes[].remedy", "what people do about it"),
    object(I, "trigger", true, "the first slow or lost check, as in the timeline; null if all were healthy"),
    time(I, "trigger.happened_at", "when it passed its first stage"),
    text(I, "trigger.what", "`slow`, `lost` or `open`"),
    text(I, "trigger.target", "label of the target"),
    ns(I, "trigger.ns", "from its first stage to its end, or until now"),
    maybe(I, "trigger.cause", "the cause of its verdict; null without one"),
    text(I, "trigger.text", "the same in a sentence"),
    list(I, "contributing_factors", "what else is known to have played a part, a sentence each"),
    list(I, "timeline", "what happened, in the order of time; of many, the first and the longest 200"),
    time(I, "timeline[].happened_at", "when it began"),
    text(
        I,
        "timeline[].what",
        "`slow`, `lost` or `open`: a check; `late`: a periodic request came late; `stall`: storage held threads up; \
         `gone`: an interface is no longer watched",
    ),
    text(I, "timeline[].target", "label of the target"),
    ns(I, "timeline[].ns", "from its begin to its end; 0 for what has no length"),
    maybe(I, "timeline[].cause", "the cause of the verdict on it; null without one"),
    text(I, "timeline[].text", "the same in a sentence"),
    list(I, "evidence", "what proves the causes, the facts of most time first; at most 20"),
    text(I, "evidence[].cause", "the cause"),
    text(I, "evidence[].text", "the fact; of several that differ in numbers only, the one of most time"),
    ns(I, "evidence[].ns", "time of the ledgers' parts that rest on it and its like"),
    count(I, "evidence[].checks", "such parts"),
    list(I, "actions", "what people did about it: left empty for them"),
    text(B, "type", "`bundle`: the list of all that is in a bundle, its `manifest.json`"),
    number(B, "format", "version of the format; a whylag reads its own and older ones"),
    text(B, "whylag", "version of the whylag that made it"),
    time(B, "created_at", "when it was made"),
    text(
        B,
        "addresses",
        "`pseudonyms`: each network address is replaced by another; `plain`: they are as they were seen",
    ),
    maybe(B, "signer", "ed25519 public key of who signed it, hexadecimal; null if nobody did"),
    list(B, "left_out", "what was left out on purpose, or could not be had"),
    text(B, "left_out[].what", "what"),
    text(B, "left_out[].why", "why"),
    list(B, "kept", "what identifies people or machines and is in it all the same"),
    list(B, "members", "the members, in the order in which they stand"),
    text(B, "members[].name", "its name; one that ends in `.zst` is compressed with zstd"),
    text(B, "members[].about", "what it is"),
    count(B, "members[].bytes", "its length as it stands in the bundle"),
    count(B, "members[].content_bytes", "its length without compression"),
    text(B, "members[].sha256", "SHA-256 of it as it stands in the bundle, hexadecimal"),
    text(H, "type", "`host`: what the host was like, a bundle's `host.json`"),
    list(H, "facts", "one element for each thing, in the order in which they were said"),
    text(
        H,
        "facts[].about",
        "`system`, `settings`, `nic`, `disk`, `guest`, `counters` or `gap`; of the fields below an element has those of \
         its kind",
    ),
    text(H, "facts[].kernel", "`system`: release of the kernel"),
    text(H, "facts[].build", "`system`: its build"),
    text(H, "facts[].architecture", "`system`: architecture"),
    text(H, "facts[].online_cpus", "`system`: CPUs that are online, a list"),
    text(H, "facts[].cpu_model", "`system`: model of the first CPU; empty if unknown"),
    flag(H, "facts[].virtualised", "`system`: the host is itself a guest of a hypervisor"),
    count(H, "facts[].memory_bytes", "`system`: memory"),
    count(H, "facts[].available_bytes", "`system`: memory that could be had without swapping"),
    count(H, "facts[].swap_bytes", "`system`: swap space"),
    text(H, "facts[].cgroups", "`system`: `unified`, `hybrid`, `legacy` or `absent`"),
    text(H, "facts[].clock_source", "`system`: what the kernel reads time from"),
    list(H, "facts[].settings", "`settings`: settings that matter, as far as this kernel has them"),
    text(H, "facts[].settings[].name", "as sysctl writes it; else the file below /sys"),
    text(H, "facts[].settings[].value", "what it is"),
    text(H, "facts[].name", "`nic`, `disk`, `guest`: its name"),
    number(H, "facts[].netns", "`nic`: cookie of its network namespace"),
    number(H, "facts[].ifindex", "`nic`: its index there"),
    text(H, "facts[].kind", "`nic`: `ether`, `tap`, `veth`, …; `guest`: `vm` or `container`"),
    flag(H, "facts[].watched", "`nic`: checks are watched there"),
    text(H, "facts[].driver", "`nic`: driver of its hardware; empty if it has none or it is unknown"),
    flag(H, "facts[].up", "`nic`: able to pass packets"),
    count(H, "facts[].mtu_bytes", "`nic`: largest packet"),
    perhaps(H, "facts[].speed_mbit", "`nic`: speed, Mbit/s; null if it does not say"),
    count(H, "facts[].rx_queues", "`nic`: receive queues in use"),
    count(H, "facts[].tx_queues", "`nic`: transmit queues in use"),
    perhaps(H, "facts[].most_queues", "`nic`: most queues that its hardware has; null if it does not say"),
    object(H, "facts[].rings", true, "`nic`: packets that its rings hold; null if it does not say"),
    count(H, "facts[].rings.rx", "each receive ring"),
    count(H, "facts[].rings.tx", "each transmit ring"),
    count(H, "facts[].rings.most_rx", "most that a receive ring could hold"),
    count(H, "facts[].rings.most_tx", "most that a transmit ring could hold"),
    field(
        H,
        "facts[].offloads",
        Unit::Group,
        Shape::List,
        true,
        "`nic`: offloads that are on, of gro, gso, tso and lro; null if it does not say",
    ),
    perhaps(H, "facts[].tx_queue_len", "`nic`: its `txqueuelen`, packets"),
    list(H, "facts[].interrupts", "`nic`: its interrupts"),
    number(H, "facts[].interrupts[].irq", "number"),
    text(H, "facts[].interrupts[].name", "name, which often tells the queue"),
    text(H, "facts[].interrupts[].cpus", "CPUs that it may go to, a list"),
    text(H, "facts[].interrupts[].effective_cpus", "CPUs that it does go to; empty if unknown"),
    list(H, "facts[].rps_cpus", "`nic`: for each receive queue, the CPUs that software spreads it over (RPS), a mask"),
    list(H, "facts[].xps_cpus", "`nic`: for each transmit queue, the CPUs that use it (XPS), a mask"),
    count(H, "facts[].size_bytes", "`disk`: its size"),
    text(H, "facts[].model", "`disk`: model, as the device says; empty if it does not"),
    text(H, "facts[].scheduler", "`disk`: I/O scheduler"),
    perhaps(H, "facts[].queue_depth", "`disk`: requests that the scheduler keeps (`nr_requests`)"),
    perhaps(H, "facts[].hardware_queues", "`disk`: hardware queues"),
    flag(H, "facts[].rotational", "`disk`: it turns"),
    perhaps(H, "facts[].wbt_latency_us", "`disk`: target of writeback throttling, µs; 0 switches it off"),
    text(H, "facts[].write_cache", "`disk`: `write back` or `write through`"),
    perhaps(H, "facts[].read_ahead_bytes", "`disk`: what it reads ahead"),
    text(H, "facts[].runtime", "`guest`: VMM or container runtime"),
    number(H, "facts[].tgid", "`guest`: its first process"),
    count(H, "facts[].vcpus", "`guest`: threads that run guest code; 0 for a container"),
    list(H, "facts[].taps", "`guest`: names of its taps"),
    text(H, "facts[].cgroup", "`guest`: its cgroup"),
    text(H, "facts[].cpu_max", "`guest`: its CPU limit (`cpu.max`); empty without one"),
    text(H, "facts[].memory_max", "`guest`: its memory limit, bytes; empty without one"),
    list(
        H,
        "facts[].counters",
        "`counters`: the kernel's counters of losses and stalls that are not 0; the first such element is of the run's \
         begin, the last of its end",
    ),
    text(H, "facts[].counters[].name", "such as `Udp.RcvbufErrors` or `eth0.rx_dropped`"),
    count(H, "facts[].counters[].value", "its value since the host or the interface came up"),
    text(H, "facts[].what", "`gap`: what could not be looked at"),
    text(H, "facts[].reason", "`gap`: why"),
    text(C, "type", "`cost`: what whylag itself has cost, a bundle's `cost.json`"),
    ns(C, "elapsed_ns", "from the start of the process to the end of the run"),
    ns(C, "user_ns", "CPU time in user code, in the kernel's ticks"),
    ns(C, "system_ns", "CPU time in the kernel, in its ticks, kernel programs not counted"),
    perhaps(C, "peak_memory_bytes", "most memory at any time; null if unknown"),
    list(C, "programs", "the kernel programs; empty unless `kernel.bpf_stats_enabled` was 1"),
    text(C, "programs[].name", "name of the program"),
    count(C, "programs[].runs", "how often it ran"),
    ns(C, "programs[].run_ns", "how long, the counting included"),
];

#[cfg(test)]
mod tests {
    use super::{FIELDS, Unit};

    #[test]
    fn durations_end_in_their_unit_and_instants_in_at() {
        for field in FIELDS {
            let leaf = field.name.rsplit(['.', ']']).next().unwrap_or(field.name);
            assert_eq!(field.unit == Unit::Nanoseconds, leaf == "ns" || leaf.ends_with("_ns"), "{}", field.name);
            assert_eq!(field.unit == Unit::Timestamp, leaf.ends_with("_at"), "{}", field.name);
        }
    }

    #[test]
    fn no_field_stands_twice() {
        let mut names: Vec<_> = FIELDS.iter().map(|field| (field.record, field.name)).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
