//! One look at the host, in bounded time.

use super::{CounterFact, HostFact, SystemFact, disk, guest, nic, read, settings};
use crate::doctor::CgroupLayout;
use crate::event::InterfaceId;
use crate::target::{Discovery, Interface};
use procfs::{Current, Meminfo};
use std::time::{Duration, Instant};

/// No new thing is looked at after so long.
const DEADLINE: Duration = Duration::from_millis(80);
/// Most interfaces; those with checks come first.
const MOST_NICS: usize = 64;
/// Most virtual machines and containers.
const MOST_GUESTS: usize = 128;
/// Most bytes of a fact: a record counts them in 16 bits.
const LONGEST_FACT: usize = 60_000;
/// Queues that are told of an interface that has too many.
const FIRST_QUEUES: usize = 16;
/// Of /proc/net/snmp and netstat: what a check can be lost or late by.
const COUNTED: [&str; 22] = [
    "Ip.InDiscards",
    "Ip.OutDiscards",
    "Ip.OutNoRoutes",
    "Ip.ReasmFails",
    "Tcp.AttemptFails",
    "Tcp.RetransSegs",
    "TcpExt.ListenDrops",
    "TcpExt.ListenOverflows",
    "TcpExt.PruneCalled",
    "TcpExt.RcvPruned",
    "TcpExt.TCPAbortOnMemory",
    "TcpExt.TCPBacklogDrop",
    "TcpExt.TCPMemoryPressures",
    "TcpExt.TCPRcvQDrop",
    "TcpExt.TCPReqQFullDrop",
    "TcpExt.TCPTimeouts",
    "TcpExt.TCPZeroWindowDrop",
    "Udp.InErrors",
    "Udp.MemErrors",
    "Udp.NoPorts",
    "Udp.RcvbufErrors",
    "Udp.SndbufErrors",
];
/// Of /proc/vmstat.
const STALLS: [&str; 7] = [
    "allocstall_movable",
    "allocstall_normal",
    "balance_dirty_pages",
    "compact_stall",
    "oom_kill",
    "pswpin",
    "pswpout",
];
/// Largest of these files.
const LARGEST: u64 = 256 << 10;

/// What the host is like. `watched` are the interfaces where checks are looked for. What is not
/// reached in time is told as a gap.
#[must_use]
pub fn gather(discovery: &Discovery, watched: &[InterfaceId]) -> Vec<HostFact> {
    let began = Instant::now();
    let mut facts = vec![HostFact::System(system()), settings::gather()];
    let mut left = 0;
    let mut look = |one: &dyn Fn() -> HostFact| match began.elapsed() < DEADLINE {
        true => facts.push(one()),
        false => left += 1,
    };
    let home = discovery.home().map(|home| home.cookie);
    for interface in nics(discovery, watched) {
        let is_watched = watched.contains(&interface.id);
        let is_home = Some(interface.id.netns) == home;
        look(&|| nic::gather(interface, is_watched, is_home));
    }
    disk::all().iter().for_each(|name| look(&|| disk::gather(name)));
    let machines = discovery.machines.iter().take(MOST_GUESTS);
    machines.for_each(|machine| look(&|| guest::machine(machine, discovery)));
    discovery.containers.iter().take(MOST_GUESTS).for_each(|container| look(&|| guest::container(container)));
    let shortened = facts.iter_mut().filter_map(shorten).collect::<Vec<_>>();
    facts.extend(shortened);
    if left > 0 {
        let what = format!("{left} more interfaces, disks, virtual machines or containers");
        facts.push(HostFact::Gap { what, reason: "looking at them would have held up the start".to_owned() });
    }
    facts
}

/// Makes a fact fit into a record: of an interface with very many queues, the first are told. Gives what
/// was left out.
fn shorten(fact: &mut HostFact) -> Option<HostFact> {
    let is_long = serde_json::to_vec(fact).is_ok_and(|text| text.len() > LONGEST_FACT);
    let HostFact::Nic(nic) = fact else { return None };
    if !is_long {
        return None;
    }
    nic.interrupts.truncate(FIRST_QUEUES);
    nic.rps_cpus.truncate(FIRST_QUEUES);
    nic.xps_cpus.truncate(FIRST_QUEUES);
    let what = format!("all but {FIRST_QUEUES} queues of {}", nic.name);
    Some(HostFact::Gap { what, reason: "a record does not hold more".to_owned() })
}

/// Those with checks, then hardware, then what hangs on it.
fn nics<'a>(discovery: &'a Discovery, watched: &[InterfaceId]) -> Vec<&'a Interface> {
    let home = discovery.home().map(|home| home.cookie);
    let rank = |interface: &Interface| match interface {
        interface if watched.contains(&interface.id) => Some(0),
        interface if interface.is_physical() && Some(interface.id.netns) == home => Some(1),
        interface if ["bond", "bridge", "team"].contains(&interface.kind.as_str()) => Some(2),
        _ => None,
    };
    let mut ranked: Vec<_> = discovery.interfaces.iter().filter_map(|it| Some((rank(it)?, it))).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().take(MOST_NICS).map(|(_, interface)| interface).collect()
}

fn system() -> SystemFact {
    let system = rustix::system::uname();
    let memory = Meminfo::current().ok();
    let bytes = |of: fn(&Meminfo) -> u64| memory.as_ref().map_or(0, of);
    let cpu = read::text("/proc/cpuinfo", 8 << 10);
    let about = |name: &str| cpu.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(':'));
    SystemFact {
        kernel: system.release().to_string_lossy().into_owned(),
        build: system.version().to_string_lossy().into_owned(),
        architecture: system.machine().to_string_lossy().into_owned(),
        online_cpus: read::line("/sys/devices/system/cpu/online"),
        cpu_model: about("model name").map(|(_, model)| model.trim().to_owned()).unwrap_or_default(),
        virtualised: about("flags").is_some_and(|(_, flags)| flags.split(' ').any(|flag| flag == "hypervisor")),
        memory_bytes: bytes(|memory| memory.mem_total),
        available_bytes: bytes(|memory| memory.mem_available.unwrap_or(memory.mem_free)),
        swap_bytes: bytes(|memory| memory.swap_total),
        cgroups: CgroupLayout::of(&read::text("/proc/self/mounts", 1 << 20)).name().to_owned(),
        clock_source: read::line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    }
}

/// The kernel's counters of losses and stalls as of now; zeros are left out. `interfaces` are names of
/// the host's own namespace.
#[must_use]
pub fn counters(interfaces: &[String]) -> HostFact {
    let files = ["/proc/net/snmp", "/proc/net/netstat"].map(|path| read::text(path, LARGEST));
    let mut counters: Vec<_> = files.iter().flat_map(|text| pairs(text)).collect();
    counters.retain(|counter| COUNTED.contains(&counter.name.as_str()));
    counters.extend(stalls(&read::text("/proc/vmstat", LARGEST)));
    counters.extend(softnet(&read::text("/proc/net/softnet_stat", LARGEST)));
    counters.extend(interfaces.iter().take(MOST_NICS).flat_map(|name| nic::counters(name)));
    counters.retain(|counter| counter.value > 0);
    HostFact::Counters { counters }
}

/// Two lines for each protocol: names, then values. `Ip.InDiscards` and so on.
fn pairs(text: &str) -> Vec<CounterFact> {
    let lines: Vec<&str> = text.lines().collect();
    let table = |pair: &[&str]| -> Vec<CounterFact> {
        let [names, values] = pair else { return Vec::new() };
        let (Some((of, names)), Some((_, values))) = (names.split_once(':'), values.split_once(':')) else {
            return Vec::new();
        };
        let pairs = names.split_whitespace().zip(values.split_whitespace());
        pairs.filter_map(|(name, value)| counter(format!("{of}.{name}"), value.parse().ok()?)).collect()
    };
    lines.chunks(2).flat_map(table).collect()
}

fn stalls(text: &str) -> Vec<CounterFact> {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    let wanted = pairs.filter(|(name, _)| STALLS.contains(name));
    wanted.filter_map(|(name, value)| counter(format!("vmstat.{name}"), value.trim().parse().ok()?)).collect()
}

/// A line for each CPU, hexadecimal: packets, dropped, time_squeeze, …
fn softnet(text: &str) -> Vec<CounterFact> {
    let column = |line: &str, at: usize| u64::from_str_radix(line.split_whitespace().nth(at)?, 16).ok();
    let sum = |at: usize| text.lines().filter_map(|line| column(line, at)).sum();
    let columns = [("softnet.dropped", 1), ("softnet.time_squeeze", 2)];
    columns.into_iter().filter_map(|(name, at)| counter(name.to_owned(), sum(at))).collect()
}

const fn counter(name: String, value: u64) -> Option<CounterFact> {
    Some(CounterFact { name, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MonoNs;
    use crate::event::{Fact, fact_record};
    use crate::host::{InterruptFact, NicFact};

    #[test]
    fn every_fact_of_this_host_fits_into_a_record_and_comes_back() {
        let discovery = Discovery::scan();
        let watched: Vec<_> = discovery.interfaces.iter().map(|interface| interface.id).collect();
        let facts = gather(&discovery, &watched);
        assert!(matches!(&facts[0], HostFact::System(system) if !system.kernel.is_empty() && system.memory_bytes > 0));
        for fact in facts.into_iter().chain([counters(&["lo".to_owned()])]) {
            let fact = Fact::Host(Box::new(fact));
            let record = fact_record(MonoNs(1), &fact).unwrap();
            let event = crate::event::decode(&record).unwrap();
            assert_eq!(event.body, crate::event::Body::Fact(Box::new(fact)));
        }
    }

    #[test]
    fn an_interface_with_very_many_queues_fits_as_well() {
        let interrupt = || InterruptFact { irq: 1, name: "q".to_owned(), cpus: "\"".repeat(256), ..Default::default() };
        let mut fact = HostFact::Nic(NicFact {
            name: "eth0".to_owned(),
            interrupts: (0..128).map(|_| interrupt()).collect(),
            rps_cpus: vec!["f".repeat(256); 128],
            xps_cpus: vec!["f".repeat(256); 128],
            ..NicFact::default()
        });
        assert!(fact_record(MonoNs(1), &Fact::Host(Box::new(fact.clone()))).is_err(), "as it is, it is too long");
        assert!(matches!(shorten(&mut fact), Some(HostFact::Gap { .. })));
        fact_record(MonoNs(1), &Fact::Host(Box::new(fact.clone()))).unwrap();
        assert_eq!(shorten(&mut fact), None);
    }

    #[test]
    fn counters_are_read_as_the_kernel_writes_them() {
        let text = "Udp: InDatagrams NoPorts RcvbufErrors\nUdp: 5 1 7\nTcpExt: ListenDrops\nTcpExt: 3\n";
        let all = pairs(text);
        let named = |name: &str| all.iter().find(|counter| counter.name == name).map(|counter| counter.value);
        assert_eq!((named("Udp.RcvbufErrors"), named("TcpExt.ListenDrops"), named("Tcp.X")), (Some(7), Some(3), None));
        let both = softnet("00000010 00000001 0000000a\n00000020 00000002 0000000b\n");
        assert_eq!(both.iter().map(|counter| counter.value).collect::<Vec<_>>(), [3, 21]);
        assert!(pairs("garbage\n\u{0}").is_empty() && softnet("zz").iter().all(|counter| counter.value == 0));
    }
}
