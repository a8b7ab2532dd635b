//! Where a lost check ended: a closed set of places, and which drops belong to which.

use super::cause::Cause;
use super::queue::QueueWait;
use crate::event::{InterfaceId, TaskId};
use crate::journey::{PacketDrop, Span, Stage};
use std::fmt;

/// A place at which a check can be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the table below tells what each means")]
pub enum LossPlace {
    NicRing,
    Device,
    Program,
    Backlog,
    Qdisc,
    SendBuffer,
    TapRing,
    SocketBuffer,
    AcceptQueue,
    Netfilter,
    Policy,
    Neighbour,
    Routing,
    Ttl,
    Bridge,
    Header,
    Checksum,
    Elsewhere,
    Guest,
    Unread,
    Unanswered,
    LeftInTime,
    NeverArrived,
    Unseen,
}

/// What is known of a place.
#[derive(Debug, Clone, Copy)]
pub struct LossPlaceRow {
    /// The place.
    pub place: LossPlace,
    /// Public name.
    pub name: &'static str,
    /// What is true of a check that was lost there.
    pub meaning: &'static str,
    /// Which counter of the kernel counts it; empty if none does.
    pub counter: &'static str,
    /// The cause that a drop there proves by itself.
    pub cause: Option<Cause>,
}

/// The table of places: first those of drops, then the ends that no drop explains.
pub const LOSS_PLACES: [LossPlaceRow; 24] = [
    row(
        LossPlace::NicRing,
        "nic_ring",
        "the ring of the NIC or veth had no room",
        "tx_dropped of the interface (ip -s link), rx_missed and driver counters (ethtool -S)",
        Some(Cause::NicDrop),
    ),
    row(
        LossPlace::Device,
        "device",
        "the device could not take it: it is down, or its driver refused it",
        "tx_dropped or rx_dropped of the interface (ip -s link)",
        Some(Cause::NicDrop),
    ),
    row(
        LossPlace::Program,
        "program",
        "a program or filter at the device dropped it (XDP, tc)",
        "the filter's own (tc -s filter); none for XDP",
        Some(Cause::NicDrop),
    ),
    row(
        LossPlace::Backlog,
        "backlog",
        "the receive backlog of a CPU was full (net.core.netdev_max_backlog)",
        "second column of /proc/net/softnet_stat",
        Some(Cause::NicDrop),
    ),
    row(
        LossPlace::Qdisc,
        "qdisc",
        "the queueing discipline had no room, or still held it",
        "dropped of tc -s qdisc; where the sender's own call dropped it, Udp SndbufErrors of /proc/net/snmp too",
        Some(Cause::NicDrop),
    ),
    row(
        LossPlace::SendBuffer,
        "send_buffer",
        "the socket did not take it to send: no packet was made, or it still holds it",
        "Udp SndbufErrors of /proc/net/snmp",
        Some(Cause::AppSocketQueue),
    ),
    row(
        LossPlace::TapRing,
        "tap_ring",
        "the ring of the tap or vhost had no room, or nobody took it out",
        "tx_dropped of the tap (ip -s link)",
        Some(Cause::NicDrop),
    ),
    row(
        LossPlace::SocketBuffer,
        "socket_buffer",
        "the socket's receive buffer was full",
        "Udp RcvbufErrors of /proc/net/snmp; of one socket, the drops of ss -m",
        Some(Cause::AppSocketQueue),
    ),
    row(
        LossPlace::AcceptQueue,
        "accept_queue",
        "the listener's accept queue was full",
        "ListenOverflows of /proc/net/netstat",
        Some(Cause::AppSocketQueue),
    ),
    row(
        LossPlace::Netfilter,
        "netfilter",
        "a rule of iptables or nftables, or connection tracking, dropped it",
        "the rule's own (iptables -L -v, nft list ruleset); conntrack -S",
        Some(Cause::HostForwarding),
    ),
    row(
        LossPlace::Policy,
        "policy",
        "an IPsec policy or a cgroup's program refused it",
        "/proc/net/xfrm_stat; none for programs",
        Some(Cause::HostForwarding),
    ),
    row(
        LossPlace::Neighbour,
        "neighbour",
        "the neighbour's link address was not known (ARP or neighbour discovery)",
        "res_failed and unresolved_discards of /proc/net/stat/arp_cache, ndisc_cache",
        Some(Cause::HostForwarding),
    ),
    row(
        LossPlace::Routing,
        "routing",
        "the routing table refused it",
        "Ip OutNoRoutes and InAddrErrors of /proc/net/snmp, InNoRoutes and IPReversePathFilter of /proc/net/netstat",
        Some(Cause::HostForwarding),
    ),
    row(
        LossPlace::Ttl,
        "ttl",
        "it had no hop left to be forwarded",
        "Ip InHdrErrors of /proc/net/snmp",
        Some(Cause::HostForwarding),
    ),
    row(
        LossPlace::Bridge,
        "bridge",
        "the bridge or tunnel had no port for it, or the port does not forward",
        "tx_dropped or rx_dropped of the bridge (ip -s link), if any",
        Some(Cause::HostForwarding),
    ),
    row(
        LossPlace::Header,
        "header",
        "its headers, size or fragments are not what the kernel takes",
        "Ip InHdrErrors, InUnknownProtos, ReasmFails and FragFails of /proc/net/snmp",
        Some(Cause::HostForwarding),
    ),
    row(
        LossPlace::Checksum,
        "checksum",
        "its checksum was wrong",
        "InCsumErrors of /proc/net/snmp and /proc/net/netstat",
        None,
    ),
    row(LossPlace::Elsewhere, "elsewhere", "dropped for another reason of the kernel's", "", None),
    row(LossPlace::Guest, "guest", "handed to a VM or another namespace, from which no answer came", "", None),
    row(LossPlace::Unread, "unread", "in the socket's receive queue, and not read", "", None),
    row(LossPlace::Unanswered, "unanswered", "read by a thread, and not answered", "", None),
    row(
        LossPlace::LeftInTime,
        "left_in_time",
        "left this host, and no answer came back to it",
        "",
        Some(Cause::ExternalOutsideHost),
    ),
    row(
        LossPlace::NeverArrived,
        "never_arrived",
        "due by its interval, and this host's kernel had no packet of it",
        "rx_missed and driver counters of the NIC (ethtool -S), if it was lost in its ring",
        Some(Cause::ExternalOutsideHost),
    ),
    row(LossPlace::Unseen, "unseen", "nothing was seen of it behind its last stage, and no drop", "", None),
];

const fn row(
    place: LossPlace,
    name: &'static str,
    meaning: &'static str,
    counter: &'static str,
    cause: Option<Cause>,
) -> LossPlaceRow {
    LossPlaceRow { place, name, meaning, counter, cause }
}

impl LossPlace {
    /// Its row in the table.
    #[must_use]
    pub const fn row(self) -> &'static LossPlaceRow {
        &LOSS_PLACES[self as usize]
    }

    /// The public name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Where a drop with this reason, in this function of the kernel, took place.
    pub(super) fn of_drop(reason: &str, function: &str) -> Option<Self> {
        let in_function = |unsaid| {
            let here = FUNCTIONS.iter().filter(|rows| !rows.if_unsaid || unsaid);
            here.into_iter().find(|rows| rows.names.iter().any(|name| fits(name, function))).map(|rows| rows.place)
        };
        if HOPS.contains(&function) && reason == "IP_INHDR" {
            return Some(Self::Ttl);
        }
        let by_reason = || REASONS.iter().find(|(_, reasons)| reasons.iter().any(|name| fits(name, reason)));
        in_function(says_nothing(reason)).or_else(|| by_reason().map(|(place, _)| *place))
    }
}

/// Drop reasons by name, without the `SKB_DROP_REASON_` prefix; a trailing `*` stands for any
/// rest, a leading one for any begin. The first that fits counts. Reasons that stand nowhere prove
/// nothing by themselves.
/// <https://github.com/torvalds/linux/blob/v6.18/include/net/dropreason-core.h>
const REASONS: &[(LossPlace, &[&str])] = &[
    (LossPlace::AcceptQueue, &["*LISTEN_OVERFLOW"]),
    (
        LossPlace::SocketBuffer,
        &["SOCKET_RCVBUFF", "SOCKET_BACKLOG", "PROTO_MEM", "TCP_ZEROWINDOW", "UNIX_SKB_OOB_LIMIT"],
    ),
    (LossPlace::Checksum, &["*_CSUM"]),
    (LossPlace::Qdisc, &["QDISC_*", "FQ_*", "CAKE_*", "CODEL_*", "DUALPI2_*"]),
    (LossPlace::TapRing, &["FULL_RING"]),
    (LossPlace::Backlog, &["CPU_BACKLOG"]),
    (
        LossPlace::Program,
        &["XDP", "TC_INGRESS", "TC_EGRESS", "TC_CHAIN_*", "TC_RECLASSIFY_LOOP", "TAP_FILTER", "TAP_TXFILTER"],
    ),
    (LossPlace::Device, &["DEV_READY", "DEV_HDR", "SKB_UCOPY_FAULT", "SKB_GSO_SEG", "RX_NO_NETDEV", "RECURSION_LIMIT"]),
    (LossPlace::Netfilter, &["NETFILTER_*", "TC_COOKIE_ERROR"]),
    (LossPlace::Policy, &["BPF_CGROUP_EGRESS", "XFRM_*"]),
    (LossPlace::Neighbour, &["NEIGH_*"]),
    (
        LossPlace::Routing,
        &[
            "IP_OUTNOROUTES",
            "IP_INNOROUTES",
            "IP_RPFILTER",
            "IP_INADDRERRORS",
            "IP_LOCAL*",
            "IP_INVALID_*",
            "BLACKHOLE*",
            "LWTUNNEL*",
        ],
    ),
    (
        LossPlace::Bridge,
        &[
            "BRIDGE_*",
            "NO_TX_TARGET",
            "MAC_INVALID_SOURCE",
            "LOCAL_MAC",
            "MAC_IEEE_MAC_CONTROL",
            "ARP_PVLAN_DISABLE",
            "VLAN_*",
            "VXLAN_*",
            "TUNNEL_*",
            "IP_TUNNEL_*",
            "OPENVSWITCH*",
            "OVS_*",
        ],
    ),
    (
        LossPlace::Header,
        &[
            "IP_*",
            "IPV6*",
            "OTHERHOST",
            "PKT_TOO_BIG",
            "PKT_TOO_SMALL",
            "DUP_FRAG",
            "FRAG_*",
            "UNICAST_IN_L2_MULTICAST",
        ],
    ),
];

/// Functions of the kernel that drop for one thing only.
struct Functions {
    place: LossPlace,
    /// Only if the reason says nothing: they also drop for others.
    if_unsaid: bool,
    names: &'static [&'static str],
}

/// The first that fits counts.
const FUNCTIONS: &[Functions] = &[
    // A full accept queue is one of the things for which they refuse a segment.
    Functions {
        place: LossPlace::AcceptQueue,
        if_unsaid: true,
        names: &[
            "tcp_conn_request",
            "tcp_v4_conn_request",
            "tcp_v6_conn_request",
            "tcp_v4_syn_recv_sock",
            "tcp_v6_syn_recv_sock",
            "tcp_check_req",
        ],
    },
    // What the routing table refuses, whatever the reason says.
    Functions {
        place: LossPlace::Routing,
        if_unsaid: false,
        names: &["ip_error", "ip_mc_forward", "ip6_pkt_drop", "dst_discard", "dst_discard_out", "ip_rt_bug"],
    },
    Functions { place: LossPlace::Routing, if_unsaid: true, names: &["ip_forward", "ip6_forward"] },
    // veth_xmit drops for want of room alone; from 6.18 on it does so for its ring.
    // https://github.com/torvalds/linux/blob/v6.18/drivers/net/veth.c
    Functions { place: LossPlace::NicRing, if_unsaid: true, names: &["veth_xmit", "veth_xdp_rx"] },
    Functions { place: LossPlace::TapRing, if_unsaid: true, names: &["tun_net_xmit", "tap_handle_frame"] },
    Functions { place: LossPlace::Backlog, if_unsaid: true, names: &["enqueue_to_backlog", "netif_rx_internal"] },
    Functions { place: LossPlace::Netfilter, if_unsaid: true, names: &["nf_*"] },
    Functions {
        place: LossPlace::Neighbour,
        if_unsaid: true,
        names: &["neigh_*", "__neigh_*", "arp_error_report", "ndisc_error_report"],
    },
    Functions { place: LossPlace::Bridge, if_unsaid: true, names: &["br_*", "__br_*"] },
];

/// Functions that drop a packet without a hop left as one with a bad header.
const HOPS: [&str; 2] = ["ip_forward", "ip6_forward"];

/// Kernels before 5.17 have no reasons, and their numbers no names.
fn says_nothing(reason: &str) -> bool {
    matches!(reason, "NOT_SPECIFIED" | "NOT_DROPPED_YET") || reason.starts_with("reason ")
}

fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == pattern,
    }
}

/// What the call said with which an answer was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// All is well: the sender does not know of the loss.
    Success,
    /// It failed with this error number.
    Failed(i32),
}

impl Sent {
    /// From what a send call returned.
    pub(super) const fn of(result: i32) -> Self {
        if result < 0 { Self::Failed(result.saturating_neg()) } else { Self::Success }
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("success"),
            Self::Failed(number) => match ERRORS.iter().find(|(known, _)| known == number) {
                Some((_, name)) => f.write_str(name),
                None => write!(f, "error {number}"),
            },
        }
    }
}

/// Errors of send calls, as `asm-generic/errno.h` numbers them.
const ERRORS: [(i32, &str); 9] = [
    (1, "EPERM"),
    (4, "EINTR"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (90, "EMSGSIZE"),
    (101, "ENETUNREACH"),
    (105, "ENOBUFS"),
    (111, "ECONNREFUSED"),
    (113, "EHOSTUNREACH"),
];

/// Where a lost check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostAt {
    /// The place.
    pub place: LossPlace,
    /// The last stage that it reached.
    pub stage: Stage,
    /// Where it was from there on.
    pub span: Span,
    /// The reply was lost, not the request.
    pub reply: bool,
    /// The drop that ended it; `None` if there was none.
    pub drop: Option<PacketDrop>,
    /// The device, zeros if unknown or none.
    pub interface: InterfaceId,
    /// What the sender's call returned, where that is known.
    pub sent: Option<Sent>,
    /// Who made that call; zeros if unknown.
    pub sender: TaskId,
    /// What had filled the transmit queue that had no room for it, or behind which its socket had none; else
    /// why that is not known. `None` if it was lost elsewhere.
    pub filled: Option<Result<QueueWait, &'static str>>,
}

#[cfg(test)]
mod tests {
    use super::{LOSS_PLACES, LossPlace, Sent};

    #[test]
    fn rows_stand_in_the_order_of_the_places() {
        assert!(LOSS_PLACES.iter().enumerate().all(|(index, row)| row.place as usize == index));
    }

    #[test]
    fn a_drop_has_one_place_or_none() {
        let rows = [
            ("SOCKET_RCVBUFF", "__udp_enqueue_schedule_skb", Some(LossPlace::SocketBuffer)),
            ("SOCKET_BACKLOG", "tcp_add_backlog", Some(LossPlace::SocketBuffer)),
            ("TCP_LISTEN_OVERFLOW", "tcp_v4_rcv", Some(LossPlace::AcceptQueue)),
            ("NOT_SPECIFIED", "tcp_conn_request", Some(LossPlace::AcceptQueue)),
            ("QDISC_DROP", "kfree_skb_list_reason", Some(LossPlace::Qdisc)),
            ("QDISC_OVERLIMIT", "", Some(LossPlace::Qdisc)),
            ("FULL_RING", "tun_net_xmit", Some(LossPlace::TapRing)),
            ("reason 3", "tun_net_xmit", Some(LossPlace::TapRing)),
            ("FULL_RING", "tap_handle_frame", Some(LossPlace::TapRing)),
            ("NOT_SPECIFIED", "tap_handle_frame", Some(LossPlace::TapRing)),
            ("CPU_BACKLOG", "enqueue_to_backlog", Some(LossPlace::Backlog)),
            ("NOT_SPECIFIED", "veth_xmit", Some(LossPlace::NicRing)),
            ("TAP_FILTER", "tun_net_xmit", Some(LossPlace::Program)),
            ("NETFILTER_DROP", "nf_hook_slow", Some(LossPlace::Netfilter)),
            ("NEIGH_QUEUEFULL", "__neigh_event_send", Some(LossPlace::Neighbour)),
            ("IP_OUTNOROUTES", "ip_forward", Some(LossPlace::Routing)),
            ("IP_INNOROUTES", "ip_error", Some(LossPlace::Routing)),
            ("NOT_SPECIFIED", "dst_discard", Some(LossPlace::Routing)),
            ("IP_INHDR", "ip_forward", Some(LossPlace::Ttl)),
            ("IP_INHDR", "ip_rcv_core", Some(LossPlace::Header)),
            ("IP_CSUM", "ip_rcv_core", Some(LossPlace::Checksum)),
            ("UDP_CSUM", "udp_queue_rcv_one_skb", Some(LossPlace::Checksum)),
            ("IPV6DISABLED", "ip6_rcv_core", Some(LossPlace::Header)),
            ("BRIDGE_INGRESS_STP_STATE", "br_handle_frame", Some(LossPlace::Bridge)),
            ("NOT_SPECIFIED", "br_forward", Some(LossPlace::Bridge)),
            ("NOT_SPECIFIED", "br_flood", Some(LossPlace::Bridge)),
            ("NOT_SPECIFIED", "skb_release", None),
            ("NO_SOCKET", "udp_rcv", None),
            ("TCP_OLD_DATA", "tcp_data_queue", None),
            ("reason 40", "", None),
        ];
        for (reason, function, place) in rows {
            assert_eq!(LossPlace::of_drop(reason, function), place, "{reason} in {function}");
        }
    }

    #[test]
    fn a_send_call_says_what_it_returned() {
        let said = [32, -105, -11, -7777].map(|result| Sent::of(result).to_string());
        assert_eq!(said, ["success", "ENOBUFS", "EAGAIN", "error 7777"]);
    }
}
