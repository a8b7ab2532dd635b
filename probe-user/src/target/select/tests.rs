use super::{Searched, Selection, SelectionError, Targets};
use crate::event::{InterfaceId, InterfaceRole};
use crate::target::{Container, Discovery, Interface, LinkState, Machine, Namespace, Peer, Vmm};

const HOME: u64 = 1;
const POD: u64 = 2;
const LAB: u64 = 3;
const VMM: u32 = 500;
const SERVER: u32 = 600;
const LONELY: u32 = 700;

fn namespace(cookie: u64, name: Option<&str>, tgids: &[u32]) -> Namespace {
    let path = format!("/run/netns/{}", name.unwrap_or("none")).into();
    let tgids = tgids.to_vec();
    Namespace { cookie, inode: cookie + 100, path, name: name.map(str::to_owned), home: cookie == HOME, tgids }
}

fn interface(netns: u64, ifindex: u32, name: &str, kind: &str) -> Interface {
    Interface {
        id: InterfaceId { netns, ifindex },
        name: name.to_owned(),
        kind: kind.to_owned(),
        peer: None,
        master: None,
        mtu: 1500,
        tx_queues: 2,
        rx_queues: 2,
        queue_limits: None,
        rings: None,
        receive_spread: None,
        up: true,
        state: LinkState::Up,
        outward: false,
        driver: None,
        offloads: None,
        holders: Vec::new(),
    }
}

fn tied(mut interface: Interface, netns: u64, ifindex: u32) -> Interface {
    interface.peer = Some(Peer { ifindex, netns: Some(netns) });
    interface
}

/// A host with two NICs, one of them down, a VM and a pod; beside it a namespace nothing leads to.
fn host() -> Discovery {
    let mut idle = interface(HOME, 3, "eth1", "ether");
    idle.up = false;
    let machine = Machine {
        tgid: VMM,
        comm: "qemu-system-x86".to_owned(),
        vmm: Vmm::Qemu,
        name: "web01".to_owned(),
        taps: vec![InterfaceId { netns: HOME, ifindex: 4 }],
        threads: Vec::new(),
        vhost_tgids: vec![501],
        disks: Vec::new(),
        cgroup: String::new(),
    };
    let container = |id: &str, tgid, netns| Container {
        id: id.to_owned(),
        name: None,
        runtime: "docker",
        pod: None,
        netns: Some(netns),
        tgids: vec![tgid],
        cgroup: String::new(),
    };
    Discovery {
        namespaces: vec![
            namespace(HOME, None, &[1, VMM]),
            namespace(POD, None, &[SERVER]),
            namespace(LAB, Some("lab"), &[LONELY]),
        ],
        interfaces: vec![
            interface(HOME, 1, "lo", "loopback"),
            interface(HOME, 2, "eth0", "ether"),
            idle,
            interface(HOME, 4, "vltap0", "tap"),
            interface(HOME, 5, "br0", "bridge"),
            tied(interface(HOME, 6, "veth9", "veth"), POD, 2),
            tied(interface(POD, 2, "eth0", "veth"), HOME, 6),
            interface(LAB, 2, "lab0", "veth"),
        ],
        machines: vec![machine],
        containers: vec![container("abc111", SERVER, POD), container("abd222", 1, HOME)],
        gaps: Vec::new(),
        ..Discovery::default()
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn choose(targets: &Targets) -> Result<Selection, SelectionError> {
    Selection::choose(targets, &host())
}

/// `name:role` of each, with the namespace's number before the name unless it is home.
fn chosen(targets: &Targets) -> Vec<String> {
    let selection = choose(targets).expect("a selection");
    let show = |fact: &crate::event::InterfaceFact| match fact.role {
        InterfaceRole::PhysicalNic => format!("{} pnic", fact.name),
        InterfaceRole::VirtualNic => format!("{} vnic {}", fact.name, fact.label),
        InterfaceRole::Inner => format!("{} inner {}", fact.name, fact.label),
    };
    selection.chosen.iter().map(|chosen| show(&chosen.interface)).collect()
}

/// A VM on the first NIC without a bridge, and another whose VMM has a namespace of its own.
#[test]
fn vms_on_macvtaps_are_found_wherever_those_are() {
    let mut discovery = host();
    discovery.interfaces.extend([
        tied(interface(HOME, 8, "vm8", "macvtap"), HOME, 2),
        tied(interface(POD, 9, "vm9", "macvtap"), HOME, 2),
        tied(interface(LAB, 9, "vm9", "macvtap"), LAB, 2),
        tied(interface(HOME, 10, "own0", "macvlan"), HOME, 2),
    ]);
    let vm = |tgid, name: &str, netns, ifindex| Machine {
        tgid,
        name: name.to_owned(),
        taps: vec![InterfaceId { netns, ifindex }],
        ..host().machines[0].clone()
    };
    discovery.machines.extend([vm(510, "web08", HOME, 8), vm(SERVER, "web09", POD, 9), vm(LONELY, "web10", LAB, 9)]);
    let names = |targets: &Targets| -> Vec<(String, String)> {
        let selection = Selection::choose(targets, &discovery).expect("a selection");
        let all = selection.chosen.into_iter().filter(|chosen| chosen.interface.role == InterfaceRole::VirtualNic);
        all.map(|chosen| (chosen.interface.name, chosen.interface.label)).collect()
    };
    let pair = |name: &str, label: &str| (name.to_owned(), label.to_owned());
    let (web08, web09) = (pair("vm8", "web08"), pair("vm9", "web09"));
    let others = [pair("vltap0", "web01"), pair("veth9", "abc111")];
    let found = names(&Targets::default());
    assert_eq!(found, [&others[..], &[web08.clone(), web09.clone()]].concat());
    let named = |name: &str| names(&Targets { names: words(&[name]), ..Targets::default() });
    assert_eq!(named("vm8"), std::slice::from_ref(&web08));
    assert_eq!(named("web08"), [web08]);
    assert_eq!(names(&Targets { pid: vec![SERVER], ..Targets::default() }), [web09]);
}

#[test]
fn nothing_named_finds_nics_vms_and_pods() {
    let all = Targets::default();
    assert_eq!(chosen(&all), ["eth0 pnic", "vltap0 vnic web01", "veth9 vnic abc111", "eth0 inner abc111"]);
    let selection = choose(&all).expect("a selection");
    assert_eq!(selection.searched, Searched { physical: true, guests: true });
    assert_eq!(selection.watch, [VMM, 501]);
    assert_eq!(selection.namespaces, [HOME, POD]);
    assert!(selection.reasons.iter().any(|reason| reason == "left out because they are down: eth1"));
}

#[test]
fn a_part_of_a_bond_leads_to_no_container() {
    let mut discovery = host();
    discovery.interfaces.push(interface(HOME, 9, "bond0", "bond"));
    let veth = discovery.interfaces.iter_mut().find(|interface| interface.name == "veth9").expect("it is there");
    veth.master = Some(9);
    let targets = Targets { pnic: words(&["bond0"]), ..Targets::default() };
    let selection = Selection::choose(&targets, &discovery).expect("a selection");
    let names: Vec<&str> = selection.chosen.iter().map(|chosen| chosen.interface.name.as_str()).collect();
    assert_eq!(names, ["bond0", "vltap0"]);
}

#[test]
fn a_named_nic_leaves_the_search_for_guests() {
    let targets = Targets { pnic: words(&["eth1"]), ..Targets::default() };
    let reasons = choose(&targets).expect("a selection").reasons;
    assert!(reasons.contains(&"warning: eth1 is down: no check passes it until it is up".to_owned()), "{reasons:?}");
    assert_eq!(chosen(&targets), ["eth1 pnic", "vltap0 vnic web01", "veth9 vnic abc111", "eth0 inner abc111"]);
}

#[test]
fn a_named_guest_leaves_the_search_for_nics() {
    let vnic = Targets { vnic: words(&["vltap0=Web"]), ..Targets::default() };
    assert_eq!(chosen(&vnic), ["eth0 pnic", "vltap0 vnic Web"]);
    for name in ["web01", "vltap0"] {
        let vm = Targets { names: words(&[name]), ..Targets::default() };
        assert_eq!(chosen(&vm), ["eth0 pnic", "vltap0 vnic web01"]);
        assert_eq!(choose(&vm).expect("a selection").watch, [VMM, 501]);
    }
    let container = Targets { container: words(&["abc"]), ..Targets::default() };
    assert_eq!(chosen(&container), ["eth0 pnic", "veth9 vnic abc111", "eth0 inner abc111"]);
    let process = Targets { pid: vec![SERVER], ..Targets::default() };
    assert_eq!(chosen(&process), chosen(&container));
    let number = Targets { names: words(&["600"]), ..Targets::default() };
    assert_eq!(chosen(&number), chosen(&container));
}

#[test]
fn a_process_of_the_host_uses_its_nics_only() {
    let targets = Targets { pid: vec![1], ..Targets::default() };
    assert_eq!(chosen(&targets), ["eth0 pnic"]);
    assert_eq!(choose(&targets).expect("a selection").watch, [1]);
}

#[test]
fn a_namespace_can_be_the_host_by_name_path_or_process() {
    for name in ["lab", "/run/netns/lab", "700"] {
        let targets = Targets { netns: Some(name.to_owned()), ..Targets::default() };
        assert_eq!(chosen(&targets), ["lab0 pnic"], "{name}");
    }
    let targets = Targets { netns: Some("lab".to_owned()), vnic: words(&["lab0"]), ..Targets::default() };
    assert_eq!(chosen(&targets), ["lab0 vnic lab0"]);
}

#[test]
fn an_unknown_name_says_what_was_meant_and_where_it_exists() {
    let error = |targets: Targets| choose(&targets).expect_err("unknown").to_string();
    let text = error(Targets { vnic: words(&["vltpa0"]), ..Targets::default() });
    assert!(text.starts_with("--vnic vltpa0: no such interface in the host; did you mean `vltap0`?"), "{text}");
    let text = error(Targets { pnic: words(&["lab0"]), ..Targets::default() });
    assert!(text.contains("namespace lab has one: give --netns lab"), "{text}");
    assert!(text.contains("there is: br0, eth0, eth1, lo, veth9, vltap0"), "{text}");
    let text = error(Targets { netns: Some("lap".to_owned()), ..Targets::default() });
    assert!(text.contains("did you mean `lab`?"), "{text}");
    let text = error(Targets { names: words(&["web02"]), ..Targets::default() });
    assert!(text.contains("did you mean `web01`?"), "{text}");
    let text = error(Targets { container: words(&["zzz"]), ..Targets::default() });
    assert!(text.contains("there is: abc111, abd222"), "{text}");
    assert!(error(Targets { pid: vec![9], ..Targets::default() }).contains("ps -p 9"));
}

#[test]
fn contradictions_are_refused() {
    let error = |targets: Targets| choose(&targets).expect_err("a contradiction");
    let both = error(Targets { pnic: words(&["eth0"]), vnic: words(&["eth0"]), ..Targets::default() });
    assert!(matches!(both, SelectionError::TwoRoles { .. }), "{both}");
    let apart = error(Targets { pnic: words(&["eth0"]), pid: vec![LONELY], ..Targets::default() });
    assert_eq!(apart.to_string(), "process 700 is in namespace lab, which no link joins to the host; give --netns lab");
    let several = error(Targets { container: words(&["ab"]), ..Targets::default() });
    assert!(matches!(several, SelectionError::Ambiguous { .. }), "{several}");
    let no_tap = error(Targets { netns: Some("lab".to_owned()), names: words(&["web01"]), ..Targets::default() });
    assert!(matches!(no_tap, SelectionError::NoTap { .. }), "{no_tap}");
}

#[test]
fn a_veth_whose_other_end_cannot_be_reached_still_counts() {
    let mut discovery = host();
    discovery.namespaces.retain(|place| place.cookie != POD);
    discovery.interfaces.retain(|interface| interface.id.netns != POD);
    discovery.interfaces.iter_mut().filter_map(|interface| interface.peer.as_mut()).for_each(|peer| peer.netns = None);
    let selection = Selection::choose(&Targets::default(), &discovery).expect("a selection");
    let names: Vec<_> = selection.chosen.iter().map(|chosen| chosen.interface.name.as_str()).collect();
    assert_eq!(names, ["eth0", "vltap0", "veth9"]);
}

#[test]
fn only_what_is_new_is_added() {
    let mut before = host();
    before.interfaces.retain(|interface| interface.name != "vltap0");
    let before = Selection::choose(&Targets::default(), &before).expect("a selection");
    let after = choose(&Targets::default()).expect("a selection");
    let added: Vec<_> = after.added_since(&before).map(|chosen| chosen.interface.name.as_str()).collect();
    assert_eq!(added, ["vltap0"]);
}

#[test]
fn a_short_word_is_no_container() {
    let unknown = choose(&Targets { names: words(&["abc"]), ..Targets::default() });
    assert!(matches!(unknown, Err(SelectionError::UnknownTarget { .. })), "{unknown:?}");
    let known = Targets { names: words(&["abc111"]), ..Targets::default() };
    assert_eq!(chosen(&known), ["eth0 pnic", "veth9 vnic abc111", "eth0 inner abc111"]);
}

#[test]
fn a_host_without_a_way_out_is_an_error_and_no_empty_run() {
    let mut bare = host();
    bare.interfaces.retain(|interface| interface.kind == "loopback");
    let error = Selection::choose(&Targets::default(), &bare).expect_err("nothing to watch");
    assert!(matches!(error, SelectionError::Nothing { .. }), "{error}");
    let lo = Targets { pnic: words(&["lo"]), ..Targets::default() };
    assert_eq!(Selection::choose(&lo, &bare).expect("a selection").chosen.len(), 1);
}

/// What is watched as a NIC of the host or of a guest, when NICs are named and guests are searched for.
fn around(pnic: &[&str], discovery: &Discovery) -> Vec<String> {
    let targets = Targets { pnic: words(pnic), ..Targets::default() };
    let selection = Selection::choose(&targets, discovery).expect("a selection");
    let outer = selection.chosen.iter().filter(|chosen| chosen.interface.role != InterfaceRole::Inner);
    outer.map(|chosen| chosen.interface.name.clone()).collect()
}

/// The host with another veth, `up0`, to a namespace outside.
fn host_with_uplink(master: Option<u32>) -> Discovery {
    let mut discovery = host();
    let uplink = Interface { master, ..tied(interface(HOME, 20, "up0", "veth"), LAB, 2) };
    discovery.interfaces.extend([uplink, interface(HOME, 21, "bond0", "bond")]);
    discovery
}

fn put_below(discovery: &mut Discovery, name: &str, master: u32) {
    let port = discovery.interfaces.iter_mut().find(|interface| interface.name == name).expect("it is there");
    port.master = Some(master);
}

#[test]
fn what_lies_below_a_named_nic_is_no_guests() {
    // Without a NIC above it, a veth may be a guest's.
    assert_eq!(around(&["eth0"], &host_with_uplink(None)), ["eth0", "vltap0", "veth9", "up0"]);
    // The only way out of a bridge.
    assert_eq!(around(&["br0"], &host_with_uplink(Some(5))), ["br0", "vltap0", "veth9"]);
    assert_eq!(around(&["bond0"], &host_with_uplink(Some(21))), ["bond0", "vltap0", "veth9"]);
    for (kind, master) in [("vlan", None), ("macvlan", None), ("ipvlan", None), ("vlan", Some(5))] {
        let mut discovery = host_with_uplink(master);
        let lower = if master.is_some() { 5 } else { 20 };
        discovery.interfaces.push(tied(interface(HOME, 22, "upper0", kind), HOME, lower));
        assert_eq!(around(&["upper0"], &discovery), ["upper0", "vltap0", "veth9"], "{kind} {master:?}");
    }
}

#[test]
fn guests_on_a_bridge_are_told_from_its_uplink() {
    // A container's end and a tap beside the uplink.
    let mut discovery = host_with_uplink(Some(5));
    put_below(&mut discovery, "veth9", 5);
    put_below(&mut discovery, "vltap0", 5);
    assert_eq!(around(&["br0"], &discovery), ["br0", "vltap0", "veth9"]);
    // With hardware below the bridge, every veth is a guest's.
    put_below(&mut discovery, "eth0", 5);
    assert_eq!(around(&["br0"], &discovery), ["br0", "vltap0", "veth9", "up0"]);
}

#[test]
fn which_of_two_veths_leads_out_of_a_bridge_is_not_guessed() {
    let mut discovery = host_with_uplink(Some(5));
    let other = tied(interface(HOME, 23, "up1", "veth"), LAB, 3);
    discovery.interfaces.push(Interface { master: Some(5), ..other });
    assert_eq!(around(&["br0"], &discovery), ["br0", "vltap0", "veth9"]);
    let targets = Targets { pnic: words(&["br0"]), ..Targets::default() };
    let reasons = Selection::choose(&targets, &discovery).expect("a selection").reasons;
    assert!(reasons.iter().any(|reason| reason.contains("leads outside: up0, up1; name guests'")), "{reasons:?}");
    // What is behind the second reaches the world through this host.
    let inner = tied(interface(LAB, 3, "eth0", "veth"), HOME, 23);
    discovery.interfaces.push(Interface { outward: true, ..inner });
    discovery.interfaces.iter_mut().filter(|one| one.name == "up0").for_each(|one| one.peer = None);
    assert_eq!(around(&["br0"], &discovery), ["br0", "vltap0", "veth9", "up1"]);
}

/// A simulated host with a way out and a veth to the pod, which reaches the world through that.
fn simulated(outward: bool) -> Discovery {
    let mut discovery = host();
    discovery.interfaces.iter_mut().filter(|one| one.name == "lab0").for_each(|one| one.outward = outward);
    let outer = tied(interface(LAB, 8, "p0", "veth"), POD, 9);
    let inner = tied(interface(POD, 9, "v0", "veth"), LAB, 8);
    discovery.interfaces.extend([outer, Interface { outward: true, ..inner }]);
    discovery
}

#[test]
fn a_simulated_host_has_guests_where_its_routes_show_them() {
    let targets = Targets { netns: Some("lab".to_owned()), ..Targets::default() };
    for (outward, role) in [(true, InterfaceRole::VirtualNic), (false, InterfaceRole::PhysicalNic)] {
        let selection = Selection::choose(&targets, &simulated(outward)).expect("a selection");
        let role_of = |name: &str| {
            let chosen = selection.chosen.iter().find(|chosen| chosen.interface.name == name);
            chosen.map(|chosen| chosen.interface.role)
        };
        assert_eq!((role_of("lab0"), role_of("p0")), (Some(InterfaceRole::PhysicalNic), Some(role)), "{outward}");
        assert_eq!(role_of("v0"), outward.then_some(InterfaceRole::Inner));
    }
}

#[test]
fn a_later_look_goes_by_what_was_meant_at_first() {
    let named = Targets { pnic: words(&["eth0"]), ..Targets::default() };
    let names = |selection: Option<Selection>| {
        let chosen = selection.expect("the host is there").chosen;
        chosen.into_iter().map(|chosen| chosen.interface.name).collect::<Vec<_>>()
    };
    let first = choose(&named).expect("a selection");
    let mut later = host();
    later.interfaces.iter_mut().filter(|one| one.name == "eth0" && one.id.netns == HOME).for_each(|one| {
        one.name = "wan0".to_owned();
    });
    // The NIC of that name is gone: no other takes its place, and guests are still found.
    assert_eq!(names(first.again(&named, &later)), ["vltap0", "veth9", "eth0"]);
    let renaming = [("eth0".to_owned(), "wan0".to_owned())].into();
    assert_eq!(names(first.again(&named.renamed(&renaming), &later)), ["wan0", "vltap0", "veth9", "eth0"]);
    let labelled = Targets { vnic: words(&["eth0=web", "eth0", "eth1"]), ..Targets::default() };
    assert_eq!(labelled.renamed(&renaming).vnic, words(&["wan0=web", "wan0", "eth1"]));
    later.interfaces.clear();
    assert_eq!(names(first.again(&named, &later)), [""; 0]);
    later.namespaces.clear();
    assert_eq!(first.again(&named, &later), None);
}
