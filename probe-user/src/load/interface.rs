//! Packet programs on interfaces, in whatever network namespace those are.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
};

use aya::{
    Ebpf,
    programs::{
        LinkOrder, Program, ProgramError, SchedClassifier, TcAttachType,
        tc::{self, NlOptions, SchedClassifierLinkId, TcAttachOptions, TcError, TcHandle},
    },
};
use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use super::{
    Attached, LoadError, Netns, Outcome,
    ethtool::{Drivers, Told},
    netlink,
    netlink::QueueLevels,
    netns, object, self_test,
};
use crate::hooks::{Attach, Choice, Direction};
use crate::target::namespace_cookie;

/// `ARPHRD_*` of the devices whose frames begin with an Ethernet header.
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/if_arp.h>
const ETHERNET_HARDWARE: [u16; 2] = [1, 772];

/// An interface to stamp packets at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attachment {
    /// Its network namespace; `None` for the caller's.
    pub netns: Option<Netns>,
    /// Its index there.
    pub ifindex: u32,
    /// Its name there, for messages; the index decides.
    pub name: String,
}

/// What has become of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// It is there, under this name.
    Named(String),
    /// One of its index is there under this name, without the programs that were attached: it is another
    /// one, or they were taken off it.
    Bare(String),
    /// It is not in its namespace.
    NoInterface,
    /// Its namespace is gone, or another one stands in its place.
    NoNamespace,
    /// The process by which its namespace was entered is gone; others may be there.
    NoWay,
    /// The kernel did not say.
    Unknown,
}

/// By what the programs of an interface are known there. An index and a name can be another
/// interface's by now; what was attached to the one before has gone with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// Numbers that the programs may have, of which TCX shows one.
    Programs(Vec<u32>),
    /// Number of the filters on `clsact`.
    Filter(u32),
}

impl Mark {
    /// Whether it is at the interface of this index and name in the caller's namespace; true where the
    /// kernel does not say.
    fn is_at(&self, ifindex: u32, name: &str) -> bool {
        match self {
            Self::Programs(ids) => SchedClassifier::query_tcx(name, TcAttachType::Egress)
                .map_or(true, |(_, programs)| programs.iter().any(|program| ids.contains(&program.id()))),
            Self::Filter(handle) => netlink::filters(ifindex).map_or(true, |filters| filters.contains(handle)),
        }
    }
}

/// Looks for an interface in its namespace, which has this cookie.
#[must_use]
pub fn presence(attachment: &Attachment, netns_cookie: u64) -> Presence {
    let alone = presences(attachment.netns.as_ref(), netns_cookie, &[(attachment.ifindex, None)]);
    alone.into_iter().next().unwrap_or(Presence::Unknown)
}

/// Looks for interfaces of one namespace, which has this cookie: what is known of each, in their order.
#[must_use]
pub fn presences(netns: Option<&Netns>, netns_cookie: u64, interfaces: &[(u32, Option<&Mark>)]) -> Vec<Presence> {
    let all = |presence: Presence| vec![presence; interfaces.len()];
    let look = || {
        let Ok(socket) = socket(AddressFamily::INET, SocketType::DGRAM, None) else { return all(Presence::Unknown) };
        if namespace_cookie(socket.as_fd()).is_some_and(|cookie| cookie != netns_cookie) {
            return all(Presence::NoNamespace);
        }
        interfaces.iter().map(|(ifindex, mark)| presence_here(&socket, *ifindex, *mark)).collect()
    };
    match netns::inside(netns, look) {
        Ok(presences) => presences,
        Err(error) if is_no_namespace(&error) => match netns {
            Some(netns) if netns.path().starts_with("/proc") => all(Presence::NoWay),
            _ => all(Presence::NoNamespace),
        },
        Err(_) => all(Presence::Unknown),
    }
}

/// Looks for an interface in the namespace of a socket, which is the caller's.
fn presence_here(socket: &OwnedFd, ifindex: u32, mark: Option<&Mark>) -> Presence {
    match netdevice::index_to_name(socket, ifindex) {
        Ok(name) if mark.is_some_and(|mark| !mark.is_at(ifindex, &name)) => Presence::Bare(name),
        Ok(name) => Presence::Named(name),
        Err(rustix::io::Errno::NODEV | rustix::io::Errno::NXIO) => Presence::NoInterface,
        Err(_) => Presence::Unknown,
    }
}

/// What the queues of an interface hold, and what was counted of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceLevels {
    /// Its queueing disciplines.
    pub queues: Vec<QueueLevels>,
    /// What the kernel counts of it, by name.
    pub link: Vec<(&'static str, u64)>,
    /// What its driver tells.
    pub driver: Told,
}

/// The queues of interfaces of one namespace, in their order: what waits in their queueing disciplines,
/// and what was counted of them. What the kernel refuses to say is left out.
///
/// # Errors
///
/// When the namespace is gone.
pub fn levels_of(attachments: &[&Attachment], drivers: &mut Drivers) -> io::Result<Vec<InterfaceLevels>> {
    let netns = attachments.first().and_then(|attachment| attachment.netns.as_ref());
    netns::inside(netns, || levels_here(attachments, drivers))?
}

fn levels_here(attachments: &[&Attachment], drivers: &mut Drivers) -> io::Result<Vec<InterfaceLevels>> {
    let indexes: Vec<u32> = attachments.iter().map(|attachment| attachment.ifindex).collect();
    let mut route = netlink::Route::open()?;
    let mut queues = route.queues(&indexes).unwrap_or_default();
    let mut link = route.link_counters(&indexes).unwrap_or_default();
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let levels = attachments.iter().map(|attachment| InterfaceLevels {
        queues: queues.remove(&attachment.ifindex).unwrap_or_default(),
        link: link.remove(&attachment.ifindex).unwrap_or_default(),
        driver: drivers.read(&socket, attachment).unwrap_or_default(),
    });
    Ok(levels.collect())
}

/// The file that stood for a namespace is gone, or only its empty place is left.
fn is_no_namespace(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::EINVAL))
}

/// An interface whose packets are stamped.
#[derive(Debug)]
pub struct AttachedInterface {
    /// What was asked for.
    pub attachment: Attachment,
    /// Cookie of its network namespace, as packet events have it.
    pub netns_cookie: u64,
    /// How the programs are attached.
    pub attach: &'static str,
    links: Vec<Link>,
    /// Number of its filters on `clsact`, of no other interface's: aya tells filters apart by the
    /// interface's index and this, and two namespaces can have the same index.
    handle: TcHandle,
    mark: Mark,
    /// Whether `clsact` was not there before.
    added_clsact: bool,
}

#[derive(Debug)]
struct Link {
    program: &'static str,
    id: SchedClassifierLinkId,
}

impl Attached {
    /// Attaches the packet programs to an interface.
    ///
    /// # Errors
    ///
    /// When its namespace or the interface is gone, or the kernel refuses the programs. Nothing
    /// stays attached to it then.
    pub fn attach_interface(&mut self, attachment: &Attachment) -> Result<(), LoadError> {
        let mut choices: Vec<Choice> = self.hooks.iter().filter_map(|state| packet_choice(&state.outcome)).collect();
        // The way out first: a check that came in is then seen to leave, and stays not open.
        choices.sort_by_key(|choice| is_ingress(choice.attach));
        let Self { ebpf, hooks, next_handle, interfaces, .. } = self;
        *next_handle += 1;
        let handle = TcHandle::from(*next_handle);
        let work = || {
            let found = look_up(attachment)?;
            if found.link.tun {
                super::attach_waiting(ebpf, hooks);
            }
            attach_here(ebpf, attachment, &choices, &found, handle)
        };
        let inside = netns::inside(attachment.netns.as_ref(), work);
        interfaces.push(inside.map_err(|source| cannot_enter(attachment, source))??);
        self.tell_devices()
    }

    /// By what the programs of each interface are known there.
    #[must_use]
    pub fn marks(&self) -> HashMap<&Attachment, &Mark> {
        self.interfaces.iter().map(|interface| (&interface.attachment, &interface.mark)).collect()
    }

    /// Detaches the packet programs from an interface, which may be gone already. False when they
    /// are not attached to it.
    pub fn detach_interface(&mut self, attachment: &Attachment) -> bool {
        let found = self.interfaces.iter().position(|one| one.attachment == *attachment);
        let Some(index) = found else { return false };
        let interface = self.interfaces.swap_remove(index);
        detach(&mut self.ebpf, interface);
        // A bit that stays set costs the counting of packets that nobody asks for.
        let _ = self.tell_devices();
        true
    }
}

impl Attached {
    /// Makes final what the programs have emitted, which are [silent](Self::silence) by now. They stay on
    /// the host until this value is dropped: taking them off hundreds of interfaces takes seconds. To take
    /// them off one, the kernel waits until every program has ended that ran then.
    /// <https://github.com/torvalds/linux/blob/v6.12/include/net/tcx.h#L110> (`tcx_entry_sync`)
    pub fn end(&mut self) {
        match self.interfaces.pop() {
            Some(interface) if interface.attach == Attach::Tcx(Direction::Egress).name() => {
                self.skipped_runs = Some(self.skipped_runs());
                detach(&mut self.ebpf, interface);
            }
            other => {
                self.interfaces.extend(other);
                self.detach();
            }
        }
    }

    /// Takes every program off the host. Maps and counters stay readable: what the programs have
    /// emitted until now is final.
    pub fn detach(&mut self) {
        self.skipped_runs = Some(self.skipped_runs());
        for interface in self.interfaces.drain(..) {
            detach(&mut self.ebpf, interface);
        }
        for (_, program) in self.ebpf.programs_mut() {
            // A program that was never loaded has nothing to unload.
            let _ = match program {
                Program::BtfTracePoint(program) => program.unload(),
                Program::TracePoint(program) => program.unload(),
                Program::SchedClassifier(program) => program.unload(),
                _ => Ok(()),
            };
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        for interface in self.interfaces.drain(..) {
            detach(&mut self.ebpf, interface);
        }
    }
}

fn packet_choice(outcome: &Outcome) -> Option<Choice> {
    match outcome {
        Outcome::Attached(choice) => match choice.attach {
            Attach::Tcx(_) | Attach::Clsact(_) => Some(*choice),
            Attach::BtfTracepoint { .. } | Attach::TailCall { .. } | Attach::Tracepoint { .. } | Attach::CpuClock => {
                None
            }
        },
        Outcome::Waiting(_) | Outcome::Refused(_) | Outcome::Excluded => None,
    }
}

fn cannot_enter(attachment: &Attachment, source: io::Error) -> LoadError {
    let netns = attachment.netns.as_ref().map(Netns::to_string).unwrap_or_default();
    LoadError::Netns { netns, source }
}

fn attach_here(
    ebpf: &mut Ebpf,
    attachment: &Attachment,
    choices: &[Choice],
    found: &Found,
    handle: TcHandle,
) -> Result<AttachedInterface, LoadError> {
    let name = &found.name;
    let mut interface = AttachedInterface {
        attachment: attachment.clone(),
        netns_cookie: self_test::netns_cookie(ebpf)?,
        attach: choices.first().map_or("none", |choice| choice.attach.name()),
        links: Vec::new(),
        handle,
        mark: Mark::Programs(Vec::new()),
        added_clsact: false,
    };
    for choice in choices {
        let program = program_for(choice.attach, found.link.hardware);
        match attach(ebpf, &mut interface, program, name, choice.attach) {
            Ok(id) => interface.links.push(Link { program, id }),
            Err(source) => {
                detach_here(ebpf, interface);
                return Err(LoadError::Attach {
                    program,
                    name: name.clone(),
                    attach: choice.attach.name(),
                    source: Box::new(source),
                });
            }
        }
    }
    interface.mark = mark(ebpf, &interface);
    Ok(interface)
}

fn mark(ebpf: &Ebpf, interface: &AttachedInterface) -> Mark {
    if interface.attach == Attach::Clsact(Direction::Egress).name() {
        return Mark::Filter(interface.handle.into());
    }
    let program = |link: &Link| ebpf.program(link.program)?.info().ok().map(|info| info.id());
    Mark::Programs(interface.links.iter().filter_map(program).collect())
}

/// An interface as it is now.
struct Found {
    name: String,
    link: netlink::Link,
}

fn look_up(attachment: &Attachment) -> Result<Found, LoadError> {
    let find = || {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        let name = netdevice::index_to_name(&socket, attachment.ifindex)?;
        Ok(Found { name, link: netlink::link(attachment.ifindex)? })
    };
    find().map_err(|source| LoadError::Interface { name: attachment.name.clone(), ifindex: attachment.ifindex, source })
}

/// The program for what the frames of this hardware begin with.
fn program_for(attach: Attach, hardware: u16) -> &'static str {
    let ethernet = ETHERNET_HARDWARE.contains(&hardware);
    match (is_ingress(attach), ethernet) {
        (true, true) => "stamp_ingress",
        (true, false) => "stamp_in_ip",
        (false, true) => "stamp_egress",
        (false, false) => "stamp_out_ip",
    }
}

fn is_ingress(attach: Attach) -> bool {
    matches!(attach, Attach::Tcx(Direction::Ingress) | Attach::Clsact(Direction::Ingress))
}

fn attach(
    ebpf: &mut Ebpf,
    interface: &mut AttachedInterface,
    program: &str,
    name: &str,
    attach: Attach,
) -> Result<SchedClassifierLinkId, ProgramError> {
    object::load_classifier(ebpf, program)?;
    let side = if is_ingress(attach) { TcAttachType::Ingress } else { TcAttachType::Egress };
    let options = if matches!(attach, Attach::Clsact(_)) {
        interface.added_clsact |= add_clsact(name)?;
        TcAttachOptions::Netlink(NlOptions { handle: interface.handle, ..NlOptions::default() })
    } else {
        // Before the programs that are there: those may redirect a packet or end its way.
        TcAttachOptions::TcxOrder(LinkOrder::first())
    };
    classifier(ebpf, program)?.attach_with_options(name, side, options)
}

fn classifier<'a>(ebpf: &'a mut Ebpf, program: &str) -> Result<&'a mut SchedClassifier, ProgramError> {
    ebpf.program_mut(program).ok_or(ProgramError::NotLoaded)?.try_into()
}

/// Adds `clsact`; false when it is there already.
fn add_clsact(name: &str) -> Result<bool, ProgramError> {
    match tc::qdisc_add_clsact(name) {
        Ok(()) => Ok(true),
        Err(TcError::AlreadyAttached) => Ok(false),
        Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Detaches from an interface, if need be in its namespace. If that is gone, so are its interfaces.
fn detach(ebpf: &mut Ebpf, interface: AttachedInterface) {
    // A link knows what it is on.
    if interface.attach == Attach::Tcx(Direction::Egress).name() {
        return detach_here(ebpf, interface);
    }
    let netns = interface.attachment.netns.clone();
    let _ = netns::inside(netns.as_ref(), || detach_here(ebpf, interface));
}

/// Failures mean that the interface, or what was on it, is gone, which is what was wanted.
fn detach_here(ebpf: &mut Ebpf, interface: AttachedInterface) {
    let ifindex = interface.attachment.ifindex;
    for link in interface.links {
        let _ = classifier(ebpf, link.program).and_then(|program| program.detach(link.id));
    }
    if interface.added_clsact && matches!(netlink::has_filters(ifindex), Ok(false)) {
        let _ = netlink::remove_clsact(ifindex);
    }
}
