//! Interfaces of one network namespace, read through rtnetlink and ethtool netlink.
//!
//! Nothing is read from `/sys/class/net`: that shows the namespace in which sysfs was mounted,
//! which need not be the one asked about.

use super::model::{LinkState, Offloads, QueueLimits, Rings};
use super::netlink::{self, Message, Socket, attribute, attributes, push_attribute, push_nested, text, u32_at};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

pub(super) const RTM_NEWLINK: u16 = 16;
pub(super) const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_GETROUTE: u16 = 26;
const RTM_GETNSID: u16 = 90;
/// Bytes of `struct ifinfomsg`.
const IFINFOMSG: usize = 16;
/// Bytes of `struct rtmsg`.
const RTMSG: usize = 12;
/// Bytes of `struct rtgenmsg`, padded.
const RTGENMSG: usize = 4;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_PARENT_DEV_NAME: u16 = 56;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_TUN_TYPE: u16 = 3;
const IFLA_TUN_NUM_QUEUES: u16 = 8;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
const AF_UNSPEC: u8 = 0;
const IFF_UP: u32 = 1;
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

/// A link as one message tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) ifindex: u32,
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) mtu: u32,
    pub(super) tx_queues: u32,
    pub(super) rx_queues: u32,
    pub(super) up: bool,
    pub(super) state: LinkState,
    pub(super) master: Option<u32>,
    /// Peer or lower device, and the number by which this namespace knows the other's
    /// namespace; `None`: the same namespace.
    pub(super) link: Option<(u32, Option<i32>)>,
    /// Bus and device name of the hardware behind it.
    pub(super) parent: Option<(String, String)>,
}

impl Link {
    /// Up and not known to be unable to pass packets.
    pub(super) fn is_usable(&self) -> bool {
        self.up && matches!(self.state, LinkState::Up | LinkState::Unknown)
    }

    /// Reads an `RTM_NEWLINK` or `RTM_DELLINK` message. `None` also for those of other families:
    /// a bridge reports with `AF_BRIDGE` that a port left it, not that the port is gone.
    pub(super) fn parse(message: &Message) -> Option<Self> {
        let bytes = message.payload.as_slice();
        bytes.first().filter(|family| **family == AF_UNSPEC)?;
        let get = |kind| attribute(bytes, IFINFOMSG, kind);
        let number = |kind| get(kind).and_then(|value| u32_at(value, 0));
        let device_type = netlink::u16_at(bytes, 2)?;
        let info = get(IFLA_LINKINFO).unwrap_or_default();
        let data = attribute(info, 0, IFLA_INFO_DATA).unwrap_or_default();
        let kind = kind_of(device_type, attribute(info, 0, IFLA_INFO_KIND).map(text), data);
        let tun_queues = is_tun(&kind).then(|| attribute(data, 0, IFLA_TUN_NUM_QUEUES)).flatten();
        let queues = tun_queues.and_then(|value| u32_at(value, 0));
        Some(Self {
            ifindex: u32_at(bytes, 4)?,
            name: text(get(IFLA_IFNAME)?),
            kind,
            mtu: number(IFLA_MTU).unwrap_or(0),
            tx_queues: queues.or_else(|| number(IFLA_NUM_TX_QUEUES)).unwrap_or(0),
            rx_queues: queues.or_else(|| number(IFLA_NUM_RX_QUEUES)).unwrap_or(0),
            up: u32_at(bytes, 8)? & IFF_UP != 0,
            state: get(IFLA_OPERSTATE).and_then(|value| value.first()).map_or(LinkState::Unknown, |n| state_of(*n)),
            master: number(IFLA_MASTER),
            link: number(IFLA_LINK).map(|index| (index, number(IFLA_LINK_NETNSID).map(u32::cast_signed))),
            parent: get(IFLA_PARENT_DEV_BUS_NAME).map(text).zip(get(IFLA_PARENT_DEV_NAME).map(text)),
        })
    }
}

fn is_tun(kind: &str) -> bool {
    matches!(kind, "tun" | "tap")
}

/// The kernel's own kind; a tun device says in its data whether it is a tap (2) or a tun (1).
fn kind_of(device_type: u16, kind: Option<String>, data: &[u8]) -> String {
    match (kind.as_deref(), device_type) {
        (Some("tun"), _) => {
            let tap = attribute(data, 0, IFLA_TUN_TYPE).and_then(|value| value.first().copied()) == Some(2)
                || device_type == ARPHRD_ETHER;
            if tap { "tap".to_owned() } else { "tun".to_owned() }
        }
        (Some(kind), _) => kind.to_owned(),
        (None, ARPHRD_ETHER) => "ether".to_owned(),
        (None, ARPHRD_LOOPBACK) => "loopback".to_owned(),
        (None, other) => format!("type{other}"),
    }
}

/// `IF_OPER_*` of RFC 2863.
const fn state_of(number: u8) -> LinkState {
    match number {
        6 => LinkState::Up,
        2 => LinkState::Down,
        3 => LinkState::LowerLayerDown,
        5 => LinkState::Dormant,
        _ => LinkState::Unknown,
    }
}

/// All links of the socket's namespace.
pub(super) fn links(route: &Socket) -> io::Result<Vec<Link>> {
    Ok(route.dump(RTM_GETLINK, &[0; IFINFOMSG])?.iter().filter_map(Link::parse).collect())
}

/// Interfaces by which packets to the world outside leave: a route lookup for one public address
/// each of IPv4 and IPv6. Nothing is sent. A lookup, since a dump of a router's table can take
/// seconds.
pub(super) fn outward(route: &Socket) -> Vec<u32> {
    const PUBLIC_V4: [u8; 4] = [1, 1, 1, 1];
    const PUBLIC_V6: [u8; 16] = [0x26, 6, 0x47, 0, 0x47, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 0x11];
    let v4 = route_to(route, 2, &PUBLIC_V4);
    let v6 = route_to(route, 10, &PUBLIC_V6).filter(|index| Some(*index) != v4);
    v4.into_iter().chain(v6).collect()
}

fn route_to(route: &Socket, family: u8, address: &[u8]) -> Option<u32> {
    let bits = u8::try_from(address.len() * 8).ok()?;
    let mut payload = vec![family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    push_attribute(&mut payload, RTA_DST, address);
    let answers = route.ask(RTM_GETROUTE, &payload).ok()?;
    answers.iter().find_map(|message| u32_at(attribute(&message.payload, RTMSG, RTA_OIF)?, 0))
}

/// The number by which the socket's namespace knows the namespace behind `other`, if it has one.
pub(super) fn namespace_number(route: &Socket, other: &impl AsFd) -> Option<i32> {
    let mut payload = vec![0; RTGENMSG];
    push_attribute(&mut payload, NETNSA_FD, &other.as_fd().as_raw_fd().to_ne_bytes());
    let answers = route.ask(RTM_GETNSID, &payload).ok()?;
    let number = answers.iter().find_map(|message| u32_at(attribute(&message.payload, RTGENMSG, NETNSA_NSID)?, 0))?;
    Some(number.cast_signed()).filter(|number| *number >= 0)
}

/// What ethtool adds: queues in use, offloads and rings, by interface index.
#[derive(Debug, Default)]
pub(super) struct EthtoolTables {
    pub(super) channels: HashMap<u32, Channels>,
    pub(super) offloads: HashMap<u32, Offloads>,
    pub(super) rings: HashMap<u32, Rings>,
}

/// Queues in use, and how many there could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Channels {
    pub(super) tx: u32,
    pub(super) rx: u32,
    pub(super) limits: QueueLimits,
}

const GENL_CTRL: u16 = 0x10;
const CTRL_GETFAMILY: u8 = 3;
const CTRL_FAMILY_ID: u16 = 1;
const CTRL_FAMILY_NAME: u16 = 2;
/// Bytes of `struct genlmsghdr`.
const GENLMSGHDR: usize = 4;
const ETHTOOL_FEATURES_GET: u8 = 11;
const ETHTOOL_RINGS_GET: u8 = 15;
const ETHTOOL_CHANNELS_GET: u8 = 17;
const ETHTOOL_HEADER: u16 = 1;
const ETHTOOL_HEADER_INDEX: u16 = 1;
const FEATURES_ACTIVE: u16 = 4;
const CHANNELS_RX_MAX: u16 = 2;
const CHANNELS_COMBINED_MAX: u16 = 5;
const CHANNELS_RX: u16 = 6;
const CHANNELS_TX: u16 = 7;
const CHANNELS_COMBINED: u16 = 9;
const RINGS_RX_MAX: u16 = 2;
const RINGS_TX_MAX: u16 = 5;
const RINGS_RX: u16 = 6;
const RINGS_TX: u16 = 9;
const BITSET_BITS: u16 = 3;
const BITSET_BIT: u16 = 1;
const BIT_NAME: u16 = 2;

impl EthtoolTables {
    /// Reads the tables of the current thread's namespace. Kernels before 5.8 have no ethtool
    /// netlink; then they are empty.
    pub(super) fn read() -> io::Result<Self> {
        let socket = Socket::open(Some(rustix::net::netlink::GENERIC), 0)?;
        let family = ethtool_family(&socket)?;
        let features = socket.dump(family, &ethtool_request(ETHTOOL_FEATURES_GET)).unwrap_or_default();
        let channels = socket.dump(family, &ethtool_request(ETHTOOL_CHANNELS_GET)).unwrap_or_default();
        let rings = socket.dump(family, &ethtool_request(ETHTOOL_RINGS_GET)).unwrap_or_default();
        Ok(Self {
            channels: channels.iter().filter_map(|m| Some((device_of(m)?, channels_of(m)))).collect(),
            offloads: features.iter().filter_map(|m| Some((device_of(m)?, offloads_of(m)))).collect(),
            rings: rings.iter().filter_map(|m| Some((device_of(m)?, rings_of(m)))).collect(),
        })
    }
}

fn rings_of(message: &Message) -> Rings {
    let count = |kind| attribute(&message.payload, GENLMSGHDR, kind).and_then(|value| u32_at(value, 0)).unwrap_or(0);
    Rings { rx: count(RINGS_RX), tx: count(RINGS_TX), most_rx: count(RINGS_RX_MAX), most_tx: count(RINGS_TX_MAX) }
}

fn ethtool_family(socket: &Socket) -> io::Result<u16> {
    let mut payload = vec![CTRL_GETFAMILY, 1, 0, 0];
    push_attribute(&mut payload, CTRL_FAMILY_NAME, b"ethtool\0");
    let answers = socket.ask(GENL_CTRL, &payload)?;
    answers
        .iter()
        .find_map(|m| netlink::u16_at(attribute(&m.payload, GENLMSGHDR, CTRL_FAMILY_ID)?, 0))
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

fn ethtool_request(command: u8) -> Vec<u8> {
    let mut payload = vec![command, 1, 0, 0];
    push_nested(&mut payload, ETHTOOL_HEADER, &[]);
    payload
}

fn device_of(message: &Message) -> Option<u32> {
    let header = attribute(&message.payload, GENLMSGHDR, ETHTOOL_HEADER)?;
    u32_at(attribute(header, 0, ETHTOOL_HEADER_INDEX)?, 0)
}

fn channels_of(message: &Message) -> Channels {
    let count = |kind| attribute(&message.payload, GENLMSGHDR, kind).and_then(|value| u32_at(value, 0)).unwrap_or(0);
    let combined = count(CHANNELS_COMBINED);
    let limits = QueueLimits { combined: count(CHANNELS_COMBINED_MAX), rx: count(CHANNELS_RX_MAX) };
    Channels { tx: count(CHANNELS_TX) + combined, rx: count(CHANNELS_RX) + combined, limits }
}

fn offloads_of(message: &Message) -> Offloads {
    let active = attribute(&message.payload, GENLMSGHDR, FEATURES_ACTIVE).unwrap_or_default();
    let bits = attribute(active, 0, BITSET_BITS).unwrap_or_default();
    let names: Vec<String> = attributes(bits, 0)
        .filter(|(kind, _)| *kind == BITSET_BIT)
        .filter_map(|(_, bit)| attribute(bit, 0, BIT_NAME).map(text))
        .collect();
    let on = |name: &str| names.iter().any(|active| active == name);
    Offloads {
        gro: on("rx-gro"),
        gso: on("tx-generic-segmentation"),
        tso: on("tx-tcp-segmentation"),
        lro: on("rx-lro"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(device_type: u16, parts: &[(u16, &[u8])]) -> Message {
        let mut payload = vec![0, 0];
        payload.extend(device_type.to_ne_bytes());
        payload.extend(7i32.to_ne_bytes());
        payload.extend(IFF_UP.to_ne_bytes());
        payload.extend([0; 4]);
        for (kind, value) in parts {
            push_attribute(&mut payload, *kind, value);
        }
        Message { kind: RTM_NEWLINK, flags: 0, payload }
    }

    fn info(kind: &[u8], data: &[(u16, &[u8])]) -> Vec<u8> {
        let mut inner = Vec::new();
        for (number, value) in data {
            push_attribute(&mut inner, *number, value);
        }
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, IFLA_INFO_KIND, kind);
        push_nested(&mut bytes, IFLA_INFO_DATA, &inner);
        bytes
    }

    #[test]
    fn a_tap_counts_its_own_queues() {
        let info = info(b"tun\0", &[(IFLA_TUN_TYPE, &[2]), (IFLA_TUN_NUM_QUEUES, &4u32.to_ne_bytes())]);
        let parts: [(u16, &[u8]); 3] =
            [(IFLA_IFNAME, b"tap0\0"), (IFLA_NUM_TX_QUEUES, &256u32.to_ne_bytes()), (IFLA_LINKINFO, &info)];
        let link = Link::parse(&message(ARPHRD_ETHER, &parts)).expect("a link");
        assert_eq!((link.kind.as_str(), link.tx_queues, link.ifindex, link.up), ("tap", 4, 7, true));
    }

    #[test]
    fn a_veth_names_its_peer_and_the_namespace() {
        let info = info(b"veth\0", &[]);
        let parts: [(u16, &[u8]); 4] = [
            (IFLA_IFNAME, b"veth1\0"),
            (IFLA_LINK, &2u32.to_ne_bytes()),
            (IFLA_LINK_NETNSID, &0i32.to_ne_bytes()),
            (IFLA_LINKINFO, &info),
        ];
        let link = Link::parse(&message(ARPHRD_ETHER, &parts)).expect("a link");
        assert_eq!((link.kind.as_str(), link.link), ("veth", Some((2, Some(0)))));
    }

    #[test]
    fn a_nic_without_kind_is_known_by_its_type() {
        let kind = |number| Link::parse(&message(number, &[(IFLA_IFNAME, b"x\0")])).expect("a link").kind;
        assert_eq!([kind(1), kind(772), kind(65534)], ["ether", "loopback", "type65534"]);
    }

    #[test]
    fn a_message_without_name_is_no_link() {
        assert_eq!(Link::parse(&message(1, &[])), None);
        assert_eq!(Link::parse(&Message { kind: RTM_NEWLINK, flags: 0, payload: vec![1, 2] }), None);
    }
}
