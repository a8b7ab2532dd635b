//! One look at the host: everything that can be watched, as one value.

use super::link::Link;
use super::model::{Container, Gap, Interface, Machine, Namespace, Peer};
use super::netns::{self, Contents};
use super::port::{self, Transport};
use super::process::{self, Process};
use super::{container, machine};
use crate::attribution::SOFTIRQ_THREAD;
use crate::event::{InterfaceId, MACVTAP, TAP};
use serde::Serialize;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

/// What there is on the host at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Discovery {
    /// Reachable network namespaces, the home namespace (whylag's own) first.
    pub namespaces: Vec<Namespace>,
    /// Their interfaces.
    pub interfaces: Vec<Interface>,
    /// Virtual machines.
    pub machines: Vec<Machine>,
    /// Containers.
    pub containers: Vec<Container>,
    /// What could not be looked at.
    pub gaps: Vec<Gap>,
    /// The kernel's threads for softirqs that are too many at a time, one for each CPU.
    #[serde(skip)]
    pub softirq_threads: Vec<u32>,
}

impl Discovery {
    /// Looks. Never fails: what may not be seen is in [`Discovery::gaps`]. Takes some
    /// microseconds per open file on the host.
    #[must_use]
    pub fn scan() -> Self {
        let (processes, mut gaps) = process::scan();
        let (contents, more) = netns::read_all(&processes);
        gaps.extend(more);
        Self::assemble(&processes, &contents, gaps)
    }

    fn assemble(processes: &[Process], contents: &[Contents], gaps: Vec<Gap>) -> Self {
        let namespaces: Vec<_> = contents.iter().map(|contents| contents.namespace.clone()).collect();
        let cookies: HashMap<u64, u64> = namespaces.iter().map(|place| (place.inode, place.cookie)).collect();
        let mut interfaces: Vec<_> = contents.iter().flat_map(|contents| interfaces_of(contents, &cookies)).collect();
        attach_holders(&mut interfaces, processes, &cookies);
        Self {
            machines: machine::find(processes, &interfaces),
            containers: container::find(processes, &namespaces),
            namespaces,
            interfaces,
            gaps,
            softirq_threads: processes.iter().filter(|process| is_softirq_thread(process)).map(|it| it.tgid).collect(),
        }
    }

    /// The namespace that whylag runs in; `None` if even that could not be read.
    #[must_use]
    pub fn home(&self) -> Option<&Namespace> {
        self.namespaces.iter().find(|namespace| namespace.home)
    }

    /// The namespace with a cookie.
    #[must_use]
    pub fn namespace(&self, cookie: u64) -> Option<&Namespace> {
        self.namespaces.iter().find(|namespace| namespace.cookie == cookie)
    }

    /// The namespace that a process is in.
    #[must_use]
    pub fn namespace_of(&self, tgid: u32) -> Option<&Namespace> {
        self.namespaces.iter().find(|namespace| namespace.tgids.contains(&tgid))
    }

    /// The interfaces of a namespace.
    pub fn interfaces_in(&self, cookie: u64) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter(move |interface| interface.id.netns == cookie)
    }

    /// An interface by its identity.
    #[must_use]
    pub fn interface(&self, id: InterfaceId) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.id == id)
    }

    /// The other end of a veth, if it could be reached.
    #[must_use]
    pub fn veth_peer(&self, interface: &Interface) -> Option<&Interface> {
        let peer = interface.peer.filter(|_| interface.kind == "veth")?;
        self.interface(InterfaceId { netns: peer.netns?, ifindex: peer.ifindex })
    }

    /// The VM of a name: the one shown, or the one its program was started with (compared only,
    /// never kept or shown).
    #[must_use]
    pub fn machine_called(&self, name: &str) -> Option<&Machine> {
        let shown = self.machines.iter().find(|machine| machine.name == name);
        shown.or_else(|| self.machines.iter().find(|machine| machine::was_started_as(machine.tgid, name)))
    }

    /// Processes that own a socket bound to a local port in a namespace, as it is now. For TCP
    /// both listeners and accepted connections count. Processes that appeared since the scan are
    /// not looked at.
    #[must_use]
    pub fn owners_of_port(&self, netns: u64, transport: Transport, port: u16) -> Vec<u32> {
        let Some(namespace) = self.namespace(netns) else { return Vec::new() };
        let elsewhere = self.namespaces.iter().filter(|other| other.cookie != netns);
        let outside: Vec<u32> = elsewhere.flat_map(|other| &other.tgids).copied().collect();
        port::owners(&namespace.tgids, &outside, transport, port)
    }
}

fn is_softirq_thread(process: &Process) -> bool {
    process.comm.starts_with(SOFTIRQ_THREAD)
}

fn interfaces_of(contents: &Contents, cookies: &HashMap<u64, u64>) -> Vec<Interface> {
    contents.links.iter().map(|link| interface_of(link, contents, cookies)).collect()
}

fn interface_of(link: &Link, contents: &Contents, cookies: &HashMap<u64, u64>) -> Interface {
    let home = contents.namespace.cookie;
    let netns_of = |number: Option<i32>| match number {
        None => Some(home),
        Some(number) => contents.neighbours.get(&number).and_then(|inode| cookies.get(inode)).copied(),
    };
    let channels = contents.ethtool.channels.get(&link.ifindex).filter(|channels| channels.tx > 0 && channels.rx > 0);
    Interface {
        id: InterfaceId { netns: home, ifindex: link.ifindex },
        name: link.name.clone(),
        kind: link.kind.clone(),
        peer: link.link.map(|(ifindex, number)| Peer { ifindex, netns: netns_of(number) }),
        master: link.master,
        mtu: link.mtu,
        tx_queues: channels.map_or(link.tx_queues, |channels| channels.tx),
        rx_queues: match channels {
            _ if link.kind == MACVTAP => 0,
            Some(channels) => channels.rx,
            None => link.rx_queues,
        },
        up: link.up,
        state: link.state,
        outward: contents.outward.contains(&link.ifindex),
        queue_limits: channels.map(|channels| channels.limits),
        rings: contents.ethtool.rings.get(&link.ifindex).copied(),
        receive_spread: spread_of(link, contents.namespace.home),
        driver: driver_of(link, contents.namespace.home),
        offloads: contents.ethtool.offloads.get(&link.ifindex).copied(),
        holders: Vec::new(),
    }
}

/// The CPUs that the first receive queue's work is spread over (RPS); sysfs shows the home namespace.
fn spread_of(link: &Link, home: bool) -> Option<String> {
    let path = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", link.name);
    fs::read_to_string(path).ok().filter(|_| home).map(|mask| mask.trim().to_owned())
}

/// The driver of the hardware behind a link: by the parent device the link names (Linux 5.14), in
/// the home namespace also by its directory in sysfs.
fn driver_of(link: &Link, home: bool) -> Option<String> {
    let by_parent =
        link.parent.as_ref().map(|(bus, device)| PathBuf::from(format!("/sys/bus/{bus}/devices/{device}/driver")));
    let by_name = home.then(|| PathBuf::from(format!("/sys/class/net/{}/device/driver", link.name)));
    let target = by_parent.into_iter().chain(by_name).find_map(|path| fs::read_link(path).ok())?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// The file of a tap tells no namespace, so among several that have an interface like it the holder's own is
/// meant.
fn attach_holders(interfaces: &mut [Interface], processes: &[Process], cookies: &HashMap<u64, u64>) {
    for process in processes {
        let own = process.netns.and_then(|inode| cookies.get(&inode)).copied();
        for name in &process.taps {
            let is_it =
                |interface: &Interface| interface.name == *name && matches!(interface.kind.as_str(), TAP | "tun");
            if let Some(tap) = meant(interfaces, is_it, own) {
                tap.holders.push(process.tgid);
            }
        }
        for file in &process.macvtaps {
            let is_it = |interface: &Interface| {
                interface.is_macvtap() && interface.id.ifindex == file.ifindex && interface.name == file.name
            };
            if let Some(macvtap) = meant(interfaces, is_it, own) {
                // Each file that is open is a queue. Its device has others, for what the VM sends.
                macvtap.rx_queues += file.opened;
                macvtap.holders.push(process.tgid);
            }
        }
    }
}

/// The interface that `is_it`; of several, the one in this namespace.
fn meant(
    interfaces: &mut [Interface],
    is_it: impl Fn(&Interface) -> bool,
    netns: Option<u64>,
) -> Option<&mut Interface> {
    let mut alike: Vec<_> = interfaces.iter_mut().filter(|interface| is_it(interface)).collect();
    if alike.len() > 1 {
        alike.retain(|interface| Some(interface.id.netns) == netns);
    }
    if alike.len() == 1 { alike.pop() } else { None }
}
