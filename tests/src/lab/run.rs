//! One run of one case: world, quiet control period, fault, recovery.

use super::case::{Case, Fault, Server};
use super::cast::{Disk, start_accomplice, start_client, start_server, start_shipper, start_troublemaker};
use super::cgroup::{CpuGroup, FreezerGroup, IoGroup, MemoryGroup};
use super::clock::{mono_ns, wall_offset_ns};
use super::firewall;
use super::halves::{Halves, Inside};
use super::machine::Machine;
use super::message::{Announcement, Check, Counts, Order, Ran, Sent};
use super::process::{Launcher, Process};
use super::truth::{Counter, Proof};
use super::vmm::threads::Threads;
use super::vmm::{self, Part};
use super::whylag::{Attach, Said, Whylag};
use super::workload::Hold;
use super::world::{POD_NIC, VNIC, World};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::io::{PipeWriter, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Checks of a control period.
const CONTROL_CHECKS: usize = 40;
/// Control periods until a run is skipped because the machine is not quiet.
const CONTROL_PERIODS: usize = 3;
/// The same with a guest: what disturbs a machine disturbs an emulated one for longer.
const GUEST_CONTROL_PERIODS: usize = 8;
/// For so long checks go on after the fault; times the case's slowdown.
const RECOVERY: Duration = Duration::from_millis(200);
/// What the server's cgroup may newly use, where that is limited, bytes.
const MEMORY_LIMIT_BYTES: u64 = 2 << 20;
/// Until a segment that was dropped has been sent again, and all that was behind it is answered.
const RESENT: Duration = Duration::from_millis(300);
/// Nothing in the lab takes longer, whatever the slowdown.
const PATIENCE: Duration = Duration::from_secs(60);

/// When a fault lasted. Both are `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Window {
    /// Its beginning.
    pub began_ns: u64,
    /// Its end.
    pub ended_ns: u64,
}

/// What a run showed, whatever whylag said.
#[derive(Debug)]
pub struct Observed {
    /// All checks, in the order of their end.
    pub checks: Vec<Check>,
    /// What the threads of the fault sent, by their own counts.
    pub sent: Vec<Sent>,
    /// For how long they computed, likewise.
    pub ran: Vec<Ran>,
    /// When the second fault began, of two. `CLOCK_MONOTONIC`.
    pub second_began_ns: u64,
    /// When the fault lasted.
    pub window: Window,
    /// 95th percentile of the quiet control period, ns.
    pub control_p95_ns: u64,
    /// The counter that proves the fault.
    pub proof: Proof,
    /// What the guest itself counted meanwhile, if its counts are the proof.
    pub guest: Option<Counts>,
    /// For how long the server's threads could run and did not, from the fault's beginning to the end.
    pub run_delay_ns: u64,
    /// Nanoseconds from `CLOCK_MONOTONIC` to the time since 1970.
    pub wall_offset_ns: u64,
    /// What whylag said, if it took part.
    pub said: Option<Said>,
    /// What whylag made of that and of what it saw inside the guest, if it looked there.
    pub joined: Option<Said>,
    /// Slow checks that were told with both halves while both were still being made, if they were joined
    /// so.
    pub told_live: Option<usize>,
    /// What else the machine was busy with.
    pub machine: String,
}

/// How a run ended.
#[derive(Debug)]
pub enum Run {
    /// The machine was not quiet enough to tell anything.
    Skipped(String),
    /// It came to its end.
    Done(Box<Observed>),
}

/// All that a case needs, running. Fields are dropped in this order.
#[derive(Debug)]
pub struct Rig {
    case: Case,
    client: Process,
    whylag: Option<Whylag>,
    server: Process,
    halves: Option<Halves>,
    troublemaker: Option<Process>,
    accomplice: Option<Process>,
    disk: Option<Disk>,
    log: Option<PipeWriter>,
    group: Option<CpuGroup>,
    memory: Option<MemoryGroup>,
    freezer: Option<FreezerGroup>,
    io: Option<IoGroup>,
    world: World,
    checks: Vec<Check>,
    window: Window,
    overdue_ns: u64,
    sent: Vec<Sent>,
    ran: Vec<Ran>,
    second_began_ns: u64,
}

/// Runs a case, with whylag watching if there is an `attach`.
///
/// # Errors
/// The rig itself fails; that says nothing about whylag.
pub fn run(launcher: &Launcher, case: &Case, attach: Option<&Attach>) -> Result<Run> {
    if let Some(missing) = case.missing() {
        return Ok(Run::Skipped(missing));
    }
    if let Server::Guest(_) = case.server
        && let Err(why) = vmm::fetched()
    {
        return Ok(Run::Skipped(format!("a guest cannot be had: {why:#}")));
    }
    let mut rig = Rig::set_up(launcher, case, attach)?;
    let machine = Machine::now();
    let control_p95_ns = rig.control()?;
    if control_p95_ns > case.slow_ns() / 2 {
        let found = Duration::from_nanos(control_p95_ns);
        return Ok(Run::Skipped(format!("the machine is not quiet: p95 of the control period is {found:.1?}")));
    }
    let (before, waited) = (case.proof.read(&rig)?, Counter::RunDelay.read(&rig)?);
    let counts = |rig: &Rig| case.proof.is_guests().then(|| rig.counts()).transpose();
    let counted = counts(&rig)?;
    rig.inject()?;
    let moved = case.proof.read(&rig)?.saturating_sub(before);
    let guest = counts(&rig)?.zip(counted).map(|(now, before)| now.since(before));
    rig.recover()?;
    let run_delay_ns = Counter::RunDelay.read(&rig)?.saturating_sub(waited);
    let (said, joined, told_live) = rig.conclude()?;
    Ok(Run::Done(Box::new(Observed {
        said,
        joined,
        told_live,
        checks: rig.checks,
        sent: rig.sent,
        ran: rig.ran,
        second_began_ns: rig.second_began_ns,
        window: rig.window,
        control_p95_ns,
        proof: Proof { moved, at_least: case.proof.at_least(case.fault_ms) },
        guest,
        run_delay_ns,
        wall_offset_ns: wall_offset_ns(),
        machine: Machine::since(machine),
    })))
}

/// Of a guest only the virtual CPUs.
fn limit_server(case: &Case, group: &CpuGroup, server: u32) -> Result<()> {
    if !matches!(case.server, Server::Guest(_)) {
        return group.add(server);
    }
    Threads::of(server)?.part(Part::Vcpus).into_iter().try_for_each(|thread| group.add_thread(thread))
}

/// The server's cgroup, if that is what holds its requests back.
fn hold_back(case: &Case, server: u32, disk: Option<&Disk>) -> Result<Option<IoGroup>> {
    let Fault::SlowDevice(hold) = case.fault else { return Ok(None) };
    if !hold.is_by_group() {
        return Ok(None);
    }
    let device = disk.context("the case has a device")?.number()?;
    let group = IoGroup::create()?;
    let time = Duration::from_millis(case.fault_ms);
    if hold == Hold::GroupLimit {
        group.limit(&device, time)?;
    } else {
        group.price(&device, time)?;
    }
    group.add(server)?;
    Ok(Some(group))
}

fn vcpu_freezer(server: u32) -> Result<FreezerGroup> {
    let group = FreezerGroup::create()?;
    Threads::of(server)?.part(Part::Vcpus).into_iter().try_for_each(|thread| group.add_thread(thread))?;
    Ok(group)
}

impl Rig {
    fn set_up(launcher: &Launcher, case: &Case, attach: Option<&Attach>) -> Result<Self> {
        let world = World::build(launcher, case.shape, case.link)?;
        let (log, shipper) = start_shipper(launcher, case)?;
        let disk = Disk::start(launcher, case)?;
        let halved = attach.filter(|_| case.inside.is_some());
        let halves = halved.map(|attach| Halves::begin(launcher, &world, case, attach)).transpose()?;
        let inside = halved.map(|attach| Inside::of(case, &world, &attach.binary));
        let server = start_server(launcher, case, &world, log.as_ref(), disk.as_ref(), inside.as_ref())?;
        let troublemaker = match shipper {
            Some(shipper) => Some(shipper),
            None => start_troublemaker(launcher, case, &world, &server)?,
        };
        let accomplice = start_accomplice(launcher, case, &world)?;
        let group = match case.fault {
            Fault::Quota { .. } => Some(CpuGroup::create()?),
            _ => None,
        };
        if let Some(group) = &group {
            limit_server(case, group, server.id())?;
        }
        let freezer = (case.fault == Fault::VcpusFrozen).then(|| vcpu_freezer(server.id())).transpose()?;
        let memory = (case.fault == Fault::MemoryLimit).then(|| MemoryGroup::create(MEMORY_LIMIT_BYTES)).transpose()?;
        if let Some(memory) = &memory {
            memory.add(server.id())?;
        }
        let io = hold_back(case, server.id(), disk.as_ref())?;
        let early = if case.attach_late { Some(start_client(launcher, case, &world)?) } else { None };
        let attach = attach.map(|attach| halves.as_ref().map_or_else(|| attach.clone(), |own| own.told_by(attach)));
        let whylag = attach.map(|attach| attach.start(launcher, &world, case)).transpose()?;
        let client = early.map_or_else(|| start_client(launcher, case, &world), Ok)?;
        let (checks, window) = (Vec::new(), Window::default());
        let (case, overdue_ns, sent, ran) = (*case, 0, Vec::new(), Vec::new());
        Ok(Self {
            case,
            client,
            whylag,
            server,
            halves,
            troublemaker,
            accomplice,
            disk,
            log,
            group,
            memory,
            freezer,
            io,
            world,
            checks,
            window,
            overdue_ns,
            sent,
            ran,
            second_began_ns: 0,
        })
    }

    /// What goes wrong.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        self.case.fault
    }

    /// The world.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// Checks that ended so far.
    #[must_use]
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// Process number of the server.
    #[must_use]
    pub fn server_id(&self) -> u32 {
        self.server.id()
    }

    /// Process number of whoever makes trouble.
    #[must_use]
    pub fn troublemaker_id(&self) -> Option<u32> {
        self.troublemaker.as_ref().map(Process::id)
    }

    /// How long the fault lasted by the log of who was at fault.
    #[must_use]
    pub const fn fault_ns(&self) -> u64 {
        self.window.ended_ns.saturating_sub(self.window.began_ns)
    }

    /// For how long replies were overdue by the server's own log.
    #[must_use]
    pub const fn overdue_ns(&self) -> u64 {
        self.overdue_ns
    }

    /// How long the server's cgroup was throttled.
    ///
    /// # Errors
    /// It has no cgroup of its own.
    pub fn throttled_ns(&self) -> Result<u64> {
        Ok(self.group.as_ref().context("the case has no cgroup")?.throttled()?.ns)
    }

    /// What the guest's kernel has counted.
    ///
    /// # Errors
    /// There is no guest, or it does not say.
    pub fn counts(&self) -> Result<Counts> {
        self.server.order(Order::Count)?;
        let counts = |said| if let Announcement::Counted(counts) = said { Some(counts) } else { None };
        self.server.await_announcement(PATIENCE, counts).context("the guest does not say what it counts")
    }

    /// How often the server's cgroup was at its limit of memory.
    ///
    /// # Errors
    /// It has no such limit.
    pub fn memory_failures(&self) -> Result<u64> {
        self.memory.as_ref().context("the case has no limit of memory")?.failures()
    }

    /// How long requests of the server's cgroup waited for budget.
    ///
    /// # Errors
    /// It has no cgroup of its own, or the kernel does not tell.
    pub fn cost_wait_ns(&self) -> Result<u64> {
        let device = self.device()?;
        self.io.as_ref().context("the case has no cgroup")?.cost_wait_ns(&device)
    }

    /// Number of the server's device, as sysfs has it.
    ///
    /// # Errors
    /// It has none.
    pub fn device(&self) -> Result<String> {
        self.disk.as_ref().context("the case has no device")?.number()
    }

    /// Waits for a quiet period; the 95th percentile of the last one, ns.
    fn control(&mut self) -> Result<u64> {
        let mut p95 = u64::MAX;
        let periods =
            if matches!(self.case.server, Server::Guest(_)) { GUEST_CONTROL_PERIODS } else { CONTROL_PERIODS };
        for _ in 0..periods {
            let from = self.checks.len();
            self.collect(|rig| rig.checks.len() >= from + CONTROL_CHECKS)?;
            p95 = percentile_95(self.checks.get(from..).unwrap_or_default());
            if p95 <= self.case.slow_ns() / 2 {
                break;
            }
        }
        Ok(p95)
    }

    fn inject(&mut self) -> Result<()> {
        let ms = self.case.fault_ms;
        let time = Duration::from_millis(ms);
        match self.case.fault {
            Fault::Nothing => self.bracket(|rig| rig.collect_for(time)),
            Fault::Server | Fault::Dependency | Fault::ShortRing => self.fail_server(ms),
            Fault::ServerThenStopped => self.fail_and_stop_server(time),
            Fault::Hogs { .. }
            | Fault::Asked(_)
            | Fault::Flood { .. }
            | Fault::QueueFlood { .. }
            | Fault::Echoes { .. }
            | Fault::ReceiveStorm { .. }
            | Fault::SlowConsumer { .. }
            | Fault::StarvedConsumer
            | Fault::RealtimeHog
            | Fault::Receive(_)
            | Fault::NeighbourGuest => self.let_loose(ms),
            Fault::Path(fault) if self.troublemaker.is_some() => {
                let _setting = fault.setting()?;
                self.let_loose(ms)
            }
            Fault::Path(fault) => self.bracket(|rig| fault.commit(&rig.world, time)),
            Fault::QueueThenStorm => self.one_after_the_other(ms),
            Fault::Rush { .. } => self.rush(ms),
            Fault::DiskFreezes => self.freeze_around(ms),
            Fault::FrozenDisk
            | Fault::FrozenData
            | Fault::DirtyLimit
            | Fault::NeighbourWrites
            | Fault::FullQueue
            | Fault::MemoryLimit
            | Fault::LateFile
            | Fault::LateFileServer
            | Fault::SlowDevice(_)
            | Fault::AskedOnFrozenDisk(_) => self.freeze_disk(ms),
            Fault::Inspector => self.inspect_server(ms),
            Fault::Shipper => self.stall_shipper(ms),
            Fault::Stopped if matches!(self.case.server, Server::Real(_)) => self.fail_server(ms),
            Fault::Paused | Fault::GuestDiskSlow => self.fail_server(ms),
            Fault::VcpusFrozen => self.bracket(|rig| rig.freeze_vcpus(time)),
            Fault::Stopped => self.bracket(|rig| rig.stop_server(time)),
            Fault::Quota { percent } => self.bracket(|rig| rig.throttle(percent, time)),
            Fault::Blackhole => self.bracket(|rig| rig.lose_route(time)),
            Fault::Firewall { rule, outside } => self.bracket(|rig| rig.filter(rule, outside, time)),
            Fault::Damage => self.delay_client(Order::Damage { ms }),
            Fault::BridgePort => self.bracket(|rig| rig.close_port(time)),
            Fault::ClientLink => self.bracket(|rig| rig.cut_client(time)),
            Fault::ServerAndBlackhole { after_ms, for_ms } => self.fail_server_and_lose_route(after_ms, for_ms),
            Fault::ClientSplits { pause_ms, blackhole_ms: 0 } => self.delay_client(Order::Split { ms, pause_ms }),
            Fault::ClientSplits { pause_ms, blackhole_ms } => self.drop_rest(pause_ms, blackhole_ms),
            Fault::NeighbourSilent { fails } => self.lose_neighbour(fails, time),
            Fault::HopLimit => self.bracket(|rig| rig.limit_hops(time)),
            Fault::ClientReadsLate => self.delay_client(Order::ReadLate { ms }),
            Fault::ClientSendsLate => self.delay_client(Order::SendLate { ms }),
        }
    }

    /// Notes when `fault`, which the lab itself commits, began and ended.
    fn bracket(&mut self, fault: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let began_ns = mono_ns();
        fault(self)?;
        self.window = Window { began_ns, ended_ns: mono_ns() };
        Ok(())
    }

    /// The kernel counts a thread's wait for a CPU when it has ended: a check that was sent after the
    /// fault is answered by then.
    fn await_guest(&mut self) -> Result<()> {
        if matches!(self.case.server, Server::Guest(_)) { self.collect_for(Duration::ZERO) } else { Ok(()) }
    }

    /// The troublemaker makes trouble.
    fn let_loose(&mut self, ms: u64) -> Result<()> {
        let troublemaker = self.troublemaker.as_mut().context("the case has a troublemaker")?;
        if let Some(accomplice) = &mut self.accomplice {
            accomplice.order(Order::Fault { ms })?;
        }
        troublemaker.order(Order::Fault { ms })?;
        let (sent, ran) = (&mut self.sent, &mut self.ran);
        let mut hear = |said| match said {
            Announcement::Sent(own) => sent.push(own),
            Announcement::Ran(own) => ran.push(own),
            _ => {}
        };
        self.window = await_fault_and(troublemaker, &mut hear)?;
        self.accomplice.as_ref().map(|accomplice| await_fault_and(accomplice, &mut hear)).transpose()?;
        self.await_guest()
    }

    /// The troublemaker makes trouble, and then its accomplice.
    fn one_after_the_other(&mut self, ms: u64) -> Result<()> {
        self.troublemaker.as_mut().context("the case has a troublemaker")?.order(Order::Fault { ms })?;
        let sent = &mut self.sent;
        let first = await_fault_and(self.troublemaker.as_ref().context("it is there")?, &mut |said| {
            if let Announcement::Sent(own) = said {
                sent.push(own);
            }
        })?;
        self.collect_for(self.recovery())?;
        self.accomplice.as_mut().context("the case has an accomplice")?.order(Order::Fault { ms })?;
        let second = await_fault(self.accomplice.as_ref().context("it is there")?)?;
        self.second_began_ns = second.began_ns;
        self.window = Window { began_ns: first.began_ns, ended_ns: second.ended_ns };
        Ok(())
    }

    fn fail_server(&mut self, ms: u64) -> Result<()> {
        self.server.order(Order::Fault { ms })?;
        self.window = await_fault(&self.server)?;
        Ok(())
    }

    /// The server tells of overdue replies when it has sent them. When a check that came later is
    /// answered, all has been told.
    fn rush(&mut self, ms: u64) -> Result<()> {
        self.let_loose(ms)?;
        self.collect_for(RECOVERY)?;
        self.overdue_ns = fault_time(&self.server.announced()?);
        Ok(())
    }

    fn fail_server_and_lose_route(&mut self, after_ms: u64, for_ms: u64) -> Result<()> {
        self.server.order(Order::Fault { ms: self.case.fault_ms })?;
        let began = |said| match said {
            Announcement::FaultBegan { at_ns } => Some(at_ns),
            _ => None,
        };
        let began_ns = self.server.await_announcement(PATIENCE, began)?;
        sleep(Duration::from_millis(after_ms));
        self.lose_route(Duration::from_millis(for_ms))?;
        self.window = Window { began_ns, ..await_fault(&self.server)? };
        Ok(())
    }

    /// Three times a check in two parts, of which the second meets the black hole.
    fn drop_rest(&mut self, pause_ms: u64, blackhole_ms: u64) -> Result<()> {
        self.bracket(|rig| {
            for _ in 0..3 {
                rig.window = Window::default();
                rig.client.order(Order::Split { ms: 1, pause_ms })?;
                rig.collect(|rig| rig.window.began_ns > 0)?;
                rig.lose_route(Duration::from_millis(blackhole_ms))?;
                rig.collect(|rig| rig.window.ended_ns > 0)?;
                rig.collect_for(RESENT)?;
            }
            Ok(())
        })
    }

    fn filter(&self, rule: &str, outside: bool, time: Duration) -> Result<()> {
        let netns = if outside { &self.world.client } else { &self.world.host };
        firewall::iptables(netns, &format!("-A {rule} -j DROP"))?;
        sleep(time);
        firewall::iptables(netns, &format!("-D {rule} -j DROP"))
    }

    /// The bridge's port to the pod is in the state `disabled`, then forwards again.
    fn close_port(&self, time: Duration) -> Result<()> {
        let state = |state: u8| format!("link set dev {VNIC} state {state}");
        self.world.host.run("bridge", &state(0))?;
        sleep(time);
        self.world.host.run("bridge", &state(3)).map(drop)
    }

    fn fail_and_stop_server(&mut self, time: Duration) -> Result<()> {
        self.fail_server(self.case.fault_ms)?;
        let Window { began_ns, .. } = self.window;
        self.collect_for(self.recovery())?;
        self.bracket(|rig| rig.stop_server(time / 2))?;
        self.window.began_ns = began_ns;
        Ok(())
    }

    /// Ends whylag, and the one inside the guest, and has both halves joined. One that joins them live does
    /// not wait for a guest that tells its half long after the host, so there the guest's ends first.
    fn conclude(&mut self) -> Result<(Option<Said>, Option<Said>, Option<usize>)> {
        let Some(mut halves) = self.halves.take() else { return Ok((self.end_whylag()?, None, None)) };
        let told_live = halves.told_live()?;
        if told_live.is_none() {
            let said = self.end_whylag()?;
            self.end_inside()?;
            return Ok((said, Some(halves.joined()?), None));
        }
        self.end_inside()?;
        Ok((self.end_whylag()?, Some(halves.joined()?), told_live))
    }

    fn end_whylag(&mut self) -> Result<Option<Said>> {
        self.whylag.take().map(Whylag::finish).transpose()
    }

    /// Ends the whylag inside the guest.
    fn end_inside(&self) -> Result<()> {
        self.server.order(Order::Stop)?;
        let done = |said| (said == Announcement::Done).then_some(());
        self.server.await_announcement(PATIENCE, done).context("whylag in the guest does not end")
    }

    fn recovery(&self) -> Duration {
        RECOVERY.saturating_mul(u32::try_from(self.case.slowdown).unwrap_or(u32::MAX))
    }

    fn stop_server(&self, time: Duration) -> Result<()> {
        self.signal_server(Signal::STOP)?;
        sleep(time);
        self.signal_server(Signal::CONT)
    }

    /// Of a guest, its VMM: the keeper goes on.
    fn signal_server(&self, signal: Signal) -> Result<()> {
        match self.case.server {
            Server::Guest(_) => Threads::of(self.server.id())?.signal(signal),
            _ => self.server.signal(signal),
        }
    }

    fn throttle(&self, percent: u32, time: Duration) -> Result<()> {
        let group = self.group.as_ref().context("the case has a cgroup")?;
        group.limit(Some(percent))?;
        sleep(time);
        group.limit(None)
    }

    fn freeze_vcpus(&self, time: Duration) -> Result<()> {
        self.freezer.as_ref().context("the case has a freezer")?.freeze(|| sleep(time))
    }

    fn lose_route(&self, time: Duration) -> Result<()> {
        let route = format!("blackhole {}/32", self.world.server());
        self.world.host.run("ip", &format!("route add {route}"))?;
        sleep(time);
        self.world.host.run("ip", &format!("route del {route}"))?;
        Ok(())
    }

    /// A shaper whose bucket no packet fits into drops them all.
    fn cut_client(&self, time: Duration) -> Result<()> {
        let client = &self.world.client;
        client.run("tc", "qdisc add dev up0 root tbf rate 8mbit burst 40 limit 40")?;
        sleep(time);
        client.run("tc", "qdisc del dev up0 root")?;
        Ok(())
    }

    /// The host asks for the pod's link address, and the pod says nothing.
    fn lose_neighbour(&mut self, fails: bool, time: Duration) -> Result<()> {
        let host = &self.world.host;
        let pod = self.world.pod.as_ref().context("the case has a pod")?;
        pod.set(&format!("net/ipv4/conf/{POD_NIC}/arp_ignore"), "8")?;
        if fails {
            host.set(&format!("net/ipv4/neigh/{VNIC}/mcast_solicit"), "1")?;
            host.set(&format!("net/ipv4/neigh/{VNIC}/retrans_time_ms"), "50")?;
        }
        self.bracket(|rig| {
            rig.world.host.run("ip", &format!("neigh del {} dev {VNIC}", rig.world.server()))?;
            sleep(time);
            rig.world.host.run("ip", &format!("neigh replace {}", rig.world.neighbour())).map(drop)
        })
    }

    fn limit_hops(&self, time: Duration) -> Result<()> {
        let gateway = self.world.client.run("ip", "route show default")?;
        self.world.client.run("ip", &format!("route replace {} hoplimit 1", gateway.trim()))?;
        sleep(time);
        self.world.client.run("ip", &format!("route replace {}", gateway.trim())).map(drop)
    }

    fn stall_shipper(&mut self, ms: u64) -> Result<()> {
        let log = self.log.as_mut().context("the case has a log")?;
        writeln!(log, "!{ms}").context("write to the log")?;
        self.window = await_fault(self.troublemaker.as_ref().context("the case has a log shipper")?)?;
        Ok(())
    }

    /// What the server does with a file begins in the freeze and ends after it.
    fn freeze_disk(&mut self, ms: u64) -> Result<()> {
        let disk = &mut self.disk.as_mut().context("the case has a disk")?.guardian;
        disk.order(Order::Fault { ms })?;
        disk.await_announcement(PATIENCE, |said| matches!(said, Announcement::FaultBegan { .. }).then_some(()))?;
        let victim = self.troublemaker.as_mut().unwrap_or(&mut self.server);
        victim.order(Order::Fault { ms })?;
        self.window = await_fault(victim)?;
        Ok(())
    }

    fn freeze_around(&mut self, ms: u64) -> Result<()> {
        let disk = &mut self.disk.as_mut().context("the case has a disk")?.guardian;
        disk.order(Order::Fault { ms })?;
        self.window = await_fault(disk)?;
        Ok(())
    }

    /// The server maps memory while it is looked at.
    fn inspect_server(&mut self, ms: u64) -> Result<()> {
        let inspector = self.troublemaker.as_mut().context("the case has an inspector")?;
        inspector.order(Order::Fault { ms })?;
        inspector.await_announcement(PATIENCE, |said| matches!(said, Announcement::FaultBegan { .. }).then_some(()))?;
        self.server.order(Order::Fault { ms })?;
        self.window = await_fault(&self.server)?;
        Ok(())
    }

    fn delay_client(&mut self, order: Order) -> Result<()> {
        self.client.order(order)?;
        self.collect(|rig| rig.window.ended_ns > 0)
    }

    /// Lets checks go on for a while, then waits for the last of them.
    fn recover(&mut self) -> Result<()> {
        self.collect_for(self.recovery())?;
        self.client.order(Order::Stop)?;
        let deadline = Instant::now() + PATIENCE;
        while self.absorb(deadline)? != Announcement::Done {}
        Ok(())
    }

    /// Collects checks until one has ended that was sent after `time` from now.
    fn collect_for(&mut self, time: Duration) -> Result<()> {
        let until = mono_ns() + nanoseconds(time);
        self.collect(|rig| rig.checks.last().is_some_and(|check| check.sent_at_ns >= until))
    }

    fn collect(&mut self, enough: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !enough(self) {
            let said = self.absorb(deadline)?;
            ensure!(said != Announcement::Done, "the client ended early");
        }
        Ok(())
    }

    fn absorb(&mut self, deadline: Instant) -> Result<Announcement> {
        let said = self.client.next_announcement(deadline)?;
        match said {
            Announcement::Check(check) => self.checks.push(check),
            Announcement::FaultBegan { at_ns } => self.window.began_ns = at_ns,
            Announcement::FaultEnded { at_ns } => self.window.ended_ns = at_ns,
            Announcement::Ready
            | Announcement::Done
            | Announcement::Sent(_)
            | Announcement::Ran(_)
            | Announcement::Counted(_) => {}
        }
        Ok(said)
    }
}

/// How long faults lasted by what was announced of them, all together, ns.
fn fault_time(said: &[Announcement]) -> u64 {
    let mut time = 0_u64;
    for announcement in said {
        match announcement {
            Announcement::FaultBegan { at_ns } => time = time.wrapping_sub(*at_ns),
            Announcement::FaultEnded { at_ns } => time = time.wrapping_add(*at_ns),
            _ => {}
        }
    }
    time
}

fn await_fault(culprit: &Process) -> Result<Window> {
    await_fault_and(culprit, &mut |_| ())
}

/// The same, and hears what its threads say that they did.
fn await_fault_and(culprit: &Process, hear: &mut dyn FnMut(Announcement)) -> Result<Window> {
    let mut window = Window::default();
    culprit.await_announcement(PATIENCE, |said| match said {
        Announcement::FaultBegan { at_ns } => {
            window.began_ns = at_ns;
            None
        }
        Announcement::FaultEnded { at_ns } => {
            window.ended_ns = at_ns;
            Some(window)
        }
        other => {
            hear(other);
            None
        }
    })
}

fn percentile_95(checks: &[Check]) -> u64 {
    let mut rtts: Vec<u64> = checks.iter().map(|check| check.rtt_ns().unwrap_or(u64::MAX)).collect();
    rtts.sort_unstable();
    rtts.get(rtts.len().saturating_sub(1) * 95 / 100).copied().unwrap_or(u64::MAX)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Check, percentile_95};

    #[test]
    fn a_lost_check_is_slower_than_all() {
        let check = |rtt| Check { nonce: 0, due_at_ns: 0, sent_at_ns: 5, answered_at_ns: rtt };
        assert_eq!(percentile_95(&[check(Some(6)), check(Some(7)), check(None)]), 2);
        assert_eq!(percentile_95(&[check(None)]), u64::MAX);
    }
}
