//! Levels and counters of queues over time: which there are, and what each is called.
//!
//! A level's name tells all of it: `eth0 tbf 8001: backlog bytes` is what waits in that queueing
//! discipline. Readers make names with [`Measure::suffix`] or [`nic_counter`], and [`Level::of`] takes
//! them apart again, so that what a recording holds can be drawn by kind. Pure.

/// What is measured or counted of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// Bytes that wait in a queueing discipline.
    Backlog,
    /// Packets that do.
    Packets,
    /// Packets that it dropped.
    Drops,
    /// Packets that the device did not take.
    Requeues,
    /// Packets that it held back by its own rule.
    Overlimits,
    /// Bytes that a transmit queue may have handed to its device (BQL).
    ByteLimit,
    /// Bytes that it has.
    InFlight,
    /// Packets that wait for a CPU to receive them.
    CpuBacklog,
    /// Packets that found that full.
    CpuDropped,
    /// Times that a CPU had no budget left while packets waited.
    CpuSqueezed,
    /// Packets that a CPU received.
    CpuProcessed,
    /// Pages that a protocol's sockets hold.
    SocketMemory,
    /// Interrupts of a queue that a CPU took.
    Interrupts,
    /// Packets that the NIC had no room for: gone before the kernel had one.
    RingDrops,
    /// Packets that a program at the driver dropped: as unseen.
    XdpDrops,
    /// Other packets that a NIC or its driver dropped.
    NicDrops,
    /// What went wrong there, or ran short.
    NicErrors,
    /// Frames by which one end has the other pause.
    Pauses,
    /// What a driver did: kicks, stops, packets of XDP.
    Work,
}

/// What is known of a measure.
#[derive(Debug, Clone, Copy)]
pub struct MeasureRow {
    /// Which.
    pub measure: Measure,
    /// How the names of such levels end; empty of those that the NIC itself names.
    pub suffix: &'static str,
    /// It only grows.
    pub counts: bool,
    /// What it counts, in words.
    pub unit: &'static str,
}

/// The table of measures.
pub const MEASURES: [MeasureRow; 19] = [
    row(Measure::Backlog, "backlog bytes", false, "bytes"),
    row(Measure::Packets, "packets", false, "packets"),
    row(Measure::Drops, "drops", true, "packets"),
    row(Measure::Requeues, "requeues", true, "packets"),
    row(Measure::Overlimits, "overlimits", true, "packets"),
    row(Measure::ByteLimit, "BQL limit", false, "bytes"),
    row(Measure::InFlight, "BQL inflight", false, "bytes"),
    row(Measure::CpuBacklog, "backlog length", false, "packets"),
    row(Measure::CpuDropped, "backlog dropped", true, "packets"),
    row(Measure::CpuSqueezed, "backlog squeezed", true, "times"),
    row(Measure::CpuProcessed, "backlog processed", true, "packets"),
    row(Measure::SocketMemory, "sockets memory pages", false, "pages"),
    row(Measure::Interrupts, "interrupts", true, "interrupts"),
    row(Measure::RingDrops, "", true, "packets"),
    row(Measure::XdpDrops, "", true, "packets"),
    row(Measure::NicDrops, "", true, "packets"),
    row(Measure::NicErrors, "", true, "times"),
    row(Measure::Pauses, "", true, "frames"),
    row(Measure::Work, "", true, "times"),
];

const fn row(measure: Measure, suffix: &'static str, counts: bool, unit: &'static str) -> MeasureRow {
    MeasureRow { measure, suffix, counts, unit }
}

impl Measure {
    /// Its row in the table.
    #[must_use]
    pub const fn row(self) -> &'static MeasureRow {
        &MEASURES[self as usize]
    }

    /// How the names of such levels end.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        self.row().suffix
    }

    /// What a counter of a NIC or its driver counts, by its name there; `None` where it does not
    /// matter.
    #[must_use]
    pub fn of_counter(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let fits = |row: &&Words| row.all.iter().all(|word| name.contains(word)) && row.fits_any(&name);
        if name.contains("bytes") {
            return None;
        }
        WORDS.iter().find(fits).map(|row| row.measure)
    }
}

/// Names of counters that mean the same.
struct Words {
    measure: Measure,
    /// All of these are part of the name,
    all: &'static [&'static str],
    /// and one of these is.
    any: &'static [&'static str],
}

impl Words {
    fn fits_any(&self, name: &str) -> bool {
        self.any.iter().any(|word| name.contains(word))
    }
}

/// The words by which counters are chosen; the first row that fits counts. A packet that found no
/// descriptor but room in the NIC's own memory (`rx_no_buffer_count` of Intel's) is not lost.
/// <https://docs.kernel.org/networking/statistics.html>, and the strings of igb, ixgbe, i40e, ice,
/// mlx5, bnxt, tg3, ena, gve, virtio_net, vmxnet3, hv_netvsc and veth.
const WORDS: &[Words] = &[
    words(Measure::Pauses, &[], &["pause", "flow_control", "xon", "xoff"]),
    words(Measure::XdpDrops, &["xdp"], &["drop"]),
    words(
        Measure::RingDrops,
        &["rx"],
        &["missed", "no_dma", "fifo", "rx_over", "out_of_buf", "oob", "discard", "bds_empty", "no_memory"],
    ),
    // Of each queue: `rx_queue_0_drops` (igb, virtio_net, veth), `queue_0_rx_drops` (gve), `rx_drops` (ena).
    words(Measure::RingDrops, &["rx"], &["_drops", "drop_cnt"]),
    words(Measure::NicDrops, &[], &["drop", "discard", "nohandler", "lost", "missed"]),
    words(
        Measure::NicErrors,
        &[],
        &["err", "fail", "timeout", "no_buf", "bad", "crc", "exhaust", "fifo", "out_of_buf", "collision"],
    ),
    words(Measure::Work, &[], &["kick", "xdp", "stop", "wake", "busy", "full"]),
];

const fn words(measure: Measure, all: &'static [&'static str], any: &'static [&'static str]) -> Words {
    Words { measure, all, any }
}

/// Who counts for a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// The kernel's statistics of a link (`ip -s link`).
    Link,
    /// The driver's own (`ethtool -S`).
    Driver,
}

impl Counted {
    /// As names of levels say it.
    const fn word(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Driver => "driver",
        }
    }

    /// Who counts, and the counter's own name; the reverse of [`nic_counter`].
    #[must_use]
    pub fn split(counter: &str) -> Option<(Self, &str)> {
        let own = |by: Self| Some((by, counter.strip_prefix(by.word())?.strip_prefix(' ')?));
        [Self::Link, Self::Driver].into_iter().find_map(own)
    }
}

/// How a counter of a NIC is called behind the interface's name.
#[must_use]
pub fn nic_counter(by: Counted, name: &str) -> String {
    format!("{} {name}", by.word())
}

/// A level's name, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level<'a> {
    /// What is measured.
    pub measure: Measure,
    /// Of what, such as `eth0 tbf 8001:`; of a NIC's counter, the interface.
    pub of: &'a str,
    /// The name of a NIC's counter, behind who counts; else empty.
    pub counter: &'a str,
}

impl<'a> Level<'a> {
    /// What a level of this name is; `None` of one that a later whylag has added.
    #[must_use]
    pub fn of(name: &'a str) -> Option<Self> {
        Self::of_nic(name).or_else(|| Self::of_queue(name))
    }

    fn of_nic(name: &'a str) -> Option<Self> {
        // No name of an interface has a space in it.
        let (of, counter) = name.split_once(' ')?;
        let (_, own) = Counted::split(counter)?;
        Some(Self { measure: Measure::of_counter(own)?, of, counter })
    }

    fn of_queue(name: &'a str) -> Option<Self> {
        let ends = |row: &MeasureRow| {
            let of = name.strip_suffix(row.suffix)?.strip_suffix(' ')?;
            (!row.suffix.is_empty()).then_some(Self { measure: row.measure, of, counter: "" })
        };
        MEASURES.iter().find_map(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::{Counted, Level, MEASURES, Measure, nic_counter};

    #[test]
    fn rows_stand_in_the_order_of_the_measures() {
        assert!(MEASURES.iter().enumerate().all(|(index, row)| row.measure as usize == index));
    }

    #[test]
    fn counters_are_chosen_by_their_names() {
        let rows = [
            ("rx_missed_errors", Some(Measure::RingDrops)),
            ("rx_fifo_errors", Some(Measure::RingDrops)),
            ("rx_over_errors", Some(Measure::RingDrops)),
            ("rx_no_dma_resources", Some(Measure::RingDrops)),
            ("rx_out_of_buffer", Some(Measure::RingDrops)),
            ("rx_queue_3_drops", Some(Measure::RingDrops)),
            ("pkts rx OOB", Some(Measure::RingDrops)),
            ("[0]: rx_discards", Some(Measure::RingDrops)),
            ("rxbds_empty", Some(Measure::RingDrops)),
            ("rx_queue_0_xdp_drops", Some(Measure::XdpDrops)),
            ("rx_dropped", Some(Measure::NicDrops)),
            ("rx_nohandler", Some(Measure::NicDrops)),
            ("tx_dropped", Some(Measure::NicDrops)),
            ("rx_no_buffer_count", Some(Measure::NicErrors)),
            ("tx_queue_0_tx_timeouts", Some(Measure::NicErrors)),
            ("tx_fifo_errors", Some(Measure::NicErrors)),
            ("rx_flow_control_xoff", Some(Measure::Pauses)),
            ("rx_prio3_pause", Some(Measure::Pauses)),
            ("tx_queue_0_kicks", Some(Measure::Work)),
            ("rx_queue_0_xdp_packets", Some(Measure::Work)),
            ("rx_packets", None),
            ("rx_queue_0_xdp_bytes", None),
            ("peer_ifindex", None),
        ];
        for (name, measure) in rows {
            assert_eq!(Measure::of_counter(name), measure, "{name}");
        }
    }

    #[test]
    fn names_are_taken_apart_as_they_were_made() {
        let of =
            |name: &str| Level::of(name).map(|level| (level.measure, level.of.to_owned(), level.counter.to_owned()));
        let queue = |measure, of: &str| Some((measure, of.to_owned(), String::new()));
        assert_eq!(of("eth0 tbf 8001: backlog bytes"), queue(Measure::Backlog, "eth0 tbf 8001:"));
        assert_eq!(of("eth0 mq at 0:1 packets"), queue(Measure::Packets, "eth0 mq at 0:1"));
        assert_eq!(of("CPU 3 backlog dropped"), queue(Measure::CpuDropped, "CPU 3"));
        assert_eq!(of("TCP sockets memory pages"), queue(Measure::SocketMemory, "TCP"));
        let lost = format!("eth0 {}", nic_counter(Counted::Driver, "pkts rx OOB"));
        let counter = "driver pkts rx OOB".to_owned();
        assert_eq!(of(&lost), Some((Measure::RingDrops, "eth0".to_owned(), counter)));
        assert_eq!(of("eth0 link rx_packets"), None);
        assert_eq!(of("something new"), None);
    }
}
