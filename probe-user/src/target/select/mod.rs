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
mod way_out;

use super::discovery::Discovery;
use super::model::Namespace;
use crate::event::InterfaceFact;
use picker::Picker;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
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

    /// The same after interfaces of the host were renamed: who named one meant that one.
    #[must_use]
    pub fn renamed(&self, names: &BTreeMap<String, String>) -> Self {
        let now = |name: &str| names.get(name).map_or(name, String::as_str).to_owned();
        let labelled = |typed: &String| match typed.split_once('=') {
            Some((name, label)) => format!("{}={label}", now(name)),
            None => now(typed),
        };
        Self {
            pnic: self.pnic.iter().map(|name| now(name)).collect(),
            vnic: self.vnic.iter().map(labelled).collect(),
            names: self.names.iter().map(|name| now(name)).collect(),
            ..self.clone()
        }
    }

    fn named(&self) -> impl Iterator<Item = Named<'_>> {
        let physical = self.pnic.iter().map(|name| Named::Physical(name));
        let processes = self.pid.iter().map(|tgid| Named::Process(*tgid));
        physical
            .chain(self.vnic.iter().map(|name| Named::Virtual(name)))
            .chain(processes)
            .chain(self.container.iter().map(|id| Named::Container(id)))
            .chain(self.names.iter().map(|name| Named::Word(name)))
    }
}

/// One thing that was named.
enum Named<'a> {
    Physical(&'a str),
    Virtual(&'a str),
    Process(u32),
    Container(&'a str),
    Word(&'a str),
}

/// What was searched for, since nothing named it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Searched {
    /// The physical NICs.
    pub physical: bool,
    /// The virtual ones: new ones are to be added as they appear.
    pub guests: bool,
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
    /// What was found rather than named.
    pub searched: Searched,
    /// What was chosen, what was left out, and why: sentences for the operator.
    pub reasons: Vec<String>,
}

impl Selection {
    /// Chooses.
    ///
    /// What is named replaces what would be found: `--pnic` the physical NICs; `--vnic`, `--pid`,
    /// `--container` and targets the virtual ones. With `--netns` every other interface of that
    /// namespace that could carry packets to the outside, veths included, is its physical NIC, unless
    /// the routes show that it leads to a guest.
    ///
    /// # Errors
    /// A name that does not exist or means several things, parts that contradict each other, or
    /// no interface at all.
    pub fn choose(targets: &Targets, discovery: &Discovery) -> Result<Self, SelectionError> {
        let host = host(targets, discovery)?;
        let mut picker = Picker::new(discovery, host, targets.netns.is_some());
        targets.named().try_for_each(|name| picker.named(&name))?;
        let searched = Searched { physical: !picker.has_physical(), guests: !targets.names_guests() };
        picker.search(searched);
        picker.nothing().map_or_else(|| Ok(picker.finish(searched)), Err)
    }

    /// Chooses anew on a later look at the same host, for a run that goes on. Of what was named, what is
    /// not there at the moment is left out, and nothing else takes its place; nothing at all may be left.
    /// `None` if the host's namespace is gone.
    #[must_use]
    pub fn again(&self, targets: &Targets, discovery: &Discovery) -> Option<Self> {
        let host = discovery.namespace(self.host)?;
        let mut picker = Picker::new(discovery, host, targets.netns.is_some());
        for name in targets.named() {
            // What contradicts an earlier choice has not been chosen either.
            let _ = picker.named(&name);
        }
        picker.search(self.searched);
        Some(picker.finish(self.searched))
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
