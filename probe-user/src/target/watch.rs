//! When to look again: links that appear and vanish while whylag is attached.
//!
//! The kernel says so itself (rtnetlink multicast); nothing is polled. Only the host's namespace
//! is watched: the host end of every veth shows what happens behind it, and a socket kept open
//! in a container's namespace would keep that namespace alive after its container.

use super::discovery::Discovery;
use super::link::{self, Link, RTM_DELLINK, RTM_NEWLINK};
use super::model::Namespace;
use super::netlink::{Message, Socket};
use super::netns;
use crate::event::InterfaceId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// `RTMGRP_LINK`.
const LINK_GROUP: u32 = 1;

/// Something that changed in the host's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// An interface became able to pass packets: it was created or moved in, came up, or a VM
    /// opened it. Or it has another name now, or became a part of a bridge or bond, or left it.
    Appeared {
        /// Which.
        id: InterfaceId,
        /// Its name.
        name: String,
    },
    /// An interface was removed or moved out, went down, or its VM ended.
    Vanished {
        /// Which.
        id: InterfaceId,
        /// Its name.
        name: String,
    },
    /// The kernel had more to say than the socket could hold: anything may have changed.
    Unknown,
}

/// Watching for changes failed.
#[derive(Debug, Error)]
#[error("cannot hear of new interfaces in {namespace}; new VMs and containers need a restart of whylag")]
pub struct WatchError {
    /// The namespace.
    namespace: String,
    /// What the kernel said.
    source: io::Error,
}

/// Usable links by index, each with its name and the index of what it is a part of.
type Known = BTreeMap<u32, (String, Option<u32>)>;

/// A stream of [`Change`]s.
#[derive(Debug)]
pub struct Changes {
    socket: AsyncFd<Socket>,
    netns: u64,
    known: Known,
    pending: VecDeque<Change>,
    namespace: String,
}

fn readable(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    #[expect(unsafe_code, reason = "tokio 1.54 has no safe way to wait for a file that is not its own")]
    // SAFETY: the socket owns its descriptor, always returns that one, and stays open while the
    // `AsyncFd` owns the socket.
    let registered = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
    Ok(registered?)
}

impl Changes {
    /// Starts to listen in a namespace that was looked at a moment ago: what has changed there since is the
    /// first that is told. Must be called within a tokio runtime with I/O.
    ///
    /// # Errors
    /// The namespace cannot be entered, or has no rtnetlink for us.
    pub fn since(discovery: &Discovery, namespace: &Namespace) -> Result<Self, WatchError> {
        let failed = |source| WatchError { namespace: namespace.display_name(), source };
        let socket = netns::socket_in(namespace, LINK_GROUP).map_err(failed)?;
        let links = netns::socket_in(namespace, 0).and_then(|route| link::links(&route)).map_err(failed)?;
        let seen = discovery.interfaces_in(namespace.cookie).filter(|interface| interface.is_usable());
        let mut known: Known =
            seen.map(|interface| (interface.id.ifindex, (interface.name.clone(), interface.master))).collect();
        Ok(Self {
            socket: readable(socket).map_err(failed)?,
            netns: namespace.cookie,
            pending: catch_up(&mut known, namespace.cookie, links),
            known,
            namespace: namespace.display_name(),
        })
    }

    /// Waits for the next change. Nothing is lost when the future is dropped before its end.
    ///
    /// # Errors
    /// The socket failed; call no more.
    pub async fn next(&mut self) -> Result<Change, WatchError> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Ok(change);
            }
            let heard = self.hear().await;
            match heard {
                Ok(messages) => self.digest(&messages),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.pending.push_back(Change::Unknown),
                Err(source) => return Err(WatchError { namespace: self.namespace.clone(), source }),
            }
        }
    }

    async fn hear(&self) -> io::Result<Vec<Message>> {
        let mut ready = self.socket.readable().await?;
        let messages = self.socket.get_ref().heard()?;
        if messages.is_empty() {
            ready.clear_ready();
        }
        Ok(messages)
    }

    fn digest(&mut self, messages: &[Message]) {
        for message in messages {
            let change = Link::parse(message).and_then(|link| note(&mut self.known, self.netns, message.kind, link));
            self.pending.extend(change);
        }
    }
}

impl AsFd for Changes {
    /// Readable when there may be something to hear.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

/// What has changed until the links were these.
fn catch_up(known: &mut Known, netns: u64, links: Vec<Link>) -> VecDeque<Change> {
    let there: BTreeSet<u32> = links.iter().map(|link| link.ifindex).collect();
    let gone: Vec<u32> = known.keys().filter(|ifindex| !there.contains(ifindex)).copied().collect();
    let vanished: Vec<_> = gone.into_iter().filter_map(|ifindex| vanish(known, netns, ifindex)).collect();
    let noted = links.into_iter().filter_map(|link| note(known, netns, RTM_NEWLINK, link));
    vanished.into_iter().chain(noted).collect()
}

/// Keeps the set of usable links, and says when it changes: the kernel also announces every
/// new address, speed and queue length. An index under another name is another interface.
fn note(known: &mut Known, netns: u64, kind: u16, link: Link) -> Option<Change> {
    let id = InterfaceId { netns, ifindex: link.ifindex };
    match kind {
        RTM_NEWLINK if link.is_usable() => {
            let now = (link.name.clone(), link.master);
            let before = known.insert(link.ifindex, now.clone());
            (before.as_ref() != Some(&now)).then_some(Change::Appeared { id, name: link.name })
        }
        RTM_NEWLINK | RTM_DELLINK => vanish(known, netns, link.ifindex),
        _ => None,
    }
}

fn vanish(known: &mut Known, netns: u64, ifindex: u32) -> Option<Change> {
    known.remove(&ifindex).map(|(name, _)| Change::Vanished { id: InterfaceId { netns, ifindex }, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::LinkState;

    fn link(name: &str, up: bool, state: LinkState) -> Link {
        Link {
            ifindex: 7,
            name: name.to_owned(),
            kind: "tap".to_owned(),
            mtu: 1500,
            tx_queues: 1,
            rx_queues: 1,
            up,
            state,
            master: None,
            link: None,
            parent: None,
        }
    }

    #[test]
    fn a_tap_appears_when_a_vm_opens_it_and_only_once() {
        let mut known = BTreeMap::new();
        let id = InterfaceId { netns: 1, ifindex: 7 };
        let mut hear = |kind, link| note(&mut known, 1, kind, link);
        assert_eq!(hear(RTM_NEWLINK, link("tap0", true, LinkState::Down)), None);
        let appeared = Change::Appeared { id, name: "tap0".to_owned() };
        assert_eq!(hear(RTM_NEWLINK, link("tap0", true, LinkState::Unknown)), Some(appeared));
        assert_eq!(hear(RTM_NEWLINK, link("tap0", true, LinkState::Up)), None);
        let renamed = Change::Appeared { id, name: "web0".to_owned() };
        assert_eq!(hear(RTM_NEWLINK, link("web0", true, LinkState::Up)), Some(renamed));
        let vanished = Change::Vanished { id, name: "web0".to_owned() };
        assert_eq!(hear(RTM_NEWLINK, link("web0", false, LinkState::Down)), Some(vanished));
        assert_eq!(hear(RTM_DELLINK, link("web0", false, LinkState::Down)), None);
    }

    #[test]
    fn what_changed_between_a_look_and_the_first_listening_is_told() {
        let up = |ifindex, name: &str, master| Link { ifindex, master, ..link(name, true, LinkState::Up) };
        let before = [up(1, "lo", None), up(2, "v0", None), up(3, "old0", None)];
        let mut known: Known = before.into_iter().map(|link| (link.ifindex, (link.name, link.master))).collect();
        let now = vec![up(1, "lo", None), up(2, "v0", Some(9)), up(4, "p0", None)];
        let told: Vec<Change> = catch_up(&mut known, 1, now.clone()).into();
        let id = |ifindex| InterfaceId { netns: 1, ifindex };
        assert_eq!(
            told,
            [
                Change::Vanished { id: id(3), name: "old0".to_owned() },
                Change::Appeared { id: id(2), name: "v0".to_owned() },
                Change::Appeared { id: id(4), name: "p0".to_owned() },
            ]
        );
        assert_eq!(catch_up(&mut known, 1, now), [], "and told once");
    }
}
