//! The live edge: from a running host to the collector.
//!
//! Chooses what to watch, loads the programs, then drains the rings in a loop. Everything that
//! is learnt goes through `Stream::push`: what the kernel said, and before it what userspace
//! must add so that it can be understood later. After each complete drain a tick says that
//! nothing older will come.

mod annotate;
mod clock;
mod counters;
mod device;
mod follow;
mod host;
mod senders;
mod series;
mod stacks;
mod stop;
mod stream;
mod surroundings;

use crate::clock::{DurNs, MonoNs};
use crate::event::{CounterRow, Fact, RunFact, Threshold, decode};
use crate::file;
use crate::load::{self, Attached, HookState, LoadError, Outcome, Request, SkipWatch, UserStacks};
use crate::pipeline::Output;
use crate::signature::Signature;
use crate::sink::{Outlet, Sink};
use crate::source::address::Address;
use crate::source::capture::signature_facts;
use crate::source::recording::{Compression, Writer};
use crate::source::ring::{Drained, Rings};
use crate::source::sending::Sending;
use crate::symbolize::{Debuginfod, Symbolizer};
use crate::symbols::KernelSymbols;
use crate::target::{Discovery, Selection, Targets, Transport};
use annotate::Annotator;
use anyhow::Context;
use counters::Counters;
use host::HostLook;
use probe_wire::WIRE_VERSION;
use senders::Senders;
use series::Series;
use stacks::Stacks;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};
use stream::Stream;
use surroundings::Surroundings;

pub(crate) use counters::{Countable, look as look_at_counters};
pub(crate) use stop::Stop;
pub use stream::Ended;

/// Less than any record takes in a ring, so that a turn has records to spare.
const SMALLEST_RECORD: usize = 48;
/// Longest wait for records.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// How often the kernel programs' own counters go into the stream.
const COUNT_EVERY: DurNs = DurNs::from_secs(1);
/// How often the two clocks are compared.
const ANCHOR_EVERY: DurNs = DurNs::from_secs(60);
/// How long the end of a run may take to read what is in the rings.
const LAST_DRAIN: Duration = Duration::from_millis(300);
/// Interfaces that the programs are attached to before anything is read. For each the kernel takes some
/// ten milliseconds: with hundreds, the rings would be full before the last.
const AT_FIRST: usize = 8;
/// Outputs that may wait for a slow reader.
const OUTLET_DEPTH: usize = 4096;
/// How often an open check is reported.
const OPEN_REPORT_EVERY: DurNs = DurNs::from_secs(1);
/// Most checks in flight.
const MAX_OPEN: u32 = 100_000;
/// How long the end of a run waits for the answers to checks that are open.
const CLOSING: DurNs = DurNs::from_millis(300);
/// How often it looks whether they have come.
const CLOSING_WAIT: Duration = Duration::from_millis(5);
/// How long a receiver of the records may take for a part of them.
const SEND_WITHIN: Duration = Duration::from_secs(10);
/// Shortest softirq worth an event; shorter ones are in the switches' running total.
const SOFTIRQ_MIN_NS: u64 = 1_000_000;

/// What to watch, and how to judge it.
#[derive(Debug)]
pub struct Plan<'a> {
    /// What the operator named.
    pub targets: &'a Targets,
    /// What checks look like.
    pub signatures: &'a [Signature],
    /// When one is slow.
    pub threshold: Threshold,
    /// When one is lost.
    pub lost_after: DurNs,
    /// Stop after this long.
    pub duration: Option<DurNs>,
    /// Tell of so many ended checks and no more. It is the observer who ends the run then.
    pub count: Option<u64>,
    /// What to take of the stacks of watched threads in user code; `None` for nothing.
    pub user_stacks: Option<UserStacks>,
    /// Whom to ask for debug files of user code; `None` for nobody.
    pub debuginfod: Option<Arc<Debuginfod>>,
    /// Bytes of each CPU's ring.
    pub ring_bytes: u32,
    /// Where to keep every record.
    pub record: Option<&'a Path>,
    /// Where to send every record.
    pub send: Option<&'a Address>,
}

/// Who is told about the run while it goes on.
pub trait Observer {
    /// Something about the run itself, for the operator.
    fn say(&mut self, text: &str);
    /// An output on its way to the sink.
    fn see(&mut self, output: &Output);
    /// Whether enough has been seen.
    fn has_enough(&self) -> bool;
}

/// Watches until a signal, the plan's end, or until the observer or the reader has enough.
///
/// # Errors
/// When the targets do not exist, or the kernel refuses what is required.
pub fn run(plan: &Plan<'_>, sink: Box<dyn Sink>, observer: &mut (dyn Observer + Send)) -> anyhow::Result<Ended> {
    let stop = Stop::on_signals().context("cannot listen for signals")?;
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        runtime.block_on(watch(plan, sink, observer, &stop))
    };
    // A signal interrupts the first thread. If that were in the verifier, the program would be
    // refused, and verified once more for a log of 2 s.
    let worked = thread::scope(|scope| thread::Builder::new().spawn_scoped(scope, work).map(ScopedJoinHandle::join));
    worked.context("cannot start the working thread")?.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

async fn watch(
    plan: &Plan<'_>,
    sink: Box<dyn Sink>,
    observer: &mut dyn Observer,
    stop: &Stop,
) -> anyhow::Result<Ended> {
    let started_at = clock::now();
    let discovery = Discovery::scan();
    let selection = Selection::choose(plan.targets, &discovery)?;
    selection.reasons.iter().for_each(|reason| observer.say(reason));
    let surroundings = Surroundings::new(plan.targets, &selection, &discovery, observer);
    let host = HostLook::begin(&discovery, &selection);
    let outlet = Outlet::new(sink, OUTLET_DEPTH).context("cannot start the writing thread")?;
    let user_stacks = plan.user_stacks.filter(|_| may_take_stacks(observer));
    let watched = watched(plan, &selection, &discovery);
    let attached = match load::load_unless(&Request { user_stacks, ..request(plan, &selection, &watched) }, &|| {
        stop.is_asked_for()
    }) {
        Err(LoadError::CalledOff) => {
            return Ok(Stream::new(None, None, outlet).finish(&mut |output| observer.see(output)));
        }
        attached => attached?,
    };
    let live_since = clock::now();
    // Only now: a run that cannot begin leaves no file behind.
    let recorder = plan.record.map(create_recording).transpose()?;
    let sender = plan.send.map(begin_sending).transpose()?;
    say_refusals(&attached, observer);
    let stream = Stream::new(recorder, sender, outlet);
    let mut live = Live::new(plan, attached, stream, observer, (surroundings, host), started_at)?;
    live.introduce(plan, &selection, &watched, live_since);
    live.attach_others(&selection, stop);
    live.observer.say(&format!("attached: {} hooks are live", active_hooks(&live.attached).len()));
    live.watch_until_done(plan.duration, stop).await?;
    live.close()?;
    Ok(live.finish())
}

/// A run under way.
struct Live<'a> {
    attached: Attached,
    rings: Rings,
    annotator: Annotator,
    /// Stacks in user code, if they are taken.
    stacks: Option<Stacks>,
    /// Counters of watched threads, if stacks are asked for.
    counters: Option<Counters>,
    /// Who sends through transmit queues, unless the kernel cannot tell.
    senders: Option<Senders>,
    /// Levels of queues over time.
    series: Option<Series>,
    stream: Stream,
    observer: &'a mut dyn Observer,
    surroundings: Surroundings,
    host: HostLook,
    /// Records that all rings can hold: after so many, all that was there at first has been read.
    capacity: usize,
    ring_bytes: usize,
    started_at: MonoNs,
    counted_at: MonoNs,
    /// Everything before that has been read.
    ticked_at: MonoNs,
    skip_watch: SkipWatch,
    /// Runs that the kernel had skipped by then.
    skipped: u64,
    anchored_at: MonoNs,
    /// Every interface is gone.
    deserted: bool,
}

impl<'a> Live<'a> {
    fn new(
        plan: &Plan<'_>,
        mut attached: Attached,
        stream: Stream,
        observer: &'a mut dyn Observer,
        (surroundings, host): (Surroundings, HostLook),
        started_at: MonoNs,
    ) -> anyhow::Result<Self> {
        let mut rings = attached.take_rings().context("the programs have no rings")?;
        if attached.takes_user_stacks() {
            rings.never_calm();
        }
        let annotator = Annotator::new(symbols(observer), attached.drop_reasons().to_vec());
        let symbolizer = attached.takes_user_stacks().then(|| symbolizer(plan, observer)).flatten();
        let stacks = Stacks::new(&mut attached, symbolizer);
        let counters = plan.user_stacks.map(|_| Counters::new());
        let senders = attached.counts_senders().then(|| Senders::new(started_at));
        let capacity = rings.cpus() * (plan.ring_bytes as usize / SMALLEST_RECORD);
        let (counted_at, anchored_at) = (started_at, started_at);
        let skip_watch = attached.skip_watch();
        Ok(Self {
            attached,
            rings,
            annotator,
            stacks,
            counters,
            senders,
            series: Series::begin(),
            stream,
            observer,
            surroundings,
            host,
            capacity,
            ring_bytes: plan.ring_bytes as usize,
            started_at,
            counted_at,
            ticked_at: started_at,
            skip_watch,
            skipped: 0,
            anchored_at,
            deserted: false,
        })
    }

    /// Says all that is known at the start, as of before the first event.
    fn introduce(&mut self, plan: &Plan<'_>, selection: &Selection, watched: &[u32], live_since: MonoNs) {
        let Self { attached, stream, annotator, counters, observer, started_at, host, .. } = self;
        let mut say = |fact: &Fact| {
            counters.iter_mut().for_each(|counters| counters.note(fact));
            stream.fact(*started_at, fact, &mut |output| observer.see(output));
        };
        say(&Fact::Run(run_fact(plan)));
        say(&Fact::Own { tgid: std::process::id() });
        plan.count.iter().for_each(|&checks| say(&Fact::Limit { checks }));
        say(&Fact::Clock(clock::anchor()));
        say(&Fact::Hooks { active: active_hooks(attached) });
        selection.chosen.iter().for_each(|chosen| say(&Fact::Interface(chosen.interface.clone())));
        let ids = selection.chosen.iter().take(AT_FIRST).map(|chosen| chosen.interface.id);
        ids.for_each(|interface| say(&Fact::Live { interface, since: live_since }));
        selection.chosen.iter().filter_map(surroundings::holders).for_each(|fact| say(&fact));
        if sees_softirqs(attached) {
            selection.chosen.iter().for_each(|chosen| annotator.look_behind_ring(&chosen.interface));
        }
        watched.iter().for_each(|tgid| annotator.process(*tgid, &mut say));
        host.facts().for_each(|fact| say(&fact));
        counters.iter_mut().for_each(|counters| counters.begin(live_since));
        self.watch_levels();
    }

    /// Attaches to what there was no time for at first, and reads meanwhile.
    fn attach_others(&mut self, selection: &Selection, stop: &Stop) {
        for chosen in selection.chosen.iter().skip(AT_FIRST) {
            if stop.is_asked_for() {
                return;
            }
            self.turn(&|| stop.is_asked_for());
            let attachment = surroundings::attachment(chosen);
            if let Err(error) = self.attach(clock::now(), &attachment, chosen.interface.id) {
                self.say_error(error, &format!("cannot watch {}", chosen.interface.name));
                self.surroundings.give_up(&attachment);
            }
        }
    }

    async fn watch_until_done(&mut self, duration: Option<DurNs>, stop: &Stop) -> anyhow::Result<()> {
        let until = duration.map(|duration| clock::now().after(duration));
        while !stop.is_asked_for() && !self.observer.has_enough() && !self.stream.is_unread() {
            let now = clock::now();
            if until.is_some_and(|until| now >= until) {
                break;
            }
            let left = until.map_or(LONGEST_WAIT, |until| Duration::from_nanos(until.since(now).0));
            self.rings.wait(left.min(LONGEST_WAIT)).context("cannot wait for events")?;
            self.turn(&|| stop.is_asked_for() || until.is_some_and(|until| clock::now() >= until));
            if let Some(change) = self.surroundings.change(&self.attached).await {
                self.adapt(change);
            }
            if self.surroundings.is_deserted() {
                self.observer.say("nothing is left to watch: the run ends");
                self.deserted = true;
                break;
            }
        }
        Ok(())
    }

    /// From now on no check begins. Those that are open have a moment to be answered, so that none
    /// of them looks slow only because the run ends before its answer comes.
    fn close(&mut self) -> anyhow::Result<()> {
        let closed_at = clock::now();
        self.push_fact(closed_at, &Fact::Closing);
        while clock::now().since(closed_at) < CLOSING && !self.stream.is_settled() && !self.stream.is_unread() {
            self.rings.wait(CLOSING_WAIT).context("cannot wait for events")?;
            self.turn(&|| clock::now().since(closed_at) >= CLOSING);
        }
        Ok(())
    }

    /// Drains once; what is due by the clock follows, unless it is `over` before all that was there
    /// has been read. A ring that was nearly full may have lost records behind which nothing has
    /// come yet, and of a run that the kernel skipped no record tells: the counters do, before the
    /// tick lets anything be concluded.
    fn turn(&mut self, over: &dyn Fn() -> bool) {
        let now = clock::now();
        self.turn_senders(now);
        let Some(drained) = self.drain_all(over) else { return };
        for tgid in self.annotator.take_receivers() {
            self.watch_process(now, tgid);
        }
        self.annotator.take_takers().into_iter().for_each(|tgid| self.surroundings.took(tgid));
        let crowded = drained.more || drained.fullest >= self.ring_bytes / 2;
        let skipped = self.skip_watch.count();
        if crowded || skipped > self.skipped || now.since(self.counted_at) >= COUNT_EVERY {
            (self.counted_at, self.skipped) = (now, skipped);
            self.push_counters(now, &Undrained::new());
        }
        self.take_stacks(now);
        self.read_counters(now);
        self.say_senders();
        self.say_levels(now);
        self.push_tick(now);
        self.adapt_stacks(now);
        if now.since(self.anchored_at) >= ANCHOR_EVERY {
            self.anchored_at = now;
            self.push_fact(now, &Fact::Clock(clock::anchor()));
        }
    }

    /// Takes out what was in the rings at first; `None` if it was over before that.
    fn drain_all(&mut self, over: &dyn Fn() -> bool) -> Option<Drained> {
        let mut all = Drained::default();
        loop {
            let Drained { records, more, fullest } = self.drain(self.rings.round());
            all = Drained { records: all.records + records, more, fullest: all.fullest + fullest };
            if !more || all.records >= self.capacity {
                return Some(all);
            }
            if over() {
                return None;
            }
        }
    }

    /// Takes at most `limit` records out of the rings; before each goes what it needs.
    fn drain(&mut self, limit: usize) -> Drained {
        let Self { rings, annotator, counters, stream, observer, .. } = self;
        let mut see = |output: &Output| observer.see(output);
        rings.drain(limit, |_, record| {
            annotator.before(record, &mut |at, fact| {
                counters.iter_mut().for_each(|counters| counters.note(fact));
                stream.fact(at, fact, &mut see);
            });
            stream.push(record, &mut see);
        })
    }

    fn push_fact(&mut self, at: MonoNs, fact: &Fact) {
        let Self { stream, observer, .. } = self;
        stream.fact(at, fact, &mut |output| observer.see(output));
    }

    /// Says the stacks that are there, before the tick that lets their checks be judged.
    fn take_stacks(&mut self, now: MonoNs) {
        let Self { stacks: Some(stacks), attached, annotator, stream, observer, ticked_at, .. } = self else { return };
        let slow = stream.slow_checks();
        let mut say = |at, fact: &Fact| stream.fact(at, fact, &mut |output| observer.see(output));
        stacks.drain(*ticked_at, annotator, &mut say);
        let looked = stacks.say_waiting((now, slow), attached, (annotator, &mut say));
        stacks.say_names(now, &mut say);
        if let Err(error) = looked {
            observer.say(&format!("cannot look at who waits: {:#}", anyhow::Error::from(error)));
        }
    }

    /// Lets the programs count senders anew, if it is due.
    fn turn_senders(&mut self, now: MonoNs) {
        let Self { senders: Some(senders), attached, .. } = self else { return };
        if let Err(error) = senders.turn(now, attached) {
            self.give_up_senders(error);
        }
    }

    /// Says who sent what until then.
    fn say_senders(&mut self) {
        let Self { senders: Some(senders), attached, stream, observer, surroundings, .. } = self else { return };
        let is_watched = |interface| surroundings.is_watched(interface);
        let said = senders
            .say(attached, is_watched, &mut |at, fact| stream.fact(at, fact, &mut |output| observer.see(output)));
        if let Err(error) = said {
            self.give_up_senders(error);
        }
    }

    /// Has the levels of what is watched by now read from here on.
    fn watch_levels(&mut self) {
        let Self { series: Some(series), surroundings, .. } = self else { return };
        series.watch(surroundings.attachments());
    }

    /// Says what has become of queues.
    fn say_levels(&mut self, now: MonoNs) {
        let Self { series: Some(series), stream, observer, .. } = self else { return };
        let slow = stream.slow_checks();
        series.turn(slow, &mut |fact| stream.fact(now, fact, &mut |output| observer.see(output)));
    }

    /// Says the last of them: what a NIC has lost until now.
    fn finish_levels(&mut self, ended_at: MonoNs) {
        let Self { stream, observer, .. } = self;
        let Some(series) = self.series.take() else { return };
        series.finish(&mut |fact| stream.fact(ended_at, fact, &mut |output| observer.see(output)));
    }

    fn give_up_senders(&mut self, error: LoadError) {
        self.senders = None;
        self.say_error(error, "who fills transmit queues is not told from here on");
    }

    /// Says what watched threads counted, if it is due.
    fn read_counters(&mut self, now: MonoNs) {
        let Self { counters: Some(counters), stream, observer, .. } = self else { return };
        let slow = stream.slow_checks();
        counters.turn(now, slow, &mut |at, fact| stream.fact(at, fact, &mut |output| observer.see(output)));
    }

    /// Says the last of what they counted, and of how many nothing was.
    fn finish_counters(&mut self, ended_at: MonoNs) {
        let Self { counters: Some(counters), stream, observer, .. } = self else { return };
        let slow = stream.slow_checks();
        counters.finish(ended_at, slow, &mut |at, fact| stream.fact(at, fact, &mut |output| observer.see(output)));
        counters.left_out().iter().for_each(|text| observer.say(text));
    }

    /// Lets the kernel take what proved to be needed.
    fn adapt_stacks(&mut self, now: MonoNs) {
        let Self { stacks: Some(stacks), attached, stream, observer, .. } = self else { return };
        if let Err(error) = stacks.adapt(attached, now, stream.slow_checks()) {
            let error = anyhow::Error::from(error).context("stacks may be missing from here on");
            observer.say(&format!("{error:#}"));
        }
    }

    /// Says what is left of stacks, waits a moment for names, and counts what was left out.
    fn finish_stacks(&mut self, ended_at: MonoNs) {
        self.take_stacks(ended_at);
        let Self { stacks: Some(stacks), attached, stream, observer, .. } = self else { return };
        let say = &mut |at, fact: &Fact| stream.fact(at, fact, &mut |output| observer.see(output));
        stacks.say_last_names(ended_at, say);
        match stacks.counts(attached) {
            Ok(counts) => counts.into_iter().for_each(|counts| say(ended_at, &Fact::StackCounts(counts))),
            Err(error) => observer.say(&format!("cannot count stacks: {:#}", anyhow::Error::from(error))),
        }
    }

    fn push_tick(&mut self, at: MonoNs) {
        let Self { stream, observer, ticked_at, .. } = self;
        *ticked_at = at;
        stream.tick(at, &mut |output| observer.see(output));
    }

    fn push_counters(&mut self, at: MonoNs, undrained: &Undrained) {
        match counters(&self.attached, undrained) {
            Ok(fact) => self.push_fact(at, &fact),
            Err(error) => self.observer.say(&format!("cannot read the programs' counters: {error:#}")),
        }
    }

    fn say_error(&mut self, error: LoadError, what: &str) {
        self.observer.say(&format!("{:#}", anyhow::Error::from(error).context(what.to_owned())));
    }

    /// Counts what is left in the rings; there is no time to look at it.
    fn discard(&mut self) -> Undrained {
        let mut undrained = Undrained::new();
        self.rings.drain(usize::MAX, |_, record| {
            if let Ok(event) = decode(record)
                && let Some(kind) = event.body.kind()
            {
                *undrained.entry((event.cpu, kind as u16)).or_default() += 1;
            }
        });
        let count: u64 = undrained.values().sum();
        self.observer.say(&format!("the run had to end: {count} records were not read, and count as lost"));
        undrained
    }

    /// Silences the programs, and takes everything that they have said out of the rings. The run ends
    /// before the first of them is taken off the host: an open check is no older than that. The last is
    /// when all has been told: with hundreds of interfaces that takes seconds.
    fn finish(mut self) -> Ended {
        let silenced = self.attached.silence();
        let ended_at = clock::now();
        let runs = self.attached.runs();
        match silenced {
            Ok(()) => self.attached.end(),
            Err(error) => {
                self.say_error(error, "the last milliseconds may be told in part");
                self.attached.detach();
            }
        }
        let deadline = Instant::now() + LAST_DRAIN;
        let mut undrained = Undrained::new();
        while self.drain(self.rings.round()).more {
            if Instant::now() >= deadline {
                undrained = self.discard();
                break;
            }
        }
        self.push_counters(ended_at, &undrained);
        self.push_fact(ended_at, &self.host.counters());
        self.push_fact(ended_at, &Fact::Cost(Box::new(crate::host::cost(runs))));
        self.finish_levels(ended_at);
        self.finish_stacks(ended_at);
        self.finish_counters(ended_at);
        self.push_tick(ended_at);
        let Self { stream, observer, deserted, .. } = self;
        Ended { deserted, ..stream.finish(&mut |output| observer.see(output)) }
    }
}

/// Records that were left in the rings, by CPU and kind.
type Undrained = BTreeMap<(u32, u16), u64>;

fn create_recording(path: &Path) -> anyhow::Result<Writer<File>> {
    let file = file::create(path).with_context(|| format!("cannot create the recording {}", path.display()))?;
    Writer::new(file, Compression::Zstd).with_context(|| format!("cannot begin the recording {}", path.display()))
}

fn begin_sending(address: &Address) -> anyhow::Result<Writer<Sending>> {
    let refused = || format!("cannot send to {address}; `whylag join` must listen there first");
    let sending = Sending::start(address.connect(SEND_WITHIN).with_context(refused)?)?;
    Writer::new(sending, Compression::Zstd).with_context(refused)
}

fn request(plan: &Plan<'_>, selection: &Selection, watched: &[u32]) -> Request {
    Request {
        rules: plan.signatures.iter().flat_map(|signature| signature.rules.iter().copied()).collect(),
        interfaces: selection.chosen.iter().take(AT_FIRST).map(surroundings::attachment).collect(),
        watched_tgids: watched.to_vec(),
        stacks: true,
        senders: true,
        softirq_min_ns: SOFTIRQ_MIN_NS,
        ring_bytes: plan.ring_bytes,
        ..Request::default()
    }
}

/// Processes to watch from the start: those that were chosen, those that hold the port of a
/// signature, and the threads that run softirqs.
fn watched(plan: &Plan<'_>, selection: &Selection, discovery: &Discovery) -> Vec<u32> {
    let mut tgids: BTreeSet<u32> = selection.watch.iter().chain(&discovery.softirq_threads).copied().collect();
    for rule in plan.signatures.iter().flat_map(|signature| &signature.rules) {
        let transport = match rule.protocol {
            6 => Transport::Tcp,
            17 => Transport::Udp,
            _ => continue,
        };
        if rule.port != 0 {
            let owners = |netns: &u64| discovery.owners_of_port(*netns, transport, rule.port);
            tgids.extend(selection.namespaces.iter().flat_map(owners));
        }
    }
    tgids.into_iter().collect()
}

fn run_fact(plan: &Plan<'_>) -> RunFact {
    RunFact {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wire_version: WIRE_VERSION,
        signatures: signature_facts(plan.signatures),
        threshold: plan.threshold,
        lost_after: plan.lost_after,
        open_report_every: OPEN_REPORT_EVERY,
        max_open: MAX_OPEN,
    }
}

fn active_hooks(attached: &Attached) -> Vec<String> {
    let is_active = |state: &&HookState| matches!(state.outcome, Outcome::Attached(_));
    attached.hooks().iter().filter(is_active).map(|state| state.hook.name.to_owned()).collect()
}

/// Whether a thread that takes a packet in can be told from one that a softirq interrupted.
fn sees_softirqs(attached: &Attached) -> bool {
    let active = active_hooks(attached);
    ["softirq_entry", "softirq_exit"].iter().all(|hook| active.iter().any(|name| name == hook))
}

fn say_refusals(attached: &Attached, observer: &mut dyn Observer) {
    for state in attached.hooks() {
        if let Outcome::Refused(refusal) = &state.outcome {
            observer.say(&refusal.to_string());
        }
    }
}

/// Whether stacks in user code may be taken on this kernel; if not, that is said.
fn may_take_stacks(observer: &mut dyn Observer) -> bool {
    let reason = load::unsafe_kernel();
    reason.iter().for_each(|reason| observer.say(&format!("no stacks of user code are taken: {reason}")));
    reason.is_none()
}

/// Who names user code; without, it stays addresses, and that is said.
fn symbolizer(plan: &Plan<'_>, observer: &mut dyn Observer) -> Option<Symbolizer> {
    let started = Symbolizer::start(plan.debuginfod.clone());
    started.map_err(|error| observer.say(&format!("{:#}", anyhow::Error::from(error)))).ok()
}

/// Names of kernel functions; without them, stacks prove nothing, and that is said.
fn symbols(observer: &mut dyn Observer) -> KernelSymbols {
    KernelSymbols::load().unwrap_or_else(|error| {
        observer.say(&format!("{:#}", anyhow::Error::from(error)));
        KernelSymbols::default()
    })
}

fn counters(attached: &Attached, undrained: &Undrained) -> anyhow::Result<Fact> {
    let rows = attached.losses()?.into_iter().filter(|loss| loss.row.emitted > 0).map(|loss| {
        let (cpu, kind) = (u32::try_from(loss.cpu).unwrap_or(u32::MAX), loss.kind as u16);
        let undrained = undrained.get(&(cpu, kind)).copied().unwrap_or(0);
        CounterRow { cpu, kind, emitted: loss.row.emitted, lost: loss.row.lost, undrained }
    });
    let skipped = attached.skipped_runs().into_iter().filter(|(_, count)| *count > 0);
    Ok(Fact::Counters { rows: rows.collect(), skipped_runs: skipped.collect() })
}
