//! The worlds: a client and the observed host, joined by a veth pair whose end in the host plays
//! the physical NIC; behind the host, where the case asks for it, a pod or a tap device.
//!
//! ```text
//!  client up0 ═══ pnic0 host                     direct, two queues
//!  client up0 ═══ pnic0 host vnic0 ═══ eth0 pod  pod
//!  client up0 ═══ pnic0 host vnic0 ─── tap       vm
//!  server up0 ═══ pnic0 host                     asking
//!  client up0 ═══ pnic0 br0 vnic0 ═══ eth0 pod   bridge
//!  client up0 ═══ pnic0 vnic0 ─── macvtap        macvtap
//! ```
//! Where the case asks for it, both ends of the link are bonds of two devices, or VLANs on them.
//! Neighbours are fixed, so that no address resolution delays a check.

use super::netns::Netns;
use super::process::Launcher;
use anyhow::Result;
use std::net::Ipv4Addr;

/// Which world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The server runs on the host.
    Direct,
    /// The same, and the physical NIC has two transmit queues.
    TwoQueues,
    /// The server runs in a pod to which the host routes.
    Pod,
    /// The server is behind a tap device to which the host routes.
    Vm,
    /// The host itself sends the checks, to a server elsewhere.
    Asking,
    /// The server runs in a pod that a bridge of the host joins to the client's link.
    Bridge,
    /// The server is behind a macvtap on the host's end of the client's link.
    Macvtap,
}

/// What the link between the client and the host is made of, on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// One device.
    Single,
    /// A bond of two, of which one is used.
    Bond,
    /// A VLAN on such a bond.
    VlanOnBond,
}

/// The host's end of the link to the client.
pub const PNIC: &str = "pnic0";
/// The host's end of the link to the pod, or the tap or macvtap.
pub const VNIC: &str = "vnic0";
/// Hardware address of a guest behind the tap.
pub const GUEST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 2];

/// The host's device that a bond of its uses.
pub const BONDED: &str = "port0";
/// The bond below a VLAN.
const BOND: &str = "bond0";
/// Number of the VLAN.
const VLAN: u16 = 5;

/// The host's bridge, in the shape [`Shape::Bridge`].
const BRIDGE: &str = "br0";

/// The client's end of its link.
pub const CLIENT_NIC: &str = "up0";
/// The pod's end of its link.
pub const POD_NIC: &str = "eth0";
/// The NIC of a guest with a kernel.
pub const GUEST_NIC: &str = "eth0";
/// The host's end of the second link, which no check takes.
pub const SECOND_NIC: &str = "pnic1";

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const SECOND_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 1);
const SECOND_HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 2);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const BRIDGED: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 2);

/// A built world.
#[derive(Debug)]
pub struct World {
    /// Which.
    pub shape: Shape,
    /// The world outside the host: where checks come from, or go to.
    pub client: Netns,
    /// The observed host.
    pub host: Netns,
    /// The pod, in the shape [`Shape::Pod`].
    pub pod: Option<Netns>,
}

impl World {
    /// Builds it.
    ///
    /// # Errors
    /// Not root, or `ip` is missing or fails.
    pub fn build(launcher: &Launcher, shape: Shape, link: Link) -> Result<Self> {
        let (client, host) = (Netns::new(launcher)?, Netns::new(launcher)?);
        let queues = if shape == Shape::TwoQueues { 2 } else { 1 };
        match link {
            Link::Single => join_by(queues, (&host, PNIC, HOST), (&client, CLIENT_NIC, CLIENT))?,
            Link::Bond | Link::VlanOnBond => join_by_bonds(&host, &client, link)?,
        }
        client.run("ip", &format!("route add default via {HOST}"))?;
        let pod = match shape {
            Shape::Direct | Shape::TwoQueues | Shape::Asking => None,
            Shape::Pod => Some(add_pod(launcher, &host)?),
            Shape::Bridge => Some(add_bridged_pod(launcher, &host, &client)?),
            Shape::Vm => {
                add_tap(&host, "")?;
                None
            }
            Shape::Macvtap => {
                add_macvtap(&host, &client)?;
                None
            }
        };
        Ok(Self { shape, client, host, pod })
    }

    /// Address of the server of health checks.
    #[must_use]
    pub fn server(&self) -> Ipv4Addr {
        match self.shape {
            Shape::Direct | Shape::TwoQueues => HOST,
            Shape::Pod | Shape::Vm => GUEST,
            Shape::Asking => CLIENT,
            Shape::Bridge | Shape::Macvtap => BRIDGED,
        }
    }

    /// Address of the world outside the host.
    #[must_use]
    pub fn client_address(&self) -> Ipv4Addr {
        CLIENT
    }

    /// Address of the host at its tap.
    #[must_use]
    pub fn tap_address(&self) -> Ipv4Addr {
        gateway()
    }

    /// Where the server runs.
    #[must_use]
    pub fn server_netns(&self) -> &Netns {
        match self.shape {
            Shape::Asking => &self.client,
            Shape::Direct | Shape::TwoQueues | Shape::Pod | Shape::Vm | Shape::Bridge | Shape::Macvtap => {
                self.pod.as_ref().unwrap_or(&self.host)
            }
        }
    }

    /// Where checks come from.
    #[must_use]
    pub fn client_netns(&self) -> &Netns {
        match self.shape {
            Shape::Asking => &self.host,
            Shape::Direct | Shape::TwoQueues | Shape::Pod | Shape::Vm | Shape::Bridge | Shape::Macvtap => &self.client,
        }
    }

    /// Adds a second link between the client and the host; the host's address on it.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn join_again(&self) -> Result<Ipv4Addr> {
        join(&self.host, SECOND_NIC, SECOND_HOST, &self.client, "up1", SECOND_CLIENT)?;
        Ok(SECOND_HOST)
    }

    /// The neighbour entry that the host has of the pod or guest, as `ip neigh` takes it.
    #[must_use]
    pub fn neighbour(&self) -> String {
        format!("{GUEST} lladdr {} dev {VNIC} nud permanent", mac(GUEST))
    }

    /// Puts a tap with several queues in the place of the one that has one.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn divide_tap(&self) -> Result<()> {
        self.host.run("ip", &format!("link del {VNIC}"))?;
        add_tap(&self.host, "multi_queue")
    }

    /// What a guest with a kernel tells `ip` of its own NIC, so that no address is asked for.
    #[must_use]
    pub fn guest_settings(&self, device: &str) -> [String; 4] {
        [
            format!("addr add {GUEST}/24 dev {device}"),
            format!("link set {device} up"),
            format!("neigh replace {} lladdr {} dev {device} nud permanent", gateway(), mac(gateway())),
            format!("route add default via {}", gateway()),
        ]
    }
}

fn mac(address: Ipv4Addr) -> String {
    let [_, _, net, host] = address.octets();
    format!("02:00:00:00:{net:02x}:{host:02x}")
}

/// Joins two namespaces with a veth pair, with addresses and fixed neighbours.
fn join(a: &Netns, a_name: &str, a_ip: Ipv4Addr, b: &Netns, b_name: &str, b_ip: Ipv4Addr) -> Result<()> {
    join_by(1, (a, a_name, a_ip), (b, b_name, b_ip))
}

/// The same, with so many queues each way.
fn join_by(
    queues: u32,
    (a, a_name, a_ip): (&Netns, &str, Ipv4Addr),
    (b, b_name, b_ip): (&Netns, &str, Ipv4Addr),
) -> Result<()> {
    let queues = format!("numtxqueues {queues} numrxqueues {queues}");
    let pair = format!(
        "link add {a_name} address {} {queues} type veth peer name {b_name} address {} {queues} netns {}",
        mac(a_ip),
        mac(b_ip),
        b.process_id()
    );
    a.run("ip", &pair)?;
    settle(a, a_name, a_ip, b_ip)?;
    settle(b, b_name, b_ip, a_ip)
}

/// Joins host and client by two veth pairs, of which each side makes a bond.
fn join_by_bonds(host: &Netns, client: &Netns, link: Link) -> Result<()> {
    for (port, other) in [(BONDED, "out0"), ("port1", "out1")] {
        let other = format!("peer name {other} netns {}", client.process_id());
        host.run("ip", &format!("link add {port} type veth {other}"))?;
    }
    bond(host, PNIC, HOST, [BONDED, "port1"], link)?;
    bond(client, CLIENT_NIC, CLIENT, ["out0", "out1"], link)?;
    settle(host, PNIC, HOST, CLIENT)?;
    settle(client, CLIENT_NIC, CLIENT, HOST)
}

/// Makes `name` of the first of two devices, with the second in reserve.
fn bond(netns: &Netns, name: &str, address: Ipv4Addr, devices: [&str; 2], link: Link) -> Result<()> {
    let bond = if link == Link::VlanOnBond { BOND } else { name };
    let how = "type bond mode active-backup miimon 100";
    netns.run("ip", &format!("link add {bond} address {} {how}", mac(address)))?;
    for device in devices {
        netns.run("ip", &format!("link set {device} master {bond}"))?;
    }
    netns.run("ip", &format!("link set {bond} type bond primary {}", devices[0]))?;
    if link == Link::VlanOnBond {
        netns.run("ip", &format!("link set {bond} up"))?;
        netns.run("ip", &format!("link add link {bond} name {name} type vlan id {VLAN}"))?;
    }
    Ok(())
}

fn settle(netns: &Netns, device: &str, address: Ipv4Addr, neighbour: Ipv4Addr) -> Result<()> {
    netns.run("ip", &format!("addr add {address}/24 dev {device}"))?;
    netns.run("ip", &format!("link set {device} up"))?;
    netns.run("ip", &format!("neigh replace {neighbour} lladdr {} dev {device} nud permanent", mac(neighbour)))?;
    Ok(())
}

fn gateway() -> Ipv4Addr {
    let [a, b, net, _] = GUEST.octets();
    Ipv4Addr::new(a, b, net, 1)
}

fn add_pod(launcher: &Launcher, host: &Netns) -> Result<Netns> {
    let pod = Netns::new(launcher)?;
    join(host, VNIC, gateway(), &pod, POD_NIC, GUEST)?;
    pod.run("ip", &format!("route add default via {}", gateway()))?;
    host.set("net/ipv4/ip_forward", "1")?;
    Ok(pod)
}

fn add_bridged_pod(launcher: &Launcher, host: &Netns, client: &Netns) -> Result<Netns> {
    let pod = Netns::new(launcher)?;
    let id = pod.process_id();
    let pair = format!("link add {VNIC} type veth peer name {POD_NIC} address {} netns {id}", mac(BRIDGED));
    host.run("ip", &pair)?;
    host.run("ip", &format!("link add {BRIDGE} type bridge"))?;
    for device in [PNIC, VNIC, BRIDGE] {
        if device != BRIDGE {
            host.run("ip", &format!("link set {device} master {BRIDGE}"))?;
        }
        host.run("ip", &format!("link set {device} up"))?;
    }
    settle(&pod, POD_NIC, BRIDGED, CLIENT)?;
    client.run("ip", &format!("neigh replace {BRIDGED} lladdr {} dev {CLIENT_NIC} nud permanent", mac(BRIDGED)))?;
    Ok(pod)
}

/// A tap on the host's end of the link, for a guest that has an address of the client's network. Its index
/// names its file, so it is one that no other namespace has.
fn add_macvtap(host: &Netns, client: &Netns) -> Result<()> {
    let (guest, index) = (mac(GUEST), host.process_id());
    let link = format!("link add link {PNIC} name {VNIC} index {index} address {guest} type macvtap mode bridge");
    host.run("ip", &link)?;
    host.run("ip", &format!("link set {VNIC} up"))?;
    client.run("ip", &format!("neigh replace {BRIDGED} lladdr {guest} dev {CLIENT_NIC} nud permanent"))?;
    Ok(())
}

fn add_tap(host: &Netns, queues: &str) -> Result<()> {
    host.run("ip", &format!("tuntap add {VNIC} mode tap {queues}"))?;
    host.run("ip", &format!("link set {VNIC} address {}", mac(gateway())))?;
    settle(host, VNIC, gateway(), GUEST)?;
    host.set("net/ipv4/ip_forward", "1")
}

#[cfg(test)]
mod tests {
    use super::{GUEST, GUEST_MAC, mac};

    #[test]
    fn the_guest_has_the_address_that_the_host_was_told() {
        let octets: Vec<String> = GUEST_MAC.iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(octets.join(":"), mac(GUEST));
    }
}
