//! Each kind of NIC, watched: the stages of a check are right, and nothing is counted twice. Needs
//! root.

use crate::live::{Attached, World, ip, of_type};
use serde_json::Value;
use std::process::Command;

const CHECKS: u32 = 20;
/// What a check passes that a process of the host answers.
const STAGES: [&str; 6] = ["pnic_rx", "sock_enqueue", "sock_read", "app_send", "pnic_queue", "pnic_xmit"];

/// Moves the addresses of a world from its veths to a device on each side.
fn readdress(world: &World, add: &str, device: &str) {
    for (namespace, address) in [(&world.host, "10.79.0.1/24"), (&world.peer, "10.79.0.2/24")] {
        ip(&format!("-n {namespace} addr flush dev v0"));
        ip(&format!("-n {namespace} {add}"));
        ip(&format!("-n {namespace} addr add {address} dev {device}"));
        ip(&format!("-n {namespace} link set {device} up"));
        // It would answer with its own link address for those of the device above it.
        ip(&format!("-n {namespace} link set v0 arp off"));
    }
}

/// Whether `ip` does it.
fn can(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split(' ')).status().unwrap().success()
}

/// Checks a world's server while each of these choices of NICs is watched; none of them named is
/// what whylag finds by itself.
fn watch(world: &World, choices: &[&[&str]]) {
    // Each side asks for the other's link address first.
    let server = world.serve(1);
    world.check(1);
    server.join().unwrap();
    for nics in choices {
        let named = nics.iter().flat_map(|nic| ["--pnic", *nic]);
        let attached = Attached::new(world, &named.chain(["--count", "20", "--duration", "20s"]).collect::<Vec<_>>());
        let server = world.serve(CHECKS);
        world.check(CHECKS);
        server.join().unwrap();
        let (text, _) = attached.end();
        let journeys = of_type(&text, "journey");
        assert_eq!(journeys.len(), CHECKS as usize, "{nics:?}: {text}");
        for journey in &journeys {
            let stages: Vec<&Value> =
                journey["stages"].as_array().unwrap().iter().map(|stage| &stage["stage"]).collect();
            assert_eq!(stages, STAGES, "{nics:?}: {journey}");
            assert_eq!(
                (&journey["outcome"], &journey["retransmissions"]),
                (&"replied".into(), &0.into()),
                "{nics:?}: {journey}"
            );
        }
        let summary = &of_type(&text, "summary")[0];
        let counts = ["targets", "checks", "lost", "open", "ambiguous", "broken"].map(|name| summary[name].as_u64());
        assert_eq!(counts, [1, 20, 0, 0, 0, 0].map(Some), "{nics:?}: {summary}");
    }
}

#[test]
fn a_veth_of_several_queues_is_one_nic() {
    let Some(world) = World::new() else { return };
    let World { host, peer } = &world;
    ip(&format!("-n {host} link del v0"));
    let queues = "numtxqueues 4 numrxqueues 4";
    ip(&format!("link add v0 netns {host} {queues} type veth peer name v0 netns {peer} {queues}"));
    for (namespace, address) in [(host, "10.79.0.1/24"), (peer, "10.79.0.2/24")] {
        ip(&format!("-n {namespace} addr add {address} dev v0"));
        ip(&format!("-n {namespace} link set v0 up"));
    }
    watch(&world, &[&[], &["v0"]]);
}

#[test]
fn a_bridge_and_its_port_are_passed_once() {
    let Some(world) = World::new() else { return };
    let host = &world.host;
    ip(&format!("-n {host} link add br0 type bridge"));
    ip(&format!("-n {host} addr flush dev v0"));
    ip(&format!("-n {host} link set v0 master br0"));
    ip(&format!("-n {host} addr add 10.79.0.1/24 dev br0"));
    ip(&format!("-n {host} link set br0 up"));
    watch(&world, &[&[], &["v0"], &["br0"], &["v0", "br0"]]);
}

#[test]
fn a_vlan_and_the_nic_below_it_are_passed_once() {
    let Some(world) = World::new() else { return };
    if !can(&format!("-n {} link add link v0 name v6 type vlan id 6", world.peer)) {
        println!("skipped: this kernel has no VLANs");
        return;
    }
    readdress(&world, "link add link v0 name v5 type vlan id 5", "v5");
    watch(&world, &[&[], &["v0"], &["v5"], &["v0", "v5"]]);
}

#[test]
fn a_macvlan_and_the_nic_below_it_are_passed_once() {
    let Some(world) = World::new() else { return };
    readdress(&world, "link add link v0 name m0 type macvlan mode bridge", "m0");
    watch(&world, &[&[], &["v0"], &["m0"], &["v0", "m0"]]);
}
