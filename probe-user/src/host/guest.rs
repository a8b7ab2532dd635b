//! Virtual machines and containers, with the limits of their groups.

use super::{GuestFact, HostFact, read};
use crate::target::{Container, Discovery, Machine, VmThreadRole, Vmm};

/// Most taps of a machine that are named.
const MOST_TAPS: usize = 64;

/// A virtual machine.
pub(super) fn machine(machine: &Machine, discovery: &Discovery) -> HostFact {
    let vcpus = machine.threads.iter().filter(|thread| thread.role == VmThreadRole::Vcpu).count();
    let names = machine.taps.iter().filter_map(|tap| discovery.interface(*tap)).map(|tap| tap.name.clone());
    HostFact::Guest(GuestFact {
        kind: "vm".to_owned(),
        name: machine.name.clone(),
        runtime: vmm(machine.vmm).to_owned(),
        tgid: machine.tgid,
        vcpus: u32::try_from(vcpus).unwrap_or(u32::MAX),
        taps: names.take(MOST_TAPS).collect(),
        cgroup: machine.cgroup.clone(),
        cpu_max: limit(&machine.cgroup, "cpu.max"),
        memory_max: limit(&machine.cgroup, "memory.max"),
    })
}

/// A container.
pub(super) fn container(container: &Container) -> HostFact {
    HostFact::Guest(GuestFact {
        kind: "container".to_owned(),
        name: container.display_name(),
        runtime: container.runtime.to_owned(),
        tgid: container.tgids.first().copied().unwrap_or(0),
        vcpus: 0,
        taps: Vec::new(),
        cgroup: container.cgroup.clone(),
        cpu_max: limit(&container.cgroup, "cpu.max"),
        memory_max: limit(&container.cgroup, "memory.max"),
    })
}

/// v2 only; v1 has another file for each controller.
fn limit(cgroup: &str, file: &str) -> String {
    // The kernel writes `/..` for a group outside of what this process sees.
    let is_seen = cgroup.starts_with('/') && !cgroup.contains("/..");
    let value = if is_seen { read::line(format!("/sys/fs/cgroup{cgroup}/{file}")) } else { String::new() };
    if value.starts_with("max") { String::new() } else { value }
}

const fn vmm(vmm: Vmm) -> &'static str {
    match vmm {
        Vmm::Qemu => "qemu",
        Vmm::CloudHypervisor => "cloud-hypervisor",
        Vmm::Firecracker => "firecracker",
        Vmm::Crosvm => "crosvm",
        Vmm::TapHolder => "unknown",
    }
}
