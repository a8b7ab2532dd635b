//! Collects the choices one by one and refuses those that contradict earlier ones.

use super::error::{Hint, SelectionError};
use super::way_out::{WayOut, is_aggregated, leads_away, leads_to_guest};
use super::{Chosen, Named, Searched, Selection, is_joined};
use crate::event::{InterfaceFact, InterfaceRole};
use crate::target::discovery::Discovery;
use crate::target::model::{Container, Interface, Machine, Namespace};
use std::collections::BTreeSet;

/// Kinds that lead out of a simulated host.
const OUTWARD_KINDS: [&str; 4] = ["ether", "veth", "macvlan", "ipvlan"];

pub(super) struct Picker<'a> {
    discovery: &'a Discovery,
    host: &'a Namespace,
    /// The host is a namespace that the operator named, or that a named process lives in.
    simulated: bool,
    chosen: Vec<Chosen>,
    watch: BTreeSet<u32>,
    namespaces: BTreeSet<u64>,
    reasons: Vec<String>,
}

impl<'a> Picker<'a> {
    pub(super) fn new(discovery: &'a Discovery, host: &'a Namespace, named: bool) -> Self {
        let simulated = named || !host.home;
        let mut picker = Self {
            discovery,
            host,
            simulated,
            chosen: Vec::new(),
            watch: BTreeSet::new(),
            namespaces: BTreeSet::from([host.cookie]),
            reasons: Vec::new(),
        };
        if simulated {
            picker.reasons.push(format!("namespace {} is taken as the host", host.display_name()));
        }
        picker
    }

    pub(super) fn has_physical(&self) -> bool {
        self.chosen.iter().any(|chosen| chosen.interface.role == InterfaceRole::PhysicalNic)
    }

    /// `--pnic`.
    fn named_physical(&mut self, name: &str) -> Result<(), SelectionError> {
        let interface = self.interface("--pnic", name)?;
        self.add(interface, InterfaceRole::PhysicalNic, None, "named with --pnic".to_owned())
    }

    /// `--vnic`, with its inner end if that can be reached.
    fn named_virtual(&mut self, typed: &str) -> Result<(), SelectionError> {
        let (name, label) = typed.split_once('=').map_or((typed, None), |(name, label)| (name, Some(label)));
        let interface = self.interface("--vnic", name)?;
        self.virtual_nic(interface, label, "named with --vnic")
    }

    /// `--pid`.
    fn process(&mut self, tgid: u32) -> Result<(), SelectionError> {
        let unknown = || SelectionError::UnknownProcess { tgid, gaps: self.gaps() };
        let place = self.discovery.namespace_of(tgid).ok_or_else(unknown)?;
        self.watch.insert(tgid);
        if let Some(machine) =
            self.discovery.machines.iter().find(|machine| machine.tgid == tgid && !machine.taps.is_empty())
        {
            return self.machine(machine);
        }
        let label = self.container_of(tgid).map(Container::display_name);
        self.inside(place, &format!("process {tgid}"), label.as_deref())
    }

    /// `--container`.
    fn container(&mut self, id: &str) -> Result<(), SelectionError> {
        let found: Vec<_> = self.discovery.containers.iter().filter(|container| container.is_called(id)).collect();
        match found.as_slice() {
            [container] => self.one_container(container),
            [] => {
                Err(SelectionError::UnknownContainer { id: id.to_owned(), hint: Hint::new(id, self.container_names()) })
            }
            several => Err(SelectionError::Ambiguous {
                name: format!("--container {id}"),
                candidates: several.iter().map(|container| container.id.clone()).collect(),
            }),
        }
    }

    /// A word without option.
    fn anything(&mut self, name: &str) -> Result<(), SelectionError> {
        let interface = self.discovery.interfaces_in(self.host.cookie).find(|interface| interface.name == name);
        let machine = self.discovery.machine_called(name);
        let container = self.discovery.containers.iter().find(|container| container.is_word_for(name));
        let tgid = name.parse().ok().filter(|tgid| self.discovery.namespace_of(*tgid).is_some());
        match (interface, machine, container, tgid) {
            (Some(interface), None, None, None) => self.by_kind(interface),
            (None, Some(machine), None, _) => self.machine(machine),
            (None, None, Some(_), None) => self.container(name),
            (None, None, None, Some(tgid)) => self.process(tgid),
            (None, None, None, None) => Err(self.unknown_target(name)),
            (interface, machine, container, tgid) => Err(SelectionError::Ambiguous {
                name: name.to_owned(),
                candidates: [
                    interface.map(|_| format!("--pnic {name} or --vnic {name} (interface)")),
                    machine.map(|machine| format!("--pid {} (VM)", machine.tgid)),
                    container.map(|container| format!("--container {}", container.id)),
                    tgid.map(|tgid| format!("--pid {tgid} (process)")),
                ]
                .into_iter()
                .flatten()
                .collect(),
            }),
        }
    }

    fn by_kind(&mut self, interface: &'a Interface) -> Result<(), SelectionError> {
        let leads_inside = leads_away(interface) && !self.simulated;
        if interface.is_tap() || leads_inside {
            self.virtual_nic(interface, None, "named")
        } else {
            self.add(interface, InterfaceRole::PhysicalNic, None, "named".to_owned())
        }
    }

    fn machine(&mut self, machine: &'a Machine) -> Result<(), SelectionError> {
        let taps = machine.taps.iter().filter_map(|tap| self.discovery.interface(*tap));
        let taps: Vec<_> = taps.filter(|tap| self.is_at_host(tap)).collect();
        if taps.is_empty() {
            return Err(SelectionError::NoTap { name: machine.name.clone(), host: self.host.display_name() });
        }
        self.watch_machine(machine);
        taps.into_iter().try_for_each(|tap| self.virtual_nic(tap, Some(&machine.name), "tap"))
    }

    fn one_container(&mut self, container: &'a Container) -> Result<(), SelectionError> {
        self.watch.extend(&container.tgids);
        let place = container.netns.and_then(|netns| self.discovery.namespace(netns));
        let who = format!("container {}", container.display_name());
        match place {
            Some(place) => self.inside(place, &who, Some(&container.display_name())),
            None => Err(SelectionError::Unreachable { who }),
        }
    }

    /// Chooses the interfaces of a namespace that are tied to the host, and their host ends.
    fn inside(&mut self, place: &'a Namespace, who: &str, label: Option<&str>) -> Result<(), SelectionError> {
        self.namespaces.insert(place.cookie);
        if place.cookie == self.host.cookie {
            self.reasons.push(format!("{who} uses the host's own interfaces"));
            return Ok(());
        }
        if !is_joined(place, self.host, self.discovery) {
            let namespace = place.name.clone().unwrap_or_else(|| place.path.display().to_string());
            return Err(SelectionError::Apart { who: who.to_owned(), namespace, host: self.host.display_name() });
        }
        let tied = |interface: &&Interface| interface.peer.is_some_and(|peer| peer.netns == Some(self.host.cookie));
        let inner: Vec<_> = self.discovery.interfaces_in(place.cookie).filter(tied).collect();
        for interface in inner {
            if interface.is_tap() {
                self.virtual_nic(interface, label, &format!("inside {who}"))?;
                continue;
            }
            if let Some(outer) = self.discovery.veth_peer(interface) {
                self.add(outer, InterfaceRole::VirtualNic, label, format!("leads to {who}"))?;
            }
            self.add(interface, InterfaceRole::Inner, label, format!("inside {who}"))?;
        }
        Ok(())
    }

    fn virtual_nic(&mut self, interface: &'a Interface, label: Option<&str>, how: &str) -> Result<(), SelectionError> {
        let machine = self.discovery.machines.iter().find(|machine| machine.taps.contains(&interface.id));
        let peer = self.peer_elsewhere(interface);
        let place = peer.and_then(|peer| self.discovery.namespace(peer.id.netns));
        let found =
            machine.map(|machine| machine.name.clone()).or_else(|| place.and_then(|place| self.resident(place)));
        let label = label.map(str::to_owned).or(found);
        let why = match (machine, place) {
            (Some(machine), _) => {
                format!("{how}; VM {} ({}, pid {}) holds it", machine.name, machine.comm, machine.tgid)
            }
            (None, Some(place)) => format!("{how}; leads to namespace {}", place.display_name()),
            (None, None) => how.to_owned(),
        };
        self.add(interface, InterfaceRole::VirtualNic, label.as_deref(), why)?;
        if let Some(machine) = machine {
            self.watch_machine(machine);
        }
        let Some(peer) = peer else { return Ok(()) };
        self.namespaces.insert(peer.id.netns);
        self.add(peer, InterfaceRole::Inner, label.as_deref(), format!("other end of {}", interface.name))
    }

    fn watch_machine(&mut self, machine: &Machine) {
        self.watch.insert(machine.tgid);
        self.watch.extend(&machine.vhost_tgids);
    }

    fn peer_elsewhere(&self, interface: &Interface) -> Option<&'a Interface> {
        self.discovery.veth_peer(interface).filter(|peer| peer.id.netns != interface.id.netns)
    }

    /// Name for whoever lives in a namespace: its only container, else the name it was given.
    fn resident(&self, place: &Namespace) -> Option<String> {
        let inside = |container: &&Container| container.netns == Some(place.cookie);
        let containers: Vec<_> = self.discovery.containers.iter().filter(inside).collect();
        match containers.as_slice() {
            [container] => Some(container.display_name()),
            [first, ..] if first.pod.is_some() => Some(
                first
                    .name
                    .as_deref()
                    .and_then(|name| name.split_once('/'))
                    .map_or_else(|| first.display_name(), |(pod, _)| pod.to_owned()),
            ),
            _ => place.name.clone(),
        }
    }

    fn container_of(&self, tgid: u32) -> Option<&'a Container> {
        self.discovery.containers.iter().find(|container| container.tgids.contains(&tgid))
    }

    /// Finds what is to be searched for.
    pub(super) fn search(&mut self, wanted: Searched) {
        if wanted.physical {
            self.find_physical();
        }
        if wanted.guests {
            self.find_virtual();
        }
    }

    /// Physical NICs of a real host, or whatever leads out of a simulated one.
    fn find_physical(&mut self) {
        let all: Vec<_> =
            self.discovery.interfaces_in(self.host.cookie).filter(|interface| !self.is_chosen(interface)).collect();
        let physical = |interface: &Interface| {
            interface.is_physical()
                || self.simulated && OUTWARD_KINDS.contains(&interface.kind.as_str()) && !self.is_guests(interface)
        };
        let (usable, idle): (Vec<_>, Vec<_>) =
            all.iter().copied().filter(|interface| physical(interface)).partition(|i| i.is_usable());
        let fallback = all.iter().copied().filter(|interface| interface.outward && interface.is_usable());
        let found: Vec<_> = if usable.is_empty() { fallback.collect() } else { usable };
        for interface in found {
            self.take(interface, InterfaceRole::PhysicalNic, None, describe(interface));
        }
        if !idle.is_empty() {
            let names: Vec<_> = idle.iter().map(|interface| interface.name.as_str()).collect();
            self.reasons.push(format!("left out because they are down: {}", names.join(", ")));
        }
    }

    /// Whether a veth of a simulated host leads to a guest: the host reaches the world outside by another
    /// interface, and what is behind this one reaches it through the host.
    fn is_guests(&self, interface: &Interface) -> bool {
        let mut others = self.discovery.interfaces_in(self.host.cookie);
        !interface.outward
            && others.any(|other| other.outward)
            && leads_away(interface)
            && leads_to_guest(self.discovery, interface)
    }

    /// Taps in use, and veths that lead to another namespace. Whether somebody lives there is not
    /// asked: a runtime makes the link before it starts what will use it.
    fn find_virtual(&mut self) {
        let physical = self.chosen.iter().filter(|chosen| chosen.interface.role == InterfaceRole::PhysicalNic);
        let way_out = WayOut::below(self.discovery, physical.map(|chosen| chosen.interface.id));
        let leads_inside = |interface: &&Interface| {
            let tap = interface.is_tap() && (interface.is_usable() || !interface.holders.is_empty());
            let veth = leads_away(interface) && interface.is_usable() && !is_aggregated(self.discovery, interface);
            (tap || veth) && !way_out.holds(interface) && !self.is_chosen(interface)
        };
        let all = self.discovery.interfaces.iter().filter(|interface| self.is_at_host(interface)).filter(leads_inside);
        let (doubtful, inside): (Vec<_>, Vec<_>) = all.partition(|interface| way_out.may_hold(interface));
        for interface in inside {
            if self.virtual_nic(interface, None, &interface.kind).is_err() {
                self.reasons.push(format!("left out because its other end is a physical NIC: {}", interface.name));
            }
        }
        if !doubtful.is_empty() {
            let names: Vec<_> = doubtful.iter().map(|interface| interface.name.as_str()).collect();
            let names = names.join(", ");
            self.reasons.push(format!(
                "left out because it is not known which of them leads outside: {names}; name guests' with --vnic"
            ));
        }
    }

    /// Whether it is the host's, or a macvtap on one of the host's that a VM has in a namespace of its own.
    fn is_at_host(&self, interface: &Interface) -> bool {
        let host = self.host.cookie;
        let is_on_host = || interface.peer.is_some_and(|peer| peer.netns == Some(host));
        interface.id.netns == host || interface.is_macvtap() && is_on_host()
    }

    fn is_chosen(&self, interface: &Interface) -> bool {
        self.chosen.iter().any(|chosen| chosen.interface.id == interface.id)
    }

    fn add(
        &mut self,
        interface: &Interface,
        role: InterfaceRole,
        label: Option<&str>,
        why: String,
    ) -> Result<(), SelectionError> {
        match self.chosen.iter().find(|chosen| chosen.interface.id == interface.id).map(|chosen| chosen.interface.role)
        {
            None => self.take(interface, role, label, why),
            Some(earlier) if earlier == role => {}
            Some(earlier) => {
                let (first, second) = (role_name(earlier), role_name(role));
                return Err(SelectionError::TwoRoles { name: interface.name.clone(), first, second });
            }
        }
        Ok(())
    }

    fn take(&mut self, interface: &Interface, role: InterfaceRole, label: Option<&str>, why: String) {
        let place = self.discovery.namespace(interface.id.netns);
        if !interface.is_usable() {
            self.reasons.push(format!("warning: {} is down: no check passes it until it is up", interface.name));
        }
        self.chosen.push(Chosen {
            interface: InterfaceFact {
                id: interface.id,
                name: interface.name.clone(),
                role,
                label: label.unwrap_or(&interface.name).to_owned(),
                kind: interface.kind.clone(),
                tx_queues: interface.tx_queues,
                rx_queues: interface.rx_queues,
            },
            netns_path: place.map(|place| place.path.clone()).unwrap_or_default(),
            why,
            holders: self.holders(interface),
        });
    }

    fn holders(&self, tap: &Interface) -> Vec<u32> {
        let machines = self.discovery.machines.iter().filter(|machine| machine.taps.contains(&tap.id));
        let workers = machines.flat_map(|machine| machine.vhost_tgids.iter().copied());
        tap.holders.iter().copied().chain(workers).collect()
    }

    fn interface(&self, option: &'static str, name: &str) -> Result<&'a Interface, SelectionError> {
        let found = self.discovery.interfaces_in(self.host.cookie).find(|interface| interface.name == name);
        found.ok_or_else(|| SelectionError::UnknownInterface {
            option,
            name: name.to_owned(),
            namespace: self.host.display_name(),
            hint: Hint::new(name, self.interface_names()).or_elsewhere(self.elsewhere(name)),
        })
    }

    fn elsewhere(&self, name: &str) -> Vec<String> {
        let same = self.discovery.interfaces.iter().filter(|interface| interface.name == name);
        let places = same.filter_map(|interface| self.discovery.namespace(interface.id.netns));
        places.map(|place| format!("namespace {0} has one: give --netns {0}", place.display_name())).collect()
    }

    fn unknown_target(&self, name: &str) -> SelectionError {
        let machines = self.discovery.machines.iter().map(|machine| machine.name.clone());
        let known = self.interface_names().chain(machines).chain(self.container_names());
        let hint = Hint::new(name, known).or_elsewhere(self.elsewhere(name));
        SelectionError::UnknownTarget { name: name.to_owned(), hint }
    }

    fn interface_names(&self) -> impl Iterator<Item = String> {
        self.discovery.interfaces_in(self.host.cookie).map(|interface| interface.name.clone())
    }

    fn container_names(&self) -> impl Iterator<Item = String> {
        self.discovery.containers.iter().map(Container::display_name)
    }

    fn gaps(&self) -> Vec<String> {
        self.discovery.gaps.iter().map(|gap| format!("{} ({})", gap.what, gap.reason)).collect()
    }

    /// What is named, if that means anything.
    pub(super) fn named(&mut self, name: &Named<'_>) -> Result<(), SelectionError> {
        match *name {
            Named::Physical(name) => self.named_physical(name),
            Named::Virtual(name) => self.named_virtual(name),
            Named::Process(tgid) => self.process(tgid),
            Named::Container(id) => self.container(id),
            Named::Word(name) => self.anything(name),
        }
    }

    /// That nothing is chosen, if nothing is.
    pub(super) fn nothing(&self) -> Option<SelectionError> {
        let nothing =
            || SelectionError::Nothing { host: self.host.display_name(), hint: Hint::new("", self.interface_names()) };
        self.chosen.is_empty().then(nothing)
    }

    /// The choices, and whether physical and virtual NICs were searched for.
    pub(super) fn finish(mut self, searched: Searched) -> Selection {
        self.chosen.sort_by_key(|chosen| chosen.interface.role);
        let sentences = self.chosen.iter().map(|chosen| {
            format!("{} is watched as {}: {}", chosen.interface.name, role_name(chosen.interface.role), chosen.why)
        });
        Selection {
            reasons: sentences.chain(self.reasons.iter().cloned()).collect(),
            chosen: self.chosen,
            watch: self.watch.into_iter().collect(),
            namespaces: self.namespaces.into_iter().collect(),
            host: self.host.cookie,
            searched,
        }
    }
}

const fn role_name(role: InterfaceRole) -> &'static str {
    match role {
        InterfaceRole::PhysicalNic => "a physical NIC",
        InterfaceRole::VirtualNic => "a virtual NIC",
        InterfaceRole::Inner => "an inner end",
    }
}

fn describe(interface: &Interface) -> String {
    let driver = interface.driver.as_deref().map(|driver| format!(", driver {driver}")).unwrap_or_default();
    let route = if interface.outward { ", traffic to the outside leaves by it" } else { "" };
    format!("{}{driver}, up{route}", interface.kind)
}
