//! Network interfaces: what discovery knows of them, and what sysfs adds in the host's own namespace.

use super::{CounterFact, HostFact, InterruptFact, NicFact, RingsFact, read};
use crate::target::{Interface, Rings};
use std::path::PathBuf;

/// Most queues of a direction, and most interrupts, that are listed.
const MOST_QUEUES: usize = 128;
/// What an interface counts that a check can be lost or late by.
const STATISTICS: [&str; 8] = [
    "rx_dropped",
    "rx_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "rx_nohandler",
    "tx_carrier_errors",
    "tx_dropped",
    "tx_errors",
];

/// What is known of an interface; sysfs shows those of its own namespace only.
pub(super) fn gather(interface: &Interface, watched: bool, home: bool) -> HostFact {
    let folder = PathBuf::from("/sys/class/net").join(&interface.name);
    let inside = |file: &str| if home { folder.join(file) } else { PathBuf::new() };
    HostFact::Nic(NicFact {
        name: interface.name.clone(),
        netns: interface.id.netns,
        ifindex: interface.id.ifindex,
        kind: interface.kind.clone(),
        watched,
        driver: interface.driver.clone().unwrap_or_default(),
        up: interface.is_usable(),
        mtu_bytes: interface.mtu,
        speed_mbit: read::number(inside("speed")).and_then(|speed| u32::try_from(speed).ok()),
        rx_queues: interface.rx_queues,
        tx_queues: interface.tx_queues,
        most_queues: interface.queue_limits.map(|limits| limits.combined.max(limits.rx)),
        rings: interface.rings.map(|rings| {
            let Rings { rx, tx, most_rx, most_tx } = rings;
            RingsFact { rx, tx, most_rx, most_tx }
        }),
        offloads: interface.offloads.map(offloads),
        tx_queue_len: read::number(inside("tx_queue_len")).and_then(|packets| u32::try_from(packets).ok()),
        interrupts: interrupts(&inside("device")),
        rps_cpus: masks(&inside("queues"), "rx-", "rps_cpus"),
        xps_cpus: masks(&inside("queues"), "tx-", "xps_cpus"),
    })
}

fn offloads(offloads: crate::target::Offloads) -> Vec<String> {
    let all = [("gro", offloads.gro), ("gso", offloads.gso), ("tso", offloads.tso), ("lro", offloads.lro)];
    all.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.to_owned()).collect()
}

/// Those of the device, or for virtio, of the device that it is in.
fn interrupts(device: &std::path::Path) -> Vec<InterruptFact> {
    let folders = [device.join("msi_irqs"), device.join("../msi_irqs")];
    let numbers = folders.iter().map(|folder| read::names(folder, MOST_QUEUES)).find(|names| !names.is_empty());
    numbers.unwrap_or_default().iter().filter_map(|number| interrupt(number.parse().ok()?)).collect()
}

/// The action of an interrupt has a folder of its name.
fn interrupt(irq: u32) -> Option<InterruptFact> {
    let folder = format!("/proc/irq/{irq}");
    let is_file = |name: &str| ["affinity", "node", "spurious", "effective"].iter().any(|part| name.contains(part));
    let name = read::names(&folder, 32).into_iter().find(|name| !is_file(name))?;
    Some(InterruptFact {
        irq,
        name,
        cpus: read::line(format!("{folder}/smp_affinity_list")),
        effective_cpus: read::line(format!("{folder}/effective_affinity_list")),
    })
}

fn masks(queues: &std::path::Path, direction: &str, file: &str) -> Vec<String> {
    let names = read::names(queues, usize::MAX).into_iter().filter(|name| name.starts_with(direction));
    names.take(MOST_QUEUES).map(|name| read::line(queues.join(name).join(file))).collect()
}

/// What it has counted; zeros are left out.
pub(super) fn counters(interface: &str) -> Vec<CounterFact> {
    let folder = PathBuf::from("/sys/class/net").join(interface).join("statistics");
    let counter = |name: &&str| {
        let value = read::number(folder.join(name)).filter(|value| *value > 0)?;
        Some(CounterFact { name: format!("{interface}.{name}"), value })
    };
    STATISTICS.iter().filter_map(counter).collect()
}
