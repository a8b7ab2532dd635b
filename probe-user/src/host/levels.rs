//! Levels and counters of the host's queues that are read again and again.

use super::{CounterFact, read};
use crate::level::Measure;
use std::path::PathBuf;

/// Largest of these files.
const LARGEST: u64 = 256 << 10;
/// Most interfaces and queues of each that are looked at.
const MOST: usize = 64;
/// Of `/proc/net/softnet_stat`, by column.
/// <https://github.com/torvalds/linux/blob/v6.12/net/core/net-procfs.c#L148>
const SOFTNET: [(usize, Measure); 4] =
    [(0, Measure::CpuProcessed), (1, Measure::CpuDropped), (2, Measure::CpuSqueezed), (11, Measure::CpuBacklog)];
/// Of a queue's byte queue limits, by file.
const LIMITS: [(&str, Measure); 2] = [("limit", Measure::ByteLimit), ("inflight", Measure::InFlight)];

/// Backlogs of CPUs, byte queue limits of the NICs in the namespace that sysfs shows, and memory of
/// sockets, in pages.
#[must_use]
pub fn queue_levels() -> Vec<CounterFact> {
    let mut levels = softnet(&read::text("/proc/net/softnet_stat", LARGEST));
    levels.extend(sockets(&read::text("/proc/net/sockstat", LARGEST)));
    for interface in read::names("/sys/class/net", MOST) {
        levels.extend(byte_limits(&interface));
    }
    levels
}

/// A line of hexadecimal columns for each CPU that is online; newer kernels name the CPU in the last.
fn softnet(text: &str) -> Vec<CounterFact> {
    let mut levels = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let columns: Vec<u64> = text.split(' ').filter_map(|column| u64::from_str_radix(column, 16).ok()).collect();
        let cpu = columns.get(12).copied().unwrap_or(line as u64);
        for (column, what) in SOFTNET {
            levels.extend(columns.get(column).map(|value| level(&format!("CPU {cpu}"), what, *value)));
        }
    }
    levels
}

fn sockets(text: &str) -> Vec<CounterFact> {
    let memory = |line: &str| {
        let (protocol, fields) = line.split_once(':')?;
        let value = fields.split_whitespace().skip_while(|field| *field != "mem").nth(1)?.parse().ok()?;
        Some(level(protocol, Measure::SocketMemory, value))
    };
    text.lines().filter_map(memory).collect()
}

fn byte_limits(interface: &str) -> Vec<CounterFact> {
    let queues = PathBuf::from("/sys/class/net").join(interface).join("queues");
    let names = read::names(&queues, MOST).into_iter().filter(|name| name.starts_with("tx-"));
    let limits = names.flat_map(|name| {
        let folder = queues.join(&name).join("byte_queue_limits");
        let of = format!("{interface} {name}");
        LIMITS.map(|(file, what)| Some(level(&of, what, read::number(folder.join(file))?)))
    });
    limits.flatten().collect()
}

fn level(of: &str, what: Measure, value: u64) -> CounterFact {
    CounterFact { name: format!("{of} {}", what.suffix()), value }
}

#[cfg(test)]
mod tests {
    use super::{sockets, softnet};

    #[test]
    fn backlogs_are_told_by_cpu_however_old_the_kernel_is() {
        let old = "00000010 00000001 00000002 00000000\n";
        let new = format!("0000000a 00000000 00000000 {}00000007 00000003 00000000 00000000\n", "00000000 ".repeat(8));
        let told = |text: &str| softnet(text).into_iter().map(|level| (level.name, level.value)).collect::<Vec<_>>();
        assert_eq!(
            told(old)[..2],
            [("CPU 0 backlog processed".to_owned(), 16), ("CPU 0 backlog dropped".to_owned(), 1)]
        );
        assert_eq!(told(&new).last(), Some(&("CPU 3 backlog length".to_owned(), 7)));
        assert!(softnet("zz").is_empty());
    }

    #[test]
    fn memory_of_sockets_is_found_by_its_name() {
        let text = "sockets: used 300\nTCP: inuse 3 orphan 0 tw 0 alloc 4 mem 9\nUDP: inuse 2 mem 1\nRAW: inuse 0\n";
        let told: Vec<_> = sockets(text).into_iter().map(|level| (level.name, level.value)).collect();
        assert_eq!(told, [("TCP sockets memory pages".to_owned(), 9), ("UDP sockets memory pages".to_owned(), 1)]);
    }
}
