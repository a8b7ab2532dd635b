//! Interrupts that the queues of a NIC have raised, and which CPUs took them.
//!
//! From `/sys/kernel/irq`, a small file for each; `/proc/interrupts` has the same numbers for all devices
//! and CPUs of the host, which takes milliseconds on a large one.

use super::{CounterFact, read};
use crate::level::Measure;
use std::path::{Path, PathBuf};

/// Most interrupts of a device.
const MOST: usize = 256;
/// Most bytes of what is counted on all CPUs.
const LARGEST: u64 = 64 << 10;

/// What each CPU took of each interrupt of the device that is there on the PCI bus, such as
/// `0000:00:03.0`; zeros are left out.
#[must_use]
pub fn interrupt_levels(interface: &str, bus: &str) -> Vec<CounterFact> {
    // What a driver calls its place is a name in a path.
    if bus.is_empty() || !bus.chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c)) {
        return Vec::new();
    }
    let device = Path::new("/sys/bus/pci/devices").join(bus);
    numbers(&device).into_iter().flat_map(|irq| taken(interface, irq, Path::new("/sys/kernel/irq"))).collect()
}

/// Its message interrupts, else its line.
fn numbers(device: &Path) -> Vec<u32> {
    let messages = read::names(device.join("msi_irqs"), MOST).iter().filter_map(|name| name.parse().ok()).collect();
    match messages {
        messages if messages != Vec::<u32>::new() => messages,
        _ => read::number(device.join("irq"))
            .and_then(|irq| u32::try_from(irq).ok())
            .filter(|irq| *irq > 0)
            .into_iter()
            .collect(),
    }
}

fn taken(interface: &str, irq: u32, irqs: &Path) -> Vec<CounterFact> {
    let folder: PathBuf = irqs.join(irq.to_string());
    let action = read::line(folder.join("actions"));
    // A line that other devices share counts theirs as well.
    if action.is_empty() || action.contains(',') {
        return Vec::new();
    }
    let counts = read::text(folder.join("per_cpu_count"), LARGEST);
    let level = |(cpu, count): (usize, &str)| {
        let value = count.trim().parse().ok().filter(|count| *count > 0)?;
        let name = format!("{interface} {action} (irq {irq}) CPU {cpu} {}", Measure::Interrupts.suffix());
        Some(CounterFact { name, value })
    };
    counts.split(',').enumerate().filter_map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::{interrupt_levels, numbers, taken};
    use std::fs;

    #[test]
    fn each_cpu_s_interrupts_are_told_and_a_shared_line_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let irq = |number: &str, action: &str, counts: &str| {
            let irq = folder.path().join(number);
            fs::create_dir_all(&irq).unwrap();
            fs::write(irq.join("actions"), action).unwrap();
            fs::write(irq.join("per_cpu_count"), counts).unwrap();
        };
        irq("38", "virtio2-input.0\n", "0,30419,0,7\n");
        irq("11", "uhci_hcd:usb1,eth1\n", "5,5\n");
        let told: Vec<_> = taken("eth0", 38, folder.path()).into_iter().map(|it| (it.name, it.value)).collect();
        let name = |cpu| format!("eth0 virtio2-input.0 (irq 38) CPU {cpu} interrupts");
        assert_eq!(told, [(name(1), 30_419), (name(3), 7)]);
        assert_eq!((taken("eth1", 11, folder.path()), taken("eth1", 12, folder.path())), (vec![], vec![]));
    }

    #[test]
    fn message_interrupts_go_before_the_line() {
        let device = tempfile::tempdir().unwrap();
        assert_eq!(numbers(device.path()), Vec::<u32>::new());
        fs::write(device.path().join("irq"), "11\n").unwrap();
        assert_eq!(numbers(device.path()), [11]);
        for irq in ["38", "100", "39"] {
            fs::create_dir_all(device.path().join("msi_irqs").join(irq)).unwrap();
        }
        assert_eq!(numbers(device.path()), [38, 39, 100]);
    }

    #[test]
    fn a_place_that_is_none_of_pci_s_is_not_looked_for() {
        assert_eq!(interrupt_levels("eth0", "../../devices"), []);
        assert_eq!(interrupt_levels("eth0", "N/A"), []);
    }
}
