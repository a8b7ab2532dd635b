//! The few things about an interface that only netlink can tell or do.
//! Layouts: <https://man7.org/linux/man-pages/man7/rtnetlink.7.html>.

use std::{collections::HashMap, io, os::fd::OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto, socket_with};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::level::Measure;

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_GETTFILTER: u16 = 46;
const RTM_NEWSTATS: u16 = 92;
const RTM_GETSTATS: u16 = 94;
/// Of `RTM_GETSTATS`: the attribute with `struct rtnl_link_stats64`, and the mask that asks for it alone.
const IFLA_STATS_LINK_64: u16 = 1;
const LINK_64: u32 = 1;
const TCA_KIND: u16 = 1;
const TCA_STATS2: u16 = 7;
const TCA_STATS_QUEUE: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
/// `TC_H_CLSACT`, with its two sides.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const SIDES: [u32; 2] = [0xffff_fff2, 0xffff_fff3];
/// So many interfaces are asked about one by one.
const FEW: usize = 8;
/// A kernel answer fits in a page; dumps come in pieces of up to 32 KiB.
const ANSWER_BYTES: usize = 1 << 15;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    len: u32,
    kind: u16,
    flags: u16,
    seq: u32,
    port: u32,
}

/// `struct ifinfomsg`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct LinkMessage {
    family: u8,
    reserved: u8,
    hardware: u16,
    ifindex: u32,
    flags: u32,
    change: u32,
}

/// `struct tcmsg`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TcMessage {
    family: u8,
    reserved: [u8; 3],
    ifindex: u32,
    handle: u32,
    parent: u32,
    info: u32,
}

/// `struct if_stats_msg`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StatsMessage {
    family: u8,
    reserved: [u8; 3],
    ifindex: u32,
    filter: u32,
}

/// What can be counted of a link and matters, by its place in `struct rtnl_link_stats64`.
/// <https://github.com/torvalds/linux/blob/v6.12/include/uapi/linux/if_link.h>
const LINK_COUNTERS: [(usize, &str); 13] = [
    (4, "rx_errors"),
    (5, "tx_errors"),
    (6, "rx_dropped"),
    (7, "tx_dropped"),
    (11, "rx_over_errors"),
    (12, "rx_crc_errors"),
    (14, "rx_fifo_errors"),
    (15, "rx_missed_errors"),
    (16, "tx_aborted_errors"),
    (17, "tx_carrier_errors"),
    (18, "tx_fifo_errors"),
    (20, "tx_window_errors"),
    (23, "rx_nohandler"),
];

/// `struct gnet_stats_queue`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct QueueStats {
    packets: u32,
    backlog: u32,
    drops: u32,
    requeues: u32,
    overlimits: u32,
}

/// A queueing discipline at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLevels {
    kind: String,
    handle: u32,
    parent: u32,
    levels: [(Measure, u32); 5],
}

impl QueueLevels {
    /// Such as `eth0 tbf 8001:`; of one without a handle, which the kernel makes for a queue, where it
    /// stands.
    #[must_use]
    pub fn title(&self, interface: &str) -> String {
        let Self { kind, handle, parent, .. } = self;
        match handle {
            0 => format!("{interface} {kind} at {:x}:{:x}", parent >> 16, parent & 0xffff),
            handle => format!("{interface} {kind} {:x}:", handle >> 16),
        }
    }

    /// Each number with what it measures.
    pub fn levels(&self) -> impl Iterator<Item = (Measure, u32)> {
        self.levels.into_iter()
    }
}

/// What an interface counts, by name.
pub(super) type LinkCounters = Vec<(&'static str, u64)>;

/// A socket in the namespace where it was opened, for several questions, and room for answers.
pub(super) struct Route {
    socket: OwnedFd,
    /// Number of the last question: what is left of the answers to one before is none to this.
    asked: u32,
    buffer: Vec<u8>,
}

impl Route {
    /// Opens one in the caller's namespace.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub(super) fn open() -> io::Result<Self> {
        // Without a protocol it is `NETLINK_ROUTE`.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, asked: 0, buffer: vec![0; ANSWER_BYTES] })
    }

    /// The queueing disciplines of these interfaces, by their indexes, with what waits in them and what
    /// they have counted. One question for all: the kernel tells of all interfaces whichever is asked for.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to say.
    pub(super) fn queues(&mut self, of: &[u32]) -> io::Result<HashMap<u32, Vec<QueueLevels>>> {
        let mut found: HashMap<u32, Vec<QueueLevels>> = of.iter().map(|ifindex| (*ifindex, Vec::new())).collect();
        self.ask(RTM_GETQDISC, NLM_F_DUMP, tc_message(0, 0, 0).as_bytes(), |kind, body| {
            let Ok((tc, attributes)) = TcMessage::read_from_prefix(body) else { return };
            if let Some(queues) = found.get_mut(&tc.ifindex).filter(|_| kind == RTM_NEWQDISC) {
                queues.extend(queue(tc, attributes));
            }
        })?;
        Ok(found)
    }

    /// What the kernel counts of these interfaces (`ip -s link`), by their indexes, and matters; older
    /// kernels count less. Those of few are asked for one by one: some drivers ask their hardware.
    ///
    /// # Errors
    ///
    /// When the kernel refuses to say; one of few that is gone is left out.
    pub(super) fn link_counters(&mut self, of: &[u32]) -> io::Result<HashMap<u32, LinkCounters>> {
        let mut found = HashMap::new();
        let mut take = |kind: u16, body: &[u8]| {
            let read = StatsMessage::read_from_prefix(body).ok().filter(|_| kind == RTM_NEWSTATS);
            found.extend(read.and_then(|(stats, attributes)| Some((stats.ifindex, counters(attributes)?))));
        };
        if of.len() > FEW {
            self.ask(RTM_GETSTATS, NLM_F_DUMP, stats_message(0).as_bytes(), take)?;
            return Ok(found);
        }
        for ifindex in of {
            match self.ask(RTM_GETSTATS, NLM_F_ACK, stats_message(*ifindex).as_bytes(), &mut take) {
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                other => other?,
            }
        }
        Ok(found)
    }

    /// Sends a request and hands out the kinds and bodies of the answers up to the end of the dump or the
    /// acknowledgement.
    fn ask(&mut self, kind: u16, flags: u16, body: &[u8], mut take: impl FnMut(u16, &[u8])) -> io::Result<()> {
        let Self { socket, asked, buffer } = self;
        *asked += 1;
        let len = u32::try_from(size_of::<Header>() + body.len()).map_err(io::Error::other)?;
        let header = Header { len, kind, flags: flags | NLM_F_REQUEST, seq: *asked, port: 0 };
        let message = [header.as_bytes(), body].concat();
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        sendto(&*socket, &message, SendFlags::empty(), &kernel)?;
        loop {
            let (len, _) = recv(&*socket, buffer.as_mut_slice(), RecvFlags::empty())?;
            let mut rest = buffer.get(..len).unwrap_or_default();
            while let Some((header, body)) = next(&mut rest) {
                match header.kind {
                    _ if header.seq != *asked => {}
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => return verdict(body),
                    kind => take(kind, body),
                }
            }
        }
    }
}

/// One of an interface's queueing disciplines.
fn queue(tc: TcMessage, attributes: &[u8]) -> Option<QueueLevels> {
    let kind = attribute(attributes, TCA_KIND)?.split(|byte| *byte == 0).next()?;
    let stats = attribute(attribute(attributes, TCA_STATS2)?, TCA_STATS_QUEUE)?;
    let (QueueStats { packets, backlog, drops, requeues, overlimits }, _) = QueueStats::read_from_prefix(stats).ok()?;
    let levels = [
        (Measure::Packets, packets),
        (Measure::Backlog, backlog),
        (Measure::Drops, drops),
        (Measure::Requeues, requeues),
        (Measure::Overlimits, overlimits),
    ];
    let kind = String::from_utf8_lossy(kind).into_owned();
    Some(QueueLevels { kind, handle: tc.handle, parent: tc.parent, levels })
}

fn counters(attributes: &[u8]) -> Option<LinkCounters> {
    let stats = attribute(attributes, IFLA_STATS_LINK_64)?;
    let value = |place: usize| u64::read_from_prefix(stats.get(place * 8..)?).ok().map(|(value, _)| value);
    Some(LINK_COUNTERS.iter().filter_map(|(place, name)| Some((*name, value(*place)?))).collect())
}

/// What an interface is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// Its kind of hardware, an `ARPHRD_*`.
    pub(super) hardware: u16,
    /// It is a tun or tap, or a tap on another device.
    pub(super) tun: bool,
}

/// What an interface is.
///
/// # Errors
///
/// When there is no such interface.
pub(super) fn link(ifindex: u32) -> io::Result<Link> {
    let body = LinkMessage { family: 0, reserved: 0, hardware: 0, ifindex, flags: 0, change: 0 };
    let mut found = None;
    Route::open()?.ask(RTM_GETLINK, NLM_F_ACK, body.as_bytes(), |kind, body| {
        let link = LinkMessage::read_from_prefix(body).ok().filter(|_| kind == RTM_NEWLINK);
        found = found.or(link.map(|(link, attributes)| {
            let kind = attribute(attributes, IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_KIND));
            Link { hardware: link.hardware, tun: matches!(kind, Some(b"tun\0" | b"macvtap\0")) }
        }));
    })?;
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// The value of the first attribute of this type.
fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    /// Flags beside the type: nested, and in network order.
    const TYPE: u16 = 0x3fff;
    loop {
        let (len, _) = u16::read_from_prefix(rest).ok()?;
        let (kind, _) = u16::read_from_prefix(rest.get(2..)?).ok()?;
        let len = usize::from(len);
        let value = rest.get(4..len)?;
        if kind & TYPE == wanted {
            return Some(value);
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

/// Whether an interface's `clsact` holds any filter.
///
/// # Errors
///
/// When the kernel refuses to say.
pub(super) fn has_filters(ifindex: u32) -> io::Result<bool> {
    Ok(!filters(ifindex)?.is_empty())
}

/// Numbers of the filters that an interface's `clsact` holds, 0 for each list of them.
///
/// # Errors
///
/// When the kernel refuses to say.
pub(super) fn filters(ifindex: u32) -> io::Result<Vec<u32>> {
    let (mut route, mut handles) = (Route::open()?, Vec::new());
    for parent in SIDES {
        route.ask(RTM_GETTFILTER, NLM_F_DUMP, tc_message(ifindex, 0, parent).as_bytes(), |kind, body| {
            let filter = TcMessage::read_from_prefix(body).ok().filter(|_| kind == RTM_NEWTFILTER);
            handles.extend(filter.map(|(filter, _)| filter.handle));
        })?;
    }
    Ok(handles)
}

/// Removes an interface's `clsact` and all that it holds.
///
/// # Errors
///
/// When there is none or the kernel refuses.
pub(super) fn remove_clsact(ifindex: u32) -> io::Result<()> {
    let body = tc_message(ifindex, CLSACT_HANDLE, CLSACT);
    Route::open()?.ask(RTM_DELQDISC, NLM_F_ACK, body.as_bytes(), |_, _| ())
}

fn tc_message(ifindex: u32, handle: u32, parent: u32) -> TcMessage {
    TcMessage { family: 0, reserved: [0; 3], ifindex, handle, parent, info: 0 }
}

fn stats_message(ifindex: u32) -> StatsMessage {
    StatsMessage { family: 0, reserved: [0; 3], ifindex, filter: LINK_64 }
}

/// Takes a message off the front; `None` at the end or when the rest is cut.
fn next<'a>(rest: &mut &'a [u8]) -> Option<(Header, &'a [u8])> {
    let (header, _) = Header::read_from_prefix(rest).ok()?;
    let len = header.len as usize;
    let body = rest.get(size_of::<Header>()..len)?;
    *rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((header, body))
}

/// The errno of an acknowledgement; 0 is success.
fn verdict(body: &[u8]) -> io::Result<()> {
    match i32::read_from_prefix(body) {
        Ok((0, _)) => Ok(()),
        Ok((errno, _)) => Err(io::Error::from_raw_os_error(errno.saturating_neg())),
        Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}
