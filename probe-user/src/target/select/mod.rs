//! From what the operator named, or from nothing, to what is hooked and who is watched.
//!
//! Interface names are unique per namespace only. The rule: `--pnic`, `--vnic` and targets are
//! names in the namespace given by `--netns`, else in the one that whylag runs in. That
//! namespace is called *the host* here. A name that only exists elsewhere is an error that says
//! where.

mod error;
mod picker;
#[cfg(test)]
mod tests;

use super::discovery::Discovery;
use super::model::Namespace;
use crate::event::InterfaceFact;
use picker::Picker;
use serde::Serialize;
use std::collections::HashSet;
use std::path::PathBuf;

pub use error::{Hint, SelectionError};

/// What the operator named, as typed. All empty: whylag chooses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    /// `--pnic IF`: the host's ways to the outside. A veth serves too, for a simulated host.
    pub pnic: Vec<String>,
    /// `--vnic IF[=LABEL]`: host ends of taps and veths.
    pub vnic: Vec<String>,
    /// `--netns NAME|PATH|PID`: the namespace to take as the host.
    pub netns: Option<String>,
    /// `--pid N`: processes.
    pub pid: Vec<u32>,
    /// `--container ID`: first characters of a container's id, or its name.
    pub container: Vec<String>,
    /// Words without option: an interface, a VM's or container's name, or a process number.
    pub names: Vec<String>,
}

impl Targets {
    /// Nothing was named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Something was named that decides which virtual NICs are meant.
    const fn names_guests(&self) -> bool {
        !(self.vnic.is_empty() && self.pid.is_empty() && self.container.is_empty() && self.names.is_empty())
    }
}

/// An interface to hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// The interface and its part.
    pub interface: InterfaceFact,
    /// File through which its namespace can be entered.
    pub netns_path: PathBuf,
    /// Why it was chosen: half a sentence for the operator.
    pub why: String,
    /// For a tap, the processes that can take packets out of it: its VMM and that one's kernel
    /// workers.
    pub holders: Vec<u32>,
}

/// What is hooked and who is watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Selection {
    /// Interfaces: physical NICs first, then virtual NICs, then inner ends.
    pub chosen: Vec<Chosen>,
    /// Processes to watch from the start, in the order of their numbers.
    pub watch: Vec<u32>,
    /// Cookies of the namespaces whose port owners serve checks: the host's and the containers'
    /// ([`Discovery::owners_of_port`]).
    pub namespaces: Vec<u64>,
    /// Cookie of the namespace taken as the host; [`super::Changes`] watches it.
    pub host: u64,
    /// Virtual NICs were found, not named: new ones should be added as they appear.
    pub automatic: bool,
    /// What was chosen, what was left out, and why: sentences for the operator.
    pub reasons: Vec<String>,
}

impl Selection {
    /// Chooses.
    ///
    /// What is named replaces what would be found: `--pnic` the physical NICs; `--vnic`, `--pid`,
    /// `--container` and targets the virtual ones. With `--netns` every other interface of that
    /// namespace that could carry packets to the outside, veths included, is its physical NIC.
    ///
    /// # Errors
    /// A name that does not exist or means several things, parts that contradict each other, or
    /// no interface at all.
    pub fn choose(targets: &Targets, discovery: &Discovery) -> Result<Self, SelectionError> {
        let host = host(targets, discovery)?;
        let mut picker = Picker::new(discovery, host, targets.netns.is_some());
        targets.pnic.iter().try_for_each(|name| picker.named_physical(name))?;
        targets.vnic.iter().try_for_each(|name| picker.named_virtual(name))?;
        targets.pid.iter().try_for_each(|tgid| picker.process(*tgid))?;
        targets.container.iter().try_for_each(|id| picker.container(id))?;
        targets.names.iter().try_for_each(|name| picker.anything(name))?;
        if !picker.has_physical() {
            picker.find_physical();
        }
        if !targets.names_guests() {
            picker.find_virtual();
        }
        picker.finish(!targets.names_guests())
    }

    /// The interfaces that an earlier selection did not have: what is new after a
    /// [`Change`](super::Change).
    pub fn added_since<'a>(&'a self, before: &Self) -> impl Iterator<Item = &'a Chosen> {
        let old: HashSet<_> = before.chosen.iter().map(|chosen| chosen.interface.id).collect();
        self.chosen.iter().filter(move |chosen| !old.contains(&chosen.interface.id))
    }
}

/// `--netns`; else the namespace of a named process that no link joins to whylag's own, since
/// nothing that whylag could see from its own would concern it; else whylag's own.
fn host<'a>(targets: &Targets, discovery: &'a Discovery) -> Result<&'a Namespace, SelectionError> {
    if let Some(name) = &targets.netns {
        return named_namespace(name, discovery);
    }
    let home = discovery.home().ok_or_else(|| SelectionError::NoHome {
        reason: discovery
            .gaps
            .first()
            .map_or_else(|| "unknown".to_owned(), |gap| format!("{}: {}", gap.what, gap.reason)),
    })?;
    let words: Vec<Option<u32>> = targets.names.iter().map(|name| name.parse().ok()).collect();
    if !(targets.pnic.is_empty() && targets.vnic.is_empty() && words.iter().all(Option::is_some)) {
        return Ok(home);
    }
    let tgids = targets.pid.iter().copied().chain(words.into_iter().flatten());
    let by_pid = tgids.filter_map(|tgid| discovery.namespace_of(tgid));
    let by_container = targets.container.iter().filter_map(|id| container_namespace(id, discovery));
    let apart = by_pid.chain(by_container).find(|place| !is_joined(place, home, discovery));
    Ok(apart.unwrap_or(home))
}

fn container_namespace<'a>(id: &str, discovery: &'a Discovery) -> Option<&'a Namespace> {
    let container = discovery.containers.iter().find(|container| container.is_called(id))?;
    discovery.namespace(container.netns?)
}

/// Whether a namespace is the host, or has an interface tied to one of the host's.
fn is_joined(place: &Namespace, host: &Namespace, discovery: &Discovery) -> bool {
    let tied = |peer: super::model::Peer| peer.netns == Some(host.cookie);
    place.cookie == host.cookie
        || discovery.interfaces_in(place.cookie).any(|interface| interface.peer.is_some_and(tied))
}

fn named_namespace<'a>(name: &str, discovery: &'a Discovery) -> Result<&'a Namespace, SelectionError> {
    let by_name = |place: &&Namespace| place.name.as_deref() == Some(name) || place.path.as_os_str() == name;
    let by_pid = || name.parse().ok().and_then(|tgid| discovery.namespace_of(tgid));
    let by_inode = || {
        let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(name).ok().filter(|_| name.contains('/'))?);
        discovery.namespaces.iter().find(|place| place.inode == inode)
    };
    let found = discovery.namespaces.iter().find(by_name).or_else(by_pid).or_else(by_inode);
    found.ok_or_else(|| SelectionError::UnknownNamespace {
        name: name.to_owned(),
        hint: Hint::new(name, discovery.namespaces.iter().map(Namespace::display_name)),
        gaps: discovery.gaps.iter().map(|gap| format!("{}: {}", gap.what, gap.reason)).collect(),
    })
}
